package ackline.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import java.util.UUID;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** A query that the planner has opened. */
final class Query {
    private final Planner planner = Planner.get();
    private final String name = UUID.randomUUID().toString();
    private final JsonNode opened;

    /**
     * Opens a query.
     *
     * @param kind stream or batch
     * @param given its options
     * @param schema the columns of the table
     * @param isAsked whether the source was asked for these columns; if not, the user named them
     */
    Query(String kind, Given given, StructType schema, boolean isAsked) {
        ObjectNode request = given.addTo(Planner.request("open"))
                .put("query", name)
                .put("kind", kind)
                .put("is_asked", isAsked);
        request.set("schema", described(schema));
        try {
            opened = planner.ask(request);
        } catch (Throwable error) {
            // An interrupt may come after the planner has opened the query, and before its reply.
            planner.tell(request("close"));
            throw error;
        }
    }

    /** Returns what is read of each event, as JSON for the tasks. */
    String reading() {
        return opened.get("reading").toString();
    }

    /** Returns the limit of a batch that the options set; null for none. */
    JsonNode limit() {
        return opened.path("limit");
    }

    /** Returns a request about this query. */
    ObjectNode request(String call) {
        return Planner.request(call).put("query", name);
    }

    JsonNode ask(ObjectNode request) {
        return planner.ask(request);
    }

    /** Returns the tasks of a reply. */
    static InputPartition[] partitions(JsonNode tasks) {
        InputPartition[] made = new InputPartition[tasks.size()];
        for (int task = 0; task < made.length; task++) {
            made[task] = new TaskPartition(tasks.get(task).toString());
        }
        return made;
    }

    /**
     * Ends the query: its consumer is free for others.
     *
     * @param end the end of the last batch that Spark has committed, to which marks move; null for none
     */
    void close(JsonNode end) {
        ObjectNode request = request("close");
        request.set("end", end);
        planner.ask(request);
    }

    private static ObjectNode described(StructType schema) {
        ObjectNode described = Planner.JSON.createObjectNode();
        ArrayNode fields = described.putArray("fields");
        for (StructField field : schema.fields()) {
            ObjectNode one = fields.addObject()
                    .put("name", field.name())
                    .put("kind", kind(field.dataType()))
                    .put("nullable", field.nullable());
            one.set("metadata", Planner.parsed(field.metadata().json()));
        }
        return described.put("arrow", Base64.getEncoder().encodeToString(arrow(schema)));
    }

    private static byte[] arrow(StructType schema) {
        try {
            return ArrowUtils.toArrowSchema(schema, "UTC", false).serializeAsMessage();
        } catch (RuntimeException error) {
            throw Planner.refused(".schema(…) has a type that Arrow does not carry: " + error.getMessage());
        }
    }

    /** Returns Spark's name of a type, in which elements and values that may not be null are marked. */
    private static String kind(DataType type) {
        if (type instanceof ArrayType array && !array.containsNull()) {
            return "array<" + kind(array.elementType()) + " not null>";
        }
        if (type instanceof MapType map && !map.valueContainsNull()) {
            return "map<" + kind(map.keyType()) + "," + kind(map.valueType()) + " not null>";
        }
        return type.catalogString();
    }
}
