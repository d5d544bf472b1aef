//! The window of a half: how much the peer may send before the application has taken the payloads that came.
//!
//! A window covers the bytes that the peer may still send and those that wait to be taken. A window's worth of taken
//! bytes is a round. If the reader was never without work in it, the window halves. If the peer was seen out of credit,
//! it doubles, up to [`FREE`] bytes; and up to the size of the payloads that come. Else twice the size has to
//! bring more (`autotune.rs`): on a long path the peer is out of credit and is not seen so, as some is always on its
//! way.

use std::time::Instant;

use super::autotune::{Autotune, FREE};
use crate::Target;
use crate::chunk::PayloadRole;

/// The window of a half.
#[derive(Debug, Default)]
pub(super) struct Window {
    size: u64,
    /// Bytes of whole payloads that were not taken.
    unread: u64,
    /// Bytes that came of payloads that are not whole, and that nothing was set aside for.
    parts: u64,
    /// Bytes still to come of payloads that bytes were set aside for.
    reserved: u64,
    /// Bytes taken in this round.
    round: u64,
    /// Whether the peer was out of credit in this round.
    starved: bool,
    /// Whether the reader was without work in this round.
    idle: bool,
    /// Whether its message waits until the reader has caught up.
    parked: bool,
    /// The autotuning of a window that has grown as far as it may without a trial.
    autotune: Option<Box<Autotune>>,
}

impl Window {
    /// Sets the size. A half of size 0 has no credit.
    pub(super) const fn resize(&mut self, size: u64) {
        self.size = size;
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that have come and were not taken.
    pub(super) const fn unread(&self) -> u64 {
        self.unread.saturating_add(self.parts)
    }

    /// Whether the reader has more to take than the window.
    pub(super) const fn is_behind(&self) -> bool {
        self.unread > self.size
    }

    /// The half's message waits until the reader has caught up.
    pub(super) const fn park(&mut self) {
        self.parked = true;
    }

    /// Whether a message has waited for the reader, and the reader has caught up now. Answers `true` once.
    pub(super) fn unpark(&mut self) -> bool {
        !self.is_behind() && std::mem::take(&mut self.parked)
    }

    /// Bytes have come, after which the peer has so much credit.
    pub(super) fn arrived(&mut self, bytes: u64, is_reserved: bool, credit: u64) {
        if is_reserved {
            self.reserved = self.reserved.saturating_sub(bytes);
        } else {
            self.parts = self.parts.saturating_add(bytes);
        }
        self.starved |= credit == 0;
        self.idle |= self.unread == 0;
    }

    /// Bytes of a payload are set aside, of which some have come and others are to come.
    pub(super) const fn reserve(&mut self, received: u64, left: u64) {
        self.parts = self.parts.saturating_sub(received);
        self.reserved = self.reserved.saturating_add(left);
    }

    /// Bytes that were set aside do not come, or count like others.
    pub(super) const fn drop_reserved(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Whether bytes are to come that were set aside.
    pub(super) const fn has_reserved(&self) -> bool {
        self.reserved > 0
    }

    /// Bytes of a chunk count as part of a payload that is not whole.
    pub(super) const fn add_parts(&mut self, bytes: u64) {
        self.parts = self.parts.saturating_add(bytes);
    }

    /// Bytes that came are not part of an unfinished payload any more.
    pub(super) const fn drop_parts(&mut self, bytes: u64) {
        self.parts = self.parts.saturating_sub(bytes);
    }

    /// Bytes are whole and wait to be taken.
    pub(super) const fn add_unread(&mut self, bytes: u64) {
        self.unread = self.unread.saturating_add(bytes);
    }

    /// Bytes were taken. Returns whether a round is over.
    pub(super) const fn taken(&mut self, bytes: u64) -> bool {
        self.unread = self.unread.saturating_sub(bytes);
        self.round = self.round.saturating_add(bytes);
        self.idle |= self.unread == 0;
        self.round >= self.size
    }

    /// Returns the credit that the peer should have, while parts of no more than `spill` bytes wait above the window.
    pub(super) const fn wanted(&self, spill: u64) -> u64 {
        if self.parts > self.size.saturating_add(spill) {
            return 0;
        }
        let window = self.size.saturating_sub(self.unread());
        window.saturating_add(self.reserved)
    }

    /// Begins a new round. Returns the size for it.
    pub(super) fn next_size(&mut self, now: Instant, floor: u64, ceiling: u64) -> u64 {
        let (bytes, starved) = (std::mem::take(&mut self.round), self.starved);
        let is_behind = !std::mem::take(&mut self.idle);
        self.starved = false;
        if is_behind {
            let half = (self.size / 2).max(floor);
            self.rest(now, half);
            return half;
        }
        let most = ceiling.max(floor);
        let double = self.size.saturating_mul(2).min(most);
        // The bytes that are set aside for a payload may come beside any window.
        let is_free = double <= bytes || (starved && double <= FREE);
        if is_free && double > self.size {
            self.autotune = None;
            return double;
        }
        let Some(autotune) = &mut self.autotune else {
            self.autotune = Some(Box::new(Autotune::new(now, self.size)));
            return self.size;
        };
        autotune.round(now, bytes, self.size, most)
    }

    /// The size stays as it is for now.
    pub(super) fn rest(&mut self, now: Instant, size: u64) {
        if let Some(autotune) = &mut self.autotune {
            autotune.rest(now, size);
        }
    }

    /// Ends with a size of `floor` at the most: the half gets no more credit. Returns by how much it was larger.
    pub(super) fn end(&mut self, floor: u64) -> u64 {
        let above = self.size.saturating_sub(floor);
        self.size = self.size.min(floor);
        self.autotune = None;
        above
    }
}

/// Returns the half whose credit a payload costs: the top-level's for all but messages (R-BPM-9).
pub(super) const fn payer(role: PayloadRole) -> Target {
    match role {
        PayloadRole::Message(target) => target,
        _ => Target::Top,
    }
}
