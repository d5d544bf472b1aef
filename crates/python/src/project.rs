//! Payloads as typed columns: the schema that Python wants of them, and batches of events with those columns.

use std::fmt::{self, Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ackline_json::{
    Encoder, Mode, Nulls, Options, ProjectError, Projector, is_variant, with_rescued,
};
use ackline_spool::{COLUMNS, DIGEST, Loss, Reader, SpoolError};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{Field, Schema, SchemaRef};
use pyo3::prelude::*;

use crate::element::Element;
use crate::element_columns::{ElementError, Elements};
use crate::element_schema::{Plan, spark_name};
use crate::portions::Portions;
use crate::{errors, json_lines};

/// The columns of an event that every projection reads.
const NEEDED: [&str; 3] = ["position", "parts", "payload"];

/// The payloads of the rows that become lines at once, in bytes.
const LINES_BYTES: usize = 1 << 20;

/// Columns that payloads are projected to, beside those that every event has.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct Projection {
    schema: SchemaRef,
    filling: Filling,
    own: Own,
}

/// The columns of a schema that are those of every event: their names there, and in an event.
#[derive(Clone)]
struct Own(Vec<(String, String)>);

impl Own {
    /// All of them, by their own names.
    fn all() -> Self {
        let all = COLUMNS.iter().chain([&DIGEST]);
        Self(
            all.map(|name| (String::from(*name), String::from(*name)))
                .collect(),
        )
    }

    fn of(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        let found = pairs.find(|(named, _)| named == name);
        found.map(|(_, own)| own.as_str())
    }

    /// The name in the schema of the whole payload.
    fn whole(&self) -> Option<String> {
        let mut pairs = self.0.iter();
        let found = pairs.find(|(_, own)| own == "payload");
        found.map(|(name, _)| name.clone())
    }

    /// These columns of a batch of events, by their names in the schema.
    fn chosen(&self, schema: &Schema, batch: &RecordBatch) -> Result<RecordBatch, ProjectError> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (name, own) in &self.0 {
            // A payload that becomes a VARIANT is not copied.
            if schema.column_with_name(name).is_some()
                && let Some(column) = batch.column_by_name(own)
            {
                fields.push(Field::new(name, column.data_type().clone(), true));
                columns.push(Arc::clone(column));
            }
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        RecordBatch::try_new_with_options(schema, columns, &rows)
            .map_err(|error| ProjectError::Batch(error.to_string()))
    }
}

/// The content of payloads.
#[derive(Clone)]
enum Filling {
    /// JSON objects.
    Json(Options),
    /// Elements of a fixed size.
    Elements(Arc<Elements>),
}

#[pymethods]
impl Projection {
    /// `schema` is a message of Arrow's IPC format, as `pyarrow.Schema.serialize` writes it.
    #[new]
    #[pyo3(signature = (schema, *, mode, rescued, corrupt_record, case_sensitive, event_columns = None))]
    fn new(
        schema: &[u8],
        mode: &str,
        rescued: Option<String>,
        corrupt_record: String,
        case_sensitive: bool,
        event_columns: Option<Vec<(String, String)>>,
    ) -> PyResult<Self> {
        let own = event_columns.map_or_else(Own::all, Own);
        let options = Options {
            mode: self::mode(mode).map_err(|text| refused(&text))?,
            rescued,
            corrupt: corrupt_record,
            whole: own.whole(),
            case_sensitive,
        };
        let made = Self {
            schema: beside(&read_schema(schema).map_err(|text| refused(&text))?, &own)?,
            filling: Filling::Json(options),
            own,
        };
        made.filler()?;
        Ok(made)
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
        let made = || {
            let element = Element::parse(element)?;
            let plan = match schema {
                None => Plan::new(element, corrupt_record)?,
                Some(schema) => Plan::with_schema(element, &read_schema(schema)?, corrupt_record)?,
            };
            Ok::<_, String>(Elements::new(plan, self::mode(mode)?))
        };
        let elements = made().map_err(|text| errors::usage("element.schema", &text))?;
        Ok(Self {
            schema: elements.plan().schema(),
            filling: Filling::Elements(Arc::new(elements)),
            own: Own::all(),
        })
    }

