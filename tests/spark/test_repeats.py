"""Repeats marked, left out, and across spools dropped by their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered, until
from pyspark.sql.types import LongType, StructField, StructType
from queries import Query, durable, mark

from ackline import UsageError
from ackline.spark.options import COLUMNS
from ackline.spark.source import AcklineSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)
EVENTS = numbered(0, 300)


@pytest.fixture
def resent(receive: Receive, tmp_path: Path) -> Receiver:
    """A spool in which 100 of 300 events have landed twice."""
    receiver = receive(tmp_path / "spool")
    receiver.send(EVENTS[:200])
    receiver.send(EVENTS[100:])
    assert durable(receiver.spool) == 400
    return receiver


@pytest.mark.parametrize("repeats", [None, "mark", "skip", "SKIP"])
def test_a_batch_marks_repeats_or_leaves_them_out(
    spark: SparkSession, resent: Receiver, repeats: str | None
) -> None:
    reader = spark.read.format("ackline").option("spool", str(resent.spool))
    frame = (reader if repeats is None else reader.option("repeats", repeats)).load()
    rows = frame.select("position", "repeat", "payload").orderBy("position").collect()
    skips = (repeats or "").lower() == "skip"
    marked = [row.position for row in rows if row.repeat]
    assert marked == ([] if skips else list(range(200, 300)))
    assert [bytes(row.payload) for row in rows if not row.repeat] == EVENTS
    # Positions are those of all events; counting needs no column.
    assert rows[-1].position == 399
    assert frame.count() == (300 if skips else 400)
    assert frame.where("not repeat").count() == 300


def test_a_stream_that_leaves_repeats_out_has_the_offsets_of_all_events(
    spark: SparkSession, resent: Receiver, tmp_path: Path
) -> None:
    options = {"spool": str(resent.spool), "consumer": "c", "maxRowsPerBatch": "70"}
    query = Query(spark, tmp_path, repeats="skip", **options)
    query.drain()
    assert query.payloads() == EVENTS
    assert query.positions() == [*range(200), *range(300, 400)]
    until(lambda: mark(resent.spool, "c") == 400, "the mark passes what was left out")
    # Repeats left out so far stay so; from here on repeats come too.
    resent.send(EVENTS[:50])
    Query(spark, tmp_path, **options).drain()
    assert query.positions()[300:] == list(range(400, 450))


def test_two_spools_that_hold_the_same_window_give_its_events_once(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    one, two = (receive(tmp_path / name) for name in ("one", "two"))
    one.send(EVENTS[:200])
    # The sender did not see the acks of its last window, and goes on with the other receiver.
    two.send(EVENTS[150:])
    query = Query(
        spark,
        tmp_path,
        spool=f"{one.spool},{two.spool}",
        digest="true",
        repeats="skip",
    )
    frame = query.frame()
    assert frame.columns == [*COLUMNS, "digest"]
    both = frame.withWatermark("received_at", "1 hour").dropDuplicatesWithinWatermark(["digest"])
    running = (
        both.select("payload", "digest")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(availableNow=True)
        .start(str(query.table))
    )
    assert running.awaitTermination(100), "the query drains"
    rows = query.rows().collect()
    assert sorted(bytes(row.payload) for row in rows) == sorted(EVENTS)
    assert {len(row.digest) for row in rows} == {16}
    reader = spark.read.format("ackline").option("spool", f"{one.spool},{two.spool}")
    every = reader.option("columns", "digest,payload").load().collect()
    assert len(every) == 350
    assert {(bytes(row.digest), bytes(row.payload)) for row in every} == {
        (bytes(row.digest), bytes(row.payload)) for row in rows
    }


def test_typed_columns_come_with_a_digest_and_without_repeats(
    spark: SparkSession, resent: Receiver
) -> None:
    reader = spark.read.format("ackline").options(
        spool=str(resent.spool), digest="true", repeats="skip"
    )
    rows = reader.schema("message string, digest binary, position bigint").load().collect()
    assert sorted(row.message for row in rows) == sorted(f"event {n}" for n in range(300))
    assert len({bytes(row.digest) for row in rows}) == 300
    with pytest.raises(UsageError, match="the option digest wants a column digest"):
        AcklineSource({"spool": "x", "digest": "true"}).reader(
            StructType([StructField("position", LongType())])
        )
