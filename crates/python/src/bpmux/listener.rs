//! A listener: hands out each connection once.

use std::sync::{Arc, Mutex, PoisonError};

use ackline::bpmux::{Connection, Listener, listen};
use ackline_link::AcceptorStats;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::BpmuxConnection;
use super::options;
use super::raised::raised;
use crate::accepting::Accepting;
use crate::runtime::Owned;
use crate::waits::waits;
use crate::{errors, runtime};

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxListener {
    accepting: Owned<Accepting<Connection, Listener>>,
    url: String,
    /// What it had counted when it was closed.
    counted: Mutex<AcceptorStats>,
}

#[pymethods]
impl BpmuxListener {
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = options::listen(options)?;
        let listening = runtime::block_on(py, None, listen(url, options))?;
        let listener = listening
            .ok_or_else(|| errors::timeout("listening took too long"))?
            .map_err(raised)?;
        let url = listener.url().to_owned();
        let next = async |listener: Arc<Listener>| listener.accept().await.ok();
        let accepting = Accepting::start(py, listener, next)?;
        Ok(Self {
            accepting: Owned::new(accepting),
            url,
            counted: Mutex::default(),
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The next connection, if one is there.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<BpmuxConnection>> {
        let connection = self.accepting.get()?.pop(py);
        Ok(connection.map(BpmuxConnection::new))
    }

    /// Closes the socket, which is closed when this returns; connections that were handed out go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let close = async |listener: Arc<Listener>| {
            listener.close().await;
            *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = listener.stats();
        };
        self.accepting.get()?.close(py, close)
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.accepting.get()?.is_closed())
    }

    /// Health checks, and connections that were turned away by the reason's code.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.accepting.get()?.with(py, Listener::stats);
        let counted = || self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = stats.unwrap_or_else(|| counted().clone());
        let dict = PyDict::new(py);
        dict.set_item("health_checks", stats.health_checks)?;
        dict.set_item("turned_away", stats.turned_away)?;
        Ok(dict)
    }
}

waits!(BpmuxListener(), |it, py| it
    .accepting
    .get()
    .map(Accepting::ready));
