package ackline.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The source that {@code format("ackline")} names in a session with the jar. */
public final class AcklineProvider implements TableProvider, DataSourceRegister {
    static final String NAME = "ackline";

    private boolean isAsked;

    /** Made by Spark. */
    public AcklineProvider() {}

    @Override
    public String shortName() {
        return NAME;
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    /**
     * Returns the columns of an event, or those that the options name.
     *
     * @throws AcklineException an option is wrong
     */
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        isAsked = true;
        JsonNode schema = Planner.get().ask(new Given(options).addTo(Planner.request("schema")));
        JsonNode ddl = schema.get("ddl");
        return ddl != null
                ? StructType.fromDDL(ddl.asText())
                : (StructType) DataType.fromJson(schema.get("json").toString());
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new AcklineTable(schema, properties, isAsked);
    }
}
