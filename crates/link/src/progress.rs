//! Checks of a link's progress. One finds a driver that runs without any effect; the other finds a peer that sends a
//! frame slowly while others wait for the memory that the frame holds.

use std::time::{Duration, Instant};

use ackline_core::options::{bytes, fraction, time};

ackline_core::options! {
    /// How far peers may hold up each other while memory is short.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Fairness {
        options {
            /// The largest part of the memory, and of a receiver's budget of the spool, that one sender (an address, or
            /// the subject of a certificate) may have while there are other senders.
            max_sender_share: f64 = 0.5, fraction(), RECEIVE;
            /// Lowest rate, in bytes a second, of a frame or window that holds memory, over all of it and over each
            /// five seconds, while others wait for memory. A slower sender is ended.
            min_rate: u64 = 1_024, bytes(1..=u64::MAX), RECEIVE;
            /// Time that a sender may take for one whole frame or window while others wait for memory. Its
            /// bytes must also come evenly: in each five seconds as many as are due in them.
            frame_timeout: Option<Duration> = Some(Duration::from_secs(60)), time(), RECEIVE;
        }
    }
}

impl Fairness {
    /// No rule: any sender may have everything, at any speed.
    pub const NONE: Self = Self {
        max_sender_share: 1.0,
        min_rate: 0,
        frame_timeout: None,
    };

    /// One sender's part of so many bytes, rounded down.
    pub fn share_of(&self, bytes: u64) -> u64 {
        const PARTS: f64 = 1_000_000.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // between 0 and a million
        let parts = (self.max_sender_share.clamp(0.0, 1.0) * PARTS).round() as u128;
        let share = u128::from(bytes) * parts / 1_000_000;
        u64::try_from(share).unwrap_or(bytes)
    }
}

impl Fairness {
    /// The time that a whole frame may take.
    fn whole(&self) -> Duration {
        self.frame_timeout.unwrap_or(Duration::MAX)
    }

    /// The time before which no frame is judged.
    fn grace(&self) -> Duration {
        GRACE.min(self.whole())
    }
}

/// An incoming frame or window that holds memory.
#[derive(Debug, Default)]
pub(crate) struct IncomingFrame {
    begun: Option<Begun>,
    /// Complete frames and windows at the last check.
    finished: u64,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    /// Bytes of the link when it began.
    from: u64,
    /// Bytes of it that have come.
    came: u64,
    /// Bytes of memory that it holds.
    holds: u64,
    /// The time that the peer has had for it, without the time in which our memory made it wait.
    taken: Duration,
    /// The same two values at earlier checks, the oldest first.
    marks: [(Duration, u64); MARKS],
    /// The end of the time counted so far.
    at: Instant,
    is_peers_turn: bool,
}

/// The state of a link at a check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgressSample {
    /// Bytes charged for incomplete frames and windows.
    pub(crate) bytes: u64,
    /// Complete frames and windows.
    pub(crate) finished: u64,
    /// Bytes that have come, read or not.
    pub(crate) came: u64,
    /// No received byte waits for us.
    pub(crate) is_peers_turn: bool,
}

/// The speed of a slow peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowPeer {
    pub(crate) came: u64,
    pub(crate) holds: u64,
    pub(crate) seconds: u64,
    pub(crate) option: &'static str,
}

impl IncomingFrame {
    pub(crate) fn observe(&mut self, now: Instant, sample: ProgressSample, fairness: &Fairness) {
        let is_another = std::mem::replace(&mut self.finished, sample.finished) != sample.finished;
        if sample.bytes == 0 {
            self.begun = None;
            return;
        }
        let mut begun = self.begun.filter(|_| !is_another).unwrap_or(Begun {
            from: sample.came,
            came: 0,
            holds: 0,
            taken: Duration::ZERO,
            marks: [(Duration::ZERO, 0); MARKS],
            at: now,
            is_peers_turn: false,
        });
        if begun.is_peers_turn && sample.is_peers_turn {
            let passed = now.saturating_duration_since(begun.at);
            begun.taken = begun.taken.saturating_add(passed);
        }
        let came = sample.came.saturating_sub(begun.from);
        // Unread bytes that were counted are missing for a moment while they are read.
        begun.came = begun.came.max(came);
        begun.holds = sample.bytes;
        (begun.at, begun.is_peers_turn) = (now, sample.is_peers_turn);
        let [.., (last, _)] = begun.marks;
        if begun.taken.saturating_sub(last) >= fairness.grace() / STEPS {
            begun.marks.rotate_left(1);
            let [.., newest] = &mut begun.marks;
            *newest = (begun.taken, begun.came);
        }
        self.begun = Some(begun);
    }

