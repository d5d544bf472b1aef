//! Events as Arrow: the columns that a reader can request, and the builder that layouts push into.
//!
//! The builder keeps one run for each block (its constant values) and per event only the sequence
//! number and the payload. Batches are cut at the requested number of rows or at their share of the
//! builder's memory, also inside a block, so that no layout deals with batches. When the memory is
//! used up the builder takes no more events: the layout stops, and is called again for the rest of
//! the block when the batches were taken.

mod batch;
mod columns;
mod own;
mod schema;

use std::{borrow::Cow, collections::VecDeque, ops::Range, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, SchemaRef};

use crate::{Digester, LayoutError, SpoolError, StoredBlock, digest::sender_of};
use columns::{Validity, Values, is_marked};
use own::OwnAttributes;
pub use schema::{COLUMNS, DIGEST, ENDPOINT, LISTENER, ON_REQUEST, RECEIVER_URL, column};
pub(crate) use schema::{map_entries, map_fields, schema};

/// Collects events into record batches of the requested columns.
#[derive(Debug)]
pub struct Rows {
    schema: SchemaRef,
    wanted: Wanted,
    spool: Arc<str>,
    batch_limit: usize,
    memory: Memory,
    runs: Vec<Run>,
    filled: usize,
    left: usize,
    values: EventValues,
    skips_repeats: bool,
    done: VecDeque<(usize, RecordBatch)>,
    error: Option<LayoutError>,
}

/// The memory of a builder, in bytes.
#[derive(Debug, Default)]
struct Memory {
    /// The limit of all batches and the other events.
    limit: usize,
    /// The batches that were not taken yet.
    done: usize,
    /// The events that are in no batch yet, as their columns will hold them.
    held: usize,
    /// Each event of the begun block without its payload.
    row: usize,
    /// Whether the begun block has events for which there was no space.
    is_full: bool,
    /// An event that will never fit.
    too_large: Option<usize>,
}

/// The values of the events that are in no batch yet.
#[derive(Debug, Default)]
struct EventValues {
    sequences: Vec<i64>,
    payloads: Values,
    parts: Values,
    part_lists: Vec<i32>,
    digests: Values,
    digester: Digesting,
    has_payload: Validity,
    has_parts: Validity,
    attributes: OwnAttributes,
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

impl Run {
    /// The URL that its receiver noted.
    fn listener(&self) -> Option<&str> {
        let mut pairs = self.attributes.iter();
        let found = pairs.find(|(name, _)| name == RECEIVER_URL);
        found.map(|(_, url)| url.as_str())
    }

    /// The name of the endpoint in the name of a link of Relink: `NAME/EPOCH/ID`.
    fn endpoint(&self) -> Option<&str> {
        let mut parts = self.link.rsplitn(3, '/');
        let name = parts.nth(2);
        name.filter(|_| &*self.protocol == "relink")
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    sequence: bool,
    payload: bool,
    parts: bool,
}

impl Run {
    /// The bytes of the run itself.
    fn bytes(&self) -> usize {
        let pairs = self.attributes.iter();
        let pairs = pairs.map(|(name, value)| {
            size_of::<(String, String)>()
                .saturating_add(name.len())
                .saturating_add(value.len())
        });
        let texts = [&self.protocol, &self.peer, &self.link];
        let texts = texts.into_iter().chain(&self.stream).map(|text| text.len());
        let marks = self.repeats.as_deref().unwrap_or_default().len();
        let all = pairs.chain(texts).chain([marks]);
        all.fold(size_of::<Self>(), usize::saturating_add)
    }
}

/// The key of the digests.
#[derive(Debug, Default)]
enum Digesting {
    /// No digests are built.
    #[default]
    Unwanted,
    /// The sender is not known yet.
    Nobody,
    /// The key of the last block's sender.
    Sender(String, Digester),
    /// One key for all.
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
        let has_attributes = has("attributes");
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
            memory: Memory {
                limit: usize::MAX,
                ..Memory::default()
            },
            runs: Vec::new(),
            filled: 0,
            left: 0,
            values: EventValues {
                part_lists: vec![0],
                digester,
                attributes: OwnAttributes::new(has_attributes),
                ..EventValues::default()
            },
            skips_repeats: false,
            done: VecDeque::new(),
            error: None,
        }
    }

