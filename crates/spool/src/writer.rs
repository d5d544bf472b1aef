//! stub
use std::{path::Path, sync::Arc, time::Duration};

use crate::{Block, Settle, SpoolError};

/// How a spool is written.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The bytes that segments and indexes may take, 4 GiB.
    pub budget: u64,
    /// The bytes at which a segment is ended, 256 MiB.
    pub segment_bytes: u64,
    /// The age at which a segment is ended, 10 minutes.
    pub segment_age: Duration,
    /// The bytes of one group commit, 64 MiB.
    pub group_bytes: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            budget: 4 << 30,
            segment_bytes: 256 << 20,
            segment_age: Duration::from_secs(600),
            group_bytes: 64 << 20,
        }
    }
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
    /// Three writes in a row failed.
    Failed,
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
}

/// The one writer of a spool. Clones are handles of the same writer.
#[derive(Clone, Debug)]
pub struct Writer;

impl Writer {
    /// stub
    pub fn open(_dir: &Path, _options: WriterOptions) -> Result<(Self, Recovered), SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn append(&self, _block: Block, _settle: Arc<dyn Settle>, _token: u64) {}
    /// stub
    pub fn stats(&self) -> WriterStats {
        WriterStats::default()
    }
    /// stub
    pub fn flush(&self, _timeout: Duration) -> bool {
        false
    }
    /// stub
    pub fn close(self, _timeout: Duration) {}
}
