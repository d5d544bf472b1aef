"""The planner of a JVM, as the data source in Java talks to it: requests, replies, the end."""

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from support.commands import DEADLINE, python, wait_until

from ackline import Receiver, Spool, SpoolError, lumberjack

VERSION = "4.3.0"
COLUMNS = {"position": ("bigint", pa.int64()), "payload": ("binary", pa.binary())}
COMMITTED = {"start": "committed", "v": 1}


def columns(**kinds: tuple[str, pa.DataType]) -> dict[str, Any]:
    """A schema as Java sends it."""
    fields = [
        {"name": name, "kind": kind, "nullable": True, "metadata": {}}
        for name, (kind, _) in kinds.items()
    ]
    arrow = pa.schema({name: kind for name, (_, kind) in kinds.items()})
    return {"fields": fields, "arrow": base64.b64encode(arrow.serialize().to_pybytes()).decode()}


class Planner:
    """A planner's process, and the replies that it has given, by their number."""

    def __init__(self, *program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "ackline.spark.planner"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._number = 0
        self._lines: Queue[str] = Queue()
        self._replies: dict[int | None, dict[str, Any]] = {}
        self.told: list[str] = []
        Thread(target=self._read, daemon=True).start()
        Thread(target=self._follow, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.decode())

    def _follow(self) -> None:
        assert self.process.stderr is not None
        self.told += (line.decode() for line in iter(self.process.stderr.readline, b""))

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def line(self) -> str:
        return self._lines.get(timeout=DEADLINE)

    def ask(self, call: str, **arguments: Any) -> int:
        self._number += 1
        self.write(json.dumps({"id": self._number, "call": call} | arguments))
        return self._number

    def reply(self, number: int | None) -> dict[str, Any]:
        while number not in self._replies:
            found = json.loads(self.line())
            self._replies[found["id"]] = found
        return self._replies.pop(number)

    def call(self, call: str, **arguments: Any) -> Any:
        found = self.reply(self.ask(call, **arguments))
        assert "ok" in found, found
        return found["ok"]

    def refused(self, call: str, **arguments: Any) -> dict[str, Any]:
        error: dict[str, Any] = self.reply(self.ask(call, **arguments))["error"]
        assert sorted(error) == ["code", "kind", "text"]
        return error

    def open(self, query: str, spool: Path, kind: str = "stream", **options: str) -> Any:
        return self.call("open", **of(query, spool, kind, **options))

    def latest(self, start: Any = COMMITTED) -> Any:
        """The end of a batch of the query `q`."""
        return self.call("latest", query="q", start=start, all=True)["end"]

    def tasks(self, start: Any, end: Any) -> Any:
        """The tasks of a batch of the query `q`."""
        return self.call("partitions", query="q", start=start, end=end, is_ahead=False)

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE)


def of(query: str, spool: Path, kind: str = "stream", **options: str) -> dict[str, Any]:
    """The arguments of `open` for a query with the columns `position` and `payload`."""
    return {
        "query": query,
        "kind": kind,
        "options": {"spool": str(spool)} | options,
        "spark": VERSION,
        "cores": 2,
        "is_asked": False,
        "schema": columns(**COLUMNS),
    }


@pytest.fixture
def start() -> Iterator[Callable[..., Planner]]:
    started: list[Planner] = []

    def begin(*program: str) -> Planner:
        started.append(Planner(*program))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait(DEADLINE)
        for file in (one.process.stdin, one.process.stdout, one.process.stderr):
            if file is not None:
                file.close()


@pytest.fixture
def planner(start: Callable[..., Planner]) -> Planner:
    return start()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    fill(tmp_path / "spool", 30)
    return tmp_path / "spool"


def fill(spool: Path, events: int) -> None:
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=spool) as receiver,
        lumberjack.connect(receiver.urls[0], batch_events=10) as writer,
    ):
        writer.send([b'{"n":%d}' % n for n in range(events)], timeout=20)


