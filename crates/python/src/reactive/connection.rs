//! A connection by readiness: verbs that never wait, and waits that take nothing.

use ackline::reactive::{ConnectOptions, Connection, Demand, Error, Interest, connect, split_url};
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::extensions::{Given, configure, fields_of, told};
use super::publication::ReactiveRequest;
use super::raised::{raised, unless_blocked};
use super::subscription::ReactiveSubscription;
use crate::dicts::{attributes, set_fields};
use crate::errors;
use crate::options::made;
use crate::pending_op::PendingOp;
use crate::runtime::{Owned, seconds};
use crate::waits::waits;

/// See `_reactive_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct ReactiveConnection {
    connection: Owned<Connection>,
}

/// Name, identity and attributes.
type Peer<'py> = (String, String, Bound<'py, PyDict>);
/// A subscription of the peer, with its publisher's name and its initial demand.
type Arrived = (ReactiveRequest, String, u64);

/// Connects.
#[pyfunction]
pub(crate) fn reactive_connect(
    py: Python<'_>,
    url: String,
    options: &Bound<'_, PyDict>,
    extensions: Given,
) -> PyResult<PendingOp> {
    let mut options: ConnectOptions = made(Uses::CONNECT, options)?;
    configure(&mut options.link, extensions)?;
    PendingOp::begin(py, raised, async move {
        connect(&url, options).await.map(ReactiveConnection::new)
    })
}

/// The URL of the place, and the publisher's name.
#[pyfunction]
pub(crate) fn reactive_split(url: &str) -> PyResult<(String, String)> {
    split_url(url).map_err(|error| errors::open(&error))
}

#[pymethods]
impl ReactiveConnection {
    /// Subscribes. With `low`, elements are requested by themselves when so many are left of `most`; without it, `most` are
    /// requested once.
    fn subscribe(
        &self,
        py: Python<'_>,
        publisher: &str,
        most: u64,
        low: Option<u64>,
    ) -> PyResult<ReactiveSubscription> {
        let connection = self.connection.get()?;
        let demand = low.map_or(Demand::by_hand(most), |low| {
            Demand::with_low_water(most, low)
        });
        let subscribed = py.detach(|| connection.try_subscribe(publisher, demand));
        subscribed.map(ReactiveSubscription::new).map_err(raised)
    }

    /// Returns the peer's next subscription; `None` before it comes, false when no more come.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<Accepted>> {
        let connection = self.connection.get()?;
        let accepted = py.detach(|| connection.try_accept());
        let accepted = unless_blocked(accepted)?;
        Ok(accepted.map(|request| match request {
            None => Accepted::Over(false),
            Some(request) => {
                let (name, demand) = (request.publisher().to_owned(), request.initial_demand());
                Accepted::Request((ReactiveRequest::new(request), name, demand))
            }
        }))
    }

    /// The extensions that both ends support; `None` before the peer's hello. Raises the end of a connection that ended
    /// before it.
    fn connected(&self, py: Python<'_>) -> PyResult<Option<Vec<u64>>> {
        let connection = self.connection.get()?;
        unless_blocked(py.detach(|| connection.try_connected()))
    }

    /// Sends a message of an active extension.
    fn send_extension(
        &self,
        py: Python<'_>,
        message_type: u64,
        fields: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let connection = self.connection.get()?;
        let fields = fields_of(fields)?;
        let sent = py.detach(|| connection.send_extension(message_type, fields));
        sent.map_err(raised)
    }

    /// The next message of an extension; `None` before it comes, false when no more come.
    fn try_receive_extension(&self, py: Python<'_>) -> PyResult<Option<Extended>> {
        let connection = self.connection.get()?;
        let received = py.detach(|| connection.try_receive_extension());
        match unless_blocked(received)? {
            None => Ok(None),
            Some(None) => Ok(Some(Extended::Over(false))),
            Some(Some((message_type, fields))) => {
                let message = (message_type, told(py, &fields)?);
                Ok(Some(Extended::Message(message)))
            }
        }
    }

    /// Says goodbye, and waits for the connection's end.
    fn shutdown(
        &self,
        py: Python<'_>,
        reason: String,
        timeout: Option<f64>,
    ) -> PyResult<PendingOp> {
        let timeout = seconds("timeout", timeout)?;
        let connection = self.connection.get()?.clone();
        PendingOp::begin(py, raised, async move {
            let done: Result<(), Error> = connection.shutdown(&reason, timeout).await;
            done.map(|()| None::<()>)
        })
    }

    /// Ends the connection at once.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let connection = self.connection.get()?;
        py.detach(|| connection.link().abort());
        Ok(())
    }

    /// Whether it has ended.
    #[getter]
    fn ended(&self) -> PyResult<bool> {
        Ok(self.connection.get()?.link().is_ended())
    }

    /// The reason of the peer's goodbye.
    #[getter]
    fn goodbye_reason(&self) -> PyResult<Option<String>> {
        let reason = self.connection.get()?.goodbye_reason();
        Ok(reason.map(|reason| reason.to_string()))
    }

    /// Name, identity and attributes of the connecting peer; only at the listener's end.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Option<Peer<'py>>> {
        let Some(peer) = self.connection.get()?.peer() else {
            return Ok(None);
        };
        let (name, sender) = (peer.name.to_string(), peer.sender.to_string());
        Ok(Some((name, sender, attributes(py, peer)?)))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let connection = self.connection.get()?;
        let (stats, link) = py.detach(|| (connection.stats(), connection.link_stats()));
        let dict = PyDict::new(py);
        set_fields!(dict, stats, subscriptions, publications, waiting_bytes);
        set_fields!(dict, link, bytes_in, bytes_out);
        Ok(dict)
    }
}

/// The result of `try_accept`.
#[derive(IntoPyObject)]
pub(crate) enum Accepted {
    Request(Arrived),
    Over(bool),
}

/// The result of `try_receive_extension`.
#[derive(IntoPyObject)]
pub(crate) enum Extended {
    Message((u64, Vec<Py<PyAny>>)),
    Over(bool),
}

impl ReactiveConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Owned::new(connection),
        }
    }

    fn ready(&self, interest: &str) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let watch = self.connection.get()?.watch();
        let interest = match interest {
            "arrival" => Interest::Arrival,
            "connected" => Interest::Connected,
            "extension" => Interest::Extension,
            "end" => Interest::End,
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(async move { watch.ready(interest).await })
    }
}

waits!(ReactiveConnection(interest: &str), |it, py| it.ready(interest));
