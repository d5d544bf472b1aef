"""A listener for tests that serves each connection in a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ackline.exceptions import AcklineError

if TYPE_CHECKING:
    from typing import Self


class Accepting(ABC):
    """Accepts connections while its `with` block runs, and waits at the end until all are served.

    Args:
        listener: A listener of any protocol.
    """

    def __init__(self, listener: Any) -> None:
        self._listener = listener
        self.url: str = listener.url
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    @abstractmethod
    def serve(self, connection: Any) -> None:
        """Serve a connection; an error of the connection ends it."""

    def _accept(self) -> None:
        for connection in self._listener:
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=[connection])
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Any) -> None:
        try:
            self.serve(connection)
        except AcklineError:
            return
