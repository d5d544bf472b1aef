"""bpmux for threads: requests, sinks, streams and duplexes over one connection, each with credit.

Both ends are equal, whoever connected. For asyncio see `ackline.aio.bpmux`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Literal, Self, TypeVar

from ackline._bpmux import (
    MOST_MESSAGES,
    NO_HANDLER,
    PATIENCE,
    ConnectionBase,
    Credit,
    ListenerBase,
    Peer,
    Reading,
    RequestBase,
    ResponseBase,
    Writing,
    late,
    options_of,
    reason,
)
from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxDoing,
    BpmuxListener,
    BpmuxSink,
    BpmuxStream,
    bpmux_connect,
)
from ackline._closing import Closing
from ackline._lumberjack import deadline_in, left_until
from ackline._relink_core import RelinkBatch
from ackline.exceptions import AcklineError, LinkClosed, LinkTimeout

__all__ = [
    "Connection",
    "Credit",
    "Duplex",
    "Incoming",
    "Listener",
    "OpenedDuplex",
    "OpenedSink",
    "OpenedStream",
    "Peer",
    "Request",
    "Response",
    "Sink",
    "Stream",
    "connect",
    "listen",
]


def connect(  # noqa: PLR0913 (each is an option of its own)
    url: str,
    *,
    connect_timeout: float = 10.0,
    credit: Credit = "automatic",
    credit_floor: int = 4 << 10,
    credit_ceiling: int = 4 << 20,
    credit_budget: int = 32 << 20,
    chunk_size: int = 16 << 10,
    send_bytes: int = 256 << 10,
    ping_after: float | None = 11.0,
    pong_timeout: float | None = 7.0,
    chunk_receive_timeout: float | None = 30.0,
    max_payload_bytes: int = 16 << 20,
    max_entities: int = 65_536,
    max_requests: int = 65_536,
    memory: int = 256 << 20,
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str | None = None,
) -> "Connection":
    """Connects.

    Args:
        url: ``bpmux://host:port``, ``bpmux+tls://host:port`` or ``bpmux+unix:///path``.
        connect_timeout: Seconds to connect, with the handshake of TLS.
        credit: Who gives the peer credit: the windows of this end, which follow the reader's pace,
            or ``manual``: `grant_credit` alone, on the top-level too.
        credit_floor: Bytes of the smallest window, which everything open has.
        credit_ceiling: Bytes of the largest window.
        credit_budget: Bytes that all windows of a connection may have above their floors.
        chunk_size: Payload bytes of a chunk that is sent: what is longer goes in several, between
            which others have their turn.
        send_bytes: Bytes that may wait for credit on one sink before `send` waits; a single larger
            message is taken when nothing else waits.
        ping_after: Seconds of silence after which the peer is pinged; None is never.
        pong_timeout: Seconds that this ping waits for its pong; then the connection is given up.
        chunk_receive_timeout: Seconds that the rest of a chunk may stay away; None is for ever.
        max_payload_bytes: Bytes of one payload of the peer's.
        max_entities: Sinks, streams and duplexes that the peer may have open.
        max_requests: Requests of the peer's that may wait for their answer.
        memory: Bytes of received payload that may be held: above it nothing more is read.
        ca: A PEM file of certificates to trust; the system's without it. For ``+tls``, as below.
        cert: A PEM file with a certificate of our own.
        key: A PEM file with its key.
        server_name: The name in the listener's certificate, if it is not the URL's host.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached.
    """
    doing = bpmux_connect(url, options_of(locals()))
    doing.wait(None)
    return Connection(doing.take())


def listen(  # noqa: PLR0913 (each is an option of its own)
    url: str,
    *,
    credit: Credit = "automatic",
    credit_floor: int = 4 << 10,
    credit_ceiling: int = 4 << 20,
    credit_budget: int = 32 << 20,
    chunk_size: int = 16 << 10,
    send_bytes: int = 256 << 10,
    ping_after: float | None = 11.0,
    pong_timeout: float | None = 7.0,
    chunk_receive_timeout: float | None = 30.0,
    max_payload_bytes: int = 16 << 20,
    max_entities: int = 65_536,
    max_requests: int = 65_536,
    memory: int = 256 << 20,
    handshake_timeout: float = 10.0,
    first_byte_timeout: float | None = 10.0,
    proxy_from: str | None = None,
    allow: str | None = None,
    max_connections: int = 10_000,
    max_connections_per_address: int | None = None,
    max_connection_age: float | None = None,
    accept_rate: int | None = 1000,
    max_bytes_per_second: int | None = None,
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
) -> "Listener":
    """Listens for connections.

    Args:
        url: As for `connect`; port 0 is any free one.
        credit: Who gives the peer credit: the windows of this end, which follow the reader's pace,
            or ``manual``: `grant_credit` alone, on the top-level too.
        credit_floor: Bytes of the smallest window, which everything open has.
        credit_ceiling: Bytes of the largest window.
        credit_budget: Bytes that all windows of a connection may have above their floors.
        chunk_size: Payload bytes of a chunk that is sent: what is longer goes in several, between
            which others have their turn.
        send_bytes: Bytes that may wait for credit on one sink before `send` waits; a single larger
            message is taken when nothing else waits.
        ping_after: Seconds of silence after which the peer is pinged; None is never.
        pong_timeout: Seconds that this ping waits for its pong; then the connection is given up.
        chunk_receive_timeout: Seconds that the rest of a chunk may stay away; None is for ever.
        max_payload_bytes: Bytes of one payload of the peer's.
        max_entities: Sinks, streams and duplexes that the peer may have open.
        max_requests: Requests of the peer's that may wait for their answer.
        memory: Bytes of received payload of all connections that may be held.
        handshake_timeout: Seconds for the handshake of TLS and a PROXY header.
        first_byte_timeout: Seconds of silence of a new connection, where something must come
            before the protocol; None is for ever.
        proxy_from: Networks of proxies, such as ``10.0.0.0/8,127.0.0.1``: a PROXY header is
            required from them and refused from everybody else.
        allow: Networks that may connect, by their own addresses; None is everybody.
        max_connections: Connections at once.
        max_connections_per_address: Connections of one address (IPv6: of its /64) at once;
            None is off.
        max_connection_age: Seconds (± 20 %) after which a connection is ended in good order: its
            top-level is closed and cancelled here. None is off.
        accept_rate: Connections accepted in a second; None is off.
        max_bytes_per_second: Bytes that one peer may send: above it reading waits; None is off.
        ca: A PEM file of certificates that issue the peers'. For ``+tls``, as all below; the files
            are read again when they change.
        cert: A PEM file with this listener's certificate, then those between it and its root.
        key: A PEM file with its key.
        client_auth: Whether peers must have a certificate: required with `ca`, else none.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(BpmuxListener(url, options_of(locals())))


