"""The bytes that `ackline serve --echo` is to send back, and the places for open entities."""

import asyncio
from collections import Counter
from collections.abc import Callable

from ackline.aio._bpmux_watch import when_flushed
from ackline.aio.bpmux import Connection, Duplex, Sink

__all__ = ["EchoRoom", "OpenPlaces", "Part"]

_MUCH = 2
"""Multiple of the limit that all connections together may hold, if there are several."""


class EchoRoom:
    """The bytes that were taken and have not gone back.

    While there are too many, a connection may take one message more only if it holds nothing: each
    connection goes on at the rate of its own peer. Once there are twice as many, the connection
    that holds the most is ended.

    Args:
        most: Bytes that may be held.
        end: The function that ends a connection; it is given the bytes that the connection holds.
    """

    def __init__(self, most: int, end: Callable[[Connection, int], None]) -> None:
        self._most = most
        self._end = end
        self._total = 0
        self._by: Counter[Connection] = Counter()
        self._waiting: dict[Connection, asyncio.Event] = {}

    async def wait(self, connection: Connection) -> bool:
        """Waits until a message of a connection may be taken, or the connection has ended.

        Take the message before you await anything else. A connection that holds nothing does not
        wait.

        Returns:
            Whether there is room; if not, one message may be taken.
        """
        while self._total >= self._most and connection in self._by and not connection.is_ended:
            await self._waiting.setdefault(connection, asyncio.Event()).wait()
        return self._total < self._most

    def wake(self, connection: Connection) -> None:
        """Wakes the wait of a connection, because the connection holds nothing, or has ended."""
        if look := self._waiting.pop(connection, None):
            look.set()

    def part(self, connection: Connection) -> "Part":
        """Returns the bytes held by one half of a connection."""
        return Part(self, connection)

    def add(self, connection: Connection, size: int) -> None:
        """Adds to the bytes of a connection; bytes of an ended connection are not counted."""
        if not size or connection.is_ended:
            return
        self._by[connection] += size
        self._total += size
        while self._total > _MUCH * self._most and len(self._by) > 1:
            greediest = max(self._by, key=self._by.__getitem__)
            self._end(greediest, self._by[greediest])
            # Its tasks release the bytes that it holds as they end.
            self.remove(greediest, self._by[greediest])

    def remove(self, connection: Connection, size: int) -> None:
        """Subtracts from the bytes of a connection; for an ended connection it does nothing."""
        if not size or connection not in self._by:
            return
        self._by[connection] -= size
        self._total -= size
        if not self._by[connection]:
            del self._by[connection]
            self.wake(connection)
        if self._total < self._most:
            for look in self._waiting.values():
                look.set()
            self._waiting.clear()


class OpenPlaces:
    """The entities that all connections have open at once.

    A connection has a few places of its own. Of the shared places it has at most as many as are
    free: a connection that wants all gets half, and the next one gets half of the rest.

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
        """Waits until the connection may open one more, or has ended, and counts it."""
        while not self._fits(connection) and not connection.is_ended:
            self._waiting[connection] = asyncio.get_running_loop().create_future()
            await self._waiting[connection]
        self._open[connection] += 1
        self._free -= self._open[connection] > self._own

    def give_back(self, connection: Connection) -> None:
        """Counts one open entity less for the connection."""
        self._free += self._open[connection] > self._own
        self._open[connection] -= 1
        if not self._open[connection]:
            del self._open[connection]
        # The connection may have one of its own again. Of the others the longest wait comes first.
        self.wake(connection)
        fitting = (one for one in self._waiting if self._fits(one))
        if (one := next(fitting, None)) is not None:
            self.wake(one)

    def wake(self, connection: Connection) -> None:
        """Wakes the wait of the connection."""
        waiting = self._waiting.pop(connection, None)
        if waiting and not waiting.done():
            waiting.set_result(None)

    def _fits(self, connection: Connection) -> bool:
        open_now = self._open.get(connection, 0)
        return open_now < self._own or open_now - self._own < self._free


class Part:
    """The bytes that one half holds: from their receipt until all bytes of the half have left.

    Args:
        room: The room that counts the bytes.
        connection: The connection that the half belongs to.
    """

    def __init__(self, room: EchoRoom, connection: Connection) -> None:
        self._room = room
        self._connection = connection
        self._taken = 0
        self._sent = 0
        self._is_watched = False

    def take(self, size: int) -> None:
        """Counts bytes that were taken."""
        self._taken += size
        self._room.add(self._connection, size)

    def sent(self, writer: Sink | Duplex, size: int) -> None:
        """Counts bytes that wait on this half, or have left."""
        self._sent += size
        if not self._is_watched:
            self._is_watched = True
            when_flushed(writer, self._left)

    def _left(self) -> None:
        self._is_watched = False
        self._give_back(self._sent)

    def end(self) -> None:
        """Gives back all bytes of the half."""
        self._give_back(self._taken)

    def _give_back(self, size: int) -> None:
        self._taken -= size
        self._sent = 0
        self._room.remove(self._connection, size)
