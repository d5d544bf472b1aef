//! bpmux for tools: its verbs, events, chunks and options by name.

use std::time::Instant;

use ackline_core::described::{
    Args, Decoder, Described, Driven, Event as Told, Field, Inspecting, Machine, Misuse, OptionSet,
    Role, Schema, Shape, Vocabulary,
};
use ackline_core::options::{Options as _, Uses};
use ackline_core::{Payload, Value};

use crate::chunk::{Head, Inspector, PayloadRole, encode};
use crate::{Config, Connection, CreditPolicy, EntityKind, Event, Kind, Limits, Target};

/// bpmux as data.
#[derive(Debug, Clone, Copy)]
pub struct Description;

const ID: Field = Field::new("id", Shape::U32);
const TARGET: Field = Field::new(
    "target",
    Shape::Tagged {
        words: &["top"],
        tags: &["own", "peer"],
        of: &Shape::U32,
    },
);
const PAYLOAD: Field = Field::new("payload", Shape::Bytes);
const REASON: Field = Field::option("payload", Shape::Bytes);
const AMOUNT: Field = Field::new("amount", Shape::U64);
const KIND: Field = Field::new("kind", Shape::Word(&["sink", "stream", "duplex"]));
const POSITIVE: Shape = Shape::number(1, u64::MAX);
const LIMITS: &[(&str, &str)] = &[("payload", "max_payload_bytes")];

const ROLES: &[Role] = &[Role {
    name: "endpoint",
    options: OptionSet {
        table: || Config::default().rows(),
        uses: Uses::MACHINE,
        // Floor, ceiling and budget.
        others: &[Field::switch(
            "credit",
            Shape::Row(&[POSITIVE, POSITIVE, Shape::U64]),
        )],
        limits: LIMITS,
    },
    verbs: &[
        Schema::new("open_sink", &[ID, REASON]),
        Schema::new("open_stream", &[ID, REASON]),
        Schema::new("open_duplex", &[ID, REASON]),
        Schema::new("free_id", &[]),
        Schema::new("free_request_id", &[]),
        Schema::new("send", &[TARGET, PAYLOAD]),
        Schema::new("close", &[TARGET, REASON]),
        Schema::new("cancel", &[TARGET, REASON]),
        Schema::new("request", &[ID, PAYLOAD]),
        Schema::new("cancel_request", &[ID, REASON]),
        Schema::new("respond", &[ID, PAYLOAD]),
        Schema::new("close_response", &[ID, REASON]),
        Schema::new("grant_credit", &[TARGET, AMOUNT]),
        Schema::new("consumed", &[TARGET, AMOUNT]),
        Schema::new("credit", &[TARGET]),
        Schema::new("waiting", &[TARGET]),
        Schema::new("ping", &[TARGET]),
        Schema::new("ping_request", &[ID]),
    ],
    events: &[
        Schema::new("opened", &[KIND, ID, PAYLOAD]),
        Schema::new("message", &[TARGET, PAYLOAD]),
        Schema::new("closed", &[TARGET, PAYLOAD]),
        Schema::new("cancelled", &[TARGET, PAYLOAD]),
        Schema::new("request", &[ID, PAYLOAD]),
        Schema::new("response", &[ID, PAYLOAD]),
        Schema::new("request_cancelled", &[ID, PAYLOAD]),
        Schema::new("response_closed", &[ID, PAYLOAD]),
        Schema::new("close_acknowledged", &[TARGET]),
        Schema::new("cancel_acknowledged", &[TARGET]),
        Schema::new("request_cancel_acknowledged", &[ID]),
        Schema::new("response_close_acknowledged", &[ID]),
        Schema::new("pong", &[TARGET]),
        Schema::new("request_pong", &[ID]),
        Schema::new("room", &[TARGET]).beside_the_vectors(),
        Schema::new("open", &[ID]).beside_the_vectors(),
        Schema::new("response_sent", &[ID]).beside_the_vectors(),
    ],
}];

