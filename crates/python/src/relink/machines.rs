//! The bare machines: a transport's handshake, a listener's book of links, and a link.

use std::sync::Mutex;
use std::time::Instant;

use ackline_core::{Connection, Sequence, UsageError};
use ackline_relink::frame::{EndpointBlock, Ident, Parameters};
use ackline_relink::{
    Attach, Binder, ChannelId, ConnectorConfig, Decision, EndpointConfig, Event, Handshake,
    HandshakeEvent, Kind, Link, LinkKey, LinkState, ListenerConfig, Payload,
};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::{PROTOCOL, frames, options};
use crate::errors;
use crate::machine::{Machine, Now, lock};
use crate::options::{argument, duration, flag, refuse};

argument! {
    /// The number of a message.
    Through(u32), "through", 0, u32::MAX
}

argument! {
    /// A listener's instance.
    Epoch(u64), "epoch", 0, u64::MAX
}

argument! {
    /// A link within it.
    LinkId(u64), "link_id", 0, u64::MAX
}

argument! {
    /// The next link's.
    NextLinkId(u64), "next_link_id", 0, u64::MAX
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkBinder {
    binder: Mutex<Binder>,
}

impl RelinkBinder {
    fn lock(&self) -> std::sync::MutexGuard<'_, Binder> {
        self.binder
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[pymethods]
impl RelinkBinder {
    #[new]
    #[pyo3(signature = (epoch, endpoints, next_link_id = NextLinkId(1)))]
    fn new(
        epoch: Epoch,
        endpoints: &Bound<'_, PyDict>,
        next_link_id: NextLinkId,
    ) -> PyResult<Self> {
        let mut known = Vec::new();
        for (name, given) in endpoints {
            let name: String = name.extract()?;
            known.push(EndpointConfig {
                endpoint_name: options::endpoint_name(&name)?,
                parameters: parameters(given.cast()?)?,
            });
        }
        Ok(Self {
            binder: Mutex::new(Binder::new(epoch.0, next_link_id.0, known)),
        })
    }

    /// Decides on a connector's request: `new`, `old` or `lost`, and the ident for `RelinkHandshake.accept`; or the
    /// code for `RelinkHandshake.refuse`.
    fn decide(&self, asked: &Bound<'_, PyAny>) -> PyResult<(&'static str, u64, u64)> {
        let asked = frames::endpoint_of(asked)?;
        let mut binder = self.lock();
        let decision = binder.decide(&asked).map_err(|kind| {
            errors::protocol(PROTOCOL, &ackline_core::ProtocolError { kind, offset: 0 })
        })?;
        let Ident { epoch, link_id } = binder.ident(decision);
        let what = match decision {
            Decision::New(_) => "new",
            Decision::Old(_) => "old",
            Decision::Lost => "lost",
        };
        Ok((what, epoch, link_id))
    }

    fn restore(&self, endpoint_name: &str, link_id: LinkId) -> PyResult<()> {
        let name = options::endpoint_name(endpoint_name)?;
        self.lock().restore(name, link_id.0);
        Ok(())
    }

    fn forget(&self, link_id: LinkId) {
        self.lock().forget(link_id.0);
    }

    #[getter]
    fn links(&self) -> Vec<u64> {
        self.lock().links().collect()
    }

    #[getter]
    fn next_link_id(&self) -> u64 {
        self.lock().next_link_id()
    }
}

fn parameters(given: &Bound<'_, PyDict>) -> PyResult<Parameters> {
    let mut parameters = Parameters::default();
    let mut others = Vec::new();
    for (key, value) in given {
        let key: String = key.extract()?;
        if !options::parameter(&mut parameters, &key, &value)? {
            others.push(key);
        }
    }
    refuse(&others)?;
    Ok(parameters)
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkHandshake {
    machine: Mutex<Machine<Handshake>>,
    /// The last request, kept to be refused with the error that a binder gave.
    asked: Mutex<Option<EndpointBlock>>,
}

#[pymethods]
impl RelinkHandshake {
    /// The connector's side.
    #[staticmethod]
    #[pyo3(signature = (now, endpoint_name, options, old = None))]
    fn connector(
        now: Now,
        endpoint_name: &str,
        options: &Bound<'_, PyDict>,
        old: Option<(u64, u64)>,
    ) -> PyResult<Self> {
        let name = options::endpoint_name(endpoint_name)?;
        let mut config = ConnectorConfig::new(name, Parameters::default());
        config.handshake_timeout = None;
        let mut others = Vec::new();
        for (key, value) in options {
            let key: String = key.extract()?;
            match key.as_str() {
                "handshake_timeout_ms" => {
                    config.handshake_timeout = duration("handshake_timeout", &value, true)?;
                }
                "require_old_link_id" => config.require_old_link_id = flag(&key, &value)?,
                _ if options::parameter(&mut config.parameters, &key, &value)? => {}
                _ => others.push(key),
            }
        }
        refuse(&others)?;
        let old = old.map(|(epoch, link_id)| LinkKey { epoch, link_id });
        Ok(Self::made(now, |now| {
            Handshake::connector(now, config, old)
        }))
    }

    /// The listener's side.
    #[staticmethod]
    fn listener(now: Now, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut config = ListenerConfig {
            handshake_timeout: None,
        };
        let mut others = Vec::new();
        for (key, value) in options {
            let key: String = key.extract()?;
            match key.as_str() {
                "handshake_timeout_ms" => {
                    config.handshake_timeout = duration("handshake_timeout", &value, true)?;
                }
                _ => others.push(key),
            }
        }
        refuse(&others)?;
        Ok(Self::made(now, |now| Handshake::listener(now, config)))
    }

    fn receive(&self, now: Now, data: &[u8]) -> PyResult<(&'static str, usize)> {
        lock(&self.machine).receive(now, data)
    }

    fn receive_eof(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).receive_eof(now)
    }

    fn poll_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let event = lock(&self.machine).connection.poll_event();
        let Some(event) = event else { return Ok(None) };
        let dict = PyDict::new(py);
        match event {
            HandshakeEvent::Requested(block) => {
                frames::endpoint_dict(&dict, &block)?;
                dict.del_item("type")?;
                dict.set_item("event", "requested")?;
                *self
                    .asked
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(block);
            }
            HandshakeEvent::Established { key, resumed } => {
                dict.set_item("event", "established")?;
                dict.set_item("epoch", key.epoch)?;
                dict.set_item("link_id", key.link_id)?;
                dict.set_item("resumed", resumed)?;
            }
            HandshakeEvent::LinkLost => dict.set_item("event", "link_lost")?,
        }
        Ok(Some(dict))
    }

    /// Answers a request with the decision of a binder.
    fn accept(&self, now: Now, epoch: Epoch, link_id: LinkId) -> PyResult<()> {
        let ident = Ident {
            epoch: epoch.0,
            link_id: link_id.0,
        };
        let accepted = lock(&self.machine).call(now, |machine, now| machine.accept(now, ident));
        accepted.map_err(errors::refused)
    }

    /// Ends the transport because of the request; the next `receive` raises the error.
    fn refuse(&self, now: Now, code: &str) -> PyResult<()> {
        let asked = self
            .asked
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let asked = asked.as_ref();
        let kind = match code.strip_prefix("relink.").unwrap_or(code) {
            "unknown_endpoint" => Kind::UnknownEndpoint {
                asked: asked.map_or_else(Default::default, |asked| asked.endpoint_name.clone()),
                served: [].into(),
            },
            "parameters_disagree" => {
                // Only the binder knows the endpoint that the parameters belong to.
                let theirs = asked.map_or_else(Default::default, |asked| asked.parameters);
                Kind::ParametersDisagree {
                    ours: theirs,
                    theirs,
                }
            }
            "invalid_epoch" => Kind::InvalidEpoch {
                epoch: asked.map_or(0, |asked| asked.old_epoch),
            },
            "invalid_link_id" => Kind::InvalidLinkId {
                link_id: asked.map_or(0, |asked| asked.old_link_id),
            },
            _ => {
                let text = "a request is refused with the code of what Binder.decide raised";
                return Err(errors::usage("code", text));
            }
        };
        let refused = lock(&self.machine).call(now, |machine, now| machine.refuse(now, kind));
        refused.map_err(errors::refused)
    }

    fn poll_transmit<'py>(&self, py: Python<'py>, now: Now) -> PyResult<Bound<'py, PyBytes>> {
        lock(&self.machine).transmit(py, now)
    }

    fn poll_timeout(&self) -> Option<u64> {
        lock(&self.machine).timeout()
    }

    fn handle_timeout(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).handle_timeout(now)
    }

    fn reading(&self, now: Now, on: bool) {
        lock(&self.machine).call(now, |machine, now| machine.reading(now, on));
    }

    /// The input behind the handshake: the link's.
    fn leftover<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &lock(&self.machine).leftover())
    }

    #[getter]
    fn lifecycle(&self) -> &'static str {
        lock(&self.machine).lifecycle()
    }
}

