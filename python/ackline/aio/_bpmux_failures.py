"""Failures of bpmux's handlers in tasks: cancellations, and errors that end the program."""

import asyncio
from types import TracebackType

from ackline._bpmux import ConnectionBase, OnError, tell
from ackline._bpmux_core import BpmuxRequest, BpmuxSink
from ackline.aio._wait import loop_waker
from ackline.exceptions import LinkClosed

__all__ = ["ENDS_HANDLER", "ENDS_PROGRAM", "Abandonable", "told"]

ENDS_HANDLER: type[BaseException] = Exception
"""Errors that end one handler and nothing else; a cancellation ends its task too."""
ENDS_PROGRAM: tuple[type[BaseException], ...] = (SystemExit, KeyboardInterrupt)
"""Errors that a handler passes on once the peer is told, and that end the event loop."""


def told(on_error: OnError | None, error: BaseException) -> BaseException:
    """Reports a handler's error, and returns the error that its call ends with.

    Raises:
        asyncio.CancelledError: `error` is the cancellation of this task, which is no failure.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    another = tell(on_error, error)
    return another if isinstance(another, ENDS_PROGRAM) else error


class Abandonable:
    """Cancels the task that is in its block when the peer gives the call up or is gone.

    For a handler that returns without waiting, the call is not watched.

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
        # The watch begins after the first step of the handler.
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
            # The handler has closed its half and goes on alone.
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
