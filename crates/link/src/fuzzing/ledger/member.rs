//! One link of the schedule: its held bytes, its grant, and its request. The model knows no rule of
//! the ledger: it follows the answers and the wakes.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use ackline_core::Share;
use tokio::sync::Notify;

use crate::budget::Account;
use crate::units::to_u64;
use crate::{Budget, FREE_BYTES, Undecided};

/// A link and its account.
pub(super) struct Member {
    /// Number among all links of the schedule.
    pub(super) id: u64,
    account: Account,
    wake: Arc<Notify>,
    /// Number of its sender.
    pub(super) sender: usize,
    /// Bytes that it holds.
    pub(super) held: usize,
    /// Bytes that it held at its last report to the budget.
    told: usize,
    /// Bytes that it may hold: held, or granted and not yet read.
    pub(super) granted: usize,
    pub(super) waits: Option<Waits>,
    pub(super) has_ended: bool,
    charge: u64,
    free_charge: u64,
    undecided: Undecided,
    /// Bytes of its messages that are undecided, before they are rounded up.
    staged: usize,
    undecided_bytes: u64,
    kept: Share,
    kept_bytes: u64,
}

/// The request for which a link waits.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    /// Bytes that it asks to hold.
    pub(super) planned: usize,
    pub(super) place: u64,
    /// It holds a complete frame, and continues when that is settled.
    pub(super) yields: bool,
}

impl Member {
    pub(super) fn open(id: u64, budget: &Budget, sender: usize, name: &Arc<str>) -> Self {
        let wake = Arc::new(Notify::new());
        Self {
            id,
            account: budget.clone().open(name, Arc::clone(&wake)),
            wake,
            sender,
            held: 0,
            told: 0,
            granted: 0,
            waits: None,
            has_ended: false,
            charge: 0,
            free_charge: 0,
            undecided: budget.undecided(),
            staged: 0,
            undecided_bytes: 0,
            kept: Share::of(budget.quota(), 0),
            kept_bytes: 0,
        }
    }

    /// Returns the bytes to charge.
    pub(super) const fn charge(&self) -> u64 {
        self.charge
    }

    /// Returns the bytes of its free part that are charged all the same.
    pub(super) const fn free_charge(&self) -> u64 {
        self.free_charge
    }

    /// Follows a change of the bytes that it may hold; `is_whole`: its free part is charged too.
    fn may_hold(&mut self, bytes: usize, is_whole: bool) {
        self.granted = bytes;
        self.free_charge = if is_whole {
            to_u64(bytes.min(FREE_BYTES))
        } else {
            0
        };
        self.charge = above_free(bytes) + self.free_charge;
    }

    /// Reports its bytes to the budget.
    pub(super) const fn tell(&mut self) {
        self.told = self.held;
    }

    /// Whether it holds bytes above its free part, as far as the budget knows.
    pub(super) fn is_used(&self) -> bool {
        above_free(self.told) > 0
    }

    /// Returns the bytes that the budget has charged.
    pub(super) fn charged(&self) -> u64 {
        self.account.charge()
    }

    /// Returns the charge that it waits for.
    pub(super) fn wants(&self) -> u64 {
        self.waits.map_or(0, |waits| above_free(waits.planned))
    }

    /// Returns the charge of the bytes that it may hold, without the rest of its turn.
    pub(super) fn granted_charge(&self) -> u64 {
        above_free(self.granted)
    }

    /// Whether it waits for others, and not for its own settling.
    pub(super) fn is_in_line(&self) -> bool {
        self.waits.is_some_and(|waits| !waits.yields)
    }

    /// Asks; the whole `turn` may be granted, which is none if no link waits.
    pub(super) fn ask(
        &mut self,
        planned: usize,
        yields: bool,
        turn: u64,
        next_place: &mut u64,
    ) -> bool {
        let planned = planned.max(self.held);
        let before = self.charge;
        let is_granted = self.account.ask(self.held, planned, yields);
        self.may_hold(if is_granted { planned } else { self.held }, false);
        if is_granted {
            let turn = turn * u64::from(self.charge > 0);
            self.keep_rest(turn.max(if yields { 0 } else { before }));
            self.waits = None;
            return true;
        }
        let place = self.waits.map_or(*next_place, |waits| waits.place);
        *next_place += 1;
        self.waits = Some(Waits {
            planned,
            place,
            yields,
        });
        false
    }

    pub(super) fn try_ask(&mut self, planned: usize) -> bool {
        let planned = planned.max(self.held);
        let before = self.charge;
        let is_granted = self.account.try_ask(self.held, planned);
        if is_granted {
            self.tell();
            self.may_hold(planned, false);
            self.keep_rest(before);
            self.waits = None;
        }
        is_granted
    }

