"""What comes of bpmux's connections for asyncio: halves, requests, and how `serve` handles them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from ackline._bpmux import (
    DROPPED,
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
    half_of,
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
from ackline._closing import AsyncBlock
from ackline._core import LoopWaker
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer, Payloads
from ackline._relink_core import RelinkBatch
from ackline.aio._bpmux_abandoned import Abandonable
from ackline.aio._wait import Standing, loop_waker, ready
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


async def done(doing: PendingOp, what: str, timeout: float | None) -> object:
    """What came of it."""
    if not await ready(doing.wait_async, timeout):
        raise late(what, timeout)
    return doing.take()


class _Sends(Writing):
    """The half that this end writes."""

    async def send(self, payload: Buffer, *, timeout: float | None = None) -> None:
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
            if not await ready(partial(self._room, size), left_until(deadline)):
                raise late("there was no room", timeout)

    async def send_many(self, payloads: Payloads, *, timeout: float | None = None) -> None:
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
            if not await ready(partial(self._room, batch.size(sent)), left_until(deadline)):
                raise late(f"there was room for {sent} of {len(batch)} messages", timeout)

    def _room(self, size: int, waker: LoopWaker) -> Standing[bool] | None:
        return self._sink.wait_async("room", waker, size)

    async def flush(self, *, timeout: float | None = None) -> None:
        """Waits until every message has gone to the transport: the peer gave credit for all.

        Raises:
            LinkTimeout: Messages still wait.
            PeerCancelled: The reader wants no more.
            LinkClosed: It was closed here, or the connection is over.
        """
        if not await ready(partial(self._sink.wait_async, "flushed"), timeout):
            raise late("messages did not go", timeout)
        self._sink.check()

    async def wait_cancelled(self, *, timeout: float | None = None) -> bytes | None:
        """Waits until the reader cancels it; with what, or None where it ended otherwise.

        Raises:
            LinkTimeout: It was not cancelled in time.
            LinkClosed: It was closed here before.
        """
        if not await ready(partial(self._sink.wait_async, "cancelled"), timeout):
            raise late("it was not cancelled", timeout)
        return self._sink.cancelled

    async def close(self, payload: Buffer = b"", *, timeout: float | None = None) -> None:
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
            await done(closing, "the close was not acknowledged", timeout)


class _Receives(Reading):
    """The half that this end reads."""

    async def receive(self, *, timeout: float | None = None) -> bytes | None:
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
        received = await self.receive_many(1, timeout=timeout)
        return received[0] if received else None

    async def receive_many(
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
            if not await ready(self._stream.wait_async, left_until(deadline)):
                raise late("no message came", timeout)
        return []

    async def receive_part(self, *, timeout: float | None = None) -> Part | None:
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
            >>> while part := await stream.receive_part():  # doctest: +SKIP
            ...     file.write(part.data)
        """
        deadline = deadline_in(timeout)
        while (taken := self._stream.try_receive_part()) is False:
            if not await ready(self._stream.wait_async, left_until(deadline)):
                raise late("no part came", timeout)
        return part_of(taken)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while received := await self.receive_many():
            for message in received:
                yield message

    async def ping(self, *, timeout: float = 10.0) -> float:
        """Seconds that the peer takes to answer a ping of this half.

        Raises:
            LinkTimeout: It did not answer in time.
            UsageError: ``already_ended``.
            LinkClosed: It was cancelled here, or the connection is over.
        """
        doing = self._stream.ping(timeout)
        await ready(doing.wait_async, None)
        return float(doing.take())

    async def cancel(self, payload: Buffer = b"", *, timeout: float | None = None) -> None:
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
            await done(cancelling, "the cancel was not acknowledged", timeout)


class Sink(AsyncBlock, _Sends):
    """What this end writes. Dropped without `close`, it is closed with the payload ``dropped``.

    A `async with` block closes it; one that an exception leaves lets it go.

    Example:
        >>> async with await connection.open_sink(b"log") as sink:  # doctest: +SKIP
        ...     await sink.send_many([b"one", b"two"])
    """

    def __init__(self, sink: BpmuxSink) -> None:
        self._sink = sink

    async def _leave(self, *, failed: bool) -> None:
        if not failed:
            await self.close()
        else:
            self._sink.let_go()


class Stream(AsyncBlock, _Receives):
    """What this end reads: an iterator.

    Dropped before its end, it is cancelled: so by `async with`.

    Example:
        >>> async with await connection.open_stream(b"prices") as stream:  # doctest: +SKIP
        ...     async for message in stream:
        ...         print(message)
    """

    def __init__(self, stream: BpmuxStream) -> None:
        self._stream = stream

    async def _leave(self, *, failed: bool) -> None:
        del failed
        self._stream.let_go()


