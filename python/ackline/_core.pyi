"""The native module: verbs that never wait, waits that take nothing, and the bare machines.

Users take the classes of `ackline.lumberjack`, `ackline.aio`, `ackline.sansio`, `ackline.Spool` and
`ackline.Receiver`; this module holds what they are made of.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, Self, TypeAlias, final

from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxListener,
    BpmuxRequest,
    BpmuxResponse,
    BpmuxServing,
    BpmuxSink,
    BpmuxStream,
    PendingOp,
    bpmux_connect,
    bpmux_connect_within,
)
from ackline._micromsg_core import (
    MicroMsgBatch,
    MicroMsgBroker,
    MicroMsgConnection,
    MicroMsgFilter,
    MicroMsgListener,
    MicroMsgMessage,
    micromsg_connect,
    micromsg_read_properties,
    micromsg_serve,
    micromsg_split,
    micromsg_write_properties,
)
from ackline._reactive_core import (
    ReactiveConnection,
    ReactiveElements,
    ReactiveListener,
    ReactiveNames,
    ReactivePublication,
    ReactiveRequest,
    ReactiveSubscription,
    reactive_connect,
    reactive_split,
)
from ackline._relink_core import (
    RelinkBatch,
    RelinkConnecting,
    RelinkLink,
    RelinkListener,
    RelinkMessage,
    RelinkPart,
    RelinkReceipt,
)
from ackline._sansio_core import (
    Machine,
    sansio_decode,
    sansio_describe,
    sansio_encode,
    sansio_protocols,
)
from ackline.aio._wait import Standing

__all__ = [
    "MAX_JSON_BYTES",
    "BpmuxConnection",
    "BpmuxListener",
    "BpmuxRequest",
    "BpmuxResponse",
    "BpmuxServing",
    "BpmuxSink",
    "BpmuxStream",
    "ElementShape",
    "EventStream",
    "Lease",
    "LoopWaker",
    "LumberjackBatch",
    "LumberjackListener",
    "LumberjackRoom",
    "LumberjackSender",
    "LumberjackSink",
    "LumberjackWindow",
    "Machine",
    "MicroMsgBatch",
    "MicroMsgBroker",
    "MicroMsgConnection",
    "MicroMsgFilter",
    "MicroMsgListener",
    "MicroMsgMessage",
    "PendingOp",
    "ReactiveConnection",
    "ReactiveElements",
    "ReactiveListener",
    "ReactiveNames",
    "ReactivePublication",
    "ReactiveRequest",
    "ReactiveRows",
    "ReactiveSubscription",
    "Receiver",
    "RelinkBatch",
    "RelinkConnecting",
    "RelinkLink",
    "RelinkListener",
    "RelinkMessage",
    "RelinkPart",
    "RelinkReceipt",
    "RelinkSink",
    "Spool",
    "__version__",
    "bpmux_connect",
    "bpmux_connect_within",
    "check_option",
    "check_seconds",
    "check_whole",
    "micromsg_connect",
    "micromsg_read_properties",
    "micromsg_serve",
    "micromsg_split",
    "micromsg_write_properties",
    "milliseconds_in",
    "option_table",
    "protocols",
    "reactive_connect",
    "reactive_split",
    "sansio_decode",
    "sansio_describe",
    "sansio_encode",
    "sansio_protocols",
    "size_in",
    "spool_adopt",
]

__version__: str
MAX_JSON_BYTES: int
"""Bytes of a JSON event that receivers take by default."""

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

_Pairs: TypeAlias = Sequence[tuple[bytes | str, bytes | str]]

@final
class LoopWaker:
    """The waits of one event loop, polled in its thread alone.

    Args:
        event_loop: The loop, which is to call `poll_woken` when `fileno` is readable.
    """

    def __new__(cls, event_loop: AbstractEventLoop) -> Self: ...
    def fileno(self) -> int:
        """The descriptor that is readable when a wait was woken; it is one for all waits."""
    def poll_woken(self) -> None:
        """Looks at the waits that were woken, and ends those that are over.

        It sets their futures and calls their callbacks; it raises a callback's error after all
        calls.
        """
    def give_up(self, token: int) -> None:
        """Gives a wait up; does nothing if it is over."""

@final
class BpmuxRows:
    """The sender of a task of the Spark sink: rows on a sink of bpmux.

    Args:
        url: The receiver.
        options: `timeout` (seconds in which a connection must be made, and without progress after
            which it gives up), and any of `opening` (the payload that opens the sink), `ca`,
            `cert`, `key`, `server_name`, `token_file`, `raw`, `keep_nulls`, `stamp` (query, batch,
            partition) and `partition`, which errors name.
    """

    def __new__(cls, url: str, options: Mapping[str, Any]) -> Self: ...
    @staticmethod
    def check(url: str, options: Mapping[str, Any], schema: object) -> None:
        """Raises the error of a sink for rows of this Arrow schema, without a connection."""
    def write(self, batch: object) -> None:
        """Sends the rows of an Arrow record batch; connects with the first; waits for room."""
    def finish(self) -> int:
        """Closes the sink with its count, waits for the acknowledgement; returns the count."""
    def abort(self) -> None:
        """Ends the connection now."""

@final
class MicroMsgRows:
    """The sender of a task of the Spark sink: rows as messages of MicroMsg2.

    Args:
        url: The peer, with the destination of all messages or without.
        options: `timeout` (seconds without an acknowledgement after which it gives up), and any of
            `destination` (the column of destinations), `properties` (columns, each with the name of
            its property or an empty text), `ca`, `cert`, `key`, `server_name`, `token_file`, `raw`,
            `keep_nulls`, `stamp` (query, batch, partition) and `partition`, which errors name.
    """

    def __new__(cls, url: str, options: Mapping[str, Any]) -> Self: ...
    @staticmethod
    def check(url: str, options: Mapping[str, Any], schema: object | None = None) -> None:
        """Raises the error of a sink for rows of this Arrow schema, without a connection."""
    @staticmethod
    def destination_column(url: str, options: Mapping[str, Any]) -> str | None:
        """The column of destinations; None if the URL has the destination."""
    def write(self, batch: object) -> None:
        """Sends the rows of an Arrow record batch; connects with the first; waits for room."""
    def finish(self) -> tuple[int, int]:
        """Waits for all acknowledgements; returns the rows, and how many were sent again."""
    def abort(self) -> None:
        """Ends the connection now."""

@final
class LumberjackSink:
    """The sender of a task of the Spark sink: rows as windows of Lumberjack.

    Args:
        url: The receivers.
        options: `timeout` (seconds without an acknowledgement after which it gives up), and any of
            `compression`, `max_in_flight`, `batch_events`, `batch_bytes`, `ca`, `cert`, `key`,
            `server_name`, `token_file`, `raw`, `keep_nulls`, `stamp` (query, batch, partition) and
            `partition`, which errors name; `read_timeout`, at most half of `timeout` where it is
            not given.
    """

    def __new__(cls, url: str, options: Mapping[str, Any]) -> Self: ...
    @staticmethod
    def check(url: str, options: Mapping[str, Any], schema: object) -> None:
        """Raises the error of a sink for rows of this Arrow schema, without a connection."""
    def write(self, batch: object) -> None:
        """Takes the rows of an Arrow record batch; waits for room."""
    def finish(self) -> tuple[int, int, int]:
        """Waits until all is acknowledged; returns (rows, possible repeats, reconnects)."""
    def abort(self) -> None:
        """Ends the connections now."""

@final
class ReactiveRows:
    """The sender of a task of the Spark sink: rows published to a subscriber that listens.

    Args:
        url: The subscriber, with the publisher that it subscribes to.
        options: `timeout` (seconds in which a connection must be made, and without progress after
            which it gives up), and any of `goodbye` (a further reason of the subscriber's goodbye
            that acknowledges the rows), `ca`, `cert`, `key`, `server_name`, `token_file`, `raw`,
            `keep_nulls`, `stamp` (query, batch, partition) and `partition`, which errors name.
    """

    def __new__(cls, url: str, options: Mapping[str, Any]) -> Self: ...
    @staticmethod
    def check(url: str, options: Mapping[str, Any], schema: object) -> None:
        """Raises the error of a sink for rows of this Arrow schema, without a connection."""
    def write(self, batch: object) -> None:
        """Publishes the rows of a record batch; connects with the first; waits for demand."""
    def finish(self) -> int:
        """Completes the stream, waits for the goodbye behind it; returns the count."""
    def abort(self) -> None:
        """Ends the connection now."""

@final
class RelinkSink:
    """The sender of a task of the Spark sink: rows in a transaction, which the driver decides.

    Args:
        url: The receiver.
        options: `timeout` (seconds in which a connection must be made, and without progress after
            which it gives up), and any of `batch_events` (rows of the transaction), `batch_bytes`
            (bytes of all rows), `ca`, `cert`, `key`, `server_name`, `token_file`, `raw`,
            `keep_nulls`, `stamp` (query, batch, partition) and `partition`, which errors name.
    """

    def __new__(cls, url: str, options: Mapping[str, Any]) -> Self: ...
    @staticmethod
    def check(url: str, options: Mapping[str, Any], schema: object) -> None:
        """Raises the error of a sink for rows of this Arrow schema, without a connection."""
    def write(self, batch: object) -> None:
        """Sends the rows of a batch, undecided; connects with the first. Raises as `prepare`."""
    def finish(self) -> tuple[int, bytes | None]:
        """Waits until the receiver has every row; returns the count and the link's state."""
    def abort(self) -> None:
        """Rolls back and ends the link."""
    @staticmethod
    def commit(url: str, options: Mapping[str, Any], prepared: Sequence[tuple[int, bytes]]) -> None:
        """Commits the rows that tasks have prepared, by their partitions and states.

        Raises:
            LinkLost: Not everything was committed; the text has the known outcomes.
        """
    @staticmethod
    def roll_back(
        url: str, options: Mapping[str, Any], prepared: Sequence[tuple[int, bytes]]
    ) -> int:
        """Rolls back prepared rows, as far as the receiver can be reached; returns how many."""

