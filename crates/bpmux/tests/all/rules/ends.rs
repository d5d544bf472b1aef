//! The ends of connections, halves and requests, and the timers.

use super::*;

#[test]
fn the_peers_end_frees_partial_payloads_and_refuses_calls() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.grant_credit(TOP, 100).unwrap();
    end.request(4, zeros(40)).unwrap();
    wire(&mut end);
    let mut bytes = encode(payload(PayloadRole::Message(TOP), 30))
        .as_ref()
        .to_vec();
    bytes.extend_from_slice(&[0; 30]);
    end.receive(Instant::now(), &mut BytesMut::from(&bytes[..]))
        .unwrap();
    takes(&mut end, &[payload(PayloadRole::Message(TOP), 50)]).unwrap();
    end.receive_eof(Instant::now()).unwrap();
    assert_eq!((end.held_bytes(), end.stats().waiting_bytes), (30, 0));
    assert_eq!(end.send(TOP, Bytes::new()), Err(refusal::CLOSED));
    end.poll_event();
    assert_eq!((end.held_bytes(), end.lifecycle()), (0, Lifecycle::Closed));
}

#[test]
fn silence_is_answered_by_a_ping_and_its_pong_is_awaited() {
    let config = Config {
        ping_after: Some(SECOND),
        pong_timeout: Some(2 * SECOND),
        ..Config::default()
    };
    let mut pair = pair(config, Config::default());
    pair.advance(SECOND * 7 / 2);
    assert_eq!(pair.left.events(), vec![Event::Pong { target: TOP }; 3]);
    pair.set_latency(60 * SECOND);
    pair.advance(SECOND * 2);
    assert_eq!(pair.left.error(), None);
    pair.advance(SECOND * 2);
    let error = pair.left.error().unwrap();
    assert_eq!(
        (error.kind.code(), error.kind.option()),
        ("bpmux.timeout", Some("--pong-timeout"))
    );
}

#[test]
fn a_chunk_that_has_begun_must_come_and_reading_off_stops_the_clock() {
    let config = Config {
        chunk_receive_timeout: Some(SECOND),
        ..Config::default()
    };
    let start = Instant::now();
    for paused in [false, true] {
        let mut end = Connection::new(start, config);
        assert_eq!(end.poll_timeout(), None);
        let mut input = BytesMut::from(&[0x90][..]);
        end.receive(start, &mut input).unwrap();
        assert_eq!(end.poll_timeout(), Some(start + SECOND));
        if paused {
            end.reading(start, false);
            assert_eq!(end.poll_timeout(), None);
            assert!(end.handle_timeout(start + 9 * SECOND).is_ok());
            end.reading(start + 9 * SECOND, true);
            assert_eq!(end.poll_timeout(), Some(start + 10 * SECOND));
        }
        let error = end.handle_timeout(start + 10 * SECOND).unwrap_err();
        assert_eq!(error.kind.option(), Some("--chunk-receive-timeout"));
    }
}

#[test]
fn a_chunk_size_of_nothing_is_one() {
    let config = Config {
        chunk_size: 0,
        ..Config::default()
    };
    let mut end = Connection::new(Instant::now(), config);
    end.request(1, zeros(3)).unwrap();
    end.send(TOP, zeros(3)).unwrap();
    takes(&mut end, &[credit(TOP, 6)]).unwrap();
    let sent = heads(&wire(&mut end));
    assert_eq!(sent.len(), 8, "two totals, six parts: {sent:?}");
}

#[test]
fn a_cancelled_request_keeps_no_turn_for_the_next_of_its_id() {
    let mut end = Connection::new(Instant::now(), Config::default());
    end.request(1, zeros(5)).unwrap();
    end.request(2, zeros(5)).unwrap();
    end.cancel_request(1, Bytes::new()).unwrap();
    end.request(1, zeros(5)).unwrap();
    takes(&mut end, &[credit(TOP, 5)]).unwrap();
    let sent = heads(&wire(&mut end));
    assert_eq!(sent, [payload(PayloadRole::Request(2), 5)]);
}

