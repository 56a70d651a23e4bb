import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Two lines, an expression and names between blanks: which of them match as a whole, by a 1 or a 0 each; or why it is none. */
public class WholeMatches {
    public static void main(String[] arguments) throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = lines.readLine(); text != null; text = lines.readLine()) {
            String[] names = lines.readLine().split(" ", -1);
            var answer = new StringBuilder();
            try {
                var pattern = Pattern.compile(text);
                for (String name : names) {
                    answer.append(pattern.matcher(name).matches() ? '1' : '0');
                }
            } catch (PatternSyntaxException error) {
                answer.append("no: ").append(error.getDescription());
            } catch (RuntimeException error) { // of some that it should refuse
                answer.append("no: ").append(error);
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
