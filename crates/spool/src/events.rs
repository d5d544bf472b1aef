//! Events as Arrow: the columns a reader can ask for, and the builder that layouts push into.
//!
//! The builder keeps one run for each block (what is constant in it) and per event only the sequence
//! number and the payload. Batches are cut at the wanted number of rows or at 256 MiB of payload,
//! also inside a block, so that no layout has to know about batches.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, ListArray, MapArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::{Digester, LayoutError, SpoolError, StoredBlock, digest::sender_of};

/// The columns of an event, in their order.
pub const COLUMNS: [&str; 12] = [
    "spool",
    "position",
    "received_at",
    "protocol",
    "peer",
    "link",
    "stream",
    "sequence",
    "repeat",
    "attributes",
    "parts",
    "payload",
];

/// The column that is built only where it is named: 16 bytes by which an event is known in every spool,
/// made of its sender and its bytes ([`Digester::of_sender`]).
pub const DIGEST: &str = "digest";

/// Collects events into record batches of the columns that were asked for.
#[derive(Debug)]
pub struct Rows {
    schema: SchemaRef,
    wanted: Wanted,
    spool: Arc<str>,
    batch_limit: usize,
    most_bytes: usize,
    runs: Vec<Run>,
    filled: usize,
    left: usize,
    sequences: Vec<i64>,
    payloads: Values,
    parts: Values,
    part_lists: Vec<i32>,
    digests: Values,
    digester: Digesting,
    skips_repeats: bool,
    has_payload: Validity,
    has_parts: Validity,
    done: VecDeque<RecordBatch>,
    error: Option<LayoutError>,
}

/// The columns that all events of one block share.
#[derive(Debug, Clone)]
struct Run {
    rows: usize,
    first_position: i64,
    received_at: i64,
    protocol: Arc<str>,
    peer: Arc<str>,
    link: Arc<str>,
    stream: Option<Arc<str>>,
    repeats: Option<Arc<[u8]>>,
    first_row: usize,
    attributes: Arc<[(String, String)]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    sequence: bool,
    payload: bool,
    parts: bool,
}

/// By which key digests are made.
#[derive(Debug, Default)]
enum Digesting {
    /// None are made.
    #[default]
    Unwanted,
    /// The digests of a sender that is not known yet.
    Nobody,
    /// The digests of the sender of the last block.
    Sender(String, Digester),
    /// One for all.
    Spool(Digester),
}

impl Rows {
    pub(crate) fn new(schema: SchemaRef, spool: Arc<str>, most_rows: usize) -> Self {
        let has = |name: &str| schema.column_with_name(name).is_some();
        let wanted = Wanted {
            sequence: has("sequence"),
            payload: has("payload"),
            parts: has("parts"),
        };
        let digester = if has(DIGEST) {
            Digesting::Nobody
        } else {
            Digesting::Unwanted
        };
        Self {
            schema,
            wanted,
            spool,
            batch_limit: most_rows.clamp(1, 1 << 20),
            most_bytes: BATCH_BYTES,
            runs: Vec::new(),
            filled: 0,
            left: 0,
            sequences: Vec::new(),
            payloads: Values::default(),
            parts: Values::default(),
            part_lists: vec![0],
            digests: Values::default(),
            digester,
            skips_repeats: false,
            has_payload: Validity::default(),
            has_parts: Validity::default(),
            done: VecDeque::new(),
            error: None,
        }
    }

    /// Leaves out events that are marked as repeats.
    pub(crate) fn without_repeats(self, skips_repeats: bool) -> Self {
        Self {
            skips_repeats,
            ..self
        }
    }

    /// Digests alone, all by this key.
    pub(crate) fn of_digests(digester: Digester) -> Result<Self, SpoolError> {
        let schema = schema(Some(&[DIGEST.to_owned()]))?;
        let rows = Self::new(schema, Arc::from(""), usize::MAX);
        let digester = Digesting::Spool(digester);
        Ok(Self { digester, ..rows })
    }

    /// Whether a payload or parts are built: when not, the pushed bytes are ignored and may be empty.
    pub fn wants_payload(&self) -> bool {
        self.wanted.payload || self.wanted.parts || self.makes_digests()
    }

