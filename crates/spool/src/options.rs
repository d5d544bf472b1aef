//! How a spool is written.

use std::time::Duration;

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
    /// The bytes of one group commit, 2 MiB; one block may be larger. Whoever comes next waits for a whole one.
    pub group_bytes: usize,
    /// How long a segment is kept that all consumers are done with, 24 hours; less when the budget
    /// needs its space.
    pub retain_committed: Duration,
    /// The age at which a segment goes even if it is not committed: an explicit choice to lose events.
    pub retain_max: Option<Duration>,
    /// The consumer whose mark answers [`Promise::Committed`](crate::Promise::Committed). It is made at the first kept position
    /// when it does not exist.
    pub acks: Option<String>,
    /// The bytes that are set aside on the file system so that marks and logs can be written when it is
    /// full, 64 MiB; at most a sixteenth of the budget.
    pub reserve: u64,
    /// Whether to write to a file system that may not keep what it says it has.
    pub unsafe_filesystem: bool,
    /// Whether the group of the spool's files may read and write them too, and they may be another
    /// user's: see [`Access::group`](crate::Access::group).
    pub group: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            budget: 4 << 30,
            segment_bytes: 256 << 20,
            segment_age: Duration::from_secs(600),
            group_bytes: 2 << 20,
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
