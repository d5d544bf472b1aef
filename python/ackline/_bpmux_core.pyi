"""bpmux's part of the native module, for `ackline.bpmux` and `ackline.aio`."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, final

from ackline._core import LoopWaker, RelinkBatch
from ackline.aio._wait import Standing

__all__ = [
    "BpmuxConnection",
    "BpmuxListener",
    "BpmuxRequest",
    "BpmuxResponse",
    "BpmuxServing",
    "BpmuxSink",
    "BpmuxStream",
    "PendingOp",
    "bpmux_connect",
    "bpmux_connect_within",
]

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Arrived: TypeAlias = tuple[
    Literal["request", "sink", "stream", "duplex", "end"],
    BpmuxRequest | None,
    BpmuxSink | None,
    BpmuxStream | None,
    bytes | None,
]

def bpmux_connect(url: str, options: Mapping[str, Any]) -> PendingOp:
    """Begins to connect; the result is a `BpmuxConnection`.

    Raises:
        UsageError: An option is not understood.
    """

def bpmux_connect_within(
    url: str, options: Mapping[str, Any], timeout: float, wait_max: float, failures: int
) -> PendingOp:
    """As `bpmux_connect`, and tries again while no listener is there.

    Args:
        url: The listener.
        options: As `bpmux_connect`.
        timeout: Seconds until it gives up, with the last error.
        wait_max: The longest wait between two attempts, in seconds.
        failures: Earlier connections that came to nothing; its waits are as long as after so many.

    Raises:
        UsageError: An option is not understood.
    """

@final
class PendingOp:
    """An operation that has begun; its result is taken once. It is given up if it is dropped."""

    def wait(self, timeout: float | None) -> bool:
        """Waits up to `timeout` seconds; returns whether it is done. Takes nothing."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def give_up(self) -> None:
        """Gives it up, if it goes on."""
    def take(self) -> Any:  # noqa: ANN401 (by the operation)
        """The result: a connection, a sink, a stream, both, a response, seconds, or None.

        Raises:
            UsageError: ``not_done``: it goes on, or was taken. This and other errors also tell why
                it failed.
        """

@final
class BpmuxConnection:
    """A connection, by readiness: ``try_*`` never wait, waits take nothing."""

    def try_request(self, payload: _Buffer) -> BpmuxResponse | None:
        """Sends a request now; None without room, and while others wait for it.

        Raises:
            UsageError: ``top_level_closed``; the payload is no bytes.
            LinkClosed: The connection is over.
        """
    def request(self, payload: _Buffer) -> PendingOp:
        """Sends a request once there is room, after requests that have waited longer."""
    def call(self, payload: _Buffer, timeout: float | None) -> bytes | Literal[False] | None:
        """Sends a request and waits for its response.

        Returns:
            The response; None without room, and while others wait for it: nothing was sent. False
            when it did not come within `timeout` seconds: the request is cancelled.

        Raises:
            RequestClosed: The peer will not answer.
            UsageError: As by `try_request`, whose other errors are raised too.
        """
    def call_async(self, payload: _Buffer, waker: LoopWaker) -> Standing[bytes] | None:
        """As `call`, in the event loop of `waker`; a call that is given up cancels the request."""
    def open(self, kind: Literal["sink", "stream", "duplex"], payload: _Buffer) -> PendingOp:
        """Opens an entity; the operation is done once the opening is sent."""
    def try_accept(self) -> _Arrived | None:
        """The next arrival, if there is one: its handles and payload; ``end`` is the last.

        Raises:
            LinkClosed: The connection is over, once everything that came was handed out.
        """
    def try_accept_held(self) -> _Arrived | None:
        """As `try_accept`; a close is not acknowledged before `BpmuxStream.release_close`."""
    def serving(self, handlers: int, abandoned: int) -> BpmuxServing:
        """Returns the queue of arrivals for threads that share them.

        Args:
            handlers: Handlers at once.
            abandoned: Handlers of calls given up by the peer that may run beside them.
        """
    def sink(self) -> BpmuxSink:
        """The top-level's."""
    def stream(self) -> BpmuxStream:
        """The top-level's."""
    def close(self, payload: _Buffer) -> None:
        """Closes the top-level.

        Raises:
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
    def cancel(self, payload: _Buffer) -> None:
        """Cancels the top-level; raises as `close`."""
    def shutdown(self, timeout: float | None) -> PendingOp:
        """Ends both directions of the top-level; done when the connection has ended.

        At `timeout` it raises LinkTimeout, unless only the peer's end of the transport is missing.
        """
    def abort(self) -> None:
        """Ends the connection at once."""
    def ping(self, timeout: float) -> PendingOp:
        """Pings the peer; the result is seconds, or `LinkTimeout` after `timeout` seconds."""
    @property
    def ended(self) -> bool:
        """Whether it has ended."""
    def wait(self, interest: Literal["arrival", "end"], timeout: float | None) -> bool:
        """Waits for an arrival, or for the end; takes nothing."""
    def wait_async(
        self, interest: Literal["arrival", "end"], waker: LoopWaker
    ) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def call_at_arrival(self, waker: LoopWaker, callback: Callable[[], object]) -> int | None:
        """Calls back from `LoopWaker.poll_woken` at the next arrival; None if one is there.

        Returns:
            The token for `LoopWaker.give_up`.
        """
    @property
    def peer(self) -> tuple[str, str, dict[str, str]] | None:
        """Name, identity and attributes of the connector; None at the connector's end."""
    def stats(self) -> dict[str, int]:
        """The connection's numbers, in total and now."""

