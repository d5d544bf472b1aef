//! A schedule of calls on one answer budget, three bytes for each step: the step, the link, and an
//! amount. After each call the [books] of the budget are checked against a plain list of
//! [links](member::Member).
//!
//! The schedule keeps to the contract of a session: a request is handed out after the budget has
//! granted it; a request is answered once; a link that is woken or due may be checked late; and an
//! ended link may be asked and answered until it is dropped.

mod books;
mod member;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_core::AnswerRoom as _;

use crate::answers::AnswerBudget;
use books::Books;
use member::{Member, Next};

/// Runs the schedule that the bytes encode: one byte for the limit, then the steps.
pub(super) fn run(data: &[u8]) {
    let Some((limit, steps)) = data.split_first() else {
        return;
    };
    let mut world = World::new(LIMITS[usize::from(*limit) % LIMITS.len()]);
    for step in steps.as_chunks().0.iter().take(MOST_STEPS) {
        world.step(*step);
    }
    world.end();
}

/// The budget and its links.
struct World {
    budget: Arc<AnswerBudget>,
    now: Instant,
    books: Books,
    names: [Arc<str>; SENDERS],
}

impl World {
    #[allow(clippy::disallowed_methods)] // a schedule begins at some instant
    fn new(limit: u64) -> Self {
        Self {
            budget: Arc::new(AnswerBudget::new(limit)),
            now: Instant::now(),
            books: Books::new(limit),
            names: std::array::from_fn(|number| Arc::from(number.to_string())),
        }
    }

    fn step(&mut self, [verb, which, amount]: [u8; 3]) {
        let count = self.books.members.len();
        let at = usize::from(which) % count.max(1);
        let verb = verb % 16;
        match verb {
            _ if count == 0 || verb == 0 => self.open(which),
            1..=4 => self.ask_as(at, amount),
            5..=7 => self.answer(at, amount),
            8 => self.take(at, amount),
            9 => self.take(at, ALL),
            10 => _ = self.look(at),
            11 => self.turn_woken(),
            12 => self.now += time_of(amount),
            13 => self.pass(time_of(amount)),
            14 if amount % 2 == 0 => self.end_link(at),
            14 => self.drop_link(at),
            _ => self.attach(at, usize::from(amount) % SENDERS),
        }
    }

    /// A link begins, of a sender or of none.
    fn open(&mut self, which: u8) {
        if self.books.members.len() == MOST_LINKS {
            return;
        }
        self.books.members.push(Member::open(&self.budget));
        self.check();
        let sender = usize::from(which) % (SENDERS + 1);
        if sender < SENDERS {
            self.attach(self.books.members.len() - 1, sender);
        }
    }

    /// Names the sender of a link.
    fn attach(&mut self, at: usize, sender: usize) {
        self.books.leave_sender(at);
        self.books.members[at].attach(sender, &self.names[sender]);
        self.check();
    }

    /// A link asks for a request; the amount encodes its size, whether the peer gives credit,
    /// whether the application takes the request, and whether the link is checked after that.
    fn ask_as(&mut self, at: usize, amount: u8) {
        let request = REQUESTS[usize::from(amount) % REQUESTS.len()];
        let can_begin = amount & 0b1100 != 0b1100;
        let is_taken = amount & 0b11_0000 != 0b11_0000;
        if self.ask(at, request, can_begin) && is_taken {
            self.hand_out(at, request);
            if amount & 0b100_0000 == 0 {
                self.look(at);
            }
        }
    }

    /// Returns whether the request may be handed out.
    fn ask(&mut self, at: usize, request: u64, can_begin: bool) -> bool {
        let has_all = self.books.is_unused() && can_begin;
        let expected = self.books.ask(self.now, at, request, can_begin);
        let one = &mut self.books.members[at];
        let is_granted = one.share.ask(self.now, request, can_begin);
        assert!(
            is_granted || !has_all,
            "a link waits although nothing is held and nobody waits"
        );
        assert_eq!(
            is_granted, expected,
            "a request is granted if it fits and is in turn"
        );
        let waits = self.books.members[at].waits.is_some();
        assert!(!waits || can_begin, "a link without credit waits for bytes");
        self.check();
        is_granted
    }

    fn hand_out(&mut self, at: usize, request: u64) {
        self.books.members[at].hand_out(request);
        self.check();
    }

    /// The oldest request of a link is answered or given up; the amount encodes the size of the
    /// answer, and whether the link is checked after that.
    fn answer(&mut self, at: usize, amount: u8) {
        let bytes = ANSWERS[usize::from(amount) % ANSWERS.len()];
        if self.books.members[at].requests.is_empty() {
            return;
        }
        self.books.answer(at, bytes);
        self.check();
        if amount & 0b1000 == 0 {
            self.look(at);
        }
    }

