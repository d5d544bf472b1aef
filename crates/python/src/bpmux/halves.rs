//! The two halves of an open sink, stream or duplex, by readiness.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ackline::bpmux::{Error, HeldClose, Interest, Part, Sink, Stream, Watch};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList};

use super::raised::raised;
use crate::errors;
use crate::loop_waker::LoopWaker;
use crate::outcome::polled;
use crate::payloads::{PayloadBatch, bytes_of, joined};
use crate::pending_op::PendingOp;
use crate::runtime::Owned;
use crate::waits::waits;

/// A handle that the peer can end, with a payload that gives the reason.
pub(super) trait Ends {
    /// Returns that payload, once the peer has ended the handle.
    fn ended_with(&self) -> Option<Bytes>;
}

impl Ends for Sink {
    fn ended_with(&self) -> Option<Bytes> {
        polled(self.cancelled())?.ok()
    }
}

impl Ends for Stream {
    fn ended_with(&self) -> Option<Bytes> {
        self.closed()
    }
}

/// The payload of the peer's end, kept for the time after the handle is gone.
pub(super) type Ended = Arc<OnceLock<Bytes>>;

/// A handle that can be given up.
pub(super) struct Held<T> {
    handle: Owned<Mutex<Option<T>>>,
    what: &'static str,
    ended: Ended,
}

impl<T: Send + Ends> Held<T> {
    pub(super) fn new(handle: T, what: &'static str) -> Self {
        Self {
            handle: Owned::new(Mutex::new(Some(handle))),
            what,
            ended: Ended::default(),
        }
    }

    /// Returns the payload that the peer ended the handle with, if it did so before the handle was taken, or while
    /// the end was [noted](Self::note).
    pub(super) fn ended_with<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let handle = self.handle.get()?;
        let payload = py.detach(|| {
            let held = handle.lock().unwrap_or_else(PoisonError::into_inner);
            let now = held.as_ref().and_then(T::ended_with);
            now.or_else(|| self.ended.get().cloned())
        });
        Ok(payload.map(|payload| PyBytes::new(py, &payload)))
    }

    /// Returns the slot for the payload of an end that comes after the handle was taken.
    pub(super) fn note(&self) -> Ended {
        Arc::clone(&self.ended)
    }

    /// Runs `f` on the handle with the interpreter released.
    pub(super) fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&T) -> R + Send,
    ) -> PyResult<R> {
        let handle = self.handle.get()?;
        let result = py.detach(|| {
            let held = handle.lock().unwrap_or_else(PoisonError::into_inner);
            held.as_ref().map(f)
        });
        result.ok_or_else(|| errors::closed(&format!("the {} was ended here", self.what)))
    }

    /// Takes the handle and returns the result of `verb` on it; `None` if it was taken before.
    pub(super) fn end<R: Send>(
        &self,
        py: Python<'_>,
        verb: impl FnOnce(T) -> R + Send,
    ) -> PyResult<Option<R>> {
        let handle = self.handle.get()?;
        let taken = handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // When a handle is dropped, this is mostly `None`: then the interpreter need not be released.
        Ok(taken.map(|taken| {
            py.detach(|| {
                self.keep_end(&taken);
                verb(taken)
            })
        }))
    }

    /// Runs `verb` and takes the handle unless that fails; returns the handle or the failure, `None` if it was taken
    /// before.
    pub(super) fn end_unless_refused<E: Send>(
        &self,
        py: Python<'_>,
        verb: impl FnOnce(&T) -> Result<(), E> + Send,
    ) -> PyResult<Option<Result<T, E>>> {
        let handle = self.handle.get()?;
        Ok(py.detach(|| {
            let mut held = handle.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(refused) = verb(held.as_ref()?) {
                return Some(Err(refused));
            }
            let taken = held.take()?;
            self.keep_end(&taken);
            Some(Ok(taken))
        }))
    }

    fn keep_end(&self, taken: &T) {
        if let Some(payload) = taken.ended_with() {
            // The handle is taken only once.
            let _ = self.ended.set(payload);
        }
    }

    pub(super) fn is_taken(&self, py: Python<'_>) -> PyResult<bool> {
        let handle = self.handle.get()?;
        Ok(py.detach(|| {
            handle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_none()
        }))
    }
}

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxSink {
    sink: Held<Sink>,
}

#[pymethods]
impl BpmuxSink {
    /// Sends a message now; returns whether there was room.
    fn try_send(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<bool> {
        let payload = bytes_of(payload)?;
        match self.sink.with(py, |sink| sink.try_send(payload))? {
            Ok(()) => Ok(true),
            Err(Error::Blocked) => Ok(false),
            Err(error) => Err(raised(error)),
        }
    }

    /// Sends the messages of a batch from `start` on, as many as there is room for; returns how many.
    fn try_send_many(&self, py: Python<'_>, batch: &PayloadBatch, start: usize) -> PyResult<usize> {
        let payloads = batch.payloads().get(start..).unwrap_or_default();
        let (sent, error) = self.sink.with(py, |sink| {
            for (sent, payload) in payloads.iter().enumerate() {
                if let Err(error) = sink.try_send(payload.to_bytes()) {
                    return (sent, Some(error));
                }
            }
            (payloads.len(), None)
        })?;
        match error {
            // The next call raises the error that stopped the rest.
            Some(error) if sent == 0 && !matches!(error, Error::Blocked) => Err(raised(error)),
            _ => Ok(sent),
        }
    }

    /// Raises if messages cannot be sent any more.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let flushed = self.sink.with(py, |sink| polled(sink.flush()))?;
        flushed.map_or(Ok(()), |flushed| flushed.map_err(raised))
    }

