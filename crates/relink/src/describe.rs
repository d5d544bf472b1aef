//! Relink for tools: the verbs, events and options of both ends, and the frames, by name.
//!
//! The machine of an end is the handshakes of its transports and its link together (`end.rs`).

mod end;
mod frames;

use std::time::Instant;

use ackline_core::described::{
    Args, Decoder, Described, Field, Inspecting, Machine, Misuse, OptionSet, Role as RoleOf,
    Schema, Shape, side,
};
use ackline_core::{Sequence, Value};

use ackline_core::options::{Options as _, Uses};

use crate::frame::{Context, EndpointName, Inspector, Parameters, Role, Unit};
use crate::{
    Binder, ChannelId, ConnectorConfig, EndpointConfig, Kind, Limits, LinkConfig, Side,
    StartChannel,
};
use end::{End, Settings};

/// Relink as data.
#[derive(Debug, Clone, Copy)]
pub struct Description;

const CHANNEL: Field = Field::new("channel", Shape::Bytes);
const SEQUENCE: Field = Field::new("sequence_number", Shape::U32);
const THROUGH: Field = Field::new("through", Shape::U32);
/// Up to this message; without it the next one.
const UP_TO: Field = Field::switch("through", Shape::U32);
const PARTS: Field = Field::new("payload", Shape::List(&Shape::Bytes));
const NAME: Field = Field::new("endpoint_name", Shape::Text);
const EPOCH: Field = Field::new("epoch", Shape::U64);
const LINK_ID: Field = Field::new("link_id", Shape::U64);
const POSITIVE: Shape = Shape::number(1, u64::MAX);
const CONNECTOR_IDS: Field = Field::option("connector_channel_id_size", Shape::U8);
const LISTENER_IDS: Field = Field::option("listener_channel_id_size", Shape::U8);
const CONNECTOR_TRANSACTIONS: Field = Field::option("connector_transactions", Shape::Flag);
const LISTENER_TRANSACTIONS: Field = Field::option("listener_transactions", Shape::Flag);
/// Limits that have other names in the vectors.
const LIMITS: &[(&str, &str)] = &[
    ("channel_id_count", "max_channel_ids"),
    ("message_length", "max_message_parts"),
    ("payload_size", "max_part_bytes"),
    ("message_size", "max_message_bytes"),
    ("multicast_size", "max_multicast_bytes"),
];

const ENDPOINT: Shape = Shape::Map(&[
    NAME,
    CONNECTOR_IDS,
    LISTENER_IDS,
    CONNECTOR_TRANSACTIONS,
    LISTENER_TRANSACTIONS,
]);
/// A channel that exists from the start, all its earlier messages consumed.
const START_CHANNEL: Shape = Shape::Map(&[
    Field::new("side", Shape::Word(&["outgoing", "incoming"])),
    CHANNEL,
    Field::new("next_sequence_number", Shape::U32),
]);
const OPTIONS: OptionSet = OptionSet {
    table: || LinkConfig::default().rows(),
    uses: Uses::MACHINE,
    others: &[
        Field::option("start", Shape::Word(&["handshake", "established"])),
        CONNECTOR_IDS,
        LISTENER_IDS,
        CONNECTOR_TRANSACTIONS,
        LISTENER_TRANSACTIONS,
        Field::timer("handshake_timeout_ms"),
        // Of a connector.
        Field::option("endpoint_name", Shape::Text),
        Field::option("require_old_link_id", Shape::Flag),
        // Of a listener.
        Field::option("epoch", Shape::U64),
        Field::option("next_link_id", Shape::U64),
        Field::option("endpoints", Shape::List(&ENDPOINT)),
        // Of the link.
        Field::option("channels", Shape::List(&START_CHANNEL)),
    ],
    limits: LIMITS,
};

