//! The answers that a channel owes at its end: across a cut, with a journal, and with delayed acknowledgements.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::Duration;

use crate::one_end::{OneEnd, about, acknowledgement, bare, general, id, message, operation, text};
use ackline_core::{Connection, Sequence};
use ackline_relink::Event;
use ackline_relink::frame::{Acknowledgement, Body, Operation, Packet};

fn close() -> Vec<u8> {
    operation(1, Operation::Close, None)
}

fn closed() -> Vec<u8> {
    about(&[1], Body::Acknowledgement(Acknowledgement::Closed))
}

fn consumed(through: u32) -> Vec<u8> {
    acknowledgement(1, Acknowledgement::Consumed, through)
}

fn announced(received: u32) -> Vec<u8> {
    let received = acknowledgement(1, Acknowledgement::Received, received);
    [received, consumed(0), general(Packet::Resume)].concat()
}

fn keep(end: &mut OneEnd) {
    while end.link.poll_journal().is_some() {}
    end.link.journaled(end.now);
}

/// Makes a link with a journal that has not kept the end of channel 1.
fn ending() -> OneEnd {
    let mut config = bare(1, false);
    config.journal = true;
    let mut end = OneEnd::new(config);
    end.take(&message(&[id(1)], &text("m"))).unwrap();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    keep(&mut end);
    let events = end.take(&close()).unwrap();
    assert!(matches!(events.as_slice(), [Event::Closing { .. }]));
    assert_eq!(end.sent(), consumed(0));
    end
}

#[test]
fn closed_waits_until_the_journal_keeps_the_end() {
    let mut end = ending();
    end.take(&close()).unwrap();
    assert_eq!(end.sent(), [0; 0]);
    keep(&mut end);
    assert_eq!(end.sent(), closed());
    assert_eq!(end.link.stats().channels_incoming, 0);
}

#[test]
fn an_end_that_is_kept_after_a_cut_waits_for_the_repeated_close() {
    let mut end = ending();
    end.resume();
    keep(&mut end);
    assert_eq!(end.sent(), announced(0));
    let events = end.take(&close()).unwrap();
    assert!(events.is_empty(), "closing is told once: {events:?}");
    assert_eq!(end.sent(), closed());
    assert_eq!(end.link.stats().channels_incoming, 0);
}

#[test]
fn a_close_that_is_repeated_before_its_end_is_kept_is_answered_once() {
    let mut end = ending();
    end.resume();
    assert_eq!(end.sent(), announced(0));
    end.take(&close()).unwrap();
    assert_eq!(end.sent(), [0; 0]);
    keep(&mut end);
    assert_eq!(end.sent(), closed());
    assert_eq!(end.sent(), [0; 0]);
}

#[test]
fn a_message_that_is_consumed_after_a_cut_ends_the_channel_with_the_repeated_close() {
    let mut end = OneEnd::new(bare(1, false));
    let packets = [message(&[id(1)], &text("m")).repeat(2), close()];
    end.take(&packets.concat()).unwrap();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    end.sent();
    end.resume();
    assert_eq!(end.sent(), announced(1));
    end.link.consume(end.now, &id(1), Sequence(1)).unwrap();
    assert_eq!(end.sent(), consumed(1));
    end.take(&close()).unwrap();
    assert_eq!(end.sent(), closed());
}

/// Makes a link that has delivered two messages and acknowledges them after 5 ms, or two at once.
fn delaying() -> OneEnd {
    let mut config = bare(1, false);
    config.ack_delay = Duration::from_millis(5);
    config.ack_window = 2;
    let mut end = OneEnd::new(config);
    end.take(&message(&[id(1)], &text("m")).repeat(2)).unwrap();
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    let due = end.now + Duration::from_millis(5);
    assert_eq!(end.link.poll_timeout(), Some(due));
    assert_eq!(end.sent(), [0; 0]);
    end
}

#[test]
fn a_full_acknowledgement_window_stops_the_timer() {
    let mut end = delaying();
    end.link.consume(end.now, &id(1), Sequence(1)).unwrap();
    assert_eq!(end.link.poll_timeout(), None);
    assert_eq!(end.sent(), consumed(1));
}

#[test]
fn the_end_of_a_channel_tells_delayed_acknowledgements_and_stops_the_timer() {
    let mut end = delaying();
    end.sent();
    end.advance(Duration::from_millis(5)).unwrap();
    assert_eq!(end.sent(), consumed(0));
    end.link.consume(end.now, &id(1), Sequence(1)).unwrap();
    assert!(end.link.poll_timeout().is_some());
    end.take(&close()).unwrap();
    assert_eq!(end.sent(), [consumed(1), closed()].concat());
    assert_eq!(end.link.poll_timeout(), None);
}

#[test]
fn a_received_that_is_asked_for_keeps_the_delayed_acknowledgement() {
    let mut end = delaying();
    end.link.notify_received(end.now, &id(1)).unwrap();
    let received = acknowledgement(1, Acknowledgement::Received, 1);
    assert_eq!(end.sent(), received);
    assert_eq!(end.sent(), [0; 0]);
    end.advance(Duration::from_millis(5)).unwrap();
    assert_eq!(end.sent(), consumed(0));
    assert_eq!(end.link.poll_timeout(), None);
}

#[test]
fn consumed_messages_free_exactly_their_bytes() {
    let mut end = OneEnd::new(bare(1, false));
    for payload in ["four", "four", "eleven...11", "four"] {
        end.take(&message(&[id(1)], &text(payload))).unwrap();
    }
    let [four, eleven] = ["four", "eleven...11"].map(|payload| text(payload).held_bytes());
    assert_eq!(end.link.held_bytes(), 3 * four + eleven);
    let mut consume = |through| {
        let refused = end.link.consume(end.now, &id(1), Sequence(through));
        (refused.is_ok(), end.link.held_bytes())
    };
    assert_eq!(consume(4), (false, 3 * four + eleven));
    assert_eq!(consume(0), (true, 2 * four + eleven));
    assert_eq!(consume(2), (true, four));
    assert_eq!(consume(1), (false, four));
    assert_eq!(consume(3), (true, 0));
}
