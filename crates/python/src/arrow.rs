//! Event batches to whoever speaks Arrow's `PyCapsule` interface: pyarrow, polars, Spark's workers.

use std::sync::{Mutex, PoisonError};

use ackline_spool::{Reader, SpoolError};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use crate::errors::{self, raised};
use crate::json_lines;
use crate::runtime::Owned;

/// What `spool.read` reads, as arrow's trait names it.
struct Batches {
    reader: Reader,
    schema: SchemaRef,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The code goes first: it is all that survives the C interface beside the text.
        Some(self.reader.next()?.map_err(|error| {
            ArrowError::ExternalError(format!("{}: {error}", error.code()).into())
        }))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

/// Event rows that are read once: as an Arrow stream, or as JSON lines.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct EventStream {
    reader: Owned<Mutex<Option<Reader>>>,
}

impl EventStream {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader: Owned::new(Mutex::new(Some(reader))),
        }
    }

    fn lock(&self) -> PyResult<std::sync::MutexGuard<'_, Option<Reader>>> {
        Ok(self
            .reader
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
        let reader = self.lock()?.take().ok_or_else(consumed)?;
        let schema = reader.schema();
        let stream = FFI_ArrowArrayStream::new(Box::new(Batches { reader, schema }));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The JSON lines of the next batch of rows, or `None` after the last.
    fn json_lines<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let next = py.detach(|| -> PyResult<Option<Result<Vec<String>, SpoolError>>> {
            let mut reader = self.lock()?;
            let Some(batches) = reader.as_mut() else {
                return Err(consumed());
            };
            Ok(batches
                .next()
                .map(|batch| batch.map(|batch| json_lines::lines(&batch))))
        })?;
        match next {
            None => Ok(None),
            Some(Err(error)) => Err(raised(&error)),
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
