//! Chunks of the peer. A chunk's head is judged, and its payload counted against credit, before the payload is
//! looked at (R-BPMUX-V2); the payload is then taken as it comes. Of several rules that a chunk breaks the first
//! that is looked at is told (R-BPMUX-V16).

use ackline_core::{LimitHit, Need, ProtocolError};
use bytes::BytesMut;

use super::Connection;
use super::assembly::Assembly;
use super::entity::OwnEnd;
use super::intake::Incoming;
use super::judge::{ended, violation};
use super::outgoing::Waiting;
use super::window::payer;
use crate::chunk::{Decoded, Head, PayloadRole, decode};
use crate::connection::Event;
use crate::error::Subject;
use crate::{Kind, Target};

/// The chunks that may wait for the transport before nothing more is received: more than the credit
/// that a reading peer gives, and than the acknowledgements that may be owed.
const MOST_IN_CONTROL: Waiting = Waiting {
    bytes: 32 << 20,
    payloads: 1 << 19,
};

/// Answers that the peer has caused and not read, beside those to the ends of all that it may open: from here
/// on nothing more is read from it. Chunks that this end sends by itself do not count: two ends that both wait
/// for the other to read would wait for ever.
const OWED_CHUNKS: usize = 4_096;

impl Connection {
    pub(super) fn take_input(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.control.begin_call();
        let need = self.take_chunks(input);
        if matches!(need, Ok(Need::Input { .. }) | Err(_)) {
            self.intake.end_block();
        }
        need
    }

    fn take_chunks(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        loop {
            if !self.phase.is_open() {
                self.intake.drop_input(input);
                return Ok(Need::Input { at_least: 1 });
            }
            if self.is_full() {
                return Ok(Need::Room);
            }
            if self.control.is_call_spent() {
                return Ok(Need::Again);
            }
            match self.intake.take_payload(input) {
                Err(need) => return Ok(need),
                Ok(Some(incoming)) => self.chunk_ends(incoming),
                Ok(None) => {}
            }
            if !self.phase.is_open() {
                continue;
            }
            let offset = self.intake.offset();
            match decode(input) {
                Err(kind) => return Err(self.fail(kind, offset)),
                Ok(Decoded::Partial { at_least }) => return Ok(Need::Input { at_least }),
                Ok(Decoded::Whole { head, len }) => {
                    self.intake.take_head(input, len);
                    if let Err(kind) = self.head(head) {
                        return Err(self.fail(kind, offset));
                    }
                }
            }
        }
    }

    /// Whether events have to be taken, closes acknowledged or chunks sent before more is received.
    fn is_full(&self) -> bool {
        self.events.is_full()
            || self.control.owed() >= self.owed_limit()
            || self.tables.entities.held_closes() >= self.config.most_held_closes
            || !self.control.backlog().is_within(MOST_IN_CONTROL)
    }

    fn owed_limit(&self) -> usize {
        let limits = self.config.limits;
        let wide = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        wide(limits.max_entities)
            .saturating_mul(2)
            .saturating_add(wide(limits.max_requests))
            .saturating_add(OWED_CHUNKS)
    }

    fn chunk_ends(&mut self, incoming: Incoming) {
        let Incoming {
            role,
            length,
            assembly,
            ..
        } = incoming;
        if !assembly.is_settled() && self.comes_in_parts(role) {
            return self.part(role, assembly);
        }
        let mut bytes = assembly.total();
        if assembly.is_settled() {
            self.void_bytes(payer(role), length);
        }
        if assembly.is_discarded() {
            bytes = 0;
        }
        if !assembly.is_complete() {
            self.keep(role, assembly);
            return;
        }
        self.intake.release(assembly.held());
        self.whole(role, &assembly);
        self.stats.payloads_received = self.stats.payloads_received.saturating_add(1);
        self.complete(role, assembly.into_payload(), bytes);
    }

