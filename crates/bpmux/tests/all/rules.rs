//! Rules that no vector checks: turns, room, timers, the end, and the counts of all that is kept.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // tests may panic, and need an instant

mod ends;

use std::time::{Duration, Instant};

use ackline_bpmux::chunk::{Decoded, Head, PayloadRole, decode, encode};
use ackline_bpmux::{
    Config, Connection, CreditPolicy, EntityKind, Event, Target, Waiting, refusal,
};
use ackline_core::{Connection as _, ErrorKind, Lifecycle, Need, SendQueue};
use ackline_testkit::pair::Pair;
use bytes::{Buf, Bytes, BytesMut};

pub(crate) const TOP: Target = Target::Top;
pub(crate) const OWN: Target = Target::Own(1);
pub(crate) const PEER: Target = Target::Peer(1);
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn automatic(floor: u64, ceiling: u64, budget: u64) -> Config {
    let credit = CreditPolicy::Automatic {
        floor,
        ceiling,
        budget,
    };
    let chunk_size = 64;
    Config {
        chunk_size,
        credit,
        ..Config::default()
    }
}

pub(crate) fn pair(left: Config, right: Config) -> Pair<Connection, Connection> {
    let now = Instant::now();
    Pair::new(Connection::new(now, left), Connection::new(now, right))
}

pub(crate) fn zeros(len: usize) -> Bytes {
    vec![0; len].into()
}

pub(crate) fn wire(end: &mut Connection) -> BytesMut {
    let mut bytes = BytesMut::new();
    loop {
        let mut out = SendQueue::new();
        end.poll_transmit(Instant::now(), &mut out);
        if out.is_empty() {
            return bytes;
        }
        bytes.extend_from_slice(&out.copy_to_bytes(out.remaining()));
    }
}

fn heads(mut bytes: &[u8]) -> Vec<Head> {
    let mut heads = Vec::new();
    while let Ok(Decoded::Whole { head, len }) = decode(bytes) {
        let payload = match head {
            Head::Payload { length, .. } => usize::try_from(length).unwrap(),
            _ => 0,
        };
        bytes = bytes.get(len + payload..).unwrap_or_default();
        heads.push(head);
    }
    heads
}

/// The end receives these heads, without payloads.
pub(crate) fn takes(end: &mut Connection, heads: &[Head]) -> Result<Need, String> {
    let bytes: Vec<u8> = heads
        .iter()
        .flat_map(|head| encode(*head).as_ref().to_vec())
        .collect();
    let need = end.receive(Instant::now(), &mut BytesMut::from(&bytes[..]));
    need.map_err(|error| error.kind.code().to_owned())
}

pub(crate) fn payload(role: PayloadRole, length: u64) -> Head {
    Head::Payload { role, length }
}

pub(crate) const fn credit(target: Target, amount: u64) -> Head {
    Head::Credit { target, amount }
}

#[test]
fn a_small_message_goes_within_one_turn_of_a_bulk_sender() {
    let mut end = Connection::new(Instant::now(), Config::default());
    let targets: Vec<Target> = (0..10).map(Target::Own).collect();
    for (id, target) in (0..).zip(&targets) {
        end.open(EntityKind::Sink, id, Bytes::new()).unwrap();
        takes(&mut end, &[credit(target.flipped(), 1 << 40)]).unwrap();
    }
    takes(&mut end, &[credit(TOP, 1 << 40)]).unwrap();
    wire(&mut end);
    for _ in 0..4 {
        end.send(targets[0], zeros(64 << 20)).unwrap();
    }
    end.request(1, zeros(16 << 20)).unwrap();
    let mut before = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut before);
    for target in &targets[1..] {
        end.send(*target, zeros(100)).unwrap();
    }
    end.send(TOP, zeros(100)).unwrap();
    let bytes = wire(&mut end);
    let heads = heads(&bytes[..300_000]);
    let bulk = heads.iter().position(|head| {
        matches!(head, Head::Payload { role: PayloadRole::Message(target), .. } if *target == TOP)
    });
    let ahead = heads[..bulk.unwrap()].iter().map(|head| match head {
        Head::Payload { length, .. } if *length > 100 => *length,
        _ => 0,
    });
    assert!(
        ahead.sum::<u64>() <= 3 * 16_384,
        "a chunk of each bulk sender, or two"
    );
}

