//! The number of connections, in all and of each origin: a client's address, or a local user. A
//! connection holds a slot from the moment its origin is known until it ends, also while its TLS
//! handshake is awaited.
//!
//! ```text
//!            taken ──► waiting for its turn ──► greeting ──► admitted ──► given back
//!              ▲                └───────────────────┴────────────┴──────► displaced
//! unclaimed ───┘ claimed
//! ```
//!
//! A proxy's connection is unclaimed until its PROXY header has named the client. There may be as
//! many unclaimed connections as slots are free, and a few more ([`Limits::unclaimed`]); they keep
//! no client from a slot.
//!
//! A connection is displaced when all slots are taken, its origin has the most of them, and an
//! origin that has fewer asks for one. The least useful connection is displaced: one that is not
//! admitted, else the one that has brought the least.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ackline_core::{Connection, LimitHit};
use tokio::sync::Notify;

use super::reason::Reason;
use crate::Link;

/// The slots of an acceptor.
#[derive(Debug)]
pub(crate) struct Slots {
    limits: Limits,
    taken: Mutex<Taken>,
}

/// The most connections that are allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) all: usize,
    /// Connections of one origin.
    pub(crate) of_one: usize,
    /// Connections of one origin that are not yet admitted.
    pub(crate) greeting: usize,
    /// Unclaimed connections when all slots are taken.
    pub(crate) unclaimed: usize,
}

impl Limits {
    /// The limits for `all` connections, of which one origin may have `of_one`: a number, 0 for
    /// all, or by default all but an eighth. A tenth of all, or [`LEAST_GREETING`], may be not yet
    /// admitted, and as many may be unclaimed.
    pub(super) fn new(all: usize, of_one: Option<usize>) -> Self {
        let tenth = (all / 10).max(LEAST_GREETING);
        Self {
            all,
            of_one: match of_one {
                Some(0) => usize::MAX,
                Some(limit) => limit,
                None => all - all / 8,
            },
            greeting: tenth,
            unclaimed: tenth,
        }
    }
}

/// The key by which a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// A client's address; for IPv6 its /64, which a single host owns whole.
    Address(IpAddr),
    /// The user id of the process at the other end of a Unix socket, or `None` where the system does not say.
    User(Option<u32>),
}

impl Origin {
    /// The origin of a client's address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Ipv6Addr::from(network).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::User(Some(id)) => write!(f, "user {id}"),
            Self::User(None) => f.write_str("an unknown user"),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Taken {
    all: usize,
    unclaimed: usize,
    next: u64,
    pub(crate) of: HashMap<Origin, Held>,
    /// The origins, ordered by their number of slots.
    pub(crate) by_count: BTreeSet<(usize, Origin)>,
}

/// The slots of one origin.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) slots: BTreeMap<u64, Arc<Holder>>,
    /// The slots that are not admitted, and those of them whose first bytes or handshake are
    /// awaited.
    pub(crate) waiting: BTreeSet<u64>,
    pub(crate) greeting: BTreeSet<u64>,
}

/// The connection that holds a slot.
#[derive(Default)]
pub(crate) struct Holder {
    is_displaced: AtomicBool,
    displaced: Notify,
    /// Returns how much the connection has brought.
    use_of: Mutex<Option<Use>>,
}

type Use = Arc<dyn Fn() -> u64 + Send + Sync>;

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("is_displaced", &self.is_displaced)
            .finish_non_exhaustive()
    }
}

