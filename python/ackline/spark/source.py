"""The data source for Spark: schema, stream reader, batch reader.

Spark makes these objects in several processes and pickles them to its workers, so they hold only
options. The stream reader keeps its spools open in the one process that plans the query, and checks
at each call whether they are still the same, so it detects that a directory was replaced.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    StructType,
    VariantType,
)

from ackline.exceptions import SpoolError, UsageError
from ackline.spark import check_version, counted, messages, published
from ackline.spark.behind import mark_time, measured
from ackline.spark.columns import check_stream, own_schema, wanted_columns
from ackline.spark.embedded import Embedded
from ackline.spark.given import is_of_table, own_options, remembering, with_remembered
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
from ackline.spark.options import (
    BATCH_NAMES,
    COLUMNS,
    PLACES,
    STREAM_NAMES,
    BatchOptions,
    StreamOptions,
    batch_options,
    check_options,
    columns_of,
    stream_options,
)
from ackline.spark.payload import (
    payload_options,
)
from ackline.spark.places import At
from ackline.spark.reader import Columns, SpoolPartition, read_batches
from ackline.spark.sink import (
    BatchSink,
    Sender,
    SinkOptions,
    StreamSink,
    check_rows,
    check_sink_options,
    sink_options,
    writes,
)
from ackline.spark.spools import OpenSpools, Span, Spools, gone_by_name, open_spools
from ackline.spark.tasks import planned
from ackline.spark.transactions import BatchTransactions, StreamTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from ackline.spark.offsets import Offset
    from ackline.spark.spools import SpoolView

IDLE_WAIT_SECONDS: Final = 0.1
"""Seconds that `latestOffset` waits for events: fewer idle rounds, and no batch is delayed."""

_T = TypeVar("_T")
_log = logging.getLogger("ackline.spark")


class AcklineSource(DataSource):
    """`format("ackline")`: reads the events of spools, and writes rows to receivers.

    Example:
        >>> spark.dataSource.register(AcklineSource)  # doctest: +SKIP
        >>> spark.read.format("ackline").option("spool", "/var/spool/x").load()  # doctest: +SKIP
    """

    cores: int | None = None
    """How many tasks the session runs at once, as `register` found; None if it was not called."""

    def __init__(self, options: dict[str, str]) -> None:
        check_version(pyspark.__version__)
        self._is_of_table = is_of_table(options)
        options = own_options(options)
        # This is done here: Spark hides the errors of a stream's reader behind an error of its own.
        # Where no place is named, the columns of a table may carry it.
        if writes(options) or any(name.lower() == "spool" for name in options):
            check_any(options)
        super().__init__(options)
        # Spark asks for the columns only if `.schema(…)` does not name them.
        self._is_asked = False

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ackline"

    def schema(self) -> StructType | str:
        """Return the columns of an event, or those that the option `columns` or `schema` names."""
        self._is_asked = True
        check_any(self.options)
        if writes(self.options):
            raise UsageError(
                "a table whose rows are sent must name its columns, and each INSERT names the "
                "url again: INSERT INTO table WITH (url = '...') SELECT ..."
            )
        schema = self._own_schema()
        return remembering(schema, self.options) if self._is_of_table else schema

    def _own_schema(self) -> StructType | str:
        given = {name.lower(): value for name, value in self.options.items()}
        payload = payload_options(given)
        if payload.event_columns is not None and payload.ddl is None:
            raise UsageError("eventColumns needs .schema(…) or the option schema")
        return payload.with_rescued() or own_schema(columns_of(given) or COLUMNS, payload)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> BatchSink:
        """Return the sink for the rows of a batch query."""
        options = self._sink(schema)
        if overwrite:
            raise UsageError("rows that were sent cannot be overwritten: use .mode('append')")
        if options.protocol == "relink":
            return BatchTransactions(options)
        return BatchSink(options, _SENDERS.get(options.protocol))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> StreamSink:
        """Return the sink for the rows of a stream; in mode complete, all of them in each batch."""
        del overwrite
        options = self._sink(schema)
        if options.protocol == "relink":
            return StreamTransactions(options)
        return StreamSink(options, _SENDERS.get(options.protocol))

    def _sink(self, schema: StructType) -> SinkOptions:
        options = sink_options(self.options)
        check_rows(options, schema)
        return options

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query."""
        options = batch_options(self._with_remembered(schema, BATCH_NAMES))
        return BatchReader(options, self._wanted(schema, options), self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a stream, or one that refuses at its first call."""
        try:
            options = stream_options(self._with_remembered(schema, STREAM_NAMES))
            return StreamReader(options, self._wanted(schema, options), self.cores)
        except UsageError as error:
            return RefusedStream(str(error))

    def _with_remembered(self, schema: StructType, names: Collection[str]) -> dict[str, str]:
        """Return the options, and those of a table that a query of this kind has."""
        found = with_remembered(self.options, schema, PLACES)
        known = {name.lower() for name in names}
        own = {name.lower() for name in self.options}
        # The columns of such a table were asked for when it was made.
        self._is_asked |= len(found) > len(self.options) and "schema" not in own
        return {name: text for name, text in found.items() if name.lower() in own | known}

    def _wanted(self, schema: StructType, options: BatchOptions | StreamOptions) -> Columns:
        if options.payload.ddl is not None and not self._is_asked:
            raise UsageError("the option schema and .schema(…) contradict each other: give one")
        if options.payload.is_variant and not self._is_asked:
            whole = [field.dataType for field in schema if field.name == "payload"]
            if not all(isinstance(kind, VariantType) for kind in whole) or not whole:
                raise UsageError(
                    "payload=variant makes the whole payload one column and needs no schema, but "
                    ".schema(…) names other columns: leave payload=variant out, or name "
                    "'payload VARIANT' in .schema(…)"
                )
        return wanted_columns(schema, options)


def check_any(options: Mapping[str, str]) -> None:
    """Refuse options that neither a reader nor a sink takes.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    if writes(options):
        check_sink_options(options)
    else:
        check_options(options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of one query and reads their slices; offsets as in `offsets`.

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
        self._begun = False
        # The end of the batch that was planned last.
        self._end: Offset | None = None
        self._uncommitted: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the constant that names the start of the query."""
        self._planning(self._tracker.hold)
        return self._tracker.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options; Spark replaces it if its trigger wants all."""
        patience = self._options.patience
        if patience is not None:
            return ReadMinRows(patience.rows)
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query at the positions that are durable now."""
        self._planning(self._tracker.pin)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch; moves the consumer's marks to a committed `start`."""
        options, most, patience = self._options, Limit(), None
        if not isinstance(limit, ReadAllAvailable):
            most, patience = Limit(options.max_rows, options.max_bytes), options.patience

        def latest(spools: Spools) -> Offset:
            return self._tracker.latest(spools, start, most, patience)

        end = self._planning(latest)
        if end == start and not self._tracker.pinned:
            if self._tracker.patient_for > 0:
                time.sleep(min(self._tracker.patient_for, IDLE_WAIT_SECONDS))
            else:
                self._planning(lambda spools: wait_for_more(spools, start, IDLE_WAIT_SECONDS))
            end = self._planning(latest)
        self._end = end
        return end

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return what the spools hold now, and the lag behind it, for the query's progress.

        `lost` counts the positions that the query has passed over.
        """
        lost, options = self._tracker.losses.positions, self._options
        report = self._planning(lambda spools: reported(spools, self._end, options.consumer))
        report |= {"lost": lost} if lost else {}
        report |= {"consumer": options.consumer} if options.consumer is not None else {}
        return report | ({"group": True} if options.group else {})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a batch into tasks; its end offset names the batch."""
        self._check_commits(start, end)

        def cut(spools: Spools) -> list[SpoolPartition]:
            spans = ranges_between(spools, start, end, self._tracker.losses)
            check_stream(self._columns, spools, spans)
            return planned(spools, spans, self._options.tasks, self._cores)

        return self._planning(cut)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's events."""
        return _events(partition, self._columns, self._options)

    def commit(self, end: Offset) -> None:
        """Note that Spark keeps its commits in step; marks move in `latestOffset`, which is sooner.

        Spark calls this only when the next batch was planned, and never for the last one.
        """
        if self._uncommitted == _text(end):
            self._uncommitted = None

    def stop(self) -> None:
        """End the embedded receiver, if there is one, and release the consumer."""
        if self._embedded is not None:
            self._embedded.stop()
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

    def _check_commits(self, start: Offset, end: Offset) -> None:
        # Async progress tracking plans the next batch before it has committed the last one.
        if self._uncommitted is not None and self._uncommitted == _text(start) and start != end:
            message = (
                "the ackline source does not work with asyncProgressTrackingEnabled: "
                "marks would run ahead of Spark's commit log"
            )
            raise UsageError(message)
        self._uncommitted = _text(end)

    def _begin_once(self) -> None:
        """Set up log lines for the process that plans, and warn of a query that marks nothing."""
        if self._begun:
            return
        self._begun = True
        options = self._options
        level = logging.WARNING if options.listen is None else logging.INFO
        log_to_stderr(stream_name(options.spools, options.consumer), level)
        if options.consumer is None:
            _log.warning(
                "the ackline stream has no option consumer: it reads along, marks nothing, and "
                "the spool does not wait for it code=spark.no_consumer"
            )


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Replaces a reader that cannot be made: Spark would raise an error of its own instead.

    Args:
        message: The reason why the reader cannot be made.
    """

    def __init__(self, message: str) -> None:
        self._message = message

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Refuse."""
        raise UsageError(self._message)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return any limit: the next call refuses."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Refuse."""
        raise UsageError(self._message)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802 - Spark's
        """Refuse."""
        raise UsageError(self._message)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002
        """Refuse."""
        raise UsageError(self._message)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Refuse."""
        raise UsageError(self._message)


class BatchReader(DataSourceReader):
    """Reads positions [start, end) of the spools, in their state when the query is planned.

    Args:
        options: The options of the query.
        columns: The columns that the query's schema wants.
        cores: How many tasks run at once; None for the cores of this process.
    """

    def __init__(self, options: BatchOptions, columns: Columns, cores: int | None = None) -> None:
        self._options = options
        self._cores = cores
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the positions into tasks."""
        options = self._options
        log_to_stderr(f"batch query of spool {', '.join(options.spools)}")
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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's events; without work Spark still makes one task, with no events."""
        return _events(partition, self._columns, self._options)


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


def _events(
    partition: InputPartition, columns: Columns, options: StreamOptions | BatchOptions
) -> Iterator[pa.RecordBatch]:
    """Read the events of one task; a foreign task has none."""
    if not isinstance(partition, SpoolPartition):
        return iter(())
    return read_batches(
        partition, columns, skip_repeats=options.skip_repeats, memory=options.read_memory
    )


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


def _text(offset: Offset) -> str:
    return json.dumps(offset, sort_keys=True)


# The functions that send a partition's rows, by protocol.
_SENDERS: Final[Mapping[str, Sender]] = {
    "bpmux": counted.send,
    "reactive": published.send,
    "micromsg": messages.send,
}
