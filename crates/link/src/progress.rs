//! Whether a link gets on: a driver that turns in vain, and a frame that takes its time while others wait for the
//! memory that it holds.

use std::time::{Duration, Instant};

/// How far peers may hold up each other while memory is short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fairness {
    /// The part that the links of one [sender](crate::PeerInfo::sender) may have of the memory that links share, and
    /// its blocks of a spool: above 0 and up to 1.
    pub sender_share: f64,
    /// Bytes a second that the peer must keep up over a frame or window that holds memory, while others wait for
    /// memory.
    pub min_rate: u64,
    /// How long such a frame or window may take as a whole, at an even rate, while others wait for memory.
    pub frame_timeout: Duration,
}

impl Fairness {
    /// No rule at all: any sender may have everything, as slowly as it likes.
    pub const NONE: Self = Self {
        sender_share: 1.0,
        min_rate: 0,
        frame_timeout: Duration::MAX,
    };

    /// One sender's part of so many bytes, rounded down.
    pub fn share_of(&self, bytes: u64) -> u64 {
        const PARTS: f64 = 1_000_000.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // between 0 and a million
        let parts = (self.sender_share.clamp(0.0, 1.0) * PARTS).round() as u128;
        let share = u128::from(bytes) * parts / 1_000_000;
        u64::try_from(share).unwrap_or(bytes)
    }
}

impl Default for Fairness {
    /// A half, 1 KiB/s and a minute.
    fn default() -> Self {
        Self {
            sender_share: 0.5,
            min_rate: 1_024,
            frame_timeout: Duration::from_secs(60),
        }
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
    /// The same two at the last look for what has come lately, and what came from one of these looks to the next.
    last: (u64, Duration),
    lately: Option<(u64, Duration)>,
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
    /// Bytes that the link has read.
    pub(crate) came: u64,
    /// More would be read.
    pub(crate) is_reading: bool,
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
    pub(crate) fn see(&mut self, now: Instant, holds: Holds) {
        let is_another = std::mem::replace(&mut self.finished, holds.finished) != holds.finished;
        if holds.bytes == 0 {
            self.begun = None;
            return;
        }
        let begun = self.begun.filter(|_| !is_another).unwrap_or(Begun {
            from: holds.came,
            came: 0,
            holds: 0,
            taken: Duration::ZERO,
            last: (0, Duration::ZERO),
            lately: None,
            at: now,
            is_peers_turn: false,
        });
        let passed = now.saturating_duration_since(begun.at);
        let counted = if begun.is_peers_turn {
            passed
        } else {
            Duration::ZERO
        };
        let came = holds.came.saturating_sub(begun.from);
        let taken = begun.taken.saturating_add(counted);
        let (last_came, last_taken) = begun.last;
        let since = taken.saturating_sub(last_taken);
        let is_due = since >= GRACE;
        self.begun = Some(Begun {
            came,
            holds: holds.bytes,
            taken,
            last: if is_due { (came, taken) } else { begun.last },
            lately: if is_due {
                Some((came.saturating_sub(last_came), since))
            } else {
                begun.lately
            },
            at: now,
            is_peers_turn: holds.is_reading,
            ..begun
        });
    }

    /// When the peer is to be looked at again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|begun| begun.is_peers_turn)?;
        begun
            .at
            .checked_add(GRACE.saturating_sub(begun.taken).max(LOOK))
    }

