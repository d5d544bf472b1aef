//! One memory budget for all links of a process.
//!
//! Each link holds [`FREE_BYTES`] free of charge. A larger need is granted whole out of the shared
//! three quarters; the last quarter is a *reserve* that one link at a time, the next one, may use until
//! its charge is back to 0. So even if half-read windows fill the shared part, one link can complete
//! its window, settle it and pass the reserve on. The next sender is the one that has held the least
//! memory lately, and the next link is the one of it that has waited longest. A link that waits is
//! granted up to 512 KiB with its request, as soon as all of it is free or the reserve is, so that
//! others do not take the rest of a small window. Nobody behind it is granted any before.
//! While other links wait, a link that holds a complete frame or window gets no more before that is
//! settled: busy links take turns, each with one window or with the bytes that were in flight. Bytes
//! that were granted for more input, and that no frame or window needs, are returned when none has
//! come for a second.
//!
//! Nobody on this side can settle messages that their senders have not decided on, so they must not
//! make other links wait: they are charged to the shared part, up to half of the budget for all
//! links together, and more are refused at once ([`Undecided`]). A quarter of the budget and the
//! reserve stay for reading.
//!
//! If one sender has many links, they have at most half of the shared part together: the rest is
//! left for other senders.
//!
//! Decides which links may read, not how many bytes they read. [`Ledger`] has the rules; this
//! module adds the lock around it and wakes the waiters.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ackline_core::Quota;
use tokio::sync::{Notify, watch};

use crate::answers::AnswerBudget;
use crate::buffer_pool::{BufferPool, MOST_BYTES, POOL, PoolHandle};
use crate::ledger::{Ledger, RESERVE_PART, UNDECIDED_PART};
use crate::progress::Fairness;
use crate::units::{now, to_u64};

/// Bytes that every link may hold without asking.
pub const FREE_BYTES: usize = 64 * 1024;

/// A quarter of the budget, in addition to it, may be kept for as long as connections live.
const QUOTA_PART: u64 = 4;

/// An eighth of the budget, in addition to it, may wait for peers that do not read.
const ANSWERS_PART: u64 = 8;

/// The memory budget that its links share. Clones are the same budget.
#[derive(Clone)]
pub struct Budget {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// A copy of [`Ledger::is_crowded`] that is read without the lock.
    is_crowded: AtomicBool,
    fairness: Fairness,
    clock: Clock,
    waiting: watch::Sender<usize>,
    quota: Arc<Quota>,
    answers: Arc<AnswerBudget>,
    pool: &'static BufferPool,
}

/// The clock of a budget, and when it began.
struct Clock {
    now: fn() -> Instant,
    begun: Instant,
}

struct State {
    ledger: Ledger,
    /// The drivers of the links, woken when their requests are granted.
    wakes: HashMap<u64, Arc<Notify>>,
    /// The number of waiting links that was last published.
    shown: usize,
}

/// Told each time that ended links have returned much.
static RETURNED: Notify = Notify::const_new();

/// Bytes that are much: an allocator that kept them would double a small budget.
const MUCH: u64 = 16 << 20;

impl Budget {
    /// The least memory that options may set: hardly a payload could come in below it.
    pub const LEAST: u64 = 64 << 10;

    /// A budget of `bytes` above the free 64 KiB of each link, all of it for any sender and at any pace.
    pub fn new(bytes: u64) -> Self {
        Self::fair(bytes, Fairness::NONE)
    }

    /// As [`new`](Self::new), for many senders: the links of one sender have a share of the shared
    /// part (and one of them may have the reserve), and slow ones are ended while others wait.
    pub fn fair(bytes: u64, fairness: Fairness) -> Self {
        Self::with_parts(bytes, fairness, &POOL, now)
    }

    /// As [`fair`](Self::fair), by another clock.
    pub(crate) fn timed(bytes: u64, fairness: Fairness, now: fn() -> Instant) -> Self {
        Self::with_parts(bytes, fairness, &POOL, now)
    }

