// Decodes Avro values with Java's Avro and its conversions of logical types: the oracle of test_avro_agrees_with_java.py.
// A line of the input is {"writer": "...", "reader": "...", "value": "<hex>"}, a line of the output {"value": ...} or {"error": "..."}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.*;
import java.util.*;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;

public class AvroOracle {
  static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    GenericData data = new GenericData();
    data.addLogicalTypeConversion(new Conversions.DecimalConversion());
    data.addLogicalTypeConversion(new TimeConversions.DateConversion());
    data.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
    data.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
    data.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
    data.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode answer = JSON.createObjectNode();
      try {
        JsonNode given = JSON.readTree(line);
        Schema writer = new Schema.Parser().parse(given.get("writer").asText());
        Schema reader = new Schema.Parser().parse(given.get("reader").asText());
        byte[] bytes = HexFormat.of().parseHex(given.get("value").asText());
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
        Object found = new GenericDatumReader<Object>(writer, reader, data).read(null, decoder);
        if (!decoder.isEnd()) throw new IOException("trailing bytes");
        answer.set("value", shown(found));
      } catch (Throwable e) {
        answer.put("error", e.getClass().getSimpleName() + ": " + e.getMessage());
      }
      out.println(JSON.writeValueAsString(answer));
    }
  }

  static JsonNode shown(Object it) {
    JsonNodeFactory f = JSON.getNodeFactory();
    if (it == null) return f.nullNode();
    if (it instanceof Boolean b) return f.booleanNode(b);
    if (it instanceof Integer || it instanceof Long) return f.textNode(it.toString());
    if (it instanceof Float x) return f.textNode(Long.toHexString(Double.doubleToLongBits(x.doubleValue())));
    if (it instanceof Double x) return f.textNode(Long.toHexString(Double.doubleToLongBits(x)));
    if (it instanceof BigDecimal x) return f.textNode(x.toPlainString());
    if (it instanceof LocalDate x) return f.textNode(Long.toString(x.toEpochDay()));
    if (it instanceof Instant x) return f.textNode(micros(x.getEpochSecond(), x.getNano()));
    if (it instanceof LocalDateTime x) return f.textNode(micros(x.toEpochSecond(ZoneOffset.UTC), x.getNano()));
    if (it instanceof ByteBuffer x) {
      byte[] bytes = new byte[x.remaining()];
      x.duplicate().get(bytes);
      return f.textNode(HexFormat.of().formatHex(bytes));
    }
    if (it instanceof GenericFixed x) return f.textNode(HexFormat.of().formatHex(x.bytes()));
    if (it instanceof IndexedRecord x) {
      ObjectNode made = f.objectNode();
      for (Schema.Field field : x.getSchema().getFields()) made.set(field.name(), shown(x.get(field.pos())));
      return made;
    }
    if (it instanceof Collection<?> x) {
      ArrayNode made = f.arrayNode();
      for (Object one : x) made.add(shown(one));
      return made;
    }
    if (it instanceof Map<?, ?> x) {
      ObjectNode made = f.objectNode();
      for (Map.Entry<?, ?> one : x.entrySet()) made.set(one.getKey().toString(), shown(one.getValue()));
      return made;
    }
    return f.textNode(it.toString());
  }

  static String micros(long seconds, int nanos) {
    return java.math.BigInteger.valueOf(seconds).multiply(java.math.BigInteger.valueOf(1000000))
        .add(java.math.BigInteger.valueOf(nanos / 1000)).toString();
  }
}
