//! What is remembered of one sender over all its connections.
//!
//! ```text
//!            first window              fault or end                 1 h, 1 M events
//! (unknown) ─────────────► open ───────────────────────► ended ─────────────────────► forgotten
//!                           ▲  positions of 64 windows     │ positions, in Roll          ▲
//!                           │                              │ digests, in Base, on need   │
//!                           └── compares, while ended or ──┘                             │
//!                               other open ones are there; all quiet, none missing:      │
//!                               set aside, until there is one connection more ───────────┘
//!                               (of many: with ended ones alone, also with such as end meanwhile)
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::base::{Base, Wanted};
use super::order::RUN;
use super::trail::{Standing, Trail};

/// One sender.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Changes when a connection of it begins or ends: those that are open compare again.
    epoch: AtomicU64,
    roll: Mutex<Roll>,
    /// Locked by the connection that compares, until what it compared is handed to the spool.
    pub(super) base: Arc<tokio::sync::Mutex<Base>>,
}

/// Its connections.
#[derive(Debug, Default)]
pub(super) struct Roll {
    open: HashMap<u64, Arc<Trail>>,
    /// Oldest first.
    ended: VecDeque<Ended>,
    /// Connections that ended and for which none has come back.
    missing: usize,
    /// Those that ended in order a moment ago.
    lately: VecDeque<(Arc<Trail>, Instant)>,
    /// Those that have not yet had enough windows that match nothing.
    comparing: HashSet<u64>,
}

#[derive(Debug)]
struct Ended {
    trail: Arc<Trail>,
    since: Instant,
    /// As many connections have come as had ended, and matched nothing: it is compared with again when one
    /// more comes. One of them may have been new, and this one's sender is still to come.
    is_aside: bool,
}

impl Sender {
    /// A connection sends its first window; whether there is anything to compare it with.
    pub(super) fn join(&self, trail: &Arc<Trail>, before: Vec<Arc<Trail>>, since: Instant) -> bool {
        let mut roll = self.roll();
        roll.missing += before.len();
        for trail in before {
            roll.ended.push_front(Ended {
                trail,
                since,
                is_aside: false,
            });
        }
        roll.forget_old();
        if roll.missing == 0 {
            roll.ended.iter_mut().for_each(|one| one.is_aside = false);
        }
        roll.missing = roll.missing.saturating_sub(1);
        roll.open.insert(trail.id, Arc::clone(trail));
        // Of those that are open one may be stalled, or its end be about to be seen.
        let others = roll.is_few() && roll.open.len() > 1;
        let compares = others || roll.expected().next().is_some();
        if compares {
            roll.comparing.insert(trail.id);
        }
        // Among many the end of the one that it comes after may not have been seen yet.
        compares || !roll.is_few()
    }

    /// A connection is over: what it landed, and still lands, is remembered.
    pub(super) fn leave(&self, trail: &Arc<Trail>) {
        let mut roll = self.roll();
        roll.comparing.remove(&trail.id);
        if roll.open.remove(&trail.id).is_none() {
            return;
        }
        let is_in_order = trail.standing() == Standing::InOrder;
        if is_in_order {
            roll.lately.push_back((Arc::clone(trail), Instant::now()));
        }
        roll.forget_old();
        if is_in_order && trail.size().1 < RUN {
            // Too little to come again.
            return;
        }
        roll.missing += 1;
        roll.ended.push_back(Ended {
            trail: Arc::clone(trail),
            since: Instant::now(),
            is_aside: false,
        });
        roll.forget_old();
        if !is_in_order {
            self.stir(&mut roll);
        }
    }

    /// A connection has had enough windows that match nothing. When all have, and none is missing, nothing
    /// more is expected of those that are there.
    pub(super) fn is_quiet(&self, trail: &Trail, base: &mut Base) {
        let mut roll = self.roll();
        roll.comparing.remove(&trail.id);
        if roll.comparing.is_empty() && roll.missing == 0 {
            roll.ended.iter_mut().for_each(|one| one.is_aside = true);
            *base = Base::default();
        }
    }