_Frame: TypeAlias = tuple[int, str, bytes, dict[str, Any], list[tuple[int, str]]]
"""Where a frame stands, its name, its bytes, its members, and what so many of its bytes are for."""

@final
class Inspector:
    """One direction of a recorded connection, frame by frame."""

    def __new__(cls, protocol: str, sender: str | None, options: Mapping[str, object]) -> Self: ...
    def feed(self, data: bytes) -> None:
        """Appends bytes of the capture."""
    def end(self) -> None:
        """Says that the capture is complete: a whole text can be taken now, once."""
    def take(self) -> _Frame | None:
        """The next frame, or None where bytes are missing. A frame inside one counts from it.

        Raises:
            ProtocolError: No continuation of these bytes is sound; `offset` says from where on.
        """
    @property
    def is_whole(self) -> bool:
        """Whether the capture is one text, and no frames that follow each other."""
    @property
    def offset(self) -> int:
        """Bytes of the frames taken."""
    @property
    def pending(self) -> int:
        """Bytes that are no whole frame yet."""

@final
class LumberjackListener:
    """A listener and all its connections. Listens from its construction on."""

    def __new__(
        cls, url: str, options: Mapping[str, int | float | str | PathLike[str] | None]
    ) -> LumberjackListener: ...
    @property
    def url(self) -> str:
        """Where it listens, with the port that was chosen."""
    def try_receive(self, max_windows: int) -> list[LumberjackWindow]:
        """Up to `max_windows` windows that are there."""
    def wait(self, interest: Literal["receive", "ended"], timeout: float | None) -> bool:
        """Waits, with the interpreter released; signals are handled.

        Args:
            interest: ``receive``: a window, or the listener was closed. ``ended``: it was closed
                and every connection has ended.
            timeout: Seconds; None waits for ever.

        Returns:
            Whether it is there.
        """
    def wait_async(
        self, interest: Literal["receive", "ended"], waker: LoopWaker
    ) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def close(self) -> None:
        """Accepts no more and ends each connection as soon as its windows are acknowledged."""
    def abort(self) -> None:
        """Ends every connection now."""
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    @property
    def connections(self) -> int:
        """Connections that are open now."""
    def refused(self) -> list[tuple[str, str, int, str]]:
        """The last 100 connections ended for their input: peer, code, offset, message."""
    def turned_away(self) -> tuple[int, dict[str, int]]:
        """Connections that ended before their first byte; those turned away before it, by code."""

