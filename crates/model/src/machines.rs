//! Two real links between two pipes, driven by the model's actions and translated into its alphabet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{Connection, Need, SendQueue, Sequence, UsageError};
use ackline_relink::frame::{self, Acknowledgement, Body, Context, Decoded, Parameters, Role};
use ackline_relink::{Attach, ChannelId, Limits, Link, LinkConfig, LinkKey, LinkState, Payload};
use bytes::{Buf, Bytes, BytesMut};

use crate::packet::{CHANNELS, Count, Event, Message, Operation, Outcome, Output, Packet};
use crate::world::{Action, Plan, State};

/// Two machines and the bytes in flight between them.
#[derive(Debug)]
pub struct Machines {
    configs: [LinkConfig; 2],
    links: [Option<Link>; 2],
    attached: [bool; 2],
    pipes: [VecDeque<Bytes>; 2],
    same_link: bool,
    next_link_id: u64,
    now: Instant,
}

impl Machines {
    /// The machines in the plan's first state, right after the handshake of a new link.
    pub fn new(plan: &Plan) -> Self {
        let configs = [Role::Connector, Role::Listener].map(|role| config(plan, role));
        let mut machines = Self {
            configs,
            links: [None, None],
            attached: [false; 2],
            pipes: Default::default(),
            same_link: false,
            next_link_id: 1,
            now: Instant::now(),
        };
        machines.attach_new(1);
        machines.attach_new(0);
        machines.same_link = true;
        machines
    }

    /// Does an action. `state` is the model's state before it, which tells the next message.
    ///
    /// # Errors
    /// The answers of a machine that differ from the model's.
    pub fn act(&mut self, state: &State, action: Action) -> Result<[Output; 2], String> {
        self.now += Duration::from_millis(1);
        let mut given_up = [None, None];
        match action {
            Action::Send(side, channel) => {
                let message = state.witnesses[side][channel].next;
                self.send(state, side, &[channel], vec![message])?;
            }
            Action::SendBoth(side) => {
                let messages = state.witnesses[side].map(|witness| witness.next);
                self.send(state, side, &[0, 1], messages.to_vec())?;
            }
            Action::Decide(side, channel, operation, through) => {
                self.decide(state, side, channel, operation, through)?;
            }
            Action::Close(side, channel) => {
                self.call(side, |link, now| link.close_channel(now, &id(channel)))?;
            }
            Action::Consume(side, channel, through) => {
                self.call(side, |link, now| {
                    link.consume(now, &id(channel), sequence(through))
                })?;
            }
            Action::Answer(side, channel, outcome, through) => {
                self.answer(state, side, channel, outcome, through)?;
            }
            Action::ShutDown(side) => self.call(side, Link::shutdown)?,
            Action::Deliver(side) => self.deliver(side)?,
            Action::End(side) => self.end(side)?,
            Action::AttachListener => given_up[1] = self.attach(1),
            Action::AttachConnector => given_up[0] = self.attach(0),
            Action::Cut => self.cut(),
            Action::Restart => {
                self.cut();
                self.links[1] = None;
                self.same_link = false;
            }
        }
        let mut out = [Output::default(), Output::default()];
        for (side, output) in out.iter_mut().enumerate() {
            if let Some(event) = &given_up[side] {
                output.events.push(event_of(event)?);
            }
            self.collect(side, output)?;
        }
        for side in 0..2 {
            if self.links[side]
                .as_ref()
                .is_some_and(|link| link.state() == LinkState::Closed)
            {
                self.attached[side] = false;
                self.pipes[1 - side].clear();
                self.same_link &= side == 0;
            }
        }
        Ok(out)
    }

    fn call<T>(
        &mut self,
        side: usize,
        verb: impl FnOnce(&mut Link, Instant) -> Result<T, UsageError>,
    ) -> Result<T, String> {
        let link = self.links[side].as_mut().ok_or("a call without a link")?;
        verb(link, self.now).map_err(|refused| format!("refused: {}", refused.code))
    }

