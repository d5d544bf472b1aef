"""`.schema(…)`: payloads as typed columns, in batches and in streams."""

from __future__ import annotations

import json
import platform
import re
from typing import TYPE_CHECKING, Any

import pytest
from harness import Receiver
from pyspark.errors import AnalysisException

from ackline import Spool, UsageError
from ackline.spark.options import batch_options, stream_options

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader, StreamingQuery

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


def stored(reader: DataStreamReader, directory: Path) -> StreamingQuery:
    """The query that has written everything to `directory`/out, once."""
    query = (
        reader.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    return query


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
    schema = "message STRING, position BIGINT, stream STRING, payload BINARY"
    found = rows(read(spark, spool, schema, eventColumns="position, stream, payload"))
    assert found[3] == {"message": "d", "position": 3, "stream": None, "payload": EVENTS[3]}
    found = rows(read(spark, spool, "message STRING, position BIGINT, payload BINARY"))
    assert found[3] == {"message": "d", "position": 3, "payload": EVENTS[3]}


def test_dropmalformed_leaves_rows_out_and_positions_alone(
    spark: SparkSession, spool: Path
) -> None:
    kept = rows(read(spark, spool, SCHEMA, mode="dropMalformed"))
    assert [row["position"] for row in kept] == [0, 1, 3]
    strict = read(spark, spool, SCHEMA, mode="DROPMALFORMED", rescuedDataColumn="")
    assert [row["position"] for row in rows(strict)] == [0, 1]


def test_failfast_names_position_and_reason(spark: SparkSession, spool: Path) -> None:
    said = (
        r"json\.syntax: position 2: the payload is not JSON: .* \(spool "
        + re.escape(str(spool))
        + rf", positions \d+ to \d+, host {re.escape(platform.node())}\)"
    )
    with pytest.raises(Exception, match=said):
        read(spark, spool, SCHEMA, mode="FAILFAST").collect()


def test_a_payload_that_is_no_object_stands_in_a_column(spark: SparkSession, spool: Path) -> None:
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
        ("a STRING", {"payload": "json"}, "payload must be binary or variant"),
        ("a INT, _rescued STRING, _rescued STRING", {}, "two columns are named _rescued"),
        ("a STRING NOT NULL", {}, "column a may not be null"),
        ("`a.b` STRING, a STRUCT<b: STRING>", {}, "two columns are filled by the member a.b"),
    ],
)
def test_a_column_that_cannot_be_filled_is_refused(
    spark: SparkSession, spool: Path, schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException) as error:
        read(spark, spool, schema, **options).collect()
    assert message in str(error.value)


def test_the_columns_are_named_in_one_way(spark: SparkSession, spool: Path) -> None:
    reader = spark.read.format("ackline").options(spool=str(spool), schema="a STRING")
    with pytest.raises(Exception, match=r"the option schema and .*contradict each other: give one"):
        reader.schema("a STRING").load().collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": " "}, "schema must name columns"),
        ({"schema": "a STRING", "columns": "peer"}, "schema and columns contradict"),
        ({"schema": "a STRING", "payload": "variant"}, "schema names the type of payload"),
    ],
)
def test_options_that_contradict_the_schema_are_refused(
    options: dict[str, str], message: str
) -> None:
    for read_options in (stream_options, batch_options):
        with pytest.raises(UsageError, match=message):
            read_options({"spool": "/a"} | options)


