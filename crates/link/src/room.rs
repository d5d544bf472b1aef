//! The room for answers that wait until peers take them: who may be asked for one more.
//!
//! How large an answer gets is not known before it is there. So a request that is handed out reserves as many bytes as
//! the largest of the latest answers, until it is answered, and no longer than [`AT_WORK`]: an application may take
//! minutes for an answer, and must not keep others from being asked meanwhile.
//!
//! Each link has [`FREE_BYTES`] free of charge, and of the rest half of what the others leave. A link that holds
//! something waits until some of that has left. The others wait in a queue, in which senders take turns. Strangers,
//! links whose peers have taken neither [`KNOWN_ANSWERS`] answers nor as many bytes as an answer reserves, let [`PATIENCE`]
//! turns pass first. One link at a time may be asked
//! although there is no room, until all of its answers have left: the first in the queue that is no stranger, or any
//! while nothing else is held. A link whose peer is too slow with what it holds while others wait is to be ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::budget::{FREE_BYTES, to_u64};
use crate::progress::{Coming, Fairness, Holds};

/// How long a request that is handed out reserves bytes for its answer.
const AT_WORK: Duration = Duration::from_secs(1);

/// Bytes that the first answer is taken to have: more than what is free, and few enough for hundreds of links.
const FIRST_BYTES: u64 = 128 << 10;

/// And no more than one of so many parts of the room.
const FIRST_PART: u64 = 8;

/// With each smaller answer the reserved size shrinks by one of so many parts.
const DECAY_PART: u64 = 8;

/// Turns of others that a stranger lets pass.
const PATIENCE: u64 = 64;

/// Answers after which a peer that has taken them all is no stranger, however short they were.
const KNOWN_ANSWERS: u64 = 8;

/// The room of all links of a process.
#[derive(Debug)]
pub struct Room {
    rules: Mutex<Rules>,
    /// Links in the queue, for who need not lock it otherwise.
    waiting: AtomicUsize,
}

/// The bytes that a link holds of it now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kept {
    /// Bytes of requests that were accepted and are not answered.
    pub accepted: u64,
    /// Bytes of answers that wait for the peer.
    pub answers: u64,
    /// Bytes of answers that have left since the link began.
    pub left: u64,
}

impl Kept {
    const fn bytes(self) -> u64 {
        self.accepted.saturating_add(self.answers)
    }
}

/// How slow a peer was with answers for whose room others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowAnswers {
    /// Bytes that it took.
    pub taken: u64,
    /// In how many seconds.
    pub seconds: u64,
}

/// One link's part of the room; dropping it gives everything back.
#[derive(Debug)]
pub struct RoomShare {
    room: Arc<Room>,
    id: u64,
    /// Requests that reserve bytes, by when they were granted.
    at_work: VecDeque<Instant>,
    next: Next,
    /// Something of the link is charged or reserved.
    is_charged: bool,
    /// Others wait, or did at the last look whether the peer is slow.
    is_told: bool,
    kept: Kept,
    /// Answers so far, and how many there were when none of them waited.
    answers: u64,
    taken: u64,
    coming: Coming,
}

/// The next request of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nobody has asked for it.
    None,
    /// There was no room for it, and it may stand in the queue.
    Waits,
    /// It reserves bytes, and is not handed out.
    Granted,
}

#[derive(Debug, Default)]
pub(crate) struct Rules {
    limit: u64,
    /// Bytes that are charged to links, but for the one that may exceed.
    pub(crate) used: u64,
    /// Bytes that a request reserves.
    typical: u64,
    /// The link that may exceed the room.
    pub(crate) exceeding: Option<u64>,
    pub(crate) links: HashMap<u64, Account>,
    pub(crate) senders: HashMap<Arc<str>, Sender>,
    /// Links that wait.
    pub(crate) queue: BTreeMap<Turn, u64>,
    /// Those of them that are no strangers.
    pub(crate) known: BTreeMap<Turn, u64>,
    /// The turn of the link that was granted something last.
    turn: u64,
    next_id: u64,
    next_place: u64,
}

