//! Two ends of one link against a model of the messages on each channel, with any order of calls, deliveries, cuts
//! and time. No end ever reports a violation of the other, no message is lost, doubled or out of order, and every
//! commit gets the outcome that its receiver gave.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::expect_used
)] // a panic is a finding

use std::time::{Duration, Instant};

use ackline_core::{Connection, Need, Sequence, UsageError};
use bytes::BytesMut;

use super::flow::{Flow, In, Out, WINDOW, content, index, wide};
use super::receive::{assert_packets, drain};
use crate::frame::{Parameters, Role};
use crate::{Attach, ChannelId, Event, Link, LinkConfig, LinkKey, LinkState, Side, StartChannel};

const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};
/// Channels of each side.
const CHANNELS: u8 = 3;
/// The most rounds until both ends must be idle.
const ROUNDS: u32 = 40;

struct End {
    role: Role,
    link: Link,
    input: BytesMut,
    shut_down: bool,
    is_over: bool,
}

impl End {
    fn new(now: Instant, role: Role, parameters: Parameters, shape: u8) -> Self {
        let bit = |at: u8| shape >> at & 1 == 1;
        let mut config = LinkConfig::new(role, parameters);
        config.send_window = WINDOW;
        config.receive_window = WINDOW;
        config.close_when_consumed = bit(3);
        config.resume_from_consumed = bit(4);
        config.ack_delay = Duration::from_millis(if bit(6) { 100 } else { 0 });
        config.ack_window = if bit(7) { 2 } else { 16_384 };
        config.pong_timeout = None;
        config.packet_receive_timeout = None;
        config.max_events = 4;
        // Decisions go out between the repeated messages, or after all of them.
        config.undecided_bytes = if bit(6) { 100 } else { 64 << 10 };
        if bit(5) {
            let start = |side| StartChannel {
                side,
                channel: channel(parameters.connector_channel_id_size, 0),
                next: Sequence(WRAPS),
            };
            config.channels = [Side::Outgoing, Side::Incoming].map(start).to_vec();
        }
        let mut link = Link::new(config, KEY);
        link.attach(now, Attach::New(KEY));
        Self {
            role,
            link,
            input: BytesMut::new(),
            shut_down: false,
            is_over: false,
        }
    }
}

struct World {
    now: Instant,
    parameters: Parameters,
    /// Whether a close waits until all messages are consumed, so that their fate is known.
    strict: bool,
    wraps: bool,
    ends: [End; 2],
    /// Bytes that an end has emitted and the other has not got.
    wires: [Vec<u8>; 2],
    /// The model of each end's messages.
    flows: [Flow; 2],
    attached: bool,
    next: u32,
    /// Bytes that both ends have emitted.
    emitted: usize,
}

/// Runs the input: the first byte selects the options of the link, and every other one is a step.
pub(super) fn ops(start: Instant, data: &[u8]) {
    let Some((shape, steps)) = data.split_first() else {
        return;
    };
    let mut world = World::new(start, *shape);
    let mut rest = steps.iter();
    while let Some(step) = rest.next() {
        let argument = rest.as_slice().first().copied().unwrap_or(0);
        world.step(*step, argument);
        world.check();
        if world.ends.iter().any(|end| end.is_over) {
            break;
        }
    }
    world.settle();
}

impl World {
    fn new(now: Instant, shape: u8) -> Self {
        let bit = |at: u8| shape >> at & 1 == 1;
        let size = u8::from(!bit(2));
        let parameters = Parameters {
            connector_channel_id_size: size,
            listener_channel_id_size: size,
            connector_transactions: bit(0),
            listener_transactions: bit(1),
        };
        let end = |role| End::new(now, role, parameters, shape);
        let mut world = Self {
            now,
            parameters,
            strict: bit(3),
            wraps: bit(5),
            ends: [end(Role::Connector), end(Role::Listener)],
            wires: [Vec::new(), Vec::new()],
            flows: [Flow::default(), Flow::default()],
            attached: true,
            next: 0,
            emitted: 0,
        };
        if world.wraps {
            let id = world.channel(0);
            for flow in &mut world.flows {
                flow.lives.insert(id.clone(), 1);
                let out = Out {
                    base: WRAPS,
                    ..Out::default()
                };
                flow.outgoing.insert(id.clone(), out);
                flow.incoming.insert(id.clone(), In::new(0, WRAPS));
            }
        }
        world
    }

    fn channel(&self, number: u8) -> ChannelId {
        channel(self.parameters.connector_channel_id_size, number)
    }