/// An id, or that of the top-level.
const PLACE: Shape = Shape::Either(&[Shape::Word(&["top"]), Shape::U32]);
const SINK: Field = Field::new("sink", PLACE);
const STREAM: Field = Field::new("stream", PLACE);
const REQ: Field = Field::new("req", Shape::U32);

const FRAMES: &[Schema] = &[
    Schema::new("sink", &[ID, PAYLOAD]),
    Schema::new("stream", &[ID, PAYLOAD]),
    Schema::new("duplex", &[ID, PAYLOAD]),
    Schema::new("msg", &[SINK, PAYLOAD]),
    Schema::new("msg_peer", &[SINK, PAYLOAD]),
    Schema::new("req", &[ID, PAYLOAD]),
    Schema::new("res", &[REQ, PAYLOAD]),
    Schema::new("cancel_req", &[REQ, PAYLOAD]),
    Schema::new("close_res", &[REQ, PAYLOAD]),
    Schema::new("cancel_stream", &[STREAM, PAYLOAD]),
    Schema::new("cancel_stream_peer", &[STREAM, PAYLOAD]),
    Schema::new("close_sink", &[SINK, PAYLOAD]),
    Schema::new("close_sink_peer", &[SINK, PAYLOAD]),
    Schema::new("credit", &[STREAM, AMOUNT]),
    Schema::new("credit_peer", &[STREAM, AMOUNT]),
    Schema::new("partial", &[Field::new("total_length", Shape::U64)]),
    Schema::new(
        "heartbeat",
        &[
            Field::new("pong", Shape::Flag),
            Field::new("peer", Shape::Flag),
            STREAM,
        ],
    ),
    Schema::new("ping_req", &[REQ]),
    Schema::new("pong_req", &[REQ]),
    Schema::new("ack_cancel_req", &[REQ]),
    Schema::new("ack_close_res", &[REQ]),
    Schema::new("ack_cancel_stream", &[STREAM]),
    Schema::new("ack_cancel_stream_peer", &[STREAM]),
    Schema::new("ack_close_sink", &[SINK]),
    Schema::new("ack_close_sink_peer", &[SINK]),
];

const DECODING: OptionSet = OptionSet {
    table: || Limits::default().rows(),
    uses: Uses::DECODE,
    others: &[
        Field::option("unit", Shape::Word(&["chunk"])),
        Field::option("max_frame_bytes", Shape::U64),
    ],
    limits: LIMITS,
};

impl Described for Description {
    fn name(&self) -> &'static str {
        "bpmux"
    }

    fn roles(&self) -> &'static [Role] {
        ROLES
    }

    fn frames(&self) -> &'static [Schema] {
        FRAMES
    }

    fn decoding(&self) -> OptionSet {
        DECODING
    }

    fn open(&self, _role: &str, now: Instant, options: &Args) -> Result<Box<dyn Machine>, Misuse> {
        let connection = Connection::new(now, config(options)?);
        Ok(Driven::boxed(now, connection, Endpoint))
    }

    fn decoder(&self, sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse> {
        if let Some(sender) = sender {
            let text =
                format!("sender is {sender:?}; both ends of bpmux send the same chunks: leave it");
            return Err(Misuse::of("sender", text));
        }
        let mut limits = Limits::default();
        options.set_table(Uses::DECODE, &mut limits)?;
        let Some(most) = options.number("max_frame_bytes")? else {
            return Ok(Box::new(Inspecting::new(Inspector::new(limits))));
        };
        limits.max_payload_bytes = most;
        Ok(Box::new(Inspecting {
            inspector: Inspector::new(limits),
            told: |kind| match kind {
                Kind::Limit(hit) => Kind::Limit(hit.in_a_capture()),
                other => other,
            },
        }))
    }

    fn encode(&self, frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let payload = members.bytes("payload");
        let length = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        let head = match role(frame, members)? {
            Some(role) => Head::Payload { role, length },
            None => bare(frame, members)?,
        };
        out.extend_from_slice(encode(head).as_ref());
        out.extend_from_slice(&payload);
        Ok(())
    }
}

