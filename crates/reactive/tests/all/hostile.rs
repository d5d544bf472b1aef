//! Peers that flood one end and read nothing: its memory stays below a ceiling, and each violation is named.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_reactive::{Config, Connection, Event, Role, UNBOUNDED};
use bytes::{Buf as _, BytesMut};

use crate::counting::{allocated, peak};

/// Bytes that an end may keep of any flood, with the default limits.
const CEILING: isize = 100 << 20;
/// Bytes of a flood.
const FLOOD: usize = 200 << 20;

/// A message of these numbers.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let mut rest = *number;
        while rest >= 0x80 {
            bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        bytes.push(u8::try_from(rest).unwrap());
    }
    bytes
}

fn established(role: Role) -> Connection {
    Connection::established(Instant::now(), role, Config::default())
}

/// An end with one subscription without bound.
fn subscriber() -> Connection {
    let mut end = established(Role::Client);
    end.subscribe("p", 1, UNBOUNDED).unwrap();
    end
}

/// The way in which a flood ends: by an error, or with input that is not taken.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Refused(&'static str),
    Held,
    Taken,
}

/// Sends `first`, then the messages of `more` until there were enough; nothing that the end emits is read. The application
/// takes events or keeps them waiting.
fn flood(
    end: &mut Connection,
    first: &[u8],
    takes: bool,
    mut more: impl FnMut(u64) -> Vec<u8>,
) -> (isize, End) {
    let now = Instant::now();
    let mut with = End::Taken;
    let most = peak(|| {
        let mut input = BytesMut::from(first);
        let mut sent = 0;
        let mut number = 0;
        while sent < FLOOD {
            let message = more(number);
            number += 1;
            sent += message.len();
            input.extend_from_slice(&message);
            loop {
                let need = end.receive(now, &mut input);
                while takes && end.poll_event().is_some() {}
                match need {
                    Ok(Need::Input { .. }) => break,
                    Ok(Need::Again) => {}
                    Ok(Need::Room) if takes && end.held_bytes() < 64 << 10 => {}
                    Ok(Need::Room) => {
                        with = End::Held;
                        return;
                    }
                    Err(error) => {
                        with = End::Refused(error.kind.code());
                        return;
                    }
                }
            }
        }
    });
    (most, with)
}

#[test]
fn a_flood_of_subscriptions_is_rejected_above_the_limit_and_stops_when_nobody_reads() {
    for takes in [true, false] {
        let mut end = established(Role::Server);
        let (most, with) = flood(&mut end, &[], takes, |id| {
            [numbers(&[3, 1]), b"p".to_vec(), numbers(&[id, 1])].concat()
        });
        assert_eq!(with, End::Held);
        assert!(most < CEILING, "{most}");
    }
}

#[test]
fn rejections_that_nobody_reads_stop_the_peer() {
    let mut end = established(Role::Server);
    let (most, with) = flood(&mut end, &[], true, |_| {
        let subscribe = [numbers(&[3, 1]), b"p".to_vec(), numbers(&[1, 1])].concat();
        [subscribe, numbers(&[4, 1, 0])].concat()
    });
    assert_eq!(with, End::Held);
    assert!(most < 1 << 20, "{most}");
    // The peer reads: everything goes on.
    let mut out = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut out);
    assert!(out.remaining() > 60_000 && end.held_bytes() < 1_000);
}

#[test]
fn endless_unfinished_elements_end_the_connection() {
    for (part, code) in [
        (0, "reactive.limit_exceeded"),
        (1, "reactive.limit_exceeded"),
        (60_000, "reactive.limit_exceeded"),
    ] {
        let mut end = subscriber();
        let (most, with) = flood(&mut end, &numbers(&[6, 1, 0]), true, |element| {
            let head = numbers(&[11, 1, element, part]);
            [head, vec![7; usize::try_from(part).unwrap()]].concat()
        });
        assert_eq!(with, End::Refused(code), "{part}");
        assert!(most < CEILING, "{most}");
    }
}

#[test]
fn one_endless_element_ends_the_connection_at_its_limit() {
    for part in [1, 1_000, 60_000] {
        let mut end = subscriber();
        let (most, with) = flood(&mut end, &numbers(&[6, 1, 0]), true, |_| {
            let head = numbers(&[11, 1, 0, part]);
            [head, vec![7; usize::try_from(part).unwrap()]].concat()
        });
        assert_eq!(with, End::Refused("reactive.limit_exceeded"), "{part}");
        assert!(most < CEILING, "{most}");
    }
}

