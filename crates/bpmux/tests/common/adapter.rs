//! The adapter of bpmux for the runner of the conformance vectors: its chunks. The part for conversations is
//! `endpoint.rs`.

use ackline_bpmux::chunk::{Carrier, Decoded as Decode, Head, decode, encode};
use ackline_bpmux::{EntityKind, Kind, Limits, Target};
use ackline_core::ErrorKind;
use ackline_testkit::vectors::{Decoded, Endpoint, FrameCodec, Protocol, bytes_of, to_hex};
use serde_json::{Map, Value, json};

#[path = "endpoint.rs"]
mod endpoint;

/// The protocol, for the runner.
pub(crate) struct Bpmux;

impl Protocol for Bpmux {
    fn name(&self) -> &'static str {
        "bpmux"
    }

    fn endpoint(
        &self,
        role: &str,
        config: &Map<String, Value>,
    ) -> Result<Box<dyn Endpoint>, String> {
        endpoint::endpoint(role, config)
    }

    fn output_context(&self, _role: &str, _config: &Map<String, Value>) -> Value {
        json!({"unit": "chunk"})
    }
}

impl FrameCodec for Bpmux {
    fn decode(&self, context: &Value, bytes: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        let limits = match limits_of(context) {
            Ok(limits) => limits,
            Err(wrong) => {
                decoded.error = Some(wrong);
                return decoded;
            }
        };
        let mut rest = bytes;
        loop {
            match chunk(rest, &limits) {
                Ok(Some((frame, len))) => {
                    decoded.frames.push(frame);
                    rest = &rest[len..];
                }
                Ok(None) => break,
                Err(error) => {
                    decoded.error = Some(error);
                    break;
                }
            }
        }
        decoded.rest = rest.len();
        decoded
    }

    fn encode(&self, _context: &Value, frames: &[Value]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        for frame in frames {
            let (head, payload) = head_of(frame)?;
            out.extend_from_slice(encode(head).as_ref());
            out.extend_from_slice(&payload);
        }
        Ok(out)
    }
}

/// Returns the name of a kind in the vectors.
pub(crate) fn name(kind: &Kind) -> String {
    kind.code().trim_start_matches("bpmux.").to_owned()
}

fn limits_of(context: &Value) -> Result<Limits, String> {
    let map = context.as_object().ok_or("no context")?;
    let mut limits = Limits::default();
    for (key, value) in map {
        match (key.as_str(), value) {
            ("unit", Value::String(unit)) if unit == "chunk" => {}
            ("limits", Value::Object(map)) => read_limits(map, &mut limits)?,
            _ => return Err(format!("context {key}: {value}")),
        }
    }
    Ok(limits)
}

pub(crate) fn read_limits(map: &Map<String, Value>, limits: &mut Limits) -> Result<(), String> {
    for (key, value) in map {
        match key.as_str() {
            "payload" => limits.max_payload_bytes = number(value)?,
            _ => return Err(format!("limit {key}")),
        }
    }
    Ok(())
}

/// Reads an unsigned number that fits.
pub(crate) fn number<T: TryFrom<u64>>(value: &Value) -> Result<T, String> {
    let number = value.as_u64().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("a number in range: {value}"))
}

fn chunk(bytes: &[u8], limits: &Limits) -> Result<Option<(Value, usize)>, String> {
    let (head, len) = match decode(bytes).map_err(|kind| name(&kind))? {
        Decode::Whole { head, len } => (head, len),
        Decode::Partial { at_least } => {
            assert!(at_least > bytes.len(), "bytes are asked for that are there");
            return Ok(None);
        }
    };
    let Head::Payload { carrier, length } = head else {
        return Ok(Some((bare(head), len)));
    };
    if length > limits.max_payload_bytes {
        return Err("limit_exceeded".to_owned());
    }
    let end = len + usize::try_from(length).unwrap_or(usize::MAX - len);
    let payload = bytes.get(len..end).map(to_hex);
    Ok(payload.map(|payload| (carried(carrier, &payload), end)))
}

fn id_or_top(target: Target) -> Value {
    match target {
        Target::Top => "top".into(),
        Target::Own(id) | Target::Peer(id) => id.into(),
    }
}

fn by(target: Target, name: &str) -> String {
    match target {
        Target::Peer(_) => format!("{name}_peer"),
        _ => name.to_owned(),
    }
}

