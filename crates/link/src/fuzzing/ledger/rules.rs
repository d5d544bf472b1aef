//! The promises of the budget, as sums over all links. They know neither the queues of the ledger
//! nor its running totals. [`turns`](super::turns) checks the order in which links continue.

use super::member::Member;
use super::queue::Head;
use super::{SENDERS, Size};
use crate::units::to_u64;
use crate::{Budget, FREE_BYTES};

/// All links after a call, and their sums.
pub(super) struct Books<'a> {
    pub(super) members: &'a [Member],
    pub(super) size: Size,
    /// Bytes that links may hold.
    granted: u64,
    /// Bytes charged to links, and the free parts of ended links among them.
    charged: u64,
    free: u64,
    /// Bytes charged to the links of each sender, and the free parts of ended links among them.
    pub(super) by_sender: [(u64, u64); SENDERS],
    /// Bytes charged to ended links.
    departed: u64,
    undecided: u64,
    /// Bytes kept in addition to the budget.
    kept: u64,
    waiting: usize,
    /// The link that asks in this call, if no link waited before.
    pub(super) alone: Option<usize>,
    /// The first link of each sender that waits for others, in their turn. A link that waits for its own settling counts
    /// if no other waits.
    pub(super) heads: Vec<Head>,
}

/// More bytes for one link.
#[derive(Clone, Copy)]
pub(super) struct Grant {
    pub(super) at: usize,
    /// Its charge before; none if it waited, other links wait too, and it has released everything: its turn is over
    /// then.
    pub(super) charge: u64,
    /// Its charge before.
    pub(super) charged: u64,
    /// The bytes by which its charge grew.
    pub(super) more: u64,
    /// Its queue position, or the one after all others.
    pub(super) place: u64,
    /// It waited for its own settling, and continued in the same call in which it began to wait for others.
    pub(super) has_joined: bool,
    /// It waited, or others did when it asked.
    pub(super) is_turn: bool,
    /// Its turn, if it is known.
    pub(super) turn: Option<(u128, u64)>,
    /// Whether it held bytes above its free part, so that it continues its turn in the reserve.
    pub(super) is_used: bool,
}

impl Grant {
    /// A grant to the link `at`, whose state is as before.
    pub(super) fn of(at: usize, one: &Member) -> Self {
        Self {
            at,
            charge: one.charge() * u64::from(one.waits.is_none() || one.is_used()),
            charged: one.charge(),
            more: 0,
            has_joined: false,
            is_turn: one.waits.is_some(),
            turn: None,
            place: one.waits.map_or(NO_PLACE, |waits| waits.place),
            is_used: one.is_used(),
        }
    }

    /// Whether it waited before.
    pub(super) const fn has_waited(&self) -> bool {
        self.place != NO_PLACE
    }

    /// Whether its turn is over, so that it continues in a new one, even if it asks for free bytes only.
    pub(super) const fn is_over(&self) -> bool {
        self.charge < self.charged
    }
}

impl<'a> Books<'a> {
    pub(super) fn of(members: &'a [Member], size: Size, heads: Vec<Head>) -> Self {
        let mut books = Self {
            members,
            size,
            granted: 0,
            charged: 0,
            free: 0,
            by_sender: [(0, 0); SENDERS],
            departed: 0,
            undecided: 0,
            kept: 0,
            waiting: 0,
            alone: None,
            heads,
        };
        for one in members {
            books.add(one);
        }
        if books.waiting == 1 && books.heads.is_empty() {
            let alone = members.iter().position(|one| one.waits.is_some());
            let alone = alone.map(|at| Head::alone(at, members[at].id));
            books.heads.extend(alone);
        }
        books
    }

