//! One direction of a recorded connection, frame by frame, for tools.

use ackline_core::{Inspect, Inspected, LimitHit, Spans, Value};
use bytes::{Bytes, BytesMut};

use super::parts::size_bytes;
use super::{
    ALIGNMENT, Body, CHANNEL, Context, DATA_SHIFT, Decoded, EndpointBlock, FORMAT_SHIFT,
    HEADER_BYTES, Hint, Ident, LARGE, LONG, MULTICAST, MULTICAST_IDS_AT, Packet, Parts, Role,
    THREE_BITS, Targets, Version, decode,
};
use crate::{Kind, Limits};

/// The most channel ids of a packet that are shown one by one. With id size 0, eight bytes can name a million
/// channels.
pub const LISTED_IDS: usize = 1_024;

/// Reads the bytes that one side sent. The members of a frame have the names of the conformance vectors.
#[derive(Debug, Clone)]
pub struct Inspector {
    context: Context,
    limits: Limits,
    next: Unit,
    /// Whether this is a connection's direction: its units follow each other, and not all is shown of a packet
    /// that is made to be long.
    is_capture: bool,
}

/// A unit of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The version that either side sends first.
    Version,
    /// The connector's request.
    Endpoint,
    /// The listener's answer.
    Ident,
    /// Packets.
    Packet,
}

impl Inspector {
    /// A reader at the start of a connection, if `handshake`, otherwise at any packet. The id sizes of a connector's
    /// handshake replace those in `context`.
    pub const fn new(context: Context, limits: Limits, handshake: bool) -> Self {
        Self {
            context,
            limits,
            next: if handshake {
                Unit::Version
            } else {
                Unit::Packet
            },
            is_capture: true,
        }
    }

    /// A reader of units of one kind, which shows all of each.
    pub const fn of(unit: Unit, context: Context, limits: Limits) -> Self {
        Self {
            context,
            limits,
            next: unit,
            is_capture: false,
        }
    }

    fn go_on(&mut self, next: Unit) {
        if self.is_capture {
            self.next = next;
        }
    }

    fn version(&mut self, input: &mut BytesMut) -> Option<Inspected> {
        let Version(version) = Version::decode(input)?;
        self.go_on(match self.context.from {
            Role::Connector => Unit::Endpoint,
            Role::Listener => Unit::Ident,
        });
        let mut spans = Spans::new();
        spans.push(1, format!("version {version}"));
        spans.pad(ALIGNMENT);
        let members = vec![("version", Value::Number(version.into()))];
        Some(taken("version", input, Version::LEN, members, spans))
    }

    fn endpoint(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        let len = EndpointBlock::needed(input);
        let Some(block) = EndpointBlock::decode(input)? else {
            return Ok(None);
        };
        self.go_on(Unit::Packet);
        let parameters = block.parameters;
        self.context.connector_channel_id_size = parameters.connector_channel_id_size;
        self.context.listener_channel_id_size = parameters.listener_channel_id_size;
        let spans = endpoint_spans(&block);
        let number = |number: u8| Value::Number(number.into());
        let members = vec![
            (
                "endpoint_name",
                Value::Text(block.endpoint_name.to_string()),
            ),
            (
                "connector_channel_id_size",
                number(parameters.connector_channel_id_size),
            ),
            (
                "listener_channel_id_size",
                number(parameters.listener_channel_id_size),
            ),
            (
                "connector_transactions",
                Value::Flag(parameters.connector_transactions),
            ),
            (
                "listener_transactions",
                Value::Flag(parameters.listener_transactions),
            ),
            (
                "require_old_link_id",
                Value::Flag(block.require_old_link_id),
            ),
            ("old_epoch", Value::Number(block.old_epoch)),
            ("old_link_id", Value::Number(block.old_link_id)),
        ];
        Ok(Some(taken("endpoint", input, len, members, spans)))
    }

    fn ident(&mut self, input: &mut BytesMut) -> Option<Inspected> {
        let Ident { epoch, link_id } = Ident::decode(input)?;
        self.go_on(Unit::Packet);
        let mut spans = Spans::new();
        spans.push(8, format!("epoch {epoch}"));
        spans.push(8, format!("link id {link_id}"));
        let members = vec![
            ("epoch", Value::Number(epoch)),
            ("link_id", Value::Number(link_id)),
        ];
        Some(taken("ident", input, Ident::LEN, members, spans))
    }

