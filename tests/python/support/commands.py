"""Commands run as processes, receivers started from outside, and waits with a deadline."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from ackline import Receiver, Spool
from support.prefork import server

ROOT = Path(__file__).resolve().parents[3]
"""The repository."""

DEADLINE = 30.0
"""Seconds after which a wait fails the test."""


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.005)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


def ackline(*arguments: str, given: str = "", **where: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line to its end; `where` may have `cwd` and `env`."""
    run = ackline_bytes(*arguments, given=given.encode(), **where)
    texts = (run.stdout.decode(), run.stderr.decode())
    return subprocess.CompletedProcess(run.args, run.returncode, *texts)


def ackline_bytes(
    *arguments: str, given: bytes = b"", **where: Any
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line to its end, with bytes for input and output."""
    return server().run(arguments, given, DEADLINE, **where)


def address(receiver: Receiver) -> tuple[str, int]:
    """Host and port of a receiver's first URL."""
    url = urlsplit(receiver.urls[0])
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def window(*payloads: bytes) -> bytes:
    """A window of Lumberjack 2 as it stands on the wire."""
    frames = (
        b"2J" + struct.pack(">II", number, len(payload)) + payload
        for number, payload in enumerate(payloads, 1)
    )
    return b"2W" + struct.pack(">I", len(payloads)) + b"".join(frames)


def deliver_and_reset(receiver: Receiver, *payloads: bytes) -> None:
    """Delivers one window over a connection that is cut off afterwards."""
    with socket.create_connection(address(receiver), timeout=DEADLINE) as peer:
        peer.sendall(window(*payloads))
        assert peer.recv(6, socket.MSG_WAITALL) == b"2A" + struct.pack(">I", len(payloads))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not receiver.stats()["connections"], "the connection ends")


def rows(directory: Path) -> list[tuple[str, str, int, bytes | None]]:
    """Link, stream, sequence and payload of everything durable."""
    spool = Spool(directory)
    table = pa.table(spool.read(spool.first_kept(), spool.durable()))
    names = ("link", "stream", "sequence", "payload")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


class RunningReceiver:
    """`ackline receive --json`, or another command that listens, started from the outside."""

    def __init__(self, *arguments: str, command: str = "receive") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ackline.cli", command, "--json", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[dict[str, Any]] = []
        self.url = str(self.next("listening")["urls"][0])

    def next(self, event: str) -> dict[str, Any]:
        """Reads lines up to the next one of this name."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line: dict[str, Any] = json.loads(text)
            self.lines.append(line)
            if line["event"] == event:
                return line
        assert self.process.stderr is not None
        raise AssertionError(f"no {event}: {self.process.stderr.read()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stops it; returns its exit code."""
        self.process.send_signal(number)
        # Lines that were read ahead are in the stream's buffer, and `communicate` would lose them.
        assert self.process.stdout is not None
        self.lines += [json.loads(text) for text in self.process.stdout]
        self.process.communicate(timeout=DEADLINE)
        return self.process.returncode

    def kill(self) -> None:
        """Ends it at once, if it still runs."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()