    /// Closes the sink; `None` if that was done before.
    fn close(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<Option<PendingOp>> {
        let payload = bytes_of(payload)?;
        let Some(sink) = self.sink.end(py, |sink| sink)? else {
            return Ok(None);
        };
        let ended = self.sink.note();
        let closing = async move {
            let closed = sink.close(payload).await;
            if let Err(Error::Cancelled(payload)) = &closed {
                let _ = ended.set(payload.clone());
            }
            closed.map(|()| None::<()>)
        };
        PendingOp::begin(py, raised, closing).map(Some)
    }

    /// Gives the sink up: it is closed with `dropped`.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.sink.end(py, drop).map(drop)
    }

    /// Returns the payload that the reader cancelled the sink with.
    #[getter]
    fn cancelled<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.sink.ended_with(py)
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.sink.is_taken(py)
    }

    /// Calls back when the reader has cancelled the sink, or when the sink or the connection is over; `None` if that
    /// is so.
    fn call_when_cancelled(
        &self,
        py: Python<'_>,
        waker: &LoopWaker,
        callback: Py<PyAny>,
    ) -> PyResult<Option<u64>> {
        waker.call(py, self.ready(py, "cancelled", 0)?, callback)
    }
}

impl BpmuxSink {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            sink: Held::new(sink, "sink"),
        }
    }

    fn ready(
        &self,
        py: Python<'_>,
        interest: &str,
        size: usize,
    ) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let watch = self.sink.with(py, Sink::watch)?;
        let interest = match interest {
            "room" => Interest::Room(size),
            "flushed" => Interest::Flushed,
            "cancelled" => Interest::Cancelled,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(ready(watch, interest))
    }
}

waits!(BpmuxSink(interest: &str)[size: usize = 0], |it, py| it.ready(py, interest, size));

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxStream {
    stream: Held<Stream>,
    /// While this exists, the close of the writer is not acknowledged.
    close: Owned<Mutex<Option<HeldClose>>>,
}

#[pymethods]
impl BpmuxStream {
    /// The messages that are there, up to `max_messages`; `None` when no more can come.
    fn try_receive<'py>(
        &self,
        py: Python<'py>,
        max_messages: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let received = self
            .stream
            .with(py, |stream| stream.try_receive_many(max_messages))?
            .map_err(raised)?;
        let Some(received) = received else {
            return Ok(None);
        };
        let list = received.iter().map(|one| joined(py, one));
        PyList::new(py, list.collect::<PyResult<Vec<_>>>()?).map(Some)
    }

    /// The next part of a message and whether it is the last one; `None` when no more can come, false when nothing is
    /// there yet.
    fn try_receive_part<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let received = self.stream.with(py, Stream::try_receive_part)?;
        match received {
            Ok(None) => Ok(None),
            Ok(Some(Part { payload, is_last })) => {
                let part = (joined(py, &payload)?, is_last).into_pyobject(py)?;
                Ok(Some(part.into_any()))
            }
            Err(Error::Blocked) => Ok(Some(PyBool::new(py, false).to_owned().into_any())),
            Err(error) => Err(raised(error)),
        }
    }

    /// Returns the payload that the writer closed the stream with.
    #[getter]
    fn closed<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.stream.ended_with(py)
    }

    fn grant_credit(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = crate::options::whole("count", count, 0, u64::MAX)?;
        let granted = self.stream.with(py, |stream| stream.grant_credit(bytes))?;
        granted.map_err(raised)
    }

    /// Seconds to a pong.
    fn ping(&self, py: Python<'_>, timeout: f64) -> PyResult<PendingOp> {
        super::ping(py, self.stream.with(py, Stream::watch)?, timeout)
    }

    /// Cancels the stream; `None` if that was done before. If the cancel is refused, it changes nothing.
    fn cancel(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<Option<PendingOp>> {
        let payload = bytes_of(payload)?;
        let begun = self
            .stream
            .end_unless_refused(py, |stream| stream.begin_cancel(payload))?;
        let Some(stream) = begun.transpose().map_err(raised)? else {
            return Ok(None);
        };
        let cancelling = async move { stream.cancel_acknowledged().await.map(|()| None::<()>) };
        PendingOp::begin(py, raised, cancelling).map(Some)
    }

    /// Gives the stream up: it is cancelled, if it has not ended.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.stream.end(py, drop).map(drop)
    }

    #[getter]
    fn is_gone(&self, py: Python<'_>) -> PyResult<bool> {
        self.stream.is_taken(py)
    }

    /// Releases the acknowledgement of the writer's close.
    fn release_close(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.close.lock()?.take();
        py.detach(|| drop(held));
        Ok(())
    }

    /// Cancels the stream with `payload` instead, if the acknowledgement is held.
    fn refuse_close(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let payload = bytes_of(payload)?;
        let held = self.close.lock()?.take();
        if let Some(held) = held {
            py.detach(|| held.refuse(payload));
        }
        Ok(())
    }
}

impl BpmuxStream {
    pub(super) fn new(stream: Stream) -> Self {
        Self::held(stream, None)
    }

    /// The close of its writer is acknowledged when `close` is dropped.
    pub(super) fn held(stream: Stream, close: Option<HeldClose>) -> Self {
        Self {
            stream: Held::new(stream, "stream"),
            close: Owned::new(Mutex::new(close)),
        }
    }
}

waits!(BpmuxStream(), |it, py| {
    it.stream
        .with(py, Stream::watch)
        .map(|watch| ready(watch, Interest::Message))
});

/// A wait that owns its watch.
pub(super) async fn ready(watch: Watch, interest: Interest) {
    watch.ready(interest).await;
}
