//! Two endpoints, two pipes that a cut empties, and the applications at both ends.
//!
//! A transport takes a packet at once and delivers it later or, if it is cut first, never. This covers a cut that
//! loses any part of the packets in flight: the others were delivered before it. A reconnection has two steps,
//! because the listener may go on before the connector. A cut is possible between them too.

use crate::endpoint::{Endpoint, Phase};
use crate::outgoing::Closing;
use crate::packet::{CHANNELS, Count, Event, Fault, Message, Operation, Outcome, Output, Packet};
use crate::rules::Rules;
use crate::witness::Witness;

/// The use of one channel.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// The sending side: 0 the connector, 1 the listener.
    pub side: usize,
    /// Its id.
    pub channel: usize,
    /// Messages over all its lives.
    pub messages: Message,
    /// Messages (bits) after which the channel is closed.
    pub closed_after: u8,
    /// Messages (bits) that are committed; the others are rolled back. `None`: both decisions are explored.
    pub committed: Option<u8>,
    /// Messages (bits) that the receiver answers `uncommitted`.
    pub failing: u8,
}

impl Traffic {
    /// Traffic of so many messages on a channel that is not closed.
    pub fn new(side: usize, channel: usize, messages: Message) -> Self {
        Self {
            side,
            channel,
            messages,
            closed_after: 0,
            committed: None,
            failing: 0,
        }
    }

    fn closes_after(&self, next: Message) -> bool {
        next > 0 && self.closed_after >> (next - 1) & 1 == 1
    }
}

/// The plan of an exploration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The limits of the endpoints.
    pub rules: Rules,
    /// The calls of the applications.
    pub traffic: Vec<Traffic>,
    /// Cuts of the transport, at most.
    pub cuts: u8,
    /// Restarts of the listener without its state, at most.
    pub restarts: u8,
    /// Whether decisions, outcomes and acknowledgements of consumed messages may cover several messages at once.
    pub ranges: bool,
    /// Whether a message may go to both channels at once, if both have one left.
    pub multicast: bool,
    /// Whether both applications shut the link down once they have sent all messages; every channel is closed.
    pub shutdown: bool,
}

/// The state of both ends and of the pipes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Connector and listener.
    pub ends: [Endpoint; 2],
    /// Packets in flight, by their sender.
    pub pipes: [Vec<Packet>; 2],
    /// Whether the listener knows the connector's link.
    pub same_link: bool,
    /// Cuts left.
    pub cuts: u8,
    /// Restarts left.
    pub restarts: u8,
    /// The events of the applications, by sender and channel.
    pub witnesses: [[Witness; CHANNELS]; 2],
    /// The first fault. No step follows it.
    pub fault: Option<Fault>,
}

/// The possible next steps. `side` is the acting side; `usize`s after it are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next message.
    Send(usize, usize),
    /// One message for both channels.
    SendBoth(usize),
    /// Commit or roll back through the count.
    Decide(usize, usize, Operation, Count),
    /// Close the channel.
    Close(usize, usize),
    /// Consume through the count.
    Consume(usize, usize, Count),
    /// Answer the commits through the count.
    Answer(usize, usize, Outcome, Count),
    /// Open no more channels.
    ShutDown(usize),
    /// The side takes a packet off the transport.
    Deliver(usize),
    /// The side sees the transport's orderly end: the peer has closed the link.
    End(usize),
    /// The listener accepts a connection and agrees on a link.
    AttachListener,
    /// The connector hears of the agreement.
    AttachConnector,
    /// The transport is lost with the packets in flight.
    Cut,
    /// The listener starts again, without its links.
    Restart,
}

impl Plan {
    /// Applies `action` to `state`; returns the packets and events of each side.
    pub fn step(&self, state: &mut State, action: Action) -> [Output; 2] {
        let mut out = [Output::default(), Output::default()];
        let fault = self.act(state, action, &mut out).err();
        if self.rules.decide_between {
            for (side, output) in out.iter_mut().enumerate() {
                state.ends[side].put_between(output);
            }
        }
        for side in 0..2 {
            if state.ends[side].is_closed() {
                state.pipes[1 - side].clear();
            }
        }
        for (side, output) in out.iter().enumerate() {
            if !state.ends[1 - side].is_closed() {
                state.pipes[side].extend(&output.packets);
            }
            let ordinary = state.ends[side].phase != Phase::Resuming
                && !output.events.contains(&Event::Resumed);
            let seen = output
                .events
                .iter()
                .try_for_each(|event| self.observe(state, side, *event, ordinary));
            state.fault = state.fault.or(seen.err());
        }
        state.fault = state.fault.or(fault);
        out
    }

