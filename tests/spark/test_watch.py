"""Lag, marks behind a query that has ended, and several queries of one session."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, Receiver, numbered, until
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from queries import OF_PYTHON, Query, mark, register_python, watched
from test_reader import positions, stream

import ackline.spark
from ackline import Spool, _core
from ackline.exceptions import SpoolError
from ackline.spark import leases
from ackline.spark.watch import settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ackline.spark.offsets import Offset

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def test_a_query_of_one_batch_has_moved_the_mark_when_it_has_ended(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="lake")
    for end in (50, 70):
        receiver.send(numbered(end - 20, 20) if end == 70 else numbered(0, 50))
        assert query.start(once=True).awaitTermination(100)
        assert mark(receiver.spool, "lake") == end
    assert query.positions() == [*range(70)]


def test_a_query_that_is_stopped_has_moved_the_mark_to_its_last_batch(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    run = Query(spark, tmp_path, spool=str(receiver.spool), consumer="lake")
    query = run.start(processingTime="100 milliseconds")
    query.processAllAvailable()
    query.stop()
    assert mark(receiver.spool, "lake") == 50


def test_without_the_jar_a_listener_moves_the_mark(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    register_python(spark)
    receiver = receive(tmp_path / "spool")
    query = Query(spark, tmp_path, OF_PYTHON, spool=str(receiver.spool), consumer="lake")
    receiver.send(numbered(0, 50))
    with watched(spark):
        assert query.start(once=True).awaitTermination(100)
        until(lambda: mark(receiver.spool, "lake") == 50, "the mark is at the end")
    assert query.positions() == [*range(50)]


def test_the_mark_of_a_query_that_fails_stays_behind_its_last_whole_batch(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    done: list[int] = []

    def fail_at_the_third(frame: DataFrame, batch: int) -> None:
        if batch == 2:
            raise ValueError("the disk is full")
        done.append(frame.count())

    options = {"spool": str(receiver.spool), "consumer": "lake", "maxRowsPerBatch": "20"}
    query = (
        spark.readStream.format("ackline")
        .options(**options)
        .load()
        .writeStream.foreachBatch(fail_at_the_third)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        query.awaitTermination(100)
    assert done == [20, 20]
    until(lambda: mark(receiver.spool, "lake") == 40, "the mark is behind the second batch")
    time.sleep(1)
    assert mark(receiver.spool, "lake") == 40


def slow(
    spark: SparkSession, spool: Path, directory: Path, name: str, seconds: float
) -> StreamingQuery:
    """A query that takes 10 events in a batch and works on each batch for a while."""

    def work(frame: DataFrame, _batch: int) -> None:
        frame.write.mode("append").parquet(str(directory / name))
        time.sleep(seconds)

    return (
        spark.readStream.format("ackline")
        .options(spool=str(spool), consumer=name, maxRowsPerBatch="10")
        .load()
        .select("position")
        .writeStream.foreachBatch(work)
        .queryName(name)
        .option("checkpointLocation", str(directory / f"checkpoint-{name}"))
        .start()
    )


def test_two_queries_of_a_session_go_on_at_their_own_pace(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 60))
    fast = slow(spark, receiver.spool, tmp_path, "fast", 0)
    late = slow(spark, receiver.spool, tmp_path, "late", 3)
    until(lambda: mark(receiver.spool, "fast") == 60, "the fast one has read all")
    assert (mark(receiver.spool, "late") or 0) < 60
    late.processAllAvailable()
    for query in (fast, late):
        query.stop()
    until(lambda: mark(receiver.spool, "late") == 60, "the slow one has read all")
    for name in ("fast", "late"):
        rows = spark.read.parquet(str(tmp_path / name)).collect()
        assert sorted(row.position for row in rows) == [*range(60)]


def test_the_lag_is_in_the_progress_in_the_log_and_at_hand(
    spark: SparkSession, receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ackline.spark")
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    time.sleep(0.3)
    with watched(spark):
        query = slow(spark, receiver.spool, tmp_path, "lagging", 0)
        query.processAllAvailable()
        until(lambda: "code=spark.lag" in caplog.text, "the lag is logged")
    reports: list[Any] = [source for one in query.recentProgress for source in one["sources"]]
    behind = [
        spool["rows_behind"]
        for report in reports
        if report["numInputRows"]
        for spool in ackline.spark.behind.report_of(report["latestOffset"])["spools"].values()
    ]
    assert behind == [40, 30, 20, 10, 0]
    (now,) = ackline.spark.lag(query)
    assert (now.spool, now.path) == (Spool(receiver.spool).uuid, str(receiver.spool))
    assert (now.rows_behind, now.seconds_behind) == (0, 0)
    assert "query lagging is 40 events and " in caplog.text
    query.stop()
    # Behind a query that has ended the lag is the one of this moment.
    receiver.send(numbered(50, 7))
    time.sleep(0.2)
    (now,) = ackline.spark.lag(query)
    assert now.rows_behind == 7
    assert 0.2 <= now.seconds_behind < 60
    receiver.stop()
    receiver.spool.rename(tmp_path / "elsewhere")
    (last,) = ackline.spark.lag(query)
    assert last.rows_behind == 0, "the last report is all that is known"


def ended(receiver: Receiver, consumer: str) -> tuple[Offset, Offset]:
    """The last report and the end of a query that has ended."""
    reader = stream(receiver.spool, consumer=consumer)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert positions(reader, reader.initialOffset(), end)
    report = reader.reportLatestOffset()
    reader.stop()
    return report, end


def test_marks_are_settled_forward_and_where_they_are_free(
    receive: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    report, end = ended(receiver, "lake")
    assert report["consumer"] == "lake"
    spool = Spool(receiver.spool)
    assert spool.consumers()[0].committed == 0
    # Another query has the consumer by now.
    monkeypatch.setattr(leases, "WAIT_SECONDS", 0.1)
    other = stream(receiver.spool, consumer="lake", startingPosition="committed")
    other.initialOffset()
    with pytest.raises(SpoolError) as error:
        settle(report, end)
    assert error.value.code == "spool.consumer_busy"
    other.stop()
    settle(report, end)
    assert spool.consumers()[0].committed == 30
    receiver.send(numbered(30, 5))
    spool.seek_consumer("lake", 33)
    settle(report, end)
    assert spool.consumers()[0].committed == 33, "never back"
    spool.seek_consumer("lake", 10)
    settle(report, end)
    assert spool.consumers()[0].committed == 10, "what was moved by hand since stays there"
    spool.remove_consumer("lake")
    settle(report, end)
    assert spool.consumers() == [], "what was removed stays so"
    settle({name: report[name] for name in ("spools", "v")}, end)


def test_a_mark_that_moved_during_the_wait_for_it_stays(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    report, end = ended(receiver, "lake")
    held = _core.Spool(str(receiver.spool)).lease("lake", "another", 1.0, 0)
    settling = threading.Thread(target=settle, args=(report, end))
    settling.start()
    time.sleep(0.5)
    held.commit(10)
    held.release()
    settling.join(60)
    assert Spool(receiver.spool).consumers()[0].committed == 10


def test_the_mark_of_a_copy_that_lacks_the_batch_stays(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 20))
    Spool(receiver.spool).add_consumer("lake", 0)
    receiver.stop()
    shutil.copytree(receiver.spool, tmp_path / "backup")
    receiver.start().send(numbered(20, 10))
    report, end = ended(receiver, "lake")
    receiver.stop()
    shutil.rmtree(receiver.spool)
    shutil.copytree(tmp_path / "backup", receiver.spool)
    settle(report, end)
    assert Spool(receiver.spool).consumers()[0].committed == 0
    # It has gone on since, beyond the end of that batch.
    receiver.start().send(numbered(100, 50))
    settle(report, end)
    assert Spool(receiver.spool).consumers()[0].committed == 0


def test_the_mark_of_a_spool_in_the_place_of_another_stays(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    report, end = ended(receiver, "lake")
    receiver.stop()
    receiver.spool.rename(tmp_path / "old")
    receiver.start().send(numbered(0, 50))
    Spool(receiver.spool).add_consumer("lake", 5)
    settle(report, end)
    assert Spool(receiver.spool).consumers()[0].committed == 5


PROGRAM = """
import sys
from pyspark.sql import SparkSession

import ackline.spark

spool, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.memory", "600m").getOrCreate()
session.sparkContext.setLogLevel("ERROR")
ackline.spark.register(session)
read = session.readStream.format("ackline").option("consumer", "lake").load(spool)
query = read.writeStream.format("noop").option("checkpointLocation", checkpoint)
query.trigger(once=True).start().awaitTermination(60)
"""


def test_a_program_that_just_ends_settles_its_marks_and_says_nothing(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(receiver.spool), str(tmp_path / "checkpoint")],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "onQueryTerminated" not in done.stderr
    assert "Py4J" not in done.stderr
    assert mark(receiver.spool, "lake") == 30
