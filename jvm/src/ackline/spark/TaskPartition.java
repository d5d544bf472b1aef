package ackline.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/** The work of one task: slices of files, as JSON of the planner. */
final class TaskPartition implements InputPartition {
    private static final long serialVersionUID = 1L;

    private final String pieces;

    TaskPartition(String pieces) {
        this.pieces = pieces;
    }

    String pieces() {
        return pieces;
    }
}
