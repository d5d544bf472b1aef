"""The buyer's figure: `make buyer`. The same events of the same Filebeat by two ways into Parquet.

A: Filebeat, Kafka (one broker, acks=all, a partition for each core of the query), Spark, Parquet.
B: Filebeat, `ackline receive`, Spark, Parquet.

Filebeat is the real one, built from its Go module. At each rate a generator writes log lines that
carry their time and number; at the ceiling the lines are there before Filebeat starts, and the time
until all are in the table counts. Each run starts everything anew; a short load that does not count
runs first, so that the JVM has compiled most. Processor time is that of each process from then on
until the last event is in the table, without the generator. Memory is the proportional share (PSS),
sampled once a second. With `--kill` the broker or the receiver is killed with -9 in the middle and
started again at once.

Profiles: `defaults` (Filebeat's: zlib 3 to Ackline, gzip 4 to Kafka), `equal` (level 3 for both)
and `recommended` (Ackline: level 1 and the session's tuned settings; Kafka: lz4).
"""

import argparse
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import buyer_fetch
from buyer_count import Rising, as_figures, count, rows_of
from buyer_programs import Program, configure, filebeat, tail, until
from buyer_report import report
from buyer_sides import CORES, PROFILES, SIDES, Side
from buyer_watch import Watch

HERE = Path(__file__).resolve().parent
SPARK42 = buyer_fetch.ROOT / "target" / "spark42"
WARM_EVENTS = 10_000
WARM_RATE = 5_000
# On a busy machine Spark takes minutes to start.
READY_S = 240.0
# Filebeat waits up to 60 s before it connects again.
IDLE_S = 70.0
# After a kill Filebeat may send again what is in the table already.
SETTLED_S = 15.0


@dataclass(frozen=True)
class Load:
    """Events of a run, and the rate at which they are written; 0 for the ceiling."""

    name: str
    rate: float
    events: int


@dataclass(frozen=True)
class Options:
    """Choices that apply to all runs."""

    kill: bool
    eager: bool
    flush: bool
    installed: bool
    keep: Path | None