def test_a_stream_is_planned_from_its_start_to_its_close(planner: Planner, spool: Path) -> None:
    given = planner.open("q", spool, consumer="lake", maxRowsPerBatch="20")
    assert given == {
        "limit": {"rows": 20},
        "reading": {
            "names": ["position", "payload"],
            "of_events": ["position", "payload"],
            "projection": None,
            "skip_repeats": False,
            "memory": 512 << 20,
        },
    }
    begin = planner.call("initial", query="q")
    assert begin == COMMITTED
    batch = planner.call("latest", query="q", start=begin, all=False)
    end, tasks = batch["end"], batch["tasks"]
    uuid = Spool(spool).uuid
    assert {name: end["spools"][uuid][name] for name in ("from", "to")} == {"from": 0, "to": 20}
    assert planner.tasks(begin, end) == tasks
    pieces = [piece for task in tasks for piece in task]
    assert sum(piece["end"] - piece["start"] for piece in pieces) == 20
    assert {piece["uuid"] for piece in pieces} == {uuid}
    names = ["path", "uuid", "byte_start", "byte_end", "start", "end"]
    assert all(list(piece) == names for piece in pieces)
    assert batch["report"]["spools"][uuid]["rows_behind"] == 10
    last = planner.call("latest", query="q", start=end, all=True)
    assert last["end"]["spools"][uuid]["to"] == 30
    assert last["report"]["consumer"] == "lake"
    assert last["report"]["spools"][uuid]["rows_behind"] == 0
    none = planner.call("latest", query="q", start=last["end"], all=True)
    assert (none["end"], none["tasks"]) == (last["end"], None)
    assert planner.tasks(last["end"], last["end"]) == []
    assert planner.call("close", query="q", end=None) is None
    assert [(one.name, one.committed) for one in Spool(spool).consumers()] == [("lake", 30)]


def test_a_query_that_ends_leaves_its_mark_at_the_batch_that_was_committed_last(
    planner: Planner, spool: Path
) -> None:
    def ended(end: Any) -> int:
        planner.open("q", spool, consumer="lake", maxRowsPerBatch="20")
        planner.latest()
        planner.call("close", query="q", end=end)
        (consumer,) = Spool(spool).consumers()
        return consumer.committed

    planner.open("q", spool, consumer="lake", maxRowsPerBatch="20")
    end = planner.call("latest", query="q", start=COMMITTED, all=False)["end"]
    planner.call("close", query="q", end=COMMITTED)
    assert [one.committed for one in Spool(spool).consumers()] == [0], "no batch was committed"
    assert ended(end) == 20
    assert ended({"spools": {Spool(spool).uuid: {"from": 0, "to": 10}}, "v": 1}) == 20, "never back"
    other = {"epoch": "0123456789abcdef", "from": 20, "to": 30}
    assert ended({"spools": {Spool(spool).uuid: other}, "v": 1}) == 20, "another spool's batch"
    assert ended({"spools": {Spool(spool).uuid: {"from": 20, "to": 99}}, "v": 1}) == 20
    planner.open("q", spool, consumer="lake")
    planner.call("close", query="q", end=end)


def test_the_reply_holds_an_offset_as_pyspark_writes_it(planner: Planner, spool: Path) -> None:
    planner.open("q", spool, consumer="lake")
    number = planner.ask("latest", query="q", start=COMMITTED, all=True)
    line = planner.line()
    offset = line.removeprefix(f'{{"id": {number}, "ok": {{"end": ').partition(', "report"')[0]
    assert json.dumps(json.loads(offset)) == offset
    assert re.fullmatch(
        r'\{"spools": \{"[0-9a-f-]{36}": \{"epoch": "[0-9a-f]{16}", "from": 0, "to": 30\}\}, '
        r'"v": 1\}',
        offset,
    )


def test_available_now_ends_at_the_pinned_position(planner: Planner, spool: Path) -> None:
    planner.open("q", spool)
    assert planner.call("pin", query="q") is None
    fill(spool, 5)
    end = planner.latest()
    assert end["spools"][Spool(spool).uuid]["to"] == 30
    assert planner.latest(end) == end


def test_a_batch_that_passes_over_losses_is_cut_once_spark_has_logged_it(
    planner: Planner, spool: Path
) -> None:
    planner.open("q", spool, failOnDataLoss="false")
    batch = planner.call("latest", query="q", start=COMMITTED, all=True)
    assert batch["tasks"] is None
    assert planner.tasks(COMMITTED, batch["end"])


