//! The effect of a transfer on its neighbours: 10,000 streams trickle while one duplex of the same connection
//! carries 100 MB each way.
#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // a test needs some instant
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use ackline_bpmux::{Config, Connection, CreditPolicy, EntityKind, Event, Target};
use ackline_core::{Connection as _, Need, SendQueue};
use bytes::{Buf as _, Bytes, BytesMut};

const STREAMS: u32 = 10_000;
const TRANSFER: usize = 100_000_000;
/// Bytes of a message: enough that its credit is more than leaves at once.
const MESSAGE: usize = 1 << 20;
const SMALL: usize = 64;
/// The id of the duplex: both ends write and read it.
const DUPLEX: u32 = 0;
/// Bytes that arrive at once: the order of arrivals is known as exactly.
const PIECE: usize = 1_024;

/// One end, the rest of its transfer, and its findings.
struct End {
    connection: Connection,
    now: Instant,
    duplex: Target,
    to_send: usize,
    /// Payload bytes of the duplex that came.
    received: usize,
    small_sent: usize,
    small_received: usize,
    /// The most bytes that came between the last byte sent before a small message's call and the message.
    most_before: usize,
    /// The number of small messages with which much of the transfer could have left.
    contended: usize,
}

impl End {
    fn new(duplex: Target) -> Self {
        let config = Config {
            credit: CreditPolicy::AUTOMATIC,
            ..Config::default()
        };
        let now = Instant::now();
        Self {
            connection: Connection::new(now, config),
            now,
            duplex,
            to_send: TRANSFER,
            received: 0,
            small_sent: 0,
            small_received: 0,
            most_before: 0,
            contended: 0,
        }
    }

    /// Queues messages, so that the transfer never waits for its application.
    fn fill(&mut self, payload: &Bytes) {
        while self.to_send > 0 && self.connection.waiting(self.duplex).unwrap() < 4 * MESSAGE {
            let message = payload.slice(..self.to_send.min(MESSAGE));
            self.to_send -= message.len();
            self.connection.send(self.duplex, message).unwrap();
        }
    }

    /// Returns the bytes that leave now, up to the number that a driver takes at once.
    fn leave(&mut self) -> Vec<u8> {
        let mut out = SendQueue::new();
        self.connection.poll_transmit(self.now, &mut out);
        let mut bytes = vec![0; out.remaining()];
        out.copy_to_slice(&mut bytes);
        bytes
    }

    /// Takes bytes in small pieces, of which the first `earlier` bytes had left before a call. Payloads are consumed at
    /// once.
    fn arrive(&mut self, bytes: &[u8], earlier: usize) {
        let mut input = BytesMut::new();
        for (at, piece) in bytes.chunks(PIECE).enumerate() {
            input.extend_from_slice(piece);
            while self.connection.receive(self.now, &mut input).unwrap() == Need::Room {
                self.events((at * PIECE + piece.len()).saturating_sub(earlier));
            }
            self.events((at * PIECE + piece.len()).saturating_sub(earlier));
        }
    }

