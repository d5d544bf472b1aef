"""Batches of a part of a spool: by filters of Spark, and by options."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered

from ackline.spark.times import since_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]


@pytest.fixture(params=["true", "false"])
def setting(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Both values of Spark's setting for sources of Python that filters are handed to."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, request.param)
    yield
    spark.conf.unset(name)


def positions(frame: DataFrame) -> list[int]:
    return sorted(row.position for row in frame.select("position").collect())


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("setting")
def test_one_frame_may_be_filtered_in_many_ways(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100), window=50)
    batch = spark.read.format("ackline").option("spool", str(receiver.spool))
    frame = batch.load()
    assert frame.where("position < 10").count() == 10
    assert frame.count() == 100
    assert positions(frame.where("position >= 95")) == list(range(95, 100))
    both = batch.load()
    assert both.where("position < 10").union(both).count() == 110
    other = batch.load()
    assert other.where("position < 10").union(other.where("position >= 95")).count() == 15


@pytest.mark.timeout(240)
def test_a_batch_between_two_times(spark: SparkSession, receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    marks = []
    for first in (0, 100, 200):
        receiver.send(numbered(first, 100))
        marks.append(datetime.now(UTC).isoformat())
    batch = spark.read.format("ackline").option("spool", str(receiver.spool))
    both = batch.options(startingTimestamp=marks[0], endingTimestamp=marks[1]).load()
    assert positions(both) == list(range(100, 200))
    batch = spark.read.format("ackline").option("spool", str(receiver.spool))
    assert positions(batch.option("startingTimestamp", marks[1]).load()) == list(range(200, 300))
    batch = spark.read.format("ackline").option("spool", str(receiver.spool))
    assert positions(batch.option("endingTimestamp", marks[0]).load()) == list(range(100))
    rows = both.collect()
    low, high = (since_epoch(datetime.fromisoformat(mark)) for mark in marks[:2])
    assert all(low <= since_epoch(row.received_at.astimezone(UTC)) < high for row in rows)
