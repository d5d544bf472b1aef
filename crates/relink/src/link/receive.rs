//! What the peer's packets do: each takes effect, channel by channel, before the next is looked at.
//!
//! Its rules: REQ-RELINK-35, REQ-RELINK-58, R-REL-9, R-REL-10, R-REL-23, R-REL-24, R-RELINK-V6, R-RELINK-V7,
//! R-RELINK-V9, R-RELINK-V10, R-RELINK-V20.

use std::time::Instant;

use ackline_core::{Block, EVENTS_PER_CALL, LimitHit, Need, ProtocolError, SendQueue, Sequence};
use bytes::{Buf, Bytes, BytesMut};

use super::channels::Key;
use super::incoming::Incoming;
use super::journal::Effect;
use super::outgoing::{Close, Outgoing};
use super::transactions::Outcomes;
use super::transport::{Answer, Pending, Transport};
use super::{Change, Event, Link};
use crate::frame::{
    Acknowledgement, Body, Decoded, Hint, Operation, Packet, Parts, Targets, decode,
};
use crate::payload::COPIED_PARTS;
use crate::{COPIED_BYTES, ChannelId, Kind, Payload, payload};

/// What the input's front came to.
enum Taken {
    /// A packet, or a step of one; so many channels were looked at.
    Some(usize),
    /// More bytes are needed.
    Short(usize),
}

impl Link {
    pub(crate) fn take_input(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
    ) -> Result<Need, ProtocolError<Kind>> {
        let Some(transport) = &mut self.transport else {
            return Ok(Need::Input { at_least: 1 });
        };
        if let Some(error) = &transport.fault {
            return Err(error.clone());
        }
        transport.timing.input(now, input.len());
        transport.begin_step();
        let need = self.take_packets(now, input);
        if matches!(need, Ok(Need::Input { .. }) | Err(_)) {
            self.block = Block::default();
        }
        if let Some(transport) = &mut self.transport {
            transport.timing.left = input.len();
        }
        need
    }

    fn take_packets(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
    ) -> Result<Need, ProtocolError<Kind>> {
        let mut budget = EVENTS_PER_CALL;
        loop {
            if !self.is_attached() {
                // Nothing that comes after the end counts.
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            // Before the room: who takes events at once asks for the step all the same.
            if self.transport.as_ref().is_some_and(Transport::lacks_step) {
                return Ok(Need::Again);
            }
            if self.is_full() {
                return Ok(Need::Room);
            }
            if budget == 0 {
                return Ok(Need::Again);
            }
            match self.take_one(now, input, budget) {
                Ok(Taken::Some(work)) => budget = budget.saturating_sub(work),
                Ok(Taken::Short(at_least)) => return Ok(Need::Input { at_least }),
                Err(kind) => {
                    self.stage_answers(now);
                    return Err(self.fail(kind));
                }
            }
        }
    }

    /// Encodes all that earlier packets of this delivery have caused: it still leaves before the transport ends.
    fn stage_answers(&mut self, now: Instant) {
        let mut staged = SendQueue::new();
        self.put_output(now, &mut staged);
        if let Some(transport) = &mut self.transport {
            transport.staged = staged;
        }
    }

    /// Keeps the transport's first error; the link goes on.
    pub(crate) fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let Some(transport) = &mut self.transport else {
            return ProtocolError { kind, offset: 0 };
        };
        let offset = transport.offset;
        let error = ProtocolError { kind, offset };
        transport.fault.get_or_insert(error).clone()
    }

    pub(crate) fn input_ended(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        let Some(transport) = &mut self.transport else {
            return Ok(());
        };
        if let Some(error) = &transport.fault {
            return Err(error.clone());
        }
        transport.ended = true;
        Ok(())
    }

    fn take_one(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        budget: usize,
    ) -> Result<Taken, Kind> {
        if self
            .transport
            .as_ref()
            .is_some_and(|it| it.pending.is_some())
        {
            return self.take_pending(now, budget).map(Taken::Some);
        }
        let (packet, len) = match decode(&self.context, &self.config.limits, input)? {
            Decoded::Whole { packet, len } => (packet, len),
            Decoded::Partial { at_least } => {
                self.set_partial(!input.is_empty());
                return Ok(Taken::Short(at_least));
            }
        };
        self.set_partial(false);
        match packet {
            Packet::Channel { targets, body } => {
                let (bytes, parts) = match body {
                    Body::Message(parts) => (parts.bytes(), parts.len()),
                    _ => (0, 0),
                };
                let is_large = bytes > COPIED_BYTES || parts > COPIED_PARTS;
                if targets.is_multicast() || is_large {
                    self.split_off(input, len, parts);
                    return self.take_pending(now, budget).map(Taken::Some);
                }
                let id = targets.iter().next().unwrap_or_default();
                match body {
                    Body::Message(parts) => {
                        let mut block = std::mem::take(&mut self.block);
                        let count = input.len().checked_div(len).unwrap_or(1);
                        let payload = || payload::copied_together(&mut block, &parts, count);
                        self.message(now, id, payload)?;
                        self.block = block;
                    }
                    _ => self.about(now, id, &body)?,
                }
            }
            Packet::Nop => self.hinted(input.get(..len).and_then(Hint::decode)),
            general => self.general(now, &general)?,
        }
        input.advance(len);
        self.taken(len);
        Ok(Taken::Some(1))
    }