    /// Builds batches of at most so many bytes before they are taken.
    pub(crate) fn with_room(mut self, room: usize) -> Self {
        self.memory.limit = room;
        self
    }

    /// Leaves out events that are marked as repeats.
    pub(crate) fn without_repeats(mut self, skips_repeats: bool) -> Self {
        self.skips_repeats = skips_repeats;
        self
    }

    /// Builds digests alone, all with this key.
    pub(crate) fn of_digests(digester: Digester) -> Result<Self, SpoolError> {
        let schema = schema(Some(&[DIGEST.to_owned()]))?;
        let mut rows = Self::new(schema, Arc::from(""), usize::MAX);
        rows.values.digester = Digesting::Spool(digester);
        Ok(rows)
    }

    /// Whether a payload or parts are built: when not, the pushed bytes are ignored and may be empty.
    pub(crate) fn wants_payload(&self) -> bool {
        self.wanted.payload || self.wanted.parts || self.makes_digests()
    }

    /// Whether there is no space for the rest of the block: events are ignored now, and the layout
    /// may return. It is called again for the rest.
    pub fn is_full(&self) -> bool {
        self.memory.is_full || self.memory.too_large.is_some()
    }

    /// The most bytes of one event: a layout inflates no event beyond this.
    pub fn most_event_bytes(&self) -> usize {
        self.memory.limit.min(MAX_EVENT_BYTES)
    }

    /// Records that the next event has at least so many bytes, more than
    /// [`most_event_bytes`](Self::most_event_bytes).
    pub fn refuse_event(&mut self, bytes: usize) {
        self.memory.too_large.get_or_insert(bytes);
    }

    /// Adds an event of one part.
    pub fn push_payload(&mut self, sequence: i64, payload: &[u8]) {
        self.push_one(sequence, payload, &[]);
    }

