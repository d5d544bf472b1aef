"""The types of the events and options of the bare machines.

Made by `.ci/sansio-types` from the descriptions of the protocols.
"""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict

__all__ = [
    "BpmuxCancelAcknowledged",
    "BpmuxCancelled",
    "BpmuxCloseAcknowledged",
    "BpmuxClosed",
    "BpmuxEndpointEvent",
    "BpmuxEndpointOptions",
    "BpmuxMessage",
    "BpmuxOpen",
    "BpmuxOpened",
    "BpmuxPong",
    "BpmuxRequest",
    "BpmuxRequestCancelAcknowledged",
    "BpmuxRequestCancelled",
    "BpmuxRequestPong",
    "BpmuxResponse",
    "BpmuxResponseCloseAcknowledged",
    "BpmuxResponseClosed",
    "BpmuxResponseSent",
    "BpmuxRoom",
    "LumberjackAcknowledged",
    "LumberjackReaderEvent",
    "LumberjackReaderOptions",
    "LumberjackUnacknowledged",
    "LumberjackWindow",
    "LumberjackWindowRecords",
    "LumberjackWriterEvent",
    "LumberjackWriterOptions",
    "MicromsgAcknowledged",
    "MicromsgClientEvent",
    "MicromsgClientOptions",
    "MicromsgCommand",
    "MicromsgCommandProperties",
    "MicromsgConnected",
    "MicromsgError",
    "MicromsgExtension",
    "MicromsgMessage",
    "MicromsgProposed",
    "MicromsgServerEvent",
    "MicromsgServerOptions",
    "MicromsgSubscribe",
    "MicromsgUnsubscribe",
    "ReactiveCancel",
    "ReactiveClientEvent",
    "ReactiveClientOptions",
    "ReactiveClientOptionsExtensionMessages",
    "ReactiveComplete",
    "ReactiveConnected",
    "ReactiveError",
    "ReactiveExtension",
    "ReactiveExtensionFields",
    "ReactiveGoodbye",
    "ReactiveNext",
    "ReactiveRequest",
    "ReactiveServerEvent",
    "ReactiveServerOptions",
    "ReactiveServerOptionsExtensionMessages",
    "ReactiveSubscribe",
    "ReactiveSubscribed",
    "RelinkAcknowledged",
    "RelinkClosed",
    "RelinkClosing",
    "RelinkConnectorEvent",
    "RelinkConnectorOptions",
    "RelinkConnectorOptionsChannels",
    "RelinkConnectorOptionsEndpoints",
    "RelinkDecided",
    "RelinkHint",
    "RelinkLinkClosed",
    "RelinkLinkEstablished",
    "RelinkLinkLost",
    "RelinkListenerEvent",
    "RelinkListenerOptions",
    "RelinkListenerOptionsChannels",
    "RelinkListenerOptionsEndpoints",
    "RelinkMessage",
    "RelinkPeerShutdown",
    "RelinkPong",
    "RelinkResumed",
]


class BpmuxOpened(TypedDict):
    """The event ``opened`` of bpmux."""

    event: Literal["opened"]
    kind: Literal["sink", "stream", "duplex"]
    id: int
    payload: bytes


class BpmuxMessage(TypedDict):
    """The event ``message`` of bpmux."""

    event: Literal["message"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]
    payload: bytes


class BpmuxClosed(TypedDict):
    """The event ``closed`` of bpmux."""

    event: Literal["closed"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]
    payload: bytes


class BpmuxCancelled(TypedDict):
    """The event ``cancelled`` of bpmux."""

    event: Literal["cancelled"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]
    payload: bytes


class BpmuxRequest(TypedDict):
    """The event ``request`` of bpmux."""

    event: Literal["request"]
    id: int
    payload: bytes


class BpmuxResponse(TypedDict):
    """The event ``response`` of bpmux."""

    event: Literal["response"]
    id: int
    payload: bytes


class BpmuxRequestCancelled(TypedDict):
    """The event ``request_cancelled`` of bpmux."""

    event: Literal["request_cancelled"]
    id: int
    payload: bytes