    /// Refuses a packet whose ids alone are longer than the largest message.
    fn judge_ids(&self, input: &[u8]) -> Result<(), Kind> {
        let (Some(first), Some(count)) = (input.first(), input.get(4..MULTICAST_IDS_AT)) else {
            return Ok(());
        };
        if !self.is_capture || first & CHANNEL == 0 || first & MULTICAST == 0 {
            return Ok(());
        }
        let mut number = [0; 4];
        number.copy_from_slice(count);
        let size = self
            .context
            .id_size_of((first >> FORMAT_SHIFT) & THREE_BITS);
        let value = u64::from(u32::from_le_bytes(number)).saturating_mul(size.into());
        let limit = self.limits.max_message_bytes;
        if value <= limit {
            return Ok(());
        }
        Err(Kind::Limit(LimitHit {
            value,
            limit,
            option: "--max-message-bytes",
        }))
    }

    fn packet(&self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        let Decoded::Whole { len, .. } = decode(&self.context, &self.limits, input)? else {
            return self.judge_ids(input).map(|()| None);
        };
        let bytes = input.split_to(len).freeze();
        let Decoded::Whole { packet, .. } = decode(&self.context, &self.limits, &bytes)? else {
            return Ok(None);
        };
        let listed = if self.is_capture {
            LISTED_IDS
        } else {
            usize::MAX
        };
        Ok(Some(shown(&packet, &bytes, listed)))
    }
}

impl Inspect for Inspector {
    type Kind = Kind;

    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        match self.next {
            Unit::Version => Ok(self.version(input)),
            Unit::Endpoint => self.endpoint(input),
            Unit::Ident => Ok(self.ident(input)),
            Unit::Packet => self.packet(input),
        }
    }
}

