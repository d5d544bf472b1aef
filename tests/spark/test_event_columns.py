"""`eventColumns`: the columns of a schema that are the event's, where members have their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ackline import Receiver, lumberjack, micromsg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver as Running
    from pyspark.sql import SparkSession

    Receive = Callable[..., Running]

# The log of a container, whose stream is that of the process.
LOG = b'{"stream":"stderr","position":"line 7","peer":"10.1.1.1","message":"no"}'


@pytest.fixture
def spool(receive: Receive, tmp_path: Path) -> str:
    receiver = receive(tmp_path / "spool")
    receiver.send([LOG])
    return str(receiver.spool)


@pytest.mark.parametrize(
    ("schema", "columns", "row"),
    [
        (
            "position BIGINT, stream STRING, message STRING",
            "position",
            (0, "stderr", "no"),
        ),
        (
            "position BIGINT, stream STRING, message STRING, _rescued STRING",
            "position, stream",
            (0, None, "no", '{"stream":"stderr","position":"line 7","peer":"10.1.1.1"}'),
        ),
        (
            "at BIGINT, position STRING, channel STRING, stream STRING, way STRING, peer STRING",
            "at=position, channel = stream, way=protocol",
            (0, "line 7", None, "stderr", "lumberjack", "10.1.1.1"),
        ),
        # Names that change places.
        ("sequence BIGINT, position BIGINT", "sequence=position, position=sequence", (0, 1)),
        ("n BIGINT, again BIGINT", "n=position, again=position", (0, 0)),
        ("body BINARY, kind STRING", "kind=protocol, body=payload", (LOG, "lumberjack")),
        (
            "payload STRING, whole VARIANT",
            "whole=payload",
            (None, "no"),
        ),
    ],
)
def test_the_event_has_the_columns_that_are_listed(
    spark: SparkSession, spool: str, schema: str, columns: str, row: tuple[object, ...]
) -> None:
    reader = spark.read.format("ackline").options(spool=spool, eventColumns=columns)
    frame = reader.schema(schema).load()
    if "VARIANT" in schema:
        frame = frame.selectExpr("payload", "variant_get(whole, '$.message', 'STRING')")
    (found,) = frame.collect()
    assert tuple(found) == row


def test_a_stream_has_them_too_and_by_the_option_schema(
    spark: SparkSession, spool: str, tmp_path: Path
) -> None:
    query = (
        spark.readStream.format("ackline")
        .options(
            spool=spool,
            consumer="c",
            eventColumns="at=position",
            schema="at BIGINT, stream STRING",
            rescuedDataColumn="",
        )
        .load()
        .writeStream.format("memory")
        .queryName("containers")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    assert [tuple(row) for row in spark.table("containers").collect()] == [(0, "stderr")]


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({}, "stream STRING, message STRING", "'position, channel=stream' gives the event's"),
        ({"eventColumns": ""}, "a STRING", "eventColumns must name columns such as"),
        ({"eventColumns": "a="}, "a STRING", "eventColumns must name columns such as"),
        ({"eventColumns": "a=stream,a=peer"}, "a STRING", "a column of the schema twice"),
        ({"eventColumns": "a=strem"}, "a STRING", "an event has no column 'strem', only spool"),
        ({"eventColumns": "stream"}, "a STRING", "names stream, which the schema does not have"),
        ({"eventColumns": "a=position"}, "a STRING, b STRING", "column a is one that every event"),
        ({"eventColumns": "a=position"}, "a STRING", "column a is a nullable bigint, not string"),
        ({"eventColumns": "position", "columns": "position"}, None, "columns and eventColumns"),
        ({"eventColumns": "position"}, None, "eventColumns needs .schema"),
    ],
)
def test_a_schema_that_leaves_it_open_is_refused(
    spark: SparkSession, spool: str, options: dict[str, str], schema: str | None, text: str
) -> None:
    reader = spark.read.format("ackline").options(spool=spool, **options)
    with pytest.raises(PySparkException, match=text.replace(".schema", r"\.schema")):
        (reader if schema is None else reader.schema(schema)).load().collect()


def test_no_member_stands_beside_the_stream_of_an_event(spark: SparkSession, spool: str) -> None:
    reader = spark.read.format("ackline").option("spool", spool)
    for schema in ("position BIGINT, stream STRING", "stream STRING, payload VARIANT"):
        assert reader.schema(schema).load().select("stream").collect() == [(None,)]


def test_the_stream_is_asked_for_behind_events_of_another_protocol(
    spark: SparkSession, tmp_path: Path
) -> None:
    urls = ["micromsg://127.0.0.1:0", "lumberjack://127.0.0.1:0"]
    with Receiver(urls, spool=tmp_path / "mixed") as receiver:
        with micromsg.connect(receiver.urls[0]) as connection:
            position = connection.send(b'{"message":"a"}', "orders")
            connection.wait_acknowledged(position, timeout=30)
        with lumberjack.connect(receiver.urls[1]) as writer:
            writer.send([LOG], timeout=30)
    reader = spark.read.format("ackline").schema("stream STRING, message STRING")
    with pytest.raises(PySparkException, match="which Lumberjack has not"):
        reader.load(str(tmp_path / "mixed")).collect()
    rows = reader.option("eventColumns", "stream").load(str(tmp_path / "mixed")).collect()
    assert [tuple(row) for row in rows] == [("orders", "a"), (None, "no")]


def test_the_listener_is_a_column_of_those_that_ask_for_it(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send([b'{"listener":"theirs","endpoint":5}'])
    url = f"lumberjack://127.0.0.1:{receiver.port}"
    reader = spark.read.format("ackline").option("spool", str(receiver.spool))
    assert not {"listener", "endpoint"} & set(reader.load().columns)
    named = reader.option("columns", "endpoint,position,listener").load()
    assert [tuple(row) for row in named.collect()] == [(None, 0, url)]
    reader = spark.read.format("ackline").option("spool", str(receiver.spool))
    members = reader.schema("position BIGINT, listener STRING, endpoint BIGINT")
    assert [tuple(row) for row in members.load().collect()] == [(0, "theirs", 5)]
    renamed = spark.read.format("ackline").option("eventColumns", "url=listener, to=endpoint")
    renamed = renamed.schema("url STRING, listener STRING, to STRING")
    assert [tuple(row) for row in renamed.load(str(receiver.spool)).collect()] == [
        (url, "theirs", None)
    ]
