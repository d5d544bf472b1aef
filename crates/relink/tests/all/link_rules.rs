//! The behaviour of a link that the conversations do not cover: wrap, timers, windows, options, its end.

#![allow(clippy::disallowed_methods)] // tests may panic, and need an instant

mod journal;

use std::time::Duration;

use crate::one_end::{
    KEY, OneEnd, about, acknowledgement, bare, general, id, message, operation, text,
};
use ackline_core::{Connection, Lifecycle, LimitHit, Need, SEND_QUEUE_BYTES, Sequence};
use ackline_relink::frame::{Acknowledgement, Body, Operation, Packet};
use ackline_relink::{
    Attach, Change, ChannelId, Event, Kind, Link, LinkState, Payload, Side, StartChannel,
};

const MS: Duration = Duration::from_millis(1);

fn start(side: Side, channel: u8, next: u32) -> StartChannel {
    StartChannel {
        side,
        channel: id(channel),
        next: Sequence(next),
    }
}

#[test]
fn a_receiver_goes_across_the_wrap_and_resumes_there() {
    let mut config = bare(1, true);
    config.channels = vec![start(Side::Incoming, 1, u32::MAX - 1)];
    let mut end = OneEnd::new(config);
    let one = message(&[id(1)], &text("m"));
    let events = end.take(&one.repeat(4)).unwrap();
    let numbers: Vec<u32> = events
        .iter()
        .map(|event| match event {
            Event::Message { sequence, .. } => sequence.0,
            other => unreachable!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1]);
    end.take(&operation(1, Operation::Commit, Some(0))).unwrap();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    assert_eq!(
        end.link.committed(end.now, &id(1), None).unwrap().0,
        u32::MAX - 1
    );
    let through = Some(Sequence(0));
    end.link.uncommitted(end.now, &id(1), through).unwrap();
    let sent = [
        acknowledgement(1, Acknowledgement::Consumed, 0),
        // The first kind acknowledges one message, the other a range.
        about(&[1], Body::Acknowledgement(Acknowledgement::Committed)),
        acknowledgement(1, Acknowledgement::Uncommitted, 0),
    ];
    assert_eq!(end.sent(), sent.concat());
    end.resume();
    let announced = [
        acknowledgement(1, Acknowledgement::Received, 1),
        acknowledgement(1, Acknowledgement::Consumed, 0),
        acknowledgement(1, Acknowledgement::Committed, u32::MAX - 1),
        acknowledgement(1, Acknowledgement::Uncommitted, 0),
        general(Packet::Resume),
    ];
    assert_eq!(end.sent(), announced.concat());
}

#[test]
fn a_sender_resumes_across_the_wrap() {
    let mut config = bare(1, true);
    config.channels = vec![start(Side::Outgoing, 1, u32::MAX)];
    let mut end = OneEnd::new(config);
    for _ in 0..4 {
        end.link.send_to(end.now, &id(1), text("m")).unwrap();
    }
    end.link.commit(end.now, &id(1), Some(Sequence(0))).unwrap();
    end.link
        .rollback(end.now, &id(1), Some(Sequence(1)))
        .unwrap();
    end.sent();
    end.resume();
    assert_eq!(end.sent(), general(Packet::Resume));
    end.take(&acknowledgement(1, Acknowledgement::Received, u32::MAX))
        .unwrap();
    let one = message(&[id(1)], &text("m"));
    assert_eq!(end.sent(), one.repeat(3));
    end.take(&acknowledgement(1, Acknowledgement::Committed, u32::MAX))
        .unwrap();
    end.take(&general(Packet::Resume)).unwrap();
    let again = [
        operation(1, Operation::Commit, Some(0)),
        operation(1, Operation::Rollback, Some(1)),
    ];
    assert_eq!(end.sent(), again.concat());
    let beyond = end
        .take(&acknowledgement(1, Acknowledgement::Consumed, 3))
        .unwrap_err();
    assert!(matches!(
        beyond,
        Kind::OutOfRange {
            what: "consumed",
            sequence: Sequence(3)
        }
    ));
}

#[test]
fn a_refused_multicast_changes_nothing() {
    let mut config = bare(1, false);
    config.send_window = 2;
    let mut end = OneEnd::new(config);
    end.link.send_to(end.now, &id(2), text("a")).unwrap();
    // The same channel twice takes two messages of the window.
    let targets = [id(1), id(2), id(2)];
    let refused = end.link.send(end.now, &targets, text("b")).unwrap_err();
    assert_eq!(refused.code, "window_full");
    assert_eq!(end.link.send_room(&id(1)), 2);
    assert_eq!(end.link.send_room(&id(2)), 1);
    assert_eq!(end.link.channels().count(), 1);
    assert_eq!(end.link.stats().messages_sent, 1);
    let sent = end.link.send(end.now, &[id(1), id(2)], text("c")).unwrap();
    assert_eq!(sent, [Sequence(0), Sequence(1)]);
    let expected = [
        message(&[id(2)], &text("a")),
        message(&[id(1), id(2)], &text("c")),
    ];
    assert_eq!(end.sent(), expected.concat());
}

