import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/**
 * As many tasks as may be. Each writes the numbers from 0 on under a key of its own, its number: ten of them, then
 * waits for pause.s seconds. It fails while there is a file of the name in fails.while, with -number behind. Its
 * partitions and offsets are those of the source of this name in tests/support.
 */
public class TwinSource extends SourceConnector {
    private static final String FAILS_WHILE = "fails.while";

    private Map<String, String> config;

    @Override
    public void start(Map<String, String> given) {
        config = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return TwinTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        var found = new ArrayList<Map<String, String>>();
        for (int number = 0; number < most; number++) {
            var task = new HashMap<>(
                    Map.of("task", "" + number, "topic", config.get("topic"), "pause.s", config.get("pause.s")));
            if (config.containsKey(FAILS_WHILE)) {
                task.put(FAILS_WHILE, config.get(FAILS_WHILE) + "-" + number);
            }
            found.add(task);
        }
        return found;
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

    public static class TwinTask extends SourceTask {
        private Map<String, String> partition;
        private String topic;
        private long pauseMs;
        private long next;
        private Path fails;

        @Override
        public void start(Map<String, String> config) {
            partition = Map.of("task", config.get("task"));
            topic = config.get("topic");
            pauseMs = (long) (1000 * Double.parseDouble(config.get("pause.s")));
            fails = Path.of(config.getOrDefault(FAILS_WHILE, "/none"));
            Map<String, Object> found = context.offsetStorageReader().offset(partition);
            next = found == null ? 0 : (Long) found.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            if (Files.exists(fails)) {
                throw new ConnectException("told to fail");
            }
            Thread.sleep(pauseMs);
            var records = new ArrayList<SourceRecord>();
            for (long end = next + 10; next < end; next++) {
                records.add(new SourceRecord(partition, Map.of("next", next + 1), topic,
                        Schema.STRING_SCHEMA, partition.get("task"), Schema.STRING_SCHEMA, "" + next));
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
}
