"""The receiver of the release that writes the golden spools, and senders to it."""

import json
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ackline import lumberjack

DEADLINE = 30.0
LUMBERJACK = "lumberjack://127.0.0.1:0"

Payload = bytes | list[bytes]
"""The payload of an event: its bytes, or its parts."""


class Running:
    """`ackline receive`, started from the outside."""

    def __init__(self, spool: Path, *options: str, urls: tuple[str, ...] = (LUMBERJACK,)) -> None:
        command = [sys.executable, "-m", "ackline.cli", "receive", *urls, "--json"]
        command += ["--spool", str(spool), "--budget", "1MiB", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.urls: list[str] = self.next("listening")["urls"]
        self.url = self.urls[0] if self.urls else ""

    def next(self, event: str) -> dict[str, Any]:
        for text in self.process.stdout or ():
            line: dict[str, Any] = json.loads(text)
            if line["event"] == event:
                return line
        raise AssertionError(f"no {event}")

    def stop(self) -> None:
        """Ends it in good order: segments get their footer."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == 0, self.process.returncode

    def kill(self) -> None:
        """Ends it at once: the last segment has no footer."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE)


@contextmanager
def running(spool: Path, *options: str, urls: tuple[str, ...] = (LUMBERJACK,)) -> Iterator[Running]:
    """A receiver that is stopped in the end; killed, if anything fails."""
    receiver = Running(spool, *options, urls=urls)
    try:
        yield receiver
        receiver.stop()
    finally:
        if receiver.process.poll() is None:
            receiver.kill()


@contextmanager
def killed(spool: Path, *options: str, urls: tuple[str, ...] = (LUMBERJACK,)) -> Iterator[Running]:
    """A receiver that is killed in the end."""
    receiver = Running(spool, *options, urls=urls)
    try:
        yield receiver
    finally:
        receiver.kill()


def send(receiver: Running, *windows: list[Payload], **options: Any) -> None:
    """Sends windows, each on a connection of its own and acknowledged: so each is a group."""
    for window in windows:
        events = [
            list(zip(one[::2], one[1::2], strict=True)) if isinstance(one, list) else one
            for one in window
        ]
        with lumberjack.connect(receiver.url, **options) as writer:
            writer.send(events, timeout=DEADLINE)


class Raw:
    """A Lumberjack connection whose frames are made here."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("lumberjack://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE)

    def window(self, events: list[bytes], frames: bytes | None = None) -> None:
        if frames is None:
            frames = b"".join(map(json_frame, range(1, 1 + len(events)), events))
        self.socket.sendall(b"2W" + struct.pack(">I", len(events)) + frames)

    def acknowledged(self, number: int) -> None:
        while (frame := self.socket.recv(6, socket.MSG_WAITALL)) == b"2A\0\0\0\0":
            pass
        assert frame == b"2A" + struct.pack(">I", number), frame

    def close(self) -> None:
        self.socket.close()


def json_frame(number: int, event: bytes) -> bytes:
    return b"2J" + struct.pack(">II", number, len(event)) + event


def envelope(deflated: bytes) -> bytes:
    return b"2C" + struct.pack(">I", len(deflated)) + deflated
