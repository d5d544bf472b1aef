//! The state that is remembered of one sender over all its connections.
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

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_core::locked;
use tokio::time::Instant;

use super::base::{Base, Wanted};
use super::order::RUN;
use super::trail::{Sizes, Standing, Trail};

/// One sender.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Changes when a connection of it begins or ends: those that are open compare again.
    epoch: AtomicU64,
    roll: Mutex<Roll>,
    /// Locked by the connection that compares, until the blocks that it compared are handed to the spool.
    pub(super) base: Arc<tokio::sync::Mutex<Base>>,
}

/// Its connections. Those that have ended are numbered, oldest first, and looked at again only where something
/// of them can have changed: a sender may have thousands, and each new connection asks.
#[derive(Debug, Default)]
pub(super) struct Roll {
    open: HashMap<u64, Arc<Trail>>,
    /// Oldest first.
    ended: VecDeque<Ended>,
    /// The number of the first of them. It becomes smaller when connections from before this start are put
    /// before them.
    first: u64,
    /// As many connections have come as had ended, and matched nothing: those below this number are compared with
    /// again when one more comes. One of them may have been new, and the sender of these is still to come.
    aside: u64,
    /// Those of which something may still land.
    unsettled: BTreeSet<u64>,
    /// Those of which the base lacks something.
    unread: BTreeSet<u64>,
    /// Connections that are no longer here, and of which the base may hold something.
    forgotten: Vec<u64>,
    /// Blocks and events of those that have ended.
    sizes: Arc<Sizes>,
    /// Connections that have ended, of all senders.
    departed: Arc<AtomicUsize>,
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
}

impl Sender {
    /// One of several senders: `departed` counts the remembered connections of all.
    pub(super) fn new(departed: &Arc<AtomicUsize>) -> Self {
        let sender = Self::default();
        locked(&sender.roll).departed = Arc::clone(departed);
        sender
    }

    /// A connection sends its first window; whether there is anything to compare it with.
    pub(super) fn join(&self, trail: &Arc<Trail>, before: Vec<Arc<Trail>>, since: Instant) -> bool {
        let mut roll = locked(&self.roll);
        roll.missing += before.len();
        roll.put_before(before, since);
        roll.forget_old();
        if roll.missing == 0 {
            roll.expect_all();
        }
        roll.missing = roll.missing.saturating_sub(1);
        roll.open.insert(trail.id, Arc::clone(trail));
        // Of those that are open one may be stalled, or its end be about to be seen.
        let others = roll.is_few() && roll.open.len() > 1;
        let compares = others || roll.is_expecting();
        if compares {
            roll.comparing.insert(trail.id);
        }
        // Among many the end of the one that it comes after may not have been seen yet.
        compares || !roll.is_few()
    }

    /// A connection is over: the windows that it landed, and still lands, are remembered.
    pub(super) fn leave(&self, trail: &Arc<Trail>) {
        let mut roll = locked(&self.roll);
        roll.comparing.remove(&trail.id);
        if roll.open.remove(&trail.id).is_none() {
            return;
        }
        let is_in_order = trail.standing() == Standing::InOrder;
        if is_in_order {
            roll.lately.push_back((Arc::clone(trail), Instant::now()));
        }
        if is_in_order && trail.size().1 < RUN {
            // Too little to come again.
            roll.forget_old();
            return;
        }
        roll.missing += 1;
        roll.push(trail);
        roll.forget_old();
        if !is_in_order {
            self.stir(&mut roll);
        }
    }