    /// When the peer is checked again.
    pub(crate) fn due(&self, fairness: &Fairness) -> Option<Instant> {
        let begun = self.begun.filter(|begun| begun.is_peers_turn)?;
        let [.., (last, _)] = begun.marks;
        let since = begun.taken.saturating_sub(last);
        let left = (fairness.grace() / STEPS).saturating_sub(since);
        begun.at.checked_add(left.max(LEAST_LOOK))
    }

    /// The peer's speed, if it is too slow to hold memory that others wait for.
    pub(crate) fn slow(&self, fairness: &Fairness) -> Option<SlowPeer> {
        let grace = fairness.grace();
        let begun = self.begun.filter(|begun| begun.taken >= grace)?;
        let in_time = begun.holds / fairness.whole().as_secs().max(1);
        let (rate, option) = if in_time > fairness.min_rate {
            (in_time, "--frame-timeout")
        } else {
            (fairness.min_rate, "--min-rate")
        };
        let slow = |came: u64, taken: Duration| {
            let least = u128::from(rate) * taken.as_millis() / 1_000;
            (taken >= grace && u128::from(came) < least).then_some(SlowPeer {
                came,
                holds: begun.holds,
                seconds: taken.as_secs(),
                option,
            })
        };
        let [(earlier, had_come), ..] = begun.marks;
        let lately = begun.taken.saturating_sub(earlier);
        slow(begun.came, begun.taken).or_else(|| slow(begun.came.saturating_sub(had_come), lately))
    }
}

/// Counts the turns of a driver that change nothing.
#[derive(Debug)]
pub(crate) struct StuckDetector {
    marks: [u64; 6],
    since: Instant,
    last: Instant,
    count: u32,
}

impl StuckDetector {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            marks: [0; 6],
            since: now,
            last: now,
            count: 0,
        }
    }

    /// Counts one more turn, after which the link's counters are `marks`. Returns the time without
    /// progress, if that is too long.
    pub(crate) fn count(&mut self, now: Instant, marks: [u64; 6]) -> Option<Duration> {
        let has_rested = now.saturating_duration_since(self.last) > REST;
        self.last = now;
        if has_rested || marks != self.marks {
            (self.marks, self.since, self.count) = (marks, now, 0);
            return None;
        }
        self.count = self.count.saturating_add(1);
        let passed = now.saturating_duration_since(self.since);
        (passed >= IN_VAIN && self.count >= MANY_TURNS).then_some(passed)
    }
}

/// The time over which a peer's rate is measured, and in which a frame that holds memory may come
/// at any rate.
const GRACE: Duration = Duration::from_secs(5);

/// Parts of that time; at the end of each the received bytes are noted.
const STEPS: u32 = 4;

/// Notes that are kept: the oldest is as old as that time.
const MARKS: usize = STEPS as usize + 1;

/// The shortest time between two checks of a peer.
const LEAST_LOOK: Duration = Duration::from_millis(50);

/// A driver that turns for so long without any change is defective: it is ended, so that others can
/// continue.
const IN_VAIN: Duration = Duration::from_secs(1);

/// The turns of such a driver: one that is woken now and then waits in between.
const MANY_TURNS: u32 = 1_000;

/// A wait that a driver in an endless loop does not have.
const REST: Duration = Duration::from_millis(100);

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // a test needs some instant
mod tests {
    use super::*;

    const RULE: Fairness = Fairness {
        max_sender_share: 1.0,
        min_rate: 1_000,
        frame_timeout: Some(Duration::from_secs(10)),
    };

    fn holds(bytes: u64, came: u64, is_peers_turn: bool) -> ProgressSample {
        ProgressSample {
            bytes,
            finished: 0,
            came,
            is_peers_turn,
        }
    }

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The finding at the last of so many checks, one each five quarters of a second, if nothing is
    /// found before it: for a frame that holds `bytes`, of which `came` returns the bytes that have
    /// come at each check.
    fn found(bytes: u64, looks: u32, came: impl Fn(u64) -> u64) -> Option<(&'static str, u64)> {
        let begun = Instant::now();
        let mut frame = IncomingFrame::default();
        for look in 0..looks {
            assert!(frame.slow(&RULE).is_none(), "at look {look}");
            let now = begun + Duration::from_millis(1_250) * look;
            frame.observe(now, holds(bytes, 100 + came(u64::from(look)), true), &RULE);
        }
        frame.slow(&RULE).map(|slow| (slow.option, slow.came))
    }

    #[test]
    fn a_frame_below_the_rate_is_slow_after_the_grace_and_one_above_it_is_not() {
        let begun = Instant::now();
        for (came, is_slow) in [(4_999, true), (5_000, false)] {
            let mut frame = IncomingFrame::default();
            frame.observe(begun, holds(1, 100, true), &RULE);
            assert_eq!(frame.due(&RULE), Some(begun + after(5) / 4));
            frame.observe(begun + after(4), holds(1, 100, true), &RULE);
            assert!(frame.slow(&RULE).is_none());
            frame.observe(begun + after(5), holds(1, 100 + came, true), &RULE);
            assert_eq!(frame.slow(&RULE).is_some(), is_slow);
            assert_eq!(frame.due(&RULE), Some(begun + after(21) / 4));
        }
    }

