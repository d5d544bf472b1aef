//! What comes. A chunk's head is judged, and its payload counted against credit, before the payload is
//! looked at (R-BPMUX-V2); the payload is then taken as it comes. Of several rules that a chunk breaks the first
//! that is looked at is told (R-BPMUX-V16).

use ackline_core::{Block, EVENTS_PER_CALL, LimitHit, Need, ProtocolError, Table};
use bytes::{Buf, BytesMut};

use super::Connection;
use super::assembly::Assembly;
use super::entity::{Asking, Entity, Ours, Theirs};
use super::outbox::Queued;
use super::outgoing::Waiting;
use super::window::payer;
use crate::chunk::{Carrier, Decoded, Head, decode};
use crate::connection::Event;
use crate::error::Subject;
use crate::{EntityKind, Kind, Target};

/// A payload of fewer bytes is awaited whole; of a larger one, pieces of at least so many are taken.
const PIECE_BYTES: usize = 16 << 10;

/// What may wait for the transport before nothing more is received: more than the credit that a peer gives who
/// reads, and than the acknowledgements that may be owed.
const MOST_IN_LANE: Waiting = Waiting {
    bytes: 32 << 20,
    payloads: 1 << 19,
};

/// Answers that the peer has caused and not read, beside those to the ends of all that it may open: from here
/// on nothing more is read from it. What this end has to send by itself does not count: two ends that both wait
/// for the other to read would wait for ever.
const OWED_CHUNKS: usize = 4_096;

/// Answers that one call queues at the most: each takes many times the byte or two that the peer spends on its cause,
/// and is granted before.
pub(super) const ANSWERS_PER_CALL: usize = 256;

/// A chunk whose payload is being taken.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) carrier: Carrier,
    /// Bytes of this chunk.
    pub(super) length: u64,
    /// Bytes of it that are still to come.
    pub(super) rest: u64,
    pub(super) assembly: Assembly,
}

impl Connection {
    pub(super) fn take_input(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.answers_left = ANSWERS_PER_CALL;
        let need = self.take_chunks(input);
        if matches!(need, Ok(Need::Input { .. }) | Err(_)) {
            self.block = Block::default();
        }
        need
    }