    /// Whether its chunks are told one by one.
    const fn comes_in_parts(&self, role: PayloadRole) -> bool {
        let is_message = matches!(role, PayloadRole::Message(Target::Own(_) | Target::Peer(_)));
        self.config.parts && is_message
    }

    /// A chunk of a message is here, and is the reader's: the bytes to come are counted anew.
    fn part(&mut self, role: PayloadRole, assembly: Assembly) {
        let (target, left) = (payer(role), assembly.left());
        let (is_begun, bytes) = (assembly.is_begun(), assembly.received());
        self.intake.release(assembly.held());
        self.part_came(target, bytes);
        if left > 0 {
            self.tables.put_partial(role, Assembly::behind(left));
        } else {
            self.stats.payloads_received = self.stats.payloads_received.saturating_add(1);
        }
        let payload = assembly.into_payload();
        if left == 0 && !is_begun {
            self.complete(role, payload, bytes);
        } else if left == 0 || bytes > 0 {
            let is_last = left == 0;
            self.events.push(Event::Part {
                target,
                payload,
                is_last,
            });
        }
    }

    /// Part of a payload is here; the rest needs credit too.
    fn keep(&mut self, role: PayloadRole, assembly: Assembly) {
        self.tables.put_partial(role, assembly);
        self.admit();
        self.replenish(payer(role));
    }

    fn head(&mut self, head: Head) -> Result<(), Kind> {
        if let Head::Payload { role, length } = head {
            return self.payload(role.flipped(), length);
        }
        if self.intake.activation().is_some() {
            return Err(violation("an activation before a chunk without a payload"));
        }
        match head {
            Head::Payload { .. } => Ok(()),
            Head::Partial { total } => {
                // With parts the limit depends on the payload's role.
                if !self.config.parts {
                    self.within_limit(total)?;
                }
                self.intake.activate(total);
                Ok(())
            }
            Head::Credit { target, amount } => self.credited(target.flipped(), amount),
            Head::Heartbeat {
                pong: false,
                target,
            } => self.pinged(target.flipped()),
            Head::Heartbeat { pong: true, target } => {
                let target = target.flipped();
                self.silence.ponged(target);
                self.events.push(Event::Pong { target });
                Ok(())
            }
            Head::PingRequest(id) => {
                self.request_pinged(id);
                Ok(())
            }
            Head::PongRequest(id) => {
                self.events.push(Event::RequestPong { id });
                Ok(())
            }
            Head::AckCancelRequest(id) => self.request_cancel_acknowledged(id),
            Head::AckCloseResponse(id) => self.response_close_acknowledged(id),
            Head::AckCancel(target) => self.cancel_acknowledged(target.flipped()),
            Head::AckClose(target) => self.close_acknowledged(target.flipped()),
        }
    }

    /// Judges a length, also one that is only announced: a payload that never comes whole holds no more than that
    /// (R-BPM-31).
    fn within_limit(&self, length: u64) -> Result<(), Kind> {
        let limit = self.config.most_payload();
        if length <= limit {
            return Ok(());
        }
        let hit = |option| LimitHit {
            value: length,
            limit,
            option,
        };
        if limit == self.config.limits.max_payload_bytes {
            return Err(Kind::Limit(hit("--max-payload-bytes")));
        }
        Err(Kind::Memory {
            what: "a payload would",
            part: "an eighth",
            hit: hit("--memory"),
        })
    }

    /// A chunk with a payload begins.
    fn payload(&mut self, role: PayloadRole, length: u64) -> Result<(), Kind> {
        if !self.comes_in_parts(role) {
            let announced = self.intake.activation().unwrap_or(0);
            self.within_limit(announced.max(length))?;
        }
        self.tables.judge(role)?;
        let assembly = self.assembly(role, length)?;
        self.charge(role, length, assembly.reserved > 0)?;
        if assembly.received() == 0 {
            self.tables.begin(role, self.config.limits)?;
        }
        self.intake.begin(Incoming {
            role,
            length,
            rest: length,
            assembly,
        });
        Ok(())
    }

