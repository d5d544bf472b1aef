//! The one writer of a spool: hands blocks to its thread and tells where it stands.
//!
//! The queue has no limit of its own: who appends holds the bytes under a memory budget until they
//! are settled, and stops reading when that is used up.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    Access, Block, Promise, Settle, SpoolError,
    commit::{Committer, Pace},
    disk::{Disk, RealDisk},
    filesystem,
    format::{Layout, now_us},
    lock::Lock,
    place::Place,
    promise, recovery, reserve,
    segment::Placed,
};

/// How a spool is written.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The bytes that segments and indexes may take, 4 GiB; at least [`LEAST_BUDGET`](Self::LEAST_BUDGET).
    /// A single group is always admitted into a spool that holds nothing else.
    pub budget: u64,
    /// The bytes at which a segment is ended, 256 MiB; at most an eighth of the budget, so that the
    /// budget can be freed in steps.
    pub segment_bytes: u64,
    /// The age at which a segment is ended, 10 minutes.
    pub segment_age: Duration,
    /// The bytes of one group commit, 64 MiB; one block may be larger.
    pub group_bytes: usize,
    /// How long a segment is kept that all consumers are done with, 24 hours; less when the budget
    /// needs its space.
    pub retain_committed: Duration,
    /// The age at which a segment goes even if it is not committed: an explicit choice to lose events.
    pub retain_max: Option<Duration>,
    /// The consumer whose mark answers [`Promise::Committed`]. It is made at the first kept position
    /// when it does not exist.
    pub acks: Option<String>,
    /// The bytes that are set aside on the file system so that marks and logs can be written when it is
    /// full, 64 MiB; at most a sixteenth of the budget.
    pub reserve: u64,
    /// Whether to write to a file system that may not keep what it says it has.
    pub unsafe_filesystem: bool,
    /// Whether the group of the spool's files may read and write them too, and they may be another
    /// user's: see [`Access::group`].
    pub group: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            budget: 4 << 30,
            segment_bytes: 256 << 20,
            segment_age: Duration::from_secs(600),
            group_bytes: 64 << 20,
            retain_committed: Duration::from_secs(24 * 3_600),
            retain_max: None,
            acks: None,
            reserve: 64 << 20,
            unsafe_filesystem: false,
            group: false,
        }
    }
}

impl WriterOptions {
    /// The smallest budget, 64 KiB: a few segments, each with what Arrow adds.
    pub const LEAST_BUDGET: u64 = 64 << 10;
}

/// What opening a spool for writing found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the spool was created.
    pub created: bool,
    /// The bytes of a torn tail that were cut off.
    pub cut_bytes: u64,
    /// The position the next event gets.
    pub position: u64,
    /// Positions at the end that were published, or may have been, and whose events are gone.
    pub lost: Option<Lost>,
}

/// A range of positions whose events were acknowledged and did not survive: the disk lost what it had
/// said was written. They are never given out again; who reads them gets `spool.gap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The first lost position.
    pub from: u64,
    /// The position after the last lost one.
    pub to: u64,
}

/// What the writer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriterState {
    /// Blocks become durable.
    #[default]
    Ok,
    /// The byte budget is used up by what is not committed.
    StalledBudget,
    /// The disk or the quota is full.
    StalledDisk,
    /// Three writes in a row failed, or what is written is not in its place any more.
    Failed,
    /// The writer is being closed.
    Draining,
}

impl WriterState {
    /// `ok`, `stalled_budget`, `stalled_disk`, `failed` or `draining`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::StalledBudget => "stalled_budget",
            Self::StalledDisk => "stalled_disk",
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }
}

/// Where a writer stands.
#[derive(Debug, Clone, Default)]
pub struct WriterStats {
    /// The spool's UUID.
    pub uuid: String,
    /// The durable position: every event below it is kept.
    pub durable: u64,
    /// The first position that is still kept.
    pub first_kept: u64,
    /// The bytes of segments and indexes.
    pub bytes: u64,
    /// The bytes they may take.
    pub budget: u64,
    /// Blocks that wait to become durable.
    pub queued_blocks: usize,
    /// What the writer is doing.
    pub state: WriterState,
    /// The 99th percentile of the last 1,024 commits, in milliseconds.
    pub fsync_p99_ms: f64,
    /// Events that were handed in since the writer was opened.
    pub accepted: u64,
    /// Blocks that are durable and wait for the commit of [`WriterOptions::acks`].
    pub uncommitted_blocks: usize,
    /// The events of these blocks.
    pub uncommitted_events: u64,
    /// Group commits since the writer was opened.
    pub groups: u64,
    /// Calls to fsync since the writer was opened, for files and directories.
    pub fsyncs: u64,
}

/// The one writer of a spool. Clones are handles of the same writer; when the last one is dropped
/// without [`close`](Self::close), what is not durable yet fails.
#[derive(Clone, Debug)]
pub struct Writer {
    inner: Arc<Inner>,
}