@final
class LumberjackWindow:
    """A complete window of events of one connection, to be acknowledged once."""

    @property
    def events(self) -> list[bytes | dict[bytes, bytes]]:
        """JSON events as their text; key-value events as dicts: the last of equal keys wins."""
    @property
    def records(self) -> list[tuple[int, bytes | list[tuple[bytes, bytes]]]]:
        """Events with their sequence numbers, and pairs as they came."""
    @property
    def id(self) -> int:
        """The window's number on its connection, from 1."""
    @property
    def sequence(self) -> int:
        """The last event's sequence number: what the acknowledgement carries."""
    @property
    def version(self) -> int:
        """The protocol's version, 1 or 2."""
    @property
    def peer(self) -> str:
        """The sender's address."""
    @property
    def sender(self) -> str:
        """The identity: ``tls:`` and the subject of its certificate, else its address.

        Different subjects have different texts: values are escaped as in RFC 4514, and one above
        1,024 bytes ends with ``…`` and its SHA-256. The SHA-256 of a certificate stands in for an
        empty subject; the address is without its port, and ``unix`` for a Unix socket.
        """
    @property
    def attributes(self) -> dict[str, str]:
        """Further facts of the sender.

        Over TLS ``tls.version`` and ``tls.cipher``; with a certificate ``tls.subject``, ``tls.san``
        (names separated by commas; those within a name are escaped by a backslash) and
        ``tls.fingerprint``.
        """
    @property
    def connection(self) -> int:
        """The connection's number on its listener, from 1."""
    def ack(self) -> bool:
        """Acknowledges every event of the window.

        Returns:
            Whether the acknowledgement is on its way; False if the connection is over: then the
            sender sends these events again.

        Raises:
            UsageError: The window was acknowledged before.
        """
    def __len__(self) -> int: ...

