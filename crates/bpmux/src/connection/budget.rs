//! Automatic credit: the windows of all halves, and the bytes that are set aside for payloads in parts, out of one
//! budget.
//!
//! A payload in parts that is larger than its window would never come to its end, as only whole payloads are
//! taken: its bytes are set aside from the budget, first come first served, so that an admitted payload can
//! complete.
//!
//! Bytes are set aside only while the half's reader is not behind by more than a window: a slow reader holds no part
//! of the budget, and gets no more than one payload ahead. An answer to a request of this end is not held back so.
//!
//! On the top-level credit for one payload can be used for others: a peer that sends many in parts at once makes
//! all of them wait here. Up to [`SPILL`] payloads, or the budget, may wait so; a peer that wants more gets no
//! more credit.

use std::collections::VecDeque;
use std::time::Instant;

use super::assembly::Assembly;
use super::entity::Reader;
use super::tables::Partial;
use super::window::{Window, payer};
use crate::chunk::PayloadRole;
use crate::{Config, CreditPolicy, Target};

/// Payloads of the largest size that may wait on the top-level for their ends. This end begins four at once
/// (`jobs.rs`), and one message.
const SPILL: u64 = 8;

/// The bounds of automatic credit, in bytes.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The least size of a window.
    floor: u64,
    /// The largest size of a window.
    ceiling: u64,
    /// The bytes of all windows above their floors and of all payloads that are set aside.
    budget: u64,
    /// The bytes of parts that may wait above a window.
    spill: u64,
}

/// The credit budget of a connection.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The bounds, if credit is automatic.
    bounds: Option<Bounds>,
    /// Bytes of all windows above their floors.
    windows: u64,
    /// Bytes of payloads that are set aside.
    set_aside: u64,
    /// Payloads that wait for their bytes; some may have ended.
    waiting: VecDeque<PayloadRole>,
    /// Payloads on the top-level that wait until its reader has caught up.
    parked: VecDeque<PayloadRole>,
}

/// The decision on a payload that waits for its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Its bytes are set aside.
    Admitted,
    /// It waits no longer, or for its reader.
    Passed,
    /// The budget has no room for it, nor for those behind it.
    Full,
}

