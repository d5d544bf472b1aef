//! The options of a spool's writer.

use std::time::Duration;

use ackline_core::options::{bytes, flag, time};

ackline_core::options! {
    /// How a spool is written.
    #[derive(Debug, Clone)]
    pub struct WriterOptions {
        options {
            /// Bytes of the spool, with its indexes: above it senders wait. A single group is always admitted into a spool
            /// that holds nothing else.
            budget: u64 = 4 << 30, bytes(64 << 10..=u64::MAX), RECEIVE;
            /// Bytes of a segment file; at most an eighth of the budget, so that the budget can be freed in steps.
            segment_bytes: u64 = 256 << 20, bytes(1..=u64::MAX), RECEIVE;
            /// Age of a segment file.
            segment_age: Duration = Duration::from_secs(600), time().or_zero(), RECEIVE;
            /// Time to keep events that all consumers have committed; less when the budget needs
            /// their space.
            retain_committed: Duration = Duration::from_secs(24 * 3_600), time().or_zero(), RECEIVE;
            /// Age at which events go even if NOT committed: a choice to lose them.
            retain_max: Option<Duration> = None, time(), RECEIVE;
            /// Whether the spool may be on NFS, SMB or FUSE, which may lose data that they have acknowledged.
            allow_unsafe_filesystem: bool = false, flag(), RECEIVE;
            /// Whether the files' group may use the spool too, and another user may own it.
            group: bool = false, flag(), RECEIVE;
        }
        fields {
            /// The bytes of one group commit; one block may be larger. The block after it waits for a whole one.
            group_bytes: usize = 2 << 20;
            /// The consumer whose mark answers [`Promise::Committed`](crate::Promise::Committed). It is made at the first
            /// kept position when it does not exist.
            acks: Option<String> = None;
            /// The bytes that are set aside on the file system so that marks and logs can be written when it is full; at
            /// most a sixteenth of the budget.
            reserve: u64 = 64 << 20;
        }
    }
}

impl WriterOptions {
    /// The smallest budget, 64 KiB: a few segments, each with the overhead of Arrow.
    pub const LEAST_BUDGET: u64 = 64 << 10;
}
