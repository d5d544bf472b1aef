"""What comes of bpmux's connections for threads: halves, requests, and how `serve` handles them."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ackline._bpmux import (
    MOST_MESSAGES,
    NO_HANDLER,
    PATIENCE,
    Arrived,
    ConnectionBase,
    ContextBase,
    OnError,
    Part,
    Reading,
    RequestBase,
    ResponseBase,
    Writing,
    answered,
    late,
    leave,
    part_of,
    reason,
    refuse,
    release,
    takes_context,
    tell,
)
from ackline._bpmux_core import (
    BpmuxRequest,
    BpmuxSink,
    BpmuxStream,
    PendingOp,
)
from ackline._closing import Block
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer, Payloads
from ackline._relink_core import RelinkBatch
from ackline.exceptions import AcklineError, LinkClosed

__all__ = [
    "Context",
    "Duplex",
    "Handlers",
    "Incoming",
    "OnDuplex",
    "OnRequest",
    "OnSink",
    "OnStream",
    "OpenedDuplex",
    "OpenedSink",
    "OpenedStream",
    "Request",
    "Response",
    "Sink",
    "Stream",
    "done",
    "incoming",
    "wait_open",
]


def done(doing: PendingOp, what: str, timeout: float | None) -> object:
    """What came of it."""
    if not doing.wait(timeout):
        raise late(what, timeout)
    return doing.take()


class _Sends(Writing):
    """The half that this end writes."""

    def send(self, payload: Buffer, *, timeout: float | None = None) -> None:
        """Sends a message; waits while as much waits for credit as may wait (`send_bytes`).

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            PeerCancelled: The reader wants no more.
            UsageError: As `try_send`, like `LinkClosed`.
        """
        deadline = deadline_in(timeout)
        while not self._sink.try_send(payload):
            size = memoryview(payload).nbytes
            if not self._sink.wait("room", left_until(deadline), size):
                raise late("there was no room", timeout)

    def send_many(self, payloads: Payloads, *, timeout: float | None = None) -> None:
        """Sends messages in order; a sequence of bytes, or an Arrow array of binary or strings.

        Args:
            payloads: The messages.
            timeout: Seconds for all; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; the text says how many were sent.
            UsageError: As `send`, like the others.
        """
        deadline, batch, sent = deadline_in(timeout), RelinkBatch(payloads), 0
        while sent < len(batch):
            taken = self._sink.try_send_many(batch, sent)
            sent += taken
            if taken or sent == len(batch):
                continue
            if not self._sink.wait("room", left_until(deadline), batch.size(sent)):
                raise late(f"there was room for {sent} of {len(batch)} messages", timeout)

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until every message has gone to the transport: the peer gave credit for all.

        Raises:
            LinkTimeout: Messages still wait.
            PeerCancelled: The reader wants no more.
            LinkClosed: It was closed here, or the connection is over.
        """
        if not self._sink.wait("flushed", timeout):
            raise late("messages did not go", timeout)
        self._sink.check()

    def wait_cancelled(self, *, timeout: float | None = None) -> bytes | None:
        """Waits until the reader cancels it; with what, or None where it ended otherwise.

        Raises:
            LinkTimeout: It was not cancelled in time.
            LinkClosed: It was closed here before.
        """
        if not self._sink.wait("cancelled", timeout):
            raise late("it was not cancelled", timeout)
        return self._sink.cancelled

    def close(self, payload: Buffer = b"", *, timeout: float | None = None) -> None:
        """Closes it behind its messages, and waits until the peer has acknowledged that.

        Everything sent before has then arrived, and where the peer serves a sink its handler has
        returned. The top-level's close is not waited for. Closing again does nothing.

        Args:
            payload: Why; by convention empty if all is well.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not acknowledged in time; it is closed all the same.
            PeerCancelled: The reader cancelled it before, or refuses it: it may not have seen all
                messages.
            LinkClosed: The connection is over.
        """
        closing = self._sink.close(payload)
        if closing is not None:
            done(closing, "the close was not acknowledged", timeout)


