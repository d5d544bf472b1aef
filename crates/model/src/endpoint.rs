//! One end of a link: its channels, and the effects of calls, packets, cuts and reconnections.

use crate::between::Between;
use crate::incoming::{Incoming, PeerClose};
use crate::outgoing::{Closing, Outgoing};
use crate::packet::{CHANNELS, Count, Event, Fault, Message, Operation, Outcome, Output, Packet};
use crate::rules::{Rule, Rules};

/// The phase of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is no link.
    None,
    /// It has no transport.
    Detached,
    /// The handshake has agreed on an old link, and the peer's resume has not come (REQ-RELINK-60).
    Resuming,
    /// Messages flow.
    Up,
    /// Both sides have shut down and nothing is left: the link is forgotten.
    Closed,
}

/// One end. The transport takes all packets at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The side: 0 the connector, 1 the listener.
    pub side: usize,
    /// The phase of its link.
    pub phase: Phase,
    /// Own channels, by id.
    pub outgoing: [Option<Outgoing>; CHANNELS],
    /// The peer's channels, by id.
    pub incoming: [Option<Incoming>; CHANNELS],
    /// How far the own shutdown is.
    pub shutdown: Closing,
    /// Whether the peer has shut down.
    pub peer_shutdown: bool,
    /// Packets that go out after decisions.
    pub between: Between,
}

impl Endpoint {
    /// An end without a link.
    pub fn new(side: usize) -> Self {
        Self {
            side,
            phase: Phase::None,
            outgoing: Default::default(),
            incoming: Default::default(),
            shutdown: Closing::No,
            peer_shutdown: false,
            between: Between::default(),
        }
    }

    /// Whether it has a link, with or without a transport.
    pub fn is_linked(&self) -> bool {
        self.is_attached() || self.phase == Phase::Detached
    }

