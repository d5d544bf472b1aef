//! Requests from both sides, by readiness.

use ackline::bpmux::{Error, Interest, Request, Response};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::halves::{Ends, Held, ready};
use super::raised::raised;
use crate::loop_waker::LoopWaker;
use crate::outcome::polled;
use crate::payloads::{bytes_of, joined};
use crate::pending_op::PendingOp;
use crate::waits::waits;

impl Ends for Request {
    fn ended_with(&self) -> Option<Bytes> {
        polled(self.cancelled())?.ok()
    }
}

impl Ends for Response {
    fn ended_with(&self) -> Option<Bytes> {
        // The call that waits for the request reports its end.
        None
    }
}

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxResponse {
    response: Held<Response>,
}

#[pymethods]
impl BpmuxResponse {
    /// The response, once, when it is there; raises if it will not come.
    fn try_response<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let answered = self
            .response
            .with(py, |response| polled(response.response()))?;
        let Some(answered) = answered else {
            return Ok(None);
        };
        joined(py, &answered.map_err(raised)?).map(Some)
    }

    /// Gives the request up; does nothing if that was done before. If the cancel is refused, it changes nothing.
    fn cancel(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let payload = bytes_of(payload)?;
        let cancelled = self
            .response
            .end_unless_refused(py, |response| response.cancel(payload))?;
        let response = cancelled.transpose().map_err(raised)?;
        py.detach(|| drop(response));
        Ok(())
    }

    /// Gives the request up, in any state.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.response.end(py, drop).map(drop)
    }

    /// Seconds to a pong.
    fn ping(&self, py: Python<'_>, timeout: f64) -> PyResult<PendingOp> {
        super::ping(py, self.response.with(py, Response::watch)?, timeout)
    }
}

impl BpmuxResponse {
    pub(super) fn new(response: Response) -> Self {
        Self {
            response: Held::new(response, "request"),
        }
    }
}

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxRequest {
    request: Held<Request>,
}

#[pymethods]
impl BpmuxRequest {
    /// Answers it.
    fn respond(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end(py, bytes_of(payload)?, Request::respond)
    }

    /// Ends it without a response.
    fn close(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end(py, bytes_of(payload)?, Request::close)
    }

    /// Gives the request up: it is closed with `dropped`, if it was not answered.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.request.end(py, drop).map(drop)
    }

    /// Returns the payload that the peer gave the request up with.
    #[getter]
    fn cancelled<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.request.ended_with(py)
    }

    /// Calls back when the request is cancelled or over, or the connection is over; `None` if that is so.
    fn call_when_cancelled(
        &self,
        py: Python<'_>,
        waker: &LoopWaker,
        callback: Py<PyAny>,
    ) -> PyResult<Option<u64>> {
        let watch = self.request.with(py, Request::watch)?;
        waker.call(py, ready(watch, Interest::Cancelled), callback)
    }
}

impl BpmuxRequest {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request: Held::new(request, "request"),
        }
    }

    fn end(
        &self,
        py: Python<'_>,
        payload: Bytes,
        verb: fn(Request, Bytes) -> Result<(), Error>,
    ) -> PyResult<()> {
        let answered = || crate::errors::usage("already_ended", "the request was answered");
        let ended = self.request.end(py, |request| verb(request, payload))?;
        let ended = ended.ok_or_else(answered)?;
        if let Err(Error::Cancelled(payload)) = &ended {
            let _ = self.request.note().set(payload.clone());
        }
        ended.map_err(raised)
    }
}

waits!(BpmuxResponse(), |it, py| {
    it.response
        .with(py, Response::watch)
        .map(|watch| ready(watch, Interest::Answer))
});

waits!(BpmuxRequest(), |it, py| {
    it.request
        .with(py, Request::watch)
        .map(|watch| ready(watch, Interest::Cancelled))
});