#[test]
fn elements_that_nobody_takes_stop_the_peer() {
    for element in [0, 1, 100, 1 << 20] {
        let mut end = subscriber();
        let (most, with) = flood(&mut end, &numbers(&[6, 1, 0]), false, |_| {
            [
                numbers(&[7, 1, element]),
                vec![7; usize::try_from(element).unwrap()],
            ]
            .concat()
        });
        assert_eq!(with, End::Held, "{element}");
        assert!(most < 8 << 20, "{most}");
    }
}

#[test]
fn numbers_that_would_overflow_are_limits() {
    let mut end = subscriber();
    for (size, count) in [(8, 1_u64 << 61), (1 << 24, u64::MAX), (3, u64::MAX / 3 + 1)] {
        let mut input = BytesMut::from(&numbers(&[6, 1, size, 10, 1, count])[..]);
        let error = end.receive(Instant::now(), &mut input).unwrap_err();
        assert_eq!(error.kind.code(), "reactive.limit_exceeded");
        assert_eq!(error.offset, 3 + u64::from(size > 127) * 3);
        end = subscriber();
    }
}

#[test]
fn demand_saturates_and_messages_behind_another_version_are_not_looked_at() {
    let mut end = established(Role::Server);
    let subscribe = [numbers(&[3, 1]), b"p".to_vec(), numbers(&[1, UNBOUNDED])].concat();
    let mut input = BytesMut::from(&subscribe[..]);
    for _ in 0..100 {
        input.extend_from_slice(&numbers(&[4, 1, UNBOUNDED]));
    }
    end.receive(Instant::now(), &mut input).unwrap();
    assert_eq!(end.demand(1), Ok(UNBOUNDED));

    let now = Instant::now();
    let mut end = Connection::new(now, Role::Server, Config::default());
    end.connect(now).unwrap();
    let mut input = BytesMut::from(&[numbers(&[1, 9, 0]), subscribe].concat()[..]);
    let error = end.receive(now, &mut input).unwrap_err();
    assert_eq!(error.kind.code(), "reactive.unsupported_version");
    assert_eq!(
        (end.poll_event(), end.lifecycle()),
        (None, Lifecycle::Closed)
    );
}

#[test]
fn ten_thousand_subscriptions_live_on_one_connection() {
    let (mut one, mut other) = (established(Role::Client), established(Role::Server));
    let (mut to, mut back) = (BytesMut::new(), BytesMut::new());
    for id in 0..10_000 {
        one.subscribe("p", id, 3).unwrap();
    }
    carry(&mut one, &mut other, &mut to);
    let mut asked = 0;
    while let Some(event) = other.poll_event() {
        let Event::Subscribe { subscriber, .. } = event else {
            unreachable!("{event:?}")
        };
        other.accept(subscriber, 4).unwrap();
        other.next_packed(subscriber, vec![7; 12].into()).unwrap();
        other.complete(subscriber).unwrap();
        asked += 1;
        if asked % 256 == 0 {
            carry(&mut one, &mut other, &mut to);
        }
    }
    assert_eq!(asked, 10_000);
    let (mut elements, mut complete) = (0, 0);
    for _ in 0..1_000 {
        carry(&mut other, &mut one, &mut back);
        while let Some(event) = one.poll_event() {
            match event {
                Event::Packed { elements: all, .. } => elements += all.len() / 4,
                Event::Complete { .. } => complete += 1,
                _ => {}
            }
        }
    }
    assert_eq!((elements, complete), (30_000, 10_000));
    assert_eq!(
        (one.held_bytes(), other.held_bytes(), other.waiting_bytes()),
        (0, 0, 0)
    );
    assert_eq!(one.free_id(), 0, "ids of complete streams are used again");
}

/// Carries what one end emits to the other; `left` is the part of a message that is not whole.
fn carry(from: &mut Connection, to: &mut Connection, left: &mut BytesMut) {
    let (now, mut out) = (Instant::now(), SendQueue::new());
    from.poll_transmit(now, &mut out);
    left.extend_from_slice(&out.copy_to_bytes(out.remaining()));
    while to.receive(now, left).unwrap() == Need::Again {}
}

#[test]
fn packed_elements_are_handed_on_without_a_copy() {
    let mut end = subscriber();
    let now = Instant::now();
    end.receive(now, &mut BytesMut::from(&numbers(&[6, 1, 8])[..]))
        .unwrap();
    let mut input = BytesMut::from(&[numbers(&[10, 1, 1 << 17]), vec![7; 1 << 20]].concat()[..]);
    let bytes = allocated(|| {
        end.receive(now, &mut input).unwrap();
        let Some(Event::Subscribed { .. }) = end.poll_event() else {
            unreachable!()
        };
        let Some(Event::Packed { elements, .. }) = end.poll_event() else {
            unreachable!()
        };
        assert_eq!(elements.len(), 1 << 20);
    });
    assert!(bytes < 4_096, "{bytes}");
}
