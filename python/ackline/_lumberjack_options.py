"""The keyword options of `lumberjack.connect` and `lumberjack.listen`.

Sizes are bytes, or a text such as ``64MiB``; times are seconds, or a text such as ``10s`` or
``500ms``; None is off. Defaults are written as on the command line.

Made by `.ci/options` from the tables of options in the crates.
"""

from os import PathLike
from typing import Literal, TypedDict

__all__ = [
    "LumberjackConnectOptions",
    "LumberjackListenOptions",
]


class LumberjackConnectOptions(TypedDict, total=False):
    """The options of `ackline.lumberjack.connect`.

    Attributes:
        batch_events: Events in a window at the most. From 1 to 4294967295. Default: 2048.
        batch_bytes: Bytes in a window, before compression; a larger event goes alone. At least 1.
            Default: 4MiB.
        buffer_events: Events that may be accepted and not yet acknowledged, over all hosts. A batch
            counts until all of it is acknowledged. Off: the events that all hosts may have in
            flight, and one window for each host. At least 1. Default: 65536.
        buffer_bytes: Bytes of the events in buffer_events. Off: enough for its windows, of 16 MiB
            each at least. At least 1. Default: 64MiB.
        cumulative: Number events on and on instead of from 1 in each window. Default: false.
        connect_timeout: Time of one attempt to connect. At least 1ms. Default: 10s.
        backoff_min: The longest first wait before a failed host is tried again. Default: 1s.
        backoff_max: The longest wait before a failed host is tried again. Default: 1m.
        ttl: Age, a fifth more or less, at which a connection is drained and made anew. At least
            1ms. Default: off.
        receipts: Windows whose receipts are kept until `Sender.receipts` takes them. The oldest go
            first, and their number is told. Default: 0.
        version: The protocol's version. From 1 to 2. Default: 2.
        compression: The zlib level of a window; 0 sends plain frames, as Beats does. 1 takes half
            the time of 2 to 4, which are the same, for a third to a half more bytes; 5 to 9 take up
            to four times as long for 2 to 10 % fewer. From 0 to 9. Default: 3.
        max_in_flight: Windows sent to a host and not acknowledged; always 1 under version 1. At
            least 1. Default: 2.
        max_in_flight_events: Events sent to a host and not acknowledged. From 1 to 4294967295.
            Default: off.
        max_in_flight_bytes: Bytes sent to a host and not acknowledged, as plain frames with
            headers; a window counts until its last event is acknowledged. At least 1. Default: off.
        slow_start: Events in the first window: windows grow by half with each full one that is
            acknowledged, and shrink to half by a failure. libbeat begins at 10. From 1 to
            4294967295. Default: off.
        accept_count_acks: With `cumulative`: whether a number may also be a count of events, as
            go-lumber's server answers. Default: false.
        read_timeout: Silence of a host that owes an acknowledgement, after which the connection
            ends. At least 1ms. Default: 30s.
        progress_timeout: Time without a growing acknowledgement after which the connection ends. At
            least 1ms. Default: 5m.
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

    batch_events: int
    batch_bytes: int | str
    buffer_events: int | None
    buffer_bytes: int | str | None
    cumulative: bool
    connect_timeout: float | str
    backoff_min: float | str
    backoff_max: float | str
    ttl: float | str | None
    receipts: int
    version: int
    compression: int | None
    max_in_flight: int
    max_in_flight_events: int | None
    max_in_flight_bytes: int | str | None
    slow_start: int | None
    accept_count_acks: bool
    read_timeout: float | str | None
    progress_timeout: float | str | None
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    token_file: str | PathLike[str] | None


class LumberjackListenOptions(TypedDict, total=False):
    """The options of `ackline.lumberjack.listen`.

    Attributes:
        memory: Bytes of unacknowledged input over all connections that may be held in memory; above
            it reading waits. At least 1. Default: 256MiB.
        keepalive: Time between keepalives (`2A 0`) while a window of version 2 waits;
            python-logstash-async gives up after 5 s. At least 1ms. Default: 3s.
        tail_idle: Silence after which a part of a v1 window is kept: only writers that slide one
            window for ever need it. At least 1ms. Default: off.
        stall_timeout: Silence inside a frame or window after which the connection ends. At least
            1ms. Default: 30s.
        idle_timeout: Silence between windows after which the connection is closed. Beats sends
            rarely on quiet hosts. At least 1ms. Default: 15m.
        first_byte_timeout: Time until the first byte of a new connection. A connection that takes
            longer is refused. At least 1ms. Default: 10s.
        no_window: Events before any window frame: accept or refuse. Default: accept.
        max_window_events: Events in a window; Beats sends 2,048. From 1 to 4294967295. Default:
            65536.
        max_json_bytes: Bytes of a JSON event. At least 1. Default: 16MiB.
        max_data_bytes: Bytes of a key-value event, with the header of its frame. At least 1.
            Default: 16MiB.
        max_compressed_bytes: Bytes of a compressed frame. At least 1. Default: 32MiB.
        max_inflated_bytes: Bytes that a compressed frame inflates to. At least 1. Default: 100MiB.
        max_pairs: Pairs in a key-value event. From 1 to 4294967295. Default: 1024.
        max_field_bytes: Bytes of a key or value. At least 1. Default: 1MiB.
        max_window_bytes: Bytes of the frames of one window, inflated. At least 1. Default: 256MiB.
        max_unacked_windows: Unacknowledged windows of a connection: above it reading waits. At
            least 1. Default: 64.
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
    keepalive: float | str | None
    tail_idle: float | str | None
    stall_timeout: float | str | None
    idle_timeout: float | str | None
    first_byte_timeout: float | str | None
    no_window: Literal["accept", "refuse"]
    max_window_events: int
    max_json_bytes: int | str
    max_data_bytes: int | str
    max_compressed_bytes: int | str
    max_inflated_bytes: int | str
    max_pairs: int
    max_field_bytes: int | str
    max_window_bytes: int | str
    max_unacked_windows: int
    proxy_from: str
    allow: str
    max_connections: int
    max_connections_per_address: int
    accept_rate: int | None
    max_bytes_per_second: int | str | None
    max_connection_age: float | str | None
    handshake_timeout: float | str
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    client_auth: Literal["none", "optional", "required"] | None
    identity: Literal["subject", "san", "fingerprint"] | None
    tokens_file: str | PathLike[str] | None
