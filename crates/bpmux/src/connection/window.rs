//! Automatic credit: how much the peer may send on each half before the application has taken what came.
//!
//! A half's window covers what the peer may still send and what waits to be taken. A window's worth of taken
//! bytes is a round: was the peer out of credit and the reader without work in it, the window doubles; was
//! the reader never without work, it halves. A payload in parts that is larger than its window would never
//! come to its end, as only whole payloads are taken. So once nothing else waits to be taken on its half, its
//! bytes are set aside from the budget, one payload of a half at a time, halves first come first served: what
//! is admitted can complete.

use std::collections::VecDeque;

use super::Connection;
use super::assembly::Assembly;
use crate::chunk::Carrier;
use crate::{CreditPolicy, Target};

/// The window of a half.
#[derive(Debug, Default)]
pub(super) struct Window {
    size: u64,
    /// Came whole and was not taken.
    unread: u64,
    /// Came of payloads in parts that nothing was set aside for.
    parts: u64,
    /// Still to come of the payload that bytes were set aside for.
    extra: u64,
    /// Payloads in parts that are larger than the window; some may be over.
    large: VecDeque<Carrier>,
    /// It waits for the budget.
    is_queued: bool,
    /// Taken in this round.
    round: u64,
    /// The peer was out of credit in this round.
    starved: bool,
    /// The reader was without work in this round.
    idle: bool,
}

impl Window {
    /// Bytes were taken; whether a round is over.
    const fn taken(&mut self, bytes: u64) -> bool {
        self.unread = self.unread.saturating_sub(bytes);
        self.round = self.round.saturating_add(bytes);
        self.idle |= self.unread == 0;
        self.round >= self.size
    }

    /// The size for the next round, and where a new round begins.
    fn next_size(&mut self, floor: u64, ceiling: u64) -> u64 {
        let next = match (self.starved, self.idle) {
            (true, true) => self.size.saturating_mul(2).min(ceiling.max(floor)),
            (_, false) => (self.size / 2).max(floor),
            _ => self.size,
        };
        (self.round, self.starved, self.idle) = (0, false, false);
        next
    }

    /// What the peer may have of credit now.
    const fn wanted(&self) -> u64 {
        let used = self.unread.saturating_add(self.parts);
        self.size.saturating_sub(used).saturating_add(self.extra)
    }
}

/// What all windows above their floors, and the payloads in parts, take of the credit budget.
#[derive(Debug, Default)]
pub(super) struct Budget {
    windows: u64,
    set_aside: u64,
    /// Halves with a large payload that wait for the budget; some may be gone.
    waiting: VecDeque<Target>,
}

impl Budget {
    pub(super) const fn used(&self) -> u64 {
        self.windows.saturating_add(self.set_aside)
    }
}

impl Connection {
    const fn automatic(&self) -> Option<(u64, u64, u64)> {
        match self.config.credit {
            CreditPolicy::Manual => None,
            CreditPolicy::Automatic {
                floor,
                ceiling,
                budget,
            } => Some((if floor == 0 { 1 } else { floor }, ceiling, budget)),
        }
    }

    /// A half can be read from now on.
    pub(super) fn open_window(&mut self, target: Target) {
        let Some((floor, ..)) = self.automatic() else {
            return;
        };
        if let Some(reader) = self.reader_mut(target) {
            reader.window.size = floor;
        }
        self.replenish(target);
    }

    /// A half is gone: what its window took of the budget is free.
    pub(super) fn close_window(&mut self, window: &Window) {
        if let Some((floor, ..)) = self.automatic() {
            let above = window.size.saturating_sub(floor);
            self.budget.windows = self.budget.windows.saturating_sub(above);
        }
    }

    /// The application is done with so many bytes of payload that came on a half (what opened, requested,
    /// responded or ended something came on the top-level): with automatic credit the peer gets as much
    /// again. Without, and for halves that are gone, nothing happens.
    pub fn consumed(&mut self, target: Target, bytes: u64) {
        let Some((floor, ceiling, budget)) = self.automatic() else {
            return;
        };
        let used = self.budget.used();
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        let window = &mut reader.window;
        if window.taken(bytes) {
            let before = window.size;
            let next = window.next_size(floor, ceiling);
            let more = next.saturating_sub(before);
            if used.saturating_add(more) <= budget || more == 0 {
                window.size = next;
                let less = before.saturating_sub(next);
                self.budget.windows = self.budget.windows.saturating_add(more);
                self.budget.windows = self.budget.windows.saturating_sub(less);
            }
        }
        self.replenish(target);
        self.admit(target);
    }

