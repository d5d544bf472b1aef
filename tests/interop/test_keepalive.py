"""A consumer that takes 12 s for a window: v2 senders see keepalives and do not time out."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pylogbeat
import pytest

from ackline import lumberjack

HOLD = 12.0
KEEPALIVE = b"2A\0\0\0\0"


@pytest.fixture
def slow() -> Iterator[lumberjack.Listener]:
    """Acknowledge each window `HOLD` seconds after it arrived."""
    stopped = threading.Event()

    def consume(listener: lumberjack.Listener) -> None:
        for window in listener:
            # The consumer is busy: it neither reads nor acknowledges.
            stopped.wait(HOLD)
            window.ack()

    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        consumer = threading.Thread(target=consume, args=(listener,))
        consumer.start()
        yield listener
        stopped.set()
        listener.close()
        consumer.join(20)
        assert not consumer.is_alive()


def port_of(listener: lumberjack.Listener) -> int:
    return int(listener.url.rsplit(":", 1)[1])


@pytest.mark.alone
def test_a_v2_sender_sees_keepalives_until_the_ack(slow: lumberjack.Listener) -> None:
    payload = b'{"m":1}'
    window = b"2W\0\0\0\1" + b"2J" + struct.pack(">II", 7, len(payload)) + payload
    with socket.create_connection(("127.0.0.1", port_of(slow)), timeout=5) as peer:
        started = time.monotonic()
        peer.sendall(window)
        frames: list[tuple[float, bytes]] = []
        while not frames or frames[-1][1] == KEEPALIVE:
            frame = b""
            while len(frame) < 6:
                piece = peer.recv(6 - len(frame))  # the socket's 5 s would end a silent wait
                assert piece
                frame += piece
            frames.append((time.monotonic() - started, frame))
    assert frames[-1][1] == b"2A" + struct.pack(">I", 7)
    assert frames[-1][0] >= HOLD - 0.1
    assert 3 <= len(frames) - 1 <= 4


def test_a_v1_sender_sees_nothing_but_its_ack(slow: lumberjack.Listener) -> None:
    pair = struct.pack(">I", 1) + b"k" + struct.pack(">I", 1) + b"v"
    window = b"1W\0\0\0\1" + b"1D" + struct.pack(">II", 9, 1) + pair
    with socket.create_connection(("127.0.0.1", port_of(slow)), timeout=30) as peer:
        peer.sendall(window)
        started = time.monotonic()
        assert peer.recv(6) == b"1A" + struct.pack(">I", 9)
        assert time.monotonic() - started >= HOLD - 1


def test_pylogbeat_waits_with_a_timeout_of_five_seconds(slow: lumberjack.Listener) -> None:
    started = time.monotonic()
    with pylogbeat.PyLogBeatClient("127.0.0.1", port_of(slow), timeout=5) as client:
        client.send([{"message": "slowly"}])
    assert time.monotonic() - started >= HOLD - 0.1
