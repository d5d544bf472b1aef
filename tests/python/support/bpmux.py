"""Both ends of bpmux over real sockets, and raw peers that show the bytes on the wire."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ackline import LinkClosed, ProtocolError, TransportError, bpmux
from support.commands import wait_until

TIME = 20
NOW = 0.01
URL = "bpmux://127.0.0.1:0"
TLS = "bpmux+tls://127.0.0.1:0"
OVER = (LinkClosed, ProtocolError, TransportError)


class Raw:
    """A raw peer that shows the bytes on the wire: by itself it sends nothing."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        stream.settimeout(TIME)

    def reads(self, count: int) -> bytes:
        """The next bytes; fewer at the end."""
        got = b""
        while len(got) < count and (more := self.stream.recv(count - len(got))):
            got += more
        return got

    def is_ended(self) -> bool:
        """Reads to the end, which must come."""
        try:
            while self.stream.recv(65_536):
                pass
        except ConnectionError:
            pass
        return True


@contextmanager
def connected_to(url: str) -> Iterator[Raw]:
    host, _, port = url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), TIME) as stream:
        yield Raw(stream)


@contextmanager
def pair(
    listens: dict[str, Any] | None = None, url: str = URL, **connects: Any
) -> Iterator[tuple[bpmux.Connection, bpmux.Connection]]:
    """The connector's end and the listener's end, each with its options."""
    with bpmux.listen(url, **(listens or {})) as listener:
        near = bpmux.connect(listener.url, **connects)
        far = listener.accept(timeout=TIME)
    try:
        yield near, far
    finally:
        near.abort()
        far.abort()


@contextmanager
def manual() -> Iterator[tuple[bpmux.Connection, bpmux.Connection]]:
    """The same with a listener's end that gives no credit by itself."""
    with bpmux.listen(URL, credit="manual") as listener:
        near = bpmux.connect(listener.url, send_bytes=1000)
        far = listener.accept(timeout=TIME)
    try:
        yield near, far
    finally:
        near.abort()
        far.abort()


def is_ended(connection: bpmux.Connection) -> bool:
    connection.wait_ended(timeout=TIME)
    return connection.is_ended


def top_credit(amount: int) -> bytes:
    """The chunk that gives the top-level so many bytes of credit, 255 at the most."""
    return bytes([0xEC, amount])


def turned_away(listener: bpmux.Listener, count: int = 1) -> dict[str, int]:
    """The refused connections, once so many were refused."""

    def told() -> dict[str, int]:
        refused: dict[str, int] = listener.stats()["turned_away"]
        return refused

    wait_until(lambda: sum(told().values()) >= count, "they are turned away")
    return told()
