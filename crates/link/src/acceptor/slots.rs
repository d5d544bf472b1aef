//! How many connections there are, in all and of each origin: a client's address, or a local user. A slot is
//! held from the moment a connection's origin is known to its end, also while its TLS handshake is awaited.
//!
//! ```text
//!            taken ──► waiting for its turn ──► greeting ──► admitted ──► given back
//!              ▲                └───────────────────┴────────────┴──────► displaced
//! unclaimed ───┘ claimed
//! ```
//!
//! A connection of a proxy is unclaimed until its PROXY header has named the client. There may be as many of them
//! as slots are free, and a few more ([`Limits::unclaimed`]); they keep no client from a slot.
//!
//! A connection is displaced when all slots are taken, its origin has the most of them, and a origin that
//! has fewer asks for one. The least useful goes: one that is not admitted, else the one that has brought least.

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

use super::Why;
use crate::Link;

/// The slots of an acceptor.
#[derive(Debug)]
pub(crate) struct Slots {
    limits: Limits,
    taken: Mutex<Taken>,
}

/// How many there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) all: usize,
    /// Of one origin.
    pub(crate) of_one: usize,
    /// Of one origin, not yet admitted.
    pub(crate) greeting: usize,
    /// Unclaimed connections when all slots are taken.
    pub(crate) unclaimed: usize,
}

impl Limits {
    /// With what one origin may have of `all`: so many, 0 for all, or by default all but an eighth. Not yet
    /// admitted may be a tenth of all, or [`LEAST_GREETING`], and as many may be unclaimed.
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

/// Where a connection counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// A client's address: of IPv6 its /64, which a single host owns whole.
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
    /// The origins by how many they have.
    pub(crate) by_count: BTreeSet<(usize, Origin)>,
}

/// The slots of one origin.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) slots: BTreeMap<u64, Arc<Holder>>,
    /// Those that are not admitted, and those of them whose first bytes or handshake are awaited.
    pub(crate) waiting: BTreeSet<u64>,
    pub(crate) greeting: BTreeSet<u64>,
}

/// The connection that holds a slot.
#[derive(Default)]
pub(crate) struct Holder {
    is_displaced: AtomicBool,
    told: Notify,
    /// How much it has brought.
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

    /// A slot for a connection of this origin, for which another one may have to go.
    pub(crate) fn take(self: &Arc<Self>, origin: Origin) -> Result<Slot, Why> {
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
    pub(crate) fn take_unclaimed(self: &Arc<Self>) -> Result<Slot, Why> {
        let limit = self.limits.all.saturating_add(self.limits.unclaimed);
        let mut taken = self.lock();
        if taken.open() >= limit {
            return Err(Why::Unclaimed(hit(taken.open(), limit, MAX_CONNECTIONS)));
        }
        taken.unclaimed += 1;
        Ok(Slot {
            slots: Arc::clone(self),
            id: 0,
            holder: Arc::default(),
            origin: None,
        })
    }

    /// The slots with a free one for this origin, for which another connection may have to go.
    fn with_room(&self, origin: Origin) -> Result<MutexGuard<'_, Taken>, Why> {
        let limits = self.limits;
        let mut taken = self.lock();
        // Another connection may be faster and take the slot that was made free.
        while taken.all >= limits.all {
            let full = hit(taken.all, limits.all, MAX_CONNECTIONS);
            drop(taken);
            if !self.make_room(origin) {
                return Err(Why::Limit(full));
            }
            taken = self.lock();
        }
        let count = taken.count(origin);
        if count >= limits.of_one {
            return Err(Why::Limit(hit(count, limits.of_one, MAX_PER_ADDRESS)));
        }
        Ok(taken)
    }

    /// Displaces a connection of the origin that has the most, for one of this origin; whether there is one.
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

    /// Gives a connection of this origin a slot: its number.
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

