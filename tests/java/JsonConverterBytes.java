import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.file.FileStreamSourceTask;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * One JSON question a line, one answer a line, both of Connect's JsonConverter.
 *
 * <p>{"do": "write", "schemas", "kind", "value"}: the value's bytes; kind is a name of Schema.Type for
 * a value with that schema, "" for one without. {"do": "read", "schemas", "bytes"}: what Connect has of
 * them: kind, value; or refused. {"do": "lines", "schemas", "file"}: the bytes of keys and values that
 * FileStreamSource makes of a file. Bytes are hexadecimal digits.
 *
 * <p>{"do": "again", "config", "bytes"}: an envelope is read by a converter of the default config and
 * written by one of "config": the bytes, or refused. {"do": "through", "config", "bytes"}: read by one
 * of "config", written by one of the default.
 */
public class JsonConverterBytes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, Schema> SCHEMAS = Map.of(
            "BOOLEAN", Schema.BOOLEAN_SCHEMA, "INT64", Schema.INT64_SCHEMA, "FLOAT64", Schema.FLOAT64_SCHEMA,
            "STRING", Schema.STRING_SCHEMA, "BYTES", Schema.BYTES_SCHEMA, "INT32", Schema.INT32_SCHEMA);

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            var converter = new JsonConverter();
            converter.configure(configOf(question), false);
            Object answer;
            try {
                answer = switch (question.get("do").asText()) {
                    case "write" -> write(converter, question.get("kind").asText(), question.get("value"));
                    case "again" -> again(new JsonConverter(), converter, question);
                    case "through" -> again(converter, new JsonConverter(), question);
                    case "read" -> read(converter, HEX.parseHex(question.get("bytes").asText()));
                    default -> fileLines(converter, question.get("file").asText());
                };
            } catch (RuntimeException refused) {
                answer = Map.of("refused", String.valueOf(refused.getMessage()));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    /** Without "schemas": the default. */
    private static Map<String, String> configOf(JsonNode question) {
        if (question.has("config")) {
            var config = new LinkedHashMap<String, String>();
            question.get("config").fields().forEachRemaining(
                    entry -> config.put(entry.getKey(), entry.getValue().asText()));
            return config;
        }
        JsonNode schemas = question.get("schemas");
        return schemas == null ? Map.of() : Map.of("schemas.enable", schemas.asText());
    }

    private static Object again(JsonConverter reads, JsonConverter writes, JsonNode question) {
        if (question.get("do").asText().equals("again")) reads.configure(Map.of(), false);
        else writes.configure(Map.of(), false);
        SchemaAndValue read = reads.toConnectData("t", HEX.parseHex(question.get("bytes").asText()));
        return java.util.Arrays.asList(hex(writes.fromConnectData("t", read.schema(), read.value())));
    }

    private static Object write(JsonConverter converter, String kind, JsonNode value) {
        Object made = kind.equals("BYTES") ? HEX.parseHex(value.asText()) : javaOf(value);
        if (kind.equals("INT32")) made = ((Long) made).intValue();
        return hex(converter.fromConnectData("t", SCHEMAS.get(kind), made));
    }

    private static Object read(JsonConverter converter, byte[] bytes) {
        SchemaAndValue read = converter.toConnectData("t", bytes);
        var answer = new LinkedHashMap<String, Object>();
        answer.put("kind", read.schema() == null ? "" : read.schema().type().name());
        answer.put("value", read.value() instanceof byte[] raw ? HEX.formatHex(raw) : read.value());
        return answer;
    }

    private static Object fileLines(JsonConverter converter, String file) throws InterruptedException {
        var task = new FileStreamSourceTask();
        task.initialize(nowhereYet());
        task.start(Map.of("file", file, "topic", "t"));
        var answer = new ArrayList<List<String>>();
        for (List<SourceRecord> records = task.poll(); records != null; records = task.poll())
            for (SourceRecord record : records)
                answer.add(java.util.Arrays.asList(
                        hex(converter.fromConnectData("t", record.keySchema(), record.key())),
                        hex(converter.fromConnectData("t", record.valueSchema(), record.value()))));
        task.stop();
        return answer;
    }

    /** A context without committed offsets. */
    private static SourceTaskContext nowhereYet() {
        var loader = JsonConverterBytes.class.getClassLoader();
        Object reader = Proxy.newProxyInstance(
                loader, new Class<?>[] {OffsetStorageReader.class}, (proxy, method, given) -> null);
        return (SourceTaskContext) Proxy.newProxyInstance(loader, new Class<?>[] {SourceTaskContext.class},
                (proxy, method, given) -> method.getName().equals("offsetStorageReader") ? reader : null);
    }

    /** As a connector without schemas has it: maps, lists, Long, Double, String, Boolean, null. */
    private static Object javaOf(JsonNode node) {
        if (node.isObject()) {
            var map = new LinkedHashMap<String, Object>();
            node.fields().forEachRemaining(entry -> map.put(entry.getKey(), javaOf(entry.getValue())));
            return map;
        }
        if (node.isArray()) {
            var list = new ArrayList<Object>();
            node.forEach(item -> list.add(javaOf(item)));
            return list;
        }
        if (node.isTextual()) return node.asText();
        if (node.isBoolean()) return node.asBoolean();
        if (node.isNull()) return null;
        if (node.isIntegralNumber()) return node.asLong();
        return node.asDouble();
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }
}
