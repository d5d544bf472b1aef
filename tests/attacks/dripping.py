"""Addresses that fill the memory with messages or windows, and go on with them very slowly."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import wire

ADDRESSES = 8

FIRST = 400_000
"""Bytes that each hostile sender delivers before any of them sends more: all of them fit."""


class Dripping(threading.Thread):
    """Begins something of some MB, goes on with so many bytes a second, and begins again."""

    def __init__(
        self,
        place: tuple[int, str],
        rate: int,
        begin: Callable[[socket.socket], bytes],
        may_fill: threading.Event,
    ) -> None:
        """Begins at once; sends more than the first bytes when it may fill the memory.

        Args:
            place: The port of the attacked process, and the address to connect from.
            rate: Bytes a second, once the memory is full.
            begin: Begins the protocol on a connection; returns the bytes that are sent then.
            may_fill: Set when every hostile sender has delivered its first bytes.
        """
        super().__init__(daemon=True)
        self._place = place
        self._rate = rate
        self._begin = begin
        self._may_fill = may_fill
        self.has_begun = threading.Event()
        self.goes_on = True
        self.start()

    def run(self) -> None:
        """Drips until it is told to stop."""
        while self.goes_on:
            try:
                self._drip()
            except (OSError, EOFError):
                time.sleep(0.1)

    def _drip(self) -> None:
        with wire.connected(*self._place) as peer:
            left = memoryview(self._begin(peer))
            peer.settimeout(0.3)
            if not self._may_fill.is_set():
                peer.sendall(left[:FIRST])
                left = left[FIRST:]
                self.has_begun.set()
                self._may_fill.wait()
            # The attacked process is full when no more goes.
            with contextlib.suppress(TimeoutError):
                while len(left) > 300_000:
                    left = left[peer.send(left[:100_000]) :]
            while self.goes_on and left:
                with contextlib.suppress(TimeoutError):
                    left = left[peer.send(left[: self._rate // 4]) :]
                time.sleep(0.25)


def has_read(port: int, connections: int) -> bool:
    """Whether the process has read every byte that was sent on its so many connections."""
    unread = []
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues, *_ = row.split()
        unsent, received = queues.split(":")
        if state == "01" and local.endswith(f":{port:04X}"):
            unread.append(int(received, 16))
        elif state == "01" and remote.endswith(f":{port:04X}"):
            unread.append(int(unsent, 16))
    return len(unread) == 2 * connections and not any(unread)


@contextlib.contextmanager
def hostile_senders(
    port: int, rate: int, begin: Callable[[socket.socket], bytes], others: int = 0
) -> Iterator[None]:
    """Hostile senders that fill the memory, each of which has held some of it.

    Args:
        port: The port of the attacked process.
        rate: Bytes a second of each of them, once the memory is full.
        begin: As that of `Dripping`.
        others: Connections of others at that port.
    """
    may_fill = threading.Event()
    dripping = [Dripping((port, f"127.0.1.{n}"), rate, begin, may_fill) for n in range(ADDRESSES)]
    deadline = time.monotonic() + 10
    assert all(peer.has_begun.wait(10) for peer in dripping)
    while not has_read(port, ADDRESSES + others):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    may_fill.set()
    try:
        yield
    finally:
        for peer in dripping:
            peer.goes_on = False
        for peer in dripping:
            peer.join(10)