impl Budget {
    pub(super) fn new(config: &Config) -> Self {
        let bounds = match config.credit {
            CreditPolicy::Manual => None,
            CreditPolicy::Automatic {
                floor,
                ceiling,
                budget,
            } => Some(Bounds {
                floor: floor.max(1),
                ceiling,
                budget,
                spill: config.most_payload().saturating_mul(SPILL).max(budget),
            }),
        };
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Whether credit is granted by the connection itself.
    pub(super) const fn is_automatic(&self) -> bool {
        self.bounds.is_some()
    }

    pub(super) const fn used(&self) -> u64 {
        self.windows.saturating_add(self.set_aside)
    }

    /// Bytes of payloads that are set aside.
    pub(super) const fn set_aside(&self) -> u64 {
        self.set_aside
    }

    /// Bytes of all windows above their floors.
    pub(super) const fn windows(&self) -> u64 {
        self.windows
    }

    /// Opens the window of a half, which can be read from now on (R-BPM-10).
    pub(super) fn open(&self, window: &mut Window) {
        if let Some(bounds) = self.bounds {
            window.resize(bounds.floor);
        }
    }

    /// A half gets no more credit: its window's part of the budget is free.
    pub(super) fn end(&mut self, window: &mut Window) {
        if let Some(bounds) = self.bounds {
            let above = window.end(bounds.floor);
            self.windows = self.windows.saturating_sub(above);
        }
    }

    /// A round of a window is over: it gets the size for the next one, which has room for a message of so many bytes
    /// that has begun to come.
    pub(super) fn end_round(&mut self, window: &mut Window, now: Instant, message: u64) {
        let Some(bounds) = self.bounds else {
            return;
        };
        let before = window.size();
        let least = message.min(before);
        let next = window
            .next_size(now, bounds.floor, bounds.ceiling)
            .max(least);
        let more = next.saturating_sub(before);
        if more > 0 && self.used().saturating_add(more) > bounds.budget {
            window.rest(now, before);
            return;
        }
        window.resize(next);
        let less = before.saturating_sub(next);
        self.windows = self.windows.saturating_add(more).saturating_sub(less);
    }

    /// Grants credit up to the window, if that is worth a chunk. Returns whether it has to be announced.
    pub(super) fn replenish(&self, target: Target, reader: &mut Reader) -> bool {
        let Some(bounds) = self.bounds else {
            return false;
        };
        if reader.needs_no_credit() && target != Target::Top {
            return false;
        }
        let window = &reader.window;
        let wanted = window.wanted(bounds.spill);
        reader.grant.raise_to(wanted, window.size() / 4)
    }

    /// A payload in parts begins: its bytes are set aside, or it waits for that, if its window is smaller.
    pub(super) fn reserve(
        &mut self,
        role: PayloadRole,
        assembly: &mut Assembly,
        window: &mut Window,
    ) {
        let Some(bounds) = self.bounds else {
            return;
        };
        let total = assembly.total();
        // On the top-level others use the window too.
        if total <= window.size() && payer(role) != Target::Top {
            return;
        }
        if waits_for_reader(role, window) {
            self.park(role, window);
        } else if self.waiting.is_empty() && self.has_room(total, bounds) {
            self.set_bytes_aside(assembly, window);
        } else {
            self.waiting.push_back(role);
        }
    }

    /// Whether a payload fits into the budget. One payload of any size does.
    const fn has_room(&self, total: u64, bounds: Bounds) -> bool {
        self.set_aside == 0 || self.used().saturating_add(total) <= bounds.budget
    }

    /// The peer gets the credit for all of a payload.
    fn set_bytes_aside(&mut self, assembly: &mut Assembly, window: &mut Window) {
        assembly.reserved = assembly.total();
        self.set_aside = self.set_aside.saturating_add(assembly.reserved);
        window.reserve(assembly.received(), assembly.left());
    }

    /// Bytes that were set aside are free.
    pub(super) const fn release(&mut self, bytes: u64) {
        self.set_aside = self.set_aside.saturating_sub(bytes);
    }

    /// A payload has to wait until the reader has caught up.
    fn park(&mut self, role: PayloadRole, window: &mut Window) {
        if payer(role) == Target::Top {
            self.parked.push_back(role);
        } else {
            window.park();
        }
    }

    /// The reader of a message has caught up: the message waits for its bytes.
    pub(super) fn unpark(&mut self, role: PayloadRole) {
        self.waiting.push_back(role);
    }

    /// Returns the next payload that waits for its bytes, if its reader has caught up.
    pub(super) fn next_waiting(&mut self, top: &Window) -> Option<PayloadRole> {
        if self.waiting.is_empty()
            && !top.is_behind()
            && let Some(next) = self.parked.pop_front()
        {
            self.waiting.push_back(next);
        }
        self.waiting.front().copied()
    }

    /// The next payload that waits has ended.
    pub(super) fn drop_next(&mut self) {
        self.waiting.pop_front();
    }

    /// Sets bytes aside for the next payload that waits, if there is room.
    pub(super) fn admit(&mut self, role: PayloadRole, partial: Partial<'_>) -> Admission {
        let Partial { assembly, window } = partial;
        let Some(bounds) = self.bounds else {
            return Admission::Full;
        };
        if assembly.is_settled() || assembly.reserved > 0 {
            self.drop_next();
            return Admission::Passed;
        }
        if waits_for_reader(role, window) {
            self.drop_next();
            self.park(role, window);
            return Admission::Passed;
        }
        if !self.has_room(assembly.total(), bounds) {
            return Admission::Full;
        }
        self.drop_next();
        self.set_bytes_aside(assembly, window);
        Admission::Admitted
    }

    /// Nothing more is received.
    pub(super) fn clear(&mut self) {
        *self = Self {
            bounds: self.bounds,
            ..Self::default()
        };
    }
}

/// Whether a payload waits until its reader has caught up. An answer does not: it was asked for, and its reader may take
/// nothing else before it has come.
const fn waits_for_reader(role: PayloadRole, window: &Window) -> bool {
    let is_answer = matches!(
        role,
        PayloadRole::Response(_) | PayloadRole::CloseResponse(_)
    );
    window.is_behind() && !is_answer
}
