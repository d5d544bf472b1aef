//! A listener: hands out each connection once.

use ackline::bpmux::{Listener, listen};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::BpmuxConnection;
use super::raised::raised;
use crate::listeners::{listened, listener};
use crate::options::made;

listener!(
    /// See `_bpmux_core.pyi`.
    BpmuxListener(Listener),
    BpmuxConnection
);

#[pymethods]
impl BpmuxListener {
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = made(Uses::LISTEN, options)?;
        listened(py, listen(url, options), raised).map(Self::from)
    }
}
