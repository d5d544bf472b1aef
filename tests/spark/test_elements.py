"""`reactive.element`: payloads of a fixed size as typed columns, in batches and in streams."""

from __future__ import annotations

import decimal
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest
from harness import Receiver
from pyspark.errors import AnalysisException

from ackline import UsageError
from ackline.spark.options import BatchOptions, batch_options, stream_options

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NUMBERS = [0.1, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]
DOUBLES = [struct.pack("<d", number) for number in NUMBERS]
FIELDS = {
    "a": ("i8", "b", "tinyint", (-(2**7), 2**7 - 1)),
    "b": ("i16", "h", "smallint", (-(2**15), 2**15 - 1)),
    "c": ("i32", "i", "int", (-(2**31), 2**31 - 1)),
    "d": ("i64", "q", "bigint", (-(2**63), 2**63 - 1)),
    "e": ("u8", "B", "smallint", (0, 2**8 - 1)),
    "f": ("u16", "H", "int", (0, 2**16 - 1)),
    "g": ("u32", "I", "bigint", (0, 2**32 - 1)),
    "h": ("u64", "Q", "decimal(20,0)", (0, 2**64 - 1)),
    "i": ("f32", "f", "float", (-0.0, 1.5)),
    "j": ("f64", "d", "double", (-0.0, math.inf)),
    "k": ("bool", "?", "boolean", (False, True)),
    "l": ("bytes[3]", "3s", "binary", (b"\x00\xff\x80", b"abc")),
}


def stored(directory: Path, events: list[bytes]) -> Path:
    receiver = Receiver(directory).start()
    receiver.send(events)
    receiver.stop()
    return directory


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("doubles") / "spool"
    return stored(directory, [*DOUBLES, b"longer than 8"])


def read(spark: SparkSession, spool: Path, element: str, **options: str) -> DataFrame:
    reader = spark.read.format("ackline").option("spool", str(spool)).options(**options)
    return reader.option("reactive.element", element).load()


def bits(values: list[float]) -> list[bytes]:
    return [struct.pack("<d", value) for value in values]


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("position").collect()]


def test_a_type_alone_is_the_column_element(spark: SparkSession, doubles: Path) -> None:
    frame = read(spark, doubles, "f64")
    assert frame.columns[-2:] == ["element", "_corrupt_record"]
    assert "payload" not in frame.columns
    assert dict(frame.dtypes)["element"] == "double"
    assert dict(frame.dtypes)["_corrupt_record"] == "binary"
    found = rows(frame)
    assert bits([row["element"] for row in found[:-1]]) == DOUBLES
    assert [row["_corrupt_record"] for row in found[:-1]] == [None] * len(DOUBLES)
    assert (found[-1]["element"], found[-1]["_corrupt_record"]) == (None, b"longer than 8")
    assert frame.selectExpr("sum(element)").count() == 1


@pytest.mark.parametrize("order", ["<", ">"])
def test_fields_have_their_types_and_extremes(
    spark: SparkSession, tmp_path: Path, order: str
) -> None:
    code = order + "".join("2x" + code for _, code, _, _ in FIELDS.values())
    wanted = [{name: both[n] for name, (_, _, _, both) in FIELDS.items()} for n in (0, 1)]
    spool = stored(tmp_path / "spool", [struct.pack(code, *one.values()) for one in wanted])
    sign = "" if order == "<" else ">"
    parts = [
        f"_:bytes[2], {name}:{'' if kind in ('bool', 'bytes[3]') else sign}{kind}"
        for name, (kind, *_) in FIELDS.items()
    ]
    frame = read(spark, spool, ", ".join(parts), columns="position", mode="FAILFAST")
    assert frame.columns == ["position", *FIELDS, "_corrupt_record"]
    types = dict(frame.dtypes)
    assert {name: types[name] for name in FIELDS} == {n: one[2] for n, one in FIELDS.items()}
    found = rows(frame)
    for row, one in zip(found, wanted, strict=True):
        assert row["h"] == decimal.Decimal(one["h"])
        assert {name: row[name] for name in FIELDS} == one
    assert math.copysign(1, found[0]["i"]) == math.copysign(1, found[0]["j"]) == -1
    top = frame.selectExpr("CAST(max(h) AS STRING) AS h", "min(d) AS d").collect()[0]
    assert (top.h, top.d) == ("18446744073709551615", -(2**63))


def test_columns_choose_and_keep_the_payload(spark: SparkSession, doubles: Path) -> None:
    frame = read(spark, doubles, "f64", columns="position,payload")
    assert frame.columns == ["position", "payload", "element", "_corrupt_record"]
    assert rows(frame)[0]["payload"] == DOUBLES[0]
    digest = read(spark, doubles, "f64", digest="true")
    assert digest.columns[-3:] == ["digest", "element", "_corrupt_record"]
    assert "payload" not in digest.columns
    assert len(rows(digest)[0]["digest"]) == 16


