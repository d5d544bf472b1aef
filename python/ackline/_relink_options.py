"""The keyword options of `relink.connect`, `relink.adopt` and `relink.listen`.

Sizes are bytes, or a text such as ``64MiB``; times are seconds, or a text such as ``10s`` or
``500ms``; None is off. Defaults are written as on the command line.

Made by `.ci/options` from the tables of options in the crates.
"""

from os import PathLike
from typing import Literal, TypedDict

__all__ = [
    "RelinkAdoptOptions",
    "RelinkConnectOptions",
    "RelinkListenOptions",
]


class RelinkConnectOptions(TypedDict, total=False):
    """The options of `ackline.relink.connect`.

    Attributes:
        timeout: Time for the first connection of a new link: until it has passed, a listener that
            cannot be reached or that ends the handshake is tried again, after waits below a ceiling
            that doubles from 100 ms. Off is one attempt. Default: off.
        handshake_timeout: Time for the handshake of the protocol. At least 1ms. Default: 10s.
        stuck_after: Connections in a row that may end soon, with nothing received and nothing
            acknowledged, before this side gives up the link as lost. This happens when the listener
            refuses a message, for example one above its limits: the protocol has no packet to say
            so. From 1 to 4294967295. Default: off.
        wants_hints: Asks the listener for its limits, and for the reason of an *uncommitted*. An
            Ackline of this version tells them, see `Link.told`; any other listener ignores the
            wish. Default: false.
        memory: Bytes of received messages that may be held in memory; above it nothing more is read
            until some are consumed. At least 65536. Default: 256MiB.
        state: The directory in which the link is kept, so that it survives this process. Its parent
            must be there; one process at a time may use it. Default: not set.
        connector_channel_id_size: Bytes of an id of the connector's channels. From 0 to 255.
            Default: 4.
        listener_channel_id_size: Bytes of an id of the listener's channels. From 0 to 255. Default:
            4.
        connector_transactions: Whether the connector's messages are committed or rolled back.
            Default: false.
        listener_transactions: Whether the listener's messages are committed or rolled back.
            Default: false.
        send_bytes: Payload bytes sent on a link that wait for their acknowledgement; a single
            larger message is taken when nothing else waits. At least 1. Default: 256MiB.
        send_window: Messages of a channel that are sent and not acknowledged as consumed. From 1 to
            2147483647. Default: 65536.
        receive_window: Messages of a channel that may have come and not be consumed. A peer that
            sends one more breaks this limit and is refused. From 1 to 4294967295. Default: 65536.
        ack_window: Consumed messages of a channel after which an acknowledgement is sent at once.
            From 1 to 4294967295. Default: 16384.
        ack_delay: Longest time that an acknowledgement of fewer consumed messages waits for more; 0
            acknowledges each message at once. Default: 100ms.
        ping_after: Silence after which a ping goes out. At least 1ms. Default: 11s.
        pong_timeout: How long a ping waits for its pong before the connection ends. At least 1ms.
            Default: 7s.
        packet_receive_timeout: Silence inside a packet after which the connection ends. At least
            1ms. Default: 30s.
        max_channels: Channels of the peer on a link at once: open ones, and closed ones not yet
            answered. From 1 to 4294967295. Default: 65536.
        max_channel_ids: Channels in one packet. From 1 to 4294967295. Default: 1048576.
        max_message_parts: Parts of a message. From 1 to 4294967295. Default: 1024.
        max_part_bytes: Bytes of a part. At least 1. Default: 1GiB.
        max_message_bytes: Bytes of a message. At least 1. Default: 1GiB.
        max_multicast_bytes: Memory that one message to several channels may take: its bytes and 64
            more, times the number of channels. A message to one channel is bound by
            max_message_bytes alone. At least 1. Default: 64MiB.
        connect_timeout: Where we connect: time for one attempt, with its handshake of TLS. At least
            1ms. Default: 10s.
        reconnect_max: Where we connect: the longest wait between two attempts. The first is made at
            once; then the waits are random, below a ceiling that doubles from 100 ms. At least 1ms.
            Default: 1m.
        lost_after: Where we connect: age at which a link without a connection is given up. At least
            1ms. Default: off.
        ca: PEM file of certificates to trust: those that issue the peer's, or the peer's own. A
            connecting end takes the system's roots where there is none. Default: not set.
        crl: PEM file of revocation lists, up to 1 MiB. With it every certificate of the peer's
            chain needs a list of its issuer that has not expired. Default: not set.
        cert: PEM file with our own certificate, then those between it and its root. A listening end
            needs one. Default: not set.
        key: PEM file with the private key of cert, not encrypted. Default: not set.
        server_name: Where we connect: the name in the server's certificate, in place of the URL's
            host. Default: not set.
        token_file: Where we connect: file with our own token, one line of 16 to 255 visible
            characters of ASCII, for a listener with a tokens_file. Default: not set.
    """

    timeout: float | str | None
    handshake_timeout: float | str
    stuck_after: int | None
    wants_hints: bool
    memory: int | str
    state: str | PathLike[str] | None
    connector_channel_id_size: int
    listener_channel_id_size: int
    connector_transactions: bool
    listener_transactions: bool
    send_bytes: int | str
    send_window: int
    receive_window: int
    ack_window: int
    ack_delay: float | str
    ping_after: float | str | None
    pong_timeout: float | str | None
    packet_receive_timeout: float | str | None
    max_channels: int
    max_channel_ids: int
    max_message_parts: int
    max_part_bytes: int | str
    max_message_bytes: int | str
    max_multicast_bytes: int | str
    connect_timeout: float | str
    reconnect_max: float | str
    lost_after: float | str | None
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    token_file: str | PathLike[str] | None