#[test]
fn a_full_channel_does_not_stall_the_others() {
    let mut config = bare(1, false);
    config.receive_window = 4;
    let mut end = OneEnd::new(config);
    end.take(&message(&[id(1)], &text("slow")).repeat(4))
        .unwrap();
    for number in 0..100 {
        end.take(&message(&[id(2)], &text("fast"))).unwrap();
        end.link.consume(end.now, &id(2), Sequence(number)).unwrap();
    }
    assert_eq!(end.link.stats().messages_received, 104);
}

#[test]
fn a_packet_that_stays_away_ends_the_transport() {
    let mut config = bare(1, false);
    config.packet_receive_timeout = Some(30 * MS);
    let mut end = OneEnd::new(config);
    assert_eq!(end.link.poll_timeout(), None);
    let one = message(&[id(1)], &text("a message of some length"));
    end.take(&one[..9]).unwrap();
    end.advance(29 * MS).unwrap();
    // Each byte restarts the timer.
    end.take(&one[9..10]).unwrap();
    assert_eq!(end.link.poll_timeout(), Some(end.now + 30 * MS));
    // While reading is off, the peer cannot be late.
    end.link.reading(end.now, false);
    end.advance(1_000 * MS).unwrap();
    assert_eq!(end.link.poll_timeout(), None);
    end.link.reading(end.now, true);
    end.advance(29 * MS).unwrap();
    let timeout = end.advance(MS).unwrap_err();
    assert_eq!(
        timeout,
        Kind::Timeout(LimitHit {
            value: 30,
            limit: 30,
            option: "--packet-receive-timeout"
        })
    );
    assert_eq!(end.link.lifecycle(), Lifecycle::Closed);
    // The link goes on.
    end.resume();
    assert_eq!(
        (end.link.lifecycle(), end.link.state()),
        (Lifecycle::Open, LinkState::Resuming)
    );
    assert!(end.link.poll_timeout().is_none());
}

#[test]
fn a_pong_says_how_long_it_took_and_waits_while_we_do_not_read() {
    let mut config = bare(1, false);
    config.pong_timeout = Some(100 * MS);
    let mut end = OneEnd::new(config);
    end.link.ping(end.now).unwrap();
    // The timeout runs from the emission of the ping.
    end.advance(500 * MS).unwrap();
    end.sent();
    end.advance(30 * MS).unwrap();
    let events = end.take(&general(Packet::Pong)).unwrap();
    assert_eq!(
        events,
        [Event::Pong {
            round_trip: 30 * MS
        }]
    );
    assert_eq!(end.link.poll_timeout(), None);
    end.link.ping(end.now).unwrap();
    end.sent();
    end.link.reading(end.now, false);
    end.advance(500 * MS).unwrap();
    end.link.reading(end.now, true);
    end.advance(99 * MS).unwrap();
    let timeout = end.advance(6 * MS).unwrap_err();
    assert_eq!(
        timeout.to_string(),
        "the peer has been silent for 105 ms; --pong-timeout is 100 ms"
    );
    assert_eq!(
        timeout,
        Kind::Timeout(LimitHit {
            value: 105,
            limit: 100,
            option: "--pong-timeout"
        })
    );
}

#[test]
fn acknowledgements_wait_for_each_channel_by_itself() {
    let mut config = bare(1, false);
    config.ack_delay = 100 * MS;
    let mut end = OneEnd::new(config);
    end.take(&message(&[id(1), id(2)], &text("m"))).unwrap();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    end.advance(40 * MS).unwrap();
    end.link.consume(end.now, &id(2), Sequence(0)).unwrap();
    end.advance(60 * MS).unwrap();
    assert_eq!(end.sent(), acknowledgement(1, Acknowledgement::Consumed, 0));
    end.advance(39 * MS).unwrap();
    assert_eq!(end.sent(), b"");
    end.advance(MS).unwrap();
    assert_eq!(end.sent(), acknowledgement(2, Acknowledgement::Consumed, 0));
    assert_eq!(end.link.poll_timeout(), None);
}

#[test]
fn a_close_that_waits_leaves_when_all_is_consumed_and_answered() {
    let mut config = bare(1, true);
    config.close_when_consumed = true;
    let mut end = OneEnd::new(config);
    end.link.send_to(end.now, &id(1), text("m")).unwrap();
    end.link.commit(end.now, &id(1), None).unwrap();
    end.link.close_channel(end.now, &id(1)).unwrap();
    end.sent();
    end.take(&acknowledgement(1, Acknowledgement::Consumed, 0))
        .unwrap();
    assert_eq!(end.sent(), b"");
    let refused = end.link.send_to(end.now, &id(1), text("m")).unwrap_err();
    assert_eq!(refused.code, "channel_closing");
    end.take(&acknowledgement(1, Acknowledgement::Committed, 0))
        .unwrap();
    assert_eq!(end.sent(), operation(1, Operation::Close, None));
}