#[test]
fn jobs_and_writers_get_the_same_share() {
    let mut end = Connection::new(Instant::now(), Config::default());
    for id in 0..4 {
        end.open(EntityKind::Sink, id, Bytes::new()).unwrap();
        takes(&mut end, &[credit(Target::Peer(id), 1 << 40)]).unwrap();
        end.send(Target::Own(id), zeros(8 << 20)).unwrap();
    }
    takes(&mut end, &[credit(TOP, 1 << 40)]).unwrap();
    end.request(1, zeros(8 << 20)).unwrap();
    let bytes = wire(&mut end);
    let (mut jobs, mut all) = (0, 0);
    for head in heads(&bytes[..4 << 20]) {
        if let Head::Payload { role, length } = head {
            all += length;
            jobs += if role == PayloadRole::Request(1) {
                length
            } else {
                0
            };
        }
    }
    assert!(
        all / 6 < jobs && jobs < all / 4,
        "{jobs} of {all}: one of five"
    );
}

#[test]
fn few_payloads_are_in_parts_at_once_and_small_ones_pass_them() {
    let config = Config {
        chunk_size: 10,
        ..Config::default()
    };
    let mut end = Connection::new(Instant::now(), config);
    for id in 0..20 {
        end.request(id, zeros(50)).unwrap();
    }
    end.request(99, zeros(10)).unwrap();
    takes(&mut end, &[credit(TOP, 60)]).unwrap();
    let heads = heads(&wire(&mut end));
    let begun = heads
        .iter()
        .filter(|head| matches!(head, Head::Partial { .. }))
        .count();
    assert_eq!(begun, 4);
    assert!(heads.contains(&payload(PayloadRole::Request(99), 10)));
    takes(&mut end, &[credit(TOP, 1_000)]).unwrap();
    wire(&mut end);
    assert_eq!(
        (end.stats().waiting_bytes, end.counts().sending.jobs),
        (0, 0)
    );
}

#[test]
fn one_large_payload_is_in_parts_at_once_and_an_answer_begins_beside_it() {
    let mut end = Connection::new(Instant::now(), Config::default());
    takes(&mut end, &[payload(PayloadRole::Request(7), 0)]).unwrap();
    for id in 0..3 {
        end.request(id, zeros(1 << 20)).unwrap();
    }
    takes(&mut end, &[credit(TOP, 100_000)]).unwrap();
    end.send(TOP, zeros(1 << 20)).unwrap();
    let roles = |end: &mut Connection| {
        let heads = heads(&wire(end)).into_iter();
        let mut roles: Vec<_> = heads
            .filter_map(|head| match head {
                Head::Payload { role, length } => Some((role, length > 0)),
                _ => None,
            })
            .collect();
        roles.dedup();
        roles
    };
    assert_eq!(roles(&mut end), [(PayloadRole::Request(0), true)]);
    // It begins without credit: the peer learns that it comes.
    end.respond(7, zeros(2 << 20)).unwrap();
    assert_eq!(roles(&mut end), [(PayloadRole::Response(7), false)]);
    takes(&mut end, &[credit(TOP, 1 << 20)]).unwrap();
    // Fewer bytes of the request are left; the next one waits for the answer.
    assert_eq!(
        roles(&mut end),
        [
            (PayloadRole::Request(0), true),
            (PayloadRole::Response(7), true)
        ]
    );
    takes(&mut end, &[credit(TOP, 1 << 30)]).unwrap();
    wire(&mut end);
    assert_eq!(
        (end.stats().waiting_bytes, end.counts().sending.jobs),
        (0, 0)
    );
}

const fn waiting(bytes: usize, payloads: usize) -> Waiting {
    Waiting { bytes, payloads }
}

#[test]
fn payloads_without_bytes_wait_too() {
    let mut end = Connection::new(Instant::now(), Config::default());
    for _ in 0..10 {
        end.send(TOP, Bytes::new()).unwrap();
    }
    end.send(TOP, zeros(30)).unwrap();
    assert_eq!(
        (end.waiting(TOP), end.backlog(TOP)),
        (Ok(30), Ok(waiting(30, 11)))
    );
    for most in [waiting(30, 10), waiting(29, 11)] {
        end.want_room(TOP, most).unwrap();
        assert_eq!(end.poll_event(), None);
    }
    end.want_room(TOP, waiting(30, 10)).unwrap();
    wire(&mut end);
    assert_eq!(end.poll_event(), Some(Event::Room { target: TOP }));
    assert_eq!(end.backlog(TOP), Ok(waiting(30, 1)));
    assert_eq!(end.top_backlog(), waiting(0, 0));
    takes(&mut end, &[credit(TOP, 30)]).unwrap();
    assert_eq!(end.backlog(TOP), Ok(waiting(0, 0)));
}

