"""The first line end to end: real senders, a killed receiver, Spark, Parquet, and the count.

Two pylogbeat clients and two python-logstash-async handlers, each a process of its own, send log
events over TCP to `ackline receive`, and send again every unacknowledged event. In the middle the
receiver is killed with -9 and started again on the same spool and port. Spark Structured Streaming
writes everything to Parquet. At the end every event is counted: an acknowledged one that is missing
from the table is *lost*, a position that stands twice in it is *doubled*, and either makes the exit
code 1. *Repeats* are events whose acknowledgement was cut off, so that they were sent again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

HOST = "127.0.0.1"
DEADLINE_S = 240.0
# Filebeat-like: a few fields that differ, several that repeat, so that it deflates as real logs do.
FILLER = {
    "agent": {"type": "demo", "version": "9.0.0", "name": "web-1.example.org"},
    "log": {"file": {"path": "/var/log/nginx/access.log"}},
    "input": {"type": "filestream"},
    "ecs": {"version": "8.0.0"},
    "host": {"name": "web-1.example.org", "architecture": "x86_64"},
}


# ---- one sender: a process of its own ----


class Ledger:
    """A sender's acknowledged events: a file with `id first_sent_ns acked_ns` for each event."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file: IO[str] = path.open("w", encoding="ascii")
        self.acked = 0

    def add(self, events: list[dict[str, Any]]) -> None:
        """Note that these events were acknowledged now, and tell the parent."""
        now = time.time_ns()
        self._file.writelines(f"{event['id']} {event['sent_ns']} {now}\n" for event in events)
        self._file.flush()
        self.acked += len(events)
        sys.stdout.write(f"{self.acked}\n")
        sys.stdout.flush()


def event(sender: str, number: int) -> dict[str, Any]:
    """Build one event with its unique id and the time at which it was handed to the client."""
    return {
        "id": f"{sender}-{number}",
        "sent_ns": time.time_ns(),
        "message": f'10.0.0.{number % 251} "GET /item/{number * 7919 % 99991} HTTP/1.1" 200',
        **FILLER,
    }


def send_with_pylogbeat(name: str, count: int, port: int, ledger: Ledger, batch: int = 500) -> None:
    """Send `count` events in windows of `batch`, again on a new connection if not acknowledged."""
    import pylogbeat

    client = pylogbeat.PyLogBeatClient(HOST, port, timeout=30)
    for start in range(0, count, batch):
        events = [event(name, number) for number in range(start, min(start + batch, count))]
        while True:
            try:
                client.send(events)
                break
            except Exception:  # noqa: BLE001 - the client raises OSError, its own exception and struct.error alike
                client.close()
                time.sleep(0.1)
                client = pylogbeat.PyLogBeatClient(HOST, port, timeout=30)
        ledger.add(events)
    client.close()


def send_with_logging(name: str, count: int, port: int, ledger: Ledger) -> None:
    """Log `count` records; the handler keeps unacknowledged ones and sends them again."""
    from logstash_async.constants import constants
    from logstash_async.handler import AsynchronousLogstashHandler
    from logstash_async.transport import BeatsTransport

    constants.QUEUE_CHECK_INTERVAL = 0.1

    class NotingTransport(BeatsTransport):  # type: ignore[misc] # the package has no types
        """The handler's own transport; `send` returns when everything was acknowledged."""

        def send(self, events: list[bytes], use_logging: bool = False) -> None:  # noqa: FBT001, FBT002 - its signature
            """Send, then note."""
            super().send(events, use_logging=use_logging)
            ledger.add([json.loads(each) for each in events])

    handler = AsynchronousLogstashHandler(
        HOST, port, database_path=None, transport=NotingTransport, ssl_enable=False
    )
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger(name)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logging.getLogger("LogProcessingWorker").setLevel(logging.CRITICAL)
    for number in range(count):
        logger.info(json.dumps(event(name, number)))
        # About as fast as the handler sends (43 ms for each 25: it writes a window in two pieces).
        if number % 50 == 0:
            while number - ledger.acked > 500:  # ten of the handler's batches
                handler.flush()
                time.sleep(0.02)
    while ledger.acked < count:
        handler.flush()
        time.sleep(0.1)


# ---- the parent ----