    fn take_chunks(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        loop {
            if !self.is_alive() {
                self.offset = self.offset.saturating_add(count(input.len()));
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            let is_full = self.owed >= self.owed_limit()
                || self.held_closes >= self.config.most_held_closes
                || !self.lane_backlog().is_within(MOST_IN_LANE);
            if self.weight >= EVENTS_PER_CALL || is_full {
                return Ok(Need::Room);
            }
            if self.answers_left == 0 {
                return Ok(Need::Again);
            }
            if let Some(need) = self.take_payload(input) {
                return Ok(need);
            }
            if !self.is_alive() {
                continue;
            }
            let offset = self.offset;
            match decode(input) {
                Err(kind) => return Err(self.fail(kind, offset)),
                Ok(Decoded::Partial { at_least }) => return Ok(Need::Input { at_least }),
                Ok(Decoded::Whole { head, len }) => {
                    input.advance(len);
                    self.offset = offset.saturating_add(count(len));
                    if let Err(kind) = self.head(head) {
                        return Err(self.fail(kind, offset));
                    }
                }
            }
        }
    }

    /// What has its credit and waits for the transport alone: responses to a peer that does not read them.
    pub(super) fn lane_backlog(&self) -> Waiting {
        Waiting {
            bytes: self.lane_bytes,
            payloads: self.lane.len(),
        }
    }

    fn owed_limit(&self) -> usize {
        let limits = self.config.limits;
        let wide = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        wide(limits.max_entities)
            .saturating_mul(2)
            .saturating_add(wide(limits.max_requests))
            .saturating_add(OWED_CHUNKS)
    }

    /// Whether the peer's silence would be inside a chunk.
    pub(super) fn is_inside_a_chunk(&self, input: &BytesMut) -> bool {
        self.incoming.is_some() || !input.is_empty()
    }

    /// Takes what is there of the payload that is due; what is needed if that is not all of it.
    fn take_payload(&mut self, input: &mut BytesMut) -> Option<Need> {
        let incoming = self.incoming.as_mut()?;
        let rest = usize::try_from(incoming.rest).unwrap_or(usize::MAX);
        let wanted = rest.min(PIECE_BYTES);
        if input.len() < wanted {
            return Some(Need::Input { at_least: wanted });
        }
        let taken = rest.min(input.len());
        let before = incoming.assembly.held();
        incoming.assembly.push(input, taken, &mut self.block);
        let kept = incoming.assembly.held().saturating_sub(before);
        incoming.rest = incoming.rest.saturating_sub(count(taken));
        let is_whole = incoming.rest == 0;
        self.held = self.held.saturating_add(kept);
        self.offset = self.offset.saturating_add(count(taken));
        self.stats.bytes_received = self.stats.bytes_received.saturating_add(count(taken));
        if is_whole && let Some(incoming) = self.incoming.take() {
            self.chunk_ends(incoming);
        }
        None
    }

    fn chunk_ends(&mut self, incoming: Incoming) {
        let Incoming {
            carrier,
            length,
            assembly,
            ..
        } = incoming;
        if !assembly.is_settled() && self.comes_in_parts(carrier) {
            return self.part(carrier, assembly);
        }
        let mut bytes = assembly.total();
        if assembly.is_settled() {
            self.void_bytes(payer(carrier), length);
        }
        if assembly.is_discarded() {
            bytes = 0;
        }
        if !assembly.is_complete() {
            self.keep(carrier, assembly);
            return;
        }
        let held = assembly.held();
        self.held = self.held.saturating_sub(held);
        self.whole(carrier, &assembly);
        self.stats.payloads_received = self.stats.payloads_received.saturating_add(1);
        self.complete(carrier, assembly.into_payload(), bytes);
    }

    /// Whether its chunks are told one by one.
    const fn comes_in_parts(&self, carrier: Carrier) -> bool {
        let is_message = matches!(carrier, Carrier::Message(Target::Own(_) | Target::Peer(_)));
        self.config.parts && is_message
    }

    /// A chunk of a message is here, and is the reader's: what is to come is counted anew.
    fn part(&mut self, carrier: Carrier, assembly: Assembly) {
        let (target, left) = (payer(carrier), assembly.left());
        let (is_begun, bytes) = (assembly.is_begun(), assembly.received());
        self.held = self.held.saturating_sub(assembly.held());
        self.part_came(target, bytes);
        if left > 0 {
            self.put_partial(carrier, Assembly::behind(left));
        } else {
            self.stats.payloads_received = self.stats.payloads_received.saturating_add(1);
        }
        let payload = assembly.into_payload();
        if left == 0 && !is_begun {
            self.complete(carrier, payload, bytes);
        } else if left == 0 || bytes > 0 {
            let is_last = left == 0;
            self.tell(Event::Part {
                target,
                payload,
                is_last,
            });
        }
    }

    /// Whether a chunk of this is being taken.
    pub(super) fn is_coming(&self, carrier: Carrier) -> bool {
        let incoming = self.incoming.as_ref();
        incoming.is_some_and(|incoming| incoming.carrier == carrier)
    }

    /// Part of a payload is here; the rest needs credit too.
    fn keep(&mut self, carrier: Carrier, assembly: Assembly) {
        let target = payer(carrier);
        self.put_partial(carrier, assembly);
        self.admit();
        self.replenish(target);
    }

    fn head(&mut self, head: Head) -> Result<(), Kind> {
        if let Head::Payload { carrier, length } = head {
            return self.payload(carrier.flipped(), length);
        }
        if self.activation.is_some() {
            return Err(violation("an activation before a chunk without a payload"));
        }
        match head {
            Head::Payload { .. } => Ok(()),
            Head::Partial { total } => {
                // With parts it depends on what comes.
                if !self.config.parts {
                    self.within_limit(total)?;
                }
                self.activation = Some(total);
                Ok(())
            }
            Head::Credit { target, amount } => self.credited(target.flipped(), amount),
            Head::Heartbeat {
                pong: false,
                target,
            } => self.pinged(target.flipped()),
            Head::Heartbeat { pong: true, target } => {
                let target = target.flipped();
                self.ponged(target);
                self.tell(Event::Pong { target });
                Ok(())
            }
            Head::PingRequest(id) => {
                let asking = self.asking.get(&id);
                if asking.is_some_and(|asking| asking.is_complete() && asking.ours != Ours::Sent) {
                    self.answer(Head::PongRequest(id));
                }
                Ok(())
            }
            Head::PongRequest(id) => {
                self.tell(Event::RequestPong { id });
                Ok(())
            }
            Head::AckCancelRequest(id) => self.request_cancel_acknowledged(id),
            Head::AckCloseResponse(id) => self.response_close_acknowledged(id),
            Head::AckCancel(target) => self.cancel_acknowledged(target.flipped()),
            Head::AckClose(target) => self.close_acknowledged(target.flipped()),
        }
    }

    pub(super) fn answer(&mut self, head: Head) {
        self.owed = self.owed.saturating_add(1);
        self.answers_left = self.answers_left.saturating_sub(1);
        self.lane.push_back(Queued::Answer(head));
    }

    /// Also what is only announced: a payload that never comes whole holds no more than that (R-BPM-31).
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
    fn payload(&mut self, carrier: Carrier, length: u64) -> Result<(), Kind> {
        if !self.comes_in_parts(carrier) {
            self.within_limit(self.activation.unwrap_or(0).max(length))?;
        }
        self.judge(carrier)?;
        let assembly = self.assembly(carrier, length)?;
        self.charge(carrier, length, assembly.reserved > 0)?;
        self.begin(carrier, &assembly)?;
        self.incoming = Some(Incoming {
            carrier,
            length,
            rest: length,
            assembly,
        });
        Ok(())
    }

    /// The payload that a chunk adds to: one that an activation has announced (REQ-BPMUX-26), of no bytes too
    /// (R-BPM-19), one that has begun, where none may be announced (R-BPM-20), or its own.
    fn assembly(&mut self, carrier: Carrier, length: u64) -> Result<Assembly, Kind> {
        let begun = self.take_partial(carrier);
        let is_unwanted = begun.is_none() && self.is_unwanted(carrier);
        // The peer drops it when our cancel arrives, and nothing tells of it (R-BPMUX-V10).
        let is_vain = begun.is_none() && carrier == Carrier::Close(Target::Top) && self.refuses();
        let mut assembly = match (self.activation.take(), begun) {
            (Some(_), Some(_)) => return Err(violation("an activation inside of one")),
            (Some(total), None) if is_unwanted || is_vain || self.comes_in_parts(carrier) => {
                Assembly::new(total)
            }
            (Some(total), None) => self.reserve(carrier, total),
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

    /// Whether what begins now is dropped: what it came on was cancelled (R-BPM-15, R-BPM-27).
    fn is_unwanted(&mut self, carrier: Carrier) -> bool {
        match carrier {
            Carrier::Message(target) => self
                .reader_mut(target)
                .is_some_and(|reader| reader.ours == Ours::Sent),
            Carrier::Open(..) | Carrier::Request(_) => self.refuses(),
            _ => false,
        }
    }

    /// Every part costs credit for its own bytes (REQ-BPMUX-30), also what is dropped (R-BPM-15).
    fn charge(&mut self, carrier: Carrier, length: u64, is_set_aside: bool) -> Result<(), Kind> {
        let target = payer(carrier);
        let Some(reader) = self.reader_mut(target) else {
            return Ok(());
        };
        let sent = reader.granted.saturating_sub(reader.due);
        if length > sent {
            return Err(Kind::CreditExceeded {
                what: carrier,
                length,
                credit: sent,
            });
        }
        reader.granted = reader.granted.saturating_sub(length);
        self.arrived(target, length, is_set_aside);
        Ok(())
    }

    /// What begins with the first chunk of a payload.
    fn begin(&mut self, carrier: Carrier, assembly: &Assembly) -> Result<(), Kind> {
        if assembly.received() > 0 {
            return Ok(());
        }
        let over = |count: usize, limit: u32, option| {
            let value = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
            let limit = u64::from(limit);
            let hit = LimitHit {
                value,
                limit,
                option,
            };
            (value > limit).then_some(Kind::Limit(hit))
        };
        let limits = self.config.limits;
        match carrier {
            Carrier::Open(kind, id) if !self.peer.contains_key(&id) => {
                if let Some(over) = over(self.peer.len(), limits.max_entities, "--max-entities") {
                    return Err(over);
                }
                self.keep_more(1, 0)?;
                self.peer.insert(id, Entity::new(kind, false));
            }
            Carrier::Request(id) if !self.asking.contains_key(&id) => {
                if let Some(over) = over(self.asking.len(), limits.max_requests, "--max-requests") {
                    return Err(over);
                }
                self.keep_more(0, 1)?;
                self.asking.insert(id, Asking::default());
            }
            // A request that is not over for the peer, as it knows nothing of the answer.
            Carrier::CancelRequest(id) if !self.asking.contains_key(&id) => {
                if let Some(over) = over(self.late_cancels(), limits.max_requests, "--max-requests")
                {
                    return Err(over);
                }
                self.keep_more(0, 1)?;
            }
            Carrier::Close(target) => {
                if let Some(reader) = self.reader_mut(target) {
                    reader.theirs = Theirs::Begun;
                }
            }
            Carrier::CloseResponse(id) => {
                if let Some(asked) = self.asked.get_mut(&id) {
                    asked.theirs = Theirs::Begun;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Unfinished cancels of requests that are not there, at the least: everything else that can come in parts
    /// belongs to something in a table.
    pub(super) fn late_cancels(&self) -> usize {
        let tables = [&self.own, &self.peer].map(Table::len);
        let others = tables
            .into_iter()
            .chain([self.asked.len(), self.asking.len()])
            .fold(0_usize, |sum, len| {
                sum.saturating_add(len.saturating_mul(2))
            })
            .saturating_add(2);
        self.partials.len().saturating_sub(others)
    }

    /// Whether a payload may come now, by what it is of.
    fn judge(&mut self, carrier: Carrier) -> Result<(), Kind> {
        match carrier {
            Carrier::Open(kind, id) => self.judge_opening(carrier, kind, id),
            Carrier::Message(target) => self.judge_message(carrier, target),
            Carrier::Request(id) => {
                self.top_is_open(carrier)?;
                let is_cancelled_late = || {
                    !self.partials.is_empty()
                        && self.partials.contains_key(&Carrier::CancelRequest(id))
                };
                match self.asking.get(&id) {
                    Some(asking) if asking.is_complete() => Err(Kind::IdInUse { what: carrier }),
                    None if is_cancelled_late() => Err(Kind::IdInUse { what: carrier }),
                    _ => Ok(()),
                }
            }
            Carrier::Response(id) => {
                let asked = self.asked_of(id)?;
                match asked {
                    (_, Theirs::Done) | (true, _) => Err(ended(Subject::OwnRequest(id))),
                    (_, Theirs::Begun) => Err(violation("a response inside of its close")),
                    _ => Ok(()),
                }
            }
            Carrier::CancelRequest(id) => match self.asking.get(&id) {
                Some(asking) if asking.cancelled => Err(ended(Subject::PeerRequest(id))),
                _ => Ok(()),
            },
            Carrier::CloseResponse(id) => {
                let (answered, theirs) = self.asked_of(id)?;
                if answered || theirs == Theirs::Done {
                    return Err(ended(Subject::OwnRequest(id)));
                }
                if self.partials.contains_key(&Carrier::Response(id)) {
                    return Err(violation("a close inside of the response"));
                }
                Ok(())
            }
            Carrier::Cancel(target) => self.judge_cancel(target),
            Carrier::Close(target) => self.judge_close(target),
        }
    }

    fn asked_of(&self, id: u32) -> Result<(bool, Theirs), Kind> {
        let asked = self.asked.get(&id).filter(|asked| asked.sent);
        let asked = asked.ok_or(Kind::UnknownId {
            what: Subject::OwnRequest(id),
        })?;
        Ok((asked.answered, asked.theirs))
    }

    fn top_is_open(&self, carrier: Carrier) -> Result<(), Kind> {
        match self.top_reader.theirs {
            Theirs::Done => Err(Kind::TopLevelClosed { what: carrier }),
            _ => Ok(()),
        }
    }

    fn judge_opening(&self, carrier: Carrier, kind: EntityKind, id: u32) -> Result<(), Kind> {
        self.top_is_open(carrier)?;
        match self.peer.get(&id) {
            Some(entity) if entity.is_complete() || entity.kind != kind => {
                Err(Kind::IdInUse { what: carrier })
            }
            _ => Ok(()),
        }
    }

    /// What has begun to end carries nothing else (R-BPMUX-V15).
    fn judge_message(&mut self, carrier: Carrier, target: Target) -> Result<(), Kind> {
        if target == Target::Top {
            self.top_is_open(carrier)?;
        }
        let what = Subject::Entity(target);
        let reader = self.known_reader(target)?;
        if reader.ours == Ours::Acknowledged {
            return Err(ended(what));
        }
        match reader.theirs {
            Theirs::Held | Theirs::Released | Theirs::Done => Err(ended(what)),
            Theirs::Begun => Err(violation("a message inside of the close of its sink")),
            Theirs::No => Ok(()),
        }
    }

    fn judge_cancel(&mut self, target: Target) -> Result<(), Kind> {
        let writer = self.known_writer(target)?;
        if writer.cancelled || writer.ours == Ours::Acknowledged {
            return Err(ended(Subject::Entity(target)));
        }
        Ok(())
    }

    /// A close behind half a message, or half of what was called before it, cuts that off (R-BPM-17, R-BPMUX-V8).
    fn judge_close(&mut self, target: Target) -> Result<(), Kind> {
        let is_cut = target == Target::Top
            && self
                .partials
                .keys()
                .any(|it| matches!(it, Carrier::Open(..) | Carrier::Request(_)));
        let reader = self.known_reader(target)?;
        if reader.theirs.has_come() || reader.ours == Ours::Acknowledged {
            return Err(ended(Subject::Entity(target)));
        }
        if is_cut || reader.message.is_some() {
            return Err(violation("a close inside of what was to come before it"));
        }
        Ok(())
    }

    /// A half that this end reads, for a chunk.
    fn known_reader(&mut self, target: Target) -> Result<&mut super::Reader, Kind> {
        if target == Target::Top {
            return Ok(&mut self.top_reader);
        }
        let what = Subject::Entity(target);
        let entity = self.known_entity(target)?;
        entity.reader.as_mut().ok_or(Kind::WrongDirection { what })
    }

    /// A half that this end writes, for a chunk.
    fn known_writer(&mut self, target: Target) -> Result<&mut super::Writer, Kind> {
        if target == Target::Top {
            return Ok(&mut self.top_writer);
        }
        let what = Subject::Entity(target);
        let entity = self.known_entity(target)?;
        entity.writer.as_mut().ok_or(Kind::WrongDirection { what })
    }

    /// What is not there, or not wholly opened, is unknown (R-BPM-21); the kinds are those of R-BPMUX-V5.
    fn known_entity(&mut self, target: Target) -> Result<&mut Entity, Kind> {
        let what = Subject::Entity(target);
        let entity = self
            .entity_mut(target)
            .filter(|entity| entity.is_complete());
        entity.ok_or(Kind::UnknownId { what })
    }

    fn credited(&mut self, target: Target, amount: u64) -> Result<(), Kind> {
        let what = Subject::Entity(target);
        let writer = self.known_writer(target)?;
        if target != Target::Top {
            // The close is on its way to the peer, also where the peer has cancelled before (R-BPM-11).
            if writer.ours == Ours::Sent {
                return Ok(());
            }
            if writer.cancelled || writer.ours == Ours::Acknowledged {
                return Err(ended(what));
            }
        }
        let sum = writer.credit.checked_add(amount);
        writer.credit = sum.ok_or(Kind::CreditOverflow { target })?;
        self.queue_writer(target);
        self.give_room(target);
        if target == Target::Top {
            self.queue_jobs();
        }
        // What the credit sets free goes before the next chunk is looked at (R-BPMUX-V14).
        if !self.ready.is_empty() && self.staged.room() > 0 {
            let mut staged = std::mem::take(&mut self.staged);
            self.encode(&mut staged);
            self.staged = staged;
        }
        Ok(())
    }

    /// Answered (REQ-BPMUX-32) if the half that the peer reads (R-BPM-24) is there and neither closing nor over
    /// (R-BPM-25, R-BPMUX-V13).
    fn pinged(&mut self, target: Target) -> Result<(), Kind> {
        if target != Target::Top {
            let entity = self.known_entity(target)?;
            let writer = entity.writer.as_ref();
            let is_live = writer.is_some_and(|writer| {
                !writer.cancelled && !matches!(writer.ours, Ours::Sent | Ours::Acknowledged)
            });
            if !is_live {
                return Ok(());
            }
        }
        self.answer(Head::Heartbeat { pong: true, target });
        Ok(())
    }
}

fn violation(what: &'static str) -> Kind {
    Kind::PartialViolation { what }
}

fn ended(what: Subject) -> Kind {
    Kind::AlreadyEnded { what }
}

pub(super) fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