@final
class LumberjackBatch:
    """Events that are handed to a sender together, checked once.

    Args:
        events: JSON text as bytes or str, or sequences of pairs; or an Arrow array of JSON texts.
        is_window: Whether they go in windows of their own.
        first: The number of the first event in errors.

    Raises:
        UsageError: ``events``, ``event``, ``empty_window``, ``empty_json``, ``frame_too_large``.
    """

    def __new__(
        cls,
        events: Iterable[bytes | str | _Pairs] | _ArrowArray,
        is_window: bool = False,
        first: int = 0,
    ) -> LumberjackBatch: ...
    @property
    def bytes(self) -> int:
        """Bytes of its plain frames, which the buffer's limit counts."""
    def __len__(self) -> int: ...

@final
class LumberjackRoom:
    """The room that a window still has; an event larger than a window goes alone.

    Args:
        events: Events in the window, at the most.
        plain_bytes: Their bytes as plain frames, at the most.
    """

    def __new__(cls, events: int, plain_bytes: int) -> LumberjackRoom: ...
    def takes(self, json_bytes: int) -> bool:
        """Takes a JSON event of `json_bytes` bytes; returns whether it fits."""
    @property
    def is_full(self) -> bool:
        """Whether it takes no more events of any size."""

@final
class LumberjackSender:
    """Connections to one host or several. It begins to connect at its construction.

    Args:
        urls: The receivers.
        options: As for `ackline.lumberjack.connect`; a buffer of None holds the events that all
            hosts may have in flight, and a window for each host.
    """

    def __new__(cls, urls: Sequence[str], options: Mapping[str, Any]) -> LumberjackSender: ...
    @property
    def batch_events(self) -> int:
        """Events in a window at the most."""
    def try_send(self, batch: LumberjackBatch) -> tuple[int, int, int] | None:
        """Accepts a batch; returns its id and its first and last event number, None without room.

        Raises:
            UsageError: The buffer can never hold it.
            LinkClosed: The sender was closed.
        """
    def is_acknowledged(self, batch: int) -> bool:
        """Whether a batch is acknowledged.

        Raises:
            LinkLost: The sender was closed before.
            UsageError: ``unknown_batch``: this id was never given out.
        """
    @property
    def last_batch(self) -> int:
        """The id of the batch that was accepted last; 0 before the first one."""
    def is_flushed(self, batch: int) -> bool:
        """Whether all batches up to this one are acknowledged; raises as `is_acknowledged`."""
    def check_connected(self) -> None:
        """Raises the reason why no host was reached, if each was tried in vain."""
    def wait(
        self,
        interest: Literal["connected", "room", "batch", "flushed", "ended"],
        timeout: float | None,
        batch: int = 0,
    ) -> bool:
        """Waits for `interest` or the sender's end, with the interpreter released.

        Args:
            interest: ``connected``: a host was reached, or each was tried; ``room`` for a batch;
                ``batch``: that `batch` is acknowledged; ``flushed``: that and all before are;
                ``ended``: `finish` has come to its end.
            timeout: Seconds; None waits for ever.
            batch: The batch for ``batch`` and ``flushed``.

        Returns:
            Whether it is there.
        """
    def wait_async(
        self,
        interest: Literal["connected", "room", "batch", "flushed", "ended"],
        waker: LoopWaker,
        batch: int = 0,
    ) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    @property
    def unacknowledged(self) -> int:
        """Events accepted and not acknowledged."""
    def receipts(self) -> list[tuple[int, str, int, int, int, int, bool]]:
        """Windows since the last call: id, host, events, acknowledged, first, last, repeats."""
    def stats(self) -> dict[str, Any]:
        """The sender's numbers."""
    def finish(self, timeout: float) -> None:
        """Accepts no more; ends when everything is acknowledged, or after `timeout` seconds."""
    def unacked(self) -> tuple[list[tuple[int, int]], int] | None:
        """The events that `finish` left: ranges of numbers, and how many may have arrived."""
    def unacked_events(self) -> list[bytes | list[tuple[bytes, bytes]]]:
        """The events of `unacked`, in order."""

