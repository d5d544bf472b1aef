"""The source by SQL and by paths, as users of Spark's own sources write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered
from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]


@pytest.mark.timeout(240)
def test_tables_views_and_paths_name_a_spool(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "a spool")
    receiver.send(numbered(0, 30))
    spool = str(receiver.spool)

    def count(query: str) -> int:
        (row,) = spark.sql(query).collect()
        return int(row[0])

    spark.sql(f"CREATE TEMPORARY VIEW a_view USING ackline OPTIONS (spool '{spool}')")
    spark.sql(f"CREATE TABLE a_table USING ackline OPTIONS (spool '{spool}')")
    try:
        assert count("SELECT count(position) FROM a_view WHERE position >= 10") == 20
        # Spark hands a source of Python none of a table's options.
        named = f"SELECT count(position) FROM a_table WITH (spool = '{spool}', start = '10')"
        assert count(named) == 20
        with pytest.raises(AnalysisException, match=r"SELECT \.\.\. FROM table WITH \(spool = "):
            count("SELECT count(position) FROM a_table")
        columns = [row.col_name for row in spark.sql("DESCRIBE TABLE a_table").collect()]
        assert columns[:2] == ["spool", "position"]
    finally:
        spark.sql("DROP VIEW a_view")
        spark.sql("DROP TABLE a_table")
    reader = spark.read.format("ackline")
    assert reader.load(spool).count() == 30
    again = f"lumberjack://127.0.0.1:{receiver.port}"
    reader.load(spool).select("payload").write.format("ackline").mode("append").save(again)
    assert spark.read.format("ackline").load(spool).count() == 60
    with pytest.raises(AnalysisException, match="contradict each other: give one"):
        spark.read.format("ackline").option("spool", "/other").load(spool)
    written = spark.readStream.format("ackline").option("startingPosition", "earliest").load(spool)
    query = (
        written.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert sum(one["numInputRows"] for one in query.recentProgress) == 60