    /// The open connections compare again.
    fn stir(&self, roll: &mut Roll) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        if roll.is_few() {
            let open: Vec<u64> = roll.open.keys().copied().collect();
            roll.comparing.extend(open);
        }
    }

    /// The same, because one of them found a repeat.
    pub(super) fn found(&self) -> u64 {
        self.stir(&mut self.roll());
        self.epoch()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether connections that were open all the time compare again at a change: where many senders stand
    /// behind one address, connections always come and go.
    pub(super) fn is_few(&self) -> bool {
        self.roll().is_few()
    }

    /// The other connections that are open; of many, some.
    pub(super) fn open(&self, own: &Trail) -> Vec<Arc<Trail>> {
        let roll = self.roll();
        let open = roll.open.values().filter(|trail| trail.id != own.id);
        open.take(MOST_LOOKED_AT).cloned().collect()
    }

    /// The connections that this one is compared with.
    pub(super) fn others(&self, own: &Trail) -> Vec<Arc<Trail>> {
        let mut roll = self.roll();
        roll.forget_old();
        let ended = roll.expected().map(|one| &one.trail);
        let open = roll.open.values().filter(|_| roll.is_few());
        let stalled = open.filter(|trail| trail.standing() != Standing::Open);
        let all = ended.chain(stalled).filter(|trail| trail.id != own.id);
        all.cloned().collect()
    }

    /// Those that are compared with event by event as well, where the end of this one has come: what it still
    /// brings may have been sent again already, by one that is open or has ended in order since.
    pub(super) fn later(&self, own: &Trail) -> Vec<Arc<Trail>> {
        if !own.is_over() {
            return Vec::new();
        }
        let roll = self.roll();
        let open = roll.open.values().filter(|_| roll.is_few());
        let open = open.filter(|trail| trail.standing() == Standing::Open);
        let lately = roll.lately.iter().map(|(trail, _)| trail);
        let all = open.chain(lately).filter(|trail| trail.id != own.id);
        all.cloned().collect()
    }

    /// The blocks to read, in order, so that `base` holds the last blocks of these connections; counts it as read.
    pub(super) fn wanted(&self, base: &mut Base, others: &[Arc<Trail>]) -> Vec<Wanted> {
        let kept: HashSet<u64> = {
            let roll = self.roll();
            let ended = roll.ended.iter().map(|one| one.trail.id);
            ended.chain(roll.open.keys().copied()).collect()
        };
        base.forget(&kept);
        base.wanted(others, MOST_EVENTS)
    }

    /// Whether nothing of it is worth remembering.
    pub(super) fn is_forgotten(&self) -> bool {
        let mut roll = self.roll();
        roll.forget_old();
        roll.open.is_empty() && roll.ended.is_empty() && roll.lately.is_empty()
    }

    /// When its last connection ended; `None` while one is open.
    pub(super) fn left(&self) -> Option<Instant> {
        let roll = self.roll();
        let last = roll.ended.back().map(|one| one.since);
        last.filter(|_| roll.open.is_empty())
    }

    pub(super) fn is_comparing(&self, trail: &Trail) {
        let mut roll = self.roll();
        if roll.open.contains_key(&trail.id) {
            roll.comparing.insert(trail.id);
        }
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Roll {
    fn is_few(&self) -> bool {
        self.open.len() <= FEW
    }

    /// Forgets what is too old or too much, the oldest first.
    fn forget_old(&mut self) {
        let (mut kept, mut spans, mut events) = (0, 0, 0);
        for one in self.ended.iter().rev() {
            let size = one.trail.size();
            spans += size.0;
            events += size.1;
            let is_much = kept > 0 && (spans > MOST_SPANS || events > MOST_EVENTS);
            let is_forgotten = is_much || kept == MOST_ENDED || one.since.elapsed() >= EXPIRY;
            if is_forgotten && one.trail.is_finished() {
                break;
            }
            kept += 1;
        }
        self.ended.drain(..self.ended.len() - kept);
        while let Some((_, since)) = self.lately.front()
            && (self.lately.len() > MOST_LATELY || since.elapsed() >= LATELY)
        {
            self.lately.pop_front();
        }
        if self.expected().next().is_none() {
            self.missing = 0;
        }
    }

    /// Those that ended and whose events may come again.
    fn expected(&self) -> impl Iterator<Item = &Ended> {
        self.ended.iter().filter(|one| !one.is_aside)
    }
}

/// How long it is remembered what a connection landed.
pub(super) const EXPIRY: Duration = Duration::from_secs(3_600);
/// Events of one sender that are remembered: 20 MB of digests while they are compared.
pub(super) const MOST_EVENTS: u64 = 1_000_000;
/// Blocks of one sender that are remembered: 1 MiB of positions.
const MOST_SPANS: usize = 65_536;
/// Connections of one sender that are remembered after their end.
const MOST_ENDED: usize = 16_384;
/// For how long, and of how many, is remembered that they ended in order just now.
const LATELY: Duration = Duration::from_secs(10);
const MOST_LATELY: usize = 64;
/// Open connections that are looked at, whether their end has come: 1 ms.
const MOST_LOOKED_AT: usize = 1_024;
/// Open connections up to which a sender is taken for one that uses several.
const FEW: usize = 16;
