//! Received messages.

use std::sync::{Arc, Weak};

use ackline::micromsg::{Connection, Received};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::properties::micromsg_read_properties;
use super::raised::raised;
use crate::errors;
use crate::payloads::joined;
use crate::runtime::Owned;

/// See `_micromsg_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct MicroMsgMessage {
    /// Its number among all messages of the connection.
    #[pyo3(get)]
    pub(super) position: u64,
    #[pyo3(get)]
    payload: Py<PyBytes>,
    #[pyo3(get)]
    destination: Py<PyString>,
    raw_properties: Py<PyString>,
    properties: PyOnceLock<Py<PyDict>>,
    #[pyo3(get)]
    dotnet_type: Option<Py<PyString>>,
    /// The connection that it came over; a message does not keep it.
    connection: Weak<Owned<Connection>>,
}

#[pymethods]
impl MicroMsgMessage {
    /// Its properties, as they came.
    #[getter]
    pub(super) fn raw_properties<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        self.raw_properties.bind(py)
    }

    /// Its properties, read at the first call.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let read = self.properties.get_or_try_init(py, || {
            let raw = self.raw_properties.bind(py).to_str()?;
            micromsg_read_properties(py, raw).map(Bound::unbind)
        });
        read.map(|dict| dict.bind(py))
    }

    /// Acknowledges all messages up to this one.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        let connection = self.connection.upgrade();
        let connection = connection.ok_or_else(|| errors::closed("the connection was dropped"))?;
        let connection = connection.get()?;
        let acked = py.detach(|| connection.ack(self.position));
        acked.map_err(raised)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<Message {} to {} with {} bytes and properties {}>",
            self.position,
            self.destination.bind(py).repr()?,
            self.payload.as_bytes(py).len(),
            self.raw_properties.bind(py).repr()?,
        ))
    }
}

impl MicroMsgMessage {
    pub(super) fn came_over(&self, connection: &Arc<Owned<Connection>>) -> bool {
        self.connection.as_ptr() == Arc::as_ptr(connection)
    }
}

/// Makes Python's messages of received ones. Equal texts of messages next to each other are one object.
#[derive(Default)]
pub(super) struct Maker {
    /// The last destination, properties and .NET type.
    last: [Option<(String, Py<PyString>)>; 3],
}

impl Maker {
    /// The value of an object. To make that may run other code of the process, which must not find the maker locked.
    pub(super) fn message(
        &mut self,
        py: Python<'_>,
        connection: &Arc<Owned<Connection>>,
        received: &Received,
    ) -> PyResult<MicroMsgMessage> {
        let message = &received.message;
        let [destination, properties, dotnet_type] = &mut self.last;
        let dotnet = message.dotnet_type.as_deref();
        let payload = match message.payload_in_one() {
            Some(payload) => PyBytes::new(py, payload),
            None => joined(py, &message.payload())?,
        };
        Ok(MicroMsgMessage {
            position: received.position,
            payload: payload.unbind(),
            destination: shared(py, destination, message.destination()),
            raw_properties: shared(py, properties, message.raw_properties()),
            properties: PyOnceLock::new(),
            dotnet_type: dotnet.map(|text| shared(py, dotnet_type, text)),
            connection: Arc::downgrade(connection),
        })
    }
}

/// The object of a text: the last one, if it has the same text.
fn shared(py: Python<'_>, last: &mut Option<(String, Py<PyString>)>, text: &str) -> Py<PyString> {
    // An empty string has no memory, and glibc's comparison looks there all the same: that takes as long as ten others.
    if let Some((known, object)) = last
        && known.len() == text.len()
        && (text.is_empty() || known == text)
    {
        return object.clone_ref(py);
    }
    let object = PyString::new(py, text).unbind();
    *last = Some((text.to_owned(), object.clone_ref(py)));
    object
}
