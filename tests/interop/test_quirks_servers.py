"""Answers of deployed servers: table 1.3 of the reading notes, imitated byte by byte.

go-lumber, ferro-lumberjack and Camel run for real in `test_peer_servers.py`.
"""

import socket
import threading
import time
from collections.abc import Callable

import pytest
from imitation import Answer, Imitation
from wire import KEEPALIVE, ack

from ackline import lumberjack


def logstash(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """Keepalives of version 2, to version 1 too, then the highest number."""
    for _ in range(3):
        peer.sendall(KEEPALIVE)
        time.sleep(0.02)
    peer.sendall(ack(max(numbers), version))


def go_lumber(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """The number of events."""
    peer.sendall(ack(len(numbers), version))


def vector(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """The last number, after the sink is done, and no keepalive meanwhile."""
    time.sleep(0.5)
    peer.sendall(ack(numbers[-1], version))


def graylog(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """Only a number that is the window's size."""
    for number in numbers:
        if number == len(numbers):
            peer.sendall(ack(number, version))


def old_jls(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """Version 1: first number and size less 1. Version 2: every fifth part, and the last."""
    if version == b"1":
        peer.sendall(ack(numbers[0] + len(numbers) - 1, version))
        return
    for number in numbers[: -1 : max(1, len(numbers) // 5)]:
        peer.sendall(ack(number, version))
    peer.sendall(ack(numbers[-1], version))


def in_pieces(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """A keepalive and the ack, one byte at a time."""
    for byte in KEEPALIVE + ack(numbers[-1], version):
        peer.sendall(bytes([byte]))
        time.sleep(0.005)


def repeating(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """Each number on the way, keepalives between."""
    for number in numbers:
        peer.sendall((ack(number, version) + KEEPALIVE) * 2)


@pytest.mark.parametrize("answer", [logstash, go_lumber, vector, graylog, old_jls, in_pieces])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("compression", [0, 3])
def test_each_of_their_answers_is_understood(
    imitate: Callable[[Answer], Imitation], answer: Answer, version: int, compression: int
) -> None:
    server = imitate(answer)
    sent = [b'{"n":%d}' % n for n in range(25)]
    with lumberjack.connect(
        server.url, version=version, compression=compression, batch_events=10
    ) as writer:
        # Two sends: a server that counts is not misled by earlier windows.
        writer.send(sent[:13], timeout=10)
        assert len(server.windows) == 2
        writer.send(sent[13:], timeout=10)
    assert [payload for window in server.windows for payload in window] == sent


def test_a_server_that_counts_is_understood_where_numbers_go_on_and_on(
    imitate: Callable[[Answer], Imitation],
) -> None:
    seen: list[list[int]] = []

    def counting(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
        seen.append(numbers)
        go_lumber(peer, version, numbers)

    server = imitate(counting)
    sent = [b'{"n":%d}' % n for n in range(25)]
    options = {"cumulative": True, "accept_count_acks": True}
    with lumberjack.connect(server.url, batch_events=10, **options) as writer:
        writer.send(sent, timeout=10)
        assert writer.stats()["possible_repeats"] == 0
    assert seen == [list(range(1, 11)), list(range(11, 21)), list(range(21, 26))]
    assert [payload for window in server.windows for payload in window] == sent


def test_numbers_on_the_way_complete_nothing(
    imitate: Callable[[Answer], Imitation],
) -> None:
    gate = threading.Event()

    def nearly(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
        repeating(peer, version, numbers[:-1])
        gate.wait(10)
        peer.sendall(ack(numbers[-1], version))

    server = imitate(nearly)
    done = threading.Event()
    with lumberjack.connect(server.url) as writer:

        def send() -> None:
            writer.send([b"{}"] * 9, timeout=10)
            done.set()

        sender = threading.Thread(target=send)
        sender.start()
        assert not done.wait(0.5)
        gate.set()
        assert done.wait(5)
        sender.join(5)
