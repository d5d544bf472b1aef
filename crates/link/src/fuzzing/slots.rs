//! A schedule of connections on the slots of one acceptor, three bytes for each step: the step, the connection or
//! client, and an amount. After each step the [books] of the slots are checked against a plain list of connections.
//!
//! The schedule keeps to the contract of an acceptor: a connection is claimed once; it greets once, after its claim and
//! before it is admitted; and a connection that is refused is dropped.

mod books;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::acceptor::reason::Reason;
use crate::acceptor::slots::{Limits, Origin, Slot, Slots};
use books::{Books, Wait};

/// Runs the schedule that the bytes encode: three bytes of limits, then the steps.
pub(super) fn run(data: &[u8]) {
    let Some(([all, of_one, greeting], steps)) = data.split_first_chunk() else {
        return;
    };
    let of_one = usize::from(of_one % 10);
    let limits = Limits {
        all: usize::from(all % 16) + 1,
        of_one: if of_one == 0 { usize::MAX } else { of_one },
        greeting: usize::from(greeting % 4) + 1,
        unclaimed: usize::from(greeting / 4 % 4),
    };
    let mut world = World {
        slots: Arc::new(Slots::new(limits)),
        limits,
        connections: Vec::new(),
        books: Books::default(),
    };
    for step in steps.as_chunks().0.iter().take(MOST_STEPS) {
        world.step(*step);
    }
    world.end();
}

struct World {
    slots: Arc<Slots>,
    limits: Limits,
    connections: Vec<Connection>,
    /// Their counts after the last step.
    books: Books,
}

/// A connection that holds a slot, or held one until it was displaced.
struct Connection {
    slot: Slot,
    /// The number of its origin, if that is known.
    origin: Option<usize>,
    stage: Stage,
    is_displaced: bool,
    /// How much it has brought.
    brought: Arc<AtomicU64>,
    /// Work that continues until it is displaced.
    wait: Option<Wait>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Taken,
    Greeting,
    Admitted,
}

impl World {
    fn step(&mut self, [verb, which, amount]: [u8; 3]) {
        let client = usize::from(which) % CLIENTS.len();
        if self.connections.is_empty() || verb % 16 < 6 {
            match verb % 16 {
                5 => self.take_unclaimed(),
                _ => self.take(client),
            }
            return;
        }
        let at = usize::from(which) % self.connections.len();
        match verb % 16 {
            6 | 7 => return self.claim(at, usize::from(amount) % CLIENTS.len()),
            8 | 9 => self.greet(at),
            10 | 11 => self.admit(at, amount),
            12 => self.bring(at, amount),
            13 => self.connections[at].watch(),
            _ => drop(self.connections.swap_remove(at)),
        }
        self.check(0);
    }

    /// Whether a connection of this origin has a slot, and whether another one must be displaced
    /// for it.
    fn fits(&self, origin: usize) -> (bool, bool) {
        let books = &self.books;
        let is_full = books.taken() >= self.limits.all;
        let makes_room = is_full && books.most() >= books.at(origin) + 2;
        let fits = (!is_full || makes_room) && books.at(origin) < self.limits.of_one;
        (fits, makes_room)
    }

    /// A connection of a known client arrives.
    fn take(&mut self, client: usize) {
        let (client, origin) = CLIENTS[client];
        let (fits, makes_room) = self.fits(origin);
        let taken = self.slots.take(client.origin());
        assert_eq!(
            taken.is_ok(),
            fits,
            "a connection has a slot if it fits: {taken:?}"
        );
        if let Ok(slot) = taken {
            self.connections.push(Connection::new(slot, Some(origin)));
        }
        self.check(makes_room.into());
    }

    /// A connection of a proxy arrives.
    fn take_unclaimed(&mut self) {
        let fits = self.books.open() < self.limits.all + self.limits.unclaimed;
        let taken = self.slots.take_unclaimed();
        assert_eq!(
            taken.is_ok(),
            fits,
            "so many connections may be unclaimed: {taken:?}"
        );
        if let Ok(slot) = taken {
            self.connections.push(Connection::new(slot, None));
        }
        self.check(0);
    }

