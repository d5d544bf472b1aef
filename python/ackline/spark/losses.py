"""Positions that are gone or damaged: they end the query, or are noted and passed over.

If a loss is passed over (`failOnDataLoss=false`), it is noted in `gaps.jsonl` of the spool's
directory, one JSON object per line, and synced before the next batch is planned without it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ackline.spark.files import write
from ackline.spark.times import now_text

if TYPE_CHECKING:
    from ackline.exceptions import SpoolError

GAPS: Final = "gaps.jsonl"
"""The file's name."""

_log = logging.getLogger("ackline.spark")


@dataclass(frozen=True, slots=True)
class Loss:
    """Positions [start, end) of a spool that a query cannot read any more.

    Attributes:
        path: The directory with the file of the note.
        uuid: The spool that had the positions.
        start: The first position.
        end: The position after the last; None if it is unknown, because the spool is gone.
    """

    path: str
    uuid: str
    start: int
    end: int | None


class Losses:
    """The rule of one query for positions that are gone, and the losses that the query has met.

    Args:
        fail: Whether a loss ends the query.
        consumer: The consumer's name in the notes.
    """

    def __init__(self, *, fail: bool = True, consumer: str | None = None) -> None:
        self.fail = fail
        self._consumer = consumer
        self._noted: set[tuple[Loss, str]] = set()
        self._positions = 0

    @property
    def positions(self) -> int:
        """Positions that this process has passed over; those of a spool that is gone count 0."""
        return self._positions

    def meet(self, error: SpoolError, loss: Loss) -> None:
        """Raise `error`, or note its loss, once.

        Raises:
            SpoolError: `error`.
            OSError: The loss cannot be noted.
        """
        if self.fail:
            raise error
        if (loss, error.code) in self._noted:
            return
        note = {
            "time": now_text(),
            "consumer": self._consumer,
            "spool": loss.uuid,
            "from": loss.start,
            "to": loss.end,
            "reason": error.code,
        }
        counted = self._positions + (0 if loss.end is None else loss.end - loss.start)
        _log.error(
            "failOnDataLoss=false passes over a loss: %s (%s); %d positions so far code=spark.loss",
            json.dumps(note),
            error,
            counted,
        )
        if loss.path:
            write(Path(loss.path, GAPS), json.dumps(note) + "\n", sync=True)
        self._noted.add((loss, error.code))
        self._positions = counted
