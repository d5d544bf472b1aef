//! The rules of the budget over a plain list of links, which keeps no running totals and no queue; and the promises that
//! follow from them.

use std::time::Instant;

use super::SENDERS;
use super::member::{Charge, Member, Next, Waits, Wants};
use crate::answers::{AnswerBudget, Rules};
use crate::units::to_u64;

/// All links, and the state that they share.
pub(super) struct Books {
    pub(super) members: Vec<Member>,
    limit: u64,
    /// Bytes that a request reserves.
    typical: u64,
    /// Number of the share that may exceed the budget.
    exceeding: Option<u64>,
    /// The turn that was granted last.
    turn: u64,
    next_place: u64,
    /// The latest turn that a link of each sender has waited for.
    latest: [u64; SENDERS],
    /// Numbers of the shares that the queue has granted since the last check.
    granted: Vec<u64>,
    /// A link has entered the empty queue since the last check.
    is_first: bool,
}

impl Books {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            members: Vec::new(),
            limit,
            typical: FIRST_BYTES.min(limit / FIRST_PART),
            exceeding: None,
            turn: 0,
            next_place: 0,
            latest: [0; SENDERS],
            granted: Vec::new(),
            is_first: false,
        }
    }

    /// Links that wait, in no order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Member, Waits)> {
        let members = self.members.iter();
        members.filter_map(|one| Some((one, one.waits?)))
    }

    /// Whether nothing is charged or reserved, and no link waits.
    pub(super) fn is_unused(&self) -> bool {
        let is_unused = |one: &Member| one.charge.is_idle() && one.waits.is_none();
        self.members.iter().all(is_unused)
    }

    /// Bytes charged to all links but the one that may exceed, and but this one.
    fn used_without(&self, id: Option<u64>) -> u64 {
        let ids = [self.exceeding, id];
        let others = self.members.iter();
        let others = others.filter(|one| !ids.contains(&Some(one.share.id())));
        others.map(|one| one.charge.bytes).sum()
    }

    /// Whether a link may be charged so much: at most half of the bytes that the others leave.
    fn fits(&self, one: &Member, wanted: u64) -> bool {
        let others = self.used_without(Some(one.share.id()));
        let is_above = self.used_without(None) > self.limit;
        !is_above && wanted <= self.limit.saturating_sub(others) / 2
    }

    /// Follows a link that asks. Returns whether its request may be handed out.
    pub(super) fn ask(&mut self, now: Instant, at: usize, request: u64, can_begin: bool) -> bool {
        self.look(now, at);
        let one = &self.members[at];
        if one.next == Next::Granted {
            return true;
        }
        let at_work = to_u64(one.at_work.len()) + 1;
        let wants = Wants {
            bytes: Charge::wanted(one.kept() + request, at_work, self.typical),
            reserved: self.typical,
            learnt: 0,
        };
        let id = one.share.id();
        let others_wait = self.waiting().any(|(other, _)| other.share.id() != id);
        if self.fits(one, wants.bytes) && (wants.bytes == 0 || !others_wait) {
            self.members[at].waits = None;
            self.admit();
            self.members[at].charge.grant(wants);
            self.begin(now, at);
            return true;
        }
        self.members[at].next = Next::Refused;
        if self.members[at].charge.is_idle() && can_begin {
            self.wait(at, wants);
        } else {
            self.members[at].waits = None;
        }
        self.admit();
        self.look(now, at);
        self.members[at].next == Next::Granted
    }

    /// Puts a link into the queue; one that waits already keeps its position.
    fn wait(&mut self, at: usize, wants: Wants) {
        if let Some(waits) = &mut self.members[at].waits {
            waits.wants = wants;
            return;
        }
        let is_crowded = self.waiting().next().is_some();
        self.is_first = !is_crowded;
        self.next_place += 1;
        let one = &mut self.members[at];
        let mut waits = Waits {
            turn: self.turn,
            place: self.next_place,
            is_known: !one.is_stranger(self.typical),
            wants,
            has_waited: None,
        };
        // The links of one sender wait for different turns; one of no sender waits for none.
        if let Some(latest) = one.sender.map(|sender| &mut self.latest[sender]) {
            waits.has_waited = Some(*latest > 0);
            waits.turn = self.turn.max(*latest) + 1;
            *latest = waits.turn;
        }
        one.waits = Some(waits);
    }

    /// Grants while the first waiting link fits, or one may exceed the budget.
    fn admit(&mut self) {
        while let Some(at) = self.next_in_turn() {
            let one = &mut self.members[at];
            let Some(waits) = one.waits.take() else {
                return;
            };
            one.charge.grant(waits.wants);
            one.is_granted = true;
            self.granted.push(one.share.id());
            self.turn = self.turn.max(waits.turn);
            let is_passed = |other: Waits| {
                let is_first = other.is_known && other.has_waited == Some(false);
                is_first && other.place < waits.place && waits.has_waited.is_some()
            };
            let is_unfair = self.waiting().any(|(_, other)| is_passed(other));
            assert!(!is_unfair, "a link goes before the first one of a sender");
        }
    }

    /// Waiting links, in the order in which they continue.
    fn queue(&self) -> Vec<(&Member, Waits)> {
        let mut queue: Vec<_> = self.waiting().collect();
        queue.sort_unstable_by_key(|(_, waits)| waits.order());
        queue
    }

    /// The number of the next share that may exceed the budget, if there is one.
    fn next_exceeding(&self, queue: &[(&Member, Waits)]) -> Option<u64> {
        let mut known = queue.iter().filter(|(_, waits)| waits.is_known);
        let is_alone = self.used_without(None) == 0;
        let next = known.next().or(queue.first().filter(|_| is_alone));
        let (one, _) = next.filter(|_| self.exceeding.is_none())?;
        Some(one.share.id())
    }

    fn next_in_turn(&mut self) -> Option<usize> {
        let queue = self.queue();
        let (first, waits) = queue.first()?;
        let id = if self.fits(first, waits.wants.bytes) {
            first.share.id()
        } else {
            let id = self.next_exceeding(&queue)?;
            self.exceeding = Some(id);
            id
        };
        self.members.iter().position(|one| one.share.id() == id)
    }

    /// Follows a check of a link, which learns of a grant, and of reservations that have ended.
    fn look(&mut self, now: Instant, at: usize) {
        if std::mem::take(&mut self.members[at].is_granted) {
            self.begin(now, at);
        }
        if self.members[at].expire(now) {
            self.recharge(at);
        }
    }

    /// Marks a link's next request as granted.
    fn begin(&mut self, now: Instant, at: usize) {
        let one = &mut self.members[at];
        one.next = Next::Granted;
        one.at_work.push_back(now);
        self.recharge(at);
    }

    fn recharge(&mut self, at: usize) {
        let one = &mut self.members[at];
        one.recharge(self.typical);
        if one.charge.bytes > 0 {
            one.waits = None;
        }
        self.make_room(at);
    }

    /// Lowers a link's charge. A link that exceeds the budget does so until it holds and reserves
    /// nothing.
    fn make_room(&mut self, at: usize) {
        let one = &self.members[at];
        if one.charge.is_idle() && self.exceeding == Some(one.share.id()) {
            self.exceeding = None;
        }
        self.admit();
    }

    /// Follows a check of a link, which reports its bytes.
    pub(super) fn settle(&mut self, now: Instant, at: usize) {
        self.members[at].see(now);
        self.look(now, at);
        self.recharge(at);
    }

    /// The oldest request of a link is answered: a request reserves the bytes of the largest of the latest answers.
    pub(super) fn answer(&mut self, at: usize, bytes: u64) {
        self.members[at].answer(bytes);
        self.typical = bytes.max(self.typical - self.typical / 8);
    }

    /// Follows the end of a link.
    pub(super) fn end(&mut self, at: usize) {
        self.members[at].end();
        self.make_room(at);
    }

    /// Removes a link from its sender, which is forgotten with its last link.
    pub(super) fn leave_sender(&mut self, at: usize) {
        let sender = self.members[at].sender.take();
        if let Some(sender) = sender.filter(|sender| !self.has_links(*sender)) {
            self.latest[sender] = 0;
        }
    }

    fn has_links(&self, sender: usize) -> bool {
        self.members.iter().any(|one| one.sender == Some(sender))
    }

    /// Checks all rules after a call.
    pub(super) fn check(&mut self, budget: &AnswerBudget, now: Instant) {
        let is_crowded = self.waiting().next().is_some();
        let is_first = std::mem::take(&mut self.is_first) && is_crowded;
        for one in &mut self.members {
            let is_granted = self.granted.contains(&one.share.id());
            one.check_wake(is_granted, is_first);
            one.check_due(now, is_crowded);
            one.check_bytes();
        }
        self.granted.clear();
        self.check_sums(budget);
        let queue = self.queue();
        self.check_rest(&queue);
        self.check_shared(&budget.rules(), &queue);
    }

    /// Every byte is charged once. All charges are within the limit, but for the link that exceeds the budget, and for
    /// bytes of requests and answers for which nothing was reserved when they came.
    fn check_sums(&self, budget: &AnswerBudget) {
        let charges = self.members.iter().map(|one| one.charge.bytes);
        assert_eq!(budget.used(), charges.sum(), "the sum of all charges");
        let others = self.members.iter();
        let others = others.filter(|one| self.exceeding != Some(one.share.id()));
        let foreseen: u64 = others.map(|one| one.charge.foreseen).sum();
        let is_within = foreseen <= self.limit;
        assert!(is_within, "more was granted than there is space");
    }

    /// No waiting link could continue, and the one that exceeds the budget holds or reserves
    /// something.
    fn check_rest(&self, queue: &[(&Member, Waits)]) {
        if let Some((first, waits)) = queue.first() {
            let is_room = self.fits(first, waits.wants.bytes);
            assert!(!is_room, "the first in the queue waits although it fits");
            let next = self.next_exceeding(queue);
            assert_eq!(next, None, "a link waits although it may exceed the budget");
        }
        let is_free = |(one, _): &(&Member, Waits)| one.charge.bytes == 0;
        assert!(
            queue.iter().all(is_free),
            "a link waits and holds something"
        );
        if let Some(id) = self.exceeding {
            let mut members = self.members.iter();
            let is_used = members.any(|one| one.share.id() == id && !one.charge.is_idle());
            assert!(is_used, "a link that holds nothing exceeds the budget");
        }
    }

    /// The budget knows the same links.
    fn check_shared(&self, rules: &Rules, queue: &[(&Member, Waits)]) {
        assert_eq!(rules.exceeding, self.exceeding, "the link that may exceed");
        let used = self.used_without(None);
        assert_eq!(rules.used, used, "the charge of all other links");
        assert_eq!(rules.links.len(), self.members.len(), "links of the budget");
        for one in &self.members {
            let link = rules.links.get(&one.share.id());
            let link = link.expect("a link is known until it is dropped");
            assert_eq!(link.charge, one.charge.bytes, "the charge of a link");
            let is_at_work = one.charge.is_at_work;
            assert_eq!(link.is_at_work, is_at_work, "whether it reserves bytes");
            assert_eq!(link.is_granted, one.is_granted, "a grant to be learnt");
        }
        let ids = queue.iter().map(|(one, _)| one.share.id());
        let is_same = ids.eq(rules.queue.values().copied());
        assert!(
            is_same,
            "the links that wait, in the order in which they go on"
        );
        let known = queue.iter().filter(|(_, waits)| waits.is_known);
        let ids = known.map(|(one, _)| one.share.id());
        let is_same = ids.eq(rules.known.values().copied());
        assert!(is_same, "those of them that are no strangers");
        let senders = (0..SENDERS).filter(|sender| self.has_links(*sender));
        assert_eq!(rules.senders.len(), senders.count(), "senders with links");
    }
}

/// The assumed size of the first answer at the most.
const FIRST_BYTES: u64 = 128 << 10;
/// The part of the budget that it takes at the most.
const FIRST_PART: u64 = 8;