#[test]
fn payloads_that_wait_on_the_top_level_are_counted_without_the_messages() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.send(TOP, zeros(1_000)).unwrap();
    end.request(1, Bytes::new()).unwrap();
    end.open(EntityKind::Sink, 1, Bytes::new()).unwrap();
    assert_eq!(end.top_backlog(), waiting(0, 2));
    wire(&mut end);
    assert_eq!(end.top_backlog(), waiting(0, 0));
    // These wait for credit: some go in parts, the rest is cancelled.
    end.request(2, zeros(300)).unwrap();
    end.request(3, zeros(50_000)).unwrap();
    assert_eq!(end.top_backlog(), waiting(50_300, 2));
    takes(&mut end, &[credit(TOP, 1_500)]).unwrap();
    let went = end.stats().bytes_sent;
    wire(&mut end);
    let went = usize::try_from(end.stats().bytes_sent.max(went)).unwrap();
    assert_eq!(went, 1_500);
    let (left, message) = (end.top_backlog(), end.waiting(TOP).unwrap());
    assert_eq!(left.bytes + message, 51_300 - went);
    end.cancel_request(3, Bytes::new()).unwrap();
    takes(&mut end, &[credit(TOP, 10_000)]).unwrap();
    wire(&mut end);
    assert_eq!(end.top_backlog(), waiting(0, 0));
    assert_eq!(end.stats().waiting_bytes, 0);
}

#[test]
fn room_is_told_once_when_it_is_there_or_the_half_ends() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.send(TOP, zeros(30)).unwrap();
    assert_eq!(end.waiting(TOP), Ok(30));
    end.want_room(TOP, waiting(10, 1)).unwrap();
    takes(&mut end, &[credit(TOP, 15)]).unwrap();
    assert_eq!((end.poll_event(), end.waiting(TOP)), (None, Ok(15)));
    takes(&mut end, &[credit(TOP, 5)]).unwrap();
    assert_eq!(end.poll_event(), Some(Event::Room { target: TOP }));
    end.want_credit(TOP).unwrap();
    takes(&mut end, &[credit(TOP, 10)]).unwrap();
    assert_eq!((end.poll_event(), end.credit(TOP)), (None, Ok(0)));
    takes(&mut end, &[credit(TOP, 1)]).unwrap();
    assert_eq!(end.poll_event(), Some(Event::Room { target: TOP }));
    assert_eq!(end.poll_event(), None);
    end.open(EntityKind::Sink, 1, Bytes::new()).unwrap();
    end.want_credit(OWN).unwrap();
    assert_eq!(end.poll_event(), None);
    takes(&mut end, &[payload(PayloadRole::Cancel(PEER), 0)]).unwrap();
    assert_eq!(end.poll_event(), Some(Event::Room { target: OWN }));
    end.open(EntityKind::Sink, 2, Bytes::new()).unwrap();
    end.want_credit(Target::Own(2)).unwrap();
    end.close(Target::Own(2), Bytes::new()).unwrap();
    assert!(std::iter::from_fn(|| end.poll_event()).any(|it| it
        == Event::Room {
            target: Target::Own(2)
        }));
}

#[test]
fn payloads_that_had_to_wait_are_told_when_they_were_sent() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.open(EntityKind::Sink, 1, zeros(3)).unwrap();
    assert_eq!(end.send(OWN, zeros(1)), Err(refusal::UNKNOWN_ID));
    takes(&mut end, &[payload(PayloadRole::Request(8), 0)]).unwrap();
    end.poll_event();
    end.respond(8, zeros(3)).unwrap();
    takes(&mut end, &[credit(TOP, 6)]).unwrap();
    let events: Vec<_> = std::iter::from_fn(|| end.poll_event()).collect();
    assert_eq!(
        events,
        [Event::Open { id: 1 }, Event::ResponseSent { id: 8 }]
    );
    assert!(end.is_open(OWN));
    // A response that goes at once is not told.
    takes(&mut end, &[credit(TOP, 6)]).unwrap();
    end.open(EntityKind::Sink, 2, zeros(3)).unwrap();
    wire(&mut end);
    assert_eq!(end.poll_event(), None);
}

#[test]
fn a_close_of_the_top_level_waits_for_the_end_of_a_half_sent_request() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.request(1, zeros(5)).unwrap();
    takes(&mut end, &[credit(TOP, 2)]).unwrap();
    wire(&mut end);
    end.close(TOP, Bytes::new()).unwrap();
    end.cancel_request(1, zeros(4)).unwrap();
    assert_eq!(heads(&wire(&mut end)), []);
    takes(&mut end, &[credit(TOP, 4)]).unwrap();
    let close = payload(PayloadRole::Close(TOP), 0);
    let cancel = payload(PayloadRole::CancelRequest(1), 4);
    assert_eq!(heads(&wire(&mut end)), [cancel, close]);
}

