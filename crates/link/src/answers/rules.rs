//! The rules of the answer budget behind its lock: charges, the queue and its turns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use super::STRANGER_TURNS;
use crate::budget::FREE_BYTES;
use crate::units::to_u64;

#[derive(Debug, Default)]
pub(crate) struct Rules {
    limit: u64,
    /// Bytes charged to links, without the link that may exceed.
    pub(crate) used: u64,
    /// Bytes that a request reserves.
    pub(super) typical: u64,
    /// The link that may exceed the budget.
    pub(crate) exceeding: Option<u64>,
    pub(crate) links: HashMap<u64, Account>,
    pub(crate) senders: HashMap<Arc<str>, Sender>,
    /// Links that wait.
    pub(crate) queue: BTreeMap<Turn, u64>,
    /// Waiting links that are no strangers.
    pub(crate) known: BTreeMap<Turn, u64>,
    /// The turn of the last granted link.
    turn: u64,
    pub(super) next_id: u64,
    next_place: u64,
}

/// A position in the queue: a turn, and a number.
pub(crate) type Turn = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(super) sender: Arc<str>,
    pub(super) wake: Option<Arc<Notify>>,
    pub(crate) charge: u64,
    /// It reserves bytes, however few.
    pub(crate) is_at_work: bool,
    /// Its position in the queue, and the bytes to charge.
    waits: Option<(Turn, u64)>,
    /// Its request was granted, and it has not seen that.
    pub(crate) is_granted: bool,
    /// It checks its peer's speed.
    checks_speed: bool,
}

/// A request that asks to be handed out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    /// Bytes that the link would be charged.
    pub(super) charge: u64,
    pub(super) is_stranger: bool,
    /// Whether an answer could begin to leave.
    pub(super) can_begin: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Sender {
    pub(super) links: usize,
    /// The latest turn that one of its links has waited for.
    turn: u64,
}

impl Rules {
    pub(super) fn new(limit: u64, typical: u64) -> Self {
        Self {
            limit,
            typical,
            ..Self::default()
        }
    }

    /// The charge for so many bytes and requests at work.
    pub(super) fn charge(&self, bytes: u64, at_work: u64) -> u64 {
        let reserved = self.typical.saturating_mul(at_work);
        bytes
            .saturating_add(reserved)
            .saturating_sub(to_u64(FREE_BYTES))
    }

    /// Whether a link's request is granted; if not, the link waits where it may.
    pub(super) fn ask(&mut self, id: u64, request: Ask) -> bool {
        let wanted = request.charge;
        let Some(link) = self.links.get(&id) else {
            return true;
        };
        let is_idle = link.charge == 0 && !link.is_at_work;
        let others_wait = self.queue.len() > usize::from(link.waits.is_some());
        if self.fits(id, wanted) && (wanted == 0 || !others_wait) {
            self.stop_waiting(id);
            // A grant of the queue that it has not seen is this one.
            self.take_grant(id);
            return true;
        }
        if !is_idle || !request.can_begin {
            self.stop_waiting(id);
            return false;
        }
        self.wait(id, wanted, request.is_stranger);
        false
    }

    fn fits(&self, id: u64, wanted: u64) -> bool {
        let own = match self.exceeding {
            Some(exceeding) if exceeding == id => 0,
            _ => self.links.get(&id).map_or(0, |link| link.charge),
        };
        let others = self.used.saturating_sub(own);
        self.used <= self.limit && wanted <= self.limit.saturating_sub(others) / 2
    }

    /// Grants waiting requests: those that fit, and one that does not.
    pub(super) fn admit(&mut self) {
        while let Some(id) = self.next() {
            let waits = self.links.get(&id).and_then(|link| link.waits);
            let (place, wanted) = waits.unwrap_or_default();
            let passed = if self.known.contains_key(&place) {
                0
            } else {
                STRANGER_TURNS
            };
            self.stop_waiting(id);
            self.turn = self.turn.max(place.0.saturating_sub(passed));
            self.set_charge(id, wanted, true);
            if let Some(link) = self.links.get_mut(&id) {
                link.is_granted = true;
                if let Some(wake) = &link.wake {
                    wake.notify_one();
                }
            }
        }
    }

