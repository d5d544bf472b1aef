//! Reading a range: groups are read and checked one after another, their blocks expanded in order,
//! on as many threads as requested. Threads live within one call, so that a process may fork
//! between two batches. One segment is open at a time.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{
    Layouts, Loss, LossWhy, Rows, SpoolError, events,
    expand::{Blocks, Expansion},
    group::Group,
    index::Entry,
    walk::{Segment, Step, Walk, loss},
};

/// Options of a read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The columns to build, of [`COLUMNS`](crate::COLUMNS); all when none are named.
    pub columns: Option<Vec<String>>,
    /// Threads that expand blocks, 1.
    pub threads: usize,
    /// Events in a batch, 10,000; at most 2^20. A batch of more than 256 MiB of payload has fewer.
    pub batch_rows: usize,
    /// Bytes that the reader holds at once, 512 MiB; at least 4 MiB ([`LEAST_MEMORY`]). A quarter is for group commits as
    /// they are on disk, or three quarters for one that is larger; the rest is for inflating and for batches, in equal
    /// shares of all threads. Batches are split smaller, and threads are fewer than `threads`, as it demands. A group
    /// commit or an event for which it is too small is `spool.memory`. Beside it each thread has 4 MiB.
    pub memory: u64,
    /// Whether events that are marked as duplicates are left out. They still count as positions.
    pub skip_repeats: bool,
    /// The behaviour at positions that are lost or damaged, [`OnLoss::Fail`].
    pub on_loss: OnLoss,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            columns: None,
            threads: 1,
            batch_rows: 10_000,
            memory: MEMORY,
            skip_repeats: false,
            on_loss: OnLoss::default(),
        }
    }
}

/// The behaviour of a reader at positions whose events are lost or damaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The events before them are delivered, then comes the error with their range.
    #[default]
    Fail,
    /// Exactly these positions are skipped.
    Skip,
}

/// The events of a range as record batches, in order.
#[derive(Debug)]
pub struct Reader {
    layouts: Layouts,
    schema: SchemaRef,
    uuid: Arc<str>,
    threads: usize,
    batch_rows: usize,
    memory: u64,
    groups: Source,
    buffer: Vec<u8>,
    /// The expansion of a single thread, block after block.
    here: Expansion,
    /// Expansions of threads and of large groups, in order; all but the first wait for their turn.
    parts: VecDeque<Part>,
    ready: VecDeque<RecordBatch>,
    /// The error at the end of the readable events: returned after the batches.
    broken: Option<SpoolError>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// Everything that can be read is in batches.
    Read,
    Ended,
}

/// The source of groups.
#[derive(Debug)]
struct Source {
    walk: Walk,
    /// A step that was read ahead.
    first: Option<Step>,
    on_loss: OnLoss,
    skips_repeats: bool,
    skipped: Vec<Loss>,
    current: Option<Blocks>,
    /// The most bytes of a group.
    most_bytes: u64,
    /// The reader's memory in bytes, for its error.
    memory: u64,
    /// Bytes of the groups that were read in this round.
    loaded: u64,
    /// The error of a step that was read ahead.
    failed: Option<SpoolError>,
}

/// An expansion that was run, and the error that ended it.
#[derive(Debug)]
struct Part {
    expansion: Expansion,
    error: Option<SpoolError>,
}

impl Part {
    /// Expands all blocks of an expansion, as far as there is memory.
    fn new(mut expansion: Expansion, layouts: &Layouts) -> Self {
        expansion.end();
        let mut part = Self {
            expansion,
            error: None,
        };
        part.go_on(layouts);
        part
    }

    fn go_on(&mut self, layouts: &Layouts) {
        self.error = self.expansion.run(layouts).err();
    }
}