impl Slots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: Mutex::default(),
        }
    }

    /// Takes a slot for a connection of this origin; another connection may be displaced for it.
    pub(crate) fn take(self: &Arc<Self>, origin: Origin) -> Result<Slot, Reason> {
        let holder = Arc::default();
        let id = self.with_room(origin)?.seat(origin, &holder);
        Ok(Slot {
            slots: Arc::clone(self),
            id,
            holder,
            origin: Some(origin),
        })
    }

    /// Counts a connection of a proxy, which takes its slot when it is [claimed](Slot::claim).
    pub(crate) fn take_unclaimed(self: &Arc<Self>) -> Result<Slot, Reason> {
        let limit = self.limits.all.saturating_add(self.limits.unclaimed);
        let mut taken = self.lock();
        if taken.open() >= limit {
            return Err(Reason::Unclaimed(hit(taken.open(), limit, MAX_CONNECTIONS)));
        }
        taken.unclaimed += 1;
        Ok(Slot {
            slots: Arc::clone(self),
            id: 0,
            holder: Arc::default(),
            origin: None,
        })
    }

    /// Locks the slots when one is free for this origin; another connection may be displaced for
    /// it.
    fn with_room(&self, origin: Origin) -> Result<MutexGuard<'_, Taken>, Reason> {
        let limits = self.limits;
        let mut taken = self.lock();
        // Another connection may be faster and take the slot that was made free.
        while taken.all >= limits.all {
            let full = hit(taken.all, limits.all, MAX_CONNECTIONS);
            drop(taken);
            if !self.make_room(origin) {
                return Err(Reason::Limit(full));
            }
            taken = self.lock();
        }
        let count = taken.count(origin);
        if count >= limits.of_one {
            return Err(Reason::Limit(hit(count, limits.of_one, MAX_PER_ADDRESS)));
        }
        Ok(taken)
    }

    /// Displaces a connection of the origin that has the most, for one of this origin. Returns
    /// whether one was displaced.
    fn make_room(&self, asking: Origin) -> bool {
        let mut taken = self.lock();
        let own = taken.count(asking);
        let Some((most, greediest)) = taken.by_count.last().copied() else {
            return false;
        };
        if most <= own + 1 {
            return false;
        }
        let from = taken.next.wrapping_mul(SCATTER) % taken.next.max(1);
        let Some(held) = taken.of.get(&greediest) else {
            return false;
        };
        let waiting = held.waiting.first().copied();
        let some = held.slots.range(from..).chain(held.slots.range(..from));
        let some: Vec<_> = some
            .take(MOST_LOOKED_AT)
            .map(|(id, holder)| (*id, Arc::clone(holder)))
            .collect();
        if let Some(id) = waiting {
            return taken.displace(greediest, id);
        }
        // Without the lock: this locks each link.
        drop(taken);
        let least = some.iter().min_by_key(|(_, holder)| holder.brought());
        least.is_some_and(|(id, _)| self.lock().displace(greediest, *id))
    }

    /// Connections that hold a slot or are unclaimed.
    pub(crate) fn open(&self) -> usize {
        self.lock().open()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn open(&self) -> usize {
        self.all + self.unclaimed
    }

    /// Slots of one origin.
    fn count(&self, origin: Origin) -> usize {
        self.of.get(&origin).map_or(0, |held| held.slots.len())
    }

    /// Gives a connection of this origin a slot. Returns its number.
    fn seat(&mut self, origin: Origin, holder: &Arc<Holder>) -> u64 {
        let before = self.count(origin);
        self.all += 1;
        self.next += 1;
        let held = self.of.entry(origin).or_default();
        held.slots.insert(self.next, Arc::clone(holder));
        held.waiting.insert(self.next);
        self.by_count.remove(&(before, origin));
        self.by_count.insert((before + 1, origin));
        self.next
    }

    /// Ends the connection that holds this slot, and counts it no longer. Returns whether it was
    /// there.
    fn displace(&mut self, origin: Origin, id: u64) -> bool {
        let Some(holder) = self.give_back(origin, id) else {
            return false;
        };
        holder.is_displaced.store(true, Ordering::Release);
        holder.displaced.notify_waiters();
        true
    }

    fn give_back(&mut self, origin: Origin, id: u64) -> Option<Arc<Holder>> {
        let held = self.of.get_mut(&origin)?;
        let before = held.slots.len();
        let holder = held.slots.remove(&id)?;
        self.all -= 1;
        held.waiting.remove(&id);
        held.greeting.remove(&id);
        self.by_count.remove(&(before, origin));
        if before == 1 {
            self.of.remove(&origin);
        } else {
            self.by_count.insert((before - 1, origin));
        }
        Some(holder)
    }
}

