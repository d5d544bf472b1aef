//! Payloads as typed columns, as Python asks for them: the rules are in `ackline_columns`.

use ackline_columns::{Events, Failure, JsonColumns, Refused};
use ackline_spool::Reader;
use pyo3::prelude::*;

use crate::errors;

/// Columns that payloads are projected to, beside those that every event has.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Projection(ackline_columns::Projection);

#[pymethods]
impl Projection {
    /// `schema` is a message of Arrow's IPC format, as `pyarrow.Schema.serialize` writes it.
    #[new]
    #[pyo3(signature = (schema, *, mode, rescued, corrupt_record, case_sensitive, event_columns = None))]
    fn new(
        schema: &[u8],
        mode: String,
        rescued: Option<String>,
        corrupt_record: String,
        case_sensitive: bool,
        event_columns: Option<Vec<(String, String)>>,
    ) -> PyResult<Self> {
        let columns = JsonColumns {
            mode,
            rescued,
            corrupt_record,
            case_sensitive,
            event_columns,
        };
        made(ackline_columns::Projection::json(schema, columns)).map(Self)
    }

    /// The columns of elements of a fixed size; `schema` chooses among them and those of every event.
    #[staticmethod]
    #[pyo3(signature = (element, schema, *, mode, corrupt_record))]
    fn of_elements(
        element: &str,
        schema: Option<&[u8]>,
        mode: &str,
        corrupt_record: &str,
    ) -> PyResult<Self> {
        let elements = ackline_columns::Projection::elements(element, schema, mode, corrupt_record);
        made(elements).map(Self)
    }

    /// The columns of a description of elements: their names, and the names of their types in Spark.
    #[staticmethod]
    fn element_fields(element: &str) -> PyResult<Vec<(String, &'static str)>> {
        made(ackline_columns::Projection::element_fields(element))
    }

    /// The columns of an event that are read for it.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.columns()
    }

    /// The same with the column of the rescued behind all others, unless it is there or turned off.
    fn with_rescued(&self) -> Self {
        Self(self.0.with_rescued())
    }
}

impl Projection {
    /// Projects the events of a reader, which reads `columns`; the columns of a batch take at most `memory` bytes.
    pub(crate) fn events(&self, reader: Reader, memory: u64) -> PyResult<Events> {
        made(self.0.events(reader, memory))
    }
}

/// A value, or the exception for its refusal.
pub(crate) fn made<T>(value: Result<T, Refused>) -> PyResult<T> {
    value.map_err(|refused| errors::usage(refused.code, &refused.text))
}

/// The exception for a failure of reading.
pub(crate) fn raised(failure: &Failure) -> PyErr {
    errors::spool(failure.code(), failure)
}
