"""The bytes that `ackline serve --echo` is to send back, and the places for what is open."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ackline.aio._bpmux_handles import when_flushed
from ackline.aio.bpmux import Connection, Duplex, Sink

__all__ = ["EchoRoom", "OpenPlaces", "Part"]

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
    """The bytes that were taken and have not gone back.

    While there are too many, only connections that hold nothing may take one message each, and
    once there are twice as many the connection that holds the most is ended.

    Args:
        most: Bytes that may be held.
        end: Ends a connection, which holds so many bytes.
    """

    def __init__(self, most: int, end: Callable[[Connection, int], None]) -> None:
        self._most = most
        self._end = end
        self._total = 0
        self._by: dict[Connection, _Held] = {}
        self._waiting: dict[Connection, asyncio.Event] = {}

    async def wait(self, connection: Connection) -> bool:
        """Waits until something of a connection may be taken, or it has ended.

        It is to be taken before anything else is awaited. A connection that holds nothing does not
        wait.

        Returns:
            Whether there is room: if not, one message may be taken.
        """
        while self._total >= self._most and connection in self._by and not connection.is_ended:
            look = self._waiting.setdefault(connection, asyncio.Event())
            try:
                async with asyncio.timeout(_PATIENCE):
                    await look.wait()
            except TimeoutError:
                self._end_stalled()
        return self._total < self._most

    def ended(self, connection: Connection) -> None:
        """The connection has ended: nothing of it waits any more."""
        if look := self._waiting.pop(connection, None):
            look.set()

    def part(self, connection: Connection) -> "Part":
        """What one half of a connection holds."""
        return Part(self, connection)

    def add(self, connection: Connection, size: int) -> None:
        """A connection holds so many bytes more; nothing of one that has ended is counted."""
        if not size or connection.is_ended:
            return
        held = self._by.setdefault(connection, _Held(0, time.monotonic()))
        held.size += size
        self._total += size
        while self._total > _MUCH * self._most and len(self._by) > 1:
            self._forget(max(self._by, key=lambda one: self._by[one].size))

    def remove(self, connection: Connection, size: int) -> None:
        """A connection holds so many bytes less."""
        held = self._by.get(connection)
        if held is None or not size:
            return
        held.size -= size
        held.moved = time.monotonic()
        if not held.size:
            del self._by[connection]
        self._less(size)

    def _less(self, size: int) -> None:
        self._total -= size
        if self._total < self._most:
            for look in self._waiting.values():
                look.set()
            self._waiting.clear()

    def _forget(self, connection: Connection) -> None:
        """Ends a connection: its tasks let go of what it holds as they end."""
        size = self._by.pop(connection).size
        self._end(connection, size)
        self._less(size)

    def _end_stalled(self) -> None:
        if self._total < self._most:
            return
        since = time.monotonic() - _PATIENCE
        for connection in [one for one, held in self._by.items() if held.moved <= since]:
            self._forget(connection)


class OpenPlaces:
    """What all connections have open at once.

    A connection has a few places of its own. Of the others it has at most as many as are free: one
    that wants all gets half, and the next one gets half of what is left.

    Args:
        most: Places that all connections share.
        own: Places that each connection has beside them.
    """

    def __init__(self, most: int, own: int) -> None:
        self._free = most
        self._own = own
        self._open: Counter[Connection] = Counter()
        self._waiting: dict[Connection, asyncio.Future[None]] = {}

    async def take(self, connection: Connection) -> None:
        """Waits until the connection may open one more, or it has ended, and counts it."""
        while not self._fits(connection) and not connection.is_ended:
            self._waiting[connection] = asyncio.get_running_loop().create_future()
            await self._waiting[connection]
        self._open[connection] += 1
        self._free -= self._open[connection] > self._own

    def give_back(self, connection: Connection) -> None:
        """The connection has one less open."""
        self._free += self._open[connection] > self._own
        self._open[connection] -= 1
        if not self._open[connection]:
            del self._open[connection]
        # It may have one of its own again. Of the others the longest wait comes first.
        self.wake(connection)
        fitting = (one for one in self._waiting if self._fits(one))
        if (one := next(fitting, None)) is not None:
            self.wake(one)

    def wake(self, connection: Connection) -> None:
        """Has the connection look again."""
        if waiting := self._waiting.pop(connection, None):
            waiting.set_result(None)

    def _fits(self, connection: Connection) -> bool:
        open_now = self._open.get(connection, 0)
        return open_now < self._own or open_now - self._own < self._free


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
