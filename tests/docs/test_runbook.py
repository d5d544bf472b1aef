"""The transcripts of the runbook are run: <!-- transcript: NAME --> before a block names its state.

A line that begins with `$ ` is a command, and the lines behind it are its output. `ackline receive`
runs until it ends by itself, or until the line `^C`. In an expected line `…` stands for any text,
and a line of `…` alone for any number of lines; times, UUIDs, epochs and process numbers may
differ. Lines of standard output and of standard error may be mixed in any order.
"""

import contextlib
import fcntl
import functools
import io
import os
import re
import shutil
import signal
import struct
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from test_examples import PORT, ROOT, environment, free_port, is_open, until

from ackline import Receiver, Spool, lumberjack

PAGE = ROOT / "docs" / "operations" / "runbook.md"
BLOCK = re.compile(r"<!-- transcript: (\w+) -->\n```text\n(.*?)```", re.DOTALL)
VARYING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\bprocess \d+"), "process PID"),
    (re.compile(r"\b\d+\.[0-9a-f]{8}\b"), "EPOCH"),
    (re.compile(r"\.\d{16}\b"), ".MICROSECONDS"),
)
NOT_COPIED = shutil.ignore_patterns("lock", "reserve", "status.json*")
"""A running receiver holds the first two, and replaces the last each second."""
LIMIT = "ulimit -f 1024; "
"""At most 1 MiB in a file, in units of 1,024 bytes."""


def send(url: str, first: int, count: int) -> None:
    """Sends events in one window: a group of its own."""
    with lumberjack.connect(url, compression=0) as writer:
        writer.send([b'{"n":%d}' % n for n in range(first, first + count)], timeout=30)


def fill(path: Path, *counts: int, first: int = 0) -> None:
    with Receiver(["lumberjack://127.0.0.1:0"], spool=path) as receiver:
        for count in counts:
            send(receiver.urls[0], first, count)
            first += count


def segment(path: Path, first: int = 0) -> Path:
    return path / "segments" / f"{first:020}.arrows"


def flip(file: Path, needle: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(needle) + 1] ^= 1
    file.write_bytes(content)


def losses(spool: Path) -> None:
    fill(spool, 30, 20)
    content = segment(spool).read_bytes()
    segment(spool).write_bytes(content[: content.rindex(b'"n":49}')])
    fill(spool, 10, first=50)


def damaged(spool: Path) -> None:
    fill(spool, 30, 20, 10)
    flip(segment(spool), b'"n":35}')


def index_missing(spool: Path) -> None:
    fill(spool, 30, 20)
    segment(spool).with_suffix(".idx").unlink()


def unplaced(spool: Path) -> None:
    fill(spool, 30)
    fill(spool, 20, first=30)
    segment(spool).with_suffix(".idx").unlink()
    content = bytearray(segment(spool).read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    segment(spool).write_bytes(content)


def mark_damaged(spool: Path) -> None:
    fill(spool, 30, 20)
    mark = spool / "durable"
    mark.write_bytes(bytes(mark.stat().st_size))


def start_damaged(spool: Path) -> None:
    fill(spool, 30, 20)
    flip(spool / "start", b'"position"')


def identity_damaged(spool: Path) -> None:
    fill(spool, 30, 20)
    flip(spool / "spool.json", b'"uuid":"')


def consumer_damaged(spool: Path) -> None:
    fill(spool, 30, 20)
    Spool(spool).add_consumer("lake", 30)
    flip(spool / "consumers" / "lake.json", b":30")


def mark_ahead(spool: Path) -> None:
    former = spool.with_name("former")
    with Receiver(["lumberjack://127.0.0.1:0"], spool=former) as receiver:
        send(receiver.urls[0], 0, 30)
        shutil.copytree(former, spool, ignore=NOT_COPIED)
        send(receiver.urls[0], 30, 20)
        Spool(former).add_consumer("lake", 50)
    shutil.rmtree(spool / "consumers")
    shutil.copytree(former / "consumers", spool / "consumers")


def restored(spool: Path) -> None:
    fill(spool, 30)
    shutil.copytree(spool, spool.with_name("backup"))
    fill(spool, 20, first=30)
    Spool(spool).add_consumer("lake", 50)
    consumers = spool.with_name("consumers")
    (spool / "consumers").rename(consumers)
    shutil.rmtree(spool)
    spool.with_name("backup").rename(spool)
    shutil.rmtree(spool / "consumers")
    consumers.rename(spool / "consumers")


def small(spool: Path) -> None:
    fill(spool, 30)


def no_reserve(spool: Path) -> None:
    small(spool)
    (spool / "reserve").unlink()


def retired(spool: Path) -> None:
    unpack("retired", spool)


def migrated(spool: Path) -> None:
    unpack("segments_ended", spool)


def unpack(name: str, spool: Path) -> None:
    with tarfile.open(ROOT / "tests" / "golden" / "format1" / f"{name}.tar.gz") as entries:
        for entry in entries:
            path = spool.parent / entry.name
            if entry.isdir():
                path.mkdir()
            else:
                content = entries.extractfile(entry)
                assert isinstance(content, io.BufferedReader)
                path.write_bytes(content.read())
            path.chmod(entry.mode)


def open_to_others(spool: Path) -> None:
    fill(spool, 30)
    spool.chmod(0o755)


@contextmanager
def nobody(_spool: Path) -> Iterator[None]:
    yield


@contextmanager
def a_receiver(spool: Path) -> Iterator[None]:
    with Receiver(["lumberjack://127.0.0.1:0"], spool=spool):
        yield


@contextmanager
def marks_held(spool: Path) -> Iterator[None]:
    lock = next(path for path in spool.iterdir() if path.name.startswith("marks"))
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with lock.open("r+b") as file:
        fcntl.fcntl(file, F_OFD_SETLK, whole)
        yield


def send_more(url: str, _spool: Path) -> None:
    with contextlib.suppress(Exception):
        send(url, 100, 10)


def cut(url: str, spool: Path) -> None:
    send(url, 100, 10)
    with segment(spool, 30).open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 100)
    in_background(send_more, url, spool)


