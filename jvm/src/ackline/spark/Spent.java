package ackline.spark;

import java.io.Serializable;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/** The cost of the tasks of a stream: bytes that were read, and the time of each phase, summed over tasks. */
final class Spent implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final String[] NAMES = {"bytes_read", "read_ms", "inflate_ms", "project_ms", "hand_over_ms"};

    private final LongAccumulator[] sums = new LongAccumulator[NAMES.length];
    private final long[] told = new long[NAMES.length];

    Spent(SparkContext context) {
        for (int at = 0; at < sums.length; at++) {
            sums[at] = context.longAccumulator();
        }
    }

    /**
     * Adds the cost of a task, in the task.
     *
     * @param ofRust the bytes, and the nanoseconds of the phases in Rust, as {@link Native#spent} returns them
     * @param handedOver the nanoseconds that Spark took for the rows
     */
    void add(long[] ofRust, long handedOver) {
        for (int at = 0; at < ofRust.length; at++) {
            sums[at].add(ofRust[at]);
        }
        sums[ofRust.length].add(handedOver);
    }

    /** Adds to some metrics the cost since the last call, in the driver. */
    synchronized void addTo(Map<String, String> metrics) {
        for (int at = 0; at < sums.length; at++) {
            long sum = sums[at].sum();
            long since = sum - told[at];
            told[at] = sum;
            metrics.put(NAMES[at], NAMES[at].endsWith("_ms") ? milliseconds(since) : Long.toString(since));
        }
    }

    private static String milliseconds(long nanoseconds) {
        return Double.toString(Math.round(nanoseconds / 1e4) / 100.0);
    }
}
