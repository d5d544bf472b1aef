//! The rules of the [`Budget`](crate::Budget): how much each link may hold, and which link is next.
//! No lock, no waking and no clock: [`Ledger::at`] sets the time, and [`Ledger::take_woken`] names
//! the links whose requests a change has granted.
//!
//! Senders that wait are served in fair [turns]: the one that has held the least memory lately is
//! first. The links of one sender are served in order of arrival.
//!
//! A turn is whole: the first link waits for all bytes that it may have at once, or for the reserve, and no
//! link behind it is granted bytes before. With fewer it would be reading, and no longer first, when the rest
//! comes free.
//!
//! While no link waits, asking and settling cost the same for any number of links. While links
//! wait, the next one is found by looking at one link of each sender that has its whole share,
//! which few can have, and at the first of the others.

mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ackline_core::Quota;

use crate::Fairness;
use turns::{Mark, Turns, Virtual};

/// The reserve is a quarter of the budget.
pub(crate) const RESERVE_PART: u64 = 4;

/// Half of the budget may be undecided.
pub(crate) const UNDECIDED_PART: u64 = 2;

/// Part of the budget that ended links may hold before all other links stop reading.
const DEPARTED_PART: u64 = 4;

/// The most bytes that a link is granted at once while links wait, if it asks for fewer: enough for
/// most windows, and so few that many links must wait before they hold much by this.
const TURN: u64 = 512 << 10;

/// These are at most a sixteenth of its share.
const TURN_PART: u64 = 16;

/// The bytes charged to each link, and the links that wait for more.
pub(crate) struct Ledger {
    limits: Limits,
    /// Bytes charged to links.
    used: u64,
    departed: Departed,
    /// Undecided bytes, charged to the shared part too.
    undecided: Quota,
    /// The link that uses the reserve.
    holder: Option<u64>,
    /// The link that asks now.
    asking: Option<u64>,
    links: HashMap<u64, Account>,
    senders: HashMap<Arc<str>, Sender>,
    queue: Queue,
    turns: Turns,
    woken: Vec<u64>,
    next_id: u64,
}

/// Bytes of ended links.
#[derive(Default)]
struct Departed {
    /// The part of `used` that they hold: it waits for the application.
    held: u64,
    /// Bytes that they have returned since that was told last.
    returned: u64,
}

/// The parts of the budget, in bytes.
struct Limits {
    shared: u64,
    reserve: u64,
    /// Bytes of the shared part that the links of one sender may have.
    one_sender: u64,
    /// Bytes that a link is granted at once while links wait.
    turn: u64,
}

/// The links that wait.
#[derive(Default)]
struct Queue {
    /// Senders whose links wait, the next one first.
    heads: BTreeSet<(Turn, Arc<str>)>,
    /// Links that wait for their own bytes to be settled, by position.
    yielding: BTreeMap<u64, u64>,
    len: usize,
    last_position: u64,
}

/// One link's account.
struct Account {
    sender: Arc<str>,
    charge: u64,
    has_ended: bool,
    waits: Option<Waits>,
    /// Some of the granted bytes have been held.
    is_used: bool,
}

#[derive(Clone, Copy)]
struct Waits {
    wants: u64,
    position: u64,
    /// It continues when its held bytes are settled.
    yields: bool,
}

/// The links of one sender.
#[derive(Default)]
struct Sender {
    links: usize,
    charge: u64,
    /// Its virtual time when its charge changed last.
    mark: Mark,
    /// Links that wait and do not yield, by position.
    waiting: BTreeMap<u64, u64>,
    /// The turn of the first of them, computed whenever another link becomes the first.
    turn: Option<Turn>,
}

/// The turn of a sender's first link, and the link's position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: Virtual,
    position: u64,
}

/// The reason a link is not granted its request.
enum Space {
    Fits,
    /// Its sender has its whole share.
    NoneForSender,
    /// No link may have more now.
    None,
}

