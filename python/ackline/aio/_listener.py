"""Listeners for asyncio."""

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from ackline._connections import ListenerBase, late
from ackline._deadline import deadline_in, left_until
from ackline.aio._block import Closing
from ackline.aio._wait import ready
from ackline.exceptions import LinkClosed

__all__ = ["AcceptingListener"]

_Core = TypeVar("_Core")
_Connection = TypeVar("_Connection")


class AcceptingListener(Closing, ListenerBase[_Core], Generic[_Core, _Connection]):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.
    """

    @abstractmethod
    def _connection(self, core: _Core) -> _Connection:
        """Makes a connection of a native one."""

    async def accept(self, *, timeout: float | None = None) -> _Connection:
        """Waits for a connection.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No connection came in time.
            LinkClosed: The listener is closed.
        """
        deadline = deadline_in(timeout)
        while (core := self._try_accept()) is None:
            if not await ready(self._core.wait_async, left_until(deadline)):
                raise late("no connection came", timeout)
        return self._connection(core)

    async def __aiter__(self) -> AsyncIterator[_Connection]:
        try:
            while True:
                yield await self.accept()
        except LinkClosed:
            return

    async def close(self) -> None:
        """Accepts no more connections; connections that nobody accepted are ended."""
        self._core.close()
