//! bpmux for Python: connections by readiness.

mod connection;
mod halves;
mod listener;
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

use ackline::bpmux::{EntityKind, Watch};
use ackline_core::options::{Options, Uses};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::set_all;
use crate::{errors, runtime};

const PROTOCOL: &str = "bpmux";

/// Reads all options of an end; unknown names are refused.
fn made<T: Default + Options>(uses: Uses, given: &Bound<'_, PyDict>) -> PyResult<T> {
    let mut made = T::default();
    set_all(&mut made, uses, given)?;
    Ok(made)
}

/// Begins a ping.
fn ping(py: Python<'_>, watch: Watch, timeout: f64) -> PyResult<PendingOp> {
    let timeout = runtime::seconds("timeout", Some(timeout))?.unwrap_or_default();
    PendingOp::begin(py, async move {
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
