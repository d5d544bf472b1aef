//! Packets in one read have the same effect as in two reads, also when the last one is wrong. Also tests the implicit
//! channel before its first message.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::Duration;

use crate::one_end::{OneEnd, about, acknowledgement, bare, general, id, message, operation, text};
use ackline_core::{Need, Sequence};
use ackline_relink::frame::{Acknowledgement, Body, Operation, Packet};
use ackline_relink::{Change, ChannelId, Event, Kind, Link};

/// Returns the events and the output of these packets, delivered in so many reads.
fn read(
    end: &mut OneEnd,
    packets: &[Vec<u8>],
    in_one: bool,
) -> (Vec<Event>, Vec<u8>, Option<Kind>) {
    let reads = if in_one {
        vec![packets.concat()]
    } else {
        packets.to_vec()
    };
    let (mut events, mut sent, mut error) = (Vec::new(), Vec::new(), None);
    for bytes in reads {
        let mut need = end.receive(&bytes);
        while matches!(need, Ok(Need::Again | Need::Room)) {
            events.extend(end.events());
            need = end.receive(&[]);
        }
        error = need.err().map(|error| error.kind);
        events.extend(end.events());
        sent.extend(end.sent());
    }
    (events, sent, error)
}

fn close() -> Vec<u8> {
    operation(1, Operation::Close, None)
}

fn closed() -> Vec<u8> {
    about(&[1], Body::Acknowledgement(Acknowledgement::Closed))
}

/// Makes a link that was cut before the answer to the close of channel 1 had left.
fn cut_before_closed() -> OneEnd {
    let mut end = OneEnd::new(bare(1, false));
    end.take(&[message(&[id(1)], &text("old")), close()].concat())
        .unwrap();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    end.resume();
    let announced = [
        acknowledgement(1, Acknowledgement::Received, 0),
        acknowledgement(1, Acknowledgement::Consumed, 0),
        general(Packet::Resume),
    ];
    assert_eq!(end.sent(), announced.concat());
    end
}