    /// Ends the connection that holds this slot, which counts no longer; whether it was there.
    fn displace(&mut self, origin: Origin, id: u64) -> bool {
        let Some(holder) = self.give_back(origin, id) else {
            return false;
        };
        holder.is_displaced.store(true, Ordering::Release);
        holder.told.notify_waiters();
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
                // It hears what is told from here on.
                let told = self.told.notified();
                if self.is_displaced.load(Ordering::Acquire) {
                    return;
                }
                told.await;
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

/// The right to one connection; dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    /// Number of the slot, once it is claimed.
    id: u64,
    holder: Arc<Holder>,
    /// `None` while it is unclaimed.
    origin: Option<Origin>,
}

impl Slot {
    /// Takes a slot of this origin for an unclaimed connection, for which another one may have to go.
    pub(crate) fn claim(&mut self, origin: Origin) -> Result<(), Why> {
        let mut taken = self.slots.with_room(origin)?;
        taken.unclaimed -= 1;
        self.id = taken.seat(origin, &self.holder);
        self.origin = Some(origin);
        Ok(())
    }

    /// Its first bytes, or a handshake, are awaited from here on.
    pub(crate) fn greets(&self) -> Result<(), Why> {
        let limit = self.slots.limits.greeting;
        let mut taken = self.slots.lock();
        let Some(held) = self.origin.and_then(|origin| taken.of.get_mut(&origin)) else {
            return Ok(());
        };
        if !held.slots.contains_key(&self.id) {
            // Another connection has its origin since.
            return Ok(());
        }
        if held.greeting.len() >= limit {
            let hit = hit(held.greeting.len(), limit, MAX_CONNECTIONS);
            return Err(Why::Greeting(hit));
        }
        held.greeting.insert(self.id);
        Ok(())
    }

    /// Where the connection counts.
    pub(super) const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Nothing more is awaited before its protocol; from here on it is as useful as this says.
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

    /// Nothing more is awaited before `link`, by whose work it is told how useful the connection is.
    pub fn serves<C: Connection + Send + 'static>(&self, link: &Link<C>) {
        let link = link.clone();
        self.admitted(move || link.brought());
    }

    /// Whether another connection has this one's origin.
    pub fn is_displaced(&self) -> bool {
        self.holder.is_displaced.load(Ordering::Acquire)
    }

