package ackline.spark;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** A batch query: the events that the spools held when its frame was first planned. */
final class EventBatch implements Batch {
    private final AcklineTable table;
    private final Given given;
    private final String[] wanted;

    EventBatch(AcklineTable table, Given given, String[] wanted) {
        this.table = table;
        this.given = given;
        this.wanted = wanted;
    }

    @Override
    public InputPartition[] planInputPartitions() {
        return table.planned(given).partitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new TaskReaderFactory(table.planned(given).reading(), wanted, null);
    }

    /**
     * The work of a batch query.
     *
     * @param reading what is read of each event, as JSON for the tasks
     * @param partitions its tasks
     */
    record Planned(String reading, InputPartition[] partitions) {
        /** Plans a query that the planner has just opened, and closes it. */
        static Planned of(Query query) {
            try {
                return new Planned(query.reading(), Query.partitions(query.ask(query.request("partitions"))));
            } finally {
                query.close(null);
            }
        }
    }
}