def test_a_batch_planned_before_the_last_was_committed_is_refused(
    planner: Planner, spool: Path
) -> None:
    planner.open("q", spool)
    batch = {"query": "q", "start": COMMITTED, "end": planner.latest()}
    error = planner.refused("partitions", **batch, is_ahead=True)
    assert error["kind"] == "UsageError"
    assert "asyncProgressTrackingEnabled" in error["text"]


def test_a_batch_query_has_its_partitions(planner: Planner, spool: Path) -> None:
    assert planner.open("b", spool, "batch", start="5", end="12")["limit"] is None
    tasks = planner.call("partitions", query="b")
    assert [(piece["start"], piece["end"]) for task in tasks for piece in task] == [(5, 12)]
    assert "only partitions" in planner.refused("initial", query="b")["text"]
    planner.call("close", query="b")
    planner.open("b", spool, "batch", start="30")
    assert planner.call("partitions", query="b") == []


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, None),
        ({"maxBytesPerBatch": "1MiB"}, {"bytes": 1 << 20}),
        ({"maxRowsPerBatch": "9", "minRowsPerBatch": "7"}, {"min_rows": 7}),
    ],
)
def test_a_limit_is_the_one_of_the_options(
    planner: Planner, spool: Path, options: dict[str, str], limit: dict[str, int] | None
) -> None:
    assert planner.open("q", spool, **options)["limit"] == limit


def schema_of(planner: Planner, **options: str) -> Any:
    return planner.call("schema", options=options, spark=VERSION)


def test_a_schema_is_text_or_the_json_of_spark(planner: Planner, spool: Path) -> None:
    ddl = schema_of(planner, spool=str(spool), schema="n INT")
    assert ddl == {"ddl": "n INT, `_rescued` STRING"}
    found = schema_of(planner, path=str(spool), columns="position,attributes,parts")
    types = {field["name"]: field["type"] for field in found["json"]["fields"]}
    attributes = {
        "type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True,
    }  # fmt: skip
    parts = {"type": "array", "elementType": "binary", "containsNull": True}
    assert types == {"position": "long", "attributes": attributes, "parts": parts}
    whole = schema_of(planner, spool=str(spool), payload="variant")["json"]["fields"]
    assert [field["type"] for field in whole if field["name"] == "payload"] == ["variant"]
    of_elements = {"reactive.element": "a:u64,b:f32,c:i8,d:u8", "columns": "position"}
    elements = schema_of(planner, spool=str(spool), **of_elements)["json"]["fields"]
    kinds = [field["type"] for field in elements]
    assert kinds == ["long", "decimal(20,0)", "float", "byte", "short", "binary"]


def test_the_columns_of_a_table_carry_its_options(planner: Planner, spool: Path) -> None:
    table = {"provider": "ackline", "option.spool": str(spool), "option.columns": "position"}
    (field,) = schema_of(planner, **table)["json"]["fields"]
    kept = json.loads(field["metadata"]["ackline.options"])
    assert kept == {"columns": "position", "spool": str(spool)}
    wanted = columns(position=COLUMNS["position"])
    wanted["fields"][0]["metadata"] = field["metadata"]
    request = of("t", spool, "batch") | {"options": {}, "schema": wanted}
    assert planner.call("open", **request)["reading"]["names"] == ["position"]
    assert len(planner.call("partitions", query="t")) == 1