class BpmuxResponseClosed(TypedDict):
    """The event ``response_closed`` of bpmux."""

    event: Literal["response_closed"]
    id: int
    payload: bytes


class BpmuxCloseAcknowledged(TypedDict):
    """The event ``close_acknowledged`` of bpmux."""

    event: Literal["close_acknowledged"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]


class BpmuxCancelAcknowledged(TypedDict):
    """The event ``cancel_acknowledged`` of bpmux."""

    event: Literal["cancel_acknowledged"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]


class BpmuxRequestCancelAcknowledged(TypedDict):
    """The event ``request_cancel_acknowledged`` of bpmux."""

    event: Literal["request_cancel_acknowledged"]
    id: int


class BpmuxResponseCloseAcknowledged(TypedDict):
    """The event ``response_close_acknowledged`` of bpmux."""

    event: Literal["response_close_acknowledged"]
    id: int


class BpmuxPong(TypedDict):
    """The event ``pong`` of bpmux."""

    event: Literal["pong"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]


class BpmuxRequestPong(TypedDict):
    """The event ``request_pong`` of bpmux."""

    event: Literal["request_pong"]
    id: int


class BpmuxRoom(TypedDict):
    """The event ``room`` of bpmux."""

    event: Literal["room"]
    target: Literal["top"] | tuple[Literal["own", "peer"], int]


class BpmuxOpen(TypedDict):
    """The event ``open`` of bpmux."""

    event: Literal["open"]
    id: int


class BpmuxResponseSent(TypedDict):
    """The event ``response_sent`` of bpmux."""

    event: Literal["response_sent"]
    id: int


BpmuxEndpointEvent: TypeAlias = (
    BpmuxOpened
    | BpmuxMessage
    | BpmuxClosed
    | BpmuxCancelled
    | BpmuxRequest
    | BpmuxResponse
    | BpmuxRequestCancelled
    | BpmuxResponseClosed
    | BpmuxCloseAcknowledged
    | BpmuxCancelAcknowledged
    | BpmuxRequestCancelAcknowledged
    | BpmuxResponseCloseAcknowledged
    | BpmuxPong
    | BpmuxRequestPong
    | BpmuxRoom
    | BpmuxOpen
    | BpmuxResponseSent
)
"""An event of bpmux's endpoint."""


class BpmuxEndpointOptions(TypedDict):
    """The options of bpmux's endpoint."""

    chunk_size: NotRequired[int]
    ping_after_ms: NotRequired[int | None]
    pong_timeout_ms: NotRequired[int | None]
    chunk_receive_timeout_ms: NotRequired[int | None]
    max_payload_bytes: NotRequired[int]
    max_entities: NotRequired[int]
    max_requests: NotRequired[int]
    credit: NotRequired[Sequence[int] | None]


class LumberjackWindowRecords(TypedDict):
    """One of these values."""

    type: Literal["json", "data"]
    sequence_number: int
    payload: NotRequired[bytes]
    pairs: NotRequired[list[Sequence[bytes]]]


class LumberjackWindow(TypedDict):
    """The event ``window`` of lumberjack."""

    event: Literal["window"]
    window: int
    version: int
    window_size: int
    records: list[LumberjackWindowRecords]


LumberjackReaderEvent: TypeAlias = LumberjackWindow
"""An event of lumberjack's reader."""


class LumberjackReaderOptions(TypedDict):
    """The options of lumberjack's reader."""

    keepalive_ms: NotRequired[int | None]
    tail_idle_ms: NotRequired[int | None]
    stall_timeout_ms: NotRequired[int | None]
    idle_timeout_ms: NotRequired[int | None]
    first_byte_timeout_ms: NotRequired[int | None]
    no_window: NotRequired[Literal["accept", "refuse"]]
    max_window_events: NotRequired[int]
    max_json_bytes: NotRequired[int]
    max_data_bytes: NotRequired[int]
    max_compressed_bytes: NotRequired[int]
    max_inflated_bytes: NotRequired[int]
    max_pairs: NotRequired[int]
    max_field_bytes: NotRequired[int]
    max_window_bytes: NotRequired[int]
    max_unacked_windows: NotRequired[int]


