"""Reactive Streams: the parts that do not wait, for threads and for asyncio."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ackline._connections import Peer
from ackline._payloads import Buffer
from ackline._reactive_core import (
    ReactiveConnection,
    ReactiveElements,
    ReactivePublication,
    ReactiveRequest,
    ReactiveSubscription,
)
from ackline.exceptions import (
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    TransportError,
    UsageError,
)

__all__ = [
    "GOODBYE",
    "MOST_ELEMENTS",
    "PACKED_BYTES",
    "PATIENCE",
    "UNBOUNDED",
    "ConnectionBase",
    "Extensions",
    "Part",
    "PublicationBase",
    "RequestBase",
    "SubscriptionBase",
    "failed",
    "least_one",
    "listed",
    "packed",
    "reason_of",
    "view_of",
    "wanted",
]

UNBOUNDED: Final = (1 << 63) - 1
"""Demand without bound: the publisher may send as many elements as it likes."""
MOST_ELEMENTS: Final = 1024
"""Elements that an iteration takes at once, at most."""
PACKED_BYTES: Final = 1 << 20
"""Bytes of packed elements in one piece, at most."""
PATIENCE: Final = 10.0
"""Seconds that the end of a `with` block waits for elements that are not sent."""
GOODBYE: Final = "the connection was closed"
"""The reason of a goodbye at the end of a `with` block."""

_log = logging.getLogger("ackline.reactive")
_ENDS = (LinkClosed, PeerCancelled, ProtocolError, TransportError)
"""Errors that the end of a subscription or of its connection causes."""
_LONGEST = 4096
"""Characters of an exception's text that go to the peer, at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an element."""

    element: int | None
    """The number that the publisher gave the element; None for one that came whole.

    Parts of several elements may alternate, and whole elements may come between them.
    """
    data: bytes
    """Its bytes."""
    is_last: bool
    """Whether it is the last part of its element."""


def whole(name: str, value: int) -> None:
    """Refuses a number of elements that the protocol cannot carry."""
    if not 0 <= value <= UNBOUNDED:
        raise UsageError(f"{name} is {value}; it is a whole number up to 2^63-1", "invalid_demand")


def wanted(demand: int | None, low: int | None, *, automatic: bool) -> tuple[int, int | None]:
    """Returns the arguments of the native `subscribe`.

    Raises:
        UsageError: ``invalid_demand``, ``invalid_low_water``.
    """
    if demand is not None:
        whole("demand", demand)
    if not automatic or demand is None:
        if low is not None:
            raise UsageError(
                "low_water is given, and no elements are requested automatically: "
                "demand is None, or automatic=False",
                "invalid_low_water",
            )
        return (UNBOUNDED if demand is None else demand), None
    if demand == 0:
        text = "demand is 0, and with it no elements are requested automatically: give at least 1"
        raise UsageError(f"{text}, or automatic=False", "invalid_demand")
    if low is not None:
        whole("low_water", low)
    return demand, demand // 2 if low is None else low


def least_one(concurrency: int | None) -> None:
    """Refuses a concurrency with which no stream could be served."""
    if concurrency is not None and concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}; it is at least 1")


def failed(error: BaseException) -> str:
    """Logs the error of a publisher's source, and returns its text for the subscriber."""
    if isinstance(error, _ENDS):
        _log.debug("a publisher has ended code=reactive.publisher_failed end=%r", error)
    else:
        _log.error("a publisher failed code=reactive.publisher_failed", exc_info=error)
    return reason_of(error)


def reason_of(error: BaseException) -> str:
    """Returns an exception's text for the peer."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (any error is reported to the peer)
        text = ""
    text = (text or type(error).__name__)[:_LONGEST]
    # Names of files may have bytes that are no text.
    return text.encode(errors="replace").decode()


def view_of(source: object) -> memoryview | None:
    """Returns the buffer of numbers that an object has, if it has one.

    Raises:
        UsageError: It has objects of Python in it, whose addresses are nobody's business.
    """
    if getattr(getattr(source, "dtype", None), "kind", "") in {"M", "m"}:
        # NumPy has no buffers of times; their numbers have.
        source = cast("Any", source).view("i8")
    try:
        view = memoryview(cast("Any", source))
    except (TypeError, ValueError):
        return None
    if set("OP&") & set(view.format):
        raise UsageError("an array of Python objects has no elements: make numbers or bytes of it")
    return view


def packed(elements: object) -> ReactiveElements:
    """Returns elements of a fixed size that stand one behind the other in a buffer.

    Raises:
        UsageError: It has no buffer.
    """
    view = view_of(elements)
    if view is None:
        name = type(elements).__name__
        raise UsageError(f"packed elements are {name}, which has no buffer of numbers")
    if not view.nbytes:
        return ReactiveElements.packed(b"")
    flat = view.cast("B") if view.c_contiguous else view.tobytes()
    return ReactiveElements.packed(flat)


class SubscriptionBase:
    """A subscription without its waits."""

    def __init__(self, core: ReactiveSubscription, element_size: int = 0) -> None:
        self._core = core
        self._element_size = element_size

    @property
    def element_size(self) -> int:
        """The bytes of every element; 0 if they have any size."""
        return self._element_size

    @property
    def requested(self) -> int:
        """Elements that are requested and have not come.

        Raises:
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
        return self._core.requested

    def request(self, count: int) -> None:
        """Requests more elements, beside those that are requested automatically.

        Args:
            count: At least 1; all requests together stop at 2^63-1, which is without bound.

        Raises:
            UsageError: ``invalid_demand``, ``already_ended``.
            LinkClosed: The connection is over.
        """
        whole("count", count)
        self._core.request(count)

    def cancel(self) -> None:
        """Ends the subscription; elements that have come and were not taken are dropped.

        Nothing happens where the stream has ended before.
        """
        self._core.cancel()

    def try_receive_many(self, max_elements: int = MOST_ELEMENTS) -> list[bytes] | None:
        """Returns elements that have come, up to `max_elements`; None when the stream is complete.

        An element with which the list reaches 256 KiB is its last one.

        Raises:
            StreamFailed: The publisher has ended the stream with an error.
            LinkClosed: The connection is over.
        """
        return self._core.try_receive(max_elements)


