"""Addresses that hold the memory with very slow windows, and a good sender."""

import contextlib
import threading
import time
from pathlib import Path

import harness
import pytest
import wire

ADDRESSES = 8
EVENT = b'{"m":"' + b"x" * 15_000 + b'"}'

FIRST = 400_000
"""Bytes that each hostile sender delivers before any of them sends more: all of them fit."""


class Dripping(threading.Thread):
    """Begins a window of 4 MB, goes on with so many bytes a second, and begins again."""

    def __init__(self, port: int, source: str, rate: int, may_fill: threading.Event) -> None:
        """Begins at once; sends more than the first bytes when it may fill the memory."""
        super().__init__(daemon=True)
        self._place = (port, source)
        self._rate = rate
        self._may_fill = may_fill
        self.has_begun = threading.Event()
        self.goes_on = True
        self.ended = 0
        self.start()

    def run(self) -> None:
        """Drips until it is told to stop."""
        while self.goes_on:
            try:
                self._drip()
            except OSError:
                self.ended += 1
                time.sleep(0.1)

    def _drip(self) -> None:
        with wire.connected(*self._place) as peer:
            peer.settimeout(0.3)
            frames = b"".join(wire.j2(sequence, EVENT) for sequence in range(1, 290))
            left = memoryview(wire.w2(65_536) + frames)
            if not self._may_fill.is_set():
                peer.sendall(left[:FIRST])
                left = left[FIRST:]
                self.has_begun.set()
                self._may_fill.wait()
            # The receiver is full when no more goes.
            with contextlib.suppress(TimeoutError):
                while len(left) > 300_000:
                    left = left[peer.send(left[:100_000]) :]
            while self.goes_on and left:
                with contextlib.suppress(TimeoutError):
                    left = left[peer.send(left[: self._rate // 4]) :]
                time.sleep(0.25)


def has_read(port: int, connections: int) -> bool:
    """Whether the receiver has read every byte that was sent on its so many connections."""
    unread = []
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues, *_ = row.split()
        unsent, received = queues.split(":")
        if state == "01" and local.endswith(f":{port:04X}"):
            unread.append(int(received, 16))
        elif state == "01" and remote.endswith(f":{port:04X}"):
            unread.append(int(unsent, 16))
    return len(unread) == 2 * connections and not any(unread)


def hostile_senders(port: int, rate: int) -> list[Dripping]:
    """Hostile senders that fill the memory, each of which has held some of it."""
    may_fill = threading.Event()
    dripping = [Dripping(port, f"127.0.1.{n}", rate, may_fill) for n in range(ADDRESSES)]
    deadline = time.monotonic() + 10
    assert all(peer.has_begun.wait(10) for peer in dripping)
    while not has_read(port, ADDRESSES):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    may_fill.set()
    return dripping


@pytest.mark.alone
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rate", "options", "seconds"),
    [
        # All hostile senders hold memory before the good one begins. So it has held the least, and
        # waits for one set of them. (A sender that has held nothing and began to wait before the
        # good one is its equal and goes first, for one set.) A set is ended after 5 s without
        # progress, which are measured in steps of a quarter: after 7.5 s at the latest, or after
        # 4.5 s with the option. The rest is the machine's.
        (500, (), 9),
        (2_000, (), 9),
        (500, ("--frame-timeout", "3s"), 6),
    ],
)
def test_large_windows_of_a_good_sender_come_through(
    rate: int, options: tuple[str, ...], seconds: float, tmp_path: Path
) -> None:
    with harness.Receiver(tmp_path, "--memory", "16MiB", *options) as receiver:
        port = receiver.port("lumberjack")
        window = wire.window([EVENT] * 20)
        dripping = hostile_senders(port, rate)
        time.sleep(1)
        took, ended = [], None
        end = time.monotonic() + 25
        try:
            with wire.connected(port, "127.0.0.1", timeout=60) as good:
                while time.monotonic() < end:
                    begun = time.monotonic()
                    good.sendall(window)
                    while wire.received(good, 6) != b"2A\0\0\0\x14":
                        pass  # It gets keepalives.
                    took.append(time.monotonic() - begun)
                    time.sleep(0.02)
        except (OSError, EOFError) as error:
            ended = (error, took, receiver.told("refused"))
        for peer in dripping:
            peer.goes_on = False
        for peer in dripping:
            peer.join(10)
        assert ended is None, ended
        assert max(took) < seconds, took
        codes = {line["code"] for line in receiver.told("refused")}
        assert "link.slow" in codes