    /// The columns of a description of elements: their names, and the names of their types in Spark.
    #[staticmethod]
    fn element_fields(element: &str) -> PyResult<Vec<(String, &'static str)>> {
        let element =
            Element::parse(element).map_err(|text| errors::usage("element.schema", &text))?;
        let fields = element.fields().iter();
        Ok(fields
            .map(|field| (field.name.clone(), spark_name(field.kind)))
            .collect())
    }

    /// The columns of an event that are read for it.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let of_schema = self.schema.fields().iter();
        let owned: Vec<&str> = of_schema
            .filter_map(|field| self.own.of(field.name()))
            .collect();
        let named = |name: &str| owned.contains(&name);
        let all = COLUMNS.iter().chain([&DIGEST]);
        let wanted = all.filter(|name| NEEDED.contains(name) || named(name));
        wanted.map(|name| (*name).to_owned()).collect()
    }

    /// The same with the column of the rescued behind all others, unless it is there or turned off.
    fn with_rescued(&self) -> Self {
        let schema = match &self.filling {
            Filling::Json(options) => with_rescued(&self.schema, options),
            Filling::Elements(_) => SchemaRef::clone(&self.schema),
        };
        Self {
            schema,
            filling: self.filling.clone(),
            own: self.own.clone(),
        }
    }
}

impl Projection {
    /// Projects the events of a reader, which reads `columns`; the columns of a batch take at most `memory` bytes.
    pub(crate) fn events(&self, reader: Reader, memory: u64) -> PyResult<Events> {
        Ok(Events::of(Source::Projected(Box::new(Projected {
            reader,
            filler: self.filler()?,
            portions: match &self.filling {
                Filling::Json(_) => Portions::new(&self.schema, memory),
                // The columns of every event have no part in payloads.
                Filling::Elements(elements) => Portions::new(&elements.plan().filled(), memory),
            },
            rest: None,
        }))))
    }

    fn filler(&self) -> PyResult<Filler> {
        let options = match &self.filling {
            Filling::Json(options) => options,
            Filling::Elements(elements) => return Ok(Filler::Elements(Arc::clone(elements))),
        };
        let own: Vec<&str> = self.own.0.iter().map(|(name, _)| name.as_str()).collect();
        let projector = Projector::new(SchemaRef::clone(&self.schema), &own, options);
        let projector = projector.map_err(|error| refused(&error.to_string()))?;
        Ok(Filler::Json(Box::new((projector, self.own.clone()))))
    }
}

fn read_schema(schema: &[u8]) -> Result<Schema, String> {
    try_schema_from_ipc_buffer(schema).map_err(|error| format!("schema is not read: {error}"))
}

/// The schema, with columns that every event has as the spool yields them.
fn beside(schema: &Schema, own: &Own) -> PyResult<SchemaRef> {
    let fields = schema.fields().iter().map(|field| {
        let Some(of_event) = own.of(field.name()) else {
            return Ok(Arc::clone(field));
        };
        let own = ackline_spool::column(of_event)
            .ok_or_else(|| refused(&format!("an event has no column {of_event:?}")))?;
        if own.data_type().equals_datatype(field.data_type()) && field.is_nullable() {
            return Ok(Arc::new(own.with_name(field.name())));
        }
        if of_event == "payload" && is_variant(field.data_type()) && field.is_nullable() {
            return Ok(Arc::clone(field));
        }
        let (name, own) = (field.name(), own.data_type());
        let message = format!(
            "column {name} is one that every event has, a nullable {own}: give it that type, or \
             take it out and find a member of this name in the column of the rescued, or say with \
             eventColumns (event_columns in Python) which columns are the event's"
        );
        Err(refused(&message))
    });
    Ok(Arc::new(Schema::new(fields.collect::<PyResult<Vec<_>>>()?)))
}

