"""The batches that were planned for a consumer: a planned batch is planned the same again.

Sinks that are idempotent by batch (Parquet, Delta) skip a batch with a number that they have seen.
When a checkpoint is rolled back, Spark plans those numbers anew, and such a sink may skip a batch
without losing events only if it has exactly the positions of the first time. So each plan is kept
next to the consumer's mark, for as many batches as Spark keeps of its own log.

A plan that cannot be kept is logged and ends nothing: on a full disk the query makes the room.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ackline.spark.files import write

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT: Final = 100
"""Plans that are kept: Spark's spark.sql.streaming.minBatchesToRetain."""

_log = logging.getLogger("ackline.spark")


class Plans:
    """The plans of one consumer, in a file of one of its spools.

    Args:
        file: The file of the plans, one JSON object per line.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ends: dict[str, dict[str, Any]] = {}
        self._lines = 0
        for line in file.read_text().splitlines() if file.exists() else ():
            self._lines += 1
            try:
                plan = json.loads(line)
                self._keep(plan["start"], plan["end"])
            except (ValueError, KeyError, TypeError):
                # A kill cut this line short: its batch was not planned.
                continue

    def end_of(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return the end of the batch that was planned from `start`; None if there was none."""
        return self._ends.get(_text(start))

    def note(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Keep a plan before Spark learns of it."""
        if self.end_of(start) == end:
            return
        self._keep(start, end)
        try:
            if self._lines >= 2 * KEPT:
                self._rewrite()
            else:
                write(self._file, _lines([(_text(start), end)]))
                self._lines += 1
        except OSError as error:
            _log.warning(
                "a plan was not kept, a rolled back checkpoint could lose it: %s "
                "code=spark.plan_unkept",
                error,
            )

    def begin(self) -> None:
        """Make the file: from now on a query has committed a batch under the consumer's name."""
        if not self._file.exists():
            try:
                write(self._file, "")
            except OSError as error:
                _log.warning("no plans are kept: %s code=spark.plan_unkept", error)

    def _keep(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        key = _text(start)
        self._ends.pop(key, None)
        self._ends[key] = end
        while len(self._ends) > KEPT:
            self._ends.pop(next(iter(self._ends)))

    def _rewrite(self) -> None:
        fresh = self._file.with_suffix(".new")
        write(fresh, _lines(self._ends.items()), fresh=True)
        fresh.replace(self._file)
        self._lines = len(self._ends)


def plans_file(spool: str, consumer: str) -> Path:
    """Return the file in which a spool keeps the plans of a consumer."""
    return Path(spool, "consumers", f"{consumer}.plans")


def _text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, sort_keys=True)


def _lines(plans: Iterable[tuple[str, dict[str, Any]]]) -> str:
    # A line cut short by a kill must not swallow the next line: each begins with a newline.
    return "".join(f'\n{{"start":{start},"end":{_text(end)}}}' for start, end in plans)
