import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.serde.avro.NonRecordContainer;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * One JSON question a line, one answer a line, of AvroData, which Java's AvroConverters have in common.
 *
 * <p>{"do": "write", "config", "bytes"}: an envelope of JsonConverter as Avro: "schema", "bytes".
 * {"do": "read", "config", "schema", "bytes"}: Avro as such an envelope. Or "refused". Bytes are
 * hexadecimal digits.
 */
public class AvroConverterBytes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var json = new JsonConverter();
        json.configure(Map.of("replace.null.with.default", "false"), false);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            var config = new LinkedHashMap<String, Object>();
            question.get("config").fields().forEachRemaining(
                    entry -> config.put(entry.getKey(), entry.getValue().asText()));
            var data = new AvroData(new AvroDataConfig(config));
            byte[] bytes = HEX.parseHex(question.get("bytes").asText());
            Object answer;
            try {
                answer = question.get("do").asText().equals("write")
                        ? write(data, json.toConnectData("t", bytes))
                        : read(data, json, question.get("schema").asText(), bytes);
            } catch (RuntimeException refused) {
                answer = Map.of("refused", String.valueOf(refused));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    private static Object write(AvroData data, SchemaAndValue given) throws java.io.IOException {
        var schema = data.fromConnectSchema(given.schema());
        Object value = data.fromConnectData(given.schema(), given.value());
        if (value instanceof NonRecordContainer held) value = held.getValue();
        var stream = new ByteArrayOutputStream();
        var encoder = EncoderFactory.get().directBinaryEncoder(stream, null);
        new GenericDatumWriter<Object>(schema).write(value, encoder);
        encoder.flush();
        return Map.of("schema", schema.toString(), "bytes", HEX.formatHex(stream.toByteArray()));
    }

    private static Object read(AvroData data, JsonConverter json, String text, byte[] bytes)
            throws java.io.IOException {
        var schema = new org.apache.avro.Schema.Parser().parse(text);
        var decoder = DecoderFactory.get().binaryDecoder(bytes, null);
        Object value = new GenericDatumReader<Object>(schema).read(null, decoder);
        SchemaAndValue read = data.toConnectData(schema, value);
        return Map.of("bytes", HEX.formatHex(json.fromConnectData("t", read.schema(), read.value())));
    }
}
