# Written by `make sync` from ackline/aio/reactive.py: change that file.
"""Reactive Streams for threads: publishers and subscribers, held back by demand.

Publishers and subscribers share one connection. Demand is counted in elements: a slow subscriber
holds up nobody else. Both ends may publish and subscribe, no matter which one connected. For
asyncio see `ackline.aio.reactive`.
"""

from collections.abc import Iterator, Mapping
from typing import Unpack

from ackline._block import Block
from ackline._closing import tell_loss
from ackline._connections import Peer, late
from ackline._deadline import deadline_in, left_until
from ackline._ending import ended
from ackline._listener import AcceptingListener
from ackline._reactive import (
    GOODBYE,
    PATIENCE,
    UNBOUNDED,
    ConnectionBase,
    Extensions,
    Part,
    least_one,
    listed,
    wanted,
)
from ackline._reactive_core import (
    PendingOp,
    ReactiveConnection,
    ReactiveListener,
    reactive_connect,
    reactive_split,
)
from ackline._reactive_handles import Publication, SubscribeRequest, Subscription
from ackline._reactive_options import ReactiveConnectOptions as ConnectOptions
from ackline._reactive_options import ReactiveListenOptions as ListenOptions
from ackline._reactive_serving import serve_publishers
from ackline._reactive_sources import PublishersBase
from ackline._serving import serve_each
from ackline._table import known, signed
from ackline.exceptions import AcklineError, LinkTimeout

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
def connect(
    url: str, *, extensions: Extensions | None = None, **options: Unpack[ConnectOptions]
) -> "Connection":
    """Connects.

    Args:
        url: ``reactive://host:port``, ``reactive+tls://host:port`` or ``reactive+unix:///path``.
        extensions: The extensions that this end supports, by their numbers, with the kinds of the
            fields of their messages, such as ``{7: {64: ["varint", "string", "bytes"]}}``. Those
            that the peer supports too are active (`Connection.wait_connected`).
        options: See `ConnectOptions`. With ``parts=True`` elements are received in the parts in
            which they come.

    Raises:
        UsageError: The URL or an option is not understood.
        TransportError: The listener could not be reached, or not be trusted.
    """
    given = known("reactive.connect", options)
    return _connected(reactive_connect(url, given, listed(extensions)))


@signed("reactive.listen")
def listen(
    url: str, *, extensions: Extensions | None = None, **options: Unpack[ListenOptions]
) -> "Listener":
    """Listens for connections.

    Returns at once; use it with ``with``.

    Args:
        url: As for `connect`; port 0 is any free one.
        extensions: As for `connect`.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    given = known("reactive.listen", options)
    return Listener(ReactiveListener(url, given, listed(extensions)))


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
    doing = reactive_connect(place, known("reactive.connect", options), [])
    return _alone(doing, publisher, most)


class Publishers(PublishersBase):
    """Publishers by name.

    Args:
        publishers: Names with their sources, as for `add`.

    Example:
        >>> publishers = Publishers({"ticks": [b"one", b"two"]})
        >>> publishers.add("sensors/*", lambda name: [name.encode()])
    """

    def serve(self, connection: "Connection", *, concurrency: int | None = None) -> None:
        """Serves the subscriptions of a connection's peer.

        A source has a thread only while there is demand for its elements, so that subscriptions
        without demand take none. The first turn of a subscription calls the publisher's function.

        Returns when the peer has said goodbye or ended the connection, and every stream has ended.
        A source is asked for the next element when there is demand for it. Its end completes the
        stream, its exception ends the stream with the exception's text and is logged to the logger
        ``ackline.reactive``.

        Args:
            connection: The connection.
            concurrency: Threads that run sources at once; None is 256. If all of them wait for
                their sources for 5 s, a further subscription is rejected.

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
            demand: Elements that are requested, or wait to be taken, at most. None is without
                bound: elements that nobody takes then hold up the other streams of the connection
                too, once they fill `memory`, or are 65,536.
            low_water: The number of them at which more are requested; by default half of `demand`.
            automatic: If False, `demand` elements are requested once, and further ones by
                `Subscription.request` alone.
            timeout: Seconds until it is accepted; None waits for ever.

        Raises:
            StreamFailed: The publisher has rejected the subscription, or the peer has said goodbye;
                with the reason.
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
        self, publishers: Publishers | Mapping[str, object], *, concurrency: int | None = None
    ) -> None:
        """Serves the peer's subscriptions, as `Publishers.serve`.

        Args:
            publishers: The publishers, or names with their sources.
            concurrency: Threads that run sources at once; None is 256. If all of them wait for
                their sources for 5 s, a further subscription is rejected.

        Raises:
            UsageError: As by `Publishers.serve`, whose other errors are raised too.
        """
        _publishers(publishers).serve(self, concurrency=concurrency)

    def wait_connected(self, *, timeout: float | None = None) -> list[int]:
        """Waits for the peer's hello.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The extensions that both ends support, ascending.

        Raises:
            LinkTimeout: The hello did not come in time.
            ProtocolError: The peer broke a rule, such as another version.
            LinkClosed: The connection is over.
        """
        deadline = deadline_in(timeout)
        while (active := self._core.connected()) is None:
            if not self._core.wait("connected", left_until(deadline)):
                raise late("the peer's hello did not come", timeout)
        return active

    def receive_extension(
        self, *, timeout: float | None = None
    ) -> tuple[int, list[int | str | bytes]] | None:
        """Waits for the next message of an extension.

        Messages that nobody takes are held in memory, so that a connection with extensions takes
        them.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            Its type and its fields; None once the peer has said goodbye.

        Raises:
            LinkTimeout: None came in time; raises also as `accept`.
        """
        deadline = deadline_in(timeout)
        while (message := self._core.try_receive_extension()) is None:
            if not self._core.wait("extension", left_until(deadline)):
                raise late("no message of an extension came", timeout)
        return message or None

    def shutdown(self, reason: str = GOODBYE, *, timeout: float | None = None) -> None:
        """Ends the connection in good order: sends what was published, then says goodbye.

        All streams end now. This also waits for the peer's goodbye, up to ``goodbye_timeout``, and
        then up to 1 s for the end of the transport; neither is an error if it does not come.

        Args:
            reason: A text for the peer, whose streams end with it.
            timeout: Seconds; None waits for ever for elements that are not sent.

        Raises:
            LinkTimeout: Elements are not sent; the connection goes on until then.
            LinkClosed: It has ended in another way.
        """
        ended(self._core.shutdown(reason, timeout), "the connection did not end", timeout)

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


class Listener(AcceptingListener[ReactiveConnection, Connection]):
    """Hands out each connection once.

    Closing it closes the socket: connections that were handed out go on.

    Example:
        >>> with listen("reactive://127.0.0.1:7000") as listener:  # doctest: +SKIP
        ...     listener.serve({"ticks": [b"one", b"two"]})
    """

    def _connection(self, core: ReactiveConnection) -> Connection:
        return Connection(core)

    def serve(
        self, publishers: Publishers | Mapping[str, object], *, concurrency: int | None = None
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
            concurrency: As for `Publishers.serve`, for each connection.

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
    while core.peer is not None and core.goodbye_reason is None and core.connected() is None:
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
