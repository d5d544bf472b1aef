//! Reading a range: groups are read and checked one after another, their blocks expanded in order,
//! on as many threads as asked for. Threads live within one call, so that a process may fork between
//! two batches. One segment is open at a time.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{
    Layouts, Loss, LossWhy, Rows, SpoolError, events,
    index::Entry,
    segment::Group,
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
    /// Whether events that are marked as repeats are left out. Positions count them all the same.
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
    /// Exactly these positions are passed over.
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
    groups: Source,
    buffer: Vec<u8>,
    rows: Rows,
    ready: VecDeque<RecordBatch>,
    /// Where the events end that can be read: told behind the batches.
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

/// Where groups come from.
#[derive(Debug)]
struct Source {
    walk: Walk,
    /// A step that was looked at before it is taken.
    first: Option<Step>,
    on_loss: OnLoss,
    skips_repeats: bool,
    skipped: Vec<Loss>,
    current: Option<Blocks>,
}

/// Some blocks of a group, and the positions of the group that are wanted.
#[derive(Debug, Clone)]
struct Blocks {
    group: Arc<Group>,
    rows: Range<usize>,
    span: Range<u64>,
}

/// Blocks for one thread.
type Chunk = Vec<Blocks>;

impl Reader {
    /// # Errors
    /// Those of the first step of the walk: a strict reader that begins in a hole is refused at once.
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
        Ok(Self {
            layouts: layouts.clone(),
            rows: Rows::new(schema.clone(), uuid.clone(), options.batch_rows)
                .without_repeats(options.skip_repeats),
            schema,
            uuid,
            threads: options.threads.clamp(1, MAX_THREADS),
            batch_rows: options.batch_rows.clamp(1, 1 << 20),
            groups: Source {
                walk,
                first,
                on_loss: options.on_loss,
                skips_repeats: options.skip_repeats,
                skipped: Vec::new(),
                current: None,
            },
            buffer: Vec::new(),
            ready: VecDeque::new(),
            broken: None,
            state: State::Reading,
        })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The positions that were passed over so far, with [`OnLoss::Skip`].
    pub fn skipped(&self) -> &[Loss] {
        &self.groups.skipped
    }

    /// Reads until a batch is ready or nothing is left.
    fn fill(&mut self) -> Result<(), SpoolError> {
        while self.ready.is_empty() && self.state == State::Reading {
            if self.threads == 1 {
                self.fill_here()?;
            } else {
                self.fill_by_threads()?;
            }
        }
        Ok(())
    }

    fn fill_here(&mut self) -> Result<(), SpoolError> {
        let Some(blocks) = self.next_blocks(1) else {
            self.state = State::Read;
            self.rows.finish()?;
            self.ready.extend(std::iter::from_fn(|| self.rows.take()));
            return Ok(());
        };
        let expanded = expand(&self.layouts, &blocks, &mut self.rows);
        self.ready.extend(std::iter::from_fn(|| self.rows.take()));
        if let Some(group) = Arc::into_inner(blocks.group) {
            self.buffer = group.into_buffer();
        }
        expanded
    }

    fn fill_by_threads(&mut self) -> Result<(), SpoolError> {
        let mut chunks: Vec<Chunk> = Vec::new();
        let wanted = self.batch_rows.saturating_mul(BATCHES_PER_CHUNK) as u64;
        while chunks.len() < self.threads {
            let mut chunk = Chunk::new();
            let mut rows = 0;
            while rows < wanted
                && let Some(blocks) = self.next_blocks(wanted - rows)
            {
                rows += blocks.events();
                chunk.push(blocks);
            }
            if chunk.is_empty() {
                self.state = State::Read;
                break;
            }
            chunks.push(chunk);
        }
        let layouts = &self.layouts;
        let (schema, uuid, batch_rows) = (&self.schema, &self.uuid, self.batch_rows);
        let skips_repeats = self.groups.skips_repeats;
        let work = |chunk: Chunk| -> Result<Vec<RecordBatch>, SpoolError> {
            let mut rows =
                Rows::new(schema.clone(), uuid.clone(), batch_rows).without_repeats(skips_repeats);
            for blocks in chunk {
                expand(layouts, &blocks, &mut rows)?;
            }
            rows.finish()?;
            Ok(std::iter::from_fn(|| rows.take()).collect())
        };
        let work = &work;
        let batches = std::thread::scope(|scope| {
            let started: Vec<_> = chunks
                .into_iter()
                .map(|chunk| scope.spawn(move || work(chunk)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            started.into_iter().map(join).collect::<Vec<_>>()
        });
        for batches in batches {
            self.ready.extend(batches?);
        }
        Ok(())
    }

    /// The next blocks of one group, at least one and then up to so many events. At an error that is kept
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
        // An error is told once; after it the iterator is at its end.
        self.state = State::Ended;
        self.broken.take().map(Err)
    }
}

impl Source {
    fn next_blocks(
        &mut self,
        events: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Blocks>, SpoolError> {
        loop {
            let Some(Blocks { group, rows, span }) = self
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
                let (group, span) = (Arc::clone(&group), span.clone());
                self.current = Some(Blocks { group, rows, span });
            }
            if !taken.is_empty() {
                let rows = taken;
                return Ok(Some(Blocks { group, rows, span }));
            }
        }
    }

    /// The next group that can be read.
    fn next_group(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Blocks>, SpoolError> {
        loop {
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
            match read_group(&segment, &entry, std::mem::take(buffer)) {
                Ok(group) => {
                    let (rows, group) = (0..group.len(), Arc::new(group));
                    return Ok(Some(Blocks { group, rows, span }));
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

    /// The hole that a group is which cannot be read, and the error of a strict reader.
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

    /// Passes over a hole and notes it, or refuses it.
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
}

/// Reads a group and checks its CRC.
pub(crate) fn read_group(
    segment: &Segment,
    entry: &Entry,
    buffer: Vec<u8>,
) -> Result<Group, SpoolError> {
    Group::read(segment.file()?, &segment.path, entry, buffer)
}

/// Expands blocks of a group, as far as they are wanted.
fn expand(layouts: &Layouts, blocks: &Blocks, out: &mut Rows) -> Result<(), SpoolError> {
    let (group, span) = (&blocks.group, &blocks.span);
    for at in blocks.rows.clone() {
        let block = group.block(at);
        let inside = |position: u64| {
            let row = position.saturating_sub(block.first_position);
            u32::try_from(row).unwrap_or(u32::MAX).min(block.count)
        };
        let rows = inside(span.start)..inside(span.end);
        if rows.is_empty() {
            continue;
        }
        out.begin(&block, group.attributes(at), &rows);
        let position = block.first_position;
        if !out.needs_body() {
            out.fill();
            continue;
        }
        let layout = layouts
            .get(block.layout)
            .ok_or_else(|| SpoolError::Layout {
                position,
                detail: format!("its layout {:?} is not built", block.layout),
            })?;
        layout
            .expand(&block, rows, out)
            .and_then(|()| out.end())
            .map_err(|error| SpoolError::Layout {
                position,
                detail: error.0,
            })?;
    }
    Ok(())
}

/// Batches that one thread builds in one go: enough to be worth a thread, little enough to hold.
const BATCHES_PER_CHUNK: usize = 4;

/// More threads than any machine we know has cores.
const MAX_THREADS: usize = 256;
