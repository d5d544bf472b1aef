"""The sink: rows of a batch, or of a stream's micro-batches, sent to receivers.

To Relink receivers they go in transactions: see `transactions`; to bpmux receivers on a sink for
each partition: see `counted`; to subscribers of Reactive Streams as a stream for each partition:
see `published`; to peers of MicroMsg2 as messages with properties: see `messages`. To Lumberjack
receivers a task ends well when every row of its partition is acknowledged. While connections come
and go it sends the unacknowledged rows; when no acknowledgement comes for `timeout` it fails, and
Spark decides whether it runs again. So every row arrives at least once. Spark pickles the writers
to its workers: the writers hold only options.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType
from pyspark.taskcontext import TaskContext

from ackline import _core
from ackline.exceptions import UsageError
from ackline.spark.logs import log_to_stderr, task_name
from ackline.spark.sink_options import check_native

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ackline.spark.sink_options import SinkOptions

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

STAMP: Final = "ackline"
"""The member that `metadata` adds: an object with query, batch, partition and ordinal."""


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """The result of a task.

    Attributes:
        partition: The task's partition.
        rows: The number of rows, all acknowledged.
        possible_repeats: How many of these were sent again and may have arrived before.
    """

    partition: int
    rows: int
    possible_repeats: int


def check_rows(options: SinkOptions, schema: StructType) -> None:
    """Refuse rows that have no form in JSON.

    Args:
        options: The sink's options.
        schema: The schema of the frame that is written.

    Raises:
        UsageError: A column is of such a type, a name occurs twice, there is no column, or
            payload=raw has not exactly one column `payload` or `value` that is a string or binary;
            a column of destinations or properties is missing, or has another type than these have.
    """
    used = _used_columns(options)
    names = [name for name in schema.names if name not in used]
    if options.raw and [name.lower() for name in names] not in (["payload"], ["value"]):
        beside = f" beside {', '.join(used)}" if used else ""
        message = (
            "payload=raw sends one column, payload or value, as it is: the frame has "
            f"{', '.join(names) or 'none'}{beside}"
        )
        raise UsageError(message)
    if not schema.names:
        raise UsageError("the frame has no columns, and Spark hands no rows of such a frame on")
    for field in schema:
        _check_type(field.name, field.dataType, nullable=field.nullable)
    native = dict(options.native) | _stamp(options, "", 0, 0)
    check_native(options, native, to_arrow_schema(schema, timezone="UTC"))


class BatchSink(DataSourceArrowWriter):
    """Sends the rows of `df.write`.

    Args:
        options: The sink's options.
        sender: The function of the protocol that sends a partition's rows; Lumberjack's if missing.
    """

    def __init__(self, options: SinkOptions, sender: Sender | None = None) -> None:
        self._options = options
        self._sender = sender or send
        # The id of this write: the attempts of a task share it.
        self._query = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a partition's rows; returns when all are acknowledged."""
        return self._send(self._query, 0, iterator)

    def _send(self, query: str, batch: int, rows: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sender(self._options, query, batch, rows)


class StreamSink(DataSourceStreamArrowWriter):
    """Sends the rows of `df.writeStream`, micro-batch by micro-batch.

    Args:
        options: The sink's options.
        sender: The function of the protocol that sends a partition's rows; Lumberjack's if missing.
    """

    def __init__(self, options: SinkOptions, sender: Sender | None = None) -> None:
        self._options = options
        self._sender = sender or send

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a partition's rows; returns when all are acknowledged."""
        return self._send(*micro_batch(), iterator)

    def _send(self, query: str, batch: int, rows: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sender(self._options, query, batch, rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: acknowledged rows cannot be taken back."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: the rows that some tasks sent have arrived, and will again with the batch."""


def send(options: SinkOptions, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Send a partition's rows and return when all are acknowledged.

    Args:
        options: The sink's options.
        query: The id of the query or write, for the stamp.
        batch: The micro-batch, for the stamp.
        batches: The partition's rows.

    Raises:
        LinkLost: No acknowledgement came for `timeout`; the text has the hosts and the counts.
        UsageError: A row cannot be sent.
    """
    partition = task().partitionId()
    sink = _core.LumberjackSink(options.url, native_of(options, query, batch, partition))
    sent, repeats, _ = finished(sink, batches)
    return Sent(partition, sent, repeats)


class Sender(Protocol):
    """Sends a partition's rows and returns when the receiver has them."""

    def __call__(
        self, options: SinkOptions, query: str, batch: int, batches: Iterator[pa.RecordBatch], /
    ) -> WriterCommitMessage:
        """Send the rows of the query's batch."""


class NativeSink(Protocol[_T_co]):
    """A native sink of any protocol, for the rows of one partition."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Send rows."""

    def finish(self) -> _T_co:
        """Wait until the receiver has all rows."""

    def abort(self) -> None:
        """Give the rows up."""


def finished(sink: NativeSink[_T], batches: Iterator[pa.RecordBatch]) -> _T:
    """Send all rows to a native sink and return its result; any failure ends the sink."""
    try:
        for rows in batches:
            sink.write(rows)
        return sink.finish()
    except BaseException:
        sink.abort()
        raise


def micro_batch() -> tuple[str, int]:
    """Return the query and the micro-batch of this task."""
    context = task()
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    return query, int(context.getLocalProperty("streaming.sql.batchId") or "0")


def native_of(options: SinkOptions, query: str, batch: int, partition: int) -> dict[str, Any]:
    """Return the options of a task's native sink."""
    stamp = _stamp(options, query, batch, partition)
    return dict(options.native) | stamp | {"partition": partition}


def task() -> TaskContext:
    """Return the context of the task that runs here; put its query's name into log lines.

    Raises:
        RuntimeError: No task runs here.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are sent by a task of Spark")
    log_to_stderr(task_name(context))
    return context


def _stamp(
    options: SinkOptions, query: str, batch: int, partition: int
) -> dict[str, tuple[str, int, int]]:
    return {"stamp": (query, batch, partition)} if options.metadata else {}


def _used_columns(options: SinkOptions) -> list[str]:
    """Return the columns of destinations and properties, which are no part of the payload."""
    if options.protocol != "micromsg":
        return []
    native = dict(options.native)
    destination = _core.MicroMsgRows.destination_column(options.url, native)
    properties = cast("tuple[tuple[str, str], ...]", native.get("properties", ()))
    return [name for name in (destination, *dict(properties)) if name is not None]


def _check_type(column: str, kind: DataType, *, nullable: bool) -> None:
    """Refuse a type that Spark does not hand on, naming its path."""
    parts: list[tuple[str, DataType, bool]] = []
    if isinstance(kind, StructType):
        parts = [(field.name, field.dataType, field.nullable) for field in kind]
    elif isinstance(kind, ArrayType):
        parts = [("element", kind.elementType, kind.containsNull)]
    elif isinstance(kind, MapType):
        parts = [("key", kind.keyType, False), ("value", kind.valueType, kind.valueContainsNull)]
    elif isinstance(kind, NullType) and not nullable:
        message = (
            f"column {column} is void and may not be null, as in array() and map(): give it a "
            "type, CAST(array() AS ARRAY<STRING>) for example"
        )
        raise UsageError(message)
    else:
        try:
            to_arrow_type(kind, timezone="UTC")
        except PySparkException:
            message = (
                f"column {column} is {kind.simpleString()}, which Spark does not hand on: convert "
                f"it before, CAST({column} AS STRING) for example"
            )
            raise UsageError(message) from None
    for name, part, part_nullable in parts:
        _check_type(f"{column}.{name}", part, nullable=part_nullable)