    /// Adds an event of one part that has attributes of its own, beside those of its block. They are read only if the column
    /// is built. One with the name of an attribute of the block is renamed `property.NAME`, so that no event changes the
    /// facts about its link; of two with one name the first counts.
    pub fn push_payload_with<'a>(
        &mut self,
        sequence: i64,
        payload: &[u8],
        pairs: impl IntoIterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    ) {
        if !self.values.attributes.is_wanted() || self.is_full() {
            return self.push_one(sequence, payload, &[]);
        }
        let block = self.runs.last().map_or(&[][..], |run| &run.attributes);
        let pairs = own::beside(block, pairs);
        self.push_one(sequence, payload, &pairs);
    }

    fn push_one(&mut self, sequence: i64, payload: &[u8], pairs: &[own::Pair<'_>]) {
        let mut bytes = if self.wanted.payload {
            payload.len()
        } else {
            0
        };
        if !pairs.is_empty() {
            bytes = bytes.saturating_add(own::bytes(pairs));
        }
        if !self.admit(sequence, bytes) {
            return;
        }
        self.values.attributes.push(self.filled, pairs);
        if self.wanted.payload {
            self.values.payloads.push(payload);
            self.values.has_payload.push(true);
        }
        if self.wanted.parts {
            self.values.part_lists.push(self.values.parts.len());
            self.values.has_parts.push(false);
        }
        if let Some(digester) = self.digester() {
            let digest = digester.payload(payload);
            self.values.digests.push(&digest.to_le_bytes());
        }
        self.event_added(bytes);
    }

    /// Adds an event of several parts.
    pub fn push_parts<'a>(&mut self, sequence: i64, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        let bytes = if self.wanted.parts {
            // Each with its offset.
            parts.clone().map(|part| part.len().saturating_add(4)).sum()
        } else {
            0
        };
        if !self.admit(sequence, bytes) {
            return;
        }
        if let Some(digester) = self.digester() {
            let digest = digester.parts(parts.clone());
            self.values.digests.push(&digest.to_le_bytes());
        }
        if self.wanted.parts {
            parts.for_each(|part| self.values.parts.push(part));
            self.values.part_lists.push(self.values.parts.len());
            self.values.has_parts.push(true);
        }
        if self.wanted.payload {
            self.values.payloads.push(&[]);
            self.values.has_payload.push(false);
        }
        self.event_added(bytes);
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
            protocol: share(block.origin.protocol, last.map(|run| &run.protocol)),
            peer: share(block.origin.peer, last.map(|run| &run.peer)),
            link: share(block.origin.link, last.map(|run| &run.link)),
            stream: block.origin.stream.map(Arc::from),
            repeats: block.repeats.map(Arc::from),
            first_row: rows.start as usize,
            attributes,
        };
        if self.makes_digests() {
            self.digest_by(block.origin.peer, &run.attributes);
        }
        self.memory.row = self.bytes_beside_payload(&run);
        if self.skips_repeats {
            // Each event that is left out may end a run.
            self.memory.row = self.memory.row.saturating_add(size_of::<Run>());
        }
        self.memory.held = self.memory.held.saturating_add(run.bytes());
        self.runs.push(run);
        self.left = rows.len();
    }

    /// Makes the builder take the begun events. Returns how many of them are still to be added.
    pub(crate) fn resume(&mut self) -> usize {
        self.memory.is_full = false;
        self.left
    }

    /// The bytes that an event of a block takes in all columns but `parts` and `payload`.
    fn bytes_beside_payload(&self, run: &Run) -> usize {
        let text = |text: &str| text.len().saturating_add(4);
        let of = |field: &FieldRef| match field.name().as_str() {
            "spool" => text(&self.spool),
            "protocol" => text(&run.protocol),
            "peer" => text(&run.peer),
            "link" => text(&run.link),
            "stream" => text(run.stream.as_deref().unwrap_or_default()),
            "attributes" => {
                let pairs = run.attributes.iter();
                let pairs = pairs.map(|(name, value)| text(name).saturating_add(text(value)));
                pairs.fold(4, usize::saturating_add)
            }
            LISTENER => text(run.listener().unwrap_or_default()),
            ENDPOINT => text(run.endpoint().unwrap_or_default()),
            DIGEST => 20,
            _ => 8,
        };
        self.schema
            .fields()
            .iter()
            .map(of)
            .fold(0, usize::saturating_add)
    }

    /// Uses the key of this block's sender from here on.
    fn digest_by(&mut self, peer: &str, attributes: &[(String, String)]) {
        let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
        let sender = sender_of(peer, pairs);
        match &self.values.digester {
            Digesting::Spool(_) => {}
            Digesting::Sender(last, _) if *last == sender => {}
            _ => {
                self.values.digester =
                    Digesting::Sender(sender.to_owned(), Digester::of_sender(sender));
            }
        }
    }

    fn makes_digests(&self) -> bool {
        !matches!(self.values.digester, Digesting::Unwanted)
    }

    fn digester(&self) -> Option<&Digester> {
        match &self.values.digester {
            Digesting::Unwanted | Digesting::Nobody => None,
            Digesting::Sender(_, digester) | Digesting::Spool(digester) => Some(digester),
        }
    }

    /// Skips the next event of the begun block if it must be left out. Returns whether it did.
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

    /// Whether the requested columns need the body of a block, whose events may have attributes of their own.
    pub(crate) fn needs_body(&self, has_attributes: bool) -> bool {
        let is_wanted = self.wants_payload() || self.wanted.sequence;
        is_wanted || has_attributes && self.values.attributes.is_wanted()
    }

    /// Adds the begun events without reading the body.
    pub(crate) fn fill(&mut self) {
        while self.left > 0 {
            if self.passes_over() {
                continue;
            }
            if !self.has_room(0) {
                return;
            }
            let marks = self.runs.last().and_then(|run| run.repeats.as_deref());
            let all = !self.skips_repeats || marks.unwrap_or_default().is_empty();
            let fit = self.batch_bytes().saturating_sub(self.memory.held) / self.memory.row.max(1);
            let take = if all { fit.clamp(1, self.left) } else { 1 };
            let take = take.min(self.batch_limit - self.filled);
            if let Some(run) = self.runs.last_mut() {
                run.rows += take;
            }
            self.added(take, 0);
        }
    }

    /// Ends the begun block.
    pub(crate) fn end(&mut self) -> Result<(), LayoutError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.left > 0 && !self.memory.is_full {
            return Err(LayoutError(format!(
                "{} events fewer than it should hold",
                self.left
            )));
        }
        Ok(())
    }

    /// Whether it has no event and no batch.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0 && self.done.is_empty()
    }

    /// The next complete batch.
    pub(crate) fn take(&mut self) -> Option<RecordBatch> {
        let (bytes, batch) = self.done.pop_front()?;
        self.memory.done -= bytes;
        Some(batch)
    }

    /// The bytes of an event that is larger than the builder's memory.
    pub(crate) fn too_large(&self) -> Option<usize> {
        self.memory.too_large
    }

    /// Builds a batch of the events that are in none yet.
    pub(crate) fn finish(&mut self) -> Result<(), LayoutError> {
        if self.filled > 0 {
            self.cut();
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn admit(&mut self, sequence: i64, bytes: usize) -> bool {
        if self.is_full() || self.passes_over() {
            return false;
        }
        if self.left == 0 {
            self.fail("more events than it should hold");
            return false;
        }
        if !self.has_room(bytes) {
            return false;
        }
        if self.wanted.sequence {
            self.values.sequences.push(sequence);
        }
        true
    }

    /// Makes space for an event with so many bytes of payload. Returns whether there is any;
    /// without it the rest of the block waits.
    fn has_room(&mut self, bytes: usize) -> bool {
        let bytes = bytes.saturating_add(self.memory.row);
        if bytes > self.most_event_bytes() {
            self.refuse_event(bytes);
            return false;
        }
        if self.filled > 0 && self.memory.held.saturating_add(bytes) > self.batch_bytes() {
            self.cut();
        }
        let all = self.memory.done.saturating_add(self.memory.held);
        self.memory.is_full =
            !self.done.is_empty() && all.saturating_add(bytes) > self.memory.limit;
        !self.memory.is_full
    }

    /// The bytes of a batch of more than one event.
    fn batch_bytes(&self) -> usize {
        BATCH_BYTES.min(self.memory.limit / 2)
    }

    /// Counts events that were added, which have so many bytes of payload.
    fn added(&mut self, rows: usize, bytes: usize) {
        let beside = self.memory.row.saturating_mul(rows);
        self.memory.held = self
            .memory
            .held
            .saturating_add(beside)
            .saturating_add(bytes);
        self.filled += rows;
        self.left -= rows;
        if self.filled >= self.batch_limit {
            self.cut();
        }
    }

    fn event_added(&mut self, bytes: usize) {
        if let Some(run) = self.runs.last_mut() {
            run.rows += 1;
        }
        self.added(1, bytes);
    }

    fn fail(&mut self, what: &str) {
        self.error
            .get_or_insert_with(|| LayoutError(what.to_owned()));
    }

    /// Builds a batch of the events so far and continues with the rest of the current block.
    fn cut(&mut self) {
        let next = self.runs.last().map(|run| Run {
            rows: 0,
            first_position: run.first_position.saturating_add_unsigned(run.rows as u64),
            first_row: run.first_row + run.rows,
            ..run.clone()
        });
        match self.build() {
            Ok(batch) => {
                let bytes = self.memory.held.saturating_add(MOST_EMPTY_BATCH_BYTES);
                self.memory.done = self.memory.done.saturating_add(bytes);
                self.done.push_back((bytes, batch));
            }
            Err(error) => self.fail(&error.to_string()),
        }
        self.runs.clear();
        if self.left > 0 {
            self.runs.extend(next);
        }
        (self.filled, self.memory.held) = (0, 0);
    }
}

/// A position as Arrow's signed number.
fn position(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Small enough for Spark's 2 GiB per column of a batch, with a margin; large enough to be rare.
const BATCH_BYTES: usize = 256 << 20;

/// The memory of a batch without its values.
const MOST_EMPTY_BATCH_BYTES: usize = 4_096;

/// With [`BATCH_BYTES`] this keeps a batch's payloads below 1 GiB.
const MAX_EVENT_BYTES: usize = 512 << 20;
