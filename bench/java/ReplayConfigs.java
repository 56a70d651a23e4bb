import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.json.JsonConverterConfig;
import org.apache.kafka.connect.runtime.WorkerConfigTransformer;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.KafkaConfigBackingStore;
import org.apache.kafka.connect.util.TopicAdmin;

/**
 * Starts Connect's own config store on a topic, as a worker does, which reads it to its end.
 *
 * Arguments: brokers, topic. Prints the seconds it took, the CPU seconds of the process for it, and
 * the number of tasks in the resulting state.
 */
public class ReplayConfigs {
    public static void main(String[] arguments) {
        Map<String, String> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", "replay");
        settings.put("config.storage.topic", arguments[1]);
        settings.put("config.storage.replication.factor", "1");
        settings.put("offset.storage.topic", "replay-offsets");
        settings.put("status.storage.topic", "replay-status");
        settings.put("key.converter", JsonConverter.class.getName());
        settings.put("value.converter", JsonConverter.class.getName());
        var config = new DistributedConfig(settings);
        var converter = new JsonConverter();
        converter.configure(Map.of(JsonConverterConfig.SCHEMAS_ENABLE_CONFIG, "false"), false);
        var admin = new TopicAdmin(new HashMap<>(Map.of("bootstrap.servers", arguments[0])));
        var store = new KafkaConfigBackingStore(converter, config, null, () -> admin, "replay");
        store.setUpdateListener(new Ignoring());
        long began = System.nanoTime();
        long cpu = cpu();
        store.start();
        double seconds = (System.nanoTime() - began) / 1e9;
        double spent = (cpu() - cpu) / 1e9;
        ClusterConfigState state = store.snapshot();
        int tasks = state.connectors().stream().mapToInt(state::taskCount).sum();
        System.out.println(seconds + " " + spent + " " + tasks);
        System.exit(0);
    }

    private static long cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}

/** Ignores updates, since the whole topic is read while the store starts. */
class Ignoring implements org.apache.kafka.connect.storage.ConfigBackingStore.UpdateListener {
    @Override
    public void onConnectorConfigRemove(String connector) {}

    @Override
    public void onConnectorConfigUpdate(String connector) {}

    @Override
    public void onTaskConfigUpdate(
            java.util.Collection<org.apache.kafka.connect.util.ConnectorTaskId> tasks) {}

    @Override
    public void onConnectorTargetStateChange(String connector) {}

    @Override
    public void onSessionKeyUpdate(org.apache.kafka.connect.runtime.SessionKey sessionKey) {}

    @Override
    public void onRestartRequest(org.apache.kafka.connect.runtime.RestartRequest restartRequest) {}

    @Override
    public void onLoggingLevelUpdate(String namespace, String level) {}
}