    fn send(
        &mut self,
        state: &State,
        side: usize,
        channels: &[usize],
        payload: Vec<Message>,
    ) -> Result<(), String> {
        let ids: Vec<_> = channels.iter().copied().map(id).collect();
        let sent = self.call(side, |link, now| {
            link.send(now, &ids, Payload::from(payload))
        })?;
        let expected = channels.iter().map(|&channel| {
            let before = state.ends[side].outgoing[channel]
                .as_ref()
                .map_or(0, |outgoing| outgoing.sent);
            sequence(before + 1)
        });
        let expected: Vec<Sequence> = expected.collect();
        equal("numbers of a sent message", &sent, &expected)
    }

    /// Names a single message every second time: both forms must have the same effect.
    fn decide(
        &mut self,
        state: &State,
        side: usize,
        channel: usize,
        operation: Operation,
        through: Count,
    ) -> Result<(), String> {
        let decided = state.ends[side].outgoing[channel]
            .as_ref()
            .map_or(0, |it| it.decisions.decided);
        let named = through > decided + 1 || state.cuts.is_multiple_of(2);
        let named = named.then(|| sequence(through));
        let answer = self.call(side, |link, now| match operation {
            Operation::Commit => link.commit(now, &id(channel), named),
            Operation::Rollback => link.rollback(now, &id(channel), named),
        })?;
        equal("the number decided on", &answer, &sequence(through))
    }

    fn answer(
        &mut self,
        state: &State,
        side: usize,
        channel: usize,
        outcome: Outcome,
        through: Count,
    ) -> Result<(), String> {
        let next = state.ends[side].incoming[channel]
            .as_ref()
            .and_then(|it| it.decisions.next_commit());
        let named = Some(through) != next || state.cuts.is_multiple_of(2);
        let named = named.then(|| sequence(through));
        let answer = self.call(side, |link, now| match outcome {
            Outcome::Committed => link.committed(now, &id(channel), named),
            Outcome::Uncommitted => link.uncommitted(now, &id(channel), named),
        })?;
        equal("the number answered", &answer, &sequence(through))
    }

    fn deliver(&mut self, side: usize) -> Result<(), String> {
        let packet = self.pipes[1 - side]
            .pop_front()
            .ok_or("nothing in flight")?;
        let mut input = BytesMut::from(&packet[..]);
        let link = self.links[side].as_mut().ok_or("a packet without a link")?;
        loop {
            match link.receive(self.now, &mut input) {
                Ok(Need::Input { .. }) if input.is_empty() => return Ok(()),
                Ok(Need::Again) => {}
                Ok(need) => return Err(format!("{need:?} with {} bytes left", input.len())),
                Err(error) => return Err(format!("protocol error {:?}", error.kind)),
            }
        }
    }

    fn end(&mut self, side: usize) -> Result<(), String> {
        let link = self.links[side].as_mut().ok_or("an end without a link")?;
        let ended = link.receive_eof(self.now);
        link.detached(self.now);
        self.attached[side] = false;
        ended.map_err(|error| format!("protocol error {:?}", error.kind))
    }

    fn cut(&mut self) {
        self.pipes.iter_mut().for_each(VecDeque::clear);
        for side in 0..2 {
            if let Some(link) = self.links[side].as_mut().filter(|_| self.attached[side]) {
                link.detached(self.now);
            }
            self.attached[side] = false;
        }
    }

    /// Returns how an old link has ended.
    fn attach(&mut self, side: usize) -> Option<ackline_relink::Event> {
        if self.same_link {
            if let Some(link) = &mut self.links[side] {
                link.attach(self.now, Attach::Resumed);
            }
            self.attached[side] = true;
            return None;
        }
        let old = self.links[side].take();
        self.attach_new(side);
        self.same_link = side == 0;
        old.and_then(|mut old| {
            old.lose(self.now);
            old.poll_event()
        })
    }

