"""`.schema(…)`: payloads as typed columns, in batches and in streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from harness import Receiver

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

EVENTS = [
    b'{"@timestamp":"2026-11-21T10:00:00.123Z","message":"a","log":{"level":"info","n":1}}',
    b'{"@timestamp":1795255200,"message":"b","log.level":"warn","tags":["x","y"]}',
    b"{broken",
    b'{"message":"d","log":{"n":"many"},"stream":"stdout"}',
    b"[1]",
]
SCHEMA = (
    "position BIGINT, `@timestamp` TIMESTAMP, message STRING, log STRUCT<level: STRING, n: INT>, "
    "tags ARRAY<STRING>, _rescued STRING"
)


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("schema") / "spool"
    receiver = Receiver(directory).start()
    receiver.send(EVENTS)
    receiver.stop()
    return directory


def read(spark: SparkSession, spool: Path, schema: str, **options: str) -> DataFrame:
    reader = spark.read.format("ackline").option("spool", str(spool)).options(**options)
    return reader.schema(schema).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("position").collect()]


def test_members_become_columns_of_their_types(spark: SparkSession, spool: Path) -> None:
    found = rows(read(spark, spool, SCHEMA).selectExpr("*", "unix_millis(`@timestamp`) AS ms"))
    assert [row["position"] for row in found] == [0, 1, 2, 3, 4]
    assert [row["ms"] for row in found[:2]] == [1795255200123, 1795255200000]
    assert found[0]["log"] == {"level": "info", "n": 1}
    assert found[1]["log"] == {"level": "warn", "n": None}
    assert found[1]["tags"] == ["x", "y"]
    assert found[0]["_rescued"] is None
    assert found[2]["message"] is None
    assert json.loads(found[2]["_rescued"]) == {"_corrupt_record": "{broken"}
    assert json.loads(found[3]["_rescued"]) == {"stream": "stdout", "log": {"n": "many"}}
    assert json.loads(found[4]["_rescued"]) == {"_corrupt_record": "[1]"}


def test_names_of_every_events_columns_keep_their_meaning(spark: SparkSession, spool: Path) -> None:
    found = rows(
        read(spark, spool, "message STRING, position BIGINT, stream STRING, payload BINARY")
    )
    assert found[3] == {"message": "d", "position": 3, "stream": None, "payload": EVENTS[3]}


def test_dropmalformed_leaves_rows_out_and_positions_alone(
    spark: SparkSession, spool: Path
) -> None:
    kept = rows(read(spark, spool, SCHEMA, mode="dropMalformed"))
    assert [row["position"] for row in kept] == [0, 1, 3]
    strict = read(spark, spool, SCHEMA, mode="DROPMALFORMED", rescuedDataColumn="")
    assert [row["position"] for row in rows(strict)] == [0, 1]


def test_failfast_names_position_and_reason(spark: SparkSession, spool: Path) -> None:
    with pytest.raises(Exception, match=r"json\.syntax: position 2: the payload is not JSON"):
        read(spark, spool, SCHEMA, mode="FAILFAST").collect()


def test_the_text_of_what_is_no_object_has_a_column(spark: SparkSession, spool: Path) -> None:
    schema = "position BIGINT, message STRING, bad STRING"
    found = rows(read(spark, spool, schema, columnNameOfCorruptRecord="bad"))
    assert [row["bad"] for row in found] == [None, None, "{broken", None, "[1]"]


def test_names_are_compared_as_the_option_says(spark: SparkSession, spool: Path) -> None:
    schema = "position BIGINT, MESSAGE STRING"
    assert rows(read(spark, spool, schema))[0]["MESSAGE"] == "a"
    assert rows(read(spark, spool, schema, caseSensitive="true"))[0]["MESSAGE"] is None


def test_the_option_schema_adds_the_rescued(spark: SparkSession, spool: Path) -> None:
    reader = spark.read.format("ackline").option("spool", str(spool))
    frame = reader.option("schema", "position BIGINT, message STRING").load()
    assert frame.columns == ["position", "message", "_rescued"]
    assert json.loads(rows(frame)[3]["_rescued"]) == {"log": {"n": "many"}, "stream": "stdout"}
    renamed = reader.option("rescuedDataColumn", "the rest").load()
    assert renamed.columns == ["position", "message", "the rest"]
    without = reader.option("rescuedDataColumn", "").load()
    assert without.columns == ["position", "message"]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("position STRING, a STRING", {}, "column position is one that every event has"),
        ("a INTERVAL DAY TO SECOND", {}, "column a has the type"),
        ("a MAP<INT, STRING>", {}, "column a.key has the type Int32"),
        ("a STRING", {"mode": "SLOPPY"}, "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST"),
        ("a STRING", {"columns": "position"}, "the option columns wants position"),
        ("a STRING", {"table": "quarantine"}, "the quarantine has none"),
        ("a STRING", {"caseSensitive": "maybe"}, "caseSensitive must be true or false"),
        ("a STRING", {"columnNameOfCorruptRecord": " "}, "columnNameOfCorruptRecord must be"),
        ("a STRING NOT NULL", {}, "column a may not be null"),
        ("`a.b` STRING, a STRUCT<b: STRING>", {}, "two columns are filled by the member a.b"),
    ],
)
def test_what_cannot_be_filled_is_refused(
    spark: SparkSession, spool: Path, schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match="UsageError") as error:
        read(spark, spool, schema, **options).collect()
    assert message in str(error.value)


def test_a_stream_projects_and_its_offsets_count_every_event(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    reader = spark.readStream.format("ackline").option("spool", str(spool))
    reader = reader.option("mode", "DROPMALFORMED").option("startingPosition", "earliest")
    query = (
        reader.option("maxRowsPerBatch", "2")
        .schema(SCHEMA)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    kept = rows(spark.read.schema(SCHEMA).parquet(str(tmp_path / "out")))
    assert [row["position"] for row in kept] == [0, 1, 3]
    last = json.loads(query.lastProgress.sources[0].endOffset)
    (span,) = last["spools"].values()
    assert span["to"] == len(EVENTS)
