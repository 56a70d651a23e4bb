import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.networknt.schema.SchemaRegistry;
import com.networknt.schema.SpecificationVersion;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;

/**
 * One JSON question a line, one answer a line: {"schema", "documents"}, texts of JSON: for each document
 * what a validator has against it, by draft 7 of JSON Schema; an empty list for a document that is valid.
 */
public class JsonSchemas {
    private static final ObjectMapper JSON =
            new ObjectMapper().enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            var registry = SchemaRegistry.withDefaultDialect(SpecificationVersion.DRAFT_7);
            var schema = registry.getSchema(JSON.readTree(question.get("schema").asText()));
            var answers = new ArrayList<Object>();
            for (JsonNode document : question.get("documents")) {
                var errors = new ArrayList<String>();
                schema.validate(JSON.readTree(document.asText())).forEach(each -> errors.add(each.toString()));
                answers.add(errors);
            }
            System.out.println(JSON.writeValueAsString(answers));
            System.out.flush();
        }
    }
}
