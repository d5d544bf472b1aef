//! One link of the schedule: its requests and answers, and the bytes that the budget charges for them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use ackline_core::{AnswerRoom as _, AnswerUsage};

use crate::answers::{AnswerBudget, AnswerShare};
use crate::units::to_u64;

/// A link and its share of the budget.
pub(super) struct Member {
    pub(super) share: AnswerShare,
    wake: Arc<Notify>,
    /// The number of its sender, if that is named.
    pub(super) sender: Option<usize>,
    /// It was woken, and not checked since.
    pub(super) is_woken: bool,
    /// It could not be woken at some time since its last check.
    is_deaf: bool,
    /// Bytes of each request that was handed out and is not answered.
    pub(super) requests: VecDeque<u64>,
    /// Bytes of waiting answers, and of those that have left.
    answers: u64,
    left: u64,
    /// Answers so far, and their number at the last check at which none of them waited.
    answered: u64,
    taken: u64,
    pub(super) next: Next,
    /// Times at which the requests that reserve bytes were granted.
    pub(super) at_work: VecDeque<Instant>,
    /// Its bytes at the last check, and those of requests and answers since then.
    kept: AnswerUsage,
    unknown: u64,
    pub(super) charge: Charge,
    pub(super) waits: Option<Waits>,
    /// Its wait has ended with a grant, and it was not checked since.
    pub(super) is_granted: bool,
    stall: Option<Stall>,
}

/// The next request of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    None,
    Refused,
    Granted,
}

/// The bytes that the budget charges to a link.
#[derive(Clone, Copy, Default)]
pub(super) struct Charge {
    pub(super) bytes: u64,
    pub(super) is_at_work: bool,
    /// The part of them for which there was space when they were granted.
    pub(super) foreseen: u64,
    /// Bytes that each request at work reserves.
    reserved: u64,
    /// Bytes of requests and answers that the budget has learnt of since the last charge.
    learnt: u64,
    /// Bytes that were reserved by requests answered since then.
    released: u64,
}

/// A position in the queue.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    /// The turn that it waits for, without the turns that a stranger lets pass.
    pub(super) turn: u64,
    pub(super) place: u64,
    pub(super) is_known: bool,
    pub(super) wants: Wants,
    /// Links of its sender have waited before; `None`: it had no sender.
    pub(super) has_waited: Option<bool>,
}

/// The bytes that a link asks for.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    /// Bytes that it would be charged.
    pub(super) bytes: u64,
    /// Bytes of them that each request at work reserves.
    pub(super) reserved: u64,
    /// Bytes of requests and answers that the budget has learnt of since it asked.
    pub(super) learnt: u64,
}

/// A peer that takes nothing of the answers that the link holds above its free part.
struct Stall {
    /// The start of the current unbroken hold.
    since: Instant,
    /// Checks since a byte was taken, at least [`LOOK`] apart, and the last of them.
    looks: u32,
    last: Instant,
}

impl Waits {
    /// The order in which waiting links continue.
    pub(super) const fn order(&self) -> (u64, u64) {
        let passed = if self.is_known { 0 } else { STRANGER_TURNS };
        (self.turn + passed, self.place)
    }
}

impl Charge {
    /// The charge for so many held bytes and requests at work.
    pub(super) fn wanted(kept: u64, at_work: u64, typical: u64) -> u64 {
        (kept + at_work * typical).saturating_sub(FREE)
    }

    /// Grants the bytes that it asked for.
    pub(super) const fn grant(&mut self, wants: Wants) {
        (self.bytes, self.foreseen, self.is_at_work) = (wants.bytes, wants.bytes, true);
        (self.reserved, self.released) = (wants.reserved, 0);
        self.learnt += wants.learnt;
    }

