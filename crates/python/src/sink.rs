//! What a task of the Spark sink does: record batches become JSON texts, these go to the receivers, and it is
//! known that all of them were acknowledged.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackline::lumberjack::{
    Batch, Limits, OutRecord, Sender, SenderError, SenderOptions, WindowRoom,
};
use ackline_json::{EncodeError, Encoder, Nulls, Stamp, texts};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::lumberjack::raised;
use crate::runtime::Owned;
use crate::{arrow_in, errors, options, runtime};

/// How often a wait looks whether an acknowledgement came.
const LOOK: Duration = Duration::from_millis(200);
/// How long the end of the connections may take when everything is acknowledged.
const GOODBYE: Duration = Duration::from_secs(2);

/// What rows become.
#[derive(Clone)]
enum Form {
    /// JSON objects of their columns.
    Json { nulls: Nulls, stamp: Option<Stamp> },
    /// The one column as it is.
    Raw,
}

impl Form {
    fn encoder(&self, schema: &Schema) -> Result<Rows, EncodeError> {
        match self {
            Self::Json { nulls, stamp } => {
                Encoder::new(schema, *nulls, stamp.clone()).map(Rows::Json)
            }
            Self::Raw => texts(&RecordBatch::new_empty(schema.clone().into())).map(|_| Rows::Raw),
        }
    }
}

/// The same, for batches of a schema.
enum Rows {
    Json(Encoder),
    Raw,
}

impl Rows {
    fn of(&mut self, batch: &RecordBatch) -> Result<Vec<Bytes>, EncodeError> {
        match self {
            Self::Json(encoder) => encoder.encode(batch),
            Self::Raw => texts(batch),
        }
    }
}

/// What a sink was given beside its URL.
struct Given {
    sender: SenderOptions,
    form: Form,
    timeout: Duration,
    /// Of the rows, for errors; a check has none.
    partition: Option<u64>,
}

impl Given {
    fn of(given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let rest = given.copy()?;
        let take = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            let value = rest.get_item(name)?;
            if value.is_some() {
                rest.del_item(name)?;
            }
            Ok(value)
        };
        let is = |value: Option<Bound<'_, PyAny>>| value.map_or(Ok(false), |value| value.extract());
        let (raw, keep) = (is(take("raw")?)?, is(take("keep_nulls")?)?);
        let stamp = take("stamp")?.map(|stamp| stamp_of(&stamp)).transpose()?;
        let nulls = if keep { Nulls::Keep } else { Nulls::Omit };
        let form = if raw {
            Form::Raw
        } else {
            Form::Json { nulls, stamp }
        };
        let timeout = take("timeout")?
            .map(|value| options::time_of("timeout", &value))
            .transpose()?
            .flatten()
            .ok_or_else(|| errors::usage("timeout", "timeout is missing"))?;
        let partition = take("partition")?
            .map(|value| value.extract())
            .transpose()?;
        let has_read_timeout = rest.contains("read_timeout")?;
        let mut sender = options::sender(&rest, 1)?;
        if !has_read_timeout {
            // So that a host that is silent is left to others, and in time.
            let patience = timeout / 2;
            let read = sender.writer.read_timeout.map(|time| time.min(patience));
            sender.writer.read_timeout = read;
            sender.connect_timeout = sender.connect_timeout.min(patience);
        }
        Ok(Self {
            sender,
            form,
            timeout,
            partition,
        })
    }
}

/// `(query, batch, partition)` as the member `ackline`.
fn stamp_of(value: &Bound<'_, PyAny>) -> PyResult<Stamp> {
    let (query, batch, partition): (String, u64, u32) = value.extract()?;
    let fixed = [
        ("query", query.into()),
        ("batch", batch.into()),
        ("partition", partition.into()),
    ];
    Ok(Stamp::new(STAMP, &fixed))
}

/// The member that tells where a row comes from.
const STAMP: &str = "ackline";

