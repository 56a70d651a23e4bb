import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.AbstractStatus;
import org.apache.kafka.connect.storage.KafkaStatusBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;

/**
 * Records of a status topic, one a line, as a Java worker reads them: {"key", "bytes", "connector",
 * "task"}; bytes are hexadecimal digits, task is -1 for the connector itself. The answer is what its
 * KafkaStatusBackingStore knows of it then, or null.
 */
public class Statuses {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        // As a worker makes it: its converter of internal topics has no schemas.
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        var store = new KafkaStatusBackingStore(Time.SYSTEM, converter, () -> null, "test");
        var read = KafkaStatusBackingStore.class.getDeclaredMethod("read", ConsumerRecord.class);
        read.setAccessible(true);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        long offset = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode record = JSON.readTree(line);
            byte[] value = HexFormat.of().parseHex(record.get("bytes").asText());
            read.invoke(store, new ConsumerRecord<>("status", 0, offset++, record.get("key").asText(), value));
            String connector = record.get("connector").asText();
            int task = record.get("task").asInt();
            AbstractStatus<?> known = task < 0
                    ? store.get(connector)
                    : store.get(new ConnectorTaskId(connector, task));
            System.out.println(JSON.writeValueAsString(known == null ? null : shown(known)));
            System.out.flush();
        }
    }

    private static Map<String, Object> shown(AbstractStatus<?> status) {
        var shown = new LinkedHashMap<String, Object>();
        shown.put("state", status.state().name());
        shown.put("worker_id", status.workerId());
        shown.put("generation", status.generation());
        shown.put("trace", status.trace());
        shown.put("version", status.version());
        return shown;
    }
}
