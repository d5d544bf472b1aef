//! The one writer of a spool: hands blocks to its thread and reports its state.
//!
//! The queue has no limit of its own: the caller holds the bytes under a memory budget until they
//! are settled, and stops reading when that is used up.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ackline_core::locked;

use crate::{
    Access, Block, Promise, Settle, SpoolError,
    catalog::Catalog,
    commit::{Committer, Pace, Settings},
    disk::{Disk, RealDisk},
    filesystem,
    lock::Lock,
    options::WriterOptions,
    place::Place,
    promise,
    queue::{CommitStats, Handed, Shared, WriterState, WriterStats},
    recovery::{self, Lost},
    reserve,
    retention::Retention,
    room::GROUP_OVERHEAD,
};

/// The result of opening a spool for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the spool was created.
    pub created: bool,
    /// The bytes of a torn tail that were cut off.
    pub cut_bytes: u64,
    /// The position that the next event gets.
    pub position: u64,
    /// Positions at the end that were published, or may have been, and whose events are gone.
    pub lost: Option<Lost>,
}

/// The one writer of a spool. Clones are handles of the same writer; when the last one is dropped
/// without [`close`](Self::close), blocks that are not durable yet fail.
#[derive(Clone, Debug)]
pub struct Writer {
    inner: Arc<Inner>,
}

impl Writer {
    /// Opens the spool in `dir` for writing, creating it in a missing or empty directory, and cuts a
    /// torn tail.
    ///
    /// # Errors
    /// `spool.locked` if another writer has it, `spool.corrupt` if durable data other than the end
    /// of the last segment is damaged, `spool.filesystem`, `spool.rights` if other users can read
    /// it, `spool.not_a_spool`, `spool.budget` below the smallest one, `spool.format`, `spool.io`.
    pub fn open(dir: &Path, options: WriterOptions) -> Result<(Self, Recovered), SpoolError> {
        let (budget, least) = (options.budget, WriterOptions::LEAST_BUDGET);
        if budget < least {
            return Err(SpoolError::Budget { budget, least });
        }
        Self::open_on(dir, options, Arc::new(RealDisk), Pace::default())
    }

    pub(crate) fn open_on(
        dir: &Path,
        options: WriterOptions,
        disk: Arc<dyn Disk>,
        pace: Pace,
    ) -> Result<(Self, Recovered), SpoolError> {
        let group = options.group;
        let has_acks = options.acks.is_some();
        let folder = recovery::prepare(dir, Access { group }, disk)?;
        let lock = Lock::writer(&folder)?;
        filesystem::check(dir, options.allow_unsafe_filesystem)?;
        let state = match recovery::recover(&folder) {
            // The reserve is for this.
            Err(error) if error.is_full() && reserve::give_back(&folder) => {
                recovery::recover(&folder)?
            }
            recovered => recovered?,
        };
        let recovered = state.recovered;
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
            promise::make_consumer(&folder, name)?;
        }
        let places = Place::all(&folder, &state.mark)?;
        let settings = Settings { options, pace };
        let shared = Arc::new(Shared::default());
        locked(&shared.queue).last_us = state.last_us;
        let committer = Committer::new(folder, places, settings, state, shared.clone());
        let retention = committer.retention();
        let (catalog, recheck) = (Arc::clone(&committer.catalog), pace.recheck);
        let threads = [
            spawn(dir, "ackline-spool", move || committer.run(lock))?,
            spawn(dir, "ackline-retain", move || Retention::run(retention))?,
        ];
        let inner = Inner {
            shared,
            catalog,
            recheck,
            has_acks,
            threads: Mutex::new(threads.into()),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            recovered,
        ))
    }

    /// Hands a block over. `settle` receives `token` when the promise holds, or a failure; that may
    /// happen before this returns. Never blocks.
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

    /// [`append`](Self::append)s blocks that arrived together, so that they become durable and
    /// settled together, if they fit into a group.
    pub fn append_all(&self, blocks: impl IntoIterator<Item = Handed>) {
        let mut failed = Vec::new();
        let mut queue = locked(&self.inner.shared.queue);
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

    /// The state and counters of the writer.
    pub fn stats(&self) -> WriterStats {
        let queue = locked(&self.inner.shared.queue);
        let queued_blocks = usize::try_from(queue.appended - queue.finished).unwrap_or(usize::MAX);
        let mut times: Vec<f64> = queue.commit_ms.iter().copied().collect();
        let stats = queue.stats.clone();
        drop(queue);
        times.sort_by(f64::total_cmp);
        let rank = (times.len() * 99).div_ceil(100);
        let fsync_p99_ms = rank.checked_sub(1).and_then(|at| times.get(at)).copied();
        WriterStats {
            queued_blocks,
            commits: CommitStats {
                fsync_p99_ms: fsync_p99_ms.unwrap_or(0.0),
                ..stats.commits
            },
            ..stats
        }
    }

    /// Bytes of blocks that the budget has room for now; 0 while the writer stalls. Blocks that wait to become durable are
    /// not taken off. If little room is left, segments that all consumers have finished with are removed before their time,
    /// as for a block that needs their space.
    pub fn room(&self) -> u64 {
        let (state, budget) = {
            let queue = locked(&self.inner.shared.queue);
            (queue.stats.state, queue.stats.budget)
        };
        if state != WriterState::Ok {
            return 0;
        }
        let free = self.inner.catalog.room(budget, self.inner.recheck);
        free.saturating_sub(GROUP_OVERHEAD as u64)
    }

    /// Waits until the earlier blocks are durable. Returns whether they were within `timeout`.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut queue = locked(&self.inner.shared.queue);
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

    /// Makes the appended blocks durable, waits for the promised commits, all for at most
    /// `timeout`, and releases the spool. A block that is not durable by then fails with
    /// `spool.closed`; a durable block without its commit gets no more calls.
    pub fn close(self, timeout: Duration) {
        self.inner.end(timeout);
    }
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// Between two looks at whether consumers are done with something.
    recheck: Duration,
    has_acks: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    fn end(&self, timeout: Duration) {
        let mut queue = locked(&self.shared.queue);
        queue.refused.get_or_insert(SpoolError::Closed);
        queue.closing.get_or_insert(Instant::now() + timeout);
        if queue.stats.state == WriterState::Ok {
            queue.stats.state = WriterState::Draining;
        }
        drop(queue);
        self.shared.work.notify_one();
        let threads = std::mem::take(&mut *locked(&self.threads));
        // The last handle may be dropped by a link that is being settled, on the thread itself.
        let own = std::thread::current().id();
        if threads.iter().any(|one| one.thread().id() == own) {
            return;
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn spawn(
    dir: &Path,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SpoolError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| SpoolError::io("start a thread for", dir, error))
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Origin, Spool, clock::now_us};

    struct Nobody;

    impl Settle for Nobody {
        fn settle(&self, _: &[u64]) {}
        fn failed(&self, _: &SpoolError) {}
    }

    fn append(writer: &Writer) {
        let block = Block {
            origin: Origin {
                protocol: "test".into(),
                peer: "peer".into(),
                link: "link".into(),
                stream: None,
            },
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
        // The remains of a clock that was ahead by then.
        let ahead = now_us() + 3_600_000_000;
        locked(&writer.inner.shared.queue).last_us = ahead;
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
