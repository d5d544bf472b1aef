"""Quirks of deployed senders that no specification names: tables 1.2 and 1.4 of the notes.

Senders that can be run here have tests of their own; those that cannot are imitated, byte by byte.
The table in `README.md` names the test of each quirk.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import wire
from wire import ack, data_frame, envelope, json_frame, window

from ackline import lumberjack

Receive = Callable[..., Any]
EventsOf = Callable[[Path], list[dict[str, Any]]]
MAX = 0xFFFFFFFF
V1 = b"1"


class Row(NamedTuple):
    """One line of table 1.4: bytes sent, bytes back, the events that land."""

    name: str
    sent: list[bytes]
    back: bytes
    landed: int


MATRIX = [
    Row(
        "09 v1 numbers go on from window to window",
        [window(3, V1) + b"".join(data_frame(n) for n in (101, 102, 103))],
        *(ack(103, V1), 3),
    ),
    Row(
        "10 v2 numbers go on from window to window",
        [window(3) + b"".join(json_frame(n) for n in (4, 5, 6))],
        *(ack(6), 3),
    ),
    Row("11 an empty window", [window(0)], ack(0), 0),
    Row(
        "12 two windows at once",
        [window(2) + json_frame(1) + json_frame(2) + window(1) + json_frame(1)],
        *(ack(2) + ack(1), 3),
    ),
    Row(
        "13 an envelope and a plain frame fill one window",
        [window(3) + envelope(json_frame(1) + json_frame(2)) + json_frame(3)],
        *(ack(3), 3),
    ),
    Row("14 the window in the envelope", [envelope(window(1) + json_frame(1))], ack(1), 1),
    Row(
        "15 jls in its JSON mode: J under version 1",
        [window(1, V1) + json_frame(1, version=V1)],
        *(ack(1, V1), 1),
    ),
    Row(
        "16 the dialect of Graylog: D under version 2",
        [window(2) + data_frame(1, version=b"2") + data_frame(2, version=b"2")],
        *(ack(2), 2),
    ),
    Row(
        "17 numbers roll over",
        [window(3) + b"".join(json_frame(n) for n in (MAX, 0, 1))],
        *(ack(1), 3),
    ),
    Row(
        "18 one window announced, five events sent, 1",
        [window(2, V1) + b"".join(data_frame(n) for n in (1, 2, 3, 4, 5))],
        *(ack(2, V1) + ack(4, V1) + ack(5, V1), 5),
    ),
    Row("19 a gap", [window(2) + json_frame(1) + json_frame(7)], ack(7), 2),
    Row("a number twice is acknowledged once", [window(2) + json_frame(1) * 2], ack(1), 2),
    Row("an array is one event", [window(1) + json_frame(1, b"[1,2]")], ack(1), 1),
    Row("a scalar is an event", [window(1) + json_frame(1, b'"text"')], ack(1), 1),
    Row("no pairs", [window(1, V1) + data_frame(1, [])], ack(1, V1), 1),
    Row(
        "a plain frame of version 1 in two reads",
        [(window(1, V1) + data_frame(1))[:17], (window(1, V1) + data_frame(1))[17:]],
        *(ack(1, V1), 1),
    ),
    Row("an event before any window", [json_frame(9)], ack(9), 1),
    Row(
        "pylogbeat writes W by itself, then C in pieces",
        [window(1), envelope(json_frame(1))[:20], envelope(json_frame(1))[20:]],
        *(ack(1), 1),
    ),
]


def test_the_matrix_of_bytes_sent_and_bytes_back(
    receive: Receive, spool: Path, events_of: EventsOf
) -> None:
    receiver = receive("--spool", str(spool), "--tail-idle", "0.2")
    landed = 0
    for row in MATRIX:
        with wire.connect(receiver.port) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in row.sent[:-1]:
                peer.sendall(piece)
                assert wire.is_silent(peer, 0.05), row.name
            peer.sendall(row.sent[-1])
            assert wire.take(peer, len(row.back)) == row.back, row.name
            assert wire.is_silent(peer, 0.05), row.name
        landed += row.landed
    assert not receiver.seen("refused")
    events = events_of(spool)
    assert len(events) == landed
    payloads = [event.get("payload") for event in events]
    assert payloads.count("[1,2]") == payloads.count('"text"') == 1


def test_an_idle_connection_ends_in_order_and_not_with_a_reset(receive: Receive) -> None:
    receiver = receive("--discard", "--idle-timeout", "0.5")
    with wire.connect(receiver.port) as peer:
        peer.sendall(window(1) + json_frame(1))
        assert wire.take(peer, 6) == ack(1)
        assert peer.recv(1) == b""  # a reset would raise
    assert not receiver.seen("refused")


class Held:
    """A consumer that acknowledges when it is told to."""

    def __init__(self, **options: Any) -> None:
        self.listener = lumberjack.listen("lumberjack://127.0.0.1:0", **options)
        self.port = int(self.listener.url.rsplit(":", 1)[1])
        self.go = threading.Event()
        self.payloads: list[Any] = []
        self._consumer = threading.Thread(target=self._consume)
        self._consumer.start()

    def _consume(self) -> None:
        for each in self.listener:
            self.go.wait(20)
            self.payloads.extend(each.events)
            each.ack()

    def stop(self) -> None:
        self.go.set()
        self.listener.close()
        self._consumer.join(20)
        assert not self._consumer.is_alive()


@pytest.fixture
def held() -> Iterator[Callable[..., Held]]:
    started: list[Held] = []

    def start(**options: Any) -> Held:
        started.append(Held(**options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def test_logstash_forwarder_takes_any_six_bytes_for_its_ack(held: Callable[..., Held]) -> None:
    consumer = held(keepalive=0.1)
    number = 0
    with wire.connect(consumer.port) as peer:
        for spooled in (3, 1, 2):
            consumer.go.clear()
            frames = [data_frame(number + n + 1, [(b"line", b"%d" % n)]) for n in range(spooled)]
            number += spooled
            peer.sendall(window(spooled, V1) + envelope(b"".join(frames), V1))
            # This sender forgets the window at the first six bytes: none may come before the ack.
            assert wire.is_silent(peer, 0.4)
            consumer.go.set()
            assert wire.take(peer, 6) == ack(number, V1)
            assert wire.is_silent(peer, 0.3)
    assert len(consumer.payloads) == 6


@pytest.mark.parametrize("mode", ["data", "json"])
def test_jls_reads_one_ack_for_a_window(held: Callable[..., Held], mode: str) -> None:
    consumer = held(keepalive=0.1)
    # The sender's numbers go on for the life of the socket, from 2^32-1 to 1.
    numbers = [MAX - 2, MAX - 1, MAX, 1, 2, 3]
    with wire.connect(consumer.port) as peer:
        for first in (0, 2, 4):
            consumer.go.clear()
            two = numbers[first : first + 2]
            frames = (
                [json_frame(n, b'{"n":%d}' % n, V1) for n in two]
                if mode == "json"
                else [data_frame(n) for n in two]
            )
            peer.sendall(window(2, V1) + envelope(b"".join(frames), V1))
            assert wire.is_silent(peer, 0.3)
            consumer.go.set()
            assert wire.take(peer, 6) == ack(two[-1], V1)
    assert len(consumer.payloads) == 6


def test_keepalives_can_be_turned_off_for_ferro(held: Callable[..., Held]) -> None:
    # This client reads one ack and fails at a keepalive.
    consumer = held(keepalive=None)
    with wire.connect(consumer.port) as peer:
        peer.sendall(window(1) + json_frame(1))
        assert wire.is_silent(peer, 4)
        consumer.go.set()
        assert wire.take(peer, 6) == ack(1)


def test_numbers_that_wrap_in_the_middle_of_a_client_s_life(
    receive: Receive, spool: Path, events_of: EventsOf
) -> None:
    receiver = receive("--spool", str(spool))
    number = MAX - 5
    with wire.connect(receiver.port) as peer:
        for _ in range(6):
            numbers = [(number + n) % (MAX + 1) for n in range(3)]
            frames = [json_frame(n, json.dumps({"n": n}).encode()) for n in numbers]
            peer.sendall(window(3) + envelope(b"".join(frames)))
            assert wire.take(peer, 6) == ack(numbers[-1])
            number += 3
    assert [event["sequence"] for event in events_of(spool)] == [
        n % (MAX + 1) for n in range(MAX - 5, MAX + 13)
    ]


def test_beats_has_three_windows_in_flight_and_each_is_acknowledged_in_order(
    held: Callable[..., Held],
) -> None:
    consumer = held(keepalive=0.2)
    with wire.connect(consumer.port) as peer:
        for size in (3, 1, 2):
            frames = [json_frame(n + 1) for n in range(size)]
            peer.sendall(window(size) + envelope(b"".join(frames)))
        assert wire.take(peer, 6) == wire.KEEPALIVE
        consumer.go.set()
        frames = []
        while len(frames) < 3:
            if (frame := wire.take(peer, 6)) != wire.KEEPALIVE:
                frames.append(frame)
        # No parts of windows: this sender forgets its progress when the connection breaks.
        assert frames == [ack(3), ack(1), ack(2)]
        assert wire.is_silent(peer, 0.5)
