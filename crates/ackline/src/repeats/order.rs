//! Stretches of events that come again in the order in which they had landed.
//!
//! A sender whose connection ended in order had its acknowledgements. It sends again only if it lost its
//! record of them, and then a whole stretch: single events that are equal to events that it landed are new
//! ones. So the events that it landed are kept in order, and found again by eight different events in a row
//! that begin at a multiple of eight: each stretch of sixteen different ones has such.

use std::collections::{HashMap, VecDeque};

/// Events in a row, all of them different, from which on a stretch counts as sent before.
pub(super) const RUN: u64 = 16;

const RUN_EVENTS: usize = 16;
/// Events by which a stretch is found, and how far apart such places are.
const SEED: usize = 8;
/// Places with the same seed that are looked at in each run, the newest first.
const MOST_PLACES: usize = 8;
/// Events that are looked back at when a stretch is found late, as after others that are equal.
const RECENT: usize = 64;

/// The last events of connections that ended in order.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    trails: HashMap<u64, Landed>,
    /// Sorted runs, each at least twice as long as the next one.
    seeds: Vec<Vec<Seed>>,
    len: usize,
}

/// The last events of one of them, in order.
#[derive(Debug)]
struct Landed {
    digests: Vec<u64>,
    /// Bits of those that have answered: each copy does so once.
    used: Vec<u64>,
}

/// Where eight events in a row stand: those of one connection, from this one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seed {
    sum: u64,
    first: usize,
    trail: u64,
}

impl Ordered {
    /// Adds the events that these connections landed, the digests of each in order.
    pub(super) fn add(&mut self, new: impl IntoIterator<Item = (u64, Vec<u128>)>) {
        let mut run = Vec::new();
        for (trail, digests) in new {
            let digests: Vec<u64> = digests.into_iter().map(short).collect();
            let seeds = digests.chunks_exact(SEED).zip((0..).step_by(SEED));
            let seeds = seeds.filter(|(seed, _)| are_different(seed));
            run.extend(seeds.map(|(seed, first)| Seed {
                sum: sum(seed.iter().copied()),
                first,
                trail,
            }));
            let used = vec![0; digests.len().div_ceil(64)];
            self.len += digests.len();
            let landed = Landed { digests, used };
            if let Some(before) = self.trails.insert(trail, landed) {
                self.len -= before.digests.len();
            }
        }
        if run.is_empty() {
            return;
        }
        run.sort_unstable();
        while let Some(mut before) = self.seeds.pop_if(|before| before.len() < run.len() * 2) {
            before.append(&mut run);
            // Of two sorted halves: that takes no longer than to move them.
            before.sort();
            run = before;
        }
        run.shrink_to_fit();
        self.seeds.push(run);
    }

    /// Digests that are held.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trails.is_empty()
    }

    /// Whether this event of a connection is that one, and has not answered.
    fn is(&self, trail: u64, at: usize, digest: u64) -> bool {
        self.trails
            .get(&trail)
            .is_some_and(|landed| landed.digests.get(at) == Some(&digest) && !bit(&landed.used, at))
    }

    fn answer(&mut self, trail: u64, at: usize) {
        let landed = self.trails.get_mut(&trail);
        if let Some(word) = landed.and_then(|landed| landed.used.get_mut(at / 64)) {
            *word |= 1 << (at % 64);
        }
    }

    /// The longest stretch that ends with these events.
    fn find(&self, recent: &VecDeque<Recent>) -> Option<Stretch> {
        let from = recent.len().checked_sub(SEED)?;
        let sum = sum(recent.range(from..).map(|one| one.digest));
        let places = self.seeds.iter().flat_map(|run| {
            let end = run.partition_point(|seed| seed.sum <= sum);
            let seeds = run.get(..end).unwrap_or_default().iter().rev();
            seeds.take_while(|seed| seed.sum == sum).take(MOST_PLACES)
        });
        let found = places.map(|seed| {
            let next = seed.first + SEED;
            let back = recent.iter().rev().zip((0..next).rev());
            let back = back.take_while(|(one, at)| self.is(seed.trail, *at, one.digest));
            Stretch {
                trail: seed.trail,
                next,
                len: back.count(),
                is_sure: false,
            }
        });
        let found = found.filter(|stretch| stretch.len >= SEED);
        found.max_by_key(|stretch| stretch.len)
    }
}

/// A stretch that is being followed.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    trail: u64,
    /// Where its next event stands.
    next: usize,
    len: usize,
    /// It is long enough to have been sent before.
    is_sure: bool,
}

#[derive(Debug, Clone, Copy)]
struct Recent {
    digest: u64,
    /// Its row, while that can be marked.
    row: Option<usize>,
}

/// The progress of one connection's events along the events that had landed.
#[derive(Debug, Default)]
pub(super) struct Following {
    recent: VecDeque<Recent>,
    stretch: Option<Stretch>,
}

impl Following {
    /// The next event, in this row. Marks the rows that were sent before, which may be earlier ones, too.
    pub(super) fn next(
        &mut self,
        ordered: &mut Ordered,
        (digest, row): (u128, usize),
        mut mark: impl FnMut(usize),
    ) {
        let digest = short(digest);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let row = Some(row);
        self.recent.push_back(Recent { digest, row });
        let goes_on = self
            .stretch
            .filter(|at| ordered.is(at.trail, at.next, digest));
        self.stretch = match goes_on {
            Some(stretch) => Some(Stretch {
                next: stretch.next + 1,
                len: stretch.len + 1,
                ..stretch
            }),
            None => ordered.find(&self.recent),
        };
        let Some(stretch) = &mut self.stretch else {
            return;
        };
        let new = if stretch.is_sure {
            1
        } else if stretch.len >= RUN_EVENTS && is_run(&self.recent) {
            stretch.is_sure = true;
            stretch.len
        } else {
            0
        };
        let (trail, next) = (stretch.trail, stretch.next);
        for (one, at) in self.recent.iter().rev().zip((0..next).rev()).take(new) {
            ordered.answer(trail, at);
            one.row.into_iter().for_each(&mut mark);
        }
    }

    /// Whether the last events may be the beginning of a stretch.
    pub(super) fn is_hopeful(&self) -> bool {
        self.stretch.is_some()
    }

    /// The rows so far cannot be marked any more.
    pub(super) fn end_rows(&mut self) {
        self.recent.iter_mut().for_each(|one| one.row = None);
    }
}

fn is_run(recent: &VecDeque<Recent>) -> bool {
    let from = recent.len().saturating_sub(RUN_EVENTS);
    let last: Vec<u64> = recent.range(from..).map(|one| one.digest).collect();
    are_different(&last)
}

fn are_different(digests: &[u64]) -> bool {
    let mut after = digests.iter();
    digests.iter().all(|one| {
        after.next();
        !after.as_slice().contains(one)
    })
}

fn bit(words: &[u64], at: usize) -> bool {
    words
        .get(at / 64)
        .is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// Half of a digest: of these it takes thousands of millions until two that differ look alike, and sixteen in
/// a row must.
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn short(digest: u128) -> u64 {
    digest as u64
}

/// Depends on all digests and on their order.
fn sum(digests: impl Iterator<Item = u64>) -> u64 {
    digests.fold(0, |sum, digest| {
        sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(digest)
    })
}