    fn split_off(&mut self, input: &mut BytesMut, len: usize, parts: usize) {
        if let Some(transport) = &mut self.transport {
            transport.pending = Some(Pending {
                packet: input.split_to(len).freeze(),
                done: 0,
                parts,
                payload: None,
            });
        }
    }

    fn set_partial(&mut self, partial: bool) {
        if let Some(transport) = &mut self.transport {
            transport.timing.partial = partial;
        }
    }

    fn taken(&mut self, len: usize) {
        if let Some(transport) = &mut self.transport {
            let len = u64::try_from(len).unwrap_or(0);
            transport.offset = transport.offset.saturating_add(len);
        }
    }

    /// Takes up to `budget` channels of the packet that was split off.
    fn take_pending(&mut self, now: Instant, budget: usize) -> Result<usize, Kind> {
        let Some(mut pending) = self.transport.as_mut().and_then(|it| it.pending.take()) else {
            return Ok(0);
        };
        let packet = pending.packet.clone();
        let Decoded::Whole {
            packet: Packet::Channel { targets, body },
            ..
        } = decode(&self.context, &self.config.limits, &packet)?
        else {
            return Ok(0);
        };
        let size = usize::from(targets.id_size());
        let done = usize::try_from(pending.done).unwrap_or(usize::MAX);
        let ids = targets.as_bytes().get(done.saturating_mul(size)..);
        let left = targets.count().saturating_sub(pending.done);
        let rest = Targets::multicast(ids.unwrap_or_default(), targets.id_size(), left);
        let mut work = 0_usize;
        for id in rest.iter().take(budget) {
            if (work > 0 && self.is_full()) || !self.pays(pending.cost()) {
                break;
            }
            match body {
                Body::Message(parts) => {
                    let payload = &mut pending.payload;
                    let payload = payload.get_or_insert_with(|| own(&parts, &packet));
                    self.message(now, id, || payload.clone())?;
                }
                _ => self.about(now, id, &body)?,
            }
            pending.done = pending.done.saturating_add(1);
            work = work.saturating_add(1);
        }
        if pending.done >= targets.count() {
            self.taken(packet.len());
        } else if let Some(transport) = &mut self.transport {
            transport.pending = Some(pending);
        }
        Ok(work)
    }

