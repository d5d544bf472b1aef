# Written by `make sync` from ackline/aio/bpmux.py: change that file.
"""bpmux for threads: requests, sinks, streams and duplexes over one connection, each with credit.

Both ends are equal, no matter which one connected. For asyncio see `ackline.aio.bpmux`.
"""

from collections.abc import Iterator
from typing import Unpack

from ackline._block import Block
from ackline._bpmux import (
    PATIENCE,
    ConnectionBase,
    Credit,
    OnError,
    Part,
    least_one,
    tell,
)
from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxListener,
    PendingOp,
    bpmux_connect,
)
from ackline._bpmux_handlers import (
    Context,
    Handlers,
    OnDuplex,
    OnRequest,
    OnSink,
    OnStream,
)
from ackline._bpmux_handles import (
    Duplex,
    Incoming,
    OpenedDuplex,
    OpenedSink,
    OpenedStream,
    Request,
    Response,
    Sink,
    Stream,
    incoming,
    wait_open,
)
from ackline._bpmux_options import BpmuxConnectOptions as ConnectOptions
from ackline._bpmux_options import BpmuxListenOptions as ListenOptions
from ackline._bpmux_serving import Serving
from ackline._connections import Peer, late
from ackline._deadline import deadline_in, left_until
from ackline._ending import ended
from ackline._listener import AcceptingListener
from ackline._payloads import Buffer
from ackline._serving import serve_each
from ackline._table import known, signed
from ackline.exceptions import AcklineError, LinkTimeout

__all__ = [
    "ConnectOptions",
    "Connection",
    "Context",
    "Credit",
    "Duplex",
    "Incoming",
    "ListenOptions",
    "Listener",
    "OpenedDuplex",
    "OpenedSink",
    "OpenedStream",
    "Part",
    "Peer",
    "Request",
    "Response",
    "Sink",
    "Stream",
    "connect",
    "listen",
]


@signed("bpmux.connect")
def connect(url: str, **options: Unpack[ConnectOptions]) -> "Connection":
    """Connects.

    Args:
        url: ``bpmux://host:port``, ``bpmux+tls://host:port`` or ``bpmux+unix:///path``.
        options: See `ConnectOptions`. With ``credit="manual"`` the peer gets credit by
            `Stream.grant_credit` alone, on the top-level too; with ``parts=True`` messages of any
            length come by `Stream.receive_part`.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached, or not be trusted.
    """
    return _connected(bpmux_connect(url, known("bpmux.connect", options)))