@dataclass
class Sender:
    """A running sender and its reports."""

    name: str
    process: subprocess.Popen[str]
    ledger: Path
    acked: int = 0

    def follow(self) -> None:
        """Read the acknowledged counts that the sender prints, until it ends."""
        assert self.process.stdout is not None  # noqa: S101 - opened as a pipe
        for line in self.process.stdout:
            self.acked = int(line)

    def log(self) -> str:
        """Return the last lines of the sender's standard error."""
        return self.ledger.with_suffix(".log").read_text(encoding="utf-8")[-500:]


@dataclass
class Receiver:
    """`ackline receive` as a process: started, killed, started again on the same port."""

    spool: Path
    port: int = 0
    durable: int = 0
    stats_lines: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    listening: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        command = [
            *ackline(),
            "receive",
            f"lumberjack://{HOST}:{self.port}",
            "--spool",
            str(self.spool),
            "--json",
        ]
        self.listening.clear()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own command
        threading.Thread(target=self._follow, args=(self.process,), daemon=True).start()
        if not self.listening.wait(20):
            fail("the receiver did not listen within 20 s")

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - opened as a pipe
        for line in process.stdout:
            record = json.loads(line)
            if record["event"] == "listening":
                self.port = int(record["urls"][0].rsplit(":", 1)[1])
                self.listening.set()
            elif record["event"] == "stats":
                self.durable = record["durable"]
                self.stats_lines += 1
            else:
                self.events.append(record)

    def kill(self) -> None:
        """End it without any chance to say goodbye."""
        assert self.process is not None  # noqa: S101 - started before
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        """End it politely; returns its exit code."""
        assert self.process is not None  # noqa: S101 - started before
        self.process.terminate()
        return self.process.wait(30)


def ackline() -> list[str]:
    """Return the command line of this environment."""
    beside = Path(sys.executable).with_name("ackline")
    found = str(beside) if beside.exists() else shutil.which("ackline")
    if found is None:
        fail("the command `ackline` is not installed here: make setup")
    return [str(found)]


def say(text: str) -> None:
    """Show a line at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def fail(text: str) -> None:
    """End the demo with a reason."""
    say(f"demo: {text}")
    raise SystemExit(1)


def spark_session(directory: Path) -> SparkSession:
    """Build a local session with the two settings that matter for small batches."""
    from pyspark.sql import SparkSession

    import ackline.spark

    os.environ.setdefault("SPARK_LOCAL_IP", HOST)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ackline-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    )
    spark: SparkSession = ackline.spark.tuned(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ackline.spark.register(spark)
    return spark


def start_query(spark: SparkSession, directory: Path) -> StreamingQuery:
    """Stream the spool into Parquet."""
    # The cost of a first job (class loading, a Python worker) belongs to no event.
    table = directory / "warm-up"
    spark.range(1000).selectExpr("id AS position").write.parquet(str(table))
    spark.read.format("ackline").option("spool", str(directory / "spool")).load().count()
    return (
        spark.readStream.format("ackline")
        .option("spool", str(directory / "spool"))
        .option("consumer", "demo")
        .load()
        .select("position", "received_at", "repeat", "payload")
        .writeStream.format("parquet")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )


def start_sender(kind: str, name: str, count: int, port: int, directory: Path) -> Sender:
    """Start one sender process."""
    ledger = directory / f"{name}.acked"
    command = [sys.executable, __file__, "--sender", kind, name, str(count), str(port), str(ledger)]
    log = (directory / f"{name}.log").open("w", encoding="utf-8")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - our own command
    sender = Sender(name, process, ledger)
    threading.Thread(target=sender.follow, daemon=True).start()
    return sender


def committed_files(table: Path) -> Iterator[tuple[Path, float]]:
    """Yield each Parquet file of the table with the time at which its batch was committed.

    The sink's log names the files of each batch; every tenth log file repeats all before it.
    """
    seen: set[str] = set()
    logs = [
        path
        for path in (table / "_spark_metadata").glob("[0-9]*")
        if path.name.split(".")[0].isdigit()
    ]
    for log in sorted(logs, key=lambda path: int(path.name.split(".")[0])):
        committed = log.stat().st_mtime
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            name = json.loads(line)["path"].rsplit("/", 1)[1]
            if name not in seen:
                seen.add(name)
                yield table / name, committed


def rows_landed(query: StreamingQuery) -> int:
    """Return the position up to which the query's last finished batch reached."""
    progress = query.lastProgress
    if not progress:
        return 0
    offset = progress["sources"][0]["endOffset"]
    offset = json.loads(offset) if isinstance(offset, str) else offset
    return max((int(spool["to"]) for spool in (offset or {}).get("spools", {}).values()), default=0)


