//! Single frames as dicts: the members are those of the conformance vectors.

use ackline_core::{ProtocolError, Sequence};
use ackline_relink::frame::{
    self, Acknowledgement, Body, Context, EndpointBlock, Ident, Operation, Packet, Parameters,
    Role, Targets, Version,
};
use ackline_relink::{ChannelId, Kind, Limits, Payload};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::{PROTOCOL, options};
use crate::errors;

/// The kind of the bytes.
enum Unit {
    Version,
    Endpoint,
    Ident,
    Packet(Context, Limits),
}

/// The frames at the front of `data`, each as a dict, and how many bytes they are.
#[pyfunction]
pub(crate) fn relink_decode<'py>(
    py: Python<'py>,
    data: &[u8],
    unit: &str,
    sender: &str,
    options: &Bound<'py, PyDict>,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let unit = unit_of(unit, options::role("sender", sender)?, options)?;
    let frames = PyList::empty(py);
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        let decoded = next(py, &unit, rest)?.map_err(|kind| {
            let offset = u64::try_from(done).unwrap_or(u64::MAX);
            errors::protocol(PROTOCOL, &ProtocolError { kind, offset })
        })?;
        let Some((frame, len)) = decoded else { break };
        frames.append(frame)?;
        done += len;
    }
    Ok((frames, done))
}

fn unit_of(unit: &str, from: Role, given: &Bound<'_, PyDict>) -> PyResult<Unit> {
    let (mut parameters, mut limits) = (Parameters::default(), Limits::default());
    let mut others = Vec::new();
    for (key, value) in given {
        let key: String = key.extract()?;
        let is_known = options::parameter(&mut parameters, &key, &value)?
            || options::limit(&mut limits, &key, &value)?;
        if !is_known {
            others.push(key);
        }
    }
    crate::options::refuse(&others)?;
    let context = Context {
        from,
        connector_channel_id_size: parameters.connector_channel_id_size,
        listener_channel_id_size: parameters.listener_channel_id_size,
    };
    match unit {
        "version" => Ok(Unit::Version),
        "endpoint" => Ok(Unit::Endpoint),
        "ident" => Ok(Unit::Ident),
        "packet" => Ok(Unit::Packet(context, limits)),
        _ => {
            let text = "unit is \"version\", \"endpoint\", \"ident\" or \"packet\"";
            Err(errors::usage("unit", text))
        }
    }
}

type Next<'py> = Result<Option<(Bound<'py, PyDict>, usize)>, Kind>;

/// The first frame; the inner error is the peer's.
fn next<'py>(py: Python<'py>, unit: &Unit, bytes: &[u8]) -> PyResult<Next<'py>> {
    let dict = PyDict::new(py);
    let len = match unit {
        Unit::Version => {
            let Some(Version(version)) = Version::decode(bytes) else {
                return Ok(Ok(None));
            };
            dict.set_item("type", "version")?;
            dict.set_item("version", version)?;
            Version::LEN
        }
        Unit::Ident => {
            let Some(Ident { epoch, link_id }) = Ident::decode(bytes) else {
                return Ok(Ok(None));
            };
            dict.set_item("type", "ident")?;
            dict.set_item("epoch", epoch)?;
            dict.set_item("link_id", link_id)?;
            Ident::LEN
        }
        Unit::Endpoint => match EndpointBlock::decode(bytes) {
            Ok(Some(block)) => {
                endpoint_dict(&dict, &block)?;
                EndpointBlock::needed(bytes)
            }
            Ok(None) => return Ok(Ok(None)),
            Err(kind) => return Ok(Err(kind)),
        },
        Unit::Packet(context, limits) => match frame::decode(context, limits, bytes) {
            Ok(frame::Decoded::Whole { packet, len }) => {
                packet_dict(&dict, &packet)?;
                len
            }
            Ok(frame::Decoded::Partial { .. }) => return Ok(Ok(None)),
            Err(kind) => return Ok(Err(kind)),
        },
    };
    Ok(Ok(Some((dict, len))))
}

/// The members of a connector's request.
pub(super) fn endpoint_dict(dict: &Bound<'_, PyDict>, block: &EndpointBlock) -> PyResult<()> {
    let parameters = &block.parameters;
    dict.set_item("type", "endpoint")?;
    dict.set_item("endpoint_name", block.endpoint_name.as_str())?;
    dict.set_item(
        "connector_channel_id_size",
        parameters.connector_channel_id_size,
    )?;
    dict.set_item(
        "listener_channel_id_size",
        parameters.listener_channel_id_size,
    )?;
    dict.set_item("connector_transactions", parameters.connector_transactions)?;
    dict.set_item("listener_transactions", parameters.listener_transactions)?;
    dict.set_item("require_old_link_id", block.require_old_link_id)?;
    dict.set_item("old_epoch", block.old_epoch)?;
    dict.set_item("old_link_id", block.old_link_id)
}

