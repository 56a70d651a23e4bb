import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Utils;

/** For each line, a key: its partition for Java's producer, of as many as the argument says; and the key. */
public class PartitionOfKey {
    public static void main(String[] arguments) throws IOException {
        int partitions = Integer.parseInt(arguments[0]);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String key = lines.readLine(); key != null; key = lines.readLine()) {
            byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
            System.out.println(Utils.toPositive(Utils.murmur2(bytes)) % partitions + " " + key);
            System.out.flush();
        }
    }
}