class Duplex(AsyncBlock, _Sends, _Receives):
    """Both: `close` ends what this end writes, `cancel` what it reads; each ends by itself.

    A `async with` block closes the one and gives up the other.

    Example:
        >>> async with await connection.open_duplex(b"echo") as duplex:  # doctest: +SKIP
        ...     await duplex.send(b"hello")
        ...     print(await duplex.receive(timeout=10))
    """

    def __init__(self, sink: BpmuxSink, stream: BpmuxStream) -> None:
        self._sink, self._stream = sink, stream

    async def _leave(self, *, failed: bool) -> None:
        try:
            if not failed:
                await self.close()
            else:
                self._sink.let_go()
        finally:
            self._stream.let_go()


class Response(AsyncBlock, ResponseBase):
    """The response to a request.

    Dropped before it is there, the request is cancelled: so by `async with`.

    Example:
        >>> response = await connection.request(b"question")  # doctest: +SKIP
        >>> await response.response(timeout=10)  # doctest: +SKIP
        b'answer'
    """

    async def response(self, *, timeout: float | None = None) -> bytes:
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
            if not await ready(self._core.wait_async, left_until(deadline)):
                raise late("no response came", timeout)
        return answer

    async def ping(self, *, timeout: float = 10.0) -> float:
        """Seconds that the peer takes to say that it is still at work.

        Raises:
            LinkTimeout: It did not say so in time; the response may be on its way instead.
            UsageError: ``already_ended``, ``unknown_id``: answered, or not sent yet.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        await ready(doing.wait_async, None)
        return float(doing.take())

    async def _leave(self, *, failed: bool) -> None:
        del failed
        self._core.let_go()


class Request(RequestBase):
    """A request of the peer's, to be answered once. Dropped, it is closed with ``dropped``."""

    async def wait_cancelled(self, *, timeout: float | None = None) -> bytes | None:
        """Waits until the peer gives the request up; with what, or None where it is over.

        Raises:
            LinkTimeout: It was not given up in time.
            LinkClosed: It was answered here.
        """
        if not await ready(self._core.wait_async, timeout):
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


async def until_received(reader: Reading) -> None:
    """Waits until a message can be received, or none can come any more; takes nothing."""
    await ready(reader._stream.wait_async, None)  # noqa: SLF001 (its users cannot)


def when_flushed(writer: Writing, call: Callable[[], object]) -> None:
    """Calls once every message has gone to the transport, or never can; at once if that is so."""
    _when(partial(writer._sink.wait_async, "flushed"), call)  # noqa: SLF001 (its users cannot)


def when_ended(connection: ConnectionBase, call: Callable[[], object]) -> None:
    """Calls once the connection has ended; at once if it has."""
    _when(partial(connection._core.wait_async, "end"), call)  # noqa: SLF001 (its users cannot)