    /// How slow the peer is, if it is too slow to hold memory that others wait for.
    pub(crate) fn slow(&self, fairness: &Fairness) -> Option<Slow> {
        let begun = self.begun.filter(|begun| begun.taken >= GRACE)?;
        let seconds = begun.taken.as_secs();
        let in_time = begun.holds / fairness.frame_timeout.as_secs().max(1);
        let (rate, option) = if in_time > fairness.min_rate {
            (in_time, "--frame-timeout")
        } else {
            (fairness.min_rate, "--min-rate")
        };
        if begun.came < rate.saturating_mul(seconds) {
            return Some(Slow {
                came: begun.came,
                holds: begun.holds,
                seconds,
                option,
            });
        }
        let (came, since) = begun.lately?;
        let least = fairness.min_rate.saturating_mul(since.as_secs());
        (came < least).then_some(Slow {
            came,
            holds: begun.holds,
            seconds: since.as_secs(),
            option: "--min-rate",
        })
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

/// How long a peer may take for a frame that holds memory, at any rate.
const GRACE: Duration = Duration::from_secs(5);

/// How often a peer is looked at after that.
const LOOK: Duration = Duration::from_secs(1);

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
        sender_share: 1.0,
        min_rate: 1_000,
        frame_timeout: Duration::from_secs(10),
    };

    fn holds(bytes: u64, came: u64, is_reading: bool) -> Holds {
        Holds {
            bytes,
            finished: 0,
            came,
            is_reading,
        }
    }

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_frame_below_the_rate_is_slow_after_the_grace_and_one_above_it_is_not() {
        let begun = Instant::now();
        for (came, is_slow) in [(4_999, true), (5_000, false)] {
            let mut coming = Coming::default();
            coming.see(begun, holds(1, 100, true));
            assert_eq!(coming.due(), Some(begun + after(5)));
            coming.see(begun + after(4), holds(1, 100, true));
            assert!(coming.slow(&RULE).is_none());
            coming.see(begun + after(5), holds(1, 100 + came, true));
            assert_eq!(coming.slow(&RULE).is_some(), is_slow);
            assert_eq!(coming.due(), Some(begun + after(6)));
        }
    }

    #[test]
    fn a_frame_that_came_fast_and_comes_no_more_is_slow_all_the_same() {
        let begun = Instant::now();
        let mut coming = Coming::default();
        coming.see(begun, holds(100_000, 0, true));
        coming.see(begun + after(1), holds(100_000, 900_000, true));
        coming.see(begun + after(5), holds(100_000, 900_001, true));
        assert!(coming.slow(&RULE).is_none());
        coming.see(begun + after(9), holds(100_000, 900_002, true));
        assert!(coming.slow(&RULE).is_none());
        coming.see(begun + after(10), holds(100_000, 900_003, true));
        let slow = coming.slow(&RULE).map(|slow| (slow.option, slow.came));
        assert_eq!(slow, Some(("--min-rate", 2)));
        coming.see(begun + after(15), holds(100_000, 905_003, true));
        assert!(coming.slow(&RULE).is_none());
    }

    #[test]
    fn a_frame_that_holds_much_must_come_in_its_time() {
        let begun = Instant::now();
        let mut coming = Coming::default();
        coming.see(begun, holds(1_000_000, 0, true));
        coming.see(begun + after(6), holds(1_000_000, 599_999, true));
        let slow = coming.slow(&RULE).map(|slow| (slow.option, slow.seconds));
        assert_eq!(slow, Some(("--frame-timeout", 6)));
        coming.see(begun + after(6), holds(1_000_000, 600_000, true));
        assert!(coming.slow(&RULE).is_none());
    }

    #[test]
    fn what_waits_for_our_memory_and_what_has_come_whole_is_not_slow() {
        let begun = Instant::now();
        let mut coming = Coming::default();
        coming.see(begun, holds(1, 0, false));
        assert_eq!(coming.due(), None);
        coming.see(begun + after(60), holds(1, 0, true));
        coming.see(begun + after(64), holds(1, 0, true));
        assert!(coming.slow(&RULE).is_none(), "4 s of its own");
        let whole = Holds {
            finished: 1,
            ..holds(1, 10, true)
        };
        coming.see(begun + after(66), whole);
        assert!(coming.slow(&RULE).is_none(), "another one has begun");
        coming.see(begun + after(71), whole);
        assert!(coming.slow(&RULE).is_some());
        coming.see(begun + after(71), Holds { bytes: 0, ..whole });
        assert!(coming.slow(&RULE).is_none());
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
