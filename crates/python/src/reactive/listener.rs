//! A listener: hands out each connection once.

use ackline::reactive::{ListenOptions, Listener, listen};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::ReactiveConnection;
use super::extensions::{Given, configure};
use super::raised::raised;
use crate::dicts::set_fields;
use crate::options::made;
use crate::runtime::Owned;
use crate::waits::waits;
use crate::{errors, runtime};

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveListener {
    listener: Owned<Listener>,
    url: String,
}

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
        let listening = runtime::block_on(py, None, listen(url, options))?;
        let listener = listening
            .ok_or_else(|| errors::timeout("listening took too long"))?
            .map_err(raised)?;
        Ok(Self {
            url: listener.url().to_owned(),
            listener: Owned::new(listener),
        })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Returns the next connection, if there is one.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<ReactiveConnection>> {
        let listener = self.listener.get()?;
        let connection = py.detach(|| listener.try_accept());
        Ok(connection.map(ReactiveConnection::new))
    }

    /// Closes the socket and returns once it is closed; connections that were handed out go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        runtime::finish(py, self.listener.get()?.listening().end())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.listener.get()?.listening().is_closed())
    }

    /// Health checks, and connections that were turned away by the reason's code.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.listener.get()?.stats();
        let dict = PyDict::new(py);
        set_fields!(dict, stats, health_checks, turned_away);
        Ok(dict)
    }
}

waits!(ReactiveListener(), |it, py| it
    .listener
    .get()
    .map(|it| it.listening().ready()));