class LumberjackAcknowledged(TypedDict):
    """The event ``acknowledged`` of lumberjack."""

    event: Literal["acknowledged"]
    window: int


LumberjackUnacknowledged = TypedDict(
    "LumberjackUnacknowledged",
    {
        "event": Literal["unacknowledged"],
        "window": int,
        "from": int,
    },
)
"""The event ``unacknowledged`` of lumberjack."""

LumberjackWriterEvent: TypeAlias = LumberjackAcknowledged | LumberjackUnacknowledged
"""An event of lumberjack's writer."""


class LumberjackWriterOptions(TypedDict):
    """The options of lumberjack's writer."""

    version: NotRequired[int]
    max_in_flight: NotRequired[int]
    max_in_flight_events: NotRequired[int | None]
    max_in_flight_bytes: NotRequired[int | None]
    slow_start: NotRequired[int | None]
    max_window: NotRequired[int]
    accept_count_acks: NotRequired[bool]
    read_timeout_ms: NotRequired[int | None]
    progress_timeout_ms: NotRequired[int | None]
    compression: NotRequired[int | bool | None]
    sequence: NotRequired[Literal["per_window", "cumulative"]]
    next_sequence_number: NotRequired[int | None]


class MicromsgProposed(TypedDict):
    """The event ``proposed`` of micromsg."""

    event: Literal["proposed"]
    major_version: int
    minor_version: int
    identity: str
    required_extensions: str
    optional_extensions: str


class MicromsgConnected(TypedDict):
    """The event ``connected`` of micromsg."""

    event: Literal["connected"]
    major_version: int
    minor_version: int
    identity: str
    extensions: list[str]


class MicromsgMessage(TypedDict):
    """The event ``message`` of micromsg."""

    event: Literal["message"]
    sequence_number: int
    destination: str
    properties: str
    payload: bytes
    dotnet_type: NotRequired[str]


class MicromsgAcknowledged(TypedDict):
    """The event ``acknowledged`` of micromsg."""

    event: Literal["acknowledged"]
    through: int


class MicromsgCommandProperties(TypedDict):
    """One of these values."""

    name: str
    value: str


class MicromsgCommand(TypedDict):
    """The event ``command`` of micromsg."""

    event: Literal["command"]
    name: str
    properties: list[MicromsgCommandProperties]


class MicromsgExtension(TypedDict):
    """The event ``extension`` of micromsg."""

    event: Literal["extension"]
    name: str
    payload: bytes


class MicromsgSubscribe(TypedDict):
    """The event ``subscribe`` of micromsg."""

    event: Literal["subscribe"]
    topic: str
    filter: NotRequired[str]


class MicromsgUnsubscribe(TypedDict):
    """The event ``unsubscribe`` of micromsg."""

    event: Literal["unsubscribe"]
    topic: str


class MicromsgError(TypedDict):
    """The event ``error`` of micromsg."""

    event: Literal["error"]
    message: str


MicromsgClientEvent: TypeAlias = (
    MicromsgProposed
    | MicromsgConnected
    | MicromsgMessage
    | MicromsgAcknowledged
    | MicromsgCommand
    | MicromsgExtension
    | MicromsgSubscribe
    | MicromsgUnsubscribe
    | MicromsgError
)
"""An event of micromsg's client."""


class MicromsgClientOptions(TypedDict):
    """The options of micromsg's client."""

    ack_policy: NotRequired[Literal["manual", "auto"]]
    ack_timer_ms: NotRequired[int | None]
    dotnet_frames: NotRequired[Literal["change", "always"]]
    fragment_size: NotRequired[int]
    handshake_timeout_ms: NotRequired[int | None]
    message_receive_timeout_ms: NotRequired[int | None]
    max_payload_bytes: NotRequired[int]
    max_message_bytes: NotRequired[int]
    max_names: NotRequired[int]
    negotiation: NotRequired[Literal["auto", "manual"]]
    start: NotRequired[Literal["handshake", "established"]]
    identity: NotRequired[str]
    required_extensions: NotRequired[str]
    optional_extensions: NotRequired[str]
    supported: NotRequired[list[str]]
    extensions: NotRequired[str]
    next_send_sequence_number: NotRequired[int]
    next_receive_sequence_number: NotRequired[int]


