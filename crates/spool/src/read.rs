//! Reading a range: groups are read and checked one after another, their blocks expanded in order,
//! on as many threads as requested. Threads live within one call, so that a process may fork
//! between two batches. One segment is open at a time.

mod source;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{
    Layouts, Loss, Rows, SpoolError, events,
    expand::{Blocks, Expansion},
    walk::{Step, Walk},
};

use source::Source;
pub(crate) use source::read_group;

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
    limits: Limits,
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
    /// The time spent on making events of blocks by the one thread.
    expanding: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    threads: usize,
    batch_rows: usize,
    /// Bytes that the reader holds at once.
    memory: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// Everything that can be read is in batches.
    Read,
    Ended,
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
            limits: Limits {
                threads: options.threads.clamp(1, most_threads.clamp(1, MAX_THREADS)),
                batch_rows: options.batch_rows.clamp(1, 1 << 20),
                memory,
            },
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
            expanding: Duration::ZERO,
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

    /// The time that a reader has spent on making events of blocks: on inflating them and on building
    /// columns. The rest of its time went into reading and checking files.
    pub fn expanding(&self) -> Duration {
        self.expanding
    }

    /// Reads until a batch is ready or nothing is left.
    fn fill(&mut self) -> Result<(), SpoolError> {
        while self.ready.is_empty() && self.state == State::Reading {
            if !self.parts.is_empty() {
                self.fill_from_parts()?;
            } else if self.next_is_large() {
                self.fill_alone();
            } else if self.limits.threads == 1 {
                self.fill_here()?;
            } else {
                self.fill_by_threads();
            }
        }
        Ok(())
    }

    /// Whether the next group takes so much of the memory that nothing else may be held with it.
    fn next_is_large(&mut self) -> bool {
        self.broken.is_none() && self.groups.next_bytes() > self.limits.memory / GROUPS_SHARE
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
        let mut part = self.expansion(self.limits.memory.saturating_sub(bytes) / 2);
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
        let begun = Instant::now();
        let expanded = self.here.run(&self.layouts);
        self.expanding += begun.elapsed();
        self.ready.extend(std::iter::from_fn(|| self.here.take()));
        if let Some(group) = expanded?.and_then(Arc::into_inner) {
            self.buffer = group.into_buffer();
        }
        Ok(())
    }

    fn fill_by_threads(&mut self) {
        let room = self.room(self.limits.threads);
        let mut chunks: Vec<Expansion> = Vec::new();
        self.groups.begin_round();
        while chunks.len() < self.limits.threads {
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
        let begun = Instant::now();
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
        self.expanding += begun.elapsed();
        self.parts.extend(expanded);
    }

    /// Blocks for one thread, and whether none may be expanded at the same time; `None` if there
    /// are none, or no memory for them beside those of this round.
    fn next_chunk(&mut self, room: u64, is_first: bool) -> Option<(Expansion, bool)> {
        let wanted = self.limits.batch_rows.saturating_mul(BATCHES_PER_CHUNK) as u64;
        let most_bytes = room / 4 * 3;
        let (mut rows, mut bytes) = (0, 0_u64);
        let mut chunk = None;
        while rows < wanted && bytes < most_bytes {
            let may_wait = !is_first || chunk.is_some();
            if may_wait && self.groups.loaded_with_next() > self.limits.memory / GROUPS_SHARE {
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
        let rows = Rows::new(
            self.schema.clone(),
            self.uuid.clone(),
            self.limits.batch_rows,
        )
        .without_repeats(self.groups.skips_repeats)
        .with_room(room);
        Expansion::new(rows, self.limits.memory)
    }

    /// The bytes that each of so many threads may build: it may inflate as many again.
    fn room(&self, threads: usize) -> u64 {
        (self.limits.memory - self.limits.memory / GROUPS_SHARE) / 2 / threads.max(1) as u64
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