def take_away(url: str, spool: Path) -> None:
    send(url, 100, 10)
    spool.rename(spool.with_name("elsewhere"))
    in_background(send_more, url, spool)


def replace_writer(url: str, spool: Path) -> None:
    """Opens the spool like another machine whose lock is invisible here."""
    send(url, 100, 10)
    other = spool.with_name("other")
    shutil.copytree(spool, other, ignore=NOT_COPIED)
    fill(other)
    with (spool / "durable").open("r+b") as mark:
        mark.write((other / "durable").read_bytes())
    in_background(send_more, url, spool)


def set_clock(url: str, spool: Path) -> None:
    """The wall clock goes on by eight days; retention looks at it every 10 s."""
    send(url, 100, 10)
    clock(spool).write_text("step 691200", "ascii")
    errors = spool.with_name("errors")
    until(lambda: "clock_step" in errors.read_text("utf-8"), "the step is noticed")


def take_clock(url: str, spool: Path) -> None:
    """A clock that fails is a defect to Rust's library: the thread that commits panics."""
    clock(spool).write_text("fail ackline-spool", "ascii")
    in_background(send_more, url, spool)


def clock(spool: Path) -> Path:
    return spool.with_name("clock")


def in_background(work: Callable[[str, Path], None], url: str, spool: Path) -> None:
    threading.Thread(target=work, args=(url, spool), daemon=True).start()


class State(NamedTuple):
    """The making of a spool, its users meanwhile, and its treatment under the first receiver."""

    make: Callable[[Path], None]
    meanwhile: Callable[[Path], contextlib.AbstractContextManager[None]] = nobody
    during: Callable[[str, Path], None] | None = None
    is_limited: bool = False
    has_clock: bool = False


F_OFD_SETLK = 37
STATES = {
    "losses": State(losses),
    "mend": State(damaged),
    "index_rebuilt": State(index_missing),
    "unplaced": State(unplaced),
    "mark_rebuilt": State(mark_damaged),
    "start_rebuilt": State(start_damaged),
    "identity": State(identity_damaged),
    "consumer_unreadable": State(consumer_damaged),
    "mark_ahead": State(mark_ahead),
    "restored": State(restored),
    "gap": State(retired),
    "migrated": State(migrated),
    "rights": State(open_to_others),
    "locked": State(small, meanwhile=a_receiver),
    "marks_busy": State(small, meanwhile=marks_held),
    "no_reserve": State(no_reserve, is_limited=True),
    "changed": State(small, during=cut),
    "moved": State(small, during=take_away),
    "fenced": State(small, during=replace_writer),
    "clock_step": State(small, during=set_clock, has_clock=True),
    "panic": State(small, during=take_clock, has_clock=True),
}


class Command(NamedTuple):
    line: str
    expected: list[str]


