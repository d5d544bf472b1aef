//! Rows to a bpmux receiver: each task opens one sink and closes it with the number of its rows. A task is done when
//! that close is acknowledged. If its connection is lost before, all rows are sent again over another one, in a sink
//! with the same opening: a receiver recognises them by the opening and by their numbers.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use ackline::bpmux::{self, ConnectOptions, Connection, Error, Limits, Retry, Sink};
use ackline_link::End;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::stall_timer::StallTimer;
use super::{
    Failed, GOODBYE, KEPT_BYTES, PAUSE_MAX, STEP, Source, set_connect, slices, until_done,
};
use crate::bpmux::{cancelled, raised};
use crate::runtime::Owned;
use crate::{arrow_in, errors, runtime};

/// The URL and the options of a sink, and its rows.
struct Given {
    url: String,
    connect: ConnectOptions,
    source: Source,
    /// The payload that opens the sink.
    opening: Bytes,
}

impl Given {
    fn of(url: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (source, rest) = Source::take(given)?;
        let mut opening = Bytes::new();
        let mut connect = ConnectOptions::default();
        set_connect(&mut connect, &rest, |key, value| {
            if key == "opening" {
                opening = value.extract::<String>()?.into();
            }
            Ok(key == "opening")
        })?;
        bpmux::check(url, &connect).map_err(raised)?;
        Ok(Self {
            url: url.to_owned(),
            connect,
            source,
            opening,
        })
    }
}

/// A connection and the sink on it that the rows are sent on.
struct Going {
    connection: Connection,
    sink: Sink,
    /// Rows that were sent on it.
    sent: u64,
}

/// The progress of a partition.
#[derive(Default)]
struct Task {
    going: Option<Going>,
    /// Rows that are not acknowledged, from the first one that may have to be sent again.
    rows: Vec<Bytes>,
    bytes: usize,
    /// Rows before these: they were too many to be kept, and nothing can be sent again.
    gone: u64,
    stall: Option<StallTimer>,
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct BpmuxRows {
    given: Given,
    task: Owned<Mutex<Task>>,
}

#[pymethods]
impl BpmuxRows {
    /// Connects with the first row.
    #[new]
    fn new(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self {
            given: Given::of(url, options)?,
            task: Owned::new(Mutex::default()),
        })
    }

    /// Raises the errors of these options, as a sink would, without connecting.
    #[staticmethod]
    fn check(url: &str, options: &Bound<'_, PyDict>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        Given::of(url, options)?.source.check(schema)
    }

    /// Sends the rows; waits for room.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        let mut task = self.task.lock()?;
        for slice in slices(&batch, STEP) {
            let most = usize::try_from(Limits::default().max_payload_bytes).unwrap_or(usize::MAX);
            let payloads = self.given.source.texts(py, &slice, most)?;
            task.keep(payloads);
            self.until_done(py, &mut task, |task| self.bring(py, task))?;
            task.forget_many();
        }
        Ok(())
    }

    /// Closes the sink with the number of rows and waits until the receiver has acknowledged that: rows.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let mut task = self.task.lock()?;
        let rows = self.given.source.read();
        if rows == 0 {
            return Ok(0);
        }
        let connection = self.until_done(py, &mut task, |task| {
            self.bring(py, task)?;
            let Some(Going {
                connection, sink, ..
            }) = task.going.take()
            else {
                return Err(Failed::Raised(errors::internal(
                    &"there is no sink to close",
                )));
            };
            self.wait(py, task, &connection, sink.close(rows.to_string()))?;
            Ok(connection)
        })?;
        // Everything is acknowledged: how the connection ends is of no consequence.
        runtime::block_on(py, None, connection.shutdown(Some(GOODBYE)))?;
        Ok(rows)
    }

    /// Ends the connection now.
    fn abort(&self) -> PyResult<()> {
        if let Some(going) = self.task.lock()?.going.take() {
            going.connection.link().abort();
        }
        Ok(())
    }
}

impl Task {
    fn keep(&mut self, rows: Vec<Bytes>) {
        self.bytes += rows.iter().map(Bytes::len).sum::<usize>();
        self.rows.extend(rows);
    }

    /// Rows that were sent are kept up to a limit.
    fn forget_many(&mut self) {
        if self.gone > 0 || self.bytes > KEPT_BYTES {
            self.gone = self.gone.saturating_add(count_of(&self.rows));
            self.rows.clear();
            self.bytes = 0;
        }
    }
}

