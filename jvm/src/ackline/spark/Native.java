package ackline.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** The reader in Rust. Each function throws {@link AcklineException}. */
final class Native {
    private static final String LIBRARY = "libackline_jvm.so";

    static {
        load();
    }

    private Native() {}

    /**
     * Begins to read the work of a task.
     *
     * @param reading what is read of each event, as JSON of the planner
     * @param wanted the columns of the batches, in their order; perhaps none
     * @param pieces the slices of files, as JSON of the planner
     * @return a handle for the other functions, which one thread at a time may use
     */
    static native long open(String reading, String[] wanted, String pieces);

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

    /** Loads the library out of the jar: an executor has nothing else of Ackline. */
    private static void load() {
        try (InputStream library = Native.class.getResourceAsStream("/" + LIBRARY)) {
            if (library == null) {
                throw new AcklineException(null, "the jar holds no " + LIBRARY + " for this system");
            }
            Path copy = Files.createTempFile("ackline", ".so");
            try {
                Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
                System.load(copy.toString());
            } finally {
                // A loaded library needs no name.
                Files.deleteIfExists(copy);
            }
        } catch (IOException error) {
            throw new UncheckedIOException("ackline cannot unpack " + LIBRARY + " into java.io.tmpdir", error);
        }
    }
}
