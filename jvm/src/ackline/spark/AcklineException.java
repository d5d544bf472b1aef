package ackline.spark;

import org.apache.spark.SparkThrowable;

/**
 * An error of Ackline, such as a spool that cannot be read.
 *
 * <p>Spark shows the user an exception of this kind itself, and of other kinds only that a stage has failed.
 */
public final class AcklineException extends IllegalArgumentException implements SparkThrowable {
    private static final long serialVersionUID = 1L;

    private final String code;

    /**
     * @param code the error's code, as the page on log lines and codes lists it; null for none
     * @param text what is wrong, where, and what to do
     */
    public AcklineException(String code, String text) {
        super(text);
        this.code = code;
    }

    /** Returns the error's code, or null. */
    @Override
    public String getCondition() {
        return code;
    }
}
