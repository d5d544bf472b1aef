"""Hostile receivers at our writer: unearned acks, floods, silence, foreign frames.

The writer ends that connection, makes another one and sends unacknowledged events again: every
event arrives, and memory and time stay small: every test is in the fixture `small`.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from imitation import Answer, Imitation, read_window
from wire import KEEPALIVE, ack, json_frame, window

from ackline import lumberjack

# The memory and the time of the test's own process are measured.
pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("small")]
Imitate = Callable[[Answer], Imitation]
SENT = [b'{"n":%d}' % n for n in range(5)]
BAD = {
    "never sent": lambda _: ack(6),
    "far beyond": lambda _: ack(0xFFFFFFFF),
    "of the other version": lambda _: ack(5, b"1"),
    "twice": lambda numbers: ack(numbers[-1]) * 2,
    "a frame of a sender": lambda _: window(1) + json_frame(1),
    "an envelope of 4 GB": lambda _: b"2C\xff\xff\xff\xff",
    "http": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "tls alert": lambda _: b"\x15\x03\x03\x00\x02\x02\x28",
    "nothing, then the end": lambda _: b"",
}


def windows_of_one_that_misbehaves_first(
    imitate: Imitate, first: Answer, *sent: list[bytes]
) -> list[list[bytes]]:
    """The windows at a receiver that answers the first one so, and all others by the rules."""
    misbehaved = threading.Event()

    def answer(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
        if misbehaved.is_set():
            peer.sendall(ack(numbers[-1], version))
            return
        misbehaved.set()
        first(peer, version, numbers)

    server = imitate(answer)
    with lumberjack.connect(server.url, backoff_min=0.01, backoff_max=0.1) as writer:
        for events in sent:
            writer.send(events, timeout=20)
    return server.windows


@pytest.mark.parametrize("bad", BAD)
def test_events_without_a_valid_ack_are_sent_again(imitate: Imitate, bad: str) -> None:
    last = [b'{"n":"last"}']

    def badly(peer: socket.socket, _: bytes, numbers: list[int]) -> None:
        peer.sendall(BAD[bad](numbers))
        peer.shutdown(socket.SHUT_WR)

    again = 1 if bad == "twice" else 2
    windows = windows_of_one_that_misbehaves_first(imitate, badly, SENT, last)
    assert windows == [SENT] * again + [last]


def test_a_part_that_was_acknowledged_before_the_end_is_not_sent_again(imitate: Imitate) -> None:
    """NiFi acknowledges the events that its queue took, and drops the rest."""

    def in_part(peer: socket.socket, version: bytes, _: list[int]) -> None:
        peer.sendall(ack(2, version))
        peer.shutdown(socket.SHUT_RDWR)

    windows = windows_of_one_that_misbehaves_first(imitate, in_part, SENT)
    assert windows == [SENT, SENT[2:]]


def test_a_receiver_that_never_acknowledges_is_left_in_spite_of_its_keepalives(
    imitate: Imitate,
) -> None:
    over = threading.Event()
    connections = []

    def answer(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
        connections.append(peer)
        while len(connections) < 3 and not over.wait(0.05):
            peer.sendall(KEEPALIVE)
        peer.sendall(ack(numbers[-1], version))

    server = imitate(answer)
    started = time.monotonic()
    with lumberjack.connect(
        server.url, progress_timeout=2, backoff_min=0.01, backoff_max=0.1
    ) as writer:
        writer.send(SENT, timeout=40)
    over.set()
    assert 4 <= time.monotonic() - started < 60
    assert server.windows == [SENT] * 3


def test_a_storm_of_keepalives_costs_no_memory(imitate: Imitate) -> None:
    def answer(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
        for _ in range(200):
            peer.sendall(KEEPALIVE * 10_000)  # 12 MB in all
        peer.sendall(ack(numbers[-1], version))

    server = imitate(answer)
    with lumberjack.connect(server.url) as writer:
        writer.send(SENT, timeout=60)
    assert server.windows == [SENT]


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A listener that nobody serves yet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def test_both_sides_write_before_they_read(
    deaf: socket.socket, small: Callable[[int], None]
) -> None:
    # The server says a megabyte of keepalives before it reads the first of 40 MB.
    large = [b'"' + b"x" * 1_000_000 + b'"' for _ in range(40)]
    taken: list[bytes] = []
    small(2 * 40_000_000)

    def serve() -> None:
        peer, _ = deaf.accept()
        with peer:
            peer.settimeout(30)
            peer.sendall(KEEPALIVE * 200_000)
            while len(taken) < len(large):
                version, numbers, payloads = read_window(peer)
                taken.extend(payloads)
                peer.sendall(KEEPALIVE * 1_000 + ack(numbers[-1], version))

    server = threading.Thread(target=serve)
    server.start()
    url = f"lumberjack://127.0.0.1:{deaf.getsockname()[1]}"
    with lumberjack.connect(url, compression=0, batch_events=2) as writer:
        writer.send(large, timeout=60)
    server.join(10)
    assert taken == large


def test_a_receiver_that_takes_the_connection_and_nothing_else_is_left(
    deaf: socket.socket, small: Callable[[int], None]
) -> None:
    # More than the system's buffers hold: the writer waits in the middle of a write.
    large = [b'"' + bytes([97 + n]) * 4_000_000 + b'"' for n in range(8)]
    taken: list[bytes] = []
    small(2 * 32_000_000)

    def serve() -> None:
        silent, _ = deaf.accept()
        peer, _ = deaf.accept()
        with silent, peer:
            peer.settimeout(30)
            while len(taken) < len(large):
                version, numbers, payloads = read_window(peer)
                taken.extend(payloads)
                peer.sendall(ack(numbers[-1], version))

    server = threading.Thread(target=serve)
    server.start()
    url = f"lumberjack://127.0.0.1:{deaf.getsockname()[1]}"
    with lumberjack.connect(
        url, compression=0, batch_events=1, read_timeout=5, backoff_min=0.01, backoff_max=0.1
    ) as writer:
        writer.send(large, timeout=60)
    server.join(10)
    assert taken == large


@pytest.mark.parametrize("cut", range(0, 13, 3))
def test_a_reset_at_any_byte_of_the_answers(imitate: Imitate, cut: int) -> None:
    misbehaved = threading.Event()

    def answer(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
        whole = KEEPALIVE + ack(numbers[-1], version)
        if misbehaved.is_set():
            peer.sendall(whole)
            return
        misbehaved.set()
        peer.sendall(whole[:cut])
        if cut < len(whole):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()

    server = imitate(answer)
    with lumberjack.connect(server.url, backoff_min=0.01, backoff_max=0.1) as writer:
        writer.send(SENT, timeout=20)
    assert server.windows == [SENT] * (1 if cut == 12 else 2)


def test_a_slow_receiver_keeps_the_buffer_in_its_bounds(receive: Any, spool: Path) -> None:
    receiver = receive("--spool", str(spool), "--budget", "1MiB", "--segment-bytes", "256KiB")
    with lumberjack.connect(
        f"lumberjack://127.0.0.1:{receiver.port}",
        compression=0, buffer_bytes=2 << 20, buffer_events=100,
    ) as writer:  # fmt: skip
        accepted = 0
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if writer.try_send([b'"' + b"y" * 50_000 + b'"']) is None:
                break
            accepted += 1
        assert 20 <= accepted <= 100
        rest = writer.close(timeout=0.2)
    assert len(rest) <= accepted