class _Receives(Reading):
    """The half that this end reads."""

    def receive(self, *, timeout: float | None = None) -> bytes | None:
        """The next message; None when its writer has closed it (`closed` says with what).

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
            UsageError: ``too_large``: it comes in parts, and has more than `max_payload_bytes`:
                `receive_part` goes on with it.
            LinkClosed: It was cancelled here, or the connection is over, once every message that
                came was handed out.
        """
        received = self.receive_many(1, timeout=timeout)
        return received[0] if received else None

    def receive_many(
        self, max_messages: int = MOST_MESSAGES, *, timeout: float | None = None
    ) -> list[bytes]:
        """The messages that are there, at least one; none when its writer has closed it.

        Args:
            max_messages: Not more than these, and none behind one with which they have 256 KiB.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
            LinkClosed: As `receive`.
        """
        deadline = deadline_in(timeout)
        while (received := self._stream.try_receive(max_messages)) is not None:
            if received:
                return received
            if not self._stream.wait(left_until(deadline)):
                raise late("no message came", timeout)
        return []

    def receive_part(self, *, timeout: float | None = None) -> Part | None:
        """The next part of a message as it comes; None when its writer has closed it.

        With ``parts=True`` of `connect` and `listen` a message that has several chunks comes in
        parts, of any length, and the peer gets credit for what was taken: `memory` bounds what
        waits here, not the message. Otherwise each message is one part.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No part came in time.
            LinkClosed: As `receive`.

        Example:
            >>> while part := stream.receive_part():  # doctest: +SKIP
            ...     file.write(part.data)
        """
        deadline = deadline_in(timeout)
        while (taken := self._stream.try_receive_part()) is False:
            if not self._stream.wait(left_until(deadline)):
                raise late("no part came", timeout)
        return part_of(taken)

    def __iter__(self) -> Iterator[bytes]:
        while received := self.receive_many():
            yield from received

    def ping(self, *, timeout: float = 10.0) -> float:
        """Seconds that the peer takes to answer a ping of this half.

        Raises:
            LinkTimeout: It did not answer in time.
            UsageError: ``already_ended``.
            LinkClosed: It was cancelled here, or the connection is over.
        """
        doing = self._stream.ping(timeout)
        doing.wait(None)
        return float(doing.take())

    def cancel(self, payload: Buffer = b"", *, timeout: float | None = None) -> None:
        """Cancels it, and waits until the peer has acknowledged that; what is on its way is lost.

        The top-level's cancel is not waited for. Cancelling again does nothing.

        Args:
            payload: Why; by convention empty if all is well.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not acknowledged in time; it is cancelled all the same.
            UsageError: ``already_ended``: its writer has closed it.
            LinkClosed: The connection is over.
        """
        cancelling = self._stream.cancel(payload)
        if cancelling is not None:
            done(cancelling, "the cancel was not acknowledged", timeout)


class Sink(Block, _Sends):
    """What this end writes. Dropped without `close`, it is closed with the payload ``dropped``.

    A `with` block closes it; one that an exception leaves lets it go.

    Example:
        >>> with connection.open_sink(b"log") as sink:  # doctest: +SKIP
        ...     sink.send_many([b"one", b"two"])
    """

    def __init__(self, sink: BpmuxSink) -> None:
        self._sink = sink

    def _leave(self, *, failed: bool) -> None:
        if not failed:
            self.close()
        else:
            self._sink.let_go()


class Stream(Block, _Receives):
    """What this end reads: an iterator. Dropped before its end, it is cancelled; so by `with`.

    Example:
        >>> with connection.open_stream(b"prices") as stream:  # doctest: +SKIP
        ...     for message in stream:
        ...         print(message)
    """

    def __init__(self, stream: BpmuxStream) -> None:
        self._stream = stream

    def _leave(self, *, failed: bool) -> None:
        del failed
        self._stream.let_go()


class Duplex(Block, _Sends, _Receives):
    """Both: `close` ends what this end writes, `cancel` what it reads; each ends by itself.

    A `with` block closes the one and gives up the other.

    Example:
        >>> with connection.open_duplex(b"echo") as duplex:  # doctest: +SKIP
        ...     duplex.send(b"hello")
        ...     print(duplex.receive(timeout=10))
    """

    def __init__(self, sink: BpmuxSink, stream: BpmuxStream) -> None:
        self._sink, self._stream = sink, stream

    def _leave(self, *, failed: bool) -> None:
        try:
            if not failed:
                self.close()
            else:
                self._sink.let_go()
        finally:
            self._stream.let_go()


