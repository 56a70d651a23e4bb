import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;

/**
 * One JSON question a line, one answer a line: the settings of a worker as Connect defines them.
 *
 * <p>{"kind": "distributed" or "standalone", "texts": {key: [text]}}. The answer has each key of that
 * kind of worker: its type; its default as text, unless it is required; and, of the texts that were
 * given for it, those that are taken.
 */
public class WorkerConfigs {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String CONVERTER = "org.apache.kafka.connect.json.JsonConverter";

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            Map<String, Object> answer = new TreeMap<>();
            for (ConfigDef.ConfigKey key : definition(question.get("kind").asText()).configKeys().values()) {
                Map<String, Object> shown = new HashMap<>();
                shown.put("type", key.type.name());
                if (key.hasDefault()) {
                    shown.put("default", ConfigDef.convertToString(key.defaultValue, key.type));
                }
                List<String> taken = new ArrayList<>();
                for (JsonNode text : question.get("texts").path(key.name)) {
                    if (takes(key, text.asText())) {
                        taken.add(text.asText());
                    }
                }
                shown.put("taken", taken);
                answer.put(key.name, shown);
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    private static boolean takes(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return true;
        } catch (ConfigException refused) {
            return false;
        }
    }

    /** A config keeps its definition to itself. */
    private static ConfigDef definition(String kind) throws ReflectiveOperationException {
        Map<String, String> given = new HashMap<>(Map.of(
                "bootstrap.servers", "localhost:9092", "key.converter", CONVERTER, "value.converter", CONVERTER));
        AbstractConfig config;
        if (kind.equals("standalone")) {
            given.put("offset.storage.file.filename", "offsets");
            config = new StandaloneConfig(given);
        } else {
            for (String topic : List.of("config", "offset", "status")) {
                given.put(topic + ".storage.topic", topic);
            }
            given.put("group.id", "g");
            config = new DistributedConfig(given);
        }
        Field definition = AbstractConfig.class.getDeclaredField("definition");
        definition.setAccessible(true);
        return (ConfigDef) definition.get(config);
    }
}
