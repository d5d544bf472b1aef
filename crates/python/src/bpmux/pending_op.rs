//! What takes its time: begun at once, waited for by readiness, taken once.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ackline::bpmux::{Connection, Error, Response, Sink, Stream};
use pyo3::prelude::*;
use tokio::task::JoinHandle;

use super::connection::BpmuxConnection;
use super::halves::{BpmuxSink, BpmuxStream};
use super::raised::raised;
use super::requests::BpmuxResponse;
use crate::loop_waker::{LoopWaker, Standing};
use crate::outcome::Outcome;
use crate::runtime::Owned;
use crate::{errors, runtime};

/// What came of it.
pub(super) enum Done {
    Connection(Connection),
    Sink(Sink),
    Stream(Stream),
    Duplex(Sink, Stream),
    Response(Response),
    Time(Duration),
    Nothing,
}

struct Task {
    outcome: Outcome<Result<Done, Error>>,
    /// `None` if it was done at once.
    going: Option<JoinHandle<()>>,
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(going) = &self.going {
            going.abort();
        }
    }
}

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct PendingOp {
    task: Owned<Task>,
}

#[pymethods]
impl PendingOp {
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ready = self.ready()?;
        Ok(runtime::block_on(py, runtime::seconds("timeout", timeout)?, ready)?.is_some())
    }

    fn wait_async(&self, py: Python<'_>, waker: &LoopWaker) -> PyResult<Option<Standing>> {
        waker.wait(py, self.ready()?)
    }

    /// What came of it, once; raises why nothing did.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let done = self.task.get()?.outcome.take();
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
    /// Begins it here, so that what is called after it comes after it.
    pub(super) fn begin<F>(py: Python<'_>, future: F) -> PyResult<Self>
    where
        F: Future<Output = Result<Done, Error>> + Send + 'static,
    {
        let handle = runtime::handle(py)?;
        let outcome = Outcome::new();
        let mut future = Box::pin(future);
        let first = py.detach(|| {
            let _inside = handle.enter();
            future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
        });
        let going = match first {
            Poll::Ready(done) => {
                outcome.tell(done);
                None
            }
            Poll::Pending => Some(handle.spawn({
                let outcome = outcome.clone();
                async move { outcome.tell(future.await) }
            })),
        };
        Ok(Self {
            task: Owned::new(Task { outcome, going }),
        })
    }

    fn ready(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        Ok(self.task.get()?.outcome.clone().known())
    }
}

/// What comes of a future if it is there now: for those that can be dropped without a loss.
pub(super) fn polled<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