    fn transactions(&self, from: usize) -> bool {
        self.parameters.transactions(self.ends[from].role)
    }

    fn step(&mut self, step: u8, argument: u8) {
        let at = usize::from(step >> 4 & 1);
        let id = self.channel(step >> 5);
        match step & 15 {
            0 | 1 => self.send(at, &[id]),
            2 => {
                let ids: Vec<_> = (0..=argument % 4).map(|one| self.channel(one)).collect();
                self.send(at, &ids);
            }
            3 => self.consume(at, &id, argument),
            4 | 5 => self.emit(at),
            6 => self.deliver(at, usize::from(argument)),
            7 => self.deliver(at, usize::MAX),
            8 => self.cut(argument & 1 == 0),
            9 => self.reconnect(),
            10 => self.decide(at, &id, argument),
            11 => self.answer(at, &id, argument),
            12 => self.close(at, &id),
            13 => match argument & 7 {
                0 => self.shut_down(at),
                1 => {
                    let _ = self.ends[at].link.ping(self.now);
                }
                2 => {
                    let _ = self.ends[at].link.notify_received(self.now, &id);
                }
                _ => {}
            },
            _ => self.wait(u64::from(argument) * 10),
        }
    }

    fn send(&mut self, at: usize, ids: &[ChannelId]) {
        let number = self.next;
        let content = content(number);
        let sent = self.ends[at].link.send(self.now, ids, content.into());
        let flow = &mut self.flows[at];
        match sent {
            Ok(numbers) => {
                self.next += 1;
                for (id, sequence) in ids.iter().zip(numbers) {
                    flow.sent(id, number, sequence);
                }
            }
            Err(error) => assert!(
                matches!(
                    error.code,
                    "window_full" | "channel_closing" | "shutting_down" | "not_connected"
                ),
                "{error}"
            ),
        }
    }

    fn consume(&mut self, at: usize, id: &ChannelId, argument: u8) {
        let Some(incoming) = self.flows[1 - at].incoming.get_mut(id) else {
            return;
        };
        let open = incoming.got - incoming.consumed;
        let through = incoming.consumed + u32::from(argument) % (open + 1);
        if through == 0 {
            return;
        }
        let sequence = Sequence(incoming.base).plus(through - 1);
        match self.ends[at].link.consume(self.now, id, sequence) {
            Ok(()) => incoming.consumed = through,
            Err(error) => gone(error, incoming),
        }
    }

    fn decide(&mut self, at: usize, id: &ChannelId, argument: u8) {
        let commits = argument & 1 == 0;
        let transactions = self.transactions(at);
        let link = &mut self.ends[at].link;
        let out = self.flows[at].outgoing.get_mut(id);
        let (base, before) = out
            .as_ref()
            .map_or((0, 0), |out| (out.base, index(out.decided.len())));
        let wanted = before + u32::from(argument >> 2);
        let through = (argument & 2 != 0).then(|| Sequence(base).plus(wanted));
        let decided = if commits {
            link.commit(self.now, id, through)
        } else {
            link.rollback(self.now, id, through)
        };
        let Ok(decided) = decided else {
            let is_next = out.is_some_and(|out| wanted < out.sent);
            assert!(
                !transactions || !is_next || link.state() == LinkState::Closed,
                "a message that was sent can be decided"
            );
            return;
        };
        let out = out.expect("only a channel that is open can be decided on");
        let count = decided.since(Sequence(base)) + 1;
        assert_eq!(
            count,
            through.map_or(before, |_| wanted) + 1,
            "the message of the call is decided"
        );
        assert!(count <= out.sent, "only sent messages are decided");
        out.decided.resize(wide(count), commits);
    }

    fn answer(&mut self, at: usize, id: &ChannelId, argument: u8) {
        let commits = argument & 1 == 0;
        let flow = &mut self.flows[1 - at];
        let Some(incoming) = flow.incoming.get_mut(id) else {
            return;
        };
        let wanted = incoming.answered + u32::from(argument >> 2);
        let through = (argument & 2 != 0).then(|| Sequence(incoming.base).plus(wanted));
        let link = &mut self.ends[at].link;
        let answered = if commits {
            link.committed(self.now, id, through)
        } else {
            link.uncommitted(self.now, id, through)
        };
        let Ok(answered) = answered else {
            return;
        };
        let count = answered.since(Sequence(incoming.base)) + 1;
        assert!(
            count > incoming.answered && count <= incoming.decided,
            "only decided messages are answered"
        );
        let out = flow.outgoing.get_mut(id).expect("the answer is awaited");
        assert_eq!(out.life, incoming.life);
        for at in incoming.answered..count {
            if out.decided[wide(at)] {
                out.answers[wide(at)] = Some(commits);
            }
        }
        incoming.answered = count;
    }

