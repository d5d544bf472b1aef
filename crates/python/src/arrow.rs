//! Event batches for every user of Arrow's `PyCapsule` interface: pyarrow, polars, Spark's workers.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline_columns::{Events, Failure};
use ackline_spool::{Loss, Reader};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use crate::errors;
use crate::project::{Projection, raised};
use crate::runtime::Owned;
use crate::spool::{LossRow, loss_row};

/// The events as arrow's trait names them. C calls these functions, so that a panic in one would end the process:
/// [`Events`] has none, and dropping them is caught here.
struct Batches {
    events: Option<Events>,
    schema: SchemaRef,
    skipped: Arc<Skipped>,
}

impl Drop for Batches {
    fn drop(&mut self) {
        let events = self.events.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(events)));
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let events = self.events.as_mut()?;
        let next = events.next();
        self.skipped.note(events);
        Some(
            next?.map_err(|failure| {
                ArrowError::ExternalError(c_text(failure.code(), &failure).into())
            }),
        )
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

/// The text of an error for C. The code goes first: it is all that survives beside the text, which must not hold
/// a zero byte.
fn c_text(code: &str, message: &dyn Display) -> String {
    format!("{code}: {message}").replace('\0', "\\0")
}

/// Losses that a stream has passed over so far; they can be read even after its events were handed over.
#[derive(Default)]
struct Skipped(Mutex<Vec<Loss>>);

impl Skipped {
    fn note(&self, events: &Events) {
        let found = events.skipped();
        if !found.is_empty() {
            found.clone_into(&mut self.lock());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Event rows that are read once: as an Arrow stream, or as JSON lines.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct EventStream {
    events: Owned<Mutex<Option<Events>>>,
    skipped: Arc<Skipped>,
}

impl EventStream {
    pub(crate) fn new(reader: Reader) -> Self {
        Self::of(Events::stored(reader), Arc::default())
    }

    fn of(events: Events, skipped: Arc<Skipped>) -> Self {
        Self {
            events: Owned::new(Mutex::new(Some(events))),
            skipped,
        }
    }

    /// Takes the events; after that nobody else can read them.
    pub(crate) fn take(&self) -> PyResult<Events> {
        self.lock()?.take().ok_or_else(consumed)
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, Option<Events>>> {
        Ok(self
            .events
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl EventStream {
    /// The stream as a capsule; it can be asked for once.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows the producer to ignore a schema that it does not offer.
        drop(requested_schema);
        let events = self.take()?;
        let skipped = Arc::clone(&self.skipped);
        let schema = events.schema();
        let stream = FFI_ArrowArrayStream::new(Box::new(Batches {
            events: Some(events),
            schema,
            skipped,
        }));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The same events with the columns of a projection, which take `memory` bytes at most; this stream is over.
    fn project(&self, projection: &Projection, memory: u64) -> PyResult<Self> {
        let reader = self.take()?.into_stored().ok_or_else(consumed)?;
        let events = projection.events(reader, memory)?;
        Ok(Self::of(events, Arc::clone(&self.skipped)))
    }

    /// The losses that were passed over so far.
    fn skipped(&self) -> Vec<LossRow> {
        self.skipped.lock().iter().map(loss_row).collect()
    }

    /// The JSON lines of the next batch of rows, or `None` after the last.
    fn json_lines<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let next = py.detach(|| -> PyResult<Option<Result<Vec<String>, Failure>>> {
            let mut events = self.lock()?;
            let Some(events) = events.as_mut() else {
                return Err(consumed());
            };
            let lines = events.next_lines();
            self.skipped.note(events);
            Ok(lines)
        })?;
        match next {
            None => Ok(None),
            Some(Err(failure)) => Err(raised(&failure)),
            Some(Ok(lines)) => PyList::new(py, lines).map(Some),
        }
    }
}

fn consumed() -> PyErr {
    errors::usage(
        "consumed",
        "these events were read already: ask the spool again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_error_for_c_has_no_zero_byte() {
        let text = c_text("json.failfast", &"column a\0b");
        assert_eq!(text, "json.failfast: column a\\0b");
    }
}
