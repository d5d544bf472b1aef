"""The tasks of bpmux's `serve` for asyncio: one for each arrival.

Arrivals are taken in the callback that the loop runs for them, so that a handler starts one turn of
the loop later. A task that ends costs no turn.
"""

import asyncio
from contextvars import copy_context
from typing import Any

from ackline._bpmux import ConnectionBase
from ackline.aio._bpmux_handlers import Handlers
from ackline.aio._bpmux_handles import Incoming, incoming
from ackline.aio._wait import loop_waker
from ackline.exceptions import LinkClosed

__all__ = ["Serving"]


class Serving:
    """Serves one connection, once.

    Args:
        connection: The connection to serve.
        handlers: The functions to call.
        concurrency: Handlers at once.
    """

    def __init__(self, connection: ConnectionBase, handlers: Handlers, concurrency: int) -> None:
        self._connection, self._handlers, self._free = connection, handlers, concurrency
        self._core = connection._core  # noqa: SLF001 (its users cannot)
        self._waker, self._context = loop_waker(), copy_context()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._standing: int | None = None
        """The token of the call of `_take` at the next arrival."""
        self._is_full = False
        """Whether the next handler that ends calls `_take`."""
        self._over: asyncio.Future[None] = self._loop.create_future()
        """A future that is done when no more arrivals are taken."""
        self._failed: BaseException | None = None

    async def run(self) -> None:
        """Returns when nothing more comes and all handlers have returned, or raises an error."""
        cancelled = None
        self._take()
        while left := self._left():
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as error:
                cancelled = error
                self._stop()
        if self._failed is not None:
            raise self._failed
        if cancelled is not None:
            raise cancelled

    def _left(self) -> set[asyncio.Future[Any]]:
        """The futures that are not done."""
        if not self._over.done():
            return {self._over}
        return {task for task in self._tasks if not task.done()}

    def _take(self) -> None:
        """Begins handlers for the arrivals; is called again when there are more."""
        self._standing = None
        try:
            while not self._over.done():
                if not self._free:
                    self._is_full = True
                    return
                arrived = self._core.try_accept_held()
                if arrived is not None:
                    self._begin(incoming(arrived))
                    continue
                self._standing = self._core.call_at_arrival(self._waker, self._take)
                if self._standing is not None:
                    return
        except LinkClosed:
            self._end()
        except Exception as error:  # noqa: BLE001 (it is raised where `serve` was called)
            self._fail(error)

    def _begin(self, begun: Incoming | None) -> None:
        if begun is None:
            self._end()
            return
        self._free -= 1
        task = self._loop.create_task(self._handle(begun), context=self._context.copy())
        # The task of an eager factory may be done already.
        if not task.done():
            self._tasks.add(task)

    async def _handle(self, begun: Incoming) -> None:
        try:
            await self._handlers.handle(self._connection, begun)
        except asyncio.CancelledError:
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            self._fail(error)
            raise
        except BaseException as error:  # noqa: BLE001 (it is raised where `serve` was called)
            self._fail(error)
        finally:
            # This is not left to the task's end, which takes one more turn of the loop.
            self._free += 1
            task = asyncio.current_task()
            if task is not None:
                self._tasks.discard(task)
            if self._is_full:
                self._is_full = False
                self._take()

    def _fail(self, error: BaseException) -> None:
        self._failed = self._failed or error
        self._stop()

    def _stop(self) -> None:
        """Stops taking arrivals, and cancels the handlers."""
        self._end()
        for task in self._tasks - {asyncio.current_task(self._loop)}:
            task.cancel()

    def _end(self) -> None:
        """Stops taking arrivals."""
        if self._standing is not None:
            self._waker.give_up(self._standing)
            self._standing = None
        if not self._over.done():
            self._over.set_result(None)
