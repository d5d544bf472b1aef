/**
 * Ackline as a source of Spark: reading.
 *
 * <p>The rows come from Rust ({@link ackline.spark.Native}), as batches of columns in Arrow's layout that Spark
 * takes without a copy. One Python process of the JVM ({@link ackline.spark.Planner}) plans the queries: it
 * opens the spools, holds consumers and cuts batches into tasks. Rows are written by the source in Python,
 * to which {@link ackline.spark.AcklineTable} hands them on.
 */
package ackline.spark;
