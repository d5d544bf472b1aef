"""The query of the buyer's figure, as a program: `buyer_spark.py SETTINGS`, as JSON.

Both sides have the same session and the same sink: a trigger of one second, Parquet. The
settings name the `cores` and the source: its `format` and `options`, the `jars` that it needs and
whether the session is `tuned`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

SCHEMA = "message STRING"


def session(settings: dict[str, Any]) -> Any:
    """Build the session."""
    from pyspark.sql import SparkSession

    directory = Path(settings["directory"])
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{settings['cores']}]")
        .appName("buyer")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", settings["cores"])
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        # The time of a commit is read from the sink's log: none of it may be deleted meanwhile.
        .config("spark.sql.streaming.fileSink.log.cleanupDelay", "1d")
    )
    if settings["jars"]:
        builder = builder.config("spark.jars", ",".join(settings["jars"]))
    if settings["tuned"]:
        import ackline.spark

        builder = ackline.spark.tuned(builder)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def messages(spark: Any, settings: dict[str, Any]) -> Any:
    """Return the events' log lines and whether they are marked as repeats, as documented."""
    reader = spark.readStream.format(settings["format"])
    for name, value in settings["options"].items():
        reader = reader.option(name, value)
    if settings["format"] == "kafka":
        from pyspark.sql.functions import col, from_json, lit

        event = from_json(col("value").cast("string"), SCHEMA)
        return reader.load().select(event["message"].alias("message"), lit(False).alias("repeat"))
    import ackline.spark

    ackline.spark.register(spark)
    return reader.schema(f"{SCHEMA}, repeat BOOLEAN").load()


def main() -> None:
    """Run the query until the process is ended."""
    settings = json.loads(sys.argv[1])
    directory = Path(settings["directory"])
    spark = session(settings)
    rows = messages(spark, settings).selectExpr(
        "CAST(substring(message, 1, 16) AS BIGINT) AS made_us",
        "CAST(substring(message, 18, 10) AS BIGINT) AS number",
        "repeat",
        "message",
    )
    query = (
        rows.writeStream.format("parquet")
        .trigger(processingTime="1 second")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    sys.stdout.write(json.dumps({"event": "ready", "spark": spark.version}) + "\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    main()