    /// Adds an event of one part.
    pub fn push_payload(&mut self, sequence: i64, payload: &[u8]) {
        if !self.admit(sequence, payload.len()) {
            return;
        }
        if self.wanted.payload {
            self.payloads.push(payload);
            self.has_payload.push(true);
        }
        if self.wanted.parts {
            self.part_lists.push(self.parts.len());
            self.has_parts.push(false);
        }
        if let Some(digester) = self.digester() {
            let digest = digester.payload(payload);
            self.digests.push(&digest.to_le_bytes());
        }
        self.added();
    }

    /// Adds an event of several parts.
    pub fn push_parts<'a>(&mut self, sequence: i64, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        let bytes = if self.wanted.parts {
            parts.clone().map(<[u8]>::len).sum()
        } else {
            0
        };
        if !self.admit(sequence, bytes) {
            return;
        }
        if let Some(digester) = self.digester() {
            let digest = digester.parts(parts.clone());
            self.digests.push(&digest.to_le_bytes());
        }
        if self.wanted.parts {
            parts.for_each(|part| self.parts.push(part));
            self.part_lists.push(self.parts.len());
            self.has_parts.push(true);
        }
        if self.wanted.payload {
            self.payloads.push(&[]);
            self.has_payload.push(false);
        }
        self.added();
    }

    /// Begins the events `rows` of a block.
    pub(crate) fn begin(
        &mut self,
        block: &StoredBlock<'_>,
        attributes: Arc<[(String, String)]>,
        rows: &Range<u32>,
    ) {
        let share = |text: &str, last: Option<&Arc<str>>| match last {
            Some(last) if **last == *text => last.clone(),
            _ => Arc::from(text),
        };
        let last = self.runs.last();
        let run = Run {
            rows: 0,
            first_position: position(block.first_position + u64::from(rows.start)),
            received_at: block.received_at_us,
            protocol: share(block.protocol, last.map(|run| &run.protocol)),
            peer: share(block.peer, last.map(|run| &run.peer)),
            link: share(block.link, last.map(|run| &run.link)),
            stream: block.stream.map(Arc::from),
            repeats: block.repeats.map(Arc::from),
            first_row: rows.start as usize,
            attributes,
        };
        if self.makes_digests() {
            self.digest_by(block.peer, &run.attributes);
        }
        self.runs.push(run);
        self.left = rows.len();
    }

    /// Digests are by the key of this block's sender from here on.
    fn digest_by(&mut self, peer: &str, attributes: &[(String, String)]) {
        let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
        let sender = sender_of(peer, pairs);
        match &self.digester {
            Digesting::Spool(_) => {}
            Digesting::Sender(last, _) if *last == sender => {}
            _ => self.digester = Digesting::Sender(sender.to_owned(), Digester::of_sender(sender)),
        }
    }

    fn makes_digests(&self) -> bool {
        !matches!(self.digester, Digesting::Unwanted)
    }

    fn digester(&self) -> Option<&Digester> {
        match &self.digester {
            Digesting::Unwanted | Digesting::Nobody => None,
            Digesting::Sender(_, digester) | Digesting::Spool(digester) => Some(digester),
        }
    }

    /// Passes over the next event of the begun block if it is to be left out; whether it did.
    fn passes_over(&mut self) -> bool {
        if !self.skips_repeats || self.left == 0 {
            return false;
        }
        let Some(run) = self.runs.last_mut() else {
            return false;
        };
        let row = run.first_row + run.rows;
        if !is_marked(run.repeats.as_deref(), row) {
            return false;
        }
        self.left -= 1;
        let next = Run {
            rows: 0,
            first_position: run
                .first_position
                .saturating_add_unsigned(run.rows as u64 + 1),
            first_row: row + 1,
            ..run.clone()
        };
        if run.rows == 0 {
            *run = next;
        } else {
            self.runs.push(next);
        }
        true
    }

    /// Whether the body must be looked at for the columns that were asked for.
    pub(crate) fn needs_body(&self) -> bool {
        self.wants_payload() || self.wanted.sequence
    }

    /// Adds the begun events without looking at them.
    pub(crate) fn fill(&mut self) {
        while self.left > 0 {
            if self.passes_over() {
                continue;
            }
            let marks = self.runs.last().and_then(|run| run.repeats.as_deref());
            let all = !self.skips_repeats || marks.unwrap_or_default().is_empty();
            let take = if all { self.left } else { 1 };
            let take = take.min(self.batch_limit - self.filled);
            if let Some(run) = self.runs.last_mut() {
                run.rows += take;
            }
            self.filled += take;
            self.left -= take;
            if self.filled >= self.batch_limit {
                self.cut();
            }
        }
    }

    /// Ends the begun block.
    pub(crate) fn end(&mut self) -> Result<(), LayoutError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.left > 0 {
            return Err(LayoutError(format!(
                "{} events fewer than it should hold",
                self.left
            )));
        }
        Ok(())
    }

    /// The next whole batch.
    pub(crate) fn take(&mut self) -> Option<RecordBatch> {
        self.done.pop_front()
    }

    /// Makes a batch of what is left.
    pub(crate) fn finish(&mut self) -> Result<(), SpoolError> {
        if self.filled > 0 {
            self.cut();
        }
        match self.error.take() {
            Some(error) => Err(SpoolError::Layout {
                position: 0,
                detail: error.0,
            }),
            None => Ok(()),
        }
    }

    fn admit(&mut self, sequence: i64, bytes: usize) -> bool {
        if self.passes_over() {
            return false;
        }
        if self.left == 0 {
            self.fail("more events than it should hold");
            return false;
        }
        if bytes > MAX_EVENT_BYTES {
            self.fail("an event above 512 MiB");
            return false;
        }
        let held = self.payloads.bytes.len().max(self.parts.bytes.len());
        if self.filled > 0 && held.saturating_add(bytes) > self.most_bytes {
            self.cut();
        }
        if self.wanted.sequence {
            self.sequences.push(sequence);
        }
        true
    }

    fn added(&mut self) {
        if let Some(run) = self.runs.last_mut() {
            run.rows += 1;
        }
        self.filled += 1;
        self.left -= 1;
        if self.filled >= self.batch_limit {
            self.cut();
        }
    }

    fn fail(&mut self, what: &str) {
        self.error
            .get_or_insert_with(|| LayoutError(what.to_owned()));
    }

    /// Makes a batch of what is there and goes on with the rest of the current block.
    fn cut(&mut self) {
        let next = self.runs.last().map(|run| Run {
            rows: 0,
            first_position: run.first_position.saturating_add_unsigned(run.rows as u64),
            first_row: run.first_row + run.rows,
            ..run.clone()
        });
        match self.build() {
            Ok(batch) => self.done.push_back(batch),
            Err(error) => self.fail(&error.to_string()),
        }
        self.runs.clear();
        if self.left > 0 {
            self.runs.extend(next);
        }
        self.filled = 0;
    }

    fn build(&mut self) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let schema = self.schema.clone();
        let columns = schema
            .fields()
            .iter()
            .map(|field| self.column(field))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.filled));
        RecordBatch::try_new_with_options(schema, columns, &options)
    }

    fn column(&mut self, field: &FieldRef) -> Result<ArrayRef, arrow_schema::ArrowError> {
        let rows = self.filled;
        Ok(match field.name().as_str() {
            "spool" => {
                let spool = self.spool.clone();
                Arc::new(texts(rows, std::iter::once((rows, vec![&*spool])), None)?)
            }
            "position" => {
                let mut values = Vec::with_capacity(rows);
                for run in &self.runs {
                    values.extend((0..).map(|row| run.first_position + row).take(run.rows));
                }
                Arc::new(Int64Array::from(values))
            }
            "received_at" => Arc::new(received_at(rows, &self.runs)),
            "protocol" => Arc::new(self.text(|run| Some(&run.protocol))?),
            "peer" => Arc::new(self.text(|run| Some(&run.peer))?),
            "link" => Arc::new(self.text(|run| Some(&run.link))?),
            "stream" => Arc::new(self.text(|run| run.stream.as_deref())?),
            "sequence" => Arc::new(Int64Array::from(take_full(&mut self.sequences, rows))),
            "repeat" => Arc::new(repeats(rows, &self.runs)),
            DIGEST => Arc::new(self.digests.finish(None)?),
            "attributes" => Arc::new(attributes(rows, &self.runs)?),
            "parts" => {
                let offsets = take_full(&mut self.part_lists, rows + 1);
                self.part_lists.push(0);
                Arc::new(ListArray::try_new(
                    Arc::new(Field::new("element", DataType::Binary, true)),
                    OffsetBuffer::new(ScalarBuffer::from(offsets)),
                    Arc::new(self.parts.finish(None)?),
                    self.has_parts.finish(),
                )?)
            }
            _ => {
                let nulls = self.has_payload.finish();
                Arc::new(self.payloads.finish(nulls)?)
            }
        })
    }

    fn text<'a>(
        &'a self,
        of: impl Fn(&'a Run) -> Option<&'a str>,
    ) -> Result<StringArray, arrow_schema::ArrowError> {
        let mut nulls = Validity::default();
        for run in &self.runs {
            nulls.push_n(run.rows, of(run).is_some());
        }
        let runs = self.runs.iter();
        let runs = runs.map(|run| (run.rows, vec![of(run).unwrap_or_default()]));
        texts(self.filled, runs, nulls.finish())
    }
}

