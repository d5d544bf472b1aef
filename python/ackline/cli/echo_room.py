"""How much `ackline serve --echo` holds of what is to go back, over all connections."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from ackline.aio._bpmux_handles import when_flushed
from ackline.aio.bpmux import Connection, Duplex, Sink

__all__ = ["EchoRoom", "Part"]

_PATIENCE = 5.0
"""Seconds that one waits for room before connections are ended that took nothing as long."""
_MUCH = 2
"""So many times the limit is the most that is held, by more than one connection."""


@dataclass
class _Held:
    """What one connection holds, and when that was less the last time."""

    size: int
    moved: float


class EchoRoom:
    """The bytes that were taken and have not gone back. While there are too many, none are taken.

    Args:
        most: Bytes that may be held. One batch more is, of the connection that took it last.
        end: Ends a connection, which holds so many bytes.
    """

    def __init__(self, most: int, end: Callable[[Connection, int], None]) -> None:
        self._most = most
        self._end = end
        self._total = 0
        self._by: dict[Connection, _Held] = {}
        self._waiting: dict[Connection, asyncio.Event] = {}

    async def wait(self, connection: Connection) -> None:
        """Waits until something of a connection may be taken, or it has ended.

        It is to be taken before anything else is awaited.
        """
        while self._total >= self._most and not connection.is_ended:
            look = self._waiting.setdefault(connection, asyncio.Event())
            try:
                async with asyncio.timeout(_PATIENCE):
                    await look.wait()
            except TimeoutError:
                self._end_stalled()

    def ended(self, connection: Connection) -> None:
        """The connection has ended: nothing of it waits any more."""
        if look := self._waiting.pop(connection, None):
            look.set()

    def part(self, connection: Connection) -> "Part":
        """What one half of a connection holds."""
        return Part(self, connection)

    def add(self, connection: Connection, size: int) -> None:
        """A connection holds so many bytes more."""
        held = self._by.setdefault(connection, _Held(0, time.monotonic()))
        held.size += size
        self._total += size
        if self._total > _MUCH * self._most and len(self._by) > 1:
            greediest = max(self._by, key=lambda one: self._by[one].size)
            self._end(greediest, self._by[greediest].size)

    def remove(self, connection: Connection, size: int) -> None:
        """A connection holds so many bytes less."""
        if not size:
            return
        held = self._by[connection]
        held.size -= size
        held.moved = time.monotonic()
        if not held.size:
            del self._by[connection]
        self._total -= size
        if self._total < self._most:
            for look in self._waiting.values():
                look.set()
            self._waiting.clear()

    def _end_stalled(self) -> None:
        if self._total < self._most:
            return
        since = time.monotonic() - _PATIENCE
        stalled = [(one, held.size) for one, held in self._by.items() if held.moved <= since]
        for connection, size in stalled:
            self._end(connection, size)


class Part:
    """What one half holds: from when it was taken until everything of the half has left.

    Args:
        room: Where it is counted.
        connection: Whose half it is.
    """

    def __init__(self, room: EchoRoom, connection: Connection) -> None:
        self._room = room
        self._connection = connection
        self._taken = 0
        self._sent = 0
        self._is_watched = False

    def take(self, size: int) -> None:
        """So many bytes were taken."""
        self._taken += size
        self._room.add(self._connection, size)

    def sent(self, writer: Sink | Duplex, size: int) -> None:
        """So many of them wait on this half, or have left."""
        self._sent += size
        if not self._is_watched:
            self._is_watched = True
            when_flushed(writer, self._left)

    def _left(self) -> None:
        self._is_watched = False
        self._give_back(self._sent)

    def end(self) -> None:
        """Nothing of it is held any more."""
        self._give_back(self._taken)

    def _give_back(self, size: int) -> None:
        self._taken -= size
        self._sent = 0
        self._room.remove(self._connection, size)
