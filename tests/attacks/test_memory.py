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


@pytest.mark.alone
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rate", "options", "seconds"),
    [
        # The good sender has held the least, so it waits for one set of hostile senders. A set is
        # ended after 5 s without progress, which are measured in steps of a quarter: after 7.5 s
        # at the latest, or after 4.5 s with the option. The rest is the machine's.
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
        dripping = [Dripping(port, f"127.0.1.{n}", rate) for n in range(ADDRESSES)]
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
