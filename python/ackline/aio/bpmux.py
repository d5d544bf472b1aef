"""bpmux for asyncio: requests, sinks, streams and duplexes over one connection, each with credit.

Both ends are equal, no matter which one connected. For threads see `ackline.bpmux`. A cancelled
``await`` loses nothing: a wait takes nothing, and a message that was sent stays sent.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Unpack

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
from ackline._bpmux_options import BpmuxConnectOptions as ConnectOptions
from ackline._bpmux_options import BpmuxListenOptions as ListenOptions
from ackline._connections import Peer, late
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer
from ackline._table import known, signed
from ackline.aio._block import Block
from ackline.aio._bpmux_handlers import (
    Context,
    Handlers,
    OnDuplex,
    OnRequest,
    OnSink,
    OnStream,
)
from ackline.aio._bpmux_handles import (
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
from ackline.aio._bpmux_serving import Serving
from ackline.aio._ending import ended
from ackline.aio._listener import AcceptingListener
from ackline.aio._serving import serve_each
from ackline.aio._wait import Connecting, outcome, ready
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
def connect(url: str, **options: Unpack[ConnectOptions]) -> Connecting["Connection"]:
    """Connects.

    ``await`` it, or use it with ``async with``.

    Args:
        url: ``bpmux://host:port``, ``bpmux+tls://host:port`` or ``bpmux+unix:///path``.
        options: See `ConnectOptions`. With ``credit="manual"`` the peer gets credit by
            `Stream.grant_credit` alone, on the top-level too; with ``parts=True`` messages of any
            length come by `Stream.receive_part`.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached, or not be trusted.
    """
    return Connecting(_connected, bpmux_connect(url, known("bpmux.connect", options)))


@signed("bpmux.listen")
def listen(url: str, **options: Unpack[ListenOptions]) -> "Listener":
    """Listens for connections.

    Returns at once; use it with ``async with``.

    Args:
        url: As for `connect`; port 0 is any free one.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(BpmuxListener(url, known("bpmux.listen", options)))


