//! bpmux for Python: the bare machine, single chunks, and connections by readiness.

mod chunks;
mod connection;
mod halves;
mod listener;
mod machine;
mod options;
mod pending_op;
mod raised;
mod requests;
mod running;
mod serving;

pub(crate) use chunks::{bpmux_decode, bpmux_encode};
pub(crate) use connection::{BpmuxConnection, bpmux_connect, bpmux_connect_within};
pub(crate) use halves::{BpmuxSink, BpmuxStream};
pub(crate) use listener::BpmuxListener;
pub(crate) use machine::BpmuxMachine;
pub(crate) use pending_op::PendingOp;
pub(crate) use raised::{cancelled, raised};
pub(crate) use requests::{BpmuxRequest, BpmuxResponse};
pub(crate) use serving::BpmuxServing;

use ackline::bpmux::Watch;
use ackline_bpmux::{Config, CreditPolicy, EntityKind, Target};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::options::{machine as machine_options, refuse, whole};
use crate::{errors, runtime};

const PROTOCOL: &str = "bpmux";

/// Begins a ping.
fn ping(py: Python<'_>, watch: Watch, timeout: f64) -> PyResult<PendingOp> {
    let timeout = runtime::seconds("timeout", Some(timeout))?.unwrap_or_default();
    PendingOp::begin(py, async move {
        watch.ping(timeout).await.map(pending_op::Done::Time)
    })
}

/// `"top"`, `("own", id)` or `("peer", id)`.
fn target_of(value: &Bound<'_, PyAny>) -> PyResult<Target> {
    if value.extract::<&str>().is_ok_and(|name| name == "top") {
        return Ok(Target::Top);
    }
    let pair: Option<(String, Bound<'_, PyAny>)> = value.extract().ok();
    match pair.as_ref().map(|(side, id)| (side.as_str(), id)) {
        Some(("own", id)) => whole("id", id, 0, u32::MAX).map(Target::Own),
        Some(("peer", id)) => whole("id", id, 0, u32::MAX).map(Target::Peer),
        _ => {
            let text = format!("target is {value}; it is \"top\", (\"own\", id) or (\"peer\", id)");
            Err(errors::usage("target", &text))
        }
    }
}

fn target(py: Python<'_>, target: Target) -> PyResult<Bound<'_, PyAny>> {
    let (side, id) = match target {
        Target::Top => return Ok("top".into_pyobject(py)?.into_any()),
        Target::Own(id) => ("own", id),
        Target::Peer(id) => ("peer", id),
    };
    Ok(PyTuple::new(
        py,
        [
            side.into_pyobject(py)?.into_any(),
            id.into_pyobject(py)?.into_any(),
        ],
    )?
    .into_any())
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

/// The configuration of a bare machine: no timers, and credit by hand, unless told otherwise.
fn bare(options: &Bound<'_, PyDict>) -> PyResult<Config> {
    let mut config = Config::default();
    let mut others = machine_options(&mut config, options)?;
    if let Some(value) = options.get_item("credit")? {
        config.credit = automatic_credit(&value)?.unwrap_or(CreditPolicy::Manual);
        others.retain(|name| name != "credit");
    }
    refuse(&others)?;
    Ok(config)
}

/// `None` is credit by hand; `(floor, ceiling, budget)` is automatic credit.
fn automatic_credit(value: &Bound<'_, PyAny>) -> PyResult<Option<CreditPolicy>> {
    if value.is_none() {
        return Ok(None);
    }
    let parts: Option<[Bound<'_, PyAny>; 3]> = value.extract().ok();
    let Some([floor, ceiling, budget]) = parts else {
        let text = format!("credit is {value}; it is None or (floor, ceiling, budget) in bytes");
        return Err(errors::usage("credit", &text));
    };
    Ok(Some(CreditPolicy::Automatic {
        floor: whole("credit_floor", &floor, 1, u64::MAX)?,
        ceiling: whole("credit_ceiling", &ceiling, 1, u64::MAX)?,
        budget: whole("credit_budget", &budget, 0, u64::MAX)?,
    }))
}