    #[test]
    fn a_frame_that_came_fast_and_comes_no_more_is_slow_all_the_same() {
        // Much comes at first, then a byte at each check.
        let drips = |look: u64| 900_000 * look.min(1) + look;
        assert_eq!(found(1, 5, drips), None);
        assert_eq!(found(1, 6, drips), Some(("--min-rate", 4)));
        let keeps_up = |look: u64| 900_000 * look.min(1) + 1_250 * look;
        assert_eq!(found(1, 20, keeps_up), None);
    }

    #[test]
    fn a_frame_that_holds_much_must_come_in_its_time() {
        let evenly = |rate: u64| move |look: u64| rate * look * 5 / 4;
        let slow = found(1_000_000, 5, evenly(99_999));
        assert_eq!(slow, Some(("--frame-timeout", 499_995)));
        assert_eq!(found(1_000_000, 20, evenly(100_000)), None);
        // Above the least rate after much at first, and the rest does not come in its time.
        let drips = |look: u64| 900_000 * look.min(1) + 2_500 * look;
        assert_eq!(found(1_000_000, 5, drips), None);
        assert_eq!(
            found(1_000_000, 6, drips),
            Some(("--frame-timeout", 10_000))
        );
    }

    #[test]
    fn a_frame_that_must_come_at_once_is_judged_as_soon() {
        let rule = Fairness {
            frame_timeout: Some(after(2)),
            ..RULE
        };
        let begun = Instant::now();
        let mut frame = IncomingFrame::default();
        frame.observe(begun, holds(1_000_000, 0, true), &rule);
        assert_eq!(frame.due(&rule), Some(begun + after(2) / 4));
        frame.observe(begun + after(1), holds(1_000_000, 9, true), &rule);
        assert!(frame.slow(&rule).is_none());
        frame.observe(begun + after(2), holds(1_000_000, 9, true), &rule);
        assert!(frame.slow(&rule).is_some());
    }

    #[test]
    fn a_frame_that_waits_for_our_memory_or_is_complete_is_not_slow() {
        let begun = Instant::now();
        let mut frame = IncomingFrame::default();
        let mut see = |seconds, holds| {
            frame.observe(begun + after(seconds), holds, &RULE);
            (frame.slow(&RULE).is_some(), frame.due(&RULE))
        };
        assert_eq!(see(0, holds(1, 0, false)), (false, None));
        see(60, holds(1, 0, true));
        let (is_slow, _) = see(64, holds(1, 0, true));
        assert!(!is_slow, "4 s of its own");
        // Until then many bytes have come that were not read.
        see(70, holds(1, 0, false));
        let whole = ProgressSample {
            finished: 1,
            ..holds(1, 10, true)
        };
        see(71, whole);
        let (is_slow, _) = see(75, whole);
        assert!(!is_slow, "another one has begun");
        let (is_slow, _) = see(76, whole);
        assert!(is_slow);
        let (is_slow, _) = see(76, ProgressSample { bytes: 0, ..whole });
        assert!(!is_slow);
    }

    #[test]
    fn unread_bytes_count_once() {
        let begun = Instant::now();
        let mut frame = IncomingFrame::default();
        frame.observe(begun, holds(1, 0, true), &RULE);
        // 6,000 had come and were not read, then 1,000 of them are read.
        frame.observe(begun + after(4), holds(1, 6_000, true), &RULE);
        frame.observe(begun + after(5), holds(1, 1_000, true), &RULE);
        assert!(frame.slow(&RULE).is_none());
        frame.observe(begun + after(7), holds(1, 6_900, true), &RULE);
        let slow = frame.slow(&RULE).map(|slow| slow.came);
        assert_eq!(slow, Some(6_900));
    }

    #[test]
    fn turns_are_in_vain_when_they_are_many_and_change_nothing_for_a_second() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut turns = StuckDetector::new(begun);
        for turn in 0..1_100 {
            assert!(turns.count(at(turn * 9 / 10), [7; 6]).is_none(), "{turn}");
        }
        assert!(turns.count(at(1_000), [7; 6]).is_some());
        assert!(turns.count(at(1_001), [8; 6]).is_none(), "bytes moved");
        // Seldom, though for long.
        for turn in 1..2_000 {
            assert!(turns.count(at(1_001 + turn * 101), [8; 6]).is_none());
        }
        // For long, though not often.
        let since = 300_000;
        for turn in 0..500 {
            assert!(turns.count(at(since + turn * 10), [9; 6]).is_none());
        }
    }
}