class Connection(Block, ConnectionBase):
    """One end of a connection. A cancelled wait of any method takes nothing.

    It ends at once when the connection and all its handles are dropped. An `async with` block ends
    it in good order, and waits up to 10 s for that; then the connection is cut off, and
    `LinkTimeout` counts the handles that were open. If an exception leaves the block, the
    connection ends at once.

    Example:
        >>> async with connect("bpmux://127.0.0.1:7000") as connection:  # doctest: +SKIP
        ...     print(await connection.call(b"question", timeout=10))
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

    async def request(self, payload: Buffer, *, timeout: float | None = None) -> Response:
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
            if not await ready(doing.wait_async, timeout):
                raise late("there was no room", timeout)
            response = doing.take()
        return Response(response)

    async def call(self, payload: Buffer, *, timeout: float | None = None) -> bytes:
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
        answer = await outcome(partial(self._core.call_async, payload), timeout)
        if answer is None:
            # There is no room, so this request waits for its turn behind earlier ones.
            async with await self.request(payload, timeout=timeout) as response:
                return await response.response(timeout=left_until(deadline))
        if answer is False:
            raise late("no response came", timeout)
        return answer

    async def open_sink(self, payload: Buffer = b"", *, timeout: float | None = None) -> Sink:
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
        await wait_open(doing, timeout)
        return Sink(doing.take())

    async def open_stream(self, payload: Buffer = b"", *, timeout: float | None = None) -> Stream:
        """Opens a stream, which the peer writes; otherwise as `open_sink`."""
        doing = self._core.open("stream", payload)
        await wait_open(doing, timeout)
        return Stream(doing.take())

    async def open_duplex(self, payload: Buffer = b"", *, timeout: float | None = None) -> Duplex:
        """Opens a duplex, which both ends write and read; otherwise as `open_sink`."""
        doing = self._core.open("duplex", payload)
        await wait_open(doing, timeout)
        return Duplex(*doing.take())

    async def accept(self, *, timeout: float | None = None) -> Incoming | None:
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
            if not await ready(partial(self._core.wait_async, "arrival"), left_until(deadline)):
                raise late("nothing was begun", timeout)
        return incoming(arrived)

    async def __aiter__(self) -> AsyncIterator[Incoming]:
        while (begun := await self.accept()) is not None:
            yield begun

    async def serve(
        self,
        *,
        on_request: OnRequest | None = None,
        on_sink: OnSink | None = None,
        on_stream: OnStream | None = None,
        on_duplex: OnDuplex | None = None,
        on_error: OnError | None = None,
        concurrency: int = 64,
    ) -> None:
        """Calls a handler for each arrival, each in a task, until the peer is done.

        Returns when the peer has closed the top-level or ended the connection in good order, and
        every handler has returned. Sinks, streams and duplexes that a handler leaves open are ended
        for it: a sink's close is acknowledged when its handler has returned and taken every
        message, otherwise the sink is cancelled. A duplex's close is acknowledged when its handler
        begins, so that the peer can read on. The peer is told the text of a handler's exception, or
        ``no handler`` if there is none for its arrival. A handler with a parameter ``context`` gets
        a `Context` by keyword. A request that is given up before its turn is not handled.

        When the peer gives up a request, cancels a stream or is gone, the handler is cancelled;
        that is no error. A handler of a sink or duplex reads every message that came.

        Args:
            on_request: Takes the request's payload and returns the response; None is an empty
                response.
            on_sink: Takes a `Stream` to read and the payload that the peer opened its sink with.
            on_stream: Takes a `Sink` to write and the payload that the peer opened its stream with.
            on_duplex: Takes a `Duplex` and the payload that the peer opened it with.
            on_error: Takes the exception of a handler, or the error of a response that is no bytes;
                an exception of `on_error` itself is logged. Without `on_error` errors are logged to
                the logger ``ackline.bpmux``. A ``SystemExit`` or ``KeyboardInterrupt`` of a handler
                goes to the peer and to `on_error`, and then ends the event loop, as in any task.
            concurrency: Handlers at once; more arrivals wait.

        Raises:
            ProtocolError: The peer broke a rule; handlers are cancelled.
            TransportError: The transport failed; handlers are cancelled.
            UsageError: `concurrency` is below 1, or a handler takes ``context`` by position alone.

        Example:
            >>> await connection.serve(on_request=answer)  # doctest: +SKIP
        """
        least_one(concurrency)
        handlers = Handlers(on_request, on_sink, on_stream, on_duplex, on_error)
        await Serving(self, handlers, concurrency).run()

    async def ping(self, *, timeout: float = 10.0) -> float:
        """Pings the peer; returns the seconds until its answer.

        Raises:
            LinkTimeout: It did not answer in time.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        await ready(doing.wait_async, None)
        return float(doing.take())

    async def shutdown(self, *, timeout: float | None = None) -> None:
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
        await ended(self._core.shutdown(timeout), "the connection did not end", timeout)

    async def wait_ended(self, *, timeout: float | None = None) -> None:
        """Waits for the connection's end.

        Raises:
            LinkTimeout: It has not ended in time.
        """
        if not await ready(partial(self._core.wait_async, "end"), timeout):
            raise late("the connection did not end", timeout)

    async def _leave(self, *, failed: bool) -> None:
        try:
            if not failed and not self.is_ended and not self._aborted:
                await self.shutdown(timeout=PATIENCE)
        except LinkTimeout:
            raise self._unended() from None
        finally:
            self.abort()


class Listener(AcceptingListener[BpmuxConnection, Connection]):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> async with listen("bpmux://127.0.0.1:7000") as listener:  # doctest: +SKIP
        ...     await listener.serve(on_request=answer)
    """

    def _connection(self, core: BpmuxConnection) -> Connection:
        return Connection(core)

    async def serve(
        self,
        *,
        on_request: OnRequest | None = None,
        on_sink: OnSink | None = None,
        on_stream: OnStream | None = None,
        on_duplex: OnDuplex | None = None,
        on_error: OnError | None = None,
        concurrency: int = 64,
    ) -> None:
        """Serves every connection, each in a task, until the listener is closed.

        Connections are served as by `Connection.serve`. Returns when the listener is closed and
        every connection has ended; an exception, such as a cancellation, ends them at once.

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
            >>> await listener.serve(on_request=answer)  # doctest: +SKIP
        """
        least_one(concurrency)

        async def handle(connection: Connection) -> None:
            try:
                async with connection:
                    await connection.serve(
                        on_request=on_request,
                        on_sink=on_sink,
                        on_stream=on_stream,
                        on_duplex=on_duplex,
                        on_error=on_error,
                        concurrency=concurrency,
                    )
            except AcklineError as error:
                tell(on_error, error)

        await serve_each(self, handle)


async def _connected(doing: PendingOp) -> Connection:
    await ready(doing.wait_async, None)
    return Connection(doing.take())
