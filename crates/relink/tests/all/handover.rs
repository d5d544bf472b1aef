//! A link that goes on in another process: its state, its output, and the peer's answers.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use crate::one_end::{KEY, OneEnd, acknowledgement, bare, general, id, message, operation, text};
use ackline_core::Sequence;
use ackline_relink::frame::{Acknowledgement, Operation, Packet};
use ackline_relink::{Attach, Change, Event, Kind, Link, LinkState};

/// Makes a link that has sent three messages on one channel.
fn sent(transactions: bool) -> OneEnd {
    let mut end = OneEnd::new(bare(1, transactions));
    for _ in 0..3 {
        end.link.send_to(end.now, &id(1), text("m")).unwrap();
    }
    assert!(!end.link.is_emitted());
    assert_eq!(end.link.unemitted(), 3);
    end.sent();
    assert!(end.link.is_emitted());
    assert_eq!(end.link.unemitted(), 0);
    end
}

/// Restores the same link in another process and lets it resume.
fn adopted(state: Vec<Change>) -> OneEnd {
    let mut end = OneEnd::new(bare(1, true));
    end.link = Link::restore(bare(1, true), state).unwrap();
    end.link.attach(end.now, Attach::Resumed);
    assert_eq!(end.sent(), general(Packet::Resume));
    end
}

fn announced(received: u32) -> Vec<u8> {
    let packets = [
        acknowledgement(1, Acknowledgement::Received, received),
        acknowledgement(1, Acknowledgement::Consumed, u32::MAX),
        general(Packet::Resume),
    ];
    packets.concat()
}

#[test]
fn the_state_names_the_last_message_and_holds_none() {
    let through = Sequence(2);
    let channel = id(1);
    let expected = vec![
        Change::Established(KEY),
        Change::HandedOver { channel, through },
    ];
    assert_eq!(sent(true).link.hand_over().unwrap(), expected);
    // It works a second time too.
    let end = adopted(expected);
    let again = end.link.hand_over().unwrap();
    let handed = |change: &Change| matches!(change, Change::HandedOver { .. });
    assert_eq!(again.iter().filter(|change| handed(change)).count(), 1);
    let last = adopted(again).link.standings().next().unwrap().absent;
    assert_eq!(last, through);
    assert_eq!(sent(false).link.hand_over().unwrap_err().code, "unconsumed");
}

#[test]
fn nothing_is_sent_again_whatever_the_peer_says_to_have_and_decisions_name_their_numbers() {
    let state = sent(true).link.hand_over().unwrap();
    // A peer announces all three as received, or none if it announces only the consumed ones.
    for received in [2, u32::MAX] {
        let mut end = adopted(state.clone());
        assert_eq!(end.link.unemitted(), 3);
        end.take(&announced(received)).unwrap();
        assert_eq!((end.sent(), end.link.unemitted()), (Vec::new(), 0));
        end.link.commit(end.now, &id(1), Some(Sequence(2))).unwrap();
        assert_eq!(end.sent(), operation(1, Operation::Commit, Some(2)));
        let refused = end.link.send_to(end.now, &id(1), text("n")).unwrap_err();
        assert_eq!(refused.code, "handed_over");
        end.take(&acknowledgement(1, Acknowledgement::Consumed, 1))
            .unwrap();
        let refused = end.link.send_to(end.now, &id(1), text("n")).unwrap_err();
        assert_eq!(refused.code, "handed_over");
        end.take(&acknowledgement(1, Acknowledgement::Consumed, 2))
            .unwrap();
        end.link.send_to(end.now, &id(1), text("n")).unwrap();
        assert_eq!(end.sent(), message(&[id(1)], &text("n")));
    }
}

#[test]
fn a_peer_that_does_not_know_the_channel_has_lost_the_messages() {
    let mut end = adopted(sent(true).link.hand_over().unwrap());
    let lost = end.take(&general(Packet::Resume)).unwrap_err();
    assert_eq!(lost, Kind::ResumeInconsistent);
    assert_eq!(end.link.state(), LinkState::Lost);
    // Messages without a payload here are not handed back.
    assert_eq!(end.link.unacknowledged().count(), 0);
}

#[test]
fn a_decided_message_is_not_repeated_after_a_hand_over() {
    let mut config = bare(1, true);
    config.resume_from_consumed = true;
    let mut end = OneEnd::new(config);
    end.take(&message(&[id(1)], &text("m")).repeat(3)).unwrap();
    end.resume();
    assert_eq!(end.sent(), announced(u32::MAX));
    let events = end.take(&operation(1, Operation::Commit, Some(1))).unwrap();
    assert!(matches!(events.as_slice(), [Event::Decided { .. }]));
    end.link.consume(end.now, &id(1), Sequence(1)).unwrap();
    // One message of the three is repeated.
    assert_eq!(end.sent(), acknowledgement(1, Acknowledgement::Consumed, 1));
    end.take(&message(&[id(1)], &text("m"))).unwrap();
    assert_eq!(end.link.stats().messages_skipped, 1);
    // A message that was not sent cannot be decided.
    let beyond = end.take(&operation(1, Operation::Commit, Some(3)));
    let (what, sequence) = ("commit", Sequence(3));
    assert_eq!(beyond.unwrap_err(), Kind::OutOfRange { what, sequence });
}
