//! Whether a link gets on: a driver that turns in vain, and a frame that takes its time while others wait for the
//! memory that it holds.

use std::time::{Duration, Instant};

use ackline_core::options::{bytes, fraction, time};

ackline_core::options! {
    /// How far peers may hold up each other while memory is short.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Fairness {
        options {
            /// The part of the memory, and of the spool's budget, that one sender (an address, or a certificate's subject) may
            /// have while there are others.
            max_sender_share: f64 = 0.5, fraction(), RECEIVE;
            /// Bytes a second that a sender must keep up over a frame or window that holds memory, and over each five
            /// seconds of it, while others wait for memory.
            min_rate: u64 = 1_024, bytes(1..=u64::MAX), RECEIVE;
            /// How long such a frame or window may take as a whole, while others wait for memory. It must come evenly: as
            /// much of it in each five seconds as is due in them.
            frame_timeout: Option<Duration> = Some(Duration::from_secs(60)), time(), RECEIVE;
        }
    }
}

impl Fairness {
    /// No rule at all: any sender may have everything, as slowly as it likes.
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

    /// No frame is judged before.
    fn grace(&self) -> Duration {
        GRACE.min(self.whole())
    }
}

/// The frame or window that is coming, if it holds memory.
#[derive(Debug, Default)]
pub(crate) struct Coming {
    begun: Option<Begun>,
    /// Frames and windows that had come whole at the last look.
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
    /// How long the peer has had for it, without the time in which our memory made it wait.
    taken: Duration,
    /// The same two at earlier looks, the oldest first.
    marks: [(Duration, u64); MARKS],
    /// Until when that is counted.
    at: Instant,
    is_peers_turn: bool,
}

/// The state of a link at a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holds {
    /// Bytes charged for what has not come whole.
    pub(crate) bytes: u64,
    /// Frames and windows that have come whole.
    pub(crate) finished: u64,
    /// Bytes that have come, read or not.
    pub(crate) came: u64,
    /// Nothing that has come waits for us.
    pub(crate) is_peers_turn: bool,
}

/// How slow a peer was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slow {
    pub(crate) came: u64,
    pub(crate) holds: u64,
    pub(crate) seconds: u64,
    pub(crate) option: &'static str,
}

impl Coming {
    pub(crate) fn see(&mut self, now: Instant, holds: Holds, fairness: &Fairness) {
        let is_another = std::mem::replace(&mut self.finished, holds.finished) != holds.finished;
        if holds.bytes == 0 {
            self.begun = None;
            return;
        }
        let mut begun = self.begun.filter(|_| !is_another).unwrap_or(Begun {
            from: holds.came,
            came: 0,
            holds: 0,
            taken: Duration::ZERO,
            marks: [(Duration::ZERO, 0); MARKS],
            at: now,
            is_peers_turn: false,
        });
        if begun.is_peers_turn && holds.is_peers_turn {
            let passed = now.saturating_duration_since(begun.at);
            begun.taken = begun.taken.saturating_add(passed);
        }
        let came = holds.came.saturating_sub(begun.from);
        // Bytes that were counted unread are missing for a moment while they are read.
        begun.came = begun.came.max(came);
        begun.holds = holds.bytes;
        (begun.at, begun.is_peers_turn) = (now, holds.is_peers_turn);
        let [.., (last, _)] = begun.marks;
        if begun.taken.saturating_sub(last) >= fairness.grace() / STEPS {
            begun.marks.rotate_left(1);
            let [.., newest] = &mut begun.marks;
            *newest = (begun.taken, begun.came);
        }
        self.begun = Some(begun);
    }

    /// When the peer is to be looked at again.
    pub(crate) fn due(&self, fairness: &Fairness) -> Option<Instant> {
        let begun = self.begun.filter(|begun| begun.is_peers_turn)?;
        let [.., (last, _)] = begun.marks;
        let since = begun.taken.saturating_sub(last);
        let left = (fairness.grace() / STEPS).saturating_sub(since);
        begun.at.checked_add(left.max(LEAST_LOOK))
    }

