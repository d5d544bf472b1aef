//! The state that a writer's handles share with its thread: waiting blocks, counters, the error.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex},
    time::Instant,
};

use crate::{
    Block, Promise, Settle, SpoolError,
    backlog::{Backlog, Waiting},
    clock::now_us,
    segment::Placed,
};

/// The state of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriterState {
    /// Blocks become durable.
    #[default]
    Ok,
    /// Uncommitted blocks use up the byte budget.
    StalledBudget,
    /// The disk or the quota is full.
    StalledDisk,
    /// This process has no file descriptor left.
    StalledDescriptors,
    /// Three writes in a row failed, another writer has taken over, a written file was moved or
    /// changed, or a defect ended the writer's thread.
    Failed,
    /// The writer is being closed.
    Draining,
}

impl WriterState {
    /// `ok`, `stalled_budget`, `stalled_disk`, `stalled_descriptors`, `failed` or `draining`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::StalledBudget => "stalled_budget",
            Self::StalledDisk => "stalled_disk",
            Self::StalledDescriptors => "stalled_descriptors",
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }
}

/// The state and counters of a writer.
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
    /// The bytes that they may take.
    pub budget: u64,
    /// Blocks that wait to become durable.
    pub queued_blocks: usize,
    /// The state of the writer.
    pub state: WriterState,
    /// Events that were handed in since the writer was opened.
    pub accepted: u64,
    /// Blocks that are durable and wait for the commit of [`WriterOptions::acks`](crate::WriterOptions::acks).
    pub uncommitted_blocks: usize,
    /// The events of these blocks.
    pub uncommitted_events: u64,
    /// The commits since the writer was opened.
    pub commits: CommitStats,
    /// The reason the writer has failed.
    pub failure: Option<SpoolError>,
}

/// The work of a writer's group commits.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct CommitStats {
    /// The 99th percentile of the time that the last 1,024 commits took, in milliseconds.
    pub fsync_p99_ms: f64,
    /// Group commits.
    pub groups: u64,
    /// Calls to fsync, for files and directories.
    pub fsyncs: u64,
}

/// A block for [`Writer::append_all`](crate::Writer::append_all), and the link to notify of its
/// outcome.
pub struct Handed {
    /// The block.
    pub block: Block,
    /// The link to notify.
    pub settle: Arc<dyn Settle>,
    /// The link's token for the block.
    pub token: u64,
    /// The promise to settle.
    pub promise: Promise,
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// The state shared by handles and thread.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    pub(crate) work: Condvar,
    pub(crate) done: Condvar,
}

/// Waiting blocks and counters.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) waiting: Backlog,
    pub(crate) last_us: i64,
    pub(crate) appended: u64,
    pub(crate) finished: u64,
    pub(crate) closing: Option<Instant>,
    pub(crate) refused: Option<SpoolError>,
    pub(crate) stats: WriterStats,
    pub(crate) commit_ms: VecDeque<f64>,
}

impl Queue {
    /// The reason a block is not accepted, if any.
    pub(crate) fn refusal(&self, handed: &Handed, has_acks: bool) -> Option<SpoolError> {
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

    pub(crate) fn take(&mut self, handed: Handed) {
        self.last_us = self.last_us.max(now_us());
        self.stats.accepted += u64::from(handed.block.count);
        self.appended += 1;
        let bytes = handed.block.stored_bytes();
        let placed = Placed {
            block: handed.block,
            received_at_us: self.last_us,
        };
        self.waiting.push(Waiting {
            placed,
            bytes,
            settle: handed.settle,
            token: handed.token,
            promise: handed.promise,
        });
    }
}

/// Arrow's offsets are 32 bits wide; the other columns of a group need some of that too.
const MAX_BODY_BYTES: i32 = 2_000_000_000;
