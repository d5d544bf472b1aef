"""The parts of bpmux's connections that do not wait: threads and asyncio share them."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Literal

from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxRequest,
    BpmuxResponse,
    BpmuxSink,
    BpmuxStream,
)
from ackline._connections import Peer
from ackline._payloads import Buffer
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    TransportError,
    UsageError,
)

__all__ = [
    "DROPPED",
    "MOST_MESSAGES",
    "NO_HANDLER",
    "PATIENCE",
    "Arrived",
    "ConnectionBase",
    "ContextBase",
    "Credit",
    "Kind",
    "OnError",
    "Part",
    "Reading",
    "RequestBase",
    "ResponseBase",
    "Writing",
    "abandoned_beside",
    "answered",
    "half_of",
    "least_one",
    "leave",
    "part_of",
    "reason",
    "refuse",
    "release",
    "takes_context",
    "tell",
]

MOST_MESSAGES = 1024
"""Messages that an iteration takes at once, at most."""
PATIENCE = 10.0
"""Seconds that the end of a `with` block waits for requests, sinks, streams and duplexes."""
DROPPED = b"dropped"
"""The payload that ends an arrival whose handler was cancelled together with `serve`."""
NO_HANDLER = b"no handler"
"""The payload for an arrival for which `serve` has no handler."""
OnError = Callable[[BaseException], object]
"""A function that takes the exception of a handler."""
Credit = Literal["automatic", "manual"]
"""The source of the peer's credit."""
Kind = Literal["request", "sink", "stream", "duplex", "end"]
Arrived = tuple[Kind, BpmuxRequest | None, BpmuxSink | None, BpmuxStream | None, bytes | None]
"""An arrival, in the form of the native module."""


_log = logging.getLogger("ackline.bpmux")
_ENDS = (LinkClosed, PeerCancelled, ProtocolError, TransportError)
"""Errors of a handler that the end of its request, sink, stream or connection causes."""
_LONGEST = 4096
"""Characters of an exception's text that go to the peer, at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message."""

    data: bytes
    """Its bytes: a chunk of the peer."""
    is_last: bool
    """Whether it is the last part of its message."""


def part_of(taken: tuple[bytes, bool] | None) -> Part | None:
    """Returns the part that the native module has taken; None when no more come."""
    return None if taken is None else Part(*taken)


def least_one(concurrency: int) -> None:
    """Refuses a concurrency with which no handler could run."""
    if concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}; it is at least 1")


def abandoned_beside(concurrency: int) -> int:
    """Returns how many handlers of calls that were given up may run beside `concurrency` others.

    With a concurrency of 1 there are none: such handlers expect that they never run together.
    """
    return 0 if concurrency == 1 else 4 * concurrency


def takes_context(what: str, handler: Callable[..., object] | None) -> bool:
    """Whether a handler has a parameter ``context``.

    Args:
        what: The handler's name as an argument of `serve`.
        handler: The handler, if there is one.

    Raises:
        UsageError: It cannot take ``context`` by keyword.
    """
    if handler is None:
        return False
    try:
        parameter = signature(handler).parameters.get("context")
    except (TypeError, ValueError):
        # Callables of other languages have no signature.
        return False
    if parameter is None or parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        return False
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        raise UsageError(f"{what} takes context by position alone; it is passed by keyword")
    return True


def reason(error: BaseException) -> bytes:
    """Returns an exception's text for the peer."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (any error is reported to the peer)
        text = ""
    if text and not isinstance(error, Exception):
        # The text of a SystemExit is a number alone, such as ``3``.
        text = f"{name}: {text}"
    return (text or name)[:_LONGEST].encode(errors="replace")


def tell(on_error: OnError | None, error: BaseException) -> BaseException | None:
    """Passes an error to `on_error`, or logs it; logs and returns an error of `on_error` itself."""
    if on_error is None:
        if isinstance(error, _ENDS):
            _log.debug("the work of a handler has ended code=bpmux.handler_failed end=%r", error)
        else:
            _log.error("a handler failed code=bpmux.handler_failed", exc_info=error)
        return None
    try:
        on_error(error)
    except BaseException as another:  # noqa: BLE001 (the peer is still to be told)
        _log.error("on_error failed code=bpmux.on_error_failed", exc_info=another)
        return another
    return None


def answered(request: "RequestBase", answer: Any) -> Exception | None:  # noqa: ANN401
    """Responds with a handler's result; returns the error if the result is no payload."""
    try:
        request.respond(b"" if answer is None else answer)
    except (UsageError, TypeError, BufferError) as error:
        name = type(answer).__name__
        wrong = TypeError(f"the handler of requests has returned {name}: {error}")
        wrong.__cause__ = error
        return wrong
    return None


