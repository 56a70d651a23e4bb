import io.apicurio.registry.serde.avro.NonRecordContainer;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.storage.Converter;

/**
 * A source of typed rows that are made in memory, and a converter to Avro without a registry. They show the best that
 * Java's workers can do with rows, since no file is read and no registry is asked.
 */
public class BenchRows {
    private static final Schema ROW = SchemaBuilder.struct()
            .field("id", Schema.OPTIONAL_INT64_SCHEMA)
            .field("price", Schema.OPTIONAL_FLOAT64_SCHEMA)
            .field("pieces", Schema.OPTIONAL_INT32_SCHEMA)
            .field("at", Timestamp.builder().optional().build())
            .field("customer", Schema.OPTIONAL_STRING_SCHEMA)
            .field("text", Schema.OPTIONAL_STRING_SCHEMA)
            .build();

    public static class Source extends SourceConnector {
        private Map<String, String> config;

        @Override
        public void start(Map<String, String> given) {
            config = given;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return Rows.class;
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

    public static class Rows extends SourceTask {
        private static final int KINDS = 1_000;

        private final Map<String, String> partition = Map.of("file", "rows");
        private final String[] customers = new String[KINDS];
        private final String[] texts = new String[KINDS];
        private String topic;
        private int batch;
        private long rows;
        private long next;

        @Override
        public void start(Map<String, String> config) {
            topic = config.get("topic");
            batch = Integer.parseInt(config.get("batch.size"));
            rows = Long.parseLong(config.get("rows"));
            for (int number = 0; number < KINDS; number++) {
                customers[number] = "customer-" + number;
                texts[number] = "order " + 1_000_003L * number + ", to the door";
            }
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            if (next >= rows) {
                Thread.sleep(50);
                return null;
            }
            var records = new ArrayList<SourceRecord>(batch);
            for (long end = Math.min(next + batch, rows); next < end; next++) {
                int kind = (int) (next % KINDS);
                var row = new Struct(ROW)
                        .put("id", next)
                        .put("price", next / 7.0)
                        .put("pieces", kind)
                        .put("at", new Date(1_600_000_000_000L + next))
                        .put("customer", customers[kind])
                        .put("text", texts[kind]);
                records.add(new SourceRecord(partition, Map.of("position", next + 1), topic, null, null, ROW, row));
            }
            return records;
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }

    /** Writes Avro as Java's AvroConverters do, with the id 1 for the only schema. */
    public static class AvroConverter implements Converter {
        private final AvroData data = new AvroData(new AvroDataConfig(Map.of()));
        private Schema known;
        private org.apache.avro.Schema schema;
        private GenericDatumWriter<Object> writer;
        private BinaryEncoder encoder;

        @Override
        public void configure(Map<String, ?> config, boolean isKey) {
        }

        @Override
        public byte[] fromConnectData(String topic, Schema given, Object value) {
            if (value == null) return null;
            if (given != known) {
                schema = data.fromConnectSchema(given);
                writer = new GenericDatumWriter<>(schema);
                known = given;
            }
            Object made = data.fromConnectData(given, value);
            if (made instanceof NonRecordContainer held) made = held.getValue();
            var stream = new ByteArrayOutputStream(128);
            stream.writeBytes(new byte[] {0, 0, 0, 0, 1});
            try {
                encoder = EncoderFactory.get().directBinaryEncoder(stream, encoder);
                writer.write(made, encoder);
                encoder.flush();
            } catch (IOException error) {
                throw new DataException(error);
            }
            return stream.toByteArray();
        }

        @Override
        public SchemaAndValue toConnectData(String topic, byte[] value) {
            throw new DataException("this converter only writes");
        }
    }
}
