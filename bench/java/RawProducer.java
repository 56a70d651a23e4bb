import java.io.BufferedReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends lines of a file to a topic in transactions, by a producer alone. Its settings are those
 * that Connect gives the producer of a source task.
 *
 * Arguments: brokers, file, topic, records per transaction (0: by time), ms per transaction. Prints
 * the seconds it took and its CPU seconds.
 */
public class RawProducer {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", "raw-java-" + arguments[2]);
        settings.put("acks", "all");
        settings.put("delivery.timeout.ms", Integer.MAX_VALUE);
        int records = Integer.parseInt(arguments[3]);
        long interval = Long.parseLong(arguments[4]) * 1_000_000;
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(settings, serializer, serializer)) {
            producer.initTransactions();
            long began = System.nanoTime();
            long cpu = cpu();
            send(producer, Path.of(arguments[1]), arguments[2], records, interval);
            System.out.println((System.nanoTime() - began) / 1e9 + " " + (cpu() - cpu) / 1e9);
        }
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, Path file, String topic, int records, long interval)
            throws Exception {
        try (BufferedReader lines = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
            int open = 0;
            long until = 0;
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (open == 0) {
                    producer.beginTransaction();
                    until = System.nanoTime() + interval;
                }
                producer.send(new ProducerRecord<>(topic, line.getBytes(StandardCharsets.UTF_8)));
                open++;
                if (records > 0 ? open == records : System.nanoTime() - until > 0) {
                    producer.commitTransaction();
                    open = 0;
                }
            }
            if (open > 0) {
                producer.commitTransaction();
            }
        }
    }

    private static long cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