    /// A part of the granted bytes comes.
    pub(super) fn fill(&mut self, part: u8) {
        self.held += of(self.granted - self.held, part);
    }

    /// Keeps only this part of its bytes, and does not report it.
    pub(super) fn let_go(&mut self, part: u8) {
        self.held = of(self.held, part);
    }

    /// Keeps only this part of its bytes.
    pub(super) fn settle(&mut self, part: u8) {
        self.held = of(self.held, part);
        self.settle_all();
    }

    fn settle_all(&mut self) {
        self.tell();
        self.account.settle(self.held);
        self.may_hold(self.held, self.has_ended);
        self.waits = None;
    }

    /// Ends with this part of its bytes.
    pub(super) fn depart(&mut self, part: u8) {
        self.held = of(self.held, part);
        self.tell();
        self.account.depart(self.held);
        self.has_ended = true;
        self.may_hold(self.held, true);
        self.waits = None;
    }

    /// It has a transport again, and its free part.
    pub(super) fn return_to(&mut self) {
        self.account.return_to();
        if std::mem::replace(&mut self.has_ended, false) {
            self.may_hold(self.granted, false);
        }
    }

    /// Whether it was woken since the last call.
    pub(super) fn is_woken(&self) -> bool {
        let mut woken = pin!(self.wake.notified());
        let mut context = Context::from_waker(Waker::noop());
        woken.as_mut().poll(&mut context).is_ready()
    }

    /// Grants the bytes that it waits for, and with them up to `turn` bytes.
    pub(super) fn go_on(&mut self, turn: u64) {
        if let Some(waits) = self.waits.take() {
            self.may_hold(waits.planned, false);
            self.keep_rest(turn * u64::from(self.charge > 0));
        }
    }

    /// Follows the charge, which may be above the bytes that it may hold, up to `most`.
    fn keep_rest(&mut self, most: u64) {
        let charge = self.account.charge();
        let is_in_turn = charge == self.charge || (self.charge..=most).contains(&charge);
        assert!(is_in_turn, "a link is charged more than its turn");
        self.charge = charge;
    }

    /// The charge of its undecided messages.
    pub(super) const fn undecided_bytes(&self) -> u64 {
        self.undecided_bytes
    }

    /// A part of its bytes becomes undecided (below 128), or a part of its undecided bytes stays
    /// so. `all` links have so many undecided bytes, of `limit`.
    pub(super) fn change_undecided(&mut self, part: u8, all: u64, limit: u64) {
        let (stays, moved) = match part {
            0..128 if self.has_ended => (self.staged, 0),
            0..128 => (self.staged, of(self.held, part * 2)),
            _ => (of(self.staged, (part - 128) * 2), 0),
        };
        let wanted = to_u64(stays + moved);
        let charged = wanted.next_multiple_of(UNDECIDED_STEP);
        let changed = self.undecided.set(wanted);
        let own = self.undecided_bytes;
        assert_eq!(changed, allowed((own, charged), all, limit));
        if changed.is_ok() {
            (self.staged, self.undecided_bytes) = (stays + moved, charged);
            self.held -= moved;
        }
        if changed.is_ok() && moved > 0 {
            self.settle_all();
        }
    }

    /// Bytes that it keeps in addition to the budget.
    pub(super) const fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// It wants to keep a part of the quota, of which `all` links keep so much.
    pub(super) fn change_kept(&mut self, part: u8, all: u64, limit: u64) {
        let wanted = limit * u64::from(part) / 255;
        let changed = self.kept.change(wanted).map_err(|hit| hit.limit);
        assert_eq!(changed, allowed((self.kept_bytes, wanted), all, limit));
        if changed.is_ok() {
            self.kept_bytes = wanted;
        }
    }
}

/// The rule of a quota: a link may have half of the bytes that others leave of `limit`, and fewer
/// than before at any time.
fn allowed((own, wanted): (u64, u64), all: u64, limit: u64) -> Result<(), u64> {
    let most = limit.saturating_sub(all - own) / 2;
    if wanted <= own || wanted <= most {
        return Ok(());
    }
    Err(most)
}

/// A part of `total`, of 255.
fn of(total: usize, part: u8) -> usize {
    total * usize::from(part) / 255
}

fn above_free(bytes: usize) -> u64 {
    to_u64(bytes.saturating_sub(FREE_BYTES))
}

/// Steps in which undecided bytes are charged.
const UNDECIDED_STEP: u64 = 4_096;
