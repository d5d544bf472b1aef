"""Filters on `position` and `received_at` that decide on the blocks that a batch reads.

Only with the option `pushFilters`: see `ackline.spark.source.FilteredBatchReader`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ackline.spark.spools import Span
from ackline.spark.times import since_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ackline.spark.spools import SpoolView


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of an ordered column that filters leave: [low, high), None for no bound."""

    low: int | None = None
    high: int | None = None

    def within(self, low: int | None, high: int | None) -> Bounds:
        """Return the intersection with another range."""
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The ranges of a spool that the filters of a query leave.

    Attributes:
        position: Bounds of positions.
        received_us: Bounds of times of receipt, in microseconds since 1970.
    """

    position: Bounds = Bounds()
    received_us: Bounds = Bounds()

    def narrowed(self, filters: Iterable[Filter]) -> Wanted:
        """Return the part of this that the filters leave; unknown filters leave all of it."""
        wanted = self
        for one in filters:
            if getattr(one, "attribute", None) == ("position",):
                wanted = replace(wanted, position=wanted.position.within(*_bounds(one)))
            elif getattr(one, "attribute", None) == ("received_at",):
                wanted = replace(wanted, received_us=wanted.received_us.within(*_bounds(one)))
        return wanted

    def clipped(self, span: Span, view: SpoolView) -> Span:
        """Return the part of a spool's positions that can match the filters."""
        start, end = span.start, span.end
        if self.received_us.low is not None:
            start = max(start, view.find(self.received_us.low))
        if self.received_us.high is not None:
            end = min(end, view.find(self.received_us.high))
        if self.position.low is not None:
            start = max(start, self.position.low)
        if self.position.high is not None:
            end = min(end, self.position.high)
        return Span(start, max(start, end))


def _bounds(one: Filter) -> tuple[int | None, int | None]:
    if isinstance(one, In):
        values = [number for value in one.value if (number := _number(value)) is not None]
        whole = bool(values) and len(values) == len(one.value)
        return (min(values), max(values) + 1) if whole else (None, None)
    value = _number(getattr(one, "value", None))
    shifts = _SHIFTS.get(type(one))
    if value is None or shifts is None:
        return (None, None)
    low, high = shifts
    return (None if low is None else value + low, None if high is None else value + high)


def _number(value: object) -> int | None:
    if isinstance(value, datetime):
        return since_epoch(value) if value.tzinfo is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# The amounts added to a filter's value for the bounds [low, high); None for no bound.
_SHIFTS: Final[dict[type[Filter], tuple[int | None, int | None]]] = {
    EqualTo: (0, 1),
    EqualNullSafe: (0, 1),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, 0),
    LessThanOrEqual: (None, 1),
}
