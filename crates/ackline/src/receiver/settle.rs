//! From a durable block back to its link: which windows may be acknowledged now.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ackline_link::Link;
use ackline_spool::{Settle, SpoolError};

use super::report::Report;
use crate::ingest::Ingest;

/// Blocks of one link that the spool holds and has not settled, in the order they were appended.
pub(super) struct LinkSettle<I: Ingest> {
    link: Link<I::Machine>,
    pending: Mutex<VecDeque<Pending>>,
    next_token: AtomicU64,
    report: Arc<Report>,
}

struct Pending {
    token: u64,
    events: u64,
    windows: Vec<u64>,
}

impl<I: Ingest> LinkSettle<I> {
    pub(super) fn new(link: Link<I::Machine>, report: Arc<Report>) -> Self {
        Self {
            link,
            pending: Mutex::default(),
            next_token: AtomicU64::new(0),
            report,
        }
    }

    /// The token that settles these windows.
    pub(super) fn expect(&self, events: u64, windows: Vec<u64>) -> u64 {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.lock().push_back(Pending {
            token,
            events,
            windows,
        });
        token
    }

    /// Blocks that are not durable yet.
    pub(super) fn unsettled(&self) -> usize {
        self.lock().iter().map(|one| one.windows.len()).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I: Ingest> Settle for LinkSettle<I> {
    fn settle(&self, tokens: &[u64]) {
        let Some(last) = tokens.iter().max() else {
            return;
        };
        let mut durable = Vec::new();
        {
            let mut pending = self.lock();
            while pending.front().is_some_and(|one| one.token <= *last) {
                durable.extend(pending.pop_front());
            }
        }
        let windows: usize = durable.iter().map(|one| one.windows.len()).sum();
        if self.link.is_ended() {
            self.report.abandoned(windows);
            return;
        }
        let events = self.link.call(|machine, now| {
            let mut told = 0;
            for one in &durable {
                // A connection that is over refuses all the windows of a block alike.
                let settled = one
                    .windows
                    .iter()
                    .map(|window| I::settle(machine, now, *window));
                if settled.fold(true, |all, is_told| all & is_told) {
                    told += one.events;
                }
            }
            told
        });
        self.report.acked(windows, events);
    }

    fn failed(&self, error: &SpoolError) {
        self.report.abandoned(self.unsettled());
        self.lock().clear();
        tracing::error!(code = "receiver.spool_failed", %error, "connection ended without an ack");
        self.link.abort();
    }
}
