# Written by `make sync` from ackline/aio/_bpmux_handlers.py: change that file.
"""bpmux's handlers for threads: the functions that `serve` calls, and the end of each call."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ackline._bpmux import (
    DROPPED,
    NO_HANDLER,
    PATIENCE,
    ConnectionBase,
    ContextBase,
    OnError,
    answered,
    leave,
    reason,
    refuse,
    release,
    takes_context,
    tell,
)
from ackline._bpmux_core import BpmuxRequest
from ackline._bpmux_failures import ENDS_HANDLER, ENDS_PROGRAM, told
from ackline._bpmux_handles import (
    Duplex,
    Incoming,
    OpenedDuplex,
    OpenedSink,
    OpenedStream,
    Request,
    Sink,
    Stream,
)
from ackline.exceptions import AcklineError, LinkClosed

__all__ = ["Context", "Handlers", "OnDuplex", "OnRequest", "OnSink", "OnStream"]


class Context(ContextBase):
    """The facts of a call beside its payload, for handlers with a parameter ``context``.

    A handler that works long looks at `cancelled` from time to time: its thread goes on when the
    peer gives up its request or stream.

    Example:
        >>> def answer(payload: bytes, context: Context) -> bytes:
        ...     return b"for " + (context.peer.name.encode() if context.peer else b"the listener")
    """

    def wait_cancelled(self, *, timeout: float | None = None) -> bool:
        """Waits until the call is `cancelled`.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            Whether the call is cancelled.
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
            # The handler has closed its half: the call can only end with the connection.
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
"""A function that answers requests."""
OnSink = Callable[[Stream, bytes], object] | _HandleWithContext[Stream]
"""A function that reads sinks of the peer."""
OnStream = Callable[[Sink, bytes], object] | _HandleWithContext[Sink]
"""A function that writes streams of the peer."""
OnDuplex = Callable[[Duplex, bytes], object] | _HandleWithContext[Duplex]
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

    def handle(self, connection: ConnectionBase, incoming: Incoming) -> None:
        """Calls the handler of this kind, and then ends the arrival in any case.

        Raises:
            BaseException: An error of `ENDS_PROGRAM`, once the peer is told.
        """
        try:
            failed = self._handle(connection, incoming)
        except ENDS_HANDLER as error:
            # Usually the peer has ended the arrival, or the connection is over.
            tell(None, error)
            return
        if isinstance(failed, ENDS_PROGRAM):
            raise failed

    def _handle(self, connection: ConnectionBase, incoming: Incoming) -> BaseException | None:
        failed: BaseException | None = None
        match incoming:
            case Request():
                try:
                    failed = self._request(connection, incoming)
                finally:
                    leave(incoming)
            case OpenedSink(stream, payload):
                try:
                    with stream:
                        failed = self._sink(connection, stream, payload)
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
                    failed = self._duplex(connection, duplex, payload)
                finally:
                    duplex.__exit__(AcklineError, None, None)
        return failed

    def _sink(
        self, connection: ConnectionBase, stream: Stream, payload: bytes
    ) -> BaseException | None:
        try:
            failed = self._called("sink", Context(connection), stream, payload)
        except BaseException:
            # The handler was interrupted, so its work is not done.
            refuse(stream, DROPPED)
            raise
        if failed is not None:
            refuse(stream, reason(failed))
        return failed

    def _duplex(
        self, connection: ConnectionBase, duplex: Duplex, payload: bytes
    ) -> BaseException | None:
        if self.duplex is None:
            refuse(duplex, NO_HANDLER)
        # The handler may need the peer to read on, also after the peer has closed its own half.
        release(duplex)
        context = Context(connection, duplex)
        failed = self._called("duplex", context, duplex, payload)
        if failed is not None:
            refuse(duplex, reason(failed))
        _close(duplex, failed)
        return failed

    def _request(self, connection: ConnectionBase, request: Request) -> BaseException | None:
        if self.request is None:
            request.close(NO_HANDLER)
            return None
        if request.cancelled is not None:
            # The peer gave it up while it waited for its turn.
            return None
        failed: BaseException | None
        try:
            context = Context(connection, request)
            answer = self._call("request", context, request.payload)
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

    def _called(
        self, kind: str, context: Context, handle: Sink | Stream | Duplex, payload: bytes
    ) -> BaseException | None:
        if getattr(self, kind) is None:
            return _NoHandler(NO_HANDLER.decode())
        try:
            self._call(kind, context, handle, payload)
        except BaseException as error:  # noqa: BLE001 (any error is reported to the peer)
            return told(self.error, error)
        return None

    def _call(self, kind: str, context: Context, *arguments: object) -> object:
        handler: Callable[..., object] = getattr(self, kind)
        if kind in self.with_context:
            return handler(*arguments, context=context)
        return handler(*arguments)


class _NoHandler(Exception):  # noqa: N818 (its text is a reason, not an error)
    """`serve` has no handler of this kind."""


def _close(writer: Sink | Duplex, failed: BaseException | None) -> None:
    """Closes the half that this end writes. After a failure, an error of the close is ignored.

    A program that ends does not wait for the close.
    """
    if failed is None:
        writer.close(timeout=PATIENCE)
        return
    timeout = 0 if isinstance(failed, ENDS_PROGRAM) else PATIENCE
    with suppress(AcklineError):
        writer.close(reason(failed), timeout=timeout)