impl Reader {
    /// # Errors
    /// Those of the first step of the walk: a strict reader that begins in a hole is refused at
    /// once.
    pub(crate) fn new(
        layouts: &Layouts,
        uuid: &str,
        mut walk: Walk,
        options: &ReadOptions,
    ) -> Result<Self, SpoolError> {
        let schema = events::schema(options.columns.as_deref())?;
        let uuid: Arc<str> = Arc::from(uuid);
        let first = walk.next()?;
        if let Some(Step::Hole(hole)) = &first
            && options.on_loss == OnLoss::Fail
        {
            return Err(walk.listed().refusal(hole));
        }
        let memory = options.memory.max(LEAST_MEMORY);
        let most_threads = usize::try_from(memory / MEMORY_PER_THREAD).unwrap_or(MAX_THREADS);
        let no_rows = Rows::new(schema.clone(), uuid.clone(), options.batch_rows);
        let mut reader = Self {
            layouts: layouts.clone(),
            here: Expansion::new(no_rows, memory),
            schema,
            uuid,
            threads: options.threads.clamp(1, most_threads.clamp(1, MAX_THREADS)),
            batch_rows: options.batch_rows.clamp(1, 1 << 20),
            memory,
            groups: Source {
                walk,
                first,
                on_loss: options.on_loss,
                skips_repeats: options.skip_repeats,
                skipped: Vec::new(),
                current: None,
                most_bytes: memory / 4 * 3,
                memory,
                loaded: 0,
                failed: None,
            },
            buffer: Vec::new(),
            parts: VecDeque::new(),
            ready: VecDeque::new(),
            broken: None,
            state: State::Reading,
        };
        reader.here = reader.expansion(reader.room(1));
        Ok(reader)
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The positions skipped so far, with [`OnLoss::Skip`].
    pub fn skipped(&self) -> &[Loss] {
        &self.groups.skipped
    }

    /// Reads until a batch is ready or nothing is left.
    fn fill(&mut self) -> Result<(), SpoolError> {
        while self.ready.is_empty() && self.state == State::Reading {
            if !self.parts.is_empty() {
                self.fill_from_parts()?;
            } else if self.next_is_large() {
                self.fill_alone();
            } else if self.threads == 1 {
                self.fill_here()?;
            } else {
                self.fill_by_threads();
            }
        }
        Ok(())
    }

    /// Whether the next group takes so much of the memory that nothing else may be held with it.
    fn next_is_large(&mut self) -> bool {
        self.broken.is_none() && self.groups.next_bytes() > self.memory / GROUPS_SHARE
    }

    /// Expands a large group alone, with the rest of the memory.
    fn fill_alone(&mut self) {
        let here = self.expansion(self.room(1));
        let begun = std::mem::replace(&mut self.here, here);
        if !begun.is_empty() {
            // The begun batch ends before it, and is returned first.
            self.add_part(begun);
            return;
        }
        self.buffer = Vec::new();
        let bytes = self.groups.next_bytes();
        let mut part = self.expansion(self.memory.saturating_sub(bytes) / 2);
        if let Some(blocks) = self.next_blocks(u64::MAX) {
            part.push(blocks);
        }
        self.add_part(part);
    }

    fn fill_here(&mut self) -> Result<(), SpoolError> {
        if self.here.is_over() {
            if let Some(blocks) = self.next_blocks(1) {
                self.here.push(blocks);
            } else {
                self.state = State::Read;
                self.here.end();
            }
        }
        let expanded = self.here.run(&self.layouts);
        self.ready.extend(std::iter::from_fn(|| self.here.take()));
        if let Some(group) = expanded?.and_then(Arc::into_inner) {
            self.buffer = group.into_buffer();
        }
        Ok(())
    }

    fn fill_by_threads(&mut self) {
        let room = self.room(self.threads);
        let mut chunks: Vec<Expansion> = Vec::new();
        self.groups.begin_round();
        while chunks.len() < self.threads {
            let Some((chunk, is_alone)) = self.next_chunk(room, chunks.is_empty()) else {
                break;
            };
            chunks.push(chunk);
            if is_alone {
                break;
            }
        }
        if chunks.is_empty() {
            self.state = State::Read;
            return;
        }
        let layouts = &self.layouts;
        let expanded = std::thread::scope(|scope| {
            let started: Vec<_> = chunks
                .into_iter()
                .map(|chunk| scope.spawn(move || Part::new(chunk, layouts)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            started.into_iter().map(join).collect::<Vec<_>>()
        });
        self.parts.extend(expanded);
    }

    /// Blocks for one thread, and whether none may be expanded at the same time; `None` if there
    /// are none, or no memory for them beside those of this round.
    fn next_chunk(&mut self, room: u64, is_first: bool) -> Option<(Expansion, bool)> {
        let wanted = self.batch_rows.saturating_mul(BATCHES_PER_CHUNK) as u64;
        let most_bytes = room / 4 * 3;
        let (mut rows, mut bytes) = (0, 0_u64);
        let mut chunk = None;
        while rows < wanted && bytes < most_bytes {
            let may_wait = !is_first || chunk.is_some();
            if may_wait && self.groups.loaded_with_next() > self.memory / GROUPS_SHARE {
                break;
            }
            let Some(blocks) = self.next_blocks(1) else {
                break;
            };
            bytes = bytes.saturating_add(blocks.bytes());
            if bytes > most_bytes && may_wait {
                self.groups.put_back(blocks);
                break;
            }
            if bytes > most_bytes {
                let mut alone = self.expansion(self.room(1));
                alone.push(blocks);
                return Some((alone, true));
            }
            rows += blocks.events();
            chunk
                .get_or_insert_with(|| self.expansion(room))
                .push(blocks);
        }
        chunk.map(|chunk| (chunk, false))
    }

    /// Returns the batches of the first part, and continues it when it has none.
    fn fill_from_parts(&mut self) -> Result<(), SpoolError> {
        let Some(part) = self.parts.front_mut() else {
            return Ok(());
        };
        let batches = std::iter::from_fn(|| part.expansion.take());
        self.ready.extend(batches);
        if !self.ready.is_empty() {
            return Ok(());
        }
        if let Some(error) = part.error.take() {
            self.parts.clear();
            return Err(error);
        }
        if part.expansion.is_over() {
            self.parts.pop_front();
        } else {
            part.go_on(&self.layouts);
        }
        Ok(())
    }

    fn add_part(&mut self, expansion: Expansion) {
        let part = Part::new(expansion, &self.layouts);
        self.parts.push_back(part);
    }

    /// An expansion of no blocks yet, which may hold so many bytes.
    fn expansion(&self, room: u64) -> Expansion {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let rows = Rows::new(self.schema.clone(), self.uuid.clone(), self.batch_rows)
            .without_repeats(self.groups.skips_repeats)
            .with_room(room);
        Expansion::new(rows, self.memory)
    }

    /// The bytes that each of so many threads may build: it may inflate as many again.
    fn room(&self, threads: usize) -> u64 {
        (self.memory - self.memory / GROUPS_SHARE) / 2 / threads.max(1) as u64
    }

    /// The next blocks of one group, at least one and then up to so many events. After a kept error
    /// there are no more.
    fn next_blocks(&mut self, events: u64) -> Option<Blocks> {
        if self.broken.is_some() {
            return None;
        }
        match self.groups.next_blocks(events, &mut self.buffer) {
            Ok(blocks) => blocks,
            Err(error) => {
                self.broken = Some(error);
                None
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fill() {
            self.broken = Some(error);
            self.state = State::Read;
        }
        if let Some(batch) = self.ready.pop_front() {
            return Some(Ok(batch));
        }
        // An error is returned once; after it the iterator is at its end.
        self.state = State::Ended;
        self.broken.take().map(Err)
    }
}

impl Source {
    /// The bytes of the group that the next blocks are read from; 0 if one is already read.
    fn next_bytes(&mut self) -> u64 {
        if self.current.is_some() || self.failed.is_some() {
            return 0;
        }
        if self.first.is_none() {
            match self.walk.next() {
                Ok(step) => self.first = step,
                Err(error) => self.failed = Some(error),
            }
        }
        match &self.first {
            Some(Step::Group { entry, .. }) => entry.length.into(),
            _ => 0,
        }
    }

    /// Counts the groups of a round of threads, which begins with the one that is already read.
    fn begin_round(&mut self) {
        let current = self.current.as_ref();
        self.loaded = current.map_or(0, |blocks| blocks.group.bytes());
    }

    /// The bytes of the groups of this round with the next one.
    fn loaded_with_next(&mut self) -> u64 {
        self.loaded.saturating_add(self.next_bytes())
    }

    /// Takes back the blocks that were handed out last.
    fn put_back(&mut self, blocks: Blocks) {
        let rest = self.current.take();
        let end = rest.map_or(blocks.rows.end, |rest| rest.rows.end);
        let rows = blocks.rows.start..end;
        self.current = Some(Blocks { rows, ..blocks });
    }

    fn next_blocks(
        &mut self,
        events: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Blocks>, SpoolError> {
        loop {
            let Some(Blocks {
                segment,
                group,
                rows,
                span,
            }) = self
                .current
                .take()
                .map_or_else(|| self.next_group(buffer), |current| Ok(Some(current)))?
            else {
                return Ok(None);
            };
            let (mut at, mut held) = (rows.start, 0);
            while at < rows.end && (at == rows.start || held < events) {
                held += u64::from(group.block(at).count);
                at += 1;
            }
            let taken = rows.start..at;
            if at < rows.end {
                let rows = at..rows.end;
                self.current = Some(Blocks {
                    segment: Arc::clone(&segment),
                    group: Arc::clone(&group),
                    rows,
                    span: span.clone(),
                });
            }
            if !taken.is_empty() {
                return Ok(Some(Blocks {
                    segment,
                    group,
                    rows: taken,
                    span,
                }));
            }
        }
    }

    /// The next group that can be read.
    fn next_group(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Blocks>, SpoolError> {
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let step = match self.first.take() {
                Some(step) => Some(step),
                None => self.walk.next()?,
            };
            let (segment, entry, span) = match step {
                None => return Ok(None),
                Some(Step::Hole(hole)) => {
                    let refusal = self.walk.listed().refusal(&hole);
                    self.skip(hole, refusal)?;
                    continue;
                }
                Some(Step::Group {
                    segment,
                    entry,
                    span,
                }) => (segment, entry, span),
            };
            self.check_room(&segment, &entry)?;
            match read_group(&segment, &entry, std::mem::take(buffer)) {
                Ok(group) => {
                    self.loaded = self.loaded.saturating_add(group.bytes());
                    let (rows, group) = (0..group.len(), Arc::new(group));
                    return Ok(Some(Blocks {
                        segment,
                        group,
                        rows,
                        span,
                    }));
                }
                Err(error) => {
                    if self.walk.looks_elsewhere(&segment, &entry, span.start) {
                        continue;
                    }
                    let (hole, error) = self.unread(&span, error)?;
                    self.skip(hole, error)?;
                }
            }
        }
    }

    /// Refuses a group that does not fit into the memory.
    fn check_room(&self, segment: &Segment, entry: &Entry) -> Result<(), SpoolError> {
        let bytes = u64::from(entry.length);
        if bytes <= self.most_bytes || segment.lacks(entry) {
            return Ok(());
        }
        Err(SpoolError::Memory {
            path: segment.path.clone(),
            position: entry.first,
            what: "the group",
            bytes,
            room: self.most_bytes,
            memory: self.memory,
        })
    }

    /// The hole of an unreadable group, and the error of a strict reader.
    fn unread(
        &self,
        span: &Range<u64>,
        error: SpoolError,
    ) -> Result<(Loss, SpoolError), SpoolError> {
        if matches!(error, SpoolError::Corrupt { .. }) {
            return Ok((loss(span.start, span.end, LossWhy::Corrupt), error));
        }
        if error.is_not_found() {
            // The segment was removed since its index was opened.
            let to = self.walk.listed().start()?.max(span.end);
            let hole = loss(span.start, to, LossWhy::Removed);
            return Ok((hole, self.walk.listed().refusal(&hole)));
        }
        Err(error)
    }

    /// Skips a hole and notes it, or refuses it.
    fn skip(&mut self, hole: Loss, refusal: SpoolError) -> Result<(), SpoolError> {
        if self.on_loss == OnLoss::Fail {
            return Err(refusal);
        }
        self.walk.go_to(hole.to);
        let to = hole.to.min(self.walk.end());
        match self.skipped.last_mut() {
            Some(last) if last.to == hole.from && last.why == hole.why => last.to = to,
            _ => self.skipped.push(Loss { to, ..hole }),
        }
        Ok(())
    }
}

impl Blocks {
    fn events(&self) -> u64 {
        let count = |at| u64::from(self.group.block(at).count);
        self.rows.clone().map(count).sum()
    }

    /// The approximate bytes of its events, as the blocks say.
    fn bytes(&self) -> u64 {
        let bytes = |at| {
            let block = self.group.block(at);
            let inflated = block.inflated_bytes.max(block.body.len() as u64);
            inflated.saturating_add(u64::from(block.count) * BYTES_BESIDE_PAYLOAD)
        };
        self.rows.clone().map(bytes).fold(0, u64::saturating_add)
    }
}

/// Reads a group and checks its CRC.
pub(crate) fn read_group(
    segment: &Segment,
    entry: &Entry,
    buffer: Vec<u8>,
) -> Result<Group, SpoolError> {
    Group::read(segment.file()?, &segment.path, entry, buffer)
}

/// A reader's memory by default: enough for everything that a receiver with default limits stores.
const MEMORY: u64 = 512 << 20;

/// The smallest memory of a reader.
pub const LEAST_MEMORY: u64 = 4 << 20;

/// The part of the memory for group commits that are expanded at the same time.
const GROUPS_SHARE: u64 = 4;

/// The least memory of each thread after the first.
const MEMORY_PER_THREAD: u64 = 32 << 20;

/// Approximate bytes of an event in the columns besides the payload.
const BYTES_BESIDE_PAYLOAD: u64 = 256;

/// Batches that one thread builds in one go: enough to be worth a thread, few enough to hold.
const BATCHES_PER_CHUNK: usize = 4;

/// More threads than any known machine has cores.
const MAX_THREADS: usize = 256;
