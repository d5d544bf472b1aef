"""Relink for threads: links that survive their connections, with channels and transactions.

For asyncio see `ackline.aio.relink`.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike
from typing import Literal

from ackline._closing import CLOSING_SECONDS, Closing
from ackline._deadline import deadline_in, left_until
from ackline._payloads import ArrowArray, Buffer, Payload, Payloads
from ackline._relink import (
    Channel,
    Decision,
    Event,
    LinkBase,
    ListenerBase,
    Message,
    Outcome,
    Peer,
    ReceiptBase,
    Stage,
    State,
    Told,
    batch_of,
    handed_over,
    options_of,
)
from ackline._relink_core import RelinkConnecting, RelinkLink, RelinkListener
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkLost,
    LinkTimeout,
    Unacknowledged,
)

__all__ = [
    "ArrowArray",
    "Buffer",
    "Channel",
    "Decision",
    "Event",
    "Link",
    "Listener",
    "Message",
    "Outcome",
    "Payload",
    "Payloads",
    "Peer",
    "Receipt",
    "State",
    "Told",
    "Unacknowledged",
    "adopt",
    "connect",
    "listen",
]


def connect(  # noqa: PLR0913 (each is an option of its own)
    url: str,
    *,
    timeout: float | None = None,
    connect_timeout: float = 10.0,
    connector_channel_id_size: int = 4,
    listener_channel_id_size: int = 4,
    connector_transactions: bool = False,
    listener_transactions: bool = False,
    reconnect_max: float = 60.0,
    lost_after: float | None = None,
    stuck_after: int | None = None,
    wants_hints: bool = False,
    send_window: int = 65_536,
    receive_window: int = 65_536,
    send_bytes: int = 256 << 20,
    ack_window: int = 16_384,
    ack_delay: float = 0.1,
    ping_after: float | None = 11.0,
    pong_timeout: float | None = 7.0,
    packet_receive_timeout: float | None = 30.0,
    max_channels: int = 65_536,
    max_channel_ids: int = 1 << 20,
    max_message_parts: int = 1024,
    max_part_bytes: int = 1 << 30,
    max_message_bytes: int = 1 << 30,
    max_multicast_bytes: int = 64 << 20,
    memory: int = 256 << 20,
    handshake_timeout: float = 10.0,
    state: str | PathLike[str] | None = None,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str | None = None,
    token_file: str | PathLike[str] | None = None,
) -> "Link":
    """Makes a link to a listener and keeps it connected.

    Args:
        url: Such as ``relink://127.0.0.1:7000/orders``, ``relink+tls://host:7000/orders`` or
            ``relink+unix:///run/x.sock?endpoint=orders``; its query may set the four parameters;
            a keyword beside it that is not the default must say the same.
        timeout: Seconds for the first connection: until they have passed, a listener that cannot be
            reached or that ends the handshake is tried again. None is one attempt.
        connect_timeout: Seconds that one attempt to connect may take.
        connector_channel_id_size: Bytes of the ids of this end's channels; 0 is one channel alone.
            These four must be the same at the listener's endpoint.
        listener_channel_id_size: Bytes of the ids of the listener's channels.
        connector_transactions: Whether this end's messages are committed and rolled back.
        listener_transactions: Whether the listener's messages are.
        reconnect_max: The longest wait between two attempts to connect again, in seconds; the first
            one is made at once.
        lost_after: Seconds without a transport after which this end gives the link up; None is
            never.
        stuck_after: Connections in a row that may end soon with nothing received and nothing
            acknowledged, before this end gives the link up; None is never. The listener may refuse
            what is sent, such as a message above its limits: the protocol has no word for that.
        wants_hints: Whether the listener is asked for its limits, see `Link.told`; one that is no
            Ackline ignores that.
        send_window: Messages of one channel that may wait for their acknowledgement as consumed.
        receive_window: Messages of one channel that may be delivered here and not consumed; a peer
            that sends one more breaks a limit.
        send_bytes: Payload bytes sent on a link that may wait for their acknowledgement.
        ack_window: Consumed messages of one channel that are acknowledged at once.
        ack_delay: Seconds that fewer of them wait for more.
        ping_after: Seconds of silence after which a ping goes out; None is never.
        pong_timeout: Seconds that a ping waits for its pong; then the transport is given up, not
            the link. None is for ever.
        packet_receive_timeout: Seconds that the rest of a packet may stay away; None is for ever.
        max_channels: Channels of the peer's at once.
        max_channel_ids: Channels in one multicast packet of the peer's.
        max_message_parts: Parts in a message of the peer's.
        max_part_bytes: Bytes of one part.
        max_message_bytes: Bytes of all parts of a message.
        max_multicast_bytes: Bytes that one packet for several channels may come to: those of its
            message, times its channels. What this end sends to more goes out in several packets.
        memory: Bytes of received messages that may be held: above it reading waits.
        handshake_timeout: Seconds for the handshakes of TLS and of the protocol.
        state: The directory in which the link is kept, so that it survives this process: it goes on
            with the next `connect` that names it. Its parent must be there.
        ca: A PEM file of certificates to trust; the system's without it. For ``+tls``, as below.
        crl: A PEM file of revocation lists, at most 1 MiB; each certificate of the other end then
            needs one of its issuer that has not expired.
        cert: A PEM file with a certificate of our own.
        key: A PEM file with its key.
        server_name: The name in the listener's certificate, if it is not the URL's host.
        token_file: A file with the token that this end is known by, one line of 16 to 255 visible
            characters, for a listener with ``tokens_file``; read again when it changes.

    Raises:
        UsageError: The URL or an option is not understood, or `state` cannot be used.
        TransportError: The listener could not be reached, or ended the handshake; with `timeout`,
            until it had passed.
    """
    connecting = RelinkConnecting(url, options_of(locals()))
    connecting.wait(None)
    core = connecting.take()
    if core is None:
        raise LinkClosed("the link was taken before")
    return Link(core)


def adopt(  # noqa: PLR0913 (each is an option of its own)
    url: str,
    state: bytes,
    *,
    timeout: float | None = None,
    connect_timeout: float = 10.0,
    reconnect_max: float = 60.0,
    lost_after: float | None = None,
    stuck_after: int | None = None,
    wants_hints: bool = False,
    handshake_timeout: float = 10.0,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str | None = None,
    token_file: str | PathLike[str] | None = None,
) -> "Link":
    """Goes on with a link that another process has handed over, to decide on what it has sent.

    The listener has said then that it still has the link and its messages. Nothing else can be sent
    on their channels before they are consumed. One process at a time may go on with a link: of two
    the listener serves the one that has come last.

    Args:
        url: The listener, as for `connect`.
        state: What `Link.hand_over` returned. Channel id sizes and transactions are in it.
        timeout: Seconds in which the link must go on; None is one attempt.
        connect_timeout: Seconds that one attempt to connect may take.
        reconnect_max: The longest wait between two attempts to connect again, in seconds.
        lost_after: Seconds without a transport after which this end gives the link up.
        stuck_after: Connections in a row that may end soon with nothing done, before it does.
        wants_hints: Whether the listener is asked for its limits, see `Link.told`.
        handshake_timeout: Seconds for the handshakes of TLS and of the protocol.
        ca: A PEM file of certificates to trust.
        crl: A PEM file of revocation lists, at most 1 MiB; each certificate of the other end then
            needs one of its issuer that has not expired.
        cert: A PEM file with a certificate of our own: a link belongs to the identity that made it.
        key: A PEM file with its key.
        server_name: The name in the listener's certificate, if it is not the URL's host.
        token_file: A file with the token that this end is known by, one line of 16 to 255 visible
            characters, for a listener with ``tokens_file``; read again when it changes.

    Raises:
        UsageError: ``wrong_state``, ``other_endpoint``, or as `connect`.
        TransportError: The listener could not be reached, or ended the handshake.
        LinkLost: The listener does not know the link or its messages any more.

    Example:
        >>> state = connect("relink://127.0.0.1:7000/orders").hand_over()  # doctest: +SKIP
        >>> with adopt("relink://127.0.0.1:7000/orders", state) as link:  # doctest: +SKIP
        ...     link.commit(7, link.last_receipt(7).sequence)
    """
    options = options_of(locals())
    connecting = RelinkConnecting(url, options, handed_over(options.pop("state")))
    connecting.wait(None)
    core = connecting.take()
    if core is None:
        raise LinkClosed("the link was taken before")
    return Link(core)


def listen(  # noqa: PLR0913 (each is an option of its own)
    url: str,
    *,
    connector_channel_id_size: int = 4,
    listener_channel_id_size: int = 4,
    connector_transactions: bool = False,
    listener_transactions: bool = False,
    endpoints: dict[str, dict[str, int | bool]] | None = None,
    orphan_after: float = 300.0,
    max_links: int = 10_000,
    bind_identity: bool = True,
    send_window: int = 65_536,
    receive_window: int = 65_536,
    send_bytes: int = 256 << 20,
    ack_window: int = 16_384,
    ack_delay: float = 0.1,
    ping_after: float | None = 11.0,
    pong_timeout: float | None = 7.0,
    packet_receive_timeout: float | None = 30.0,
    max_channels: int = 65_536,
    max_channel_ids: int = 1 << 20,
    max_message_parts: int = 1024,
    max_part_bytes: int = 1 << 30,
    max_message_bytes: int = 1 << 30,
    max_multicast_bytes: int = 64 << 20,
    memory: int = 256 << 20,
    handshake_timeout: float = 10.0,
    first_byte_timeout: float | None = 10.0,
    state: str | PathLike[str] | None = None,
    proxy_from: str | None = None,
    allow: str | None = None,
    max_connections: int = 10_000,
    max_connections_per_address: int | None = None,
    max_connection_age: float | None = None,
    accept_rate: int | None = 1000,
    max_bytes_per_second: int | None = None,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
    identity: Literal["subject", "san", "fingerprint"] | None = None,
    tokens_file: str | PathLike[str] | None = None,
) -> "Listener":
    """Listens for links.

    Args:
        url: Such as ``relink://127.0.0.1:7000/orders``, as for `connect`; port 0 is allowed.
        connector_channel_id_size: Bytes of the ids of the connectors' channels.
        listener_channel_id_size: Bytes of the ids of this end's channels.
        connector_transactions: Whether the connectors' messages are committed and rolled back.
        listener_transactions: Whether this end's messages are.
        endpoints: Further endpoints at the same address: for each name those of the four parameters
            above that differ from 4 bytes without transactions.
        orphan_after: Seconds that a link without a transport is kept; then it is lost.
        max_links: Links at once, with and without a transport.
        bind_identity: Whether a link that was made with a certificate belongs to its identity.
        send_window: Messages of one channel that may wait for their acknowledgement as consumed.
        receive_window: Messages of one channel that may be delivered here and not consumed; a peer
            that sends one more breaks a limit.
        send_bytes: Payload bytes sent on a link that may wait for their acknowledgement.
        ack_window: Consumed messages of one channel that are acknowledged at once.
        ack_delay: Seconds that fewer of them wait for more.
        ping_after: Seconds of silence after which a ping goes out; None is never.
        pong_timeout: Seconds that a ping waits for its pong; then the transport is given up, not
            the link. None is for ever.
        packet_receive_timeout: Seconds that the rest of a packet may stay away; None is for ever.
        max_channels: Channels of the peer's at once.
        max_channel_ids: Channels in one multicast packet of the peer's.
        max_message_parts: Parts in a message of the peer's.
        max_part_bytes: Bytes of one part.
        max_message_bytes: Bytes of all parts of a message.
        max_multicast_bytes: Bytes that one packet for several channels may come to: those of its
            message, times its channels. What this end sends to more goes out in several packets.
        memory: Bytes of received messages that may be held: above it reading waits.
        handshake_timeout: Seconds for the handshakes of TLS and of the protocol.
        first_byte_timeout: Seconds of silence of a new connection; None is for ever.
        state: The directory in which the links are kept, so that they survive this process. Its
            parent must be there.
        proxy_from: Networks of proxies, such as ``10.0.0.0/8,127.0.0.1``: a PROXY header is
            required from them and refused from everybody else.
        allow: Networks of connectors, by their own addresses; None is everybody.
        max_connections: Connections at once.
        max_connections_per_address: Connections of one address (IPv6: of its /64), or of one
            user on a Unix socket, at once; None is all but an eighth of them, 0 is all.
        max_connection_age: Seconds (± 20 %) after which a connection ends; its link goes on with
            the next one. None is off.
        accept_rate: Connections accepted in a second; None is off.
        max_bytes_per_second: Bytes that one connector may send: above it reading waits; None is
            off.
        ca: A PEM file of certificates that issue the connectors'. For ``+tls``, as all below, where
            the URL's query leaves them open; the files are read again when they change.
        crl: A PEM file of revocation lists, at most 1 MiB; each certificate of the other end then
            needs one of its issuer that has not expired.
        cert: A PEM file with this listener's certificate, then those between it and its root.
        key: A PEM file with its key.
        client_auth: Whether connectors must have a certificate: required with `ca`, else none.
        identity: The part of a certificate that its owner is known by: the subject with its issuer
            (``subject``, the default), the alternative names (``san``) or the ``fingerprint``.
        tokens_file: A file with a name and a token in each line: only peers that begin with one of
            these tokens (`token_file`) are served, and are known by its name.

    Raises:
        UsageError: The URL is not understood, an option or file is wrong, or `state` cannot be
            used.
        TransportError: The address cannot be listened on.
    """
    return Listener(RelinkListener(url, options_of(locals())))


class Receipt(ReceiptBase):
    """How far a message has come: received, consumed, and its transaction's outcome.

    Example:
        >>> with connect("relink://127.0.0.1:7000/orders") as link:  # doctest: +SKIP
        ...     receipt = link.send(7, b"an order")
        ...     receipt.consumed(timeout=10)
    """

    def kept(self, *, timeout: float | None = None) -> None:
        """Waits until it is in `state` on the disk of this end, which is before it leaves.

        From then on it is sent until it is consumed, whatever happens to this process.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not written in time.
            UsageError: ``not_kept``: the link has no `state`.
            StateError: It could not be written.
            LinkClosed: The link ended first.
        """
        self._wait("kept", timeout)

    def received(self, *, timeout: float | None = None) -> None:
        """Waits until the peer has it, which without a cut is told when it is consumed.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The peer did not say so in time.
            LinkLost: The link was lost first.
            LinkClosed: The link or the channel was closed first.
        """
        self._wait("received", timeout)

    def consumed(self, *, timeout: float | None = None) -> None:
        """Waits until the peer has consumed it, and all before it; raises as `received`."""
        self._wait("consumed", timeout)

    def committed(self, *, timeout: float | None = None) -> Outcome:
        """Waits until its transaction is over; raises as `received`."""
        while (outcome := self.outcome) is None:
            if not self._core.wait("committed", timeout):
                raise self._too_late("committed", timeout)
        return outcome

    def _wait(self, stage: Stage, timeout: float | None) -> None:
        while not self._is_there(stage):
            if not self._core.wait(stage, timeout):
                raise self._too_late(stage, timeout)


class Link(Closing, LinkBase[Receipt]):
    """A link: its outgoing channels are those that it sends on, its incoming ones the peer's.

    Both ends send and receive. A message stays with its sender until the receiver has consumed it,
    through any number of connections. Methods may be called from any thread.

    The end of a `with` block closes it and raises `LinkLost` with the messages that are not
    acknowledged then and not kept in `state`, unless `close` was called inside.

    Example:
        >>> with connect("relink://127.0.0.1:7000/orders") as link:  # doctest: +SKIP
        ...     last = link.send_many(7, [b"one", b"two"])
        ...     last.consumed(timeout=10)
        ...     for message in link:
        ...         print(message.channel, message.sequence, message.payload)
        ...         link.consume(message.channel, message.sequence)
    """

    _receipt = Receipt

    def send(self, channel: Channel, payload: Payload, *, timeout: float | None = None) -> Receipt:
        """Sends a message as soon as there is room, also without a connection.

        That it returns means that the message has its number and goes out in its turn while this
        process lives. With `state` it is on the disk a little later: `Receipt.kept` waits for that,
        and what a killed process had not kept was not sent.

        Args:
            channel: As for `try_send`, like `payload`.
            payload: The message.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: As `try_send`, like `LinkLost` and `LinkClosed`.
        """
        return self.send_to([channel], payload, timeout=timeout)[0]

    def send_to(
        self, channels: Sequence[Channel], payload: Payload, *, timeout: float | None = None
    ) -> list[Receipt]:
        """Sends one message on several channels in one packet: on all of them or on none.

        Returns:
            A receipt for each channel.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: As `try_send`, like `LinkLost` and `LinkClosed`.
        """
        deadline, message = deadline_in(timeout), batch_of([payload])
        size = message.size(0) * len(channels)
        while not (sent := self._try_send(channels, message)):
            if not channels:
                return []
            if not self._core.wait("room", left_until(deadline), list(channels), size):
                raise self._no_room(0, timeout)
        return [Receipt(receipt) for receipt in sent]

    def send_many(
        self, channel: Channel, payloads: Payloads, *, timeout: float | None = None
    ) -> Receipt | None:
        """Sends messages on one channel, in order, waiting for room.

        Args:
            channel: One's own channel.
            payloads: Messages as for `try_send`, or an Arrow array of them.
            timeout: Seconds for all of them; None waits for ever.

        Returns:
            The receipt of the last message, which stands for all; None without a message.

        Raises:
            LinkTimeout: There was no room for all in time; it says how many were sent.
            UsageError: As `try_send`, like `LinkLost` and `LinkClosed`.
        """
        deadline, batch = deadline_in(timeout), batch_of(payloads)
        sent, last = self._core.try_send_many(channel, batch, 0)
        while sent < len(batch):
            if not self._core.wait("room", left_until(deadline), channel, batch.size(sent)):
                raise self._no_room(sent, timeout)
            count, receipt = self._core.try_send_many(channel, batch, sent)
            sent, last = sent + count, receipt or last
        return None if last is None else Receipt(last)

    def receive_many(
        self, max_messages: int = 1024, *, timeout: float | None = None
    ) -> list[Message]:
        """Waits for at least one message. They stay unacknowledged until they are consumed.

        Args:
            max_messages: Messages taken at the most.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
            LinkLost: The link is lost, and every message was taken.
            LinkClosed: No more messages can come, and every one was taken.
        """
        deadline = deadline_in(timeout)
        while not (messages := self._try_receive(max_messages)):
            if not self._core.wait("message", left_until(deadline)):
                raise LinkTimeout(f"no message arrived within {timeout} s")
        return messages

    def receive(self, *, timeout: float | None = None) -> Message:
        """Waits for one message; like `receive_many`."""
        return self.receive_many(1, timeout=timeout)[0]

    def __iter__(self) -> Iterator[Message]:
        """Messages until no more can come; taken in batches. Raises `LinkLost`."""
        try:
            while True:
                self._ahead.extend(self.receive_many())
                while self._ahead:
                    yield self._ahead.popleft()
        except LinkLost:
            raise
        except LinkClosed:
            return

    def decision(self, *, timeout: float | None = None) -> Decision:
        """Waits for the peer's next decision in a transactional direction; raises as `receive`.

        While 65,536 decisions wait to be taken the link reads nothing, messages neither; the log
        says so (`relink.decisions_wait`).
        """
        deadline = deadline_in(timeout)
        while (decision := self.try_decision()) is None:
            if not self._core.wait("decision", left_until(deadline)):
                raise LinkTimeout(f"no decision arrived within {timeout} s")
        return decision

    def event(self, *, timeout: float | None = None) -> Event:
        """Waits for the next event; raises as `receive`."""
        deadline = deadline_in(timeout)
        while (event := self.try_event()) is None:
            if not self._core.wait("event", left_until(deadline)):
                raise LinkTimeout(f"no event within {timeout} s")
        return event

    def ping(self, *, timeout: float | None = 10.0) -> float:
        """Asks the peer for a sign of life.

        Returns:
            Seconds from the ping to its pong.

        Raises:
            UsageError: ``not_connected``: no transport carries the link, or it went meanwhile.
            LinkTimeout: The pong did not come in time.
            LinkClosed: The link is over.
        """
        ping, deadline = self._core.ping(), deadline_in(timeout)
        while (seconds := self._core.pong(ping)) is None:
            if not self._core.wait("pong", left_until(deadline), ping=ping):
                raise LinkTimeout(f"no pong within {timeout} s")
        return seconds

    def wait_connected(self, *, timeout: float | None = None) -> None:
        """Waits until a transport carries the link; raises as `receive`."""
        while not self.is_connected:
            self._core.check()
            if not self._core.wait("connected", timeout):
                raise LinkTimeout(f"no transport within {timeout} s")

    def kept(self, *, timeout: float | None = None) -> None:
        """Waits until all that was sent, consumed or decided before is in `state` on the disk.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not written in time.
            UsageError: ``not_kept``: the link has no `state`.
            StateError: It could not be written.
            LinkClosed: The link ended first.
        """
        deadline, noted = deadline_in(timeout), self._core.noted()
        while not self._core.is_kept(noted):
            if not self._core.wait("kept", left_until(deadline)):
                raise LinkTimeout(f"not all is on the disk within {timeout} s")

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything sent is acknowledged as consumed; raises as `receive`."""
        deadline = deadline_in(timeout)
        while self._core.unacknowledged():
            self._core.check()
            if not self._core.wait("acknowledged", left_until(deadline)):
                raise LinkTimeout(f"not all messages were consumed within {timeout} s")

    def shutdown(self, *, timeout: float | None = None) -> None:
        """Opens no more channels, closes the open ones, and waits for the peer to do the same.

        Then the link is closed at both ends.

        Raises:
            LinkTimeout: The peer has not shut down in time; the shutdown goes on.
            LinkLost: The link was lost first.
        """
        self._core.begin_shutdown()
        if not self._core.wait("end", timeout):
            raise LinkTimeout(f"the peer has not shut down within {timeout} s")
        try:
            self._core.check()
        except LinkLost:
            raise
        except LinkClosed:
            return

    def hand_over(self, *, timeout: float | None = None) -> bytes:
        """Lets the link go so that another process can go on with it, by `adopt`.

        Waits until the peer has everything that was sent; in a direction without transactions,
        until it has consumed it. What the other process gets is small and holds no message. Called
        again it returns the same.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The peer does not have everything in time; the link goes on here.
            UsageError: ``not_connector``, ``journaled`` (it has a `state` directory),
                ``shutting_down``, ``channel_closing``, ``unconsumed``: a message that came in was
                not consumed.
            LinkClosed: The link is over.
        """
        state = self._core.hand_over(timeout)
        self._core.let_go()
        return state

    def close(self, *, timeout: float = CLOSING_SECONDS) -> list[Unacknowledged]:
        """Lets the link go.

        One that is kept in a `state` directory goes on in the next process that opens it. Any other
        is shut down; where the peer does not answer in time, it is lost.

        Args:
            timeout: Seconds for the shutdown, or until everything sent is acknowledged.

        Returns:
            The messages that were not acknowledged as consumed.
        """
        if self._core.is_gone:
            self._is_told = True
            return []
        deadline = deadline_in(timeout)
        if self._core.keeps:
            noted = self._core.noted()
            self._core.wait("acknowledged", left_until(deadline))
            self._core.wait("kept", left_until(deadline))
            # A failure ends the wait too, and is not what `close` tells.
            with suppress(AcklineError):
                self._is_safe = self._core.is_kept(noted)
        elif self.state not in {"closed", "lost"}:
            with suppress(LinkClosed):  # another call of it may come first
                self._core.begin_shutdown()
                self._core.wait("end", left_until(deadline))
        return self._let_go()

    def _leave(self, *, failed: bool) -> None:
        if not self._is_told:
            self._tell_lost(self.close(), failed=failed)


class Listener(Closing, ListenerBase):
    """Hands out each new link once; links that come back go on by themselves.

    Closing it closes the socket: links that were handed out go on while their connections do.

    Example:
        >>> with listen("relink://127.0.0.1:7000/orders") as listener:  # doctest: +SKIP
        ...     with listener.accept() as link:
        ...         for message in link:
        ...             link.consume(message.channel, message.sequence)
    """

    def accept(self, *, timeout: float | None = None) -> Link:
        """Waits for a link: a new one, or with `state` one of an earlier process.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No link came in time.
            LinkClosed: The listener is closed.
        """
        deadline = deadline_in(timeout)
        while (core := self._try_accept()) is None:
            if not self._core.wait(left_until(deadline)):
                raise LinkTimeout(f"no link came within {timeout} s")
        return Link(core)

    def try_accept(self) -> Link | None:
        """The next link, if one is there."""
        core: RelinkLink | None = self._try_accept()
        return None if core is None else Link(core)

    def __iter__(self) -> Iterator[Link]:
        try:
            while True:
                yield self.accept()
        except LinkClosed:
            return

    def close(self) -> None:
        """Accepts no more; links that nobody accepted are let go."""
        self._core.close()