def test_a_stream_projects_and_its_offsets_count_every_event(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    reader = spark.readStream.format("ackline").option("spool", str(spool))
    reader = reader.option("mode", "DROPMALFORMED").option("startingPosition", "earliest")
    query = stored(reader.option("maxRowsPerBatch", "2").schema(SCHEMA), tmp_path)
    kept = rows(spark.read.schema(SCHEMA).parquet(str(tmp_path / "out")))
    assert [row["position"] for row in kept] == [0, 1, 3]
    last = json.loads(query.lastProgress.sources[0].endOffset)
    (span,) = last["spools"].values()
    assert span["to"] == len(EVENTS)


def test_payloads_are_variants_in_a_batch_and_in_a_stream(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    fields = [
        "position",
        "try_variant_get(payload, '$.log.n', 'int') AS n",
        "payload:message::string AS message",
        "to_json(payload) AS text",
        "_corrupt_record AS corrupt",
    ]
    reader = spark.read.format("ackline").option("spool", str(spool)).option("payload", "variant")
    frame = reader.load()
    assert frame.columns[-2:] == ["payload", "_corrupt_record"]
    some = reader.option("columns", "position,payload").load()
    assert some.columns == ["position", "payload", "_corrupt_record"]
    stream = spark.readStream.format("ackline").option("spool", str(spool))
    stored(stream.option("payload", "variant").option("startingPosition", "earliest"), tmp_path)
    written = spark.read.parquet(str(tmp_path / "out"))
    for found in (rows(frame.selectExpr(*fields)), rows(written.selectExpr(*fields))):
        assert [row["n"] for row in found] == [1, None, None, None, None]
        assert [row["message"] for row in found] == ["a", "b", None, "d", None]
        assert [row["corrupt"] for row in found] == [None, None, "{broken", None, None]
        assert json.loads(found[1]["text"]) == json.loads(EVENTS[1])
        assert (found[2]["text"], found[4]["text"]) == (None, "[1]")


def test_variants_equal_those_of_sparks_own_parser(spark: SparkSession, tmp_path: Path) -> None:
    events = [
        b'{"i":[0,-1,127,128,32768,2147483648,-9223372036854775808,9223372036854775808]}',
        b'{"d":[1.5,-0.001,1e3,1.0E-7,123456789012345678901234567890.12345678]}',
        b'{"s":["","a\\u00e9\\n","\xf0\x9f\x98\x80"],"t":true,"f":false,"n":null,"o":{},"l":[]}',
        b' {"b":{"z":1,"a":{"k":[{"x":[]},2]}},"a":"' + b"x" * 100 + b'"} ',
        b'[1,"a",null]', b'"text"', b" null\n", b"true", b"-1.5",
    ]  # fmt: skip
    receiver = Receiver(tmp_path / "spool").start()
    receiver.send(events)
    receiver.stop()
    frame = read(spark, tmp_path / "spool", "position BIGINT, payload VARIANT, i VARIANT")
    assert frame.where("payload IS NULL").count() == 0
    found = frame.selectExpr("position", "to_json(payload) AS v", "schema_of_variant(payload) AS s")
    texts = [(n, event.decode().strip()) for n, event in enumerate(events)]
    parsed = spark.createDataFrame(texts, "position BIGINT, text STRING").selectExpr(
        "position", "to_json(parse_json(text)) AS v", "schema_of_variant(parse_json(text)) AS s"
    )
    assert rows(found) == rows(parsed)
    one = rows(frame.selectExpr("position", "to_json(i) AS i"))
    assert [row["i"] for row in one[1:]] == [None] * 8
    assert json.loads(one[0]["i"])[:3] == [0, -1, 127]


def test_ddl_of_a_sample_is_one_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    names = [
        "plain",
        "@at",
        "a b",
        "with`tick",
        "select",
        "Ünicode",
        "1st",
        "timestamp",
        "x-y",
        "end",
    ]
    event = {name: {"inner " + name: [1, 2.5], "t": "2026-11-21T10:00:00Z"} for name in names}
    event |= {"big": 2**70, "dotted.name": 1, "empty": {}, "list": [{"a": None}], "position": 1}
    receiver = Receiver(tmp_path / "spool").start()
    receiver.send([json.dumps(event).encode()])
    receiver.stop()
    inferred = Spool(tmp_path / "spool").infer_schema()
    assert inferred.shadowed == ("position",)
    of_schema, of_option = (
        spark.read.format("ackline").option("spool", str(tmp_path / "spool")) for _ in range(2)
    )
    for frame in (
        of_schema.schema(inferred.ddl + ", _rescued STRING").load(),
        of_option.option("schema", inferred.ddl).load(),
    ):
        (row,) = frame.collect()
        assert set(names) <= set(frame.columns)
        assert row["with`tick"]["inner with`tick"] == [1.0, 2.5]
        assert (row["big"], row["dotted"]["name"]) == (2**70, 1)
        assert row["_rescued"] == '{"position": 1}'.replace(" ", "")


def test_ordinary_events_equal_the_result_of_from_json(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        "b BOOLEAN, t TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(20, 4), s STRING, "
        "y BINARY, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, a ARRAY<STRUCT<x: INT, y: STRING>>, "
        "m MAP<STRING, BIGINT>, o STRUCT<p: STRUCT<q: ARRAY<ARRAY<INT>>>, r: STRING>"
    )
    events = [
        {
            "b": n % 2 == 0,
            "t": n % 128,
            "i": -(n**3),
            "l": 2**53 + n,
            "f": n / 3,
            "d": n * 1e200 / 7,
            "n": n / 1000,
            "s": [f"line\n{n}\u00e9", n, n / 2, True, None][n % 5],
            "y": "Zm9v"[: 4 * (n % 2)],
            "day": f"2026-{n % 12 + 1:02}-{n % 28 + 1:02}",
            "at": f"2026-11-21T{n % 24:02}:10:11.{n:06}{['Z', '+05:30', '-08:00', ''][n % 4]}",
            "wall": f"1969-12-31T{n % 24:02}:10:11.{n:03}",
            "a": [{"x": x, "y": str(x)} for x in range(n % 4)] + [None, {"x": None}, {}],
            "m": {f"k{x}": x if x % 2 else None for x in range(n % 5)},
            "o": [None, {}, {"p": {"q": [[n], [], [1, 2]]}}, {"p": None, "r": "x"}][n % 4],
        }
        for n in range(200)
    ]
    for n, event in enumerate(events):
        for name in list(event)[:: n % 7 + 2]:
            event.pop(name) if n % 3 else event.update({name: None})
    lines = [json.dumps(event, indent=n % 3 or None) for n, event in enumerate(events)]
    receiver = Receiver(tmp_path / "spool").start()
    receiver.send([line.encode() for line in lines])
    receiver.stop()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = rows(read(spark, tmp_path / "spool", f"position BIGINT, {schema}", mode="FAILFAST"))
    texts = spark.createDataFrame(list(enumerate(lines)), "position BIGINT, text STRING")
    options = "map('mode', 'FAILFAST')"
    parsed = texts.selectExpr("position", f"from_json(text, '{schema}', {options}) AS r")
    assert found == rows(parsed.select("position", "r.*"))
