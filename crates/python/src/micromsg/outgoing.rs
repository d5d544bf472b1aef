//! Messages that wait to be sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ackline::micromsg::{Error, Outbound, Session};
use ackline_core::locked;
use bytes::{Bytes, BytesMut};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use super::properties::micromsg_write_properties;
use super::text::{Text, unicode};
use crate::errors;
use crate::payloads::bytes_of;

/// See `_micromsg_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct MicroMsgBatch {
    left: Mutex<VecDeque<Outgoing>>,
}

/// A message as it goes on the wire.
struct Outgoing {
    payload: Bytes,
    destination: Arc<str>,
    properties: Box<str>,
    dotnet_type: Option<Box<str>>,
}

/// The parts that messages of a batch share.
#[derive(Default)]
struct Shared<'py> {
    /// Small payloads stand together in one piece of memory.
    copies: BytesMut,
    /// The last destination.
    destination: Option<(Bound<'py, PyString>, Arc<str>)>,
}

#[pymethods]
impl MicroMsgBatch {
    /// Messages of a sequence: payloads, or tuples of a payload, a destination, properties and a .NET type, of which the
    /// last ones may be missing.
    #[new]
    fn new(messages: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut shared = Shared::default();
        let each = messages.try_iter().map_err(|_| no_sequence())?;
        if messages.is_instance_of::<PyBytes>() || messages.is_instance_of::<PyString>() {
            return Err(no_sequence());
        }
        let each = each.map(|one| Outgoing::of(&one?, &mut shared));
        Ok(Self {
            left: Mutex::new(each.collect::<PyResult<_>>()?),
        })
    }

    /// One message.
    #[staticmethod]
    fn one(
        payload: &Bound<'_, PyAny>,
        destination: Text<'_>,
        properties: Option<&Bound<'_, PyAny>>,
        dotnet_type: Option<Text<'_>>,
    ) -> PyResult<Self> {
        let one = Outgoing {
            payload: bytes_of(payload)?,
            destination: destination.0.into(),
            properties: written(properties)?,
            dotnet_type: dotnet_type.map(|text| text.0.into()),
        };
        Ok(Self {
            left: Mutex::new(VecDeque::from([one])),
        })
    }

    /// Bytes of the payload of the next message; 0 if all were sent.
    #[getter]
    fn next_bytes(&self) -> usize {
        let left = locked(&self.left);
        left.front().map_or(0, |one| one.payload.len())
    }
}

impl MicroMsgBatch {
    /// Sends as many as there is room for; the position of the last one, 0 of none, or `Blocked` if some are left.
    pub(super) fn send(&self, session: &mut Session) -> Result<u64, Error> {
        let mut left = locked(&self.left);
        let mut position = 0;
        while let Some(next) = left.front() {
            position = session.send(next.outbound(), &next.payload)?;
            left.pop_front();
        }
        Ok(position)
    }
}

impl Outgoing {
    fn of<'py>(one: &Bound<'py, PyAny>, shared: &mut Shared<'py>) -> PyResult<Self> {
        let Ok(parts) = one.cast::<PyTuple>() else {
            return Ok(Self {
                payload: shared.payload(one)?,
                destination: Arc::default(),
                properties: Box::default(),
                dotnet_type: None,
            });
        };
        let part = |at: usize| {
            let is_there = at < parts.len();
            let part = is_there.then(|| parts.get_item(at).ok()).flatten();
            part.filter(|part| !part.is_none())
        };
        let payload = part(0).filter(|_| parts.len() <= 4).ok_or_else(|| {
            let text = "a message is a payload, or a tuple of payload, destination, properties and .NET type";
            errors::usage("messages", text)
        })?;
        Ok(Self {
            payload: shared.payload(&payload)?,
            destination: shared.destination(part(1))?,
            properties: written(part(2).as_ref())?,
            dotnet_type: text(part(3), "dotnet_type")?,
        })
    }

    fn outbound(&self) -> Outbound<'_> {
        Outbound {
            destination: &self.destination,
            properties: &self.properties,
            dotnet_type: self.dotnet_type.as_deref(),
        }
    }
}

impl<'py> Shared<'py> {
    /// A copy of a payload.
    fn payload(&mut self, payload: &Bound<'py, PyAny>) -> PyResult<Bytes> {
        match payload.cast::<PyBytes>() {
            Ok(bytes) if bytes.as_bytes().len() <= SMALL => {
                let copies = &mut self.copies;
                if copies.capacity() - copies.len() < SMALL {
                    *copies = BytesMut::with_capacity(COPIES);
                }
                copies.extend_from_slice(bytes.as_bytes());
                Ok(copies.split().freeze())
            }
            _ => bytes_of(payload),
        }
    }

    /// A destination; messages next to each other often have the same object.
    fn destination(&mut self, value: Option<Bound<'py, PyAny>>) -> PyResult<Arc<str>> {
        let Some(value) = value else {
            return Ok(Arc::default());
        };
        if let Some((last, text)) = &self.destination
            && last.is(&value)
        {
            return Ok(Arc::clone(text));
        }
        let text: Arc<str> = text(Some(value.clone()), "destination")?
            .unwrap_or_default()
            .into();
        if let Ok(value) = value.cast_into::<PyString>() {
            self.destination = Some((value, Arc::clone(&text)));
        }
        Ok(text)
    }
}

fn text(value: Option<Bound<'_, PyAny>>, name: &str) -> PyResult<Option<Box<str>>> {
    let Some(value) = value else {
        return Ok(None);
    };
    match value.cast::<PyString>() {
        Ok(text) => Ok(Some(unicode(text)?.into())),
        Err(_) => Err(errors::usage(name, &format!("{name} is a str"))),
    }
}

/// Properties as they go on the wire.
fn written(properties: Option<&Bound<'_, PyAny>>) -> PyResult<Box<str>> {
    let written = properties.map(micromsg_write_properties).transpose()?;
    Ok(written.unwrap_or_default().into())
}

fn no_sequence() -> PyErr {
    let text = "messages are a sequence; one message alone goes by send";
    errors::usage("messages", text)
}

/// Bytes of a payload that is copied beside others.
const SMALL: usize = 2_048;
/// Bytes of memory for such copies.
const COPIES: usize = 64 << 10;
