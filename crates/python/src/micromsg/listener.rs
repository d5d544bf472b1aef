//! A listener: hands out each connection once.

use ackline::micromsg::{ListenOptions, Listener, listen};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::MicroMsgConnection;
use super::raised::raised;
use super::text::Text;
use crate::listeners::{listened, listener};
use crate::options::made;

listener!(
    /// See `_micromsg_core.pyi`.
    MicroMsgListener(Listener),
    MicroMsgConnection
);

#[pymethods]
impl MicroMsgListener {
    #[new]
    fn new(py: Python<'_>, url: Text<'_>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options: ListenOptions = made(Uses::LISTEN, options)?;
        listened(py, listen(url.0, options), raised).map(Self::from)
    }
}