    /// The client behind a proxy is known.
    fn claim(&mut self, at: usize, client: usize) {
        let (client, origin) = CLIENTS[client];
        let (fits, makes_room) = self.fits(origin);
        let one = &mut self.connections[at];
        if one.origin.is_some() || one.stage != Stage::Taken {
            return;
        }
        let claimed = one.slot.claim(client.origin());
        assert_eq!(
            claimed.is_ok(),
            fits,
            "a client behind a proxy has a slot if it fits: {claimed:?}"
        );
        match claimed {
            Ok(()) => one.origin = Some(origin),
            Err(_) => drop(self.connections.swap_remove(at)),
        }
        self.check(makes_room.into());
    }

    /// The first bytes of a connection are awaited.
    fn greet(&mut self, at: usize) {
        let books = &self.books;
        let one = &mut self.connections[at];
        if one.stage != Stage::Taken {
            return;
        }
        // A displaced connection is not counted.
        let origin = one.origin.filter(|_| !one.is_displaced);
        let fits = origin.is_none_or(|origin| books.greeting(origin) < self.limits.greeting);
        let greets = one.slot.greets();
        assert_eq!(
            greets.is_ok(),
            fits,
            "an address has so many that are not admitted"
        );
        if greets.is_ok() {
            one.stage = Stage::Greeting;
        } else {
            assert!(
                matches!(greets, Err(Reason::Greeting(_))),
                "the limit is named"
            );
            self.connections.swap_remove(at);
        }
    }

    /// A connection reaches its protocol.
    fn admit(&mut self, at: usize, amount: u8) {
        let one = &mut self.connections[at];
        if one.stage == Stage::Admitted {
            return;
        }
        one.stage = Stage::Admitted;
        let brought = Arc::clone(&one.brought);
        brought.store(amount.into(), Ordering::Relaxed);
        one.slot.admitted(move || brought.load(Ordering::Relaxed));
    }

    fn bring(&mut self, at: usize, amount: u8) {
        self.connections[at]
            .brought
            .fetch_add(amount.into(), Ordering::Relaxed);
    }

    /// Learns which connections the last step has displaced, of which there are so many, and checks
    /// all rules.
    fn check(&mut self, displaced: usize) {
        self.books = Books::of(&self.connections);
        let mut count = 0;
        for at in 0..self.connections.len() {
            let one = &self.connections[at];
            if one.slot.is_displaced() && !one.is_displaced {
                self.books.check_choice(&self.connections, at);
                self.connections[at].displace();
                count += 1;
            }
        }
        assert_eq!(count, displaced, "one connection is displaced for another");
        if count > 0 {
            self.books = Books::of(&self.connections);
        }
        self.books.check(&self.slots, self.limits);
    }

    fn end(mut self) {
        while self.connections.pop().is_some() {
            self.check(0);
        }
        assert_eq!(self.slots.open(), 0, "every slot is given back");
    }
}

/// A client, by its address or by its user.
#[derive(Clone, Copy)]
enum Client {
    Tcp(IpAddr),
    Unix(Option<u32>),
}

impl Client {
    fn origin(self) -> Origin {
        match self {
            Self::Tcp(address) => Origin::of(address),
            Self::Unix(user) => Origin::User(user),
        }
    }
}

const fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

const fn v6(network: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, host, 0, 0, 1))
}

/// Steps of one schedule: longer ones find no more and take longer.
const MOST_STEPS: usize = 64;
/// Clients, and the numbers of their origins.
const CLIENTS: [(Client, usize); 14] = [
    (Client::Tcp(v4(1)), 0),
    (Client::Tcp(v4(2)), 1),
    (Client::Tcp(v4(3)), 2),
    (Client::Tcp(v4(4)), 3),
    (Client::Tcp(v6(0, 0)), 4),
    (Client::Tcp(v6(1, 0)), 5),
    (Client::Tcp(v6(2, 0)), 6),
    (Client::Tcp(v6(3, 0)), 7),
    (Client::Tcp(v4(1)), 0),
    (Client::Tcp(v6(0, 1)), 4),
    (Client::Tcp(v6(0, 0x8000)), 4),
    (
        Client::Tcp(IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped())),
        0,
    ),
    (Client::Unix(Some(1000)), 8),
    (Client::Unix(None), 9),
];
/// The number of origins.
const PLACES: usize = 10;
