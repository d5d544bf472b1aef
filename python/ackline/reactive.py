# Written by `make sync` from ackline/aio/reactive.py: change that file.
"""Reactive Streams for threads: publishers and subscribers, held back by demand.

Publishers and subscribers share one connection. Demand is counted in elements: a slow subscriber
holds up nobody else. Both ends may publish and subscribe, no matter which one connected. For
asyncio see `ackline.aio.reactive`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ackline._block import Block, Closing
from ackline._closing import tell_loss
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer, Payloads
from ackline._reactive import (
    GOODBYE,
    MOST_ELEMENTS,
    PACKED_BYTES,
    PATIENCE,
    UNBOUNDED,
    ConnectionBase,
    ListenerBase,
    Part,
    Peer,
    PublicationBase,
    RequestBase,
    SubscriptionBase,
    late,
    least_one,
    packed,
    wanted,
)
from ackline._reactive_core import (
    PendingOp,
    ReactiveConnection,
    ReactiveElements,
    ReactiveListener,
    reactive_connect,
    reactive_split,
)
from ackline._reactive_options import ReactiveConnectOptions as ConnectOptions
from ackline._reactive_options import ReactiveListenOptions as ListenOptions
from ackline._reactive_serving import serve_publishers
from ackline._reactive_sources import PublishersBase
from ackline._serving import serve_each
from ackline._table import known, signed
from ackline.exceptions import AcklineError, LinkClosed, LinkTimeout, UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "UNBOUNDED",
    "ConnectOptions",
    "Connection",
    "ListenOptions",
    "Listener",
    "Part",
    "Peer",
    "Publication",
    "Publishers",
    "SubscribeRequest",
    "Subscription",
    "connect",
    "listen",
    "subscribe",
]


@signed("reactive.connect")
def connect(url: str, **options: Unpack[ConnectOptions]) -> "Connection":
    """Connects.

    Args:
        url: ``reactive://host:port``, ``reactive+tls://host:port`` or ``reactive+unix:///path``.
        options: See `ConnectOptions`. With ``parts=True`` elements are received in the parts in
            which they come.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached, or not be trusted.
    """
    return _connected(reactive_connect(url, known("reactive.connect", options)))


@signed("reactive.listen")
def listen(url: str, **options: Unpack[ListenOptions]) -> "Listener":
    """Listens for connections.

    Returns at once; use it with ``with``.

    Args:
        url: As for `connect`; port 0 is any free one.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(ReactiveListener(url, known("reactive.listen", options)))


@signed("reactive.connect")
def subscribe(
    url: str,
    *,
    demand: int | None = 1024,
    low_water: int | None = None,
    automatic: bool = True,
    **options: Unpack[ConnectOptions],
) -> "Subscription":
    """Connects and subscribes to one publisher; the connection ends with the subscription.

    Args:
        url: ``reactive://host:port/PUBLISHER``, or ``reactive+unix:///path?publisher=PUBLISHER``.
        demand: As for `Connection.subscribe`, which takes the next two too.
        low_water: The number of elements at which more are requested.
        automatic: Whether elements are requested automatically.
        options: See `ConnectOptions`.

    Raises:
        StreamFailed: The publisher has rejected the subscription.
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached, or not be trusted.

    Example:
        >>> with subscribe("reactive://127.0.0.1:7000/ticks", demand=100) as ticks:
        ...     for tick in ticks:  # doctest: +SKIP
        ...         print(tick)
    """
    place, publisher = reactive_split(url)
    most = wanted(demand, low_water, automatic=automatic)
    doing = reactive_connect(place, known("reactive.connect", options))
    return _alone(doing, publisher, most)


class Subscription(Block, SubscriptionBase):
    """A subscription to a publisher of the peer: an iterator of elements.

    Methods may be called from any thread. A `with` block cancels the subscription at its end; so
    does dropping it. The end of the stream is the end of the iteration.

    Example:
        >>> with connection.subscribe("ticks") as ticks:  # doctest: +SKIP
        ...     for tick in ticks:
        ...         print(tick)
    """

    _connection: "Connection | None" = None

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
            UsageError: ``not_fixed_size``: the elements have any size; raises also as `receive`.
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
            LinkTimeout: None came in time; raises also as `receive`.
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
        while elements := self.receive_many():
            yield from elements

    def _leave(self, *, failed: bool) -> None:
        self._core.cancel()
        if self._connection is not None:
            self._connection._leave(failed=failed)  # noqa: SLF001 (it is this one's own)