def _done(doing: BpmuxDoing, what: str, timeout: float | None) -> object:
    """What came of it."""
    if not doing.wait(timeout):
        raise late(what, timeout)
    return doing.take()


class _Sends(Writing):
    """The half that this end writes."""

    def send(self, payload: bytes, *, timeout: float | None = None) -> None:
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

    def send_many(self, payloads: Sequence[bytes], *, timeout: float | None = None) -> None:
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
        """Waits until the reader cancels it; with what, or None where it ended otherwise."""
        if not self._sink.wait("cancelled", timeout):
            raise late("it was not cancelled", timeout)
        return self._sink.cancelled

    def close(self, payload: bytes = b"", *, timeout: float | None = None) -> None:
        """Closes it behind its messages, and waits until the peer has acknowledged that.

        Everything sent before has then arrived. The top-level's close is not waited for. Closing
        again does nothing.

        Args:
            payload: Why; by convention empty if all is well.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not acknowledged in time; it is closed all the same.
            PeerCancelled: The reader cancelled it before, and may not have seen all messages.
            LinkClosed: The connection is over.
        """
        closing = self._sink.close(payload)
        if closing is not None:
            _done(closing, "the close was not acknowledged", timeout)


class _Receives(Reading):
    """The half that this end reads."""

    def receive(self, *, timeout: float | None = None) -> bytes | None:
        """The next message; None when its writer has closed it (`closed` says with what).

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
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
            max_messages: Not more than these.
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

    def cancel(self, payload: bytes = b"", *, timeout: float | None = None) -> None:
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
            _done(cancelling, "the cancel was not acknowledged", timeout)


class Sink(_Sends):
    """What this end writes. Dropped without `close`, it is closed with the payload ``dropped``.

    A `with` block closes it; one that an exception leaves lets it go.

    Example:
        >>> with connection.open_sink(b"log") as sink:  # doctest: +SKIP
        ...     sink.send_many([b"one", b"two"])
    """

    def __init__(self, sink: BpmuxSink) -> None:
        self._sink = sink

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._sink.let_go()


class Stream(_Receives):
    """What this end reads: an iterator. Dropped before its end, it is cancelled; so by `with`.

    Example:
        >>> with connection.open_stream(b"prices") as stream:  # doctest: +SKIP
        ...     for message in stream:
        ...         print(message)
    """

    def __init__(self, stream: BpmuxStream) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.let_go()


class Duplex(_Sends, _Receives):
    """Both: `close` ends what this end writes, `cancel` what it reads; each ends by itself.

    A `with` block closes the one and gives up the other.

    Example:
        >>> with connection.open_duplex(b"echo") as duplex:  # doctest: +SKIP
        ...     duplex.send(b"hello")
        ...     print(duplex.receive(timeout=10))
    """

    def __init__(self, sink: BpmuxSink, stream: BpmuxStream) -> None:
        self._sink, self._stream = sink, stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.close()
            else:
                self._sink.let_go()
        finally:
            self._stream.let_go()


class Response(ResponseBase):
    """The response to a request. Dropped before it is there, the request is cancelled; so by `with`.

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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