impl Writer {
    /// Opens the spool in `dir` for writing, creating it in a missing or empty directory, and cuts a
    /// torn tail.
    ///
    /// # Errors
    /// `spool.locked` when another writer has it, `spool.corrupt` when something durable is damaged that
    /// is not the end of the last segment, `spool.filesystem`, `spool.rights` when others can read it,
    /// `spool.not_a_spool`, `spool.budget` below the smallest one, `spool.format`, `spool.io`.
    pub fn open(dir: &Path, options: WriterOptions) -> Result<(Self, Recovered), SpoolError> {
        let (budget, least) = (options.budget, WriterOptions::LEAST_BUDGET);
        if budget < least {
            return Err(SpoolError::Budget { budget, least });
        }
        Self::open_on(dir, options, Box::new(RealDisk), Pace::default())
    }

    pub(crate) fn open_on(
        dir: &Path,
        options: WriterOptions,
        mut disk: Box<dyn Disk>,
        pace: Pace,
    ) -> Result<(Self, Recovered), SpoolError> {
        let group = options.group;
        let has_acks = options.acks.is_some();
        let layout = Layout::new(dir).with(Access { group });
        recovery::prepare(&mut *disk, &layout)?;
        let lock = Lock::writer(&layout)?;
        filesystem::check(dir, options.unsafe_filesystem)?;
        let state = match recovery::recover(&mut *disk, &layout) {
            // What is set aside is for this.
            Err(error) if error.is_full() && reserve::give_back(&layout) => {
                recovery::recover(&mut *disk, &layout)?
            }
            recovered => recovered?,
        };
        let recovered = Recovered {
            created: state.created,
            cut_bytes: state.cut_bytes,
            position: state.position,
            lost: state.lost,
        };
        if recovered.created {
            tracing::info!(code = "spool.created", dir = %dir.display(), uuid = state.identity.uuid, "spool created");
        }
        if recovered.cut_bytes > 0 {
            let (bytes, position) = (recovered.cut_bytes, recovered.position);
            tracing::warn!(code = "spool.tail_cut", dir = %dir.display(), bytes, position, "a torn tail was cut");
        }
        if let Some(Lost { from, to }) = recovered.lost {
            tracing::error!(code = "spool.lost", dir = %dir.display(), from, to, "events that were durable are lost");
        }
        if let Some(name) = &options.acks {
            promise::make_consumer(dir, layout.access, name)?;
        }
        let places = Place::all(&layout, &state.mark)?;
        let shared = Arc::new(Shared::default());
        shared.lock().last_us = state.last_us;
        let committer = Committer::new(
            (layout, places),
            (options, pace),
            disk,
            state,
            shared.clone(),
        );
        let thread = std::thread::Builder::new()
            .name("ackline-spool".to_owned())
            .spawn(move || committer.run(lock))
            .map_err(|error| SpoolError::io("start a thread for", dir, error))?;
        let inner = Inner {
            shared,
            has_acks,
            thread: Mutex::new(Some(thread)),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            recovered,
        ))
    }

    /// Hands a block over. `settle` is told `token` once what is promised holds, or that it will not;
    /// that may happen before this returns. Never blocks.
    ///
    /// [`Promise::Committed`] without [`WriterOptions::acks`] is never kept: it fails at once.
    pub fn append(&self, block: Block, settle: Arc<dyn Settle>, token: u64, promise: Promise) {
        self.append_all([Handed {
            block,
            settle,
            token,
            promise,
        }]);
    }

    /// [`append`](Self::append)s blocks that arrived together, so that they are made durable and settled
    /// together, if a group has room for them.
    pub fn append_all(&self, blocks: impl IntoIterator<Item = Handed>) {
        let mut failed = Vec::new();
        let mut queue = self.inner.shared.lock();
        for handed in blocks {
            match queue.refusal(&handed, self.inner.has_acks) {
                Some(error) => failed.push((handed.settle, error)),
                None => queue.take(handed),
            }
        }
        drop(queue);
        self.inner.shared.work.notify_one();
        for (settle, error) in failed {
            settle.failed(&error);
        }
    }

    /// Where the writer stands.
    pub fn stats(&self) -> WriterStats {
        let queue = self.inner.shared.lock();
        let queued_blocks = usize::try_from(queue.appended - queue.finished).unwrap_or(usize::MAX);
        let mut times: Vec<f64> = queue.commit_ms.iter().copied().collect();
        let stats = queue.stats.clone();
        drop(queue);
        times.sort_by(f64::total_cmp);
        let rank = (times.len() * 99).div_ceil(100);
        let fsync_p99_ms = rank.checked_sub(1).and_then(|at| times.get(at)).copied();
        WriterStats {
            queued_blocks,
            fsync_p99_ms: fsync_p99_ms.unwrap_or(0.0),
            ..stats
        }
    }

    /// Waits until what was appended before is durable; whether it was within `timeout`.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut queue = self.inner.shared.lock();
        let wanted = queue.appended;
        while queue.finished < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || queue.stats.state == WriterState::Failed {
                return false;
            }
            let waited = self.inner.shared.done.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.stats.state != WriterState::Failed
    }

    /// Makes durable what was appended, waits for the commits that were promised, all for at most
    /// `timeout`, and lets go of the spool. What is not durable by then fails with `spool.closed`; what
    /// is durable and not committed is told nothing more.
    pub fn close(self, timeout: Duration) {
        self.inner.end(timeout);
    }
}