@final
class BpmuxListener:
    """Hands out each connection once.

    Args:
        url: As for `ackline.bpmux.listen`, like the options.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The address cannot be listened on.
    """

    def __new__(cls, url: str, options: Mapping[str, Any]) -> BpmuxListener: ...
    @property
    def url(self) -> str:
        """Where it listens."""
    def try_accept(self) -> BpmuxConnection | None:
        """The next connection, if one is there."""
    def wait(self, timeout: float | None) -> bool:
        """Waits for a connection, or until the listener is closed; takes nothing."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def close(self) -> None:
        """Closes the socket."""
    @property
    def closed(self) -> bool:
        """Whether it is closed."""
    def stats(self) -> dict[str, Any]:
        """``health_checks`` and ``turned_away``, by the reason's code."""

@final
class BpmuxRequest:
    """A request of the peer. If it is dropped, it is closed with ``dropped``."""

    def respond(self, payload: _Buffer) -> None:
        """Answers it.

        Raises:
            PeerCancelled: The answer is not wanted any more.
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
    def close(self, payload: _Buffer) -> None:
        """Ends it without a response; raises as `respond`."""
    def let_go(self) -> None:
        """Closes it with ``dropped``, if it was not answered."""
    @property
    def cancelled(self) -> bytes | None:
        """The payload that the peer gave it up with."""
    def wait(self, timeout: float | None) -> bool:
        """Waits until it is cancelled or over; takes nothing."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def call_when_cancelled(self, waker: LoopWaker, callback: Callable[[], object]) -> int | None:
        """Calls back from `LoopWaker.poll_woken` once it is cancelled or over; None if it is.

        Returns:
            The token for `LoopWaker.give_up`.
        """

@final
class BpmuxResponse:
    """A request of this end. If it is dropped, it is cancelled."""

    def try_response(self) -> bytes | None:
        """The response, once, when it is there.

        Raises:
            RequestClosed: The peer will not answer.
            PeerCancelled: The peer refused all requests before this one was sent.
            LinkClosed: It was cancelled here, or the connection is over.
        """
    def cancel(self, payload: _Buffer) -> None:
        """Gives the request up; does nothing if that was done before.

        Raises:
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
    def let_go(self) -> None:
        """Gives it up, in any state."""
    def ping(self, timeout: float) -> PendingOp:
        """Asks whether the peer is still at work; the result is seconds."""
    def wait(self, timeout: float | None) -> bool:
        """Waits for the response, or until none can come; takes nothing."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""

