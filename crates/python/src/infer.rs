//! A schema of the payloads of events.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ackline_spool::{COLUMNS, DIGEST};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrow::EventStream;
use crate::errors;
use crate::project::raised;
use crate::runtime::Owned;

/// The schema that the members of the observed events have in common.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Inference {
    known: Owned<Mutex<ackline_json::Inference>>,
}

#[pymethods]
impl Inference {
    #[new]
    fn new(case_sensitive: bool) -> Self {
        let known = ackline_json::Inference::new(case_sensitive);
        Self {
            known: Owned::new(Mutex::new(known)),
        }
    }

    /// Observes events that were read with `parts` and `payload`; after that their stream is over.
    fn observe(&self, py: Python<'_>, stream: &EventStream) -> PyResult<()> {
        let mut events = stream.take()?;
        let known = self.known.get()?;
        py.detach(|| {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            events.try_for_each(|batch| batch.map(|batch| observe(&mut known, &batch)))
        })
        .map_err(|failure| raised(&failure))
    }

    /// How many events were observed.
    #[getter]
    fn events(&self) -> PyResult<u64> {
        Ok(self.known()?.events())
    }

    /// How many of them were no object of JSON.
    #[getter]
    fn malformed(&self) -> PyResult<u64> {
        Ok(self.known()?.malformed())
    }

    /// Members that are no columns because a column of this name is filled otherwise.
    #[getter]
    fn shadowed(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.known()?.seen(&beside()))
    }

    /// How often a member was passed over for its name, or because there were too many.
    #[getter]
    fn names_left_out(&self) -> PyResult<u64> {
        Ok(self.known()?.names_left_out())
    }

    /// The columns as Spark's DDL.
    #[getter]
    fn ddl(&self) -> PyResult<String> {
        Ok(self.known()?.ddl(&beside()))
    }

    /// The columns as an empty stream of Arrow's IPC format.
    fn arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let schema = self.known()?.schema(&beside());
        let written = StreamWriter::try_new(Vec::new(), &schema).and_then(StreamWriter::into_inner);
        let written = written.map_err(|error| errors::internal(&error))?;
        Ok(PyBytes::new(py, &written))
    }
}

impl Inference {
    fn known(&self) -> PyResult<MutexGuard<'_, ackline_json::Inference>> {
        Ok(self
            .known
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }
}

fn observe(known: &mut ackline_json::Inference, batch: &RecordBatch) {
    let (Some(parts), Some(payloads)) = (
        batch.column_by_name("parts"),
        batch.column_by_name("payload"),
    ) else {
        return;
    };
    let (parts, payloads) = (parts.as_list::<i32>(), payloads.as_binary::<i32>());
    for row in 0..batch.num_rows() {
        if parts.is_valid(row) {
            let parts = parts.value(row);
            let pairs = parts.as_binary::<i32>().iter();
            known.observe_pairs(pairs.map(Option::unwrap_or_default));
        } else {
            known.observe(payloads.value(row));
        }
    }
}

/// The columns that every event has, and the columns for the rest: digest, rescued members, corrupt records.
fn beside() -> Vec<&'static str> {
    let left_over = [DIGEST, "_rescued", "_corrupt_record"];
    COLUMNS.iter().copied().chain(left_over).collect()
}
