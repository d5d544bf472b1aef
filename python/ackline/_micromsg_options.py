"""The keyword options of `micromsg.connect`, `micromsg.serve` and `micromsg.listen`.

Sizes are bytes, or a text such as ``64MiB``; times are seconds, or a text such as ``10s`` or
``500ms``; None is off. Defaults are written as on the command line.

Made by `.ci/options` from the tables of options in the crates.
"""

from os import PathLike
from typing import Literal, TypedDict

__all__ = [
    "MicromsgConnectOptions",
    "MicromsgListenOptions",
    "MicromsgServeOptions",
]


class MicromsgConnectOptions(TypedDict, total=False):
    """The options of `ackline.micromsg.connect`.

    Attributes:
        connect_timeout: Time for one attempt to connect, including the handshake of TLS. At least
            1ms. Default: 10s.
        memory: Bytes of received messages that may be held in memory; above it nothing more is read
            until some are taken. At least 65536. Default: 256MiB.
        send_bytes: Bytes of messages that may wait to be sent, beside the message in work. At least
            1. Default: 1MiB.
        name: The name that this end gives itself in the handshake. Default: not set.
        required_extensions: Extensions without which this end does not work, such as
            `batch-ack;json`: a peer that lacks one is refused. Default: not set.
        optional_extensions: Extensions that this end suggests, such as `json;x-trace:level=2`, in
            place of `batch-ack` with the window and `pub-sub`. Whatever a peer suggests of ack,
            batch-ack, pub-sub, json, xml, protobuf and dotnet is accepted. Default: not set.
        window: Messages that a sender may have unacknowledged, where this end suggests `batch-ack`
            by default; the smaller number of both ends holds. From 1 to 65534. Default: 1000.
        ack_policy: Acknowledgement of received messages: `manual`, by a call of the application;
            `auto`, by the connection, once the application has taken the next message, in groups.
            Default: auto.
        ack_timer: Time after which processed messages are acknowledged, if they are fewer than were
            agreed on. At least 1ms. Default: 500ms.
        dotnet_frames: Frames that name the .NET type of messages: `change`, where the type is
            another one than before; `always`, in front of each message that has a type. Default:
            change.
        fragment_size: Bytes of a payload that one frame carries: a larger message goes in
            fragments. From 1 to 4294967295. Default: 1MiB.
        handshake_timeout: Time for the peer's part of the handshake. At least 1ms. Default: 10s.
        message_receive_timeout: Silence inside a frame, or inside a message that comes in
            fragments, after which the connection ends. At least 1ms. Default: 30s.
        max_payload_bytes: Bytes of the payload of one frame. Default: 16MiB.
        max_message_bytes: Bytes of the payload of a message, whole or put together from fragments.
            Default: 16MiB.
        max_names: Names in a list of extensions or in a command: those of extensions and of their
            properties, or of the command's. At least 1. Default: 1024.
        negotiation: The agreement on extensions: `auto`, by the rules and the lists of this end;
            `manual`, by the application, which is told what the peer proposes and answers it.
            Default: auto.
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
    name: str | None
    required_extensions: str | None
    optional_extensions: str | None
    window: int
    ack_policy: Literal["manual", "auto"]
    ack_timer: float | str | None
    dotnet_frames: Literal["change", "always"]
    fragment_size: int | str
    handshake_timeout: float | str | None
    message_receive_timeout: float | str | None
    max_payload_bytes: int | str
    max_message_bytes: int | str
    max_names: int
    negotiation: Literal["auto", "manual"]
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    token_file: str | PathLike[str] | None


class MicromsgServeOptions(TypedDict, total=False):
    """The options of `ackline.micromsg.serve`.

    Attributes:
        max_subscriptions: Subscriptions of one connection. At least 1. Default: 1024.
        max_subscription_bytes: Bytes of the subscriptions of one connection: each takes 256, its
            topic twice, and its filter. Those of all connections may take a quarter of `memory`. At
            least 1. Default: 1MiB.
        max_filter_conditions: Conditions of one filter. At least 1. Default: 64.
        max_subscriber_bytes: Bytes of messages that wait for one subscriber: above it the
            subscriber is ended. Also bytes of messages in one queue: above it its publishers wait,
            or, with a spool, messages stay on disk alone. At least 1. Default: 16MiB.
        max_queues: Queues at once. At least 1. Default: 1024.
        max_aside: Messages of one queue that no receiver can take now and that let others pass.
            Default: 1024.
        memory: Bytes of received messages of all connections that may be held in memory; and as
            many again of messages that wait for subscribers, each counted once. Above it the
            slowest subscribers are ended; publishers to queues wait from its half on, but for those
            to queues that have few. Beside it each connection may have `send_bytes`. At least
            65536. Default: 256MiB.
        send_bytes: Bytes of messages that may stand ready for the transport on each connection,
            beside the message in work. At least 1. Default: 64KiB.
        name: The name that this end gives itself in the handshake. Default: not set.
        required_extensions: Extensions without which this end does not work, such as
            `batch-ack;json`: a peer that lacks one is refused. Default: not set.
        optional_extensions: Extensions that this end suggests, such as `json;x-trace:level=2`, in
            place of `batch-ack` with the window and `pub-sub`. Whatever a peer suggests of ack,
            batch-ack, pub-sub, json, xml, protobuf and dotnet is accepted. Default: not set.
        window: Messages that a sender may have unacknowledged, where this end suggests `batch-ack`
            by default; the smaller number of both ends holds. From 1 to 65534. Default: 1000.
        dotnet_frames: Frames that name the .NET type of messages: `change`, where the type is
            another one than before; `always`, in front of each message that has a type. Default:
            change.
        fragment_size: Bytes of a payload that one frame carries: a larger message goes in
            fragments. From 1 to 4294967295. Default: 1MiB.
        handshake_timeout: Time for a PROXY header, and for a handshake of TLS or Relink. A
            connection that takes longer is refused. At least 1ms. Default: 10s.
        message_receive_timeout: Silence inside a frame, or inside a message that comes in
            fragments, after which the connection ends. At least 1ms. Default: 30s.
        max_payload_bytes: Bytes of the payload of one frame. Default: 16MiB.
        max_message_bytes: Bytes of the payload of a message, whole or put together from fragments.
            Default: 16MiB.
        max_names: Names in a list of extensions or in a command: those of extensions and of their
            properties, or of the command's. At least 1. Default: 1024.
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
        first_byte_timeout: Time until the first byte of a new connection. A connection that takes
            longer is refused. At least 1ms. Default: 10s.
        max_sender_share: The largest part of the memory, and of a receiver's budget of the spool,
            that one sender (an address, or the subject of a certificate) may have while there are
            other senders. Default: 0.5.
        min_rate: Lowest rate, in bytes a second, of a frame or window that holds memory, over all
            of it and over each five seconds, while others wait for memory. A slower sender is
            ended. At least 1. Default: 1KiB.
        frame_timeout: Time that a sender may take for one whole frame or window while others wait
            for memory. Its bytes must also come evenly: in each five seconds as many as are due in
            them. At least 1ms. Default: 1m.
        ca: PEM file of certificates to trust: those that issue the peer's, or the peer's own. A
            connecting end takes the system's roots where there is none. Default: not set.
        crl: PEM file of revocation lists, up to 1 MiB. With it every certificate of the peer's
            chain needs a list of its issuer that has not expired. Default: not set.
        cert: PEM file with our own certificate, then those between it and its root. A listening end
            needs one. Default: not set.
        key: PEM file with the private key of cert, not encrypted. Default: not set.
        server_name: Where we connect: the name in the server's certificate, in place of the URL's
            host. Default: not set.
        client_auth: Where we listen: certificates of the peers: none, optional or required. The
            default is required with a ca, else none. Default: not set.
        identity: Where we listen: part of a certificate that a peer is known by: subject (with its
            issuer), san or fingerprint. Default: not set.
        token_file: Where we connect: file with our own token, one line of 16 to 255 visible
            characters of ASCII, for a listener with a tokens_file. Default: not set.
        tokens_file: Where we listen: file with a name (up to 64 characters) and a token in each
            line: only peers with one of these tokens are served, and are known by its name.
            Default: not set.
        budget: Bytes of the spool, with its indexes: above it senders wait. A single group is
            always admitted into a spool that holds nothing else. At least 65536. Default: 4GiB.
        segment_bytes: Bytes of a segment file; at most an eighth of the budget, so that the budget
            can be freed in steps. At least 1. Default: 256MiB.
        segment_age: Age of a segment file. Default: 10m.
        retain_committed: Time to keep events that all consumers have committed; less when the
            budget needs their space. Default: 1d.
        retain_max: Age at which events go even if NOT committed: a choice to lose them. At least
            1ms. Default: off.
        allow_unsafe_filesystem: Whether the spool may be on NFS, SMB or FUSE, which may lose data
            that they have acknowledged. Default: false.
        group: Whether the files' group may use the spool too, and another user may own it. Default:
            false.
    """

    max_subscriptions: int
    max_subscription_bytes: int | str
    max_filter_conditions: int
    max_subscriber_bytes: int | str
    max_queues: int
    max_aside: int
    memory: int | str
    send_bytes: int | str
    name: str | None
    required_extensions: str | None
    optional_extensions: str | None
    window: int
    dotnet_frames: Literal["change", "always"]
    fragment_size: int | str
    handshake_timeout: float | str
    message_receive_timeout: float | str | None
    max_payload_bytes: int | str
    max_message_bytes: int | str
    max_names: int
    proxy_from: str
    allow: str
    max_connections: int
    max_connections_per_address: int
    accept_rate: int | None
    max_bytes_per_second: int | str | None
    max_connection_age: float | str | None
    first_byte_timeout: float | str | None
    max_sender_share: float
    min_rate: int | str
    frame_timeout: float | str | None
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    server_name: str | None
    client_auth: Literal["none", "optional", "required"] | None
    identity: Literal["subject", "san", "fingerprint"] | None
    token_file: str | PathLike[str] | None
    tokens_file: str | PathLike[str] | None
    budget: int | str
    segment_bytes: int | str
    segment_age: float | str
    retain_committed: float | str
    retain_max: float | str | None
    allow_unsafe_filesystem: bool
    group: bool


class MicromsgListenOptions(TypedDict, total=False):
    """The options of `ackline.micromsg.listen`.

    Attributes:
        memory: Bytes of received messages of all connections that may be held in memory. At least
            65536. Default: 256MiB.
        send_bytes: Bytes of messages that may wait to be sent on each connection, beside the
            message in work. At least 1. Default: 1MiB.
        name: The name that this end gives itself in the handshake. Default: not set.
        required_extensions: Extensions without which this end does not work, such as
            `batch-ack;json`: a peer that lacks one is refused. Default: not set.
        optional_extensions: Extensions that this end suggests, such as `json;x-trace:level=2`, in
            place of `batch-ack` with the window and `pub-sub`. Whatever a peer suggests of ack,
            batch-ack, pub-sub, json, xml, protobuf and dotnet is accepted. Default: not set.
        window: Messages that a sender may have unacknowledged, where this end suggests `batch-ack`
            by default; the smaller number of both ends holds. From 1 to 65534. Default: 1000.
        ack_policy: Acknowledgement of received messages: `manual`, by a call of the application;
            `auto`, by the connection, once the application has taken the next message, in groups.
            Default: auto.
        ack_timer: Time after which processed messages are acknowledged, if they are fewer than were
            agreed on. At least 1ms. Default: 500ms.
        dotnet_frames: Frames that name the .NET type of messages: `change`, where the type is
            another one than before; `always`, in front of each message that has a type. Default:
            change.
        fragment_size: Bytes of a payload that one frame carries: a larger message goes in
            fragments. From 1 to 4294967295. Default: 1MiB.
        handshake_timeout: Time for a PROXY header, and for a handshake of TLS or Relink. A
            connection that takes longer is refused. At least 1ms. Default: 10s.
        message_receive_timeout: Silence inside a frame, or inside a message that comes in
            fragments, after which the connection ends. At least 1ms. Default: 30s.
        max_payload_bytes: Bytes of the payload of one frame. Default: 16MiB.
        max_message_bytes: Bytes of the payload of a message, whole or put together from fragments.
            Default: 16MiB.
        max_names: Names in a list of extensions or in a command: those of extensions and of their
            properties, or of the command's. At least 1. Default: 1024.
        negotiation: The agreement on extensions: `auto`, by the rules and the lists of this end;
            `manual`, by the application, which is told what the peer proposes and answers it.
            Default: auto.
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
    name: str | None
    required_extensions: str | None
    optional_extensions: str | None
    window: int
    ack_policy: Literal["manual", "auto"]
    ack_timer: float | str | None
    dotnet_frames: Literal["change", "always"]
    fragment_size: int | str
    handshake_timeout: float | str
    message_receive_timeout: float | str | None
    max_payload_bytes: int | str
    max_message_bytes: int | str
    max_names: int
    negotiation: Literal["auto", "manual"]
    proxy_from: str
    allow: str
    max_connections: int
    max_connections_per_address: int
    accept_rate: int | None
    max_bytes_per_second: int | str | None
    max_connection_age: float | str | None
    first_byte_timeout: float | str | None
    ca: str | PathLike[str] | None
    crl: str | PathLike[str] | None
    cert: str | PathLike[str] | None
    key: str | PathLike[str] | None
    client_auth: Literal["none", "optional", "required"] | None
    identity: Literal["subject", "san", "fingerprint"] | None
    tokens_file: str | PathLike[str] | None