impl Holder {
    async fn during<T>(self: Arc<Self>, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut displaced = pin!(async {
            loop {
                // Notifications from here on are seen.
                let displaced = self.displaced.notified();
                if self.is_displaced.load(Ordering::Acquire) {
                    return;
                }
                displaced.await;
            }
        });
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            displaced.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    fn brought(&self) -> u64 {
        let use_of = self.use_of.lock().unwrap_or_else(PoisonError::into_inner);
        let use_of = use_of.clone();
        use_of.map_or(0, |brought| brought())
    }
}

/// The right to one connection; dropping it returns the slot.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    /// The slot's number, if it is claimed.
    id: u64,
    holder: Arc<Holder>,
    /// `None` while it is unclaimed.
    origin: Option<Origin>,
}

impl Slot {
    /// Takes a slot of this origin for an unclaimed connection; another connection may be displaced
    /// for it.
    pub(crate) fn claim(&mut self, origin: Origin) -> Result<(), Reason> {
        let mut taken = self.slots.with_room(origin)?;
        taken.unclaimed -= 1;
        self.id = taken.seat(origin, &self.holder);
        self.origin = Some(origin);
        Ok(())
    }

    /// Marks the first bytes, or a handshake, as awaited from here on.
    pub(crate) fn greets(&self) -> Result<(), Reason> {
        let limit = self.slots.limits.greeting;
        let mut taken = self.slots.lock();
        let Some(held) = self.origin.and_then(|origin| taken.of.get_mut(&origin)) else {
            return Ok(());
        };
        if !held.slots.contains_key(&self.id) {
            // Another connection has taken the slot.
            return Ok(());
        }
        if held.greeting.len() >= limit {
            let hit = hit(held.greeting.len(), limit, MAX_CONNECTIONS);
            return Err(Reason::Greeting(hit));
        }
        held.greeting.insert(self.id);
        Ok(())
    }

    /// The origin by which the connection is counted.
    pub(super) const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Marks the connection as admitted; from here on `brought` says how useful it is.
    pub(crate) fn admitted(&self, brought: impl Fn() -> u64 + Send + Sync + 'static) {
        let mut use_of = self.holder.use_of.lock();
        *use_of.as_deref_mut().unwrap_or(&mut None) = Some(Arc::new(brought));
        drop(use_of);
        let mut taken = self.slots.lock();
        if let Some(held) = self.origin.and_then(|origin| taken.of.get_mut(&origin)) {
            held.waiting.remove(&self.id);
            held.greeting.remove(&self.id);
        }
    }

    /// Marks the connection as admitted; the work of `link` says how useful it is.
    pub fn serves<C: Connection + Send + 'static>(&self, link: &Link<C>) {
        let link = link.clone();
        self.admitted(move || link.brought());
    }

    /// Whether another connection has taken this one's slot.
    pub fn is_displaced(&self) -> bool {
        self.holder.is_displaced.load(Ordering::Acquire)
    }

    /// The result of `work`; `None` if another connection takes the slot before.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        Arc::clone(&self.holder).during(work).await
    }

    /// Drives `link`, which is aborted if another connection takes the slot before it ends.
    pub async fn drive<C: Connection, T>(
        &self,
        link: &Link<C>,
        driving: impl Future<Output = T>,
    ) -> T {
        let mut driving = pin!(driving);
        if let Some(driven) = self.during(&mut driving).await {
            return driven;
        }
        link.abort();
        driving.await
    }

    /// As [`during`](Self::during), for work that owns the slot.
    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.holder))
    }
}

/// Sees whether a slot is displaced.
pub(crate) struct Watch(Arc<Holder>);

impl Watch {
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> Option<T> {
        self.0.during(work).await
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        match self.origin {
            // A displaced connection has returned its slot already.
            Some(origin) => drop(taken.give_back(origin, self.id)),
            None => taken.unclaimed -= 1,
        }
        drop(taken);
        // The callback holds the link, which would live on.
        *self
            .holder
            .use_of
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn hit(taken: usize, limit: usize, option: &'static str) -> LimitHit {
    let to_u64 = crate::units::to_u64;
    LimitHit {
        value: to_u64(taken.saturating_add(1)),
        limit: to_u64(limit),
        option,
    }
}

const MAX_CONNECTIONS: &str = "--max-connections";
const MAX_PER_ADDRESS: &str = "--max-connections-per-address";
/// Connections of one origin that may wait to be admitted, however few there may be in all.
const LEAST_GREETING: usize = 64;
/// Connections that are compared when one must be displaced.
const MOST_LOOKED_AT: usize = 64;
/// Spreads the start of that comparison.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests;
