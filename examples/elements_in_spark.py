"""The elements of a spool as typed columns, as docs/publishers-and-subscribers.md tells.

`python examples/elements_in_spark.py SPOOL` reads a spool into which a receiver has landed the
publishers of examples/publish_and_subscribe.py.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

import ackline.spark


def main(spool: str) -> None:
    """Show the numbers and the readings of a spool."""
    spark = ackline.spark.tuned(SparkSession.builder).getOrCreate()
    ackline.spark.register(spark)

    numbers = elements(spark, spool, "numbers", "f64")
    numbers.select("sequence", "element").printSchema()
    numbers.selectExpr("count(element) AS count", "CAST(sum(element) AS BIGINT) AS sum").show()

    readings = elements(spark, spool, "sensors/7", "time:u64,sensor:u16,celsius:f32")
    readings.select("time", "sensor", "celsius").printSchema()
    when = "timestamp_micros(CAST(time / 1000 AS BIGINT)) AS time"
    readings.orderBy("sequence").selectExpr(when, "sensor", "celsius").show(3, truncate=False)
    spark.stop()


def elements(spark: SparkSession, spool: str, publisher: str, description: str) -> DataFrame:
    """Return the elements of a publisher, with the columns of their description."""
    events = spark.read.format("ackline").option("spool", spool)
    frame = events.option("reactive.element", description).load()
    return frame.where(frame.stream == publisher)


if __name__ == "__main__":
    main(sys.argv[1])
