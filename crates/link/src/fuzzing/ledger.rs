//! A schedule of calls on one budget, four bytes each: the time before the call and the call, the link, and two
//! amounts. After each call the [rules] are checked against a model of each [link](member::Member).
//!
//! The schedule keeps to the contract of a driver: a link holds no more than it was granted; an ended link asks for
//! nothing; a link that comes back settles before it asks; undecided bytes were held before; and, unless the
//! schedule is a greedy one, no single frame is above [`Budget::largest`].

mod member;
mod queue;
mod rules;
mod turns;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::units::now;
use crate::{Budget, FREE_BYTES, Fairness};
use member::Member;
use queue::Queue;
use rules::{Books, Grant};
use turns::ReserveHolders;

/// Runs the schedule that the bytes encode: three bytes of configuration, then the calls.
pub(super) fn run(data: &[u8]) {
    let Some(([size, share, mode], calls)) = data.split_first_chunk() else {
        return;
    };
    let mut world = World::new(*size, *share, mode & 1 == 1);
    for call in calls.as_chunks().0.iter().take(MOST_CALLS) {
        world.call(*call);
    }
    world.end();
}

/// The budget and its links.
struct World {
    budget: Budget,
    /// The published number of waiting links.
    shown: watch::Receiver<usize>,
    size: Size,
    members: Vec<Member>,
    reserve: ReserveHolders,
    queue: Queue,
    senders: [Arc<str>; SENDERS],
    /// Whether a frame may be larger than the reserve.
    is_greedy: bool,
    /// The link that asks in this call, if no link waited before.
    alone: Option<usize>,
    /// The queue position of the next waiting link.
    next_place: u64,
    next_id: u64,
}

/// Parts of the budget, in bytes.
#[derive(Clone, Copy)]
struct Size {
    limit: u64,
    reserve: u64,
    /// Bytes of the shared part that the links of one sender may have.
    most_of_sender: u64,
    /// Bytes that a link is granted at once while links wait.
    turn: u64,
}

impl Size {
    fn new(limit: u64, fairness: &Fairness) -> Self {
        let reserve = limit / 4;
        let most_of_sender = fairness.share_of(limit - reserve);
        Self {
            limit,
            reserve,
            most_of_sender,
            turn: (most_of_sender / 16).min(1 << 19),
        }
    }

    /// Bytes above its free part for which a link may ask.
    fn most_asked(self, is_greedy: bool, settling: bool) -> usize {
        to_usize(match (is_greedy, settling) {
            (true, _) => self.limit * 2,
            (false, true) => self.limit + self.reserve,
            (false, false) => self.reserve,
        })
    }
}

impl World {
    fn new(size: u8, share: u8, is_greedy: bool) -> Self {
        let limit = LIMITS[usize::from(size) % LIMITS.len()];
        let fairness = Fairness {
            max_sender_share: SHARES[usize::from(share) % SHARES.len()],
            ..Fairness::NONE
        };
        PASSED.set(Duration::ZERO);
        let budget = Budget::timed(limit, fairness, time);
        let size = Size::new(limit, &fairness);
        Self {
            shown: budget.watch(),
            budget,
            size,
            members: Vec::new(),
            queue: Queue::new(size),
            reserve: ReserveHolders::new(),
            senders: std::array::from_fn(|number| Arc::from(number.to_string())),
            is_greedy,
            alone: None,
            next_place: 0,
            next_id: 0,
        }
    }

    fn call(&mut self, [verb, which, first, second]: [u8; 4]) {
        self.pass(STEPS[usize::from(verb / 16)]);
        let at = usize::from(which) % self.members.len().max(1);
        match verb % 16 {
            0 => self.open(which),
            _ if self.members.is_empty() => self.open(which),
            1..=5 => return self.ask(at, first, second),
            6 => return self.try_ask(at, first),
            7 => self.members[at].fill(first),
            8 => self.members[at].let_go(first),
            9 | 10 => self.members[at].settle(first),
            11 => self.members[at].depart(first),
            12 => self.return_to(at),
            13 => drop(self.members.swap_remove(at)),
            14 => self.change_undecided(at, first),
            _ => self.change_kept(at, first),
        }
        // A link that decides on its messages may be woken by the memory that this frees.
        let is_actor = !matches!(verb % 16, 0 | 13 | 14);
        self.check(is_actor.then_some(at), Vec::new());
    }