    fn close(&mut self, at: usize, id: &ChannelId) {
        if self.ends[at].link.close_channel(self.now, id).is_ok() {
            let out = self.flows[at].outgoing.get_mut(id);
            out.expect("only an open channel is closed").closing = true;
        }
    }

    fn shut_down(&mut self, at: usize) {
        self.ends[at].shut_down |= self.ends[at].link.shutdown(self.now).is_ok();
    }

    fn emit(&mut self, at: usize) {
        let mut bytes = Vec::new();
        drain(&mut self.ends[at].link, self.now, &mut bytes);
        assert!(
            self.attached || bytes.is_empty(),
            "nothing leaves without a transport"
        );
        assert_packets(self.ends[at].role, self.parameters, &bytes);
        self.emitted += bytes.len();
        self.wires[at].extend_from_slice(&bytes);
        self.take_events(at);
    }

    /// Delivers the next bytes to the other end.
    fn deliver(&mut self, from: usize, count: usize) {
        let to = 1 - from;
        let count = count.min(self.wires[from].len());
        let bytes: Vec<u8> = self.wires[from].drain(..count).collect();
        self.ends[to].input.extend_from_slice(&bytes);
        if !self.attached {
            return;
        }
        loop {
            let end = &mut self.ends[to];
            let need = end.link.receive(self.now, &mut end.input);
            let events = self.take_events(to);
            match need.expect("no end finds fault with the other") {
                Need::Input { .. } => return,
                Need::Room => assert!(events > 0, "room is there"),
                Need::Again => {}
            }
        }
    }

    /// Cuts the transport of both ends. All bytes on their way are lost, or some of them.
    fn cut(&mut self, all: bool) {
        if !all {
            self.deliver(0, usize::MAX);
        }
        for at in [0, 1] {
            self.wires[at].clear();
            let end = &mut self.ends[at];
            end.input.clear();
            let goes_on = end.link.detached(self.now);
            assert!(goes_on || end.is_over, "a link outlives its transport");
        }
        self.attached = false;
    }

    fn reconnect(&mut self) {
        if self.attached {
            return;
        }
        for end in &mut self.ends {
            end.link.attach(self.now, Attach::Resumed);
        }
        self.attached = true;
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        for at in [0, 1] {
            let fired = self.ends[at].link.handle_timeout(self.now);
            fired.expect("no deadline is set");
            let due = self.ends[at].link.poll_timeout();
            let is_pinging = due.is_none_or(|due| due > self.now);
            assert!(is_pinging, "a timer that is due moves on");
        }
    }

    fn take_events(&mut self, at: usize) -> u32 {
        let mut count = 0;
        while let Some(event) = self.ends[at].link.poll_event() {
            count += 1;
            self.event(at, event);
        }
        count
    }

    fn event(&mut self, at: usize, event: Event) {
        let strict = self.strict;
        match event {
            Event::LinkLost => unreachable!("both know the link"),
            Event::LinkClosed => {
                assert!(
                    self.ends.iter().all(|end| end.shut_down),
                    "both have shut down"
                );
                self.ends[at].is_over = true;
            }
            Event::Message {
                channel,
                sequence,
                payload,
            } => self.flows[1 - at].got(&channel, sequence, &payload),
            Event::Acknowledged {
                channel,
                acknowledgement,
                through,
            } => self.flows[at].acknowledged(&channel, acknowledgement, through),
            Event::Decided {
                channel,
                operation,
                through,
            } => self.flows[1 - at].decided(&channel, operation, through),
            Event::Closing { channel } => {
                let flow = &mut self.flows[1 - at];
                let out = flow.outgoing.get(&channel);
                assert!(out.is_none_or(|out| out.closing), "its sender closes it");
                let incoming = flow.incoming.get_mut(&channel);
                incoming
                    .expect("a close of an unknown one is silent")
                    .closing = true;
            }
            Event::Closed {
                channel,
                unacknowledged,
            } => {
                let out = self.flows[at].outgoing.remove(&channel);
                let out = out.expect("an open channel ends");
                assert!(out.closing, "it was closed");
                assert_eq!(out.sent - out.consumed, unacknowledged);
                assert!(!strict || unacknowledged == 0, "nothing is unknown");
            }
            Event::PeerShutdown => assert!(self.ends[1 - at].shut_down),
            Event::Resumed | Event::Hint(_) | Event::Pong { .. } => {}
        }
    }