@dataclass
class Watch:
    """The middle of the demo: shows progress, kills the receiver, knows when all has landed."""

    senders: list[Sender]
    receiver: Receiver
    query: StreamingQuery
    kill_at: list[int]
    started: float = field(default_factory=time.monotonic)
    shown: float = 0.0

    def until_all_landed(self) -> None:
        """Return when every event is acknowledged and every durable position is in the table."""
        while True:
            acked = sum(sender.acked for sender in self.senders)
            if self.kill_at and acked >= self.kill_at[0]:
                self.kill_at.pop(0)
                self.kill_receiver(acked)
            self.show(acked)
            self.check()
            if self.sent_all() and self.landed_all():
                return
            if time.monotonic() - self.started > DEADLINE_S:
                fail(f"not done after {DEADLINE_S:.0f} s: {acked} acknowledged")
            time.sleep(0.05)

    def kill_receiver(self, acked: int) -> None:
        """Kill the receiver with events in flight, and start it again."""
        self.receiver.kill()
        self.tell(f"receiver killed with -9 at {acked:,} acknowledged")
        known = len(self.recoveries())
        self.receiver.start()
        deadline = time.monotonic() + 10
        while len(self.recoveries()) == known and time.monotonic() < deadline:
            time.sleep(0.01)
        cut = self.recoveries()
        found = (
            f"position {cut[-1]['position']:,}, cut {cut[-1]['cut_bytes']:,} bytes" if cut else ""
        )
        self.tell(f"receiver started again: {found}")

    def recoveries(self) -> list[dict[str, Any]]:
        """The first line of each start on the same spool."""
        return [line for line in self.receiver.events if line["event"] == "recovered"]

    def show(self, acked: int) -> None:
        """Say once a second how far it is."""
        if time.monotonic() - self.shown >= 1:
            self.shown = time.monotonic()
            landed = rows_landed(self.query)
            self.tell(f"acknowledged {acked:>9,}   in the table {landed:>9,}")

    def tell(self, text: str) -> None:
        """Show a line with its time."""
        say(f"  {time.monotonic() - self.started:5.1f} s  {text}")

    def check(self) -> None:
        """End the demo if a part of it died that was not meant to."""
        for sender in self.senders:
            if sender.process.poll() not in {None, 0}:
                fail(f"sender {sender.name} ended with {sender.process.returncode}: {sender.log()}")
        if self.query.exception() is not None:
            fail(f"the query ended: {self.query.exception()}")

    def sent_all(self) -> bool:
        """Tell whether every sender is done."""
        return all(sender.process.poll() == 0 for sender in self.senders)

    def landed_all(self) -> bool:
        """Tell whether the table holds every position that was durable after the last event."""
        if not 0 < self.receiver.durable <= rows_landed(self.query):
            return False
        # The last acknowledgements may be younger than the last line of statistics.
        before, lines = self.receiver.durable, self.receiver.stats_lines
        deadline = time.monotonic() + 5
        while self.receiver.stats_lines < lines + 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.receiver.durable == before


@dataclass
class Count:
    """The table and the senders' ledgers, compared."""

    acked: int
    landed: int
    distinct: int
    repeats: int
    lost: int
    doubled: int
    rate: float
    to_ack_ms: list[float]
    to_table_ms: list[float]


