//! Any bytes as the input of one end.

use std::time::Instant;

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue};
use bytes::{Buf, BytesMut};

use crate::frame::{self, Context, Decoded, EndpointName, Parameters, Role};
use crate::{
    Attach, Binder, ChannelId, ConnectorConfig, Decision, EndpointConfig, Event, Handshake,
    HandshakeEvent, Kind, Limits, Link, LinkConfig, LinkKey, ListenerConfig, Payload,
};

const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};

/// The result of a run.
#[derive(Debug, PartialEq)]
struct Outcome {
    handshake: Vec<HandshakeEvent>,
    events: Vec<Event>,
    held: usize,
    sent: Vec<u8>,
    /// Input that was not taken. After an error it may be anything.
    left: usize,
    error: Option<ProtocolError<Kind>>,
}

/// The configuration of the machines, and their state before the first byte.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // each is a bit of the seed
struct Shape {
    role: Role,
    handshake: bool,
    resumes: bool,
    parameters: Parameters,
    /// Messages sent on each of two channels.
    messages: u8,
    emitted: bool,
    closes: bool,
    shuts_down: bool,
    from_consumed: bool,
    tight: bool,
}

impl Shape {
    fn of(first: u8, second: u8) -> Self {
        let bit = |byte: u8, at: u8| byte >> at & 1 == 1;
        let (connector, listener) = match first >> 6 {
            0 => (0, 0),
            1 => (1, 1),
            2 => (2, 1),
            _ => (1, 9),
        };
        Self {
            role: if bit(first, 0) {
                Role::Listener
            } else {
                Role::Connector
            },
            handshake: bit(first, 1),
            resumes: bit(first, 2),
            parameters: Parameters {
                connector_channel_id_size: connector,
                listener_channel_id_size: listener,
                connector_transactions: bit(first, 3),
                listener_transactions: bit(first, 4),
            },
            messages: second & 3,
            emitted: bit(second, 2),
            closes: bit(second, 3),
            shuts_down: bit(second, 4),
            from_consumed: bit(second, 5),
            tight: bit(second, 6),
        }
    }

    fn config(&self) -> LinkConfig {
        let mut config = LinkConfig::new(self.role, self.parameters);
        config.resume_from_consumed = self.from_consumed;
        config.limits = Limits {
            // Each target is an event.
            max_channel_ids: 1 << 12,
            ..Limits::default()
        };
        if self.tight {
            config.receive_window = 3;
            config.max_channels = 4;
            config.max_events = 2;
            config.max_event_bytes = 16;
        }
        config
    }

    /// A link that has sent messages, on a transport that was cut if it resumes.
    fn link(&self, now: Instant) -> Link {
        let mut link = Link::new(self.config(), KEY);
        let size = self.parameters.channel_id_size(self.role);
        link.attach(now, Attach::New(KEY));
        for number in 0..self.messages {
            for channel in [1, 2] {
                if let Some(channel) = ChannelId::le(channel, size).or(ChannelId::le(0, size)) {
                    let _ = link.send_to(now, &channel, Payload::from(vec![number; 3]));
                    if self.closes && number == 2 {
                        let _ = link.close_channel(now, &channel);
                    }
                }
            }
        }
        if self.shuts_down {
            let _ = link.shutdown(now);
        }
        if self.emitted {
            link.poll_transmit(now, &mut SendQueue::new());
        }
        if self.resumes {
            link.detach(now);
            link.attach(now, Attach::Resumed);
        }
        link
    }
}

/// Checks that any split of the bytes has the result of the bytes as a whole: the same events, the same error at the
/// same offset, and afterwards the same output, which is sound. The first two bytes select the end and its state, the
/// third selects the split.
pub(super) fn receive(now: Instant, data: &[u8]) {
    let Some(([first, second, split], bytes)) = data.split_first_chunk() else {
        return;
    };
    let shape = Shape::of(*first, *second);
    let whole = run(now, &shape, bytes, bytes.len());
    let cut = run(now, &shape, bytes, usize::from(*split).saturating_add(1));
    assert_eq!(whole, cut, "a split is visible");
    if bytes.len() <= SINGLE {
        let single = run(now, &shape, bytes, 1);
        assert_eq!(whole, single, "a split into bytes is visible");
    }
}

/// The longest input that is cut into single bytes. The time for that grows with the square of the length.
const SINGLE: usize = 4_096;

fn run(now: Instant, shape: &Shape, bytes: &[u8], chunk: usize) -> Outcome {
    let mut outcome = Outcome {
        handshake: Vec::new(),
        events: Vec::new(),
        held: 0,
        sent: Vec::new(),
        left: 0,
        error: None,
    };
    let mut end = End {
        handshake: shape.handshake.then(|| shake(now, shape)),
        binder: binder(shape),
        link: (!shape.handshake).then(|| shape.link(now)),
    };
    let mut input = BytesMut::new();
    for part in bytes.chunks(chunk.max(1)) {
        input.extend_from_slice(part);
        if let Err(error) = end.pump(now, shape, &mut input, &mut outcome) {
            outcome.error = Some(error);
            break;
        }
    }
    end.sent(now, shape, &mut outcome);
    outcome.left = input.len();
    if outcome.error.is_some() {
        outcome.left = 0;
        let again = end.pump(now, shape, &mut input, &mut outcome);
        assert_eq!(again.err(), outcome.error, "the first error is kept");
    }
    outcome
}

