package ackline.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The reader in Rust. Each of its functions throws {@link AcklineException}. */
final class Native {
    private static final String LIBRARY = "libackline_jvm.so";

    private static boolean isLoaded;

    private Native() {}

    /**
     * Loads the library out of the jar, once: an executor has nothing else of Ackline.
     *
     * @throws AcklineException the library cannot be unpacked or loaded
     */
    static synchronized void load() {
        if (isLoaded) {
            return;
        }
        try (InputStream library = Native.class.getResourceAsStream("/" + LIBRARY)) {
            if (library == null) {
                throw new AcklineException("spark.jvm", "spark.jvm: the jar of ackline holds no " + LIBRARY);
            }
            Path copy = Files.createTempFile("ackline", ".so");
            try {
                // Writes into the file that was just created, whose permissions keep other users out.
                try (OutputStream out = Files.newOutputStream(copy, StandardOpenOption.TRUNCATE_EXISTING)) {
                    library.transferTo(out);
                }
                System.load(copy.toString());
                isLoaded = true;
            } finally {
                // The library stays in memory without its file.
                Files.deleteIfExists(copy);
            }
        } catch (IOException | UnsatisfiedLinkError error) {
            throw new AcklineException("spark.jvm", "spark.jvm: ackline cannot unpack and load " + LIBRARY + " in "
                    + System.getProperty("java.io.tmpdir") + ": " + error + "; the wheel must be one for this system, "
                    + "and java.io.tmpdir a directory with room whose files may be executed");
        }
    }

    /**
     * Begins to read the work of a task.
     *
     * @param reading what is read of each event, as JSON of the planner
     * @param wanted the columns of the batches, in their order; perhaps none
     * @param pieces the slices of files, as JSON of the planner
     * @param threads the cores that the task has
     * @return a handle for the other functions, which one thread at a time may use
     */
    static native long open(String reading, String[] wanted, String pieces, int threads);

    /** Returns the columns of the batches, as a schema message of Arrow's IPC format. */
    static native byte[] schema(long handle);

    /**
     * Reads the next batch, which ends the life of the one before.
     *
     * @return null at the end, or the batch's layout as Arrow's IPC format orders it: the number of rows; the number
     *     of nodes, and the length and the nulls of each; the number of buffers, and the address and the bytes of each
     */
    static native long[] next(long handle);

    /** Returns the bytes read so far, and the nanoseconds for reading, inflating and projecting. */
    static native long[] spent(long handle);

    /** Ends the reading; the handle and the last batch are gone. */
    static native void close(long handle);

    /** Returns the warnings and errors logged since the last call, one below the other; null if there are none. */
    static native String lines();
}
