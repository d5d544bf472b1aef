//! bpmux for Python: connections by readiness.

mod connection;
mod halves;
mod listener;
mod options;
mod pending_op;
mod raised;
mod requests;
mod running;
mod serving;

pub(crate) use connection::{BpmuxConnection, bpmux_connect, bpmux_connect_within};
pub(crate) use halves::{BpmuxSink, BpmuxStream};
pub(crate) use listener::BpmuxListener;
pub(crate) use pending_op::PendingOp;
pub(crate) use raised::{cancelled, raised};
pub(crate) use requests::{BpmuxRequest, BpmuxResponse};
pub(crate) use serving::BpmuxServing;

use ackline::bpmux::{Payload, Watch};
use ackline_bpmux::{EntityKind, Limits};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::options::whole;
use crate::relink::part;
use crate::{errors, runtime};

const PROTOCOL: &str = "bpmux";

/// A payload that is sent: bytes, or anything else with a buffer of bytes.
fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let text = "a payload is bytes, or has a buffer of bytes";
    part(value)?.ok_or_else(|| errors::usage("payload", text))
}

/// What was received, in one piece.
fn payload_bytes<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyBytes>> {
    if let [part] = payload.as_slice() {
        return Ok(PyBytes::new(py, part));
    }
    PyBytes::new_with(py, payload.bytes(), |whole| {
        let mut rest = whole;
        for part in payload.as_slice() {
            let Some((head, tail)) = rest.split_at_mut_checked(part.len()) else {
                break;
            };
            head.copy_from_slice(part);
            rest = tail;
        }
        Ok(())
    })
}

/// Begins a ping.
fn ping(py: Python<'_>, watch: Watch, timeout: f64) -> PyResult<PendingOp> {
    let timeout = runtime::seconds("timeout", Some(timeout))?.unwrap_or_default();
    PendingOp::begin(py, async move {
        watch.ping(timeout).await.map(pending_op::Done::Time)
    })
}

fn kind_of(name: &str) -> PyResult<EntityKind> {
    match name {
        "sink" => Ok(EntityKind::Sink),
        "stream" => Ok(EntityKind::Stream),
        "duplex" => Ok(EntityKind::Duplex),
        _ => {
            let text = format!("kind is {name:?}; it is \"sink\", \"stream\" or \"duplex\"");
            Err(errors::usage("kind", &text))
        }
    }
}

/// Sets a limit; answers whether the option is one.
fn limit(limits: &mut Limits, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match key {
        "max_payload_bytes" => limits.payload = whole(key, value, 1, u64::MAX)?,
        "max_entities" => limits.entities = whole(key, value, 1, u32::MAX)?,
        "max_requests" => limits.requests = whole(key, value, 1, u32::MAX)?,
        _ => return Ok(false),
    }
    Ok(true)
}