    /// The result of `work`; `None` if another connection has this one's origin before.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        Arc::clone(&self.holder).during(work).await
    }

    /// Drives `link`, which is aborted if another connection has this one's origin before it ends.
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

    /// As [`during`](Self::during), of work that has the slot.
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
            // A displaced connection has given it back already.
            Some(origin) => drop(taken.give_back(origin, self.id)),
            None => taken.unclaimed -= 1,
        }
        drop(taken);
        // The link that tells its use would live on.
        *self
            .holder
            .use_of
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn hit(taken: usize, limit: usize, option: &'static str) -> LimitHit {
    let to_u64 = crate::budget::to_u64;
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
/// Connections that are compared when one has to go.
const MOST_LOOKED_AT: usize = 64;
/// Spreads where that begins.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_with_their_connections() {
        let slots = Arc::new(Slots::new(Limits::new(2, Some(1))));
        let mut first = slots.take_unclaimed().unwrap();
        let mut second = slots.take_unclaimed().unwrap();
        first.claim(address(1)).unwrap();
        let full = second.claim(address(1)).unwrap_err().hit().unwrap();
        assert_eq!(
            (full.value, full.limit, full.option),
            (2, 1, MAX_PER_ADDRESS)
        );
        second.claim(address(2)).unwrap();
        let full = slots.take(address(3)).unwrap_err().hit().unwrap();
        assert_eq!(
            (full.value, full.limit, full.option),
            (3, 2, MAX_CONNECTIONS)
        );
        drop(first);
        drop(second);
        assert_eq!(slots.open(), 0);
        assert!(slots.lock().of.is_empty());
    }

    #[test]
    fn an_address_of_ipv6_counts_with_its_64() {
        let slots = Arc::new(Slots::new(Limits::new(100, Some(1))));
        let claim = |address: &str| {
            let mut slot = slots.take_unclaimed().unwrap();
            let origin = Origin::of(address.parse().unwrap());
            slot.claim(origin).map(|()| slot)
        };
        let _held = [
            "2001:db8:0:1::1",
            "2001:db8:0:2::1",
            "::ffff:10.0.0.1",
            "::ffff:10.0.0.2",
        ]
        .map(|address| claim(address).unwrap());
        for same in [
            "2001:db8:0:1::1",
            "2001:db8:0:1::2",
            "2001:db8:0:1:ffff:ffff:ffff:ffff",
            "2001:db8:0:2:8000::",
            "10.0.0.1",
        ] {
            assert!(claim(same).is_err(), "{same}");
        }
        for other in ["2001:db8:0:0:ffff::", "2001:db8:0:3::", "10.0.0.3"] {
            drop(claim(other).unwrap());
        }
    }

    fn address(last: u8) -> Origin {
        Origin::of(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn one_address_leaves_an_eighth_to_others() {
        let slots = Arc::new(Slots::new(Limits::new(80, None)));
        let take = |last| {
            let slot = slots.take(address(last))?;
            slot.admitted(|| 0);
            Ok::<_, Why>(slot)
        };
        let held: Vec<_> = (0..70).map(|_| take(1).unwrap()).collect();
        let full = take(1).unwrap_err().hit().unwrap();
        assert_eq!(
            (full.value, full.limit, full.option),
            (71, 70, MAX_PER_ADDRESS)
        );
        let others: Vec<_> = (0..10).map(|_| take(2).unwrap()).collect();
        assert_eq!(slots.open(), 80);
        assert!(!held.iter().chain(&others).any(Slot::is_displaced));
    }

    #[test]
    fn of_the_greediest_address_the_least_useful_goes() {
        let slots = Arc::new(Slots::new(Limits::new(12, Some(0))));
        let take = |last, brought: Option<u64>| {
            let slot = slots.take(address(last))?;
            if let Some(brought) = brought {
                slot.admitted(move || brought);
            }
            Ok::<_, Why>(slot)
        };
        let mut greedy: Vec<_> = (0..9).map(|at| take(1, Some(100 - at)).unwrap()).collect();
        let waiting = take(1, None).unwrap();
        let others: Vec<_> = (0..2).map(|_| take(2, Some(0)).unwrap()).collect();
        // Its own address has the most: nobody goes for it.
        assert!(take(1, None).is_err());
        let third = take(2, Some(0)).unwrap();
        assert!(waiting.is_displaced(), "it was not admitted yet");
        assert_eq!(slots.open(), 12);
        drop(waiting);
        assert_eq!(slots.open(), 12, "given back once");
        let fourth = take(3, Some(0)).unwrap();
        let gone: Vec<_> = greedy.iter().map(Slot::is_displaced).collect();
        assert_eq!(
            gone.iter().position(|gone| *gone),
            Some(8),
            "it brought least"
        );
        assert_eq!(gone.iter().filter(|gone| **gone).count(), 1);
        assert!(
            !others
                .iter()
                .chain([&third, &fourth])
                .any(Slot::is_displaced)
        );
        // Until all have as many.
        greedy.remove(8);
        let mut more = Vec::new();
        while let Ok(slot) = take(3, Some(0)) {
            more.push(slot);
        }
        let left = greedy.iter().filter(|slot| !slot.is_displaced()).count();
        assert_eq!((left, more.len() + 1), (5, 4));
        drop((greedy, others, third, fourth, more));
        assert_eq!(slots.open(), 0);
        let taken = slots.lock();
        assert!(taken.of.is_empty() && taken.by_count.is_empty());
    }

    #[test]
    fn a_displaced_connection_does_not_count_as_greeting() {
        let slots = Arc::new(Slots::new(Limits::new(3, Some(0))));
        let held: Vec<_> = (0..3).map(|_| slots.take(address(1)).unwrap()).collect();
        let _other = slots.take(address(2)).unwrap();
        assert!(held.iter().all(|slot| slot.greets().is_ok()));
        let displaced = held.iter().filter(|slot| slot.is_displaced()).count();
        let greeting = slots.lock().of[&address(1)].greeting.len();
        assert_eq!((displaced, greeting), (1, 2));
    }

    #[test]
    fn one_address_has_so_many_that_are_not_admitted() {
        let slots = Arc::new(Slots::new(Limits::new(2_000, None)));
        let take = |last| {
            let slot = slots.take(address(last))?;
            slot.greets().map(|()| slot)
        };
        let mut held: Vec<_> = (0..200).map(|_| take(1).unwrap()).collect();
        let full = take(1).unwrap_err().hit().unwrap();
        assert_eq!((full.value, full.limit), (201, 200));
        held.push(take(2).unwrap());
        held[7].admitted(|| 0);
        held.push(take(1).unwrap());
        assert!(take(1).is_err());
        assert_eq!(slots.open(), held.len(), "who is refused holds nothing");
    }

    #[test]
    fn a_client_behind_a_proxy_displaces_like_any_other() {
        let slots = Arc::new(Slots::new(Limits::new(40, Some(0))));
        let claim = |last| {
            let mut slot = slots.take_unclaimed()?;
            slot.claim(address(last))?;
            slot.admitted(|| 0);
            Ok::<_, Why>(slot)
        };
        let held: Vec<_> = (0..40).map(|at| claim(1 + at % 2).unwrap()).collect();
        let full = claim(1).unwrap_err().hit().unwrap();
        assert_eq!((full.value, full.limit), (41, 40));
        let third = claim(3).unwrap();
        assert!(!third.is_displaced());
        assert_eq!(held.iter().filter(|slot| slot.is_displaced()).count(), 1);
        assert_eq!(slots.open(), 40);
    }

    #[test]
    fn unclaimed_connections_have_what_is_free_and_few_more_and_keep_no_client_out() {
        let slots = Arc::new(Slots::new(Limits::new(100, Some(0))));
        let take = |last| slots.take(address(last)).unwrap();
        let mut held: Vec<_> = (0..90).map(|_| take(1)).collect();
        let mut unclaimed: Vec<_> = (0..74).map(|_| slots.take_unclaimed().unwrap()).collect();
        let full = slots.take_unclaimed().unwrap_err().hit().unwrap();
        assert_eq!(
            (full.value, full.limit, full.option),
            (165, 164, MAX_CONNECTIONS)
        );
        held.extend((0..10).map(|_| take(2)));
        assert!(!held.iter().any(Slot::is_displaced), "ten slots were free");
        assert!(slots.take_unclaimed().is_err(), "all slots are taken now");
        unclaimed.truncate(63);
        unclaimed.push(slots.take_unclaimed().unwrap());
        assert!(slots.take_unclaimed().is_err());
        let mut claimed = unclaimed.remove(0);
        claimed.claim(address(3)).unwrap();
        assert_eq!(held.iter().filter(|slot| slot.is_displaced()).count(), 1);
        assert_eq!(slots.open(), 163);
        drop((held, unclaimed, claimed));
        assert_eq!(slots.open(), 0);
    }

    #[test]
    fn a_local_user_counts_like_an_address() {
        let slots = Arc::new(Slots::new(Limits::new(40, None)));
        let one: Vec<_> = (0..35)
            .map(|_| slots.take(Origin::User(Some(1000))).unwrap())
            .collect();
        let full = slots.take(Origin::User(Some(1000))).unwrap_err().hit();
        assert_eq!(full.unwrap().option, MAX_PER_ADDRESS);
        let origins = [Origin::User(Some(0)), Origin::User(None), address(1)];
        let others: Vec<_> = (0..5)
            .map(|at| slots.take(origins[at % 3]).unwrap())
            .collect();
        assert!(!one.iter().any(Slot::is_displaced));
        let more = slots.take(Origin::User(None)).unwrap();
        assert_eq!(one.iter().filter(|slot| slot.is_displaced()).count(), 1);
        assert!(!others.iter().chain([&more]).any(Slot::is_displaced));
    }
}