#[test]
fn payloads_that_the_peer_drops_at_our_cancel_of_the_top_level_hold_nothing() {
    for role in [
        PayloadRole::Close(TOP),
        PayloadRole::Message(TOP),
        PayloadRole::Request(1),
        PayloadRole::Open(EntityKind::Sink, 1),
    ] {
        for cancelled_before in [false, true] {
            let mut end = Connection::new(Instant::now(), automatic(10, 10, 0));
            wire(&mut end);
            if cancelled_before {
                end.cancel(TOP, Bytes::new()).unwrap();
            }
            takes(&mut end, &[Head::Partial { total: 50 }]).unwrap();
            let mut part = BytesMut::from(encode(payload(role, 10)).as_ref());
            part.extend_from_slice(b"0123456789");
            end.receive(Instant::now(), &mut part).unwrap();
            if !cancelled_before {
                assert_eq!(end.counts().credit.set_aside, 50);
                end.cancel(TOP, Bytes::new()).unwrap();
            }
            let counts = end.counts();
            assert_eq!(
                (counts.credit.set_aside, counts.credit.unread),
                (0, 0),
                "{role}"
            );
            assert!(
                counts.credit.granted >= 10,
                "there is credit for others: {counts:?}"
            );
            let is_kept = role == PayloadRole::Close(TOP);
            assert_eq!(end.held_bytes(), if is_kept { 10 } else { 0 });
        }
    }
}

#[test]
fn a_pong_is_not_missed_while_reading_is_off() {
    let config = Config {
        ping_after: Some(SECOND),
        pong_timeout: Some(2 * SECOND),
        ..Config::default()
    };
    let start = Instant::now();
    let mut end = Connection::new(start, config);
    end.handle_timeout(start + SECOND).unwrap();
    end.poll_transmit(start + SECOND, &mut SendQueue::new());
    assert_eq!(end.poll_timeout(), Some(start + 3 * SECOND));
    end.reading(start + SECOND, false);
    end.reading(start + 9 * SECOND, true);
    assert_eq!(end.poll_timeout(), Some(start + 11 * SECOND));
    assert!(end.handle_timeout(start + 10 * SECOND).is_ok());
    assert!(end.handle_timeout(start + 11 * SECOND).is_err());
}

/// The peer's credit left it before it read our close, even if the peer has cancelled before
/// (R-BPM-11).
#[test]
fn credit_behind_the_peers_cancel_is_ignored_until_our_close_is_answered() {
    let mut end = Connection::new(Instant::now(), automatic(10, 10, 0));
    end.open(EntityKind::Sink, 1, Bytes::new()).unwrap();
    wire(&mut end);
    end.close(OWN, Bytes::new()).unwrap();
    wire(&mut end);
    let cancel = payload(PayloadRole::Cancel(OWN.flipped()), 0);
    takes(&mut end, &[cancel, credit(OWN.flipped(), 5)]).unwrap();
    takes(&mut end, &[credit(OWN.flipped(), 5)]).unwrap();
    // With the answer the half is over, and its id is unknown to credit.
    takes(&mut end, &[Head::AckClose(OWN.flipped())]).unwrap();
    takes(&mut end, &[credit(OWN.flipped(), 5)]).unwrap_err();
    // Without a close of ours the cancel is the peer's last chunk for it.
    let mut end = Connection::new(Instant::now(), automatic(10, 10, 0));
    end.open(EntityKind::Sink, 1, Bytes::new()).unwrap();
    wire(&mut end);
    takes(&mut end, &[cancel, credit(OWN.flipped(), 5)]).unwrap_err();
}

/// The same calls and bytes give the same answers, although tables of ids have a secret order.
#[test]
fn ids_are_free_in_the_same_order_after_the_peers_cancel_of_the_top_level() {
    let ids = || {
        let mut end = Connection::new(Instant::now(), Config::default());
        for id in 0..64 {
            end.open(EntityKind::Sink, id, zeros(9)).unwrap();
        }
        // So all of them were handed out.
        assert_eq!(end.free_id(), Ok(64));
        takes(&mut end, &[payload(PayloadRole::Cancel(TOP), 0)]).unwrap();
        end.free_id()
    };
    assert!((0..8).all(|_| ids() == Ok(63)));
}
