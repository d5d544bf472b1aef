//! One direction of a recorded connection, chunk by chunk, for tools.

use ackline_core::{Inspect, Inspected, LimitHit, Spans, Value};
use bytes::BytesMut;

use super::{Decoded, Head, PayloadRole, decode};
use crate::{EntityKind, Kind, Limits, Target};

/// Reads the chunks that one side sent. Members have the names of the conformance vectors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inspector {
    limits: Limits,
}

impl Inspector {
    /// Begins at any chunk.
    pub const fn new(limits: Limits) -> Self {
        Self { limits }
    }
}

impl Inspect for Inspector {
    type Kind = Kind;

    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        let Decoded::Whole { head, len } = decode(input)? else {
            return Ok(None);
        };
        let length = match head {
            Head::Payload { length, .. } => length,
            _ => 0,
        };
        if length > self.limits.max_payload_bytes {
            return Err(Kind::Limit(LimitHit {
                value: length,
                limit: self.limits.max_payload_bytes,
                option: "--max-payload-bytes",
            }));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let whole = len.saturating_add(length);
        if input.len() < whole {
            return Ok(None);
        }
        let bytes = input.split_to(whole).freeze();
        let (name, id) = named(head);
        let mut members = Vec::new();
        let mut spans = Spans::new();
        spans.push(1, name);
        if let Some((member, target)) = id {
            members.push((member, shown(target)));
            spans.push(id_bytes(head, &bytes, len), id_label(member, target));
        }
        let number = |spans: &mut Spans, label: String| {
            spans.push(len.saturating_sub(spans.at()), label);
        };
        match head {
            Head::Payload { .. } => {
                number(&mut spans, format!("{length} bytes of payload"));
                spans.push(length, "payload");
                members.push(("payload", Value::Bytes(bytes.slice(len..))));
            }
            Head::Credit { amount, .. } => {
                number(&mut spans, format!("amount {amount}"));
                members.push(("amount", Value::Number(amount)));
            }
            Head::Partial { total } => {
                number(&mut spans, format!("total length {total}"));
                members.push(("total_length", Value::Number(total)));
            }
            Head::Heartbeat { pong, target } => {
                members.insert(0, ("pong", Value::Flag(pong)));
                let peer = matches!(target, Target::Peer(_));
                members.insert(1, ("peer", Value::Flag(peer)));
            }
            _ => {}
        }
        Ok(Some(Inspected {
            name,
            bytes,
            members,
            spans: spans.into_vec(),
        }))
    }
}

/// Returns the bytes of the id in a head of `len` bytes.
fn id_bytes(head: Head, bytes: &[u8], len: usize) -> usize {
    let tag = bytes.first().copied().unwrap_or_default();
    let width = |code: u8| 1_usize << (code & 3);
    match head {
        Head::Payload {
            role:
                PayloadRole::Message(Target::Top)
                | PayloadRole::Cancel(Target::Top)
                | PayloadRole::Close(Target::Top),
            ..
        }
        | Head::Credit {
            target: Target::Top,
            ..
        } => 0,
        Head::Payload { .. } | Head::Credit { .. } => width(tag >> 2),
        _ => len.saturating_sub(1),
    }
}

fn id_label(member: &str, target: Target) -> String {
    match target {
        Target::Top => "top-level".to_owned(),
        Target::Own(id) | Target::Peer(id) => format!("{member} {id}"),
    }
}

fn shown(target: Target) -> Value {
    match target {
        Target::Top => Value::Name("top"),
        Target::Own(id) | Target::Peer(id) => Value::Number(id.into()),
    }
}

/// Returns the name of a chunk and of its id.
fn named(head: Head) -> (&'static str, Option<(&'static str, Target)>) {
    let by = |target: Target, own: &'static str, peer: &'static str| match target {
        Target::Peer(_) => peer,
        _ => own,
    };
    match head {
        Head::Payload { role, .. } => {
            let (name, member, target) = carried(role);
            (name, Some((member, target)))
        }
        Head::Credit { target, .. } => (
            by(target, "credit", "credit_peer"),
            Some(("stream", target)),
        ),
        Head::Partial { .. } => ("partial", None),
        Head::Heartbeat { target, .. } => ("heartbeat", Some(("stream", target))),
        Head::PingRequest(id) => ("ping_req", Some(("req", Target::Own(id)))),
        Head::PongRequest(id) => ("pong_req", Some(("req", Target::Peer(id)))),
        Head::AckCancelRequest(id) => ("ack_cancel_req", Some(("req", Target::Peer(id)))),
        Head::AckCloseResponse(id) => ("ack_close_res", Some(("req", Target::Own(id)))),
        Head::AckCancel(target) => (
            by(target, "ack_cancel_stream", "ack_cancel_stream_peer"),
            Some(("stream", target)),
        ),
        Head::AckClose(target) => (
            by(target, "ack_close_sink", "ack_close_sink_peer"),
            Some(("sink", target)),
        ),
    }
}

fn carried(role: PayloadRole) -> (&'static str, &'static str, Target) {
    let by = |target: Target, own: &'static str, peer: &'static str| match target {
        Target::Peer(_) => peer,
        _ => own,
    };
    match role {
        PayloadRole::Open(EntityKind::Sink, id) => ("sink", "id", Target::Own(id)),
        PayloadRole::Open(EntityKind::Stream, id) => ("stream", "id", Target::Own(id)),
        PayloadRole::Open(EntityKind::Duplex, id) => ("duplex", "id", Target::Own(id)),
        PayloadRole::Message(target) => (by(target, "msg", "msg_peer"), "sink", target),
        PayloadRole::Request(id) => ("req", "id", Target::Own(id)),
        PayloadRole::Response(id) => ("res", "req", Target::Peer(id)),
        PayloadRole::CancelRequest(id) => ("cancel_req", "req", Target::Own(id)),
        PayloadRole::CloseResponse(id) => ("close_res", "req", Target::Peer(id)),
        PayloadRole::Cancel(target) => (
            by(target, "cancel_stream", "cancel_stream_peer"),
            "stream",
            target,
        ),
        PayloadRole::Close(target) => (by(target, "close_sink", "close_sink_peer"), "sink", target),
    }
}
