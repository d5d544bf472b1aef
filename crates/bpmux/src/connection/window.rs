//! Automatic credit: how much the peer may send on each half before the application has taken what came.
//!
//! A half's window covers what the peer may still send and what waits to be taken. A window's worth of taken
//! bytes is a round. Was the reader never without work in it, the window halves. Was the peer seen out of credit,
//! it doubles, up to [`FREE`] bytes; and up to the size of the payloads that come. Else twice the size has to
//! bring more (`climb.rs`): on a long path the peer is out of credit and is not seen so, as some is always on its
//! way.
//!
//! A payload in parts that is larger than its window would never come to its end, as only whole payloads are
//! taken: its bytes are set aside from the budget, first come first served, so that what is admitted can
//! complete.
//!
//! That is done only while the half's reader is not behind by more than a window: a slow reader holds no part
//! of the budget, and gets no more than one payload ahead. An answer to a request of this end is not held back so.
//!
//! On the top-level credit for one payload can be used for others: whoever sends many in parts at once makes
//! all of them wait here. Up to [`SPILL`] payloads, or the budget, may wait so; a peer that wants more gets no
//! more credit.

use std::collections::VecDeque;
use std::time::Instant;

use super::Connection;
use super::assembly::Assembly;
use super::climb::{Climb, FREE};
use crate::chunk::Carrier;
use crate::{CreditPolicy, Target};

/// Payloads of the largest size that may wait on the top-level for their ends. This end begins four at once
/// (`jobs.rs`), and one message.
const SPILL: u64 = 8;

/// The window of a half.
#[derive(Debug, Default)]
pub(super) struct Window {
    size: u64,
    /// Whole and not taken.
    unread: u64,
    /// Arrived of payloads that are not whole, and that nothing was set aside for.
    parts: u64,
    /// Still to come of payloads that bytes were set aside for.
    extra: u64,
    /// Taken in this round.
    round: u64,
    /// The peer was out of credit in this round.
    starved: bool,
    /// The reader was without work in this round.
    idle: bool,
    /// Its message waits until the reader has caught up.
    parked: bool,
    /// Of one that has grown as far as it may without a reason.
    climb: Option<Box<Climb>>,
}

impl Window {
    /// Arrived and not taken.
    pub(super) const fn unread(&self) -> u64 {
        self.unread.saturating_add(self.parts)
    }

    /// Whether the reader has more to take than the window.
    const fn is_behind(&self) -> bool {
        self.unread > self.size
    }

    /// Bytes have come.
    fn arrived(&mut self, bytes: u64, is_set_aside: bool, granted: u64) {
        if is_set_aside {
            self.extra = self.extra.saturating_sub(bytes);
        } else {
            self.parts = self.parts.saturating_add(bytes);
        }
        self.starved |= granted == 0;
        self.idle |= self.unread == 0;
    }

    /// Bytes were taken; whether a round is over.
    const fn taken(&mut self, bytes: u64) -> bool {
        self.unread = self.unread.saturating_sub(bytes);
        self.round = self.round.saturating_add(bytes);
        self.idle |= self.unread == 0;
        self.round >= self.size
    }

    /// Credit that the peer should have, while parts of no more than `spill` bytes wait above the window.
    const fn wanted(&self, spill: u64) -> u64 {
        if self.parts > self.size.saturating_add(spill) {
            return 0;
        }
        let window = self.size.saturating_sub(self.unread());
        window.saturating_add(self.extra)
    }

    /// The size for the next round, and where a new round begins.
    fn next_size(&mut self, now: Instant, floor: u64, ceiling: u64) -> u64 {
        let (bytes, starved) = (std::mem::take(&mut self.round), self.starved);
        let is_behind = !std::mem::take(&mut self.idle);
        self.starved = false;
        if is_behind {
            let half = (self.size / 2).max(floor);
            self.rest(now, half);
            return half;
        }
        let most = ceiling.max(floor);
        let double = self.size.saturating_mul(2).min(most);
        // What is set aside for a payload comes whatever the window.
        let is_free = double <= bytes || (starved && double <= FREE);
        if is_free && double > self.size {
            self.climb = None;
            return double;
        }
        let Some(climb) = &mut self.climb else {
            self.climb = Some(Box::new(Climb::new(now, self.size)));
            return self.size;
        };
        climb.round(now, bytes, self.size, most)
    }

    /// The size stays what it is for now.
    fn rest(&mut self, now: Instant, size: u64) {
        if let Some(climb) = &mut self.climb {
            climb.rest(now, size);
        }
    }
}

/// What all windows above their floors, and the payloads in parts, take of the credit budget.
#[derive(Debug, Default)]
pub(super) struct Budget {
    windows: u64,
    set_aside: u64,
    /// Payloads that wait for their bytes.
    waiting: VecDeque<Carrier>,
    /// Those on the top-level that wait until its reader has caught up.
    parked: VecDeque<Carrier>,
}

