"""The keyword options of `reactive.connect` and `reactive.listen`.

Sizes are bytes, or a text such as ``64MiB``; times are seconds, or a text such as ``10s`` or
``500ms``; None is off. Defaults are written as on the command line.

Made by `.ci/options` from the tables of options in the crates.
"""

from os import PathLike
from typing import Literal, TypedDict

__all__ = [
    "ReactiveConnectOptions",
    "ReactiveListenOptions",
]


class ReactiveConnectOptions(TypedDict, total=False):
    """The options of `ackline.reactive.connect`.

    Attributes:
        connect_timeout: Time for one attempt to connect, including the handshake of TLS. At least
            1ms. Default: 10s.
        memory: Bytes of received elements that may be held in memory; above it nothing more is read
            until some are taken. At least 65536. Default: 256MiB.
        send_bytes: Bytes of elements that may wait to be sent for each subscription of a peer,
            beside the element in work; 16 times as many for all of its subscriptions. At least 1.
            Default: 256KiB.
        split_threshold: Bytes of an element, or of packed elements, that one message carries: a
            larger element goes in parts, between which others have their turn. At least 1. Default:
            64KiB.
        parts: Whether an element that comes in parts is handed out part by part. If not, it is
            handed out whole. Default: false.
        hello_timeout: Time for the peer's hello. At least 1ms. Default: 10s.
        goodbye_timeout: Time for the answer to a goodbye; then the connection ends without it. At
            least 1ms. Default: 5s.
        message_receive_timeout: Silence inside a message after which the connection ends. At least
            1ms. Default: 30s.
        max_element_bytes: Bytes of an element, whole or put together from parts, and of all
            elements of a packed message. Default: 16MiB.
        max_string_bytes: Bytes of a text: the name of a publisher, an error or a reason. Default:
            64KiB.
        max_extensions: Extensions in a hello. Default: 1024.
        max_subscriptions: Subscriptions of the peer at once. At least 1. Default: 65536.
        max_unfinished_elements: Elements of a connection that have come in part. At least 1.
            Default: 1024.
        max_unfinished_bytes: Bytes of these elements, each part of 4 KiB or more counted with 32
            bytes more; a single element may always have max_element_bytes. At least 1. Default:
            64MiB.
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
    split_threshold: int | str
    parts: bool
    hello_timeout: float | str | None
    goodbye_timeout: float | str | None
    message_receive_timeout: float | str | None
    max_element_bytes: int | str
    max_string_bytes: int | str
    max_extensions: int
    max_subscriptions: int
    max_unfinished_elements: int
    max_unfinished_bytes: int | str
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    token_file: str | PathLike[str] | None


class ReactiveListenOptions(TypedDict, total=False):
    """The options of `ackline.reactive.listen`.

    Attributes:
        memory: Bytes of received elements of all connections that may be held in memory. At least
            65536. Default: 256MiB.
        send_bytes: Bytes of elements that may wait to be sent for each subscription of a peer,
            beside the element in work; 16 times as many for all of its subscriptions. At least 1.
            Default: 256KiB.
        split_threshold: Bytes of an element, or of packed elements, that one message carries: a
            larger element goes in parts, between which others have their turn. At least 1. Default:
            64KiB.
        parts: Whether an element that comes in parts is handed out part by part. If not, it is
            handed out whole. Default: false.
        hello_timeout: Time for the peer's hello. At least 1ms. Default: 10s.
        goodbye_timeout: Time for the answer to a goodbye; then the connection ends without it. At
            least 1ms. Default: 5s.
        message_receive_timeout: Silence inside a message after which the connection ends. At least
            1ms. Default: 30s.
        max_element_bytes: Bytes of an element, whole or put together from parts, and of all
            elements of a packed message. Default: 16MiB.
        max_string_bytes: Bytes of a text: the name of a publisher, an error or a reason. Default:
            64KiB.
        max_extensions: Extensions in a hello. Default: 1024.
        max_subscriptions: Subscriptions of the peer at once. At least 1. Default: 65536.
        max_unfinished_elements: Elements of a connection that have come in part. At least 1.
            Default: 1024.
        max_unfinished_bytes: Bytes of these elements, each part of 4 KiB or more counted with 32
            bytes more; a single element may always have max_element_bytes. At least 1. Default:
            64MiB.
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
    split_threshold: int | str
    parts: bool
    hello_timeout: float | str | None
    goodbye_timeout: float | str | None
    message_receive_timeout: float | str | None
    max_element_bytes: int | str
    max_string_bytes: int | str
    max_extensions: int
    max_subscriptions: int
    max_unfinished_elements: int
    max_unfinished_bytes: int | str
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