fn shake(now: Instant, shape: &Shape) -> Handshake {
    match shape.role {
        Role::Connector => {
            let mut config = ConnectorConfig::new(EndpointName::default(), shape.parameters);
            config.require_old_link_id = shape.from_consumed;
            Handshake::connector(now, config, shape.resumes.then_some(KEY))
        }
        Role::Listener => Handshake::listener(now, ListenerConfig::default()),
    }
}

/// A registry with the link [`KEY`].
fn binder(shape: &Shape) -> Binder {
    let endpoint = EndpointConfig {
        endpoint_name: EndpointName::default(),
        parameters: shape.parameters,
    };
    let mut binder = Binder::new(KEY.epoch, KEY.link_id, vec![endpoint]);
    let asked = frame::EndpointBlock {
        endpoint_name: EndpointName::default(),
        parameters: shape.parameters,
        require_old_link_id: false,
        wants_hints: false,
        old_epoch: 0,
        old_link_id: 0,
    };
    assert_eq!(binder.decide(&asked), Ok(Decision::New(KEY)));
    binder
}

/// A transport's machines: the handshake, then the link.
struct End {
    handshake: Option<Handshake>,
    binder: Binder,
    link: Option<Link>,
}

impl End {
    fn pump(
        &mut self,
        now: Instant,
        shape: &Shape,
        input: &mut BytesMut,
        outcome: &mut Outcome,
    ) -> Result<(), ProtocolError<Kind>> {
        if self.handshake.is_some() && !self.shake_hands(now, shape, input, outcome)? {
            return Ok(());
        }
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        loop {
            let need = link.receive(now, input);
            let before = outcome.events.len();
            while let Some(event) = link.poll_event() {
                outcome.events.push(event);
            }
            outcome.held = link.held_bytes();
            match need? {
                Need::Input { at_least } => {
                    assert!(at_least > input.len(), "input is asked for that is there");
                    return Ok(());
                }
                Need::Room => assert!(outcome.events.len() > before, "room is there"),
                Need::Again => {}
            }
        }
    }

    /// Whether the handshake is done and packets follow.
    fn shake_hands(
        &mut self,
        now: Instant,
        shape: &Shape,
        input: &mut BytesMut,
        outcome: &mut Outcome,
    ) -> Result<bool, ProtocolError<Kind>> {
        let Some(handshake) = &mut self.handshake else {
            return Ok(true);
        };
        loop {
            let need = handshake.receive(now, input);
            while let Some(event) = handshake.poll_event() {
                if let HandshakeEvent::Requested(block) = &event {
                    let answered = match self.binder.decide(block) {
                        Ok(decision) => {
                            let ident = self.binder.ident(decision);
                            handshake.accept(now, ident)
                        }
                        Err(kind) => handshake.refuse(now, kind),
                    };
                    assert_eq!(answered, Ok(()), "a request can be answered");
                }
                outcome.handshake.push(event);
            }
            match need? {
                Need::Room | Need::Again => {}
                Need::Input { .. } => break,
            }
        }
        if handshake.lifecycle() != Lifecycle::Handover {
            return Ok(false);
        }
        let Some(HandshakeEvent::Established { key, resumed }) = outcome.handshake.last() else {
            unreachable!("a handshake ends with a link");
        };
        assert!(key.epoch != 0 && key.link_id != 0, "a link has its numbers");
        drain(handshake, now, &mut outcome.sent);
        self.handshake = None;
        let mut link = if *resumed {
            shape.link(now)
        } else {
            Link::new(shape.config(), *key)
        };
        let attach = if *resumed {
            Attach::Resumed
        } else {
            Attach::New(*key)
        };
        link.attach(now, attach);
        self.link = Some(link);
        Ok(true)
    }

    /// Checks that the other side can read the output.
    fn sent(&mut self, now: Instant, shape: &Shape, outcome: &mut Outcome) {
        if let Some(handshake) = &mut self.handshake {
            drain(handshake, now, &mut outcome.sent);
        }
        let packets_at = outcome.sent.len();
        if let Some(link) = &mut self.link {
            drain(link, now, &mut outcome.sent);
            while let Some(event) = link.poll_event() {
                outcome.events.push(event);
            }
        }
        let packets = outcome.sent.get(packets_at..).unwrap_or_default();
        assert_packets(shape.role, shape.parameters, packets);
    }
}

/// Returns all output of the machine.
pub(super) fn drain<C: Connection>(machine: &mut C, now: Instant, into: &mut Vec<u8>) {
    loop {
        let mut queue = SendQueue::new();
        machine.poll_transmit(now, &mut queue);
        if !queue.has_remaining() {
            return;
        }
        into.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
    }
}

/// Whole packets in their smallest form.
pub(super) fn assert_packets(from: Role, parameters: Parameters, mut bytes: &[u8]) {
    let context = Context {
        from,
        connector_channel_id_size: parameters.connector_channel_id_size,
        listener_channel_id_size: parameters.listener_channel_id_size,
    };
    while !bytes.is_empty() {
        let decoded = frame::decode(&context, &Limits::default(), bytes);
        let Ok(Decoded::Whole { packet, len }) = decoded else {
            unreachable!("the output is not sound: {decoded:?}");
        };
        let mut canonical = Vec::new();
        frame::encode(&packet, &mut canonical);
        let (sent, rest) = bytes.split_at(len);
        assert_eq!(sent, canonical, "the output has the smallest form");
        bytes = rest;
    }
}