MicromsgServerEvent: TypeAlias = (
    MicromsgProposed
    | MicromsgConnected
    | MicromsgMessage
    | MicromsgAcknowledged
    | MicromsgCommand
    | MicromsgExtension
    | MicromsgSubscribe
    | MicromsgUnsubscribe
    | MicromsgError
)
"""An event of micromsg's server."""


class MicromsgServerOptions(TypedDict):
    """The options of micromsg's server."""

    ack_policy: NotRequired[Literal["manual", "auto"]]
    ack_timer_ms: NotRequired[int | None]
    dotnet_frames: NotRequired[Literal["change", "always"]]
    fragment_size: NotRequired[int]
    handshake_timeout_ms: NotRequired[int | None]
    message_receive_timeout_ms: NotRequired[int | None]
    max_payload_bytes: NotRequired[int]
    max_message_bytes: NotRequired[int]
    max_names: NotRequired[int]
    negotiation: NotRequired[Literal["auto", "manual"]]
    start: NotRequired[Literal["handshake", "established"]]
    identity: NotRequired[str]
    required_extensions: NotRequired[str]
    optional_extensions: NotRequired[str]
    supported: NotRequired[list[str]]
    extensions: NotRequired[str]
    next_send_sequence_number: NotRequired[int]
    next_receive_sequence_number: NotRequired[int]


class ReactiveConnected(TypedDict):
    """The event ``connected`` of reactive."""

    event: Literal["connected"]
    extensions: list[int]


class ReactiveSubscribe(TypedDict):
    """The event ``subscribe`` of reactive."""

    event: Literal["subscribe"]
    publisher: str
    subscriber: int
    initial_demand: int


class ReactiveRequest(TypedDict):
    """The event ``request`` of reactive."""

    event: Literal["request"]
    subscriber: int
    demand: int


class ReactiveCancel(TypedDict):
    """The event ``cancel`` of reactive."""

    event: Literal["cancel"]
    subscriber: int


class ReactiveSubscribed(TypedDict):
    """The event ``subscribed`` of reactive."""

    event: Literal["subscribed"]
    subscriber: int
    element_size: int


class ReactiveNext(TypedDict):
    """The event ``next`` of reactive."""

    event: Literal["next"]
    subscriber: int
    element: bytes


class ReactiveComplete(TypedDict):
    """The event ``complete`` of reactive."""

    event: Literal["complete"]
    subscriber: int


class ReactiveError(TypedDict):
    """The event ``error`` of reactive."""

    event: Literal["error"]
    subscriber: int
    error: str


class ReactiveGoodbye(TypedDict):
    """The event ``goodbye`` of reactive."""

    event: Literal["goodbye"]
    reason: str


class ReactiveExtensionFields(TypedDict):
    """One of these values."""

    varint: NotRequired[int]
    string: NotRequired[str]
    bytes: NotRequired[bytes]


class ReactiveExtension(TypedDict):
    """The event ``extension`` of reactive."""

    event: Literal["extension"]
    message_type: int
    fields: list[ReactiveExtensionFields]


ReactiveClientEvent: TypeAlias = (
    ReactiveConnected
    | ReactiveSubscribe
    | ReactiveRequest
    | ReactiveCancel
    | ReactiveSubscribed
    | ReactiveNext
    | ReactiveComplete
    | ReactiveError
    | ReactiveGoodbye
    | ReactiveExtension
)
"""An event of reactive's client."""


class ReactiveClientOptionsExtensionMessages(TypedDict):
    """One of these values."""

    message_type: int
    extension: int
    fields: list[Literal["varint", "string", "bytes"]]


class ReactiveClientOptions(TypedDict):
    """The options of reactive's client."""

    split_threshold: NotRequired[int]
    hello_timeout_ms: NotRequired[int | None]
    goodbye_timeout_ms: NotRequired[int | None]
    message_receive_timeout_ms: NotRequired[int | None]
    max_element_bytes: NotRequired[int]
    max_string_bytes: NotRequired[int]
    max_extensions: NotRequired[int]
    max_subscriptions: NotRequired[int]
    max_unfinished_elements: NotRequired[int]
    max_unfinished_bytes: NotRequired[int]
    start: NotRequired[Literal["handshake", "established"]]
    extensions: NotRequired[list[int]]
    extension_messages: NotRequired[list[ReactiveClientOptionsExtensionMessages]]


