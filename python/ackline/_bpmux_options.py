"""The keyword options of `bpmux.connect` and `bpmux.listen`.

Sizes are bytes, or a text such as ``64MiB``; times are seconds, or a text such as ``10s`` or
``500ms``; None is off. Defaults are written as on the command line.

Made by `.ci/options` from the tables of options in the crates.
"""

from os import PathLike
from typing import Literal, TypedDict

__all__ = [
    "BpmuxConnectOptions",
    "BpmuxListenOptions",
]


class BpmuxConnectOptions(TypedDict, total=False):
    """The options of `ackline.bpmux.connect`.

    Attributes:
        connect_timeout: Time for one attempt to connect, including the handshake of TLS. At least
            1ms. Default: 10s.
        memory: Bytes of received payload that may be held in memory; above it nothing more is read
            until some is taken. Open sinks, streams and requests of the peer may take a further
            eighth of it. At least 65536. Default: 256MiB.
        send_bytes: Bytes that wait on one sink before `send` waits; a single larger message is
            taken when nothing else waits. One message for each 64 of these bytes may wait, at least
            1,024. Requests and openings together have the same limits. At least 1. Default: 256KiB.
        chunk_size: Payload bytes of a chunk that is sent: longer payloads go in several, between
            which others have their turn. From 1 to 4294967295. Default: 16KiB.
        parts: Whether a message of a sink, stream or duplex that comes in several chunks is handed
            out part by part, at any length (R-BPM-31). If not, it is handed out whole, and one
            longer than max_payload_bytes ends the connection. Default: false.
        ping_after: Silence after which a ping goes out. At least 1ms. Default: 11s.
        pong_timeout: How long a ping waits for its pong before the connection ends. At least 1ms.
            Default: 7s.
        chunk_receive_timeout: Silence inside a chunk after which the connection ends. At least 1ms.
            Default: 30s.
        max_payload_bytes: Bytes of a message or request, whole or put together from parts. At least
            1. Default: 16MiB.
        max_entities: Sinks, streams and duplexes of a connection. From 1 to 4294967295. Default:
            65536.
        max_requests: Requests of a connection that wait. From 1 to 4294967295. Default: 65536.
        credit: Credit for the peer: automatic as received bytes are taken, or manual by the
            application. Default: automatic.
        credit_floor: Credit that each sink has at least. At least 1. Default: 4KiB.
        credit_ceiling: Credit for one sink at the most. At least 1. Default: 4MiB.
        credit_budget: Credit of a connection above the floors. Default: 32MiB.
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

    connect_timeout: float | str
    memory: int | str
    send_bytes: int | str
    chunk_size: int | str
    parts: bool
    ping_after: float | str | None
    pong_timeout: float | str | None
    chunk_receive_timeout: float | str | None
    max_payload_bytes: int | str
    max_entities: int
    max_requests: int
    credit: Literal["automatic", "manual"]
    credit_floor: int | str
    credit_ceiling: int | str
    credit_budget: int | str
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    token_file: str | PathLike[str] | None


class BpmuxListenOptions(TypedDict, total=False):
    """The options of `ackline.bpmux.listen`.

    Attributes:
        memory: Bytes of received payload of all connections that may be held in memory. Open sinks,
            streams and requests of peers may take a further quarter of it; those of one peer may
            take half of the part that the others leave. At least 65536. Default: 256MiB.
        send_bytes: Bytes that wait on one sink before `send` waits; a single larger message is
            taken when nothing else waits. One message for each 64 of these bytes may wait, at least
            1,024. Requests and openings together have the same limits. At least 1. Default: 256KiB.
        chunk_size: Payload bytes of a chunk that is sent: longer payloads go in several, between
            which others have their turn. From 1 to 4294967295. Default: 16KiB.
        parts: Whether a message of a sink, stream or duplex that comes in several chunks is handed
            out part by part, at any length (R-BPM-31). If not, it is handed out whole, and one
            longer than max_payload_bytes ends the connection. Default: false.
        ping_after: Silence after which a ping goes out. At least 1ms. Default: 11s.
        pong_timeout: How long a ping waits for its pong before the connection ends. At least 1ms.
            Default: 7s.
        chunk_receive_timeout: Silence inside a chunk after which the connection ends. At least 1ms.
            Default: 30s.
        max_payload_bytes: Bytes of a message or request, whole or put together from parts. At least
            1. Default: 16MiB.
        max_entities: Sinks, streams and duplexes of a connection. From 1 to 4294967295. Default:
            65536.
        max_requests: Requests of a connection that wait. From 1 to 4294967295. Default: 65536.
        credit: Credit for the peer: automatic as received bytes are taken, or manual by the
            application. Default: automatic.
        credit_floor: Credit that each sink has at least. At least 1. Default: 4KiB.
        credit_ceiling: Credit for one sink at the most. At least 1. Default: 4MiB.
        credit_budget: Credit of a connection above the floors. Default: 32MiB.
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
    send_bytes: int | str
    chunk_size: int | str
    parts: bool
    ping_after: float | str | None
    pong_timeout: float | str | None
    chunk_receive_timeout: float | str | None
    max_payload_bytes: int | str
    max_entities: int
    max_requests: int
    credit: Literal["automatic", "manual"]
    credit_floor: int | str
    credit_ceiling: int | str
    credit_budget: int | str
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
