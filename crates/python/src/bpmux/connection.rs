//! A connection by readiness: verbs that never wait, and waits that take nothing.

use ackline::bpmux::{
    Connection, EntityKind, Error, HeldClose, Incoming, Interest, Payload, Retry, connect,
    connect_within,
};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict};

use super::halves::{BpmuxSink, BpmuxStream, ready};
use super::kind_of;
use super::raised::raised;
use super::requests::{BpmuxRequest, BpmuxResponse};
use super::serving::BpmuxServing;
use crate::dicts::{attributes, set_fields};
use crate::loop_waker::{LoopWaker, Standing};
use crate::options::made;
use crate::outcome::polled;
use crate::payloads::{bytes_of, joined};
use crate::pending_op::PendingOp;
use crate::runtime::{Owned, seconds};
use crate::waits::waits;
use crate::{errors, runtime};

/// See `_bpmux_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxConnection {
    connection: Owned<Connection>,
}

/// An arrival from the peer: its kind, its handles, and its payload. After the kind `end`, nothing more comes.
pub(super) type Arrived<'py> = (
    &'static str,
    Option<BpmuxRequest>,
    Option<BpmuxSink>,
    Option<BpmuxStream>,
    Option<Bound<'py, PyBytes>>,
);
/// Name, identity and attributes.
type Peer<'py> = (String, String, Bound<'py, PyDict>);

/// Connects.
#[pyfunction]
pub(crate) fn bpmux_connect(
    py: Python<'_>,
    url: String,
    options: &Bound<'_, PyDict>,
) -> PyResult<PendingOp> {
    let options = made(Uses::CONNECT, options)?;
    PendingOp::begin(py, raised, async move {
        connect(&url, options).await.map(BpmuxConnection::new)
    })
}

/// Connects, and tries again while no peer is there: for `timeout` seconds, waiting at most `wait_max` seconds
/// between attempts. `failures` is the number of failed connections before this call.
#[pyfunction]
pub(crate) fn bpmux_connect_within(
    py: Python<'_>,
    url: String,
    options: &Bound<'_, PyDict>,
    timeout: f64,
    wait_max: f64,
    failures: u32,
) -> PyResult<PendingOp> {
    let options = made(Uses::CONNECT, options)?;
    let retry = Retry {
        timeout: seconds("timeout", Some(timeout))?.unwrap_or_default(),
        wait_max: seconds("wait_max", Some(wait_max))?.unwrap_or_default(),
        failures,
    };
    PendingOp::begin(py, raised, async move {
        let connected = connect_within(&url, options, retry).await;
        connected.map(BpmuxConnection::new)
    })
}

#[pymethods]
impl BpmuxConnection {
    /// Sends a request now; `None` without room.
    fn try_request(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
    ) -> PyResult<Option<BpmuxResponse>> {
        let connection = self.connection.get()?;
        let payload = bytes_of(payload)?;
        match py.detach(|| connection.try_request(payload)) {
            Ok(response) => Ok(Some(BpmuxResponse::new(response))),
            Err(Error::Blocked) => Ok(None),
            Err(error) => Err(raised(error)),
        }
    }

    /// Sends a request, in its turn.
    fn request(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<PendingOp> {
        let connection = self.connection.get()?.clone();
        let payload = bytes_of(payload)?;
        PendingOp::begin(py, raised, async move {
            connection.request(payload).await.map(BpmuxResponse::new)
        })
    }

    /// Sends a request and waits for its response; `None` without room, false when the response did not come in time.
    fn call<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = seconds("timeout", timeout)?;
        let (connection, payload) = (self.connection.get()?, bytes_of(payload)?);
        let answer = async { connection.try_request(payload)?.response().await };
        match runtime::block_on(py, timeout, answer)? {
            None => Ok(Some(PyBool::new(py, false).to_owned().into_any())),
            Some(Err(Error::Blocked)) => Ok(None),
            Some(answer) => {
                let answer = joined(py, &answer.map_err(raised)?)?;
                Ok(Some(answer.into_any()))
            }
        }
    }

    /// Does the same in the event loop of `waker`, which reports the response; `None` without room.
    fn call_async(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        waker: &LoopWaker,
    ) -> PyResult<Option<Standing>> {
        let (connection, payload) = (self.connection.get()?, bytes_of(payload)?);
        let response = match py.detach(|| connection.try_request(payload)) {
            Err(Error::Blocked) => return Ok(None),
            response => response.map_err(raised)?,
        };
        // When the wait is given up, it is dropped, and the request is cancelled.
        let answer = async move { response.response().await };
        let standing = waker.tell(py, answer, |py, answer| {
            let answer = joined(py, &answer.map_err(raised)?)?;
            Ok(answer.into_any().unbind())
        });
        standing.map(Some)
    }

    /// Opens a `sink`, `stream` or `duplex`.
    fn open(&self, py: Python<'_>, kind: &str, payload: &Bound<'_, PyAny>) -> PyResult<PendingOp> {
        let connection = self.connection.get()?.clone();
        let (kind, payload) = (kind_of(kind)?, bytes_of(payload)?);
        match kind {
            EntityKind::Sink => PendingOp::begin(py, raised, async move {
                connection.open_sink(payload).await.map(BpmuxSink::new)
            }),
            EntityKind::Stream => PendingOp::begin(py, raised, async move {
                connection.open_stream(payload).await.map(BpmuxStream::new)
            }),
            EntityKind::Duplex => PendingOp::begin(py, raised, async move {
                let (sink, stream) = connection.open_duplex(payload).await?;
                Ok((BpmuxSink::new(sink), BpmuxStream::new(stream)))
            }),
        }
    }

