"""Servers imitated byte by byte, as peers of our writer."""

import socket
import struct
import threading
import zlib
from collections.abc import Callable

import wire

Answer = Callable[[socket.socket, bytes, list[int]], None]


class Imitation:
    """A server: it reads whole windows and lets `answer` write any bytes."""

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
