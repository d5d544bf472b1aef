package ackline.spark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Notes which columns a query uses. */
final class Scans implements ScanBuilder, SupportsPushDownRequiredColumns {
    private final AcklineTable table;
    private final Given given;
    private String[] wanted;

    Scans(AcklineTable table, Given given) {
        this.table = table;
        this.given = given;
        wanted = table.schema().fieldNames();
        Set<String> names = new HashSet<>();
        for (String name : wanted) {
            // Spark picks columns by name: two of one name would make an error that names neither.
            if (!names.add(name)) {
                throw Planner.refused("two columns are named " + name);
            }
        }
    }

    @Override
    public void pruneColumns(StructType required) {
        wanted = required.fieldNames();
    }

    @Override
    public Scan build() {
        // Spark may want some members of a column alone, but a column is read whole.
        StructField[] fields = Arrays.stream(wanted).map(table.schema()::apply).toArray(StructField[]::new);
        return new EventScan(table, given, new StructType(fields));
    }

    /** The events of spools, with the columns that a query uses. */
    private record EventScan(AcklineTable table, Given given, StructType readSchema) implements Scan {
        @Override
        public String description() {
            return "ackline " + readSchema.catalogString();
        }

        @Override
        public ColumnarSupportMode columnarSupportMode() {
            // Without this Spark would cut tasks early, only to ask each whether it reads columns.
            return ColumnarSupportMode.SUPPORTED;
        }

        @Override
        public Batch toBatch() {
            return new EventBatch(table, given, readSchema.fieldNames());
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new EventStream(table.open("stream", given), readSchema.fieldNames());
        }
    }
}