impl Budget {
    pub(super) const fn set_aside(&self) -> u64 {
        self.set_aside
    }

    pub(super) const fn windows(&self) -> u64 {
        self.windows
    }

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

    /// A half can be read from now on; before, it has no credit (R-BPM-10).
    pub(super) fn open_window(&mut self, target: Target) {
        let Some((floor, ..)) = self.automatic() else {
            return;
        };
        if let Some(reader) = self.reader_mut(target) {
            reader.window.size = floor;
        }
        self.replenish(target);
    }

    /// A half gets no more credit: what of it was not sent is not given, and what its window took of the budget
    /// is free.
    pub(super) fn end_window(&mut self, target: Target) {
        let floor = self.automatic().map(|(floor, ..)| floor);
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        reader.take_back();
        let Some(floor) = floor else {
            return;
        };
        let above = reader.window.size.saturating_sub(floor);
        reader.window.size = reader.window.size.min(floor);
        reader.window.climb = None;
        self.budget.windows = self.budget.windows.saturating_sub(above);
        self.admit();
    }

    /// The application is done with so many bytes of payload that came on a half (what opened, requested,
    /// responded or ended something came on the top-level): with automatic credit the peer gets as much
    /// again. Without, and for halves that are gone, nothing happens.
    pub fn consumed(&mut self, target: Target, bytes: u64) {
        let Some((floor, ceiling, budget)) = self.automatic() else {
            return;
        };
        // When what is taken has come, or a little later.
        let now = self.timing.last_byte;
        let used = self.budget.used();
        let incoming = self.incoming.as_ref();
        let coming = incoming.filter(|it| it.carrier == Carrier::Message(target));
        let coming = coming.map_or(0, |it| it.assembly.total());
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        let is_closed = reader.is_closed() && target != Target::Top;
        let part = reader.message.as_ref().map_or(coming, Assembly::total);
        let window = &mut reader.window;
        if window.taken(bytes) && !is_closed {
            let before = window.size;
            // A message that has begun to come in this window has room to its end.
            let least = part.min(before);
            let next = window.next_size(now, floor, ceiling).max(least);
            let more = next.saturating_sub(before);
            if used.saturating_add(more) <= budget || more == 0 {
                window.size = next;
                let less = before.saturating_sub(next);
                self.budget.windows = self.budget.windows.saturating_add(more);
                self.budget.windows = self.budget.windows.saturating_sub(less);
            } else {
                window.rest(now, before);
            }
        }
        let parked = self.reader_mut(target).is_some_and(|reader| {
            let window = &mut reader.window;
            !window.is_behind() && std::mem::take(&mut window.parked)
        });
        if parked {
            self.budget.waiting.push_back(Carrier::Message(target));
        }
        self.replenish(target);
        self.admit();
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
        let Some((_, _, budget)) = self.automatic().filter(|_| self.is_alive()) else {
            return;
        };
        let spill = self.config.most_payload().saturating_mul(SPILL).max(budget);
        let Some(reader) = self.reader_mut(target) else {
            return;
        };
        if reader.needs_no_credit() && target != Target::Top {
            return;
        }
        let window = &reader.window;
        let wanted = window.wanted(spill);
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
        // On the top-level others use the window too.
        if total <= reader.window.size && target != Target::Top {
            return assembly;
        }
        if waits_for_reader(carrier, &reader.window) {
            self.park(carrier);
            return assembly;
        }
        let fits = self.budget.used().saturating_add(total) <= budget;
        if self.budget.waiting.is_empty() && (fits || self.budget.set_aside == 0) {
            return self.set_aside(target, assembly);
        }
        self.budget.waiting.push_back(carrier);
        assembly
    }

    /// A payload has to wait until the reader has caught up.
    fn park(&mut self, carrier: Carrier) {
        let target = payer(carrier);
        if target == Target::Top {
            self.budget.parked.push_back(carrier);
        } else if let Some(reader) = self.reader_mut(target) {
            reader.window.parked = true;
        }
    }

    /// The next payload that waits for its bytes, if its reader has caught up.
    fn next_waiting(&mut self) -> Option<Carrier> {
        if self.budget.waiting.is_empty() && !self.top_reader.window.is_behind() {
            let next = self.budget.parked.pop_front()?;
            self.budget.waiting.push_back(next);
        }
        self.budget.waiting.front().copied()
    }