class Response(Block, ResponseBase):
    """The response to a request.

    Dropped before it is there, the request is cancelled: so by `with`.

    Example:
        >>> response = connection.request(b"question")  # doctest: +SKIP
        >>> response.response(timeout=10)  # doctest: +SKIP
        b'answer'
    """

    def response(self, *, timeout: float | None = None) -> bytes:
        """Waits for the response, which is handed out once.

        Args:
            timeout: Seconds; None waits for ever. The request goes on after it.

        Raises:
            LinkTimeout: No response came in time.
            RequestClosed: The peer will not answer.
            PeerCancelled: It refused every request before this one was sent.
            UsageError: ``already_ended``: it was handed out before.
            LinkClosed: The request was cancelled here, or the connection is over.
        """
        deadline = deadline_in(timeout)
        while (answer := self._core.try_response()) is None:
            if not self._core.wait(left_until(deadline)):
                raise late("no response came", timeout)
        return answer

    def ping(self, *, timeout: float = 10.0) -> float:
        """Seconds that the peer takes to say that it is still at work.

        Raises:
            LinkTimeout: It did not say so in time; the response may be on its way instead.
            UsageError: ``already_ended``, ``unknown_id``: answered, or not sent yet.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        doing.wait(None)
        return float(doing.take())

    def _leave(self, *, failed: bool) -> None:
        del failed
        self._core.let_go()


class Request(RequestBase):
    """A request of the peer's, to be answered once. Dropped, it is closed with ``dropped``."""

    def wait_cancelled(self, *, timeout: float | None = None) -> bytes | None:
        """Waits until the peer gives the request up; with what, or None where it is over.

        Raises:
            LinkTimeout: It was not given up in time.
            LinkClosed: It was answered here.
        """
        if not self._core.wait(timeout):
            raise late("it was not cancelled", timeout)
        return self._core.cancelled


@dataclass(frozen=True, slots=True)
class OpenedSink:
    """A sink of the peer's: here it is read."""

    stream: Stream
    """What comes."""
    payload: bytes
    """What it was opened with."""


@dataclass(frozen=True, slots=True)
class OpenedStream:
    """A stream of the peer's: here it is written."""

    sink: Sink
    """Where what it asks for goes."""
    payload: bytes
    """What it was opened with."""


@dataclass(frozen=True, slots=True)
class OpenedDuplex:
    """A duplex of the peer's."""

    duplex: Duplex
    """Both halves."""
    payload: bytes
    """What it was opened with."""


Incoming = Request | OpenedSink | OpenedStream | OpenedDuplex
"""What the peer begins."""


def incoming(arrived: Arrived) -> Incoming | None:
    """What the native module tells of; None at the end."""
    _, request, sink, stream, payload = arrived
    if payload is None:
        return None
    if request is not None:
        return Request(request, payload)
    if sink is not None and stream is not None:
        return OpenedDuplex(Duplex(sink, stream), payload)
    if stream is not None:
        return OpenedSink(Stream(stream), payload)
    return None if sink is None else OpenedStream(Sink(sink), payload)


class Context(ContextBase):
    """What `serve` knows of a call beside its payload, for handlers with a parameter ``context``.

    Example:
        >>> def answer(payload: bytes, context: Context) -> bytes:
        ...     for part in work(payload):
        ...         if context.cancelled:
        ...             break
        ...     return b"done"
    """

    def wait_cancelled(self, *, timeout: float | None = None) -> bool:
        """Waits until the call is `cancelled`.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            Whether it is.
        """
        core = self._connection._core  # noqa: SLF001 (its users cannot)
        try:
            if isinstance(self._half, BpmuxRequest):
                self._half.wait(timeout)
            elif self._half is not None:
                self._half.wait("cancelled", timeout)
            else:
                core.wait("end", timeout)
        except LinkClosed:
            # The handler has closed its half: only the connection's end is left.
            core.wait("end", timeout)
        return self.cancelled


_Answer_co = TypeVar("_Answer_co", covariant=True)
_Handle_contra = TypeVar("_Handle_contra", contravariant=True)


class _WithContext(Protocol[_Answer_co]):
    def __call__(self, payload: bytes, /, *, context: Context) -> _Answer_co: ...


class _HandleWithContext(Protocol[_Handle_contra]):
    def __call__(
        self, handle: _Handle_contra, payload: bytes, /, *, context: Context
    ) -> object: ...