    /// Follows a change to so many bytes. They grow by larger reservations, and by requests and
    /// answers without a reservation.
    fn change(&mut self, bytes: u64, at_work: u64, typical: u64) {
        let grown = typical.saturating_sub(self.reserved) * at_work;
        let unforeseen = self.learnt.saturating_sub(self.released);
        let most = self.bytes + unforeseen + grown;
        assert!(bytes <= most, "a charge grows for no reason");
        self.bytes = bytes;
        self.foreseen = self.foreseen.min(bytes);
        self.is_at_work = at_work > 0;
        (self.reserved, self.learnt, self.released) = (typical, 0, 0);
    }

    /// Whether nothing is charged or reserved.
    pub(super) const fn is_idle(&self) -> bool {
        self.bytes == 0 && !self.is_at_work
    }
}

impl Member {
    pub(super) fn open(budget: &Arc<AnswerBudget>) -> Self {
        Self {
            share: budget.share(),
            wake: Arc::new(Notify::new()),
            sender: None,
            is_woken: false,
            is_deaf: true,
            requests: VecDeque::new(),
            answers: 0,
            left: 0,
            answered: 0,
            taken: 0,
            next: Next::None,
            at_work: VecDeque::new(),
            kept: AnswerUsage::default(),
            unknown: 0,
            charge: Charge::default(),
            waits: None,
            is_granted: false,
            stall: None,
        }
    }

    pub(super) fn attach(&mut self, sender: usize, name: &Arc<str>) {
        self.share.attach(name, Arc::clone(&self.wake));
        self.sender = Some(sender);
    }

    /// Bytes that the budget knows of.
    pub(super) const fn kept(&self) -> u64 {
        self.kept.accepted + self.kept.answers
    }

    /// Whether its peer has taken neither enough answers nor enough bytes.
    pub(super) const fn is_stranger(&self, typical: u64) -> bool {
        self.taken < KNOWN_ANSWERS && self.kept.left < typical
    }

    pub(super) fn hand_out(&mut self, request: u64) {
        self.share.handed_out();
        self.next = Next::None;
        self.requests.push_back(request);
        self.unknown += request;
    }

    /// Its oldest request is answered with so many bytes.
    pub(super) fn answer(&mut self, bytes: u64) {
        self.share.answered(bytes);
        self.requests.pop_front();
        self.answers += bytes;
        self.answered += 1;
        let unused = usize::from(self.next == Next::Granted);
        if self.at_work.len() > unused {
            self.at_work.pop_front();
            self.charge.released += self.charge.reserved;
        }
        self.unknown += bytes;
    }

    /// The peer takes this part of its answers.
    pub(super) fn take(&mut self, part: u8) {
        let bytes = self.answers * u64::from(part) / 255;
        self.answers -= bytes;
        self.left += bytes;
    }

