//! The bare machine of one end of a connection.

use std::sync::Mutex;

use ackline_bpmux::{Connection, Event};
use ackline_core::{Connection as _, Payload, UsageError};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::{PROTOCOL, bare, kind_of, target, target_of};
use crate::errors;
use crate::machine::{Machine, Now, lock};
use crate::options::argument;

argument! {
    /// The id of a sink, stream or duplex.
    EntityId(u32), "entity_id", 0, u32::MAX
}

argument! {
    /// The id of a request.
    RequestId(u32), "request_id", 0, u32::MAX
}

argument! {
    /// Bytes of credit.
    Amount(u64), "amount", 0, u64::MAX
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxMachine {
    machine: Mutex<Machine<Connection>>,
}

impl BpmuxMachine {
    fn verb<R>(&self, verb: impl FnOnce(&mut Connection) -> Result<R, UsageError>) -> PyResult<R> {
        let result = verb(&mut lock(&self.machine).connection);
        result.map_err(errors::refused)
    }
}

fn payload(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

#[pymethods]
impl BpmuxMachine {
    #[new]
    fn new(now: Now, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let config = bare(options)?;
        Ok(Self {
            machine: Machine::made(PROTOCOL, now, |now| Connection::new(now, config)),
        })
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
        lock(&self.machine).call(now, |machine, now| machine.reading(now, on));
    }

    #[getter]
    fn lifecycle(&self) -> &'static str {
        lock(&self.machine).lifecycle()
    }

    #[pyo3(signature = (kind, entity_id, payload = b"".as_slice()))]
    fn open(&self, kind: &str, entity_id: EntityId, payload: &[u8]) -> PyResult<()> {
        let kind = kind_of(kind)?;
        self.verb(|machine| machine.open(kind, entity_id.0, self::payload(payload)))
    }

    fn free_id(&self) -> PyResult<u32> {
        self.verb(Connection::free_id)
    }

    fn free_request_id(&self) -> PyResult<u32> {
        self.verb(Connection::free_request_id)
    }

    fn send(&self, target: &Bound<'_, PyAny>, payload: &[u8]) -> PyResult<()> {
        let target = target_of(target)?;
        self.verb(|machine| machine.send(target, self::payload(payload)))
    }

    #[pyo3(signature = (target, payload = b"".as_slice()))]
    fn close(&self, target: &Bound<'_, PyAny>, payload: &[u8]) -> PyResult<()> {
        let target = target_of(target)?;
        self.verb(|machine| machine.close(target, self::payload(payload)))
    }

    #[pyo3(signature = (target, payload = b"".as_slice()))]
    fn cancel(&self, target: &Bound<'_, PyAny>, payload: &[u8]) -> PyResult<()> {
        let target = target_of(target)?;
        self.verb(|machine| machine.cancel(target, self::payload(payload)))
    }

    fn request(&self, request_id: RequestId, payload: &[u8]) -> PyResult<()> {
        self.verb(|machine| machine.request(request_id.0, self::payload(payload)))
    }

    #[pyo3(signature = (request_id, payload = b"".as_slice()))]
    fn cancel_request(&self, request_id: RequestId, payload: &[u8]) -> PyResult<()> {
        self.verb(|machine| machine.cancel_request(request_id.0, self::payload(payload)))
    }

    fn respond(&self, request_id: RequestId, payload: &[u8]) -> PyResult<()> {
        self.verb(|machine| machine.respond(request_id.0, self::payload(payload)))
    }

    #[pyo3(signature = (request_id, payload = b"".as_slice()))]
    fn close_response(&self, request_id: RequestId, payload: &[u8]) -> PyResult<()> {
        self.verb(|machine| machine.close_response(request_id.0, self::payload(payload)))
    }

    fn grant_credit(&self, target: &Bound<'_, PyAny>, amount: Amount) -> PyResult<()> {
        let target = target_of(target)?;
        self.verb(|machine| machine.grant_credit(target, amount.0))
    }

    fn consumed(&self, target: &Bound<'_, PyAny>, amount: Amount) -> PyResult<()> {
        let target = target_of(target)?;
        lock(&self.machine).connection.consumed(target, amount.0);
        Ok(())
    }

    fn credit(&self, target: &Bound<'_, PyAny>) -> PyResult<u64> {
        let target = target_of(target)?;
        self.verb(|machine| machine.credit(target))
    }

    fn waiting(&self, target: &Bound<'_, PyAny>) -> PyResult<usize> {
        let target = target_of(target)?;
        self.verb(|machine| machine.waiting(target))
    }

    fn ping(&self, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = target_of(target)?;
        self.verb(|machine| machine.ping(target))
    }

    fn ping_request(&self, request_id: RequestId) -> PyResult<()> {
        self.verb(|machine| machine.ping_request(request_id.0))
    }
}

/// An event as a dict: `event`, and the members of that event.
fn event_dict<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let about = |name: &str, of, payload: Option<&Payload>| -> PyResult<()> {
        dict.set_item("event", name)?;
        dict.set_item("target", target(py, of)?)?;
        put_payload(&dict, payload)
    };
    let request = |name: &str, id: u32, payload: Option<&Payload>| -> PyResult<()> {
        dict.set_item("event", name)?;
        dict.set_item("id", id)?;
        put_payload(&dict, payload)
    };
    match event {
        Event::Opened { kind, id, payload } => {
            dict.set_item("kind", kind.name())?;
            request("opened", *id, Some(payload))?;
        }
        Event::Message {
            target: of,
            payload,
        } => about("message", *of, Some(payload))?,
        Event::Part {
            target: of,
            payload,
            is_last,
        } => {
            about("part", *of, Some(payload))?;
            dict.set_item("is_last", is_last)?;
        }
        Event::Closed {
            target: of,
            payload,
        } => about("closed", *of, Some(payload))?,
        Event::Cancelled {
            target: of,
            payload,
        } => about("cancelled", *of, Some(payload))?,
        Event::Request { id, payload } => request("request", *id, Some(payload))?,
        Event::Response { id, payload } => request("response", *id, Some(payload))?,
        Event::RequestCancelled { id, payload } => {
            request("request_cancelled", *id, Some(payload))?;
        }
        Event::ResponseClosed { id, payload } => request("response_closed", *id, Some(payload))?,
        Event::CloseAcknowledged { target: of } => about("close_acknowledged", *of, None)?,
        Event::CancelAcknowledged { target: of } => about("cancel_acknowledged", *of, None)?,
        Event::RequestCancelAcknowledged { id } => {
            request("request_cancel_acknowledged", *id, None)?;
        }
        Event::ResponseCloseAcknowledged { id } => {
            request("response_close_acknowledged", *id, None)?;
        }
        Event::Pong { target: of } => about("pong", *of, None)?,
        Event::RequestPong { id } => request("request_pong", *id, None)?,
        Event::Room { target: of } => about("room", *of, None)?,
        Event::Open { id } => request("open", *id, None)?,
        Event::ResponseSent { id } => request("response_sent", *id, None)?,
        other => {
            let text = format!("an event without a name: {other:?}");
            return Err(errors::internal(&text));
        }
    }
    Ok(dict)
}

fn put_payload(dict: &Bound<'_, PyDict>, payload: Option<&Payload>) -> PyResult<()> {
    let Some(payload) = payload else {
        return Ok(());
    };
    let bytes = PyBytes::new_with(dict.py(), payload.bytes(), |mut place| {
        for part in payload.as_slice() {
            let (here, rest) = place.split_at_mut(part.len());
            here.copy_from_slice(part);
            place = rest;
        }
        Ok(())
    })?;
    dict.set_item("payload", bytes)
}
