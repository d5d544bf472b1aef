"""The pauses of a query that has no events: how long a call for the next batch waits for some."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 0.8
AT_ONCE_SECONDS: Final = 0.05
"""Spark asks again within this time if it has nothing else to do."""


class Pauses:
    """Counts the calls in a row that found no events: each waits longer, up to 0.8 s.

    Events end a wait, so a query gets them no later; it only asks less often while there are none.
    Where Spark comes later by itself, there is no wait: with a trigger interval, or while other
    sources of the query have batches, which a wait would delay.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = SHORTEST_SECONDS
        self._told_at: float | None = None

    def next(self) -> float:
        """Return the seconds that a call waits that has found no events."""
        at = self._told_at
        if at is None or self._clock() - at > AT_ONCE_SECONDS:
            self._seconds = SHORTEST_SECONDS
            return 0.0
        seconds, self._seconds = self._seconds, min(2 * self._seconds, LONGEST_SECONDS)
        return seconds

    def told(self, *, is_new: bool) -> None:
        """Note that a call ends now, and whether it found events."""
        self._told_at = self._clock()
        if is_new:
            self._seconds = SHORTEST_SECONDS