    /// Takes what a delivery costs out of the call's allowance, if it is there.
    fn pays(&mut self, cost: usize) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        let left = transport.allowance.checked_sub(cost);
        transport.allowance = left.unwrap_or(transport.allowance);
        left.is_some()
    }

    /// A nop says something only to the end that asked for it.
    fn hinted(&mut self, hint: Option<Hint>) {
        if let Some(hint) = hint.filter(|_| self.hears_hints) {
            self.event(Event::Hint(hint));
        }
    }

    fn general(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), Kind> {
        let Some(transport) = &mut self.transport else {
            return Ok(());
        };
        match packet {
            Packet::Ping => self.publish(now, Effect::Pongs(1)),
            Packet::Pong => {
                if let Some(ping) = transport.pings.pop_front() {
                    self.forget_outcomes(ping.position);
                    let round_trip = now.saturating_duration_since(ping.sent);
                    self.event(Event::Pong { round_trip });
                }
            }
            Packet::Resume => return self.peer_resumed(),
            Packet::Shutdown => {
                if !self.peer_shutdown {
                    self.peer_shutdown = true;
                    self.event(Event::PeerShutdown);
                }
                self.close_if_done();
            }
            Packet::Nop | Packet::Channel { .. } => {}
        }
        Ok(())
    }

    /// The peer has answered a ping: it knows every outcome that was emitted before.
    fn forget_outcomes(&mut self, position: u64) {
        if !self.peer_transactions() {
            return;
        }
        let most = if self.keeps_many_outcomes() {
            1
        } else {
            self.config.max_outcome_runs.max(2).div_euclid(2)
        };
        for key in self.incoming.keys() {
            let channel = self.incoming.get_mut(key);
            let Some(outcomes) = channel.and_then(|channel| channel.outcomes.as_mut()) else {
                continue;
            };
            let before = outcomes.history_len();
            if before > most {
                outcomes.forget(position);
                let after = outcomes.history_len();
                self.count_outcomes(before, after);
            }
        }
    }

    fn message(
        &mut self,
        now: Instant,
        id: &[u8],
        payload: impl FnOnce() -> Payload,
    ) -> Result<(), Kind> {
        let key = match self.incoming.find(id) {
            Some(key) => key,
            None => self.open_incoming(id)?,
        };
        let window = self.config.receive_window;
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return Ok(());
        };
        // What is skipped may have been followed by a close.
        if channel.skip() {
            self.stats.messages_skipped = self.stats.messages_skipped.saturating_add(1);
            self.schedule_consumed(now, key);
            return Ok(());
        }
        if channel.closing {
            return Err(Kind::ChannelClosing);
        }
        if channel.unconsumed() >= window {
            return Err(Kind::Limit(LimitHit {
                value: u64::from(window).saturating_add(1),
                limit: window.into(),
                option: "--receive-window",
            }));
        }
        let payload = payload();
        let bytes = payload.held_bytes();
        let sequence = channel.deliver(bytes);
        let channel = id.clone();
        self.held = self.held.saturating_add(bytes);
        self.stats.messages_received = self.stats.messages_received.saturating_add(1);
        let wide = u64::try_from(payload.bytes()).unwrap_or(0);
        self.stats.bytes_received = self.stats.bytes_received.saturating_add(wide);
        let event = Event::Message {
            channel,
            sequence,
            payload,
        };
        self.message_event(event, bytes);
        Ok(())
    }

    fn open_incoming(&mut self, id: &[u8]) -> Result<Key, Kind> {
        if self.peer_shutdown && !id.is_empty() {
            return Err(Kind::AfterShutdown);
        }
        self.check_channels()?;
        self.charge_one_more()?;
        let mut channel = Incoming::new(Sequence(0), true, self.peer_transactions());
        channel.opened_at = self.stats.messages_received;
        Ok(self.incoming.insert(ChannelId::from(id), channel))
    }

    /// Open channels and answers owed for others are bounded together.
    fn check_channels(&self) -> Result<(), Kind> {
        let owed = self.transport.as_ref().map_or(0, |it| it.answers.len());
        let used = self.incoming.len().max(owed);
        let limit = self.config.max_channels;
        if used < limit {
            return Ok(());
        }
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Err(Kind::Limit(LimitHit {
            value: wide(used).saturating_add(1),
            limit: wide(limit),
            option: "--max-channels",
        }))
    }

    /// Anything about a channel that is no message.
    fn about(&mut self, now: Instant, id: &[u8], body: &Body<'_>) -> Result<(), Kind> {
        match *body {
            Body::Operation(Operation::Close) | Body::SequenceOperation(Operation::Close, _) => {
                self.peer_closes(now, id)
            }
            Body::Operation(operation) => self.peer_decides(now, id, operation, None),
            Body::SequenceOperation(operation, through) => {
                self.peer_decides(now, id, operation, Some(through))
            }
            Body::Acknowledgement(acknowledgement) => self.acknowledged(id, acknowledgement, None),
            Body::SequenceAcknowledgement(acknowledgement, through) => {
                self.acknowledged(id, acknowledgement, Some(through))
            }
            Body::Message(_) => Ok(()),
        }
    }

    fn peer_closes(&mut self, now: Instant, id: &[u8]) -> Result<(), Kind> {
        let key = match self.incoming.find(id) {
            Some(key) => key,
            // The implicit channel exists before its first message (R-RELINK-V9).
            None if id.is_empty() => self.open_incoming(id)?,
            None => {
                self.check_channels()?;
                if let Some(transport) = &mut self.transport {
                    transport.answers.push_back(Answer::Closed(id.into()));
                }
                return Ok(());
            }
        };
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return Ok(());
        };
        channel.close_came = true;
        if !channel.closing {
            channel.closing = true;
            let channel = id.clone();
            self.event(Event::Closing { channel });
        }
        self.finish_if_drained(now, key);
        Ok(())
    }

    fn peer_decides(
        &mut self,
        now: Instant,
        id: &[u8],
        operation: Operation,
        through: Option<Sequence>,
    ) -> Result<(), Kind> {
        let what = operation.name();
        if !self.peer_transactions() {
            return Err(Kind::TransactionsDisabled { what });
        }
        let out_of_range = |sequence| Kind::OutOfRange { what, sequence };
        let Some(key) = self.incoming.find(id) else {
            if id.is_empty() {
                // The implicit channel exists before its first message: nothing came on it (R-REL-12).
                let unused = Sequence(u32::MAX);
                let judged = Outcomes::new(unused).decide(operation, through, unused);
                return judged.map(drop).map_err(out_of_range);
            }
            return Ok(());
        };
        if operation == Operation::Commit {
            self.charge_outcome()?;
        }
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return Ok(());
        };
        let received = channel.received();
        let Some(outcomes) = &mut channel.outcomes else {
            return Ok(());
        };
        let decided = outcomes
            .decide(operation, through, received)
            .map_err(out_of_range)?;
        if let Some(through) = decided.or(through) {
            channel.decided(through);
        }
        if let Some(through) = decided {
            let channel = id.clone();
            self.event(Event::Decided {
                channel,
                operation,
                through,
            });
            self.finish_if_drained(now, key);
        }
        self.schedule_consumed(now, key);
        Ok(())
    }

    fn acknowledged(
        &mut self,
        id: &[u8],
        acknowledgement: Acknowledgement,
        through: Option<Sequence>,
    ) -> Result<(), Kind> {
        use Acknowledgement::{Closed, Committed, Uncommitted};
        let what = acknowledgement.name();
        let is_outcome = matches!(acknowledgement, Committed | Uncommitted);
        if is_outcome && !self.own_transactions() {
            return Err(Kind::TransactionsDisabled { what });
        }
        let Some(key) = self.outgoing.find(id) else {
            if id.is_empty() {
                // The implicit channel exists before its first message: nothing was sent on it (R-REL-12).
                let mut unused = Outgoing::new(Sequence(0), false, self.own_transactions());
                let judged = judged(&mut unused, acknowledgement, through);
                return judged
                    .map(drop)
                    .map_err(|sequence| Kind::OutOfRange { what, sequence });
            }
            let resuming = self.transport.as_ref().is_some_and(|it| it.peer_resuming);
            return if resuming {
                Err(Kind::UnknownChannel)
            } else {
                Ok(())
            };
        };
        let Some((id, channel)) = self.outgoing.entry_mut(key) else {
            return Ok(());
        };
        let out_of_range = |sequence| Kind::OutOfRange { what, sequence };
        let news = judged(channel, acknowledgement, through).map_err(out_of_range)?;
        if acknowledgement == Closed {
            self.end_channel(key);
            return Ok(());
        }
        if let Some(through) = news {
            let channel = id.clone();
            self.news(&channel, acknowledgement, through);
            self.event(Event::Acknowledged {
                channel,
                acknowledgement,
                through,
            });
        }
        if is_outcome {
            self.plan_close(key);
        } else {
            self.resume_channel(key);
        }
        Ok(())
    }

    fn news(&mut self, channel: &ChannelId, acknowledgement: Acknowledgement, through: Sequence) {
        match acknowledgement {
            Acknowledgement::Consumed => self.note(|| Change::Acknowledged {
                channel: channel.clone(),
                through,
            }),
            Acknowledgement::Committed | Acknowledgement::Uncommitted => {
                self.note(|| Change::Outcome {
                    channel: channel.clone(),
                    through,
                });
            }
            Acknowledgement::Received | Acknowledgement::Closed => {}
        }
    }

    /// What was consumed is told at once, or after `ack_delay`.
    pub(crate) fn schedule_consumed(&mut self, now: Instant, key: Key) {
        let config = &self.config;
        let (Some(transport), Some(channel)) = (&mut self.transport, self.incoming.get_mut(key))
        else {
            return;
        };
        let untold = channel.untold();
        if !transport.works() || !channel.announced || untold == 0 {
            return;
        }
        if config.ack_delay.is_zero() || untold >= config.ack_window.max(1) {
            channel.consumed_owed = true;
            return self.owe(key);
        }
        if channel.due.is_none()
            && let Some(due) = now.checked_add(config.ack_delay)
        {
            channel.due = Some(due);
            transport.due.insert((due, key));
        }
    }
}

/// The last message of an own channel that an acknowledgement names, if that is news.
///
/// # Errors
/// The number that is out of range.
fn judged(
    channel: &mut Outgoing,
    acknowledgement: Acknowledgement,
    through: Option<Sequence>,
) -> Result<Option<Sequence>, Sequence> {
    use Acknowledgement::{Closed, Committed, Consumed, Received, Uncommitted};
    match (acknowledgement, &mut channel.decisions) {
        (Closed, _) if channel.close != Close::Emitted => Err(channel.last()),
        (Closed, _) | (Committed | Uncommitted, None) => Ok(None),
        (Received, _) => channel.acknowledge_received(through),
        (Consumed, _) => channel.acknowledge_consumed(through),
        (Committed | Uncommitted, Some(decisions)) => decisions.outcome(through),
    }
}

/// A message that is shared or large.
fn own(parts: &Parts<'_>, packet: &Bytes) -> Payload {
    if parts.bytes() > COPIED_BYTES {
        payload::sliced(parts, packet)
    } else {
        payload::copied(parts)
    }
}