#[test]
fn a_delivered_and_unconsumed_message_is_skipped_when_it_comes_again() {
    let mut config = bare(1, false);
    config.resume_from_consumed = true;
    let mut end = OneEnd::new(config);
    let texts = ["a", "b", "c"];
    for part in texts {
        end.take(&message(&[id(1)], &text(part))).unwrap();
    }
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    end.sent();
    end.resume();
    let announced = [
        acknowledgement(1, Acknowledgement::Received, 0),
        acknowledgement(1, Acknowledgement::Consumed, 0),
        general(Packet::Resume),
    ];
    assert_eq!(end.sent(), announced.concat());
    // Messages that were not repeated on this transport are not acknowledged on it.
    end.link.consume(end.now, &id(1), Sequence(2)).unwrap();
    assert_eq!(end.sent(), b"");
    assert_eq!(end.take(&message(&[id(1)], &text("b"))).unwrap(), []);
    assert_eq!(end.sent(), acknowledgement(1, Acknowledgement::Consumed, 1));
    let rest = [message(&[id(1)], &text("c")), message(&[id(1)], &text("d"))];
    let events = end.take(&rest.concat()).unwrap();
    assert_eq!(end.sent(), acknowledgement(1, Acknowledgement::Consumed, 2));
    let [
        Event::Message {
            sequence, payload, ..
        },
    ] = events.as_slice()
    else {
        unreachable!("{events:?}");
    };
    assert_eq!((*sequence, payload), (Sequence(3), &text("d")));
    assert_eq!(end.link.stats().messages_skipped, 2);
}

#[test]
fn a_message_that_was_not_sent_again_cannot_be_acknowledged() {
    let mut end = OneEnd::new(bare(1, false));
    for _ in 0..3 {
        end.link.send_to(end.now, &id(1), text("m")).unwrap();
    }
    end.sent();
    end.resume();
    end.sent();
    end.take(&acknowledgement(1, Acknowledgement::Received, 0))
        .unwrap();
    // The peer has announced that it lacks the others, and they have not left yet.
    let beyond = end
        .take(&acknowledgement(1, Acknowledgement::Consumed, 1))
        .unwrap_err();
    let sequence = Sequence(1);
    let what = "consumed";
    assert_eq!(beyond, Kind::OutOfRange { what, sequence });
}

#[test]
fn the_first_outcome_after_a_cut_names_its_number() {
    let mut end = OneEnd::new(bare(1, true));
    end.take(&message(&[id(1)], &text("m")).repeat(3)).unwrap();
    end.take(&operation(1, Operation::Commit, Some(2))).unwrap();
    end.resume();
    end.sent();
    for expected in [
        acknowledgement(1, Acknowledgement::Committed, 0),
        about(&[1], Body::Acknowledgement(Acknowledgement::Committed)),
    ] {
        end.link.committed(end.now, &id(1), None).unwrap();
        assert_eq!(end.sent(), expected);
    }
    // A channel that began after the cut needs no announcement.
    end.take(&message(&[id(2)], &text("m"))).unwrap();
    end.take(&operation(2, Operation::Commit, None)).unwrap();
    end.link.committed(end.now, &id(2), None).unwrap();
    let short = Body::Acknowledgement(Acknowledgement::Committed);
    assert_eq!(end.sent(), about(&[2], short));
}

#[test]
fn an_outcome_given_while_the_channel_is_announced_is_said_once() {
    let mut config = bare(1, true);
    config.max_outcome_runs = 100_000;
    let mut end = OneEnd::new(config);
    let one = message(&[id(1)], &text("m"));
    end.take(&one.repeat(50_000)).unwrap();
    end.take(&operation(1, Operation::Commit, Some(49_999)))
        .unwrap();
    let answer = |end: &mut OneEnd, number: u32| {
        let through = Some(Sequence(number));
        if number.is_multiple_of(2) {
            end.link.committed(end.now, &id(1), through)
        } else {
            end.link.uncommitted(end.now, &id(1), through)
        }
    };
    for number in 0..40_000 {
        answer(&mut end, number).unwrap();
    }
    end.sent();
    end.resume();
    // There is no room for all outcomes. Meanwhile the application gives one more.
    assert_eq!(end.some_sent().len(), SEND_QUEUE_BYTES);
    end.link.uncommitted(end.now, &id(1), None).unwrap();
    let rest = end.sent();
    let last = [
        acknowledgement(1, Acknowledgement::Uncommitted, 40_000),
        general(Packet::Resume),
    ];
    assert!(rest.ends_with(&last.concat()));
    assert_eq!(rest.len(), (16 + 40_000 * 8 + 8) - SEND_QUEUE_BYTES);
}