@final
class BpmuxServing:
    """The arrivals for threads that share them: each takes one, handles it, and takes the next.

    The first thread is counted from the beginning.
    """

    def came(self) -> None:
        """Counts a started thread; the thread calls this before it takes anything."""
    def take(self, returned: int | None) -> tuple[_Arrived, bool, int] | None:
        """Waits for an arrival, without handling signals; None when no more come.

        Args:
            returned: The number of this thread's last handler.

        Returns:
            The arrival, as by `BpmuxConnection.try_accept_held`; whether one more thread is to be
            started before this is handled; and the handler's number.

        Raises:
            LinkClosed: The connection is over. This and every other error is raised in one thread
                only.
        """

@final
class BpmuxSink:
    """A half that this end writes. If it is dropped, it is closed with ``dropped``."""

    def try_send(self, payload: _Buffer) -> bool:
        """Sends a message now; whether there was room.

        Raises:
            PeerCancelled: The reader wants no more.
            UsageError: ``already_ended``, ``top_level_closed``; the payload is no bytes.
            LinkClosed: It was closed here, or the connection is over.
        """
    def try_send_many(self, batch: RelinkBatch, start: int) -> int:
        """Sends messages from `start` on while there is room; returns how many."""
    def check(self) -> None:
        """Raises as `try_send` if messages cannot go any more."""
    def close(self, payload: _Buffer) -> PendingOp | None:
        """Closes it; done when that is acknowledged. None if it was closed before."""
    def let_go(self) -> None:
        """Closes it with ``dropped``."""
    @property
    def cancelled(self) -> bytes | None:
        """The payload that its reader cancelled it with."""
    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
    def wait(
        self,
        interest: Literal["room", "flushed", "cancelled"],
        timeout: float | None,
        size: int = ...,
    ) -> bool:
        """Waits for room for `size` bytes, until all is sent, or for a cancel; takes nothing."""
    def wait_async(
        self,
        interest: Literal["room", "flushed", "cancelled"],
        waker: LoopWaker,
        size: int = ...,
    ) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
    def call_when_cancelled(self, waker: LoopWaker, callback: Callable[[], object]) -> int | None:
        """Calls back from `LoopWaker.poll_woken` once it is cancelled or over; None if it is.

        Returns:
            The token for `LoopWaker.give_up`.
        """

@final
class BpmuxStream:
    """A half that this end reads. If it is dropped before its end, it is cancelled."""

    def try_receive(self, max_messages: int) -> list[bytes] | None:
        """The messages that are there, up to `max_messages`; None when no more can come.

        Raises:
            UsageError: ``too_large``: a message comes in parts and is too long.
            LinkClosed: It was cancelled here, or the connection is over.
        """
    def try_receive_part(self) -> tuple[bytes, bool] | Literal[False] | None:
        """The next part of a message, and whether it is the last part.

        Returns:
            None when no more can come; False when nothing is there yet.

        Raises:
            LinkClosed: As `try_receive`.
        """
    @property
    def closed(self) -> bytes | None:
        """The payload that its writer closed it with."""
    def grant_credit(self, count: int) -> None:
        """Gives the peer credit.

        Raises:
            UsageError: ``already_ended``, ``credit_overflow``.
            LinkClosed: It was cancelled here, or the connection is over.
        """
    def ping(self, timeout: float) -> PendingOp:
        """Pings the peer; the result is seconds."""
    def cancel(self, payload: _Buffer) -> PendingOp | None:
        """Cancels it; done when that is acknowledged. None if it was cancelled before."""
    def let_go(self) -> None:
        """Cancels it, unless it was read to its end."""
    def release_close(self) -> None:
        """Lets its writer's close be acknowledged, now or when it comes."""
    def refuse_close(self, payload: _Buffer) -> None:
        """Cancels it with `payload` before its close is acknowledged, if that is held."""
    @property
    def is_gone(self) -> bool:
        """Whether it was cancelled here."""
    def wait(self, timeout: float | None) -> bool:
        """Waits for a message or the end; takes nothing."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """As `wait`, in the event loop of `waker`; None if it is over."""
