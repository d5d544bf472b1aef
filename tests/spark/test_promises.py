"""Every fault around a query ends with all rows or with the named error, in a real Spark."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, LumberjackSender, Receiver, numbered, until
from queries import Flood, Query, durable, mark

import ackline
from ackline import _core
from ackline.spark.losses import GAPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)
SMALL = ("--segment-bytes", "64KiB", "--budget", "512KiB")


def uuid(spool: Path) -> str:
    return _core.Spool(str(spool)).uuid


def ended(query: Any) -> str:
    """Wait until a running query has ended, and return why."""
    until(lambda: not query.isActive, "the query ends")
    assert query.exception() is not None
    return str(query.exception())


def read_by(query: Query, directory: Path, start: str = "committed") -> Query:
    """Make a query like another with a checkpoint and table of its own."""
    options = query.options | {"startingPosition": start}
    return Query(query.spark, directory, **options)


def test_checkpoint_deleted_is_refused_and_goes_on_at_the_mark_where_that_was_chosen(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 100))
    query = Query(spark, tmp_path / "old", spool=str(receiver.spool), consumer="c")
    query.drain()
    shutil.rmtree(query.checkpoint)
    receiver.send(numbered(100, 50))
    # The table would skip batch 0, which it has seen.
    assert "spool.checkpoint_missing: consumer c has committed batches" in query.fail()
    assert mark(receiver.spool, "c") == 100
    shutil.rmtree(query.checkpoint)
    fresh = read_by(query, tmp_path / "new")
    fresh.drain()
    assert query.positions() + fresh.positions() == list(range(150))
    # A consumer that was removed begins anew.
    _core.Spool(str(receiver.spool)).remove_consumer("c")
    again = Query(spark, tmp_path / "again", spool=str(receiver.spool), consumer="c")
    again.drain()
    assert again.positions() == list(range(150))


def test_checkpoint_rolled_back_by_two_batches_loses_and_doubles_nothing(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    for batch in range(4):
        receiver.send(numbered(batch * 30, 30))
        query.drain()
    for number in (2, 3):
        for kind in ("offsets", "commits"):
            (query.checkpoint / kind / str(number)).unlink()
            (query.checkpoint / kind / f".{number}.crc").unlink(missing_ok=True)
    # The table skips batches 2 and 3, which it has: if they were larger now, events would be lost.
    receiver.send(numbered(120, 80))
    query.drain()
    assert query.positions() == list(range(200))
    assert mark(receiver.spool, "c") == 200


def test_checkpoint_restored_onto_a_new_spool_is_refused_or_noted(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 40))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    query.drain()
    old = uuid(receiver.spool)
    receiver.stop()
    shutil.rmtree(receiver.spool)
    receiver.start().send(numbered(0, 25))
    assert f"spool.replaced: the checkpoint counts positions of spool {old}" in query.fail()
    assert mark(receiver.spool, "c") in {None, 0}
    query.options["failOnDataLoss"] = "false"
    query.drain()
    found = query.rows().select("spool", "position").collect()
    assert sorted((row.spool == old, row.position) for row in found) == (
        [(False, n) for n in range(25)] + [(True, n) for n in range(40)]
    )
    assert '"reason": "spool.replaced"' in (receiver.spool / GAPS).read_text()


def test_spool_directory_deleted_under_a_running_query_is_gone_by_name(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receivers = [receive(tmp_path / name) for name in ("one", "two")]
    for receiver in receivers:
        receiver.send(numbered(0, 20))
    spool = ",".join(str(receiver.spool) for receiver in receivers)
    query = Query(spark, tmp_path, spool=spool, consumer="c")
    running = query.start(processingTime="0 seconds")
    running.processAllAvailable()
    lost = uuid(receivers[1].spool)
    receivers[1].kill()
    # At once: in a folder that is half removed the query may miss a file first, and say so.
    removed = receivers[1].spool.rename(tmp_path / "removed")
    assert f"spool.gone: there is no spool in {receivers[1].spool}" in ended(running)
    shutil.rmtree(removed)
    # And by name after a restart, with the spool that the checkpoint knows.
    text = query.fail()
    assert f"spool.gone: there is no spool in {receivers[1].spool}" in text
    query.options["spool"] = str(receivers[0].spool)
    assert f"spool.gone: the checkpoint counts positions of spool {lost}" in query.fail()
    query.options["failOnDataLoss"] = "false"
    receivers[0].send(numbered(20, 5))
    query.drain()
    assert query.rows().where(f"spool != '{lost}'").count() == 25


def test_the_second_of_two_queries_with_one_consumer_is_told_the_holder(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 20))
    query = Query(spark, tmp_path / "first", spool=str(receiver.spool), consumer="c")
    running = query.start(processingTime="0 seconds")
    running.processAllAvailable()
    text = read_by(query, tmp_path / "second", "earliest").fail()
    assert 'spool.consumer_busy: consumer "c" of spool' in text
    assert "is held by process" in text
    receiver.send(numbered(20, 20))
    running.processAllAvailable()
    running.stop()
    assert query.positions() == list(range(40))
    # Once the first has stopped, the name is free within the time that a start waits.
    receiver.send(numbered(40, 5))
    query.drain()
    assert query.positions() == list(range(45))


def test_a_tail_and_a_consumer_at_latest_take_nothing_from_one_that_stands_still(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", arguments=("--segment-bytes", "64KiB"))
    receiver.send(numbered(0, 50))
    prod = Query(spark, tmp_path / "prod", spool=str(receiver.spool), consumer="prod")
    prod.drain()
    tail = Query(spark, tmp_path / "tail", spool=str(receiver.spool), startingPosition="latest")
    other = Query(
        spark,
        tmp_path / "other",
        spool=str(receiver.spool),
        consumer="other",
        startingPosition="latest",
    )
    running = [query.start(processingTime="0 seconds") for query in (tail, other)]
    for query in running:
        query.processAllAvailable()
    assert mark(receiver.spool, "other") in {0, 50}
    receiver.send(numbered(50, 4000), window=500)
    for query in running:
        query.processAllAvailable()
        query.stop()
    assert mark(receiver.spool, "prod") == 50
    assert _core.Spool(str(receiver.spool)).first_kept() == 0
    assert {name for name, _, _ in _core.Spool(str(receiver.spool)).consumers()} == {
        "prod",
        "other",
    }
    assert tail.positions() == other.positions() == list(range(50, 4050))
    prod.drain()
    assert prod.positions() == list(range(4050))


def stored(sender: LumberjackSender, events: list[bytes]) -> bool:
    """Send a window; return whether it was acknowledged before the sender's timeout."""
    sender.send(events)
    try:
        sender.acknowledged()
    except TimeoutError:
        return False
    return True