    /// A peer takes a part of the waiting answers.
    fn take(&mut self, at: usize, part: u8) {
        self.books.members[at].take(part);
        self.look(at);
    }

    /// Checks a link. Returns whether its peer is too slow.
    fn look(&mut self, at: usize) -> bool {
        self.books.settle(self.now, at);
        let one = &mut self.books.members[at];
        let is_granted = one.settle(self.now);
        let is_next = one.next == Next::Granted;
        assert_eq!(is_granted, is_next, "a look tells of a grant");
        self.check();
        let others_wait = self.books.waiting().next().is_some();
        let one = &self.books.members[at];
        let is_early = one.share.due().is_some_and(|due| due <= self.now);
        assert!(!is_early, "a link is due again at once");
        one.is_slow(self.now, others_wait)
    }

    /// Checks every link that was woken, and takes a request if one was granted.
    fn turn_woken(&mut self) {
        for at in 0..self.books.members.len() {
            if std::mem::take(&mut self.books.members[at].is_woken) {
                self.look(at);
                if self.books.members[at].next == Next::Granted {
                    assert!(self.ask(at, 0, true), "a grant is kept for a second");
                    self.hand_out(at, 0);
                }
            }
        }
    }

    /// Lets time pass in which each link is checked when it is woken or due, and ended if its peer
    /// is too slow.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some((due, at)) = self.next_due().filter(|(due, _)| *due <= until) {
            self.now = self.now.max(due);
            self.books.members[at].is_woken = false;
            if self.look(at) {
                self.end_link(at);
            }
        }
        self.now = until;
        self.check();
    }

    /// The next link to check, and when.
    fn next_due(&self) -> Option<(Instant, usize)> {
        let members = self.books.members.iter().zip(0..);
        let dues = members.filter_map(|(one, at)| {
            let woken = one.is_woken.then_some(self.now);
            Some((woken.or_else(|| one.share.due())?, at))
        });
        dues.min()
    }

    fn end_link(&mut self, at: usize) {
        self.books.end(at);
        self.books.members[at].share.end();
        self.check();
    }

    fn drop_link(&mut self, at: usize) {
        self.books.end(at);
        self.books.leave_sender(at);
        self.books.members.swap_remove(at);
        self.check();
    }

    /// Checks all rules after a call.
    fn check(&mut self) {
        self.books.check(&self.budget, self.now);
    }

    /// Answers all requests and takes all answers, so that every waiting link continues; then drops
    /// all links.
    fn end(mut self) {
        let count = self.books.members.len();
        for at in 0..count {
            self.finish(at);
        }
        // In each round at least the first waiting link continues.
        for _ in 0..=count {
            for at in 0..count {
                if self.books.members[at].next != Next::None && self.ask(at, 0, true) {
                    self.hand_out(at, 0);
                    self.finish(at);
                }
            }
        }
        let is_done = |one: &Member| one.next == Next::None;
        let is_drained = self.books.members.iter().all(is_done);
        assert!(is_drained, "a link waits for ever");
        assert_eq!(self.budget.used(), 0, "taken answers are charged");
        while !self.books.members.is_empty() {
            self.drop_link(0);
        }
        let rules = self.budget.rules();
        let is_empty = rules.links.is_empty() && rules.senders.is_empty();
        assert!(is_empty, "dropped links are forgotten");
    }

    /// A link answers everything, and its peer takes all answers.
    fn finish(&mut self, at: usize) {
        while !self.books.members[at].requests.is_empty() {
            self.books.answer(at, 0);
            self.check();
        }
        self.take(at, ALL);
    }
}

fn time_of(amount: u8) -> Duration {
    Duration::from_millis(TIMES_MS[usize::from(amount) % TIMES_MS.len()])
}

/// Steps of one schedule: longer ones find no more and take longer.
const MOST_STEPS: usize = 64;
/// Links that are open at one time.
const MOST_LINKS: usize = 12;
/// Senders of these links.
const SENDERS: usize = 3;
/// Limits of the budget in bytes: none, one below the free part of a link, one in which a first answer reserves nothing
/// above that part, and two usual ones.
const LIMITS: [u64; 5] = [0, 1_000, 200_000, 1 << 20, 8 << 20];
/// Sizes of requests in bytes.
const REQUESTS: [u64; 4] = [0, 1_000, 100_000, 1 << 20];
/// Sizes of answers in bytes; 0 is a request that is given up.
const ANSWERS: [u64; 8] = [
    0,
    10,
    1_000,
    32 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];
/// Times that pass, in milliseconds.
const TIMES_MS: [u64; 8] = [1, 50, 200, 999, 1_000, 1_250, 2_500, 5_000];
/// The part by which a peer takes everything.
const ALL: u8 = 255;
