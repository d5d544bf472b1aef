"""The table, counted: lost and doubled events, and the time from creation to the table."""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

from demo import ackline, committed_files, percentile

__all__ = ["Count", "Rising", "ackline", "as_figures", "count", "rows_of"]


@dataclass(frozen=True)
class Rows:
    """The rows of one file of the table."""

    committed: float
    """Seconds since 1970."""
    made_us: list[int]
    """Creation times, in microseconds since 1970."""
    numbers: list[int]
    repeats: list[bool]
    """Whether each row is marked as a repeat."""


@dataclass(frozen=True)
class Count:
    """Events of one run, counted in the table."""

    rows: int
    lost: int
    doubled: int
    unmarked: int
    """Doubled events that stand twice among the rows that are not marked as repeats."""
    p50_ms: float
    p99_ms: float
    last_commit: float
    """Time of the commit that brought the last event, in seconds since 1970."""
    first_new: float | None
    """Time of the commit that brought the first event made after a kill."""


def rows_of(table: Path) -> Iterable[Rows]:
    """Yield the rows of each committed file."""
    import pyarrow.parquet as pq

    for path, committed in committed_files(table):
        rows = pq.read_table(path, columns=["made_us", "number", "repeat"])
        yield Rows(committed, *(rows[name].to_pylist() for name in rows.column_names))


def count(files: Iterable[Rows], first: int, events: int, killed_at: float | None = None) -> Count:
    """Count the events numbered `first` to `first + events - 1`.

    An event counts as doubled once, however often it stands in the table. Its time to the table
    is that of its first row.
    """
    found: dict[int, tuple[int, float]] = {}
    doubled: set[int] = set()
    unmarked: Counter[int] = Counter()
    rows = 0
    for file in sorted(files, key=lambda each: each.committed):
        for made_us, number, repeat in zip(file.made_us, file.numbers, file.repeats, strict=True):
            if not first <= number < first + events:
                continue
            rows += 1
            unmarked[number] += not repeat
            if number in found:
                doubled.add(number)
            else:
                found[number] = (made_us, file.committed)
    waits = [1e3 * committed - made_us / 1e3 for made_us, committed in found.values()]
    new = [at for made_us, at in found.values() if killed_at and made_us > 1e6 * killed_at]
    return Count(
        rows=rows,
        lost=events - len(found),
        doubled=len(doubled),
        unmarked=sum(times > 1 for times in unmarked.values()),
        p50_ms=percentile(waits, 0.5),
        p99_ms=percentile(waits, 0.99),
        last_commit=max((at for _, at in found.values()), default=float("nan")),
        first_new=min(new, default=None),
    )


class Rising:
    """Number of rows in a table that grows, from the footers of its files."""

    def __init__(self, table: Path) -> None:
        """Begin with no file seen."""
        self._table = table
        self._rows: dict[Path, int] = {}

    def rows(self) -> int:
        """Return the rows that are committed now."""
        import pyarrow.parquet as pq

        for path, _ in committed_files(self._table):
            if path not in self._rows:
                self._rows[path] = pq.read_metadata(path).num_rows
        return sum(self._rows.values())


def as_figures(result: Count, begun: float, killed_at: float | None) -> dict[str, Any]:
    """Return the figures of a count, as they stand in the JSON file."""
    recovered = None
    if killed_at and result.first_new:
        recovered = result.first_new - killed_at
    return {
        "lost": result.lost,
        "doubled": result.doubled,
        "doubled_unmarked": result.unmarked,
        "p50_ms": result.p50_ms,
        "p99_ms": result.p99_ms,
        "all_in_table_s": result.last_commit - begun,
        "recovered_s": recovered,
    }