ReactiveServerEvent: TypeAlias = (
    ReactiveConnected
    | ReactiveSubscribe
    | ReactiveRequest
    | ReactiveCancel
    | ReactiveSubscribed
    | ReactiveNext
    | ReactiveComplete
    | ReactiveError
    | ReactiveGoodbye
    | ReactiveExtension
)
"""An event of reactive's server."""


class ReactiveServerOptionsExtensionMessages(TypedDict):
    """One of these values."""

    message_type: int
    extension: int
    fields: list[Literal["varint", "string", "bytes"]]


class ReactiveServerOptions(TypedDict):
    """The options of reactive's server."""

    split_threshold: NotRequired[int]
    hello_timeout_ms: NotRequired[int | None]
    goodbye_timeout_ms: NotRequired[int | None]
    message_receive_timeout_ms: NotRequired[int | None]
    max_element_bytes: NotRequired[int]
    max_string_bytes: NotRequired[int]
    max_extensions: NotRequired[int]
    max_subscriptions: NotRequired[int]
    max_unfinished_elements: NotRequired[int]
    max_unfinished_bytes: NotRequired[int]
    start: NotRequired[Literal["handshake", "established"]]
    extensions: NotRequired[list[int]]
    extension_messages: NotRequired[list[ReactiveServerOptionsExtensionMessages]]


class RelinkLinkEstablished(TypedDict):
    """The event ``link_established`` of relink."""

    event: Literal["link_established"]
    epoch: int
    link_id: int
    resumed: bool


class RelinkLinkLost(TypedDict):
    """The event ``link_lost`` of relink."""

    event: Literal["link_lost"]


class RelinkLinkClosed(TypedDict):
    """The event ``link_closed`` of relink."""

    event: Literal["link_closed"]


class RelinkResumed(TypedDict):
    """The event ``resumed`` of relink."""

    event: Literal["resumed"]


class RelinkMessage(TypedDict):
    """The event ``message`` of relink."""

    event: Literal["message"]
    channel: bytes
    sequence_number: int
    payload: list[bytes]


class RelinkAcknowledged(TypedDict):
    """The event ``acknowledged`` of relink."""

    event: Literal["acknowledged"]
    channel: bytes
    acknowledgement: Literal["received", "consumed", "committed", "uncommitted"]
    through: int


class RelinkDecided(TypedDict):
    """The event ``decided`` of relink."""

    event: Literal["decided"]
    channel: bytes
    operation: Literal["commit", "rollback"]
    through: int


class RelinkClosing(TypedDict):
    """The event ``closing`` of relink."""

    event: Literal["closing"]
    channel: bytes


class RelinkClosed(TypedDict):
    """The event ``closed`` of relink."""

    event: Literal["closed"]
    channel: bytes
    unacknowledged: int


class RelinkPeerShutdown(TypedDict):
    """The event ``peer_shutdown`` of relink."""

    event: Literal["peer_shutdown"]


class RelinkPong(TypedDict):
    """The event ``pong`` of relink."""

    event: Literal["pong"]
    round_trip_ms: int


class RelinkHint(TypedDict):
    """The event ``hint`` of relink."""

    event: Literal["hint"]
    name: str
    number: int


RelinkConnectorEvent: TypeAlias = (
    RelinkLinkEstablished
    | RelinkLinkLost
    | RelinkLinkClosed
    | RelinkResumed
    | RelinkMessage
    | RelinkAcknowledged
    | RelinkDecided
    | RelinkClosing
    | RelinkClosed
    | RelinkPeerShutdown
    | RelinkPong
    | RelinkHint
)
"""An event of relink's connector."""


class RelinkConnectorOptionsEndpoints(TypedDict):
    """One of these values."""

    endpoint_name: str
    connector_channel_id_size: NotRequired[int]
    listener_channel_id_size: NotRequired[int]
    connector_transactions: NotRequired[bool]
    listener_transactions: NotRequired[bool]