def transcripts() -> dict[str, list[Command]]:
    found: dict[str, list[Command]] = {}
    for name, text in BLOCK.findall(PAGE.read_text("utf-8")):
        commands: list[Command] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line.removeprefix("$ "), []))
            else:
                commands[-1].expected.append(line)
        assert name not in found, "a state has one transcript"
        found[name] = commands
    return found


class Shell:
    """Runs the commands of a transcript in a directory of their own."""

    def __init__(self, directory: Path, state: State) -> None:
        self.directory = directory
        self.state = state
        self.during = state.during
        self.status = 0

    def run(self, line: str, *, interrupt: bool) -> tuple[str, str]:
        """Returns standard output and standard error."""
        if line == "echo $?":
            return f"{self.status}\n", ""
        if line.startswith("ackline receive"):
            return self.receive(line, interrupt=interrupt)
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.status = done.returncode
        return done.stdout, done.stderr

    def receive(self, line: str, *, interrupt: bool) -> tuple[str, str]:
        with free_port() as port:
            return self.received(line, port, interrupt=interrupt)

    def received(self, line: str, port: int, *, interrupt: bool) -> tuple[str, str]:
        limit = LIMIT if self.state.is_limited else ""
        outputs = self.directory / "output", self.directory / "errors"
        with outputs[0].open("wb") as stdout, outputs[1].open("wb") as stderr:
            process = subprocess.Popen(
                ["bash", "-c", f"{limit}exec {line.replace(PORT, str(port))}"],
                cwd=self.directory,
                env=self.environment() | self.clock(),
                stdout=stdout,
                stderr=stderr,
            )
        try:
            until(lambda: is_open(port) or process.poll() is not None, line)
            if (during := self.during) is not None and process.poll() is None:
                self.during = None
                during(f"lumberjack://127.0.0.1:{port}", self.directory / "spool")
            if interrupt:
                assert process.poll() is None, outputs[1].read_text("utf-8")
                process.send_signal(signal.SIGINT)
            self.status = process.wait(60)
        finally:
            process.kill()
            process.wait()
            clock(self.directory / "spool").unlink(missing_ok=True)
        told = [output.read_text("utf-8").replace(str(port), PORT) for output in outputs]
        return told[0], told[1]

    def clock(self) -> dict[str, str]:
        """The environment of a receiver whose clock the state sets."""
        if not self.state.has_clock:
            return {}
        library = self.directory / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
        return {"LD_PRELOAD": str(library), "CLOCK": str(clock(self.directory / "spool"))}

    @staticmethod
    def environment() -> dict[str, str]:
        plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        return environment() | plain


def plain(text: str) -> list[str]:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return [line.rstrip() for line in text.splitlines()]


def fits(expected: list[str], stdout: list[str], stderr: list[str]) -> bool:
    """Whether two outputs together are the lines of a transcript."""
    patterns = [
        None if line == "…" else re.compile(".*".join(map(re.escape, line.split("…"))))
        for line in plain("\n".join(expected))
    ]

    @functools.cache
    def rest_fits(at: int, out: int, err: int) -> bool:
        if at == len(patterns):
            return (out, err) == (len(stdout), len(stderr))
        pattern = patterns[at]
        if pattern is None and rest_fits(at + 1, out, err):
            return True
        following = at if pattern is None else at + 1
        return (
            out < len(stdout)
            and (pattern is None or pattern.fullmatch(stdout[out]) is not None)
            and rest_fits(following, out + 1, err)
        ) or (
            err < len(stderr)
            and (pattern is None or pattern.fullmatch(stderr[err]) is not None)
            and rest_fits(following, out, err + 1)
        )

    return rest_fits(0, 0, 0)


def test_every_state_has_a_transcript() -> None:
    assert set(transcripts()) == set(STATES)


@pytest.mark.parametrize("name", STATES)
def test_a_transcript_equals_the_output_of_the_commands(name: str, tmp_path: Path) -> None:
    state = STATES[name]
    state.make(tmp_path / "spool")
    shell = Shell(tmp_path, state)
    with state.meanwhile(tmp_path / "spool"):
        for command in transcripts()[name]:
            expected = [line for line in command.expected if line != "^C"]
            interrupt = len(expected) != len(command.expected)
            stdout, stderr = map(plain, shell.run(command.line, interrupt=interrupt))
            told = "\n".join([f"$ {command.line}", *stdout, *stderr])
            assert fits(expected, stdout, stderr), told