    fn add(&mut self, one: &Member) {
        // Checked sums would take half of the time.
        let add = |sum: &mut u64, bytes: u64| *sum = sum.wrapping_add(bytes);
        let (charge, free) = (one.charge(), one.free_charge());
        add(&mut self.granted, to_u64(one.granted));
        add(&mut self.charged, charge);
        add(&mut self.free, free);
        let of_sender = &mut self.by_sender[one.sender];
        add(&mut of_sender.0, charge);
        add(&mut of_sender.1, free);
        add(&mut self.departed, u64::from(one.has_ended) * charge);
        add(&mut self.undecided, one.undecided_bytes());
        add(&mut self.kept, one.kept_bytes());
        self.waiting += usize::from(one.waits.is_some());
    }

    /// Links that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether other links wait.
    pub(super) fn others_wait(&self, at: usize) -> bool {
        self.waiting > usize::from(self.members[at].waits.is_some())
    }

    /// Whether ended links hold more than a quarter of the budget, so that no link may read.
    pub(super) const fn is_crowded(&self) -> bool {
        self.departed > self.size.limit / 4
    }

    /// Checks every sum after a call in which these links were granted more.
    pub(super) fn check(&self, budget: &Budget, grants: &[Grant]) {
        self.check_sums(budget);
        self.check_limits();
        self.check_shares();
        if self.is_crowded() {
            let is_held_up = grants.is_empty();
            assert!(is_held_up, "a link reads while ended ones hold too much");
        } else if self.waiting > 0 {
            self.check_progress();
        }
    }

    /// Every byte is charged once.
    fn check_sums(&self, budget: &Budget) {
        assert_eq!(budget.used(), self.used(), "the sum of all charges");
        assert_eq!(budget.waiting(), self.waiting, "links that wait");
        let kept = budget.quota().used();
        assert_eq!(kept, self.kept, "the sum of what links keep");
    }

    pub(super) const fn used(&self) -> u64 {
        self.charged + self.undecided
    }

    /// Memory stays within the formula of `docs/operations/sizing.md`, without the undecided bytes.
    fn check_limits(&self) {
        let limit = self.size.limit;
        // Ended links are charged their free parts without being asked.
        let is_within = self.charged <= limit + self.free;
        assert!(is_within, "charges are above the limit");
        let is_within = self.undecided <= limit / 2;
        assert!(is_within, "undecided bytes are above a half");
        let is_within = self.kept <= limit / 4;
        assert!(is_within, "links keep more than a quarter");
        let free_parts = to_u64(FREE_BYTES * self.members.len());
        let most = limit + limit / 4 + free_parts;
        // Undecided bytes are left out: the reserve does not count them, so they come on top.
        let is_within = self.granted + self.kept <= most;
        assert!(is_within, "memory is above the formula");
    }

    /// The links of a sender have no more than its share, but for one link of all, which may have the reserve.
    fn check_shares(&self) {
        let mut above = (0..SENDERS).filter(|sender| self.above_share(*sender) > 0);
        let Some(sender) = above.next() else {
            return;
        };
        assert_eq!(above.next(), None, "two senders are above their share");
        let of_it = self.members.iter().filter(|one| one.sender == sender);
        let largest = of_it.map(|one| one.charge() - one.free_charge()).max();
        let is_of_reserve = self.above_share(sender) <= largest.unwrap_or(0);
        assert!(is_of_reserve, "a sender is above its share");
    }

    /// Bytes that a sender's links were granted above its share.
    const fn above_share(&self, sender: usize) -> u64 {
        let (charge, free) = self.by_sender[sender];
        (charge - free).saturating_sub(self.size.most_of_sender)
    }

    /// While frames are no larger than the reserve, a waiting link has another one to wait for: it
    /// holds memory or a complete frame, and waits for no link.
    fn check_progress(&self) {
        let waits_in_vain = |one: &Member| one.is_in_line() && one.wants() <= self.size.reserve;
        let goes_on = |one: &Member| {
            let holds = one.charge() > 0 || one.waits.is_some();
            holds && !waits_in_vain(one)
        };
        let is_stuck = self.members.iter().any(waits_in_vain) && !self.members.iter().any(goes_on);
        assert!(!is_stuck, "links wait for one another");
    }
}

/// The place of a link that did not wait, after all others.
const NO_PLACE: u64 = u64::MAX;
