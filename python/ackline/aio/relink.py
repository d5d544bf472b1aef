"""Relink for asyncio: links that survive their connections, with channels and transactions.

For threads see `ackline.relink`. A cancelled ``await`` loses nothing: a wait takes nothing, and a
message that was sent stays sent.
"""

from os import PathLike
from typing import Literal

from ackline._payloads import ArrowArray, Buffer, Payload, Payloads
from ackline._relink import (
    Channel,
    Decision,
    Event,
    Message,
    Outcome,
    Peer,
    State,
    Told,
    handed_over,
    options_of,
)
from ackline._relink_core import RelinkConnecting, RelinkListener
from ackline.aio._relink_links import Link, Listener, Receipt
from ackline.aio._wait import Connecting, ready
from ackline.exceptions import LinkClosed, Unacknowledged

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
) -> Connecting[Link]:
    """Makes a link to a listener and keeps it connected.

    ``await`` it, or use it with ``async with``.

    Args:
        url: Such as ``relink://127.0.0.1:7000/orders``, ``relink+tls://host:7000/orders`` or
            ``relink+unix:///run/x.sock?endpoint=orders``; its query may set the four parameters of
            channel ids and transactions; a keyword that is not the default must then agree with it.
        timeout: Seconds for the first connection: until they have passed, a listener that cannot be
            reached or that ends the handshake is tried again. None is one attempt.
        connect_timeout: Seconds that one attempt to connect may take.
        connector_channel_id_size: Bytes of the ids of this end's channels; 0 is one channel alone.
            This and the next three must be the same at the listener's endpoint.
        listener_channel_id_size: Bytes of the ids of the listener's channels.
        connector_transactions: Whether this end's messages are committed and rolled back.
        listener_transactions: Whether the listener's messages are committed and rolled back.
        reconnect_max: The longest wait between two attempts to connect again, in seconds; the first
            one is made at once.
        lost_after: Seconds without a transport after which this end gives the link up; None is
            never.
        stuck_after: Connections in a row that may end soon with nothing received and nothing
            acknowledged, before this end gives the link up; None is never. The listener may refuse
            a message, such as one above its limits: the protocol has no packet that says so.
        wants_hints: Whether the listener is asked for its limits, see `Link.told`; a listener that
            is not Ackline ignores that.
        send_window: Messages of one channel that may wait for their acknowledgement as consumed.
        receive_window: Messages of one channel that may be delivered here and not consumed; a peer
            that sends one more breaks a limit.
        send_bytes: Payload bytes sent on a link that may wait for their acknowledgement.
        ack_window: Consumed messages of one channel that are acknowledged at once.
        ack_delay: Seconds that fewer consumed messages wait for more to be acknowledged with.
        ping_after: Seconds of silence after which a ping goes out; None is never.
        pong_timeout: Seconds that a ping waits for its pong; then the transport is given up, not
            the link. None is for ever.
        packet_receive_timeout: Seconds that the rest of a packet may stay away; None is for ever.
        max_channels: Channels of the peer's at once.
        max_channel_ids: Channels in one multicast packet of the peer's.
        max_message_parts: Parts in a message of the peer's.
        max_part_bytes: Bytes of one part.
        max_message_bytes: Bytes of all parts of a message.
        max_multicast_bytes: Bytes of one packet for several channels: those of its message, times
            its channels. A larger message of this end goes out in several packets.
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
    return Connecting(_connected, RelinkConnecting(url, options_of(locals())))


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
) -> Connecting[Link]:
    """Goes on with a link that another process has handed over, to decide on its messages.

    When this returns, the listener has said that it still has the link and its messages. Nothing
    else can be sent on their channels before they are consumed. One process at a time may go on
    with a link: if two do, the listener serves the later one.

    ``await`` it, or use it with ``async with``.

    Args:
        url: The listener, as for `connect`.
        state: The result of `Link.hand_over`. Channel id sizes and transactions are in it.
        timeout: Seconds in which the link must go on; None is one attempt.
        connect_timeout: Seconds that one attempt to connect may take.
        reconnect_max: The longest wait between two attempts to connect again, in seconds.
        lost_after: Seconds without a transport after which this end gives the link up.
        stuck_after: Connections in a row that may end soon with nothing done, before this end gives
            the link up.
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
        >>> async with adopt("relink://127.0.0.1:7000/orders", state) as link:  # doctest: +SKIP
        ...     link.commit(7, link.last_receipt(7).sequence)
    """
    options = options_of(locals())
    handed = handed_over(options.pop("state"))
    return Connecting(_connected, RelinkConnecting(url, options, handed))


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
) -> Listener:
    """Listens for links.

    Returns at once; use it with ``async with``.

    Args:
        url: Such as ``relink://127.0.0.1:7000/orders``, as for `connect`; port 0 is allowed.
        connector_channel_id_size: Bytes of the ids of the connectors' channels.
        listener_channel_id_size: Bytes of the ids of this end's channels.
        connector_transactions: Whether the connectors' messages are committed and rolled back.
        listener_transactions: Whether this end's messages are committed and rolled back.
        endpoints: Further endpoints at the same address: for each name, those of the four
            parameters above that differ from their defaults (4 bytes, no transactions).
        orphan_after: Seconds that a link without a transport is kept; then it is lost.
        max_links: Links at once, with and without a transport.
        bind_identity: Whether a link that was made with a certificate belongs to its identity.
        send_window: Messages of one channel that may wait for their acknowledgement as consumed.
        receive_window: Messages of one channel that may be delivered here and not consumed; a peer
            that sends one more breaks a limit.
        send_bytes: Payload bytes sent on a link that may wait for their acknowledgement.
        ack_window: Consumed messages of one channel that are acknowledged at once.
        ack_delay: Seconds that fewer consumed messages wait for more to be acknowledged with.
        ping_after: Seconds of silence after which a ping goes out; None is never.
        pong_timeout: Seconds that a ping waits for its pong; then the transport is given up, not
            the link. None is for ever.
        packet_receive_timeout: Seconds that the rest of a packet may stay away; None is for ever.
        max_channels: Channels of the peer's at once.
        max_channel_ids: Channels in one multicast packet of the peer's.
        max_message_parts: Parts in a message of the peer's.
        max_part_bytes: Bytes of one part.
        max_message_bytes: Bytes of all parts of a message.
        max_multicast_bytes: Bytes of one packet for several channels: those of its message, times
            its channels. A larger message of this end goes out in several packets.
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
            user on a Unix socket, at once; None is all but an eighth of `max_connections`, 0 is
            all.
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


async def _connected(connecting: RelinkConnecting) -> Link:
    await ready(connecting.wait_async, None)
    core = connecting.take()
    if core is None:
        raise LinkClosed("the link was taken before")
    return Link(core)