    fn act(&self, state: &mut State, action: Action, out: &mut [Output; 2]) -> Result<(), Fault> {
        let rules = self.rules;
        let witnesses = &mut state.witnesses;
        match action {
            Action::Send(side, channel) => {
                let witness = &mut witnesses[side][channel];
                state.ends[side].send(channel, witness.next, rules, &mut out[side]);
                witness.next += 1;
            }
            Action::SendBoth(side) => {
                let messages = witnesses[side].map(|witness| witness.next);
                state.ends[side].send_both(messages, rules, &mut out[side]);
                witnesses[side]
                    .iter_mut()
                    .for_each(|witness| witness.next += 1);
            }
            Action::Decide(side, channel, operation, through) => {
                witnesses[side][channel].decides(operation, through);
                state.ends[side].decide(channel, operation, through, rules, &mut out[side]);
            }
            Action::Close(side, channel) => state.ends[side].close(channel, rules, &mut out[side]),
            Action::Consume(side, channel, through) => {
                witnesses[1 - side][channel].consumes(through);
                state.ends[side].consume(channel, through, rules, &mut out[side]);
            }
            Action::Answer(side, channel, outcome, through) => {
                witnesses[1 - side][channel].answers(outcome, through);
                state.ends[side].answer(channel, outcome, through, rules, &mut out[side]);
            }
            Action::ShutDown(side) => state.ends[side].shut_down(rules, &mut out[side]),
            Action::End(side) => state.ends[side].detach(rules),
            Action::Deliver(side) => {
                let packet = state.pipes[1 - side].remove(0);
                state.ends[side].handle(packet, rules, &mut out[side])?;
            }
            Action::AttachListener if state.same_link => {
                state.ends[1].attach_resumed(rules, &mut out[1]);
            }
            Action::AttachListener => state.ends[1].attach_new(rules, &mut out[1]),
            Action::AttachConnector if state.same_link => {
                state.ends[0].attach_resumed(rules, &mut out[0]);
            }
            Action::AttachConnector => {
                state.ends[0].attach_new(rules, &mut out[0]);
                state.same_link = true;
            }
            Action::Cut => {
                state.cuts -= 1;
                self.lose_transport(state);
            }
            Action::Restart => {
                state.restarts -= 1;
                self.lose_transport(state);
                state.ends[1] = Endpoint::new(1);
                state.same_link = false;
                state.witnesses[1].iter_mut().for_each(Witness::over);
            }
        }
        Ok(())
    }

    fn lose_transport(&self, state: &mut State) {
        state.pipes.iter_mut().for_each(Vec::clear);
        state.ends.iter_mut().for_each(|end| end.detach(self.rules));
    }

    fn observe(
        &self,
        state: &mut State,
        side: usize,
        event: Event,
        ordinary: bool,
    ) -> Result<(), Fault> {
        let [own, theirs] = if side == 0 { [0, 1] } else { [1, 0] };
        let own = &mut state.witnesses[own];
        match event {
            Event::LinkLost => own.iter_mut().for_each(Witness::over),
            Event::LinkClosed => {
                let both = state.ends[side].is_closed();
                let mut seen = state
                    .witnesses
                    .iter()
                    .enumerate()
                    .filter(|(of, _)| both || *of == side);
                if !seen.all(|(_, it)| it.iter().all(Witness::is_over)) {
                    return Err(Fault::ClosedEarly);
                }
                state.same_link &= side == 0 || !both;
            }
            Event::PeerShutdown | Event::Resumed | Event::Closing(_) | Event::Received(..) => {}
            Event::Consumed(channel, through) => own[channel].acknowledged(through)?,
            Event::Answered(channel, outcome, through) => own[channel].told(outcome, through)?,
            Event::Closed(channel, unacknowledged) => {
                let settled = own[channel].is_settled(self.rules.transactional[side]);
                own[channel].closed(unacknowledged)?;
                if (ordinary || self.rules.close_when_consumed) && !settled {
                    return Err(Fault::ClosedEarly);
                }
            }
            Event::Message(channel, count, message) => {
                state.witnesses[theirs][channel].delivered(count, message)?;
            }
            Event::Decided(channel, operation, count) => {
                state.witnesses[theirs][channel].heard(operation, count)?;
            }
        }
        Ok(())
    }