class RelinkAdoptOptions(TypedDict, total=False):
    """The options of `ackline.relink.adopt`.

    Attributes:
        timeout: Time for the first connection of a new link: until it has passed, a listener that
            cannot be reached or that ends the handshake is tried again, after waits below a ceiling
            that doubles from 100 ms. Off is one attempt. Default: off.
        handshake_timeout: Time for the handshake of the protocol. At least 1ms. Default: 10s.
        stuck_after: Connections in a row that may end soon, with nothing received and nothing
            acknowledged, before this side gives up the link as lost. This happens when the listener
            refuses a message, for example one above its limits: the protocol has no packet to say
            so. From 1 to 4294967295. Default: off.
        wants_hints: Asks the listener for its limits, and for the reason of an *uncommitted*. An
            Ackline of this version tells them, see `Link.told`; any other listener ignores the
            wish. Default: false.
        memory: Bytes of received messages that may be held in memory; above it nothing more is read
            until some are consumed. At least 65536. Default: 256MiB.
        send_bytes: Payload bytes sent on a link that wait for their acknowledgement; a single
            larger message is taken when nothing else waits. At least 1. Default: 256MiB.
        send_window: Messages of a channel that are sent and not acknowledged as consumed. From 1 to
            2147483647. Default: 65536.
        receive_window: Messages of a channel that may have come and not be consumed. A peer that
            sends one more breaks this limit and is refused. From 1 to 4294967295. Default: 65536.
        ack_window: Consumed messages of a channel after which an acknowledgement is sent at once.
            From 1 to 4294967295. Default: 16384.
        ack_delay: Longest time that an acknowledgement of fewer consumed messages waits for more; 0
            acknowledges each message at once. Default: 100ms.
        ping_after: Silence after which a ping goes out. At least 1ms. Default: 11s.
        pong_timeout: How long a ping waits for its pong before the connection ends. At least 1ms.
            Default: 7s.
        packet_receive_timeout: Silence inside a packet after which the connection ends. At least
            1ms. Default: 30s.
        max_channels: Channels of the peer on a link at once: open ones, and closed ones not yet
            answered. From 1 to 4294967295. Default: 65536.
        max_channel_ids: Channels in one packet. From 1 to 4294967295. Default: 1048576.
        max_message_parts: Parts of a message. From 1 to 4294967295. Default: 1024.
        max_part_bytes: Bytes of a part. At least 1. Default: 1GiB.
        max_message_bytes: Bytes of a message. At least 1. Default: 1GiB.
        max_multicast_bytes: Memory that one message to several channels may take: its bytes and 64
            more, times the number of channels. A message to one channel is bound by
            max_message_bytes alone. At least 1. Default: 64MiB.
        connect_timeout: Where we connect: time for one attempt, with its handshake of TLS. At least
            1ms. Default: 10s.
        reconnect_max: Where we connect: the longest wait between two attempts. The first is made at
            once; then the waits are random, below a ceiling that doubles from 100 ms. At least 1ms.
            Default: 1m.
        lost_after: Where we connect: age at which a link without a connection is given up. At least
            1ms. Default: off.
        ca: PEM file of certificates to trust: those that issue the peer's, or the peer's own. A
            connecting end takes the system's roots where there is none. Default: not set.
        crl: PEM file of revocation lists, up to 1 MiB. With it every certificate of the peer's
            chain needs a list of its issuer that has not expired. Default: not set.
        cert: PEM file with our own certificate, then those between it and its root. A listening end
            needs one. Default: not set.
        key: PEM file with the private key of cert, not encrypted. Default: not set.
        server_name: Where we connect: the name in the server's certificate, in place of the URL's
            host. Default: not set.
        token_file: Where we connect: file with our own token, one line of 16 to 255 visible
            characters of ASCII, for a listener with a tokens_file. Default: not set.
    """

    timeout: float | str | None
    handshake_timeout: float | str
    stuck_after: int | None
    wants_hints: bool
    memory: int | str
    send_bytes: int | str
    send_window: int
    receive_window: int
    ack_window: int
    ack_delay: float | str
    ping_after: float | str | None
    pong_timeout: float | str | None
    packet_receive_timeout: float | str | None
    max_channels: int
    max_channel_ids: int
    max_message_parts: int
    max_part_bytes: int | str
    max_message_bytes: int | str
    max_multicast_bytes: int | str
    connect_timeout: float | str
    reconnect_max: float | str
    lost_after: float | str | None
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    token_file: str | PathLike[str] | None


