"""Spools of earlier releases: every build reads them, goes on with them, survives a kill.

The spools and how they were made: tests/golden/README.md.
"""

import base64
import io
import json
import socket
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import DEADLINE, ROOT
from typer.testing import CliRunner

from ackline import Receiver, Spool, SpoolError, lumberjack
from ackline.cli.app import app

GOLDEN = ROOT / "tests" / "golden"
NAMES = sorted(
    str(path.relative_to(GOLDEN)).removesuffix(".tar.gz") for path in GOLDEN.glob("*/*.tar.gz")
)
COLUMNS = [
    "spool", "position", "received_at", "protocol", "peer", "link", "stream", "sequence", "repeat",
    "attributes", "parts", "payload", "digest",
]  # fmt: skip
FOR_EVER_MS = 3_155_760_000_000
OPTIONS: dict[str, int | str] = {
    # A small reserve, and nothing retires: these spools are older than any default age.
    "budget": 1 << 20, "retain_committed_ms": FOR_EVER_MS, "quarantine_age_ms": FOR_EVER_MS,
    "on_invalid": "quarantine",
}  # fmt: skip
NEW = [b'{"new":%d}' % number for number in range(3)]
NOT_ZLIB = b"2C\0\0\0\3new"
KILL_AFTER_S = (0.002, 0.008, 0.015, 0.02, 0.03)
"""Opening one of these spools takes 10 to 30 ms."""


@dataclass(frozen=True)
class Golden:
    """A spool as it was unpacked, and the note of its content."""

    path: Path
    note: dict[str, Any]

    @property
    def lost(self) -> list[tuple[int, int]]:
        return [(low, high) for low, high in self.note["lost"]]

    @property
    def options(self) -> dict[str, int | str]:
        return OPTIONS | {"group": self.note["group"]}

    def spool(self) -> Spool:
        return Spool(self.path, group=self.note["group"])

    def receiver(self) -> Receiver:
        return Receiver(self.note["urls"], spool=self.path, options=self.options)

    def every(self) -> list["Golden"]:
        """It and the quarantine inside it, which is a spool too."""
        inner = self.note.get("quarantine")
        return [self] if inner is None else [self, Golden(self.path / "quarantine", inner)]


def unpack(archive: Path, into: Path) -> None:
    # Not by extractall: since Python 3.12 it may narrow modes, and these are part of the format.
    with tarfile.open(archive) as entries:
        for entry in entries:
            path = into / entry.name
            if entry.isdir():
                path.mkdir()
            else:
                content = entries.extractfile(entry)
                assert isinstance(content, io.BufferedReader)
                path.write_bytes(content.read())
            path.chmod(entry.mode)


def note_of(name: str) -> dict[str, Any]:
    note: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    return note


@pytest.fixture(params=NAMES)
def golden(request, tmp_path):
    unpack(GOLDEN / f"{request.param}.tar.gz", tmp_path)
    return Golden(tmp_path / "spool", note_of(request.param))


