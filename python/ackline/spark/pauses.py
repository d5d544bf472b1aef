"""The pauses of a query that has no events: how long a call for the next batch waits for some."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 0.4
AT_ONCE_SECONDS: Final = 0.05
"""Spark asks again within this time if it has nothing else to do."""


class Pauses:
    """Counts the calls in a row that found no events: each waits longer, up to 0.4 s.

    Events end a wait, so the query only asks less often while there are none. Where Spark comes
    later by itself there is no wait: with a trigger interval of more than 50 ms, or while another
    source of the query has batches. If all sources of a query have no events, those of one may come
    up to 0.4 s late because of the wait of another.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = SHORTEST_SECONDS
        self._ended_at: float | None = None
        self._is_at_once = False

    def asked(self) -> None:
        """Note that a call begins."""
        ended = self._ended_at
        self._is_at_once = ended is not None and self._clock() - ended <= AT_ONCE_SECONDS

    def next(self) -> float:
        """Return the seconds that a call waits that has found no events."""
        if not self._is_at_once:
            self._seconds = SHORTEST_SECONDS
            return 0.0
        seconds, self._seconds = self._seconds, min(2 * self._seconds, LONGEST_SECONDS)
        return seconds

    def found(self) -> None:
        """Note that a call has found events."""
        self._seconds = SHORTEST_SECONDS

    def ended(self) -> None:
        """Note that a call ends, or what belongs to it: Spark's turn begins."""
        self._ended_at = self._clock()
