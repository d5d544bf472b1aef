"""bpmux's handlers for asyncio: the functions that `serve` calls, and the end of each call."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from ackline._bpmux import (
    DROPPED,
    NO_HANDLER,
    PATIENCE,
    ConnectionBase,
    ContextBase,
    OnError,
    answered,
    half_of,
    leave,
    reason,
    refuse,
    release,
    takes_context,
    tell,
)
from ackline._bpmux_core import BpmuxRequest
from ackline.aio._bpmux_failures import ENDS_HANDLER, ENDS_PROGRAM, Abandonable, told
from ackline.aio._bpmux_handles import (
    Duplex,
    Incoming,
    OpenedDuplex,
    OpenedSink,
    OpenedStream,
    Request,
    Sink,
    Stream,
)
from ackline.aio._wait import ready
from ackline.exceptions import AcklineError, LinkClosed

__all__ = ["Context", "Handlers", "OnDuplex", "OnRequest", "OnSink", "OnStream"]


class Context(ContextBase):
    """The facts of a call beside its payload, for handlers with a parameter ``context``.

    The handler's task is cancelled when the peer gives up its request or stream.

    Example:
        >>> async def answer(payload: bytes, context: Context) -> bytes:
        ...     return b"for " + (context.peer.name.encode() if context.peer else b"the listener")
    """

    async def wait_cancelled(self, *, timeout: float | None = None) -> bool:
        """Waits until the call is `cancelled`.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            Whether the call is cancelled.
        """
        core = self._connection._core  # noqa: SLF001 (its users cannot)
        try:
            if isinstance(self._half, BpmuxRequest):
                await ready(self._half.wait_async, timeout)
            elif self._half is not None:
                await ready(partial(self._half.wait_async, "cancelled"), timeout)
            else:
                await ready(partial(core.wait_async, "end"), timeout)
        except LinkClosed:
            # The handler has closed its half: the call can only end with the connection.
            await ready(partial(core.wait_async, "end"), timeout)
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
"""A function that answers requests."""
OnSink = Callable[[Stream, bytes], Awaitable[object]] | _HandleWithContext[Stream]
"""A function that reads sinks of the peer."""
OnStream = Callable[[Sink, bytes], Awaitable[object]] | _HandleWithContext[Sink]
"""A function that writes streams of the peer."""
OnDuplex = Callable[[Duplex, bytes], Awaitable[object]] | _HandleWithContext[Duplex]
"""A function that reads and writes duplexes of the peer."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The functions that `serve` calls.

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
        """Calls the handler of this kind, and then ends the arrival in any case.

        Raises:
            BaseException: An error of `ENDS_PROGRAM`, once the peer is told.
        """
        try:
            failed = await self._handle(connection, incoming)
        except ENDS_HANDLER as error:
            # Usually the peer has ended the arrival, or the connection is over.
            tell(None, error)
            return
        if isinstance(failed, ENDS_PROGRAM):
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
            # The handler was interrupted, so its work is not done.
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
        # The handler may need the peer to read on, also after the peer has closed its own half.
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
            # The peer gave it up while it waited for its turn.
            return None
        failed: BaseException | None
        try:
            context = Context(connection, request)
            with Abandonable(connection, half_of(request)):
                answer = await self._call("request", context, request.payload)
        except BaseException as error:  # noqa: BLE001 (any error is reported to the peer)
            failed = told(self.error, error)
        else:
            failed = answered(request, answer)
            if failed is not None:
                failed = told(self.error, failed)
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
        except BaseException as error:  # noqa: BLE001 (any error is reported to the peer)
            return told(self.error, error)
        return None

    def _call(self, kind: str, context: Context, *arguments: object) -> Awaitable[object]:
        handler: Callable[..., Awaitable[object]] = getattr(self, kind)
        if kind in self.with_context:
            return handler(*arguments, context=context)
        return handler(*arguments)


class _NoHandler(Exception):  # noqa: N818 (its text is a reason, not an error)
    """`serve` has no handler of this kind."""


async def _close(writer: Sink | Duplex, failed: BaseException | None) -> None:
    """Closes the half that this end writes. After a failure, an error of the close is ignored.

    A program that ends does not wait for the close.
    """
    if failed is None:
        await writer.close(timeout=PATIENCE)
        return
    timeout = 0 if isinstance(failed, ENDS_PROGRAM) else PATIENCE
    with suppress(AcklineError):
        await writer.close(reason(failed), timeout=timeout)