    fn attach_new(&mut self, side: usize) {
        if side == 1 {
            self.next_link_id += 1;
        }
        let key = LinkKey {
            epoch: 1,
            link_id: self.next_link_id,
        };
        let mut link = Link::new(self.configs[side].clone(), key);
        link.attach(self.now, Attach::New(key));
        self.links[side] = Some(link);
        self.attached[side] = true;
    }

    /// Returns the new packets and events of the machine.
    fn collect(&mut self, side: usize, output: &mut Output) -> Result<(), String> {
        let Some(link) = &mut self.links[side] else {
            return Ok(());
        };
        let mut written = Vec::new();
        loop {
            let mut queue = SendQueue::new();
            link.poll_transmit(self.now, &mut queue);
            if queue.is_empty() {
                break;
            }
            written.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
        }
        while let Some(event) = link.poll_event() {
            output.events.push(event_of(&event)?);
        }
        if !self.attached[side] && !written.is_empty() {
            return Err("something is written without a transport".to_owned());
        }
        let context = Context {
            from: if side == 0 {
                Role::Connector
            } else {
                Role::Listener
            },
            connector_channel_id_size: 1,
            listener_channel_id_size: 1,
        };
        let mut rest = Bytes::from(written);
        while !rest.is_empty() {
            let decoded = frame::decode(&context, &Limits::default(), &rest);
            let Ok(Decoded::Whole { packet, len }) = decoded else {
                return Err(format!("written: {decoded:?}"));
            };
            output.packets.push(packet_of(&packet)?);
            self.pipes[side].push_back(rest.split_to(len));
        }
        Ok(())
    }

    /// Compares the public state of the machines with the model's state.
    ///
    /// # Errors
    /// The differences.
    pub fn compare(&mut self, plan: &Plan, state: &State) -> Result<(), String> {
        for side in 0..2 {
            let end = &state.ends[side];
            let Some(link) = &mut self.links[side] else {
                equal("a link", &end.is_linked(), &false)?;
                continue;
            };
            equal("attached", &link.is_attached(), &end.is_attached())?;
            let closed = link.state() == LinkState::Closed;
            equal("closed", &closed, &end.is_closed())?;
            if closed {
                continue;
            }
            let unacknowledged: Vec<_> = link
                .unacknowledged()
                .map(|(channel, number, payload)| {
                    let channel = index(channel.as_bytes());
                    (channel, number, message_of(channel, payload.as_slice()))
                })
                .collect();
            let mut expected = Vec::new();
            for (channel, outgoing) in end.outgoing.iter().enumerate() {
                let used = outgoing
                    .as_ref()
                    .map_or(0, super::outgoing::Outgoing::unacknowledged);
                equal(
                    "room",
                    &link.send_room(&id(channel)),
                    &u32::from(plan.rules.window - used),
                )?;
                let Some(outgoing) = outgoing else { continue };
                expected.extend(
                    (outgoing.consumed..outgoing.sent)
                        .map(|at| (channel, sequence(at + 1), outgoing.first + at)),
                );
            }
            equal("unacknowledged", &unacknowledged, &expected)?;
            refusals(plan, state, side, link, self.now)?;
        }
        Ok(())
    }
}

