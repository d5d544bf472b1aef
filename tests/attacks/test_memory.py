"""Addresses that hold the memory with very slow windows, and a good sender."""

import socket
import time
from pathlib import Path

import harness
import pytest
import wire
from dripping import hostile_senders

EVENT = b'{"m":"' + b"x" * 15_000 + b'"}'


def window_of_4_mb(_: socket.socket) -> bytes:
    """The bytes of a window that goes on."""
    return wire.w2(65_536) + b"".join(wire.j2(sequence, EVENT) for sequence in range(1, 290))


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
        took, ended = [], None
        with hostile_senders(port, rate, window_of_4_mb):
            time.sleep(1)
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
        assert ended is None, ended
        assert max(took) < seconds, took
        codes = {line["code"] for line in receiver.told("refused")}
        assert "link.slow" in codes
