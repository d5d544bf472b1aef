"""What a query does with its time: lag by spool, and rows, bytes and phases by batch.

The numbers are those of the query's progress. A table of text shows them in a terminal, and a
picture (SVG) in a notebook.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ackline.spark.behind import SpoolLag, lag, report_of
from ackline.spark.svg import COLORS, box, page, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The cost of one micro-batch; times are milliseconds.

    The times of tasks (`read_ms` to `hand_over_ms`) are sums over all tasks of the batch, which run
    at the same time: together they may be longer than `whole_ms`.

    Attributes:
        batch: Its number.
        at: Its beginning, as Spark writes it.
        rows: Its events.
        bytes: Bytes of the spools' files that were read; None where Python workers read.
        plan_ms: Time for its end, its tasks and its plan, with waiting for events.
        read_ms: Time for reading and checking files; None as above.
        inflate_ms: Time for inflating blocks and making events of them; None as above.
        project_ms: Time for columns that are filled from payloads; None as above.
        hand_over_ms: Time that Spark took for the rows: its operators and the sink; None as above.
        commit_ms: Time for Spark's logs of offsets and commits.
        whole_ms: Time from its beginning to its end.
    """

    batch: int
    at: str
    rows: int
    bytes: int | None
    plan_ms: float
    read_ms: float | None
    inflate_ms: float | None
    project_ms: float | None
    hand_over_ms: float | None
    commit_ms: float
    whole_ms: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A query's lag and the cost of its last batches; `print` shows a table, a notebook a picture.

    Attributes:
        query: The query's name, or its id.
        spools: The lag behind each spool.
        batches: The batches that Spark still knows (`spark.sql.streaming.numRecentProgressUpdates`)
            and that had events, in their order.
    """

    query: str
    spools: tuple[SpoolLag, ...]
    batches: tuple[BatchCost, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as values of JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return tables for a terminal."""
        lags = [
            [one.path, f"{one.rows_behind:,}", f"{one.seconds_behind:,.1f}"] for one in self.spools
        ]
        costs = [_cells(str(one.batch), one) for one in self.batches]
        if len(self.batches) > 1:
            costs.append(_cells("all", _sum(self.batches)))
        lines = [
            f"query {self.query}, {len(self.batches)} batches with events",
            "",
            *_table(["spool", "rows behind", "seconds behind"], lags),
            "",
            *_table(
                ["batch", "rows", "bytes", *(f"{name} ms" for name in PHASES), "whole ms"], costs
            ),
        ]
        if any(one.bytes is None for one in self.batches):
            lines += ["", "- is not known: Python workers read, and count nothing"]
        return "\n".join(lines)

    def svg(self) -> str:
        """Return a picture of the last 40 batches: a bar for each, with its phases, as SVG."""
        return _picture(self)

    def _repr_svg_(self) -> str:
        """Return the picture: Jupyter calls this."""
        return self.svg()


PHASES: Final = ("plan", "read", "inflate", "project", "hand over", "commit")
"""The phases of a batch, in the order of tables and pictures."""


def explain(query: StreamingQuery) -> Explanation:
    """Return what a query did with its time, and how far it is behind.

    Args:
        query: A query whose source is ackline; it may have ended.

    Example:
        >>> print(ackline.spark.explain(query))  # doctest: +SKIP
        >>> Path("query.svg").write_text(ackline.spark.explain(query).svg())  # doctest: +SKIP
    """
    recent: list[Any] = list(query.recentProgress)
    costs = [cost for cost in map(_cost, recent) if cost is not None]
    # A batch that was planned without events is told with the next one's number.
    kept = {cost.batch: cost for cost in costs if cost.rows > 0}
    return Explanation(query.name or str(query.id), tuple(lag(query)), tuple(kept.values()))


def _cost(progress: Mapping[str, Any]) -> BatchCost | None:
    sources = [one for one in progress["sources"] if report_of(one["latestOffset"]) is not None]
    if not sources:
        return None
    times = progress["durationMs"] or {}

    def spent(*names: str) -> float:
        return float(sum(times.get(name, 0) for name in names))

    def counted(name: str) -> float | None:
        found = [(one["metrics"] or {}).get(name) for one in sources]
        known = [float(number) for number in found if number is not None]
        return round(sum(known), 2) if known else None

    read = counted("bytes_read")
    return BatchCost(
        batch=int(progress["batchId"]),
        at=str(progress["timestamp"]),
        rows=sum(int(one["numInputRows"]) for one in sources),
        bytes=None if read is None else int(read),
        plan_ms=spent("latestOffset", "getBatch", "queryPlanning"),
        read_ms=counted("read_ms"),
        inflate_ms=counted("inflate_ms"),
        project_ms=counted("project_ms"),
        hand_over_ms=counted("hand_over_ms"),
        commit_ms=spent("walCommit", "commitOffsets", "commitBatch"),
        whole_ms=spent("triggerExecution"),
    )


def _phases(cost: BatchCost) -> list[float | None]:
    return [
        cost.plan_ms,
        cost.read_ms,
        cost.inflate_ms,
        cost.project_ms,
        cost.hand_over_ms,
        cost.commit_ms,
    ]


def _sum(costs: Sequence[BatchCost]) -> BatchCost:
    def total(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    phases = [total(values) for values in zip(*map(_phases, costs), strict=True)]
    read = total([cost.bytes for cost in costs])
    return BatchCost(
        batch=costs[-1].batch,
        at=costs[0].at,
        rows=sum(cost.rows for cost in costs),
        bytes=None if read is None else int(read),
        plan_ms=phases[0] or 0.0,
        read_ms=phases[1],
        inflate_ms=phases[2],
        project_ms=phases[3],
        hand_over_ms=phases[4],
        commit_ms=phases[5] or 0.0,
        whole_ms=sum(cost.whole_ms for cost in costs),
    )


def _cells(name: str, cost: BatchCost) -> list[str]:
    numbers = [cost.rows, cost.bytes, *_phases(cost), cost.whole_ms]
    return [name, *("-" if number is None else f"{number:,.0f}" for number in numbers)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, the first column to the left and numbers to the right."""
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in (head, *rows)
    ]


_SHOWN: Final = 40
_WIDTH: Final = 760
_LEFT: Final = 130
_BAR: Final = 16


def _picture(told: Explanation) -> str:
    shown = told.batches[-_SHOWN:]
    bars = [[phase or 0.0 for phase in _phases(cost)] for cost in shown]
    longest = max((sum(bar) for bar in bars), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - 90) / longest
    drawn = [text(8, 20, f"query {told.query}: milliseconds of each batch, summed over its tasks")]
    for at, (name, color) in enumerate(zip(PHASES, COLORS, strict=True)):
        left = float(_LEFT + 100 * at)
        drawn += [box(left, 32, (10, 10), color, name), text(left + 14, 42, name)]
    top = 56
    for cost, bar in zip(shown, bars, strict=True):
        drawn.append(text(8, top + 12, f"{cost.batch}: {cost.rows:,} rows"))
        left = float(_LEFT)
        for name, color, phase in zip(PHASES, COLORS, bar, strict=True):
            drawn.append(box(left, top, (phase * scale, _BAR), color, f"{name}: {phase:,.1f} ms"))
            left += phase * scale
        drawn.append(text(left + 6, top + 12, f"{sum(bar):,.0f} ms"))
        top += _BAR + 4
    for spool in told.spools:
        behind = f"{spool.rows_behind:,} rows, {spool.seconds_behind:,.1f} s behind"
        drawn.append(text(8, top + 18, f"{spool.path}: {behind}"))
        top += 18
    return page(_WIDTH, top + 16, drawn)
