//! The ends of connections.

use super::*;

#[test]
fn after_the_peers_end_of_its_direction_settled_messages_are_still_acknowledged() {
    let mut pair = Pair::new(100);
    pair.send("a", b"1");
    pair.send("b", b"2");
    pair.flow();
    let runs = pair.runs();
    pair.end_of_peer();
    assert!(pair.intake.owes_answers());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Closed);
    assert!(pair.settle(&runs[1]));
    assert!(pair.intake.owes_answers(), "the first one is not settled");
    assert!(pair.intake.settle(pair.now, runs[0].token));
    assert!(pair.intake.owes_answers(), "it is still to be sent");
    pair.flow();
    assert!(!pair.intake.owes_answers());
    assert_eq!(pair.acknowledged(), [2]);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn an_acknowledgement_that_is_too_late_is_not_sent() {
    let mut pair = Pair::new(100);
    pair.send("a", b"1");
    pair.flow();
    let runs = pair.runs();
    pair.end_of_peer();
    pair.intake.hang_up();
    assert!(!pair.intake.owes_answers());
    assert!(!pair.settle(&runs[0]));
    assert!(pair.acknowledged().is_empty());
}

#[test]
fn a_transport_that_is_lost_ends_everything() {
    let mut pair = Pair::new(100);
    pair.send("a", b"1");
    pair.flow();
    let runs = pair.runs();
    pair.end_of_peer();
    assert!(!pair.intake.detached(pair.now));
    assert!(!pair.intake.owes_answers());
    assert!(!pair.intake.settle(pair.now, runs[0].token));
}

#[test]
fn a_stop_takes_nothing_more_and_ends_once_all_is_settled() {
    let mut pair = Pair::new(100);
    pair.send("a", b"1");
    pair.send("b", b"2");
    pair.flow();
    let runs = pair.runs();
    pair.intake.stop(pair.now);
    pair.send("a", b"late");
    pair.flow();
    assert!(pair.runs().is_empty() && pair.input.is_empty());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    assert_eq!(pair.intake.poll_timeout(), None);
    assert!(pair.settle(&runs[1]));
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    assert!(pair.settle(&runs[0]));
    assert_eq!(pair.acknowledged(), [2]);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
    assert_eq!(pair.peer.pending(), 1, "the late message is the sender's");
}

#[test]
fn a_stop_before_the_handshake_ends_at_once() {
    let now = Instant::now();
    let mut intake = Intake::new(now, server(9));
    intake.stop(now);
    assert_eq!(intake.lifecycle(), Lifecycle::Draining);
    let mut out = SendQueue::new();
    intake.poll_transmit(now, &mut out);
    assert!(out.is_empty());
}

/// Input that is cut behind so many bytes of the last message; returns the rest.
fn begun(pair: &mut Pair, fragment: bool) -> BytesMut {
    let payload: &'static [u8] = &[7; 100];
    pair.send("a", payload);
    let mut out = SendQueue::new();
    pair.peer.poll_transmit(pair.now, &mut out);
    let mut sent = BytesMut::new();
    sent.put(out);
    let cut = if fragment {
        // One fragment of four: its head and 30 bytes.
        7 + 1 + 30
    } else {
        50
    };
    let rest = sent.split_off(cut);
    pair.input.put(sent);
    pair.receive().unwrap();
    assert_eq!(pair.input.is_empty(), fragment);
    rest
}

#[test]
fn a_connection_that_is_retired_takes_the_message_that_has_begun() {
    for fragment in [false, true] {
        let peer = Config {
            fragment_size: if fragment { 30 } else { 1 << 20 },
            ..with(&["batch-ack"])
        };
        let mut pair = Pair::with(server(100), peer);
        pair.flow();
        let rest = begun(&mut pair, fragment);
        pair.intake.retire();
        assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
        pair.input.put(rest);
        pair.send("a", b"another");
        pair.receive().unwrap();
        pair.flow();
        let runs = pair.runs();
        assert_eq!(runs.len(), 1);
        assert_eq!(payloads(&runs[0])[0].len(), 100);
        pair.send("a", b"late");
        pair.flow();
        assert!(pair.runs().is_empty());
        assert!(pair.settle(&runs[0]));
        assert_eq!(pair.acknowledged(), [1]);
        assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
    }
}

#[test]
fn a_connection_that_is_retired_between_messages_takes_no_more() {
    let mut pair = Pair::new(100);
    pair.send("a", b"1");
    pair.flow();
    let runs = pair.runs();
    pair.intake.retire();
    pair.send("a", b"late");
    pair.flow();
    assert!(pair.runs().is_empty());
    assert!(pair.settle(&runs[0]));
    assert_eq!(pair.acknowledged(), [1]);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn a_silent_peer_is_given_up() {
    for config in [server(9), client(None)] {
        let now = Instant::now();
        let mut intake = Intake::new(now, config);
        let due = intake.poll_timeout().unwrap();
        assert_eq!(due, now + Duration::from_secs(10));
        let ended = intake.handle_timeout(due).unwrap_err();
        assert!(matches!(ended.kind, Kind::Timeout { .. }));
        assert_eq!(intake.lifecycle(), Lifecycle::Closed);
    }
}

#[test]
fn an_error_of_the_peer_is_told_and_ends_the_connection() {
    let mut pair = Pair::new(100);
    pair.send("a", b"x");
    pair.flow();
    let run = &pair.runs()[0];
    pair.peer.fail(&"é".repeat(5_000)).unwrap();
    pair.flow();
    let Some(Note::Failed { error }) = pair.runs().remove(0).note else {
        unreachable!();
    };
    assert_eq!(*error, "é".repeat(TEXT_BYTES / 2) + "…");
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
    assert!(!pair.intake.settle(pair.now, run.token), "nobody reads it");
}
