//! Peers that flood one end and read nothing: its memory stays below a ceiling, the work grows with the bytes,
//! and each violation is named.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_bpmux::chunk::{Head, PayloadRole, encode};
use ackline_bpmux::{Config, Connection, CreditPolicy, EntityKind, Event, Limits, Target, refusal};
use ackline_core::{Connection as _, ErrorKind, Need, SendQueue};
use bytes::{Buf, Bytes, BytesMut};

use crate::counting::{allocated, peak};

/// Bytes that an end may keep of any flood, with the default limits: 65,536 duplexes that have begun to come take the
/// most.
const CEILING: isize = 80 << 20;
/// Bytes of a flood: enough for every limit that ends one.
const FLOOD: usize = 9 << 18;

fn end(credit: CreditPolicy) -> Connection {
    let config = Config {
        credit,
        ..Config::default()
    };
    Connection::new(Instant::now(), config)
}

/// The application's way with events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum App {
    Takes,
    Keeps,
}

/// The end of a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All of its bytes were taken.
    Taken,
    /// The rest was left in the input.
    Left,
    Refused(&'static str),
}

/// The result of a flood.
#[derive(Debug, Clone, Copy)]
struct Flooded {
    /// The most bytes that were allocated at once.
    most: isize,
    with: End,
}

/// Sends the chunks that `chunk` makes until there were enough, or one is left or refused; nothing that the end emits is
/// read.
fn flood(end: &mut Connection, app: App, mut chunk: impl FnMut(u32) -> Vec<u8>) -> Flooded {
    let now = Instant::now();
    // The bytes that were sent before are read.
    end.poll_transmit(now, &mut SendQueue::new());
    let mut with = End::Taken;
    let most = peak(|| {
        let (mut input, mut sent) = (BytesMut::new(), 0);
        for number in 0_u32.. {
            let bytes = chunk(number);
            sent += bytes.len();
            input.extend_from_slice(&bytes);
            with = take(end, app, &mut input);
            if sent >= FLOOD || with != End::Taken {
                break;
            }
        }
    });
    Flooded { most, with }
}

fn take(end: &mut Connection, app: App, input: &mut BytesMut) -> End {
    loop {
        let before = input.len();
        let need = end.receive(Instant::now(), input);
        if app == App::Takes {
            while let Some(event) = end.poll_event() {
                let target = match event {
                    Event::Message { target, .. } => target,
                    _ => Target::Top,
                };
                let bytes = u64::try_from(event.payload_bytes()).unwrap();
                end.consumed(target, bytes);
            }
        }
        match need {
            Ok(Need::Input { .. }) => return End::Taken,
            Ok(_) if input.len() < before => {}
            Ok(_) => return End::Left,
            Err(error) => return End::Refused(error.kind.code()),
        }
    }
}

#[track_caller]
fn ends(came: Flooded, with: End) {
    assert_eq!(came.with, with);
    assert!(came.most < CEILING, "{} bytes at once", came.most);
}

fn bytes(head: Head) -> Vec<u8> {
    encode(head).as_ref().to_vec()
}

fn payload(role: PayloadRole, payload: &[u8]) -> Vec<u8> {
    let length = u64::try_from(payload.len()).unwrap();
    [&bytes(Head::Payload { role, length }), payload].concat()
}

fn open(kind: EntityKind, id: u32) -> Vec<u8> {
    payload(PayloadRole::Open(kind, id), b"")
}

fn credit(target: Target, amount: u64) -> Vec<u8> {
    bytes(Head::Credit { target, amount })
}

fn partial(total: u64) -> Vec<u8> {
    bytes(Head::Partial { total })
}