    /// Bytes of a payload have come on a half.
    pub(super) fn arrived(&mut self, target: Target, bytes: u64, is_set_aside: bool) {
        if self.automatic().is_none() {
            return;
        }
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            if is_set_aside {
                window.extra = window.extra.saturating_sub(bytes);
            } else {
                window.parts = window.parts.saturating_add(bytes);
            }
            window.starved |= reader.granted == 0;
        }
    }

    /// Gives credit up to the window, if that is worth a chunk.
    pub(super) fn replenish(&mut self, target: Target) {
        if self.automatic().is_none() || !self.is_alive() {
            return;
        }
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        if reader.is_closed() && target != Target::Top {
            return;
        }
        let window = &reader.window;
        let wanted = window.wanted();
        let missing = wanted.saturating_sub(reader.granted);
        if missing > 0 && (missing >= window.size / 4 || reader.granted == 0) {
            reader.granted = reader.granted.saturating_add(missing);
            self.announce(target, missing);
        }
    }

    /// Credit that was given is to be sent.
    pub(super) fn announce(&mut self, target: Target, amount: u64) {
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        let is_listed = reader.due > 0;
        reader.due = reader.due.saturating_add(amount);
        if amount > 0 && !is_listed {
            self.granted.push_back(target);
        }
    }

    /// A payload in parts begins.
    pub(super) fn reserve(&mut self, carrier: Carrier, total: u64) -> Assembly {
        if self.automatic().is_some()
            && let Some(reader) = self.reader_mut(payer(carrier))
            && total > reader.window.size
        {
            reader.window.large.push_back(carrier);
        }
        Assembly::new(total)
    }

    /// Sets bytes aside for the next large payload of a half, if nothing else waits to be taken there.
    pub(super) fn admit(&mut self, target: Target) {
        let Some((_, _, budget)) = self.automatic() else {
            return;
        };
        loop {
            let Some(reader) = self.reader_mut(target) else {
                return;
            };
            let window = &mut reader.window;
            if window.unread > 0 || window.extra > 0 || window.is_queued {
                return;
            }
            let Some(carrier) = window.large.front().copied() else {
                return;
            };
            if self.is_coming(carrier) {
                // It is asked for again when its chunk has ended.
                return;
            }
            let Some(assembly) = self.take_partial(carrier) else {
                self.forget_large(target);
                continue;
            };
            let fits = self.budget.used().saturating_add(assembly.total()) <= budget;
            if fits || self.budget.set_aside == 0 {
                self.forget_large(target);
                self.set_aside(carrier, assembly);
            } else {
                self.put_partial(carrier, assembly);
                self.queue_for_budget(target);
            }
            return;
        }
    }

    fn forget_large(&mut self, target: Target) {
        if let Some(reader) = self.reader_mut(target) {
            reader.window.large.pop_front();
        }
    }

    fn queue_for_budget(&mut self, target: Target) {
        if let Some(reader) = self.reader_mut(target) {
            reader.window.is_queued = true;
            self.budget.waiting.push_back(target);
        }
    }

    /// The budget has room for a payload: its peer gets the credit for all of it.
    fn set_aside(&mut self, carrier: Carrier, mut assembly: Assembly) {
        let target = payer(carrier);
        assembly.reserved = assembly.total();
        self.budget.set_aside = self.budget.set_aside.saturating_add(assembly.reserved);
        let (received, left) = (assembly.received(), assembly.left());
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.parts = window.parts.saturating_sub(received);
            window.extra = window.extra.saturating_add(left);
        }
        self.put_partial(carrier, assembly);
        self.replenish(target);
    }

    /// A payload is whole: it waits to be taken now.
    pub(super) fn whole(&mut self, carrier: Carrier, assembly: &Assembly) {
        if self.automatic().is_none() {
            return;
        }
        let total = assembly.total();
        let target = payer(carrier);
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.unread = window.unread.saturating_add(total);
            if assembly.reserved == 0 {
                window.parts = window.parts.saturating_sub(total);
            }
        }
        self.release(assembly);
    }

    /// A payload in parts will never be whole.
    pub(super) fn dropped(&mut self, target: Target, assembly: &Assembly) {
        if self.automatic().is_none() {
            return;
        }
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            if assembly.reserved > 0 {
                window.extra = window.extra.saturating_sub(assembly.left());
            } else {
                window.parts = window.parts.saturating_sub(assembly.received());
            }
        }
        self.release(assembly);
        self.replenish(target);
        self.admit(target);
    }

    /// What was set aside is free: for those who wait.
    fn release(&mut self, assembly: &Assembly) {
        self.budget.set_aside = self.budget.set_aside.saturating_sub(assembly.reserved);
        for _ in 0..self.budget.waiting.len() {
            let Some(target) = self.budget.waiting.pop_front() else {
                return;
            };
            let Some(reader) = self.reader_mut(target) else {
                // It has ended meanwhile.
                continue;
            };
            if !std::mem::take(&mut reader.window.is_queued) {
                continue;
            }
            let before = self.budget.set_aside;
            self.admit(target);
            if self.budget.set_aside == before && !self.budget.waiting.is_empty() {
                // Whoever waits longest goes first.
                if self.budget.waiting.back() == Some(&target) {
                    self.budget.waiting.rotate_right(1);
                }
                return;
            }
        }
    }

    /// What is there of a payload in parts.
    pub(super) fn take_partial(&mut self, carrier: Carrier) -> Option<Assembly> {
        match carrier {
            Carrier::Message(target) => self.reader_mut(target)?.message.take(),
            // Most payloads come in one chunk.
            _ if self.partials.is_empty() => None,
            _ => self.partials.remove(&carrier),
        }
    }

    pub(super) fn put_partial(&mut self, carrier: Carrier, assembly: Assembly) {
        if let Carrier::Message(target) = carrier {
            if let Some(reader) = self.reader_mut(target) {
                reader.message = Some(assembly);
            }
        } else {
            self.partials.insert(carrier, assembly);
        }
    }
}

/// Whose credit a payload costs.
pub(super) const fn payer(carrier: Carrier) -> Target {
    match carrier {
        Carrier::Message(target) => target,
        _ => Target::Top,
    }
}