fn taken(
    name: &'static str,
    input: &mut BytesMut,
    len: usize,
    members: Vec<(&'static str, Value)>,
    spans: Spans,
) -> Inspected {
    Inspected {
        name,
        bytes: input.split_to(len).freeze(),
        members,
        spans: spans.into_vec(),
    }
}

fn endpoint_spans(block: &EndpointBlock) -> Spans {
    let parameters = block.parameters;
    let mut spans = Spans::new();
    let name = block.endpoint_name.as_str();
    spans.push(1, format!("endpoint name of {} bytes", name.len()));
    spans.push(name.len(), format!("endpoint name {name:?}"));
    let sizes = [
        ("connector's", parameters.connector_channel_id_size),
        ("listener's", parameters.listener_channel_id_size),
    ];
    for (whose, size) in sizes {
        spans.push(1, format!("{whose} channel id size {size}"));
    }
    let flags = [
        (
            parameters.connector_transactions,
            " connector's transactions",
        ),
        (parameters.listener_transactions, " listener's transactions"),
        (block.require_old_link_id, " require old link id"),
        (block.wants_hints, " wants hints of Ackline's"),
    ];
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    spans.push(
        1,
        format!(
            "flags:{}",
            if set.is_empty() {
                " none".to_owned()
            } else {
                set.join(",")
            }
        ),
    );
    spans.pad(ALIGNMENT);
    spans.push(8, format!("old epoch {}", block.old_epoch));
    spans.push(8, format!("old link id {}", block.old_link_id));
    spans
}

fn shown(packet: &Packet<'_>, bytes: &Bytes, listed: usize) -> Inspected {
    let (name, targets, body) = match packet {
        Packet::Nop => ("nop", None, None),
        Packet::Ping => ("ping", None, None),
        Packet::Pong => ("pong", None, None),
        Packet::Resume => ("resume", None, None),
        Packet::Shutdown => ("shutdown", None, None),
        Packet::Channel { targets, body } => (body_name(body), Some(targets), Some(body)),
    };
    let mut members = Vec::new();
    let mut spans = Spans::new();
    if let (Some(targets), Some(body)) = (targets, body) {
        spans.push(HEADER_BYTES, header(body, bytes, targets.is_multicast()));
        push_targets(targets, bytes, &mut members, &mut spans, listed);
        push_body(body, bytes, &mut members, &mut spans);
    } else if let Some(hint) = hint_in(packet, bytes) {
        spans.push(1, name);
        let text = format!("a hint of Ackline's, {}: {}", hint.name(), hint.number());
        spans.push(ALIGNMENT.saturating_sub(1), text);
    } else {
        spans.push(1, name);
    }
    spans.pad(ALIGNMENT);
    Inspected {
        name,
        bytes: bytes.clone(),
        members,
        spans: spans.into_vec(),
    }
}

fn hint_in(packet: &Packet<'_>, bytes: &[u8]) -> Option<Hint> {
    matches!(packet, Packet::Nop).then(|| Hint::decode(bytes))?
}

const fn body_name(body: &Body<'_>) -> &'static str {
    match body {
        Body::Operation(_) => "channel_operation",
        Body::Acknowledgement(_) => "channel_acknowledgement",
        Body::SequenceOperation(..) => "sequence_operation",
        Body::SequenceAcknowledgement(..) => "sequence_acknowledgement",
        Body::Message(_) => "message",
    }
}

/// Describes the two bytes of the header.
fn header(body: &Body<'_>, bytes: &Bytes, is_multicast: bool) -> String {
    let cast = if is_multicast { "multicast " } else { "" };
    let words = match body {
        Body::Operation(what) => what.name(),
        Body::Acknowledgement(what) => what.name(),
        Body::SequenceOperation(what, _) => return format!("{cast}{} up to", what.name()),
        Body::SequenceAcknowledgement(what, _) => return format!("{cast}{} up to", what.name()),
        Body::Message(parts) => {
            let (is_long, is_large) = forms(bytes);
            let long = if is_long { "long " } else { "" };
            let large = if is_large { "large " } else { "" };
            return format!("{cast}{long}{large}message, parts: {}", parts.len());
        }
    };
    format!("{cast}{words}")
}

/// Whether the header has the flags `long` and `large`.
fn forms(bytes: &Bytes) -> (bool, bool) {
    let data = bytes.first().map_or(0, |first| first >> DATA_SHIFT);
    (data & LONG != 0, data & LARGE != 0)
}

fn push_targets(
    targets: &Targets<'_>,
    bytes: &Bytes,
    members: &mut Vec<(&'static str, Value)>,
    spans: &mut Spans,
    listed: usize,
) {
    if targets.is_multicast() {
        spans.pad(4);
        spans.push(4, format!("{} channel ids", targets.count()));
    }
    let ids: Vec<Bytes> = targets
        .iter()
        .take(listed)
        .map(|id| bytes.slice_ref(id))
        .collect();
    for id in &ids {
        spans.push(id.len(), "channel id");
    }
    let shown = ids.iter().map(Bytes::len).sum();
    let more = targets.as_bytes().len().saturating_sub(shown);
    spans.push(more, "more channel ids");
    members.push(("multicast", Value::Flag(targets.is_multicast())));
    if usize::try_from(targets.count()).is_ok_and(|count| count > ids.len()) {
        members.push(("channel_id_count", Value::Number(targets.count().into())));
    }
    let ids = ids.into_iter().map(Value::Bytes).collect();
    members.push(("channel_ids", Value::List(ids)));
}

fn push_body(
    body: &Body<'_>,
    bytes: &Bytes,
    members: &mut Vec<(&'static str, Value)>,
    spans: &mut Spans,
) {
    match body {
        Body::Operation(what) | Body::SequenceOperation(what, _) => {
            members.push(("operation", Value::Name(what.name())));
        }
        Body::Acknowledgement(what) | Body::SequenceAcknowledgement(what, _) => {
            members.push(("acknowledgement", Value::Name(what.name())));
        }
        Body::Message(parts) => push_parts(parts, bytes, members, spans),
    }
    if let Body::SequenceOperation(_, sequence) | Body::SequenceAcknowledgement(_, sequence) = body
    {
        members.push(("sequence_number", Value::Number(sequence.0.into())));
        spans.pad(4);
        spans.push(4, format!("sequence number {}", sequence.0));
    }
}

fn push_parts(
    parts: &Parts<'_>,
    bytes: &Bytes,
    members: &mut Vec<(&'static str, Value)>,
    spans: &mut Spans,
) {
    let (is_long, is_large) = forms(bytes);
    spans.pad(2);
    if is_long {
        spans.push(4, format!("{} parts", parts.len()));
    }
    if is_large {
        spans.pad(ALIGNMENT);
    }
    for (at, part) in parts.ranges().enumerate() {
        spans.push(
            size_bytes(is_large),
            format!("size of part {at}: {}", part.len()),
        );
    }
    spans.pad(ALIGNMENT);
    let mut payload = Vec::new();
    for (at, part) in parts.ranges().enumerate() {
        spans.push(part.len(), format!("part {at}"));
        spans.pad(ALIGNMENT);
        payload.push(Value::Bytes(bytes.slice(part)));
    }
    members.push(("payload", Value::List(payload)));
}
