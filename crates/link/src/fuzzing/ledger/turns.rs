//! The order in which links continue: the [turns](super::queue) of their senders, and first come, first served among
//! the links of one sender, except for the reserve, senders that have their share, and links that hold a complete frame.
//! The model follows which link may have the reserve: some calls leave several.

use super::member::Member;
use super::queue::Head;
use super::rules::{Books, Grant};

/// The links that may have the reserve.
#[derive(Debug)]
pub(super) struct ReserveHolders {
    /// Their numbers.
    holders: Vec<u64>,
    /// Whether the reserve may be free.
    is_free: bool,
}

impl ReserveHolders {
    pub(super) const fn new() -> Self {
        Self {
            holders: Vec::new(),
            is_free: true,
        }
    }

    /// Follows a call of `actor` in which these links were granted more: at least one link must be
    /// left that may have the reserve, or none may have it, so that everything was in turn.
    pub(super) fn follow(&mut self, books: &Books<'_>, grants: &[Grant], actor: Option<usize>) {
        let before = std::mem::take(&mut self.holders);
        let is_passed_on = self.is_free || before.iter().any(|id| books.has_ended(*id, actor));
        for (at, one) in books.members.iter().enumerate() {
            let is_new = one.waits.is_some() || grants.iter().any(|grant| grant.at == at);
            let had = before.contains(&one.id);
            let may_have = had || (is_passed_on && is_new);
            if may_have && books.is_in_turn(Some(at), had && actor != Some(at), grants) {
                self.holders.push(one.id);
            }
        }
        self.is_free = is_passed_on && books.is_in_turn(None, false, grants);
        let is_in_turn = self.is_free || !self.holders.is_empty();
        assert!(
            is_in_turn,
            "a link goes on out of turn, or waits in its turn"
        );
    }
}

