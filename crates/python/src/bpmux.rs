//! bpmux for Python: connections by readiness.

mod connection;
mod halves;
mod listener;
mod raised;
mod requests;
mod running;
mod serving;

use crate::pending_op::PendingOp;
pub(crate) use raised::{cancelled, raised};

use ackline::bpmux::{EntityKind, Watch};
use pyo3::prelude::*;

use crate::{errors, runtime};

/// The classes and functions of this protocol.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<connection::BpmuxConnection>()?;
    module.add_class::<listener::BpmuxListener>()?;
    module.add_class::<requests::BpmuxRequest>()?;
    module.add_class::<requests::BpmuxResponse>()?;
    module.add_class::<serving::BpmuxServing>()?;
    module.add_class::<halves::BpmuxSink>()?;
    module.add_class::<halves::BpmuxStream>()?;
    module.add_function(wrap_pyfunction!(connection::bpmux_connect, module)?)?;
    module.add_function(wrap_pyfunction!(connection::bpmux_connect_within, module)?)
}

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
