"""Waits for a peer that end when it makes no progress for a time."""

import time
from collections.abc import Callable

from ackline.exceptions import LinkTimeout

__all__ = ["LOOK", "Stall", "StallTimer"]

LOOK = 0.2
"""Seconds between two checks whether a peer makes progress."""


class Stall:
    """Judges a peer by a number that grows with each progress.

    Args:
        timeout: Seconds without progress after which the peer is late.
        missing: The text for what is missing then.
    """

    def __init__(self, timeout: float, missing: str) -> None:
        self._timeout = timeout
        self._missing = missing
        self._last = -1
        self._since = 0.0

    def look(self, progress: int, *, is_waiting: bool = True) -> None:
        """Looks at the number.

        Args:
            progress: The number now.
            is_waiting: Whether something waits for the peer.

        Raises:
            LinkTimeout: It has not grown for the timeout, and something waits.
        """
        now = time.monotonic()
        if progress > self._last or not is_waiting:
            self._last, self._since = progress, now
        elif now - self._since >= self._timeout:
            raise LinkTimeout(f"{self._missing} within {self._timeout:g} s")


class StallTimer:
    """Waits as long as there is progress, and for the timeout when there is none.

    Args:
        progress: Returns a number that grows with each progress.
        timeout: Seconds.
        missing: The text for what is missing then.
    """

    def __init__(self, progress: Callable[[], int], timeout: float, missing: str) -> None:
        self._progress = progress
        self._timeout = timeout
        self._missing = missing

    def until(self, wait: Callable[[float], bool]) -> None:
        """Waits.

        Args:
            wait: Waits for the seconds that it is called with; returns whether the wait is over.

        Raises:
            LinkTimeout: There was no progress for the timeout.
        """
        stall = Stall(self._timeout, self._missing)
        stall.look(self._progress())
        while not wait(min(LOOK, self._timeout)):
            stall.look(self._progress())