impl RelinkHandshake {
    fn made(now: Now, make: impl FnOnce(Instant) -> Handshake) -> Self {
        Self {
            machine: Machine::made(PROTOCOL, now, make),
            asked: Mutex::new(None),
        }
    }
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkMachine {
    machine: Mutex<Machine<Link>>,
}

/// A channel, its message's number and the parts.
type Unacknowledged<'py> = (Bound<'py, PyBytes>, u32, Vec<Bound<'py, PyBytes>>);

#[pymethods]
impl RelinkMachine {
    #[new]
    fn new(options: &Bound<'_, PyDict>, epoch: Epoch, link_id: LinkId) -> PyResult<Self> {
        let config = options::bare_link(options)?;
        let key = LinkKey {
            epoch: epoch.0,
            link_id: link_id.0,
        };
        let link = Link::new(config, key);
        Ok(Self {
            machine: Machine::new(PROTOCOL, link),
        })
    }

    /// Tells the link of a transport with a handshake that has agreed on this link.
    fn attach(&self, now: Now, resumed: bool) {
        let mut machine = lock(&self.machine);
        machine.leftover();
        let how = if resumed {
            Attach::Resumed
        } else {
            Attach::New(machine.connection.key())
        };
        machine.call(now, |link, now| link.attach(now, how));
    }

