"""The sink on a real Spark, with a real receiver at the other end, whose spool is read back."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from harness import Receiver, certificates, numbered, until
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from queries import durable
from sinks import drain, events, payloads, start, url, write
from test_refusals import last_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]


def typed(spark: SparkSession, *rows: tuple[Any, ...], **columns: DataType) -> DataFrame:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    return spark.createDataFrame(list(rows), schema)


UTC = dt.UTC
EVERY_TYPE: tuple[tuple[str, DataType, Any, Any], ...] = (
    ("b", BooleanType(), True, True),
    ("i8", ByteType(), -128, -128),
    ("i16", ShortType(), 32767, 32767),
    ("i32", IntegerType(), -(2**31), -(2**31)),
    ("i64", LongType(), 2**63 - 1, 2**63 - 1),
    ("f32", FloatType(), 0.1, 0.1),
    ("f64", DoubleType(), 1e-300, 1e-300),
    ("nan", DoubleType(), float("nan"), None),
    ("dec", DecimalType(38, 10), Decimal("12345678901234567890.0123456789"), None),
    ("s", StringType(), 'say "hé"\\\n\x00 \U0001f600', 'say "hé"\\\n\x00 \U0001f600'),
    ("bin", BinaryType(), bytearray(b"\xff\x00"), "/wA="),
    ("day", DateType(), dt.date(1, 1, 1), "0001-01-01"),
    ("at", TimestampType(), dt.datetime(2026, 11, 21, 10, 12, 13, 5, UTC), None),
    (
        "ntz",
        TimestampNTZType(),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - it has no zone
        "1969-12-31T23:59:59.999999",
    ),
    ("took", DayTimeIntervalType(), dt.timedelta(seconds=-1.5), "PT-1.500000S"),
    ("a.b c", StringType(), "dotted", "dotted"),
    ("list", ArrayType(IntegerType()), [1, None], [1, None]),
    ("map", MapType(StringType(), LongType()), {"k": 1, "n": None}, {"k": 1, "n": None}),
    (
        "nested",
        StructType(
            [
                StructField("x", LongType()),
                StructField("y", StringType()),
                StructField("z", ArrayType(StructType([StructField("q", StringType())]))),
            ]
        ),
        Row(x=1, y=None, z=[Row(q="deep"), Row(q=None)]),
        {"x": 1, "z": [{"q": "deep"}, {}]},
    ),
)


@pytest.mark.timeout(240)
def test_rows_of_every_type_arrive_as_their_json(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    schema = StructType([StructField(name, kind) for name, kind, _, _ in EVERY_TYPE])
    full = tuple(value for _, _, value, _ in EVERY_TYPE)
    frame = spark.createDataFrame([full, tuple(None for _ in full)], schema)
    write(frame.coalesce(1), url(receiver))
    written, empty = payloads(receiver.spool)
    assert empty == b"{}"
    row = json.loads(written)
    assert row.pop("at") == "2026-11-21T10:12:13.000005Z"
    assert row.pop("dec") == float("12345678901234567890.0123456789")
    assert b'"dec":12345678901234567890.0123456789' in written
    assert row == {name: value for name, _, _, value in EVERY_TYPE if name not in ("at", "dec")}
    assert list(json.loads(written)) == schema.names


def test_nulls_are_kept_when_asked(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    frame = typed(spark, (1, None), n=LongType(), s=StringType())
    write(frame, url(receiver), ignoreNullFields="false")
    assert payloads(receiver.spool) == [b'{"n":1,"s":null}']


def test_strings_that_are_not_utf_8_are_replaced(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    frame = spark.sql("select cast(X'61FF62' as string) s")
    write(frame, url(receiver))
    assert events(receiver.spool) == [{"s": "a\ufffdb"}]


@pytest.mark.timeout(240)
def test_every_row_of_every_partition_arrives_once_with_its_origin(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    one, two = receive(tmp_path / "one"), receive(tmp_path / "two")
    rows, partitions = 20_000, 4
    frame = spark.range(0, rows, 1, partitions)
    for level in ("none", "1", "9"):
        write(frame, url(one, two), metadata="true", batch_events="100", compression=level)
    found = events(one.spool) + events(two.spool)
    assert Counter(event["id"] for event in found) == dict.fromkeys(range(rows), 3)
    origins = {tuple(event["ackline"].values()) for event in found}
    assert len(origins) == 3 * rows
    assert {len(event["ackline"]) for event in found} == {4}
    queries = {event["ackline"]["query"] for event in found}
    assert len(queries) == 3
    for query in queries:
        for partition in range(partitions):
            share = sorted(
                (event["ackline"]["ordinal"], event["id"])
                for event in found
                if event["ackline"]["query"] == query and event["ackline"]["partition"] == partition
            )
            first = partition * rows // partitions
            assert share == [(n, first + n) for n in range(rows // partitions)]
    assert {event["ackline"]["batch"] for event in found} == {0}


def test_no_rows_are_no_events(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    write(spark.range(0), url(receiver))
    assert durable(receiver.spool) == 0


def test_raw_sends_payloads_of_another_spool_byte_for_byte(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    one, two = receive(tmp_path / "one"), receive(tmp_path / "two")
    sent = [*numbered(0, 300), b'{ "a" : 1e2,  "a":"\\u00e9" }']
    one.send(sent)
    source = spark.read.format("ackline").options(spool=str(one.spool), maxPartitions="1").load()
    write(source.orderBy("position").select("payload").coalesce(1), url(two), payload="raw")
    assert payloads(two.spool) == sent
    write(spark.createDataFrame([("{}",)], "value string"), url(two), payload="raw")
    assert payloads(two.spool)[-1] == b"{}"


def test_a_raw_row_without_text_fails_the_task(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    frame = spark.createDataFrame([(None,)], "value string")
    with pytest.raises(Exception, match="value of row 0 is null or empty"):
        write(frame, url(receiver), payload="raw")


def test_a_large_row_is_a_window_of_its_own(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    frame = spark.range(0, 6, 1, 1).selectExpr("id", "repeat('x', 3000000) text")
    write(frame, url(receiver), batch_bytes="1MiB", compression="0")
    assert [(event["id"], len(event["text"])) for event in events(receiver.spool)] == [
        (n, 3_000_000) for n in range(6)
    ]


@pytest.mark.timeout(240)
def test_rows_survive_receivers_that_are_killed_while_they_are_sent(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    rows = 60_000
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "repeat(uuid(), 20) text")
    over = threading.Event()
    kills: list[int] = []

    def kill() -> None:
        for wanted in (2_000, 12_000, 25_000):
            until(
                lambda wanted=wanted: over.is_set() or durable(receiver.spool) >= wanted,
                "rows land",
            )
            if not over.is_set():
                kills.append(wanted)
                receiver.kill()
                receiver.start()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        write(frame, url(receiver), metadata="true", batch_events="50", timeout="60")
    finally:
        over.set()
        killing.join(60)
    assert kills, "it was killed while rows were sent"
    found = events(receiver.spool)
    assert {event["id"] for event in found} == set(range(rows))
    # Repeated rows are recognised by their origin, which belongs to one row.
    owners = {tuple(event["ackline"].values()): event["id"] for event in found}
    assert len(owners) == rows
    assert len(found) - rows < 3 * 4 * 2 * 50


@pytest.mark.timeout(120)
def test_without_an_acknowledgement_the_task_fails_with_hosts_and_counts(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    gone = receive(tmp_path / "gone")
    gone.kill()
    before = time.monotonic()
    with pytest.raises(Exception, match="no acknowledgement from ") as error:
        write(spark.range(0, 100, 1, 1), url(gone), timeout="1")
    assert time.monotonic() - before < 60
    text = str(error.value)
    assert f"no acknowledgement from {url(gone)} (" in text
    assert "refused" in text
    assert "for 1 s: 0 rows are acknowledged, 100 of the 100 read so far are not" in text


@pytest.mark.timeout(120)
def test_mutual_tls_by_options_and_by_the_url(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    ca, server, client = certificates(tmp_path)
    receiver = receive(
        tmp_path / "spool",
        scheme="lumberjack+tls",
        arguments=("--cert", server, "--key", server, "--ca", ca, "--client-auth", "required"),
    )
    secure = f"lumberjack+tls://127.0.0.1:{receiver.port}"
    frame = spark.range(0, 50, 1, 1)
    files = {"ca": str(ca), "cert": str(client), "key": str(client)}
    write(frame, secure, **files, server_name="logs.example.org")
    write(frame, f"{secure}?ca={ca}&cert={client}&key={client}&server_name=logs.example.org")
    assert Counter(event["id"] for event in events(receiver.spool)) == dict.fromkeys(range(50), 2)
    for wrong in (
        {"ca": str(ca), "server_name": "logs.example.org"},
        files,
    ):
        with pytest.raises(Exception, match=r"no acknowledgement from .*tls"):
            write(frame, secure, **wrong, timeout="1")
    assert durable(receiver.spool) == 100


@pytest.mark.timeout(240)
def test_a_wrong_sink_is_refused_before_any_task_by_its_last_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(1)
    for frame, options, text in (
        (rows, {"url": "lumberjack://h:1", "bogus": "1"}, "has no option 'bogus', only url, ca"),
        (rows, {"url": "kafka://h:9092"}, 'there is no protocol "kafka"'),
        (rows, {}, "the option url is missing: the receivers, such as lumberjack:"),
        (
            rows.selectExpr("parse_json('1') v"),
            {"url": "lumberjack://h:1"},
            "column v is variant, which has no form in JSON: convert it before",
        ),
    ):
        writer = frame.write.format("ackline").mode("append").options(**options)
        with pytest.raises(Exception, match="UsageError") as error:
            writer.save()
        assert text in last_line(str(error.value))
    stream = spark.readStream.format("rate").load().writeStream.format("ackline")
    stream = stream.options(url="lumberjack://h:1", timeout="0")
    with pytest.raises(Exception, match="timeout must be a number from 1 to 86400, not '0'"):
        stream.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)


KILLED = """
import os, signal, sys
from pyspark.sql import SparkSession
import ackline.spark
from ackline.spark.sink import BatchSink, send, task
from ackline.spark.source import AcklineSource

