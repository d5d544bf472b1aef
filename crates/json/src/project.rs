//! Projects events to typed record batches: modes, left-over members, malformed events.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{ArrowError, DataType, Fields, Schema, SchemaRef};

use crate::column::{Bytes, BytesKind, Column, Fit, append_lossy, append_named};
use crate::escape::push_string;
use crate::malformed::Malformed;
use crate::plan::{self, SchemaError};
use crate::scope::Scope;
use crate::text::nests_too_deep;
use crate::value::{self, Value};
use crate::variant::{Variants, is_variant};

/// The handling of a malformed event.
///
/// An event is malformed if it is not one JSON object; and, if no column keeps values that do not
/// fit (no [`Options::rescued`]), also if a value does not fit its column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Its columns are null; a value that does not fit is null, and the rest of the event is kept.
    #[default]
    Permissive,
    /// It has no row.
    DropMalformed,
    /// It is an error that names its position and the reason.
    FailFast,
}

/// How events become rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The handling of malformed events; permissive.
    pub mode: Mode,
    /// The column for unknown members and values that do not fit, as a JSON object; `_rescued`, if
    /// the schema has it. `None` fills none.
    pub rescued: Option<String>,
    /// The column for the text of an event that is no object; `_corrupt_record`, if the schema has
    /// it. If it does not, that text is a member of this name in the column of rescued members.
    pub corrupt: String,
    /// The VARIANT column for a whole event, if the schema has it; no member fills it.
    pub whole: Option<String>,
    /// Whether the case of members must match the columns; not by default.
    pub case_sensitive: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            rescued: Some("_rescued".to_owned()),
            corrupt: "_corrupt_record".to_owned(),
            whole: None,
            case_sensitive: false,
        }
    }
}

/// The reason a batch could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// An event is malformed and the mode is [`Mode::FailFast`].
    #[error("position {position}: {reason}; the mode is FAILFAST")]
    Malformed {
        /// The event's position.
        position: u64,
        /// The event's fault.
        reason: Malformed,
    },
    /// The columns do not fit into a batch.
    #[error("{0}")]
    Batch(String),
}

impl ProjectError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { reason, .. } => reason.code(),
            Self::Batch(_) => "json.batch",
        }
    }
}

impl From<ArrowError> for ProjectError {
    fn from(error: ArrowError) -> Self {
        Self::Batch(error.to_string())
    }
}

/// Fills the columns of a schema from events.
///
/// Columns with other origins than the payload (positions, times of receipt) are given to
/// [`finish`](Self::finish); all others are filled from the members of the payload's object.
pub struct Projector {
    schema: SchemaRef,
    sources: Vec<Source>,
    scope: Scope,
    rescued: Option<Bytes>,
    corrupt: Option<Bytes>,
    whole: Option<Variants>,
    corrupt_name: String,
    mode: Mode,
    kept: BooleanBufferBuilder,
    dropped: usize,
    text: Vec<u8>,
}

/// The source of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Given,
    Payload(usize),
    Rescued,
    Corrupt,
    Whole,
}