    /// Tells the link that the transport is gone.
    fn detach(&self, now: Now) {
        let mut machine = lock(&self.machine);
        machine.leftover();
        machine.call(now, Link::detach);
    }

    fn receive(&self, now: Now, data: &[u8]) -> PyResult<(&'static str, usize)> {
        lock(&self.machine).receive(now, data)
    }

    fn receive_eof(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).receive_eof(now)
    }

    fn poll_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let event = lock(&self.machine).connection.poll_event();
        event.map(|event| event_dict(py, &event)).transpose()
    }

    fn poll_transmit<'py>(&self, py: Python<'py>, now: Now) -> PyResult<Bound<'py, PyBytes>> {
        lock(&self.machine).transmit(py, now)
    }

    fn poll_timeout(&self) -> Option<u64> {
        lock(&self.machine).timeout()
    }

    fn handle_timeout(&self, now: Now) -> PyResult<()> {
        lock(&self.machine).handle_timeout(now)
    }

    fn reading(&self, now: Now, on: bool) {
        lock(&self.machine).call(now, |link, now| link.reading(now, on));
    }

    #[allow(clippy::needless_pass_by_value)] // pyo3 hands over what it has converted
    fn send(&self, now: Now, channels: Vec<Vec<u8>>, payload: Vec<Vec<u8>>) -> PyResult<Vec<u32>> {
        let channels: Vec<ChannelId> = channels.iter().map(|id| ChannelId::from(&id[..])).collect();
        let payload: Payload = payload.into_iter().map(Bytes::from).collect();
        let sent = self.verb(now, |link, now| link.send(now, &channels, payload))?;
        Ok(sent.iter().map(|sequence| sequence.0).collect())
    }

    fn consume(&self, now: Now, channel: &[u8], through: Through) -> PyResult<()> {
        let channel = ChannelId::from(channel);
        self.verb(now, |link, now| {
            link.consume(now, &channel, Sequence(through.0))
        })
    }

    fn notify_received(&self, now: Now, channel: &[u8]) -> PyResult<()> {
        let channel = ChannelId::from(channel);
        self.verb(now, |link, now| link.notify_received(now, &channel))
    }

    #[pyo3(signature = (now, channel, through = None))]
    fn commit(&self, now: Now, channel: &[u8], through: Option<Through>) -> PyResult<u32> {
        self.settle(now, channel, through, Link::commit)
    }

    #[pyo3(signature = (now, channel, through = None))]
    fn rollback(&self, now: Now, channel: &[u8], through: Option<Through>) -> PyResult<u32> {
        self.settle(now, channel, through, Link::rollback)
    }

    #[pyo3(signature = (now, channel, through = None))]
    fn committed(&self, now: Now, channel: &[u8], through: Option<Through>) -> PyResult<u32> {
        self.settle(now, channel, through, Link::committed)
    }

    #[pyo3(signature = (now, channel, through = None))]
    fn uncommitted(&self, now: Now, channel: &[u8], through: Option<Through>) -> PyResult<u32> {
        self.settle(now, channel, through, Link::uncommitted)
    }

    fn close_channel(&self, now: Now, channel: &[u8]) -> PyResult<()> {
        let channel = ChannelId::from(channel);
        self.verb(now, |link, now| link.close_channel(now, &channel))
    }

    fn ping(&self, now: Now) -> PyResult<()> {
        self.verb(now, Link::ping)
    }

    fn shutdown(&self, now: Now) -> PyResult<()> {
        self.verb(now, Link::shutdown)
    }

    /// Gives the link up.
    fn lose(&self, now: Now) {
        lock(&self.machine).call(now, Link::lose);
    }

    /// Messages that may be sent on a channel now.
    fn send_room(&self, channel: &[u8]) -> u32 {
        let channel = ChannelId::from(channel);
        lock(&self.machine).connection.send_room(&channel)
    }

    /// Messages sent and not consumed, by ascending channel, in order.
    fn unacknowledged<'py>(&self, py: Python<'py>) -> Vec<Unacknowledged<'py>> {
        let machine = lock(&self.machine);
        let left = machine.connection.unacknowledged();
        left.map(|(channel, sequence, payload)| {
            let parts = payload.as_slice().iter();
            let parts = parts.map(|part| PyBytes::new(py, part)).collect();
            (PyBytes::new(py, channel.as_bytes()), sequence.0, parts)
        })
        .collect()
    }

    /// Epoch and link id.
    #[getter]
    fn key(&self) -> (u64, u64) {
        let LinkKey { epoch, link_id } = lock(&self.machine).connection.key();
        (epoch, link_id)
    }

    #[getter]
    fn state(&self) -> &'static str {
        state_name(lock(&self.machine).connection.state())
    }

    #[getter]
    fn lifecycle(&self) -> &'static str {
        lock(&self.machine).lifecycle()
    }
}

