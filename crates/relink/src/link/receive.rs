//! The effects of the peer's packets: each takes effect, channel by channel, before the next one is decoded.
//!
//! Its rules: REQ-RELINK-35, REQ-RELINK-58, R-REL-9, R-REL-10, R-REL-23, R-REL-24, R-RELINK-V6, R-RELINK-V7,
//! R-RELINK-V9, R-RELINK-V10, R-RELINK-V20.

use std::time::Instant;

use ackline_core::{EVENTS_PER_CALL, LimitHit, Need, ProtocolError, SendQueue, Sequence};
use bytes::{Buf, Bytes, BytesMut};

use super::channels::Key;
use super::incoming::Incoming;
use super::incoming::life::{Input, Life};
use super::journal::Effect;
use super::outgoing::Outgoing;
use super::reader::Reader;
use super::transactions::Outcomes;
use super::transport::Answer;
use super::transport::split::Pending;
use super::{Change, Event, Link};
use crate::frame::{Acknowledgement, Body, Decoded, Operation, Packet, Parts, Targets};
use crate::payload::COPIED_PARTS;
use crate::{COPIED_BYTES, ChannelId, Kind, Payload, payload};

/// The result of one step on the input.
enum Taken {
    /// A packet was taken, or a step of one, for so many channels.
    Some(usize),
    /// At least so many bytes are needed.
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
        transport.check()?;
        transport.timing.input(now, input.len());
        transport.split.begin_step();
        let need = self.take_packets(now, input);
        if matches!(need, Ok(Need::Input { .. }) | Err(_)) {
            self.reader.let_go();
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
                // Input after the end does not count.
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            // The step comes before the room: a caller that takes events at once has to ask for it too.
            let transport = self.transport.as_ref();
            if transport.is_some_and(|transport| transport.split.lacks_step()) {
                return Ok(Need::Again);
            }
            if self.events.is_full(&self.config) {
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

    /// Encodes the output that earlier packets of this input have caused: it still leaves before the transport ends.
    fn stage_answers(&mut self, now: Instant) {
        let mut staged = SendQueue::new();
        self.put_output(now, &mut staged);
        if let Some(transport) = &mut self.transport {
            transport.staged = staged;
        }
    }

    /// Keeps the transport's first error and returns it; the link goes on.
    pub(crate) fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        match &mut self.transport {
            Some(transport) => transport.fail(kind),
            None => ProtocolError { kind, offset: 0 },
        }
    }

    pub(crate) fn input_ended(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        let Some(transport) = &mut self.transport else {
            return Ok(());
        };
        transport.check()?;
        transport.end();
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
            .is_some_and(|it| it.split.is_pending())
        {
            return self.take_pending(now, budget).map(Taken::Some);
        }
        let (packet, len) = match self.reader.decode(&self.config.limits, input)? {
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
                        let count = input.len().checked_div(len).unwrap_or(1);
                        self.message(now, id, |reader| reader.copy(&parts, count))?;
                    }
                    _ => self.about(now, id, &body)?,
                }
            }
            Packet::Nop => self.hinted(input.get(..len).unwrap_or_default()),
            general => self.general(now, &general)?,
        }
        input.advance(len);
        self.taken(len);
        Ok(Taken::Some(1))
    }

    fn split_off(&mut self, input: &mut BytesMut, len: usize, parts: usize) {
        if let Some(transport) = &mut self.transport {
            let packet = input.split_to(len).freeze();
            transport.split.set(Pending::new(packet, parts));
        }
    }

    fn set_partial(&mut self, partial: bool) {
        if let Some(transport) = &mut self.transport {
            transport.timing.partial = partial;
        }
    }

    fn taken(&mut self, len: usize) {
        if let Some(transport) = &mut self.transport {
            transport.taken(len);
        }
    }

    /// Takes up to `budget` channels of the packet that was split off.
    fn take_pending(&mut self, now: Instant, budget: usize) -> Result<usize, Kind> {
        let Some(mut pending) = self.transport.as_mut().and_then(|it| it.split.take()) else {
            return Ok(0);
        };
        let packet = pending.packet.clone();
        let Decoded::Whole {
            packet: Packet::Channel { targets, body },
            ..
        } = self.reader.decode(&self.config.limits, &packet)?
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
            if (work > 0 && self.events.is_full(&self.config)) || !self.pays(pending.cost()) {
                break;
            }
            match body {
                Body::Message(parts) => {
                    let payload = &mut pending.payload;
                    let payload = payload.get_or_insert_with(|| own(&parts, &packet));
                    self.message(now, id, |_| payload.clone())?;
                }
                _ => self.about(now, id, &body)?,
            }
            pending.done = pending.done.saturating_add(1);
            work = work.saturating_add(1);
        }
        if pending.done >= targets.count() {
            self.taken(packet.len());
        } else if let Some(transport) = &mut self.transport {
            transport.split.set(pending);
        }
        Ok(work)
    }

    /// Takes the cost of a delivery out of the call's allowance; returns false if it is not there.
    fn pays(&mut self, cost: usize) -> bool {
        let transport = self.transport.as_mut();
        transport.is_some_and(|transport| transport.split.pay(cost))
    }

    fn hinted(&mut self, nop: &[u8]) {
        if let Some(hint) = self.reader.hint(nop) {
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
                if let Some(ping) = transport.pings.answered() {
                    self.forget_outcomes(ping.position);
                    let round_trip = now.saturating_duration_since(ping.sent);
                    self.event(Event::Pong { round_trip });
                }
            }
            Packet::Resume => return self.peer_resumed(),
            Packet::Shutdown => {
                if self.end.peer_shuts_down() {
                    self.event(Event::PeerShutdown);
                }
                self.close_if_done();
            }
            Packet::Nop | Packet::Channel { .. } => {}
        }
        Ok(())
    }

    /// Forgets outcomes, because the peer has answered a ping: it knows every outcome that was emitted before.
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
        payload: impl FnOnce(&mut Reader) -> Payload,
    ) -> Result<(), Kind> {
        let key = match self.incoming.find(id) {
            Some(key) => key,
            None => self.open_incoming(id)?,
        };
        let window = self.config.receive_window;
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return Ok(());
        };
        // Before the cut, a close may have followed a message that is skipped now.
        if channel.progress.skip() {
            self.totals.skipped();
            self.schedule_consumed(now, key);
            return Ok(());
        }
        if channel.life() != Life::Open {
            return Err(Kind::ChannelClosing);
        }
        if channel.progress.unconsumed() >= window {
            return Err(Kind::Limit(LimitHit {
                value: u64::from(window).saturating_add(1),
                limit: window.into(),
                option: "--receive-window",
            }));
        }
        let payload = payload(&mut self.reader);
        let bytes = payload.held_bytes();
        let sequence = channel.deliver(bytes);
        let channel = id.clone();
        self.totals.delivered(&payload, bytes);
        let event = Event::Message {
            channel,
            sequence,
            payload,
        };
        self.events.push(event, bytes);
        Ok(())
    }

    fn open_incoming(&mut self, id: &[u8]) -> Result<Key, Kind> {
        if self.end.is_peers() && !id.is_empty() {
            return Err(Kind::AfterShutdown);
        }
        self.check_channels()?;
        self.charge_one_more()?;
        let delivered = self.totals.stats().messages_received;
        let channel = Incoming::new(Sequence(0), self.peer_transactions(), delivered);
        Ok(self.incoming.insert(ChannelId::from(id), channel))
    }

    /// Checks that one more channel may open, or one more answer be owed for a channel that is not open.
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

    /// Handles a packet about a channel, other than a message.
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
        if self.advance(key, Input::Close) == Some(Life::Open) {
            let channel = ChannelId::from(id);
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
                // The implicit channel exists before its first message, and no message has arrived on it (R-REL-12).
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
        let received = channel.progress.received();
        let Some(outcomes) = &mut channel.outcomes else {
            return Ok(());
        };
        let decided = outcomes
            .decide(operation, through, received)
            .map_err(out_of_range)?;
        if let Some(through) = decided.or(through) {
            channel.progress.decided(through);
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
                // The implicit channel exists before its first message, and no message was sent on it (R-REL-12).
                let mut unused = Outgoing::new(Sequence(0), self.own_transactions());
                let judged = judged(&mut unused, acknowledgement, through);
                return judged
                    .map(drop)
                    .map_err(|sequence| Kind::OutOfRange { what, sequence });
            }
            let transport = self.transport.as_ref();
            return if transport.is_some_and(|it| it.resuming.waits_for_peer()) {
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
}

/// Applies an acknowledgement to an own channel. Returns the last message that it names, if it is news.
///
/// # Errors
/// The number, if it is out of range.
fn judged(
    channel: &mut Outgoing,
    acknowledgement: Acknowledgement,
    through: Option<Sequence>,
) -> Result<Option<Sequence>, Sequence> {
    use Acknowledgement::{Closed, Committed, Consumed, Received, Uncommitted};
    match acknowledgement {
        Closed if channel.close().was_emitted() => Ok(None),
        Closed => Err(channel.last()),
        Received => channel.acknowledge_received(through),
        Consumed => channel.acknowledge_consumed(through),
        Committed | Uncommitted => match &mut channel.decisions {
            Some(decisions) => decisions.outcome(through),
            None => Ok(None),
        },
    }
}

/// Copies a message, or shares its bytes with the packet if it is large.
fn own(parts: &Parts<'_>, packet: &Bytes) -> Payload {
    if parts.bytes() > COPIED_BYTES {
        payload::sliced(parts, packet)
    } else {
        payload::copied(parts)
    }
}