const VERBS: &[Schema] = &[
    Schema::new("connect", &[Field::option("connection", POSITIVE)]),
    Schema::new("transport_lost", &[]),
    Schema::new("transport_resumed", &[]),
    Schema::new(
        "send",
        &[Field::new("channels", Shape::List(&Shape::Bytes)), PARTS],
    ),
    Schema::new("consume", &[CHANNEL, THROUGH]),
    Schema::new("notify_received", &[CHANNEL]),
    Schema::new("commit", &[CHANNEL, UP_TO]),
    Schema::new("rollback", &[CHANNEL, UP_TO]),
    Schema::new("committed", &[CHANNEL, UP_TO]),
    Schema::new("uncommitted", &[CHANNEL, UP_TO]),
    Schema::new("close_channel", &[CHANNEL]),
    Schema::new("ping", &[]),
    Schema::new("shutdown", &[]),
    Schema::new("lose", &[]),
    Schema::new("send_room", &[CHANNEL]),
    Schema::new("unacknowledged", &[]),
    Schema::new("link", &[]),
];

const EVENTS: &[Schema] = &[
    Schema::new(
        "link_established",
        &[EPOCH, LINK_ID, Field::new("resumed", Shape::Flag)],
    ),
    Schema::new("link_lost", &[]),
    Schema::new("link_closed", &[]),
    Schema::new("resumed", &[]),
    Schema::new("message", &[CHANNEL, SEQUENCE, PARTS]),
    Schema::new(
        "acknowledged",
        &[
            CHANNEL,
            Field::new(
                "acknowledgement",
                Shape::Word(&["received", "consumed", "committed", "uncommitted"]),
            ),
            THROUGH,
        ],
    ),
    Schema::new(
        "decided",
        &[
            CHANNEL,
            Field::new("operation", Shape::Word(&["commit", "rollback"])),
            THROUGH,
        ],
    ),
    Schema::new("closing", &[CHANNEL]),
    Schema::new(
        "closed",
        &[CHANNEL, Field::new("unacknowledged", Shape::U32)],
    ),
    Schema::new("peer_shutdown", &[]),
    Schema::new("pong", &[Field::new("round_trip_ms", Shape::U64)]),
    Schema::new(
        "hint",
        &[
            Field::new("name", Shape::Text),
            Field::new("number", Shape::U64),
        ],
    )
    .beside_the_vectors(),
];

const ROLES: &[RoleOf] = &[
    RoleOf {
        name: "connector",
        options: OPTIONS,
        verbs: VERBS,
        events: EVENTS,
    },
    RoleOf {
        name: "listener",
        options: OPTIONS,
        verbs: VERBS,
        events: EVENTS,
    },
];

const DECODING: OptionSet = OptionSet {
    table: || Limits::default().rows(),
    uses: Uses::DECODE,
    others: &[
        Field::option(
            "unit",
            Shape::Word(&["version", "endpoint", "ident", "packet"]),
        ),
        Field::option("handshake", Shape::Flag),
        CONNECTOR_IDS,
        LISTENER_IDS,
        CONNECTOR_TRANSACTIONS,
        LISTENER_TRANSACTIONS,
        Field::option("max_frame_bytes", Shape::U64),
    ],
    limits: LIMITS,
};

impl Described for Description {
    fn name(&self) -> &'static str {
        "relink"
    }

    fn roles(&self) -> &'static [RoleOf] {
        ROLES
    }

    fn frames(&self) -> &'static [Schema] {
        frames::FRAMES
    }

    fn decoding(&self) -> OptionSet {
        DECODING
    }

    fn open(&self, role: &str, now: Instant, options: &Args) -> Result<Box<dyn Machine>, Misuse> {
        let role = match role {
            "connector" => Role::Connector,
            _ => Role::Listener,
        };
        let settings = settings(role, options)?;
        let binder = binder(options)?;
        let mut end = End::new(settings, binder);
        if options.text("start") == "established" {
            end.establish(now);
        }
        Ok(Box::new(end))
    }

    fn decoder(&self, sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse> {
        let sides = [("connector", Role::Connector), ("listener", Role::Listener)];
        let from = side(sender, sides)?;
        let parameters = parameters(options)?;
        let context = Context {
            from,
            connector_channel_id_size: parameters.connector_channel_id_size,
            listener_channel_id_size: parameters.listener_channel_id_size,
        };
        let limits = limits(options)?;
        let unit = match options.text("unit") {
            "" => None,
            "version" => Some(Unit::Version),
            "endpoint" => Some(Unit::Endpoint),
            "ident" => Some(Unit::Ident),
            _ => Some(Unit::Packet),
        };
        let mut handshake = false;
        options.set_flag("handshake", &mut handshake);
        let inspector = match unit {
            Some(unit) => Inspector::of(unit, context, limits),
            None => Inspector::new(context, limits, handshake),
        };
        if options.get("max_frame_bytes").is_none() {
            return Ok(Box::new(Inspecting::new(inspector)));
        }
        Ok(Box::new(Inspecting { inspector, told }))
    }

    fn encode(&self, frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
        frames::encode_frame(frame, members, out)
    }
}