class Publication(Block, PublicationBase):
    """An accepted subscription of the peer, which this end sends elements to.

    A `with` block completes the stream at its end; if an exception leaves the block, its text is
    the error that ends the stream. Dropped otherwise, the stream ends with an error.
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


class Publishers(PublishersBase):
    """Publishers by name.

    Args:
        publishers: Names with their sources, as for `add`.

    Example:
        >>> publishers = Publishers({"ticks": [b"one", b"two"]})
        >>> publishers.add("sensors/*", lambda name: [name.encode()])
    """

    def serve(self, connection: "Connection", *, concurrency: int = 64) -> None:
        """Serves the subscriptions of a connection's peer, each in a thread.

        Returns when the peer has said goodbye or ended the connection, and every stream has ended.
        A source is asked for the next element when there is demand for it. Its end completes the
        stream, its exception ends the stream with the exception's text and is logged to the logger
        ``ackline.reactive``.

        Args:
            connection: The connection.
            concurrency: Streams at once; further subscriptions wait for their answer.

        Raises:
            ProtocolError: The peer broke a rule.
            TransportError: The transport failed.
            UsageError: `concurrency` is below 1.
        """
        serve_publishers(connection, self, concurrency)


class Connection(Block, ConnectionBase):
    """One end of a connection. Methods may be called from any thread.

    It ends at once when the connection and all its handles are dropped. A `with` block says goodbye
    at its end and waits up to 10 s for elements that are not sent; then the connection is cut off,
    which is a `LinkTimeout`. If an exception leaves the block, the connection ends at once.

    Example:
        >>> with connect("reactive://127.0.0.1:7000") as connection:  # doctest: +SKIP
        ...     for tick in connection.subscribe("ticks", demand=100):
        ...         print(tick)
    """

    def subscribe(
        self,
        publisher: str,
        *,
        demand: int | None = 1024,
        low_water: int | None = None,
        automatic: bool = True,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribes to a publisher of the peer, and waits until it has accepted.

        Args:
            publisher: Its name.
            demand: Elements that are requested, or wait to be taken, at most; None is without
                bound.
            low_water: The number of them at which more are requested; by default half of `demand`.
            automatic: If False, `demand` elements are requested once, and further ones by
                `Subscription.request` alone.
            timeout: Seconds until it is accepted; None waits for ever.

        Raises:
            StreamFailed: The publisher has rejected the subscription.
            LinkTimeout: It was not accepted in time; it is cancelled.
            UsageError: ``invalid_demand``, ``invalid_low_water``, ``closing``.
            LinkClosed: The connection is over.
        """
        most = wanted(demand, low_water, automatic=automatic)
        return _subscribed(self._core, publisher, most, timeout)

    def accept(self, *, timeout: float | None = None) -> SubscribeRequest | None:
        """Waits for the next subscription of the peer.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The subscription, to be accepted or rejected; None once the peer has said goodbye.

        Raises:
            LinkTimeout: None came in time.
            LinkClosed: The connection is over, and every subscription was handed out.
            ProtocolError: The peer broke a rule.
            TransportError: The transport failed.
        """
        deadline = deadline_in(timeout)
        while (arrived := self._core.try_accept()) is None:
            if not self._core.wait("arrival", left_until(deadline)):
                raise late("no subscription came", timeout)
        return None if arrived is False else SubscribeRequest(*arrived)

    def __iter__(self) -> Iterator[SubscribeRequest]:
        while (request := self.accept()) is not None:
            yield request

    def serve(
        self, publishers: Publishers | Mapping[str, object], *, concurrency: int = 64
    ) -> None:
        """Serves the peer's subscriptions, as `Publishers.serve`.

        Args:
            publishers: The publishers, or names with their sources.
            concurrency: Streams at once; further subscriptions wait for their answer.

        Raises:
            UsageError: As by `Publishers.serve`, whose other errors are raised too.
        """
        _publishers(publishers).serve(self, concurrency=concurrency)

    def shutdown(self, reason: str = GOODBYE, *, timeout: float | None = None) -> None:
        """Ends the connection in good order: sends what was published, then says goodbye.

        All streams end now. This also waits for the peer's goodbye, for a time that is limited by
        ``goodbye_timeout``.

        Args:
            reason: A text for the peer, whose streams end with it.
            timeout: Seconds; None waits for ever for elements that are not sent.

        Raises:
            LinkTimeout: Elements are not sent; the connection goes on until then.
            LinkClosed: It has ended in another way.
        """
        doing = self._core.shutdown(reason, timeout)
        doing.wait(None)
        try:
            doing.take()
        except LinkTimeout:
            raise late("the connection did not end", timeout) from None

    def wait_ended(self, *, timeout: float | None = None) -> None:
        """Waits for the connection's end.

        Raises:
            LinkTimeout: It has not ended in time.
        """
        if not self._core.wait("end", timeout):
            raise late("the connection did not end", timeout)

    def _leave(self, *, failed: bool) -> None:
        try:
            if not failed and not self._aborted and not self._core.ended:
                self.shutdown(timeout=PATIENCE)
        except LinkTimeout:
            tell_loss(self._unsent(), failed=failed)
        finally:
            self.abort()


