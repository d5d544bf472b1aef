"""The wait for more events, as in Spark's Kafka source: `minRowsPerBatch`, `maxTriggerDelay`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ackline import _values
from ackline.exceptions import UsageError
from ackline.spark.values import count

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_DELAY: Final = 15 * 60 * 1000
"""Milliseconds after which few events are a batch, too: 15 minutes, as in Kafka's source."""

OPTIONS: Final = ("minRowsPerBatch", "maxTriggerDelay")
"""The options of this module, of streams alone."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Decides whether few events wait for more.

    Attributes:
        rows: The fewest events of a batch.
        delay_ms: Milliseconds since the last batch after which fewer are one, too.
    """

    rows: int
    delay_ms: int

    def left(self, backlog: int, last: float | None) -> float:
        """Return the seconds that events may still wait; 0 if they are a batch now.

        Args:
            backlog: The number of the events.
            last: The monotonic time at which the last batch began. The first never waits.
        """
        if backlog >= self.rows or last is None:
            return 0.0
        return max(0.0, last + self.delay_ms / 1000 - time.monotonic())


def patience(options: Mapping[str, str], max_rows: int | None) -> Patience | None:
    """Read the options; None without `minRowsPerBatch`.

    Raises:
        UsageError: An option is out of its range, or two contradict each other.
    """
    rows, text = count(options, "minRowsPerBatch"), options.get("maxtriggerdelay")
    if rows is None:
        if text is not None:
            raise UsageError("maxTriggerDelay is for minRowsPerBatch, which is not given")
        return None
    if max_rows is not None and rows > max_rows:
        raise UsageError(f"minRowsPerBatch ({rows}) is above maxRowsPerBatch ({max_rows})")
    # Kafka's source counts a bare number in milliseconds, other options of ours in seconds.
    is_bare = text is not None and text.replace(".", "").isdecimal()
    delay = DEFAULT_DELAY if text is None else None if is_bare else _values.milliseconds(text)
    if not delay:
        raise UsageError(
            f"maxTriggerDelay must be a time with its unit such as 15m or 30s, not {text!r}"
        )
    return Patience(rows, delay)
