//! The ledger alone, and under links that behave as drivers do: in any order in which they ask,
//! hold, settle, end and are woken, some link continues and none turns for ever.

use super::turns::{LATEST, MOST_GONE};
use super::*;

mod attack;
mod fair;
mod pieces;

fn sender(number: u64) -> Arc<str> {
    Arc::from(format!("10.0.0.{number}"))
}

fn share(max_sender_share: f64) -> Fairness {
    Fairness {
        max_sender_share,
        ..Fairness::NONE
    }
}

/// A ledger of 400 bytes: 300 shared, of which one sender may have 150, and a reserve of 100.
fn ledger() -> Ledger {
    Ledger::new(400, &share(0.5))
}

#[test]
fn a_senders_links_have_their_share_together_and_wait_for_no_other() {
    let mut ledger = ledger();
    let [one, two, three] = [1, 1, 1].map(|number| ledger.open(sender(number)));
    let other = ledger.open(sender(2));
    assert!(ledger.ask(one, 0, 100, false));
    assert!(ledger.ask(two, 0, 50, false));
    assert!(
        ledger.ask(three, 0, 60, false),
        "the reserve is for anybody"
    );
    assert!(!ledger.ask(two, 50, 51, false));
    assert!(ledger.ask(other, 0, 150, false), "nobody is before it");
    assert_eq!(ledger.used(), 360);
    ledger.settle(three, 0);
    assert_eq!((ledger.take_woken(), ledger.charge(two)), (vec![two], 51));
    ledger.close(two);
    assert!(
        ledger.ask(other, 150, 200, false),
        "the reserve is free again"
    );
    assert!(!ledger.ask(one, 100, 151, false));
    ledger.settle(other, 0);
    assert_eq!((ledger.waiting(), ledger.take_woken()), (0, vec![one]));
}

#[test]
fn the_part_of_a_sender_is_rounded_down_and_at_most_everything() {
    let parts = [
        (100, 0.5, 50),
        (3, 0.5, 1),
        (7, 1.0, 7),
        (u64::MAX, 1.0, u64::MAX),
        (100, 0.333, 33),
    ];
    for (bytes, part, is) in parts {
        assert_eq!(share(part).share_of(bytes), is);
    }
}

#[test]
fn while_ended_links_hold_much_no_link_reads_and_then_all_continue() {
    let mut ledger = ledger();
    let [gone, one, two] = [1, 2, 3].map(|number| ledger.open(sender(number)));
    ledger.depart(gone, 100);
    assert!(ledger.ask(one, 0, 0, false), "a quarter may be held");
    ledger.depart(gone, 101);
    assert!(!ledger.try_ask(one, 0, 0));
    for id in [one, two] {
        assert!(!ledger.ask(id, 0, 0, false), "not even what is free");
    }
    assert_eq!((ledger.waiting(), ledger.take_woken()), (2, vec![]));
    ledger.settle(gone, 100);
    assert_eq!((ledger.waiting(), ledger.take_woken()), (0, vec![one, two]));
    ledger.depart(one, 50);
    assert!(ledger.is_crowded());
    ledger.close(one);
    ledger.close(gone);
    assert_eq!((ledger.is_crowded(), ledger.used()), (false, 0));
}

/// A generator with the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or_default()
    }
}

/// A link and its driver.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
struct Modelled {
    id: u64,
    sender: u64,
    held: u64,
    /// The held bytes need no more input.
    is_complete: bool,
    /// Bytes that its next frame takes.
    wants: u64,
    /// It cannot use a grant before the application acts.
    is_stuck: bool,
    is_granted: bool,
    /// Its driver was woken.
    is_woken: bool,
    has_ended: bool,
}

