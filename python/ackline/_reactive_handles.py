# Written by `make sync` from ackline/aio/_reactive_handles.py: change that file.
"""The handles of Reactive Streams for threads: subscriptions of this end and of the peer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ackline._block import Block
from ackline._connections import late
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer, Payloads
from ackline._reactive import (
    MOST_ELEMENTS,
    PACKED_BYTES,
    Part,
    PublicationBase,
    RequestBase,
    SubscriptionBase,
    packed,
)
from ackline._reactive_core import ReactiveElements
from ackline.exceptions import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Publication", "SubscribeRequest", "Subscription"]


class Subscription(Block, SubscriptionBase):
    """A subscription to a publisher of the peer: an iterator of elements.

    Methods may be called from any thread. A `with` block cancels the subscription at its end; so
    does dropping it. The end of the stream and an own cancel are the end of the iteration.

    Example:
        >>> with connection.subscribe("ticks") as ticks:  # doctest: +SKIP
        ...     for tick in ticks:
        ...         print(tick)
    """

    _connection: Block | None = None

    def receive(self, *, timeout: float | None = None) -> bytes | None:
        """Waits for the next element.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The element; None when the publisher has completed the stream.

        Raises:
            LinkTimeout: None came in time.
            StreamFailed: The publisher has ended the stream with an error.
            UsageError: ``in_parts``: with ``parts=True`` elements come by `receive_part`.
                ``cancelled``: this end has cancelled the subscription.
            LinkClosed: The connection is over.
        """
        elements = self.receive_many(1, timeout=timeout)
        return elements[0] if elements else None

    def receive_many(
        self, max_elements: int = MOST_ELEMENTS, *, timeout: float | None = None
    ) -> list[bytes]:
        """Waits for elements, and returns those that are there, at least one.

        Args:
            max_elements: The most that are returned. An element with which the list reaches 256 KiB
                is its last one.
            timeout: Seconds; None waits for ever.

        Returns:
            The elements; an empty list when the publisher has completed the stream.

        Raises:
            LinkTimeout: None came in time; raises also as `receive`.
        """
        deadline = deadline_in(timeout)
        while (elements := self._core.try_receive(max_elements)) is not None:
            if elements:
                return elements
            if not self._core.wait("element", left_until(deadline)):
                raise late("no element came", timeout)
        return []

    def receive_packed(
        self, max_bytes: int = PACKED_BYTES, *, timeout: float | None = None
    ) -> bytes | None:
        """Waits for elements of a fixed size, and returns those that are there in one piece.

        Args:
            max_bytes: The most bytes that are returned, but one element at least.
            timeout: Seconds; None waits for ever.

        Returns:
            The elements, one behind the other, as for `numpy.frombuffer`; None when the publisher
            has completed the stream.

        Raises:
            LinkTimeout: None came in time.
            UsageError: ``not_fixed_size``: the elements have any size. ``in_parts``: a part of an
                element is next. Raises also as `receive`.
        """
        deadline = deadline_in(timeout)
        while (elements := self._core.try_receive_packed(max_bytes)) is not None:
            if elements:
                return elements
            if not self._core.wait("element", left_until(deadline)):
                raise late("no element came", timeout)
        return None

    def receive_part(self, *, timeout: float | None = None) -> Part | None:
        """Waits for the next part of an element, or for an element that comes whole.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The part; None when the publisher has completed the stream.

        Raises:
            LinkTimeout: None came in time; raises also as `receive`, but not ``in_parts``.
        """
        deadline = deadline_in(timeout)
        while (part := self._core.try_receive_part()) is None:
            if not self._core.wait("element", left_until(deadline)):
                raise late("no part came", timeout)
        return None if part is False else Part(*part)

    def arrays(
        self, dtype: "npt.DTypeLike", max_bytes: int = PACKED_BYTES
    ) -> Iterator["npt.NDArray[Any]"]:
        """Iterates over elements of a fixed size as NumPy arrays.

        Args:
            dtype: The type of one element, such as ``"<f8"``; also a structured one.
            max_bytes: The most bytes of one array, but one element at least.

        Raises:
            UsageError: The type has another size than the elements; raises also as
                `receive_packed`.
        """
        import numpy as np

        of = np.dtype(dtype)
        if of.itemsize != self.element_size:
            raise UsageError(
                f"dtype {of} has {of.itemsize} bytes, and the elements have {self.element_size}"
            )
        while (elements := self.receive_packed(max_bytes)) is not None:
            yield np.frombuffer(elements, dtype=of)

    def __iter__(self) -> Iterator[bytes]:
        while elements := self._next_elements():
            yield from elements

    def _next_elements(self) -> list[bytes]:
        """Returns the next elements of an iteration, which an own cancel ends."""
        try:
            return self.receive_many()
        except UsageError as error:
            if error.code != "cancelled":
                raise
            return []

    def _leave(self, *, failed: bool) -> None:
        self._core.cancel()
        if self._connection is not None:
            self._connection._leave(failed=failed)  # noqa: SLF001 (it is this one's own)


class Publication(Block, PublicationBase):
    """An accepted subscription of the peer, which this end sends elements to.

    A `with` block completes the stream at its end; if an exception leaves the block, the error `the
    publisher has failed` ends the stream. Dropped otherwise, it ends with an error.
    """

    def send(self, element: Buffer, *, timeout: float | None = None) -> None:
        """Sends an element; waits for demand, and while `send_bytes` leaves no room.

        Args:
            element: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: There was no demand in time; nothing was sent.
            PeerCancelled: The subscriber wants no more.
            UsageError: ``wrong_element_size``, ``already_ended``.
            LinkClosed: The connection is over.
        """
        self.send_elements(ReactiveElements([element]), timeout=timeout)

    def send_many(self, elements: Payloads, *, timeout: float | None = None) -> None:
        """Sends elements in order; a sequence of bytes, or an Arrow array of binary or strings.

        Args:
            elements: The elements.
            timeout: Seconds for all of them; None waits for ever.

        Raises:
            LinkTimeout: There was no demand in time; the first of them may have been sent. Raises
                also as `send`.
        """
        self.send_elements(ReactiveElements(elements), timeout=timeout)

    def send_packed(self, elements: object, *, timeout: float | None = None) -> None:
        """Sends elements of the stream's fixed size that stand one behind the other.

        Args:
            elements: A buffer of them, such as a NumPy array.
            timeout: Seconds for all of them; None waits for ever.

        Raises:
            LinkTimeout: As by `send_many`, whose other errors are raised too.
        """
        self.send_elements(packed(elements), timeout=timeout)

    def send_elements(self, elements: ReactiveElements, *, timeout: float | None = None) -> None:
        """Sends elements that were prepared; as `send_many`."""
        deadline = deadline_in(timeout)
        while not elements.done:
            if self._core.try_publish(elements) or elements.done:
                continue
            if not self._core.wait("room", left_until(deadline)):
                raise late("there was no demand", timeout)

    def wait_cancelled(self, *, timeout: float | None = None) -> None:
        """Waits until the subscriber has cancelled, or the connection is over.

        Raises:
            LinkTimeout: Neither happened in time.
        """
        if not self._core.wait("cancelled", timeout):
            raise late("it was not cancelled", timeout)

    def _leave(self, *, failed: bool) -> None:
        if self._core.cancelled:
            return
        if failed:
            self._core.fail("the publisher has failed")
        else:
            self._core.complete()


class SubscribeRequest(RequestBase):
    """A subscription of the peer that waits for an answer. If it is dropped, it is rejected."""

    def accept(self, element_size: int = 0) -> Publication:
        """Accepts it.

        Args:
            element_size: The bytes of every element, which are packed then; 0 is any size.

        Raises:
            PeerCancelled: The subscriber has left.
            UsageError: ``already_answered``.
            LinkClosed: The connection is over.
        """
        return Publication(self._core.accept(element_size), element_size)
