"""The native module's Reactive Streams part, for `ackline.reactive` and `ackline.aio`."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, final

from ackline._bpmux_core import PendingOp
from ackline._core import LoopWaker
from ackline.aio._wait import Standing

__all__ = [
    "PendingOp",
    "ReactiveConnection",
    "ReactiveElements",
    "ReactiveListener",
    "ReactiveNames",
    "ReactivePublication",
    "ReactiveRequest",
    "ReactiveSubscription",
    "reactive_connect",
    "reactive_split",
]

_Extensions: TypeAlias = list[tuple[int, list[tuple[int, list[str]]]]]
"""Extensions, the types of their messages, and the kinds of the fields of each."""

def reactive_connect(url: str, options: Mapping[str, Any], extensions: _Extensions) -> PendingOp:
    """Begins to connect; the result is a `ReactiveConnection`.

    Raises:
        UsageError: An option is not understood.
    """

def reactive_split(url: str) -> tuple[str, str]:
    """Returns the URL of the place, and the publisher's name.

    Raises:
        UsageError: The URL names no publisher.
    """

@final
class ReactiveConnection:
    """One end of a connection; it ends when it and all its handles are dropped."""

    def subscribe(self, publisher: str, most: int, low: int | None) -> ReactiveSubscription:
        """Subscribes.

        Args:
            publisher: The publisher's name.
            most: Elements that are requested, or wait to be taken, at most.
            low: The number of them at which more are requested by themselves; None is never.
        """
    def try_accept(self) -> tuple[ReactiveRequest, str, int] | Literal[False] | None:
        """The peer's next subscription with its publisher's name and initial demand.

        None before it comes; False when no more come.
        """
    def connected(self) -> list[int] | None:
        """The extensions that both ends support; None before the peer's hello."""
    def send_extension(self, message_type: int, fields: object) -> None:
        """Sends a message of an active extension."""
    def try_receive_extension(self) -> tuple[int, list[int | str | bytes]] | Literal[False] | None:
        """The next message of an extension; None before it comes, False when no more come."""
    def shutdown(self, reason: str, timeout: float | None) -> PendingOp:
        """Says goodbye, and waits for the connection's end."""
    def abort(self) -> None:
        """Ends it at once."""
    @property
    def ended(self) -> bool:
        """Whether it has ended."""
    @property
    def goodbye_reason(self) -> str | None:
        """The reason of the peer's goodbye, once it has come."""
    @property
    def peer(self) -> tuple[str, str, dict[str, str]] | None:
        """Name, identity and attributes of the connector; None at the connector's end."""
    def stats(self) -> dict[str, int]:
        """Its current state, and counters of its transport."""
    def wait(self, interest: str, timeout: float | None) -> bool:
        """Waits for ``arrival``, ``connected``, ``extension`` or ``end``.

        Returns whether it came in time.
        """
    def wait_async(self, interest: str, waker: LoopWaker) -> Standing[bool] | None:
        """Begins the same wait in an event loop; None if it is true now."""

@final
class ReactiveSubscription:
    """A subscription of this end; it is cancelled if it is dropped."""

    def try_accepted(self) -> int | None:
        """The size of every element, or 0; None before the publisher has accepted it."""
    def try_receive(self, most: int) -> list[bytes] | None:
        """Elements that are there, up to `most`; None when the stream is complete."""
    def try_receive_packed(self, most: int) -> bytes | None:
        """Elements of a fixed size, up to `most` bytes and at least one; None when complete.

        Empty if none are there.
        """
    def try_receive_part(self) -> tuple[int | None, bytes, bool] | Literal[False] | None:
        """The next part of an element; None before it comes, False when the stream is complete.

        The number of an element that came whole is None.
        """
    def request(self, count: int) -> None:
        """Requests more elements."""
    @property
    def requested(self) -> int:
        """Elements that are requested and have not come."""
    def cancel(self) -> None:
        """Cancels it; nothing happens where it has ended."""
    def wait(self, interest: str, timeout: float | None) -> bool:
        """Waits for ``accepted`` or ``element``; returns whether it came in time."""
    def wait_async(self, interest: str, waker: LoopWaker) -> Standing[bool] | None:
        """Begins the same wait in an event loop; None if it is true now."""

@final
class ReactiveRequest:
    """A subscription of the peer that waits for an answer; it is rejected if it is dropped."""

    def accept(self, element_size: int) -> ReactivePublication:
        """Accepts it; 0 is elements of any size."""
    def reject(self, reason: str) -> None:
        """Rejects it."""

@final
class ReactivePublication:
    """An accepted subscription of the peer; it ends with an error if it is dropped."""

    def try_publish(self, elements: ReactiveElements) -> int:
        """Publishes as many as there are room and demand for; returns how many, or their bytes."""
    @property
    def room(self) -> int:
        """Elements that would be taken now."""
    @property
    def cancelled(self) -> bool:
        """Whether the subscriber has cancelled it, or its connection is over."""
    def complete(self) -> None:
        """Completes the stream."""
    def fail(self, error: str) -> None:
        """Ends the stream with an error."""
    def wait(self, interest: str, timeout: float | None) -> bool:
        """Waits for ``room`` or ``cancelled``; returns whether it came in time."""
    def wait_async(self, interest: str, waker: LoopWaker) -> Standing[bool] | None:
        """Begins the same wait in an event loop; None if it is true now."""

@final
class ReactiveElements:
    """Elements that wait to be published: a sequence of bytes, or an Arrow array."""

    def __new__(cls, elements: object) -> ReactiveElements: ...
    @staticmethod
    def packed(elements: object) -> ReactiveElements:
        """Elements of a fixed size, one behind the other, in a buffer of bytes."""
    @property
    def done(self) -> bool:
        """Whether all were published."""

@final
class ReactiveNames:
    """Values by the names of publishers."""

    def __new__(cls) -> ReactiveNames: ...
    def add(self, name: str, value: object) -> None:
        """Adds a value for a name, a beginning of names (``a/*``) or a pattern.

        Raises:
            UsageError: ``publisher_exists``.
        """
    def find(self, name: str) -> Any | None:  # noqa: ANN401 (the value is the caller's)
        """The value for a name."""

@final
class ReactiveListener:
    """A listener; dropping it closes the socket."""

    def __new__(
        cls, url: str, options: Mapping[str, Any], extensions: _Extensions
    ) -> ReactiveListener: ...
    @property
    def url(self) -> str:
        """The URL that it listens on, with the chosen port."""
    def try_accept(self) -> ReactiveConnection | None:
        """The next connection, if there is one."""
    def close(self) -> None:
        """Closes the socket; connections that were handed out go on."""
    @property
    def closed(self) -> bool:
        """Whether it is closed."""
    def stats(self) -> dict[str, Any]:
        """Health checks, and connections that were turned away by the reason's code."""
    def wait(self, timeout: float | None) -> bool:
        """Waits for a connection; returns whether one came in time."""
    def wait_async(self, waker: LoopWaker) -> Standing[bool] | None:
        """Begins the same wait in an event loop; None if one is there."""