#[test]
fn a_repeated_close_is_answered_before_the_first_message_of_the_next_life() {
    for wrong in [false, true] {
        let mut packets = vec![
            close(),
            message(&[id(1)], &text("new")),
            general(Packet::Ping),
        ];
        if wrong {
            packets.push(vec![0xe0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let one = read(&mut cut_before_closed(), &packets, true);
        let two = read(&mut cut_before_closed(), &packets, false);
        assert_eq!((&one.0, one.2.is_some()), (&two.0, wrong));
        let new = Event::Message {
            channel: id(1),
            sequence: Sequence(0),
            payload: text("new"),
        };
        assert_eq!(one.0, [new]);
        let mut answers = [closed(), general(Packet::Pong)];
        assert_eq!(two.1, answers.concat());
        // In one output, pongs come first.
        answers.reverse();
        assert_eq!(one.1, answers.concat());
    }
}

#[test]
fn a_life_without_its_closed_is_announced_unless_the_next_one_has_begun() {
    let mut end = cut_before_closed();
    end.take(&close()).unwrap();
    assert_eq!(end.link.stats().channels_incoming, 0);
    end.resume();
    let old = acknowledgement(1, Acknowledgement::Consumed, 0);
    let sent = end.sent();
    assert!(
        sent.windows(old.len()).any(|bytes| bytes == old),
        "{sent:x?}"
    );
    end.take(&[close(), message(&[id(1)], &text("new"))].concat())
        .unwrap();
    end.resume();
    let announced = [
        acknowledgement(1, Acknowledgement::Received, 0),
        acknowledgement(1, Acknowledgement::Consumed, u32::MAX),
        general(Packet::Resume),
    ];
    assert_eq!(end.sent(), announced.concat(), "the life that has begun");
    assert_eq!(end.link.stats().channels_incoming, 1);
}

#[test]
fn only_the_output_of_packets_before_a_failing_one_still_leaves() {
    let wrong = vec![0xe0, 0, 0, 0, 0, 0, 0, 0];
    let close = operation(9, Operation::Close, None);
    let mut end = OneEnd::new(bare(1, false));
    let (_, sent, error) = read(&mut end, &[general(Packet::Ping), close, wrong], true);
    let closed = about(&[9], Body::Acknowledgement(Acknowledgement::Closed));
    assert_eq!(sent, [general(Packet::Pong), closed].concat());
    assert!(matches!(error, Some(Kind::UnusedEnumeration { .. })));
    end.link.send_to(end.now, &id(1), text("later")).unwrap();
    assert_eq!(end.sent(), Vec::<u8>::new());
}

#[test]
fn an_acknowledgement_on_an_implicit_channel_without_messages_is_out_of_range() {
    let consumed = |through| {
        let body = Body::SequenceAcknowledgement(Acknowledgement::Consumed, Sequence(through));
        about(&[], body)
    };
    let taken = |bytes: &[u8]| OneEnd::new(bare(0, true)).take(bytes);
    // At the start, nothing is acknowledged.
    assert_eq!(taken(&consumed(u32::MAX)), Ok(Vec::new()));
    for bytes in [
        consumed(0),
        about(&[], Body::Acknowledgement(Acknowledgement::Consumed)),
        about(&[], Body::Acknowledgement(Acknowledgement::Closed)),
        about(
            &[],
            Body::SequenceAcknowledgement(Acknowledgement::Committed, Sequence(0)),
        ),
    ] {
        let refused = taken(&bytes);
        assert!(
            matches!(refused, Err(Kind::OutOfRange { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_close_of_an_implicit_channel_without_messages_is_told_and_answered() {
    let mut end = OneEnd::new(bare(0, false));
    let events = end.take(&about(&[], Body::Operation(Operation::Close)));
    let channel = ChannelId::IMPLICIT;
    assert_eq!(events, Ok(vec![Event::Closing { channel }]));
    let closed = about(&[], Body::Acknowledgement(Acknowledgement::Closed));
    assert_eq!(end.sent(), closed);
}

#[test]
fn a_snapshot_holds_a_channel_whose_last_consumed_number_is_the_highest() {
    let config = bare(1, false);
    let consumed = |through| Change::Consumed {
        channel: id(1),
        through: Sequence(through),
    };
    let key = crate::one_end::KEY;
    let begun = [Change::Established(key), consumed(u32::MAX - 1)];
    let mut link = Link::restore(config.clone(), begun).unwrap();
    let mut end = OneEnd::new(config.clone());
    link.attach(end.now, ackline_relink::Attach::New(key));
    end.link = link;
    end.take(&message(&[id(1)], &text("m"))).unwrap();
    end.link
        .consume(end.now, &id(1), Sequence(u32::MAX))
        .unwrap();
    let snapshot = end.link.snapshot();
    assert_eq!(snapshot, [Change::Established(key), consumed(u32::MAX)]);
    let again = Link::restore(config, snapshot.clone()).unwrap();
    assert_eq!(again.snapshot(), snapshot);
}

#[test]
fn delayed_acknowledgements_of_one_instant_leave_by_ascending_channel() {
    let mut config = bare(1, false);
    config.ack_delay = Duration::from_millis(5);
    let mut end = OneEnd::new(config);
    let channels = [3, 1, 2];
    for channel in channels {
        end.take(&message(&[id(channel)], &text("m"))).unwrap();
    }
    for channel in channels {
        end.link
            .consume(end.now, &id(channel), Sequence(0))
            .unwrap();
    }
    assert_eq!(end.sent(), Vec::<u8>::new());
    end.advance(Duration::from_millis(5)).unwrap();
    let each = [1, 2, 3].map(|channel| acknowledgement(channel, Acknowledgement::Consumed, 0));
    assert_eq!(end.sent(), each.concat());
}