/// The configuration of a machine: no timers, and credit by hand, unless told otherwise.
fn config(options: &Args) -> Result<Config, Misuse> {
    let mut config = Config::default();
    options.set_table(Uses::MACHINE, &mut config)?;
    if let [
        Value::Number(floor),
        Value::Number(ceiling),
        Value::Number(budget),
    ] = options.items("credit")
    {
        config.credit = CreditPolicy::Automatic {
            floor: *floor,
            ceiling: *ceiling,
            budget: *budget,
        };
    }
    Ok(config)
}

struct Endpoint;

impl Vocabulary for Endpoint {
    type Connection = Connection;

    fn call(
        &mut self,
        connection: &mut Connection,
        _now: Instant,
        verb: &str,
        args: &Args,
    ) -> Result<Value, Misuse> {
        let id = || args.required("id");
        let target = || target_of(args);
        let payload = args.bytes("payload");
        match verb {
            "open_sink" => connection.open(EntityKind::Sink, id()?, payload)?,
            "open_stream" => connection.open(EntityKind::Stream, id()?, payload)?,
            "open_duplex" => connection.open(EntityKind::Duplex, id()?, payload)?,
            "free_id" => return Ok(connection.free_id()?.into()),
            "free_request_id" => return Ok(connection.free_request_id()?.into()),
            "send" => connection.send(target()?, payload)?,
            "close" => connection.close(target()?, payload)?,
            "cancel" => connection.cancel(target()?, payload)?,
            "request" => connection.request(id()?, payload)?,
            "cancel_request" => connection.cancel_request(id()?, payload)?,
            "respond" => connection.respond(id()?, payload)?,
            "close_response" => connection.close_response(id()?, payload)?,
            "grant_credit" => connection.grant_credit(target()?, args.required("amount")?)?,
            "consumed" => connection.consumed(target()?, args.required("amount")?),
            "credit" => return Ok(connection.credit(target()?)?.into()),
            "waiting" => return Ok(connection.waiting(target()?)?.into()),
            "ping" => connection.ping(target()?)?,
            "ping_request" => connection.ping_request(id()?)?,
            _ => return Err(Misuse::no_verb(verb)),
        }
        Ok(Value::Nothing)
    }

    fn event(&mut self, event: Event) -> Option<Told> {
        Some(match event {
            Event::Opened { kind, id, payload } => {
                let kind = ("kind", Value::Name(kind.name()));
                Told::new("opened", vec![kind, ("id", id.into()), carried(&payload)])
            }
            Event::Message { target, payload } => about("message", target, Some(&payload)),
            Event::Closed { target, payload } => about("closed", target, Some(&payload)),
            Event::Cancelled { target, payload } => about("cancelled", target, Some(&payload)),
            Event::Request { id, payload } => of("request", id, Some(&payload)),
            Event::Response { id, payload } => of("response", id, Some(&payload)),
            Event::RequestCancelled { id, payload } => of("request_cancelled", id, Some(&payload)),
            Event::ResponseClosed { id, payload } => of("response_closed", id, Some(&payload)),
            Event::CloseAcknowledged { target } => about("close_acknowledged", target, None),
            Event::CancelAcknowledged { target } => about("cancel_acknowledged", target, None),
            Event::RequestCancelAcknowledged { id } => of("request_cancel_acknowledged", id, None),
            Event::ResponseCloseAcknowledged { id } => of("response_close_acknowledged", id, None),
            Event::Pong { target } => about("pong", target, None),
            Event::RequestPong { id } => of("request_pong", id, None),
            Event::Room { target } => about("room", target, None),
            Event::Open { id } => of("open", id, None),
            Event::ResponseSent { id } => of("response_sent", id, None),
            // No option of this machine asks for them.
            _ => return None,
        })
    }
}

fn carried(payload: &Payload) -> (&'static str, Value) {
    ("payload", payload.to_bytes().into())
}

