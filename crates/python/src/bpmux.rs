//! bpmux for Python: connections by readiness.

mod connection;
mod halves;
mod listener;
mod raised;
mod requests;
mod running;
mod serving;

use crate::pending_op::PendingOp;
pub(crate) use connection::{BpmuxConnection, bpmux_connect, bpmux_connect_within};
pub(crate) use halves::{BpmuxSink, BpmuxStream};
pub(crate) use listener::BpmuxListener;
pub(crate) use raised::{cancelled, raised};
pub(crate) use requests::{BpmuxRequest, BpmuxResponse};
pub(crate) use serving::BpmuxServing;

use ackline::bpmux::{EntityKind, Watch};
use pyo3::prelude::*;

use crate::{errors, runtime};

const PROTOCOL: &str = "bpmux";

/// Begins a ping.
fn ping(py: Python<'_>, watch: Watch, timeout: f64) -> PyResult<PendingOp> {
    let timeout = runtime::seconds("timeout", Some(timeout))?.unwrap_or_default();
    PendingOp::begin(py, raised, async move {
        watch.ping(timeout).await.map(|time| time.as_secs_f64())
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