class RequestBase:
    """A subscription of the peer that waits for an answer. If it is dropped, it is rejected."""

    def __init__(self, core: ReactiveRequest, publisher: str, initial_demand: int) -> None:
        self._core = core
        self.publisher = publisher
        """The publisher's name."""
        self.initial_demand = initial_demand
        """The elements that the subscriber takes at first; 2^63-1 is without bound."""

    def reject(self, reason: str) -> None:
        """Rejects it, with a reason.

        Raises:
            PeerCancelled: The subscriber has left.
            UsageError: ``already_answered``.
            LinkClosed: The connection is over.
        """
        self._core.reject(reason)


class PublicationBase:
    """An accepted subscription of the peer, without its waits."""

    def __init__(self, core: ReactivePublication, element_size: int) -> None:
        self._core = core
        self.element_size = element_size
        """The bytes of every element; 0 if they have any size."""

    @property
    def room(self) -> int:
        """Elements that would be taken now: 0 without demand, or while earlier ones wait.

        Raises:
            PeerCancelled: The subscriber wants no more.
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
        return self._core.room

    @property
    def cancelled(self) -> bool:
        """Whether it is over: cancelled by the subscriber, ended here, or with the connection."""
        return self._core.cancelled

    def complete(self) -> None:
        """Completes the stream, behind the elements that were sent.

        Raises:
            PeerCancelled: The subscriber wants no more.
            UsageError: ``already_ended``.
            LinkClosed: The connection is over.
        """
        self._core.complete()

    def fail(self, error: str) -> None:
        """Ends the stream with an error, behind the elements sent before; raises as `complete`."""
        self._core.fail(error)


Extensions = Mapping[int, Mapping[int, Sequence[str]]]
"""Extensions by their numbers: the messages of each by their types, with their fields' kinds."""


def listed(extensions: Extensions | None) -> list[tuple[int, list[tuple[int, list[str]]]]]:
    """Returns extensions in the form of the native module."""
    return [
        (extension, [(kind, list(fields)) for kind, fields in messages.items()])
        for extension, messages in (extensions or {}).items()
    ]


class ConnectionBase:
    """One end of a connection, without its waits."""

    def __init__(self, core: ReactiveConnection) -> None:
        self._core = core
        self._aborted = False

    def abort(self) -> None:
        """Ends the connection at once, also if streams are open."""
        self._aborted = True
        self._core.abort()

    @property
    def is_ended(self) -> bool:
        """Whether the connection is over, its transport too."""
        return self._core.ended

    def send_extension(self, message_type: int, *fields: int | str | Buffer) -> None:
        """Sends a message of an extension that both ends support.

        Args:
            message_type: Its type, 64 at least.
            fields: A number for a varint, a text for a string, a buffer for bytes.

        Raises:
            UsageError: ``extension_not_active``: the peer does not support it, or the fields are
                others; ``closing``.
            LinkClosed: The connection is over.
        """
        self._core.send_extension(message_type, fields)

    @property
    def goodbye_reason(self) -> str | None:
        """The reason of the peer's goodbye; None before it."""
        return self._core.goodbye_reason

    @property
    def peer(self) -> Peer | None:
        """The connector; None at the connector's end."""
        peer = self._core.peer
        return None if peer is None else Peer(*peer)

    def stats(self) -> dict[str, int]:
        """The connection's numbers.

        Open now: ``subscriptions`` of this end and ``publications`` to the peer. Bytes of elements
        that are not sent: ``waiting_bytes``. Since the beginning: ``bytes_in`` and ``bytes_out`` of
        the transport.
        """
        return self._core.stats()

    def _unsent(self) -> LinkTimeout:
        """Returns the error for the end of a block that has to cut the connection off."""
        waiting = self._core.stats()["waiting_bytes"]
        return LinkTimeout(
            f"the connection did not end within {PATIENCE:g} s of the block's end and was cut off: "
            f"{waiting} bytes of elements were not sent. Call shutdown(timeout=...) in the block"
        )