/// Checks that calls which the model does not allow are refused and change nothing.
fn refusals(
    plan: &Plan,
    state: &State,
    side: usize,
    link: &mut Link,
    now: Instant,
) -> Result<(), String> {
    let end = &state.ends[side];
    for channel in 0..CHANNELS {
        if let Some(outgoing) = &end.outgoing[channel] {
            let closing = outgoing.closing != crate::outgoing::Closing::No;
            let full = outgoing.unacknowledged() == plan.rules.window;
            if closing || full {
                let refused = link.send(now, &[id(channel)], Payload::from(vec![0])).err();
                let code = if closing {
                    "channel_closing"
                } else {
                    "window_full"
                };
                equal("a refused send", &refused.map(|it| it.code), &Some(code))?;
            }
            if closing {
                let refused = link.close_channel(now, &id(channel)).err();
                equal(
                    "a second close",
                    &refused.map(|it| it.code),
                    &Some("channel_closing"),
                )?;
            }
        } else {
            let refused = link.close_channel(now, &id(channel)).err();
            equal(
                "a close of nothing",
                &refused.map(|it| it.code),
                &Some("unknown_channel"),
            )?;
        }
        let received = end.incoming[channel]
            .as_ref()
            .map(|incoming| incoming.received);
        let refused = link
            .consume(now, &id(channel), sequence(received.unwrap_or(0) + 1))
            .err();
        let code = if received.is_some() {
            "out_of_range"
        } else {
            "unknown_channel"
        };
        equal(
            "consuming a message that is not there",
            &refused.map(|it| it.code),
            &Some(code),
        )?;
    }
    Ok(())
}

fn config(plan: &Plan, role: Role) -> LinkConfig {
    let rules = plan.rules;
    let parameters = Parameters {
        connector_channel_id_size: 1,
        listener_channel_id_size: 1,
        connector_transactions: rules.transactional[0],
        listener_transactions: rules.transactional[1],
    };
    LinkConfig {
        send_window: u32::from(rules.window),
        receive_window: u32::from(rules.window),
        ack_delay: Duration::ZERO,
        ping_after: None,
        pong_timeout: None,
        packet_receive_timeout: None,
        close_when_consumed: rules.close_when_consumed,
        resume_from_consumed: rules.resume_from_consumed,
        undecided_bytes: if rules.decide_between { 0 } else { 64 << 10 },
        ..LinkConfig::new(role, parameters)
    }
}

fn id(channel: usize) -> ChannelId {
    ChannelId::from(&[u8::try_from(channel).expect("two channels")][..])
}

fn index(bytes: &[u8]) -> usize {
    bytes.first().copied().map_or(CHANNELS, usize::from)
}

/// Returns the number of a count's last message; for 0, the number before the first one.
fn sequence(count: Count) -> Sequence {
    Sequence(u32::from(count).wrapping_sub(1))
}

fn count(sequence: Sequence) -> Count {
    Count::try_from(sequence.0.wrapping_add(1)).unwrap_or(Count::MAX)
}

/// Returns a payload that names the message on its channel, or on each of the two.
fn message_of(channel: usize, parts: &[Bytes]) -> Message {
    let bytes = parts.first().map_or(&[][..], |part| &part[..]);
    bytes
        .get(channel)
        .filter(|_| bytes.len() == CHANNELS)
        .or(bytes.first())
        .copied()
        .unwrap_or(Message::MAX)
}

fn event_of(event: &ackline_relink::Event) -> Result<Event, String> {
    use ackline_relink::Event as Real;
    Ok(match event {
        Real::LinkLost => Event::LinkLost,
        Real::Resumed => Event::Resumed,
        Real::Message {
            channel,
            sequence,
            payload,
        } => {
            let channel = index(channel.as_bytes());
            Event::Message(
                channel,
                count(*sequence),
                message_of(channel, payload.as_slice()),
            )
        }
        Real::Acknowledged {
            channel,
            acknowledgement,
            through,
        } => {
            let (channel, through) = (index(channel.as_bytes()), count(*through));
            match acknowledgement {
                Acknowledgement::Received => Event::Received(channel, through),
                Acknowledgement::Consumed => Event::Consumed(channel, through),
                Acknowledgement::Committed => Event::Answered(channel, Outcome::Committed, through),
                Acknowledgement::Uncommitted => {
                    Event::Answered(channel, Outcome::Uncommitted, through)
                }
                Acknowledgement::Closed => return Err(format!("{event:?}")),
            }
        }
        Real::Decided {
            channel,
            operation,
            through,
        } => {
            let operation = operation_of(*operation).ok_or_else(|| format!("{event:?}"))?;
            Event::Decided(index(channel.as_bytes()), operation, count(*through))
        }
        Real::Closing { channel } => Event::Closing(index(channel.as_bytes())),
        Real::Closed {
            channel,
            unacknowledged,
        } => Event::Closed(
            index(channel.as_bytes()),
            Count::try_from(*unacknowledged).unwrap_or(Count::MAX),
        ),
        Real::LinkClosed => Event::LinkClosed,
        Real::PeerShutdown => Event::PeerShutdown,
        Real::Hint(_) | Real::Pong { .. } => return Err(format!("{event:?}")),
    })
}

