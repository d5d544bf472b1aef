//! Relink's adapter for the runner of the conformance vectors: the frames. The conversations are in `endpoint.rs`.

use ackline_core::{ErrorKind, Sequence};
use ackline_relink::frame::{
    self, Acknowledgement, Body, Context, EndpointBlock, EndpointName, Ident, Operation, Packet,
    Parameters, Role, Targets, Version,
};
use ackline_relink::{ChannelId, Kind, Limits, Payload};
use ackline_testkit::vectors::{Decoded, Endpoint, FrameCodec, Protocol, bytes_of, to_hex};
use serde_json::{Map, Value, json};

mod endpoint;

/// The protocol for the runner.
pub(crate) struct Relink;

impl Protocol for Relink {
    fn name(&self) -> &'static str {
        "relink"
    }

    fn endpoint(
        &self,
        role: &str,
        config: &Map<String, Value>,
    ) -> Result<Box<dyn Endpoint>, String> {
        endpoint::endpoint(role, config)
    }

    fn output_context(&self, role: &str, config: &Map<String, Value>) -> Value {
        let mut context = Map::new();
        for name in PARAMETERS {
            context.insert(
                name.to_owned(),
                config.get(name).cloned().unwrap_or_default(),
            );
        }
        context.insert("unit".to_owned(), "packet".into());
        context.insert("from".to_owned(), role.into());
        context.into()
    }
}

const PARAMETERS: [&str; 4] = [
    "connector_channel_id_size",
    "listener_channel_id_size",
    "connector_transactions",
    "listener_transactions",
];