def leave(request: "RequestBase") -> None:
    """Closes a request with ``dropped`` if its handler has not answered it."""
    request._core.let_go()  # noqa: SLF001 (its users cannot)


def refuse(reader: "Reading", why: bytes) -> None:
    """Cancels messages of the peer with `why`, instead of acknowledging a close that is held.

    Nothing happens if the peer has ended them before.
    """
    reader._stream.refuse_close(why)  # noqa: SLF001 (its users cannot)
    with suppress(AcklineError):
        reader._stream.cancel(why)  # noqa: SLF001 (likewise)


def release(reader: "Reading") -> None:
    """Acknowledges the peer's close, now or when it comes."""
    reader._stream.release_close()  # noqa: SLF001 (its users cannot)


def half_of(call: "RequestBase | Writing") -> BpmuxRequest | BpmuxSink:
    """Returns the part of a call that the peer can give up."""
    return call._core if isinstance(call, RequestBase) else call._sink  # noqa: SLF001 (likewise)


class Writing:
    """The half that this end writes, without its waits."""

    _sink: BpmuxSink

    def try_send(self, payload: Buffer) -> bool:
        """Sends a message now or not at all.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.

        Returns:
            Whether it was accepted; False while `send_bytes` leaves no room.

        Raises:
            PeerCancelled: The reader wants no more.
            UsageError: ``already_ended``, ``top_level_closed``, or the payload is no bytes.
            LinkClosed: It was closed here, or the connection is over.
        """
        return self._sink.try_send(payload)

    @property
    def cancelled(self) -> bytes | None:
        """The payload of the reader's cancel; None before it. By convention empty if all is well.

        It stays available after `close` and after the connection's end; nothing is raised then. It
        stays None if no cancel came before the end, or while `close` waited.
        """
        return self._sink.cancelled


class Reading:
    """The half that this end reads, without its waits."""

    _stream: BpmuxStream

    def try_receive_many(self, max_messages: int = MOST_MESSAGES) -> list[bytes] | None:
        """Returns messages that have arrived, up to `max_messages`; None when no more can come.

        A message with which the list reaches 256 KiB is its last one.

        Raises:
            LinkClosed: It was cancelled here, or the connection is over.
        """
        return self._stream.try_receive(max_messages)

    @property
    def closed(self) -> bytes | None:
        """The payload of the writer's close; None before it. By convention empty if all is well.

        It stays available after `cancel` and after the connection's end; nothing is raised then. It
        stays None if no close came before the end.
        """
        return self._stream.closed

    def grant_credit(self, count: int) -> None:
        """Gives the peer credit, beside the credit that it gets automatically.

        Args:
            count: Bytes. With ``credit="manual"`` the peer gets no other credit.

        Raises:
            UsageError: ``already_ended``, ``credit_overflow``: more than 2^64-1 in all.
            LinkClosed: It was cancelled here, or the connection is over.
        """
        self._stream.grant_credit(count)


class ResponseBase:
    """A request of this end, without its waits."""

    def __init__(self, core: BpmuxResponse) -> None:
        self._core = core

    def try_response(self) -> bytes | None:
        """Returns the response if it is there, once; raises as `response`."""
        return self._core.try_response()

    def cancel(self, payload: Buffer = b"") -> None:
        """Gives the request up.

        Args:
            payload: The reason; by convention empty if all is well.

        Raises:
            UsageError: ``already_ended``: it was answered or closed.
            LinkClosed: The connection is over.
        """
        self._core.cancel(payload)


