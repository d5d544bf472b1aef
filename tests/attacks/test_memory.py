"""Addresses that hold the memory with very slow windows, and a good sender."""

import contextlib
import itertools
import threading
import time
from pathlib import Path

import harness
import pytest
import wire

ADDRESSES = 8
SETS = 3
EVENT = b'{"m":"' + b"x" * 15_000 + b'"}'


class Dripping(threading.Thread):
    """Begins a window of 4 MB, goes on with so many bytes a second, and begins again."""

    def __init__(self, port: int, source: str, rate: int) -> None:
        """Begins at once."""
        super().__init__(daemon=True)
        self._place = (port, source)
        self._rate = rate
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
            # The receiver is full when no more goes.
            with contextlib.suppress(TimeoutError):
                while len(left) > 300_000:
                    left = left[peer.send(left[:100_000]) :]
            while self.goes_on and left:
                with contextlib.suppress(TimeoutError):
                    left = left[peer.send(left[: self._rate // 4]) :]
                time.sleep(0.25)


class Ends(threading.Thread):
    """Notes when sets of connections are ended; ends within a second and a half are one set."""

    def __init__(self, receiver: harness.Receiver) -> None:
        """Begins at once."""
        super().__init__(daemon=True)
        self._receiver = receiver
        self.goes_on = True
        self.seen: list[float] = []
        self.start()

    def run(self) -> None:
        """Looks until it is told to stop."""
        known = 0
        while self.goes_on:
            count, now = len(self._receiver.told("refused")), time.monotonic()
            if count > known and (not self.seen or now - self.seen[-1] > 1.5):
                self.seen.append(now)
            known = count
            time.sleep(0.05)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rate", "options", "seconds"),
    [
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
        ends = Ends(receiver)
        dripping = [Dripping(port, f"127.0.1.{n}", rate) for n in range(ADDRESSES)]
        time.sleep(1)
        waits, ended = [], None
        end = time.monotonic() + 25
        try:
            with wire.connected(port, "127.0.0.1", timeout=60) as good:
                while time.monotonic() < end:
                    begun = time.monotonic()
                    good.sendall(window)
                    while wire.received(good, 6) != b"2A\0\0\0\x14":
                        pass  # It gets keepalives.
                    waits.append((begun, time.monotonic()))
                    time.sleep(0.02)
        except (OSError, EOFError) as error:
            ended = (error, waits, receiver.told("refused"))
        for peer in dripping:
            peer.goes_on = False
        for peer in dripping:
            peer.join(10)
        assert ended is None, ended
        ends.goes_on = False
        ends.join(10)
        # Each set of holders is ended in time, and the queue keeps its order: of eight addresses
        # three fill the memory at a time, so the good sender is at most behind three sets.
        for begun, done in waits:
            sets = [at for at in ends.seen if begun <= at <= done]
            assert len(sets) <= SETS, (begun, done, ends.seen)
            moments = [begun, *sets, done]
            assert max(b - a for a, b in itertools.pairwise(moments)) < seconds
        codes = {line["code"] for line in receiver.told("refused")}
        assert "link.slow" in codes
