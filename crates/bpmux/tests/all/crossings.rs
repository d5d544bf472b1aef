//! Every crossing of the ends of an entity's halves and of a request: each order of the calls, each of them
//! with an empty payload or one that goes whole, in parts or has to wait, each delivery of chunks between them.
//! The model checks that each event comes once and that nothing is left.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_bpmux::chunk::{Decoded, Head, decode};
use ackline_bpmux::fuzzing::{Model, Opening};
use ackline_bpmux::{Config, Connection, EntityKind, Target};
use ackline_core::{Connection as _, Lifecycle, Need, SendQueue, UsageError};
use ackline_testkit::netem::XorShift;
use bytes::{Buf, Bytes, BytesMut};

/// A call by one of the two ends that ends something. End 0 opens or requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Close(usize),
    Cancel(usize),
    Respond,
    CloseResponse,
    CancelRequest,
    /// Acknowledges a close of the other end, if that has come and is held.
    Acknowledge(usize),
}

/// The chunks that are delivered after a call.
#[derive(Debug, Clone, Copy)]
enum Step {
    Nothing,
    Chunk(usize),
    All(usize),
}

const STEPS: [Step; 5] = [
    Step::Nothing,
    Step::Chunk(0),
    Step::Chunk(1),
    Step::All(0),
    Step::All(1),
];

/// Top-level credit that each end has at first: none, enough for a beginning, enough for all.
const CREDIT: [u64; 3] = [0, 3, 1_000];

struct Duo {
    model: Model,
    ends: [Connection; 2],
    /// Bytes that each end has sent and that were not delivered.
    wires: [BytesMut; 2],
    inputs: [BytesMut; 2],
}

impl Duo {
    fn new(credit: [u64; 2], holds_close_acks: bool) -> Self {
        let config = Config {
            chunk_size: 2,
            holds_close_acks,
            ..Config::default()
        };
        let now = Instant::now();
        let mut duo = Self {
            model: Model::default(),
            ends: [(); 2].map(|()| Connection::new(now, config)),
            wires: <[BytesMut; 2]>::default(),
            inputs: <[BytesMut; 2]>::default(),
        };
        for at in 0..2 {
            let end = &mut duo.ends[at];
            duo.model
                .grant(at, end, Target::Top, credit[1 - at])
                .unwrap();
        }
        duo.settle();
        duo
    }

    fn transmit(&mut self, at: usize) {
        loop {
            let mut out = SendQueue::new();
            self.ends[at].poll_transmit(Instant::now(), &mut out);
            if out.is_empty() {
                return;
            }
            self.wires[at].extend_from_slice(&out.copy_to_bytes(out.remaining()));
        }
    }

