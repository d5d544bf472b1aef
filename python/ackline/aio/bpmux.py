"""bpmux for asyncio: the names and arguments of `ackline.bpmux`.

A cancelled ``await`` loses nothing: waits take nothing, and what was sent is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Generator
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Literal

from ackline._bpmux import (
    PATIENCE,
    ConnectionBase,
    Credit,
    ListenerBase,
    OnError,
    Part,
    Peer,
    late,
    least_one,
    options_of,
    tell,
)
from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxListener,
    bpmux_connect,
)
from ackline._closing import AsyncBlock, AsyncClosing
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer
from ackline.aio._bpmux_handles import (
    Context,
    Duplex,
    Handlers,
    Incoming,
    OnDuplex,
    OnRequest,
    OnSink,
    OnStream,
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
from ackline.aio._wait import loop_waker, outcome, ready
from ackline.exceptions import AcklineError, LinkClosed, LinkTimeout

__all__ = [
    "Connection",
    "Context",
    "Credit",
    "Duplex",
    "Incoming",
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
    parts: bool = False,
    max_payload_bytes: int = 16 << 20,
    max_entities: int = 65_536,
    max_requests: int = 65_536,
    memory: int = 256 << 20,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str | None = None,
    token_file: str | PathLike[str] | None = None,
) -> "_Connecting":
    """Connects; arguments and errors as `ackline.bpmux.connect`.

    ``await`` it, or use it with ``async with``.
    """
    return _Connecting(url, options_of(locals()))


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
    parts: bool = False,
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
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
    identity: Literal["subject", "san", "fingerprint"] | None = None,
    tokens_file: str | PathLike[str] | None = None,
) -> "Listener":
    """Listens for connections; arguments and errors as `ackline.bpmux.listen`.

    Returns at once; use it with ``async with``.
    """
    return Listener(BpmuxListener(url, options_of(locals())))


class _Connecting:
    """What `connect` returns: ``await`` it, or enter it with ``async with``."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._doing = bpmux_connect(url, options)
        self._connection: Connection | None = None

    def __await__(self) -> Generator[Any, None, "Connection"]:
        return self._connected().__await__()

    async def __aenter__(self) -> "Connection":
        self._connection = await self
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._connection.__aexit__(kind, value, traceback)

    async def _connected(self) -> "Connection":
        await ready(self._doing.wait_async, None)
        return Connection(self._doing.take())