def test_a_schema_chooses_columns(spark: SparkSession, doubles: Path) -> None:
    reader = spark.read.format("ackline").option("spool", str(doubles))
    reader = reader.option("reactive.element", "f64").option("columnNameOfCorruptRecord", "bad")
    schema = "element DOUBLE, position BIGINT, bad BINARY"
    found = rows(reader.schema(schema).load())
    assert list(found[0]) == ["element", "position", "bad"]
    assert found[-1]["bad"] == b"longer than 8"


def test_the_mode_decides_on_payloads_of_another_length(spark: SparkSession, doubles: Path) -> None:
    dropped = read(spark, doubles, "f64", mode="DROPMALFORMED")
    assert [row["position"] for row in rows(dropped)] == list(range(len(DOUBLES)))
    said = r"element\.size: position 7: the payload has 13 bytes, and an element has 8 .*\(spool "
    with pytest.raises(Exception, match=said):
        read(spark, doubles, "f64", mode="FAILFAST").collect()


def test_a_stream_has_the_same_columns(spark: SparkSession, doubles: Path, tmp_path: Path) -> None:
    reader = spark.readStream.format("ackline").option("spool", str(doubles))
    reader = reader.option("reactive.element", "f64").option("startingPosition", "earliest")
    query = (
        reader.option("maxRowsPerBatch", "3")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    found = rows(spark.read.parquet(str(tmp_path / "out")))
    assert bits([row["element"] for row in found[:-1]]) == DOUBLES
    assert found[-1]["_corrupt_record"] == b"longer than 8"
    (span,) = json.loads(query.lastProgress.sources[0].endOffset)["spools"].values()
    assert span["to"] == len(DOUBLES) + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reactive.element": "f46"}, r'reactive\.element is "f46": .*did you mean f64\?'),
        ({"reactive.element": ""}, "reactive.element is empty; it is a type such as f64, or"),
        ({"reactive.element": "a:u8,b"}, r'reactive\.element is "a:u8,b": field 2 is "b" without'),
        ({"reactive.element": "f64", "schema": "a INT"}, "schema is for payloads that are JSON"),
        ({"reactive.element": "f64", "payload": "variant"}, "payload is for payloads that are"),
        ({"reactive.element": "f64", "rescuedDataColumn": "x"}, "rescuedDataColumn is for"),
        ({"reactive.element": "f64", "caseSensitive": "true"}, "caseSensitive is for payloads"),
        ({"reactive.element": "sequence:u64"}, r"reactive\.element is .*a field is named sequence"),
        ({"reactive.element": "f64", "columnNameOfCorruptRecord": "element"}, "is named element"),
        ({"reactive.element": "f64", "mode": "SLOPPY"}, "mode must be PERMISSIVE"),
        ({"reactive.elements": "f64"}, r"did you mean reactive\.element\?"),
    ],
)
def test_wrong_options_are_refused_before_spark_is_asked(
    options: dict[str, str], message: str
) -> None:
    for read_options in (stream_options, batch_options):
        with pytest.raises(UsageError, match=message):
            read_options({"spool": "/a"} | options)
    found = batch_options({"spool": "/a", "Reactive.Element": " f64 "})
    assert isinstance(found, BatchOptions)
    assert found.payload.element == "f64"


@pytest.mark.parametrize(
    ("element", "schema", "options", "message"),
    [
        ("f64", "element FLOAT", {}, "column element has the type Float32, and f64 is DOUBLE"),
        ("u64", "element BIGINT", {}, "and u64 is DECIMAL(20,0)"),
        ("f64", "message STRING", {}, "column message is none of every event, and no field of"),
        ("f64", "position STRING, element DOUBLE", {}, "column position is one that every event"),
        ("f64", "element DOUBLE, _corrupt_record STRING", {}, "is BINARY (Binary), not Utf8"),
        ("f64", "element DOUBLE NOT NULL", {}, "column element may not be null"),
        ("f64", None, {"table": "quarantine"}, "is filled from elements; the quarantine has none"),
        ("f64", "element DOUBLE", {"columns": "position"}, "the option columns wants position"),
    ],
)  # fmt: skip
def test_a_column_that_cannot_be_filled_is_refused(
    spark: SparkSession,
    doubles: Path,
    element: str,
    schema: str | None,
    options: dict[str, str],
    message: str,
) -> None:
    reader = spark.read.format("ackline").option("spool", str(doubles)).options(**options)
    reader = reader.option("reactive.element", element)
    with pytest.raises(AnalysisException) as error:
        (reader if schema is None else reader.schema(schema)).load().collect()
    assert message in str(error.value)
