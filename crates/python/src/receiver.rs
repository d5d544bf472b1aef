//! The receiver for Python: start, lines of the JSON contract, stop.

use std::path::PathBuf;

use ackline::{ReceiverError, ReceiverOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::value_of;
use crate::runtime::Owned;
use crate::{errors, given_back, runtime};

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Receiver {
    receiver: Owned<ackline::Receiver>,
}

#[pymethods]
impl Receiver {
    #[new]
    #[pyo3(signature = (urls, spool = None, discard = false, options = None, connect = vec![]))]
    fn new(
        py: Python<'_>,
        urls: Vec<String>,
        spool: Option<PathBuf>,
        discard: bool,
        options: Option<&Bound<'_, PyDict>>,
        connect: Vec<String>,
    ) -> PyResult<Self> {
        if spool.is_none() != discard {
            let message = "a receiver keeps events in a spool or discards them: \
                           exactly one of the two must be chosen";
            return Err(errors::usage("receiver.spool", message));
        }
        let mut all = ReceiverOptions {
            urls,
            connect,
            spool,
            ..ReceiverOptions::default()
        };
        if let Some(options) = options {
            for (name, value) in options {
                let name: String = name.extract()?;
                all.set_named(&name, value_of(&value)?)
                    .map_err(|error| errors::option_as("receiver.option", &name, &error))?;
            }
        }
        given_back::large_blocks();
        let started = runtime::block_on(py, None, ackline::Receiver::start(all))?;
        match started {
            Some(Ok(receiver)) => Ok(Self {
                receiver: Owned::new(receiver),
            }),
            Some(Err(error)) => Err(raised(&error)),
            None => Err(errors::timeout("the receiver did not start in time")),
        }
    }

    #[getter]
    fn urls(&self) -> PyResult<Vec<String>> {
        Ok(self.receiver.get()?.urls().to_vec())
    }

    /// The next JSON line, or `None` after `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn next_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let receiver = self.receiver.get()?;
        let timeout = runtime::seconds("timeout", timeout)?;
        runtime::in_slices(py, timeout, |slice| receiver.next_event(slice))
    }

    /// The members of a `stats` line, as JSON.
    fn stats(&self) -> PyResult<String> {
        Ok(self.receiver.get()?.stats().to_json().to_string())
    }

    /// The reason why it gave up, once its spool cannot be written or no socket of it listens: `code: message`.
    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.receiver.get()?.failure().map(|why| why.to_string()))
    }

    /// Stops; answers how many windows were left unacknowledged.
    #[pyo3(signature = (drain = None))]
    fn stop(&self, py: Python<'_>, drain: Option<f64>) -> PyResult<u64> {
        let receiver = self.receiver.get()?;
        let stopped =
            runtime::block_on(py, None, receiver.stop(runtime::seconds("drain", drain)?))?;
        Ok(stopped.unwrap_or(0))
    }

    /// Ends every connection now; answers the windows left unacknowledged.
    fn abort(&self, py: Python<'_>) -> PyResult<u64> {
        let receiver = self.receiver.get()?;
        let _entered = runtime::handle(py)?.enter();
        Ok(receiver.abort())
    }
}

fn raised(error: &ReceiverError) -> PyErr {
    match error {
        ReceiverError::Usage(message) => errors::usage("receiver.usage", message),
        ReceiverError::Option(error) => errors::option_as("receiver.usage", &error.option, error),
        ReceiverError::Bind { .. } => errors::transport(error),
        ReceiverError::Spool(error) => errors::raised(error),
        ReceiverError::Links(message) => errors::spool("relink.state", message),
    }
}