class Killed(BatchSink):
    # The worker of the first attempt ends with -9 after some of its rows were acknowledged.
    def write(self, iterator):
        def cut():
            for number, batch in enumerate(iterator):
                if number == 3 and task().attemptNumber() == 0 and task().partitionId() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch
        return super().write(cut())

class Source(AcklineSource):
    @classmethod
    def name(cls):
        return "killed"

    def writer(self, schema, overwrite):
        return Killed(super().writer(schema, overwrite)._options)

url = sys.argv[1]
builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.memory", "512m")
builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Source)
frame = spark.range(0, 6000, 1, 2)
options = {"url": url, "metadata": "true", "batch_events": "50", "max_in_flight": "1"}
frame.write.format("killed").mode("append").options(**options).save()
spark.stop()
"""


@pytest.mark.timeout(240)
def test_a_killed_task_is_run_again_and_its_repeats_are_recognised(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(
        [sys.executable, "-c", KILLED, url(receiver)], env=environment, check=True, timeout=200
    )
    found = events(receiver.spool)
    assert {event["id"] for event in found} == set(range(6000))
    assert len(found) > 6000, "the first attempt had got some rows acknowledged"
    owners = {tuple(event["ackline"].values()): event["id"] for event in found}
    assert len(owners) == 6000
    twice = [event["id"] for event in found if event["id"] < 3000]
    assert len(twice) == 3000, "the other partition was sent once"


# ---- streams ----


@pytest.mark.timeout(240)
def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source, sink = receive(tmp_path / "source"), receive(tmp_path / "sink")

    def frame() -> DataFrame:
        read = spark.readStream.format("ackline")
        read = read.options(spool=str(source.spool), consumer="c", maxRowsPerBatch="200")
        return read.load().selectExpr("position", "cast(payload as string) text")

    for first, count in ((0, 500), (500, 300)):
        source.send(numbered(first, count))
        drain(frame(), tmp_path / "checkpoint", url(sink), metadata="true")
    found = events(sink.spool)
    assert [event["text"].encode() for event in sorted(found, key=lambda e: e["position"])] == (
        numbered(0, 800)
    )
    origins = [event["ackline"] for event in found]
    assert len({origin["query"] for origin in origins}) == 1
    batches = Counter(origin["batch"] for origin in origins)
    assert sorted(batches) == list(range(len(batches)))
    assert len(batches) >= 4


@pytest.mark.timeout(240)
def test_a_batch_that_failed_midway_comes_again_and_is_recognised(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    source, sink = receive(tmp_path / "source"), receive(tmp_path / "sink")
    source.send(numbered(0, 1000))
    fuse = tmp_path / "fuse"
    fuse.touch()

    def breaking(batches: Any) -> Any:
        import pathlib

        for batch in batches:
            yield batch.slice(0, 400)
            if pathlib.Path(str(fuse)).exists():
                raise RuntimeError("broken midway")
            yield batch.slice(400)

    def frame() -> DataFrame:
        read = spark.readStream.format("ackline")
        read = read.options(spool=str(source.spool), consumer="c", maxPartitions="1").load()
        return read.select("position").mapInArrow(breaking, "position long")

    options = {"metadata": "true", "batch_events": "100"}
    query = start(frame(), tmp_path / "checkpoint", url(sink), **options)
    with pytest.raises(Exception, match="broken midway"):
        query.awaitTermination(100)
    # Events that it has received and not landed still delay its end.
    sink.stop()
    partly = durable(sink.spool)
    sink.start()
    fuse.unlink()
    drain(frame(), tmp_path / "checkpoint", url(sink), **options)
    found = events(sink.spool)
    assert {event["position"] for event in found} == set(range(1000))
    assert len(found) == 1000 + partly
    owners = {tuple(event["ackline"].values()): event["position"] for event in found}
    assert len(owners) == 1000, "a row that came again has the same origin"
    assert {origin[1] for origin in owners} == {0}


def test_the_output_mode_update_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load()
    for at, rows in enumerate((frame, frame.groupBy("value").count())):
        writing = rows.writeStream.format("ackline").outputMode("update")
        query = (
            writing.option("url", "lumberjack://127.0.0.1:1")
            .option("checkpointLocation", str(tmp_path / str(at)))
            .start()
        )
        with pytest.raises(Exception, match="ackline does not support Update mode"):
            query.awaitTermination(60)
