//! The first waiting link of each sender and its turn, by the rule alone: the model moves the virtual time of every
//! sender at every step of the clock, and computes a turn when a link becomes the first of its sender.

use std::time::Duration;

use super::member::Member;
use super::rules::Grant;
use super::{SENDERS, Size};

/// The senders, in the order of their numbers.
pub(super) struct Queue {
    size: Size,
    /// The virtual time of a new sender, in bytes times nanoseconds.
    present: u128,
    senders: [Sender; SENDERS],
}

#[derive(Clone, Copy, Default)]
struct Sender {
    /// Its virtual time, never before the present one.
    at: u128,
    /// Bytes that its links have.
    charge: u64,
    head: Option<Head>,
}

/// The first waiting link of a sender.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) at: usize,
    id: u64,
    /// Its turn, and its place among links with the same turn.
    pub(super) turn: (u128, u64),
    /// It was the first before any link was granted more in this call.
    pub(super) is_before_grants: bool,
}

impl Head {
    /// A link that waits for its own settling, and no other waits.
    pub(super) const fn alone(at: usize, id: u64) -> Self {
        Self {
            at,
            id,
            turn: (u128::MAX, u64::MAX),
            is_before_grants: false,
        }
    }
}

impl Queue {
    pub(super) fn new(size: Size) -> Self {
        Self {
            size,
            present: 0,
            senders: Default::default(),
        }
    }

    /// So much time passes in which links wait.
    pub(super) fn pass(&mut self, time: Duration) {
        self.present += product(time, self.pace());
        let latest = self.latest();
        for sender in &mut self.senders {
            sender.at += product(time, sender.charge);
            sender.at = sender.at.clamp(self.present, latest);
        }
    }

    /// Bytes that a sender may hold for ever.
    fn pace(&self) -> u64 {
        (self.size.most_of_sender / 64).max(1)
    }

    fn latest(&self) -> u128 {
        self.present + product(LATEST, self.pace())
    }

    /// The turn of a request after which a sender has so many bytes.
    fn turn(&self, sender: usize, charge: u64) -> u128 {
        let at = self.senders[sender].at + product(EXPECTED, charge);
        at.min(self.latest())
    }

    /// Sets the turns of the links that were granted more in a call.
    pub(super) fn set_turns(&self, members: &[Member], grants: &mut [Grant]) {
        let turns: Vec<_> = grants
            .iter()
            .map(|grant| self.turn_of(members, grant, grants))
            .collect();
        for (grant, turn) in grants.iter_mut().zip(turns) {
            grant.turn = turn;
        }
    }

    /// The turn that a link had when it was granted more: as the first of its sender, or by asking as the first, or as
    /// the first again after a link that asked. `None` if it became the first in this call by another grant.
    fn turn_of(&self, members: &[Member], grant: &Grant, grants: &[Grant]) -> Option<(u128, u64)> {
        let one = &members[grant.at];
        let Sender { charge, head, .. } = self.senders[one.sender];
        let before = charge - grant.charged;
        let asked = |others| {
            let turn = self.turn(one.sender, others + one.granted_charge());
            (turn, grant.place)
        };
        let is_before = |place| head.is_none_or(|head: Head| place < head.turn.1);
        if grant.has_joined && is_before(grant.place) {
            return Some(asked(before));
        }
        let Some(head) = head else {
            return (!grant.has_waited()).then(|| asked(before));
        };
        if head.id != one.id {
            return None;
        }
        let of_sender =
            |other: &&Grant| other.at != grant.at && members[other.at].sender == one.sender;
        let mut others = grants.iter().filter(of_sender);
        let Some(joined) = others
            .clone()
            .find(|other| other.has_joined && is_before(other.place))
        else {
            return Some(head.turn);
        };
        // It was not the first while the other link was before it, and has a new turn since.
        let others_have = before - joined.charged + members[joined.at].charge();
        others
            .all(|other| other.at == joined.at)
            .then(|| asked(others_have))
    }

    /// Follows a call in which these links were granted more.
    pub(super) fn follow(&mut self, members: &[Member], grants: &[Grant]) {
        let mut charges = [0; SENDERS];
        let mut first: [Option<(u64, usize)>; SENDERS] = [None; SENDERS];
        for (at, one) in members.iter().enumerate() {
            charges[one.sender] += one.charge();
            if let Some(waits) = one.waits.filter(|waits| !waits.yields) {
                let first = &mut first[one.sender];
                *first = Some(first.unwrap_or((u64::MAX, 0)).min((waits.place, at)));
            }
        }
        for (sender, charge) in charges.into_iter().enumerate() {
            self.senders[sender].charge = charge;
            let head = first[sender].map(|(place, at)| {
                let of_sender = |grant: &&Grant| members[grant.at].sender == sender;
                let grants: Vec<_> = grants.iter().filter(of_sender).collect();
                self.head(at, &members[at], place, &grants)
            });
            self.senders[sender].head = head;
        }
    }

    /// The first waiting link of a sender, some links of which were granted more in this call.
    fn head(&self, at: usize, one: &Member, place: u64, grants: &[&Grant]) -> Head {
        let sender = &self.senders[one.sender];
        // If a link before it in the queue was granted more, it was the first after that only.
        let is_before_grants = grants.iter().all(|grant| grant.place >= place);
        let before = sender.head.filter(|head| head.id == one.id);
        if let Some(head) = before.filter(|_| is_before_grants) {
            return Head { at, ..head };
        }
        let granted: u64 = grants.iter().map(|grant| grant.more).sum();
        let charge = sender.charge - granted * u64::from(is_before_grants);
        let turn = self.turn(one.sender, charge - one.charge() + one.wants());
        Head {
            at,
            id: one.id,
            turn: (turn, place),
            is_before_grants,
        }
    }

    /// The first waiting links, in their turn.
    pub(super) fn heads(&self) -> Vec<Head> {
        let heads = self.senders.iter().filter_map(|sender| sender.head);
        let mut heads: Vec<_> = heads.collect();
        heads.sort_unstable_by_key(|head| head.turn);
        heads
    }
}

fn product(time: Duration, bytes: u64) -> u128 {
    time.as_nanos() * u128::from(bytes)
}

/// The time for which a request is expected to hold its bytes.
const EXPECTED: Duration = Duration::from_secs(8);

/// The most time by which a sender or a request is behind a new one.
const LATEST: Duration = Duration::from_secs(120);
