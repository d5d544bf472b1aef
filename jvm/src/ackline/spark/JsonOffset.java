package ackline.spark;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.util.MinimalPrettyPrinter;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** The end of a batch, as the JSON text that a checkpoint holds. */
final class JsonOffset extends Offset {
    private static final ObjectWriter WRITER = Planner.JSON.writer(new AsPython());

    private final String json;

    JsonOffset(String json) {
        this.json = json;
    }

    /** Returns an offset of the planner. */
    static JsonOffset of(JsonNode value) {
        try {
            return new JsonOffset(WRITER.writeValueAsString(value));
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public String json() {
        return json;
    }

    /** Writes spaces as Python does: Spark compares offsets as texts, and the source in Python writes some of them. */
    private static final class AsPython extends MinimalPrettyPrinter {
        private static final long serialVersionUID = 1L;

        @Override
        public void writeObjectFieldValueSeparator(JsonGenerator to) throws IOException {
            to.writeRaw(": ");
        }

        @Override
        public void writeObjectEntrySeparator(JsonGenerator to) throws IOException {
            to.writeRaw(", ");
        }

        @Override
        public void writeArrayValueSeparator(JsonGenerator to) throws IOException {
            to.writeRaw(", ");
        }
    }
}
