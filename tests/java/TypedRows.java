import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A sink that writes each field of its records with its types, and a source of one row with a field of each. */
public class TypedRows {
    private static Class<? extends Task> taskOf(Class<? extends Task> found) {
        return found;
    }

    public static class Sink extends SinkConnector {
        private Map<String, String> config;

        @Override
        public void start(Map<String, String> given) {
            config = given;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return taskOf(SinkOfFields.class);
        }

        @Override
        public List<Map<String, String>> taskConfigs(int most) {
            return List.of(config);
        }

        @Override
        public void stop() {
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static class SinkOfFields extends SinkTask {
        private Path file;

        @Override
        public void start(Map<String, String> config) {
            file = Path.of(config.get("file"));
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            var lines = new ArrayList<String>();
            for (SinkRecord record : records) {
                var row = (Struct) record.value();
                for (Field field : row.schema().fields()) {
                    Object value = row.get(field);
                    String name = value == null ? "-" : plain(value.getClass()).getSimpleName();
                    lines.add(String.join("\t", field.name(), type(field.schema()), name, text(value)));
                }
            }
            try {
                Files.write(file, lines, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new RuntimeException(error);
            }
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }

        private static Class<?> plain(Class<?> found) {
            return Map.class.isAssignableFrom(found) ? Map.class
                    : List.class.isAssignableFrom(found) ? List.class
                    : ByteBuffer.class.isAssignableFrom(found) ? ByteBuffer.class
                    : found;
        }

        private static String type(Schema schema) {
            String name = schema.name() == null ? "" : ":" + schema.name().replaceAll(".*\\.", "");
            String inner = switch (schema.type()) {
                case ARRAY -> "<" + type(schema.valueSchema()) + ">";
                case MAP -> "<" + type(schema.keySchema()) + "," + type(schema.valueSchema()) + ">";
                case STRUCT -> schema.fields().stream().map(each -> each.name() + " " + type(each.schema())).toList()
                        .toString();
                default -> "";
            };
            String more = schema.parameters() == null ? "" : new TreeMap<>(schema.parameters()).toString();
            return schema.type() + name + inner + more + (schema.isOptional() ? "?" : "");
        }

        private static String text(Object value) {
            if (value instanceof Date date) {
                return "" + date.getTime();
            } else if (value instanceof BigDecimal number) {
                return number.toPlainString();
            } else if (value instanceof ByteBuffer bytes) {
                var found = new byte[bytes.remaining()];
                bytes.duplicate().get(found);
                return HexFormat.of().formatHex(found);
            } else if (value instanceof byte[] bytes) {
                return HexFormat.of().formatHex(bytes);
            }
            return "" + value;
        }
    }

    public static class Source extends SourceConnector {
        private Map<String, String> config;

        @Override
        public void start(Map<String, String> given) {
            config = given;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return taskOf(SourceOfOne.class);
        }

        @Override
        public List<Map<String, String>> taskConfigs(int most) {
            return List.of(config);
        }

        @Override
        public void stop() {
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static class SourceOfOne extends SourceTask {
        private String topic;
        private boolean done;

        @Override
        public void start(Map<String, String> config) {
            topic = config.get("topic");
            done = context.offsetStorageReader().offset(Map.of("one", "1")) != null;
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            if (done) {
                Thread.sleep(100);
                return null;
            }
            done = true;
            Schema inner = SchemaBuilder.struct().field("x", Schema.FLOAT32_SCHEMA)
                    .field("y", Schema.OPTIONAL_STRING_SCHEMA).build();
            Schema schema = SchemaBuilder.struct().name("shop.Row")
                    .field("int8", Schema.INT8_SCHEMA)
                    .field("int16", Schema.INT16_SCHEMA)
                    .field("int32", Schema.INT32_SCHEMA)
                    .field("int64", Schema.INT64_SCHEMA)
                    .field("float32", Schema.FLOAT32_SCHEMA)
                    .field("float64", Schema.FLOAT64_SCHEMA)
                    .field("bool", Schema.BOOLEAN_SCHEMA)
                    .field("text", Schema.STRING_SCHEMA)
                    .field("bytes", Schema.BYTES_SCHEMA)
                    .field("none", Schema.OPTIONAL_STRING_SCHEMA)
                    .field("price", Decimal.schema(2))
                    .field("day", org.apache.kafka.connect.data.Date.SCHEMA)
                    .field("time", Time.SCHEMA)
                    .field("at", Timestamp.SCHEMA)
                    .field("list", SchemaBuilder.array(Schema.INT32_SCHEMA).build())
                    .field("map", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT64_SCHEMA).build())
                    .field("struct", inner)
                    .field("made", Schema.STRING_SCHEMA)
                    .build();
            Struct row = new Struct(schema)
                    .put("int8", (byte) -128).put("int16", (short) 32767).put("int32", -7).put("int64", Long.MIN_VALUE)
                    .put("float32", 0.1f).put("float64", 1e300).put("bool", true)
                    .put("text", "\u00e9\ud83d\ude00").put("bytes", new byte[] {0, -1}).put("none", null)
                    .put("price", new BigDecimal("-12345678901234567890.12"))
                    .put("day", new Date(-86_400_000L)).put("time", new Date(86_399_999L)).put("at", new Date(-1L))
                    .put("list", Arrays.asList(1, 2)).put("map", Map.of("k", 5L))
                    .put("struct", new Struct(inner).put("x", 0.5f))
                    .put("made", "2026-11-26");
            return List.of(new SourceRecord(Map.of("one", "1"), Map.of("sent", 1L), topic, schema, row));
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