class Run:
    """One side under one load, from fresh."""

    def __init__(self, side: Side, load: Load, options: Options, directory: Path) -> None:
        """Prepare the programs; nothing runs yet."""
        self.side, self.load, self.options, self.directory = side, load, options, directory
        self.logs = directory / "app.log"
        self.table = Rising(directory / "table")
        self.sender = filebeat(directory, self.logs, eager=options.eager)
        settings = side.source() | {"directory": str(directory), "cores": CORES}
        command = [sys.executable, str(HERE / "buyer_spark.py"), json.dumps(settings)]
        spark = {} if options.installed else {"PYTHONPATH": str(SPARK42)}
        self.spark = Program("Spark", command, directory / "spark.log", spark)
        self.watch = Watch(side.store)
        self.killed_at: float | None = None
        self.server_back_s: float | None = None

    def measure(self) -> dict[str, Any]:
        """Run everything; return the figures."""
        with ExitStack() as stack:
            for program in (self.side.server, self.spark, self.sender):
                stack.callback(program.stop)
            stack.enter_context(self.watch)
            self._start()
            self.watch.begin()
            begun, took = self._send(stack)
            self._drain()
            figures = self.watch.figures(self.load.events)
        found = count(
            rows_of(self.directory / "table"), WARM_EVENTS, self.load.events, self.killed_at
        )
        figures |= as_figures(found, begun, self.killed_at)
        figures["server_back_s"] = self.server_back_s
        if self.load.rate:
            figures["rate_written"] = self.load.events / took
        else:
            # All lines were made before: their age says nothing.
            figures |= {"p50_ms": None, "p99_ms": None}
        figures["rate"] = (self.load.events - found.lost) / figures["all_in_table_s"]
        figures["parquet_mib"] = self._parquet_bytes() / 2**20
        store = figures["store_mib"]
        kept = store["at the end"] - store["of it reserved for a full disk"]
        figures["bytes_per_event"] = kept * 2**20 / self._all()
        return figures

    def _all(self) -> int:
        return WARM_EVENTS + self.load.events

    def _parquet_bytes(self) -> int:
        files = (self.directory / "table").glob("*.parquet")
        return sum(512 * each.stat().st_blocks for each in files)

    def _start(self) -> None:
        """Start all programs and let the first events through."""
        self.logs.touch()
        self.watch.roots[self.side.server.name] = self.side.start()
        configure(self.sender, self.side.output())
        self.watch.roots["Filebeat"] = self.sender.start()
        self._generate(0, WARM_EVENTS, WARM_RATE).wait(READY_S)
        self._until(self.side.has_events)
        self.watch.roots["Spark"] = self.spark.start()
        self._until(lambda: self.table.rows() >= WARM_EVENTS)

    def _until(self, condition: Any) -> None:
        def checked() -> bool:
            self._check()
            return bool(condition())

        logs = (self.side.server.log, self.spark.log, self.sender.log)
        until(checked, READY_S, lambda: "\n---\n".join(map(tail, logs)))

    def _check(self) -> None:
        for program in (self.side.server, self.spark, self.sender):
            program.check()

    def _generate(self, first: int, events: int, rate: float) -> subprocess.Popen[bytes]:
        words = [str(each) for each in (self.logs, first, events, rate)]
        command = [sys.executable, str(HERE / "buyer_load.py"), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def _send(self, stack: ExitStack) -> tuple[float, float]:
        """Let the load through; return when it began and the seconds of the writing."""
        if not self.load.rate:
            return self._send_at_once()
        begun = time.time()
        generator = self._generate(WARM_EVENTS, self.load.events, self.load.rate)
        stack.callback(generator.kill)
        seconds = self.load.events / self.load.rate
        if self.options.kill:
            time.sleep(seconds / 2)
            self._kill()
        output, _ = generator.communicate(timeout=2 * seconds + 60)
        return begun, float(output)

    def _send_at_once(self) -> tuple[float, float]:
        """Write all lines while Filebeat is stopped, then start it."""
        self.watch.sample()
        self.sender.stop()
        output, _ = self._generate(WARM_EVENTS, self.load.events, 0).communicate(timeout=600)
        begun = time.time()
        self.watch.roots["Filebeat"] = self.sender.start()
        if self.options.kill:
            half = WARM_EVENTS + self.load.events // 2
            self._until(lambda: self.table.rows() >= half)
            self._kill()
        return begun, float(output)

    def _kill(self) -> None:
        self.watch.sample()
        self.killed_at = time.time()
        self.side.server.kill()
        self.watch.roots[self.side.server.name] = self.side.start()
        self.server_back_s = time.time() - self.killed_at

    def _drain(self) -> None:
        """Wait until the table has all events, or none has come for a while."""
        rows, since = -1, time.monotonic()
        while True:
            self._check()
            now = self.table.rows()
            if now != rows:
                rows, since = now, time.monotonic()
            idle = time.monotonic() - since
            if rows >= self._all() and idle >= (SETTLED_S if self.options.kill else 0):
                return
            if idle > IDLE_S:
                return
            time.sleep(0.2)


def one(side: str, load: Load, profile: str, options: Options) -> dict[str, Any]:
    """Measure one side in a directory of its own; a failure is told and does not end the rest."""
    with tempfile.TemporaryDirectory(prefix="ackline-buyer-") as name:
        directory = Path(name)
        try:
            prepared = SIDES[side](directory, profile, flush=options.flush)
            figures = Run(prepared, load, options, directory).measure()
        except (SystemExit, subprocess.SubprocessError, OSError) as failure:
            figures = {"failed": str(failure)}
        finally:
            if options.keep is not None:
                kept = options.keep / f"{side}-{load.name}-{profile}-{time.time():.0f}"
                shutil.copytree(directory, kept)
    return figures


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="5000,20000,ceiling", help="events/s, or `ceiling`")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run at a rate")
    parser.add_argument("--ceiling-events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="A and B in turn")
    parser.add_argument("--profile", choices=PROFILES, action="append", help="may be repeated")
    parser.add_argument("--equal-compression", action="store_true", help="--profile equal")
    parser.add_argument("--kill", action="store_true", help="kill the server in the middle")
    parser.add_argument("--only", choices=sorted(SIDES), help="one side alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where each run's figures go")
    parser.add_argument(
        "--eager-filebeat", action="store_true", help="look for new lines each 100 ms, both sides"
    )
    parser.add_argument(
        "--flush-kafka", action="store_true", help="fsync before an ack, as Ackline always does"
    )
    parser.add_argument(
        "--installed-spark", action="store_true", help="the environment's Spark, and not 4.2"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs, stores and tables")
    options = parser.parse_args()
    if options.equal_compression:
        options.profile = [*(options.profile or []), "equal"]
    options.profile = options.profile or ["defaults", "equal"]
    return options


def loads(options: argparse.Namespace) -> list[Load]:
    """Return the loads of the command line."""
    return [
        Load("ceiling", 0, options.ceiling_events)
        if name == "ceiling"
        else Load(name, float(name), int(float(name) * options.seconds))
        for name in options.rates.split(",")
    ]


def measured(given: argparse.Namespace, options: Options) -> Iterator[dict[str, Any]]:
    """Yield the figures of each run, A and B in turn."""
    sides = [given.only] if given.only else sorted(SIDES)
    for profile, load in itertools.product(given.profile, loads(given)):
        for number in range(given.rounds):
            # The side that goes first changes.
            for side in sides if number % 2 == 0 else sides[::-1]:
                found = one(side, load, profile, options)
                said = found.get("failed", f"{found.get('rate', 0):,.0f} events/s")
                sys.stderr.write(f"{side} {load.name} {profile} {number + 1}: {said}\n")
                named = {"side": side, "load": load.name, "profile": profile}
                yield named | {"round": number + 1, "events": load.events} | found


def stopped(*_: object) -> None:
    """End the programs too when this one is told to end."""
    raise KeyboardInterrupt


def main() -> None:
    """Measure all loads and print the tables."""
    given = parsed()
    signal.signal(signal.SIGTERM, stopped)
    options = Options(
        given.kill, given.eager_filebeat, given.flush_kafka, given.installed_spark, given.keep
    )
    for program in buyer_fetch.PROGRAMS:
        buyer_fetch.fetched(program)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}"
    about = {"machine": machine, "load": os.getloadavg()[0], "options": sys.argv[1:]}
    about["versions"] = buyer_fetch.versions()
    runs: list[dict[str, Any]] = []
    for run in measured(given, options):
        runs.append(run)
        if given.json:
            text = json.dumps(about | {"runs": runs}, indent=1)
            given.json.write_text(text, encoding="utf-8")
    versions = ", ".join(f"{name} {version}" for name, version in buyer_fetch.versions().items())
    sys.stdout.write(f"Machine: {machine}, load {about['load']:.1f} at the start. {versions}.\n")
    sys.stdout.write(f"Options: {' '.join(sys.argv[1:]) or 'none'}. ")
    sys.stdout.write("Filebeat is the real one, built from its Go module.\n" + report(runs))
    if any("failed" in run for run in runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
