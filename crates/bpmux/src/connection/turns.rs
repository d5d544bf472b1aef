//! Turns of equal bytes (deficit round robin, R-BPM-32): each writer with credit takes turns with the others, and all
//! jobs that wait for top-level credit take turns as one.

use crate::Target;

/// A sender whose turn comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    /// The messages of one half.
    Writer(Target),
    /// All jobs together.
    Jobs,
}

/// One sender's place among the others.
#[derive(Debug, Default)]
pub(super) struct TurnState {
    /// Whether the sender is on the list of those that can go on.
    queued: bool,
    /// Bytes of its turn that are left; negative if it took too many.
    deficit: i64,
}

impl TurnState {
    /// Whether the sender is on the list.
    pub(super) const fn is_queued(&self) -> bool {
        self.queued
    }

    /// Puts the sender on the list. Returns whether it was not there.
    #[must_use]
    pub(super) const fn enqueue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Takes the sender off the list and adds a turn's bytes. Returns `false` if it was not on the list.
    #[must_use]
    pub(super) const fn begin(&mut self, quantum: i64) -> bool {
        if !std::mem::replace(&mut self.queued, false) {
            return false;
        }
        self.deficit = self.deficit.saturating_add(quantum);
        true
    }

    /// Whether bytes of the turn are left.
    pub(super) const fn has_bytes(&self) -> bool {
        self.deficit > 0
    }

    /// Counts a chunk that was sent.
    pub(super) fn pay(&mut self, length: u64) {
        self.deficit = self.deficit.saturating_sub(cost(length));
    }

    /// Ends the turn. A sender that is not on the list again saves no bytes for later.
    pub(super) fn end(&mut self) {
        if !self.queued {
            self.deficit = self.deficit.min(0);
        }
    }
}

/// Bytes of a turn that a chunk takes: its payload, and some for the chunk itself, so that a turn of empty messages
/// ends too.
fn cost(length: u64) -> i64 {
    i64::try_from(length)
        .unwrap_or(i64::MAX)
        .saturating_add(CHUNK_COST)
}

const CHUNK_COST: i64 = 16;

/// Bytes of one turn: a quarter of a chunk, so that a large chunk is paid for by several turns.
pub(super) fn quantum(chunk_size: u32) -> i64 {
    i64::from(chunk_size / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_chunk_is_paid_for_by_several_turns() {
        let mut state = TurnState::default();
        assert!(state.enqueue() && state.begin(100) && state.has_bytes());
        state.pay(250);
        assert!(!state.has_bytes());
        assert!(state.enqueue() && state.begin(100) && !state.has_bytes());
        assert!(
            state.enqueue() && state.begin(100) && state.has_bytes(),
            "266 bytes take a part of the third turn"
        );
    }

    #[test]
    fn nothing_is_saved_by_a_sender_that_stops() {
        let mut state = TurnState::default();
        assert!(state.enqueue() && state.begin(100));
        state.end();
        assert!(!state.has_bytes());
        assert!(state.enqueue() && state.begin(100));
        assert!(state.enqueue(), "it goes on");
        state.end();
        assert!(state.has_bytes());
    }

    #[test]
    fn a_sender_has_one_place_on_the_list() {
        let mut state = TurnState::default();
        assert_eq!([state.enqueue(), state.enqueue()], [true, false]);
        assert_eq!([state.begin(1), state.begin(1)], [true, false]);
    }

    #[test]
    fn an_empty_message_takes_some_of_a_turn() {
        let mut state = TurnState::default();
        assert!(state.enqueue() && state.begin(CHUNK_COST));
        state.pay(0);
        assert!(!state.has_bytes());
    }
}
