"""Lumberjack's frames as bytes, for tests that speak it by hand."""

import socket
import struct
import zlib
from collections.abc import Iterable

KEEPALIVE = b"2A\0\0\0\0"


def window(count: int, version: bytes = b"2") -> bytes:
    return version + b"W" + struct.pack(">I", count)


def ack(number: int, version: bytes = b"2") -> bytes:
    return version + b"A" + struct.pack(">I", number)


def json_frame(sequence: int, payload: bytes = b'{"m":1}', version: bytes = b"2") -> bytes:
    return version + b"J" + struct.pack(">II", sequence, len(payload)) + payload


def data_frame(
    sequence: int, pairs: Iterable[tuple[bytes, bytes]] = ((b"k", b"v"),), version: bytes = b"1"
) -> bytes:
    fields = [field for pair in pairs for field in pair]
    head = version + b"D" + struct.pack(">II", sequence, len(fields) // 2)
    return head + b"".join(struct.pack(">I", len(field)) + field for field in fields)


def envelope(frames: bytes, version: bytes = b"2") -> bytes:
    stream = zlib.compress(frames)
    return version + b"C" + struct.pack(">I", len(stream)) + stream


def connect(port: int, timeout: float = 20, source: str = "127.0.0.1") -> socket.socket:
    """Connects from an address of the loopback network."""
    return socket.create_connection(("127.0.0.1", port), timeout, (source, 0))


def take(peer: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    taken = b""
    while len(taken) < count:
        piece = peer.recv(count - len(taken))
        assert piece, f"the end after {taken!r}"
        taken += piece
    return taken


def is_silent(peer: socket.socket, seconds: float) -> bool:
    """Whether nothing comes for so long; an end is not silence."""
    before = peer.gettimeout()
    peer.settimeout(seconds)
    try:
        peer.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        peer.settimeout(before)
    return False


def until_closed(peer: socket.socket) -> bytes:
    """Return the bytes before the end; a reset is an end too."""
    received = b""
    try:
        while piece := peer.recv(4096):
            received += piece
    except ConnectionError:
        pass
    return received
