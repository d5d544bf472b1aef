//! A connection by readiness: verbs that never wait, and waits that take nothing.

use std::sync::{Arc, Mutex};

use ackline::micromsg::{
    Arrival, ConnectOptions, Connected, Connection, Error, Extension, Interest, Session, connect,
    read_extensions,
};
use ackline_core::locked;
use ackline_core::options::Uses;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use super::ahead::Ahead;
use super::filter::MicroMsgFilter;
use super::message::{Maker, MicroMsgMessage};
use super::outgoing::MicroMsgBatch;
use super::raised::{raised, unless_blocked};
use super::text::{Text, unicode};
use crate::dicts::{attributes, set_fields};
use crate::errors;
use crate::options::{argument, made};
use crate::payloads::{bytes_of, untracked};
use crate::pending_op::PendingOp;
use crate::runtime::{Owned, seconds};
use crate::waits::waits;

/// See `_micromsg_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct MicroMsgConnection {
    connection: Arc<Owned<Connection>>,
    ahead: Owned<Mutex<Ahead>>,
    /// Locked while attached to the interpreter alone.
    maker: Mutex<Maker>,
}

argument!(
    /// A position of a message, or 0 for none.
    Position(u64), "position", 0, u64::MAX
);
argument!(
    /// The most messages that are taken at once.
    MostMessages(usize), "max_messages", 1, usize::MAX
);

/// Name, identity and attributes.
type Peer<'py> = (String, String, Bound<'py, PyDict>);
/// The peer's name, the version, and the extensions.
type Agreed = (String, (u8, u8), Vec<String>);

/// Extensions with their properties.
type Extensions = Vec<(String, Vec<(String, String)>)>;
/// The peer's name, the version, and the extensions that it requires and suggests.
type Proposed = (String, (u8, u8), Extensions, Extensions);

fn listed(extensions: Vec<Extension>) -> Extensions {
    let each = extensions.into_iter();
    each.map(|one| (one.name, one.properties)).collect()
}

/// Connects, and ends the handshake, or waits for the server's proposal.
#[pyfunction]
pub(crate) fn micromsg_connect(
    py: Python<'_>,
    url: Text<'_>,
    options: &Bound<'_, PyDict>,
) -> PyResult<PendingOp> {
    let options: ConnectOptions = made(Uses::CONNECT, options)?;
    let url = url.0.to_owned();
    PendingOp::begin(py, raised, async move {
        connect(&url, options).await.map(MicroMsgConnection::new)
    })
}

#[pymethods]
impl MicroMsgConnection {
    /// The peer's name, the version and the extensions; `None` before the end of the handshake. Raises the end of a
    /// connection that ended before it.
    fn connected(&self, py: Python<'_>) -> PyResult<Option<Agreed>> {
        let connection = self.connection.get()?;
        let agreed = unless_blocked(py.detach(|| connection.try_connected()))?;
        Ok(agreed.map(|agreed: Connected| {
            let version = (agreed.version.major, agreed.version.minor);
            (agreed.identity, version, agreed.extensions)
        }))
    }

    /// The peer's proposal: its name, the version, and the extensions that it requires and suggests; `None` before it
    /// comes.
    fn proposal(&self, py: Python<'_>) -> PyResult<Option<Proposed>> {
        let connection = self.connection.get()?;
        let proposal = unless_blocked(py.detach(|| connection.try_proposal()))?;
        Ok(proposal.map(|proposal| {
            let version = (proposal.version.major, proposal.version.minor);
            let lists = [proposal.required, proposal.optional].map(listed);
            let [required, optional] = lists;
            (proposal.identity, version, required, optional)
        }))
    }

    /// The extensions of the connection; none before the end of the handshake.
    fn agreed(&self, py: Python<'_>) -> PyResult<Extensions> {
        let connection = self.connection.get()?;
        Ok(listed(py.detach(|| connection.extensions())))
    }

