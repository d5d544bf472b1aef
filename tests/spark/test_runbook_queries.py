"""The runbook for queries: every code has an entry, and each cure is run as the page has it.

A line of a cure that begins with `$ ` is a command; `.option(…)` is an option of the query, or its
checkpoint; `.start(…)` is its table.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from harness import Receiver, ackline_command, numbered, until
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from queries import Query, durable
from test_holes import damage
from test_reader import positions, with_a_gap

from ackline import _core
from ackline.exceptions import SpoolError
from ackline.spark.columns import Columns
from ackline.spark.options import stream_options
from ackline.spark.plans import KEPT
from ackline.spark.source import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from ackline.spark.offsets import Offset

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations" / "runbook-queries.md"
CODE = r"[a-z]+\.[a-z_]+"
OPTION = re.compile(r'\.option\("(\w+)", "(.*)"\)')
START = re.compile(r'\.start\("(.*)"\)')


def cures() -> dict[str, list[str]]:
    """The lines of each cure, by code."""
    blocks = re.findall(r"<!-- cure: (.*?) -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {code: text.splitlines() for codes, text in blocks for code in codes.split()}


def entries() -> list[str]:
    """The codes that a heading or the first cell of a row names."""
    heads = re.findall(r"^(?:### (.*)|\| (`.*?`) \|.*)$", PAGE.read_text(), re.MULTILINE)
    return [code for head in heads for code in re.findall(rf"`({CODE})`", "".join(head))]


def rows() -> set[str]:
    """The codes of the table, whose rows have a cause and a cure each."""
    found = set()
    for row in re.findall(r"^\| `.*$", PAGE.read_text(), re.MULTILINE):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 3, row
        assert all(cells), row
        found |= set(re.findall(rf"`({CODE})`", cells[0]))
    return found


class Bench:
    """A spool in `spool`, its receiver, and its readers."""

    def __init__(self, spark: Any, receive: Receive, directory: Path) -> None:
        self.spark = spark
        self.receive = receive
        self.directory = directory
        self.spool = directory / "spool"
        self.receiver: Receiver | None = None
        self.query = Query(spark, directory, spool=str(self.spool), consumer="lake")
        self.end: Offset | None = None

    def fill(self, *counts: int) -> None:
        """Send events in windows, each a group of its own, and end the receiver."""
        self.receiver = self.receiver or self.receive(self.spool)
        if self.receiver.process is None:
            self.receiver.start()
        for count in counts:
            self.receiver.send(numbered(durable(self.spool), count), window=count)
        self.receiver.stop()

    def apply(self, cure: list[str]) -> None:
        for line in cure:
            option, start = OPTION.fullmatch(line), START.fullmatch(line)
            if line.startswith("$ ackline receive "):
                # The port of the page is the one that the write was given.
                assert self.receiver is not None
                self.receiver.start()
            elif line.startswith("$ "):
                command = re.sub(r"^ackline", ackline_command(), line.removeprefix("$ "))
                subprocess.run(command.split(), cwd=self.directory, check=True, timeout=60)
            elif option and option[1] == "checkpointLocation":
                self.query.checkpoint = self.directory / option[2]
            elif option:
                path = str(self.directory / option[2]) if option[1] == "spool" else option[2]
                self.query.options[option[1]] = path
            else:
                assert start, line
                self.query.table = self.directory / start[1]

    def planned(self) -> list[int]:
        """Plan and read a batch as the process of a stream does; its log is this process's."""
        reader = StreamReader(stream_options(self.query.options), Columns(("position",)))
        start = reader.initialOffset() if self.end is None else self.end
        self.end = reader.latestOffset(start, ReadAllAvailable())
        found = positions(reader, start, self.end)
        reader.latestOffset(self.end, ReadAllAvailable())
        reader.stop()
        return found