    fn deliver(&mut self, from: usize, len: usize) {
        let bytes = self.wires[from].split_to(len);
        let to = 1 - from;
        self.inputs[to].extend_from_slice(&bytes);
        loop {
            let need = self.ends[to].receive(Instant::now(), &mut self.inputs[to]);
            let need = need.expect("neither end finds fault with the other");
            self.model.take(to, &mut self.ends[to], usize::MAX);
            if matches!(need, Need::Input { .. }) {
                return;
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Chunk(from) => {
                self.transmit(from);
                let len = chunk_len(&self.wires[from]);
                self.deliver(from, len);
            }
            Step::All(from) => {
                self.transmit(from);
                let len = self.wires[from].len();
                self.deliver(from, len);
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            self.step(Step::All(0));
            self.step(Step::All(1));
            self.transmit(0);
            if self.wires[0].is_empty() {
                return;
            }
        }
        panic!("no rest");
    }

    fn act(&mut self, act: Act, payload: &'static [u8]) {
        let payload = Bytes::from_static(payload);
        let target = |at| {
            if at == 0 {
                Target::Own(7)
            } else {
                Target::Peer(7)
            }
        };
        let (model, [left, right]) = (&mut self.model, &mut self.ends);
        let refused: Result<(), UsageError> = match act {
            Act::Close(0) => model.close(0, left, target(0), payload),
            Act::Close(_) => model.close(1, right, target(1), payload),
            Act::Cancel(0) => model.cancel(0, left, target(0), payload),
            Act::Cancel(_) => model.cancel(1, right, target(1), payload),
            Act::Respond => model.respond(1, right, 7, payload),
            Act::CloseResponse => model.close_response(1, right, 7, payload),
            Act::CancelRequest => model.cancel_request(0, left, 7, payload),
            Act::Acknowledge(0) => {
                model.acknowledge(0, left, 0);
                Ok(())
            }
            Act::Acknowledge(_) => {
                model.acknowledge(1, right, 0);
                Ok(())
            }
        };
        // The half or request may have ended before, or not be known yet.
        let code = refused.err().map_or("", |error| error.code);
        assert!(
            ["", "already_ended", "unknown_id"].contains(&code),
            "{code}"
        );
    }

    /// Gives credit, uses the ids again, closes all that is open, and checks that nothing is left.
    fn finish(mut self, is_request: bool) {
        for at in 0..2 {
            let end = &mut self.ends[at];
            self.model.grant(at, end, Target::Top, 10_000).unwrap();
        }
        self.settle();
        let before = self.ends[0].counts().tables;
        if is_request && before.own_requests == 0 {
            let again = self.model.request(0, &mut self.ends[0], 7, Bytes::new());
            again.unwrap();
        } else if before.own_entities == 0 {
            let opening = opening(EntityKind::Duplex);
            let again = self.model.open(0, &mut self.ends[0], opening);
            again.unwrap();
        }
        for _ in 0..20 {
            self.settle();
            if self
                .ends
                .iter()
                .all(|end| end.lifecycle() != Lifecycle::Open)
            {
                break;
            }
            for at in 0..2 {
                self.model.wind_down(at, &mut self.ends[at]);
            }
        }
        self.model.check([&self.ends[0], &self.ends[1]]);
    }
}

fn chunk_len(bytes: &[u8]) -> usize {
    match decode(bytes).unwrap() {
        Decoded::Partial { .. } => 0,
        Decoded::Whole { head, len } => match head {
            Head::Payload { length, .. } => len + usize::try_from(length).unwrap(),
            _ => len,
        },
    }
}

/// Returns an opening with the id 7 and an empty payload.
fn opening(kind: EntityKind) -> Opening {
    Opening {
        kind,
        id: 7,
        payload: Bytes::new(),
    }
}

/// Returns all sequences of `count` elements, with repetition.
fn sequences<T: Copy>(of: &[T], count: usize) -> Vec<Vec<T>> {
    (0..count).fold(vec![Vec::new()], |shorter, _| {
        let longer = shorter.iter().flat_map(|one| {
            of.iter().map(move |next| {
                let mut longer = one.clone();
                longer.push(*next);
                longer
            })
        });
        longer.collect()
    })
}

/// Returns all orders of `count` different acts.
fn orders(of: &[Act], count: usize) -> Vec<Vec<Act>> {
    let mut all = sequences(of, count);
    all.retain(|one| (0..one.len()).all(|at| !one[..at].contains(&one[at])));
    all
}

/// The state before the first call.
#[derive(Debug, Clone, Copy)]
enum Begin {
    Entity(EntityKind, Message),
    /// A request with a payload of so many bytes, delivered or not.
    Request(usize, bool),
}

#[derive(Debug, Clone, Copy)]
enum Message {
    No,
    /// A message on every half, of which a part is sent.
    Half,
}

#[derive(Debug)]
struct Crossing<'a> {
    begin: Begin,
    acts: &'a [Act],
    payloads: &'a [&'static [u8]],
    steps: &'a [Step],
    credit: [u64; 2],
    holds: bool,
}

fn run(crossing: &Crossing<'_>) {
    let mut duo = Duo::new(crossing.credit, crossing.holds);
    match crossing.begin {
        Begin::Entity(kind, message) => {
            let opened = duo.model.open(0, &mut duo.ends[0], opening(kind));
            opened.unwrap();
            duo.settle();
            if let Message::Half = message {
                for (at, target) in [(0, Target::Own(7)), (1, Target::Peer(7))] {
                    if kind.is_read(at == 0) {
                        let granted = duo.model.grant(at, &mut duo.ends[at], target, 1);
                        granted.unwrap();
                        duo.settle();
                    }
                }
                for (at, target) in [(0, Target::Own(7)), (1, Target::Peer(7))] {
                    if kind.is_written(at == 0) {
                        let message = Bytes::from_static(b"message");
                        let sent = duo.model.send(at, &mut duo.ends[at], target, message);
                        sent.unwrap();
                        duo.transmit(at);
                    }
                }
            }
        }
        Begin::Request(len, delivered) => {
            let request = vec![1; len].into();
            let requested = duo.model.request(0, &mut duo.ends[0], 7, request);
            requested.unwrap();
            if delivered {
                duo.settle();
            }
        }
    }
    for ((act, payload), step) in crossing
        .acts
        .iter()
        .zip(crossing.payloads)
        .zip(crossing.steps)
    {
        duo.act(*act, payload);
        duo.step(*step);
    }
    duo.finish(matches!(crossing.begin, Begin::Request(..)));
}