/// See `_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct LumberjackSink {
    sender: Owned<Sender>,
    given: Given,
    rows: Mutex<Option<Rows>>,
    /// Rows that were read.
    read: AtomicU64,
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
            rows: Mutex::new(None),
            read: AtomicU64::new(0),
        })
    }

    /// Raises what a sink with these options would raise, without connecting.
    #[staticmethod]
    fn check(url: &str, options: &Bound<'_, PyDict>, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = Given::of(options)?;
        Sender::check(&[url], given.sender).map_err(raised)?;
        let schema = arrow_in::schema(schema)?;
        given
            .form
            .encoder(&schema)
            .map_err(|error| refused(&error))?;
        Ok(())
    }

    /// Hands the rows on; waits for room. Raises `LinkLost` after `timeout` without an acknowledgement.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = arrow_in::batch(batch)?;
        let mut at = 0;
        while at < batch.num_rows() {
            let rows = self.rows_of(&batch, at);
            let slice = batch.slice(at, rows);
            at += rows;
            let payloads = py
                .detach(|| self.encode(&slice))
                .map_err(|error| refused(&error))?;
            self.check_sizes(&payloads)?;
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
    fn rows(&self) -> MutexGuard<'_, Option<Rows>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Vec<Bytes>, EncodeError> {
        let mut rows = self.rows();
        let rows = match &mut *rows {
            Some(rows) => rows,
            none => none.insert(self.given.form.encoder(batch.schema_ref())?),
        };
        rows.of(batch)
    }

    /// Counts the rows, and refuses one that no receiver takes by default.
    fn check_sizes(&self, payloads: &[Bytes]) -> PyResult<()> {
        let count = u64::try_from(payloads.len()).unwrap_or(u64::MAX);
        let first = self.read.fetch_add(count, Ordering::Relaxed);
        let is_large = |payload: &Bytes| payload.len() > Limits::default().json;
        let Some(at) = payloads.iter().position(is_large) else {
            return Ok(());
        };
        let row = first.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        let partition = self.given.partition.map_or_else(String::new, |partition| {
            format!(" of partition {partition}")
        });
        let bytes = payloads.get(at).map_or(0, Bytes::len);
        let most = Limits::default().json;
        let message = format!(
            "row {row}{partition} is an event of {bytes} bytes, and one has {most} at the most"
        );
        Err(errors::usage("rows", &message))
    }

    /// How many rows from `at` on are encoded at once: a window's worth, by their share of the batch.
    fn rows_of(&self, batch: &RecordBatch, at: usize) -> usize {
        let each = batch
            .get_array_memory_size()
            .div_ceil(batch.num_rows())
            .max(1);
        let bytes = usize::try_from(self.given.sender.batch_bytes).unwrap_or(usize::MAX);
        let events = usize::try_from(self.given.sender.batch_events).unwrap_or(usize::MAX);
        (bytes / each).clamp(1, events).min(batch.num_rows() - at)
    }

    /// Cut so that each piece is a window at the most; an event that is larger stands alone.
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
        let mut waiting = pin!(waiting);
        let (mut acknowledged, mut since) = (acknowledged(sender), Instant::now());
        loop {
            let look = LOOK.min(self.given.timeout);
            if let Some(done) = runtime::block_on(py, Some(look), waiting.as_mut())? {
                return done.map_err(raised);
            }
            let now = self::acknowledged(sender);
            if now > acknowledged {
                (acknowledged, since) = (now, Instant::now());
            } else if since.elapsed() >= self.given.timeout {
                sender.abort();
                return Err(self.lost(sender));
            }
        }
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
        let read = self.read.load(Ordering::Relaxed);
        let missing = read.saturating_sub(done);
        let message = format!(
            "no acknowledgement from {} for {} s: {done} rows are acknowledged, {missing} of the {read} read so far are not",
            hosts.join(" and "),
            self.given.timeout.as_secs_f64(),
        );
        errors::lost(&message, missing)
    }
}

fn acknowledged(sender: &Sender) -> u64 {
    let stats = sender.stats();
    stats.accepted.saturating_sub(stats.unacknowledged)
}

/// What two hosts may have in flight, and as much again: every task has a buffer of its own.
fn bound_buffer(options: &mut SenderOptions) {
    let windows = u64::try_from(options.writer.max_in_flight).unwrap_or(u64::MAX);
    let windows = windows.saturating_add(1).saturating_mul(4);
    options.buffer_events = u64::from(options.batch_events).saturating_mul(windows);
    let event = OutRecord::json_wire_len(Limits::default().json);
    let largest = options.batch_bytes.max(widened(event));
    options.buffer_bytes = largest.saturating_add(options.batch_bytes.saturating_mul(windows));
}

fn widened(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn refused(error: &EncodeError) -> PyErr {
    errors::usage("rows", &error.to_string())
}
