//! Rows to a bpmux receiver: each task opens one sink, whose close says how many rows there were. A task is done
//! when that close is acknowledged.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackline::bpmux::{self, ConnectOptions, Connection, Error, Limits, Retry, Sink};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::patience::Patience;
use super::{Common, Encoding, LOOK, rows_of};
use crate::bpmux::{cancelled, raised};
use crate::options::{refuse, tls};
use crate::runtime::Owned;
use crate::{arrow_in, errors, runtime};

/// What a sink was given, with its URL.
struct Given {
    url: String,
    connect: ConnectOptions,
    common: Common,
    /// What the sink is opened with.
    opening: Bytes,
}

impl Given {
    fn of(url: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (common, rest) = Common::take(given)?;
        let mut opening = Bytes::new();
        let mut others = Vec::new();
        for (key, value) in &rest {
            let key: String = key.extract()?;
            if key == "opening" {
                opening = value.extract::<String>()?.into();
            } else {
                others.push(key);
            }
        }
        let (tls, others) = tls(others, &rest)?;
        refuse(&others)?;
        let connect = ConnectOptions {
            tls,
            ..ConnectOptions::default()
        };
        bpmux::check(url, &connect).map_err(raised)?;
        Ok(Self {
            url: url.to_owned(),
            connect,
            common,
            opening,
        })
    }
}

/// What rows go to.
struct Going {
    connection: Connection,
    sink: Sink,
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxRows {
    given: Given,
    encoding: Encoding,
    going: Owned<Mutex<Option<Going>>>,
}

#[pymethods]
impl BpmuxRows {
    /// Connects with the first row.
    #[new]
    fn new(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            given: Given::of(url, options)?,
            encoding: Encoding::default(),
            going: Owned::new(Mutex::default()),
        })
    }

    /// Raises what a sink with these options would raise, without connecting.
    #[staticmethod]
    fn check(url: &str, options: &Bound<'_, PyDict>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        Given::of(url, options)?.common.check(schema)
    }

    /// Sends the rows; waits for room.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        let mut at = 0;
        while at < batch.num_rows() {
            let rows = rows_of(&batch, at, STEP);
            let slice = batch.slice(at, rows);
            at += rows;
            let most = usize::try_from(Limits::default().payload).unwrap_or(usize::MAX);
            let payloads = self.encoding.texts(py, &self.given.common, &slice, most)?;
            let going = self.going(py)?;
            let sending = async {
                for payload in payloads {
                    going.sink.send(payload).await?;
                }
                Ok(())
            };
            self.wait(py, &going.connection, sending)?;
            // What an error leaves is dropped, and its connection with it.
            *self.held()? = Some(going);
        }
        Ok(())
    }

    /// Closes the sink with the number of rows and waits until the receiver has acknowledged that: rows.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let Some(Going { connection, sink }) = self.held()?.take() else {
            return Ok(0);
        };
        let rows = self.encoding.read();
        self.wait(py, &connection, sink.close(rows.to_string()))?;
        // Everything is acknowledged: how the connection ends is of no consequence.
        runtime::block_on(py, None, connection.shutdown(Some(GOODBYE)))?;
        Ok(rows)
    }

    /// Ends the connection now.
    fn abort(&self) -> PyResult<()> {
        if let Some(going) = self.held()?.take() {
            going.connection.link().abort();
        }
        Ok(())
    }
}

impl BpmuxRows {
    fn held(&self) -> PyResult<MutexGuard<'_, Option<Going>>> {
        let held = self.going.get()?;
        Ok(held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What rows go to, which the first one opens.
    fn going(&self, py: Python<'_>) -> PyResult<Going> {
        if let Some(going) = self.held()?.take() {
            return Ok(going);
        }
        let retry = Retry {
            timeout: self.given.common.timeout,
            wait_max: WAIT_MAX,
            failures: 0,
        };
        let connecting = bpmux::connect_within(&self.given.url, self.given.connect.clone(), retry);
        let connected = runtime::block_on(py, None, connecting)?;
        let connected =
            connected.ok_or_else(|| errors::internal(&"a wait without an end ended"))?;
        let connection = connected.map_err(|error| self.failed(error))?;
        let opening = connection.open_sink(self.given.opening.clone());
        let sink = self.wait(py, &connection, opening)?;
        Ok(Going { connection, sink })
    }

    /// Waits as long as payloads leave, and for `timeout` when none does.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        connection: &Connection,
        waiting: impl Future<Output = Result<T, Error>> + Send,
    ) -> PyResult<T> {
        let timeout = self.given.common.timeout;
        let mut waiting = pin!(waiting);
        let sent = || connection.stats().bytes_sent;
        let mut patience = Patience::new(timeout, Instant::now(), sent());
        loop {
            if let Some(done) = runtime::block_on(py, Some(LOOK.min(timeout)), waiting.as_mut())? {
                return done.map_err(|error| self.failed(error));
            }
            if patience.is_over(Instant::now(), sent()) {
                let seconds = timeout.as_secs_f64();
                return Err(self.lost(&format!("no credit and no acknowledgement for {seconds} s")));
            }
        }
    }

    /// A task's end, with what is not acknowledged; options that cannot be used as they are.
    fn failed(&self, error: Error) -> PyErr {
        match error {
            Error::Url(_) | Error::Tls { .. } => raised(error),
            Error::Cancelled(ref payload) => cancelled(&self.text(&error.to_string()), payload),
            // Also that it is over, which may be told as a call's refusal.
            _ => self.lost(&error.to_string()),
        }
    }

    fn lost(&self, why: &str) -> PyErr {
        errors::lost(&self.text(why), self.encoding.read())
    }

    fn text(&self, why: &str) -> String {
        let (read, place) = (self.encoding.read(), self.given.common.place());
        let url = self.given.url.split('?').next().unwrap_or_default();
        format!("{url}: {why}; none of the {read} rows{place} is acknowledged")
    }
}

/// Rows and bytes that are encoded at once.
const STEP: (usize, u64) = (8_192, 1 << 20);
/// The longest wait between two attempts to connect: a task has its own patience.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the end of the connection may take when everything is acknowledged.
const GOODBYE: Duration = Duration::from_secs(2);