    /// The budget has room for a payload: its peer gets the credit for all of it.
    fn set_aside(&mut self, target: Target, mut assembly: Assembly) -> Assembly {
        assembly.reserved = assembly.total();
        self.budget.set_aside = self.budget.set_aside.saturating_add(assembly.reserved);
        let (received, left) = (assembly.received(), assembly.left());
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.parts = window.parts.saturating_sub(received);
            window.extra = window.extra.saturating_add(left);
        }
        assembly
    }

    /// A payload in parts is whole: what was set aside for it waits to be taken now.
    pub(super) fn whole(&mut self, carrier: Carrier, assembly: &Assembly) {
        if assembly.is_discarded() || self.automatic().is_none() {
            return;
        }
        if let Some(reader) = self.reader_mut(payer(carrier)) {
            let window = &mut reader.window;
            window.unread = window.unread.saturating_add(assembly.total());
            if assembly.reserved == 0 && !assembly.is_settled() {
                window.parts = window.parts.saturating_sub(assembly.total());
            }
            if window.extra > 0 {
                // It may have used the credit of a payload that is still to come.
                self.replenish(payer(carrier));
            }
        }
        self.release(assembly);
    }

    /// A chunk of a message waits to be taken by itself.
    pub(super) fn part_came(&mut self, target: Target, bytes: u64) {
        if self.automatic().is_none() {
            return;
        }
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.unread = window.unread.saturating_add(bytes);
            window.parts = window.parts.saturating_sub(bytes);
        }
    }

    /// Bytes that have come are of no use any more.
    pub(super) fn void_bytes(&mut self, target: Target, bytes: u64) {
        if let Some(reader) = self.reader_mut(target) {
            reader.window.parts = reader.window.parts.saturating_sub(bytes);
            self.replenish(target);
        }
    }

    /// What has begun to come may never come to its end: its credit is settled, that of what is to come with each
    /// chunk. If nobody wants it its bytes are dropped. A close of the top-level may still be told.
    pub(super) fn give_up(&mut self, carrier: Carrier) {
        let coming = self
            .incoming
            .take_if(|incoming| incoming.carrier == carrier);
        if let Some(mut incoming) = coming {
            self.settle(
                carrier,
                &mut incoming.assembly,
                incoming.length,
                incoming.rest,
            );
            self.incoming = Some(incoming);
        } else if let Some(mut assembly) = self.take_partial(carrier) {
            self.settle(carrier, &mut assembly, 0, 0);
            self.put_partial(carrier, assembly);
        }
    }

    /// Settles the credit of what has come, but for a chunk of `length` bytes of which `rest` are to come.
    fn settle(&mut self, carrier: Carrier, assembly: &mut Assembly, length: u64, rest: u64) {
        if assembly.is_settled() {
            return;
        }
        let target = payer(carrier);
        let counted = assembly.received().saturating_add(rest);
        let total = assembly.total();
        let reserved = std::mem::take(&mut assembly.reserved);
        assembly.settle();
        if !matches!(carrier, Carrier::Close(_)) {
            self.held = self.held.saturating_sub(assembly.held());
            assembly.discard();
        }
        if reserved == 0 {
            self.void_bytes(target, counted.saturating_sub(length));
            return;
        }
        if let Some(reader) = self.reader_mut(target) {
            let window = &mut reader.window;
            window.extra = window.extra.saturating_sub(total.saturating_sub(counted));
            window.parts = window.parts.saturating_add(length);
        }
        self.budget.set_aside = self.budget.set_aside.saturating_sub(reserved);
        self.admit();
    }

    /// A payload in parts will never be whole.
    pub(super) fn dropped(&mut self, target: Target, assembly: &Assembly) {
        if assembly.is_settled() {
            return;
        }
        if assembly.reserved == 0 {
            self.void_bytes(target, assembly.received());
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
        while let Some(carrier) = self.next_waiting() {
            if self.is_coming(carrier) {
                // It is asked for again when its chunk has ended.
                return;
            }
            let Some(waiting) = self.take_partial(carrier) else {
                // It has ended meanwhile.
                self.budget.waiting.pop_front();
                continue;
            };
            if waiting.is_settled() || waiting.reserved > 0 {
                self.budget.waiting.pop_front();
                self.put_partial(carrier, waiting);
                continue;
            }
            let target = payer(carrier);
            if self
                .reader_mut(target)
                .is_some_and(|it| waits_for_reader(carrier, &it.window))
            {
                self.budget.waiting.pop_front();
                self.put_partial(carrier, waiting);
                self.park(carrier);
                continue;
            }
            let fits = self.budget.used().saturating_add(waiting.total()) <= budget;
            if !fits && self.budget.set_aside > 0 {
                self.put_partial(carrier, waiting);
                return;
            }
            self.budget.waiting.pop_front();
            let waiting = self.set_aside(target, waiting);
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

/// Whether a payload waits until its reader has caught up. An answer was asked for, and its reader may take nothing
/// else before it has come.
const fn waits_for_reader(carrier: Carrier, window: &Window) -> bool {
    let is_answer = matches!(carrier, Carrier::Response(_) | Carrier::CloseResponse(_));
    window.is_behind() && !is_answer
}

/// Whose credit a payload costs: that of all but messages is the top-level's (R-BPM-9).
pub(super) const fn payer(carrier: Carrier) -> Target {
    match carrier {
        Carrier::Message(target) => target,
        _ => Target::Top,
    }
}
