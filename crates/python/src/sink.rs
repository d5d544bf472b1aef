//! The parts that the tasks of all Spark sinks share: record batches become JSON texts, or are texts as they are, and
//! a task waits as long as its receiver gets further.

mod bpmux;
mod lumberjack;
mod micromsg;
mod reactive;
mod relink;
mod stall_timer;

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ackline_core::options::{Options, Uses};
use ackline_json::{EncodeError, Encoder, Nulls, Stamp, texts};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(crate) use bpmux::BpmuxRows;
pub(crate) use lumberjack::LumberjackSink;
pub(crate) use micromsg::MicroMsgRows;
pub(crate) use reactive::ReactiveRows;
pub(crate) use relink::RelinkSink;

use self::stall_timer::StallTimer;

use crate::{arrow_in, errors, options, runtime};

/// How often a wait looks whether more is done.
const LOOK: Duration = Duration::from_millis(200);

/// Rows and bytes that are encoded at once where rows do not go in windows.
const STEP: Step = Step {
    rows: 8_192,
    bytes: 1 << 20,
};

/// The first wait between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest wait between two attempts to connect: a task has its own stall.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Bytes of rows that are kept to be sent again over another connection.
const KEPT_BYTES: usize = 64 << 20;

/// How long the end of the connections may take when everything is acknowledged.
const GOODBYE: Duration = Duration::from_secs(2);

/// The form that rows get.
#[derive(Clone)]
enum Form {
    /// JSON objects of their columns.
    Json { nulls: Nulls, stamp: Option<Stamp> },
    /// The one column as it is.
    Raw,
}

impl Form {
    const fn is_raw(&self) -> bool {
        matches!(self, Self::Raw)
    }

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

/// The rows of a sink of any protocol on their way into texts, and the options that all sinks have.
struct Source {
    form: Form,
    timeout: Duration,
    /// The partition of the rows, for errors; a check has none.
    partition: Option<u64>,
    rows: Mutex<Option<Rows>>,
    /// Rows that were read.
    read: AtomicU64,
}

impl Source {
    /// Takes its options out of all options: the others are the protocol's.
    fn take<'py>(given: &Bound<'py, PyDict>) -> PyResult<(Self, Bound<'py, PyDict>)> {
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
        let source = Self {
            form,
            timeout,
            partition,
            rows: Mutex::default(),
            read: AtomicU64::new(0),
        };
        Ok((source, rest))
    }

    /// Raises for rows of this schema that have no form.
    fn check(&self, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        let schema = arrow_in::schema(schema)?;
        let encoder = self.form.encoder(&schema);
        encoder.map(drop).map_err(|error| refused(&error))
    }

    /// The origin of the rows, for texts.
    fn place(&self) -> String {
        self.partition.map_or_else(String::new, |partition| {
            format!(" of partition {partition}")
        })
    }

    /// The texts of a batch, counted. Raises for one above `most` bytes.
    fn texts(&self, py: Python<'_>, batch: &RecordBatch, most: usize) -> PyResult<Vec<Bytes>> {
        let payloads = py.detach(|| self.encode(batch));
        let payloads = payloads.map_err(|error| refused(&error))?;
        let count = u64::try_from(payloads.len()).unwrap_or(u64::MAX);
        let first = self.read.fetch_add(count, Ordering::Relaxed);
        let Some(at) = payloads.iter().position(|payload| payload.len() > most) else {
            return Ok(payloads);
        };
        let row = first.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        let bytes = payloads.get(at).map_or(0, Bytes::len);
        let place = self.place();
        let message = format!(
            "row {row}{place} is an event of {bytes} bytes, and one has {most} at the most"
        );
        Err(errors::usage("rows", &message))
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Vec<Bytes>, EncodeError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = match &mut *rows {
            Some(rows) => rows,
            none => none.insert(self.form.encoder(batch.schema_ref())?),
        };
        rows.of(batch)
    }

    /// Rows that were read so far.
    fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Waits for the output of `waiting` as long as `done` grows; `None` when `done` did not grow for the timeout.
    fn wait<F>(
        &self,
        py: Python<'_>,
        stall: &mut StallTimer,
        waiting: F,
        done: impl Fn() -> PyResult<u64>,
    ) -> PyResult<Option<F::Output>>
    where
        F: Future<Output: Send> + Send,
    {
        let mut waiting = pin!(waiting);
        let look = LOOK.min(self.timeout);
        loop {
            let output = runtime::block_on(py, Some(look), waiting.as_mut())?;
            if stall.is_over(Instant::now(), done()?) || output.is_some() {
                return Ok(output);
            }
        }
    }

    /// The error of a task whose rows are acknowledged together, and are not.
    fn lost(&self, url: &str, why: &str) -> PyErr {
        errors::lost(&self.unacknowledged(url, why), self.read())
    }

    /// Its text, with the URL without its query.
    fn unacknowledged(&self, url: &str, why: &str) -> String {
        let (read, place) = (self.read(), self.place());
        let url = url.split('?').next().unwrap_or_default();
        format!("{url}: {why}; none of the {read} rows{place} is acknowledged")
    }

    /// A timer of the sink's timeout.
    fn stall_timer(&self, done: u64) -> StallTimer {
        StallTimer::new(self.timeout, Instant::now(), done)
    }
}

/// The reason why a step of a task failed.
enum Failed {
    /// The connection is lost: the rows may go over another one.
    Lost(String),
    /// The task is over.
    Raised(PyErr),
}

impl From<PyErr> for Failed {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// Returns the outcome of `step`. When its connection is lost, it is repeated after growing pauses, unless `lost` returns
/// an error.
fn until_done<C, T>(
    py: Python<'_>,
    task: &mut C,
    step: impl Fn(&mut C) -> Result<T, Failed>,
    lost: impl Fn(&mut C, &str) -> PyResult<()>,
) -> PyResult<T> {
    let mut pause = PAUSE_MIN;
    loop {
        match step(task) {
            Ok(done) => return Ok(done),
            Err(Failed::Raised(error)) => return Err(error),
            Err(Failed::Lost(why)) => lost(task, &why)?,
        }
        runtime::block_on(py, Some(pause), std::future::pending::<()>())?;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Sets the options of a protocol's `connect` among `rest`; `take` takes the sink's others.
fn set_connect(
    connect: &mut dyn Options,
    rest: &Bound<'_, PyDict>,
    mut take: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<()> {
    for key in options::set(connect, Uses::CONNECT, rest)? {
        let value = rest.get_item(&key)?;
        if let Some(value) = value
            && !take(&key, &value)?
        {
            options::refuse(&[key])?;
        }
    }
    Ok(())
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

/// Rows and bytes that are encoded at once, at the most.
#[derive(Clone, Copy)]
struct Step {
    rows: usize,
    bytes: u64,
}

/// A batch in slices of one step each, by each row's share of the batch's bytes.
fn slices(batch: &RecordBatch, step: Step) -> impl Iterator<Item = RecordBatch> {
    let all = batch.num_rows();
    let each = batch.get_array_memory_size().div_ceil(all.max(1)).max(1);
    let bytes = usize::try_from(step.bytes).unwrap_or(usize::MAX);
    let rows = (bytes / each).clamp(1, step.rows.max(1));
    (0..all)
        .step_by(rows)
        .map(move |at| batch.slice(at, rows.min(all - at)))
}

fn refused(error: &EncodeError) -> PyErr {
    errors::usage("rows", &error.to_string())
}
