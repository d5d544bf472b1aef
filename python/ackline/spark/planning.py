"""The planning of queries: offsets, batches, tasks, and the consumer of a stream. No Spark here.

A stream's plan keeps its spools open in the one process that plans the query, and checks at each
call whether they are still the same, so it detects that a directory was replaced. Plans are pickled
to processes that never plan, and hold only options until their first call.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from ackline.exceptions import SpoolError, UsageError
from ackline.spark.behind import mark_time, measured
from ackline.spark.columns import Columns, check_stream
from ackline.spark.embedded import Embedded
from ackline.spark.logs import log_to_stderr, stream_name
from ackline.spark.losses import Losses
from ackline.spark.offsets import (
    Limit,
    Tracker,
    concrete,
    found_at,
    ranges_between,
    spans_of,
    wait_for_more,
)
from ackline.spark.pauses import SHORTEST_SECONDS, Pauses
from ackline.spark.places import At
from ackline.spark.spools import OpenSpools, Span, Spools, gone_by_name, open_spools
from ackline.spark.tasks import planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from ackline.spark.offsets import Offset
    from ackline.spark.options import BatchOptions, StreamOptions
    from ackline.spark.pieces import Task
    from ackline.spark.spools import SpoolView

_T = TypeVar("_T")
_log = logging.getLogger("ackline.spark")


class StreamPlan:
    """Plans the batches of one stream; offsets as in `offsets`.

    Args:
        options: The options of the query.
        columns: The columns that the query's schema wants.
        cores: How many tasks run at once; None for the cores of this process.
    """

    def __init__(self, options: StreamOptions, columns: Columns, cores: int | None = None) -> None:
        self._options = options
        self._cores = cores
        self._columns = columns
        losses = Losses(fail=options.fail_on_loss, consumer=options.consumer)
        self._tracker = Tracker(
            options.start, options.consumer, losses, start_given=options.start_given
        )
        self._embedded: Embedded | None = None
        self._opened = OpenSpools()
        self._pauses = Pauses()
        self._begun = False
        # The end of the batch that was planned last.
        self._end: Offset | None = None

    @property
    def name(self) -> str:
        """The words that name the query in log lines."""
        return stream_name(self._options.spools, self._options.consumer)

    @property
    def limit(self) -> tuple[str, int] | None:
        """The limit of the options, `rows`, `bytes` or `min_rows` and a number; None for none.

        Spark replaces it if its trigger wants all.
        """
        options = self._options
        if options.patience is not None:
            return "min_rows", options.patience.rows
        if options.max_rows is not None:
            return "rows", options.max_rows
        return None if options.max_bytes is None else ("bytes", options.max_bytes)

    def initial(self) -> Offset:
        """Return the constant that names the start of the query."""
        self._planning(self._tracker.hold)
        return self._tracker.initial()

    def pin(self) -> None:
        """Fix the end of the query at the positions that are durable now."""
        self._planning(self._tracker.pin)

    def latest(self, start: Offset, *, is_all: bool = False) -> Offset:
        """Return the end of the next batch; moves the consumer's marks to a committed `start`.

        Args:
            start: The end of the last batch, or the start of the query.
            is_all: Whether Spark wants all events, whatever the limits of the options.
        """
        self._pauses.asked()
        options, most, patience = self._options, Limit(), None
        if not is_all:
            most, patience = Limit(options.max_rows, options.max_bytes), options.patience

        def latest(spools: Spools) -> Offset:
            return self._tracker.latest(spools, start, most, patience)

        end = self._planning(latest)
        pause = 0.0 if end != start or self._tracker.pinned else self._pauses.next()
        if pause > 0:
            if self._tracker.patient_for > 0:
                time.sleep(min(self._tracker.patient_for, SHORTEST_SECONDS))
            else:
                self._planning(lambda spools: wait_for_more(spools, start, pause))
            end = self._planning(latest)
        if end != start:
            self._pauses.found()
        self._pauses.ended()
        self._end = end
        return end

    def report(self) -> Offset:
        """Return what the spools hold now, and the lag behind it, for the query's progress.

        `lost` counts the positions that the query has passed over.
        """
        lost, options = self._tracker.losses.positions, self._options
        report = self._planning(lambda spools: reported(spools, self._end, options.consumer))
        report |= {"lost": lost} if lost else {}
        report |= {"consumer": options.consumer} if options.consumer is not None else {}
        self._pauses.ended()
        return report | ({"group": True} if options.group else {})

    def partitions(self, start: Offset, end: Offset, *, is_ahead: bool = False) -> list[Task]:
        """Cut a batch into tasks; its end offset names the batch.

        Args:
            start: The end of the batch before.
            end: The end of the batch.
            is_ahead: Whether Spark plans this batch before it has committed the one before.

        Raises:
            UsageError: It does: with `asyncProgressTrackingEnabled`.
        """
        if is_ahead:
            message = (
                "the ackline source does not work with asyncProgressTrackingEnabled: "
                "marks would run ahead of Spark's commit log"
            )
            raise UsageError(message)

        def cut(spools: Spools) -> list[Task]:
            spans = ranges_between(spools, start, end, self._tracker.losses)
            check_stream(self._columns, spools, spans)
            return planned(spools, spans, self._options.tasks, self._cores)

        return self._planning(cut)

    def partitions_ahead(self, start: Offset, end: Offset) -> list[Task] | None:
        """Cut a batch that Spark has not logged yet; None if it is not to be cut so early.

        Cutting a batch that passes over losses notes them, which is done once Spark has logged it.
        """
        if start == end or not self._options.fail_on_loss:
            return None
        return self.partitions(start, end)

    def stop(self, end: Offset | None = None) -> None:
        """End the embedded receiver, if there is one, and release the consumer.

        Args:
            end: The end of the last batch that Spark has committed: the marks move there. None if
                it is not known: then a listener moves them, or the next run of the query.
        """
        try:
            ended = None if end is None or not self._begun else spans_of(end)
            if ended is not None:
                self._planning(lambda spools: self._tracker.finish(spools, ended))
        except (SpoolError, OSError) as error:
            _log.warning("not all marks were moved: %s code=spark.mark_unmoved", error)
        finally:
            try:
                if self._embedded is not None:
                    self._embedded.stop()
            finally:
                self._tracker.release()

    def _planning(self, work: Callable[[Spools], _T]) -> _T:
        """Run `work` in the one process that plans: it listens, and it holds the consumer."""
        self._begin_once()
        if self._options.listen is not None and self._embedded is None:
            self._embedded = Embedded(self._options.spools[0], self._options.listen)
        if self._embedded is not None:
            self._embedded.start()
        options = self._options
        try:
            with gone_by_name(()):
                spools = open_spools(
                    options.spools, options.table, group=options.group, opened=self._opened
                )
            with gone_by_name(() if options.table == "quarantine" else options.spools):
                spools.require()
                self._tracker.hold(spools)
                return work(spools)
        except SpoolError:
            self._opened.forget()
            raise

    def _begin_once(self) -> None:
        """Set up log lines for the process that plans, and warn of a query that marks nothing."""
        if self._begun:
            return
        self._begun = True
        options = self._options
        level = logging.WARNING if options.listen is None else logging.INFO
        log_to_stderr(self.name, level)
        if options.consumer is None:
            _log.warning(
                "the ackline stream has no option consumer: it reads along, marks nothing, and "
                "the spool does not wait for it code=spark.no_consumer"
            )


class BatchPlan:
    """Plans positions [start, end) of the spools, in their state when the query is planned.

    Args:
        options: The options of the query.
        columns: The columns that the query's schema wants.
        cores: How many tasks run at once; None for the cores of this process.
    """

    def __init__(self, options: BatchOptions, columns: Columns, cores: int | None = None) -> None:
        self._options = options
        self._cores = cores
        self._columns = columns

    @property
    def name(self) -> str:
        """The words that name the query in log lines."""
        return f"batch query of spool {', '.join(self._options.spools)}"

    def partitions(self) -> list[Task]:
        """Cut the positions into tasks."""
        options = self._options
        log_to_stderr(self.name)
        with gone_by_name(()):
            spools = open_spools(options.spools, options.table, group=options.group)
        spools.require()
        options.start.check(spools)
        options.end.check(spools)
        with gone_by_name(() if options.table == "quarantine" else options.spools):
            spans = {
                uuid: _batch_span(options, uuid, spools.path(uuid), view) for uuid, view in spools
            }
            filled = {uuid: span for uuid, span in spans.items() if span.rows > 0}
            check_stream(self._columns, spools, filled)
            return planned(spools, filled, options.tasks, self._cores)


def reported(spools: Spools, end: Offset | None, consumer: str | None) -> Offset:
    """Return the positions of spools, their directories, and how far a batch's end is behind."""
    spans = {} if end is None else spans_of(end) or {}
    held = {uuid: Span(view.first_kept(), view.durable()) for uuid, view in spools}
    report = concrete(held)
    for uuid, view in spools:
        at = spans[uuid].end if uuid in spans else held[uuid].start
        told = report["spools"][uuid]
        told |= {"path": spools.path(uuid)} | measured(view, at)
        if consumer is not None:
            told["marked_at"] = mark_time(view, consumer)
    return report


def _batch_span(options: BatchOptions, uuid: str, path: str, view: SpoolView) -> Span:
    first, durable = view.first_kept(), view.durable()
    places = options.start.of(uuid, path), options.end.of(uuid, path)
    start, end = (position.position if isinstance(position, At) else None for position in places)
    start = first if start is None else start
    end = durable if end is None else end
    if not first <= start <= end <= durable:
        message = (
            f"positions {start} to {end} are not all in spool {uuid}, which holds {first} to "
            f"{durable}: choose start and end in between"
        )
        raise SpoolError(message, code="spool.gap" if start < first else "spool.range")
    if isinstance(places[0], int):
        start = max(start, found_at(uuid, view, places[0]))
    elif places[0] == "latest":
        start = end
    if isinstance(places[1], int):
        end = min(end, view.find(places[1]))
    if start > end:
        message = (
            f"spool.range: the query begins at position {start} of spool {uuid} ("
            f"{options.start.option}), behind its end at {end} ({options.end.option})"
        )
        raise SpoolError(message, code="spool.range")
    return Span(start, end)
