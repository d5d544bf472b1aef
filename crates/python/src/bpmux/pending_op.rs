//! A pending operation: it is begun at once, waited for by readiness, and its result is taken once.

use std::future::Future;
use std::time::Duration;

use ackline::bpmux::{Connection, Error, Response, Sink, Stream};
use pyo3::prelude::*;

use super::connection::BpmuxConnection;
use super::halves::{BpmuxSink, BpmuxStream};
use super::raised::raised;
use super::requests::BpmuxResponse;
use crate::errors;
use crate::outcome::Pending;
use crate::runtime::Owned;
use crate::waits::waits;

/// The result of an operation.
pub(super) enum Done {
    Connection(Connection),
    Sink(Sink),
    Stream(Stream),
    Duplex(Sink, Stream),
    Response(Response),
    Time(Duration),
    Nothing,
}

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct PendingOp {
    operation: Owned<Pending<Result<Done, Error>>>,
}

#[pymethods]
impl PendingOp {
    /// Returns the result, once; raises the error if the operation failed.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let done = self.operation.get()?.take();
        let done = done.ok_or_else(|| errors::usage("not_done", "it goes on, or was taken"))?;
        Ok(match done.map_err(raised)? {
            Done::Connection(connection) => {
                Py::new(py, BpmuxConnection::new(connection))?.into_any()
            }
            Done::Sink(sink) => Py::new(py, BpmuxSink::new(sink))?.into_any(),
            Done::Stream(stream) => Py::new(py, BpmuxStream::new(stream))?.into_any(),
            Done::Duplex(sink, stream) => (BpmuxSink::new(sink), BpmuxStream::new(stream))
                .into_pyobject(py)?
                .into_any()
                .unbind(),
            Done::Response(response) => Py::new(py, BpmuxResponse::new(response))?.into_any(),
            Done::Time(time) => time.as_secs_f64().into_pyobject(py)?.into_any().unbind(),
            Done::Nothing => py.None(),
        })
    }
}

impl PendingOp {
    /// Begins the operation in this thread, so that calls made after it take effect after it.
    pub(super) fn begin<F>(py: Python<'_>, future: F) -> PyResult<Self>
    where
        F: Future<Output = Result<Done, Error>> + Send + 'static,
    {
        let operation = Pending::begin(py, future)?;
        Ok(Self {
            operation: Owned::new(operation),
        })
    }
}

waits!(PendingOp(), |it, py| it.operation.get().map(Pending::known));