impl Projector {
    /// A projector for the columns of `schema`; those named in `beside` are not filled here.
    ///
    /// # Errors
    /// The schema has a column that JSON cannot fill.
    pub fn new(schema: SchemaRef, beside: &[&str], options: &Options) -> Result<Self, SchemaError> {
        special(&schema, beside, options)?;
        let mut wanted = Vec::new();
        let mut sources = Vec::with_capacity(schema.fields().len());
        for (at, field) in schema.fields().iter().enumerate() {
            let name = field.name().as_str();
            if schema.index_of(name).is_ok_and(|first| first < at) {
                let column = name.to_owned();
                return Err(SchemaError::SameName { column });
            }
            let is_text = *field.data_type() == DataType::Utf8;
            let is_whole = options.whole.as_deref() == Some(name);
            sources.push(if is_whole && is_variant(field.data_type()) {
                Source::Whole
            } else if beside.contains(&name) {
                Source::Given
            } else if is_text && options.rescued.as_deref() == Some(name) {
                Source::Rescued
            } else if is_text && options.corrupt == name {
                Source::Corrupt
            } else {
                wanted.push(field.clone());
                Source::Payload(wanted.len() - 1)
            });
        }
        let mut scope = plan::scope(&Fields::from(wanted), options.case_sensitive, "", 0)?;
        if sources.contains(&Source::Rescued) {
            scope.keep_leftover();
        }
        let whole = schema
            .fields()
            .iter()
            .zip(&sources)
            .find_map(|(field, source)| {
                let DataType::Struct(fields) = field.data_type() else {
                    return None;
                };
                (*source == Source::Whole).then(|| Variants::new(fields))
            });
        let text = |source| {
            sources
                .contains(&source)
                .then(|| Bytes::new(BytesKind::Text))
        };
        Ok(Self {
            rescued: text(Source::Rescued),
            corrupt: text(Source::Corrupt),
            whole,
            corrupt_name: options.corrupt.clone(),
            mode: options.mode,
            schema,
            sources,
            scope,
            kept: BooleanBufferBuilder::new(0),
            dropped: 0,
            text: Vec::new(),
        })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Adds the event at `position`.
    ///
    /// # Errors
    /// It is malformed and the mode is [`Mode::FailFast`]; nothing more can be added.
    pub fn push(&mut self, position: u64, payload: &[u8]) -> Result<(), ProjectError> {
        match self.read(payload) {
            Ok(text) => self.append(position, text),
            Err(reason) => self.refuse(position, payload, reason),
        }
    }

    /// Adds an event that is pairs of a key and a text, given in turn: the keys are its members.
    ///
    /// A text in a column of another type is read as the number or truth value that it writes.
    ///
    /// # Errors
    /// As [`push`](Self::push) does.
    pub fn push_pairs<'a>(
        &mut self,
        position: u64,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), ProjectError> {
        let mut text = std::mem::take(&mut self.text);
        let whole = write_pairs(parts, &mut text);
        self.scope.set_from_texts(true);
        let pushed = match whole {
            Ok(()) => self.push(position, &text),
            Err(reason) => self.refuse(position, &text, reason),
        };
        self.scope.set_from_texts(false);
        text.clear();
        text.shrink_to(KEPT_BYTES);
        self.text = text;
        pushed
    }

    /// Makes a batch of the added events; the next one begins.
    ///
    /// `beside` has a row for each event that was added, also for those that are dropped.
    ///
    /// # Errors
    /// [`ProjectError::Batch`]: a column has more than 2 GiB, or `beside` does not match its
    /// announcement.
    pub fn finish(&mut self, beside: &RecordBatch) -> Result<RecordBatch, ProjectError> {
        let filled = self.scope.finish()?;
        let rescued = self.rescued.as_mut().map(Column::finish).transpose()?;
        let corrupt = self.corrupt.as_mut().map(Column::finish).transpose()?;
        let whole = self.whole.as_mut().map(Column::finish).transpose()?;
        let columns = self.schema.fields().iter().zip(&self.sources);
        let columns = columns
            .map(|(field, source)| {
                let column = match source {
                    Source::Given => beside.column_by_name(field.name()).cloned(),
                    Source::Payload(at) => filled.get(*at).cloned(),
                    Source::Rescued => rescued.clone(),
                    Source::Corrupt => corrupt.clone(),
                    Source::Whole => whole.clone(),
                };
                column.ok_or_else(|| ProjectError::Batch(format!("{} is missing", field.name())))
            })
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let kept = self.kept.finish();
        let options = RecordBatchOptions::new().with_row_count(Some(kept.len()));
        let schema = SchemaRef::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        if std::mem::take(&mut self.dropped) == 0 {
            return Ok(batch);
        }
        let kept = BooleanArray::new(kept, None);
        Ok(arrow_select::filter::filter_record_batch(&batch, &kept)?)
    }