    fn with_parts(
        bytes: u64,
        fairness: Fairness,
        pool: &'static BufferPool,
        now: fn() -> Instant,
    ) -> Self {
        let state = State {
            ledger: Ledger::new(bytes, &fairness),
            wakes: HashMap::new(),
            shown: 0,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                is_crowded: AtomicBool::new(false),
                fairness,
                clock: Clock { now, begun: now() },
                waiting: watch::Sender::new(0),
                quota: Arc::new(Quota::new(bytes / QUOTA_PART)),
                answers: Arc::new(AnswerBudget::new(bytes / ANSWERS_PART)),
                pool,
            }),
        }
    }

    /// The quota of bytes that connections may keep for as long as they live, in addition to the
    /// charges here: a quarter more. Bytes that reading cannot give back must not make reading
    /// wait.
    pub fn quota(&self) -> Arc<Quota> {
        Arc::clone(&self.inner.quota)
    }

    /// The budget of the application's answers that wait for peers to read them: an eighth more.
    /// Answers must keep no peer from opening a stream.
    pub fn answers(&self) -> Arc<AnswerBudget> {
        Arc::clone(&self.inner.answers)
    }

    /// A link's account of undecided bytes, empty at first.
    pub fn undecided(&self) -> Undecided {
        Undecided {
            budget: self.clone(),
            charged: 0,
        }
    }

    /// Bytes that all links together may have undecided.
    pub fn most_undecided(&self) -> u64 {
        self.limit() / UNDECIDED_PART
    }

    /// Bytes charged now: reserved, held or undecided, without the free parts.
    pub fn used(&self) -> u64 {
        self.state().ledger.used()
    }

    /// The most bytes that may be charged.
    pub fn limit(&self) -> u64 {
        self.state().ledger.limit()
    }

    /// The longest frame or window that can always be admitted, in bytes: the reserve and half of the
    /// free part (the other half covers the rounding of the buffers). A protocol whose windows are
    /// held piece by piece must refuse longer ones by a limit of its own.
    pub fn largest(&self) -> u64 {
        self.state()
            .ledger
            .reserve()
            .saturating_add(to_u64(FREE_BYTES / 2))
    }

    /// The smallest budget whose [`largest`](Self::largest) is at least `bytes`.
    pub fn needed(bytes: u64) -> u64 {
        bytes
            .saturating_sub(to_u64(FREE_BYTES / 2))
            .saturating_mul(RESERVE_PART)
    }

    /// Waits until ended links have returned so much to some budget of the process that its allocator should give memory
    /// back to the system. Other links are granted those bytes at once, and may need blocks of other sizes.
    pub async fn much_returned() {
        RETURNED.notified().await;
    }

    /// Links whose reading waits for memory.
    pub fn waiting(&self) -> usize {
        self.state().ledger.waiting()
    }

    /// Follows [`Budget::waiting`]: above 0 is paused, 0 is resumed.
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.inner.waiting.subscribe()
    }

    pub(crate) fn open(self, sender: &Arc<str>, wake: Arc<Notify>) -> Account {
        let mut state = self.state();
        let id = state.ledger.open(Arc::clone(sender));
        state.wakes.insert(id, wake);
        drop(state);
        Account {
            budget: self,
            id,
            is_free: AtomicBool::new(true),
            has_ended: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        let mut state = self.state();
        let Clock { now, begun } = &self.inner.clock;
        let passed = now().saturating_duration_since(*begun);
        let result = f(state.ledger.at(passed));
        for id in state.ledger.take_woken() {
            if let Some(wake) = state.wakes.get(&id) {
                wake.notify_one();
            }
        }
        if state.ledger.have_returned(MUCH) {
            RETURNED.notify_one();
        }
        // The free buffers of the pool are within the budget too.
        let used = state.ledger.used().saturating_add(to_u64(MOST_BYTES));
        if used > state.ledger.limit() {
            self.inner.pool.clear();
        }
        let is_crowded = state.ledger.is_crowded();
        self.inner.is_crowded.store(is_crowded, Ordering::Relaxed);
        let waiting = state.ledger.waiting();
        if waiting != state.shown {
            // Under the lock, so that the last number sent is the current one.
            state.shown = waiting;
            self.inner.waiting.send_replace(waiting);
        }
        result
    }
}

/// The undecided messages of one link's peer; dropping this returns all of their bytes.
pub struct Undecided {
    budget: Budget,
    charged: u64,
}