    /// Answers what the peer proposes.
    fn answer(&self, py: Python<'_>, required: Text<'_>, optional: Text<'_>) -> PyResult<()> {
        let connection = self.connection.get()?;
        let list = |text: Text<'_>| {
            let read = read_extensions(text.0.as_bytes());
            read.map_err(|kind| errors::usage("invalid_answer", &kind.to_string()))
        };
        let (required, optional) = (list(required)?, list(optional)?);
        py.detach(|| connection.answer(required, optional))
            .map_err(raised)
    }

    /// Messages that may wait for their acknowledgement; 0 without acknowledgements.
    #[getter]
    fn window(&self, py: Python<'_>) -> PyResult<u16> {
        let connection = self.connection.get()?;
        Ok(py.detach(|| connection.window()).unwrap_or(0))
    }

    /// Sends as many messages of a batch as there is room for: the position of the last one, or `None` if some are left.
    fn try_send(&self, py: Python<'_>, batch: &MicroMsgBatch) -> PyResult<Option<u64>> {
        self.verb(py, |session| batch.send(session))
    }

    /// Whether all messages up to a position are acknowledged.
    fn try_acknowledged(&self, py: Python<'_>, position: Position) -> PyResult<bool> {
        let connection = self.connection.get()?;
        let done = py.detach(|| connection.try_acknowledged(position.0));
        Ok(unless_blocked(done)?.is_some())
    }

    /// The next message; `None` before it comes, false when no more come.
    fn try_receive<'py>(&self, py: Python<'py>) -> PyResult<Option<Came<'py>>> {
        let connection = self.connection.get()?;
        let ahead = self.ahead.get()?;
        // Whoever has the lock does not wait for the interpreter with it.
        let at_hand = ahead.try_lock().ok().and_then(|mut ahead| ahead.at_hand());
        let received = match at_hand {
            Some(received) => Some(Some(received)),
            None => unless_blocked(py.detach(|| locked(ahead).next(connection)))?,
        };
        let told = received.map(|received| match received {
            None => Ok(Came::Over(false)),
            Some(received) => {
                let value = locked(&self.maker).message(py, &self.connection, &received)?;
                untracked(py, value).map(Came::Message)
            }
        });
        told.transpose()
    }

    /// The messages that are there, up to `most`; `None` when no more come.
    fn try_receive_some<'py>(
        &self,
        py: Python<'py>,
        most: MostMessages,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let connection = self.connection.get()?;
        let ahead = self.ahead.get()?;
        match py.detach(|| locked(ahead).some(connection, most.0)) {
            Err(Error::Blocked) => Ok(Some(PyList::empty(py))),
            Err(error) => Err(raised(error)),
            Ok(received) if received.is_empty() => Ok(None),
            Ok(received) => {
                let values = {
                    let mut maker = locked(&self.maker);
                    let each = received
                        .iter()
                        .map(|one| maker.message(py, &self.connection, one));
                    each.collect::<PyResult<Vec<_>>>()?
                };
                let each = values.into_iter().map(|one| untracked(py, one));
                PyList::new(py, each.collect::<PyResult<Vec<_>>>()?).map(Some)
            }
        }
    }

    /// Acknowledges all messages up to a message, or to a position.
    fn ack(&self, py: Python<'_>, up_to: &Bound<'_, PyAny>) -> PyResult<()> {
        let connection = self.connection.get()?;
        let position = match up_to.cast::<MicroMsgMessage>() {
            Ok(message) if message.get().came_over(&self.connection) => message.get().position,
            Ok(message) => {
                let text = format!(
                    "message {} came over another connection",
                    message.get().position
                );
                return Err(errors::usage("other_connection", &text));
            }
            Err(_) => crate::options::whole("position", up_to, 1, u64::MAX)?,
        };
        py.detach(|| connection.ack(position)).map_err(raised)
    }

    /// Subscribes; returns whether there was room.
    fn try_subscribe(
        &self,
        py: Python<'_>,
        topic: Text<'_>,
        filter: Option<Text<'_>>,
    ) -> PyResult<bool> {
        let filter = filter.map(|filter| filter.0);
        let done = self.verb(py, |session| session.subscribe(topic.0, filter))?;
        Ok(done.is_some())
    }

    /// Ends a subscription; returns whether there was room.
    fn try_unsubscribe(&self, py: Python<'_>, topic: Text<'_>) -> PyResult<bool> {
        let done = self.verb(py, |session| session.unsubscribe(topic.0))?;
        Ok(done.is_some())
    }

    /// Sends a command; returns whether there was room.
    fn try_command(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        properties: Vec<(Bound<'_, PyString>, Bound<'_, PyString>)>,
    ) -> PyResult<bool> {
        let properties = properties.into_iter().map(|(name, text)| {
            let (name, text) = (unicode(&name)?, unicode(&text)?);
            Ok((name.to_owned(), text.to_owned()))
        });
        let properties = properties.collect::<PyResult<Vec<_>>>()?;
        let done = self.verb(py, move |session| session.command(name.0, &properties))?;
        Ok(done.is_some())
    }

    /// The next command; `None` before it comes, false when no more come.
    fn try_receive_command(&self, py: Python<'_>) -> PyResult<Option<Arrived>> {
        let connection = self.connection.get()?;
        let arrived = unless_blocked(py.detach(|| connection.try_receive_command()))?;
        Ok(arrived.map(|arrival| match arrival {
            None => Arrived::Over(false),
            Some(Arrival::Command(command)) => Arrived::Command((command.name, command.properties)),
            Some(Arrival::Subscribe(one)) => {
                Arrived::Subscribe((one.topic, one.filter.map(MicroMsgFilter::of)))
            }
            Some(Arrival::Unsubscribe(topic)) => Arrived::Unsubscribe(topic),
        }))
    }

    /// Sends a frame of an extension; returns whether there was room.
    fn try_send_extension(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        payload: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let payload = bytes_of(payload)?;
        let done = self.verb(py, |session| session.send_extension(name.0, &payload))?;
        Ok(done.is_some())
    }

    /// The next frame of an extension; `None` before it comes, false when no more come.
    fn try_receive_extension<'py>(&self, py: Python<'py>) -> PyResult<Option<Extended<'py>>> {
        let connection = self.connection.get()?;
        let received = unless_blocked(py.detach(|| connection.try_receive_extension()))?;
        Ok(received.map(|received| match received {
            None => Extended::Over(false),
            Some((name, payload)) => {
                Extended::Frame((name.to_string(), PyBytes::new(py, &payload)))
            }
        }))
    }

    /// Ends the connection with an ERROR frame.
    fn fail(&self, py: Python<'_>, message: Text<'_>) -> PyResult<()> {
        let connection = self.connection.get()?;
        py.detach(|| connection.fail(message.0)).map_err(raised)
    }

    /// Waits for acknowledgements, sends everything that waits, and waits for the connection's end.
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<PendingOp> {
        let timeout = seconds("timeout", timeout)?;
        let connection = self.connection.get()?.clone();
        let ahead = self.ahead.get()?;
        py.detach(|| locked(ahead).report(&connection));
        PendingOp::begin(py, raised, async move {
            let done: Result<(), Error> = connection.close(timeout).await;
            done.map(|()| None::<()>)
        })
    }

    /// Ends the connection at once.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let connection = self.connection.get()?;
        py.detach(|| connection.abort());
        Ok(())
    }

    /// Whether it has ended.
    #[getter]
    fn ended(&self) -> PyResult<bool> {
        Ok(self.connection.get()?.link().is_ended())
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
        set_fields!(dict, stats, sent, acknowledged, pending, waiting_bytes);
        set_fields!(dict, link, bytes_in, bytes_out);
        Ok(dict)
    }
}

