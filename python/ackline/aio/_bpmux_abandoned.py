"""Calls that nobody waits for any more: their handlers are cancelled."""

import asyncio
from types import TracebackType

from ackline._bpmux import ConnectionBase
from ackline._bpmux_core import BpmuxRequest, BpmuxSink
from ackline.aio._wait import loop_waker
from ackline.exceptions import LinkClosed

__all__ = ["Abandonable"]


class Abandonable:
    """Cancels the task that is in its block when the peer gives the call up or is gone.

    A handler that returns without a wait costs no look at the call.

    Args:
        connection: The connection that the call came on.
        half: The request, or the half that this end writes.
    """

    def __init__(self, connection: ConnectionBase, half: BpmuxRequest | BpmuxSink) -> None:
        self._connection, self._half = connection, half
        self._standing: int | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._waker = loop_waker()
        # Behind the first step of the handler.
        self._soon = asyncio.get_running_loop().call_soon(self._watch)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._soon.cancel()
        if self._standing is not None:
            self._waker.give_up(self._standing)
            self._standing = None

    def _watch(self) -> None:
        try:
            self._standing = self._half.call_when_cancelled(self._waker, self._look)
        except LinkClosed:
            # The handler has closed its half, and works on for itself.
            return
        if self._standing is None:
            self._look()

    def _look(self) -> None:
        self._standing = None
        if self._is_abandoned() and self._task is not None:
            self._task.cancel()

    def _is_abandoned(self) -> bool:
        if self._half.cancelled is not None:
            return True
        is_closed = isinstance(self._half, BpmuxSink) and self._half.closed
        return self._connection.is_ended and not is_closed