class Listener(Closing, ListenerBase):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> with listen("reactive://127.0.0.1:7000") as listener:  # doctest: +SKIP
        ...     listener.serve({"ticks": [b"one", b"two"]})
    """

    def accept(self, *, timeout: float | None = None) -> Connection:
        """Waits for a connection.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No connection came in time.
            LinkClosed: The listener is closed.
        """
        deadline = deadline_in(timeout)
        while (core := self._try_accept()) is None:
            if not self._core.wait(left_until(deadline)):
                raise late("no connection came", timeout)
        return Connection(core)

    def __iter__(self) -> Iterator[Connection]:
        try:
            while True:
                yield self.accept()
        except LinkClosed:
            return

    def serve(
        self, publishers: Publishers | Mapping[str, object], *, concurrency: int = 64
    ) -> None:
        """Serves every connection, each in a thread, until the listener is closed.

        Connections are served as by `Publishers.serve`. Returns when the listener is closed and
        every connection has ended; an exception, such as a ``KeyboardInterrupt``, ends them at
        once. A handler that waits for something else cannot be ended: the process lives until the
        last handler has returned, as with all threads that are no daemons. A second
        ``KeyboardInterrupt`` gives that up, with a traceback of ``threading``. The error of a
        connection that did not end in good order is logged.

        Args:
            publishers: The publishers, or names with their sources.
            concurrency: Streams at once of each connection.

        Raises:
            UsageError: As by `Publishers.serve`.

        Example:
            >>> listener.serve({"ticks": [b"one", b"two"]})  # doctest: +SKIP
        """
        least_one(concurrency)
        served = _publishers(publishers)

        def handle(connection: Connection) -> None:
            try:
                with connection:
                    served.serve(connection, concurrency=concurrency)
            except AcklineError as error:
                served.failed(error)

        serve_each(self, handle)

    def close(self) -> None:
        """Accepts no more connections; connections that nobody accepted are ended."""
        self._core.close()


def _publishers(publishers: Publishers | Mapping[str, object]) -> Publishers:
    return publishers if isinstance(publishers, Publishers) else Publishers(publishers)


def _connected(doing: PendingOp) -> Connection:
    doing.wait(None)
    return Connection(doing.take())


def _subscribed(
    core: ReactiveConnection,
    publisher: str,
    most: tuple[int, int | None],
    timeout: float | None,
) -> Subscription:
    deadline = deadline_in(timeout)
    # The end that listens waits for the peer's hello.
    while not core.connected() and core.peer is not None:
        if not core.wait("connected", left_until(deadline)):
            raise late("the peer's hello did not come", timeout)
    subscription = core.subscribe(publisher, *most)
    while (size := subscription.try_accepted()) is None:
        if not subscription.wait("accepted", left_until(deadline)):
            raise late("the publisher did not accept", timeout)
    return Subscription(subscription, size)


def _alone(doing: PendingOp, publisher: str, most: tuple[int, int | None]) -> Subscription:
    connection = _connected(doing)
    try:
        subscription = _subscribed(connection._core, publisher, most, None)  # noqa: SLF001
    except BaseException:
        connection.abort()
        raise
    subscription._connection = connection  # noqa: SLF001 (it is this one's own)
    return subscription