def test_a_query_stopped_for_longer_than_the_budget_lasts_finds_everything(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", arguments=SMALL)
    receiver.send(numbered(0, 20))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    query.drain()
    # The acks of a full spool are keepalives, every 3 s.
    with LumberjackSender(receiver.port, timeout=2) as sender:
        sent = 20
        while stored(sender, numbered(sent, 1000)):
            sent += 1000
            assert sent < 100_000, "the spool is full"
        acked, sent = sent, sent + 1000
        # The query comes back: the sender that waited is acknowledged, nothing was dropped.
        assert durable(receiver.spool) >= acked

        def taken() -> bool:
            query.drain()
            return durable(receiver.spool) == sent

        until(taken, "the window that waited is taken")
    query.drain()
    assert query.positions() == list(range(sent))
    assert [bytes(payload) for payload in query.payloads()] == numbered(0, sent)


def test_batch_0_killed_with_a_starting_timestamp_begins_where_it_was_planned(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    now = datetime.now(UTC).isoformat()
    receiver.send(numbered(30, 30))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", startingTimestamp=now)
    query.drain()
    for file in list((query.checkpoint / "commits").iterdir()):
        file.unlink()
    shutil.rmtree(query.table)
    receiver.send(numbered(60, 10))
    query.drain()
    assert query.positions() == list(range(30, 70))
    assert next(iter(query.offsets()[0].values())) == {"from": 30, "to": 60}


def test_available_now_in_a_loop_lands_earlier_events_by_the_next_run(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 20))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", maxRowsPerBatch="20000")
    with Flood(receiver):
        for _ in range(4):
            before = durable(receiver.spool)
            query.drain()
            landed = query.positions()
            assert landed == list(range(len(landed)))
            assert len(landed) >= before
    query.drain()
    assert query.positions() == list(range(durable(receiver.spool)))


def test_a_foreach_batch_that_fails_after_a_partial_write_sees_the_same_batch_again(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 60), window=20)
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", maxRowsPerBatch="40")
    seen: list[tuple[int, list[int]]] = []
    landed: dict[int, list[int]] = {}

    def write(frame: DataFrame, number: int) -> None:
        rows = sorted(row.position for row in frame.select("position").collect())
        seen.append((number, rows))
        landed[number] = rows[: len(rows) // 2]
        if len(seen) == 2:
            raise RuntimeError("the disk is full")
        landed[number] = rows

    def start() -> Any:
        return (
            query.frame()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(query.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    assert "the disk is full" in ended(start())
    assert mark(receiver.spool, "c") == 40
    receiver.send(numbered(60, 30))
    assert start().awaitTermination(100)
    assert seen[1] == seen[2]
    assert sorted(position for rows in landed.values() for position in rows) == list(range(90))


@pytest.fixture
def an_hour_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make a switch that sets the wall clock of processes started later back by one hour."""
    code = """
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec -= 3600;
    return failed;
}
"""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return lambda: monkeypatch.setenv("LD_PRELOAD", str(library))


def test_a_clock_set_back_one_hour_loses_nothing_and_times_do_not_fall(
    spark: SparkSession,
    receive: Receive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    an_hour_back: Callable[[], None],
) -> None:
    receiver = receive(tmp_path / "spool")
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    receiver.send(numbered(0, 50))
    query.drain()
    between = datetime.now(UTC).isoformat()
    receiver.send(numbered(50, 10))
    receiver.stop()
    an_hour_back()
    receiver.start()
    monkeypatch.delenv("LD_PRELOAD")
    receiver.send(numbered(60, 40))
    query.drain()
    rows = query.rows().select("position", "received_at").orderBy("position").collect()
    assert [row.position for row in rows] == list(range(100))
    assert all(a.received_at <= b.received_at for a, b in pairwise(rows))
    later = Query(spark, tmp_path / "later", spool=str(receiver.spool), startingTimestamp=between)
    later.drain()
    assert later.positions() == list(range(50, 100))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of its own, which a test may remount."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", place], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_file_system_remounted_read_only_ends_the_query_by_name(
    spark: SparkSession, receive: Receive, tmp_path: Path, mounted: Path
) -> None:
    receiver = receive(mounted / "spool")
    receiver.send(numbered(0, 30))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    query.drain()
    receiver.send(numbered(30, 30))
    receiver.stop()
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    text = query.fail()
    assert "spool." in text
    assert "Read-only file system" in text
    # A batch only reads.
    batch = spark.read.format("ackline").option("spool", str(receiver.spool)).load()
    assert batch.count() == 60
    subprocess.run(["mount", "-o", "remount,rw", mounted], check=True)
    query.drain()
    assert query.positions() == list(range(60))


def test_several_spools_one_slow_and_one_empty(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    fast, slow, empty = (receive(tmp_path / name) for name in ("fast", "slow", "empty"))
    fast.send(numbered(0, 2000), window=500)
    slow.send(numbered(0, 3), window=1)
    spool = ",".join(str(receiver.spool) for receiver in (fast, slow, empty))
    query = Query(spark, tmp_path, spool=spool, consumer="c", maxRowsPerBatch="400")
    query.drain()
    one, two, three = (uuid(receiver.spool) for receiver in (fast, slow, empty))
    first = query.offsets()[0]
    assert all(first[spool]["to"] > first[spool]["from"] for spool in (one, two))
    for batch in query.offsets():
        assert sum(span["to"] - span["from"] for span in batch.values()) <= 400
    slow.send(numbered(3, 1))
    query.drain()
    assert query.rows().where(f"spool = '{one}'").count() == 2000
    assert query.rows().where(f"spool = '{two}'").count() == 4
    assert query.rows().where(f"spool = '{three}'").count() == 0
    assert [mark(receiver.spool, "c") for receiver in (fast, slow, empty)] == [2000, 4, 0]


def test_a_gap_is_passed_over_and_noted_where_that_was_chosen(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", arguments=SMALL)
    receiver.send(numbered(0, 20))
    query = Query(spark, tmp_path, spool=str(receiver.spool), failOnDataLoss="false")
    query.drain()
    view = _core.Spool(str(receiver.spool))
    while view.first_kept() <= 20:
        assert view.durable() < 100_000, "a segment is retired"
        receiver.send(numbered(view.durable(), 1000))
        view.commit_mark("other", view.durable())
    first = view.first_kept()
    query.drain()
    assert query.positions() == [*range(20), *range(first, view.durable())]
    (line,) = (receiver.spool / GAPS).read_text().splitlines()
    assert f'"from": 20, "to": {first}, "reason": "spool.gap"' in line
    # The batch behind the gap is the same when it is repeated.
    (query.checkpoint / "commits" / "1").unlink()
    query.drain()
    assert query.positions() == [*range(20), *range(first, view.durable())]


def test_the_quarantine_is_waited_for_and_read(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 10))
    options = {"spool": str(receiver.spool), "table": "quarantine"}
    assert spark.read.format("ackline").options(**options).load().count() == 0
    query = Query(spark, tmp_path, consumer="c", startingPosition="latest", **options)
    running = query.start(processingTime="0 seconds")
    running.processAllAvailable()
    aside = receive(receiver.spool / "quarantine")
    aside.send(numbered(0, 7))
    until(lambda: mark(aside.spool, "c") == 7 or not running.isActive, "the quarantine is read")
    assert running.exception() is None
    running.stop()
    assert query.positions() == list(range(7))
    assert spark.read.format("ackline").options(**options).load().count() == 7


def test_windows_set_aside_are_read_from_the_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    broken = struct.pack(">2sI2sI", b"2W", 3, b"2C", 8) + b"not zlib"
    with (
        ackline.Receiver(
            [f"lumberjack://{HOST}:0"], spool=spool, options={"on_invalid": "quarantine"}
        ) as receiver,
        LumberjackSender(int(receiver.urls[0].rsplit(":", 1)[1])) as sender,
    ):
        sender.send(numbered(0, 5))
        assert sender.acknowledged() == 5
        sender.send_frames(broken, 3)
        assert sender.acknowledged() == 3
    query = Query(spark, tmp_path, spool=str(spool), table="quarantine", consumer="c")
    query.drain()
    (row,) = query.rows().collect()
    assert bytes(row.payload).endswith(b"not zlib")
    assert row.attributes["lumberjack.events"] == "3"
    assert row.attributes["code"].startswith("lumberjack.")
    events = Query(spark, tmp_path / "events", spool=str(spool))
    events.drain()
    assert events.positions() == list(range(5))


def test_a_mark_of_a_reader_that_was_taken_over_is_refused(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 10))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    running = query.start(processingTime="0 seconds")
    until(lambda: mark(receiver.spool, "c") == 10, "the mark moves")
    # A lost lock: its file is gone, and another reader has made it anew.
    (receiver.spool / "consumers" / "c.lock").unlink()
    with _core.Spool(str(receiver.spool)).lease("c", "test", 5.0, None):
        receiver.send(numbered(10, 10))
        assert "spool.stale_generation" in ended(running)
        assert mark(receiver.spool, "c") == 10
