//! Keyword options from Python into those of a connection and of a listener.

use ackline::bpmux::{ConnectOptions, ListenOptions};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::set_all;

/// Reads all options of a connecting end; unknown names are refused.
pub(super) fn connect(options: &Bound<'_, PyDict>) -> PyResult<ConnectOptions> {
    let mut made = ConnectOptions::default();
    set_all(&mut made, Uses::CONNECT, options)?;
    Ok(made)
}

/// Reads all options of a listener; unknown names are refused.
pub(super) fn listen(options: &Bound<'_, PyDict>) -> PyResult<ListenOptions> {
    let mut made = ListenOptions::default();
    set_all(&mut made, Uses::LISTEN, options)?;
    Ok(made)
}