class RelinkListenOptions(TypedDict, total=False):
    """The options of `ackline.relink.listen`.

    Attributes:
        memory: Bytes of received messages that may be held in memory; above it nothing more is read
            until some are consumed. At least 65536. Default: 256MiB.
        state: The directory in which the links are kept, so that they survive this process. Its
            parent must be there; one process at a time may use it. Default: not set.
        connector_channel_id_size: Bytes of an id of the connector's channels. From 0 to 255.
            Default: 4.
        listener_channel_id_size: Bytes of an id of the listener's channels. From 0 to 255. Default:
            4.
        connector_transactions: Whether the connector's messages are committed or rolled back.
            Default: false.
        listener_transactions: Whether the listener's messages are committed or rolled back.
            Default: false.
        send_bytes: Payload bytes sent on a link that wait for their acknowledgement; a single
            larger message is taken when nothing else waits. At least 1. Default: 256MiB.
        send_window: Messages of a channel that are sent and not acknowledged as consumed. From 1 to
            2147483647. Default: 65536.
        receive_window: Messages of a channel that may have come and not be consumed. A peer that
            sends one more breaks this limit and is refused. From 1 to 4294967295. Default: 65536.
        ack_window: Consumed messages of a channel after which an acknowledgement is sent at once.
            From 1 to 4294967295. Default: 16384.
        ack_delay: Longest time that an acknowledgement of fewer consumed messages waits for more; 0
            acknowledges each message at once. Default: 100ms.
        ping_after: Silence after which a ping goes out. At least 1ms. Default: 11s.
        pong_timeout: How long a ping waits for its pong before the connection ends. At least 1ms.
            Default: 7s.
        packet_receive_timeout: Silence inside a packet after which the connection ends. At least
            1ms. Default: 30s.
        max_channels: Channels of the peer on a link at once: open ones, and closed ones not yet
            answered. From 1 to 4294967295. Default: 65536.
        max_channel_ids: Channels in one packet. From 1 to 4294967295. Default: 1048576.
        max_message_parts: Parts of a message. From 1 to 4294967295. Default: 1024.
        max_part_bytes: Bytes of a part. At least 1. Default: 1GiB.
        max_message_bytes: Bytes of a message. At least 1. Default: 1GiB.
        max_multicast_bytes: Memory that one message to several channels may take: its bytes and 64
            more, times the number of channels. A message to one channel is bound by
            max_message_bytes alone. At least 1. Default: 64MiB.
        orphan_after: Age at which a link without a connection is lost. At least 1ms. Default: 5m.
        max_links: Links at once, with and without a connection: above it new ones are refused. From
            1 to 4294967295. Default: 10000.
        bind_identity: Whether a link made with a certificate belongs to its subject, so that nobody
            else can resume it. Default: true.
        proxy_from: Networks of proxies, such as 10.0.0.0/8,127.0.0.1. A connection from them must
            begin with a PROXY header; one from elsewhere must not. Default: not set.
        allow: Networks that may connect, by the address of the client. It does not apply to Unix
            sockets: the rights of the socket file decide there. Default: not set.
        max_connections: Connections at once, including those that are still being admitted.
            Connections from proxies that have not sent their PROXY header yet may be as many as are
            free, and a tenth of this limit (at least 64) more. At least 1. Default: 10000.
        max_connections_per_address: Connections at once of one address (IPv6: of its /64) or one
            local user; 0 allows all. When all connections are taken and an address or user asks for
            one that has at least two fewer than another, the least useful connection of the address
            or user that has the most is ended. Default: all but an eighth of max_connections.
        accept_rate: Connections accepted in a second, all of which may come at once; 0 is off. One
            address or local user gets at most half of them. Connections that are turned away at
            once do not count. At least 1. Default: 1000.
        max_bytes_per_second: Bytes that one sender may send in a second; above this rate the
            receiver waits before it reads on. 0 is off. At least 1. Default: off.
        max_connection_age: Age at which the receiver ends a connection in good order, 20 % more or
            less. At least 1ms. Default: off.
        handshake_timeout: Time for a PROXY header, and for a handshake of TLS or Relink. A
            connection that takes longer is refused. At least 1ms. Default: 10s.
        first_byte_timeout: Time until the first byte of a new connection. A connection that takes
            longer is refused. At least 1ms. Default: 10s.
        ca: PEM file of certificates to trust: those that issue the peer's, or the peer's own. A
            connecting end takes the system's roots where there is none. Default: not set.
        crl: PEM file of revocation lists, up to 1 MiB. With it every certificate of the peer's
            chain needs a list of its issuer that has not expired. Default: not set.
        cert: PEM file with our own certificate, then those between it and its root. A listening end
            needs one. Default: not set.
        key: PEM file with the private key of cert, not encrypted. Default: not set.
        client_auth: Where we listen: certificates of the peers: none, optional or required. The
            default is required with a ca, else none. Default: not set.
        identity: Where we listen: part of a certificate that a peer is known by: subject (with its
            issuer), san or fingerprint. Default: not set.
        tokens_file: Where we listen: file with a name (up to 64 characters) and a token in each
            line: only peers with one of these tokens are served, and are known by its name.
            Default: not set.
    """

    memory: int | str
    state: str | PathLike[str] | None
    connector_channel_id_size: int
    listener_channel_id_size: int
    connector_transactions: bool
    listener_transactions: bool
    send_bytes: int | str
    send_window: int
    receive_window: int
    ack_window: int
    ack_delay: float | str
    ping_after: float | str | None
    pong_timeout: float | str | None
    packet_receive_timeout: float | str | None
    max_channels: int
    max_channel_ids: int
    max_message_parts: int
    max_part_bytes: int | str
    max_message_bytes: int | str
    max_multicast_bytes: int | str
    orphan_after: float | str
    max_links: int
    bind_identity: bool
    proxy_from: str
    allow: str
    max_connections: int
    max_connections_per_address: int
    accept_rate: int | None
    max_bytes_per_second: int | str | None
    max_connection_age: float | str | None
    handshake_timeout: float | str
    first_byte_timeout: float | str | None
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    client_auth: Literal["none", "optional", "required"] | None
    identity: Literal["subject", "san", "fingerprint"] | None
    tokens_file: str | PathLike[str] | None