    /// Returns the steps that make progress, without cuts and restarts.
    pub fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        for side in 0..2 {
            if state.ends[side].is_attached() && !state.pipes[1 - side].is_empty() {
                actions.push(Action::Deliver(side));
            }
        }
        self.shutting_down(state, actions);
        if state.ends[0].is_closed() {
            // The message is not repeated.
        } else if !state.ends[1].is_attached() {
            actions.push(Action::AttachListener);
        } else if !state.ends[0].is_attached() {
            actions.push(Action::AttachConnector);
        }
        for traffic in &self.traffic {
            self.sender(state, traffic, actions);
            self.receiver(state, traffic, actions);
        }
        if self.multicast {
            let sends =
                |side| (0..CHANNELS).all(|channel| actions.contains(&Action::Send(side, channel)));
            let both: Vec<_> = (0..2)
                .filter(|&side| sends(side))
                .map(Action::SendBoth)
                .collect();
            actions.extend(both);
        }
    }

    /// Returns the cuts and restarts that are possible.
    pub fn disturb(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        if state.cuts > 0 && state.ends[1].is_attached() {
            actions.push(Action::Cut);
        }
        if state.restarts > 0 {
            actions.push(Action::Restart);
        }
    }

    fn shutting_down(&self, state: &State, actions: &mut Vec<Action>) {
        for side in 0..2 {
            let end = &state.ends[side];
            let mut own = self.traffic.iter().filter(|traffic| traffic.side == side);
            let sent =
                own.all(|traffic| state.witnesses[side][traffic.channel].next == traffic.messages);
            if self.shutdown && end.is_linked() && end.shutdown == Closing::No && sent {
                actions.push(Action::ShutDown(side));
            }
            let over = state.ends[1 - side].is_closed() && state.pipes[1 - side].is_empty();
            if over && end.is_attached() {
                actions.push(Action::End(side));
            }
        }
    }

    fn sender(&self, state: &State, traffic: &Traffic, actions: &mut Vec<Action>) {
        let Traffic { side, channel, .. } = *traffic;
        let witness = &state.witnesses[side][channel];
        if !state.ends[side].is_linked() {
            return;
        }
        let outgoing = state.ends[side].outgoing[channel].as_ref();
        let room = outgoing.is_none_or(|outgoing| {
            let held = !self.rules.keep(crate::Rule::StopAtWindow);
            held || outgoing.unacknowledged() < self.rules.window
        });
        let due = outgoing.is_some() && traffic.closes_after(witness.next);
        if due && outgoing.is_some_and(|outgoing| outgoing.closing == Closing::No) {
            actions.push(Action::Close(side, channel));
        }
        if witness.next < traffic.messages && room && !due {
            actions.push(Action::Send(side, channel));
        }
        if let Some(outgoing) = outgoing.filter(|_| self.rules.transactional[side]) {
            let (decided, sent) = (outgoing.decisions.decided, outgoing.sent);
            self.decisions(traffic, outgoing.first, decided..sent, actions);
        }
    }

    fn decisions(
        &self,
        traffic: &Traffic,
        first: Message,
        open: std::ops::Range<Count>,
        actions: &mut Vec<Action>,
    ) {
        let script = |index: Count| traffic.committed.map(|set| set >> (first + index) & 1 == 1);
        let run = open
            .clone()
            .take_while(|&index| script(index) == script(open.start))
            .count();
        let longest = if self.ranges { run } else { run.min(1) };
        for operation in [Operation::Commit, Operation::Rollback] {
            let scripted = script(open.start);
            if scripted.is_some_and(|commit| commit != (operation == Operation::Commit)) {
                continue;
            }
            for (_, index) in (0..longest).zip(open.clone()) {
                actions.push(Action::Decide(
                    traffic.side,
                    traffic.channel,
                    operation,
                    index + 1,
                ));
            }
        }
    }

    fn receiver(&self, state: &State, traffic: &Traffic, actions: &mut Vec<Action>) {
        let (side, channel) = (1 - traffic.side, traffic.channel);
        let end = &state.ends[side];
        let Some(incoming) = end.incoming[channel].as_ref().filter(|_| end.is_linked()) else {
            return;
        };
        let first = if self.ranges {
            incoming.consumed + 1
        } else {
            incoming.received.min(incoming.consumed + 1)
        };
        let last = if self.ranges {
            incoming.received
        } else {
            first
        };
        actions.extend(
            (first..=last)
                .filter(|&through| through > incoming.consumed)
                .map(|through| Action::Consume(side, channel, through)),
        );
        let Some(next) = incoming.decisions.next_commit() else {
            return;
        };
        let fails = |through: Count| {
            let message = state.witnesses[traffic.side][channel].message(through);
            traffic.failing >> message & 1 == 1
        };
        let outcome = |failed| {
            if failed {
                Outcome::Uncommitted
            } else {
                Outcome::Committed
            }
        };
        actions.push(Action::Answer(side, channel, outcome(fails(next)), next));
        if let Some(last) = incoming
            .decisions
            .last_commit()
            .filter(|&last| self.ranges && last > next)
        {
            actions.push(Action::Answer(side, channel, outcome(fails(last)), last));
        }
    }

    /// Whether the plan is done, and no answer is awaited.
    pub fn is_finished(&self, state: &State) -> bool {
        let [connector, listener] = &state.ends;
        let still = if self.shutdown {
            connector.is_closed() && !listener.is_attached()
        } else {
            state.pipes.iter().all(Vec::is_empty)
                && connector.is_attached()
                && listener.is_attached()
        };
        still
            && self.traffic.iter().all(|traffic| {
                let witness = &state.witnesses[traffic.side][traffic.channel];
                let open = witness.first < witness.next;
                witness.next == traffic.messages
                    && witness.is_settled(self.rules.transactional[traffic.side])
                    && !(open && traffic.closes_after(witness.next))
            })
    }
}