fn carried(carrier: Carrier, payload: &str) -> Value {
    let of = |target, name, member: &str| json!({"type": by(target, name), member: id_or_top(target), "payload": payload});
    match carrier {
        Carrier::Open(kind, id) => json!({"type": kind.name(), "id": id, "payload": payload}),
        Carrier::Message(target) => of(target, "msg", "sink"),
        Carrier::Request(id) => json!({"type": "req", "id": id, "payload": payload}),
        Carrier::Response(id) => json!({"type": "res", "req": id, "payload": payload}),
        Carrier::CancelRequest(id) => json!({"type": "cancel_req", "req": id, "payload": payload}),
        Carrier::CloseResponse(id) => json!({"type": "close_res", "req": id, "payload": payload}),
        Carrier::Cancel(target) => of(target, "cancel_stream", "stream"),
        Carrier::Close(target) => of(target, "close_sink", "sink"),
    }
}

fn bare(head: Head) -> Value {
    let of =
        |target, name, member: &str| json!({"type": by(target, name), member: id_or_top(target)});
    match head {
        Head::Credit { target, amount } => {
            json!({"type": by(target, "credit"), "stream": id_or_top(target), "amount": amount})
        }
        Head::Partial { total } => json!({"type": "partial", "total_length": total}),
        Head::Heartbeat { pong, target } => json!({
            "type": "heartbeat",
            "pong": pong,
            "peer": matches!(target, Target::Peer(_)),
            "stream": id_or_top(target),
        }),
        Head::PingRequest(id) => json!({"type": "ping_req", "req": id}),
        Head::PongRequest(id) => json!({"type": "pong_req", "req": id}),
        Head::AckCancelRequest(id) => json!({"type": "ack_cancel_req", "req": id}),
        Head::AckCloseResponse(id) => json!({"type": "ack_close_res", "req": id}),
        Head::AckCancel(target) => of(target, "ack_cancel_stream", "stream"),
        Head::AckClose(target) => of(target, "ack_close_sink", "sink"),
        Head::Payload { .. } => unreachable!(),
    }
}

/// Reads a frame of the vectors as a head and its payload.
fn head_of(frame: &Value) -> Result<(Head, Vec<u8>), String> {
    let kind = frame["type"].as_str().ok_or("a frame without a type")?;
    let (plain, is_peer) = kind
        .strip_suffix("_peer")
        .map_or((kind, false), |plain| (plain, true));
    let id = |member: &str| number::<u32>(&frame[member]);
    let target = |member: &str| -> Result<Target, String> {
        if frame[member] == "top" {
            return Ok(Target::Top);
        }
        let id = id(member)?;
        Ok(if is_peer {
            Target::Peer(id)
        } else {
            Target::Own(id)
        })
    };
    let carrier = match plain {
        "sink" => Carrier::Open(EntityKind::Sink, id("id")?),
        "stream" => Carrier::Open(EntityKind::Stream, id("id")?),
        "duplex" => Carrier::Open(EntityKind::Duplex, id("id")?),
        "msg" => Carrier::Message(target("sink")?),
        "req" => Carrier::Request(id("id")?),
        "res" => Carrier::Response(id("req")?),
        "cancel_req" => Carrier::CancelRequest(id("req")?),
        "close_res" => Carrier::CloseResponse(id("req")?),
        "cancel_stream" => Carrier::Cancel(target("stream")?),
        "close_sink" => Carrier::Close(target("sink")?),
        _ => return bare_of(plain, is_peer, frame, target("stream"), target("sink")),
    };
    let payload = bytes_of(&frame["payload"])?;
    let length = payload.len() as u64;
    Ok((Head::Payload { carrier, length }, payload))
}

fn bare_of(
    plain: &str,
    is_peer: bool,
    frame: &Value,
    stream: Result<Target, String>,
    sink: Result<Target, String>,
) -> Result<(Head, Vec<u8>), String> {
    let req = || number::<u32>(&frame["req"]);
    let head = match plain {
        "credit" => Head::Credit {
            target: stream?,
            amount: number(&frame["amount"])?,
        },
        "partial" => Head::Partial {
            total: number(&frame["total_length"])?,
        },
        "heartbeat" => {
            let pong = frame["pong"].as_bool().ok_or("a heartbeat without pong")?;
            let target = match (stream?, frame["peer"] == true) {
                (Target::Own(id), true) => Target::Peer(id),
                (same, _) => same,
            };
            Head::Heartbeat { pong, target }
        }
        "ping_req" => Head::PingRequest(req()?),
        "pong_req" => Head::PongRequest(req()?),
        "ack_cancel_req" => Head::AckCancelRequest(req()?),
        "ack_close_res" => Head::AckCloseResponse(req()?),
        "ack_cancel_stream" => Head::AckCancel(stream?),
        "ack_close_sink" => Head::AckClose(sink?),
        _ => return Err(format!("frame {plain} ({is_peer})")),
    };
    Ok((head, Vec::new()))
}