/// The schema of these columns, in the order of [`COLUMNS`]; all of them when none are named.
pub(crate) fn schema(columns: Option<&[String]>) -> Result<SchemaRef, SpoolError> {
    if let Some(name) = columns
        .into_iter()
        .flatten()
        .find(|name| !COLUMNS.contains(&name.as_str()) && *name != DIGEST)
    {
        return Err(SpoolError::Column { name: name.clone() });
    }
    let named = |name: &str| columns.is_some_and(|columns| columns.iter().any(|c| c == name));
    let wanted = |name: &str| columns.is_none() || named(name);
    let ordered = COLUMNS.iter().filter(|name| wanted(name));
    let fields = ordered
        .chain([&DIGEST].into_iter().filter(|name| named(name)))
        .map(|name| Field::new(*name, data_type(name), true))
        .collect::<Vec<_>>();
    Ok(Arc::new(Schema::new(fields)))
}

/// A column of an event, of [`COLUMNS`] or [`DIGEST`], as Arrow knows it; `None` if there is none.
pub fn column(name: &str) -> Option<Field> {
    let is_known = COLUMNS.contains(&name) || name == DIGEST;
    is_known.then(|| Field::new(name, data_type(name), true))
}

fn data_type(column: &str) -> DataType {
    match column {
        "position" | "sequence" => DataType::Int64,
        "received_at" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "repeat" => DataType::Boolean,
        "attributes" => DataType::Map(map_entries(), false),
        "parts" => DataType::List(Arc::new(Field::new("element", DataType::Binary, true))),
        "payload" | DIGEST => DataType::Binary,
        _ => DataType::Utf8,
    }
}