fn mode(text: &str) -> Result<Mode, String> {
    match text.to_ascii_uppercase().as_str() {
        "PERMISSIVE" => Ok(Mode::Permissive),
        "DROPMALFORMED" => Ok(Mode::DropMalformed),
        "FAILFAST" => Ok(Mode::FailFast),
        _ => Err(format!(
            "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, not {text:?}"
        )),
    }
}

fn refused(message: &str) -> PyErr {
    errors::usage("json.schema", message)
}

/// Batches of events as they are stored, or projected. A defect of Ackline ends them with an error: they are also
/// read from C, and no panic may pass through C.
pub(crate) struct Events {
    source: Source,
    /// Rows that are in no lines yet.
    rest: Option<RecordBatch>,
    is_over: bool,
}

enum Source {
    Stored(Box<Reader>),
    Projected(Box<Projected>),
}

/// A reader that projects its batches, a portion of a batch at a time.
struct Projected {
    reader: Reader,
    filler: Filler,
    portions: Portions,
    /// The rest of a batch.
    rest: Option<RecordBatch>,
}

/// Fills the columns of a projection.
enum Filler {
    Json(Box<(Projector, Own)>),
    Elements(Arc<Elements>),
}

impl Filler {
    fn schema(&self) -> SchemaRef {
        match self {
            Self::Json(json) => json.0.schema(),
            Self::Elements(elements) => elements.plan().schema(),
        }
    }

    fn project(&mut self, batch: &RecordBatch) -> Result<RecordBatch, Failure> {
        match self {
            Self::Json(json) => projected(&mut json.0, &json.1, batch),
            Self::Elements(elements) => Ok(elements.project(batch)?),
        }
    }
}

impl Projected {
    fn next(&mut self) -> Option<Result<RecordBatch, Failure>> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.reader.next()? {
                Ok(batch) => batch,
                Err(error) => return Some(Err(Failure::Spool(error))),
            },
        };
        Some(self.portion(&batch))
    }

    fn portion(&mut self, batch: &RecordBatch) -> Result<RecordBatch, Failure> {
        let positions = column(batch, "position")?.as_primitive::<Int64Type>();
        let parts = column(batch, "parts")?.as_list::<i32>();
        let payloads = column(batch, "payload")?.as_binary::<i32>();
        let rows = self
            .portions
            .rows(parts, payloads)
            .map_err(|(bytes, room)| {
                let position = positions.values().first().map_or(0, |at| at.unsigned_abs());
                Failure::Memory {
                    position,
                    bytes,
                    room,
                }
            })?;
        let left = batch.num_rows() - rows;
        self.rest = (left > 0).then(|| batch.slice(rows, left));
        self.filler.project(&batch.slice(0, rows))
    }
}

impl Events {
    pub(crate) fn stored(reader: Reader) -> Self {
        Self::of(Source::Stored(Box::new(reader)))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            rest: None,
            is_over: false,
        }
    }

    /// The reader of events that are not projected.
    pub(crate) fn into_stored(self) -> Option<Reader> {
        match self.source {
            Source::Stored(reader) => Some(*reader),
            Source::Projected(_) => None,
        }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        match &self.source {
            Source::Stored(reader) => reader.schema(),
            Source::Projected(projected) => projected.filler.schema(),
        }
    }

    /// The positions that were passed over so far.
    pub(crate) fn skipped(&self) -> &[Loss] {
        match &self.source {
            Source::Stored(reader) => reader.skipped(),
            Source::Projected(projected) => projected.reader.skipped(),
        }
    }

    /// Returns a JSON object for each of the next rows: few at a time, because text takes several times their memory.
    pub(crate) fn next_lines(&mut self) -> Option<Result<Vec<String>, Failure>> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.next()? {
                Ok(batch) => batch,
                Err(failure) => return Some(Err(failure)),
            },
        };
        let rows = rows_of_lines(&batch);
        let (now, left) = (batch.slice(0, rows), batch.num_rows() - rows);
        self.rest = (left > 0).then(|| batch.slice(rows, left));
        let is_stored = matches!(self.source, Source::Stored(_));
        let lines = caught(|| {
            Some(if is_stored {
                Ok(json_lines::lines(&now))
            } else {
                encoded(&now)
            })
        });
        self.is_over |= matches!(lines, Some(Err(Failure::Panicked(_))));
        lines
    }
}

