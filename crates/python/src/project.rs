//! Payloads as typed columns: what Python wants of them, and batches of events that hold it.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use ackline_json::{
    Encoder, Mode, Nulls, Options, ProjectError, Projector, is_variant, with_rescued,
};
use ackline_spool::{COLUMNS, DIGEST, Loss, Reader, SpoolError};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{Schema, SchemaRef};
use pyo3::prelude::*;

use crate::{errors, json_lines};

/// What every projection reads of an event.
const NEEDED: [&str; 3] = ["position", "parts", "payload"];

/// Columns that payloads are projected to, beside those that every event has.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Projection {
    schema: SchemaRef,
    options: Options,
}

#[pymethods]
impl Projection {
    /// `schema` is a message of Arrow's IPC format, as `pyarrow.Schema.serialize` writes it.
    #[new]
    #[pyo3(signature = (schema, *, mode, rescued, corrupt_record, case_sensitive))]
    fn new(
        schema: &[u8],
        mode: &str,
        rescued: Option<String>,
        corrupt_record: String,
        case_sensitive: bool,
    ) -> PyResult<Self> {
        let schema = try_schema_from_ipc_buffer(schema)
            .map_err(|error| refused(&format!("schema is not read: {error}")))?;
        let options = Options {
            mode: self::mode(mode)?,
            rescued,
            corrupt: corrupt_record,
            whole: Some("payload".to_owned()),
            case_sensitive,
        };
        let made = Self {
            schema: beside(&schema)?,
            options,
        };
        made.projector()?;
        Ok(made)
    }

    /// The columns of an event that are read for it.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let named = |name: &str| self.schema.column_with_name(name).is_some();
        let all = COLUMNS.iter().chain([&DIGEST]);
        let wanted = all.filter(|name| NEEDED.contains(name) || named(name));
        wanted.map(|name| (*name).to_owned()).collect()
    }

    /// The same with the column of the rescued behind all others, unless it is there or turned off.
    fn with_rescued(&self) -> Self {
        Self {
            schema: with_rescued(&self.schema, &self.options),
            options: self.options.clone(),
        }
    }
}

impl Projection {
    /// The events of a reader, which reads `columns`, projected.
    pub(crate) fn events(&self, reader: Reader) -> PyResult<Events> {
        let projector = Box::new(self.projector()?);
        Ok(Events::Projected { reader, projector })
    }

    fn projector(&self) -> PyResult<Projector> {
        let all: Vec<&str> = COLUMNS.iter().copied().chain([DIGEST]).collect();
        Projector::new(SchemaRef::clone(&self.schema), &all, &self.options)
            .map_err(|error| refused(&error.to_string()))
    }
}

/// The schema, with columns that every event has as the spool yields them.
fn beside(schema: &Schema) -> PyResult<SchemaRef> {
    let fields = schema.fields().iter().map(|field| {
        let Some(own) = ackline_spool::column(field.name()) else {
            return Ok(Arc::clone(field));
        };
        if own.data_type().equals_datatype(field.data_type()) && field.is_nullable() {
            return Ok(Arc::new(own));
        }
        if field.name() == "payload" && is_variant(field.data_type()) && field.is_nullable() {
            return Ok(Arc::clone(field));
        }
        let (name, own) = (field.name(), own.data_type());
        let message = format!(
            "column {name} is one that every event has, a nullable {own}: give it that type, or \
             take it out and find a member of this name in the column of the rescued"
        );
        Err(refused(&message))
    });
    Ok(Arc::new(Schema::new(fields.collect::<PyResult<Vec<_>>>()?)))
}

fn mode(text: &str) -> PyResult<Mode> {
    match text.to_ascii_uppercase().as_str() {
        "PERMISSIVE" => Ok(Mode::Permissive),
        "DROPMALFORMED" => Ok(Mode::DropMalformed),
        "FAILFAST" => Ok(Mode::FailFast),
        _ => Err(refused(&format!(
            "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, not {text:?}"
        ))),
    }
}

fn refused(message: &str) -> PyErr {
    errors::usage("json.schema", message)
}

/// Batches of events as they are stored, or projected.
pub(crate) enum Events {
    Stored(Reader),
    Projected {
        reader: Reader,
        projector: Box<Projector>,
    },
}

impl Events {
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Stored(reader) => reader.schema(),
            Self::Projected { projector, .. } => projector.schema(),
        }
    }

    /// The positions that were passed over so far.
    pub(crate) fn skipped(&self) -> &[Loss] {
        match self {
            Self::Stored(reader) | Self::Projected { reader, .. } => reader.skipped(),
        }
    }

    /// A JSON object for each row of the next batch.
    pub(crate) fn next_lines(&mut self) -> Option<Result<Vec<String>, Failure>> {
        let batch = match self.next()? {
            Ok(batch) => batch,
            Err(failure) => return Some(Err(failure)),
        };
        if let Self::Stored(_) = self {
            return Some(Ok(json_lines::lines(&batch)));
        }
        Some(encoded(&batch))
    }
}

impl Iterator for Events {
    type Item = Result<RecordBatch, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Stored(reader) => Some(reader.next()?.map_err(Failure::Spool)),
            Self::Projected { reader, projector } => {
                let batch = reader.next()?.map_err(Failure::Spool);
                Some(batch.and_then(|batch| projected(projector, &batch)))
            }
        }
    }
}

fn projected(projector: &mut Projector, batch: &RecordBatch) -> Result<RecordBatch, Failure> {
    let column = |name: &str| {
        let missing = || ProjectError::Batch(format!("the column {name} was not read"));
        batch.column_by_name(name).ok_or_else(missing)
    };
    let positions = column("position")?.as_primitive::<Int64Type>().values();
    let (parts, payloads) = (column("parts")?.as_list::<i32>(), column("payload")?);
    let payloads = payloads.as_binary::<i32>();
    for (row, position) in positions.iter().enumerate() {
        let position = position.unsigned_abs();
        if parts.is_valid(row) {
            let parts = parts.value(row);
            let pairs = parts
                .as_binary::<i32>()
                .iter()
                .map(Option::unwrap_or_default);
            projector.push_pairs(position, pairs)?;
        } else {
            projector.push(position, payloads.value(row))?;
        }
    }
    Ok(projector.finish(batch)?)
}

fn encoded(batch: &RecordBatch) -> Result<Vec<String>, Failure> {
    let told = |error: &dyn Display| ProjectError::Batch(error.to_string());
    let mut encoder =
        Encoder::new(&batch.schema(), Nulls::default(), None).map_err(|error| told(&error))?;
    let rows = encoder.encode(batch).map_err(|error| told(&error))?;
    let lines = rows
        .iter()
        .map(|row| String::from_utf8_lossy(row).into_owned());
    Ok(lines.collect())
}

/// Why there is no batch.
pub(crate) enum Failure {
    Spool(SpoolError),
    Json(ProjectError),
}

impl Failure {
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Spool(error) => error.code(),
            Self::Json(error) => error.code(),
        }
    }

    pub(crate) fn raised(&self) -> PyErr {
        errors::spool(self.code(), self)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spool(error) => error.fmt(f),
            Self::Json(error) => error.fmt(f),
        }
    }
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        Self::Json(error)
    }
}
