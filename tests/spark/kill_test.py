"""Kill receiver, Spark driver and Python workers with -9 again and again, and count landed events.

    python tests/spark/kill_test.py --receiver-kills 20 --driver-kills 5 --worker-kills 5 --seed 7
    python tests/spark/kill_test.py --rounds 1000 --pause 0.2

Senders send without pause, and again every event that a broken connection left unacknowledged.
At the end no acknowledged event may be missing from the Parquet table, positions must be dense, and
none may stand twice. Repeats, events that were sent again although they had landed, have positions
of their own; there must be some, or no kill fell between landing and acknowledgement. Each of them
must be marked, and nothing else: without them every event stands in the table once.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import secrets
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness import HOST, LumberjackSender, Receiver, until
from pylogbeat import ConnectionException, PyLogBeatClient

from ackline import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

WINDOW = 40
WINDOWS_IN_FLIGHT = 4
BATCH = 25
CONSUMER = "kill-test"


class Sender(threading.Thread, ABC):
    """Sends numbered events until told to stop, and then until all are acknowledged."""

    def __init__(self, name: str, receiver: Receiver, seed: int, pause: float) -> None:
        super().__init__(name=name, daemon=True)
        self.receiver = receiver
        self.pause = pause
        self.random = random.Random(seed)
        self.acked: list[str] = []
        self.in_flight = 0
        self.resent = 0
        self.ending = threading.Event()
        self._numbers = 0

    def window(self, size: int) -> list[bytes]:
        """Make the next events."""
        first, self._numbers = self._numbers, self._numbers + size
        return [
            b'{"id":"%s-%d","pad":"%s"}' % (self.name.encode(), n, b"x" * 80)
            for n in range(first, first + size)
        ]

    def settle(self, events: Sequence[bytes]) -> None:
        """Count a window as acknowledged, and let some time pass."""
        self.acked += map(id_of, events)
        self.ending.wait(self.pause)

    def run(self) -> None:
        while not self.ending.is_set() or self.in_flight:
            try:
                self.converse()
            except (OSError, ConnectionException, struct.error, IndexError):
                # The receiver was killed; the next one needs a moment to listen.
                time.sleep(0.05)

    @abstractmethod
    def converse(self) -> None:
        """Use one connection until it breaks or the sending ends."""


class RawSender(Sender):
    """Several windows in flight, their acks on the way for some milliseconds."""

    def __init__(self, name: str, receiver: Receiver, seed: int, pause: float) -> None:
        super().__init__(name, receiver, seed, pause)
        self._pending: deque[list[bytes]] = deque()

    def cut_anew(self) -> None:
        """Sends pending events again in their former windows."""

    def converse(self) -> None:
        with LumberjackSender(self.receiver.port) as link:
            self.cut_anew()
            for events in self._pending:
                link.send(events)
                self.resent += len(events)
            while self._pending or not self.ending.is_set():
                while len(self._pending) < WINDOWS_IN_FLIGHT and not self.ending.is_set():
                    self._pending.append(self.window(WINDOW))
                    self.in_flight = len(self._pending)
                    link.send(self._pending[-1])
                self._latency(link)
                link.acknowledged()
                self.settle(self._pending.popleft())
                self.in_flight = len(self._pending)

    def _latency(self, link: LumberjackSender) -> None:
        # An ack that is on the way when the connection breaks never arrives, as between machines.
        poll = select.poll()
        poll.register(link, select.POLLRDHUP)
        if poll.poll(self.random.uniform(1, 15)):
            raise ConnectionError("broken while the ack was on its way")


class RebatchingSender(RawSender):
    """Sends pending events again in other windows than before."""

    def cut_anew(self) -> None:
        """Cuts pending events into windows of any size."""
        left = [event for events in self._pending for event in events]
        self._pending.clear()
        while left:
            size = self.random.randint(1, 2 * WINDOW)
            self._pending.append(left[:size])
            del left[:size]
        self.in_flight = len(self._pending)


class PylogbeatSender(Sender):
    """The PyPI client, one batch at a time."""

    def __init__(self, name: str, receiver: Receiver, seed: int, pause: float) -> None:
        super().__init__(name, receiver, seed, pause)
        self._pending: list[bytes] = []

    def converse(self) -> None:
        client = PyLogBeatClient(HOST, self.receiver.port, timeout=30, use_logging=True)
        try:
            client.connect()
            while self._pending or not self.ending.is_set():
                self.resent += len(self._pending)
                self._pending = self._pending or self.window(BATCH)
                self.in_flight = 1
                client.send(self._pending)
                self.settle(self._pending)
                self._pending = []
                self.in_flight = 0
        finally:
            client.close()


_LAST_LINES = 60
"""Lines of the drivers' log that an error shows."""

_PLANNED_BEFORE = 3
"""Batches after a worker's death that cannot all come without a process that plans."""


