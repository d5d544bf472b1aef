//! One memory budget for all links of a process.
//!
//! Each link holds [`FREE_BYTES`] free of charge. What it wants above that is granted whole, first come
//! first served, out of the shared three quarters; the last quarter is a *lane* that one link at a time,
//! the one that has waited longest, may use until its charge is back to 0. So whatever half-read
//! windows fill the shared part, one link can complete what it has begun, settle it and pass the lane
//! on. While others wait, a link that holds something complete gets no more before that is settled, and it
//! waits behind them: so links that are never idle take turns, of one window or of what was in flight.
//!
//! Messages that their senders have not decided on can be settled by nobody here, so they must not make others
//! wait: they stand in the shared part, up to half of the budget for all links together, and more are refused at
//! once ([`Undecided`]). A quarter of the budget and the lane stay for reading.
//!
//! One sender's links, where they are many, have half of the shared part together at the most: what another one
//! needs is there.
//!
//! Decides who may read; does not decide what is read. The rules are in [`Ledger`], here is the lock around it and
//! the waking.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline_core::Quota;
use tokio::sync::{Notify, watch};

use crate::ledger::{LANE_PART, Ledger, UNDECIDED_PART};
use crate::progress::Fairness;
use crate::room::Room;
use crate::spare::{MOST_BYTES, SPARES, Spare, Spares};

/// Bytes that every link may hold without asking.
pub const FREE_BYTES: usize = 64 * 1024;

/// A quarter of the budget may be kept beside it.
const QUOTA_PART: u64 = 4;

/// An eighth of the budget may wait for peers that do not take it, beside it.
const ANSWERS_PART: u64 = 8;

/// The memory that all links opened with it share. Clones are the same budget.
#[derive(Clone)]
pub struct Budget {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// As [`Ledger::is_crowded`], for who need not lock it otherwise.
    is_crowded: AtomicBool,
    fairness: Fairness,
    waiting: watch::Sender<usize>,
    quota: Arc<Quota>,
    answers: Arc<Room>,
    spares: &'static Spares,
}

struct State {
    ledger: Ledger,
    /// The drivers of the links, woken when they are granted what they wait for.
    wakes: HashMap<u64, Arc<Notify>>,
    /// The number of waiting links that was last published.
    shown: usize,
}

impl Budget {
    /// The least memory that options may set: hardly a payload could come in below it.
    pub const LEAST: u64 = 64 << 10;

    /// A budget of `bytes` above the free 64 KiB of each link, all of it for any sender and at any pace.
    pub fn new(bytes: u64) -> Self {
        Self::with_spares((bytes, Fairness::NONE), &SPARES)
    }

    /// As [`new`](Self::new), for many senders: the links of one of them have a share of what is shared (and one of
    /// them may have the lane), and slow ones give way while others wait.
    pub fn fair(bytes: u64, fairness: Fairness) -> Self {
        Self::with_spares((bytes, fairness), &SPARES)
    }

    fn with_spares((bytes, fairness): (u64, Fairness), spares: &'static Spares) -> Self {
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
                waiting: watch::Sender::new(0),
                quota: Arc::new(Quota::new(bytes / QUOTA_PART)),
                answers: Arc::new(Room::new(bytes / ANSWERS_PART)),
                spares,
            }),
        }
    }

    /// What connections may keep for as long as they live, beside what is charged here: a quarter more. What
    /// reading cannot give back must not make reading wait.
    pub fn quota(&self) -> Arc<Quota> {
        Arc::clone(&self.inner.quota)
    }

    /// Answers of the application that wait until peers take them: an eighth more. They must keep nobody from opening
    /// anything.
    pub fn answers(&self) -> Arc<Room> {
        Arc::clone(&self.inner.answers)
    }

    /// A link's part of what is not decided on, none yet.
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

    /// Bytes charged now: reserved, held or undecided, without the free part.
    pub fn used(&self) -> u64 {
        self.state().ledger.used()
    }

    /// Bytes that may be charged.
    pub fn limit(&self) -> u64 {
        self.state().ledger.limit()
    }

    /// The longest frame or window that can always be admitted, in bytes: the lane and half of the free
    /// part (the other half is what the buffers round up).
    /// A protocol whose windows are held piece by piece must refuse longer ones by a limit of its own.
    pub fn largest(&self) -> u64 {
        self.state()
            .ledger
            .lane()
            .saturating_add(to_u64(FREE_BYTES / 2))
    }

    /// The smallest budget whose [`largest`](Self::largest) is `bytes`, so that they can be admitted.
    pub fn needed(bytes: u64) -> u64 {
        bytes
            .saturating_sub(to_u64(FREE_BYTES / 2))
            .saturating_mul(LANE_PART)
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
        let result = f(&mut state.ledger);
        for id in state.ledger.take_woken() {
            if let Some(wake) = state.wakes.get(&id) {
                wake.notify_one();
            }
        }
        // What is free for use again is within the budget too.
        let used = state.ledger.used().saturating_add(to_u64(MOST_BYTES));
        if used > state.ledger.limit() {
            self.inner.spares.clear();
        }
        let is_crowded = state.ledger.is_crowded();
        self.inner.is_crowded.store(is_crowded, Ordering::Relaxed);
        let waiting = state.ledger.waiting();
        if waiting != state.shown {
            // Under the lock, so that the last number sent is the last one true.
            state.shown = waiting;
            self.inner.waiting.send_replace(waiting);
        }
        result
    }
}