    fn pass(&mut self, time: Duration) {
        PASSED.set(PASSED.get() + time);
        if self.budget.waiting() > 0 {
            self.queue.pass(time);
        }
    }

    fn open(&mut self, which: u8) {
        if self.members.len() < MOST_LINKS {
            let sender = usize::from(which) % SENDERS;
            self.next_id += 1;
            let member = Member::open(self.next_id, &self.budget, sender, &self.senders[sender]);
            self.members.push(member);
        }
    }

    /// A link asks for the bytes of a frame. It holds a complete one (`settling`) if the schedule
    /// says so, or if it holds more than a frame may have.
    fn ask(&mut self, at: usize, first: u8, second: u8) {
        let waiting = self
            .members
            .iter()
            .filter(|one| one.waits.is_some())
            .count();
        let is_queue = waiting > 0;
        let one = &mut self.members[at];
        if one.has_ended {
            return;
        }
        let is_large = !self.is_greedy && one.held > FREE_BYTES + to_usize(self.size.reserve);
        let settling = one.held > 0 && (second & 1 == 1 || is_large);
        let most = self.size.most_asked(self.is_greedy, settling);
        one.tell();
        let mut grant = Grant::of(at, one);
        if waiting == usize::from(grant.has_waited()) {
            // No other link waits, so its turn is not over.
            grant.charge = grant.charged;
        }
        let joins = one.waits.is_some_and(|waits| waits.yields) && !settling;
        let turn = self.size.turn * u64::from(is_queue);
        let is_granted = one.ask(planned(first, most), settling, turn, &mut self.next_place);
        // Otherwise it continues with what it was granted before.
        let is_new = one.granted_charge() > grant.charged;
        grant.is_turn = is_queue && is_new;
        grant.has_joined = joins && is_granted && (is_new || grant.is_over());
        let is_charged = one.charge() > 0;
        self.alone = (!is_queue).then_some(at);
        let books = self.check_ask(grant, is_granted);
        let goes_first = is_granted && is_charged && settling && books.others_wait(at);
        assert!(!goes_first, "complete bytes are settled before more come");
    }

    /// A link asks for more than it needs.
    fn try_ask(&mut self, at: usize, first: u8) {
        let others_waited = Books::of(&self.members, self.size, Vec::new()).others_wait(at);
        let one = &mut self.members[at];
        if one.has_ended {
            return;
        }
        let grant = Grant::of(at, one);
        let most = to_usize(self.size.limit);
        let is_granted = one.try_ask(planned(first, most));
        let is_ahead = is_granted && others_waited && one.charge() > grant.charge;
        assert!(!is_ahead, "a link has more than it needs while others wait");
        self.check_ask(grant, is_granted);
    }