    /// How slow the peer is, if it is too slow to hold memory that others wait for.
    pub(crate) fn slow(&self, fairness: &Fairness) -> Option<Slow> {
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
            (taken >= grace && u128::from(came) < least).then_some(Slow {
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

/// Turns of a driver that changed nothing.
#[derive(Debug)]
pub(crate) struct Turns {
    marks: [u64; 6],
    since: Instant,
    last: Instant,
    count: u32,
}

impl Turns {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            marks: [0; 6],
            since: now,
            last: now,
            count: 0,
        }
    }

    /// One more turn, after which the link stands at `marks`; for how long it has turned in vain, if that is too long.
    pub(crate) fn turned(&mut self, now: Instant, marks: [u64; 6]) -> Option<Duration> {
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

/// Time over which the rate of a peer is taken, and in which a frame that holds memory may come at any rate.
const GRACE: Duration = Duration::from_secs(5);

/// Parts of that time, at whose ends it is noted how much has come.
const STEPS: u32 = 4;

/// Notes that are kept: the oldest of them is as old as that time.
const MARKS: usize = STEPS as usize + 1;

/// No peer is looked at more often for that.
const LEAST_LOOK: Duration = Duration::from_millis(50);

/// A driver that turns so long without anything changed is defective: it is ended, so that others get on.
const IN_VAIN: Duration = Duration::from_secs(1);

/// It turns often: who is woken now and then waits in between.
const MANY_TURNS: u32 = 1_000;

/// A wait that is none of a driver that turns for ever.
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

    fn holds(bytes: u64, came: u64, is_peers_turn: bool) -> Holds {
        Holds {
            bytes,
            finished: 0,
            came,
            is_peers_turn,
        }
    }

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The finding at the last of so many looks, one each five quarters of a second, if nothing is found before it:
    /// at a frame that holds `bytes`, of which `came` tells how many have come at which look.
    fn found(bytes: u64, looks: u32, came: impl Fn(u64) -> u64) -> Option<(&'static str, u64)> {
        let begun = Instant::now();
        let mut coming = Coming::default();
        for look in 0..looks {
            assert!(coming.slow(&RULE).is_none(), "at look {look}");
            let now = begun + Duration::from_millis(1_250) * look;
            coming.see(now, holds(bytes, 100 + came(u64::from(look)), true), &RULE);
        }
        coming.slow(&RULE).map(|slow| (slow.option, slow.came))
    }

    #[test]
    fn a_frame_below_the_rate_is_slow_after_the_grace_and_one_above_it_is_not() {
        let begun = Instant::now();
        for (came, is_slow) in [(4_999, true), (5_000, false)] {
            let mut coming = Coming::default();
            coming.see(begun, holds(1, 100, true), &RULE);
            assert_eq!(coming.due(&RULE), Some(begun + after(5) / 4));
            coming.see(begun + after(4), holds(1, 100, true), &RULE);
            assert!(coming.slow(&RULE).is_none());
            coming.see(begun + after(5), holds(1, 100 + came, true), &RULE);
            assert_eq!(coming.slow(&RULE).is_some(), is_slow);
            assert_eq!(coming.due(&RULE), Some(begun + after(21) / 4));
        }
    }

    #[test]
    fn a_frame_that_came_fast_and_comes_no_more_is_slow_all_the_same() {
        // Much comes at first, then a byte in each look.
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
        let mut coming = Coming::default();
        coming.see(begun, holds(1_000_000, 0, true), &rule);
        assert_eq!(coming.due(&rule), Some(begun + after(2) / 4));
        coming.see(begun + after(1), holds(1_000_000, 9, true), &rule);
        assert!(coming.slow(&rule).is_none());
        coming.see(begun + after(2), holds(1_000_000, 9, true), &rule);
        assert!(coming.slow(&rule).is_some());
    }

    #[test]
    fn what_waits_for_our_memory_and_what_has_come_whole_is_not_slow() {
        let begun = Instant::now();
        let mut coming = Coming::default();
        let mut see = |seconds, holds| {
            coming.see(begun + after(seconds), holds, &RULE);
            (coming.slow(&RULE).is_some(), coming.due(&RULE))
        };
        assert_eq!(see(0, holds(1, 0, false)), (false, None));
        see(60, holds(1, 0, true));
        let (is_slow, _) = see(64, holds(1, 0, true));
        assert!(!is_slow, "4 s of its own");
        // Until then much has come that was not read.
        see(70, holds(1, 0, false));
        let whole = Holds {
            finished: 1,
            ..holds(1, 10, true)
        };
        see(71, whole);
        let (is_slow, _) = see(75, whole);
        assert!(!is_slow, "another one has begun");
        let (is_slow, _) = see(76, whole);
        assert!(is_slow);
        let (is_slow, _) = see(76, Holds { bytes: 0, ..whole });
        assert!(!is_slow);
    }

    #[test]
    fn what_had_come_before_it_was_read_does_not_count_twice_or_less() {
        let begun = Instant::now();
        let mut coming = Coming::default();
        coming.see(begun, holds(1, 0, true), &RULE);
        // 6,000 had come and were not read, then 1,000 of them are read.
        coming.see(begun + after(4), holds(1, 6_000, true), &RULE);
        coming.see(begun + after(5), holds(1, 1_000, true), &RULE);
        assert!(coming.slow(&RULE).is_none());
        coming.see(begun + after(7), holds(1, 6_900, true), &RULE);
        let slow = coming.slow(&RULE).map(|slow| slow.came);
        assert_eq!(slow, Some(6_900));
    }

    #[test]
    fn turns_are_in_vain_when_they_are_many_and_change_nothing_for_a_second() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut turns = Turns::new(begun);
        for turn in 0..1_100 {
            assert!(turns.turned(at(turn * 9 / 10), [7; 6]).is_none(), "{turn}");
        }
        assert!(turns.turned(at(1_000), [7; 6]).is_some());
        assert!(turns.turned(at(1_001), [8; 6]).is_none(), "bytes moved");
        // Seldom, though for long.
        for turn in 1..2_000 {
            assert!(turns.turned(at(1_001 + turn * 101), [8; 6]).is_none());
        }
        // For long, though not often.
        let since = 300_000;
        for turn in 0..500 {
            assert!(turns.turned(at(since + turn * 10), [9; 6]).is_none());
        }
    }
}
