//! Closes whose acknowledgement waits for the application, and the calls and chunks that are possible meanwhile.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a failed unwrap is a failed test, which needs some instant

use std::time::Instant;

use ackline_bpmux::chunk::{Decoded, Head, PayloadRole, decode, encode};
use ackline_bpmux::{Config, Connection, EntityKind, Event, Kind, Subject, Target, refusal};
use ackline_core::{Connection as _, Lifecycle, Need, SendQueue};
use bytes::{Buf, Bytes, BytesMut};

const OWN: Target = Target::Own(1);
const PEER: Target = Target::Peer(1);

fn holding() -> Connection {
    let config = Config {
        holds_close_acks: true,
        ..Config::default()
    };
    Connection::new(Instant::now(), config)
}

/// The peer sends a chunk without payload bytes.
fn takes(end: &mut Connection, head: Head) -> Result<(), Kind> {
    let mut input = BytesMut::from(encode(head).as_ref());
    let taken = end.receive(Instant::now(), &mut input);
    taken.map(|_| ()).map_err(|error| error.kind)
}

const fn empty(role: PayloadRole) -> Head {
    let length = 0;
    Head::Payload { role, length }
}

/// Returns the heads that the end sends.
fn heads(end: &mut Connection) -> Vec<Head> {
    parts(end, b"")
}

/// Returns the heads that the end sends with this payload each.
fn parts(end: &mut Connection, payload: &[u8]) -> Vec<Head> {
    let mut out = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut out);
    let bytes = out.copy_to_bytes(out.remaining());
    let mut rest = &bytes[..];
    let mut heads = Vec::new();
    while let Decoded::Whole { head, len } = decode(rest).unwrap() {
        rest = &rest[len..];
        if matches!(head, Head::Payload { .. }) {
            assert_eq!(&rest[..payload.len()], payload);
            rest = &rest[payload.len()..];
        }
        heads.push(head);
    }
    heads
}

fn events(end: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| end.poll_event()).collect()
}

/// Returns an end whose peer has opened an entity and closed the half that it writes.
fn closed(kind: EntityKind) -> Connection {
    let mut end = holding();
    takes(&mut end, empty(PayloadRole::Open(kind, 1))).unwrap();
    takes(&mut end, empty(PayloadRole::Close(OWN))).unwrap();
    assert_eq!(heads(&mut end), []);
    let told = events(&mut end);
    assert!(matches!(
        told[..],
        [Event::Opened { .. }, Event::Closed { target: PEER, .. }]
    ));
    end
}

#[test]
fn a_held_acknowledgement_goes_when_it_is_called_for_and_frees_the_id() {
    let mut end = closed(EntityKind::Sink);
    assert!(end.exists(Subject::Entity(PEER)));
    assert_eq!(end.counts().tables.held_closes, 1);
    assert_eq!(end.acknowledge_close(PEER), Ok(()));
    assert_eq!(heads(&mut end), [Head::AckClose(PEER)]);
    assert!(!end.exists(Subject::Entity(PEER)));
    assert_eq!(end.acknowledge_close(PEER), Err(refusal::UNKNOWN_ID));
    takes(&mut end, empty(PayloadRole::Open(EntityKind::Sink, 1))).unwrap();
}

#[test]
fn the_id_is_in_use_until_then() {
    let mut end = closed(EntityKind::Sink);
    let what = PayloadRole::Open(EntityKind::Sink, 1);
    let error = takes(&mut end, empty(what)).unwrap_err();
    assert_eq!(error, Kind::IdInUse { what });
}

#[test]
fn a_second_close_and_a_message_behind_it_are_invalid() {
    let what = Subject::Entity(PEER);
    for role in [PayloadRole::Close(OWN), PayloadRole::Message(OWN)] {
        let mut end = closed(EntityKind::Sink);
        let error = takes(&mut end, empty(role)).unwrap_err();
        assert_eq!(error, Kind::AlreadyEnded { what });
    }
}