impl Ledger {
    /// A ledger of so many bytes, shared by this rule.
    pub(crate) fn new(bytes: u64, fairness: &Fairness) -> Self {
        let reserve = bytes / RESERVE_PART;
        let shared = bytes - reserve;
        let one_sender = fairness.share_of(shared);
        Self {
            limits: Limits {
                shared,
                reserve,
                one_sender,
                turn: TURN.min(one_sender / TURN_PART),
            },
            used: 0,
            departed: Departed::default(),
            undecided: Quota::new(bytes / UNDECIDED_PART),
            holder: None,
            asking: None,
            links: HashMap::new(),
            senders: HashMap::new(),
            queue: Queue::default(),
            turns: Turns::new(one_sender),
            woken: Vec::new(),
            next_id: 0,
        }
    }

    /// Sets the time since the ledger was made, for the calls that follow.
    pub(crate) fn at(&mut self, now: Duration) -> &mut Self {
        self.turns.set(now, self.queue.len > 0);
        self
    }

    pub(crate) const fn reserve(&self) -> u64 {
        self.limits.reserve
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limits.shared.saturating_add(self.limits.reserve)
    }

    /// Bytes charged or undecided.
    pub(crate) fn used(&self) -> u64 {
        self.used.saturating_add(self.undecided.used())
    }

    /// Sets a link's undecided bytes from `own` to `wanted`. The reserve does not count them, so that
    /// no link waits for a sender's decision.
    ///
    /// # Errors
    /// The bytes that the others leave; nothing changed.
    pub(crate) fn set_undecided(&mut self, own: u64, wanted: u64) -> Result<(), u64> {
        self.undecided.change(own, wanted)?;
        if wanted < own {
            self.admit();
        }
        Ok(())
    }

    /// Links that wait.
    pub(crate) const fn waiting(&self) -> usize {
        self.queue.len
    }

    /// Bytes charged to a link.
    pub(crate) fn charge(&self, id: u64) -> u64 {
        self.link(id).charge
    }

    /// Whether a link has no charge and no request.
    pub(crate) fn is_free(&self, id: u64) -> bool {
        let link = self.link(id);
        link.charge == 0 && link.waits.is_none()
    }

    /// Whether ended links have returned so many bytes since this was so last.
    pub(crate) const fn have_returned(&mut self, bytes: u64) -> bool {
        if self.departed.returned < bytes {
            return false;
        }
        self.departed.returned = 0;
        true
    }

