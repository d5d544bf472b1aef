//! Keyword options from Python into those of a connection and of a listener.

use ackline::bpmux::{ConnectOptions, ListenOptions};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::set_all;

/// All options of a connecting end; names that are none are refused.
pub(super) fn connect(options: &Bound<'_, PyDict>) -> PyResult<ConnectOptions> {
    let mut made = ConnectOptions::default();
    set_all(&mut made, Uses::CONNECT, options)?;
    Ok(made)
}

/// All options of a listener; names that are none are refused.
pub(super) fn listen(options: &Bound<'_, PyDict>) -> PyResult<ListenOptions> {
    let mut made = ListenOptions::default();
    set_all(&mut made, Uses::LISTEN, options)?;
    Ok(made)
}
