//! Credit of the halves that this end reads: counts each payload against its half's window and the budget, and queues
//! the announcements.

use super::Connection;
use super::assembly::Assembly;
use super::budget::Admission;
use super::intake::Incoming;
use super::window::payer;
use crate::Target;
use crate::chunk::PayloadRole;

impl Connection {
    /// A half can be read from now on; before, it has no credit (R-BPM-10).
    pub(super) fn open_window(&mut self, target: Target) {
        if let Some(reader) = self.tables.entities.reader(target) {
            self.budget.open(&mut reader.window);
        }
        self.replenish(target);
    }

    /// A half gets no more credit: credit that was not announced is not given, and its window's part of the budget is
    /// free.
    pub(super) fn end_window(&mut self, target: Target) {
        if let Some(reader) = self.tables.entities.reader(target) {
            reader.grant.withdraw_unannounced();
            self.budget.end(&mut reader.window);
            self.admit();
        }
    }

    /// The application is done with so many bytes of payload that came on a half (payloads that opened, requested,
    /// responded or ended something came on the top-level): with automatic credit the peer gets as much
    /// again. Without, and for halves that are gone, nothing happens.
    pub fn consumed(&mut self, target: Target, bytes: u64) {
        if !self.budget.is_automatic() {
            return;
        }
        // The time when the bytes have come, or a little later.
        let now = self.silence.last_byte();
        let message = PayloadRole::Message(target);
        let coming = self.intake.total(message).unwrap_or(0);
        let Some(reader) = self.tables.entities.reader(target) else {
            return;
        };
        let is_open = !reader.is_closed() || target == Target::Top;
        let coming = reader.message.as_ref().map_or(coming, Assembly::total);
        let window = &mut reader.window;
        if window.taken(bytes) && is_open {
            self.budget.end_round(window, now, coming);
        }
        if window.unpark() {
            self.budget.unpark(message);
        }
        if self.phase.is_open() && self.budget.replenish(target, reader) {
            self.control.announce(target);
        }
        self.admit();
    }

    /// Grants credit up to the window, if that is worth a chunk.
    pub(super) fn replenish(&mut self, target: Target) {
        if !self.phase.is_open() {
            return;
        }
        if let Some(reader) = self.tables.entities.reader(target)
            && self.budget.replenish(target, reader)
        {
            self.control.announce(target);
        }
    }

    /// A payload in parts begins.
    pub(super) fn reserve(&mut self, role: PayloadRole, total: u64) -> Assembly {
        let mut assembly = Assembly::new(total);
        if let Some(reader) = self.tables.entities.reader(payer(role)) {
            self.budget.reserve(role, &mut assembly, &mut reader.window);
        }
        assembly
    }

    /// A payload is whole: the bytes that were set aside for it wait to be taken now.
    pub(super) fn whole(&mut self, role: PayloadRole, assembly: &Assembly) {
        if assembly.is_discarded() || !self.budget.is_automatic() {
            return;
        }
        if let Some(reader) = self.tables.entities.reader(payer(role)) {
            let window = &mut reader.window;
            window.add_unread(assembly.total());
            if assembly.reserved == 0 && !assembly.is_settled() {
                window.drop_parts(assembly.total());
            }
            if window.has_reserved() {
                // It may have used the credit of a payload that is still to come.
                self.replenish(payer(role));
            }
        }
        self.release(assembly.reserved);
    }

    /// A chunk of a message waits to be taken by itself.
    pub(super) fn part_came(&mut self, target: Target, bytes: u64) {
        if !self.budget.is_automatic() {
            return;
        }
        if let Some(reader) = self.tables.entities.reader(target) {
            reader.window.add_unread(bytes);
            reader.window.drop_parts(bytes);
        }
    }

    /// Bytes that have come are of no use any more.
    pub(super) fn void_bytes(&mut self, target: Target, bytes: u64) {
        if let Some(reader) = self.tables.entities.reader(target) {
            reader.window.drop_parts(bytes);
            self.replenish(target);
        }
    }

    /// A payload that has begun to come may never come to its end: its credit is settled, that of the bytes to come with
    /// each chunk. Its bytes are dropped, unless it is a close, of which the application may still be told.
    pub(super) fn give_up(&mut self, role: PayloadRole) {
        if let Some(mut incoming) = self.intake.take_chunk(role) {
            self.settle(&mut incoming);
            self.intake.begin(incoming);
        } else if let Some(assembly) = self.tables.take_partial(role) {
            let mut incoming = Incoming {
                role,
                length: 0,
                rest: 0,
                assembly,
            };
            self.settle(&mut incoming);
            self.tables.put_partial(role, incoming.assembly);
        }
    }

    /// Settles the credit of all that has come, but for the chunk that is being taken.
    fn settle(&mut self, incoming: &mut Incoming) {
        let assembly = &mut incoming.assembly;
        if assembly.is_settled() {
            return;
        }
        let target = payer(incoming.role);
        let counted = assembly.received().saturating_add(incoming.rest);
        let reserved = std::mem::take(&mut assembly.reserved);
        assembly.settle();
        if !matches!(incoming.role, PayloadRole::Close(_)) {
            self.intake.release(assembly.held());
            assembly.discard();
        }
        if reserved == 0 {
            self.void_bytes(target, counted.saturating_sub(incoming.length));
            return;
        }
        if let Some(reader) = self.tables.entities.reader(target) {
            let to_come = assembly.total().saturating_sub(counted);
            reader.window.drop_reserved(to_come);
            reader.window.add_parts(incoming.length);
        }
        self.release(reserved);
    }

    /// A payload of the peer that has come in part will not come to its end (R-BPM-18, R-BPMUX-V7).
    pub(super) fn void(&mut self, role: PayloadRole) {
        if let Some(partial) = self.tables.take_partial(role) {
            self.drop_assembly(Target::Top, &partial);
        }
    }

    /// A payload that has come in part on a half will not come to its end.
    pub(super) fn drop_assembly(&mut self, target: Target, assembly: &Assembly) {
        self.intake.release(assembly.held());
        if assembly.is_settled() {
            return;
        }
        if assembly.reserved == 0 {
            self.void_bytes(target, assembly.received());
            return;
        }
        if let Some(reader) = self.tables.entities.reader(target) {
            reader.window.drop_reserved(assembly.left());
        }
        self.release(assembly.reserved);
    }

    /// Bytes that were set aside are free: for payloads that wait.
    fn release(&mut self, reserved: u64) {
        if reserved > 0 {
            self.budget.release(reserved);
            self.admit();
        }
    }

    /// Sets bytes aside for payloads that wait, in their order.
    pub(super) fn admit(&mut self) {
        loop {
            let top = &self.tables.entities.top_reader.window;
            let Some(role) = self.budget.next_waiting(top) else {
                return;
            };
            if self.intake.role() == Some(role) {
                // It is asked for again when its chunk has ended.
                return;
            }
            let Some(partial) = self.tables.partial(role) else {
                // It has ended meanwhile.
                self.budget.drop_next();
                continue;
            };
            match self.budget.admit(role, partial) {
                Admission::Admitted => self.replenish(payer(role)),
                Admission::Passed => {}
                Admission::Full => return,
            }
        }
    }
}
