//! A listener: hands out each connection once.

use ackline::reactive::{ListenOptions, Listener, listen};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::ReactiveConnection;
use super::extensions::{Given, configure};
use super::raised::raised;
use crate::listeners::{listened, listener};
use crate::options::made;

listener!(
    /// See `_reactive_core.pyi`.
    ReactiveListener(Listener),
    ReactiveConnection
);

#[pymethods]
impl ReactiveListener {
    #[new]
    fn new(
        py: Python<'_>,
        url: &str,
        options: &Bound<'_, PyDict>,
        extensions: Given,
    ) -> PyResult<Self> {
        let mut options: ListenOptions = made(Uses::LISTEN, options)?;
        configure(&mut options.link, extensions)?;
        listened(py, listen(url, options), raised).map(Self::from)
    }
}
