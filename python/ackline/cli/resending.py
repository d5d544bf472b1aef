"""Sendings that connect again by themselves: their order, limits and errors."""

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

from ackline.cli.lines import Lines, Window
from ackline.cli.stalling import StallTimer
from ackline.cli.values import LEAST
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    ProtocolError,
    TransportError,
)

__all__ = [
    "CONNECT",
    "GOODBYE",
    "PASSING",
    "TELL",
    "Losses",
    "Resending",
    "Stuck",
    "tell_away",
]

_Connection = TypeVar("_Connection")
_Batch = TypeVar("_Batch")
CONNECT = 10.0
"""Seconds for one attempt to connect."""
TELL = 1.0
"""Seconds after which it is reported that no receiver is there."""
GOODBYE = 1.0
"""Seconds for the end of the connection."""
PASSING = (LinkClosed, TransportError, ProtocolError)
"""Errors that end a connection and not the sending."""
_STUCK_AFTER = 8
"""Connections in a row with nothing acknowledged, after which the sending gives up."""


class Stuck(AcklineError):  # noqa: N818 (a state, no error)
    """Connections come and go, and nothing is acknowledged."""


class Losses:
    """The connections in a row that were lost with nothing acknowledged.

    Args:
        tell: Logs a lost connection, with the windows that it left unacknowledged.
    """

    def __init__(self, tell: Callable[[int, Exception], None]) -> None:
        self._tell = tell
        self.count = 0

    def progress(self) -> None:
        """Something was acknowledged."""
        self.count = 0

    def add(self, error: Exception, windows: int) -> None:
        """Counts a lost connection.

        Args:
            error: Its end.
            windows: Windows that it left unacknowledged.

        Raises:
            Stuck: It is the last one of too many.
        """
        self.count += 1
        self._tell(windows, error)
        if self.count >= _STUCK_AFTER:
            many = f"{_STUCK_AFTER} connections in a row have ended with nothing acknowledged"
            raise Stuck(f"{many}, the last one: {error}")


def tell_away(timeout: float) -> None:
    """Reports that no receiver is there."""
    sys.stderr.write(f"ackline: no receiver is reached yet; trying for {timeout:g} s\n")


class Resending(ABC, Generic[_Connection, _Batch]):
    """Sends windows, over one connection after the other, until all are acknowledged.

    A batch is a window with its state. A subclass keeps the batches that a connection has and that
    are not acknowledged, and puts them into `_again` when the connection ends.

    Args:
        lines: The lines.
        options: The options, without those of the windows.
        timeout: Seconds without a receiver or progress after which it gives up.
    """

    def __init__(self, lines: Lines, options: dict[str, Any], timeout: float) -> None:
        self._lines = lines
        self._windows = lines.windows(options.pop("batch_events"), options.pop("batch_bytes"))
        self._wait_max: float = options.pop("backoff_max")
        self._options = options
        self._timeout = max(timeout, LEAST)
        self._losses = Losses(self._tell_lost)
        self._again: deque[_Batch] = deque()
        self._was_connected = False
        self._done_bytes = 0
        self.acked = 0
        self.possible_repeats = 0

    def run(self) -> Generator[int, None, None]:
        """Sends everything; yields the bytes of the file that are acknowledged."""
        batch = self._next()
        while batch is not None or self._again:
            if batch is not None:
                self._again.appendleft(batch)
            yield from self._on_one_connection()
            batch = None if self._again else self._next()

    def _sent(self, connection: _Connection, wait: StallTimer, most: int) -> Iterator[int]:
        """Sends until there is nothing more, with at most so many batches in flight."""
        while (batch := self._next_of(connection, wait)) is not None:
            self._send(connection, batch, wait)
            self._settle(connection)
            while self._in_flight() >= most:
                self._await_first(connection, wait)
            yield self._done_bytes

    def _settled(self, connection: _Connection, wait: StallTimer) -> Iterator[int]:
        """Waits until everything in flight is acknowledged."""
        while self._in_flight():
            self._await_first(connection, wait)
            yield self._done_bytes

    def _next_of(self, connection: _Connection, wait: StallTimer) -> _Batch | None:
        """Returns the next batch; waits for acknowledgements rather than for a line."""
        if self._again:
            return self._again.popleft()
        while self._in_flight() and self._lines.would_wait():
            self._await_first(connection, wait)
        return self._next()

    def _next(self) -> _Batch | None:
        window = next(self._windows, None)
        return None if window is None else self._batch(window)

    @abstractmethod
    def _tell_lost(self, windows: int, error: Exception) -> None:
        """Logs a lost connection."""

    @abstractmethod
    def _on_one_connection(self) -> Iterator[int]:
        """Connects, and sends until everything is acknowledged or the connection ends."""

    @abstractmethod
    def _batch(self, window: Window) -> _Batch:
        """Returns the batch of a new window."""

    @abstractmethod
    def _send(self, connection: _Connection, batch: _Batch, wait: StallTimer) -> None:
        """Sends a batch."""

    @abstractmethod
    def _in_flight(self) -> int:
        """Returns the number of batches that the connection has."""

    @abstractmethod
    def _await_first(self, connection: _Connection, wait: StallTimer) -> None:
        """Waits until the first batch in flight is acknowledged, and counts it."""

    @abstractmethod
    def _settle(self, connection: _Connection) -> None:
        """Counts what is acknowledged by now."""
