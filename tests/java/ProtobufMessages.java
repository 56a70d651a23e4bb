import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * One JSON question a line, one answer a line, of Java's own reader and writer of Protobuf.
 *
 * <p>{"do": "read", "files", "bytes"}: the fields of the last file's first message, as "value". {"do":
 * "write", "files", "value"}: its "bytes". "files" is a FileDescriptorSet; bytes are hexadecimal
 * digits, also in values. A field that is not there is null, and an entry of a map is an object with
 * key and value.
 */
public class ProtobufMessages {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            Object answer;
            try {
                Descriptor type = typeOf(HEX.parseHex(question.get("files").asText()));
                if (question.get("do").asText().equals("read")) {
                    byte[] bytes = HEX.parseHex(question.get("bytes").asText());
                    var found = new HashMap<String, Object>();
                    found.put("value", fields(DynamicMessage.parseFrom(type, bytes)));
                    answer = found;
                } else {
                    byte[] bytes = message(type, question.get("value")).toByteArray();
                    answer = Map.of("bytes", HEX.formatHex(bytes));
                }
            } catch (Exception refused) {
                answer = Map.of("refused", String.valueOf(refused));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    /** The first message of the last file; files stand after those that they import. */
    private static Descriptor typeOf(byte[] files) throws Exception {
        var known = new HashMap<String, FileDescriptor>();
        FileDescriptor last = null;
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(files).getFileList()) {
            var uses = new ArrayList<FileDescriptor>();
            for (String name : file.getDependencyList()) uses.add(known.get(name));
            last = FileDescriptor.buildFrom(file, uses.toArray(new FileDescriptor[0]));
            known.put(file.getName(), last);
        }
        return last.getMessageTypes().get(0);
    }

    private static Map<String, Object> fields(DynamicMessage message) {
        if (!message.getUnknownFields().asMap().isEmpty())
            throw new IllegalStateException("fields that the schema does not have: " + message.getUnknownFields());
        var found = new LinkedHashMap<String, Object>();
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            Object value = message.getField(field);
            if (field.isRepeated()) {
                var items = new ArrayList<Object>();
                for (Object item : (List<?>) value) items.add(read(item));
                found.put(field.getName(), items);
            } else {
                boolean there = !field.hasPresence() || message.hasField(field);
                found.put(field.getName(), there ? read(value) : null);
            }
        }
        return found;
    }

    private static Object read(Object value) {
        if (value instanceof ByteString bytes) return HEX.formatHex(bytes.toByteArray());
        if (value instanceof DynamicMessage message) return fields(message);
        return value instanceof Float number ? (Object) number.doubleValue() : value;
    }

    private static DynamicMessage message(Descriptor type, JsonNode value) {
        var builder = DynamicMessage.newBuilder(type);
        for (FieldDescriptor field : type.getFields()) {
            JsonNode given = value.get(field.getName());
            if (given.isNull()) continue;
            if (field.isRepeated()) for (JsonNode item : given) builder.addRepeatedField(field, written(field, item));
            else builder.setField(field, written(field, given));
        }
        return builder.build();
    }

    private static Object written(FieldDescriptor field, JsonNode value) {
        return switch (field.getJavaType()) {
            case INT -> value.intValue();
            case LONG -> value.longValue();
            case FLOAT -> value.floatValue();
            case DOUBLE -> value.doubleValue();
            case BOOLEAN -> value.booleanValue();
            case STRING -> value.textValue();
            case BYTE_STRING -> ByteString.copyFrom(HEX.parseHex(value.textValue()));
            case MESSAGE -> message(field.getMessageType(), value);
            default -> throw new IllegalStateException("no value of " + field);
        };
    }
}