class Connection(AsyncBlock, ConnectionBase):
    """One end of a connection.

    It ends at once when it and everything that came of it is dropped. An `async with` block ends it
    in good order, which it waits for up to 10 s; then it is cut off and `LinkTimeout` says what was
    open. One that an exception leaves ends at once.

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
        """The top-level's: messages to the peer that belong to nothing else."""
        return self._sink

    @property
    def stream(self) -> Stream:
        """The top-level's: messages of the peer that belong to nothing else."""
        return self._stream

    async def request(self, payload: Buffer, *, timeout: float | None = None) -> Response:
        """Sends a request; waits while as much waits for credit as may wait.

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
        """A request and its response; the request is cancelled where none comes in time.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds for both; None waits for ever.

        Raises:
            LinkTimeout: No response came in time.
            RequestClosed: The peer will not answer.
            UsageError: As `request`, like the others.
        """
        deadline, waker = deadline_in(timeout), loop_waker()
        standing = self._core.call_async(payload, waker)
        if standing is None:
            # In its turn, behind those who have waited longer.
            async with await self.request(payload, timeout=timeout) as response:
                return await response.response(timeout=left_until(deadline))
        answer = await outcome(waker, standing, timeout)
        if answer is False:
            raise late("no response came", timeout)
        return answer

    async def open_sink(self, payload: Buffer = b"", *, timeout: float | None = None) -> Sink:
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
        await wait_open(doing, timeout)
        return Sink(doing.take())

    async def open_stream(self, payload: Buffer = b"", *, timeout: float | None = None) -> Stream:
        """Opens a stream: the peer writes it. As `open_sink`."""
        doing = self._core.open("stream", payload)
        await wait_open(doing, timeout)
        return Stream(doing.take())

    async def open_duplex(self, payload: Buffer = b"", *, timeout: float | None = None) -> Duplex:
        """Opens a duplex: both ends write and read it. As `open_sink`."""
        doing = self._core.open("duplex", payload)
        await wait_open(doing, timeout)
        return Duplex(*doing.take())

    async def accept(self, *, timeout: float | None = None) -> Incoming | None:
        """What the peer begins next; None once it has closed the top-level: no more comes then.

        The peer's close of a sink or duplex is acknowledged once that is accepted, so a connection
        does not end before; `serve` has other rules.

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
        """Calls a handler for everything that the peer begins, each in a task, until it is done.

        Returns when the peer has closed the top-level or ended the connection in good order, and
        every handler has returned. Sinks, streams and duplexes that a handler leaves open are ended
        for it: a sink's close is acknowledged when its handler has returned and taken every
        message, otherwise the sink is cancelled. A duplex's close is acknowledged when its handler
        begins, so that the peer can read on. The peer is told the text of a handler's exception,
        and ``no handler`` where there is none. A handler with a parameter ``context`` is given a
        `Context` by keyword. A request that is given up before its turn is not handled.

        A handler whose request was given up or whose stream was cancelled, or whose peer is gone
        then, is cancelled; that is no error. A handler of a sink or duplex reads all that came.

        Args:
            on_request: Takes the request's payload and returns the response; None is an empty one.
            on_sink: Takes what comes and the payload that the peer opened its sink with.
            on_stream: Takes where to write and the payload that the peer opened its stream with.
            on_duplex: Takes both halves as one and the payload.
            on_error: Is told what a handler raised, and what is wrong with a response that is no
                bytes; what it raises itself is logged. Without it errors are logged to the logger
                ``ackline.bpmux``. A ``SystemExit`` or ``KeyboardInterrupt`` of a handler is told
                to the peer and here, and then ends the event loop, as of any task.
            concurrency: Handlers at once, 64; more calls wait.

        Raises:
            ProtocolError: The peer broke a rule; handlers are cancelled.
            TransportError: The transport failed; likewise.
            UsageError: `concurrency` is below 1, or a handler takes ``context`` by position alone.

        Example:
            >>> await connection.serve(on_request=answer)  # doctest: +SKIP
        """
        least_one(concurrency)
        handlers = Handlers(on_request, on_sink, on_stream, on_duplex, on_error)
        await Serving(self, handlers, concurrency).run()

    async def ping(self, *, timeout: float = 10.0) -> float:
        """Seconds that the peer takes to answer a ping.

        Raises:
            LinkTimeout: It did not answer in time.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        await ready(doing.wait_async, None)
        return float(doing.take())

    async def shutdown(self, *, timeout: float | None = None) -> None:
        """Ends the connection in good order.

        Nothing new is begun from either side, what is open comes to its end, then the transport is
        closed. The peer's end of the transport is waited for too, up to 5 s after this end's and
        no longer than `timeout`; a peer that leaves it open is no error.

        Args:
            timeout: Seconds; None waits for ever for what is open.

        Raises:
            LinkTimeout: Something is still open or not sent; the connection goes on until it is
                not.
            LinkClosed: It has ended in another way.
        """
        doing = self._core.shutdown(timeout)
        await ready(doing.wait_async, None)
        try:
            doing.take()
        except LinkTimeout:
            raise late("the connection did not end", timeout) from None

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


class Listener(AsyncClosing, ListenerBase):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> async with listen("bpmux://127.0.0.1:7000") as listener:  # doctest: +SKIP
        ...     await listener.serve(on_request=answer)
    """

    async def accept(self, *, timeout: float | None = None) -> Connection:
        """Waits for a connection.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: None came in time.
            LinkClosed: The listener is closed.
        """
        deadline = deadline_in(timeout)
        while (core := self._try_accept()) is None:
            if not await ready(self._core.wait_async, left_until(deadline)):
                raise late("no connection came", timeout)
        return Connection(core)

    async def __aiter__(self) -> AsyncIterator[Connection]:
        try:
            while True:
                yield await self.accept()
        except LinkClosed:
            return

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
        """Serves every connection as `Connection.serve`, each in a task, until this is closed.

        Returns when it is closed and every connection has ended; an exception, such as a
        cancellation, ends them at once.

        Args:
            on_request: As for `Connection.serve`, like the others.
            on_sink: Takes what comes.
            on_stream: Takes where to write.
            on_duplex: Takes both halves as one.
            on_error: Is told what a handler raised, and what a connection ended with if that was
                not in good order.
            concurrency: Handlers at once of each connection.

        Raises:
            UsageError: As `Connection.serve`.

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

        try:
            async with asyncio.TaskGroup() as tasks:
                async for connection in self:
                    tasks.create_task(handle(connection))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def close(self) -> None:
        """Accepts no more; connections that nobody accepted are ended."""
        self._core.close()