/// A block for [`Writer::append_all`], and who is told what becomes of it.
pub struct Handed {
    /// The block.
    pub block: Block,
    /// Who is told.
    pub settle: Arc<dyn Settle>,
    /// What is told.
    pub token: u64,
    /// When.
    pub promise: Promise,
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    has_acks: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Inner {
    fn end(&self, timeout: Duration) {
        let mut queue = self.shared.lock();
        queue.refused.get_or_insert(SpoolError::Closed);
        queue.closing.get_or_insert(Instant::now() + timeout);
        if queue.stats.state == WriterState::Ok {
            queue.stats.state = WriterState::Draining;
        }
        drop(queue);
        self.shared.work.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The last handle may be dropped by a link that is being settled, on the thread itself.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// What handles and thread share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    pub(crate) work: Condvar,
    pub(crate) done: Condvar,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits, and what is known.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) waiting: VecDeque<Waiting>,
    last_us: i64,
    appended: u64,
    pub(crate) finished: u64,
    pub(crate) closing: Option<Instant>,
    pub(crate) refused: Option<SpoolError>,
    pub(crate) stats: WriterStats,
    pub(crate) commit_ms: VecDeque<f64>,
}

impl Queue {
    /// Why a block is not taken.
    fn refusal(&self, handed: &Handed, has_acks: bool) -> Option<SpoolError> {
        let block = &handed.block;
        let bytes = block.body_bytes();
        let fits = i32::try_from(bytes).is_ok_and(|bytes| bytes < MAX_BODY_BYTES)
            && i32::try_from(block.count).is_ok()
            && i32::try_from(block.windows).is_ok()
            && i64::try_from(block.inflated_bytes).is_ok();
        if !fits {
            return Some(SpoolError::Block {
                bytes: bytes as u64,
                count: u64::from(block.count),
            });
        }
        let is_unknown = handed.promise == Promise::Committed && !has_acks;
        let refused = self.refused.clone();
        refused.or(is_unknown.then_some(SpoolError::NoAckConsumer))
    }

    fn take(&mut self, handed: Handed) {
        self.last_us = self.last_us.max(now_us());
        self.stats.accepted += u64::from(handed.block.count);
        self.appended += 1;
        let bytes = handed.block.body_bytes();
        let placed = Placed {
            block: handed.block,
            received_at_us: self.last_us,
        };
        self.waiting.push_back(Waiting {
            placed,
            bytes,
            settle: handed.settle,
            token: handed.token,
            promise: handed.promise,
        });
    }
}

/// A block that waits to become durable.
pub(crate) struct Waiting {
    pub(crate) placed: Placed,
    pub(crate) bytes: usize,
    pub(crate) settle: Arc<dyn Settle>,
    pub(crate) token: u64,
    pub(crate) promise: Promise,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Arrow's offsets are 32 bits wide; the other columns of a group need some room too.
const MAX_BODY_BYTES: i32 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Spool;

    struct Nobody;

    impl Settle for Nobody {
        fn settle(&self, _: &[u64]) {}
        fn failed(&self, _: &SpoolError) {}
    }

    fn append(writer: &Writer) {
        let block = Block {
            protocol: "test".into(),
            peer: "peer".into(),
            link: "link".into(),
            stream: None,
            layout: "none/1",
            codec: "plain",
            first_sequence: 0,
            count: 1,
            windows: 1,
            inflated_bytes: 1,
            repeats: None,
            attributes: Vec::new(),
            body: vec![Bytes::from_static(b"x")],
        };
        writer.append(block, Arc::new(Nobody), 0, Promise::Durable);
        assert!(writer.flush(Duration::from_secs(20)));
    }

    #[test]
    fn received_at_never_goes_back_with_the_clock() {
        let temp = tempfile::tempdir().unwrap();
        let writer = Writer::open(temp.path(), WriterOptions::default())
            .unwrap()
            .0;
        // What a clock that was ahead by then left.
        let ahead = now_us() + 3_600_000_000;
        writer.inner.shared.lock().last_us = ahead;
        append(&writer);
        drop(writer);
        let writer = Writer::open(temp.path(), WriterOptions::default())
            .unwrap()
            .0;
        append(&writer);
        let blocks = Spool::open(temp.path()).unwrap().blocks(0..2).unwrap();
        let times: Vec<i64> = blocks.map(|block| block.unwrap().received_at_us).collect();
        assert_eq!(times, [ahead, ahead]);
    }
}