fn packet_dict(dict: &Bound<'_, PyDict>, packet: &Packet<'_>) -> PyResult<()> {
    let kind = |kind| dict.set_item("type", kind);
    let (targets, body) = match packet {
        Packet::Nop => return kind("nop"),
        Packet::Ping => return kind("ping"),
        Packet::Pong => return kind("pong"),
        Packet::Resume => return kind("resume"),
        Packet::Shutdown => return kind("shutdown"),
        Packet::Channel { targets, body } => (targets, body),
    };
    match body {
        Body::Operation(operation) => {
            kind("channel_operation")?;
            dict.set_item("operation", operation.name())?;
        }
        Body::Acknowledgement(acknowledgement) => {
            kind("channel_acknowledgement")?;
            dict.set_item("acknowledgement", acknowledgement.name())?;
        }
        Body::SequenceOperation(operation, sequence) => {
            kind("sequence_operation")?;
            dict.set_item("operation", operation.name())?;
            dict.set_item("sequence_number", sequence.0)?;
        }
        Body::SequenceAcknowledgement(acknowledgement, sequence) => {
            kind("sequence_acknowledgement")?;
            dict.set_item("acknowledgement", acknowledgement.name())?;
            dict.set_item("sequence_number", sequence.0)?;
        }
        Body::Message(parts) => {
            kind("message")?;
            let parts = parts.iter().map(|part| PyBytes::new(dict.py(), part));
            dict.set_item("payload", parts.collect::<Vec<_>>())?;
        }
    }
    dict.set_item("multicast", targets.is_multicast())?;
    let ids = targets.iter().map(|id| PyBytes::new(dict.py(), id));
    dict.set_item("channel_ids", ids.collect::<Vec<_>>())
}

/// The bytes of frames given as dicts.
#[pyfunction]
pub(crate) fn relink_encode<'py>(
    py: Python<'py>,
    frames: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut bytes = Vec::new();
    for frame in frames.try_iter()? {
        encode(&frame?, &mut bytes)?;
    }
    Ok(PyBytes::new(py, &bytes))
}

fn encode(dict: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let kind: String = dict.get_item("type")?.extract()?;
    match kind.as_str() {
        "version" => Version(dict.get_item("version")?.extract()?).encode(out),
        "ident" => Ident {
            epoch: dict.get_item("epoch")?.extract()?,
            link_id: dict.get_item("link_id")?.extract()?,
        }
        .encode(out),
        "endpoint" => endpoint_of(dict)?.encode(out),
        "nop" => frame::encode(&Packet::Nop, out),
        "ping" => frame::encode(&Packet::Ping, out),
        "pong" => frame::encode(&Packet::Pong, out),
        "resume" => frame::encode(&Packet::Resume, out),
        "shutdown" => frame::encode(&Packet::Shutdown, out),
        _ => encode_channel(&kind, dict, out)?,
    }
    Ok(())
}

/// A connector's request from its members.
pub(super) fn endpoint_of(dict: &Bound<'_, PyAny>) -> PyResult<EndpointBlock> {
    let name: String = dict.get_item("endpoint_name")?.extract()?;
    let mut parameters = Parameters::default();
    for key in [
        "connector_channel_id_size",
        "listener_channel_id_size",
        "connector_transactions",
        "listener_transactions",
    ] {
        options::parameter(&mut parameters, key, &dict.get_item(key)?)?;
    }
    Ok(EndpointBlock {
        endpoint_name: options::endpoint_name(&name)?,
        parameters,
        require_old_link_id: dict.get_item("require_old_link_id")?.extract()?,
        wants_hints: false,
        old_epoch: dict.get_item("old_epoch")?.extract()?,
        old_link_id: dict.get_item("old_link_id")?.extract()?,
    })
}

fn encode_channel(kind: &str, dict: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let ids: Vec<Vec<u8>> = dict.get_item("channel_ids")?.extract()?;
    let size = ids.first().map_or(0, Vec::len);
    let is_uniform = ids.iter().all(|id| id.len() == size);
    let (Ok(size), Ok(count), true) = (u8::try_from(size), u32::try_from(ids.len()), is_uniform)
    else {
        let text = "channel ids are of one size, from 0 to 255 bytes";
        return Err(errors::usage("frame", text));
    };
    let sequence = || dict.get_item("sequence_number")?.extract().map(Sequence);
    let body = match kind {
        "message" => {
            let ids: Vec<ChannelId> = ids.iter().map(|id| ChannelId::from(&id[..])).collect();
            let parts: Vec<Vec<u8>> = dict.get_item("payload")?.extract()?;
            let payload: Payload = parts.into_iter().map(Bytes::from).collect();
            frame::encode_message(&ids, &payload, out);
            return Ok(());
        }
        "channel_operation" => Body::Operation(operation_of(dict)?),
        "channel_acknowledgement" => Body::Acknowledgement(acknowledgement_of(dict)?),
        "sequence_operation" => Body::SequenceOperation(operation_of(dict)?, sequence()?),
        "sequence_acknowledgement" => {
            Body::SequenceAcknowledgement(acknowledgement_of(dict)?, sequence()?)
        }
        _ => {
            let text = format!("there is no frame {kind:?}");
            return Err(errors::usage("frame", &text));
        }
    };
    let ids = ids.concat();
    let targets = Targets::multicast(&ids, size, count);
    frame::encode(&Packet::Channel { targets, body }, out);
    Ok(())
}

fn operation_of(dict: &Bound<'_, PyAny>) -> PyResult<Operation> {
    use Operation::{Close, Commit, Rollback};
    let name: String = dict.get_item("operation")?.extract()?;
    [Commit, Rollback, Close]
        .into_iter()
        .find(|one| one.name() == name)
        .ok_or_else(|| errors::usage("frame", &format!("there is no operation {name:?}")))
}

fn acknowledgement_of(dict: &Bound<'_, PyAny>) -> PyResult<Acknowledgement> {
    use Acknowledgement::{Closed, Committed, Consumed, Received, Uncommitted};
    let name: String = dict.get_item("acknowledgement")?.extract()?;
    [Received, Consumed, Committed, Uncommitted, Closed]
        .into_iter()
        .find(|one| one.name() == name)
        .ok_or_else(|| errors::usage("frame", &format!("there is no acknowledgement {name:?}")))
}