@final
class EventStream:
    """Event rows that are read once: as an Arrow stream, or as JSON lines."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as a capsule of Arrow's C stream interface."""
    def skipped(self) -> list[tuple[int, int, str, str]]:
        """The losses that were passed over so far: start, end, reason, time of the note."""
    def project(self, projection: Projection, memory: int) -> EventStream:
        """The same events, read with its `columns`, as its schema; this stream is over.

        The columns of a batch take `memory` bytes at the most, so that it may be split.
        """
    def json_lines(self) -> list[str] | None:
        """A JSON object for each of the next rows; None after the last."""

@final
class Inference:
    """The schema of the members of observed events."""

    def __new__(cls, case_sensitive: bool) -> Inference: ...
    def observe(self, stream: EventStream) -> None:
        """Takes events into account, read with `parts` and `payload`; their stream is over."""
    @property
    def events(self) -> int:
        """The number of observed events."""
    @property
    def malformed(self) -> int:
        """The number of observed events that were no JSON object."""
    @property
    def shadowed(self) -> list[str]:
        """Members that are no columns because every event has a column of this name."""
    @property
    def names_left_out(self) -> int:
        """Times that a member was passed over for its name, or because there were too many."""
    @property
    def ddl(self) -> str:
        """The columns as Spark's DDL, one on each line."""
    def arrow(self) -> bytes:
        """The columns as an empty stream of Arrow's IPC format."""

@final
class ElementShape:
    """A description of elements of a fixed size, such as ``f64`` or ``time:u64,value:f32``."""

    def __new__(cls, element: str) -> ElementShape: ...
    @property
    def size(self) -> int:
        """The bytes of every element."""
    @property
    def shown(self) -> str:
        """The description, cut off after 100 characters."""
    @property
    def numpy(self) -> str | None:
        """NumPy's name of a description that is a type alone; None for fields."""
    def lines(self, elements: bytes) -> bytes:
        """The values of elements that stand one behind the other, each as a line of JSON.

        Raises:
            AcklineError: The bytes are no whole elements, or a bool is neither 0 nor 1.
        """

