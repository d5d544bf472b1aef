//! Rows to Lumberjack receivers: a task is done when it is known that all of them were acknowledged.

use ackline::lumberjack::{
    Batch, Limits, OutRecord, Sender, SenderError, SenderOptions, WindowRoom,
};
use ackline_core::options::Uses;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{GOODBYE, Source, Step, slices};
use crate::lumberjack::raised;
use crate::runtime::Owned;
use crate::{arrow_in, errors, options, runtime};

/// The options of a sink, and its rows.
struct Given {
    sender: SenderOptions,
    source: Source,
}

impl Given {
    fn of(given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (source, rest) = Source::take(given)?;
        let has_read_timeout = rest.contains("read_timeout")?;
        let mut sender = SenderOptions::default();
        options::set_all(&mut sender, Uses::CONNECT, &rest)?;
        if !has_read_timeout {
            // With this, a silent host is given up for other hosts, and in time.
            let stall = source.timeout / 2;
            let read = sender.writer.read_timeout.map(|time| time.min(stall));
            sender.writer.read_timeout = read;
            sender.connect_timeout = sender.connect_timeout.min(stall);
        }
        Ok(Self { sender, source })
    }
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackSink {
    sender: Owned<Sender>,
    given: Given,
}

#[pymethods]
impl LumberjackSink {
    /// Begins to connect.
    #[new]
    fn new(py: Python<'_>, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut given = Given::of(options)?;
        bound_buffer(&mut given.sender);
        let handle = runtime::handle(py)?;
        let _inside = handle.enter();
        let sender = Sender::open(&[url], given.sender.clone()).map_err(raised)?;
        Ok(Self {
            sender: Owned::new(sender),
            given,
        })
    }

    /// Raises the errors of these options, as a sink would, without connecting.
    #[staticmethod]
    fn check(url: &str, options: &Bound<'_, PyDict>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = Given::of(options)?;
        Sender::check(&[url], given.sender).map_err(raised)?;
        given.source.check(schema)
    }

    /// Hands the rows on; waits for room. Raises `LinkLost` after `timeout` without an acknowledgement.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        for slice in slices(&batch, self.step()) {
            let most = Limits::default().max_json_bytes;
            let payloads = self.given.source.texts(py, &slice, most)?;
            for window in self.windows(payloads) {
                let batch = Batch::json(window).map_err(errors::refused)?;
                self.wait(py, self.sender.get()?.send(&batch, None))?;
            }
        }
        Ok(())
    }

    /// Waits until every row is acknowledged and ends the connections; raises as `write`.
    /// `(rows, possible_repeats, reconnects)`.
    fn finish(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let sender = self.sender.get()?;
        self.wait(py, sender.flush(None))?;
        let stats = sender.stats();
        runtime::block_on(py, None, sender.close(GOODBYE))?;
        Ok((stats.accepted, stats.possible_repeats, stats.reconnects))
    }

    /// Ends the connections now.
    fn abort(&self) -> PyResult<()> {
        self.sender.get()?.abort();
        Ok(())
    }
}

impl LumberjackSink {
    /// The rows and bytes of a window.
    fn step(&self) -> Step {
        let sender = &self.given.sender;
        Step {
            rows: usize::try_from(sender.batch_events).unwrap_or(usize::MAX),
            bytes: sender.batch_bytes,
        }
    }

    /// Cuts the events so that each piece is at most a window; a larger event stands alone.
    fn windows(&self, payloads: Vec<Bytes>) -> Vec<Vec<Bytes>> {
        let sender = &self.given.sender;
        let new = || WindowRoom::new(sender.batch_events.into(), sender.batch_bytes);
        let (mut windows, mut room) = (Vec::<Vec<Bytes>>::new(), new());
        for payload in payloads {
            let len = widened(OutRecord::json_wire_len(payload.len()));
            match windows.last_mut() {
                Some(window) if room.takes(len) => window.push(payload),
                _ => {
                    room = new();
                    room.takes(len);
                    windows.push(vec![payload]);
                }
            }
        }
        windows
    }

    /// Waits as long as acknowledgements come.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        waiting: impl Future<Output = Result<T, SenderError>> + Send,
    ) -> PyResult<T> {
        let sender = self.sender.get()?;
        let source = &self.given.source;
        let mut stall = source.stall_timer(acknowledged(sender));
        let done = source.wait(py, &mut stall, waiting, || Ok(acknowledged(sender)))?;
        let Some(done) = done else {
            sender.abort();
            return Err(self.lost(sender));
        };
        done.map_err(raised)
    }

    fn lost(&self, sender: &Sender) -> PyErr {
        let stats = sender.stats();
        let hosts: Vec<String> = stats
            .hosts
            .iter()
            .map(|host| match &host.last_error {
                Some(error) => format!("{} ({error})", host.url),
                None => host.url.to_string(),
            })
            .collect();
        let done = stats.accepted.saturating_sub(stats.unacknowledged);
        let read = self.given.source.read();
        let missing = read.saturating_sub(done);
        let message = format!(
            "no acknowledgement from {} for {} s: {done} rows are acknowledged, {missing} of the {read} read so far are not",
            hosts.join(" and "),
            self.given.source.timeout.as_secs_f64(),
        );
        errors::lost(&message, missing)
    }
}

fn acknowledged(sender: &Sender) -> u64 {
    let stats = sender.stats();
    stats.accepted.saturating_sub(stats.unacknowledged)
}

/// Bounds the buffer to twice the windows that two hosts may have in flight: every task has a buffer of its own.
fn bound_buffer(options: &mut SenderOptions) {
    let windows = u64::try_from(options.writer.max_in_flight).unwrap_or(u64::MAX);
    let windows = windows.saturating_add(1).saturating_mul(4);
    options.buffer_events = Some(u64::from(options.batch_events).saturating_mul(windows));
    let event = OutRecord::json_wire_len(Limits::default().max_json_bytes);
    let largest = options.batch_bytes.max(widened(event));
    let bytes = largest.saturating_add(options.batch_bytes.saturating_mul(windows));
    options.buffer_bytes = Some(bytes);
}

fn widened(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