    /// Whether its link has a transport.
    pub fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::Resuming | Phase::Up)
    }

    /// Whether both sides have closed its link.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// The handshake has agreed on a new link (REQ-RELINK-22).
    pub fn attach_new(&mut self, rules: Rules, out: &mut Output) {
        let kept = self.outgoing.clone();
        if self.is_linked() {
            out.events.push(self.given_up(rules));
        }
        *self = Self {
            phase: Phase::Up,
            ..Self::new(self.side)
        };
        if !rules.keep(Rule::DiscardOldLink) {
            self.outgoing = kept;
            for (channel, outgoing) in self.outgoing.iter_mut().enumerate() {
                if let Some(outgoing) = outgoing {
                    outgoing.resume(channel, rules, out);
                }
            }
        }
    }

    /// Ends a link that the peer does not know any more. If this end has shut down and nothing is left, it is closed,
    /// because only the peer's last packet was lost. Otherwise it is lost.
    fn given_up(&self, rules: Rules) -> Event {
        let transactional = rules.transactional[1 - self.side];
        let drained = self
            .incoming
            .iter()
            .flatten()
            .all(|incoming| incoming.is_drained(transactional));
        let done = self.shutdown == Closing::Written
            && drained
            && self.outgoing.iter().all(Option::is_none);
        if done {
            Event::LinkClosed
        } else {
            Event::LinkLost
        }
    }

    /// The handshake has agreed on the old link (R-RELINK-V2).
    pub fn attach_resumed(&mut self, rules: Rules, out: &mut Output) {
        self.phase = Phase::Resuming;
        if self.shutdown == Closing::Written && rules.keep(Rule::RepeatShutdown) {
            out.packets.push(Packet::Shutdown);
        }
        for (channel, incoming) in self.incoming.iter_mut().enumerate() {
            if let Some(incoming) = incoming {
                incoming.announce(channel, rules, out);
            }
        }
        out.packets.push(Packet::Resume);
        for (channel, outgoing) in self.outgoing.iter_mut().enumerate() {
            if let Some(outgoing) = outgoing.as_mut().filter(|outgoing| !outgoing.gated) {
                outgoing.write(channel, rules, out);
            }
        }
        self.shut_down_if_drained(rules, out);
    }

    /// The application opens no more channels; the peer is told when all are closed (R-RELINK-V17).
    pub fn shut_down(&mut self, rules: Rules, out: &mut Output) {
        self.shutdown = Closing::Called;
        self.shut_down_if_drained(rules, out);
    }

    fn shut_down_if_drained(&mut self, rules: Rules, out: &mut Output) {
        let drained = self.outgoing.iter().all(Option::is_none) || !rules.keep(Rule::ShutdownWaits);
        if self.is_attached() && self.shutdown == Closing::Called && drained {
            out.packets.push(Packet::Shutdown);
            self.shutdown = Closing::Written;
        }
        self.close_link_if_done(out);
    }

    fn close_link_if_done(&mut self, out: &mut Output) {
        let drained = self.incoming.iter().all(Option::is_none);
        let both = self.shutdown == Closing::Written && self.peer_shutdown;
        if self.is_attached() && both && drained {
            out.events.push(Event::LinkClosed);
            *self = Self {
                phase: Phase::Closed,
                ..Self::new(self.side)
            };
        }
    }

    /// The transport is gone; the link stays.
    pub fn detach(&mut self, rules: Rules) {
        if !self.is_attached() {
            return;
        }
        self.phase = Phase::Detached;
        self.cut_between();
        self.outgoing
            .iter_mut()
            .flatten()
            .for_each(|outgoing| outgoing.cut(rules));
        self.incoming
            .iter_mut()
            .flatten()
            .for_each(|incoming| incoming.cut(rules));
    }

    /// The application sends `message`, the next one of a channel that is not closing.
    pub fn send(&mut self, channel: usize, message: Message, rules: Rules, out: &mut Output) {
        self.queue(channel, message, rules);
        self.write(channel, rules, out);
    }

    /// The application sends one message to both channels. On a channel that may not write yet, it goes out later and
    /// alone (R-RELINK-V3).
    pub fn send_both(&mut self, messages: [Message; CHANNELS], rules: Rules, out: &mut Output) {
        for (channel, message) in messages.into_iter().enumerate() {
            self.queue(channel, message, rules);
        }
        if (0..CHANNELS).all(|channel| self.writes(channel)) {
            self.outgoing
                .iter_mut()
                .flatten()
                .for_each(|outgoing| outgoing.written = outgoing.sent);
            out.packets.push(Packet::Multicast(messages));
            return;
        }
        (0..CHANNELS).for_each(|channel| self.write(channel, rules, out));
    }

    fn queue(&mut self, channel: usize, message: Message, rules: Rules) {
        let gated = !rules.keep(Rule::NewChannelsAtOnce) && self.phase != Phase::Up;
        let outgoing = self.outgoing[channel].get_or_insert_with(|| Outgoing {
            gated,
            ..Outgoing::new(message, rules.transactional[self.side])
        });
        outgoing.sent += 1;
    }

    fn writes(&self, channel: usize) -> bool {
        self.is_attached()
            && self.outgoing[channel]
                .as_ref()
                .is_some_and(|outgoing| !outgoing.gated)
    }

    fn write(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        if self.writes(channel) {
            self.outgoing[channel]
                .iter_mut()
                .for_each(|outgoing| outgoing.write(channel, rules, out));
        }
    }

    /// The application commits or rolls back the undecided messages up to `through`.
    pub fn decide(
        &mut self,
        channel: usize,
        operation: Operation,
        through: Count,
        rules: Rules,
        out: &mut Output,
    ) {
        let now = self.phase == Phase::Up;
        if let Some(outgoing) = &mut self.outgoing[channel] {
            outgoing.decide(channel, operation, through, now, rules, out);
        }
        if now {
            self.write(channel, rules, out);
        }
    }

    /// The application closes a channel.
    pub fn close(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        if let Some(outgoing) = &mut self.outgoing[channel] {
            outgoing.closing = Closing::Called;
        }
        self.write(channel, rules, out);
    }

    /// The application has consumed the messages up to `through`.
    pub fn consume(&mut self, channel: usize, through: Count, rules: Rules, out: &mut Output) {
        let now = self.is_attached() && rules.keep(Rule::AcknowledgeConsumed);
        let Some(incoming) = &mut self.incoming[channel] else {
            return;
        };
        incoming.consume(channel, through, now, out);
        self.close_if_done(channel, rules, out);
    }

    /// The application answers the commits up to `through`.
    pub fn answer(
        &mut self,
        channel: usize,
        outcome: Outcome,
        through: Count,
        rules: Rules,
        out: &mut Output,
    ) {
        let Some(incoming) = &mut self.incoming[channel] else {
            return;
        };
        let packet = incoming.answer(channel, outcome, through, rules);
        if self.is_attached() {
            out.packets.push(packet);
        }
        self.close_if_done(channel, rules, out);
    }

    fn close_if_done(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        let transactional = rules.transactional[1 - self.side];
        let done = self.incoming[channel]
            .as_ref()
            .is_some_and(|incoming| incoming.is_done(transactional, rules));
        if done && self.is_attached() {
            out.packets.push(Packet::Closed(channel));
            if rules.keep(Rule::ForgetClosed) {
                self.incoming[channel] = None;
                self.close_link_if_done(out);
            } else if let Some(incoming) = &mut self.incoming[channel] {
                incoming.close = PeerClose::No;
            }
        }
    }

    /// A packet arrives.
    ///
    /// # Errors
    /// The errors of the protocol.
    pub fn handle(&mut self, packet: Packet, rules: Rules, out: &mut Output) -> Result<(), Fault> {
        match packet {
            Packet::Resume => self.resumed(rules, out),
            Packet::Message { channel, message } => self.message(channel, message, rules, out),
            Packet::Multicast(messages) => messages
                .into_iter()
                .enumerate()
                .try_for_each(|(channel, message)| self.message(channel, message, rules, out)),
            Packet::Received(channel, _) | Packet::Consumed(channel, _) => {
                match &mut self.outgoing[channel] {
                    Some(outgoing) => {
                        outgoing.acknowledged(channel, packet, rules, out)?;
                        self.write(channel, rules, out);
                        Ok(())
                    }
                    None => self.unknown(),
                }
            }
            Packet::Outcome(channel, outcome, through) => match &mut self.outgoing[channel] {
                Some(outgoing) => {
                    outgoing.answered(channel, outcome, through, rules, out)?;
                    self.write(channel, rules, out);
                    Ok(())
                }
                None => self.unknown(),
            },
            Packet::Closed(channel) => self.closed(channel, rules, out),
            Packet::Shutdown => {
                if !std::mem::replace(&mut self.peer_shutdown, true) {
                    out.events.push(Event::PeerShutdown);
                }
                self.close_link_if_done(out);
                Ok(())
            }
            Packet::Close(channel) => {
                self.close_arrived(channel, rules, out);
                Ok(())
            }
            Packet::Decision(channel, operation, through) => {
                let Some(incoming) = &mut self.incoming[channel] else {
                    return Ok(());
                };
                incoming.decided(channel, operation, through, rules, out)?;
                self.close_if_done(channel, rules, out);
                Ok(())
            }
        }
    }

    /// An acknowledgement for an unknown channel arrives (R-REL-33).
    fn unknown(&self) -> Result<(), Fault> {
        if self.phase == Phase::Resuming {
            Err(Fault::UnknownChannel)
        } else {
            Ok(())
        }
    }

    fn message(
        &mut self,
        channel: usize,
        message: Message,
        rules: Rules,
        out: &mut Output,
    ) -> Result<(), Fault> {
        if self.peer_shutdown && self.incoming[channel].is_none() {
            return Err(Fault::AfterShutdown);
        }
        self.incoming[channel]
            .get_or_insert_with(Incoming::new)
            .message(channel, message, rules, out)
    }

    fn close_arrived(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        let Some(incoming) = &mut self.incoming[channel] else {
            out.packets.push(Packet::Closed(channel));
            return;
        };
        if incoming.close == PeerClose::No {
            out.events.push(Event::Closing(channel));
        }
        incoming.close = PeerClose::Here;
        self.close_if_done(channel, rules, out);
    }

    fn closed(&mut self, channel: usize, rules: Rules, out: &mut Output) -> Result<(), Fault> {
        let Some(outgoing) = self.outgoing[channel].take() else {
            return self.unknown();
        };
        if outgoing.closing != Closing::Written {
            return Err(Fault::OutOfRange);
        }
        if !outgoing.is_settled() {
            return Err(Fault::ClosedEarly);
        }
        out.events
            .push(Event::Closed(channel, outgoing.unacknowledged()));
        self.shut_down_if_drained(rules, out);
        Ok(())
    }

    /// The peer's resume arrives (R-REL-18, R-RELINK-V11).
    fn resumed(&mut self, rules: Rules, out: &mut Output) -> Result<(), Fault> {
        if self.phase != Phase::Resuming {
            return Ok(());
        }
        self.phase = Phase::Up;
        for (channel, slot) in self.outgoing.iter_mut().enumerate() {
            let Some(outgoing) = slot.as_ref().filter(|outgoing| outgoing.gated) else {
                continue;
            };
            if outgoing.closing == Closing::Written && rules.keep(Rule::UnannouncedIsClosed) {
                out.events
                    .push(Event::Closed(channel, outgoing.unacknowledged()));
                *slot = None;
            } else if outgoing.received > 0 {
                return Err(Fault::ResumeInconsistent);
            }
        }
        out.events.push(Event::Resumed);
        for (channel, outgoing) in self.outgoing.iter_mut().enumerate() {
            match outgoing {
                Some(outgoing) if outgoing.gated => outgoing.resume(channel, rules, out),
                Some(outgoing) => outgoing.write(channel, rules, out),
                None => {}
            }
        }
        for (channel, outgoing) in self.outgoing.iter_mut().enumerate() {
            if let Some(outgoing) = outgoing {
                outgoing.repeat_decisions(channel, rules, out);
            }
        }
        self.shut_down_if_drained(rules, out);
        Ok(())
    }
}