struct World {
    ledger: Ledger,
    links: Vec<Modelled>,
    random: Random,
    now: Duration,
    /// Turns since the last outside event.
    turns: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let part = [0.3, 0.5, 1.0][random.index(3)];
        let mut world = Self {
            ledger: Ledger::new(400, &share(part)),
            links: Vec::new(),
            random,
            now: Duration::ZERO,
            turns: 0,
        };
        for _ in 0..2 + world.random.below(6) {
            let link = world.opened();
            world.links.push(link);
        }
        world
    }

    fn opened(&mut self) -> Modelled {
        let number = self.random.below(3);
        Modelled {
            id: self.ledger.open(sender(number)),
            sender: number,
            wants: 1 + self.random.below(100),
            is_woken: true,
            ..Modelled::default()
        }
    }

    /// Asks for the bytes of the next frame, as a link's driver does.
    fn turn(&mut self, at: usize) {
        self.turns += 1;
        let link = &mut self.links[at];
        link.is_woken = false;
        if link.has_ended {
            return;
        }
        let planned = link.held + link.wants;
        link.is_granted = self
            .ledger
            .ask(link.id, link.held, planned, link.is_complete);
        if link.is_granted && link.is_stuck {
            // A driver that cannot use a grant returns it.
            self.ledger.settle(link.id, link.held);
            link.is_granted = false;
        }
    }

    /// Runs turns until all drivers are idle.
    fn rest(&mut self) {
        self.turns = 0;
        loop {
            for id in self.ledger.take_woken() {
                let mut links = self.links.iter_mut();
                let link = links.find(|link| link.id == id).expect("it is open");
                assert!(!link.has_ended, "an ended link has no driver");
                link.is_woken = true;
            }
            let Some(at) = self.links.iter().position(|link| link.is_woken) else {
                return;
            };
            self.turn(at);
            let most = 8 * self.links.len() as u64;
            assert!(self.turns <= most, "{} turns and no end", self.turns);
        }
    }

    /// An outside event: bytes, the application, an end, after some time.
    fn happen(&mut self) {
        self.now += Duration::from_millis([0, 1, 1_000, 20_000][self.random.index(4)]);
        self.ledger.at(self.now);
        let at = self.random.index(self.links.len());
        match self.random.below(12) {
            0..=5 => self.read(at),
            6..=8 => self.let_go(at),
            9 => {
                let link = &mut self.links[at];
                link.is_stuck = !link.is_stuck;
                link.is_woken = true;
            }
            10 => {
                let link = &mut self.links[at];
                if !std::mem::replace(&mut link.has_ended, true) {
                    self.ledger.depart(link.id, link.held);
                }
            }
            _ => {
                self.ledger.close(self.links[at].id);
                self.links[at] = self.opened();
            }
        }
    }

    /// Reads the granted bytes: the frame is complete, or asks for more.
    fn read(&mut self, at: usize) {
        let link = &mut self.links[at];
        if !link.is_granted || link.has_ended {
            return;
        }
        link.held += link.wants;
        link.is_complete = self.random.below(3) > 0;
        // Frames of one link stay below the reserve's size.
        link.wants = 1 + self.random.below(100 - link.held.min(99));
        link.is_complete |= link.held + link.wants > 100;
        link.is_woken = true;
    }

    fn let_go(&mut self, at: usize) {
        let link = &mut self.links[at];
        if !link.is_complete && !link.has_ended {
            return;
        }
        link.held = 0;
        link.is_complete = false;
        if link.has_ended {
            self.ledger.settle(link.id, 0);
        } else {
            link.is_woken = true;
        }
    }

    fn check(&self) {
        let charged = self.links.iter().map(|link| self.ledger.charge(link.id));
        let sum: u64 = charged.sum();
        assert_eq!(sum, self.ledger.used(), "every byte once");
        assert!(sum <= self.ledger.limit(), "{sum}");
        let waiting = self.links.iter().filter(|link| {
            !link.has_ended
                && !self.ledger.is_free(link.id)
                && self.ledger.link(link.id).waits.is_some()
        });
        assert_eq!(waiting.count(), self.ledger.waiting());
        for link in &self.links {
            let held = self.ledger.charge(link.id);
            assert!(held >= link.held, "what is held is charged");
            // The reserve's holder completes its frame, no matter which link it is.
            let holder = self.ledger.holder.map(|id| self.ledger.charge(id));
            let beside = holder.map_or(0, |charge| {
                charge.saturating_sub(self.ledger.limits.reserve)
            });
            let share = self.ledger.of_sender(&sender(link.sender));
            let most = self.ledger.limits.one_sender + beside;
            assert!(share <= most, "{share} of one sender");
        }
        self.check_order();
    }

    /// The first link of each sender is in the queue, and the next of them cannot continue.
    fn check_order(&self) {
        let ledger = &self.ledger;
        let mut heads: HashMap<Arc<str>, (u64, u64)> = HashMap::new();
        for (id, link) in &ledger.links {
            if let Some(waits) = link.waits.filter(|waits| !waits.yields) {
                let head = heads
                    .entry(Arc::clone(&link.sender))
                    .or_insert((u64::MAX, 0));
                *head = (*head).min((waits.position, *id));
            }
        }
        let mut order: Vec<_> = heads.into_iter().collect();
        order.sort_by_key(|(name, _)| ledger.senders[name].turn);
        let queued = ledger.queue.heads.iter();
        let queued: Vec<_> = queued.map(|(turn, name)| (name, turn.position)).collect();
        let expected: Vec<_> = order.iter().map(|(name, (at, _))| (name, *at)).collect();
        assert_eq!(queued, expected);
        if ledger.is_crowded() || order.is_empty() {
            return;
        }
        assert!(
            ledger.holder.is_some(),
            "a link waits, and the reserve is free"
        );
        let mut spaces = order
            .iter()
            .map(|(_, (_, id))| ledger.space(*id, ledger.whole_turn(*id)));
        let next = spaces.find(|space| !matches!(space, Space::NoneForSender));
        assert!(
            !matches!(next, Some(Space::Fits)),
            "the next link waits in vain"
        );
    }

    /// Whether every waiting link continues once the application releases its bytes and input
    /// comes.
    fn drain(&mut self) {
        for link in &mut self.links {
            link.is_woken |= std::mem::take(&mut link.is_stuck);
        }
        let mut served: Vec<bool> = self.links.iter().map(|link| link.has_ended).collect();
        for _ in 0..20 * self.links.len() {
            self.rest();
            for (at, served) in served.iter_mut().enumerate() {
                *served |= self.links[at].is_granted;
                self.read(at);
                self.let_go(at);
                self.rest();
                self.check();
            }
        }
        assert!(
            served.iter().all(|served| *served),
            "somebody waits for ever"
        );
    }
}

#[test]
fn in_any_order_some_link_continues_and_none_turns_for_ever() {
    for seed in 1..3_000 {
        let mut world = World::new(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        for _ in 0..120 {
            world.happen();
            world.rest();
            world.check();
        }
        world.drain();
    }
}

/// The cost of one change does not grow with the number of links that wait behind a sender's share.
#[test]
fn a_link_that_waits_for_its_own_sender_costs_others_nothing() {
    let mut ledger = Ledger::new(40_000, &share(0.5));
    let full = ledger.open(sender(1));
    assert!(ledger.ask(full, 0, 15_000, false));
    let reserve = ledger.open(sender(1));
    assert!(ledger.ask(reserve, 0, 10, false));
    for _ in 0..10_000 {
        let id = ledger.open(sender(1));
        assert!(!ledger.ask(id, 0, 10, false));
    }
    assert_eq!((ledger.waiting(), ledger.queue.heads.len()), (10_000, 1));
    let other = ledger.open(sender(2));
    for _ in 0..10_000 {
        assert!(ledger.ask(other, 0, 1_000, false));
        ledger.settle(other, 0);
    }
}
