"""The data source in Python: what Spark calls, in front of `definition`, `planning` and `reader`.

Spark makes these objects in several processes and pickles them to its workers, so they hold only
options until one process plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from pyspark.sql.types import ArrayType, MapType, StructType

from ackline.exceptions import UsageError
from ackline.spark import counted, messages, published
from ackline.spark.definition import Definition
from ackline.spark.fields import Field, Schema, json_schema
from ackline.spark.planning import BatchPlan, StreamPlan
from ackline.spark.reader import SpoolPartition, read_batches
from ackline.spark.sink import BatchSink, Sender, StreamSink, check_rows
from ackline.spark.sink_options import SinkOptions, sink_options
from ackline.spark.transactions import BatchTransactions, StreamTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import DataType

    from ackline.spark.columns import Columns
    from ackline.spark.offsets import Offset
    from ackline.spark.options import BatchOptions, StreamOptions


class AcklineSource(DataSource):
    """`format("ackline")`: reads the events of spools, and writes rows to receivers.

    Example:
        >>> spark.dataSource.register(AcklineSource)  # doctest: +SKIP
        >>> spark.read.format("ackline").option("spool", "/var/spool/x").load()  # doctest: +SKIP
    """

    cores: int | None = None
    """How many tasks the session runs at once, as `register` found; None if it was not called."""

    def __init__(self, options: dict[str, str]) -> None:
        self._definition = Definition(options, pyspark.__version__)
        super().__init__(self._definition.options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ackline"

    def schema(self) -> StructType | str:
        """Return the columns of an event, or those that the option `columns` or `schema` names."""
        schema = self._definition.schema()
        return schema if isinstance(schema, str) else StructType.fromJson(json_schema(schema))

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
        options, columns = self._definition.batch(described(schema))
        return BatchReader(options, columns, self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a stream, or one that refuses at its first call."""
        try:
            options, columns = self._definition.stream(described(schema))
            return StreamReader(options, columns, self.cores)
        except UsageError as error:
            return RefusedStream(str(error))


def described(schema: StructType) -> Schema:
    """Return Spark's schema as the planning knows it."""
    fields = (
        Field(field.name, _kind(field.dataType), field.nullable, field.metadata or {})
        for field in schema
    )
    return Schema(tuple(fields), lambda: _arrow(schema))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of one query and reads their slices.

    Args:
        options: The options of the query.
        columns: The columns that the query's schema wants.
        cores: How many tasks run at once; None for the cores of this process.
    """

    def __init__(self, options: StreamOptions, columns: Columns, cores: int | None = None) -> None:
        self._options = options
        self._columns = columns
        self._plan = StreamPlan(options, columns, cores)
        # The end of the batch that was planned last, until Spark commits it.
        self._uncommitted: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the constant that names the start of the query."""
        return self._plan.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options; Spark replaces it if its trigger wants all."""
        limit = self._plan.limit
        return ReadAllAvailable() if limit is None else _LIMITS[limit[0]](limit[1])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query at the positions that are durable now."""
        self._plan.pin()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch; moves the consumer's marks to a committed `start`."""
        return self._plan.latest(start, is_all=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return what the spools hold now, and the lag behind it, for the query's progress."""
        return self._plan.report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a batch into tasks; its end offset names the batch."""
        is_ahead = start == self._uncommitted and start != end
        self._uncommitted = end
        tasks = self._plan.partitions(start, end, is_ahead=is_ahead)
        return [SpoolPartition(task.pieces) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's events."""
        return _events(partition, self._columns, self._options)

    def commit(self, end: Offset) -> None:
        """Note that Spark keeps its commits in step; marks move in `latestOffset`, which is sooner.

        Spark calls this only when the next batch was planned, and never for the last one.
        """
        if self._uncommitted == end:
            self._uncommitted = None

    def stop(self) -> None:
        """End the embedded receiver, if there is one, and release the consumer."""
        self._plan.stop()


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
        self._columns = columns
        self._plan = BatchPlan(options, columns, cores)

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the positions into tasks."""
        return [SpoolPartition(task.pieces) for task in self._plan.partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's events; without work Spark still makes one task, with no events."""
        return _events(partition, self._columns, self._options)


def _events(
    partition: InputPartition, columns: Columns, options: StreamOptions | BatchOptions
) -> Iterator[pa.RecordBatch]:
    """Read the events of one task; a foreign task has none."""
    if not isinstance(partition, SpoolPartition):
        return iter(())
    return read_batches(
        partition, columns, skip_repeats=options.skip_repeats, memory=options.read_memory
    )


def _kind(kind: DataType) -> str:
    """Return a type's name; elements that may not be null make another type."""
    text = str(kind.simpleString())
    is_strict = (isinstance(kind, ArrayType) and not kind.containsNull) or (
        isinstance(kind, MapType) and not kind.valueContainsNull
    )
    return f"{text[:-1]} not null>" if is_strict else text


def _arrow(schema: StructType) -> bytes:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        arrow = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise UsageError(f".schema(…) has a type that Arrow does not carry: {error}") from None
    return bytes(arrow.serialize().to_pybytes())


_LIMITS: Final[Mapping[str, Callable[[int], ReadLimit]]] = {
    "rows": ReadMaxRows,
    "bytes": ReadMaxBytes,
    "min_rows": ReadMinRows,
}

# The functions that send a partition's rows, by protocol.
_SENDERS: Final[Mapping[str, Sender]] = {
    "bpmux": counted.send,
    "reactive": published.send,
    "micromsg": messages.send,
}
