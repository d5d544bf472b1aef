//! MicroMsg2 for Python: connections by readiness.

mod ahead;
mod broker;
mod connection;
mod filter;
mod listener;
mod message;
mod outgoing;
mod properties;
mod raised;
mod text;
mod url;

use pyo3::prelude::*;

pub(crate) use raised::raised;

/// The classes and functions of this protocol.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<broker::MicroMsgBroker>()?;
    module.add_function(wrap_pyfunction!(broker::micromsg_serve, module)?)?;
    module.add_class::<connection::MicroMsgConnection>()?;
    module.add_class::<filter::MicroMsgFilter>()?;
    module.add_class::<listener::MicroMsgListener>()?;
    module.add_class::<message::MicroMsgMessage>()?;
    module.add_class::<outgoing::MicroMsgBatch>()?;
    module.add_class::<crate::sink::MicroMsgRows>()?;
    module.add_function(wrap_pyfunction!(connection::micromsg_connect, module)?)?;
    module.add_function(wrap_pyfunction!(
        properties::micromsg_read_properties,
        module
    )?)?;
    module.add_function(wrap_pyfunction!(
        properties::micromsg_write_properties,
        module
    )?)?;
    module.add_function(wrap_pyfunction!(url::micromsg_split, module)?)
}

const PROTOCOL: &str = "micromsg";
