//! Batches of events: as they are stored, or with the columns of a projection; and their rows as lines of JSON.

use std::fmt::{self, Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_json::{Encoder, Nulls, ProjectError, Projector};
use ackline_spool::{Loss, Reader, SpoolError};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use crate::element_columns::{ElementError, Elements};
use crate::json_lines;
use crate::portions::Portions;
use crate::projection::Own;

/// The payloads of the rows that become lines at once, in bytes.
const LINES_BYTES: usize = 1 << 20;

/// Batches of events as they are stored, or projected. A defect of Ackline ends them with an error: they are also
/// read from C, and no panic may pass through C.
pub struct Events {
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
    /// The time spent on filling columns.
    projecting: Duration,
}

/// Fills the columns of a projection.
pub(crate) enum Filler {
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
        let begun = Instant::now();
        let made = self.filler.project(&batch.slice(0, rows));
        self.projecting += begun.elapsed();
        made
    }
}

impl Events {
    /// The events of a reader as they are.
    pub fn stored(reader: Reader) -> Self {
        Self::of(Source::Stored(Box::new(reader)))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            rest: None,
            is_over: false,
        }
    }

    /// The events of a reader with the columns of a filler.
    pub(crate) fn projected(reader: Reader, filler: Filler, portions: Portions) -> Self {
        Self::of(Source::Projected(Box::new(Projected {
            reader,
            filler,
            portions,
            rest: None,
            projecting: Duration::ZERO,
        })))
    }

    /// The reader of events that are not projected.
    pub fn into_stored(self) -> Option<Reader> {
        match self.source {
            Source::Stored(reader) => Some(*reader),
            Source::Projected(_) => None,
        }
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        match &self.source {
            Source::Stored(reader) => reader.schema(),
            Source::Projected(projected) => projected.filler.schema(),
        }
    }

    /// The time spent so far on making events of blocks, and on filling the columns of a projection.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        match &self.source {
            Source::Stored(reader) => (reader.expanding(), Duration::ZERO),
            Source::Projected(projected) => (projected.reader.expanding(), projected.projecting),
        }
    }

    /// The positions that were passed over so far.
    pub fn skipped(&self) -> &[Loss] {
        match &self.source {
            Source::Stored(reader) => reader.skipped(),
            Source::Projected(projected) => projected.reader.skipped(),
        }
    }

    /// Returns a JSON object for each of the next rows: few at a time, because text takes several times their memory.
    ///
    /// # Errors
    /// As those of a batch.
    pub fn next_lines(&mut self) -> Option<Result<Vec<String>, Failure>> {
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
fn caught<T>(step: impl FnOnce() -> Option<Result<T, Failure>>) -> Option<Result<T, Failure>> {
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
#[derive(Debug)]
pub enum Failure {
    /// The spool cannot be read.
    Spool(SpoolError),
    /// An event of JSON cannot be projected.
    Json(ProjectError),
    /// An element cannot be projected.
    Element(ElementError),
    /// An event with columns that may not fit into the memory.
    Memory {
        /// The event's position.
        position: u64,
        /// The most bytes that its columns may take.
        bytes: u64,
        /// The bytes that they may have.
        room: u64,
    },
    /// A defect of Ackline: the text of its panic.
    Panicked(String),
}

impl Failure {
    /// The stable code of the error.
    pub fn code(&self) -> &str {
        match self {
            Self::Spool(error) => error.code(),
            Self::Json(error) => error.code(),
            Self::Element(error) => error.code(),
            Self::Memory { .. } => "spool.memory",
            Self::Panicked(_) => "spool.panic",
        }
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

impl std::error::Error for Failure {}

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
