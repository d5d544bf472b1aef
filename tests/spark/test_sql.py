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
def query_of(spark: SparkSession, table: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(f"SELECT * FROM {table} ORDER BY position").collect()]


def test_a_table_keeps_the_options_that_made_it(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "o'brien")
    receiver.send([b'{"n":1,"more":2}', b'{"n":"x"}'])
    quoted = str(receiver.spool).replace("'", "\\'")
    made = {
        "chosen": f"(spool '{quoted}', columns 'position, protocol')",
        "typed": f"(spool '{quoted}', schema 'position BIGINT, n INT')",
        "nested": f"(spool '{quoted}', schema 'n INT, log STRUCT<a: INT, _rescued: STRING>')",
        "strict": f"(spool '{quoted}', schema 'position BIGINT, n INT', rescuedDataColumn '')",
    }
    for name, options in made.items():
        spark.sql(f"CREATE TABLE {name} USING ackline OPTIONS {options}")
    # Columns that the statement names cannot carry the options.
    spark.sql(f"CREATE TABLE bare (position BIGINT) USING ackline OPTIONS (spool '{quoted}')")
    try:
        assert query_of(spark, "chosen") == [(0, "lumberjack"), (1, "lumberjack")]
        assert query_of(spark, "typed") == [(0, 1, '{"more":2}'), (1, None, '{"n":"x"}')]
        assert spark.table("nested").columns == ["n", "log", "_rescued"]
        assert query_of(spark, "strict") == [(0, 1), (1, None)]
        with pytest.raises(
            AnalysisException, match=r"keeps none of its options: .* WITH \(spool = "
        ):
            query_of(spark, "bare")
        assert query_of(spark, f"bare WITH (spool = '{quoted}')") == [(0,), (1,)]
        stream = spark.readStream.table("chosen")
        query = (
            stream.writeStream.format("memory")
            .queryName("of_table")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(100)
        assert query_of(spark, "of_table") == [(0, "lumberjack"), (1, "lumberjack")]
        ending = "schema 'position BIGINT, _rescued STRING COMMENT \"x\"'"
        listens = "listen 'lumberjack://127.0.0.1:0', consumer 'c'"
        with pytest.raises(AnalysisException, match="must not end with a comment"):
            spark.sql(f"CREATE TABLE sent USING ackline OPTIONS (spool '{quoted}', {ending})")
        with pytest.raises(AnalysisException, match="a table has no option listen"):
            spark.sql(f"CREATE TABLE sent USING ackline OPTIONS (spool '{quoted}', {listens})")
        with pytest.raises(AnalysisException, match="a table whose rows are sent must name"):
            spark.sql("CREATE TABLE sent USING ackline OPTIONS (url 'lumberjack://127.0.0.1:9')")
    finally:
        for name in (*made, "bare"):
            spark.sql(f"DROP TABLE {name}")


def test_a_table_is_made_with_all_that_spark_offers(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "a#b c")
    receiver.send([b'{"n":%d}' % n for n in range(20)])
    place = str(receiver.spool)
    since = "startingTimestamp '2036-01-01T00:00:00Z'"
    statements = {
        "commented": f"OPTIONS (spool '{place}') COMMENT 'the logs'",
        "with_properties": f"OPTIONS (spool '{place}') TBLPROPERTIES ('k' = 'v', 'spool' = '/no')",
        "located": f"LOCATION '{place}'",
        "late": f"OPTIONS (spool '{place}', {since}, consumer 'lake')",
    }
    try:
        for name, rest in statements.items():
            spark.sql(f"CREATE TABLE {name} USING ackline {rest}")
        spark.catalog.createTable("created", path=place, source="ackline", description="more")
        for name in ("commented", "with_properties", "located", "created"):
            assert len(query_of(spark, name)) == 20
        assert query_of(spark, "late") == []
        # A frame whose schema comes from the table takes none of its options.
        reader = spark.read.format("ackline").schema(spark.table("late").schema)
        assert reader.load(place).count() == 20
        # One of a query's places replaces the table's.
        assert len(query_of(spark, "late WITH (startingOffsets = 'earliest')")) == 20
        assert len(query_of(spark, "late WITH (start = '15')")) == 5
    finally:
        for name in (*statements, "created"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert len(list(receiver.spool.glob("segments/*.arrows"))) == 1, "the spool is not the table's"


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
    spark.sql(f"CREATE TABLE a_table USING ackline OPTIONS (spool '{spool}', end '25')")
    try:
        assert count("SELECT count(position) FROM a_view WHERE position >= 10") == 20
        assert count("SELECT count(position) FROM a_table") == 25
        assert count("SELECT count(position) FROM a_table WITH (start = '10')") == 15
        assert count("SELECT count(position) FROM a_table WITH (end = '10')") == 10
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
