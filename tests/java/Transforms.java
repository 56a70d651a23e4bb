import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * One JSON question a line, one answer a line: what Connect's own transforms make of records.
 *
 * <p>{"type": class, "config", "records": [...]}: {"answers": [...]}, one for each record: {"record"},
 * {"dropped"}, {"holds"} of a predicate, or {"error": [class, message]}; or {"refused": [class,
 * message]} when the config is. A record has topic, partition, offset (a sink's), timestamp, key,
 * keySchema, value, valueSchema and headers, which are [name, schema, value]. Values carry their kind:
 * ["int", "12"], ["map", [[key, value], ...]], ["struct", [[name, value], ...]], ["date", "ms"].
 */
public class Transforms {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            System.out.flush();
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object answer(JsonNode question) throws Exception {
        Object plugin = Class.forName(question.get("type").asText()).getDeclaredConstructor().newInstance();
        Map<String, String> config = new HashMap<>();
        question.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        try {
            if (plugin instanceof Transformation transform) transform.configure(config);
            else ((Predicate) plugin).configure(config);
        } catch (RuntimeException refused) {
            return Map.of("refused", told(refused));
        }
        var answers = new ArrayList<Object>();
        for (JsonNode given : question.get("records")) {
            ConnectRecord record = recordOf(given);
            try {
                if (plugin instanceof Predicate predicate) {
                    answers.add(Map.of("holds", predicate.test(record)));
                    continue;
                }
                ConnectRecord result = ((Transformation) plugin).apply(record);
                answers.add(result == null ? Map.of("dropped", true) : Map.of("record", written(result)));
            } catch (RuntimeException error) {
                answers.add(Map.of("error", told(error)));
            }
        }
        return Map.of("answers", answers);
    }

    private static List<String> told(RuntimeException error) {
        return List.of(error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
    }

    private static ConnectRecord<?> recordOf(JsonNode given) {
        var headers = new ConnectHeaders();
        for (JsonNode header : given.get("headers")) {
            Schema schema = schemaOf(header.get(1));
            headers.add(header.get(0).asText(), valueOf(header.get(2), schema), schema);
        }
        Schema keySchema = schemaOf(given.get("keySchema"));
        Schema valueSchema = schemaOf(given.get("valueSchema"));
        Object key = valueOf(given.get("key"), keySchema);
        Object value = valueOf(given.get("value"), valueSchema);
        Long timestamp = given.get("timestamp").isNull() ? null : given.get("timestamp").asLong();
        Integer partition = given.get("partition").isNull() ? null : given.get("partition").asInt();
        String topic = given.get("topic").asText();
        if (given.get("offset").isNull())
            return new SourceRecord(
                    Map.of(), Map.of(), topic, partition, keySchema, key, valueSchema, value, timestamp, headers);
        return new SinkRecord(topic, partition, keySchema, key, valueSchema, value,
                given.get("offset").asLong(), timestamp, TimestampType.CREATE_TIME, headers);
    }

    private static Map<String, Object> written(ConnectRecord<?> record) {
        var answer = new LinkedHashMap<String, Object>();
        answer.put("topic", record.topic());
        answer.put("partition", record.kafkaPartition());
        answer.put("offset", record instanceof SinkRecord sink ? sink.kafkaOffset() : null);
        answer.put("timestamp", record.timestamp());
        answer.put("key", written(record.key()));
        answer.put("keySchema", written(record.keySchema()));
        answer.put("value", written(record.value()));
        answer.put("valueSchema", written(record.valueSchema()));
        var headers = new ArrayList<Object>();
        for (Header header : record.headers())
            headers.add(java.util.Arrays.asList(header.key(), written(header.schema()), written(header.value())));
        answer.put("headers", headers);
        return answer;
    }

    // -- schemas --

    private static Schema schemaOf(JsonNode node) {
        if (node == null || node.isNull()) return null;
        Schema.Type type = Schema.Type.valueOf(node.get("type").asText());
        SchemaBuilder builder = switch (type) {
            case ARRAY -> SchemaBuilder.array(schemaOf(node.get("values")));
            case MAP -> SchemaBuilder.map(schemaOf(node.get("keys")), schemaOf(node.get("values")));
            default -> SchemaBuilder.type(type);
        };
        if (type == Schema.Type.STRUCT)
            for (JsonNode field : node.get("fields")) builder.field(field.get(0).asText(), schemaOf(field.get(1)));
        if (node.get("optional").asBoolean()) builder.optional();
        if (!node.get("name").isNull()) builder.name(node.get("name").asText());
        if (!node.get("version").isNull()) builder.version(node.get("version").asInt());
        if (!node.get("doc").isNull()) builder.doc(node.get("doc").asText());
        node.get("parameters").fields().forEachRemaining(
                each -> builder.parameter(each.getKey(), each.getValue().asText()));
        if (!node.get("default").isNull()) builder.defaultValue(valueOf(node.get("default"), builder));
        return builder.build();
    }

    private static Object written(Schema schema) {
        if (schema == null) return null;
        var answer = new LinkedHashMap<String, Object>();
        answer.put("type", schema.type().name());
        answer.put("optional", schema.isOptional());
        answer.put("name", schema.name());
        answer.put("version", schema.version());
        answer.put("doc", schema.doc());
        answer.put("parameters", schema.parameters() == null ? Map.of() : schema.parameters());
        answer.put("default", written(schema.defaultValue()));
        if (schema.type() == Schema.Type.MAP) answer.put("keys", written(schema.keySchema()));
        if (schema.type() == Schema.Type.MAP || schema.type() == Schema.Type.ARRAY)
            answer.put("values", written(schema.valueSchema()));
        if (schema.type() == Schema.Type.STRUCT) {
            var fields = new ArrayList<Object>();
            for (Field field : schema.fields()) fields.add(List.of(field.name(), written(field.schema())));
            answer.put("fields", fields);
        }
        return answer;
    }

    // -- values --

    private static Object valueOf(JsonNode node, Schema schema) {
        if (node == null || node.isNull()) return null;
        JsonNode held = node.get(1);
        return switch (node.get(0).asText()) {
            case "string" -> held.asText();
            case "boolean" -> held.asBoolean();
            case "int" -> wholeOf(new BigInteger(held.asText()), schema);
            case "float" -> {
                double number = Double.parseDouble(held.asText());
                if (schema != null && schema.type() == Schema.Type.FLOAT32) yield (float) number;
                yield number;
            }
            case "bytes" -> HEX.parseHex(held.asText());
            case "date" -> new Date(Long.parseLong(held.asText()));
            case "decimal" -> {
                BigDecimal number = new BigDecimal(held.asText());
                yield schema == null ? number : number.setScale(
                        Integer.parseInt(schema.parameters().get(Decimal.SCALE_FIELD)));
            }
            case "list" -> {
                var list = new ArrayList<Object>();
                held.forEach(item -> list.add(valueOf(item, schema == null ? null : schema.valueSchema())));
                yield list;
            }
            case "map" -> {
                var map = new HashMap<Object, Object>();
                for (JsonNode each : held)
                    map.put(valueOf(each.get(0), schema == null ? null : schema.keySchema()),
                            valueOf(each.get(1), schema == null ? null : schema.valueSchema()));
                yield map;
            }
            default -> {
                var struct = new Struct(schema);
                for (JsonNode each : held) {
                    Field field = schema.field(each.get(0).asText());
                    Object value = valueOf(each.get(1), field.schema());
                    if (value != null) struct.put(field, value);
                }
                yield struct;
            }
        };
    }

    private static Object wholeOf(BigInteger number, Schema schema) {
        if (schema == null) return number.bitLength() < 64 ? (Object) number.longValue() : number;
        return switch (schema.type()) {
            case INT8 -> number.byteValueExact();
            case INT16 -> number.shortValueExact();
            case INT32 -> number.intValueExact();
            default -> number.longValueExact();
        };
    }

    private static Object written(Object value) {
        if (value == null) return null;
        if (value instanceof String) return List.of("string", value);
        if (value instanceof Boolean) return List.of("boolean", value);
        if (value instanceof Float || value instanceof Double)
            return List.of("float", Double.toString(((Number) value).doubleValue()));
        if (value instanceof BigDecimal) return List.of("decimal", value.toString());
        if (value instanceof Number) return List.of("int", value.toString());
        if (value instanceof byte[] bytes) return List.of("bytes", HEX.formatHex(bytes));
        if (value instanceof Date date) return List.of("date", Long.toString(date.getTime()));
        var parts = new ArrayList<Object>();
        if (value instanceof List<?> list) {
            list.forEach(item -> parts.add(written(item)));
            return List.of("list", parts);
        }
        if (value instanceof Map<?, ?> map) {
            map.forEach((key, item) -> parts.add(java.util.Arrays.asList(written(key), written(item))));
            return List.of("map", parts);
        }
        Struct struct = (Struct) value;
        for (Field field : struct.schema().fields())
            parts.add(java.util.Arrays.asList(field.name(), written(struct.getWithoutDefault(field.name()))));
        return List.of("struct", parts);
    }
}