impl Undecided {
    /// Sets the link's undecided bytes. A smaller number is never refused.
    ///
    /// # Errors
    /// The number is more than half of the bytes that the other links leave, which the error
    /// returns. Nothing changed.
    pub fn set(&mut self, bytes: u64) -> Result<(), u64> {
        // In steps, so that most messages need not ask.
        let wanted = bytes.next_multiple_of(UNDECIDED_STEP);
        if wanted == self.charged {
            return Ok(());
        }
        let own = self.charged;
        self.budget
            .change(|ledger| ledger.set_undecided(own, wanted))?;
        self.charged = wanted;
        Ok(())
    }
}

impl fmt::Debug for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Undecided({} bytes)", self.charged)
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        // A smaller number is never refused.
        let _ = self.set(0);
    }
}

/// The step in which undecided bytes are charged.
const UNDECIDED_STEP: u64 = 4_096;

/// One link's account in a budget; dropping it returns everything.
pub(crate) struct Account {
    budget: Budget,
    id: u64,
    /// Nothing is charged and nothing requested, so the ledger need not be locked to repeat that.
    /// Written under the link's lock only.
    is_free: AtomicBool,
    /// The link has ended: nothing is free of charge any more.
    has_ended: AtomicBool,
}

impl Account {
    /// Charges the held bytes, returns those that were only reserved, and stops waiting.
    pub(crate) fn settle(&self, held: usize) {
        self.change(held, Ledger::settle);
    }

    /// Marks the link as ended: all that it holds is charged until the application releases it.
    pub(crate) fn depart(&self, held: usize) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.change(held, Ledger::depart);
    }

    /// Whether `planned` bytes may be held; if not, the link's driver is woken when they may.
    /// `settling`: some of `held` are released without another byte being read.
    pub(crate) fn ask(&self, held: usize, planned: usize, settling: bool) -> bool {
        let wants = self.chargeable(planned);
        let granted = self.change(held.max(planned), |ledger, id, _| {
            ledger.ask(id, self.chargeable(held), wants, settling)
        });
        granted.unwrap_or(true)
    }

    /// As `ask`, but only if no link waits and the shared part has enough; never waits.
    pub(crate) fn try_ask(&self, held: usize, planned: usize) -> bool {
        let wants = self.chargeable(planned);
        let granted = self.change(held.max(planned), |ledger, id, _| {
            ledger.try_ask(id, self.chargeable(held), wants)
        });
        granted.unwrap_or(true)
    }

    /// Changes the ledger; `None` if nothing is charged and nothing will be.
    fn change<R>(&self, bytes: usize, f: impl FnOnce(&mut Ledger, u64, u64) -> R) -> Option<R> {
        let charge = self.chargeable(bytes);
        let is_crowded = self.budget.inner.is_crowded.load(Ordering::Relaxed);
        if charge == 0 && self.is_free.load(Ordering::Relaxed) && !is_crowded {
            return None;
        }
        self.budget.change(|ledger| {
            let result = f(ledger, self.id, charge);
            let is_free = ledger.is_free(self.id);
            self.is_free.store(is_free, Ordering::Relaxed);
            Some(result)
        })
    }

    fn chargeable(&self, bytes: usize) -> u64 {
        if self.has_ended.load(Ordering::Relaxed) {
            return to_u64(bytes);
        }
        to_u64(bytes.saturating_sub(FREE_BYTES))
    }

    pub(crate) fn largest(&self) -> u64 {
        self.budget.largest()
    }

    /// Marks the link as having a transport again.
    pub(crate) fn return_to(&self) {
        if self.has_ended.swap(false, Ordering::Relaxed) {
            let free = to_u64(FREE_BYTES);
            self.budget.change(|ledger| ledger.revive(self.id, free));
        }
    }

    pub(crate) fn fairness(&self) -> &Fairness {
        &self.budget.inner.fairness
    }

    /// Whether links wait for memory.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.waiting() > 0
    }

    /// The link's handle on the pool of read buffers.
    pub(crate) fn pool(&self) -> PoolHandle {
        self.budget.inner.pool.join()
    }

    pub(crate) fn charge(&self) -> u64 {
        if self.is_free.load(Ordering::Relaxed) {
            return 0;
        }
        self.budget.state().ledger.charge(self.id)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.change(|ledger| ledger.close(self.id));
        self.budget.state().wakes.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