    /// Returns the payload that a chunk adds to: one that an activation has announced (REQ-BPMUX-26), of no bytes too
    /// (R-BPM-19), one that has begun, where none may be announced (R-BPM-20), or its own.
    fn assembly(&mut self, role: PayloadRole, length: u64) -> Result<Assembly, Kind> {
        let begun = self.tables.take_partial(role);
        let is_unwanted = begun.is_none() && self.tables.is_unwanted(role);
        // The peer drops it when our cancel arrives, and nothing tells of it (R-BPMUX-V10).
        let is_vain = begun.is_none()
            && role == PayloadRole::Close(Target::Top)
            && self.tables.entities.refuses_openings();
        let mut assembly = match (self.intake.take_activation(), begun) {
            (Some(_), Some(_)) => return Err(violation("an activation inside of one")),
            (Some(total), None) if is_unwanted || is_vain || self.comes_in_parts(role) => {
                Assembly::new(total)
            }
            (Some(total), None) => self.reserve(role, total),
            (None, Some(begun)) => begun,
            (None, None) => Assembly::new(length),
        };
        if is_unwanted {
            assembly.discard();
        }
        if is_vain {
            assembly.settle();
        }
        if length > assembly.left() {
            return Err(violation("more bytes than its total length"));
        }
        Ok(assembly)
    }

    /// Charges a chunk's own bytes to its credit (REQ-BPMUX-30), also those of a dropped payload (R-BPM-15).
    fn charge(&mut self, role: PayloadRole, length: u64, is_reserved: bool) -> Result<(), Kind> {
        let Some(reader) = self.tables.entities.reader(payer(role)) else {
            return Ok(());
        };
        if !reader.grant.charge(length) {
            return Err(Kind::CreditExceeded {
                what: role,
                length,
                credit: reader.grant.announced(),
            });
        }
        if self.budget.is_automatic() {
            let credit = reader.grant.unused();
            reader.window.arrived(length, is_reserved, credit);
        }
        Ok(())
    }

    fn credited(&mut self, target: Target, amount: u64) -> Result<(), Kind> {
        let writer = self.tables.entities.known_writer(target)?;
        if target != Target::Top {
            // The close is on its way to the peer, also where the peer has cancelled before (R-BPM-11).
            if writer.own_end == OwnEnd::Sent {
                return Ok(());
            }
            if writer.cancelled || writer.own_end == OwnEnd::Acknowledged {
                return Err(ended(Subject::Entity(target)));
            }
        }
        let added = writer.credit.add(amount);
        added.map_err(|_| Kind::CreditOverflow { target })?;
        self.queue_writer(target);
        self.give_room(target);
        if target == Target::Top {
            self.queue_jobs();
        }
        // Payloads that the credit sets free go before the next chunk is looked at (R-BPMUX-V14).
        if !self.ready.is_empty() && self.staged.room() > 0 {
            let mut staged = std::mem::take(&mut self.staged);
            self.encode(&mut staged);
            self.staged = staged;
        }
        Ok(())
    }

    /// Answers a ping (REQ-BPMUX-32) if the half that the peer reads (R-BPM-24) is there and neither closing nor over
    /// (R-BPM-25, R-BPMUX-V13).
    fn pinged(&mut self, target: Target) -> Result<(), Kind> {
        if target != Target::Top {
            let entity = self.tables.entities.known(target)?;
            let writer = entity.writer.as_ref();
            if writer.is_none_or(|writer| writer.cancelled || writer.has_sent_close()) {
                return Ok(());
            }
        }
        self.control.answer(Head::Heartbeat { pong: true, target });
        Ok(())
    }

    fn request_pinged(&mut self, id: u32) {
        let request = self.tables.requests.peer.get(&id);
        if request.is_some_and(|it| it.is_complete() && it.own_end != OwnEnd::Sent) {
            self.control.answer(Head::PongRequest(id));
        }
    }
}
