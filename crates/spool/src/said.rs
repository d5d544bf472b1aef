//! What the writer's thread has said to an operator.

use std::{collections::BTreeSet, time::Instant};

/// What was said, so that it is said once for each change.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) stalled: Option<Instant>,
    pub(crate) stale: BTreeSet<String>,
    pub(crate) unread: Option<String>,
    pub(crate) full: Option<Instant>,
    pub(crate) failed: Option<String>,
    pub(crate) no_reserve: bool,
}