#[test]
fn both_ends_finish_when_a_response_crosses_its_cancel() {
    let mut pair = pair(Config::default(), Config::default());
    pair.left.connection.request(1, Bytes::new()).unwrap();
    for side in [&mut pair.left, &mut pair.right] {
        side.connection.close(TOP, Bytes::new()).unwrap();
    }
    pair.settle();
    pair.set_latency(SECOND);
    pair.right.connection.respond(1, Bytes::new()).unwrap();
    pair.left
        .connection
        .cancel_request(1, Bytes::new())
        .unwrap();
    pair.advance(SECOND * 5);
    let told = pair.left.events();
    assert_eq!(
        told.last(),
        Some(&Event::RequestCancelAcknowledged { id: 1 })
    );
    for side in [&pair.left, &pair.right] {
        assert_ne!(side.connection.lifecycle(), Lifecycle::Open);
        assert_eq!(
            (side.error(), side.connection.counts().tables.own_requests),
            (None, 0)
        );
    }
}

#[test]
fn bytes_behind_the_end_are_dropped_however_they_are_cut() {
    let bytes: Vec<u8> = [
        payload(PayloadRole::Cancel(TOP), 0),
        payload(PayloadRole::Close(TOP), 0),
        // There is no such entity.
        payload(PayloadRole::Message(Target::Own(9)), 0),
    ]
    .iter()
    .flat_map(|head| encode(*head).as_ref().to_vec())
    .collect();
    for cut in 1..=bytes.len() {
        let mut end = Connection::new(Instant::now(), Config::default());
        let mut input = BytesMut::new();
        for part in bytes.chunks(cut) {
            input.extend_from_slice(part);
            let came = end.receive(Instant::now(), &mut input);
            assert!(came.is_ok(), "cut after {cut}");
        }
        assert_eq!(end.lifecycle(), Lifecycle::Draining);
    }
}

#[test]
fn a_cancel_of_the_top_level_that_waits_is_dropped_when_it_was_closed() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.cancel(TOP, zeros(5)).unwrap();
    takes(
        &mut end,
        &[payload(PayloadRole::Close(TOP), 0), credit(TOP, 5)],
    )
    .unwrap();
    assert_eq!(heads(&wire(&mut end)), []);
    assert_eq!(end.stats().waiting_bytes, 0);
    assert_eq!(end.cancel(TOP, Bytes::new()), Err(refusal::ALREADY_ENDED));
}

#[test]
fn after_an_error_answers_go_calls_are_refused_and_nothing_is_held() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.grant_credit(TOP, 100).unwrap();
    end.send(TOP, zeros(500)).unwrap();
    wire(&mut end);
    let mut bytes = Vec::new();
    for head in [
        payload(PayloadRole::Open(EntityKind::Sink, 1), 0),
        payload(PayloadRole::Close(OWN), 0),
        Head::Partial { total: 50 },
        payload(PayloadRole::Request(1), 1),
    ] {
        bytes.extend_from_slice(encode(head).as_ref());
    }
    bytes.push(7);
    end.receive(Instant::now(), &mut BytesMut::from(&bytes[..]))
        .unwrap();
    assert_eq!(end.held_bytes(), 1);
    assert_eq!(
        takes(&mut end, &[Head::AckClose(OWN)]),
        Err("bpmux.unexpected_acknowledgement".into())
    );
    assert_eq!(heads(&wire(&mut end)), [Head::AckClose(PEER)]);
    assert_eq!((end.held_bytes(), end.stats().waiting_bytes), (0, 0));
    assert_eq!(
        takes(&mut end, &[]),
        Err("bpmux.unexpected_acknowledgement".into())
    );
    assert_eq!(
        end.handle_timeout(Instant::now()).unwrap_err().kind.code(),
        "bpmux.unexpected_acknowledgement"
    );
    assert_eq!(end.lifecycle(), Lifecycle::Closed);
    let none = Bytes::new;
    for refused in [
        end.open(EntityKind::Sink, 1, none()),
        end.send(TOP, none()),
        end.close(TOP, none()),
        end.cancel(TOP, none()),
        end.grant_credit(TOP, 1),
        end.ping(TOP),
        end.request(1, none()),
        end.cancel_request(1, none()),
        end.ping_request(1),
        end.respond(1, none()),
        end.close_response(1, none()),
        end.want_room(TOP, waiting(0, 0)),
        end.want_credit(TOP),
        end.credit(TOP).map(drop),
        end.waiting(TOP).map(drop),
    ] {
        assert_eq!(refused, Err(refusal::CLOSED));
    }
    // The events from before the error are still told.
    assert!(matches!(end.poll_event(), Some(Event::Opened { .. })));
}