class RelinkConnectorOptionsChannels(TypedDict):
    """One of these values."""

    side: Literal["outgoing", "incoming"]
    channel: bytes
    next_sequence_number: int


class RelinkConnectorOptions(TypedDict):
    """The options of relink's connector."""

    send_window: NotRequired[int]
    receive_window: NotRequired[int]
    ack_window: NotRequired[int]
    ack_delay_ms: NotRequired[int]
    ping_after_ms: NotRequired[int | None]
    pong_timeout_ms: NotRequired[int | None]
    packet_receive_timeout_ms: NotRequired[int | None]
    max_channels: NotRequired[int]
    max_events: NotRequired[int]
    max_event_bytes: NotRequired[int]
    close_when_consumed: NotRequired[bool]
    resume_from_consumed: NotRequired[bool]
    max_channel_ids: NotRequired[int]
    max_message_parts: NotRequired[int]
    max_part_bytes: NotRequired[int]
    max_message_bytes: NotRequired[int]
    max_multicast_bytes: NotRequired[int]
    start: NotRequired[Literal["handshake", "established"]]
    connector_channel_id_size: NotRequired[int]
    listener_channel_id_size: NotRequired[int]
    connector_transactions: NotRequired[bool]
    listener_transactions: NotRequired[bool]
    handshake_timeout_ms: NotRequired[int | None]
    endpoint_name: NotRequired[str]
    require_old_link_id: NotRequired[bool]
    epoch: NotRequired[int]
    next_link_id: NotRequired[int]
    endpoints: NotRequired[list[RelinkConnectorOptionsEndpoints]]
    channels: NotRequired[list[RelinkConnectorOptionsChannels]]


RelinkListenerEvent: TypeAlias = (
    RelinkLinkEstablished
    | RelinkLinkLost
    | RelinkLinkClosed
    | RelinkResumed
    | RelinkMessage
    | RelinkAcknowledged
    | RelinkDecided
    | RelinkClosing
    | RelinkClosed
    | RelinkPeerShutdown
    | RelinkPong
    | RelinkHint
)
"""An event of relink's listener."""


class RelinkListenerOptionsEndpoints(TypedDict):
    """One of these values."""

    endpoint_name: str
    connector_channel_id_size: NotRequired[int]
    listener_channel_id_size: NotRequired[int]
    connector_transactions: NotRequired[bool]
    listener_transactions: NotRequired[bool]


class RelinkListenerOptionsChannels(TypedDict):
    """One of these values."""

    side: Literal["outgoing", "incoming"]
    channel: bytes
    next_sequence_number: int


class RelinkListenerOptions(TypedDict):
    """The options of relink's listener."""

    send_window: NotRequired[int]
    receive_window: NotRequired[int]
    ack_window: NotRequired[int]
    ack_delay_ms: NotRequired[int]
    ping_after_ms: NotRequired[int | None]
    pong_timeout_ms: NotRequired[int | None]
    packet_receive_timeout_ms: NotRequired[int | None]
    max_channels: NotRequired[int]
    max_events: NotRequired[int]
    max_event_bytes: NotRequired[int]
    close_when_consumed: NotRequired[bool]
    resume_from_consumed: NotRequired[bool]
    max_channel_ids: NotRequired[int]
    max_message_parts: NotRequired[int]
    max_part_bytes: NotRequired[int]
    max_message_bytes: NotRequired[int]
    max_multicast_bytes: NotRequired[int]
    start: NotRequired[Literal["handshake", "established"]]
    connector_channel_id_size: NotRequired[int]
    listener_channel_id_size: NotRequired[int]
    connector_transactions: NotRequired[bool]
    listener_transactions: NotRequired[bool]
    handshake_timeout_ms: NotRequired[int | None]
    endpoint_name: NotRequired[str]
    require_old_link_id: NotRequired[bool]
    epoch: NotRequired[int]
    next_link_id: NotRequired[int]
    endpoints: NotRequired[list[RelinkListenerOptionsEndpoints]]
    channels: NotRequired[list[RelinkListenerOptionsChannels]]