fn about(name: &'static str, target: Target, payload: Option<&Payload>) -> Told {
    let target = match target {
        Target::Top => Value::Name("top"),
        Target::Own(id) => Value::Tagged("own", Box::new(id.into())),
        Target::Peer(id) => Value::Tagged("peer", Box::new(id.into())),
    };
    let members = std::iter::once(("target", target)).chain(payload.map(carried));
    Told::new(name, members.collect())
}

fn of(name: &'static str, id: u32, payload: Option<&Payload>) -> Told {
    let members = std::iter::once(("id", id.into())).chain(payload.map(carried));
    Told::new(name, members.collect())
}

fn target_of(args: &Args) -> Result<Target, Misuse> {
    let id = |value: &Value| match value {
        Value::Number(id) => u32::try_from(*id).ok(),
        _ => None,
    };
    let target = match args.get("target") {
        Some(Value::Name(_)) => Some(Target::Top),
        Some(Value::Tagged("own", value)) => id(value).map(Target::Own),
        Some(Value::Tagged(_, value)) => id(value).map(Target::Peer),
        _ => None,
    };
    target.ok_or_else(|| Misuse::of("target", "target is missing".to_owned()))
}

/// The target of a chunk, whose name says by whom it was opened.
fn place(frame: &str, members: &Args, name: &str) -> Result<Target, Misuse> {
    Ok(match members.number(name)? {
        None => Target::Top,
        Some(id) if frame.ends_with("_peer") => Target::Peer(id),
        Some(id) => Target::Own(id),
    })
}

/// The role of a payload; `None` for other chunks.
fn role(frame: &str, members: &Args) -> Result<Option<PayloadRole>, Misuse> {
    let id = |name| members.required(name);
    Ok(Some(match frame {
        "sink" => PayloadRole::Open(EntityKind::Sink, id("id")?),
        "stream" => PayloadRole::Open(EntityKind::Stream, id("id")?),
        "duplex" => PayloadRole::Open(EntityKind::Duplex, id("id")?),
        "req" => PayloadRole::Request(id("id")?),
        "res" => PayloadRole::Response(id("req")?),
        "cancel_req" => PayloadRole::CancelRequest(id("req")?),
        "close_res" => PayloadRole::CloseResponse(id("req")?),
        "msg" | "msg_peer" => PayloadRole::Message(place(frame, members, "sink")?),
        "cancel_stream" | "cancel_stream_peer" => {
            PayloadRole::Cancel(place(frame, members, "stream")?)
        }
        "close_sink" | "close_sink_peer" => PayloadRole::Close(place(frame, members, "sink")?),
        _ => return Ok(None),
    }))
}

fn bare(frame: &str, members: &Args) -> Result<Head, Misuse> {
    let req = || members.required("req");
    let stream = || place(frame, members, "stream");
    Ok(match frame {
        "credit" | "credit_peer" => Head::Credit {
            target: stream()?,
            amount: members.required("amount")?,
        },
        "partial" => Head::Partial {
            total: members.required("total_length")?,
        },
        "heartbeat" => {
            let (mut pong, mut is_peer) = (false, false);
            members.set_flag("pong", &mut pong);
            members.set_flag("peer", &mut is_peer);
            let target = if is_peer {
                place("_peer", members, "stream")?
            } else {
                stream()?
            };
            Head::Heartbeat { pong, target }
        }
        "ping_req" => Head::PingRequest(req()?),
        "pong_req" => Head::PongRequest(req()?),
        "ack_cancel_req" => Head::AckCancelRequest(req()?),
        "ack_close_res" => Head::AckCloseResponse(req()?),
        "ack_cancel_stream" | "ack_cancel_stream_peer" => Head::AckCancel(stream()?),
        "ack_close_sink" | "ack_close_sink_peer" => Head::AckClose(place(frame, members, "sink")?),
        _ => {
            return Err(Misuse::of(
                "unknown_frame",
                format!("no chunk is a {frame:?}"),
            ));
        }
    })
}