OnRequest = Callable[[bytes], bytes | None] | _WithContext[bytes | None]
"""Answers requests."""
OnSink = Callable[[Stream, bytes], object] | _HandleWithContext[Stream]
"""Reads sinks of the peer's."""
OnStream = Callable[[Sink, bytes], object] | _HandleWithContext[Sink]
"""Writes streams of the peer's."""
OnDuplex = Callable[[Duplex, bytes], object] | _HandleWithContext[Duplex]
"""Does both."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """What `serve` calls.

    Raises:
        UsageError: A handler takes ``context`` by position alone.
    """

    request: OnRequest | None
    sink: OnSink | None
    stream: OnStream | None
    duplex: OnDuplex | None
    error: OnError | None
    with_context: frozenset[str] = field(init=False)
    """The handlers that take a context."""

    def __post_init__(self) -> None:
        kinds = ("request", "sink", "stream", "duplex")
        found = {kind for kind in kinds if takes_context(f"on_{kind}", getattr(self, kind))}
        object.__setattr__(self, "with_context", frozenset(found))

    def handle(self, connection: ConnectionBase, incoming: Incoming) -> None:
        """Calls the one that it is for, and ends it, whatever that one does."""
        try:
            self._handle(connection, incoming)
        except BaseException as error:  # noqa: BLE001 (nobody else would hear of it)
            # Mostly it was ended by the peer, or with its connection.
            tell(None, error)

    def _handle(self, connection: ConnectionBase, incoming: Incoming) -> None:
        match incoming:
            case Request():
                try:
                    self._request(connection, incoming)
                finally:
                    leave(incoming)
            case OpenedSink(stream, payload):
                try:
                    with stream:
                        context = Context(connection)
                        failed = self._called("sink", context, stream, payload)
                        if failed is not None:
                            refuse(stream, failed)
                finally:
                    release(stream)
            case OpenedStream(sink, payload):
                try:
                    context = Context(connection, sink)
                    failed = self._called("stream", context, sink, payload)
                    _close(sink, failed)
                finally:
                    sink.__exit__(AcklineError, None, None)
            case OpenedDuplex(duplex, payload):
                try:
                    self._duplex(connection, duplex, payload)
                finally:
                    duplex.__exit__(AcklineError, None, None)

    def _duplex(self, connection: ConnectionBase, duplex: Duplex, payload: bytes) -> None:
        if self.duplex is None:
            refuse(duplex, NO_HANDLER)
        # A peer that closes its half may still have to read the other for the handler to go on.
        release(duplex)
        context = Context(connection, duplex)
        failed = self._called("duplex", context, duplex, payload)
        if failed is not None:
            refuse(duplex, failed)
        _close(duplex, failed)

    def _request(self, connection: ConnectionBase, request: Request) -> None:
        if self.request is None:
            request.close(NO_HANDLER)
            return
        if request.cancelled is not None:
            # It was given up while it waited for its turn.
            return
        failed: BaseException | None
        try:
            context = Context(connection, request)
            answer = self._call("request", context, request.payload)
        except BaseException as error:  # noqa: BLE001 (any is the peer's to know)
            failed = error
        else:
            failed = answered(request, answer)
        if failed is not None:
            told = self._told(failed)
            with suppress(AcklineError):
                request.close(told)

    def _called(
        self, kind: str, context: Context, handle: Sink | Stream | Duplex, payload: bytes
    ) -> bytes | None:
        if getattr(self, kind) is None:
            return NO_HANDLER
        try:
            self._call(kind, context, handle, payload)
        except BaseException as error:  # noqa: BLE001 (any is the peer's to know)
            return self._told(error)
        return None

    def _call(self, kind: str, context: Context, *arguments: object) -> Any:  # noqa: ANN401
        handler = getattr(self, kind)
        if kind in self.with_context:
            return handler(*arguments, context=context)
        return handler(*arguments)

    def _told(self, error: BaseException) -> bytes:
        tell(self.error, error)
        return reason(error)


def _close(writer: Sink | Duplex, why: bytes | None) -> None:
    """Ends what this end writes; after a failure of the handler nothing more is told."""
    if why is None:
        writer.close(timeout=PATIENCE)
        return
    with suppress(AcklineError):
        writer.close(why, timeout=PATIENCE)


def wait_open(doing: PendingOp, timeout: float | None) -> None:
    """Waits until the opening is sent."""
    if not doing.wait(timeout):
        raise late("the opening was not sent", timeout)