const REFUSED: fn(&'static str) -> End = End::Refused;

#[test]
fn credit_above_the_largest_number_is_refused_for_each_half() {
    let mut top = end(CreditPolicy::Manual);
    let twice = |target| move |_| [credit(target, u64::MAX), credit(target, 1)].concat();
    ends(
        flood(&mut top, App::Takes, twice(Target::Top)),
        REFUSED("bpmux.credit_overflow"),
    );
    let mut own = end(CreditPolicy::Manual);
    own.open(EntityKind::Sink, 3, Bytes::new()).unwrap();
    let came = flood(&mut own, App::Takes, twice(Target::Peer(3)));
    ends(came, REFUSED("bpmux.credit_overflow"));
    // Credit of 0 bytes does not overflow, however often it comes.
    let mut none = end(CreditPolicy::Manual);
    let came = flood(&mut none, App::Keeps, |_| credit(Target::Top, 0));
    ends(came, End::Taken);
}

#[test]
fn more_than_the_credit_is_refused_in_the_first_chunk() {
    for role in [
        PayloadRole::Message(Target::Top),
        PayloadRole::Request(0),
        PayloadRole::Open(EntityKind::Sink, 0),
        PayloadRole::Close(Target::Top),
        PayloadRole::CancelRequest(9),
    ] {
        for (granted, policy) in [(0, CreditPolicy::Manual), (4_096, CreditPolicy::AUTOMATIC)] {
            let mut end = end(policy);
            end.poll_transmit(Instant::now(), &mut SendQueue::new());
            let length = granted + 1;
            // The head is enough for the violation.
            let came = flood(&mut end, App::Keeps, |_| {
                bytes(Head::Payload { role, length })
            });
            ends(came, REFUSED("bpmux.credit_exceeded"));
        }
    }
}

#[test]
fn a_length_or_a_total_of_any_size_allocates_nothing() {
    for head in [
        Head::Partial { total: u64::MAX },
        Head::Payload {
            role: PayloadRole::Message(Target::Top),
            length: u64::MAX,
        },
    ] {
        let mut end = end(CreditPolicy::AUTOMATIC);
        let came = flood(&mut end, App::Keeps, |_| bytes(head));
        assert!(came.most < 4_096, "{came:?}");
        assert_eq!(came.with, REFUSED("bpmux.limit_exceeded"));
    }
    // Within the limit the bytes of credit count.
    let mut end = end(CreditPolicy::AUTOMATIC);
    end.poll_transmit(Instant::now(), &mut SendQueue::new());
    let begin = [
        partial(16 << 20),
        payload(PayloadRole::Message(Target::Top), b"1"),
    ]
    .concat();
    let most = peak(|| {
        assert_eq!(
            take(&mut end, App::Keeps, &mut BytesMut::from(&begin[..])),
            End::Taken
        );
    });
    assert!(most < 4_096, "{most}");
    assert_eq!(end.held_bytes(), 1);
}

#[test]
fn a_payload_longer_than_its_total_and_an_activation_of_nothing_are_refused() {
    let beyond = |_| {
        let message = |bytes: &[u8]| payload(PayloadRole::Message(Target::Top), bytes);
        [partial(3), message(b"12"), message(b"34")].concat()
    };
    let came = flood(&mut end(CreditPolicy::AUTOMATIC), App::Keeps, beyond);
    ends(came, REFUSED("bpmux.partial_violation"));
    for second in [partial(3), credit(Target::Top, 1)] {
        let twice = |_| [partial(3), second.clone()].concat();
        let came = flood(&mut end(CreditPolicy::AUTOMATIC), App::Keeps, twice);
        ends(came, REFUSED("bpmux.partial_violation"));
    }
}

#[test]
fn unfinished_payloads_are_limited_by_their_number() {
    // Payloads that begin without a byte cost no credit.
    let begun = |role: PayloadRole| [partial(100), payload(role, b"")].concat();
    let floods: [fn(u32) -> PayloadRole; 3] = [
        |id| PayloadRole::Open(EntityKind::Duplex, id),
        PayloadRole::Request,
        PayloadRole::CancelRequest,
    ];
    for policy in [CreditPolicy::Manual, CreditPolicy::AUTOMATIC] {
        for of in floods {
            let came = flood(&mut end(policy), App::Takes, |id| begun(of(id)));
            ends(came, REFUSED("bpmux.limit_exceeded"));
        }
    }
}

#[test]
fn open_entities_and_requests_are_limited_by_their_number() {
    for kind in [EntityKind::Sink, EntityKind::Stream, EntityKind::Duplex] {
        let came = flood(&mut end(CreditPolicy::AUTOMATIC), App::Takes, |id| {
            open(kind, id)
        });
        ends(came, REFUSED("bpmux.limit_exceeded"));
    }
    let requests = |id| payload(PayloadRole::Request(id), b"");
    let came = flood(&mut end(CreditPolicy::AUTOMATIC), App::Takes, requests);
    ends(came, REFUSED("bpmux.limit_exceeded"));
}

#[test]
fn entities_that_end_at_once_are_left_in_the_input_when_the_answers_are_not_read() {
    // The flood has one id again and again, or always another one.
    for stride in [0, 1] {
        let sinks = |number: u32| {
            let id = number * stride;
            let close = payload(PayloadRole::Close(Target::Own(id)), b"");
            [open(EntityKind::Sink, id), close].concat()
        };
        ends(
            flood(&mut end(CreditPolicy::AUTOMATIC), App::Takes, sinks),
            End::Left,
        );
        let streams = |number: u32| {
            let id = number * stride;
            let cancel = payload(PayloadRole::Cancel(Target::Own(id)), b"");
            [open(EntityKind::Stream, id), cancel].concat()
        };
        ends(
            flood(&mut end(CreditPolicy::AUTOMATIC), App::Takes, streams),
            End::Left,
        );
        let requests = |number: u32| {
            let id = number * stride;
            let cancel = payload(PayloadRole::CancelRequest(id), b"");
            [payload(PayloadRole::Request(id), b""), cancel].concat()
        };
        ends(
            flood(&mut end(CreditPolicy::AUTOMATIC), App::Takes, requests),
            End::Left,
        );
    }
}

#[test]
fn entities_opened_after_the_top_level_was_cancelled_are_limited_too() {
    let floods: [fn(u32) -> Vec<u8>; 2] = [
        |id| open(EntityKind::Duplex, id),
        |id| payload(PayloadRole::Request(id), b""),
    ];
    for of in floods {
        let mut end = end(CreditPolicy::AUTOMATIC);
        end.cancel(Target::Top, Bytes::new()).unwrap();
        ends(
            flood(&mut end, App::Takes, of),
            REFUSED("bpmux.limit_exceeded"),
        );
    }
}

#[test]
fn pings_and_late_cancels_are_left_where_they_are_when_the_answers_are_not_read() {
    let ping = |_| {
        let (pong, target) = (false, Target::Top);
        bytes(Head::Heartbeat { pong, target })
    };
    ends(
        flood(&mut end(CreditPolicy::Manual), App::Takes, ping),
        End::Left,
    );
    let cancel = |_| payload(PayloadRole::CancelRequest(5), b"");
    ends(
        flood(&mut end(CreditPolicy::Manual), App::Takes, cancel),
        End::Left,
    );
    // There is no such request.
    let ping = |_| bytes(Head::PingRequest(5));
    ends(
        flood(&mut end(CreditPolicy::Manual), App::Takes, ping),
        End::Taken,
    );
}

#[test]
fn a_peer_that_does_not_read_its_responses_is_not_read() {
    for response in [Bytes::new(), vec![7; 10_000].into()] {
        let mut end = end(CreditPolicy::Manual);
        let mut input = BytesMut::from(&credit(Target::Top, 1 << 60)[..]);
        let (mut asked, mut left) = (0, false);
        while !left && asked < 2_000_000 {
            input.extend_from_slice(&payload(PayloadRole::Request(asked % 7), b""));
            left = end.receive(Instant::now(), &mut input) == Ok(Need::Room);
            while let Some(event) = end.poll_event() {
                if let Event::Request { id, .. } = event {
                    end.respond(id, response.clone()).unwrap();
                    asked += 1;
                }
            }
        }
        let most = match response.len() {
            0 => 1 << 19,
            each => (32 << 20) / u32::try_from(each).unwrap(),
        };
        // Those of one call come in addition.
        assert!(left && (most..most + 300).contains(&asked), "{asked}");
        // Some chunks are read.
        end.poll_transmit(Instant::now(), &mut SendQueue::new());
        assert_ne!(end.receive(Instant::now(), &mut input), Ok(Need::Room));
        assert!(input.is_empty() && end.poll_event().is_some());
    }
}

#[test]
fn answers_that_are_read_let_the_flood_go_on() {
    let mut end = end(CreditPolicy::Manual);
    let mut input = BytesMut::new();
    for _ in 0..300_000 {
        let (pong, target) = (false, Target::Top);
        input.extend_from_slice(&bytes(Head::Heartbeat { pong, target }));
    }
    let mut pongs = 0;
    while !input.is_empty() || end.counts().sending.control > 0 {
        assert!(end.receive(Instant::now(), &mut input).is_ok());
        let mut out = SendQueue::new();
        end.poll_transmit(Instant::now(), &mut out);
        assert!(out.has_remaining());
        pongs += out.remaining();
    }
    assert_eq!(pongs, 300_000, "a byte each");
}

#[test]
fn a_backlog_of_this_end_does_not_keep_it_from_reading() {
    // Two ends that both have a lot to send, and whose transports are full, would wait for each other.
    let mut end = end(CreditPolicy::Manual);
    for id in 0..100_000 {
        end.request(id, Bytes::new()).unwrap();
    }
    let mut input = BytesMut::from(&open(EntityKind::Sink, 1)[..]);
    assert_eq!(take(&mut end, App::Keeps, &mut input), End::Taken);
    assert!(matches!(end.poll_event(), Some(Event::Opened { .. })));
}

#[test]
fn events_that_nobody_takes_stop_the_reading() {
    let empty = |_| payload(PayloadRole::Message(Target::Top), b"");
    let mut keeps = end(CreditPolicy::AUTOMATIC);
    let came = flood(&mut keeps, App::Keeps, empty);
    assert!(came.most < 1 << 20, "{came:?}");
    assert_eq!(came.with, End::Left);
    let pong = |_| bytes(Head::PongRequest(3));
    ends(
        flood(&mut end(CreditPolicy::AUTOMATIC), App::Keeps, pong),
        End::Left,
    );
    ends(
        flood(&mut end(CreditPolicy::AUTOMATIC), App::Takes, empty),
        End::Taken,
    );
}

#[test]
fn parts_of_one_byte_cost_their_bytes() {
    let config = Config {
        limits: Limits::default(),
        ..Config::default()
    };
    let mut end = Connection::new(Instant::now(), config);
    end.grant_credit(Target::Top, 1 << 30).unwrap();
    end.poll_transmit(Instant::now(), &mut SendQueue::new());
    let total: u32 = 1 << 20;
    let mut wire = BytesMut::from(&partial(total.into())[..]);
    for _ in 0..total {
        wire.extend_from_slice(&payload(PayloadRole::Message(Target::Top), b"x"));
    }
    let came = allocated(|| {
        assert_eq!(take(&mut end, App::Keeps, &mut wire), End::Taken);
    });
    assert!(came < 16 << 20, "{came} for a megabyte");
    let Some(Event::Message { payload, .. }) = end.poll_event() else {
        panic!("it came");
    };
    assert_eq!(payload.bytes(), 1 << 20);
    assert_eq!(end.held_bytes(), 0);
}

/// Returns the bytes allocated for credit of one byte at a time while so many requests wait for it, and half of them are
/// cancelled.
fn waiting(requests: u32) -> usize {
    let mut end = end(CreditPolicy::Manual);
    for id in 0..requests {
        end.request(id, Bytes::from_static(b"request")).unwrap();
    }
    let one = credit(Target::Top, 1);
    allocated(|| {
        for id in (0..requests).rev().step_by(2) {
            end.cancel_request(id, Bytes::new()).unwrap();
            let mut input = BytesMut::from(&one[..]);
            assert_eq!(take(&mut end, App::Keeps, &mut input), End::Taken);
            end.poll_transmit(Instant::now(), &mut SendQueue::new());
        }
    })
}

#[test]
fn credit_one_byte_at_a_time_and_giving_up_cost_the_same_however_many_wait() {
    let (few, many) = (waiting(200), waiting(20_000));
    assert!(many / 100 < few * 4, "{few} for 200, {many} for 20,000");
}

#[test]
fn a_hundred_thousand_jobs_are_given_up_in_any_order() {
    // Quadratic work would not come to its end.
    let mut end = end(CreditPolicy::Manual);
    for id in 0..100_000 {
        end.request(id, Bytes::from_static(b"request")).unwrap();
    }
    for id in (0..100_000).rev() {
        end.cancel_request(id, Bytes::new()).unwrap();
    }
    let counts = end.counts();
    assert_eq!(
        (
            counts.tables.own_requests,
            counts.sending.jobs,
            counts.sending.before_close
        ),
        (0, 0, 0)
    );
    assert_eq!(end.stats().waiting_bytes, 0);
}

#[test]
fn the_first_and_the_last_id_are_ids_and_every_id_can_be_in_use() {
    let mut end = end(CreditPolicy::Manual);
    for id in [0, 255, 256, 65_535, 65_536, u32::MAX] {
        end.open(EntityKind::Sink, id, Bytes::new()).unwrap();
        assert_eq!(
            end.open(EntityKind::Duplex, id, Bytes::new()),
            Err(refusal::ID_IN_USE)
        );
        end.request(id, Bytes::new()).unwrap();
        assert_eq!(end.request(id, Bytes::new()), Err(refusal::ID_IN_USE));
    }
    assert_eq!((end.free_id(), end.free_request_id()), (Ok(1), Ok(1)));
    let close = |id| payload(PayloadRole::Close(Target::Own(id)), b"");
    let twice = |_| {
        [
            open(EntityKind::Sink, u32::MAX),
            open(EntityKind::Stream, u32::MAX),
        ]
        .concat()
    };
    ends(
        flood(&mut end, App::Takes, twice),
        REFUSED("bpmux.id_in_use"),
    );
    let mut other = self::end(CreditPolicy::Manual);
    let again = |_| {
        [
            open(EntityKind::Sink, 0),
            close(0),
            open(EntityKind::Stream, 0),
        ]
        .concat()
    };
    let mut input = BytesMut::from(&again(0)[..]);
    assert_eq!(take(&mut other, App::Takes, &mut input), End::Taken);
    assert!(other.is_open(Target::Peer(0)));
}

#[test]
fn a_huge_credit_that_is_not_read_costs_a_send_queue() {
    let mut end = end(CreditPolicy::Manual);
    let message = Bytes::from(vec![7; 1 << 20]);
    for _ in 0..100 {
        end.send(Target::Top, message.clone()).unwrap();
    }
    let came = flood(&mut end, App::Keeps, |_| credit(Target::Top, 1 << 40));
    assert!(came.most < 4 << 20, "{came:?}");
    assert_eq!(came.with, End::Taken);
    assert!(end.stats().waiting_bytes > 99 << 20);
}

#[test]
fn answers_are_granted_before_they_are_queued() {
    let mut end = Connection::new(Instant::now(), Config::default());
    let (pong, target) = (false, Target::Top);
    let ping = bytes(Head::Heartbeat { pong, target });
    let mut input = BytesMut::from(&ping.repeat(10_000)[..]);
    let mut calls = 0;
    loop {
        let (granted, before) = (end.step_bytes(), end.owed_bytes());
        let need = end.receive(Instant::now(), &mut input).unwrap();
        calls += 1;
        let added = end.owed_bytes() - before;
        // The first call needs no grant.
        assert!(calls == 1 || added <= granted, "{added} and {granted}");
        if need != Need::Again {
            break;
        }
    }
    assert!((40..45).contains(&calls), "{calls}");
    assert!(input.is_empty());
}

#[test]
fn answers_that_are_owed_have_their_bytes_and_give_them_back() {
    let mut end = end(CreditPolicy::Manual);
    end.poll_transmit(Instant::now(), &mut SendQueue::new());
    assert_eq!(end.owed_bytes(), 0);
    let (pong, target) = (false, Target::Top);
    let ping = bytes(Head::Heartbeat { pong, target });
    let mut input = BytesMut::from(&ping.repeat(100)[..]);
    assert_eq!(take(&mut end, App::Takes, &mut input), End::Taken);
    let owed = end.owed_bytes();
    assert!((100 * 16..100 * 128).contains(&owed), "{owed}");
    end.poll_transmit(Instant::now(), &mut SendQueue::new());
    assert_eq!(end.owed_bytes(), 0);
}