class RequestBase:
    """A request of the peer, without its waits. If it is dropped, it is closed with ``dropped``."""

    def __init__(self, core: BpmuxRequest, payload: bytes) -> None:
        self._core = core
        self.payload = payload
        """The payload of the request."""

    def respond(self, payload: Buffer) -> None:
        """Answers it.

        Raises:
            PeerCancelled: The answer is not wanted any more.
            UsageError: ``already_ended``: it was answered here before.
            LinkClosed: The connection is over.
        """
        self._core.respond(payload)

    def close(self, payload: Buffer = b"") -> None:
        """Ends it without a response, with the reason as payload; raises as `respond`."""
        self._core.close(payload)

    @property
    def cancelled(self) -> bytes | None:
        """The payload of the peer's cancel; None before a cancel.

        It stays available after `respond`, `close` and the connection's end; nothing is raised
        then. It stays None if the request was not given up before the end.
        """
        return self._core.cancelled


class ConnectionBase:
    """One end of a connection, without its waits."""

    def __init__(self, core: BpmuxConnection) -> None:
        self._core = core
        self._aborted = False

    def close(self, payload: Buffer = b"") -> None:
        """Closes the top-level: this end sends no messages, requests or openings any more.

        Open requests, sinks, streams and duplexes go on. `shutdown` ends the connection.

        Args:
            payload: The reason; by convention empty if all is well.

        Raises:
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
        self._core.close(payload)

    def cancel(self, payload: Buffer = b"") -> None:
        """Cancels the top-level: messages, requests and openings of the peer are refused.

        Raises as `close`.
        """
        self._core.cancel(payload)

    def abort(self) -> None:
        """Ends the connection at once, also if something is open."""
        self._aborted = True
        self._core.abort()

    def _unended(self) -> LinkTimeout:
        """Returns the error for the end of a block that has to cut the connection off."""
        stats = self._core.stats()
        return LinkTimeout(
            f"the connection did not end within {PATIENCE:g} s of the block's end and was cut off: "
            f"{stats['own_entities']} streams and {stats['own_requests']} requests of this end's "
            f"and {stats['peer_entities']} and {stats['peer_requests']} of the peer's were open, "
            f"{stats['waiting_bytes']} bytes were not sent. Messages on them may not have "
            "arrived: close or cancel them inside the block, or call shutdown(timeout=...) there"
        )

    @property
    def is_ended(self) -> bool:
        """Whether the connection is over, its transport too.

        Its methods raise `LinkClosed` earlier, as soon as each side has closed or cancelled both
        directions of the top-level and nothing is open.
        """
        return self._core.ended

    @property
    def peer(self) -> Peer | None:
        """The connector; None at the connector's end."""
        peer = self._core.peer
        return None if peer is None else Peer(*peer)

    def stats(self) -> dict[str, int]:
        """The connection's numbers.

        Since the beginning: ``payloads_sent``, ``bytes_sent``, ``payloads_received``,
        ``bytes_received`` of payload, ``bytes_in`` and ``bytes_out`` of the transport. Open now:
        ``own_entities``, ``peer_entities``, ``own_requests``, ``peer_requests``. Bytes now:
        ``top_level_credit``, ``window_bytes``, ``waiting_bytes``.
        """
        return self._core.stats()


class ContextBase:
    """The facts of a call beside its payload, without their waits.

    Args:
        connection: The connection that the call came on.
        call: The request, or the half that this end writes; None if it only reads.
    """

    def __init__(
        self, connection: ConnectionBase, call: RequestBase | Writing | None = None
    ) -> None:
        self._connection, self._half = connection, None if call is None else half_of(call)

    @property
    def peer(self) -> Peer | None:
        """The connector; None at the connector's end."""
        return self._connection.peer

    @property
    def deadline(self) -> float | None:
        """The deadline of the call in seconds of `time.monotonic`: always None, which is unknown.

        The protocol carries no deadlines: a caller gives its call up when its time is over, and
        `cancelled` is then True.
        """
        return None

    @property
    def cancelled(self) -> bool:
        """Whether the peer gave up the request, cancelled the stream, or is gone.

        For a sink of the peer, which is only read here: whether the connection is over.
        """
        return self.reason is not None or self._connection.is_ended

    @property
    def reason(self) -> bytes | None:
        """The payload of the peer's cancel; None before, and if the peer is gone."""
        return None if self._half is None else self._half.cancelled