impl FrameCodec for Relink {
    fn decode(&self, context: &Value, bytes: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        let context = match FrameContext::of(context) {
            Ok(context) => context,
            Err(wrong) => {
                decoded.error = Some(wrong);
                return decoded;
            }
        };
        let mut rest = bytes;
        loop {
            match context.frame(rest) {
                Ok(Some((frame, len))) => {
                    decoded.frames.push(frame);
                    rest = &rest[len..];
                }
                Ok(None) => break,
                Err(kind) => {
                    decoded.error = Some(name(&kind));
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
            encode(frame, &mut out)?;
        }
        Ok(out)
    }
}

/// Returns a kind's name in the vectors.
pub(crate) fn name(kind: &Kind) -> String {
    kind.code().trim_start_matches("relink.").to_owned()
}

/// Reads the four parameters and the limits out of `members`. All other members go to `other`.
pub(crate) fn read_config(
    members: &Map<String, Value>,
    mut other: impl FnMut(&str, &Value) -> Result<(), String>,
) -> Result<(Parameters, Limits), String> {
    let mut parameters = Parameters::default();
    let mut limits = Limits::default();
    for (key, value) in members {
        match (key.as_str(), value) {
            ("connector_channel_id_size", _) => {
                parameters.connector_channel_id_size = number(value)?;
            }
            ("listener_channel_id_size", _) => {
                parameters.listener_channel_id_size = number(value)?;
            }
            ("connector_transactions", Value::Bool(on)) => parameters.connector_transactions = *on,
            ("listener_transactions", Value::Bool(on)) => parameters.listener_transactions = *on,
            ("limits", Value::Object(map)) => read_limits(map, &mut limits)?,
            _ => other(key, value)?,
        }
    }
    Ok((parameters, limits))
}

fn read_limits(map: &Map<String, Value>, limits: &mut Limits) -> Result<(), String> {
    for (key, value) in map {
        match key.as_str() {
            "channel_id_count" => limits.max_channel_ids = number(value)?,
            "message_length" => limits.max_message_parts = number(value)?,
            "payload_size" => limits.max_part_bytes = number(value)?,
            "message_size" => limits.max_message_bytes = number(value)?,
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

/// Reads a channel's id, written as BYTES.
pub(crate) fn channel_of(value: &Value) -> Result<ChannelId, String> {
    Ok(ChannelId::from(bytes_of(value)?.as_slice()))
}

/// Reads a message's parts, written as a list of BYTES.
pub(crate) fn payload_of(value: &Value) -> Result<Payload, String> {
    let parts = value.as_array().ok_or("a payload is a list")?;
    parts
        .iter()
        .map(|part| bytes_of(part).map(Into::into))
        .collect()
}

enum Unit {
    Version,
    Endpoint,
    Ident,
    Packet(Context, Limits),
}

struct FrameContext(Unit);

impl FrameContext {
    fn of(context: &Value) -> Result<Self, String> {
        let map = context.as_object().ok_or("no context")?;
        let (mut unit, mut from) = (None, None);
        let (parameters, limits) = read_config(map, |key, value| {
            match (key, value.as_str()) {
                ("unit", Some(name)) => unit = Some(name.to_owned()),
                ("from", Some("connector")) => from = Some(Role::Connector),
                ("from", Some("listener")) => from = Some(Role::Listener),
                _ => return Err(format!("context {key}: {value}")),
            }
            Ok(())
        })?;
        let context = Context {
            from: from.ok_or("context without from")?,
            connector_channel_id_size: parameters.connector_channel_id_size,
            listener_channel_id_size: parameters.listener_channel_id_size,
        };
        Ok(Self(match unit.as_deref() {
            Some("version") => Unit::Version,
            Some("endpoint") => Unit::Endpoint,
            Some("ident") => Unit::Ident,
            Some("packet") => Unit::Packet(context, limits),
            _ => return Err(format!("unit {unit:?}")),
        }))
    }

    fn frame(&self, bytes: &[u8]) -> Result<Option<(Value, usize)>, Kind> {
        Ok(match &self.0 {
            Unit::Version => Version::decode(bytes).map(|Version(version)| {
                (json!({"type": "version", "version": version}), Version::LEN)
            }),
            Unit::Endpoint => EndpointBlock::decode(bytes)?
                .map(|block| (endpoint_value(&block), EndpointBlock::needed(bytes))),
            Unit::Ident => Ident::decode(bytes).map(|Ident { epoch, link_id }| {
                (
                    json!({"type": "ident", "epoch": epoch, "link_id": link_id}),
                    Ident::LEN,
                )
            }),
            Unit::Packet(context, limits) => match frame::decode(context, limits, bytes)? {
                frame::Decoded::Whole { packet, len } => Some((packet_value(&packet), len)),
                frame::Decoded::Partial { at_least } => {
                    assert!(at_least > bytes.len(), "bytes are asked for that are there");
                    None
                }
            },
        })
    }
}

fn endpoint_value(block: &EndpointBlock) -> Value {
    json!({
        "type": "endpoint",
        "endpoint_name": block.endpoint_name.as_str(),
        "connector_channel_id_size": block.parameters.connector_channel_id_size,
        "listener_channel_id_size": block.parameters.listener_channel_id_size,
        "connector_transactions": block.parameters.connector_transactions,
        "listener_transactions": block.parameters.listener_transactions,
        "require_old_link_id": block.require_old_link_id,
        "old_epoch": block.old_epoch,
        "old_link_id": block.old_link_id,
    })
}

fn packet_value(packet: &Packet<'_>) -> Value {
    let (targets, body) = match packet {
        Packet::Nop => return json!({"type": "nop"}),
        Packet::Ping => return json!({"type": "ping"}),
        Packet::Pong => return json!({"type": "pong"}),
        Packet::Resume => return json!({"type": "resume"}),
        Packet::Shutdown => return json!({"type": "shutdown"}),
        Packet::Channel { targets, body } => (targets, body),
    };
    let mut value = match body {
        Body::Operation(operation) => {
            json!({"type": "channel_operation", "operation": operation.name()})
        }
        Body::Acknowledgement(ack) => {
            json!({"type": "channel_acknowledgement", "acknowledgement": ack.name()})
        }
        Body::SequenceOperation(operation, Sequence(number)) => json!({
            "type": "sequence_operation",
            "operation": operation.name(),
            "sequence_number": number,
        }),
        Body::SequenceAcknowledgement(ack, Sequence(number)) => json!({
            "type": "sequence_acknowledgement",
            "acknowledgement": ack.name(),
            "sequence_number": number,
        }),
        Body::Message(parts) => json!({
            "type": "message",
            "payload": parts.iter().map(to_hex).collect::<Vec<_>>(),
        }),
    };
    value["multicast"] = targets.is_multicast().into();
    value["channel_ids"] = targets.iter().map(to_hex).collect();
    value
}

fn encode(frame: &Value, out: &mut Vec<u8>) -> Result<(), String> {
    let map = frame.as_object().ok_or("a frame is an object")?;
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "version" => Version(number(&frame["version"])?).encode(out),
        "ident" => Ident {
            epoch: number(&frame["epoch"])?,
            link_id: number(&frame["link_id"])?,
        }
        .encode(out),
        "endpoint" => endpoint_of(map)?.encode(out),
        "nop" => frame::encode(&Packet::Nop, out),
        "ping" => frame::encode(&Packet::Ping, out),
        "pong" => frame::encode(&Packet::Pong, out),
        "resume" => frame::encode(&Packet::Resume, out),
        "shutdown" => frame::encode(&Packet::Shutdown, out),
        _ => encode_channel(kind, frame, out)?,
    }
    Ok(())
}

fn endpoint_of(map: &Map<String, Value>) -> Result<EndpointBlock, String> {
    let mut name = None;
    let mut block = EndpointBlock {
        endpoint_name: EndpointName::default(),
        parameters: Parameters::default(),
        require_old_link_id: false,
        wants_hints: false,
        old_epoch: 0,
        old_link_id: 0,
    };
    (block.parameters, _) = read_config(map, |key, value| {
        match (key, value) {
            ("type", _) => {}
            ("endpoint_name", Value::String(text)) => name = Some(text.clone()),
            ("require_old_link_id", Value::Bool(on)) => block.require_old_link_id = *on,
            ("old_epoch", _) => block.old_epoch = number(value)?,
            ("old_link_id", _) => block.old_link_id = number(value)?,
            _ => return Err(format!("{key}: {value}")),
        }
        Ok(())
    })?;
    let name = name.ok_or("no endpoint_name")?;
    block.endpoint_name =
        EndpointName::try_from(name.as_str()).map_err(|error| error.to_string())?;
    Ok(block)
}

fn encode_channel(kind: &str, frame: &Value, out: &mut Vec<u8>) -> Result<(), String> {
    let ids = frame["channel_ids"].as_array().ok_or("no channel_ids")?;
    let ids: Result<Vec<ChannelId>, String> = ids.iter().map(channel_of).collect();
    let ids = ids?;
    if kind == "message" {
        frame::encode_message(&ids, &payload_of(&frame["payload"])?, out);
        return Ok(());
    }
    let all: Vec<u8> = ids.iter().flat_map(ChannelId::as_bytes).copied().collect();
    let size = ids.first().map_or(0, ChannelId::len);
    let size = u8::try_from(size).map_err(|error| error.to_string())?;
    let count = u32::try_from(ids.len()).map_err(|error| error.to_string())?;
    let body = match kind {
        "channel_operation" => Body::Operation(operation_of(frame)?),
        "channel_acknowledgement" => Body::Acknowledgement(acknowledgement_of(frame)?),
        "sequence_operation" => Body::SequenceOperation(operation_of(frame)?, sequence_of(frame)?),
        "sequence_acknowledgement" => {
            Body::SequenceAcknowledgement(acknowledgement_of(frame)?, sequence_of(frame)?)
        }
        _ => return Err(format!("type {kind}")),
    };
    let targets = Targets::multicast(&all, size, count);
    frame::encode(&Packet::Channel { targets, body }, out);
    Ok(())
}

fn sequence_of(frame: &Value) -> Result<Sequence, String> {
    number(&frame["sequence_number"]).map(Sequence)
}

fn operation_of(frame: &Value) -> Result<Operation, String> {
    use Operation::{Close, Commit, Rollback};
    let name = frame["operation"].as_str();
    let all = [Commit, Rollback, Close];
    let found = all.into_iter().find(|one| Some(one.name()) == name);
    found.ok_or_else(|| format!("operation {name:?}"))
}

fn acknowledgement_of(frame: &Value) -> Result<Acknowledgement, String> {
    use Acknowledgement::{Closed, Committed, Consumed, Received, Uncommitted};
    let name = frame["acknowledgement"].as_str();
    let all = [Received, Consumed, Committed, Uncommitted, Closed];
    let found = all.into_iter().find(|one| Some(one.name()) == name);
    found.ok_or_else(|| format!("acknowledgement {name:?}"))
}
