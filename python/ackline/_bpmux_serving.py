"""The threads of bpmux's `serve`: each takes what the peer begins, handles it, and takes again."""

import threading
from itertools import count

from ackline._bpmux import ConnectionBase
from ackline._bpmux_core import BpmuxServing
from ackline._bpmux_handles import Handlers, incoming
from ackline.exceptions import LinkClosed

__all__ = ["Serving"]


class Serving:
    """Serves one connection.

    Args:
        connection: Is aborted where it cannot be served to its end.
        core: Who takes what.
        handlers: What is called.
    """

    def __init__(self, connection: ConnectionBase, core: BpmuxServing, handlers: Handlers) -> None:
        self._connection, self._core, self._handlers = connection, core, handlers
        self._threads: list[threading.Thread] = []
        self._numbers = count()
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Returns when nothing more comes and every handler has returned; raises why, if so."""
        try:
            if threading.current_thread() is threading.main_thread():
                # It has the signals to look after.
                self._start()
            else:
                self._work()
            self._join()
        except BaseException:
            # Handlers that wait on it end too.
            self._connection.abort()
            self._join()
            raise
        if self._failed is not None:
            raise self._failed

    def _join(self) -> None:
        # Threads that are started meanwhile come behind those that start them.
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
