package ackline.spark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.nio.channels.Channels;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.read.PartitionReader;
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
    private final Column[] columns;
    private final ColumnarBatch batch;
    private final Spent spent;
    private Thread reader;
    private boolean closed;
    private long handed;
    private long handedOver;

    private TaskReader(Memory memory, Schema schema, Spent spent) {
        this.memory = memory;
        this.spent = spent;
        Object owner = new Object();
        columns = schema.getFields().stream()
                .map(field -> new Column(field, owner))
                .toArray(Column[]::new);
        batch = new ColumnarBatch(columns);
        cleanable = CLEANER.register(owner, memory);
    }

    /**
     * Begins to read the work of a task.
     *
     * @param spent takes the cost of the task at its end; null if nobody asks for it
     */
    static TaskReader of(String reading, String[] wanted, String pieces, Spent spent) {
        Native.load();
        Memory memory = new Memory(Native.open(reading, wanted, pieces, cores()));
        try {
            return new TaskReader(memory, schema(memory.handle), spent);
        } catch (RuntimeException | Error error) {
            memory.run();
            throw error;
        }
    }

    @SuppressWarnings("deprecation") // Spark 4.2 has no other way to tell the cores of a task
    private static int cores() {
        // A program may pull the rows by a thread of its own, which knows no task.
        TaskContext task = TaskContext.get();
        return task == null ? 1 : task.cpus();
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
        load(new Layout(layout));
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

    private void load(Layout layout) {
        for (Column column : columns) {
            column.load(layout);
        }
        batch.setNumRows(layout.rows());
    }

    private static Schema schema(long handle) {
        try {
            return MessageSerializer.deserializeSchema(
                    new ReadChannel(Channels.newChannel(new ByteArrayInputStream(Native.schema(handle)))));
        } catch (IOException error) {
            throw new IllegalStateException("Rust describes the columns in a way that Arrow cannot read", error);
        }
    }

    /** The memory of a task in Rust; it is freed once. */
    private record Memory(long handle) implements Runnable {
        @Override
        public void run() {
            Native.close(handle);
        }
    }
}