    /// Returns the peer's next arrival, if there is one.
    fn try_accept<'py>(&self, py: Python<'py>) -> PyResult<Option<Arrived<'py>>> {
        let connection = self.connection.get()?;
        let Some(accepted) = py.detach(|| polled(connection.accept())) else {
            return Ok(None);
        };
        let accepted = accepted.map_err(raised)?;
        arrived(py, accepted.map(|incoming| (incoming, None))).map(Some)
    }

    /// Like `try_accept`, but the close of a direction that this end reads is held until `release_close`.
    fn try_accept_held<'py>(&self, py: Python<'py>) -> PyResult<Option<Arrived<'py>>> {
        let connection = self.connection.get()?;
        let Some(accepted) = py.detach(|| polled(connection.accept_held())) else {
            return Ok(None);
        };
        arrived(py, accepted.map_err(raised)?).map(Some)
    }

    /// Returns the queue for threads that share the peer's arrivals: at most `handlers` handlers run at once, and at
    /// most `abandoned` more after their call was given up.
    fn serving(&self, handlers: usize, abandoned: usize) -> PyResult<BpmuxServing> {
        let connection = self.connection.get()?.clone();
        Ok(BpmuxServing::new(connection, handlers, abandoned))
    }

    /// The top-level's sink.
    fn sink(&self) -> PyResult<BpmuxSink> {
        Ok(BpmuxSink::new(self.connection.get()?.sink()))
    }

    /// The top-level's stream.
    fn stream(&self) -> PyResult<BpmuxStream> {
        Ok(BpmuxStream::new(self.connection.get()?.stream()))
    }

    /// Closes the top-level.
    fn close(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let (connection, payload) = (self.connection.get()?, bytes_of(payload)?);
        py.detach(|| connection.close(payload)).map_err(raised)
    }

    /// Cancels the top-level.
    fn cancel(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let (connection, payload) = (self.connection.get()?, bytes_of(payload)?);
        py.detach(|| connection.cancel(payload)).map_err(raised)
    }

    /// Ends both directions of the top-level, and waits for the connection's end.
    fn shutdown(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<PendingOp> {
        let timeout = seconds("timeout", timeout)?;
        let connection = self.connection.get()?.clone();
        PendingOp::begin(py, raised, async move {
            connection.shutdown(timeout).await.map(|()| None::<()>)
        })
    }

    /// Ends the connection at once.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let connection = self.connection.get()?;
        py.detach(|| connection.link().abort());
        Ok(())
    }

    /// Seconds to a pong.
    fn ping(&self, py: Python<'_>, timeout: f64) -> PyResult<PendingOp> {
        super::ping(py, self.connection.get()?.watch(), timeout)
    }

    /// Whether it has ended.
    #[getter]
    fn ended(&self) -> PyResult<bool> {
        Ok(self.connection.get()?.link().is_ended())
    }

    /// Calls back in the event loop of `waker` when the peer has begun something; `None` if it has.
    fn call_at_arrival(
        &self,
        py: Python<'_>,
        waker: &LoopWaker,
        callback: Py<PyAny>,
    ) -> PyResult<Option<u64>> {
        waker.call(py, self.ready("arrival")?, callback)
    }

    /// Name, identity and attributes of the connecting peer; only at the listener's end.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Option<Peer<'py>>> {
        let Some(peer) = self.connection.get()?.peer() else {
            return Ok(None);
        };
        Ok(Some((
            peer.name.to_string(),
            peer.sender.to_string(),
            attributes(py, peer)?,
        )))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let connection = self.connection.get()?;
        let (stats, link) = py.detach(|| (connection.stats(), connection.link_stats()));
        let dict = PyDict::new(py);
        set_fields!(
            dict,
            stats,
            payloads_sent,
            bytes_sent,
            payloads_received,
            bytes_received,
            own_entities,
            peer_entities,
            own_requests,
            peer_requests,
            top_level_credit,
            window_bytes,
            waiting_bytes
        );
        set_fields!(dict, link, bytes_in, bytes_out);
        Ok(dict)
    }
}

impl BpmuxConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Owned::new(connection),
        }
    }

    fn ready(&self, interest: &str) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let watch = self.connection.get()?.watch();
        let interest = match interest {
            "arrival" => Interest::Arrival,
            "end" => Interest::End,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(ready(watch, interest))
    }
}

waits!(BpmuxConnection(interest: &str), |it, py| it.ready(interest));

/// Converts an arrival for Python, with the hold on its close if there is one.
pub(super) fn arrived(
    py: Python<'_>,
    accepted: Option<(Incoming, Option<HeldClose>)>,
) -> PyResult<Arrived<'_>> {
    let payload = |payload: &Payload| joined(py, payload).map(Some);
    let (incoming, close) = accepted.map_or((None, None), |(it, close)| (Some(it), close));
    Ok(match incoming {
        None => ("end", None, None, None, None),
        Some(Incoming::Request(request)) => {
            let bytes = payload(request.payload())?;
            let request = BpmuxRequest::new(request);
            ("request", Some(request), None, None, bytes)
        }
        Some(Incoming::Sink(stream, begun)) => {
            let stream = BpmuxStream::held(stream, close);
            ("sink", None, None, Some(stream), payload(&begun)?)
        }
        Some(Incoming::Stream(sink, begun)) => {
            let sink = BpmuxSink::new(sink);
            ("stream", None, Some(sink), None, payload(&begun)?)
        }
        Some(Incoming::Duplex(sink, stream, begun)) => {
            let (sink, stream) = (BpmuxSink::new(sink), BpmuxStream::held(stream, close));
            ("duplex", None, Some(sink), Some(stream), payload(&begun)?)
        }
        Some(_) => return Err(errors::internal(&"something unknown was begun")),
    })
}
