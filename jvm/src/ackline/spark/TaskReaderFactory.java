package ackline.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of a query's tasks. */
final class TaskReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    private final String reading;
    private final String[] wanted;
    private final Spent spent;

    /**
     * @param reading what is read of each event, as JSON of the planner
     * @param wanted the columns that the query uses
     * @param spent takes the cost of each task; null if nobody asks for it
     */
    TaskReaderFactory(String reading, String[] wanted, Spent spent) {
        this.reading = reading;
        this.wanted = wanted;
        this.spent = spent;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        throw new UnsupportedOperationException("ackline reads batches of columns");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        return TaskReader.of(reading, wanted, ((TaskPartition) partition).pieces(), spent);
    }
}
