//! The work of one task of Spark: pieces of segments, read as batches with exactly the columns that a query wants.
//!
//! A task gets file names and byte ranges, so it lists nothing and asks nobody. Columns that the query does not want are
//! not read where this cannot change a row, a value or an error of the query ([`Source`]).

mod error;
mod reading;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_spool::{LEAST_MEMORY, Layouts, OnLoss, ReadOptions, Spool};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{FieldRef, Schema, SchemaRef};

use crate::events::{Events, Failure};
use crate::projection::Projection;
use crate::refused::Refused;

pub use error::TaskError;
pub use reading::{Payloads, Piece, Reading};

/// Events in a record batch: few enough to stay in the cache until they are handed on and freed.
const BATCH_ROWS: usize = 1024;

/// Events in a record batch of positions alone, which has 8 bytes for each.
const ROWS_OF_POSITIONS: usize = 65_536;

/// The column that is read if the query wants none: the rows are counted by it, and nothing is inflated.
const COUNTED: &str = "position";

/// The events of some pieces as record batches, in order. After an error there are no more.
pub struct Task {
    layouts: Layouts,
    schema: SchemaRef,
    source: Source,
    options: ReadOptions,
    pieces: VecDeque<Piece>,
    /// The piece that is being read.
    current: Option<(Piece, Events)>,
    is_over: bool,
    spent: Spent,
}

/// The cost of a task so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes of the pieces that were opened.
    pub bytes: u64,
    /// Time for opening, reading and checking files.
    pub reading: Duration,
    /// Time for making events of blocks: for inflating them, and for the columns of every event.
    pub expanding: Duration,
    /// Time for the columns that are filled from payloads.
    pub projecting: Duration,
}

/// The origin of the wanted columns.
#[derive(Debug)]
struct Source {
    /// The name of each wanted column in the batches that are read.
    names: Vec<String>,
    /// The projection of the events, and the bytes for its columns; `None` if they are read as they are stored.
    projection: Option<(Projection, u64)>,
}

impl Task {
    /// The events of `pieces` with the columns `wanted` in that order; `layouts` are those of their blocks.
    ///
    /// No file is opened yet.
    ///
    /// # Errors
    /// The reading is not sound, or a wanted column is none of it.
    pub fn open(
        layouts: Layouts,
        reading: &Reading,
        wanted: &[String],
        pieces: Vec<Piece>,
    ) -> Result<Self, TaskError> {
        Ok(Self::prepared(layouts, reading, wanted, pieces)?)
    }

    fn prepared(
        layouts: Layouts,
        reading: &Reading,
        wanted: &[String],
        pieces: Vec<Piece>,
    ) -> Result<Self, Refused> {
        check_memory(reading.memory)?;
        if let Some(name) = wanted.iter().find(|name| !reading.names.contains(name)) {
            let text = format!("the query has no column {name}");
            return Err(Refused::new("reading", text));
        }
        let (fields, source) = match reading.projection()? {
            None => stored(&reading.event_names(wanted)?, wanted)?,
            Some(projection) => projected(projection, wanted, reading.memory)?,
        };
        let of_columns = source.projection.as_ref().map_or(0, |(_, bytes)| *bytes);
        let columns = source.read_columns();
        let counts_alone = columns == [COUNTED];
        let options = ReadOptions {
            columns: Some(columns),
            threads: 1,
            batch_rows: if counts_alone {
                ROWS_OF_POSITIONS
            } else {
                BATCH_ROWS
            },
            memory: (reading.memory - of_columns).max(LEAST_MEMORY),
            skip_repeats: reading.skip_repeats,
            on_loss: OnLoss::Fail,
        };
        Ok(Self {
            layouts,
            schema: Arc::new(Schema::new(fields)),
            source,
            options,
            pieces: pieces.into(),
            current: None,
            is_over: false,
            spent: Spent::default(),
        })
    }

    /// Makes events of blocks on so many threads, in the same order; 0 is 1.
    #[must_use]
    pub fn on_threads(mut self, threads: usize) -> Self {
        self.options.threads = threads.max(1);
        self
    }

