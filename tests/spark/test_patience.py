"""`minRowsPerBatch` and `maxTriggerDelay`: few events wait for more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows
from test_reader import stream

from ackline.exceptions import UsageError
from ackline.spark.options import stream_options
from ackline.spark.patience import DEFAULT_DELAY, Patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]


def test_few_events_wait_until_the_time_is_over() -> None:
    patience = Patience(10, 60_000)
    now = time.monotonic()
    assert patience.left(9, None) == 0
    assert patience.left(10, now) == 0
    assert 59 < patience.left(9, now) <= 60
    assert patience.left(9, now - 61) == 0


def test_a_batch_waits_for_the_fewest_events(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 5))
    reader = stream(receiver.spool, minRowsPerBatch="10", maxRowsPerBatch="12", consumer="c")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    # The first batch does not wait.
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["spools"]
    receiver.send(numbered(5, 9))
    assert reader.latestOffset(first, limit) == first
    begun = time.monotonic()
    assert reader.latestOffset(first, limit) == first
    assert time.monotonic() - begun > 0.05, "it does not spin"
    # More events come: the first of them end the wait.
    receiver.send(numbered(14, 20))
    second = reader.latestOffset(first, limit)
    (span,) = second["spools"].values()
    assert (span["from"], span["to"]) == (5, 14)
    third = reader.latestOffset(second, limit)
    (span,) = third["spools"].values()
    assert (span["from"], span["to"]) == (14, 26), "the most rows are the limit still"
    fourth = reader.latestOffset(third, limit)
    assert fourth == third, "8 events are left, and wait"
    # A trigger that wants all takes few, too.
    (span,) = reader.latestOffset(fourth, ReadAllAvailable())["spools"].values()
    assert span["to"] == 34
    reader.stop()


def test_few_events_are_a_batch_after_the_delay(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 5))
    reader = stream(receiver.spool, minRowsPerBatch="1000", maxTriggerDelay="1500ms", consumer="c")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    begun = time.monotonic()
    receiver.send(numbered(5, 5))
    rounds = 0
    while reader.latestOffset(first, limit) == first:
        rounds += 1
        assert rounds < 1000
    assert 1.0 < time.monotonic() - begun < 60
    assert rounds > 1
    reader.stop()


def test_what_is_there_is_read_when_the_query_ends_with_it(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    taken = 0
    for count in (12, 3):
        receiver.send(numbered(taken, count))
        query = (
            spark.readStream.format("ackline")
            .options(spool=str(receiver.spool), consumer="c")
            .options(minRowsPerBatch="5", maxRowsPerBatch="5")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
        assert sum(one["numInputRows"] for one in query.recentProgress) == count
        taken += count


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"minRowsPerBatch": "0"}, "minRowsPerBatch must be a number from 1 to 1000000000000000"),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay is for minRowsPerBatch, which is not given"),
        ({"minRowsPerBatch": "5", "maxTriggerDelay": "soon"}, "must be a time with its unit"),
        ({"minRowsPerBatch": "5", "maxTriggerDelay": "900000"}, "a time with its unit such as 15m"),
        ({"minRowsPerBatch": "5", "maxTriggerDelay": "0s"}, "must be a time with its unit"),
        ({"minRowsPerBatch": "5", "maxRowsPerBatch": "4"}, r"\(5\) is above maxRowsPerBatch \(4\)"),
    ],
)
def test_options_of_patience_are_checked(given: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        stream_options({"spool": "/s"} | given)


def test_defaults_of_patience() -> None:
    assert stream_options({"spool": "/s"}).patience is None
    given = stream_options({"spool": "/s", "minRowsPerBatch": "7"}).patience
    assert given == Patience(7, DEFAULT_DELAY)