def set_mark(bench: Bench, position: int) -> None:
    """Move the mark; the process of a query lets go of its consumer after the query has ended."""

    def is_set() -> bool:
        with suppress(SpoolError):
            _core.Spool(str(bench.spool)).commit_mark("lake", position)
            return True
        return False

    until(is_set, "the consumer is free")


def removed(view: _core.Spool) -> bool:
    with suppress(SpoolError):
        return view.remove_consumer("lake")
    return False


def gap(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.drain()
    view = _core.Spool(str(bench.spool))
    # The query's consumer is removed, so that the spool does not wait for it.
    until(lambda: removed(view), "the consumer is free")
    small = with_a_gap(bench.receive, bench.spool)
    while view.first_kept() <= 20:
        small.send(numbered(durable(bench.spool), 1000))
        view.commit_mark("c", durable(bench.spool))
    small.stop()
    return [*range(20), *range(view.first_kept(), durable(bench.spool))]


def corrupt(bench: Bench) -> list[int]:
    bench.fill(10, 10, 10, 10, 10, 10)
    damage(bench.spool)
    _core.spool_mend(str(bench.spool))
    return [*range(20), *range(30, 60)]


def gone(bench: Bench) -> list[int]:
    bench.fill(20)
    other = bench.receive(bench.directory / "other")
    other.send(numbered(0, 5))
    bench.query.options["spool"] = f"{bench.spool},{other.spool}"
    bench.query.drain()
    shutil.rmtree(bench.spool)
    other.send(numbered(5, 5))
    return [*range(20), *range(10)]


def replaced(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.drain()
    shutil.rmtree(bench.spool)
    bench.fill(5)
    return [*range(20), *range(5)]


def behind(bench: Bench) -> list[int]:
    bench.fill(20)
    shutil.copytree(bench.spool, bench.directory / "backup")
    bench.fill(30)
    bench.query.drain()
    shutil.rmtree(bench.spool)
    (bench.directory / "backup").rename(bench.spool)
    set_mark(bench, 20)
    return list(range(50))


def restored(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.drain()
    shutil.copytree(bench.spool, bench.directory / "backup")
    bench.fill(30)
    bench.query.drain()
    shutil.rmtree(bench.spool)
    (bench.directory / "backup").rename(bench.spool)
    bench.fill(40)
    # Of 20 to 50 there are two events each: those of the lost spool and those of the copy.
    return sorted([*range(50), *range(20, 60)])


def rights(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.spool.chmod(0o755)
    return list(range(20))


def checkpoint_missing(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.drain()
    shutil.rmtree(bench.query.checkpoint)
    bench.fill(10)
    return list(range(30))


def change_offsets(bench: Bench, change: Callable[[Offset], None]) -> None:
    """Alter the newest offset of the checkpoint, whose batch was not committed."""
    newest = max((bench.query.checkpoint / "offsets").glob("[0-9]*"), key=lambda at: int(at.name))
    lines = newest.read_text().splitlines()
    offset = json.loads(lines[2])
    change(offset)
    newest.write_text("\n".join([*lines[:2], json.dumps(offset)]))
    for file in (newest.with_name(f".{newest.name}.crc"), bench.query.checkpoint / "commits" / "1"):
        file.unlink(missing_ok=True)


def two_batches(bench: Bench) -> None:
    bench.fill(20)
    bench.query.drain()
    bench.fill(10)
    bench.query.drain()


def other_format(bench: Bench) -> list[int]:
    two_batches(bench)
    change_offsets(bench, lambda offset: offset.update(v=9))
    bench.fill(10)
    return list(range(40))


def mismatch(bench: Bench) -> list[int]:
    two_batches(bench)
    change_offsets(bench, lambda offset: next(iter(offset["spools"].values())).update({"from": 15}))
    # As if the process had been killed before the table had the second batch.
    (bench.query.table / "_spark_metadata" / "1").unlink()
    set_mark(bench, 20)
    return list(range(30))


def twice(bench: Bench) -> list[int]:
    bench.fill(20)
    (bench.directory / "link").symlink_to(bench.spool)
    bench.query.options["spool"] += f",{bench.directory / 'link'}"
    return list(range(20))


def out_of_range(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.options = {"spool": str(bench.spool), "start": "0", "end": "21"}
    return list(range(20))


def busy(bench: Bench) -> list[int]:
    bench.fill(20)
    first = Query(bench.spark, bench.directory / "first", **bench.query.options)
    running = first.start(processingTime="0 seconds")
    running.processAllAvailable()
    return list(range(20))


def no_name(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.options["consumer"] = "lake/2"
    return list(range(20))


def unreadable(bench: Bench) -> list[int]:
    bench.fill(20)
    _core.Spool(str(bench.spool)).commit_mark("lake", 10)
    file = bench.spool / "consumers" / "lake.json"
    file.write_text(file.read_text().replace(":10", ":11"))
    return list(range(20))


def malformed(payload: bytes) -> Callable[[Bench], list[int]]:
    def make(bench: Bench) -> list[int]:
        bench.receiver = bench.receive(bench.spool)
        bench.receiver.send([b'{"n":1}', payload, b'{"n":3}'])
        bench.receiver.stop()
        bench.query.options = {
            "spool": str(bench.spool),
            "schema": "position BIGINT, n INT",
            "mode": "FAILFAST",
            "rescuedDataColumn": "",
        }
        return [0, 1, 2]

    return make


def no_element(payload: bytes) -> Callable[[Bench], list[int]]:
    def make(bench: Bench) -> list[int]:
        bench.receiver = bench.receive(bench.spool)
        bench.receiver.send([b"\x01\x00", payload, b"\x00\xff"])
        bench.receiver.stop()
        bench.query.options = {
            "spool": str(bench.spool),
            "reactive.element": "is_on:bool,level:u8",
            "mode": "FAILFAST",
        }
        return [0, 1, 2]

    return make


class Case(NamedTuple):
    """A state that ends a query with a code."""

    make: Callable[[Bench], list[int]]
    """Makes the state; returns the positions of all tables after the cure."""

    is_batch: bool = False
    """A batch query, not a stream."""

    code: str | None = None
    """The code in the query's text, where it is another one."""


CASES = {
    "spool.gap": Case(gap),
    "spool.corrupt": Case(corrupt),
    "spool.gone": Case(gone),
    "spool.replaced": Case(replaced),
    "spool.behind_checkpoint": Case(behind),
    "spool.restored": Case(restored),
    "spool.rights": Case(rights),
    "spool.checkpoint_missing": Case(checkpoint_missing),
    "spool.format": Case(other_format),
    "spool.offset_mismatch": Case(mismatch),
    "spool.twice": Case(twice),
    "spool.range": Case(out_of_range, is_batch=True),
    "spool.consumer_busy": Case(busy),
    "spool.consumer_name": Case(no_name),
    "consumer.unreadable": Case(unreadable, code="spool.corrupt"),
    "json.empty": Case(malformed(b" "), is_batch=True),
    "json.utf8": Case(malformed(b'{"n":"\xff"}'), is_batch=True),
    "json.depth": Case(malformed(b'{"n":' + b"[" * 200 + b"]" * 200 + b"}"), is_batch=True),
    "json.syntax": Case(malformed(b"{broken"), is_batch=True),
    "json.not_object": Case(malformed(b"[1]"), is_batch=True),
    "json.misfit": Case(malformed(b'{"n":"many"}'), is_batch=True),
    "element.size": Case(no_element(b"\x01"), is_batch=True),
    "element.bool": Case(no_element(b"\x02\x00"), is_batch=True),
}


@pytest.mark.parametrize("code", CASES)
def test_the_cure_of_the_page_lets_the_query_go_on(
    spark: SparkSession, receive: Receive, tmp_path: Path, code: str
) -> None:
    bench, case = Bench(spark, receive, tmp_path), CASES[code]
    wanted = case.make(bench)
    run = in_batch if case.is_batch else bench.query.fail
    if case.is_batch:
        with pytest.raises(PySparkException) as error:
            in_batch(bench)
        text = str(error.value)
    else:
        text = run()
    try:
        assert f"{case.code or code}: " in text
        bench.apply(cures()[code])
        if case.is_batch:
            assert in_batch(bench) == wanted
            return
        bench.query.drain()
        tables = {tmp_path / "table", bench.query.table}
        found = [
            row.position
            for table in tables
            if table.exists()
            for row in spark.read.parquet(str(table)).select("position").collect()
        ]
        assert sorted(found) == sorted(wanted)
    finally:
        for running in spark.streams.active:
            running.stop()


def in_batch(bench: Bench) -> list[int]:
    frame = bench.spark.read.format("ackline").options(**bench.query.options).load()
    return sorted(row.position for row in frame.collect())


def no_consumer(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.options = {"spool": str(bench.spool), "startingPosition": "earliest"}
    return list(range(20))


def new_checkpoint(bench: Bench) -> list[int]:
    bench.fill(30)
    _core.Spool(str(bench.spool)).commit_mark("lake", 20)
    bench.query.options["startingPosition"] = "committed"
    return list(range(20, 30))


def mark_back(bench: Bench) -> list[int]:
    bench.fill(20)
    assert bench.planned() == list(range(20))
    older = bench.end
    bench.fill(10)
    assert bench.planned() == list(range(20, 30))
    bench.end = older
    return list(range(20, 30))


def start_retired(bench: Bench) -> list[int]:
    with_a_gap(bench.receive, bench.spool).stop()
    bench.query.options["startingTimestamp"] = "2001-01-01T00:00:00Z"
    view = _core.Spool(str(bench.spool))
    return list(range(view.first_kept(), view.durable()))


def loss(bench: Bench) -> list[int]:
    wanted = corrupt(bench)
    bench.query.options["failOnDataLoss"] = "false"
    return wanted


def plan_unkept(bench: Bench) -> list[int]:
    bench.fill(20)
    assert bench.planned() == list(range(20))
    bench.fill(10)
    # So many lines that the file is written anew.
    (bench.spool / "consumers" / "lake.plans").write_text("\n" * 2 * KEPT)
    (bench.spool / "consumers" / "lake.new").mkdir(0o700)
    return list(range(20, 30))


def index_damaged(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.options["startingPosition"] = "earliest"
    for index in (bench.spool / "segments").glob("*.idx"):
        index.unlink()
    return list(range(20))


def listening(bench: Bench) -> list[int]:
    bench.fill(20)
    bench.query.options["listen"] = "lumberjack://127.0.0.1:0"
    return list(range(20))


LOGGED = {
    "spark.no_consumer": no_consumer,
    "spark.new_checkpoint": new_checkpoint,
    "spark.mark_back": mark_back,
    "consumer.back": mark_back,
    "spark.start_retired": start_retired,
    "spark.loss": loss,
    "spark.plan_unkept": plan_unkept,
    "spool.index_rebuilt": index_damaged,
    "spark.listening": listening,
    "spark.receiver_ended": listening,
}


@pytest.fixture
def as_before() -> Iterator[None]:
    """Restore the handler of SIGTERM that an embedded receiver replaces."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("code", LOGGED)
@pytest.mark.usefixtures("as_before")
def test_a_code_of_a_log_line_is_said_and_its_cure_ends_it(
    receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    bench = Bench(None, receive, tmp_path)
    caplog.set_level(logging.INFO, "ackline")
    wanted = LOGGED[code](bench)
    before = bench.end
    caplog.clear()
    assert bench.planned() == wanted
    until(lambda: f"code={code}" in caplog.text, f"{code} is said")
    if code not in cures():
        return
    bench.apply(cures()[code])
    bench.end = before
    caplog.clear()
    assert bench.planned() == wanted
    assert f"code={code}" not in caplog.text


def test_a_write_goes_through_when_its_receiver_was_started(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    bench = Bench(spark, receive, tmp_path)
    bench.receiver = receive(tmp_path / "other")
    bench.receiver.stop()
    url = f"lumberjack://127.0.0.1:{bench.receiver.port}"
    rows = spark.range(10).write.format("ackline").mode("append")
    rows.options(url=url, timeout="2")
    with pytest.raises(PySparkException, match=f"127.0.0.1:{bench.receiver.port}"):
        rows.save()
    bench.apply(cures()["sender.not_connected"])
    rows.option("timeout", "60").save()
    assert durable(tmp_path / "other") == 10


def codes(text: str) -> set[str]:
    """The codes that a source file raises or logs."""
    before = r'\bcode ?= ?"|\bcode=|=> "|else "|errors::(?:spool|usage)\([^"]*"'
    before += r'|AcklineException\(\s*"|Thrown::new\(\s*"'
    return set(re.findall(rf"(?:{before})({CODE})\b", text))


def of_the_sources() -> set[str]:
    """Every code of the Spark source and sink, of the spools that they read, and of payloads."""
    files = [*ROOT.glob("python/ackline/spark/*.py"), *ROOT.glob("crates/spool/src/**/*.rs")]
    files += [*ROOT.glob("crates/json/src/**/*.rs"), ROOT / "crates/python/src/consumers.rs"]
    files.append(ROOT / "crates/columns/src/element_columns.rs")
    files += [*ROOT.glob("jvm/src/**/*.java"), *ROOT.glob("crates/jvm/src/*.rs")]
    found: set[str] = set()
    for file in files:
        if "tests" not in file.parts and file.name != "tests.rs":
            found |= codes(file.read_text().split("#[cfg(test)]\nmod tests")[0])
    return {code for code in found if code.split(".")[0] in FAMILIES}


FAMILIES = {"spool", "consumer", "retention", "ack", "json", "element", "spark"}
# Only a receiver writes a spool, sets it in order and removes events.
NOT_OF_QUERIES = set(
    re.findall(
        CODE,
        """
    ack.commits_slow ack.mark_unread consumer.awake consumer.stale retention.clock_step
    retention.early retention.ended retention.failed retention.marks_unread retention.max
    retention.retired spool.block_too_large spool.budget spool.changed spool.closed
    spool.corrupt_group spool.created spool.descriptors spool.disk_full spool.ends spool.failed
    spool.fenced spool.filesystem_unsafe spool.filesystem_weak spool.index_damaged spool.key_renewed
    spool.left_behind spool.locked spool.lost spool.mark_ahead spool.mark_rebuilt
    spool.mark_unpublished spool.migrated spool.moved spool.no_ack_consumer spool.no_footer
    spool.no_reserve spool.not_cut spool.panic spool.resumed spool.rights_tightened
    spool.set_aside spool.stalled_budget spool.start_rebuilt spool.state spool.tail_cut
    spool.unplaced spool.write_failed
    """,
    )
)
"""Codes of crates/spool that no query meets, but for the receiver of `listen`."""


def test_every_code_of_source_and_sink_has_one_entry_and_each_entry_is_run() -> None:
    named = entries()
    assert sorted(set(named)) == sorted(named), "a code has two entries"
    known = of_the_sources()
    assert len(known) > 60, "the sources were not understood"
    assert known - NOT_OF_QUERIES - set(named) == set(), "these have no entry"
    assert NOT_OF_QUERIES - known == set(), "nothing says these"
    assert NOT_OF_QUERIES & set(named) == set()
    senders = {"sender.not_connected", "sender.lost"}
    assert set(named) - known == senders, "nothing says these"
    run = CASES.keys() | LOGGED.keys() | senders
    assert set(named) - run - rows() == set(), "these entries are not run"
    assert rows() & run == set(), "the table is for codes that nobody runs"
    assert set(cures()) <= run, "these cures are not run"