impl Iterator for Events {
    type Item = Result<RecordBatch, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let source = &mut self.source;
        let next = caught(|| match source {
            Source::Stored(reader) => Some(reader.next()?.map_err(Failure::Spool)),
            Source::Projected(projected) => projected.next(),
        });
        self.is_over = matches!(
            next,
            Some(Err(Failure::Panicked(_) | Failure::Memory { .. }))
        );
        next
    }
}

/// The outcome of a step of reading, with a panic as its failure.
pub(crate) fn caught<T>(
    step: impl FnOnce() -> Option<Result<T, Failure>>,
) -> Option<Result<T, Failure>> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Some(Err(Failure::Panicked(text.unwrap_or_default())))
    })
}

/// How many of a batch's rows become lines at once: at least one, then as many as have a mebibyte of payloads.
fn rows_of_lines(batch: &RecordBatch) -> usize {
    let rows = batch.num_rows();
    let average = batch.get_array_memory_size() / rows.max(1);
    let payload = batch.column_by_name("payload");
    let payload = payload.and_then(|column| column.as_binary_opt::<i32>());
    let mut bytes = 0_usize;
    for row in 0..rows {
        let length = payload.map_or(0, |payload| payload.value(row).len());
        bytes = bytes.saturating_add(length).saturating_add(average);
        if bytes > LINES_BYTES {
            return row.max(1);
        }
    }
    rows
}

fn projected(
    projector: &mut Projector,
    own: &Own,
    batch: &RecordBatch,
) -> Result<RecordBatch, Failure> {
    let positions = column(batch, "position")?
        .as_primitive::<Int64Type>()
        .values();
    let (parts, payloads) = (
        column(batch, "parts")?.as_list::<i32>(),
        column(batch, "payload")?,
    );
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
    Ok(projector.finish(&own.chosen(&projector.schema(), batch)?)?)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, ProjectError> {
    let missing = || ProjectError::Batch(format!("the column {name} was not read"));
    batch.column_by_name(name).ok_or_else(missing)
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
    Element(ElementError),
    /// An event with columns that may not fit into the memory.
    Memory {
        position: u64,
        bytes: u64,
        room: u64,
    },
    /// A defect of Ackline: the text of its panic.
    Panicked(String),
}

impl Failure {
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Spool(error) => error.code(),
            Self::Json(error) => error.code(),
            Self::Element(error) => error.code(),
            Self::Memory { .. } => "spool.memory",
            Self::Panicked(_) => "spool.panic",
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
            Self::Element(error) => error.fmt(f),
            Self::Memory {
                position,
                bytes,
                room,
            } => write!(
                f,
                "the columns of the event at position {position} may take {bytes} bytes, and there is room for \
                 {room}: give the reader more memory (memory=, readMemory), or fewer columns in lists"
            ),
            Self::Panicked(text) => write!(
                f,
                "the reading ended by a defect of Ackline ({text}): please report it"
            ),
        }
    }
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        Self::Json(error)
    }
}

impl From<ElementError> for Failure {
    fn from(error: ElementError) -> Self {
        Self::Element(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_reading_is_an_error_with_its_text() {
        for (panic, text) in [
            (caught::<()>(|| panic!("a defect")), "a defect"),
            (caught::<()>(|| panic!("number {}", 7)), "number 7"),
        ] {
            let Some(Err(failure)) = panic else {
                panic!("nothing was caught")
            };
            assert_eq!(failure.code(), "spool.panic");
            assert!(failure.to_string().contains(text), "{failure}");
        }
        assert!(matches!(caught(|| Some(Ok(7))), Some(Ok(7))));
    }
}
