//! Reading a range: groups are read and checked one after another, their blocks expanded in order,
//! on as many threads as asked for. Threads live within one call, so that a process may fork between
//! two batches.

use std::{
    collections::VecDeque,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{Layouts, Rows, SpoolError, events, format::Entry, segment::Group};

/// Blocks of one group, by their places in it.
type Blocks = (Arc<Group>, Range<usize>);

/// What is read, and how.
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
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            columns: None,
            threads: 1,
            batch_rows: 10_000,
            skip_repeats: false,
        }
    }
}

/// Groups of one segment.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) entries: Vec<Entry>,
}

impl Part {
    pub(crate) fn open(path: &Path, entries: Vec<Entry>) -> Result<Self, SpoolError> {
        let file = File::open(path).map_err(|error| SpoolError::io("open", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            entries,
        })
    }
}

/// The events of a range as record batches, in order.
#[derive(Debug)]
pub struct Reader {
    layouts: Layouts,
    range: Range<u64>,
    schema: SchemaRef,
    uuid: Arc<str>,
    threads: usize,
    batch_rows: usize,
    skip_repeats: bool,
    groups: VecDeque<(Arc<Part>, Entry)>,
    current: Option<(Arc<Group>, usize)>,
    buffer: Vec<u8>,
    rows: Rows,
    ready: VecDeque<RecordBatch>,
    failed: Option<SpoolError>,
    ended: bool,
}

/// Blocks for one thread.
type Chunk = Vec<(Arc<Group>, Range<usize>)>;

impl Reader {
    pub(crate) fn new(
        layouts: &Layouts,
        uuid: &str,
        parts: Vec<Part>,
        range: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Self, SpoolError> {
        let schema = events::schema(options.columns.as_deref())?;
        let uuid: Arc<str> = Arc::from(uuid);
        let mut groups = VecDeque::new();
        for mut part in parts {
            let entries = std::mem::take(&mut part.entries);
            let part = Arc::new(part);
            groups.extend(entries.into_iter().map(|entry| (part.clone(), entry)));
        }
        Ok(Self {
            layouts: layouts.clone(),
            range,
            rows: Rows::new(schema.clone(), uuid.clone(), options.batch_rows)
                .without_repeats(options.skip_repeats),
            schema,
            uuid,
            threads: options.threads.clamp(1, MAX_THREADS),
            batch_rows: options.batch_rows.clamp(1, 1 << 20),
            skip_repeats: options.skip_repeats,
            groups,
            current: None,
            buffer: Vec::new(),
            ready: VecDeque::new(),
            failed: None,
            ended: false,
        })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Reads until a batch is ready or nothing is left.
    fn fill(&mut self) -> Result<(), SpoolError> {
        while self.ready.is_empty() && !self.ended {
            if self.threads == 1 {
                self.fill_here()?;
            } else {
                self.fill_by_threads()?;
            }
        }
        Ok(())
    }

    fn fill_here(&mut self) -> Result<(), SpoolError> {
        let Some((group, blocks)) = self.next_blocks(1)? else {
            self.ended = true;
            self.rows.finish()?;
            self.ready.extend(std::iter::from_fn(|| self.rows.take()));
            return Ok(());
        };
        let expanded = expand(&self.layouts, &group, blocks, &self.range, &mut self.rows);
        self.ready.extend(std::iter::from_fn(|| self.rows.take()));
        if let Some(group) = Arc::into_inner(group) {
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
                && let Some((group, blocks)) = self.next_blocks(wanted - rows)?
            {
                rows += blocks
                    .clone()
                    .map(|at| u64::from(group.block(at).count))
                    .sum::<u64>();
                chunk.push((group, blocks));
            }
            if chunk.is_empty() {
                self.ended = true;
                break;
            }
            chunks.push(chunk);
        }
        let (layouts, range) = (&self.layouts, &self.range);
        let (schema, uuid, batch_rows) = (&self.schema, &self.uuid, self.batch_rows);
        let skip_repeats = self.skip_repeats;
        let work = |chunk: Chunk| -> Result<Vec<RecordBatch>, SpoolError> {
            let mut rows =
                Rows::new(schema.clone(), uuid.clone(), batch_rows).without_repeats(skip_repeats);
            for (group, blocks) in chunk {
                expand(layouts, &group, blocks, range, &mut rows)?;
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

    /// The next blocks of one group, at least one and then up to so many events.
    fn next_blocks(&mut self, events: u64) -> Result<Option<Blocks>, SpoolError> {
        loop {
            let (group, from) = if let Some(current) = self.current.take() {
                current
            } else {
                let Some((part, entry)) = self.groups.pop_front() else {
                    return Ok(None);
                };
                let buffer = std::mem::take(&mut self.buffer);
                let group = Group::read(&part.file, &part.path, &entry, buffer)?;
                (Arc::new(group), 0)
            };
            let (mut at, mut held) = (from, 0);
            while at < group.len() && (at == from || held < events) {
                held += u64::from(group.block(at).count);
                at += 1;
            }
            if at < group.len() {
                self.current = Some((group.clone(), at));
            }
            if at > from {
                return Ok(Some((group, from..at)));
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed.is_none()
            && let Err(error) = self.fill()
        {
            self.failed = Some(error);
            self.ended = true;
        }
        if let Some(batch) = self.ready.pop_front() {
            return Some(Ok(batch));
        }
        self.groups.clear();
        self.current = None;
        // An error is told once; after it the iterator is at its end.
        match &self.failed {
            Some(error) if self.ended => {
                self.ended = false;
                Some(Err(error.clone()))
            }
            _ => None,
        }
    }
}

/// Expands blocks of a group, as far as they lie in the range.
fn expand(
    layouts: &Layouts,
    group: &Group,
    blocks: Range<usize>,
    range: &Range<u64>,
    out: &mut Rows,
) -> Result<(), SpoolError> {
    for at in blocks {
        let block = group.block(at);
        let inside = |position: u64| {
            let row = position.saturating_sub(block.first_position);
            u32::try_from(row).unwrap_or(u32::MAX).min(block.count)
        };
        let rows = inside(range.start)..inside(range.end);
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