#[test]
fn a_half_that_is_open_or_written_here_cannot_be_acknowledged() {
    let mut end = holding();
    for (kind, error) in [
        (EntityKind::Sink, refusal::NOT_CLOSED),
        (EntityKind::Stream, refusal::WRONG_DIRECTION),
    ] {
        let id = u32::from(kind == EntityKind::Sink);
        takes(&mut end, empty(PayloadRole::Open(kind, id))).unwrap();
        assert_eq!(end.acknowledge_close(Target::Peer(id)), Err(error));
    }
    takes(&mut end, empty(PayloadRole::Close(Target::Top))).unwrap();
    assert_eq!(end.acknowledge_close(Target::Top), Err(refusal::NOT_CLOSED));
    let mut plain = Connection::new(Instant::now(), Config::default());
    takes(&mut plain, empty(PayloadRole::Open(EntityKind::Duplex, 1))).unwrap();
    takes(&mut plain, empty(PayloadRole::Close(OWN))).unwrap();
    assert_eq!(plain.acknowledge_close(PEER), Err(refusal::NOT_CLOSED));
}

#[test]
fn the_other_half_of_a_duplex_lives_and_ends_by_itself() {
    let mut end = closed(EntityKind::Duplex);
    let (pong, target) = (false, OWN);
    takes(&mut end, Head::Heartbeat { pong, target }).unwrap();
    let (pong, target) = (true, PEER);
    assert_eq!(heads(&mut end), [Head::Heartbeat { pong, target }]);
    takes(&mut end, empty(PayloadRole::Cancel(OWN))).unwrap();
    assert_eq!(heads(&mut end), [Head::AckCancel(PEER)]);
    let (pong, target) = (false, OWN);
    takes(&mut end, Head::Heartbeat { pong, target }).unwrap();
    assert_eq!(heads(&mut end), [], "a ping of what is over is ignored");
    assert!(end.exists(Subject::Entity(PEER)));
    end.acknowledge_close(PEER).unwrap();
    assert_eq!(heads(&mut end), [Head::AckClose(PEER)]);
    assert!(!end.exists(Subject::Entity(PEER)));
}

#[test]
fn a_closed_half_can_be_cancelled_and_its_cancel_goes_before_the_acknowledgement() {
    let mut end = closed(EntityKind::Sink);
    assert_eq!(end.cancel(PEER, Bytes::new()), Ok(()));
    assert_eq!(end.cancel(PEER, Bytes::new()), Err(refusal::ALREADY_ENDED));
    end.acknowledge_close(PEER).unwrap();
    let cancel = empty(PayloadRole::Cancel(PEER));
    assert_eq!(heads(&mut end), [cancel, Head::AckClose(PEER)]);
    takes(&mut end, Head::AckCancel(OWN)).unwrap();
    assert!(!end.exists(Subject::Entity(PEER)));
}

#[test]
fn an_acknowledgement_waits_for_a_cancel_that_waits_for_credit_and_goes_behind_it() {
    let why = Bytes::from_static(b"why");
    for before in [true, false] {
        let mut end = holding();
        takes(&mut end, empty(PayloadRole::Open(EntityKind::Sink, 1))).unwrap();
        if before {
            end.cancel(PEER, why.clone()).unwrap();
        }
        takes(&mut end, empty(PayloadRole::Close(OWN))).unwrap();
        if !before {
            end.cancel(PEER, why.clone()).unwrap();
        }
        end.acknowledge_close(PEER).unwrap();
        assert_eq!(end.acknowledge_close(PEER), Err(refusal::NOT_CLOSED));
        assert_eq!(heads(&mut end), []);
        let (target, amount) = (Target::Top, 1);
        let mut sent = Vec::new();
        for part in [b"w", b"h", b"y"] {
            takes(&mut end, Head::Credit { target, amount }).unwrap();
            sent.extend(parts(&mut end, part));
        }
        let role = PayloadRole::Cancel(PEER);
        let part = Head::Payload { role, length: 1 };
        let all = [Head::Partial { total: 3 }, part, part, part];
        assert_eq!(sent, [&all[..], &[Head::AckClose(PEER)]].concat());
        takes(&mut end, Head::AckCancel(OWN)).unwrap();
        assert!(!end.exists(Subject::Entity(PEER)));
    }
}

#[test]
fn the_end_of_the_connection_waits_for_it() {
    let mut end = closed(EntityKind::Sink);
    for role in [
        PayloadRole::Close(Target::Top),
        PayloadRole::Cancel(Target::Top),
    ] {
        takes(&mut end, empty(role)).unwrap();
    }
    assert_eq!(
        (end.lifecycle(), heads(&mut end)),
        (Lifecycle::Open, vec![])
    );
    end.acknowledge_close(PEER).unwrap();
    assert_eq!(end.lifecycle(), Lifecycle::Draining);
    assert_eq!(heads(&mut end), [Head::AckClose(PEER)]);
}