def test_columns_of_payloads_are_described_for_the_reader(planner: Planner, spool: Path) -> None:
    wanted = columns(position=COLUMNS["position"], n=("int", pa.int32()))
    options = {"spool": str(spool), "mode": "FAILFAST", "eventColumns": "position"}
    request = of("q", spool) | {"options": options, "schema": wanted}
    assert planner.call("open", **request)["reading"]["projection"] == {
        "kind": "json",
        "schema": wanted["arrow"],
        "mode": "FAILFAST",
        "rescued": "_rescued",
        "corrupt_record": "_corrupt_record",
        "case_sensitive": False,
        "event_columns": [["position", "position"]],
    }
    wanted = columns(element=("double", pa.float64()), _corrupt_record=("binary", pa.binary()))
    options = {"spool": str(spool), "reactive.element": "f64"}
    request = of("e", spool) | {"options": options, "schema": wanted, "is_asked": True}
    assert planner.call("open", **request)["reading"]["projection"] == {
        "kind": "elements",
        "element": "f64",
        "schema": wanted["arrow"],
        "mode": "PERMISSIVE",
        "corrupt_record": "_corrupt_record",
    }


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"options": {}}, "the option spool is missing"),
        ({"options": {"spool": "x", "consumr": "a"}}, "has no option 'consumr' (did you mean"),
        ({"options": {"spool": "x", "schema": "n INT"}}, "the option schema and .schema(…)"),
        ({"options": {"spool": "x", "payload": "variant"}}, "payload=variant makes the whole"),
        ({"schema": columns(position=("int", pa.int32()))}, "column position is a nullable bigint"),
        ({"spark": "4.1.0"}, "needs Spark 4.2 or newer"),
        ({"kind": "table"}, "kind must be stream or batch"),
        ({"schema": {"fields": [], "arrow": "?"}}, "arrow is no base64"),
        ({"is_asked": None}, "the request needs the member is_asked: true or false"),
    ],
)
def test_a_query_that_cannot_be_opened_is_refused_and_its_name_is_free(
    planner: Planner, spool: Path, changes: dict[str, Any], text: str
) -> None:
    error = planner.refused("open", **of("q", spool) | changes)
    assert error["kind"] == "UsageError"
    assert text in error["text"]
    planner.open("q", spool)


def test_errors_have_their_class_code_and_text(planner: Planner, tmp_path: Path) -> None:
    planner.open("q", tmp_path / "none")
    error = planner.refused("initial", query="q")
    assert (error["kind"], error["code"]) == ("SpoolError", "spool.gone")
    assert str(tmp_path / "none") in error["text"]
    assert planner.refused("latest", query="q", start=1, all=False)["code"] is None


def test_requests_that_cannot_be_read_are_refused(planner: Planner, spool: Path) -> None:
    for line in ("", "no JSON", "[]", '{"call": "initial"}', '"\\ud800"'):
        planner.write(line)
        assert planner.reply(None)["error"]["kind"] == "UsageError"
    assert "no open query 'q'" in planner.refused("initial", query="q")["text"]
    assert "needs the member query" in planner.refused("open")["text"]
    planner.open("q", spool)
    assert "there is no call 'sing'" in planner.refused("sing", query="q")["text"]
    assert "is open already" in planner.refused("open", **of("q", spool))["text"]
    assert planner.call("initial", query="q") == COMMITTED


def test_a_query_that_waits_delays_no_other(planner: Planner, spool: Path) -> None:
    planner.open("holder", spool, consumer="lake")
    planner.call("initial", query="holder")
    # It waits 10 s for the consumer, and its later requests wait behind it.
    planner.open("waiter", spool, consumer="lake")
    waiting = planner.ask("initial", query="waiter")
    behind = planner.ask("initial", query="waiter")
    planner.open("free", spool)
    assert planner.call("latest", query="free", start=COMMITTED, all=True)["tasks"]
    assert schema_of(planner, spool=str(spool))["json"]
    assert waiting not in planner._replies
    planner.call("close", query="holder")
    assert planner.reply(waiting)["ok"] == COMMITTED
    assert "ok" in planner.reply(behind)


def test_requests_behind_a_close_are_refused(planner: Planner, spool: Path) -> None:
    planner.open("q", spool, consumer="lake")
    closing = planner.ask("close", query="q")
    late = planner.ask("report", query="q")
    assert planner.reply(closing)["ok"] is None
    assert "no open query 'q'" in planner.reply(late)["error"]["text"]
    planner.open("q", spool, consumer="lake")
    planner.call("initial", query="q")


def takes(spool: Path, consumer: str) -> bool:
    try:
        Spool(spool).lease(consumer, wait=0).release()
    except SpoolError as error:
        assert error.code == "spool.consumer_busy"  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
