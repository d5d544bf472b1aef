//! The exceptions of a connection's errors.

use ackline::bpmux::Error;
use ackline_link::End;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::PROTOCOL;
use crate::errors;

/// The exception of an error.
pub(crate) fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Usage(error) => errors::refused(error),
        Error::Open(error) => errors::open(&error),
        Error::Blocked | Error::Timeout => errors::timeout(&text),
        Error::TooLarge(_) => errors::usage("too_large", &text),
        Error::Cancelled(payload) => cancelled(&text, &payload),
        Error::Closed(payload) => ended_by_peer("RequestClosed", &text, &payload),
        Error::Ended(End::Protocol(error)) => errors::protocol(PROTOCOL, &error),
        Error::Ended(End::Io(_) | End::Memory { .. }) => errors::transport(&text),
        Error::Ended(_) => errors::closed(&text),
        _ => errors::transport(&text),
    }
}

/// The reader wants no more, and says why.
pub(crate) fn cancelled(text: &str, payload: &[u8]) -> PyErr {
    ended_by_peer("PeerCancelled", text, payload)
}

/// An exception with the payload that says why.
fn ended_by_peer(name: &str, text: &str, payload: &[u8]) -> PyErr {
    Python::attach(|py| {
        let made = || -> PyResult<PyErr> {
            let class = py.import("ackline.exceptions")?.getattr(name)?;
            Ok(PyErr::from_value(
                class.call1((text, PyBytes::new(py, payload)))?,
            ))
        };
        made().unwrap_or_else(|error| error)
    })
}