    /// Reports its bytes to the budget.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        self.share.settle(now, self.kept)
    }

    /// Follows a check: the budget will know its bytes.
    pub(super) fn see(&mut self, now: Instant) {
        assert!(!self.hear(), "a link is woken for nothing");
        (self.is_woken, self.is_deaf) = (false, self.sender.is_none());
        self.charge.learnt += std::mem::take(&mut self.unknown);
        let has_left = self.left > self.kept.left;
        self.kept = AnswerUsage {
            accepted: self.requests.iter().sum(),
            answers: self.answers,
            left: self.left,
        };
        if self.answers == 0 {
            self.taken = self.answered;
        }
        let holds = self.answers > 0 && self.kept() > FREE;
        let before = self.stall.take().filter(|_| holds);
        self.stall = holds.then(|| Stall::go_on(before, has_left, now));
    }

    /// Ends reservations that are a second old. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.at_work.len();
        self.at_work.retain(|since| now - *since < AT_WORK);
        if self.at_work.is_empty() && self.next == Next::Granted {
            self.next = Next::None;
        }
        self.at_work.len() < before
    }

    /// Follows a change of its charge.
    pub(super) fn recharge(&mut self, typical: u64) {
        let at_work = to_u64(self.at_work.len());
        let bytes = Charge::wanted(self.kept(), at_work, typical);
        if let Some(waits) = &mut self.waits {
            waits.wants.learnt += self.charge.learnt;
        }
        self.charge.change(bytes, at_work, typical);
    }

    /// Follows its end: it holds, waits for and reserves nothing.
    pub(super) fn end(&mut self) {
        self.next = Next::None;
        self.at_work.clear();
        self.kept = AnswerUsage::default();
        self.unknown = self.requests.iter().sum::<u64>() + self.answers;
        self.charge = Charge::default();
        (self.waits, self.is_granted, self.stall) = (None, false, None);
    }

    /// Checks whether the last call has woken it: by a grant, or because it holds something and the
    /// first link waits.
    pub(super) fn check_wake(&mut self, is_granted: bool, is_first: bool) {
        let may_be = is_granted || (is_first && self.charge.bytes > 0);
        // Other wakes are found at its next check: asking each time would take a third of the time.
        if !may_be || self.sender.is_none() {
            return;
        }
        let is_woken = self.hear();
        self.is_woken |= is_woken;
        let is_forgotten = is_granted && !is_woken;
        assert!(!is_forgotten, "a link that is granted something is woken");
    }

    /// Whether it was woken since the last time.
    fn hear(&self) -> bool {
        let mut woken = pin!(self.wake.notified());
        let mut context = Context::from_waker(Waker::noop());
        woken.as_mut().poll(&mut context).is_ready()
    }

    /// Whether its peer is too slow; checked after each check of the link.
    pub(super) fn is_slow(&self, now: Instant, others_wait: bool) -> bool {
        let is_slow = self.share.slow().is_some();
        let stall = self.stall.as_ref();
        let may_be = stall.is_some_and(|stall| now - stall.since >= GRACE);
        assert!(
            !is_slow || (may_be && others_wait),
            "a peer is slow if it holds up others for some time"
        );
        let must_be = stall.is_some_and(|stall| stall.looks >= LOOKS);
        assert!(
            is_slow || !must_be || !others_wait,
            "a peer that takes nothing while others wait is slow"
        );
        is_slow
    }

    /// Only its free part is free of charge, and bytes that came after the request that the queue has granted.
    pub(super) fn check_bytes(&self) {
        let most = FREE + self.charge.bytes + self.charge.learnt;
        assert!(self.kept() <= most, "a link holds more than it is charged");
    }

    /// It must be checked in time: when reservations end, and while it delays others.
    pub(super) fn check_due(&self, now: Instant, others_wait: bool) {
        let due = self.share.due();
        let is_by = |time| due.is_some_and(|due| due <= now + time);
        if !self.at_work.is_empty() {
            assert!(is_by(AT_WORK), "a link is looked at when it reserves less");
        }
        if others_wait && self.stall.is_some() && !self.is_deaf {
            let is_watched = self.is_woken || is_by(LOOK);
            assert!(is_watched, "a link that holds up others is looked at");
        }
    }
}

impl Stall {
    /// Continues, or begins, with a check at which some bytes have left or none.
    fn go_on(before: Option<Self>, has_left: bool, now: Instant) -> Self {
        let mut stall = before.unwrap_or(Self {
            since: now,
            looks: 0,
            last: now,
        });
        if has_left {
            (stall.looks, stall.last) = (0, now);
        } else if now - stall.last >= LOOK {
            (stall.looks, stall.last) = (stall.looks + 1, now);
        }
        stall
    }
}

/// Bytes of a link that are free of charge.
const FREE: u64 = 64 << 10;
/// How long a request at work reserves bytes.
const AT_WORK: Duration = Duration::from_secs(1);
/// Turns that a stranger lets pass.
const STRANGER_TURNS: u64 = 64;
/// Answers after which a peer that has taken them all is no stranger.
const KNOWN_ANSWERS: u64 = 8;
/// How long a peer may take nothing in any case.
const GRACE: Duration = Duration::from_secs(5);
/// The time between two checks of a peer that may be slow.
const LOOK: Duration = Duration::from_millis(1_250);
/// The number of such checks after which a peer that has taken nothing is slow.
const LOOKS: u32 = 5;