/// The entries of `map<string not null, string>`, by the names pyarrow gives them.
pub(crate) fn map_entries() -> FieldRef {
    Arc::new(Field::new("entries", DataType::Struct(map_fields()), false))
}

pub(crate) fn map_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ])
}

/// Binary values one after another.
#[derive(Debug)]
struct Values {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }
}

impl Values {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.offsets.push(offset(self.bytes.len()));
    }

    fn len(&self) -> i32 {
        offset(self.offsets.len() - 1)
    }

    fn finish(
        &mut self,
        nulls: Option<NullBuffer>,
    ) -> Result<BinaryArray, arrow_schema::ArrowError> {
        // The next batch is probably as large as this one.
        let next = Self {
            offsets: Vec::with_capacity(self.offsets.len()),
            bytes: Vec::with_capacity(self.bytes.len() + self.bytes.len() / 8),
        };
        let full = std::mem::replace(self, next);
        self.offsets.push(0);
        BinaryArray::try_new(
            OffsetBuffer::new(ScalarBuffer::from(full.offsets)),
            Buffer::from_vec(full.bytes),
            nulls,
        )
    }
}

/// Which rows are there, kept only from the first one on that is not.
#[derive(Debug, Default)]
struct Validity {
    rows: usize,
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    fn push(&mut self, valid: bool) {
        self.push_n(1, valid);
    }