@dataclass
class Driver:
    """A Spark driver as a process that streams the spool into a Parquet table."""

    directory: Path
    process: subprocess.Popen[bytes] | None = None
    commits_at_start: int = field(default=0)
    was_struck: bool = field(default=False)

    def start(self) -> None:
        self.commits_at_start = self.commits()
        self.was_struck = False
        self.process = self._run("stream")

    def _run(self, role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--role", role, "--directory", str(self.directory)]
        with (self.directory / "driver.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def commits(self) -> int:
        """Count the batches that Spark has committed."""
        return len(list((self.directory / "checkpoint" / "commits").glob("[0-9]*")))

    def works(self) -> bool:
        """Whether it has committed a batch since its start; fails if it has ended by itself.

        Without the process that plans, the batch under way is still committed, and one that was
        counted too late: a third one says that the worker that was killed did not plan.
        """
        committed = self.commits() - self.commits_at_start
        if committed >= _PLANNED_BEFORE:
            self.was_struck = False
        if self.process is not None and self.process.poll() is not None:
            if not self.was_struck:
                raise RuntimeError(f"the driver ended by itself:\n{self._last_words()}")
            self.start()
            return False
        return committed > 0

    def _last_words(self) -> str:
        """Return the end of the drivers' log, whose directory may be a temporary one."""
        lines = (self.directory / "driver.log").read_text(errors="replace").splitlines()
        return "\n".join(line[:400] for line in lines[-_LAST_LINES:])

    def kill_worker(self, chance: random.Random) -> None:
        """Kill one of its Python processes with -9: one that plans, or one that does tasks.

        Without the process that plans the query ends, and so does the driver; a task is repeated.
        """
        if self.process is None:
            return
        workers = [pid for pid in family(self.process.pid)[1:] if is_worker(pid)]
        self.commits_at_start = self.commits()
        if workers:
            self.was_struck = True
            os.kill(chance.choice(workers), signal.SIGKILL)

    def kill(self) -> None:
        """Kill the driver, its JVM and their Python workers with -9, at once."""
        if self.process is None:
            return
        for pid in family(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(30)
        self.process = None

    def drain(self) -> None:
        """Land the remaining events, and write the table's content to `landed.arrow`."""
        code = self._run("drain").wait(300)
        if code != 0:
            raise RuntimeError(f"the last driver failed:\n{self._last_words()}")


def family(root: int) -> list[int]:
    """Return a process and all that descend from it, parents first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def is_worker(pid: int) -> bool:
    """Whether a process is one of Spark's Python workers, or plans in their place."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    kinds = (b"pyspark.daemon", b"python_streaming_source_runner", b"ackline.spark.planner")
    return any(kind in command for kind in kinds)


def session(directory: Path) -> SparkSession:
    """Make the session of a driver."""
    from pyspark.sql import SparkSession

    import ackline.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = HOST
    builder = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    )
    spark: SparkSession = ackline.spark.tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ackline.spark.register(spark)
    return spark


def drive(directory: Path, role: str) -> None:
    """Be the driver: stream for ever, or drain and write the landed events."""
    spark = session(directory)
    query = (
        spark.readStream.format("ackline")
        .options(spool=str(directory / "spool"), consumer=CONSUMER, maxRowsPerBatch="20000")
        .load()
        .select("position", "payload", "repeat")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**({"availableNow": True} if role == "drain" else {"processingTime": "0 seconds"}))
        .start(str(directory / "table"))
    )
    query.awaitTermination()
    import pyarrow as pa

    landed = spark.read.parquet(str(directory / "table")).toArrow()
    with pa.ipc.new_file(directory / "landed.arrow", landed.schema) as writer:
        writer.write_table(landed)
    spark.stop()


def id_of(event: bytes) -> str:
    """Return the number that a sender gave an event."""
    found = re.search(rb'"id":"([^"]+)"', event)
    if found is None:
        raise ValueError(f"an event that nobody sent landed: {event[:80]!r}")
    return found[1].decode()


def check(directory: Path, senders: Sequence[Sender]) -> list[str]:
    """Compare the table with the acknowledged events; print the count and return the faults."""
    import pyarrow as pa

    with pa.memory_map(str(directory / "landed.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
        positions = table["position"].to_pylist()
        landed = [id_of(payload) for payload in table["payload"].to_pylist()]
        marks = table["repeat"].to_pylist()
    marked = marks.count(True)
    once = Counter(event for event, mark in zip(landed, marks, strict=True) if mark is not True)
    acked = [event for sender in senders for event in sender.acked]
    lost = set(acked) - set(landed)
    doubled = len(positions) - len(set(positions))
    repeats = len(landed) - len(set(landed))
    spool = _core.Spool(str(directory / "spool"))
    print(
        f"acked {len(acked)}, landed {len(landed)}, distinct {len(set(landed))}, "
        f"sent again {sum(sender.resent for sender in senders)}, repeats {repeats}, "
        f"marked as repeats {marked}, lost {len(lost)}, doubled {doubled}"
    )
    wrong: list[str] = []
    if lost:
        wrong.append(f"{len(lost)} acked events are lost, such as {min(lost)}")
    if doubled:
        wrong.append(f"{doubled} positions stand twice")
    if set(positions) != set(range(spool.durable())):
        wrong.append(f"positions are not 0 to {spool.durable()}, dense")
    if marked != repeats:
        wrong.append(f"{marked} events are marked as repeats, {repeats} are some")
    twice = [event for event, times in once.items() if times > 1]
    if twice:
        wrong.append(f"{len(twice)} events stand twice where not repeat, such as {min(twice)}")
    if once.keys() != set(landed):
        wrong.append(f"{len(set(landed) - once.keys())} events stand there as repeats alone")
    if not repeats:
        wrong.append("no kill fell between landing and acknowledgement: nothing was repeated")
    committed = {name: position for name, position, _ in spool.consumers()}
    if committed.get(CONSUMER) != spool.durable():
        wrong.append(f"the consumer's mark is {committed.get(CONSUMER)}, not {spool.durable()}")
    return wrong


@dataclass
class Rounds:
    """The kills, one after the other."""

    receiver: Receiver
    driver: Driver
    senders: Sequence[Sender]
    random: random.Random

    def run(self, kills: Sequence[str]) -> None:
        started = time.monotonic()
        for number, victim in enumerate(kills, 1):
            self.random_moment()
            if victim != "receiver":
                until(self.driver.works, "the driver commits a batch", 120)
                time.sleep(self.random.uniform(0, 1))
            flying = until(self.in_flight, "windows are in flight")
            self.strike(victim)
            print(
                f"{time.monotonic() - started:6.1f} s  kill {number}/{len(kills)}: {victim}, "
                f"{flying} windows in flight, {self.acked()} events acked",
                flush=True,
            )
        until(self.driver.works, "the last driver commits a batch", 120)

    def random_moment(self) -> None:
        """Let the senders get on, and then some time pass that nothing in the system decides."""
        before = self.acked()
        until(lambda: self.acked() > before, "events are acknowledged again")
        time.sleep(self.random.uniform(0.1, 1.5))

    def strike(self, victim: str) -> None:
        if victim == "driver":
            self.driver.kill()
            self.driver.start()
        elif victim == "worker":
            self.driver.kill_worker(self.random)
            until(self.driver.works, "a batch is committed without the worker", 120)
        else:
            self.receiver.kill()
            self.receiver.start()

    def in_flight(self) -> int:
        return sum(sender.in_flight for sender in self.senders)

    def acked(self) -> int:
        return sum(len(sender.acked) for sender in self.senders)


def play(directory: Path, kills: list[str], seed: int, pause: float) -> list[str]:
    """Run all rounds and return the faults at the end."""
    chance = random.Random(seed)
    chance.shuffle(kills)
    receiver = Receiver(directory / "spool").start()
    driver = Driver(directory)
    senders: list[Sender] = [
        RawSender("raw", receiver, seed + 1, pause),
        RebatchingSender("rebatching", receiver, seed + 2, pause),
        PylogbeatSender("pylogbeat", receiver, seed + 3, pause),
    ]
    try:
        driver.start()
        for sender in senders:
            sender.start()
        Rounds(receiver, driver, senders, chance).run(kills)
        for sender in senders:
            sender.ending.set()
        for sender in senders:
            sender.join(60)
            if sender.is_alive():
                raise TimeoutError(f"{sender.name} does not get its last acks")
        receiver.stop()
        driver.kill()
        driver.drain()
    finally:
        driver.kill()
        receiver.kill()
    return check(directory, senders)


def main() -> int:
    """Read the command line, play, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--receiver-kills", type=int, default=20)
    parser.add_argument("--driver-kills", type=int, default=5)
    parser.add_argument("--worker-kills", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="so many kills, of all three kinds")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each window")
    parser.add_argument("--seed", type=int, default=None, help="of moments and order; printed")
    parser.add_argument("--role", choices=["stream", "drain"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help="kept afterwards; a temporary one if absent")
    given = parser.parse_args()
    if given.role is not None:
        drive(given.directory, given.role)
        return 0
    # It logs every connection that a kill has broken.
    logging.getLogger("pylogbeat").setLevel(logging.CRITICAL)
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    counts = {
        "receiver": given.receiver_kills,
        "driver": given.driver_kills,
        "worker": given.worker_kills,
    }
    if given.rounds is not None:
        # A driver takes ten times as long to come back as a receiver.
        few = max(1, given.rounds // 10)
        counts = {"receiver": given.rounds - 3 * few, "driver": few, "worker": 2 * few}
    kills = [victim for victim, count in counts.items() for _ in range(count)]
    with tempfile.TemporaryDirectory(prefix="ackline-kill-") as temporary:
        directory = given.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        wrong = play(directory, kills, seed, given.pause)
    for line in wrong:
        print(f"WRONG: {line}")
    print("failed" if wrong else "passed", f"with seed {seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