impl BpmuxRows {
    /// Returns the outcome of `step`. It is repeated with a new connection as long as the stall timer and the kept
    /// rows allow it.
    fn until_done<T>(
        &self,
        py: Python<'_>,
        task: &mut Task,
        step: impl Fn(&mut Task) -> Result<T, Failed>,
    ) -> PyResult<T> {
        // The rows may have taken their time to come.
        self.stall(task).renew(Instant::now());
        until_done(py, task, step, |task, why| {
            // An error drops the sink, and its connection with it.
            task.going = None;
            if task.gone > 0 {
                let limit = KEPT_BYTES >> 20;
                let why = format!(
                    "{why}; more than {limit} MiB of rows were sent, which are not kept to be sent again"
                );
                return Err(self.lost(&why));
            }
            if self.left(task).is_zero() {
                return Err(self.lost(why));
            }
            Ok(())
        })
    }

    /// Sends the rows that were not sent on this connection; connects first if needed.
    fn bring(&self, py: Python<'_>, task: &mut Task) -> Result<(), Failed> {
        let mut going = match task.going.take() {
            Some(going) => going,
            None => self.connected(py, task)?,
        };
        let sent = usize::try_from(going.sent.saturating_sub(task.gone)).unwrap_or(usize::MAX);
        let rest: Vec<Bytes> = task.rows.iter().skip(sent).cloned().collect();
        let count = count_of(&rest);
        let sending = async {
            for payload in rest {
                going.sink.send(payload).await?;
            }
            Ok(())
        };
        self.wait(py, task, &going.connection, sending)?;
        going.sent = going.sent.saturating_add(count);
        task.going = Some(going);
        Ok(())
    }

    /// A new connection with the sink opened on it.
    fn connected(&self, py: Python<'_>, task: &mut Task) -> Result<Going, Failed> {
        let retry = Retry {
            timeout: self.left(task),
            wait_max: PAUSE_MAX,
            failures: 0,
        };
        let connecting = bpmux::connect_within(&self.given.url, self.given.connect.clone(), retry);
        let connected = runtime::block_on(py, None, connecting)?;
        let connected =
            connected.ok_or_else(|| errors::internal(&"a wait without an end ended"))?;
        let connection = connected.map_err(|error| self.failed(error))?;
        let opening = connection.open_sink(self.given.opening.clone());
        let sink = self.wait(py, task, &connection, opening)?;
        Ok(Going {
            connection,
            sink,
            sent: 0,
        })
    }

    /// How long the task may still wait for something to be done.
    fn left(&self, task: &mut Task) -> Duration {
        self.stall(task).left(Instant::now())
    }

    fn stall<'a>(&self, task: &'a mut Task) -> &'a mut StallTimer {
        task.stall
            .get_or_insert_with(|| self.given.source.stall_timer(0))
    }

    /// Waits as long as payloads leave, and for `timeout` when no payload leaves that did not leave before.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        task: &mut Task,
        connection: &Connection,
        waiting: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Failed> {
        let sent = || Ok(connection.stats().bytes_sent);
        let stall = self.stall(task);
        let Some(done) = self.given.source.wait(py, stall, waiting, sent)? else {
            let seconds = self.given.source.timeout.as_secs_f64();
            let why = format!("no credit and no acknowledgement for {seconds} s");
            return Err(Failed::Raised(self.lost(&why)));
        };
        done.map_err(|error| match error {
            Error::Open(ref open) if !open.is_passing() => Failed::Raised(self.failed(error)),
            Error::Cancelled(_) | Error::Ended(End::Protocol(_)) => {
                Failed::Raised(self.failed(error))
            }
            // This includes the end of the connection, which may be reported as a call's refusal.
            _ => Failed::Lost(error.to_string()),
        })
    }

    /// The error that ends a task, with the unacknowledged rows; an error of the options is raised as it is.
    fn failed(&self, error: Error) -> PyErr {
        match error {
            Error::Open(ref open) if !open.is_passing() => raised(error),
            Error::Cancelled(ref payload) => cancelled(&self.text(&error.to_string()), payload),
            _ => self.lost(&error.to_string()),
        }
    }

    fn lost(&self, why: &str) -> PyErr {
        self.given.source.lost(&self.given.url, why)
    }

    fn text(&self, why: &str) -> String {
        self.given.source.unacknowledged(&self.given.url, why)
    }
}

fn count_of(rows: &[Bytes]) -> u64 {
    u64::try_from(rows.len()).unwrap_or(u64::MAX)
}