_Handle = TypeVar("_Handle", Sink, Stream, Duplex)
Incoming = Request | OpenedSink | OpenedStream | OpenedDuplex
"""What the peer begins."""


@dataclass(frozen=True, slots=True)
class _Handlers:
    """What `serve` calls."""

    request: Callable[[bytes], bytes | None] | None
    sink: Callable[[Stream, bytes], object] | None
    stream: Callable[[Sink, bytes], object] | None
    duplex: Callable[[Duplex, bytes], object] | None
    error: Callable[[Exception], object] | None

    def handle(self, incoming: Incoming) -> None:
        """Calls the one that it is for, and ends it."""
        try:
            self._handle(incoming)
        except AcklineError:
            # It was ended by the peer, or with its connection.
            return

    def _handle(self, incoming: Incoming) -> None:
        match incoming:
            case Request():
                self._request(incoming)
            case OpenedSink(stream, payload):
                failed = self._called(self.sink, stream, payload)
                if failed is not None:
                    stream.cancel(failed, timeout=PATIENCE)
                stream.__exit__(None, None, None)
            case OpenedStream(sink, payload):
                sink.close(self._called(self.stream, sink, payload) or b"", timeout=PATIENCE)
            case OpenedDuplex(duplex, payload):
                failed = self._called(self.duplex, duplex, payload)
                try:
                    duplex.close(failed or b"", timeout=PATIENCE)
                finally:
                    duplex.__exit__(AcklineError, None, None)

    def _request(self, request: Request) -> None:
        if self.request is None:
            request.close(NO_HANDLER)
            return
        try:
            answer = self.request(request.payload)
        except Exception as error:  # noqa: BLE001 (any is the peer's to know)
            request.close(self._told(error))
            return
        request.respond(answer or b"")

    def _called(
        self, handler: Callable[[_Handle, bytes], object] | None, handle: _Handle, payload: bytes
    ) -> bytes | None:
        if handler is None:
            return NO_HANDLER
        try:
            handler(handle, payload)
        except Exception as error:  # noqa: BLE001 (any is the peer's to know)
            return self._told(error)
        return None

    def _told(self, error: Exception) -> bytes:
        if self.error is not None:
            self.error(error)
        return reason(error)