impl Books<'_> {
    /// Whether the turn of a link in the reserve may have ended by a call of `actor`: the link has nothing, or it asks
    /// again and holds nothing.
    fn has_ended(&self, id: u64, actor: Option<usize>) -> bool {
        let Some(at) = self.members.iter().position(|one| one.id == id) else {
            return true;
        };
        let one = &self.members[at];
        (one.charge() == 0 && one.waits.is_none()) || (actor == Some(at) && !one.is_used())
    }

    /// Whether all rules hold if `holder` has the reserve, and had it before if `keeps`: grants fit and kept the order,
    /// and no waiting link could continue.
    fn is_in_turn(&self, holder: Option<usize>, keeps: bool, grants: &[Grant]) -> bool {
        let mut of_others = grants.iter().filter(|grant| Some(grant.at) != holder);
        of_others.all(|grant| self.has_fitted(grant.at, holder) && self.is_whole(grant, holder))
            && grants
                .iter()
                .all(|grant| self.keeps_order(grant, holder, keeps))
            && (self.is_crowded() || self.is_at_rest(holder))
    }

    /// Whether no waiting link could continue now.
    fn is_at_rest(&self, holder: Option<usize>) -> bool {
        let Some(has_reserve) = holder.map(|at| &self.members[at]) else {
            // The reserve is given to a link as soon as one waits for it.
            return self.heads.is_empty();
        };
        let is_none = has_reserve.charge() == 0 && has_reserve.waits.is_none();
        if is_none || self.could_go_on(has_reserve) {
            return false;
        }
        for head in &self.heads {
            if Some(head.at) == holder || !self.is_room(head.at, holder) {
                return true;
            }
            if self.is_of_share(head.at, holder) {
                return false;
            }
        }
        true
    }

    /// Whether the reserve's holder waits for others although the reserve and the shared part have space
    /// for it. A holder that waits for its own settling continues by that.
    fn could_go_on(&self, has_reserve: &Member) -> bool {
        let above_reserve = has_reserve.wants().saturating_sub(self.size.reserve);
        let others = self.used() - has_reserve.charge();
        has_reserve.is_in_line() && (above_reserve == 0 || others + above_reserve <= self.shared())
    }

    const fn shared(&self) -> u64 {
        self.size.limit - self.size.reserve
    }

    /// Bytes of the reserve that the holder has.
    fn in_reserve(&self, holder: Option<usize>) -> u64 {
        holder.map_or(0, |at| self.members[at].charge().min(self.size.reserve))
    }

    /// Whether the shared part and the share of its sender have space for the bytes that a link was
    /// granted. Free bytes need no space: the reserve is lent for them and given back at once.
    fn has_fitted(&self, at: usize, holder: Option<usize>) -> bool {
        if self.members[at].charge() == 0 {
            return true;
        }
        let sender = self.members[at].sender;
        let has_reserve = holder.map(|at| &self.members[at]);
        let of_it = has_reserve.filter(|one| one.sender == sender);
        // The holder may have gone above the reserve since.
        let of_holder = of_it.map_or(0, Member::charge);
        let (charged, _) = self.by_sender[sender];
        self.used() - self.in_reserve(holder) <= self.shared()
            && charged - of_holder <= self.size.most_of_sender
    }

    /// Whether a link that waited, or asked while others did, was granted a whole turn: as many bytes, or all that its
    /// sender may have. What a link in the reserve had of its sender's share is not known any more.
    fn is_whole(&self, grant: &Grant, holder: Option<usize>) -> bool {
        let one = &self.members[grant.at];
        let is_beside = holder.is_some_and(|at| self.members[at].sender == one.sender);
        let (of_sender, _) = self.by_sender[one.sender];
        !grant.is_turn
            || is_beside
            || one.charge() == 0
            || one.charge() >= self.size.turn
            || of_sender >= self.size.most_of_sender
    }

    /// Whether the shared part has space for the whole turn of a link that waits.
    fn is_room(&self, at: usize, holder: Option<usize>) -> bool {
        let one = &self.members[at];
        let others = self.used() - one.charge() - self.in_reserve(holder);
        others + self.whole_turn(at, holder) <= self.shared()
    }

    /// The bytes that a waiting link has at once: those that it wants, or as many as one turn has and its sender may
    /// have. Nobody waited when a link of this call asked `alone`: then it needs no more than it wants.
    fn whole_turn(&self, at: usize, holder: Option<usize>) -> u64 {
        let wants = self.members[at].wants();
        if wants == 0 || self.alone == Some(at) {
            return wants;
        }
        let rest = self
            .size
            .most_of_sender
            .saturating_sub(self.others_of_sender(at, holder));
        wants.max(self.size.turn.min(rest))
    }

    /// The bytes of a share that the other links of a link's sender have.
    fn others_of_sender(&self, at: usize, holder: Option<usize>) -> u64 {
        let one = &self.members[at];
        let of_it = holder.filter(|at| self.members[*at].sender == one.sender);
        let (charged, _) = self.by_sender[one.sender];
        charged - one.charge() - self.in_reserve(of_it)
    }

    /// Whether the share of a link's sender has space for them.
    fn is_of_share(&self, at: usize, holder: Option<usize>) -> bool {
        self.others_of_sender(at, holder) + self.members[at].wants() <= self.size.most_of_sender
    }

    /// Whether a link that was granted more overtook no other waiting link, except links whose
    /// sender has its share. The reserve's holder goes first while its turn lasts, and while it waits for more than the
    /// reserve.
    fn keeps_order(&self, grant: &Grant, holder: Option<usize>, keeps: bool) -> bool {
        if holder == Some(grant.at) && (grant.is_used || (keeps && grant.has_waited())) {
            return true;
        }
        let sender = self.members[grant.at].sender;
        let is_passed = |head: &&Head| {
            let (_, place) = head.turn;
            if self.members[head.at].sender == sender {
                return place < grant.place;
            }
            head.is_before_grants && grant.turn.is_some_and(|turn| head.turn < turn)
        };
        let mut passed = self.heads.iter().filter(is_passed);
        passed.all(|head| Some(head.at) != holder && !self.is_of_share(head.at, holder))
    }
}