/// A capture has one limit for all that is measured in bytes.
fn told(kind: Kind) -> Kind {
    match kind {
        Kind::Limit(hit) => Kind::Limit(hit.in_a_capture()),
        other => other,
    }
}

fn parameters(options: &Args) -> Result<Parameters, Misuse> {
    let mut made = Parameters::default();
    options.set_table(Uses::MACHINE, &mut made)?;
    Ok(made)
}

fn limits(options: &Args) -> Result<Limits, Misuse> {
    let mut limits = Limits::default();
    if let Some(most) = options.number("max_frame_bytes")? {
        return Ok(Limits {
            max_channel_ids: u32::MAX,
            max_message_parts: u32::MAX,
            max_part_bytes: most,
            max_message_bytes: most,
            max_multicast_bytes: u64::MAX,
            copies: u32::MAX,
        });
    }
    options.set_table(Uses::DECODE, &mut limits)?;
    Ok(limits)
}

fn name_of(options: &Args) -> Result<EndpointName, Misuse> {
    Ok(EndpointName::try_from(options.text("endpoint_name"))?)
}

fn settings(role: Role, options: &Args) -> Result<Settings, Misuse> {
    let parameters = parameters(options)?;
    let mut connector = ConnectorConfig::new(name_of(options)?, parameters);
    connector.handshake_timeout = options.millis("handshake_timeout_ms");
    options.set_flag("require_old_link_id", &mut connector.require_old_link_id);
    let mut link = LinkConfig {
        role,
        parameters,
        channels: start_channels(options)?,
        ..LinkConfig::bare()
    };
    options.set_table(Uses::MACHINE, &mut link)?;
    Ok(Settings { connector, link })
}

fn start_channels(options: &Args) -> Result<Vec<StartChannel>, Misuse> {
    let channels = options.items("channels").iter().map(|value| {
        let given = Args::of(value);
        Ok(StartChannel {
            side: match given.text("side") {
                "outgoing" => Side::Outgoing,
                _ => Side::Incoming,
            },
            channel: channel_of(&given),
            next: Sequence(given.required("next_sequence_number")?),
        })
    });
    channels.collect()
}

fn binder(options: &Args) -> Result<Binder, Misuse> {
    let endpoints = options.items("endpoints").iter().map(|value| {
        let given = Args::of(value);
        Ok(EndpointConfig {
            endpoint_name: name_of(&given)?,
            parameters: parameters(&given)?,
        })
    });
    let endpoints = endpoints.collect::<Result<Vec<_>, Misuse>>()?;
    let epoch = options.number("epoch")?.unwrap_or(0);
    let next_link_id = options.number("next_link_id")?.unwrap_or(1);
    Ok(Binder::new(epoch, next_link_id, endpoints))
}

fn channel_of(args: &Args) -> ChannelId {
    ChannelId::from(&args.bytes("channel")[..])
}

fn ids_of(values: &[Value]) -> Vec<ChannelId> {
    let bytes = values.iter().map(Value::to_bytes);
    bytes.map(|id| ChannelId::from(&id[..])).collect()
}
