"""Filters on position and time of receipt: a batch's plan, and the events its tasks read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fake import FakeSpool
from harness import Receiver, numbered
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.functions import col

from ackline.spark.options import batch_options
from ackline.spark.pushdown import Wanted
from ackline.spark.reader import Columns
from ackline.spark.source import AcklineSource, BatchReader, FilteredBatchReader
from ackline.spark.spools import Span
from ackline.spark.times import since_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

P, T = ("position",), ("received_at",)
SETTING = "spark.sql.python.filterPushdown.enabled"


def at_us(value: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], (5, 40)),
        ([EqualTo(P, 7)], (7, 8)),
        ([EqualNullSafe(P, 7)], (7, 8)),
        ([LessThan(P, 7)], (5, 7)),
        ([LessThanOrEqual(P, 7)], (5, 8)),
        ([GreaterThan(P, 7)], (8, 40)),
        ([GreaterThanOrEqual(P, 7)], (7, 40)),
        ([In(P, (9, 7, 30))], (7, 31)),
        ([In(P, (9, None))], (5, 40)),
        ([GreaterThan(P, 7), LessThan(P, 20), LessThan(P, 15)], (8, 15)),
        ([EqualTo(P, 3)], (5, 5)),
        ([GreaterThan(P, 20), LessThan(P, 10)], (21, 21)),
        ([EqualTo(T, at_us(9))], (9, 10)),
        ([GreaterThanOrEqual(T, at_us(9)), LessThan(T, at_us(20))], (9, 20)),
        ([LessThanOrEqual(T, at_us(9)), GreaterThan(P, 6)], (7, 10)),
        ([In(T, (at_us(30), at_us(20)))], (20, 31)),
        ([EqualTo(T, at_us(9).replace(tzinfo=None))], (5, 40)),
        ([Not(EqualTo(P, 7)), EqualTo(("payload",), b"x"), EqualTo(P, None)], (5, 40)),
    ],
)
def test_filters_leave_the_positions_that_can_match(
    filters: list[Any], left: tuple[int, int]
) -> None:
    # The fake spool's events were received at their positions.
    spool = FakeSpool("a", first=5, end=40)
    found = Wanted().narrowed(filters).clipped(Span(5, 40), spool)
    assert found.rows == max(0, left[1] - left[0])
    if found.rows:
        assert (found.start, found.end) == left


def test_every_filter_is_handed_back_for_spark_to_apply() -> None:
    reader = FilteredBatchReader(batch_options({"spool": "/a"}), Columns(("position",)))
    filters = [EqualTo(P, 7), EqualTo(T, at_us(3)), Not(EqualTo(P, 7))]
    assert list(reader.pushFilters(filters)) == filters
    assert Wanted() == FilteredBatchReader._wanted


def test_the_filtering_reader_is_made_only_where_it_is_asked_for() -> None:
    for given, kind in (
        ({}, BatchReader),
        ({"pushFilters": "false"}, BatchReader),
        ({"pushfilters": "True"}, FilteredBatchReader),
    ):
        source = AcklineSource({"spool": "/a"} | given)
        assert type(source.reader(source.schema())) is kind


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


def scanned(frame: DataFrame) -> int:
    """Run a query and count the rows that its scan read."""
    execution = frame._jdf.queryExecution()
    execution.toRdd().count()
    leaves = execution.executedPlan().collectLeaves()
    return int(leaves.head().metrics().get("numOutputRows").get().value())


def positions(frame: DataFrame) -> list[int]:
    return sorted(row.position for row in frame.select("position").collect())


@pytest.mark.timeout(240)
def test_tasks_read_only_the_range_that_filters_leave(
    pushing: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 300), window=50)
    between = datetime.now(UTC)
    receiver.send(numbered(300, 200), window=50)

    def load(push: str = "true") -> DataFrame:
        batch = pushing.read.format("ackline").option("spool", str(receiver.spool))
        return batch.option("pushFilters", push).load()

    position, received_at = col("position"), col("received_at")
    later = received_at >= between
    for condition, found, read in (
        (position == 7, [7], 1),
        (position < 13, list(range(13)), 13),
        (position.isin(3, 9), [3, 9], 7),
        ((position > 100) & (position <= 120), list(range(101, 121)), 20),
        (later, list(range(300, 500)), 200),
        (~later & (position >= 290), list(range(290, 300)), 10),
        (later & (position == 7), [], 0),
    ):
        frame = load()
        assert positions(frame.where(condition)) == found
        assert scanned(load().where(condition)) == read
    assert scanned(load().where(position >= 0)) == 500
    assert load().count() == 500
    assert scanned(load("false").where(position == 7)) == 500
    pushing.conf.set(SETTING, "false")
    assert positions(load("false").where(position == 7)) == [7]
    assert scanned(load("false").where(position == 7)) == 500
    with pytest.raises(AnalysisException, match=re.escape(SETTING)):
        load().where(position == 7).count()


@pytest.mark.timeout(240)
def test_one_frame_may_be_filtered_in_many_ways(
    pushing: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100), window=50)
    batch = pushing.read.format("ackline").option("spool", str(receiver.spool))
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
