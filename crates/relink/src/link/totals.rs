//! The counts of a link.

use super::LinkStats;
use crate::Payload;

/// The counts since the link was made, and the bytes that it holds.
#[derive(Debug, Default)]
pub(super) struct Totals {
    stats: LinkStats,
    /// Payload bytes delivered and not consumed.
    held: usize,
}

impl Totals {
    pub(super) const fn stats(&self) -> LinkStats {
        self.stats
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// One message joins a channel.
    pub(super) const fn sent(&mut self, bytes: u64) {
        let stats = &mut self.stats;
        stats.messages_sent = stats.messages_sent.saturating_add(1);
        stats.bytes_sent = stats.bytes_sent.saturating_add(bytes);
    }

    /// Undoes [`sent`](Self::sent).
    pub(super) const fn unsent(&mut self, bytes: u64) {
        let stats = &mut self.stats;
        stats.messages_sent = stats.messages_sent.saturating_sub(1);
        stats.bytes_sent = stats.bytes_sent.saturating_sub(bytes);
    }

    /// A message was emitted again.
    pub(super) const fn sent_again(&mut self) {
        let again = &mut self.stats.messages_sent_again;
        *again = again.saturating_add(1);
    }

    /// A message is delivered, and holds so many bytes until it is consumed.
    pub(super) fn delivered(&mut self, payload: &Payload, held: usize) {
        let bytes = u64::try_from(payload.bytes()).unwrap_or(0);
        let stats = &mut self.stats;
        stats.messages_received = stats.messages_received.saturating_add(1);
        stats.bytes_received = stats.bytes_received.saturating_add(bytes);
        self.held = self.held.saturating_add(held);
    }

    /// Messages that held so many bytes are consumed.
    pub(super) const fn consumed(&mut self, held: usize) {
        self.held = self.held.saturating_sub(held);
    }

    /// A message arrived again and was dropped.
    pub(super) const fn skipped(&mut self) {
        let skipped = &mut self.stats.messages_skipped;
        *skipped = skipped.saturating_add(1);
    }

    /// The link has a new transport.
    pub(super) const fn attached(&mut self) {
        let transports = &mut self.stats.transports;
        *transports = transports.saturating_add(1);
    }

    /// The peer has announced everything that it had got.
    pub(super) const fn resumed(&mut self) {
        let resumes = &mut self.stats.resumes;
        *resumes = resumes.saturating_add(1);
    }
}
