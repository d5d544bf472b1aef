"""What deployed servers answer: table 1.3 of the reading notes, imitated byte by byte.

go-lumber, ferro-lumberjack and Camel run for real in `test_peer_servers.py`.
"""

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator

import pytest
import wire
from wire import KEEPALIVE, ack

from ackline import lumberjack

Answer = Callable[[socket.socket, bytes, list[int]], None]


class Imitation:
    """A server: it reads whole windows and lets `answer` write what it likes."""

    def __init__(self, answer: Answer) -> None:
        self.windows: list[list[bytes]] = []
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"lumberjack://127.0.0.1:{self._server.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._threads.append(threading.Thread(target=self._serve, args=(peer,), daemon=True))
            self._threads[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                while True:
                    version, numbers, payloads = read_window(peer)
                    self.windows.append(payloads)
                    self._answer(peer, version, numbers)
            except (AssertionError, OSError):
                return  # the client has gone

    def stop(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(5)


def read_window(peer: socket.socket) -> tuple[bytes, list[int], list[bytes]]:
    """A window as our writer sends it: `W`, then one `C` or bare frames."""
    head = wire.take(peer, 6)
    version, count = head[:1], struct.unpack(">I", head[2:])[0]
    assert head[1:2] == b"W"
    frames = Frames(peer)
    head = wire.take(peer, 2)
    if head == version + b"C":
        length = struct.unpack(">I", wire.take(peer, 4))[0]
        frames = Frames(zlib.decompress(wire.take(peer, length)))
        head = frames.take(2)
    numbers, payloads = [], []
    for left in reversed(range(count)):
        number, size = struct.unpack(">II", frames.take(8))
        numbers.append(number)
        if head == version + b"J":
            payloads.append(frames.take(size))
        else:
            assert head == version + b"D"
            fields = [frames.take(struct.unpack(">I", frames.take(4))[0]) for _ in range(2 * size)]
            payloads.append(b"=".join(fields))
        head = frames.take(2) if left else b""
    assert frames.rest() == b""
    return version, numbers, payloads


class Frames:
    """Bytes from a socket or from memory."""

    def __init__(self, source: socket.socket | bytes) -> None:
        self._source = source

    def take(self, count: int) -> bytes:
        if isinstance(self._source, socket.socket):
            return wire.take(self._source, count)
        taken, self._source = self._source[:count], self._source[count:]
        assert len(taken) == count
        return taken

    def rest(self) -> bytes:
        return b"" if isinstance(self._source, socket.socket) else self._source


def logstash(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """Keepalives of version 2, to version 1 too, then the highest number."""
    for _ in range(3):
        peer.sendall(KEEPALIVE)
        time.sleep(0.02)
    peer.sendall(ack(max(numbers), version))


def go_lumber(peer: socket.socket, version: bytes, numbers: list[int]) -> None:
    """How many there were."""
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


@pytest.fixture
def imitate() -> Iterator[Callable[[Answer], Imitation]]:
    started: list[Imitation] = []

    def start(answer: Answer) -> Imitation:
        started.append(Imitation(answer))
        return started[-1]

    yield start
    for one in started:
        one.stop()


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
        # Two sends: a server that counts is not misled by what came before.
        writer.send(sent[:13], timeout=10)
        assert len(server.windows) == 2
        writer.send(sent[13:], timeout=10)
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
