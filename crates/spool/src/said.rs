//! Log lines of the writer's threads: each one is written once for each change.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{Spool, SpoolError, commit::Committer, consumers};

/// The conditions that the commit thread has logged, so that each change is logged once.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) stalled: Option<Instant>,
    pub(crate) full: Option<Instant>,
    pub(crate) no_descriptors: Option<Instant>,
    pub(crate) no_reserve: bool,
}

/// The conditions that the retention thread has logged.
#[derive(Debug, Default)]
pub(crate) struct SaidOfRetention {
    pub(crate) stale: BTreeSet<String>,
    pub(crate) unread: Option<String>,
    pub(crate) failed: Option<String>,
}

impl Committer {
    /// Logs the consumers that hold the space, at once and then every minute.
    pub(crate) fn say_stalled(&mut self, window: u64) {
        if !is_due(&mut self.said.stalled, self.settings.pace.say_again) {
            return;
        }
        let marks = consumers::list(&self.files.folder).unwrap_or_default();
        let dir = self.files.folder.dir().display();
        let (bytes, budget) = (self.used(), self.settings.options.budget);
        if window > budget {
            tracing::warn!(code = "spool.stalled_budget", %dir, bytes, budget, window, option = "--budget",
                "a window of {window} bytes is larger than the whole budget (--budget {budget}): it waits until \
                 nothing else is kept, and senders wait; raise the budget");
            return;
        }
        let Some(slowest) = marks.iter().min_by_key(|mark| mark.committed) else {
            tracing::warn!(code = "spool.stalled_budget", %dir, bytes, budget,
                cure = format!("ackline spool consumers add {dir} NAME"),
                "the budget is used up and no consumer exists, so that nothing is retired: senders wait; \
                 add the consumer that reads this spool, or raise the budget");
            return;
        };
        let (consumer, mark) = (slowest.name.as_str(), slowest.committed);
        let lag = Spool::open_in(self.files.folder.clone()).and_then(|spool| spool.lag(mark));
        let all = (self.position.saturating_sub(mark), bytes);
        let (lag_events, lag_bytes) = lag.map_or(all, |lag| (lag.events, lag.bytes));
        tracing::warn!(code = "spool.stalled_budget", %dir, bytes, budget, consumer, mark, lag_events, lag_bytes,
            cure = format!(
                "ackline spool consumers ls {dir}; ackline spool consumers rm {dir} {consumer}; \
                 ackline spool consumers seek {dir} {consumer} --to latest"),
            "the budget is used up by events that this consumer has not committed: senders wait; start its reader, \
             remove it or move its mark, or raise the budget");
    }

    /// Logs that the disk or the quota is full, at once and then every minute.
    pub(crate) fn say_full(&mut self, error: &SpoolError, wanted: u64) {
        if !is_due(&mut self.said.full, self.settings.pace.say_again) {
            return;
        }
        let free = self
            .files
            .folder
            .disk()
            .free_bytes(self.files.folder.root());
        tracing::error!(code = "spool.disk_full", dir = %self.files.folder.dir().display(), %error, free, wanted,
            "the disk or the quota is full: nothing is acknowledged and senders wait until there is room");
    }

    /// Logs that no file can be opened, at once and then every minute.
    pub(crate) fn say_no_descriptors(&mut self, error: &SpoolError) {
        if !is_due(&mut self.said.no_descriptors, self.settings.pace.say_again) {
            return;
        }
        tracing::error!(code = "spool.descriptors", dir = %self.files.folder.dir().display(), %error,
            "no file descriptor is left: nothing is acknowledged and senders wait until there is one; raise the \
             limit of open files (ulimit -n)");
    }

    /// Clears the conditions: there is space.
    pub(crate) fn is_not_stalled(&mut self) {
        let (stalled, full) = (self.said.stalled.take(), self.said.full.take());
        if stalled
            .or(full)
            .or(self.said.no_descriptors.take())
            .is_some()
        {
            tracing::info!(code = "spool.resumed", dir = %self.files.folder.dir().display(), "there is room again");
        }
    }
}

/// Whether a line is to be written again, which counts as written then.
fn is_due(written: &mut Option<Instant>, again: Duration) -> bool {
    let is_due = written.is_none_or(|at| at.elapsed() >= again);
    if is_due {
        *written = Some(Instant::now());
    }
    is_due
}
