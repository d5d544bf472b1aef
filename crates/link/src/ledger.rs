//! The rules of the [`Budget`](crate::Budget): who may hold how much, and who is next. No lock, no waking and no
//! clock: [`Ledger::take_woken`] says whom a change has granted what they wait for.
//!
//! Where nobody waits, asking and settling cost the same whatever number of links there is. Where links wait, the
//! next one is found by looking at one link of each sender that has its whole share, which few can have, and at the
//! first of the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ackline_core::Quota;

use crate::Fairness;

/// The lane is a quarter of the budget.
pub(crate) const LANE_PART: u64 = 4;

/// Half of the budget may be undecided.
pub(crate) const UNDECIDED_PART: u64 = 2;

/// A quarter may be held by links that have ended, before no other reads on.
const DEPARTED_PART: u64 = 4;

/// The bytes charged to each link, and the links that wait for more.
pub(crate) struct Ledger {
    shared: u64,
    lane: u64,
    /// Bytes of the shared part that the links of one sender may have.
    most_of_sender: u64,
    /// Charged to links.
    used: u64,
    /// The part of that whose links have ended: it waits for the application.
    departed: u64,
    /// Not decided on by peers: in the shared part too.
    undecided: Quota,
    /// The link that may use the lane.
    holder: Option<u64>,
    /// The link that asks now.
    asking: Option<u64>,
    links: HashMap<u64, Account>,
    senders: HashMap<Arc<str>, Sender>,
    /// Senders whose links wait, the longest first: the place of the first link of each, and its sender.
    heads: BTreeSet<(u64, Arc<str>)>,
    /// Links that wait for their own settling: their place, and which.
    yielding: BTreeMap<u64, u64>,
    /// Links that wait.
    waiting: usize,
    woken: Vec<u64>,
    next_id: u64,
    next_place: u64,
}

/// One link.
struct Account {
    sender: Arc<str>,
    charge: u64,
    has_ended: bool,
    waits: Option<Waits>,
    /// Something of what it was granted has been held.
    is_used: bool,
}

#[derive(Clone, Copy)]
struct Waits {
    wants: u64,
    place: u64,
    /// It goes on when what it holds is settled.
    yields: bool,
}

/// The links of one sender.
#[derive(Default)]
struct Sender {
    links: usize,
    charge: u64,
    /// Those that wait and do not yield, by their place.
    waiting: BTreeMap<u64, u64>,
}

/// Why a link is not granted what it waits for.
enum Room {
    Fits,
    /// Its sender has its share.
    NotOfSender,
    /// Nobody's links may have more now.
    None,
}

impl Ledger {
    /// Of so many bytes, shared by this rule.
    pub(crate) fn new(bytes: u64, fairness: &Fairness) -> Self {
        let lane = bytes / LANE_PART;
        let shared = bytes - lane;
        Self {
            shared,
            lane,
            most_of_sender: fairness.share_of(shared),
            used: 0,
            departed: 0,
            undecided: Quota::new(bytes / UNDECIDED_PART),
            holder: None,
            asking: None,
            links: HashMap::new(),
            senders: HashMap::new(),
            heads: BTreeSet::new(),
            yielding: BTreeMap::new(),
            waiting: 0,
            woken: Vec::new(),
            next_id: 0,
            next_place: 0,
        }
    }

    pub(crate) const fn lane(&self) -> u64 {
        self.lane
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.shared.saturating_add(self.lane)
    }

    /// Bytes that are charged or undecided.
    pub(crate) fn used(&self) -> u64 {
        self.used.saturating_add(self.undecided.used())
    }

    /// Has `wanted` bytes undecided where `own` were. The lane takes no account of them, so that no link waits for who
    /// decides.
    ///
    /// # Errors
    /// Others leave so many; nothing changed.
    pub(crate) fn set_undecided(&mut self, own: u64, wanted: u64) -> Result<(), u64> {
        self.undecided.change(own, wanted)?;
        if wanted < own {
            self.admit();
        }
        Ok(())
    }

    /// Links that wait.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes that are charged to a link.
    pub(crate) fn charge(&self, id: u64) -> u64 {
        self.link(id).charge
    }

    /// Whether nothing is charged to a link and it asks for nothing.
    pub(crate) fn is_free(&self, id: u64) -> bool {
        let link = self.link(id);
        link.charge == 0 && link.waits.is_none()
    }