@final
class Projection:
    """Columns that are filled from payloads; `schema` is a message of Arrow's IPC format."""

    def __new__(
        cls,
        schema: bytes,
        *,
        mode: str,
        rescued: str | None,
        corrupt_record: str,
        case_sensitive: bool,
        event_columns: list[tuple[str, str]] | None = None,
    ) -> Projection: ...
    @staticmethod
    def of_elements(
        element: str, schema: bytes | None, *, mode: str, corrupt_record: str
    ) -> Projection:
        """Columns that are filled from elements of a fixed size; None is all of them."""
    @staticmethod
    def element_fields(element: str) -> list[tuple[str, str]]:
        """The columns of a description of elements, and their types in Spark."""
    @property
    def columns(self) -> list[str]:
        """The columns of an event that are read for it."""
    def with_rescued(self) -> Projection:
        """The same with the column of rescued members added, unless it is turned off."""

@final
class BlockStream:
    """The blocks of a range, read a group at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> dict[str, Any]: ...

@final
class Spool:
    """A spool opened for reading."""

    def __new__(cls, path: str | PathLike[str], group: bool = ...) -> Spool: ...
    @property
    def path(self) -> PathLike[str]:
        """The spool's directory."""
    @property
    def uuid(self) -> str:
        """The spool's identity."""
    def first_kept(self) -> int:
        """The first position that is still kept."""
    def durable(self) -> int:
        """The position after the last durable event."""
    def end_for(
        self,
        start: int,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        *,
        skip_losses: bool = ...,
    ) -> int:
        """The end of a batch from `start`: before the first loss, unless it skips losses."""
    def losses(self) -> list[tuple[int, int, str, str]]:
        """Each known loss: start, end, reason, time of the note. Groups are not read."""
    def holes(
        self, start: int | None = None, end: int | None = None, *, check: bool = False
    ) -> list[tuple[int, int, str, str]]:
        """Each loss in a range; with `check` every byte of the range is read."""
    def epoch_at(self, position: int) -> str | None:
        """The epoch of the writer of a position, 16 hexadecimal digits; None if not known."""
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int = ...,
        batch_rows: int = ...,
        memory: int = ...,
        skip_repeats: bool = False,
        skip_losses: bool = ...,
    ) -> EventStream:
        """Events of the positions [start, end); `memory` is in bytes, 4 MiB at least."""
    def slices(
        self,
        start: int,
        end: int,
        max_slices: int,
        min_bytes: int,
        *,
        skip_losses: bool = ...,
    ) -> list[dict[str, Any]]:
        """The range in parts, each for `read_slice`."""
    @staticmethod
    def read_slice(
        slice: dict[str, Any],  # noqa: A002 (the word of the design)
        *,
        columns: Sequence[str] | None = None,
        threads: int = ...,
        batch_rows: int = ...,
        memory: int = ...,
        skip_repeats: bool = False,
    ) -> EventStream:
        """Events of one part; reads that file alone. `memory` is in bytes, 4 MiB at least."""
    def consumers(self) -> list[tuple[str, int, str]]:
        """Each consumer's name, committed position, and the time of its mark."""
    def consumer_states(self) -> list[dict[str, Any]]:
        """The state of each consumer."""
    def lease(
        self, name: str, holder: str = "", wait: float = 0.0, create_at: int | None = None
    ) -> Lease:
        """Takes a consumer for this process, waiting up to `wait` seconds for another reader.

        One that does not exist is made at `create_at`, or by the first commit.
        """
    def add_consumer(self, name: str, position: int) -> None:
        """Makes a consumer."""
    def seek_consumer(self, name: str, position: int) -> tuple[int, int, int, int]:
        """Moves the mark of a consumer without a reader: from, to, skipped, repeated."""
    def lag(self, position: int) -> tuple[int, int, int | None]:
        """Events above a position: count, bytes, receipt of the oldest (µs since 1970)."""
    def waiting_since(self, position: int) -> int | None:
        """When the first event from a position on was received (µs since 1970)."""
    def find(self, at_us: int) -> int:
        """The first position received at a time (µs since 1970) or later."""
    def bytes(self) -> int:
        """The bytes of segments and indexes."""
    def writer(self) -> int | None:
        """The id of the process that writes the spool now; 0 if it is invisible here."""
    def commit_mark(self, name: str, position: int) -> None:
        """Durably sets a consumer's mark; refused while another process holds the consumer."""
    def remove_consumer(self, name: str) -> bool:
        """Removes a consumer; False if there was none of that name."""
    def wait_durable(self, position: int, timeout: float | None = None) -> int:
        """Waits until `durable` is at least `position`; returns it then, or after `timeout`."""
    def blocks(self, start: int | None = None, end: int | None = None) -> BlockStream:
        """The headers of a range's blocks, without the events."""
    def fsync_probe(self, rounds: int) -> dict[str, Any]:
        """Times `rounds` fsyncs of 4 KiB each in the spool's directory."""
    def verify(self, progress: Callable[[int, int], object]) -> dict[str, Any]:
        """Checks every durable byte."""

