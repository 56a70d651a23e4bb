import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigTransformer;
import org.apache.kafka.common.config.provider.ConfigProvider;
import org.apache.kafka.common.config.provider.DirectoryConfigProvider;
import org.apache.kafka.common.config.provider.EnvVarConfigProvider;
import org.apache.kafka.common.config.provider.FileConfigProvider;
import org.apache.kafka.connect.runtime.AbstractHerder;
import org.apache.kafka.connect.runtime.SessionKey;
import org.apache.kafka.connect.storage.AppliedConnectorConfig;
import org.apache.kafka.connect.storage.ClusterConfigState;

/**
 * One JSON question a line, one answer a line: what Kafka makes of references to config providers.
 *
 * <p>{"do": "transform", "params": {provider: {key: value}}, "environment", "config"}: the config as
 * ConfigTransformer resolves it, with providers named file, directory and env. {"do": "reverse",
 * "connector", "tasks"}: task configs as the herder logs them. {"do": "worker", "config"}: a worker's
 * properties as AbstractConfig resolves them. A refusal is {"refused": text}.
 */
public class ConfigTransformers {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            Object answer;
            try {
                answer = switch (question.get("do").asText()) {
                    case "transform" -> transform(question);
                    case "reverse" -> reverse(question);
                    default -> new AbstractConfig(new ConfigDef(), strings(question.get("config")), false)
                            .originals();
                };
            } catch (RuntimeException refused) {
                answer = Map.of("refused", String.valueOf(refused.getMessage()));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    private static Map<String, String> transform(JsonNode question) {
        JsonNode params = question.path("params");
        Map<String, ConfigProvider> providers = new HashMap<>();
        providers.put("file", new FileConfigProvider());
        providers.put("directory", new DirectoryConfigProvider());
        providers.put("env", new EnvVarConfigProvider(strings(question.path("environment"))));
        providers.forEach((name, provider) -> {
            Map<String, String> given = strings(params.path(name));
            given.putIfAbsent("allowlist.pattern", "(.*)"); // its default, which env else talks about
            provider.configure(given);
        });
        return new ConfigTransformer(providers).transform(strings(question.get("config"))).data();
    }

    private static List<Map<String, String>> reverse(JsonNode question) {
        List<Map<String, String>> tasks = new ArrayList<>();
        question.get("tasks").forEach(task -> tasks.add(strings(task)));
        var state = new ClusterConfigState(
                0, (SessionKey) null, Map.of(), Map.of("c", strings(question.get("connector"))), Map.of(),
                Map.of(), Map.of(), Map.of(), Map.<String, AppliedConnectorConfig>of(), Set.of(), Set.of());
        return AbstractHerder.reverseTransform("c", state, tasks);
    }

    /** Keys and values in the order of the question; null stays null. */
    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        node.fields().forEachRemaining(
                entry -> found.put(entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asText()));
        return found;
    }
}