fn tried(crossing: &Crossing<'_>) {
    let ran = std::panic::catch_unwind(|| run(crossing));
    if let Err(panic) = ran {
        eprintln!("{crossing:?}");
        std::panic::resume_unwind(panic);
    }
}

const PAYLOADS: [&[u8]; 2] = [b"", b"12345"];

/// Runs all sequences of `count` acts.
fn all(begin: Begin, of: &[Act], count: usize) {
    let (payloads, steps) = (sequences(&PAYLOADS, count), sequences(&STEPS, count));
    for acts in orders(of, count) {
        for payloads in &payloads {
            for steps in &steps {
                for credit in [CREDIT[0], CREDIT[1], CREDIT[2]] {
                    // One end has all credit that it needs, or both have the same.
                    for credit in [[credit, CREDIT[2]], [CREDIT[2], credit], [credit; 2]] {
                        for holds in [false, true] {
                            let acts = &acts;
                            tried(&Crossing {
                                begin,
                                acts,
                                payloads,
                                steps,
                                credit,
                                holds,
                            });
                        }
                    }
                }
            }
        }
    }
}

/// Runs some sequences of `count` acts, where all of them are too many.
fn some(begin: Begin, of: &[Act], count: usize, runs: usize) {
    let mut random = XorShift::new(7);
    let orders = orders(of, count);
    for _ in 0..runs {
        let acts = &orders[random.below(orders.len())];
        let payloads: Vec<_> = (0..count).map(|_| PAYLOADS[random.below(2)]).collect();
        let steps: Vec<_> = (0..count).map(|_| STEPS[random.below(5)]).collect();
        let credit = [(); 2].map(|()| CREDIT[random.below(3)]);
        tried(&Crossing {
            begin,
            acts,
            payloads: &payloads,
            steps: &steps,
            credit,
            holds: acts.iter().any(|act| matches!(act, Act::Acknowledge(_))),
        });
    }
}

#[test]
fn ends_of_a_sink() {
    for message in [Message::No, Message::Half] {
        let acts = [Act::Close(0), Act::Cancel(1)];
        all(Begin::Entity(EntityKind::Sink, message), &acts, 1);
        all(Begin::Entity(EntityKind::Sink, message), &acts, 2);
    }
}

#[test]
fn ends_of_a_stream() {
    for message in [Message::No, Message::Half] {
        let acts = [Act::Close(1), Act::Cancel(0)];
        all(Begin::Entity(EntityKind::Stream, message), &acts, 1);
        all(Begin::Entity(EntityKind::Stream, message), &acts, 2);
    }
}

const BOTH: [Act; 4] = [Act::Close(0), Act::Cancel(0), Act::Close(1), Act::Cancel(1)];

#[test]
fn two_ends_of_a_duplex() {
    for message in [Message::No, Message::Half] {
        all(Begin::Entity(EntityKind::Duplex, message), &BOTH, 2);
    }
}

#[test]
fn three_and_four_ends_of_a_duplex() {
    for message in [Message::No, Message::Half] {
        some(Begin::Entity(EntityKind::Duplex, message), &BOTH, 3, 4_000);
        some(Begin::Entity(EntityKind::Duplex, message), &BOTH, 4, 4_000);
    }
}

/// The acknowledgement of a close is held, and everything that may come before it comes.
#[test]
fn closes_that_are_acknowledged_late() {
    let with = |acts: &[Act]| {
        let held = [Act::Acknowledge(0), Act::Acknowledge(1)];
        [acts, &held].concat()
    };
    for message in [Message::No, Message::Half] {
        let sink = [Act::Close(0), Act::Cancel(1), Act::Acknowledge(1)];
        some(Begin::Entity(EntityKind::Sink, message), &sink, 3, 6_000);
        let stream = [Act::Close(1), Act::Cancel(0), Act::Acknowledge(0)];
        some(
            Begin::Entity(EntityKind::Stream, message),
            &stream,
            3,
            6_000,
        );
        for count in 3..=6 {
            let duplex = Begin::Entity(EntityKind::Duplex, message);
            some(duplex, &with(&BOTH), count, 4_000);
        }
    }
}

#[test]
fn ends_of_a_request() {
    let acts = [Act::Respond, Act::CloseResponse, Act::CancelRequest];
    for len in [0, 5] {
        for delivered in [true, false] {
            all(Begin::Request(len, delivered), &acts, 1);
            all(Begin::Request(len, delivered), &acts, 2);
            some(Begin::Request(len, delivered), &acts, 3, 2_000);
        }
    }
}
