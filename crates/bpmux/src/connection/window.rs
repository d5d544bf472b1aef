//! Automatic credit: how much the peer may send on each half before the application has taken what came.
//!
//! A half's window covers what the peer may still send and what waits to be taken. A window's worth of taken
//! bytes is a round: was the peer out of credit and the reader without work in it, the window doubles; was
//! the reader never without work, it halves. A payload in parts that is larger than its window would never
//! come to its end, as only whole payloads are taken: its bytes are set aside from the budget, first come
//! first served, so that what is admitted can complete.

use std::collections::VecDeque;

use super::Connection;
use super::assembly::Assembly;
use crate::chunk::Carrier;
use crate::{CreditPolicy, Target};

/// The window of a half.
#[derive(Debug, Default)]
pub(super) struct Window {
    size: u64,
    /// Arrived and not taken.
    unread: u64,
    /// Still to come of payloads that bytes were set aside for.
    extra: u64,
    /// Taken in this round.
    round: u64,
    /// The peer was out of credit in this round.
    starved: bool,
    /// The reader was without work in this round.
    idle: bool,
}

impl Window {
    /// Bytes have come.
    fn arrived(&mut self, bytes: u64, is_set_aside: bool, granted: u64) {
        if is_set_aside {
            self.extra = self.extra.saturating_sub(bytes);
        } else {
            self.unread = self.unread.saturating_add(bytes);
        }
        self.starved |= granted == 0;
    }

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
}

/// What all windows above their floors, and the payloads in parts, take of the credit budget.
#[derive(Debug, Default)]
pub(super) struct Budget {
    windows: u64,
    set_aside: u64,
    /// Payloads that wait for their bytes.
    waiting: VecDeque<Carrier>,
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
    }

    /// Bytes of a payload have come on a half.
    pub(super) fn arrived(&mut self, target: Target, bytes: u64, is_set_aside: bool) {
        if self.automatic().is_none() {
            return;
        }
        if let Some(reader) = self.reader_mut(target) {
            let granted = reader.granted;
            reader.window.arrived(bytes, is_set_aside, granted);
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
        let wanted = window.size.saturating_sub(window.unread);
        let wanted = wanted.saturating_add(window.extra);
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
        let assembly = Assembly::new(total);
        let Some((_, _, budget)) = self.automatic() else {
            return assembly;
        };
        let target = payer(carrier);
        let Some(reader) = self.reader_mut(target) else {
            return assembly;
        };
        if total <= reader.window.size {
            return assembly;
        }
        let fits = self.budget.used().saturating_add(total) <= budget;
        if self.budget.waiting.is_empty() && (fits || self.budget.set_aside == 0) {
            return self.set_aside(target, assembly);
        }
        self.budget.waiting.push_back(carrier);
        assembly
    }

    /// The budget has room for a payload: its peer gets the credit for all of it.
    fn set_aside(&mut self, target: Target, mut assembly: Assembly) -> Assembly {
        assembly.reserved = assembly.total();
        self.budget.set_aside = self.budget.set_aside.saturating_add(assembly.reserved);
        let (received, left) = (assembly.received(), assembly.left());
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.unread = window.unread.saturating_sub(received);
            window.extra = window.extra.saturating_add(left);
        }
        assembly
    }

    /// A payload in parts is whole: what was set aside for it waits to be taken now.
    pub(super) fn whole(&mut self, carrier: Carrier, assembly: &Assembly) {
        if assembly.reserved == 0 {
            return;
        }
        if let Some(reader) = self.reader_mut(payer(carrier)) {
            let unread = reader.window.unread.saturating_add(assembly.total());
            reader.window.unread = unread;
        }
        self.release(assembly);
    }

    /// A payload in parts will never be whole.
    pub(super) fn dropped(&mut self, target: Target, assembly: &Assembly) {
        if assembly.reserved == 0 {
            self.consumed(target, assembly.received());
            return;
        }
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.extra = window.extra.saturating_sub(assembly.left());
        }
        self.release(assembly);
    }

    /// What was set aside is free: for those who wait.
    fn release(&mut self, assembly: &Assembly) {
        if assembly.reserved == 0 {
            return;
        }
        self.budget.set_aside = self.budget.set_aside.saturating_sub(assembly.reserved);
        self.admit();
    }

    /// Sets bytes aside for those who wait, in their order.
    pub(super) fn admit(&mut self) {
        let Some((_, _, budget)) = self.automatic() else {
            return;
        };
        while let Some(carrier) = self.budget.waiting.front().copied() {
            if self.is_coming(carrier) {
                // It is asked for again when its chunk has ended.
                return;
            }
            let Some(waiting) = self.take_partial(carrier) else {
                // It has ended meanwhile.
                self.budget.waiting.pop_front();
                continue;
            };
            let fits = self.budget.used().saturating_add(waiting.total()) <= budget;
            if !fits && self.budget.set_aside > 0 {
                self.put_partial(carrier, waiting);
                return;
            }
            self.budget.waiting.pop_front();
            let target = payer(carrier);
            let waiting = if waiting.reserved == 0 {
                self.set_aside(target, waiting)
            } else {
                waiting
            };
            self.put_partial(carrier, waiting);
            self.replenish(target);
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
