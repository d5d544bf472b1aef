"""The threads of bpmux's `serve`: each takes an arrival, handles it, and takes the next one."""

import threading
from itertools import count

from ackline._bpmux import ConnectionBase, abandoned_beside
from ackline._bpmux_handlers import Handlers
from ackline._bpmux_handles import incoming
from ackline.exceptions import LinkClosed

__all__ = ["Serving"]


class Serving:
    """Serves one connection, once.

    Args:
        connection: The connection to serve; it is aborted if serving fails.
        handlers: The functions to call.
        concurrency: Handlers at once.
    """

    def __init__(self, connection: ConnectionBase, handlers: Handlers, concurrency: int) -> None:
        self._connection, self._handlers = connection, handlers
        core = connection._core  # noqa: SLF001 (its users cannot)
        self._core = core.serving(concurrency, abandoned_beside(concurrency))
        self._threads: list[threading.Thread] = []
        self._numbers = count()
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Returns when nothing more comes and all handlers have returned, or raises an error."""
        try:
            if threading.current_thread() is threading.main_thread():
                # The main thread stays free to handle signals.
                self._start()
            else:
                self._work()
            self._join()
        except BaseException:
            # This also ends handlers that wait on the connection.
            self._connection.abort()
            self._join()
            raise
        if self._failed is not None:
            raise self._failed

    def _join(self) -> None:
        # Threads that are started meanwhile are appended, so this loop reaches them too.
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        name = f"ackline-serve_{next(self._numbers)}"
        thread = threading.Thread(target=self._come, name=name)
        thread.start()
        self._threads.append(thread)

    def _come(self) -> None:
        self._core.came()
        self._work()

    def _work(self) -> None:
        try:
            self._handle_all()
        except LinkClosed:
            return
        except BaseException as error:  # noqa: BLE001 (it is raised where `serve` was called)
            self._failed = error
            self._connection.abort()

    def _handle_all(self) -> None:
        returned = None
        while (taken := self._core.take(returned)) is not None:
            arrived, is_short, returned = taken
            if is_short:
                self._start()
            begun = incoming(arrived)
            if begun is not None:
                self._handlers.handle(self._connection, begun)
