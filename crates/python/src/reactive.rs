//! The Reactive Streams network protocol for Python: connections by readiness.

mod connection;
mod elements;
mod extensions;
mod listener;
mod names;
mod publication;
mod raised;
mod subscription;

use pyo3::prelude::*;

pub(crate) use raised::raised;

/// The classes and functions of this protocol.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<connection::ReactiveConnection>()?;
    module.add_class::<elements::ReactiveElements>()?;
    module.add_class::<listener::ReactiveListener>()?;
    module.add_class::<names::ReactiveNames>()?;
    module.add_class::<publication::ReactivePublication>()?;
    module.add_class::<publication::ReactiveRequest>()?;
    module.add_class::<subscription::ReactiveSubscription>()?;
    module.add_class::<crate::sink::ReactiveRows>()?;
    module.add_function(wrap_pyfunction!(connection::reactive_connect, module)?)?;
    module.add_function(wrap_pyfunction!(connection::reactive_split, module)?)
}

const PROTOCOL: &str = "reactive";
