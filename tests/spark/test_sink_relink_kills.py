"""The sink to Relink over kills: of a task's process, of the driver, of the receiver.

A proxy reads along and holds a connection at a packet, so that each kill is at one point of the
transactions: the test knows which packets have arrived by then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from harness import numbered, until
from kill_test import family
from queries import durable
from sinks import events, listening
from tap import Connection, Tap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(900)

LONG = 300
"""Seconds that a run of Spark may take on a machine with much else to do."""

# Batches of 400, 400 and 200 rows in two partitions each, which are the same when they run again.
STREAM = """
import sys
from pyspark.sql import SparkSession
import ackline.spark

url, spool, checkpoint, master = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.memory", "512m")
spark = ackline.spark.tuned(builder).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
ackline.spark.register(spark)
read = spark.readStream.format("ackline")
rows = read.options(spool=spool, consumer="c", maxRowsPerBatch="400", maxPartitions="1").load()
rows = rows.selectExpr("position AS id").repartition(2, "id")
writing = rows.writeStream.format("ackline").options(url=url, metadata="true")
writing = writing.options(checkpointLocation=checkpoint)
query = writing.trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
"""


@dataclass
class Stream:
    """One query from a spool of 1,000 rows to a receiver, run any number of times."""

    source: Receiver
    sink: Receiver
    directory: Path
    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, url: str, master: str = "local[2]") -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-c", STREAM, url, self.source.spool]
        command += [self.directory / "checkpoint", master]
        # To a file: processes that outlive a killed driver would hold a pipe open.
        with self.log(len(self.runs)).open("wb") as log:
            self.runs.append(subprocess.Popen(command, env=environment, stderr=log))
        return self.runs[-1]

    def log(self, run: int) -> Path:
        return self.directory / f"{run}.log"

    def drain(self, url: str) -> None:
        """Run to the end."""
        assert self.start(url).wait(LONG) == 0, self.log(len(self.runs) - 1).read_text()

    def landed(self) -> list[dict[str, Any]]:
        return events(self.sink.spool)

    def links(self) -> int:
        """Count the links that the receiver keeps."""
        return len(list(self.sink.spool.glob("relink/at-*/link-*.journal")))

    def check(self, before: list[dict[str, Any]]) -> None:
        """Nothing is lost, and only the begun batch of `before` has come twice."""
        found = self.landed()
        owners = {tuple(event["ackline"].values()): event["id"] for event in found}
        assert sorted(owners.values()) == list(range(1_000)), "a row has one origin"
        origins = Counter(tuple(event["ackline"].values()) for event in found)
        begun = {tuple(event["ackline"].values()) for event in before if event["id"] >= 400}
        assert {origin for origin, count in origins.items() if count == 2} == begun
        assert len(found) == 1_000 + len(begun)
        assert {origin[1] for origin in begun} <= {1}, "they are of the second batch"

    def check_ends(self) -> None:
        """Links of killed processes end at the receiver."""
        assert self.links() > 0
        self.sink.stop()
        self.sink.arguments = (*self.sink.arguments, "--orphan-after", "100ms")
        self.sink.start()
        until(lambda: self.links() == 0, "no link is kept")
        count = len(self.landed())
        self.sink.stop()
        assert len(self.landed()) == count


@pytest.fixture
def stream(receive: Receive, tmp_path: Path) -> Stream:
    source, sink = receive(tmp_path / "source"), listening(receive, tmp_path / "sink")
    source.send(numbered(0, 1_000))
    return Stream(source, sink, tmp_path)


def owner(tap: Tap) -> int | None:
    """Return the process whose link is held, once one is."""
    held = tap.held()
    return held[0].owner() if held else None


def of_second_batch(frame: dict[str, Any]) -> bool:
    return frame["type"] == "message" and b'"batch":1,' in frame["payload"][0]


@pytest.mark.parametrize(("at", "master"), [("rows", "local[2]"), ("all", "local[2,3]")])
def test_no_row_of_a_killed_task_is_seen(stream: Stream, at: str, master: str) -> None:
    rows: Counter[int] = Counter()
    chosen: set[int] = set()

    def holds(one: Connection, frame: dict[str, Any]) -> bool:
        rows[one.link] += of_second_batch(frame)
        # In the middle of its rows, or while it waits for the answer that all have arrived.
        count = rows[one.link]
        is_there = count == 50 if at == "rows" else count > 0 and frame["type"] == "ping"
        if is_there and not chosen:
            chosen.add(one.link)
            return True
        return False

    with Tap(stream.sink.port, holds) as tap:
        run = stream.start(tap.url, master)
        victim = until(lambda: owner(tap), "a task of the second batch is held", LONG)
        assert victim in family(run.pid)[2:], "a process of the driver's JVM"
        assert durable(stream.sink.spool) == 400, "the first batch"
        os.kill(victim, signal.SIGKILL)
        tap.lift()
        if master == "local[2,3]":
            # Spark runs the task again.
            assert run.wait(LONG) == 0, stream.log(0).read_text()
        else:
            assert run.wait(LONG) != 0
            assert len(stream.landed()) == 400
            stream.drain(tap.url)
    stream.check([])
    stream.check_ends()


@pytest.mark.parametrize("victim", ["driver", "its process of the commits"])
def test_a_kill_between_two_commits_of_a_batch_loses_nothing(stream: Stream, victim: str) -> None:
    """Of the second batch one partition is committed, and the other is not."""
    links: list[int] = []
    sent: set[tuple[int, bytes]] = set()

    def holds(one: Connection, frame: dict[str, Any]) -> bool:
        ids = {(one.link, channel) for channel in frame.get("channel_ids", [])}
        if frame["type"] == "message":
            sent.update(ids)
        if frame.get("operation") != "commit":
            return False
        if one.link not in links:
            links.append(one.link)
        return one.link in links[3:]

    with Tap(stream.sink.port, holds) as tap:
        run = stream.start(tap.url)
        until(lambda: owner(tap), "a commit of the second batch is held", LONG)
        whole = {one for one in sent if one[0] in links[:3]}
        until(lambda: tap.committed >= whole, "the others are answered")
        assert tap.committed == whole
        processes = family(run.pid)
        committing = until(lambda: owner(tap), "who is held commits")
        assert committing in processes[2:], "a process of the driver's JVM"
        for pid in processes if victim == "driver" else [committing]:
            os.kill(pid, signal.SIGKILL)
        tap.lift()
        assert run.wait(LONG) != 0
        before = stream.landed()
        assert 400 < len(before) < 800, "one batch, and a part of the next"
        stream.drain(tap.url)
    stream.check(before)
    stream.check_ends()


def test_a_receiver_that_is_killed_before_the_commits_gets_none_of_them(stream: Stream) -> None:
    adopted: list[int] = []

    def holds(one: Connection, frame: dict[str, Any]) -> bool:
        if frame["type"] == "endpoint" and one.resumes and one.link not in adopted:
            adopted.append(one.link)
        # Those of the first batch came first.
        return one.link in adopted[2:]

    with Tap(stream.sink.port, holds) as tap:
        run = stream.start(tap.url)
        until(lambda: len(tap.held()) == 2, "the driver wants both links of the second batch", LONG)
        assert durable(stream.sink.spool) == 400, "the first batch"
        stream.sink.kill()
        stream.sink.start()
        tap.lift()
        assert run.wait(LONG) != 0
        assert "not committed as a whole, 0 of 2 partitions are" in stream.log(0).read_text()
        assert len(stream.landed()) == 400
        stream.drain(tap.url)
    stream.check([])