def _when(arm: Callable[[LoopWaker], Standing[bool] | None], call: Callable[[], object]) -> None:
    waker = loop_waker()
    standing = arm(waker)
    if standing is None:
        call()
        return
    token, future = standing

    def is_there(_: asyncio.Future[bool]) -> None:
        waker.give_up(token)
        call()

    future.add_done_callback(is_there)


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

    A handler of a request or of a stream need not look whether its call is cancelled: its task is
    cancelled then.

    Example:
        >>> async def answer(payload: bytes, context: Context) -> bytes:
        ...     return b"for " + (context.peer.name.encode() if context.peer else b"the listener")
    """

    async def wait_cancelled(self, *, timeout: float | None = None) -> bool:
        """Waits until the call is `cancelled`.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            Whether it is.
        """
        end = partial(self._connection._core.wait_async, "end")  # noqa: SLF001 (its users cannot)
        try:
            if isinstance(self._half, BpmuxRequest):
                await ready(self._half.wait_async, timeout)
            elif self._half is not None:
                await ready(partial(self._half.wait_async, "cancelled"), timeout)
            else:
                await ready(end, timeout)
        except LinkClosed:
            # The handler has closed its half: only the connection's end is left.
            await ready(end, timeout)
        return self.cancelled


_Answer_co = TypeVar("_Answer_co", covariant=True)
_Handle_contra = TypeVar("_Handle_contra", contravariant=True)


class _WithContext(Protocol[_Answer_co]):
    def __call__(self, payload: bytes, /, *, context: Context) -> Awaitable[_Answer_co]: ...


class _HandleWithContext(Protocol[_Handle_contra]):
    def __call__(
        self, handle: _Handle_contra, payload: bytes, /, *, context: Context
    ) -> Awaitable[object]: ...


OnRequest = Callable[[bytes], Awaitable[bytes | None]] | _WithContext[bytes | None]
"""Answers requests."""
OnSink = Callable[[Stream, bytes], Awaitable[object]] | _HandleWithContext[Stream]
"""Reads sinks of the peer's."""
OnStream = Callable[[Sink, bytes], Awaitable[object]] | _HandleWithContext[Sink]
"""Writes streams of the peer's."""
OnDuplex = Callable[[Duplex, bytes], Awaitable[object]] | _HandleWithContext[Duplex]
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

    async def handle(self, connection: ConnectionBase, incoming: Incoming) -> None:
        """Calls the one that it is for, and ends it, whatever that one does.

        Raises:
            BaseException: A `SystemExit` or `KeyboardInterrupt` ends a program of asyncio: it goes
                on from here once the peer is told; so does the cancellation of this task.
        """
        try:
            failed = await self._handle(connection, incoming)
        except Exception as error:  # noqa: BLE001 (nobody else would hear of it)
            # Mostly it was ended by the peer, or with its connection.
            tell(None, error)
            return
        if isinstance(failed, _END_OF_PROGRAM):
            raise failed

    async def _handle(self, connection: ConnectionBase, incoming: Incoming) -> BaseException | None:
        failed: BaseException | None = None
        match incoming:
            case Request():
                try:
                    failed = await self._request(connection, incoming)
                finally:
                    leave(incoming)
            case OpenedSink(stream, payload):
                try:
                    async with stream:
                        failed = await self._sink(connection, stream, payload)
                finally:
                    release(stream)
            case OpenedStream(sink, payload):
                try:
                    context = Context(connection, sink)
                    with Abandonable(connection, half_of(sink)):
                        failed = await self._called("stream", context, sink, payload)
                    await _close(sink, failed)
                finally:
                    await sink.__aexit__(AcklineError, None, None)
            case OpenedDuplex(duplex, payload):
                try:
                    failed = await self._duplex(connection, duplex, payload)
                finally:
                    await duplex.__aexit__(AcklineError, None, None)
        return failed

    async def _sink(
        self, connection: ConnectionBase, stream: Stream, payload: bytes
    ) -> BaseException | None:
        try:
            failed = await self._called("sink", Context(connection), stream, payload)
        except BaseException:
            # This task was cancelled: the handler has not done its work.
            refuse(stream, DROPPED)
            raise
        if failed is not None:
            refuse(stream, reason(failed))
        return failed

    async def _duplex(
        self, connection: ConnectionBase, duplex: Duplex, payload: bytes
    ) -> BaseException | None:
        if self.duplex is None:
            refuse(duplex, NO_HANDLER)
        # A peer that closes its half may still have to read the other for the handler to go on.
        release(duplex)
        context = Context(connection, duplex)
        failed = await self._called("duplex", context, duplex, payload)
        if failed is not None:
            refuse(duplex, reason(failed))
        await _close(duplex, failed)
        return failed

    async def _request(self, connection: ConnectionBase, request: Request) -> BaseException | None:
        if self.request is None:
            request.close(NO_HANDLER)
            return None
        if request.cancelled is not None:
            # It was given up while it waited for its turn.
            return None
        failed: BaseException | None
        try:
            context = Context(connection, request)
            with Abandonable(connection, half_of(request)):
                answer = await self._call("request", context, request.payload)
        except BaseException as error:  # noqa: BLE001 (any is the peer's to know)
            failed = self._told(error)
        else:
            failed = answered(request, answer)
            if failed is not None:
                failed = self._told(failed)
        if failed is not None:
            with suppress(AcklineError):
                request.close(reason(failed))
        return failed

    async def _called(
        self, kind: str, context: Context, handle: Sink | Stream | Duplex, payload: bytes
    ) -> BaseException | None:
        if getattr(self, kind) is None:
            return _NoHandler(NO_HANDLER.decode())
        try:
            await self._call(kind, context, handle, payload)
        except BaseException as error:  # noqa: BLE001 (any is the peer's to know)
            return self._told(error)
        return None

    def _call(self, kind: str, context: Context, *arguments: object) -> Awaitable[Any]:
        handler = getattr(self, kind)
        if kind in self.with_context:
            made: Awaitable[Any] = handler(*arguments, context=context)
        else:
            made = handler(*arguments)
        return made

    def _told(self, error: BaseException) -> BaseException:
        """Tells of an error, and which one it ends with."""
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            # It is this task that was cancelled.
            raise error
        another = tell(self.error, error)
        return another if isinstance(another, _END_OF_PROGRAM) else error


_END_OF_PROGRAM = (SystemExit, KeyboardInterrupt)


class _NoHandler(Exception):  # noqa: N818 (a reason)
    """`serve` has no handler for it."""


async def _close(writer: Sink | Duplex, failed: BaseException | None) -> None:
    """Ends what this end writes; after a failure of the handler nothing more is told.

    A program that ends does not wait for it.
    """
    if failed is None:
        await writer.close(timeout=PATIENCE)
        return
    timeout = 0 if isinstance(failed, _END_OF_PROGRAM) else PATIENCE
    with suppress(AcklineError):
        await writer.close(reason(failed), timeout=timeout)


async def wait_open(doing: PendingOp, timeout: float | None) -> None:
    """Waits until the opening is sent."""
    if not await ready(doing.wait_async, timeout):
        raise late("the opening was not sent", timeout)
