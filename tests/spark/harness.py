"""Senders and receivers for the Spark tests: a raw Lumberjack writer and `ackline receive`."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

HOST = "127.0.0.1"


def until(condition: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
    """Wait for a condition; its first true value is returned."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {timeout} s: {what}")
        time.sleep(0.02)


def ackline_command() -> str:
    """Find the command `ackline` of this environment."""
    beside = Path(sys.executable).with_name("ackline")
    found = str(beside) if beside.exists() else shutil.which("ackline")
    if found is None:
        raise FileNotFoundError("the command `ackline` is not installed here: make setup")
    return found


class Receiver:
    """`ackline receive --json`, or serve, on a spool: started, killed, started on the same port."""

    def __init__(
        self,
        spool: Path,
        *,
        port: int = 0,
        arguments: Sequence[str | Path] = (),
        scheme: str = "lumberjack",
        place: str = "",
        command: str = "receive",
    ) -> None:
        self.spool = spool
        self.command = command
        self.scheme = scheme
        self.place = place
        self.arguments = arguments
        self.port = port or self._held_port()
        self.lines: list[dict[str, Any]] = []
        self.process: subprocess.Popen[str] | None = None

    def _held_port(self) -> int:
        """Choose a port that no other process is given while this receiver is down."""
        held = socket.socket()
        # A socket that is bound and does not listen lets the receiver listen beside it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, 0))
        weakref.finalize(self, held.close)
        return int(held.getsockname()[1])

    def start(self) -> Self:
        url = f"{self.scheme}://{HOST}:{self.port}{self.place}"
        self.lines = []
        self.process = subprocess.Popen(
            [
                ackline_command(),
                self.command,
                url,
                "--spool",
                self.spool,
                "--json",
                *self.arguments,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        reader = threading.Thread(target=self._follow, args=(self.process, self.lines), daemon=True)
        reader.start()
        until(
            lambda: any(line["event"] == "listening" for line in self.lines),
            "the receiver listens",
        )
        return self

    @staticmethod
    def _follow(process: subprocess.Popen[str], lines: list[dict[str, Any]]) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            lines.extend(json.loads(line) for line in stdout)

    def kill(self) -> None:
        """End it with -9 at any point of its work."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in the orderly way."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def send(self, events: Sequence[bytes], window: int = 50) -> None:
        """Send events in windows and return when the last one is acknowledged."""
        with LumberjackSender(self.port) as sender:
            for first in range(0, len(events), window):
                sender.send(events[first : first + window])
            while sender.in_flight:
                sender.acknowledged()


class LumberjackSender:
    """A Lumberjack v2 writer of plain frames that lets any number of windows be in flight."""

    def __init__(self, port: int, timeout: float = 30.0) -> None:
        self._socket = socket.create_connection((HOST, port), timeout)
        self._sizes: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, for polling."""
        return self._socket.fileno()

    @property
    def in_flight(self) -> int:
        """Windows sent and not acknowledged."""
        return len(self._sizes)

    def send(self, events: Sequence[bytes]) -> None:
        """Send one window."""
        frames = [
            struct.pack(">2sII", b"2J", sequence, len(event)) + event
            for sequence, event in enumerate(events, 1)
        ]
        head = struct.pack(">2sI", b"2W", len(events))
        self.send_frames(head + b"".join(frames), len(events))

    def send_frames(self, frames: bytes, count: int) -> None:
        """Send one window of `count` events as frames that are already encoded."""
        self._socket.sendall(frames)
        self._sizes.append(count)

    def acknowledged(self) -> int:
        """Wait until the oldest window is acknowledged; return how many events it had."""
        while True:
            kind, sequence = struct.unpack(">2sI", self._exactly(6))
            if kind != b"2A":
                raise ConnectionError(f"the receiver sent {kind!r} where an ack was due")
            if sequence == self._sizes[0]:
                return self._sizes.pop(0)

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            more = self._socket.recv(size - len(parts))
            if not more:
                raise ConnectionError("the receiver closed the connection")
            parts += more
        return parts


def numbered(first: int, count: int) -> list[bytes]:
    """Make events that can be told apart."""
    return [
        b'{"message":"event %d","pad":"%s"}' % (n, b"x" * 40) for n in range(first, first + count)
    ]


def certificates(directory: Path) -> tuple[Path, Path, Path]:
    """An authority, and keys with their chains for logs.example.org and spark-7.example.org."""
    authority = trustme.CA()
    ca, server, client = (directory / f"{name}.pem" for name in ("ca", "server", "client"))
    authority.cert_pem.write_to_path(str(ca))
    for path, host in ((server, "logs.example.org"), (client, "spark-7.example.org")):
        issued = authority.issue_cert(host, common_name=host)
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    return ca, server, client