/// A place in the queue: a turn, and a number.
pub(crate) type Turn = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Account {
    sender: Arc<str>,
    wake: Option<Arc<Notify>>,
    pub(crate) charge: u64,
    /// It reserves bytes, however few.
    pub(crate) is_at_work: bool,
    /// Its place in the queue, and what it would be charged.
    waits: Option<(Turn, u64)>,
    /// It was granted what it has waited for, and does not know it.
    pub(crate) is_granted: bool,
    /// It looks whether its peer is slow.
    is_told: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Sender {
    links: usize,
    /// The latest turn that one of its links has waited for.
    turn: u64,
}

impl Room {
    pub(crate) fn new(limit: u64) -> Self {
        let rules = Rules {
            limit,
            typical: FIRST_BYTES.min(limit / FIRST_PART),
            ..Rules::default()
        };
        Self {
            rules: Mutex::new(rules),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A share for one more link, of no sender.
    pub fn share(self: &Arc<Self>) -> RoomShare {
        let id = self.change(|rules| {
            rules.next_id = rules.next_id.wrapping_add(1);
            rules.links.insert(rules.next_id, Account::default());
            rules.next_id
        });
        RoomShare {
            room: Arc::clone(self),
            id,
            at_work: VecDeque::new(),
            next: Next::None,
            is_charged: false,
            is_told: false,
            kept: Kept::default(),
            answers: 0,
            taken: 0,
            coming: Coming::default(),
        }
    }

    /// Bytes that are charged now, above what is free.
    pub fn used(&self) -> u64 {
        let rules = self.rules();
        let exceeding = rules.exceeding.and_then(|id| rules.links.get(&id));
        rules
            .used
            .saturating_add(exceeding.map_or(0, |it| it.charge))
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, f: impl FnOnce(&mut Rules) -> R) -> R {
        let mut rules = self.rules();
        let was_empty = rules.queue.is_empty();
        let result = f(&mut rules);
        rules.admit();
        if was_empty && !rules.queue.is_empty() {
            rules.tell_holders();
        }
        self.waiting.store(rules.queue.len(), Ordering::Relaxed);
        result
    }
}

impl RoomShare {
    /// Its number among all shares of the room.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Names the sender of the link, and the driver that is woken when a request may be handed out.
    pub fn attach(&mut self, sender: &Arc<str>, wake: Arc<Notify>) {
        let id = self.id;
        self.room.change(|rules| {
            rules.leave_sender(id);
            rules.senders.entry(Arc::clone(sender)).or_default().links += 1;
            if let Some(link) = rules.links.get_mut(&id) {
                (link.sender, link.wake) = (Arc::clone(sender), Some(wake));
            }
        });
    }

    /// Whether a request of so many bytes may be handed out. If not, and the link holds nothing, it waits in the
    /// queue, if an answer could begin to leave (`can_begin`): a peer that gives no credit waits for nothing.
    pub fn ask(&mut self, now: Instant, request: u64, can_begin: bool) -> bool {
        self.look(now);
        if self.next == Next::Granted {
            return true;
        }
        let (bytes, at_work) = (self.kept.bytes(), to_u64(self.at_work.len()));
        let (id, left, is_known) = (self.id, self.kept.left, self.taken >= KNOWN_ANSWERS);
        let has_room = self.room.change(|rules| {
            let bytes = bytes.saturating_add(request);
            let wanted = rules.charge(bytes, at_work.saturating_add(1));
            let is_stranger = !is_known && left < rules.typical;
            rules.ask(id, (wanted, is_stranger), can_begin)
        });
        if has_room {
            self.granted(now);
        } else {
            self.next = Next::Waits;
            // It may have been the next one.
            self.look(now);
        }
        self.next == Next::Granted
    }

    /// The request was handed out.
    pub const fn handed_out(&mut self) {
        self.next = Next::None;
    }

    /// A request was answered with so many bytes, or given up.
    pub fn answered(&mut self, bytes: u64) {
        let unused = usize::from(self.next == Next::Granted);
        if self.at_work.len() > unused {
            self.at_work.pop_front();
        }
        self.answers = self.answers.saturating_add(1);
        self.room.change(|rules| {
            let smaller = rules.typical.saturating_sub(rules.typical / DECAY_PART);
            rules.typical = smaller.max(bytes);
        });
    }

    /// The link holds that now. Whether it was granted what it waits for.
    pub fn settle(&mut self, now: Instant, kept: Kept) -> bool {
        self.kept = kept;
        if kept.answers == 0 {
            self.taken = self.answers;
        }
        let is_due = self
            .coming
            .due(&Fairness::default())
            .is_some_and(|due| due <= now);
        self.is_told = self.others_wait() || (self.is_told && !is_due);
        let bytes = kept.bytes().saturating_sub(to_u64(FREE_BYTES));
        let holds = Holds {
            bytes: if kept.answers == 0 { 0 } else { bytes },
            finished: 0,
            came: kept.left,
            is_peers_turn: true,
        };
        self.coming.see(now, holds, &Fairness::default());
        if bytes > 0 || self.is_charged || self.next == Next::Waits {
            self.look(now);
            self.charge();
            let (id, is_told) = (self.id, self.is_told);
            self.is_told = self
                .room
                .change(|rules| rules.told(id, is_told && bytes > 0));
        }
        self.next == Next::Granted
    }

    /// The link has ended: others need not wait for what it holds.
    pub fn end(&mut self) {
        self.at_work.clear();
        (self.next, self.is_charged, self.is_told) = (Next::None, false, false);
        self.kept = Kept::default();
        self.coming = Coming::default();
        let id = self.id;
        self.room.change(|rules| {
            rules.stop_waiting(id);
            rules.take_grant(id);
            rules.set_charge(id, 0, false);
        });
    }

    /// When the link is to be looked at again.
    pub fn due(&self) -> Option<Instant> {
        let at_work = self
            .at_work
            .front()
            .and_then(|since| since.checked_add(AT_WORK));
        let slow = self
            .coming
            .due(&Fairness::default())
            .filter(|_| self.is_told);
        [at_work, slow].into_iter().flatten().min()
    }

    /// How slow the peer is, if it is too slow and others wait for the room: below the default of `--min-rate`, or of
    /// `--frame-timeout`.
    pub fn slow(&self) -> Option<SlowAnswers> {
        let slow = self.coming.slow(&Fairness::default());
        let slow = slow.filter(|_| self.others_wait())?;
        Some(SlowAnswers {
            taken: slow.came,
            seconds: slow.seconds,
        })
    }

    /// Links that wait hold nothing: where this one holds something they are others.
    fn others_wait(&self) -> bool {
        self.room.waiting.load(Ordering::Relaxed) > 0
    }

    fn granted(&mut self, now: Instant) {
        self.at_work.push_back(now);
        self.next = Next::Granted;
        self.charge();
    }

    /// Takes what the queue has granted, and lets go of what was granted long ago.
    fn look(&mut self, now: Instant) {
        let id = self.id;
        if self.next == Next::Waits && self.room.change(|rules| rules.take_grant(id)) {
            self.granted(now);
        }
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= AT_WORK;
        let before = self.at_work.len();
        while self.at_work.front().is_some_and(is_old) {
            self.at_work.pop_front();
        }
        if self.next == Next::Granted && self.at_work.is_empty() {
            self.next = Next::None;
        }
        if self.at_work.len() != before {
            self.charge();
        }
    }

    fn charge(&mut self) {
        let (id, bytes) = (self.id, self.kept.bytes());
        let at_work = to_u64(self.at_work.len());
        let charge = self.room.change(|rules| {
            let charge = rules.charge(bytes, at_work);
            rules.set_charge(id, charge, at_work > 0);
            charge
        });
        self.is_charged = charge > 0 || at_work > 0;
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        self.end();
        let id = self.id;
        self.room.change(|rules| {
            rules.leave_sender(id);
            rules.links.remove(&id);
        });
    }
}

impl Rules {
    /// Bytes that are charged for so many, and for requests that are at work.
    fn charge(&self, bytes: u64, at_work: u64) -> u64 {
        let reserved = self.typical.saturating_mul(at_work);
        bytes
            .saturating_add(reserved)
            .saturating_sub(to_u64(FREE_BYTES))
    }

    fn ask(&mut self, id: u64, (wanted, is_stranger): (u64, bool), can_begin: bool) -> bool {
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
        if !is_idle || !can_begin {
            self.stop_waiting(id);
            return false;
        }
        self.wait(id, wanted, is_stranger);
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

    /// Grants those who wait what they wait for: what fits, and to one of them what does not.
    fn admit(&mut self) {
        while let Some(id) = self.next() {
            let waits = self.links.get(&id).and_then(|link| link.waits);
            let (place, wanted) = waits.unwrap_or_default();
            let passed = if self.known.contains_key(&place) {
                0
            } else {
                PATIENCE
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

    /// Whether the link is to look whether its peer is slow: it does, or others wait since its last look.
    fn told(&mut self, id: u64, is_told: bool) -> bool {
        let others_wait = !self.queue.is_empty();
        let link = self.links.get_mut(&id);
        link.is_some_and(|link| {
            link.is_told = is_told || (others_wait && link.charge > 0);
            link.is_told
        })
    }

    /// The first that waits, if it fits, or the one that may exceed the room from now on.
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

    fn take_grant(&mut self, id: u64) -> bool {
        let link = self.links.get_mut(&id);
        link.is_some_and(|link| std::mem::take(&mut link.is_granted))
    }

    fn set_charge(&mut self, id: u64, charge: u64, is_at_work: bool) {
        if charge > 0 {
            // A request that was at work for long was answered: the link waits until some of that has left.
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

    /// It waits; who waited already keeps its place.
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
            turn = turn.saturating_add(PATIENCE);
        }
        let place = (turn, self.next_place);
        link.waits = Some((place, wanted));
        self.queue.insert(place, id);
        if !is_stranger {
            self.known.insert(place, id);
        }
    }

    /// Those who hold something look from now on whether their peers are slow. They are told once, and not each time
    /// that the queue gets its first link.
    fn tell_holders(&mut self) {
        let holding = self.links.values_mut();
        for link in holding.filter(|link| link.charge > 0 && !link.is_told) {
            link.is_told = true;
            if let Some(wake) = &link.wake {
                wake.notify_one();
            }
        }
    }

    fn stop_waiting(&mut self, id: u64) {
        let waits = self.links.get_mut(&id).and_then(|link| link.waits.take());
        if let Some((place, _)) = waits {
            self.queue.remove(&place);
            self.known.remove(&place);
        }
    }

    fn leave_sender(&mut self, id: u64) {
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test needs some instant
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FREE: u64 = 64 << 10;

    /// Of a link whose peer has taken answers before.
    fn keeps(answers: u64) -> Kept {
        Kept {
            accepted: 0,
            answers,
            left: 8 << 20,
        }
    }

    fn share(room: &Arc<Room>, now: Instant) -> RoomShare {
        let mut share = room.share();
        share.settle(now, keeps(0));
        share
    }

    /// A link that was asked, and whose answer of so many bytes waits; whether there was room.
    fn asked(share: &mut RoomShare, now: Instant, answer: u64) -> bool {
        if !share.ask(now, 0, true) {
            return false;
        }
        share.handed_out();
        share.answered(answer);
        share.settle(now, keeps(answer));
        true
    }

    #[test]
    fn senders_take_turns() {
        let (room, now) = (Arc::new(Room::new(1 << 20)), Instant::now());
        let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
        let share = |sender: &Arc<str>| {
            let mut share = share(&room, now);
            share.attach(sender, Arc::default());
            share
        };
        let mut first: Vec<_> = (0..20).map(|_| share(&many)).collect();
        let held: Vec<_> = first.iter_mut().map(|it| asked(it, now, 1 << 20)).collect();
        assert_eq!(
            held.iter().filter(|held| **held).count(),
            2,
            "one fits, one exceeds"
        );
        let mut late = share(&one);
        assert!(!asked(&mut late, now, 10));
        // As each leaves the next one comes: the late one is not the last.
        let mut left = 0;
        while !late.settle(now, keeps(0)) {
            let holding = first.iter_mut().find(|it| it.kept.answers > 0).unwrap();
            holding.settle(now, keeps(0));
            left += 1;
            for share in &mut first {
                asked(share, now, 1 << 20);
            }
            assert!(left < 6, "it waits for the others");
        }
    }

    #[test]
    fn a_link_that_ends_lets_others_go_on_and_leaves_nothing() {
        let (room, now) = (Arc::new(Room::new(1 << 20)), Instant::now());
        let mut shares: Vec<_> = (0..5).map(|_| share(&room, now)).collect();
        for share in &mut shares {
            asked(share, now, 1 << 20);
        }
        assert_eq!(room.used(), 2 * ((1 << 20) - FREE));
        assert!(!shares[4].settle(now, keeps(0)));
        shares[0].end();
        shares.remove(1);
        shares.remove(1);
        assert!(shares[1].settle(now, keeps(0)));
        drop(shares);
        assert_eq!(room.used(), 0);
        let rules = room.rules();
        assert!(rules.links.is_empty() && rules.queue.is_empty() && rules.senders.is_empty());
    }

    #[test]
    fn what_was_granted_and_not_used_reserves_nothing_after_a_second() {
        let (room, now) = (Arc::new(Room::new(8 << 20)), Instant::now());
        let mut share = room.share();
        assert!(share.ask(now, 0, true));
        assert_eq!(room.used(), FIRST_BYTES - FREE);
        assert_eq!(share.due(), Some(now + SECOND));
        share.settle(now + SECOND, Kept::default());
        assert_eq!((room.used(), share.due()), (0, None));
    }

    #[test]
    fn who_gives_no_credit_waits_for_nothing() {
        let (room, now) = (Arc::new(Room::new(1 << 20)), Instant::now());
        let mut shares: Vec<_> = (0..3).map(|_| share(&room, now)).collect();
        assert!(asked(&mut shares[0], now, 2 << 20));
        assert!(!shares[1].ask(now, 0, false));
        assert!(shares[2].ask(now, 0, true), "it may exceed the room");
    }

    #[test]
    fn strangers_exceed_nothing_while_others_hold_something() {
        let (room, now) = (Arc::new(Room::new(1 << 20)), Instant::now());
        let mut holder = share(&room, now);
        assert!(asked(&mut holder, now, 1 << 20));
        let (mut stranger, mut known) = (room.share(), share(&room, now));
        assert!(!stranger.ask(now, 0, true));
        assert!(asked(&mut known, now, 1 << 20), "it passes the stranger");
        known.settle(now, keeps(0));
        assert!(!stranger.ask(now, 0, true));
        holder.settle(now, keeps(0));
        assert!(stranger.ask(now, 0, true), "nothing else is held");
    }

    #[test]
    fn who_has_taken_short_answers_is_no_stranger() {
        let (room, now) = (Arc::new(Room::new(1 << 20)), Instant::now());
        let takes = |count| {
            let mut share = room.share();
            for _ in 0..count {
                assert!(share.ask(now, 0, true));
                share.handed_out();
                share.answered(10);
                share.settle(
                    now,
                    Kept {
                        answers: 10,
                        ..Kept::default()
                    },
                );
                share.settle(
                    now,
                    Kept {
                        left: 10,
                        ..Kept::default()
                    },
                );
            }
            share
        };
        let (mut few, mut enough) = (takes(KNOWN_ANSWERS - 1), takes(KNOWN_ANSWERS));
        let mut holder = share(&room, now);
        assert!(asked(&mut holder, now, 2 << 20));
        assert!(!few.ask(now, 0, true));
        assert!(enough.ask(now, 0, true), "it may exceed the room");
    }
}
