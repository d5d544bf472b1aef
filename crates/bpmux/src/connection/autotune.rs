//! Autotuning of a window: it gets no larger than makes its half faster.
//!
//! On a long round trip a window of twice the size brings twice the bytes in the same time. Where the ends
//! or the network are no faster, it only makes more bytes wait, and with them all that comes behind. So a window is
//! tried at twice its size, and keeps that if more came with it:
//!
//! ```text
//!          measured          more came: that is the base, and twice as much is tried
//!   Base ────────────► Trial ──┐
//!     ▲                  ▲ │   │
//!     │                  └─┼───┘
//!     │  many rounds       ▼ no more came, or there is no room for more
//!     └───────────────── Rest
//! ```
//!
//! A trial of a large window makes others wait, so it has to be rare: where round trips are short it begins after
//! some time only.
//!
//! After a rest a large window is measured at half its size: so it gets smaller again where it is no more of use.
//! No pings are needed, and the time of one round alone is not judged: only which of two sizes was faster.

use std::time::{Duration, Instant};

/// Bytes that a window may have without a trial. One end sends about half of them at once and the other end reads as much
/// at once, so both have something to do.
pub(super) const FREE: u64 = 512 << 10;

/// Rounds of a measure. One of their windows can come together with the next: that makes a quarter, the gain that
/// [`Rate::is_gain`] asks for.
const ROUNDS: u32 = 5;

/// Rounds until a size is tried again. A trial costs little beside them: half of [`ROUNDS`] that are not filled, or as
/// many in which more bytes wait.
const REST: u32 = 128;

/// From [`FREE`] on, the time until the first trial, and until the next: 128 rounds can be over in 30 ms, and trials that
/// take a hundredth of the time delay one in a hundred messages of a neighbour.
const FIRST: Duration = Duration::from_millis(100);
const NEXT: Duration = Duration::from_secs(1);

/// The autotuning of one window.
#[derive(Debug)]
pub(super) struct Autotune {
    stage: Stage,
    /// Rounds of the measure, or of the rest, so far.
    rounds: u32,
    /// The bytes and the time of all of them.
    came: Rate,
    /// The bytes and the time of the slowest of them.
    slowest: Rate,
    /// The end of the last round.
    last: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The size stays for so many rounds and so long. With no rounds it has just grown, and is not halved afterwards.
    Rest { rounds: u32, time: Duration },
    /// The bytes that come are measured.
    Base,
    /// The bytes that come are compared with those that came with the smaller size.
    Trial { from: u64, base: Rate },
}

impl Autotune {
    /// Begins for a window that has just become so large.
    pub(super) const fn new(now: Instant, size: u64) -> Self {
        let stage = match size {
            ..FREE => Stage::Base,
            FREE.. => Stage::Rest {
                rounds: 0,
                time: FIRST,
            },
        };
        Self::at(now, stage)
    }

    const fn at(now: Instant, stage: Stage) -> Self {
        Self {
            stage,
            rounds: 0,
            came: Rate::ZERO,
            slowest: Rate::ZERO,
            last: now,
        }
    }

    /// The size has changed to this for another reason, or there is no room for more.
    pub(super) const fn rest(&mut self, now: Instant, size: u64) {
        let time = match size {
            ..FREE => Duration::ZERO,
            FREE.. => NEXT,
        };
        *self = Self::at(now, Stage::Rest { rounds: REST, time });
    }

    /// A round of so many bytes is over. Returns the size for the next one, of `most` at the most.
    pub(super) fn round(&mut self, now: Instant, bytes: u64, size: u64, most: u64) -> u64 {
        let time = now.saturating_duration_since(self.last);
        self.last = now;
        self.rounds = self.rounds.saturating_add(1);
        self.came = self.came.plus(bytes, time);
        if time > self.slowest.time {
            self.slowest = Rate { bytes, time };
        }
        let is_over = match self.stage {
            Stage::Rest { rounds, time } => self.rounds >= rounds && self.came.time >= time,
            Stage::Base | Stage::Trial { .. } => self.rounds >= ROUNDS,
        };
        if !is_over {
            return size;
        }
        // A larger window would not shorten a pause of the writer or of a processor.
        let steady = self.came.minus(self.slowest);
        match self.stage {
            Stage::Rest { rounds, .. } => {
                *self = Self::at(now, Stage::Base);
                let half = (size / 2).max(FREE).min(size);
                if rounds == 0 { size } else { half }
            }
            Stage::Base => self.try_larger(now, size, steady, most),
            Stage::Trial { base, .. } if self.came.is_gain(base) => {
                self.try_larger(now, size, steady, most)
            }
            Stage::Trial { from, .. } => {
                self.rest(now, from);
                from
            }
        }
    }

    fn try_larger(&mut self, now: Instant, from: u64, base: Rate, most: u64) -> u64 {
        if from >= most {
            self.rest(now, from);
            return from;
        }
        *self = Self::at(now, Stage::Trial { from, base });
        from.saturating_mul(2).min(most)
    }
}

/// Bytes that came in some time.
#[derive(Debug, Clone, Copy)]
struct Rate {
    bytes: u64,
    time: Duration,
}

impl Rate {
    const ZERO: Self = Self {
        bytes: 0,
        time: Duration::ZERO,
    };

    const fn plus(self, bytes: u64, time: Duration) -> Self {
        Self {
            bytes: self.bytes.saturating_add(bytes),
            time: self.time.saturating_add(time),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            time: self.time.saturating_sub(other.time),
        }
    }

    /// Whether it is faster by a quarter. Twice the size brings twice as much where the round trip is long.
    fn is_gain(self, base: Self) -> bool {
        let ours = product(self.bytes, base.time);
        let theirs = product(base.bytes, self.time);
        ours.saturating_mul(4) >= theirs.saturating_mul(5)
    }
}

fn product(bytes: u64, time: Duration) -> u128 {
    u128::from(bytes).saturating_mul(time.as_nanos())
}