    /// Checks the invariants after every step.
    fn check(&mut self) {
        for at in [0, 1] {
            self.take_events(at);
            let (out, into) = (&self.flows[at], &self.flows[1 - at]);
            let link = &self.ends[at].link;
            let held: usize = into.incoming.values().map(In::held).sum();
            assert_eq!(link.held_bytes(), held, "bytes delivered and not consumed");
            for (id, out) in &out.outgoing {
                let open = out.sent - out.consumed;
                assert_eq!(link.send_room(id), WINDOW - open);
            }
            let unacknowledged: u32 = out
                .outgoing
                .values()
                .map(|out| out.sent - out.consumed)
                .sum();
            assert_eq!(index(link.unacknowledged().count()), unacknowledged);
        }
    }

    /// Does all that is still to do; then no message may be left.
    fn settle(&mut self) {
        if self.ends.iter().all(|end| !end.is_over) {
            self.reconnect();
        }
        let (mut rounds, mut quiet) = (0, 0);
        // With a delayed acknowledgement, one quiet round does not mean that both ends are idle.
        while quiet < 3 {
            let before = self.emitted;
            for at in [0, 1] {
                self.finish(at);
                self.emit(at);
            }
            for at in [0, 1] {
                self.deliver(at, usize::MAX);
            }
            self.wait(200);
            quiet = if self.emitted == before { quiet + 1 } else { 0 };
            rounds += 1;
            assert!(rounds < ROUNDS, "both come to rest");
        }
        self.check();
        self.nothing_is_left();
    }

    fn nothing_is_left(&self) {
        if self.ends.iter().any(|end| end.is_over) {
            for flow in &self.flows {
                let drained = |out: &Out| out.sent == out.consumed;
                assert!(flow.outgoing.values().all(drained), "{flow:?}");
            }
            return;
        }
        assert!(
            !self.ends.iter().all(|end| end.shut_down),
            "when both have shut down the link closes"
        );
        for (at, flow) in self.flows.iter().enumerate() {
            for (id, out) in &flow.outgoing {
                assert!(!out.closing, "a closed channel ends: {id} {out:?}");
                assert_eq!(
                    out.sent, out.consumed,
                    "all of it is acknowledged: {id} {out:?}"
                );
                if out.sent == 0 {
                    continue;
                }
                let incoming = &flow.incoming[id];
                assert_eq!((incoming.life, incoming.got), (out.life, out.sent));
                if self.transactions(at) {
                    let commits = out.decided.iter().zip(&out.answers);
                    assert_eq!(incoming.decided, out.sent, "every decision arrives");
                    assert_eq!(
                        out.outcomes,
                        out.last_committed(),
                        "every commit is answered"
                    );
                    assert!(
                        commits
                            .into_iter()
                            .all(|(commit, answer)| !commit || answer.is_some())
                    );
                }
            }
        }
    }

    /// The application of one end does all that is still to do.
    fn finish(&mut self, at: usize) {
        let transactions = (self.transactions(at), self.transactions(1 - at));
        let incoming: Vec<_> = self.flows[1 - at].incoming.keys().cloned().collect();
        for id in incoming {
            let open = &self.flows[1 - at].incoming[&id];
            let all = u8::try_from(open.got - open.consumed).expect("the window is small");
            self.consume(at, &id, all);
            if transactions.1 {
                // The commits are answered one by one, each with success or failure.
                for turn in 0..WINDOW {
                    self.answer(at, &id, u8::from(turn & 1 == 1));
                }
            }
        }
        let outgoing: Vec<_> = self.flows[at].outgoing.keys().cloned().collect();
        for id in outgoing {
            if transactions.0 {
                for turn in 0..WINDOW {
                    self.decide(at, &id, u8::from(turn % 3 == 2));
                }
            }
            if self.ends[at].shut_down {
                self.close(at, &id);
            }
        }
    }
}

/// Accepts the refusal of a verb on a channel that its sender has closed and that has ended.
#[track_caller]
fn gone(error: UsageError, incoming: &In) {
    let is_over = error.code == "not_connected";
    let has_ended = error.code == "unknown_channel" && incoming.closing;
    assert!(is_over || has_ended, "{error}");
}

fn channel(size: u8, number: u8) -> ChannelId {
    match size {
        0 => ChannelId::IMPLICIT,
        _ => ChannelId::from(number % CHANNELS),
    }
}

/// The first number of a channel, close enough to the largest one that a few messages wrap.
const WRAPS: u32 = u32::MAX - 2;
