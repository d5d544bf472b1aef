//! The promises of the slots, counted over a plain list of connections.

use std::future::pending;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::{CLIENTS, Client, Connection, PLACES, Stage};
use crate::acceptor::slots::{Limits, Origin, Slot, Slots, Taken};

/// Connections of each origin, without those that are displaced.
#[derive(Clone, Copy, Default)]
pub(super) struct Books {
    taken: usize,
    unclaimed: usize,
    of: [Counts; PLACES],
}

#[derive(Clone, Copy, Default)]
struct Counts {
    all: usize,
    /// Connections that are not admitted.
    waiting: usize,
    /// Connections that greet.
    greeting: usize,
}

impl Books {
    pub(super) fn of(connections: &[Connection]) -> Self {
        let mut books = Self {
            taken: 0,
            unclaimed: 0,
            of: [Counts::default(); PLACES],
        };
        for one in connections.iter().filter(|one| !one.is_displaced) {
            let Some(origin) = one.origin else {
                books.unclaimed += 1;
                continue;
            };
            books.taken += 1;
            let counts = &mut books.of[origin];
            counts.all += 1;
            counts.waiting += usize::from(one.stage != Stage::Admitted);
            counts.greeting += usize::from(one.stage == Stage::Greeting);
        }
        books
    }

    /// Slots that are taken.
    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    /// Connections that hold a slot or are unclaimed.
    pub(super) const fn open(&self) -> usize {
        self.taken + self.unclaimed
    }

    /// Slots of the origin that has the most.
    pub(super) fn most(&self) -> usize {
        let counts = self.of.iter().map(|counts| counts.all);
        counts.max().unwrap_or(0)
    }

    /// Slots of one origin.
    pub(super) const fn at(&self, origin: usize) -> usize {
        self.of[origin].all
    }

    /// Slots of one origin whose connections greet.
    pub(super) const fn greeting(&self, origin: usize) -> usize {
        self.of[origin].greeting
    }

    /// The displaced connection is of the origin with the most: one that is not admitted, or else
    /// the one that has brought the least.
    pub(super) fn check_choice(&self, connections: &[Connection], displaced: usize) {
        let gone = &connections[displaced];
        let origin = gone
            .origin
            .expect("a connection is displaced where it counts");
        let counts = self.of[origin];
        assert_eq!(counts.all, self.most(), "the greediest origin loses one");
        if counts.waiting > 0 {
            let is_waiting = gone.stage != Stage::Admitted;
            assert!(is_waiting, "one that is not admitted goes first");
            return;
        }
        let others = connections.iter().filter(|one| !one.is_displaced);
        let of_it = others.filter(|one| one.origin == gone.origin);
        let least = of_it.map(Connection::brought).min();
        assert_eq!(Some(gone.brought()), least, "the least useful goes");
    }

    /// Every limit holds, and the slots know the same connections.
    pub(super) fn check(&self, slots: &Slots, limits: Limits) {
        assert_eq!(slots.open(), self.open(), "every connection counts once");
        assert!(self.taken <= limits.all, "more slots than there are");
        let most = limits.all + limits.unclaimed;
        assert!(self.unclaimed <= most, "too many are unclaimed");
        let known = slots.lock();
        let mut origins = 0;
        for (counts, number) in self.of.iter().zip(0..) {
            assert!(counts.all <= limits.of_one, "a origin is above its limit");
            let is_few = counts.greeting <= limits.greeting;
            assert!(is_few, "too many of a origin greet");
            if counts.all > 0 {
                origins += 1;
                counts.check(&known, known_as(number));
            }
        }
        let forgotten = (known.of.len(), known.by_count.len());
        assert_eq!(
            forgotten,
            (origins, origins),
            "origins without slots are forgotten"
        );
    }
}

impl Counts {
    /// The slots know the same number of connections of an origin, and its rank among others.
    fn check(self, known: &Taken, origin: Origin) {
        let held = known.of.get(&origin).expect("a origin with slots is known");
        let counted = [held.slots.len(), held.waiting.len(), held.greeting.len()];
        let expected = [self.all, self.waiting, self.greeting];
        assert_eq!(counted, expected, "slots, waiting and greeting of {origin}");
        let is_ranked = known.by_count.contains(&(self.all, origin));
        assert!(is_ranked, "a origin stands where it belongs");
    }
}

impl Connection {
    pub(super) fn new(slot: Slot, origin: Option<usize>) -> Self {
        Self {
            slot,
            origin,
            stage: Stage::Taken,
            is_displaced: false,
            brought: Arc::new(AtomicU64::new(0)),
            wait: None,
        }
    }

    fn brought(&self) -> u64 {
        self.brought.load(Ordering::Relaxed)
    }

    /// Begins work that continues until the connection is displaced.
    pub(super) fn watch(&mut self) {
        let mut wait = Wait::new(&self.slot);
        assert_eq!(
            wait.has_ended(),
            self.is_displaced,
            "work ends with its slot"
        );
        self.wait = Some(wait);
    }

    /// Marks the connection as displaced: its work is woken and ends.
    pub(super) fn displace(&mut self) {
        self.is_displaced = true;
        match &mut self.wait {
            Some(wait) => {
                let is_told = wait.told.0.swap(false, Ordering::Relaxed);
                assert!(is_told, "the work of a displaced connection is woken");
                assert!(wait.has_ended(), "the work of a displaced connection ends");
            }
            None => self.watch(),
        }
    }
}

/// Work that never ends by itself, of a connection.
pub(super) struct Wait {
    told: Arc<Told>,
    work: Pin<Box<dyn Future<Output = Option<()>>>>,
}

/// Whether the work was woken.
struct Told(AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Wait {
    fn new(slot: &Slot) -> Self {
        Self {
            told: Arc::new(Told(AtomicBool::new(false))),
            work: Box::pin(slot.watch().during(pending())),
        }
    }

    /// Whether it has ended because its connection is displaced.
    fn has_ended(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.told));
        let polled = self.work.as_mut().poll(&mut Context::from_waker(&waker));
        polled == Poll::Ready(None)
    }
}

/// The origin as the slots know it.
fn known_as(origin: usize) -> Origin {
    match CLIENTS.iter().find(|(_, number)| *number == origin) {
        Some((Client::Tcp(IpAddr::V6(address)), _)) => {
            let [first, second, third, network, ..] = address.segments();
            Origin::Address([first, second, third, network, 0, 0, 0, 0].into())
        }
        Some((Client::Tcp(v4), _)) => Origin::Address(*v4),
        Some((Client::Unix(user), _)) => Origin::User(*user),
        None => unreachable!("every origin has a client"),
    }
}
