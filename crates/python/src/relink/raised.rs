//! The exceptions of a link's errors.

use ackline::relink::{Error, Unacknowledged};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::payload::parts_of;
use crate::errors;

/// The exception of an error.
pub(crate) fn raised(error: Error) -> PyErr {
    let text = errors::as_python(&error.to_string(), error.options());
    match error {
        Error::Usage(error) => errors::refused(error),
        Error::Option(error) => errors::option(&error.option, &error),
        Error::Url(_) => errors::usage("url", &text),
        Error::Tls { code, .. } => errors::usage(code, &text),
        error if error.is_usage() => errors::usage(error.code(), &text),
        Error::Forgotten => errors::usage("forgotten", &text),
        Error::Blocked | Error::Timeout => errors::timeout(&text),
        Error::Lost(lost) => self::lost(&text, &lost.unacknowledged),
        Error::Closed | Error::LetGo | Error::HandedOver | Error::ChannelClosed => {
            errors::closed(&text)
        }
        Error::State(_) => errors::usage("state", &text),
        Error::Unkept(_) => errors::state(&text),
        _ => errors::transport(&text),
    }
}

/// The result of a call; `None` without room.
pub(super) fn unless_blocked<R>(result: Result<R, Error>) -> PyResult<Option<R>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(Error::Blocked) => Ok(None),
        Err(error) => Err(raised(error)),
    }
}

/// `LinkLost` with the messages that may be sent again.
fn lost(text: &str, left: &[Unacknowledged]) -> PyErr {
    Python::attach(|py| {
        let made = || -> PyResult<PyErr> {
            let kwargs = PyDict::new(py);
            kwargs.set_item("unacknowledged", left.len())?;
            kwargs.set_item("messages", messages(py, left)?)?;
            let class = py.import("ackline.exceptions")?.getattr("LinkLost")?;
            Ok(PyErr::from_value(class.call((text,), Some(&kwargs))?))
        };
        made().unwrap_or_else(|error| error)
    })
}

/// `Unacknowledged` of Python for each message.
fn messages<'py>(py: Python<'py>, left: &[Unacknowledged]) -> PyResult<Bound<'py, PyTuple>> {
    let class = py.import("ackline.exceptions")?.getattr("Unacknowledged")?;
    let made = left.iter().map(|one| {
        let parts = PyTuple::new(py, parts_of(py, &one.payload))?;
        let channel = PyBytes::new(py, one.channel.as_bytes());
        class.call1((channel, one.sequence.0, parts))
    });
    PyTuple::new(py, made.collect::<PyResult<Vec<_>>>()?)
}
