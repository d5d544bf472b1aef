package ackline.spark;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spools to read, or receivers to write to: the options say which. */
final class AcklineTable implements SupportsRead, SupportsWrite {
    private final StructType schema;
    private final Map<String, String> properties;
    private final boolean isAsked;
    private final Map<Given, EventBatch.Planned> planned = new ConcurrentHashMap<>();

    AcklineTable(StructType schema, Map<String, String> properties, boolean isAsked) {
        this.schema = schema;
        this.properties = properties;
        this.isAsked = isAsked;
    }

    @Override
    public String name() {
        return AcklineProvider.NAME;
    }

    @Override
    @SuppressWarnings("deprecation") // Spark's own way to say columns(), which it makes of this
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(
                TableCapability.BATCH_READ,
                TableCapability.MICRO_BATCH_READ,
                TableCapability.BATCH_WRITE,
                TableCapability.STREAMING_WRITE,
                TableCapability.TRUNCATE);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new Scans(this, new Given(options));
    }

    /** Opens a query of this table; its kind is stream or batch. */
    Query open(String kind, Given given) {
        return new Query(kind, given, schema, isAsked);
    }

    /** Returns the work of a batch query, which stays the same for the frame or view that this table was made for. */
    EventBatch.Planned planned(Given given) {
        return planned.computeIfAbsent(given, key -> EventBatch.Planned.of(open("batch", key)));
    }

    /** Returns the writer of the source in Python: Java only reads. */
    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        PythonDataSourceV2 python = new PythonDataSourceV2();
        python.setShortName(AcklineProvider.NAME);
        SupportsWrite table = (SupportsWrite) python.getTable(schema, partitioning(), properties);
        return table.newWriteBuilder(info);
    }
}
