"""The severe alerts of a topic in Spark, as docs/topics-and-queues.md tells.

`python examples/alerts_in_spark.py URL` runs a stream that subscribes to the topic `alerts` of the
broker at URL, until the publisher of examples/topics_and_queues.py has published its last alert.
The query's spool and checkpoint are in the current directory.
"""

import sys
import threading

from pyspark.sql import DataFrame, SparkSession

import ackline.spark

SCHEMA = "attributes MAP<STRING, STRING>, number BIGINT, text STRING"
DONE = threading.Event()
COUNTS: dict[str, int] = {}


def main(url: str) -> None:
    """Count the severe alerts of one region by their level: the broker sends no others."""
    spark = ackline.spark.tuned(SparkSession.builder).getOrCreate()
    ackline.spark.register(spark)
    alerts = (
        spark.readStream.format("ackline")
        .option("connect", f"{url}/alerts")
        .option("where", "level >= 3 AND region = 'eu'")
        .option("spool", "alerts")
        .option("consumer", "levels")
        .schema(SCHEMA)
        .load()
    )
    query = (
        alerts.selectExpr("attributes['level'] AS level", "attributes['last'] AS last", "number")
        .writeStream.foreachBatch(add)
        .option("checkpointLocation", "checkpoint")
        .start()
    )
    DONE.wait()
    query.stop()
    print("levels:", dict(sorted(COUNTS.items())))
    spark.stop()


def add(batch: DataFrame, _number: int) -> None:
    """Add the alerts of a batch."""
    for level, last, count in batch.groupBy("level", "last").count().collect():
        if last is None:
            COUNTS[level] = COUNTS.get(level, 0) + count
        else:
            DONE.set()


if __name__ == "__main__":
    main(sys.argv[1])
