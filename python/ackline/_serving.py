"""The threads of listeners: one for each connection."""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

__all__ = ["serve_each"]


class _Abortable(Protocol):
    def abort(self) -> None: ...


_Connection = TypeVar("_Connection", bound=_Abortable)


def serve_each(connections: Iterable[_Connection], handle: Callable[[_Connection], object]) -> None:
    """Handles each connection in a thread; returns when no more come and all threads have ended.

    An exception, such as a `KeyboardInterrupt`, aborts the connections and is raised at once.
    """
    alive: dict[_Connection, threading.Thread] = {}

    def run(connection: _Connection) -> None:
        try:
            handle(connection)
        finally:
            alive.pop(connection)

    try:
        for connection in connections:
            thread = threading.Thread(target=run, args=[connection], name="ackline-serve")
            alive[connection] = thread
            thread.start()
        for thread in list(alive.values()):
            thread.join()
    except BaseException:
        for connection in list(alive):
            connection.abort()
        raise