@final
class Lease:
    """A consumer held by this process: a context manager that lets go of it at its end.

    A forked child cannot use it (`ForkError`).
    """

    @property
    def name(self) -> str:
        """The consumer."""
    @property
    def generation(self) -> int:
        """The number of this consumer's leases; only the newest lease moves the mark."""
    def committed(self) -> int | None:
        """The consumer's mark; None while it has no file."""
    def commit(self, position: int) -> None:
        """Durably moves the mark; it may go back.

        Raises `SpoolError` with `spool.stale_generation` when another reader has taken over and
        `spool.behind_checkpoint` above the durable position.
        """
    def seen(self) -> None:
        """Records that the reader is alive; writes at most every 5 seconds."""
    def release(self) -> None:
        """Lets go of the consumer."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

def check_seconds(name: str, value: float | None) -> None:
    """Raises `UsageError` if `value`, the argument `name`, is no number of seconds."""

def check_option(of: str, name: str, value: object) -> None:
    """Raises `UsageError` if the option `name` of the table `of` does not take `value`."""

def option_table(of: str) -> list[dict[str, Any]]:
    """The options of ``receive``, or of a protocol's call such as ``relink.listen``.

    Each has name, section, kind, off, default, help, words, range (the smallest and the largest
    number of a count or size, else None) and url: whether the query of a URL may set it.
    """

def size_in(text: str) -> int | None:
    """Bytes of a size such as ``4GiB``; None for other text."""

def milliseconds_in(text: str) -> int | None:
    """Whole milliseconds of a time such as ``10s``; None for other text."""

def protocols() -> list[tuple[str, str]]:
    """The scheme and the name of each protocol."""

def check_whole(name: str, value: object, least: int) -> None:
    """Raises `UsageError` if `value`, the argument `name`, is no whole number from `least` on."""

def spool_adopt(path: str | PathLike[str], group: bool = ...) -> tuple[str, str, list[str]]:
    """Gives a spool a new UUID; returns the old, the new, and consumers with lowered marks."""

def spool_mend(
    path: str | PathLike[str], dry_run: bool = False, group: bool = ...
) -> tuple[int, list[tuple[str, PathLike[str], int | None, int | None, str]]]:
    """Mends a spool; returns the next position, and steps (what, path, start, end, why)."""

@final
class Receiver:
    """A running receiver."""

    def __new__(
        cls,
        urls: Sequence[str],
        spool: str | PathLike[str] | None = None,
        discard: bool = False,
        options: Mapping[str, Any] | None = None,
        connect: Sequence[str] = ...,
    ) -> Receiver: ...
    @property
    def urls(self) -> list[str]:
        """The URLs that it listens on, with the chosen ports."""
    def next_event(self, timeout: float | None = None) -> str | None:
        """The next JSON line, or None after `timeout` seconds."""
    def stats(self) -> str:
        """Totals and gauges, as JSON."""
    def stop(self, drain: float | None = None) -> int:
        """Stops; returns the number of windows left unacknowledged."""
    def failure(self) -> str | None:
        """The reason why it gave up, as ``code: text``; None while it works."""
    def abort(self) -> int:
        """Ends every connection now; returns the number of windows left unacknowledged."""
