"""The batches that were planned for a consumer: what was planned once is planned the same again.

Sinks that are idempotent by batch (Parquet, Delta) skip a batch whose number they have seen. When a
checkpoint is rolled back, Spark plans those numbers anew, and only a batch with the very positions
of the first time may be skipped without losing any. So each plan is kept beside the consumer's
mark, for as many batches as Spark keeps of its own log.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT: Final = 100
"""Plans that are kept: Spark's spark.sql.streaming.minBatchesToRetain."""


class Plans:
    """The plans of one consumer, in a file of one of its spools.

    Args:
        file: Where they stand, one JSON object a line.
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
                # The line that a kill cut short: its batch was not planned.
                continue

    def end_of(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return where the batch ended that was planned from `start`; None if none was."""
        return self._ends.get(_text(start))

    def note(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Keep a plan before Spark learns of it."""
        if self.end_of(start) == end:
            return
        self._keep(start, end)
        if self._lines >= 2 * KEPT:
            self._rewrite()
            return
        self._append(self._file, os.O_APPEND, [(_text(start), end)])
        self._lines += 1

    def _keep(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        key = _text(start)
        self._ends.pop(key, None)
        self._ends[key] = end
        while len(self._ends) > KEPT:
            self._ends.pop(next(iter(self._ends)))

    def _rewrite(self) -> None:
        fresh = self._file.with_suffix(".new")
        self._append(fresh, os.O_TRUNC, list(self._ends.items()))
        fresh.replace(self._file)
        self._lines = len(self._ends)

    @staticmethod
    def _append(file: Path, how: int, plans: Sequence[tuple[str, dict[str, Any]]]) -> None:
        # A line cut short by a kill must not swallow the next one: each begins with a newline.
        text = "".join(f'\n{{"start":{start},"end":{_text(end)}}}' for start, end in plans)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def plans_file(spool: str, consumer: str) -> Path:
    """Return where a spool keeps the plans of a consumer."""
    return Path(spool, "consumers", f"{consumer}.plans")


def _text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, sort_keys=True)