/// The result of `try_receive`.
#[derive(IntoPyObject)]
pub(crate) enum Came<'py> {
    Message(Bound<'py, MicroMsgMessage>),
    Over(bool),
}

/// The result of `try_receive_command`.
#[derive(IntoPyObject)]
pub(crate) enum Arrived {
    Command((String, Vec<(String, String)>)),
    Subscribe((String, Option<MicroMsgFilter>)),
    Unsubscribe(String),
    Over(bool),
}

/// The result of `try_receive_extension`.
#[derive(IntoPyObject)]
pub(crate) enum Extended<'py> {
    Frame((String, Bound<'py, PyBytes>)),
    Over(bool),
}

impl MicroMsgConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Arc::new(Owned::new(connection)),
            ahead: Owned::new(Mutex::default()),
            maker: Mutex::default(),
        }
    }

    /// Calls a verb with the interpreter released; `None` where it is blocked.
    fn verb<R: Send>(
        &self,
        py: Python<'_>,
        verb: impl FnOnce(&mut Session) -> Result<R, Error> + Send,
    ) -> PyResult<Option<R>> {
        let connection = self.connection.get()?;
        unless_blocked(py.detach(|| connection.try_verb(verb)))
    }

    fn ready(
        &self,
        interest: &str,
        number: u64,
    ) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let watch = self.connection.get()?.watch();
        let bytes = usize::try_from(number).unwrap_or(usize::MAX);
        let interest = match interest {
            "acknowledged" => Interest::Acknowledged(number),
            "command" => Interest::Arrival,
            "connected" => Interest::Connected,
            "end" => Interest::End,
            "extension" => Interest::Extension,
            "frame" => Interest::Frame(bytes),
            "message" => Interest::Message,
            "proposed" => Interest::Proposed,
            "room" => Interest::Room(bytes),
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(async move { watch.ready(interest).await })
    }
}

waits!(
    MicroMsgConnection(interest: &str)[number: u64 = 0],
    |it, py| it.ready(interest, number)
);
