//! How long a driver keeps its worker thread while other tasks wait for it.
//!
//! A peer that is always ready would keep the worker for as long as the runtime counts reads, and
//! one read may hold a quarter of a million frames of one byte. So the work is counted, in bytes
//! and in time, and if a read takes too long, less is read at once.

use std::time::{Duration, Instant};

use ackline_core::Need;

use crate::buffer_pool::READ_BYTES;
use crate::units::to_u64;

/// Bytes moved, in and out, after which the driver yields.
const BYTES: u64 = 128 << 10;

/// Time of work after which the driver yields.
const TIME: Duration = Duration::from_micros(250);

/// Time between two turns that counts as a wait, in which other tasks had the worker; a shorter one
/// was spent on reading and writing.
const WAIT: Duration = Duration::from_micros(50);

/// Time that the bytes of one whole read may take.
const READ_TIME: Duration = Duration::from_millis(4);

/// Bytes read at once when a whole read takes longer, if no frame needs more.
const DENSE_BYTES: usize = 4 * 1024;

/// The work of one driver since it last yielded.
#[derive(Debug, Default)]
pub(crate) struct TimeSlice {
    /// Bytes that had been moved when it began.
    began: u64,
    worked: Duration,
    /// When its last turn ended.
    ended: Option<Instant>,
    /// The input has so much work per byte that a whole read takes too long.
    is_dense: bool,
}

impl TimeSlice {
    /// Begins a turn.
    pub(crate) fn begin(&mut self, now: Instant) {
        let Some(ended) = self.ended else {
            return;
        };
        let between = now.saturating_duration_since(ended);
        self.worked = if between < WAIT {
            self.worked.saturating_add(between)
        } else {
            Duration::ZERO
        };
    }

    /// Ends the turn that began at `begun`; the connection has taken so many bytes of input in it.
    pub(crate) fn end(&mut self, taken: usize, begun: Instant, now: Instant) {
        let took = now.saturating_duration_since(begun);
        self.ended = Some(now);
        self.worked = self.worked.saturating_add(took);
        let [read, taken_bytes] = [READ_BYTES, taken].map(|bytes| u128::from(to_u64(bytes)));
        let Some(whole) = (took.as_nanos() * read).checked_div(taken_bytes) else {
            return;
        };
        // Little input says little about more of it.
        let is_much = taken >= READ_BYTES / 2;
        self.is_dense = whole > READ_TIME.as_nanos() && (is_much || self.is_dense);
    }

    /// Whether the slice is over now that so many bytes have been moved in all; if so, the next one
    /// begins.
    pub(crate) fn is_over(&mut self, moved: u64) -> bool {
        let is_over = moved.saturating_sub(self.began) >= BYTES || self.worked >= TIME;
        if is_over {
            (self.began, self.worked) = (moved, Duration::ZERO);
        }
        is_over
    }

    /// Bytes to read at once, when the connection has this need and `len` bytes have come.
    pub(crate) fn bite(&self, need: Need, len: usize) -> usize {
        if !self.is_dense {
            return usize::MAX;
        }
        match need {
            Need::Input { at_least } => at_least.saturating_sub(len).max(DENSE_BYTES),
            Need::Again | Need::Room => DENSE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BYTES, DENSE_BYTES, Duration, Instant, Need, READ_BYTES, READ_TIME, TIME, TimeSlice, WAIT,
    };

    const NEXT: Need = Need::Input { at_least: 1 };

    /// A turn of this length, right after the last one.
    fn turn(slice: &mut TimeSlice, taken: usize, took: Duration) {
        let begun = slice.ended.unwrap_or_else(Instant::now);
        slice.begin(begun);
        slice.end(taken, begun, begun + took);
    }

    #[test]
    fn a_slice_is_over_after_its_bytes_or_its_time() {
        let mut slice = TimeSlice::default();
        assert!(!slice.is_over(BYTES - 1));
        assert!(slice.is_over(BYTES));
        assert!(!slice.is_over(2 * BYTES - 1));
        turn(&mut slice, 0, TIME / 2);
        assert!(!slice.is_over(2 * BYTES - 1));
        turn(&mut slice, 0, TIME / 2);
        assert!(slice.is_over(2 * BYTES - 1));
        assert!(!slice.is_over(3 * BYTES - 2));
    }

    #[test]
    fn time_between_turns_is_work_but_for_waits() {
        let begun = Instant::now();
        let mut slice = TimeSlice::default();
        let mut at = begun;
        for _ in 0..7 {
            slice.begin(at);
            slice.end(0, at, at);
            assert!(!slice.is_over(0));
            at += WAIT * 3 / 4;
        }
        slice.begin(at);
        assert!(slice.is_over(0));
        slice.end(0, at, at + TIME * 3 / 4);
        slice.begin(at + TIME * 3 / 4 + WAIT);
        slice.end(0, at, at + TIME / 2);
        assert!(!slice.is_over(0));
    }

    #[test]
    fn less_is_read_at_once_while_a_whole_read_would_take_too_long() {
        let mut slice = TimeSlice::default();
        assert_eq!(slice.bite(NEXT, 0), usize::MAX);
        // Little input that takes long: it may have waited for a core.
        turn(&mut slice, 100, READ_TIME);
        assert_eq!(slice.bite(NEXT, 0), usize::MAX);
        turn(&mut slice, READ_BYTES, READ_TIME + Duration::from_micros(1));
        assert_eq!(slice.bite(NEXT, 0), DENSE_BYTES);
        assert_eq!(slice.bite(Need::Again, 0), DENSE_BYTES);
        // The rest of a frame is read as a whole.
        let at_least = 100_000;
        assert_eq!(slice.bite(Need::Input { at_least }, 20_000), 80_000);
        // A turn without input says nothing about it, and little input with the same time per byte
        // changes nothing.
        turn(&mut slice, 0, READ_TIME);
        turn(&mut slice, DENSE_BYTES, READ_TIME / 63);
        assert_eq!(slice.bite(NEXT, 0), DENSE_BYTES);
        turn(&mut slice, DENSE_BYTES, READ_TIME / 65);
        assert_eq!(slice.bite(NEXT, 0), usize::MAX);
    }
}