def text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def as_noted(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the words of the notes."""
    row = row | {
        "received_at": row["received_at"].isoformat(timespec="microseconds"),
        "attributes": dict(row["attributes"]),
        "parts": None if row["parts"] is None else [text(part) for part in row["parts"]],
        "payload": text(row["payload"]),
        "digest": row["digest"].hex(),
    }
    return {name: value for name, value in row.items() if value is not None}


def read(spool: Spool, start: int, end: int) -> list[dict[str, Any]]:
    table = spool.read(start, end, columns=COLUMNS).to_table()
    return [as_noted(row) for row in table.to_pylist()]


def kept_ranges(golden: Golden, end: int) -> Iterator[tuple[int, int]]:
    """The readable ranges below `end`: above the retired positions, without the lost ones."""
    start = golden.note["found"]["first_kept"]
    for low, high in [*golden.lost, (end, end)]:
        if start < min(low, end):
            yield start, min(low, end)
        start = high


def refused(spool: Spool, start: int, end: int) -> str:
    """The error code of reading a range."""
    with pytest.raises(SpoolError) as error:
        list(spool.read(start, end).json_lines())
    return error.value.code


def told_lost(spool: Spool, end: int) -> list[tuple[int, int]]:
    """The losses below `end`; every way to ask for them must give the same."""
    start = spool.first_kept()
    told = [(loss.start, loss.end) for loss in spool.losses() if loss.start < end]
    if start < end:
        for check in (False, True):
            found = [(hole.start, hole.end) for hole in spool.holes(start, end, check=check)]
            assert found == told
        events = spool.read(start, end, columns=["position"], on_loss="skip")
        positions = [json.loads(line)["position"] for line in events.json_lines()]
        assert [(loss.start, loss.end) for loss in events.skipped] == told
        lost = {position for low, high in told for position in range(low, high)}
        assert positions == [each for each in range(start, end) if each not in lost]
    return told


def check_lost(golden: Golden, end: int) -> None:
    """Asserts that readers report the lost ranges below `end`, and no others."""
    spool, lost = golden.spool(), [one for one in golden.lost if one[1] <= end]
    assert told_lost(spool, end) == lost
    for low, high in lost:
        assert refused(spool, low, high) == "spool.gap"
        assert refused(spool, spool.first_kept(), high) == "spool.gap"


def check_rows(golden: Golden, end: int) -> None:
    """Asserts that all noted rows below `end` exist, unchanged."""
    spool = golden.spool()
    found = [row for low, high in kept_ranges(golden, end) for row in read(spool, low, high)]
    own = {"spool": golden.note["uuid"]}
    assert found == [own | row for row in golden.note["rows"] if row["position"] < end]


def check_consumers(golden: Golden) -> None:
    found = []
    for consumer in golden.spool().consumers():
        assert not consumer.live
        of = consumer.holder
        holder = of and {"pid": of.pid, "host": of.host, "since": of.since, "what": of.what}
        own = {name: getattr(consumer, name) for name in ("name", "committed", "generation")}
        found.append(own | {"holder": holder})
    assert found == golden.note["consumers"]


def check_opened(golden: Golden) -> None:
    """Everything is as noted for a spool that a receiver has opened."""
    noted, spool = golden.note["opened"], golden.spool()
    assert spool.uuid == golden.note["uuid"]
    assert spool.first_kept() == noted["first_kept"]
    check_rows(golden, noted["durable"])
    check_lost(golden, noted["durable"])
    check_consumers(golden)


def verified(golden: Golden) -> int:
    """The exit code of `ackline spool verify`, in this process: starting many takes seconds."""
    group = ["--group"] if golden.note["group"] else []
    return CliRunner().invoke(app, ["spool", "verify", str(golden.path), *group]).exit_code


def test_each_golden_spool_has_a_note():
    assert NAMES
    assert {str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*/*.json")} == {
        f"{name}.json" for name in NAMES
    }


def test_an_old_spool_is_read_as_noted(golden):
    for one in golden.every():
        noted, spool = one.note["found"], one.spool()
        assert spool.uuid == one.note["uuid"]
        assert (spool.first_kept(), spool.durable()) == (noted["first_kept"], noted["durable"])
        check_rows(one, noted["readable"])
        check_lost(one, noted["readable"])
        check_consumers(one)


def test_positions_that_an_old_spool_does_not_hold_are_refused_by_name(golden):
    for one in golden.every():
        noted, spool = one.note["found"], one.spool()
        if noted["first_kept"] > 0:
            assert refused(spool, 0, 1) == "spool.gap"
        if noted["readable"] < noted["durable"]:
            # No receiver has found this loss yet.
            assert refused(spool, noted["readable"], noted["durable"]) == "spool.corrupt"
        assert refused(spool, 0, noted["durable"] + 1) == "spool.behind_checkpoint"


def test_an_old_spool_is_verified_as_noted(golden):
    for one in golden.every():
        assert verified(one) == one.note["found"]["verify"]
    with golden.receiver():
        pass
    for one in golden.every():
        # Format 1 could not note a loss, so that each one was a problem for ever: `opened.verify`.
        assert verified(one) == 0
        losses = one.spool().verify().losses
        assert [(loss.start, loss.end) for loss in losses] == one.lost


def send_bad_window(url: str) -> None:
    """Sends a window that lands, and one that cannot be read and is set aside."""
    host, port = url.removeprefix("lumberjack://").split(":")
    good = b"2J" + struct.pack(">II", 1, len(NEW[0])) + NEW[0]
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as sender:
        for frames in (good, NOT_ZLIB):
            sender.sendall(b"2W\0\0\0\1" + frames)
            assert sender.recv(6, socket.MSG_WAITALL) == b"2A\0\0\0\1"


def test_new_events_follow_at_the_end_of_an_old_spool(golden):
    begin = golden.note["opened"]["durable"]
    sent: list[bytes] = []
    for opening in range(2):
        new = [b'{"opening":%d,"n":%d}' % (opening, number) for number in range(3)]
        with (
            golden.receiver() as receiver,
            lumberjack.connect(receiver.urls[0]) as writer,
        ):
            writer.send(new, timeout=DEADLINE)
            sent += new
        for one in golden.every():
            check_opened(one)
        assert golden.spool().durable() == begin + len(sent)
        found = read(golden.spool(), begin, begin + len(sent))
        assert [row["position"] for row in found] == list(range(begin, begin + len(sent)))
        assert [row["payload"] for row in found] == [one.decode() for one in sent]
        assert not any(row["repeat"] for row in found)


WITH_QUARANTINE = [name for name in NAMES if "quarantine" in note_of(name)]


@pytest.mark.parametrize("golden", WITH_QUARANTINE, indirect=True)
def test_a_window_is_set_aside_behind_those_of_an_old_quarantine(golden):
    with golden.receiver() as receiver:
        send_bad_window(receiver.urls[0])
    _, aside = golden.every()
    check_opened(aside)
    end = aside.note["opened"]["durable"]
    (row,) = read(aside.spool(), end, end + 1)
    assert row["payload"] == NOT_ZLIB.decode()


OPEN = """
import json, os, sys, time, traceback
from ackline import Receiver
for line in sys.stdin:
    urls, path, options, seconds = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            receiver = Receiver(urls, spool=path, options=options)
            time.sleep(60)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    time.sleep(seconds)
    os.kill(child, 9)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Openings:
    """A process that forks receivers and kills them: quicker than starting each anew."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def kill(self, golden: Golden, seconds: float) -> None:
        """Opens a spool and kills the receiver with -9 after so many seconds."""
        urls, path = golden.note["urls"], str(golden.path)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([urls, path, golden.options, seconds]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "9\n", "it was killed, and did not fail before"


@pytest.fixture(scope="module")
def openings():
    started = Openings()
    yield started
    started.process.communicate(timeout=DEADLINE)


def test_a_kill_while_an_old_spool_is_opened_loses_nothing(golden, openings):
    # Readers also see the rows between two openings, but for a spool with a loss that no receiver
    # has found: between the cut of its index and the new footer, release 0.1.0 refuses to read it.
    for seconds in KILL_AFTER_S:
        openings.kill(golden, seconds)
        for one in golden.every():
            noted, opened = one.note["found"], one.note["opened"]
            assert one.spool().durable() in {noted["durable"], opened["durable"]}
            if noted["readable"] == noted["durable"]:
                check_rows(one, noted["durable"])
    with golden.receiver() as receiver, lumberjack.connect(receiver.urls[0]) as writer:
        writer.send(NEW, timeout=DEADLINE)
    for one in golden.every():
        check_opened(one)
    end = golden.note["opened"]["durable"]
    found = read(golden.spool(), end, golden.spool().durable())
    assert [row["payload"] for row in found] == [one.decode() for one in NEW]