    /// Whether the link checks its peer's speed: it does already, or others wait since its last
    /// check.
    pub(super) fn update_checks_speed(&mut self, id: u64, checks_speed: bool) -> bool {
        let others_wait = !self.queue.is_empty();
        let link = self.links.get_mut(&id);
        link.is_some_and(|link| {
            link.checks_speed = checks_speed || (others_wait && link.charge > 0);
            link.checks_speed
        })
    }

    /// The first waiting link, if it fits, or the one that may exceed the budget from now on.
    fn next(&mut self) -> Option<u64> {
        let id = *self.queue.values().next()?;
        let waits = self.links.get(&id).and_then(|link| link.waits);
        if self.fits(id, waits.map_or(0, |(_, wanted)| wanted)) {
            return Some(id);
        }
        let known = self.known.values().next().copied();
        let id = known.or((self.used == 0).then_some(id))?;
        if self.exceeding.is_some() {
            return None;
        }
        self.exceeding = Some(id);
        let charge = self.links.get(&id).map_or(0, |link| link.charge);
        self.used = self.used.saturating_sub(charge);
        Some(id)
    }

    pub(super) fn take_grant(&mut self, id: u64) -> bool {
        let link = self.links.get_mut(&id);
        link.is_some_and(|link| std::mem::take(&mut link.is_granted))
    }

    pub(super) fn set_charge(&mut self, id: u64, charge: u64, is_at_work: bool) {
        if charge > 0 {
            // A request that was at work for long was answered: the link waits until some of that
            // has left.
            self.stop_waiting(id);
        }
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.is_at_work = is_at_work;
        let before = std::mem::replace(&mut link.charge, charge);
        if self.exceeding == Some(id) {
            if charge == 0 && !is_at_work {
                self.exceeding = None;
            }
            return;
        }
        self.used = self.used.saturating_sub(before).saturating_add(charge);
    }

    /// Puts a link into the queue; one that waits already keeps its position.
    fn wait(&mut self, id: u64, wanted: u64, is_stranger: bool) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some((_, wants)) = &mut link.waits {
            *wants = wanted;
            return;
        }
        self.next_place = self.next_place.wrapping_add(1);
        let mut turn = self.turn;
        if let Some(sender) = self.senders.get_mut(&link.sender) {
            turn = turn.max(sender.turn).saturating_add(1);
            sender.turn = turn;
        }
        if is_stranger {
            turn = turn.saturating_add(STRANGER_TURNS);
        }
        let place = (turn, self.next_place);
        link.waits = Some((place, wanted));
        self.queue.insert(place, id);
        if !is_stranger {
            self.known.insert(place, id);
        }
    }

    /// Makes the links that hold something check their peers' speed from now on. They are notified
    /// once, and not each time that the queue gets its first link.
    pub(super) fn notify_holders(&mut self) {
        let holding = self.links.values_mut();
        for link in holding.filter(|link| link.charge > 0 && !link.checks_speed) {
            link.checks_speed = true;
            if let Some(wake) = &link.wake {
                wake.notify_one();
            }
        }
    }

    pub(super) fn stop_waiting(&mut self, id: u64) {
        let waits = self.links.get_mut(&id).and_then(|link| link.waits.take());
        if let Some((place, _)) = waits {
            self.queue.remove(&place);
            self.known.remove(&place);
        }
    }

    pub(super) fn leave_sender(&mut self, id: u64) {
        let Some(name) = self.links.get(&id).map(|link| Arc::clone(&link.sender)) else {
            return;
        };
        if let Some(sender) = self.senders.get_mut(&name) {
            sender.links = sender.links.saturating_sub(1);
            if sender.links == 0 {
                self.senders.remove(&name);
            }
        }
    }
}
