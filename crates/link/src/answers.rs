//! The budget of answers that wait for peers to read them: which requests may be handed out.
//!
//! The size of an answer is not known before the answer. So a request that is handed out reserves
//! as many bytes as the largest of the latest answers, until it is answered, and no longer than
//! [`AT_WORK`]: an application may take minutes for an answer, and must not block other requests
//! meanwhile.
//!
//! Each link has [`FREE_BYTES`] free of charge, and of the rest half of the bytes that the others
//! leave. A link that holds something waits until some of that has left. The others wait in a
//! queue, in which senders take turns. Strangers, links whose peers have taken neither
//! [`KNOWN_ANSWERS`] answers nor as many bytes as an answer reserves, let [`STRANGER_TURNS`] turns
//! pass first. One link at a time may exceed the budget, until all of its answers have left: the
//! first in the queue that is no stranger, or any while nothing else is held. A link whose peer is
//! too slow with held answers while others wait is ended.

mod rules;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackline_core::{AnswerRoom, AnswerUsage, SlowAnswers};
use tokio::sync::Notify;

pub(crate) use rules::Rules;
use rules::{Account, Ask};

use crate::budget::FREE_BYTES;
use crate::progress::{Fairness, IncomingFrame, ProgressSample};
use crate::units::to_u64;

/// How long a request that is handed out reserves bytes for its answer.
const AT_WORK: Duration = Duration::from_secs(1);

/// The assumed size of the first answer: more than the free part, and few enough for hundreds of
/// links.
const FIRST_BYTES: u64 = 128 << 10;

/// The part of the budget that the first answer takes at most.
const FIRST_PART: u64 = 8;

/// The part by which the reserved size shrinks with each smaller answer.
const DECAY_PART: u64 = 8;

/// Turns of others that a stranger lets pass.
const STRANGER_TURNS: u64 = 64;

/// Answers after which a peer that has taken them all is no stranger, however short they were.
const KNOWN_ANSWERS: u64 = 8;

/// The answer budget of all links of a process.
#[derive(Debug)]
pub struct AnswerBudget {
    rules: Mutex<Rules>,
    /// Links in the queue, read without the lock.
    waiting: AtomicUsize,
}

/// One link's share of the budget; dropping it returns everything.
#[derive(Debug)]
pub struct AnswerShare {
    budget: Arc<AnswerBudget>,
    id: u64,
    /// The times at which requests that reserve bytes were granted.
    at_work: VecDeque<Instant>,
    next: Next,
    /// Something of the link is charged or reserved.
    is_charged: bool,
    /// Others wait, or did at the last check of the peer's speed.
    checks_speed: bool,
    kept: AnswerUsage,
    /// Answers so far, and their number when none of them waited.
    answers: u64,
    taken: u64,
    incoming: IncomingFrame,
}

/// The state of a link's next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// No request was made.
    None,
    /// There was no space for it, and it may be in the queue.
    Waits,
    /// It reserves bytes, and is not handed out.
    Granted,
}

impl AnswerBudget {
    pub(crate) fn new(limit: u64) -> Self {
        let rules = Rules::new(limit, FIRST_BYTES.min(limit / FIRST_PART));
        Self {
            rules: Mutex::new(rules),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A share for one more link, of no sender.
    pub fn share(self: &Arc<Self>) -> AnswerShare {
        let id = self.change(|rules| {
            rules.next_id = rules.next_id.wrapping_add(1);
            rules.links.insert(rules.next_id, Account::default());
            rules.next_id
        });
        AnswerShare {
            budget: Arc::clone(self),
            id,
            at_work: VecDeque::new(),
            next: Next::None,
            is_charged: false,
            checks_speed: false,
            kept: AnswerUsage::default(),
            answers: 0,
            taken: 0,
            incoming: IncomingFrame::default(),
        }
    }

    /// Bytes that are charged now, above the free ones.
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
            rules.notify_holders();
        }
        self.waiting.store(rules.queue.len(), Ordering::Relaxed);
        result
    }
}

impl AnswerShare {
    /// The number of the share.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Sets the link's sender, and the driver that is woken when a request may be handed out.
    pub fn attach(&mut self, sender: &Arc<str>, wake: Arc<Notify>) {
        let id = self.id;
        self.budget.change(|rules| {
            rules.leave_sender(id);
            rules.senders.entry(Arc::clone(sender)).or_default().links += 1;
            if let Some(link) = rules.links.get_mut(&id) {
                (link.sender, link.wake) = (Arc::clone(sender), Some(wake));
            }
        });
    }
}