def count(directory: Path) -> Count:
    """Read the whole table and every ledger."""
    import pyarrow.parquet as pq

    positions: Counter[int] = Counter()
    landed_at: dict[str, float] = {}
    to_table: list[float] = []
    repeats = 0
    for path, committed in committed_files(directory / "table"):
        rows = pq.read_table(path, columns=["position", "repeat", "payload"])
        positions.update(rows["position"].to_pylist())
        repeats += rows["repeat"].to_pylist().count(True)
        for payload in rows["payload"].to_pylist():
            each = json.loads(payload)
            if each["id"] not in landed_at:
                landed_at[each["id"]] = committed
                to_table.append(committed * 1e3 - each["sent_ns"] / 1e6)
    acked: list[tuple[str, int, int]] = []
    for ledger in directory.glob("*.acked"):
        for line in ledger.read_text(encoding="ascii").splitlines():
            name, sent, done = line.split()
            acked.append((name, int(sent), int(done)))
    first, last = min(sent for _, sent, _ in acked), max(done for _, _, done in acked)
    return Count(
        acked=len(acked),
        landed=positions.total(),
        distinct=len(landed_at),
        repeats=repeats,
        lost=sum(name not in landed_at for name, _, _ in acked),
        doubled=sum(times > 1 for times in positions.values()),
        rate=len(acked) / ((last - first) / 1e9),
        to_ack_ms=[(done - sent) / 1e6 for _, sent, done in acked],
        to_table_ms=to_table,
    )


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def show(sent: int, result: Count) -> None:
    """Print the table of the result."""
    lines = [
        ("sent", f"{sent:,}"),
        ("acked", f"{result.acked:,}"),
        ("landed", f"{result.landed:,}"),
        ("distinct", f"{result.distinct:,}"),
        ("repeats", f"{result.repeats:,}"),
        ("lost", f"{result.lost:,}"),
        ("doubled", f"{result.doubled:,}"),
        ("rate", f"{result.rate:,.0f} events/s"),
    ]
    for name, values in (("send to ack", result.to_ack_ms), ("send to table", result.to_table_ms)):
        lines.append((f"{name} p50", f"{percentile(values, 0.5):,.0f} ms"))
        lines.append((f"{name} p99", f"{percentile(values, 0.99):,.0f} ms"))
    table = "".join(f"  {name:<18} {value:>18}\n" for name, value in lines)
    is_so = "=" if result.distinct == result.landed - result.repeats else "is not"
    counted = f"distinct {is_so} landed - repeats: {result.distinct:,} {is_so} {result.landed:,}"
    sys.stdout.write(f"\n{table}\n  {counted} - {result.repeats:,}\n")
    sys.stdout.flush()


def shares(events: int) -> list[tuple[str, str, int]]:
    """Divide the events: the handler gets a few seconds' worth, the faster client the rest."""
    logged = min(events // 10, 3000)
    beats = events - 2 * logged
    return [
        ("pylogbeat", "beat-a", beats - beats // 2),
        ("pylogbeat", "beat-b", beats // 2),
        ("logging", "log-a", logged),
        ("logging", "log-b", logged),
    ]


def run(events: int, kills: int, directory: Path) -> int:
    """Run the whole demo in `directory`."""
    receiver = Receiver(directory / "spool")
    senders: list[Sender] = []
    spark = None
    try:
        receiver.start()
        say(f"receiver: lumberjack://{HOST}:{receiver.port}, spool {receiver.spool}")
        say("Spark: starting (about ten seconds)")
        spark = spark_session(directory)
        query = start_query(spark, directory)
        say(f"Spark {spark.version}: streaming into {directory / 'table'}")
        senders = [
            start_sender(kind, name, share, receiver.port, directory)
            for kind, name, share in shares(events)
        ]
        say(
            "senders: "
            + ", ".join(f"{name} ({kind}, {share:,})" for kind, name, share in shares(events))
        )
        kill_at = [events * (number + 1) // (kills + 1) for number in range(kills)]
        Watch(senders, receiver, query, kill_at).until_all_landed()
        query.stop()
        if (code := receiver.stop()) != 0:
            fail(f"the receiver ended with {code} at SIGTERM")
    finally:
        for process in [sender.process for sender in senders] + [receiver.process]:
            if process is not None and process.poll() is None:
                process.kill()
        if spark is not None:
            spark.stop()
    result = count(directory)
    show(events, result)
    unmarked = result.landed - result.distinct - result.repeats
    if result.lost or result.doubled or unmarked or result.acked != events:
        say(
            f"demo: FAILED: lost {result.lost}, doubled {result.doubled}, acked {result.acked}, "
            f"repeats not marked {unmarked}"
        )
        return 1
    return 0


def main() -> int:
    """Parse the command line; `--sender` is how the demo starts its own senders."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--events", type=int, default=200_000, help="how many events are sent in all (200000)"
    )
    parser.add_argument(
        "--kills", type=int, default=1, help="how often the receiver is killed with -9 (1)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep spool, table and ledgers in this directory"
    )
    parser.add_argument(
        "--sender",
        nargs=5,
        metavar=("KIND", "NAME", "COUNT", "PORT", "LEDGER"),
        help=argparse.SUPPRESS,
    )
    options = parser.parse_args()
    if options.sender:
        kind, name, number, port, ledger = options.sender
        send = send_with_pylogbeat if kind == "pylogbeat" else send_with_logging
        send(name, int(number), int(port), Ledger(Path(ledger)))
        return 0
    if options.events < 100:  # four senders and a kill in the middle need some
        parser.error("--events: at least 100")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        return run(options.events, options.kills, options.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="ackline-demo-") as directory:
        return run(options.events, options.kills, Path(directory))


if __name__ == "__main__":
    raise SystemExit(main())