    /// The links whose requests were granted since the last call, except by their own asking.
    pub(crate) fn take_woken(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.woken)
    }

    pub(crate) fn open(&mut self, sender: Arc<str>) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        let of_sender = self.senders.entry(Arc::clone(&sender)).or_default();
        if of_sender.links == 0 {
            self.turns.come_back(&sender, of_sender.mark);
        }
        of_sender.links += 1;
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

    /// Marks the link as ended: the application must release the `held` bytes.
    pub(crate) fn depart(&mut self, id: u64, held: u64) {
        let link = self.link_mut(id);
        if !std::mem::replace(&mut link.has_ended, true) {
            self.departed.held = self.departed.held.saturating_add(self.link(id).charge);
        }
        self.settle(id, held);
    }

    /// Revives an ended link: `free` bytes of those it holds are free of charge again. If they
    /// stayed charged, it could hold as much more without a grant, each time.
    pub(crate) fn revive(&mut self, id: u64, free: u64) {
        let link = self.link_mut(id);
        let charge = link.charge;
        if std::mem::replace(&mut link.has_ended, false) {
            self.departed.held = self.departed.held.saturating_sub(charge);
            self.set_charge(id, charge.saturating_sub(free));
            self.admit();
        }
    }

    /// Whether ended links hold so much that no link may read before some of it is released: not
    /// even its free part, or connections that come, bring a little and go would fill the memory.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.departed.held > self.limit() / DEPARTED_PART
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.depart(id, 0);
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        if let Some(sender) = self.senders.get_mut(&link.sender) {
            sender.links -= 1;
            if sender.links == 0 && !self.turns.leave(&link.sender, sender.mark) {
                self.senders.remove(&link.sender);
            }
        }
        while let Some(name) = self.turns.forgotten() {
            self.senders.remove(&name);
        }
    }

    /// Charges the held bytes, returns those that were only granted, and stops waiting.
    pub(crate) fn settle(&mut self, id: u64, held: u64) {
        self.set_charge(id, held);
        self.stop_waiting(id);
        self.admit();
    }

    /// Whether a link that holds `held` bytes may hold `planned`; if not, it waits. `settling`:
    /// some of the held bytes are released without another byte being read.
    pub(crate) fn ask(&mut self, id: u64, held: u64, planned: u64, settling: bool) -> bool {
        let planned = planned.max(held);
        let Account {
            charge, is_used, ..
        } = *self.link(id);
        let is_complete = settling || (held == 0 && is_used);
        let is_over = is_complete && self.others_wait(id);
        self.link_mut(id).is_used = held > 0;
        // Granted bytes that are not yet held still belong to the link.
        if !is_over && !self.is_crowded() && planned <= charge.max(held) {
            let keeps = if is_complete || planned == 0 {
                0
            } else {
                charge
            };
            self.settle(id, planned.max(keeps));
            return true;
        }
        self.set_charge(id, held);
        // The return value tells it: waking it too would make it turn for ever.
        self.asking = Some(id);
        if self.fits_at_once(id, planned) {
            self.grant(id, planned);
        } else {
            self.wait(id, planned, settling);
            if held == 0 && self.holder == Some(id) && self.others_wait(id) {
                self.holder = None;
            }
            self.admit();
        }
        self.asking = None;
        self.link(id).waits.is_none()
    }

    /// As `ask`, but only if no link waits and the shared part has enough; never waits.
    pub(crate) fn try_ask(&mut self, id: u64, held: u64, planned: u64) -> bool {
        let planned = planned.max(held);
        if !self.fits_at_once(id, planned) {
            return false;
        }
        let link = self.link_mut(id);
        // A turn that is not yet used still belongs to the link.
        let is_complete = held == 0 && link.is_used;
        link.is_used |= held > 0;
        let keeps = if is_complete { 0 } else { link.charge };
        self.settle(id, planned.max(keeps));
        true
    }

    /// Whether no link waits, not even this one, and it may hold so much.
    fn fits_at_once(&self, id: u64, planned: u64) -> bool {
        self.queue.len == 0 && !self.is_crowded() && matches!(self.space(id, planned), Space::Fits)
    }

    /// Grants requests that fit: the reserve's holder first, then the others in order.
    pub(crate) fn admit(&mut self) {
        if self.is_crowded() {
            return;
        }
        if let Some(holder) = self.holder {
            self.admit_holder(holder);
        }
        while self.admit_next() {}
        if let Some(holder) = self.holder.filter(|_| self.queue.len == 1) {
            // The others continued: the holder may have waited for them.
            self.admit_holder(holder);
        }
    }

    fn others_wait(&self, id: u64) -> bool {
        self.queue.len > usize::from(self.link(id).waits.is_some())
    }

    /// Grants the next link's request, or gives it the reserve. Returns whether another link may be
    /// granted.
    fn admit_next(&mut self) -> bool {
        let heads = self.queue.heads.iter().map(|(turn, sender)| {
            let waiting = &self.senders[sender].waiting;
            waiting[&turn.position]
        });
        let alone = (self.queue.len == 1).then(|| self.queue.yielding.values().copied());
        let mut next = None;
        for id in heads.chain(alone.into_iter().flatten()) {
            let turn = self.whole_turn(id);
            let space = self.space(id, turn);
            if matches!(space, Space::NoneForSender) && self.holder.is_some() {
                // Others may overtake it: it waits for its own sender.
                continue;
            }
            next = Some((id, turn, space));
            break;
        }
        let Some((id, turn, space)) = next else {
            return false;
        };
        if matches!(space, Space::Fits) {
            self.grant(id, turn);
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
        let above_reserve = wants.saturating_sub(self.limits.reserve);
        if above_reserve == 0 || others.saturating_add(above_reserve) <= self.limits.shared {
            self.grant(holder, wants);
        }
    }

    fn space(&self, id: u64, wants: u64) -> Space {
        let link = self.link(id);
        let others = self.shared_used().saturating_sub(link.charge);
        if self.holder == Some(id) || others.saturating_add(wants) > self.limits.shared {
            return Space::None;
        }
        let of_sender = self
            .of_sender(&link.sender)
            .saturating_sub(link.charge)
            .saturating_add(wants);
        if of_sender > self.limits.one_sender {
            return Space::NoneForSender;
        }
        Space::Fits
    }

    /// The bytes that a waiting link is granted at once: the rest of a small window too, as far as
    /// its sender may have it. Otherwise others might take it, and the link would wait once more.
    fn whole_turn(&self, id: u64) -> u64 {
        let link = self.link(id);
        let wants = link.waits.map_or(0, |waits| waits.wants);
        if wants == 0 {
            return 0;
        }
        let of_sender = self.of_sender(&link.sender).saturating_sub(link.charge);
        let rest = self.limits.one_sender.saturating_sub(of_sender);
        wants.max(self.limits.turn.min(rest))
    }

    /// Bytes of the shared part held by a sender's links.
    fn of_sender(&self, sender: &Arc<str>) -> u64 {
        let charge = self.senders[sender].charge;
        let holder = self.holder.map(|holder| self.link(holder));
        let in_reserve = holder.filter(|holder| holder.sender == *sender);
        charge.saturating_sub(in_reserve.map_or(0, |holder| holder.charge.min(self.limits.reserve)))
    }

    fn shared_used(&self) -> u64 {
        let of_holder = self.holder.map_or(0, |holder| self.link(holder).charge);
        self.used()
            .saturating_sub(of_holder.min(self.limits.reserve))
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
            let Departed { held, returned } = &mut self.departed;
            *held = held.saturating_sub(before).saturating_add(charge);
            *returned = returned.saturating_add(before.saturating_sub(charge));
        }
        if let Some(sender) = self.senders.get_mut(&sender) {
            sender.mark = self.turns.mark(sender.mark, sender.charge);
            sender.charge = sender.charge.saturating_sub(before).saturating_add(charge);
        }
        if charge == 0 && !waits && self.holder == Some(id) {
            self.holder = None;
        }
    }

    /// Puts a link into the queue; one that waits already keeps its position and its turn.
    fn wait(&mut self, id: u64, wants: u64, yields: bool) {
        let waits = self.link_mut(id).waits.as_mut();
        if let Some(waits) = waits.filter(|waits| waits.yields == yields) {
            waits.wants = wants;
            return;
        }
        let position = self.unwait(id).unwrap_or_else(|| {
            self.queue.last_position += 1;
            self.queue.last_position
        });
        let link = self.link_mut(id);
        link.waits = Some(Waits {
            wants,
            position,
            yields,
        });
        let sender = Arc::clone(&link.sender);
        self.queue.len += 1;
        if yields {
            self.queue.yielding.insert(position, id);
            return;
        }
        self.with_waiting(&sender, |waiting| {
            waiting.insert(position, id);
        });
    }

    fn stop_waiting(&mut self, id: u64) {
        self.unwait(id);
        if self.link(id).charge == 0 && self.holder == Some(id) {
            self.holder = None;
        }
    }

    /// Takes a link out of the queue. Returns its position.
    fn unwait(&mut self, id: u64) -> Option<u64> {
        let link = self.link_mut(id);
        let Waits {
            position, yields, ..
        } = link.waits.take()?;
        let sender = Arc::clone(&link.sender);
        self.queue.len -= 1;
        if yields {
            self.queue.yielding.remove(&position);
        } else {
            self.with_waiting(&sender, |waiting| {
                waiting.remove(&position);
            });
        }
        Some(position)
    }

    /// Changes a sender's waiting links, and keeps the first of them among the heads.
    fn with_waiting(&mut self, name: &Arc<str>, change: impl FnOnce(&mut BTreeMap<u64, u64>)) {
        let Some(sender) = self.senders.get_mut(name) else {
            return;
        };
        change(&mut sender.waiting);
        let first = sender.waiting.first_key_value();
        let first = first.map(|(position, id)| (*position, *id));
        if sender.turn.map(|turn| turn.position) == first.map(|(position, _)| position) {
            return;
        }
        if let Some(turn) = sender.turn.take() {
            self.queue.heads.remove(&(turn, Arc::clone(name)));
        }
        let Some((position, id)) = first else {
            return;
        };
        let link = &self.links[&id];
        let wants = link.waits.map_or(0, |waits| waits.wants);
        let others = sender.charge.saturating_sub(link.charge);
        let mark = self.turns.mark(sender.mark, sender.charge);
        let turn = Turn {
            at: self.turns.turn(mark, others.saturating_add(wants)),
            position,
        };
        sender.turn = Some(turn);
        self.queue.heads.insert((turn, Arc::clone(name)));
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