    fn push_n(&mut self, rows: usize, valid: bool) {
        if !valid && self.bits.is_none() && rows > 0 {
            let mut bits = BooleanBufferBuilder::new(self.rows + rows);
            bits.append_n(self.rows, true);
            self.bits = Some(bits);
        }
        if let Some(bits) = &mut self.bits {
            bits.append_n(rows, valid);
        }
        self.rows += rows;
    }

    fn finish(&mut self) -> Option<NullBuffer> {
        self.rows = 0;
        self.bits
            .take()
            .map(|mut bits| NullBuffer::new(bits.finish()))
    }
}

/// The texts of each run, all of them so many times one after the other. Copied by doubling: text by
/// text they would cost a fifth of reading everything.
fn texts<'a>(
    items: usize,
    runs: impl Iterator<Item = (usize, Vec<&'a str>)>,
    nulls: Option<NullBuffer>,
) -> Result<StringArray, arrow_schema::ArrowError> {
    let mut values = Vec::new();
    let mut offsets = Vec::with_capacity(items + 1);
    offsets.push(0);
    for (times, texts) in runs {
        values.extend_from_slice(&texts.concat().as_bytes().repeat(times));
        let mut end = offsets
            .last()
            .map_or(0, |end: &i32| end.unsigned_abs() as usize);
        for text in std::iter::repeat_n(&texts, times).flatten() {
            end += text.len();
            offsets.push(offset(end));
        }
    }
    StringArray::try_new(
        OffsetBuffer::new(ScalarBuffer::from(offsets)),
        Buffer::from_vec(values),
        nulls,
    )
}

fn received_at(rows: usize, runs: &[Run]) -> TimestampMicrosecondArray {
    let mut values = Vec::with_capacity(rows);
    for run in runs {
        values.extend(std::iter::repeat_n(run.received_at, run.rows));
    }
    TimestampMicrosecondArray::from(values).with_timezone("UTC")
}

/// Never null: what was not judged is no repeat, so that `where not repeat` leaves it in.
fn repeats(rows: usize, runs: &[Run]) -> BooleanArray {
    let mut bits = BooleanBufferBuilder::new(rows);
    for run in runs {
        let judged = run.repeats.as_deref().unwrap_or_default();
        if judged.is_empty() {
            bits.append_n(run.rows, false);
            continue;
        }
        for row in run.first_row..run.first_row + run.rows {
            bits.append(is_marked(Some(judged), row));
        }
    }
    BooleanArray::new(bits.finish(), None)
}

/// Whether the bitmap of a block marks this row of it.
fn is_marked(repeats: Option<&[u8]>, row: usize) -> bool {
    let byte = repeats.and_then(|bits| bits.get(row / 8));
    byte.is_some_and(|byte| byte & (1 << (row % 8)) != 0)
}

fn attributes(rows: usize, runs: &[Run]) -> Result<MapArray, arrow_schema::ArrowError> {
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    let mut held = 0_usize;
    for run in runs {
        for _ in 0..run.rows {
            held += run.attributes.len();
            offsets.push(offset(held));
        }
    }
    let column = |of: fn(&(String, String)) -> &str| {
        let runs = runs.iter();
        let runs = runs.map(|run| (run.rows, run.attributes.iter().map(of).collect()));
        texts(held, runs, None)
    };
    let keys = column(|(key, _)| key)?;
    let values = column(|(_, value)| value)?;
    let entries = StructArray::try_new(map_fields(), vec![Arc::new(keys), Arc::new(values)], None)?;
    MapArray::try_new(
        map_entries(),
        OffsetBuffer::new(ScalarBuffer::from(offsets)),
        entries,
        None,
        false,
    )
}

fn take_full<T>(values: &mut Vec<T>, capacity: usize) -> Vec<T> {
    std::mem::replace(values, Vec::with_capacity(capacity))
}

/// An offset within a batch; the limits of a batch keep it below 2^30.
fn offset(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A position as Arrow's signed number.
fn position(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Small enough for Spark's 2 GiB of a column's batch with room to spare, large enough to be rare.
const BATCH_BYTES: usize = 256 << 20;

/// With [`BATCH_BYTES`] this keeps a batch's payloads below 1 GiB.
const MAX_EVENT_BYTES: usize = 512 << 20;
