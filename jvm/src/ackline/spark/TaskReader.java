package ackline.spark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the events of one task, in batches of columns that lie in Rust's memory.
 *
 * <p>Some operators of Spark read in a thread of their own, which may still run when the task ends and closes this. The
 * memory of the last batch is then freed when nobody holds its columns any more.
 */
final class TaskReader implements PartitionReader<ColumnarBatch> {
    private static final Logger LOG = LoggerFactory.getLogger("ackline.spark");
    private static final Cleaner CLEANER = Cleaner.create();

    private final Memory memory;
    private final Cleaner.Cleanable cleanable;
    private final Lent lent;
    private final VectorLoader loader;
    private final ColumnarBatch batch;
    private final Spent spent;
    private Thread reader;
    private boolean closed;
    private long handed;
    private long handedOver;

    private TaskReader(Memory memory, Spent spent) {
        this.memory = memory;
        this.spent = spent;
        Object owner = new Object();
        lent = new Lent(memory.allocator);
        loader = new VectorLoader(memory.root);
        batch = new ColumnarBatch(memory.root.getFieldVectors().stream()
                .map(vector -> new Column(new ArrowColumnVector(vector), owner))
                .toArray(ColumnVector[]::new));
        cleanable = CLEANER.register(owner, memory);
    }

    /**
     * Begins to read the work of a task.
     *
     * @param spent takes the cost of the task at its end; null if nobody asks for it
     */
    static TaskReader of(String reading, String[] wanted, String pieces, Spent spent) {
        Native.load();
        int cores = TaskContext.get().cpus();
        Memory memory = new Memory(Native.open(reading, wanted, pieces, cores));
        try {
            memory.root = VectorSchemaRoot.create(schema(memory.handle), memory.allocator);
            return new TaskReader(memory, spent);
        } catch (RuntimeException | Error error) {
            memory.run();
            throw error;
        }
    }

    @Override
    public synchronized boolean next() {
        if (closed) {
            return false;
        }
        reader = Thread.currentThread();
        note();
        long[] layout = Native.next(memory.handle);
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
    public synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        note();
        try {
            if (spent != null) {
                spent.add(Native.spent(memory.handle), handedOver);
            }
        } finally {
            if (reader == null || reader == Thread.currentThread()) {
                cleanable.clean();
            }
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

    /** What a task holds outside of Java's heap; it is freed once. */
    private static final class Memory implements Runnable {
        private final long handle;
        private final BufferAllocator allocator;
        private VectorSchemaRoot root;

        Memory(long handle) {
            this.handle = handle;
            allocator = ArrowUtils.rootAllocator().newChildAllocator("ackline task", 0, Long.MAX_VALUE);
        }

        @Override
        public void run() {
            try {
                if (root != null) {
                    // Frees the bitmaps of columns without nulls: Arrow allocates those itself, not in Rust's memory.
                    root.close();
                }
                allocator.close();
            } finally {
                Native.close(handle);
            }
        }
    }
}