class Connection(ConnectionBase):
    """One end of a connection. Methods may be called from any thread.

    It ends at once when it and everything that came of it is dropped. A `with` block ends it in
    good order, which it waits for up to 10 s, then at once; one that an exception leaves at once.

    Example:
        >>> with connect("bpmux://127.0.0.1:7000") as connection:  # doctest: +SKIP
        ...     print(connection.call(b"question", timeout=10))
    """

    def __init__(self, core: BpmuxConnection) -> None:
        super().__init__(core)
        self._sink = Sink(core.sink())
        self._stream = Stream(core.stream())

    @property
    def sink(self) -> Sink:
        """The top-level's: messages to the peer that belong to nothing else."""
        return self._sink

    @property
    def stream(self) -> Stream:
        """The top-level's: messages of the peer that belong to nothing else."""
        return self._stream

    def request(self, payload: bytes, *, timeout: float | None = None) -> Response:
        """Sends a request; waits while as much waits for credit as may wait.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds to wait for room; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: ``top_level_closed``.
            LinkClosed: The connection is over.
        """
        deadline = deadline_in(timeout)
        while (response := self._core.try_request(payload)) is None:
            if not self._core.wait("request", left_until(deadline)):
                raise late("there was no room", timeout)
        return Response(response)

    def call(self, payload: bytes, *, timeout: float | None = None) -> bytes:
        """A request and its response; the request is cancelled where none comes in time.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds for both; None waits for ever.

        Raises:
            LinkTimeout: No response came in time.
            RequestClosed: The peer will not answer.
            UsageError: As `request`, like the others.
        """
        deadline = deadline_in(timeout)
        with self.request(payload, timeout=timeout) as response:
            try:
                return response.response(timeout=left_until(deadline))
            except LinkTimeout:
                raise late("no response came", timeout) from None

    def open_sink(self, payload: bytes = b"", *, timeout: float | None = None) -> Sink:
        """Opens a sink: the peer reads it. Returns once its opening is sent.

        Args:
            payload: What it is opened with; it may have to wait for credit.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not sent in time; it is closed with ``dropped``.
            PeerCancelled: The peer has cancelled the top-level meanwhile.
            UsageError: ``top_level_closed``.
            LinkClosed: The connection is over.
        """
        doing = self._core.open("sink", payload)
        _wait_open(doing, timeout)
        return Sink(doing.take())

    def open_stream(self, payload: bytes = b"", *, timeout: float | None = None) -> Stream:
        """Opens a stream: the peer writes it. As `open_sink`."""
        doing = self._core.open("stream", payload)
        _wait_open(doing, timeout)
        return Stream(doing.take())

    def open_duplex(self, payload: bytes = b"", *, timeout: float | None = None) -> Duplex:
        """Opens a duplex: both ends write and read it. As `open_sink`."""
        doing = self._core.open("duplex", payload)
        _wait_open(doing, timeout)
        return Duplex(*doing.take())

    def accept(self, *, timeout: float | None = None) -> Incoming | None:
        """What the peer begins next; None once it has closed the top-level: no more comes then.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: Nothing was begun in time.
            LinkClosed: The connection is over, once everything that came was handed out.
            ProtocolError: The peer broke a rule; likewise.
            TransportError: The transport failed; likewise.
        """
        deadline = deadline_in(timeout)
        while (arrived := self._core.try_accept()) is None:
            if not self._core.wait("arrival", left_until(deadline)):
                raise late("nothing was begun", timeout)
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

    def __iter__(self) -> Iterator[Incoming]:
        while (incoming := self.accept()) is not None:
            yield incoming

    def serve(  # noqa: PLR0913 (each is a handler of its own)
        self,
        *,
        on_request: Callable[[bytes], bytes | None] | None = None,
        on_sink: Callable[[Stream, bytes], object] | None = None,
        on_stream: Callable[[Sink, bytes], object] | None = None,
        on_duplex: Callable[[Duplex, bytes], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        concurrency: int = 64,
    ) -> None:
        """Calls a handler for everything that the peer begins, each in a thread, until it is done.

        Returns when the peer has closed the top-level or ended the connection in good order, and
        every handler has returned. What a handler leaves open is ended for it. What an exception
        leaves is ended with its text; so is what has no handler, with ``no handler``.

        Args:
            on_request: Takes the request's payload; what it returns is the response, None an
                empty one.
            on_sink: Takes what comes and the payload that the peer opened its sink with.
            on_stream: Takes where to write and the payload that the peer opened its stream with.
            on_duplex: Takes both halves as one and the payload.
            on_error: Is told what a handler raised.
            concurrency: Handlers at once; what else is begun waits.

        Raises:
            ProtocolError: The peer broke a rule.
            TransportError: The transport failed.

        Example:
            >>> connection.serve(on_request=lambda payload: payload.upper())  # doctest: +SKIP
        """
        handlers = _Handlers(on_request, on_sink, on_stream, on_duplex, on_error)
        free = threading.Semaphore(concurrency)

        def handle(incoming: Incoming) -> None:
            try:
                handlers.handle(incoming)
            finally:
                free.release()

        with ThreadPoolExecutor(concurrency, thread_name_prefix="ackline-serve") as threads:
            try:
                while free.acquire() and (incoming := self.accept()) is not None:
                    threads.submit(handle, incoming)
            except LinkClosed:
                return
            except BaseException:
                # Handlers that wait on it end too.
                self.abort()
                raise

    def ping(self, *, timeout: float = 10.0) -> float:
        """Seconds that the peer takes to answer a ping.

        Raises:
            LinkTimeout: It did not answer in time.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        doing.wait(None)
        return float(doing.take())

    def shutdown(self, *, timeout: float | None = None) -> None:
        """Ends the connection in good order.

        Nothing new is begun from either side, what is open comes to its end, then the transport is
        closed.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: Something is still open; the connection goes on until it is not.
            LinkClosed: It has ended in another way.
        """
        _done(self._core.shutdown(), "the connection did not end", timeout)

    def wait_ended(self, *, timeout: float | None = None) -> None:
        """Waits for the connection's end.

        Raises:
            LinkTimeout: It has not ended in time.
        """
        if not self._core.wait("end", timeout):
            raise late("the connection did not end", timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and not self.is_ended:
                self.shutdown(timeout=PATIENCE)
        except LinkTimeout:
            return
        finally:
            self.abort()


def _wait_open(doing: BpmuxDoing, timeout: float | None) -> None:
    if not doing.wait(timeout):
        raise late("the opening was not sent", timeout)


class Listener(Closing, ListenerBase):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> with listen("bpmux://127.0.0.1:7000") as listener:  # doctest: +SKIP
        ...     for connection in listener:
        ...         connection.serve(on_request=lambda payload: payload)
    """

    def accept(self, *, timeout: float | None = None) -> Connection:
        """Waits for a connection.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: None came in time.
            LinkClosed: The listener is closed.
        """
        deadline = deadline_in(timeout)
        while (core := self._try_accept()) is None:
            if not self._core.wait(left_until(deadline)):
                raise late("no connection came", timeout)
        return Connection(core)

    def __iter__(self) -> Iterator[Connection]:
        try:
            while True:
                yield self.accept()
        except LinkClosed:
            return

    def close(self) -> None:
        """Accepts no more; connections that nobody accepted are ended."""
        self._core.close()