#[test]
fn a_close_that_is_held_when_the_connection_ends_is_never_acknowledged() {
    let mut end = closed(EntityKind::Sink);
    end.receive_eof(Instant::now()).unwrap();
    assert_eq!(end.acknowledge_close(PEER), Err(refusal::CLOSED));
    assert_eq!(heads(&mut end), []);
}

#[test]
fn a_refused_half_is_acknowledged_at_once_since_the_application_is_not_told_of_it() {
    let mut end = holding();
    end.cancel(Target::Top, Bytes::new()).unwrap();
    heads(&mut end);
    takes(&mut end, empty(PayloadRole::Open(EntityKind::Sink, 1))).unwrap();
    takes(&mut end, empty(PayloadRole::Close(OWN))).unwrap();
    let sent = heads(&mut end);
    assert!(sent.contains(&Head::AckClose(PEER)), "{sent:?}");
    assert_eq!(events(&mut end), []);
}

#[test]
fn a_released_half_acknowledges_the_close_that_has_come_and_the_one_that_comes() {
    let mut end = closed(EntityKind::Sink);
    assert_eq!(end.release_close(PEER), Ok(()));
    assert_eq!(heads(&mut end), [Head::AckClose(PEER)]);
    assert_eq!(end.release_close(PEER), Err(refusal::UNKNOWN_ID));

    let mut end = holding();
    takes(&mut end, empty(PayloadRole::Open(EntityKind::Sink, 1))).unwrap();
    assert_eq!(end.release_close(PEER), Ok(()));
    assert_eq!(end.release_close(PEER), Ok(()));
    assert_eq!(heads(&mut end), []);
    takes(&mut end, empty(PayloadRole::Close(OWN))).unwrap();
    assert_eq!(heads(&mut end), [Head::AckClose(PEER)]);
    assert_eq!(end.counts().tables.held_closes, 0);
    assert!(!end.exists(Subject::Entity(PEER)));
}

#[test]
fn a_release_concerns_one_half_and_keeps_the_order_of_cancel_and_acknowledgement() {
    let mut end = holding();
    takes(&mut end, empty(PayloadRole::Open(EntityKind::Sink, 1))).unwrap();
    takes(&mut end, empty(PayloadRole::Open(EntityKind::Sink, 2))).unwrap();
    end.release_close(Target::Peer(2)).unwrap();
    takes(&mut end, empty(PayloadRole::Close(OWN))).unwrap();
    assert_eq!(heads(&mut end), [], "the first is still held");

    end.cancel(PEER, Bytes::new()).unwrap();
    end.release_close(PEER).unwrap();
    let sent = heads(&mut end);
    assert_eq!(
        sent,
        [empty(PayloadRole::Cancel(PEER)), Head::AckClose(PEER)]
    );
}

#[test]
fn a_release_of_a_half_that_cannot_be_read_is_refused() {
    let mut end = holding();
    assert_eq!(end.release_close(PEER), Err(refusal::UNKNOWN_ID));
    takes(&mut end, empty(PayloadRole::Open(EntityKind::Stream, 1))).unwrap();
    assert_eq!(end.release_close(PEER), Err(refusal::WRONG_DIRECTION));
}

#[test]
fn so_many_held_closes_end_the_reading_until_one_is_acknowledged() {
    let config = Config {
        most_held_closes: 2,
        ..*holding().config()
    };
    let mut end = Connection::new(Instant::now(), config);
    let mut input = BytesMut::new();
    for id in 1..=3 {
        for role in [
            PayloadRole::Open(EntityKind::Sink, id),
            PayloadRole::Close(Target::Own(id)),
        ] {
            input.extend_from_slice(encode(empty(role)).as_ref());
        }
    }
    assert_eq!(end.receive(Instant::now(), &mut input), Ok(Need::Room));
    assert_eq!(end.counts().tables.held_closes, 2);
    assert!(!input.is_empty(), "the third waits");
    end.acknowledge_close(PEER).unwrap();
    end.receive(Instant::now(), &mut input).unwrap();
    assert!(input.is_empty());
    assert_eq!(end.counts().tables.held_closes, 2);
}