impl AnswerRoom for AnswerShare {
    fn ask(&mut self, now: Instant, request: u64, can_begin: bool) -> bool {
        self.look(now);
        if self.next == Next::Granted {
            return true;
        }
        let (bytes, at_work) = (self.kept.bytes(), to_u64(self.at_work.len()));
        let (id, left, is_known) = (self.id, self.kept.left, self.taken >= KNOWN_ANSWERS);
        let fits = self.budget.change(|rules| {
            let bytes = bytes.saturating_add(request);
            let ask = Ask {
                charge: rules.charge(bytes, at_work.saturating_add(1)),
                is_stranger: !is_known && left < rules.typical,
                can_begin,
            };
            rules.ask(id, ask)
        });
        if fits {
            self.granted(now);
        } else {
            self.next = Next::Waits;
            // It may have been the next one.
            self.look(now);
        }
        self.next == Next::Granted
    }

    fn handed_out(&mut self) {
        self.next = Next::None;
    }

    fn answered(&mut self, bytes: u64) {
        let unused = usize::from(self.next == Next::Granted);
        if self.at_work.len() > unused {
            self.at_work.pop_front();
        }
        self.answers = self.answers.saturating_add(1);
        self.budget.change(|rules| {
            let smaller = rules.typical.saturating_sub(rules.typical / DECAY_PART);
            rules.typical = smaller.max(bytes);
        });
    }

    fn settle(&mut self, now: Instant, kept: AnswerUsage) -> bool {
        self.kept = kept;
        if kept.answers == 0 {
            self.taken = self.answers;
        }
        let is_due = self
            .incoming
            .due(&Fairness::default())
            .is_some_and(|due| due <= now);
        self.checks_speed = self.others_wait() || (self.checks_speed && !is_due);
        let bytes = kept.bytes().saturating_sub(to_u64(FREE_BYTES));
        let holds = ProgressSample {
            bytes: if kept.answers == 0 { 0 } else { bytes },
            finished: 0,
            came: kept.left,
            is_peers_turn: true,
        };
        self.incoming.observe(now, holds, &Fairness::default());
        if bytes > 0 || self.is_charged || self.next == Next::Waits {
            self.look(now);
            self.charge();
            let (id, checks_speed) = (self.id, self.checks_speed);
            self.checks_speed = self
                .budget
                .change(|rules| rules.update_checks_speed(id, checks_speed && bytes > 0));
        }
        self.next == Next::Granted
    }

    fn end(&mut self) {
        self.at_work.clear();
        (self.next, self.is_charged, self.checks_speed) = (Next::None, false, false);
        self.kept = AnswerUsage::default();
        self.incoming = IncomingFrame::default();
        let id = self.id;
        self.budget.change(|rules| {
            rules.stop_waiting(id);
            rules.take_grant(id);
            rules.set_charge(id, 0, false);
        });
    }

    fn due(&self) -> Option<Instant> {
        let at_work = self
            .at_work
            .front()
            .and_then(|since| since.checked_add(AT_WORK));
        let slow = self
            .incoming
            .due(&Fairness::default())
            .filter(|_| self.checks_speed);
        [at_work, slow].into_iter().flatten().min()
    }

    fn slow(&self) -> Option<SlowAnswers> {
        let slow = self.incoming.slow(&Fairness::default());
        let slow = slow.filter(|_| self.others_wait())?;
        Some(SlowAnswers {
            taken: slow.came,
            seconds: slow.seconds,
        })
    }
}

impl AnswerShare {
    /// Whether other links wait. Waiting links hold nothing: if this one holds something, they are
    /// others.
    fn others_wait(&self) -> bool {
        self.budget.waiting.load(Ordering::Relaxed) > 0
    }

    fn granted(&mut self, now: Instant) {
        self.at_work.push_back(now);
        self.next = Next::Granted;
        self.charge();
    }

    /// Takes grants of the queue, and releases old ones.
    fn look(&mut self, now: Instant) {
        let id = self.id;
        if self.next == Next::Waits && self.budget.change(|rules| rules.take_grant(id)) {
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
        let charge = self.budget.change(|rules| {
            let charge = rules.charge(bytes, at_work);
            rules.set_charge(id, charge, at_work > 0);
            charge
        });
        self.is_charged = charge > 0 || at_work > 0;
    }
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        self.end();
        let id = self.id;
        self.budget.change(|rules| {
            rules.leave_sender(id);
            rules.links.remove(&id);
        });
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test needs some instant
mod tests;