def test_the_end_releases_consumers_and_stops_receivers(
    planner: Planner, spool: Path, tmp_path: Path, end: str
) -> None:
    planner.open("q", spool, consumer="lake")
    planner.call("initial", query="q")
    listening = tmp_path / "listening"
    planner.open("r", listening, consumer="lake", listen="lumberjack://127.0.0.1:0")
    planner.call("initial", query="r")
    assert not takes(spool, "lake")
    if end == "stdin":
        assert planner.end() == 0
    else:
        planner.process.terminate()
        assert planner.process.wait(DEADLINE) == 0
    assert takes(spool, "lake")
    fill(listening, 1)
    assert any("code=spark.receiver_ended [query with consumer lake" in one for one in planner.told)


def test_a_closed_query_leaves_its_receivers_port_to_the_next(
    planner: Planner, tmp_path: Path
) -> None:
    for _ in range(2):
        planner.open("r", tmp_path / "s", consumer="lake", listen="lumberjack://127.0.0.1:0")
        planner.call("initial", query="r")
        planner.call("close", query="r")


PARENT = """
import subprocess, sys
planner = subprocess.Popen([sys.executable, "-m", "ackline.spark.planner"], stdin=subprocess.PIPE)
for line in sys.stdin.buffer:
    planner.stdin.write(line)
    planner.stdin.flush()
"""


def test_a_killed_jvm_ends_its_planner(spool: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    requests = [
        {"id": 1, "call": "open"} | of("q", spool, consumer="lake"),
        {"id": 2, "call": "initial", "query": "q"},
    ]
    for request in requests:
        parent.stdin.write(json.dumps(request).encode() + b"\n")
        parent.stdin.flush()
        assert b'"ok"' in parent.stdout.readline()
    assert not takes(spool, "lake")
    parent.kill()
    parent.stdin.close()
    parent.wait(DEADLINE)
    # The planner holds the other end of this pipe until it ends.
    assert parent.stdout.read() == b""
    parent.stdout.close()
    wait_until(lambda: takes(spool, "lake"), "the consumer is free")


def test_ctrl_c_leaves_queries_to_the_jvm(planner: Planner, spool: Path) -> None:
    planner.open("q", spool, consumer="lake")
    planner.process.send_signal(signal.SIGINT)
    assert planner.call("initial", query="q") == COMMITTED


def test_each_log_line_names_its_own_query(planner: Planner, spool: Path, tmp_path: Path) -> None:
    fill(tmp_path / "other", 3)
    for query, place in (("a", spool), ("b", tmp_path / "other")):
        planner.open(query, place)
    numbers = [planner.ask("initial", query=query) for query in ("a", "b")]
    for number in numbers:
        planner.reply(number)
    assert planner.end() == 0
    wait_until(lambda: len(planner.told) == 2, "both queries have told")
    found = {line.rpartition("[")[2].removesuffix("]\n") for line in planner.told}
    assert found == {
        f"query with no consumer of spool {place}" for place in (spool, tmp_path / "other")
    }
    assert all("code=spark.no_consumer" in line for line in planner.told)


PRINTING = """
from ackline.spark import planner
planner.schema = lambda request: print("printed")
planner.main()
"""


def test_what_is_printed_breaks_no_reply(start: Callable[..., Planner]) -> None:
    planner = start("-c", PRINTING)
    planner.ask("schema")
    assert planner.line() == '{"id": 1, "ok": null}\n'
    assert planner.end() == 0
    wait_until(lambda: planner.told == ["printed\n"], "the text is on standard error")


HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "asyncio", "ssl", "py4j", "typer")


def test_the_planner_imports_nothing_heavy() -> None:
    code = "import sys, ackline.spark.planner; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in python(code).stdout.split()}
    assert not loaded & set(HEAVY)


@pytest.mark.alone
def test_a_planner_with_an_open_stream_takes_at_most_40_mb(planner: Planner, spool: Path) -> None:
    planner.open("q", spool, consumer="lake")
    planner.latest(planner.latest())
    rollup = Path(f"/proc/{planner.process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB$", rollup, re.MULTILINE)
    assert found is not None
    assert int(found[1]) < 40_000