    /// Finds the members of an event.
    fn read<'t>(&mut self, payload: &'t [u8]) -> Result<&'t str, Malformed> {
        let text = event_text(payload)?;
        let read = self.scope.read(text);
        read.map_err(|error| Malformed::syntax(&error))?;
        Ok(text)
    }

    fn append(&mut self, position: u64, text: &str) -> Result<(), ProjectError> {
        let is_misfit = self.scope.append(text) == Fit::Misfit && self.rescued.is_none();
        if let Some(whole) = &mut self.whole {
            whole.append(Value::of(text.trim_matches(SPACE)));
        }
        if let Some(rescued) = &mut self.rescued {
            rescued.append_with(|bytes| self.scope.write_extras(text, bytes));
        }
        match &mut self.corrupt {
            Some(corrupt) if is_misfit => append_lossy(corrupt, text.as_bytes()),
            Some(corrupt) => corrupt.append_null(),
            None => {}
        }
        if is_misfit && self.mode != Mode::Permissive {
            let member = self.scope.misfit(text).unwrap_or_default();
            return self.drop_row(position, Malformed::misfit(member));
        }
        self.kept.append(true);
        Ok(())
    }

    fn refuse(
        &mut self,
        position: u64,
        payload: &[u8],
        reason: Malformed,
    ) -> Result<(), ProjectError> {
        self.scope.append_null();
        if self.append_whole(payload, &reason) {
            let others = [&mut self.rescued, &mut self.corrupt];
            others.into_iter().flatten().for_each(Column::append_null);
            self.kept.append(true);
            return Ok(());
        }
        match (&mut self.corrupt, &mut self.rescued) {
            (Some(corrupt), rescued) => {
                append_lossy(corrupt, payload);
                if let Some(rescued) = rescued {
                    rescued.append_null();
                }
            }
            (None, Some(rescued)) => append_named(rescued, &self.corrupt_name, payload),
            (None, None) => {}
        }
        if self.mode == Mode::Permissive {
            self.kept.append(true);
            return Ok(());
        }
        self.drop_row(position, reason)
    }

    /// JSON that is no object is still a VARIANT, which has all of it; returns whether the event is one.
    fn append_whole(&mut self, payload: &[u8], reason: &Malformed) -> bool {
        let Some(whole) = &mut self.whole else {
            return false;
        };
        match std::str::from_utf8(payload) {
            Ok(text) if *reason == Malformed::NotObject => {
                whole.append(Value::of(text.trim_matches(SPACE))) == Fit::Whole
            }
            _ => {
                whole.append_null();
                false
            }
        }
    }

    /// Ends a row that the mode drops.
    fn drop_row(&mut self, position: u64, reason: Malformed) -> Result<(), ProjectError> {
        if self.mode == Mode::FailFast {
            return Err(ProjectError::Malformed { position, reason });
        }
        self.kept.append(false);
        self.dropped += 1;
        Ok(())
    }
}

/// The text of an event, if it may be an object of JSON.
pub(crate) fn event_text(payload: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(payload).map_err(|error| Malformed::Utf8 {
        at: error.valid_up_to(),
    })?;
    if nests_too_deep(text) {
        return Err(Malformed::Depth);
    }
    let begin = text.trim_start_matches(SPACE);
    if begin.starts_with('{') {
        return Ok(text);
    }
    if begin.is_empty() {
        return Err(Malformed::Empty);
    }
    value::check(text).map_err(|error| Malformed::syntax(&error))?;
    Err(Malformed::NotObject)
}

/// Writes pairs as an object of texts.
pub(crate) fn write_pairs<'a>(
    mut parts: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut invalid = None;
    let mut string = |part: &[u8], out: &mut Vec<u8>| {
        if let Err(error) = std::str::from_utf8(part) {
            invalid.get_or_insert(out.len() + error.valid_up_to());
        }
        push_string(part, out);
    };
    out.push(b'{');
    while let Some(key) = parts.next() {
        if out.len() > 1 {
            out.push(b',');
        }
        string(key, out);
        out.push(b':');
        string(parts.next().unwrap_or_default(), out);
    }
    out.push(b'}');
    match invalid {
        Some(at) => Err(Malformed::Utf8 { at }),
        None => Ok(()),
    }
}

/// Refuses a column of rescued members, or of texts that are no object, that cannot take them.
fn special(schema: &Schema, beside: &[&str], options: &Options) -> Result<(), SchemaError> {
    let rescued = options
        .rescued
        .as_deref()
        .map(|name| (name, "rescued members"));
    let corrupt = (options.corrupt.as_str(), "events that are no JSON object");
    for (name, what) in rescued.into_iter().chain([corrupt]) {
        let column = name.to_owned();
        if beside.contains(&name) {
            return Err(SchemaError::Reserved { column, what });
        }
        let Some((_, field)) = schema.column_with_name(name) else {
            continue;
        };
        if *field.data_type() != DataType::Utf8 {
            let data_type = field.data_type().to_string();
            return Err(SchemaError::Text {
                column,
                what,
                data_type,
            });
        }
        if !field.is_nullable() {
            return Err(SchemaError::NotNull { column });
        }
    }
    Ok(())
}

/// The schema with the column of rescued members after all others, unless it exists or is not
/// wanted.
pub fn with_rescued(schema: &Schema, options: &Options) -> SchemaRef {
    let mut fields = schema.fields().to_vec();
    if let Some(name) = &options.rescued
        && schema.column_with_name(name).is_none()
    {
        fields.push(Arc::new(arrow_schema::Field::new(
            name,
            DataType::Utf8,
            true,
        )));
    }
    Arc::new(Schema::new(fields))
}

/// White space of JSON.
const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// The most bytes of text that are kept for the next event.
const KEPT_BYTES: usize = 1 << 20;