    /// Checks all rules after a link asked and `is_granted` was the answer; `grant` describes the
    /// time before.
    fn check_ask(&mut self, grant: Grant, is_granted: bool) -> Books<'_> {
        let is_more = grant.is_over() || self.members[grant.at].charge() > grant.charge;
        let grants = Vec::from_iter((is_granted && is_more).then_some(grant));
        let books = self.check(Some(grant.at), grants);
        let reads = is_granted && books.is_crowded();
        assert!(!reads, "a link reads while ended ones hold too much");
        books
    }

    /// A link has a transport again, and settles.
    fn return_to(&mut self, at: usize) {
        self.members[at].return_to();
        self.check(Some(at), Vec::new());
        self.members[at].settle(ALL);
        self.check(Some(at), Vec::new());
    }

    /// A part of a link's bytes becomes undecided, or a part of its undecided bytes is decided.
    fn change_undecided(&mut self, at: usize, first: u8) {
        let all: u64 = self.members.iter().map(Member::undecided_bytes).sum();
        self.members[at].change_undecided(first, all, self.size.limit / 2);
    }

    /// A link keeps more or less for as long as it lives.
    fn change_kept(&mut self, at: usize, first: u8) {
        let all: u64 = self.members.iter().map(Member::kept_bytes).sum();
        self.members[at].change_kept(first, all, self.size.limit / 4);
    }

    /// Learns which links the call of `actor` has woken, and checks all rules. `grants` includes
    /// the actor if it was granted more than it had.
    fn check(&mut self, actor: Option<usize>, mut grants: Vec<Grant>) -> Books<'_> {
        for (at, one) in self.members.iter_mut().enumerate() {
            let is_actor = actor == Some(at);
            if !is_actor && one.waits.is_none() {
                continue;
            }
            if one.is_woken() {
                assert!(!is_actor, "a link is woken by its own call");
                grants.push(Grant::of(at, one));
                one.go_on(self.size.turn);
            }
            assert_eq!(one.charged(), one.charge(), "the charge of a link");
        }
        for grant in &mut grants {
            let one = &self.members[grant.at];
            grant.more = one.charge() - grant.charged.min(one.charge());
        }
        self.queue.set_turns(&self.members, &mut grants);
        self.queue.follow(&self.members, &grants);
        let mut books = Books::of(&self.members, self.size, self.queue.heads());
        books.alone = self.alone.take();
        books.check(&self.budget, &grants);
        self.reserve.follow(&books, &grants, actor);
        let shown = *self.shown.borrow();
        assert_eq!(shown, books.waiting(), "links that wait are published");
        books
    }

    /// Decides and settles everything, so that every link continues; then closes all links.
    fn end(mut self) {
        for at in 0..self.members.len() {
            self.change_undecided(at, DECIDED);
            self.change_kept(at, 0);
        }
        self.check(None, Vec::new());
        // In each round at least one waiting link continues.
        for _ in 0..=self.members.len() {
            self.settle_all();
            if self.budget.waiting() == 0 {
                break;
            }
        }
        assert_eq!(self.budget.waiting(), 0, "a link waits for ever");
        while self.members.pop().is_some() {
            self.check(None, Vec::new());
        }
        let left = (self.budget.used(), self.budget.quota().used());
        assert_eq!(left, (0, 0), "everything is given back");
    }

    /// Every link that waits for no other releases all its bytes; in a greedy schedule, every link.
    fn settle_all(&mut self) {
        for at in 0..self.members.len() {
            let one = &mut self.members[at];
            let is_idle = one.granted == 0 && one.waits.is_none();
            if !is_idle && (self.is_greedy || !one.is_in_line()) {
                one.settle(0);
                self.check(Some(at), Vec::new());
            }
        }
    }
}

/// The bytes that a schedule's byte asks for: within the free part, or up to `most` above it.
fn planned(choice: u8, most: usize) -> usize {
    let choice = usize::from(choice);
    match choice.checked_sub(WITHIN_FREE) {
        None => FREE_BYTES * choice / WITHIN_FREE,
        Some(above) => FREE_BYTES + most * above / (255 - WITHIN_FREE),
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

thread_local! {
    static BEGUN: Instant = now();
    /// The time that has passed in this schedule.
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The clock of the schedule.
fn time() -> Instant {
    BEGUN.with(|begun| *begun + PASSED.get())
}

/// Calls of one schedule: longer ones find no more and take longer.
const MOST_CALLS: usize = 64;
/// Links that are open at one time.
const MOST_LINKS: usize = 32;
/// Senders of these links.
const SENDERS: usize = 6;
/// Budgets in bytes: one in which every byte counts, and some in which messages may be undecided.
const LIMITS: [u64; 4] = [400, 1 << 16, 1 << 18, 1 << 20];
/// Parts that one sender may have.
const SHARES: [f64; 4] = [0.5, 0.3, 0.1, 1.0];
/// Times that pass before a call.
const STEPS: [Duration; 16] = [
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_nanos(3),
    Duration::from_millis(1),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(200),
];
/// Choices that stay within the free part of a link.
const WITHIN_FREE: usize = 32;
/// The choice by which a link continues to hold all its bytes.
const ALL: u8 = 255;
/// The choice by which a link has no undecided bytes any more.
const DECIDED: u8 = 128;
