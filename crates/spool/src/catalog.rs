//! The segments that are no longer written, oldest first, and their bytes: shared by the commit
//! thread, which adds segments and asks for space, and the retention thread, which removes them.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use ackline_core::locked;

/// A segment that is no longer written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// The bytes of segment and index.
    pub(crate) bytes: u64,
    /// When its last event came; `None` until its index is read.
    pub(crate) last: Option<Last>,
}

/// When the last event of a segment came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last {
    /// By the wall clock, in microseconds since 1970.
    pub(crate) wall_us: i64,
    /// By the time for which the spool had been watched, in microseconds.
    pub(crate) watched_us: u64,
}

/// The state that the commit thread and the retention thread share.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    state: Mutex<State>,
    /// Notified when there is a request, or the writer is closed.
    asked: Condvar,
    /// Notified when something is removed, or a request is answered.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<Kept>,
    bytes: u64,
    /// Bytes of the segment that is being written, and of its index.
    active: u64,
    /// The durable position.
    durable: u64,
    /// Bytes that the commit thread needs.
    wanted: u64,
    /// The number of requests, and of answers.
    asked: u64,
    answered: u64,
    /// The last request for which nobody waits.
    nudged: Option<Instant>,
    /// The lowest mark of all consumers at the last look; `None` without a consumer or if one
    /// cannot be read.
    lowest: Option<u64>,
    fsyncs: u64,
    is_over: bool,
}

/// The next step of the retention thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Removes the segments that may go; more if these bytes are needed.
    Sweep { wanted: u64, ticket: u64 },
    /// Ends.
    End,
}

/// The answer to a request for space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// The lowest mark of all consumers.
    pub(crate) lowest: Option<u64>,
    /// Whether no segment is left that could go later.
    pub(crate) is_empty: bool,
}

impl Catalog {
    /// A catalog of these segments, up to this durable position.
    pub(crate) fn new(kept: VecDeque<Kept>, durable: u64) -> Self {
        let bytes = kept.iter().map(|kept| kept.bytes).sum();
        Self {
            state: Mutex::new(State {
                kept,
                bytes,
                durable,
                ..State::default()
            }),
            ..Self::default()
        }
    }

    /// Adds a segment that is no longer written.
    pub(crate) fn push(&self, kept: Kept) {
        let mut state = locked(&self.state);
        state.bytes = state.bytes.saturating_add(kept.bytes);
        state.kept.push_back(kept);
    }

    /// Records the durable position.
    pub(crate) fn publish(&self, durable: u64) {
        locked(&self.state).durable = durable;
    }

    /// The durable position.
    pub(crate) fn durable(&self) -> u64 {
        locked(&self.state).durable
    }

    /// The bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        locked(&self.state).bytes
    }

    /// Records the bytes of the segment that is being written.
    pub(crate) fn note_active(&self, bytes: u64) {
        locked(&self.state).active = bytes;
    }

    /// The bytes of `budget` that nothing takes. If they are fewer than an eighth of it, the segments that all consumers
    /// have finished with are asked to go, at most once in each `pause`; nobody waits for that here.
    pub(crate) fn room(&self, budget: u64, pause: Duration) -> u64 {
        let mut state = locked(&self.state);
        let used = state.bytes.saturating_add(state.active);
        let free = budget.saturating_sub(used);
        let missing = (budget / 8).saturating_sub(free);
        let is_quiet = state.asked == state.answered;
        if missing > 0
            && !state.kept.is_empty()
            && is_quiet
            && state.nudged.is_none_or(|at| at.elapsed() >= pause)
        {
            state.nudged = Some(Instant::now());
            state.wanted = missing;
            state.asked += 1;
            self.asked.notify_all();
        }
        free
    }

    /// The first kept position, if a segment here has it.
    pub(crate) fn first(&self) -> Option<u64> {
        locked(&self.state).kept.front().map(|kept| kept.first)
    }

    /// Calls to fsync by the retention thread.
    pub(crate) fn fsyncs(&self) -> u64 {
        locked(&self.state).fsyncs
    }

    /// The oldest segments, at most so many.
    pub(crate) fn oldest(&self, most: usize) -> Vec<Kept> {
        locked(&self.state)
            .kept
            .iter()
            .take(most)
            .copied()
            .collect()
    }

    /// Forgets the oldest segment, which was removed.
    pub(crate) fn pop(&self) {
        let mut state = locked(&self.state);
        if let Some(kept) = state.kept.pop_front() {
            state.bytes = state.bytes.saturating_sub(kept.bytes);
        }
        drop(state);
        self.answered.notify_all();
    }

    /// Asks for `wanted` bytes, and waits until they are free or cannot be now, at most `timeout`.
    pub(crate) fn ask(&self, wanted: u64, timeout: Duration) -> Answer {
        let deadline = Instant::now() + timeout;
        let mut state = locked(&self.state);
        let before = state.bytes;
        state.wanted = wanted;
        state.asked += 1;
        let ticket = state.asked;
        self.asked.notify_all();
        let is_freed = |state: &State| before.saturating_sub(state.bytes) >= wanted.max(1);
        while state.answered < ticket && !is_freed(&state) && !state.is_over {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.answered.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Answer {
            lowest: state.lowest,
            is_empty: state.kept.is_empty(),
        }
    }

    /// Waits for a request, at most until `until`.
    pub(crate) fn next(&self, until: Instant) -> Task {
        let mut state = locked(&self.state);
        loop {
            if state.is_over {
                return Task::End;
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.asked > state.answered || left.is_zero() {
                let wanted = std::mem::take(&mut state.wanted);
                return Task::Sweep {
                    wanted,
                    ticket: state.asked,
                };
            }
            let waited = self.asked.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records the lowest mark.
    pub(crate) fn look(&self, lowest: Option<u64>) {
        locked(&self.state).lowest = lowest;
    }

    /// Answers the requests up to this one.
    pub(crate) fn answer(&self, ticket: u64, fsyncs: u64) {
        let mut state = locked(&self.state);
        state.answered = state.answered.max(ticket);
        state.fsyncs += fsyncs;
        drop(state);
        self.answered.notify_all();
    }

    /// Ends the retention thread, and wakes the waiting requests.
    pub(crate) fn close(&self) {
        locked(&self.state).is_over = true;
        self.asked.notify_all();
        self.answered.notify_all();
    }

    /// Whether the thread must end.
    pub(crate) fn is_over(&self) -> bool {
        locked(&self.state).is_over
    }
}
