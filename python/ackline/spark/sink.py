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
from ackline._table import HANDED_OVER, nearest, rows
from ackline.exceptions import UsageError
from ackline.spark.logs import log_to_stderr, task_name
from ackline.spark.message_columns import DESTINATION, PROPERTIES, message_columns
from ackline.spark.values import count, flag, size, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

Native = int | float | str | bool | tuple[tuple[str, str], ...] | None
"""The value of an option of a native sink."""

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

STAMP: Final = "ackline"
"""The member that `metadata` adds: an object with query, batch, partition and ordinal."""

DEFAULT_TIMEOUT: Final = 120
"""Seconds without an acknowledgement after which a task fails: receivers restart in less."""

MAX_TIMEOUT: Final = 86_400
"""The longest timeout: a day."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of `write.format("ackline")` or `writeStream.format("ackline")`.

    Attributes:
        url: The URLs of the receivers.
        protocol: The receivers' protocol: lumberjack, relink, bpmux, reactive or micromsg.
        raw: Whether the one column is an event's text, unchanged.
        metadata: Whether each event has query, batch, partition and ordinal.
        native: Further options of the native sink, by its names.
    """

    url: str
    protocol: str
    raw: bool
    metadata: bool
    native: tuple[tuple[str, Native], ...]


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


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    known_names = {name.lower() for name in (*NAMES, *_OF_SPARK)}
    for name in given:
        if name.lower() not in known_names and not name.lower().startswith(_CONNECT):
            raise unknown("the sink of format('ackline')", name, NAMES)
    options = {name.lower(): value.strip() for name, value in given.items()}
    payload = options.get("payload", "json").lower()
    if payload not in ("json", "raw"):
        raise UsageError(f"payload must be json or raw, not {payload!r}")
    metadata = flag(options, "metadata", default=False)
    if metadata and payload == "raw":
        message = (
            "metadata=true adds a member to each event and payload=raw leaves events as they are"
        )
        raise UsageError(message)
    timeout = count(options, "timeout", MAX_TIMEOUT) or DEFAULT_TIMEOUT
    url = _url(options)
    protocol = _protocol(url)
    native: dict[str, Native] = {
        "raw": payload == "raw",
        "keep_nulls": not flag(options, "ignoreNullFields", default=True),
        "timeout": timeout,
        "batch_events": count(options, "batch_events", _MOST_EVENTS.get(protocol, 1_000_000)),
        "batch_bytes": size(options, "batch_bytes"),
    }
    native = {name: value for name, value in native.items() if value}
    if protocol == "lumberjack":
        native |= _windows(options)
    else:
        _refuse_windows(options, protocol)
    if "goodbye" in options:
        native |= _goodbye(options["goodbye"], protocol)
    native |= message_columns(options, protocol)
    tls: dict[str, str] = {name: options[name] for name in _OF_TLS if name in options}
    tls |= _of_connect(options, protocol)
    return SinkOptions(
        url=url,
        protocol=protocol,
        raw=payload == "raw",
        metadata=metadata,
        native=tuple((native | tls).items()),
    )


def writes(given: Mapping[str, str]) -> bool:
    """Return whether options are a sink's, even without a `url`."""
    names = {name.lower() for name in given}
    return "url" in names or ("spool" not in names and not names.isdisjoint(_OF_SINKS))