impl RelinkMachine {
    fn verb<R>(
        &self,
        now: Now,
        verb: impl FnOnce(&mut Link, Instant) -> Result<R, UsageError>,
    ) -> PyResult<R> {
        lock(&self.machine).call(now, verb).map_err(errors::refused)
    }

    /// A verb about the messages of a channel up to a number, or the next one.
    fn settle(
        &self,
        now: Now,
        channel: &[u8],
        through: Option<Through>,
        verb: impl FnOnce(
            &mut Link,
            Instant,
            &ChannelId,
            Option<Sequence>,
        ) -> Result<Sequence, UsageError>,
    ) -> PyResult<u32> {
        let (channel, through) = (
            ChannelId::from(channel),
            through.map(|through| Sequence(through.0)),
        );
        let last = self.verb(now, |link, now| verb(link, now, &channel, through))?;
        Ok(last.0)
    }
}

/// A link's state as Python names it.
pub(super) const fn state_name(state: LinkState) -> &'static str {
    match state {
        LinkState::Connecting => "connecting",
        LinkState::Resuming => "resuming",
        LinkState::Up => "up",
        LinkState::ShuttingDown => "shutting_down",
        LinkState::Closed => "closed",
        LinkState::Lost => "lost",
    }
}

fn event_dict<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let kind = |kind| dict.set_item("event", kind);
    let id = |channel: &ChannelId| dict.set_item("channel", PyBytes::new(py, channel.as_bytes()));
    match event {
        Event::LinkLost => kind("link_lost")?,
        Event::LinkClosed => kind("link_closed")?,
        Event::Resumed => kind("resumed")?,
        Event::PeerShutdown => kind("peer_shutdown")?,
        Event::Message {
            channel,
            sequence,
            payload,
        } => {
            kind("message")?;
            id(channel)?;
            dict.set_item("sequence_number", sequence.0)?;
            let parts = payload.as_slice().iter().map(|part| PyBytes::new(py, part));
            dict.set_item("payload", PyList::new(py, parts)?)?;
        }
        Event::Acknowledged {
            channel,
            acknowledgement,
            through,
        } => {
            kind("acknowledged")?;
            id(channel)?;
            dict.set_item("acknowledgement", acknowledgement.name())?;
            dict.set_item("through", through.0)?;
        }
        Event::Decided {
            channel,
            operation,
            through,
        } => {
            kind("decided")?;
            id(channel)?;
            dict.set_item("operation", operation.name())?;
            dict.set_item("through", through.0)?;
        }
        Event::Closing { channel } => {
            kind("closing")?;
            id(channel)?;
        }
        Event::Closed {
            channel,
            unacknowledged,
        } => {
            kind("closed")?;
            id(channel)?;
            dict.set_item("unacknowledged", unacknowledged)?;
        }
        Event::Hint(hint) => {
            kind("hint")?;
            dict.set_item("name", hint.name())?;
            dict.set_item("number", hint.number())?;
        }
        Event::Pong { round_trip } => {
            kind("pong")?;
            let round_trip = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX);
            dict.set_item("round_trip_ms", round_trip)?;
        }
    }
    Ok(dict)
}