    /// The cost so far.
    pub fn spent(&self) -> Spent {
        let Some((_, events)) = &self.current else {
            return self.spent;
        };
        self.spent.with(events.times())
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The columns of an event that are read.
    pub fn read_columns(&self) -> &[String] {
        self.options.columns.as_deref().unwrap_or_default()
    }

    /// Opens the next piece; `None` after the last.
    fn begin(&mut self) -> Option<Result<(), TaskError>> {
        let piece = self.pieces.pop_front()?;
        self.spent.bytes += piece.byte_end.saturating_sub(piece.byte_start);
        let reader = match Spool::read_slice(&self.layouts, &piece.slice(), &self.options) {
            Ok(reader) => reader,
            Err(error) => return Some(Err(TaskError::placed(&piece, &Failure::Spool(error)))),
        };
        let events = match &self.source.projection {
            None => Ok(Events::stored(reader)),
            Some((projection, memory)) => projection.events(reader, *memory),
        };
        Some(match events {
            Ok(events) => {
                self.current = Some((piece, events));
                Ok(())
            }
            Err(refused) => Err(refused.into()),
        })
    }

    fn read(&mut self) -> Option<Result<RecordBatch, TaskError>> {
        loop {
            if let Some((piece, events)) = &mut self.current {
                match events.next() {
                    Some(Ok(batch)) => return Some(self.chosen(&batch)),
                    Some(Err(failure)) => return Some(Err(TaskError::placed(piece, &failure))),
                    None => {
                        self.spent = self.spent.with(events.times());
                        self.current = None;
                    }
                }
            }
            if let Err(error) = self.begin()? {
                return Some(Err(error));
            }
        }
    }

    /// The wanted columns of a batch.
    fn chosen(&self, batch: &RecordBatch) -> Result<RecordBatch, TaskError> {
        let failed = |text: String| TaskError::from(Refused::new("reading", text));
        let columns = self.source.names.iter().map(|name| {
            let column = batch.column_by_name(name).cloned();
            column.ok_or_else(|| failed(format!("the column {name} was not read")))
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema(), columns, &rows)
            .map_err(|error| failed(error.to_string()))
    }
}

impl Iterator for Task {
    type Item = Result<RecordBatch, TaskError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let begun = Instant::now();
        let next = self.read();
        // The other two are taken off when they are known.
        self.spent.reading += begun.elapsed();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Spent {
    /// The same with the times of a piece, which were counted as reading.
    fn with(mut self, (expanding, projecting): (Duration, Duration)) -> Self {
        self.reading = self.reading.saturating_sub(expanding + projecting);
        self.expanding += expanding;
        self.projecting += projecting;
        self
    }
}

impl Source {
    /// The columns of an event that are read.
    fn read_columns(&self) -> Vec<String> {
        if let Some((projection, _)) = &self.projection {
            return projection.columns();
        }
        let mut names = self.names.clone();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            names.push(COUNTED.to_owned());
        }
        names
    }
}

/// Columns of events as they are stored; `of_events` are the names there of the wanted ones.
fn stored(of_events: &[&str], wanted: &[String]) -> Result<(Vec<FieldRef>, Source), Refused> {
    let fields = of_events.iter().zip(wanted).map(|(name, wanted)| {
        let missing = || Refused::new("reading", format!("an event has no column {name:?}"));
        let field = ackline_spool::column(name).ok_or_else(missing)?;
        Ok(Arc::new(field.with_name(wanted)))
    });
    let names = of_events.iter().map(|name| (*name).to_owned());
    let source = Source {
        names: names.collect(),
        projection: None,
    };
    Ok((fields.collect::<Result<_, _>>()?, source))
}

/// Columns of a projection. Payloads are projected only if a wanted column comes from them, or if a malformed event
/// is no row or an error; and only to the columns that can decide the wanted values.
fn projected(
    projection: Projection,
    wanted: &[String],
    memory: u64,
) -> Result<(Vec<FieldRef>, Source), Refused> {
    let of_events = wanted.iter().map(|name| projection.of_event(name));
    let of_events = of_events.collect::<Option<Vec<&str>>>();
    if let Some(of_events) = of_events
        && projection.keeps_malformed()
    {
        return stored(&of_events, wanted);
    }
    let projection = projection.pruned(wanted);
    let schema = projection.schema();
    let fields = wanted.iter().map(|name| {
        let (_, field) = schema.fields().find(name).ok_or_else(|| {
            let text = format!("the schema of the projection has no column {name}");
            Refused::new("reading", text)
        })?;
        Ok(Arc::clone(field))
    });
    let fields = fields.collect::<Result<_, Refused>>()?;
    let source = Source {
        names: wanted.to_vec(),
        projection: Some((projection, memory / 4)),
    };
    Ok((fields, source))
}

fn check_memory(memory: u64) -> Result<(), Refused> {
    if memory >= LEAST_MEMORY {
        return Ok(());
    }
    let most = u64::MAX;
    let text = format!("memory is {memory}; it is a whole number from {LEAST_MEMORY} to {most}");
    Err(Refused::new("memory", text))
}
