//! What the tasks of the Spark sink have in common: record batches become JSON texts, or are texts as they are.

mod bpmux;
mod lumberjack;
mod relink;
mod stall_timer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ackline_json::{EncodeError, Encoder, Nulls, Stamp, texts};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(crate) use bpmux::BpmuxRows;
pub(crate) use lumberjack::LumberjackSink;
pub(crate) use relink::RelinkSink;

use crate::{arrow_in, errors, options};

/// How often a wait looks whether it got further.
const LOOK: Duration = Duration::from_millis(200);

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

/// What a sink of any protocol was given beside its URL.
struct Common {
    form: Form,
    timeout: Duration,
    /// Of the rows, for errors; a check has none.
    partition: Option<u64>,
}

impl Common {
    /// Takes it out of all options: what is left is the protocol's.
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
        let common = Self {
            form,
            timeout,
            partition,
        };
        Ok((common, rest))
    }

    /// Raises for rows of this schema that have no form.
    fn check(&self, schema: &Bound<'_, PyAny>) -> PyResult<()> {
        let schema = arrow_in::schema(schema)?;
        let encoder = self.form.encoder(&schema);
        encoder.map(drop).map_err(|error| refused(&error))
    }

    /// Where the rows come from, for texts.
    fn place(&self) -> String {
        self.partition.map_or_else(String::new, |partition| {
            format!(" of partition {partition}")
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

/// Rows of a partition on their way into texts.
#[derive(Default)]
struct Encoding {
    rows: Mutex<Option<Rows>>,
    /// Rows that were read.
    read: AtomicU64,
}

impl Encoding {
    /// The texts of a batch, counted. Raises for one above `most` bytes.
    fn texts(
        &self,
        py: Python<'_>,
        common: &Common,
        batch: &RecordBatch,
        most: usize,
    ) -> PyResult<Vec<Bytes>> {
        let payloads = py.detach(|| self.encode(&common.form, batch));
        let payloads = payloads.map_err(|error| refused(&error))?;
        let count = u64::try_from(payloads.len()).unwrap_or(u64::MAX);
        let first = self.read.fetch_add(count, Ordering::Relaxed);
        let Some(at) = payloads.iter().position(|payload| payload.len() > most) else {
            return Ok(payloads);
        };
        let row = first.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        let bytes = payloads.get(at).map_or(0, Bytes::len);
        let place = common.place();
        let message = format!(
            "row {row}{place} is an event of {bytes} bytes, and one has {most} at the most"
        );
        Err(errors::usage("rows", &message))
    }

    fn encode(&self, form: &Form, batch: &RecordBatch) -> Result<Vec<Bytes>, EncodeError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = match &mut *rows {
            Some(rows) => rows,
            none => none.insert(form.encoder(batch.schema_ref())?),
        };
        rows.of(batch)
    }

    fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// How many rows from `at` on are encoded at once: so many bytes' worth, by their share of the batch.
fn rows_of(batch: &RecordBatch, at: usize, (rows, bytes): (usize, u64)) -> usize {
    let each = batch
        .get_array_memory_size()
        .div_ceil(batch.num_rows())
        .max(1);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    (bytes / each)
        .clamp(1, rows.max(1))
        .min(batch.num_rows() - at)
}

fn refused(error: &EncodeError) -> PyErr {
    errors::usage("rows", &error.to_string())
}