    fn events(&mut self, before: usize) {
        while let Some(event) = self.connection.poll_event() {
            let Event::Message { target, payload } = event else {
                continue;
            };
            let bytes = payload.bytes();
            self.connection
                .consumed(target, u64::try_from(bytes).unwrap());
            if target == self.duplex {
                self.received += bytes;
            } else {
                assert_eq!(bytes, SMALL);
                self.small_received += 1;
                self.most_before = self.most_before.max(before);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.to_send == 0 && self.received == TRANSFER
    }
}

/// Returns both ends, with all streams open and credit for every one.
fn ends() -> (End, End) {
    let (mut one, mut other) = (
        End::new(Target::Own(DUPLEX)),
        End::new(Target::Peer(DUPLEX)),
    );
    let none = Bytes::new;
    one.connection
        .open(EntityKind::Duplex, DUPLEX, none())
        .unwrap();
    for id in 1..=STREAMS {
        one.connection.open(EntityKind::Duplex, id, none()).unwrap();
    }
    loop {
        let (forth, back) = (one.leave(), other.leave());
        if forth.is_empty() && back.is_empty() {
            break;
        }
        other.arrive(&forth, 0);
        one.arrive(&back, 0);
    }
    assert_eq!(
        other.connection.stats().peer_entities,
        usize::try_from(STREAMS).unwrap() + 1
    );
    (one, other)
}

/// However much of the transfer waits, few of its bytes that had not left at a small message's call come before that
/// message: a quarter of a chunk may be left of the transfer's turn, and a chunk that began there goes whole.
#[test]
fn ten_thousand_streams_trickle_beside_a_hundred_megabytes_each_way() {
    let (mut one, mut other) = ends();
    let payload = Bytes::from(vec![7; MESSAGE]);
    let small = Bytes::from(vec![1; SMALL]);
    let mut ids = (1..=STREAMS).cycle();
    while !one.is_done() || !other.is_done() {
        let ids = (one.to_send > 0 || other.to_send > 0).then(|| ids.next().unwrap());
        let target = |end: &End, id| match end.duplex {
            Target::Own(_) => Target::Own(id),
            _ => Target::Peer(id),
        };
        let [(forth, forth_earlier), (back, back_earlier)] = [&mut one, &mut other].map(|end| {
            end.fill(&payload);
            let mut bytes = end.leave();
            let earlier = bytes.len();
            end.fill(&payload);
            if let Some(id) = ids {
                end.connection.send(target(end, id), small.clone()).unwrap();
                end.small_sent += 1;
            }
            bytes.extend(end.leave());
            end.contended += usize::from(ids.is_some() && bytes.len() > earlier + MESSAGE / 32);
            (bytes, earlier)
        });
        other.arrive(&forth, forth_earlier);
        one.arrive(&back, back_earlier);
    }
    assert_eq!(
        (one.small_received, other.small_received),
        (other.small_sent, one.small_sent)
    );
    let config = one.connection.config();
    let chunk = usize::try_from(config.chunk_size).unwrap();
    // The credit and heads that were owed have few bytes.
    let most = chunk + chunk / 4 + 2 * PIECE;
    for end in [&one, &other] {
        assert!(end.small_received > 100, "{}", end.small_received);
        assert!(end.contended > 50, "{}", end.contended);
        assert!(end.most_before <= most, "{} of {most}", end.most_before);
    }
}

/// The same while no receiver takes the transfer's bytes: its credit ends, that of the streams goes on.
#[test]
fn streams_go_on_beside_a_transfer_that_nobody_reads() {
    let (mut one, mut other) = ends();
    let payload = Bytes::from(vec![7; MESSAGE]);
    let small = Bytes::from(vec![1; SMALL]);
    one.fill(&payload);
    let duplex = other.duplex;
    let mut stuck = 0;
    for id in 1..=STREAMS {
        one.connection.send(Target::Own(id), small.clone()).unwrap();
        let forth = one.leave();
        let mut input = BytesMut::from(&forth[..]);
        let need = other.connection.receive(other.now, &mut input).unwrap();
        assert!(matches!(need, Need::Input { .. }));
        while let Some(event) = other.connection.poll_event() {
            if let Event::Message { target, payload } = event {
                if target == duplex {
                    stuck += payload.bytes();
                } else {
                    other.small_received += 1;
                    let bytes = u64::try_from(payload.bytes()).unwrap();
                    other.connection.consumed(target, bytes);
                }
            }
        }
        let back = other.leave();
        one.arrive(&back, 0);
        one.fill(&payload);
    }
    assert_eq!(other.small_received, usize::try_from(STREAMS).unwrap());
    let CreditPolicy::Automatic { ceiling, .. } = CreditPolicy::AUTOMATIC else {
        unreachable!("it is automatic");
    };
    assert!(
        stuck <= usize::try_from(ceiling).unwrap() + MESSAGE,
        "{stuck}"
    );
    assert!(one.connection.waiting(one.duplex).unwrap() > 0);
}

/// Answers leave while the rest of the input is looked at: both ends of a pipeline work at the same time.
#[test]
fn requests_are_handed_out_a_few_at_a_time() {
    let (mut one, mut other) = (End::new(Target::Own(0)), End::new(Target::Peer(0)));
    for id in 0..40 {
        one.connection.request(id, Bytes::new()).unwrap();
    }
    let mut input = BytesMut::from(&one.leave()[..]);
    let mut portions = Vec::new();
    loop {
        let need = other.connection.receive(other.now, &mut input).unwrap();
        let taken = std::iter::from_fn(|| other.connection.poll_event());
        portions.push(taken.count());
        if need != Need::Room {
            break;
        }
    }
    assert_eq!(portions, [16, 16, 8]);
}
