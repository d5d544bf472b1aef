package ackline.spark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads the events of one task, in batches of columns that lie in memory of Rust's. */
final class TaskReader implements PartitionReader<ColumnarBatch> {
    private static final Logger LOG = LoggerFactory.getLogger("ackline.spark");

    private final long handle;
    private final BufferAllocator allocator;
    private final Lent lent;
    private final VectorSchemaRoot root;
    private final VectorLoader loader;
    private final ColumnarBatch batch;
    private final Spent spent;
    private boolean closed;
    private long handed;
    private long handedOver;

    private TaskReader(long handle, Spent spent) {
        this.handle = handle;
        this.spent = spent;
        allocator = ArrowUtils.rootAllocator().newChildAllocator("ackline task", 0, Long.MAX_VALUE);
        lent = new Lent(allocator);
        root = VectorSchemaRoot.create(schema(handle), allocator);
        loader = new VectorLoader(root);
        batch = new ColumnarBatch(
                root.getFieldVectors().stream().map(Lasting::new).toArray(ColumnVector[]::new));
    }

    /**
     * Begins to read the work of a task.
     *
     * @param spent takes the cost of the task at its end; null if nobody asks for it
     */
    static TaskReader of(String reading, String[] wanted, String pieces, Spent spent) {
        long handle = Native.open(reading, wanted, pieces);
        try {
            return new TaskReader(handle, spent);
        } catch (RuntimeException | Error error) {
            Native.close(handle);
            throw error;
        }
    }

    @Override
    public boolean next() {
        note();
        long[] layout = Native.next(handle);
        handed = System.nanoTime();
        String lines = Native.lines();
        if (lines != null) {
            lines.lines().forEach(LOG::warn);
        }
        if (layout == null) {
            return false;
        }
        load(layout);
        return true;
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            note();
            if (spent != null) {
                spent.add(Native.spent(handle), handedOver);
            }
            // The vectors hold memory of their own beside that of Rust's: bitmaps of columns without nulls.
            root.close();
            allocator.close();
            Native.close(handle);
        }
    }

    /** Counts the time since the last batch was handed over. */
    private void note() {
        if (handed != 0) {
            handedOver += System.nanoTime() - handed;
            handed = 0;
        }
    }

    private void load(long[] layout) {
        int rows = (int) layout[0];
        int nodes = (int) layout[1];
        List<ArrowFieldNode> fields = new ArrayList<>(nodes);
        List<ArrowBuf> buffers = new ArrayList<>();
        int at = 2;
        for (int node = 0; node < nodes; node++, at += 2) {
            fields.add(new ArrowFieldNode(layout[at], layout[at + 1]));
        }
        for (at++; at < layout.length; at += 2) {
            buffers.add(lent.buffer(layout[at], layout[at + 1]));
        }
        loader.load(new ArrowRecordBatch(
                rows, fields, buffers, NoCompressionCodec.DEFAULT_BODY_COMPRESSION, false, false));
        batch.setNumRows(rows);
    }

    private static Schema schema(long handle) {
        try {
            return MessageSerializer.deserializeSchema(
                    new ReadChannel(Channels.newChannel(new ByteArrayInputStream(Native.schema(handle)))));
        } catch (IOException error) {
            throw new IllegalStateException("Rust describes the columns in a way that Arrow cannot read", error);
        }
    }

    /** A column of all batches of a task: Spark closes each batch that it has read. */
    private static final class Lasting extends ArrowColumnVector {
        Lasting(ValueVector vector) {
            super(vector);
        }

        @Override
        public void close() {}
    }
}