    /// The links that were granted what they wait for since the last call, but by their own asking.
    pub(crate) fn take_woken(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.woken)
    }

    pub(crate) fn open(&mut self, sender: Arc<str>) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.senders.entry(Arc::clone(&sender)).or_default().links += 1;
        let link = Account {
            sender,
            charge: 0,
            has_ended: false,
            waits: None,
            is_used: false,
        };
        self.links.insert(self.next_id, link);
        self.next_id
    }

    /// The link has ended and holds this much, which the application is to let go.
    pub(crate) fn depart(&mut self, id: u64, held: u64) {
        let link = self.link_mut(id);
        if !std::mem::replace(&mut link.has_ended, true) {
            self.departed = self.departed.saturating_add(self.link(id).charge);
        }
        self.settle(id, held);
    }

    /// A link that had ended goes on: `free` bytes of what it holds are free of charge again. If they stayed charged, it
    /// could hold as much more without being granted it, each time.
    pub(crate) fn revive(&mut self, id: u64, free: u64) {
        let link = self.link_mut(id);
        let charge = link.charge;
        if std::mem::replace(&mut link.has_ended, false) {
            self.departed = self.departed.saturating_sub(charge);
            self.set_charge(id, charge.saturating_sub(free));
            self.admit();
        }
    }

    /// Whether ended links hold so much that no link reads before some of it is let go: not even what is free of
    /// charge, or connections that come, bring a little and go would fill the memory.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.departed > self.limit() / DEPARTED_PART
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.settle(id, 0);
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        if let Some(sender) = self.senders.get_mut(&link.sender) {
            sender.links -= 1;
            if sender.links == 0 {
                self.senders.remove(&link.sender);
            }
        }
    }

    /// Charges what is held, gives back what was only granted and stops waiting.
    pub(crate) fn settle(&mut self, id: u64, held: u64) {
        self.set_charge(id, held);
        self.stop_waiting(id);
        self.admit();
    }

    /// Whether a link that holds `held` bytes may hold `planned`; if not, it waits. `settling`: some of what it holds
    /// is let go without another byte being read.
    pub(crate) fn ask(&mut self, id: u64, held: u64, planned: u64, settling: bool) -> bool {
        let planned = planned.max(held);
        let is_used = self.link(id).is_used;
        // Bytes that were granted and are not yet held are still its own.
        let is_over = (settling || (held == 0 && is_used)) && self.others_wait(id);
        self.link_mut(id).is_used = held > 0;
        if !is_over && !self.is_crowded() && planned <= self.link(id).charge.max(held) {
            self.settle(id, planned);
            return true;
        }
        self.set_charge(id, held);
        self.wait(id, planned, settling);
        if held == 0 && self.holder == Some(id) && self.others_wait(id) {
            self.holder = None;
        }
        // It is told by the answer: a wake of its own would be a turn without an end.
        self.asking = Some(id);
        self.admit();
        self.asking = None;
        self.link(id).waits.is_none()
    }

    /// As `ask`, but only if nobody waits and the shared part has it; never waits.
    pub(crate) fn try_ask(&mut self, id: u64, held: u64, planned: u64) -> bool {
        let planned = planned.max(held);
        if self.is_crowded()
            || self.others_wait(id)
            || !matches!(self.room(id, planned), Room::Fits)
        {
            return false;
        }
        self.settle(id, planned);
        true
    }

    /// Grants what fits: the holder of the lane first, then the others as they came.
    pub(crate) fn admit(&mut self) {
        if self.is_crowded() {
            return;
        }
        if let Some(holder) = self.holder {
            self.admit_holder(holder);
        }
        while self.admit_next() {}
        if let Some(holder) = self.holder.filter(|_| self.waiting == 1) {
            // The others went on: it may have waited for them.
            self.admit_holder(holder);
        }
    }

    fn others_wait(&self, id: u64) -> bool {
        self.waiting > usize::from(self.link(id).waits.is_some())
    }

    /// Grants the next link what it waits for, or gives it the lane; whether there may be another one.
    fn admit_next(&mut self) -> bool {
        let heads = self.heads.iter().map(|(place, sender)| {
            let waiting = &self.senders[sender].waiting;
            waiting[place]
        });
        let alone = (self.waiting == 1).then(|| self.yielding.values().copied());
        let mut next = None;
        for id in heads.chain(alone.into_iter().flatten()) {
            let wants = self.link(id).waits.map_or(0, |waits| waits.wants);
            let room = self.room(id, wants);
            if matches!(room, Room::NotOfSender) && self.holder.is_some() {
                // Others may go before it: it waits for its own sender.
                continue;
            }
            next = Some((id, wants, room));
            break;
        }
        let Some((id, wants, room)) = next else {
            return false;
        };
        if matches!(room, Room::Fits) {
            self.grant(id, wants);
            return true;
        }
        if self.holder.is_some() {
            return false;
        }
        self.holder = Some(id);
        self.admit_holder(id);
        true
    }

    fn admit_holder(&mut self, holder: u64) {
        let link = self.link(holder);
        let Some(Waits { wants, yields, .. }) = link.waits else {
            return;
        };
        if yields && self.others_wait(holder) {
            return;
        }
        let others = self.used().saturating_sub(link.charge);
        let above_lane = wants.saturating_sub(self.lane);
        if above_lane == 0 || others.saturating_add(above_lane) <= self.shared {
            self.grant(holder, wants);
        }
    }

    fn room(&self, id: u64, wants: u64) -> Room {
        let link = self.link(id);
        let others = self.shared_used().saturating_sub(link.charge);
        if self.holder == Some(id) || others.saturating_add(wants) > self.shared {
            return Room::None;
        }
        let of_sender = self
            .of_sender(&link.sender)
            .saturating_sub(link.charge)
            .saturating_add(wants);
        if of_sender > self.most_of_sender {
            return Room::NotOfSender;
        }
        Room::Fits
    }

    /// Bytes of the shared part that a sender's links have.
    fn of_sender(&self, sender: &Arc<str>) -> u64 {
        let charge = self.senders[sender].charge;
        let holder = self.holder.map(|holder| self.link(holder));
        let in_lane = holder.filter(|holder| holder.sender == *sender);
        charge.saturating_sub(in_lane.map_or(0, |holder| holder.charge.min(self.lane)))
    }

    fn shared_used(&self) -> u64 {
        let of_holder = self.holder.map_or(0, |holder| self.link(holder).charge);
        self.used().saturating_sub(of_holder.min(self.lane))
    }

    fn grant(&mut self, id: u64, charge: u64) {
        self.link_mut(id).is_used = false;
        self.set_charge(id, charge);
        self.stop_waiting(id);
        if self.asking != Some(id) {
            self.woken.push(id);
        }
    }

    fn set_charge(&mut self, id: u64, charge: u64) {
        let link = self.link_mut(id);
        let before = std::mem::replace(&mut link.charge, charge);
        let (waits, has_ended) = (link.waits.is_some(), link.has_ended);
        let sender = Arc::clone(&link.sender);
        self.used = self.used.saturating_sub(before).saturating_add(charge);
        if has_ended {
            self.departed = self.departed.saturating_sub(before).saturating_add(charge);
        }
        if let Some(sender) = self.senders.get_mut(&sender) {
            sender.charge = sender.charge.saturating_sub(before).saturating_add(charge);
        }
        if charge == 0 && !waits && self.holder == Some(id) {
            self.holder = None;
        }
    }

    /// It waits; who waited already keeps its place.
    fn wait(&mut self, id: u64, wants: u64, yields: bool) {
        let place = self.unwait(id).unwrap_or_else(|| {
            self.next_place += 1;
            self.next_place
        });
        let link = self.link_mut(id);
        link.waits = Some(Waits {
            wants,
            place,
            yields,
        });
        let sender = Arc::clone(&link.sender);
        self.waiting += 1;
        if yields {
            self.yielding.insert(place, id);
            return;
        }
        self.with_waiting(&sender, |waiting| {
            waiting.insert(place, id);
        });
    }

    fn stop_waiting(&mut self, id: u64) {
        self.unwait(id);
        if self.link(id).charge == 0 && self.holder == Some(id) {
            self.holder = None;
        }
    }

    /// It waits no longer; the place that it had.
    fn unwait(&mut self, id: u64) -> Option<u64> {
        let link = self.link_mut(id);
        let Waits { place, yields, .. } = link.waits.take()?;
        let sender = Arc::clone(&link.sender);
        self.waiting -= 1;
        if yields {
            self.yielding.remove(&place);
        } else {
            self.with_waiting(&sender, |waiting| {
                waiting.remove(&place);
            });
        }
        Some(place)
    }

    /// Changes who of a sender's links waits, and keeps its first one among the heads.
    fn with_waiting(&mut self, name: &Arc<str>, change: impl FnOnce(&mut BTreeMap<u64, u64>)) {
        let Some(sender) = self.senders.get_mut(name) else {
            return;
        };
        let first = |sender: &Sender| sender.waiting.keys().next().copied();
        let before = first(sender);
        change(&mut sender.waiting);
        let after = first(sender);
        if before == after {
            return;
        }
        if let Some(place) = before {
            self.heads.remove(&(place, Arc::clone(name)));
        }
        if let Some(place) = after {
            self.heads.insert((place, Arc::clone(name)));
        }
    }

    fn link(&self, id: u64) -> &Account {
        self.links
            .get(&id)
            .expect("an account is open until it is dropped")
    }

    fn link_mut(&mut self, id: u64) -> &mut Account {
        self.links
            .get_mut(&id)
            .expect("an account is open until it is dropped")
    }
}

#[cfg(test)]
mod tests;