/// The undecided messages of one link's peer; dropping this gives all of their bytes back.
pub struct Undecided {
    budget: Budget,
    charged: u64,
}

impl Undecided {
    /// The link has so many undecided bytes now. Fewer are never refused.
    ///
    /// # Errors
    /// They are more than half of what the other links leave: that is so many bytes. Nothing changed.
    pub fn set(&mut self, bytes: u64) -> Result<(), u64> {
        // In steps, so that not each message asks.
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
        // Fewer are never refused.
        let _ = self.set(0);
    }
}

/// Bytes that undecided messages are charged at once.
const UNDECIDED_STEP: u64 = 4_096;

/// One link's part of a budget; dropping it gives everything back.
pub(crate) struct Account {
    budget: Budget,
    id: u64,
    /// Nothing is charged and nothing asked for: the ledger need not be locked to say so again. Written
    /// under the link's lock only.
    is_free: AtomicBool,
    /// Nothing is free of charge any more.
    has_ended: AtomicBool,
}

impl Account {
    /// Charges what is held, gives back what was only reserved and stops waiting.
    pub(crate) fn settle(&self, held: usize) {
        self.change(held, Ledger::settle);
    }

    /// The link has ended: all that it holds is charged, until the application lets it go.
    pub(crate) fn depart(&self, held: usize) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.change(held, Ledger::depart);
    }

    /// Whether `planned` bytes may be held; if not, the link's driver is woken when they may. `settling`:
    /// some of `held` are let go without another byte being read.
    pub(crate) fn ask(&self, held: usize, planned: usize, settling: bool) -> bool {
        let wants = self.chargeable(planned);
        let granted = self.change(held.max(planned), |ledger, id, _| {
            ledger.ask(id, self.chargeable(held), wants, settling)
        });
        granted.unwrap_or(true)
    }

    /// As `ask`, but only if nobody waits and the shared part has it; never waits.
    pub(crate) fn try_ask(&self, held: usize, planned: usize) -> bool {
        let wants = self.chargeable(planned);
        let granted = self.change(held.max(planned), |ledger, id, _| {
            ledger.try_ask(id, self.chargeable(held), wants)
        });
        granted.unwrap_or(true)
    }

    /// `None` where nothing is charged and nothing will be.
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

    /// The link has a transport again.
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

    /// The link's part in the read buffers that are used again.
    pub(crate) fn spare(&self) -> Spare {
        self.budget.inner.spares.join()
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

pub(crate) fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::spare::READ_BYTES;

    const FREE: usize = FREE_BYTES;

    fn sender() -> Arc<str> {
        Arc::from("one")
    }

    /// A budget of 400 bytes above the free parts: 300 shared, a lane of 100.
    fn accounts<const N: usize>() -> (Budget, [Account; N]) {
        let budget = Budget::new(400);
        let accounts = std::array::from_fn(|_| budget.clone().open(&sender(), Arc::default()));
        (budget, accounts)
    }

    #[test]
    fn what_is_needed_for_so_many_bytes_admits_them_and_one_less_does_not() {
        for bytes in [40_000, 1 << 20, 100 << 20] {
            let needed = Budget::needed(bytes);
            assert_eq!(Budget::new(needed).largest(), bytes);
            assert!(Budget::new(needed - 1).largest() < bytes);
        }
    }

    #[test]
    fn buffers_are_kept_for_use_again_only_where_the_budget_has_room_for_them() {
        static SPARES: Spares = Spares::new();
        let budget = Budget::with_spares((to_u64(MOST_BYTES) + 100, Fairness::default()), &SPARES);
        let one = budget.open(&sender(), Arc::default());
        let spare = one.spare();
        let keeps = |held| {
            spare.give(BytesMut::with_capacity(READ_BYTES));
            one.settle(FREE + held);
            spare.take().is_some()
        };
        assert!(keeps(100));
        assert!(!keeps(101));
        assert!(keeps(1));
    }

    #[test]
    fn the_free_part_is_not_charged() {
        let (budget, [one]) = accounts();
        assert!(one.ask(0, FREE, false));
        assert_eq!(budget.used(), 0);
        assert!(one.ask(0, FREE + 10, false));
        assert_eq!((budget.used(), one.charge()), (10, 10));
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn first_come_is_first_served_and_nobody_overtakes() {
        let (budget, [full, lane, first, second]) = accounts();
        assert!(full.ask(FREE + 300, FREE + 300, false));
        assert!(lane.ask(FREE, FREE + 100, false));
        assert!(!first.ask(FREE, FREE + 50, false));
        assert!(!second.ask(FREE, FREE + 1, false));
        assert_eq!(budget.waiting(), 2);
        full.settle(FREE + 299);
        assert!(
            !second.ask(FREE, FREE + 1, false),
            "one byte is free, but the first waits for 50"
        );
        assert!(!second.try_ask(FREE, FREE + 1));
        full.settle(FREE + 249);
        assert_eq!((first.charge(), second.charge()), (50, 1));
        assert_eq!(*budget.watch().borrow(), 0);
    }

    #[test]
    fn one_at_a_time_may_use_the_lane_until_its_charge_is_back_to_0() {
        let (_budget, [full, one, two]) = accounts();
        assert!(full.ask(FREE + 300, FREE + 300, false));
        assert!(one.ask(FREE, FREE + 60, false));
        assert!(
            !two.ask(FREE, FREE + 20, false),
            "the lane is one's although 40 bytes are left of it"
        );
        assert!(one.ask(FREE + 60, FREE + 100, false));
        one.settle(FREE + 1);
        assert_eq!(two.charge(), 0);
        one.settle(FREE);
        assert_eq!(two.charge(), 20);
    }

    #[test]
    fn who_holds_something_complete_waits_behind_the_others() {
        let (_budget, [full, one, two]) = accounts();
        assert!(full.ask(FREE + 300, FREE + 300, false));
        assert!(one.ask(FREE, FREE + 60, false));
        assert!(one.ask(FREE + 60, FREE + 60, true), "nobody else waits");
        assert!(!two.ask(FREE, FREE + 20, false));
        assert!(
            !one.ask(FREE + 60, FREE + 60, true),
            "no more, not even within its charge, before it has settled"
        );
        assert!(!one.ask(FREE, FREE + 60, false), "its turn is over");
        assert_eq!((one.charge(), two.charge()), (0, 20));
        two.settle(0);
        assert_eq!(one.charge(), 60);
    }

    #[test]
    fn who_waits_for_its_own_settling_holds_nobody_up() {
        let (_budget, [full, lane, one, first, second]) = accounts();
        assert!(one.ask(FREE + 60, FREE + 60, false));
        assert!(full.ask(FREE + 240, FREE + 240, false));
        assert!(lane.ask(FREE, FREE + 100, false));
        assert!(!first.ask(FREE, FREE + 20, false));
        assert!(!one.ask(FREE + 60, FREE + 70, true));
        assert!(!second.ask(FREE, FREE + 10, false));
        drop(first);
        full.settle(FREE + 230);
        assert_eq!((one.charge(), second.charge()), (60, 10));
        second.settle(0);
        assert_eq!(one.charge(), 70, "alone it need not wait");
    }

    #[test]
    fn the_holder_of_the_lane_can_complete_what_the_lane_admits() {
        let (budget, [full, one, two]) = accounts();
        assert!(one.ask(FREE + 50, FREE + 50, false));
        assert!(full.ask(FREE + 250, FREE + 250, false));
        assert!(
            one.ask(FREE + 50, FREE + 80, false),
            "its 50 bytes move to the lane"
        );
        assert!(
            two.ask(FREE + 50, FREE + 50, false),
            "the shared part that it left"
        );
        assert!(one.ask(FREE + 80, FREE + 100, false));
        assert!(!one.ask(FREE + 100, FREE + 101, false));
        assert_eq!(budget.used(), budget.limit());
        two.settle(FREE + 49);
        assert_eq!(one.charge(), 101);
    }

    #[test]
    fn undecided_bytes_make_nobody_wait_for_ever_and_are_refused_above_their_part() {
        const KIB: u64 = 1024;
        // 3,072 KiB shared, of which 2,048 may be undecided, and a lane of 1,024.
        let budget = Budget::new(4_096 * KIB);
        let [one, two] = std::array::from_fn(|_| budget.clone().open(&sender(), Arc::default()));
        let [mut first, mut second] = std::array::from_fn(|_| budget.undecided());
        assert_eq!(budget.most_undecided(), 2_048 * KIB);
        assert_eq!(first.set(1_025 * KIB), Err(1_024 * KIB));
        first.set(1_024 * KIB).unwrap();
        // Half of the rest.
        assert_eq!(second.set(600 * KIB), Err(512 * KIB));
        second.set(512 * KIB).unwrap();
        assert_eq!(budget.used(), 1_536 * KIB);
        let kib = |count: usize| FREE + count * 1_024;
        // The rest of the shared part, and not a byte more but the lane.
        assert!(one.ask(kib(1_536), kib(1_536), false));
        assert!(two.ask(FREE, kib(1_024), false), "the lane");
        assert!(!one.ask(kib(1_536), kib(1_537), false));
        // Who decides makes room at once.
        first.set(0).unwrap();
        assert_eq!(budget.waiting(), 0);
        assert_eq!(one.charge(), 1_537 * KIB);
        drop((first, second, one, two));
        assert_eq!(budget.used(), 0);
    }

    /// Whether a driver with this wake would turn once more.
    fn is_woken(wake: &Notify) -> bool {
        let mut woken = std::pin::pin!(wake.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        woken.as_mut().poll(&mut context).is_ready()
    }

    /// A turn that is granted what it asks for, and cannot use it, asks again the next time: it must not be woken by
    /// its own asking, or it turns for ever.
    #[test]
    fn who_asks_is_told_by_the_answer_and_only_others_are_woken() {
        let budget = Budget::new(400);
        let [own, other] = std::array::from_fn(|_| Arc::new(Notify::new()));
        let [one, two] =
            [&own, &other].map(|wake| budget.clone().open(&sender(), Arc::clone(wake)));
        for _ in 0..3 {
            assert!(one.ask(FREE, FREE + 300, false));
            one.settle(FREE);
            assert!(!is_woken(&own));
        }
        assert!(one.ask(FREE + 300, FREE + 300, false));
        assert!(two.ask(FREE, FREE + 100, false), "the lane");
        assert!(!two.ask(FREE + 100, FREE + 200, false));
        assert!(!is_woken(&other));
        one.settle(FREE);
        assert!(is_woken(&other), "it waits for what others give back");
        assert!(!is_woken(&own));
    }

    #[test]
    fn undecided_bytes_are_charged_in_steps_that_never_fall_short() {
        let budget = Budget::new(1 << 20);
        let mut own = budget.undecided();
        for (bytes, charged) in [
            (1, 4_096),
            (4_096, 4_096),
            (4_097, 8_192),
            (1, 4_096),
            (0, 0),
        ] {
            own.set(bytes).unwrap();
            assert_eq!(budget.used(), charged);
        }
    }

    #[test]
    fn a_link_that_ends_and_returns_again_and_again_holds_no_more_than_it_was_granted() {
        let budget = Budget::new(1 << 20);
        let one = budget.clone().open(&sender(), Arc::default());
        let mut held = 0;
        for _ in 0..40 {
            let planned = held + FREE;
            if !one.ask(held, planned, held > 0) {
                break;
            }
            held = planned;
            one.depart(held);
            one.return_to();
            assert_eq!(one.charge(), to_u64(held - FREE));
        }
        assert!(to_u64(held) <= budget.limit() + to_u64(FREE), "{held}");
    }

    #[test]
    fn who_stops_waiting_leaves_the_queue() {
        let (budget, [full, lane, first, second]) = accounts();
        assert!(full.ask(FREE + 300, FREE + 300, false));
        assert!(lane.ask(FREE, FREE + 100, false));
        assert!(!first.ask(FREE, FREE + 50, false));
        assert!(!second.ask(FREE, FREE + 10, false));
        full.settle(FREE + 290);
        drop(first);
        assert_eq!((budget.waiting(), second.charge()), (0, 10));
    }
}
