//! Single chunks as dicts: the members are those of the conformance vectors.

use ackline_bpmux::chunk::{Carrier, Head, Inspector, encode};
use ackline_bpmux::{EntityKind, Limits, Target};
use ackline_core::options::{Options as _, Uses};
use ackline_core::{Inspect as _, ProtocolError};
use bytes::BytesMut;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::PROTOCOL;
use crate::options::{flag, refuse, value_of, whole};
use crate::{errors, inspect};

/// The chunks at the front of `data`, each as a dict, and how many bytes they are.
#[pyfunction]
#[pyo3(signature = (data, options = None))]
pub(crate) fn bpmux_decode<'py>(
    py: Python<'py>,
    data: &[u8],
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let mut limits = Limits::default();
    let mut others = Vec::new();
    for (key, value) in options.into_iter().flatten() {
        let key: String = key.extract()?;
        let is_one = limits.set(Uses::MACHINE, &key, &value_of(&value)?);
        if !is_one.map_err(|error| errors::option(&key, &error))? {
            others.push(key);
        }
    }
    refuse(&others)?;
    let mut inspector = Inspector::new(limits);
    let mut input = BytesMut::from(data);
    let frames = PyList::empty(py);
    loop {
        let done = data.len() - input.len();
        let offset = u64::try_from(done).unwrap_or(u64::MAX);
        let inspected = inspector.inspect(&mut input);
        let inspected = inspected
            .map_err(|kind| errors::protocol(PROTOCOL, &ProtocolError { kind, offset }))?;
        let Some(inspected) = inspected else {
            return Ok((frames, done));
        };
        let dict = PyDict::new(py);
        dict.set_item("type", inspected.name)?;
        for (name, value) in &inspected.members {
            dict.set_item(name, inspect::member(py, value)?)?;
        }
        frames.append(dict)?;
    }
}

/// The smallest encoding of chunks as `bpmux_decode` gives them.
#[pyfunction]
pub(crate) fn bpmux_encode<'py>(
    py: Python<'py>,
    chunks: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    for chunk in chunks.try_iter()? {
        let chunk = chunk?;
        let chunk = chunk.cast::<PyDict>().map_err(|_| {
            let text = format!("a chunk is a dict, not {chunk}");
            errors::usage("chunk", &text)
        })?;
        let (head, payload) = Members(chunk).head()?;
        out.extend_from_slice(encode(head).as_ref());
        out.extend_from_slice(&payload);
    }
    Ok(PyBytes::new(py, &out))
}

/// The members of a chunk.
struct Members<'a, 'py>(&'a Bound<'py, PyDict>);

impl Members<'_, '_> {
    fn get(&self, name: &str) -> PyResult<Bound<'_, PyAny>> {
        let missing = || errors::usage("chunk", &format!("a chunk without {name:?}: {}", self.0));
        self.0.get_item(name)?.ok_or_else(missing)
    }

    fn id(&self, name: &str) -> PyResult<u32> {
        whole(name, &self.get(name)?, 0, u32::MAX)
    }

    fn target(&self, name: &str, is_peer: bool) -> PyResult<Target> {
        let value = self.get(name)?;
        if value.extract::<&str>().is_ok_and(|text| text == "top") {
            return Ok(Target::Top);
        }
        let id = self.id(name)?;
        Ok(if is_peer {
            Target::Peer(id)
        } else {
            Target::Own(id)
        })
    }

    fn head(&self) -> PyResult<(Head, Vec<u8>)> {
        let kind = self.get("type")?;
        let kind: String = kind.extract()?;
        let (plain, is_peer) = kind
            .strip_suffix("_peer")
            .map_or((kind.as_str(), false), |plain| (plain, true));
        let carrier = match plain {
            "sink" => Carrier::Open(EntityKind::Sink, self.id("id")?),
            "stream" => Carrier::Open(EntityKind::Stream, self.id("id")?),
            "duplex" => Carrier::Open(EntityKind::Duplex, self.id("id")?),
            "msg" => Carrier::Message(self.target("sink", is_peer)?),
            "req" => Carrier::Request(self.id("id")?),
            "res" => Carrier::Response(self.id("req")?),
            "cancel_req" => Carrier::CancelRequest(self.id("req")?),
            "close_res" => Carrier::CloseResponse(self.id("req")?),
            "cancel_stream" => Carrier::Cancel(self.target("stream", is_peer)?),
            "close_sink" => Carrier::Close(self.target("sink", is_peer)?),
            _ => return Ok((self.bare(&kind, plain, is_peer)?, Vec::new())),
        };
        let payload: Vec<u8> = self.get("payload")?.extract()?;
        let length = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        Ok((Head::Payload { carrier, length }, payload))
    }

    fn bare(&self, kind: &str, plain: &str, is_peer: bool) -> PyResult<Head> {
        let number = |name: &str| -> PyResult<u64> { whole(name, &self.get(name)?, 0, u64::MAX) };
        Ok(match plain {
            "credit" => Head::Credit {
                target: self.target("stream", is_peer)?,
                amount: number("amount")?,
            },
            "partial" => Head::Partial {
                total: number("total_length")?,
            },
            "heartbeat" => Head::Heartbeat {
                pong: flag("pong", &self.get("pong")?)?,
                target: self.target("stream", flag("peer", &self.get("peer")?)?)?,
            },
            "ping_req" => Head::PingRequest(self.id("req")?),
            "pong_req" => Head::PongRequest(self.id("req")?),
            "ack_cancel_req" => Head::AckCancelRequest(self.id("req")?),
            "ack_close_res" => Head::AckCloseResponse(self.id("req")?),
            "ack_cancel_stream" => Head::AckCancel(self.target("stream", is_peer)?),
            "ack_close_sink" => Head::AckClose(self.target("sink", is_peer)?),
            _ => return Err(errors::usage("chunk", &format!("no chunk is a {kind:?}"))),
        })
    }
}