def check_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Refuse options that a sink does not take; this reads files of TLS and connects to nothing.

    Raises:
        UsageError: Like `sink_options`, and for a URL or a file that cannot be used.
    """
    import pyarrow as pa

    options = sink_options(given)
    # The columns that a message's properties come from are known with the rows alone.
    has_columns = options.protocol == "micromsg"
    column = None if has_columns else pa.schema([pa.field("value", pa.binary())])
    _check(options, dict(options.native), column)
    return options


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
    _check(options, native, to_arrow_schema(schema, timezone="UTC"))


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


def _check(options: SinkOptions, native: dict[str, Any], schema: pa.Schema | None) -> None:
    checks: dict[str, Callable[[str, dict[str, Any], Any], None]] = {
        "lumberjack": _core.LumberjackSink.check,
        "micromsg": _core.MicroMsgRows.check,
        "relink": _core.RelinkSink.check,
        "bpmux": _core.BpmuxRows.check,
        "reactive": _core.ReactiveRows.check,
    }
    checks[options.protocol](options.url, native, schema)


def _windows(options: Mapping[str, str]) -> dict[str, int | None]:
    chosen: dict[str, int | None] = {}
    in_flight = count(options, "max_in_flight", 1_000)
    if in_flight:
        chosen["max_in_flight"] = in_flight
    if "compression" in options:
        chosen["compression"] = _level(options)
    return chosen


def _refuse_windows(options: Mapping[str, str], protocol: str) -> None:
    for name in _OF_WINDOWS[protocol]:
        if name in options:
            other = _OTHER_WINDOWS.get(protocol, "")
            message = f"{name} is an option of windows, and {protocol}:// has no windows{other}"
            raise UsageError(message)


def _goodbye(reason: str, protocol: str) -> dict[str, str]:
    if protocol != "reactive":
        message = f"goodbye is an option of reactive://, and receivers of {protocol}:// acknowledge"
        raise UsageError(message)
    if not reason:
        message = "goodbye is the reason of a subscriber's goodbye that acknowledges the rows"
        raise UsageError(f"{message}: it is empty, and a goodbye without a reason always does")
    return {"goodbye": reason}


def _of_connect(options: Mapping[str, str], protocol: str) -> dict[str, str]:
    """Return the options of the protocol's `connect`, which are given as ``connect.NAME``."""
    call, chosen = f"{protocol}.connect", {}
    names = [name for name in rows(call) if name not in _SET_HERE]
    for given, text in options.items():
        if not given.startswith(_CONNECT):
            continue
        name = given.removeprefix(_CONNECT)
        if name not in names:
            plain = f" (write {name})" if name in NAMES else ""
            hint = plain or nearest(name, names, _CONNECT)
            raise UsageError(f"a sink of {protocol}:// has no option {given}{hint}")
        try:
            _core.check_option(call, name, text)
        except UsageError as error:
            raise UsageError(f"{_CONNECT}{error}") from None
        chosen[name] = text
    return chosen


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


def _url(options: Mapping[str, str]) -> str:
    url = options.get("url", "")
    if not url:
        message = (
            "the option url is missing: the receivers, such as lumberjack://host:5044,other:5044, "
            "relink://host:7000/NAME, bpmux://host:7000, reactive://host:5200/PUBLISHER or "
            "micromsg://host:8334/DESTINATION"
        )
        raise UsageError(message)
    return url


def _protocol(url: str) -> str:
    """Return the protocol of the receivers; refuse one that no sink supports.

    The parts after the first URL may be hosts alone.
    """
    spoken = []
    for one in url.split(","):
        scheme, found, _ = one.strip().partition("://")
        if found:
            spoken.append(scheme.partition("+")[0])
            if spoken[-1] not in _PROTOCOLS:
                raise UsageError(f'{scheme}://: there is no protocol "{scheme}"')
    return spoken[0] if spoken else "lumberjack"


def _level(options: Mapping[str, str]) -> int | None:
    text = options.get("compression", "3").lower()
    if text == "none":
        return None
    if text not in _LEVELS:
        raise UsageError(f"compression must be a level from 0 to 9 or none, not {text!r}")
    return int(text)


_OF_TLS: Final = ("ca", "crl", "cert", "key", "server_name", "token_file")
NAMES: Final = (
    "url",
    *_OF_TLS,
    "compression",
    "batch_events",
    "batch_bytes",
    "max_in_flight",
    "timeout",
    "payload",
    "ignoreNullFields",
    "metadata",
    "goodbye",
    DESTINATION,
    PROPERTIES,
)
_CONNECT: Final = "connect."
"""The text before the options of a protocol's `connect`."""
_SET_HERE: Final = {
    *NAMES,
    *HANDED_OVER,
    "buffer_bytes",
    "buffer_events",
    "credit",
    "parts",
    "receipts",
    "send_bytes",
    "send_window",
    "stuck_after",
    "wants_hints",
}
"""Options of `connect` that a sink sets itself, or takes without the text before them."""
# Options that no reader has.
_OF_SINKS = frozenset(name.lower() for name in NAMES) - {"payload"}
# Options that Spark itself hands on.
_OF_SPARK = ("checkpointLocation",)
_PROTOCOLS = ("lumberjack", "relink", "bpmux", "reactive", "micromsg")
# Half of all numbers of messages on a channel.
_MOST_EVENTS: Final = {"relink": (1 << 31) - 1}
# Options without an effect, by protocol.
_OF_WINDOWS: Final = {
    "relink": ("compression", "max_in_flight"),
    "bpmux": ("compression", "max_in_flight", "batch_events", "batch_bytes"),
    "reactive": ("compression", "max_in_flight", "batch_events", "batch_bytes"),
    "micromsg": ("compression", "max_in_flight", "batch_events", "batch_bytes"),
}
# A hint at the option of a protocol that is meant.
_OTHER_WINDOWS: Final = {
    "micromsg": " of events: connect.window limits the messages without an acknowledgement"
}
_LEVELS = tuple("0123456789")
