"""Both ends of MicroMsg2 over real sockets, and raw peers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ackline import LinkTimeout, micromsg

TIME = 20
NOW = 0.01
URL = "micromsg://127.0.0.1:0"
MANUAL: dict[str, Any] = {"ack_policy": "manual"}
UNACKNOWLEDGED: dict[str, Any] = {"optional_extensions": "pub-sub"}
"""The options of an end that suggests no acknowledgements."""
Pair = tuple[micromsg.Connection, micromsg.Connection]


@contextmanager
def pair(listens: dict[str, Any] | None = None, url: str = URL, **connects: Any) -> Iterator[Pair]:
    """The connector's end and the listener's end, each with its options."""
    with micromsg.listen(url, **(listens or {})) as listener:
        near = micromsg.connect(listener.url, **connects)
        far = listener.accept(timeout=TIME)
        far.wait_connected(timeout=TIME)
    try:
        yield near, far
    finally:
        near.abort()
        far.abort()


def fill(connection: micromsg.Connection, payload: bytes) -> int:
    """Sends to a peer that takes nothing until there is no room; the number of messages."""
    for sent in range(10_000):
        try:
            connection.send(payload, timeout=0.2)
        except LinkTimeout:
            return sent
    raise AssertionError("there is room without an end")


@contextmanager
def raw_peer(url: str) -> Iterator[socket.socket]:
    """A client that shows the bytes on the wire: by itself it sends nothing."""
    host, _, port = url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), TIME) as stream:
        yield stream


def handshake(required: bytes = b"", optional: bytes = b"", name: bytes = b"") -> bytes:
    """One message of the handshake, version 1.0."""
    lists = b"".join(len(one).to_bytes(2) + one for one in (required, optional))
    return b"\x01\x00\x00" + bytes([len(name)]) + name + lists