fn operation_of(operation: frame::Operation) -> Option<Operation> {
    match operation {
        frame::Operation::Commit => Some(Operation::Commit),
        frame::Operation::Rollback => Some(Operation::Rollback),
        frame::Operation::Close => None,
    }
}

fn packet_of(packet: &frame::Packet<'_>) -> Result<Packet, String> {
    let other = || format!("a packet the model does not have: {packet:?}");
    let (targets, body) = match packet {
        frame::Packet::Resume => return Ok(Packet::Resume),
        frame::Packet::Shutdown => return Ok(Packet::Shutdown),
        frame::Packet::Channel { targets, body } => (targets, body),
        _ => return Err(other()),
    };
    let mut ids = targets.iter().map(index);
    let channel = ids.next().ok_or_else(other)?;
    if let (Body::Message(parts), true) = (body, targets.is_multicast()) {
        let payload = parts.iter().next().unwrap_or_default();
        let messages = <[Message; CHANNELS]>::try_from(payload).map_err(|_| other())?;
        let both = channel == 0 && ids.eq([1]);
        return both
            .then_some(Packet::Multicast(messages))
            .ok_or_else(other);
    }
    if targets.is_multicast() {
        return Err(other());
    }
    Ok(match *body {
        Body::Message(parts) => {
            let payload: Vec<_> = parts.iter().map(Bytes::copy_from_slice).collect();
            Packet::Message {
                channel,
                message: message_of(channel, &payload),
            }
        }
        Body::Operation(frame::Operation::Close) => Packet::Close(channel),
        Body::Operation(operation) => {
            Packet::Decision(channel, operation_of(operation).ok_or_else(other)?, None)
        }
        Body::SequenceOperation(operation, through) => Packet::Decision(
            channel,
            operation_of(operation).ok_or_else(other)?,
            Some(count(through)),
        ),
        Body::Acknowledgement(acknowledgement) => match acknowledgement {
            Acknowledgement::Committed => Packet::Outcome(channel, Outcome::Committed, None),
            Acknowledgement::Uncommitted => Packet::Outcome(channel, Outcome::Uncommitted, None),
            Acknowledgement::Closed => Packet::Closed(channel),
            Acknowledgement::Received | Acknowledgement::Consumed => return Err(other()),
        },
        Body::SequenceAcknowledgement(acknowledgement, through) => match acknowledgement {
            Acknowledgement::Received => Packet::Received(channel, count(through)),
            Acknowledgement::Consumed => Packet::Consumed(channel, count(through)),
            Acknowledgement::Committed => {
                Packet::Outcome(channel, Outcome::Committed, Some(count(through)))
            }
            Acknowledgement::Uncommitted => {
                Packet::Outcome(channel, Outcome::Uncommitted, Some(count(through)))
            }
            Acknowledgement::Closed => return Err(other()),
        },
    })
}

/// Checks that `real` is the model's value.
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, model: &T) -> Result<(), String> {
    if real == model {
        Ok(())
    } else {
        Err(format!("{what}: the machine {real:?}, the model {model:?}"))
    }
}