@signed("bpmux.listen")
def listen(url: str, **options: Unpack[ListenOptions]) -> "Listener":
    """Listens for connections.

    Returns at once; use it with ``with``.

    Args:
        url: As for `connect`; port 0 is any free one.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(BpmuxListener(url, known("bpmux.listen", options)))


class Connection(Block, ConnectionBase):
    """One end of a connection. Methods may be called from any thread.

    It ends at once when the connection and all its handles are dropped. A `with` block ends it in
    good order, and waits up to 10 s for that; then the connection is cut off, and `LinkTimeout`
    counts the handles that were open. If an exception leaves the block, the connection ends at
    once.

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
        """The sink of the top-level: messages to the peer outside all other sinks."""
        return self._sink

    @property
    def stream(self) -> Stream:
        """The stream of the top-level: messages of the peer outside all other streams."""
        return self._stream

    def request(self, payload: Buffer, *, timeout: float | None = None) -> Response:
        """Sends a request; waits while `send_bytes` leaves no room.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds to wait for room; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: ``top_level_closed``.
            LinkClosed: The connection is over.
        """
        response = self._core.try_request(payload)
        if response is None:
            doing = self._core.request(payload)
            if not doing.wait(timeout):
                raise late("there was no room", timeout)
            response = doing.take()
        return Response(response)

    def call(self, payload: Buffer, *, timeout: float | None = None) -> bytes:
        """Sends a request and waits for its response; cancels the request if none comes in time.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds for both; None waits for ever.

        Raises:
            LinkTimeout: No response came in time.
            RequestClosed: The peer will not answer.
            UsageError: As by `request`, whose other errors are raised too.
        """
        deadline = deadline_in(timeout)
        answer = self._core.call(payload, timeout)
        if answer is None:
            # There is no room, so this request waits for its turn behind earlier ones.
            with self.request(payload, timeout=timeout) as response:
                return response.response(timeout=left_until(deadline))
        if answer is False:
            raise late("no response came", timeout)
        return answer

    def open_sink(self, payload: Buffer = b"", *, timeout: float | None = None) -> Sink:
        """Opens a sink, which the peer reads; returns once its opening is sent.

        Args:
            payload: The payload of the opening, which may have to wait for credit.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The opening was not sent in time; the sink is closed with ``dropped``.
            PeerCancelled: The peer has cancelled the top-level meanwhile.
            UsageError: ``top_level_closed``.
            LinkClosed: The connection is over.
        """
        doing = self._core.open("sink", payload)
        wait_open(doing, timeout)
        return Sink(doing.take())

    def open_stream(self, payload: Buffer = b"", *, timeout: float | None = None) -> Stream:
        """Opens a stream, which the peer writes; otherwise as `open_sink`."""
        doing = self._core.open("stream", payload)
        wait_open(doing, timeout)
        return Stream(doing.take())

    def open_duplex(self, payload: Buffer = b"", *, timeout: float | None = None) -> Duplex:
        """Opens a duplex, which both ends write and read; otherwise as `open_sink`."""
        doing = self._core.open("duplex", payload)
        wait_open(doing, timeout)
        return Duplex(*doing.take())

    def accept(self, *, timeout: float | None = None) -> Incoming | None:
        """Waits for the next arrival: a request, or a sink, stream or duplex that the peer opens.

        The peer's close of a sink or duplex is acknowledged after it is accepted here, so the
        connection does not end before; `serve` has other rules.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The arrival; None once the peer has closed the top-level, after which no more come.

        Raises:
            LinkTimeout: Nothing arrived in time.
            LinkClosed: The connection is over, and every arrival was handed out.
            ProtocolError: The peer broke a rule, and every arrival was handed out.
            TransportError: The transport failed, and every arrival was handed out.
        """
        deadline = deadline_in(timeout)
        while (arrived := self._core.try_accept()) is None:
            if not self._core.wait("arrival", left_until(deadline)):
                raise late("nothing was begun", timeout)
        return incoming(arrived)

    def __iter__(self) -> Iterator[Incoming]:
        while (begun := self.accept()) is not None:
            yield begun

    def serve(
        self,
        *,
        on_request: OnRequest | None = None,
        on_sink: OnSink | None = None,
        on_stream: OnStream | None = None,
        on_duplex: OnDuplex | None = None,
        on_error: OnError | None = None,
        concurrency: int = 64,
    ) -> None:
        """Calls a handler for each arrival, each in a thread, until the peer is done.

        Returns when the peer has closed the top-level or ended the connection in good order, and
        every handler has returned. Sinks, streams and duplexes that a handler leaves open are ended
        for it: a sink's close is acknowledged when its handler has returned and taken every
        message, otherwise the sink is cancelled. A duplex's close is acknowledged when its handler
        begins, so that the peer can read on. The peer is told the text of a handler's exception, or
        ``no handler`` if there is none for its arrival. A handler with a parameter ``context`` gets
        a `Context` by keyword. A request that is given up before its turn is not handled.

        When the peer gives up a request or cancels a stream, the handler runs on, because a thread
        cannot be ended. Another call takes its place, and up to four times `concurrency` such
        handlers run beside the others; above that calls wait, and the log says so
        (``bpmux.handlers_abandoned``). With a concurrency of 1 the handler keeps its place.

        The calling thread runs handlers too, unless it is the main thread, which stays free to
        handle signals. More threads are started when they are needed; they are daemons if the
        calling thread is one.

        Args:
            on_request: Takes the request's payload and returns the response; None is an empty
                response.
            on_sink: Takes a `Stream` to read and the payload that the peer opened its sink with.
            on_stream: Takes a `Sink` to write and the payload that the peer opened its stream with.
            on_duplex: Takes a `Duplex` and the payload that the peer opened it with.
            on_error: Takes the exception of a handler, or the error of a response that is no bytes;
                an exception of `on_error` itself is logged. Without `on_error` errors are logged to
                the logger ``ackline.bpmux``. A ``SystemExit`` or ``KeyboardInterrupt`` of a handler
                is an error like any other: its thread and the process go on.
            concurrency: Handlers at once; more arrivals wait.

        Raises:
            ProtocolError: The peer broke a rule.
            TransportError: The transport failed.
            UsageError: `concurrency` is below 1, or a handler takes ``context`` by position alone.

        Example:
            >>> connection.serve(on_request=answer)  # doctest: +SKIP
        """
        least_one(concurrency)
        handlers = Handlers(on_request, on_sink, on_stream, on_duplex, on_error)
        Serving(self, handlers, concurrency).run()

    def ping(self, *, timeout: float = 10.0) -> float:
        """Pings the peer; returns the seconds until its answer.

        Raises:
            LinkTimeout: It did not answer in time.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        doing.wait(None)
        return float(doing.take())

    def shutdown(self, *, timeout: float | None = None) -> None:
        """Ends the connection in good order.

        Neither side begins anything new, everything open comes to its end, and then the transport
        is closed. This also waits until the peer closes the transport, up to 5 s after this end and
        no longer than `timeout`; it is no error if the peer leaves it open.

        Args:
            timeout: Seconds; None waits for ever for open requests, sinks, streams and duplexes.

        Raises:
            LinkTimeout: Something is still open or not sent; the connection goes on until then.
            LinkClosed: It has ended in another way.
        """
        ended(self._core.shutdown(timeout), "the connection did not end", timeout)

    def wait_ended(self, *, timeout: float | None = None) -> None:
        """Waits for the connection's end.

        Raises:
            LinkTimeout: It has not ended in time.
        """
        if not self._core.wait("end", timeout):
            raise late("the connection did not end", timeout)

    def _leave(self, *, failed: bool) -> None:
        try:
            if not failed and not self.is_ended and not self._aborted:
                self.shutdown(timeout=PATIENCE)
        except LinkTimeout:
            raise self._unended() from None
        finally:
            self.abort()


class Listener(AcceptingListener[BpmuxConnection, Connection]):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> with listen("bpmux://127.0.0.1:7000") as listener:  # doctest: +SKIP
        ...     listener.serve(on_request=answer)
    """

    def _connection(self, core: BpmuxConnection) -> Connection:
        return Connection(core)

    def serve(
        self,
        *,
        on_request: OnRequest | None = None,
        on_sink: OnSink | None = None,
        on_stream: OnStream | None = None,
        on_duplex: OnDuplex | None = None,
        on_error: OnError | None = None,
        concurrency: int = 64,
    ) -> None:
        """Serves every connection, each in a thread, until the listener is closed.

        Connections are served as by `Connection.serve`. Returns when the listener is closed and
        every connection has ended; an exception, such as a ``KeyboardInterrupt``, ends them at
        once. A handler that waits for something else cannot be ended: the process lives until the
        last handler has returned, as with all threads that are no daemons. A second
        ``KeyboardInterrupt`` gives that up, with a traceback of ``threading``.

        Args:
            on_request: Takes a request's payload. This and the others are as for
                `Connection.serve`.
            on_sink: Takes a `Stream` to read.
            on_stream: Takes a `Sink` to write.
            on_duplex: Takes a `Duplex`.
            on_error: Takes the exception of a handler, and the error of a connection that did not
                end in good order.
            concurrency: Handlers at once of each connection.

        Raises:
            UsageError: As by `Connection.serve`.

        Example:
            >>> listener.serve(on_request=answer)  # doctest: +SKIP
        """
        least_one(concurrency)

        def handle(connection: Connection) -> None:
            try:
                with connection:
                    connection.serve(
                        on_request=on_request,
                        on_sink=on_sink,
                        on_stream=on_stream,
                        on_duplex=on_duplex,
                        on_error=on_error,
                        concurrency=concurrency,
                    )
            except AcklineError as error:
                tell(on_error, error)

        serve_each(self, handle)


def _connected(doing: PendingOp) -> Connection:
    doing.wait(None)
    return Connection(doing.take())