    /// A connection has had enough windows that match nothing. When all have, and none is missing, nothing
    /// more is expected of those that are there.
    pub(super) fn is_quiet(&self, trail: &Trail, base: &mut Base) {
        let mut roll = locked(&self.roll);
        roll.comparing.remove(&trail.id);
        if roll.comparing.is_empty() && roll.missing == 0 {
            roll.aside = roll.next();
            roll.unread.clear();
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
        self.stir(&mut locked(&self.roll));
        self.epoch()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether connections that were open all the time compare again at a change: where many senders stand
    /// behind one address, connections always come and go.
    pub(super) fn is_few(&self) -> bool {
        locked(&self.roll).is_few()
    }

    /// The other connections that are open; of many, some.
    pub(super) fn open(&self, own: &Trail) -> Vec<Arc<Trail>> {
        let roll = locked(&self.roll);
        let open = roll.open.values().filter(|trail| trail.id != own.id);
        open.take(MOST_LOOKED_AT).cloned().collect()
    }

    /// Whether another connection is open.
    pub(super) fn has_open(&self, own: &Trail) -> bool {
        let roll = locked(&self.roll);
        roll.open.len() > usize::from(roll.open.contains_key(&own.id))
    }

    /// Whether there are connections that this one is compared with.
    pub(super) fn has_others(&self, own: &Trail) -> bool {
        let mut roll = locked(&self.roll);
        roll.forget_old();
        let mut newest = roll.expected().rev();
        newest.any(|one| one.trail.id != own.id) || !roll.stalled(own).is_empty()
    }

    /// Of the connections that this one is compared with, those that are open.
    pub(super) fn stalled(&self, own: &Trail) -> Vec<Arc<Trail>> {
        locked(&self.roll).stalled(own)
    }

    /// Of those that have ended, the last one below this number of which something may still land and that is so.
    /// One by one: thousands may wait for thousands, and none of them holds a list of the others.
    pub(super) fn unsettled_below(
        &self,
        below: u64,
        own: &Trail,
        is_so: impl Fn(&Trail) -> bool,
    ) -> Option<(u64, Arc<Trail>)> {
        let mut roll = locked(&self.roll);
        let mut settled = Vec::new();
        let mut found = None;
        for number in roll
            .unsettled
            .range(roll.aside..below.max(roll.aside))
            .rev()
        {
            match at(&roll.ended, roll.first, *number) {
                Some(one) if !one.trail.is_settled() => {
                    if one.trail.id != own.id && is_so(&one.trail) {
                        found = Some((*number, Arc::clone(&one.trail)));
                        break;
                    }
                }
                _ => settled.push(*number),
            }
        }
        for number in settled {
            roll.unsettled.remove(&number);
        }
        found
    }

    /// Those that are compared with event by event as well, where the end of this one has come: events that
    /// it still brings may have been sent again already, by one that is open or has ended in order since.
    pub(super) fn later(&self, own: &Trail) -> Vec<Arc<Trail>> {
        if !own.is_over() {
            return Vec::new();
        }
        let roll = locked(&self.roll);
        let open = roll.open.values().filter(|_| roll.is_few());
        let open = open.filter(|trail| trail.standing() == Standing::Open);
        let lately = roll.lately.iter().map(|(trail, _)| trail);
        let all = open.chain(lately).filter(|trail| trail.id != own.id);
        all.cloned().collect()
    }

    /// The blocks to read, in order, so that `base` holds the last blocks of the connections that this one is
    /// compared with; counts them as read.
    pub(super) fn wanted(&self, base: &mut Base, own: &Trail) -> Vec<Wanted> {
        let mut roll = locked(&self.roll);
        let forgotten = std::mem::take(&mut roll.forgotten);
        if forgotten.len() >= MOST_ENDED {
            *base = Base::default();
        }
        base.forget(&forgotten);
        if !std::mem::replace(&mut base.is_begun, true) {
            roll.unread = (roll.aside.max(roll.first)..roll.next()).collect();
        }
        let mut others = Vec::new();
        let unread = std::mem::take(&mut roll.unread);
        for number in unread {
            let Some(one) = at(&roll.ended, roll.first, number) else {
                continue;
            };
            let is_whole = one.trail.id != own.id && one.trail.is_settled();
            if one.trail.id != own.id {
                others.push(Arc::clone(&one.trail));
            }
            if !is_whole {
                roll.unread.insert(number);
            }
        }
        others.extend(roll.stalled(own));
        drop(roll);
        base.wanted(&others, MOST_EVENTS)
    }

    /// Whether nothing of it is worth remembering.
    pub(super) fn is_forgotten(&self) -> bool {
        let mut roll = locked(&self.roll);
        roll.forget_old();
        roll.open.is_empty() && roll.ended.is_empty() && roll.lately.is_empty()
    }

    /// When its last connection ended; `None` while one is open.
    pub(super) fn left(&self) -> Option<Instant> {
        let roll = locked(&self.roll);
        let last = roll.ended.back().map(|one| one.since);
        last.filter(|_| roll.open.is_empty())
    }

    pub(super) fn is_comparing(&self, trail: &Trail) {
        let mut roll = locked(&self.roll);
        if roll.open.contains_key(&trail.id) {
            roll.comparing.insert(trail.id);
        }
    }

    /// Connections that the next one looks at.
    #[cfg(test)]
    pub(super) fn looks_at(&self) -> usize {
        let roll = locked(&self.roll);
        roll.unsettled.len().max(roll.unread.len())
    }
}

impl Roll {
    fn is_few(&self) -> bool {
        self.open.len() <= FEW
    }

    /// The number of the next one that ends.
    fn next(&self) -> u64 {
        self.first.saturating_add(self.ended.len() as u64)
    }

    fn push(&mut self, trail: &Arc<Trail>) {
        let number = self.next();
        self.add(number, trail);
        let (trail, since) = (Arc::clone(trail), Instant::now());
        self.ended.push_back(Ended { trail, since });
    }

    /// Adds the connections that ended before this start.
    fn put_before(&mut self, before: Vec<Arc<Trail>>, since: Instant) {
        if self.ended.is_empty() {
            // Room for numbers below.
            self.first = self.first.max(1 << 32);
        }
        for trail in before {
            let Some(number) = self.first.checked_sub(1) else {
                return;
            };
            self.first = number;
            self.add(number, &trail);
            self.ended.push_front(Ended { trail, since });
        }
    }

    fn add(&mut self, number: u64, trail: &Trail) {
        trail.count_in(&self.sizes);
        self.departed.fetch_add(1, Ordering::Relaxed);
        self.unsettled.insert(number);
        self.unread.insert(number);
    }

    /// Forgets connections that are too old or too many, the oldest first.
    fn forget_old(&mut self) {
        while let Some(oldest) = self.ended.front()
            && (oldest.trail.is_finished() || self.ended.len() > MOST_ENDED)
            && (self.is_much() || oldest.since.elapsed() >= EXPIRY)
        {
            let number = self.first;
            oldest.trail.count_out();
            if self.forgotten.len() < MOST_ENDED {
                self.forgotten.push(oldest.trail.id);
            }
            self.departed.fetch_sub(1, Ordering::Relaxed);
            self.ended.pop_front();
            self.first = number + 1;
            self.unsettled.remove(&number);
            self.unread.remove(&number);
        }
        while let Some((_, since)) = self.lately.front()
            && (self.lately.len() > MOST_LATELY || since.elapsed() >= LATELY)
        {
            self.lately.pop_front();
        }
        if !self.is_expecting() {
            self.missing = 0;
        }
    }

    /// Whether the oldest of those that have ended has no room.
    fn is_much(&self) -> bool {
        let (spans, events) = self.sizes.get();
        let count = self.ended.len();
        let is_large = spans > MOST_SPANS || events > MOST_EVENTS;
        let is_crowded = self.departed.load(Ordering::Relaxed) > MOST_DEPARTED;
        count > MOST_ENDED || (is_large && count > 1) || (is_crowded && count > FEW)
    }

    /// All of them may come again.
    fn expect_all(&mut self) {
        if self.aside > self.first {
            self.unread = (self.first..self.next()).collect();
        }
        self.aside = 0;
    }

    fn is_expecting(&self) -> bool {
        !self.ended.is_empty() && self.next() > self.aside
    }

    /// Those that ended and whose events may come again.
    fn expected(&self) -> impl DoubleEndedIterator<Item = &Ended> {
        let aside = self.aside.saturating_sub(self.first);
        let aside = usize::try_from(aside).unwrap_or(usize::MAX);
        self.ended.range(aside.min(self.ended.len())..)
    }

    /// Open ones that count as cut off; none of many.
    fn stalled(&self, own: &Trail) -> Vec<Arc<Trail>> {
        let open = self.open.values().filter(|_| self.is_few());
        let stalled = open.filter(|trail| trail.id != own.id && trail.standing() != Standing::Open);
        stalled.cloned().collect()
    }
}

impl Drop for Roll {
    fn drop(&mut self) {
        self.departed.fetch_sub(self.ended.len(), Ordering::Relaxed);
    }
}

/// The one of this number.
fn at(ended: &VecDeque<Ended>, first: u64, number: u64) -> Option<&Ended> {
    let at = usize::try_from(number.checked_sub(first)?).ok()?;
    ended.get(at)
}

/// The time for which the windows that a connection landed are remembered.
pub(super) const EXPIRY: Duration = Duration::from_secs(3_600);
/// Events of one sender that are remembered: 20 MB of digests while they are compared.
pub(super) const MOST_EVENTS: u64 = 1_000_000;
/// Blocks of one sender that are remembered: 1 MiB of positions.
const MOST_SPANS: u64 = 65_536;
/// Connections of one sender that are remembered after their end.
const MOST_ENDED: usize = 16_384;
/// The same of all senders together, at 1 KiB each: above it each sender that has more than a few forgets its oldest.
pub(super) const MOST_DEPARTED: usize = 65_536;
/// For how long, and of how many, is remembered that they ended in order just now.
const LATELY: Duration = Duration::from_secs(10);
const MOST_LATELY: usize = 64;
/// Open connections that are looked at, whether their end has come: 1 ms.
const MOST_LOOKED_AT: usize = 1_024;
/// Open connections up to which a sender is taken for one that uses several.
const FEW: usize = 16;
