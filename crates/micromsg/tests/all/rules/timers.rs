//! Deadlines: the handshake, silence inside a message, and acknowledgements.

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle};
use ackline_micromsg::{AckPolicy, Config, Connection, Negotiation, Role, Terms};
use bytes::BytesMut;

use super::{ack, connecting, established_with, handshake, list, message, sent, shake, take};

/// A time, and the seconds behind it.
fn clock() -> (Instant, impl Fn(u64) -> Instant) {
    let begin = Instant::now();
    (begin, move |seconds| begin + Duration::from_secs(seconds))
}

const SECONDS: Duration = Duration::from_secs(10);

fn timed_out(end: &mut Connection, now: Instant, option: &str) {
    let error = end.handle_timeout(now).unwrap_err();
    assert_eq!(
        (error.kind.code(), error.kind.option()),
        ("micromsg.timeout", Some(option))
    );
    assert_eq!(
        (end.lifecycle(), end.poll_timeout()),
        (Lifecycle::Closed, None)
    );
    assert!(
        sent(end).ends_with(format!("({option})").as_bytes()),
        "the peer is told"
    );
}

#[test]
fn the_peer_has_a_time_for_its_part_of_the_handshake_which_stands_while_nothing_is_read() {
    for role in [Role::Client, Role::Server] {
        let (begin, at) = clock();
        let config = Config {
            handshake_timeout: Some(SECONDS),
            ..Config::default()
        };
        let mut end = Connection::new(begin, role, config);
        assert_eq!(end.poll_timeout(), None);
        end.connect(begin).unwrap();
        assert_eq!(end.poll_timeout(), Some(at(10)));
        // Bytes of a handshake do not make it longer.
        end.receive(at(3), &mut BytesMut::from(&[1, 0][..]))
            .unwrap();
        assert_eq!(end.poll_timeout(), Some(at(10)));
        end.reading(at(5), false);
        assert_eq!(end.poll_timeout(), None);
        assert_eq!(end.handle_timeout(at(60)), Ok(()));
        end.reading(at(60), true);
        assert_eq!(end.poll_timeout(), Some(at(65)), "five seconds are left");
        assert_eq!(end.handle_timeout(at(64)), Ok(()));
        sent(&mut end);
        timed_out(&mut end, at(65), "--handshake-timeout");
    }
    let config = Config {
        handshake_timeout: Some(SECONDS),
        ..Config::default()
    };
    let (mut client, mut server) = (
        connecting(Role::Client, config.clone()),
        connecting(Role::Server, config),
    );
    let bytes = sent(&mut client);
    take(&mut server, &bytes);
    assert!(
        server.poll_timeout().is_some(),
        "the final handshake is missing"
    );
    shake(&mut client, &mut server);
    assert_eq!((client.poll_timeout(), server.poll_timeout()), (None, None));
}

#[test]
fn silence_inside_a_frame_or_a_message_in_fragments_ends_the_connection_and_other_silence_does_not()
{
    let begun = message(0, 1, b"12345");
    let fragment = [message(16, 1, b"1"), message(16, 1, b"2")].concat();
    for (bytes, is_inside) in [
        (&begun[..9], true),
        (&begun, false),
        (&fragment, true),
        (&fragment[..3], true),
    ] {
        let (begin, at) = clock();
        let config = Config {
            message_receive_timeout: Some(SECONDS),
            ..Config::default()
        };
        let mut end = Connection::established(begin, Role::Server, config, list("x-note")).unwrap();
        assert_eq!(end.poll_timeout(), None);
        let mut input = BytesMut::from(bytes);
        end.receive(at(100), &mut input).unwrap();
        assert_eq!(end.poll_timeout(), is_inside.then_some(at(110)));
        // The same bytes again are no news.
        end.receive(at(105), &mut input).unwrap();
        assert_eq!(end.poll_timeout(), is_inside.then_some(at(110)));
        if !is_inside {
            continue;
        }
        assert_eq!(end.handle_timeout(at(109)), Ok(()));
        end.reading(at(109), false);
        assert_eq!(end.poll_timeout(), None);
        end.reading(at(209), true);
        assert_eq!(end.poll_timeout(), Some(at(210)));
        timed_out(&mut end, at(210), "--message-receive-timeout");
    }
}

#[test]
fn fragments_that_go_on_are_no_silence_and_the_last_ends_it() {
    let (begin, at) = clock();
    let config = Config {
        message_receive_timeout: Some(SECONDS),
        ..Config::default()
    };
    let mut end = Connection::established(begin, Role::Server, config, Vec::new()).unwrap();
    for second in 1..100 {
        end.receive(
            at(second * 9),
            &mut BytesMut::from(&message(16, 1, b"")[..]),
        )
        .unwrap();
        assert_eq!(end.poll_timeout(), Some(at(second * 9 + 10)));
        assert_eq!(end.handle_timeout(at(second * 9 + 9)), Ok(()));
    }
    assert_eq!(end.finished(), 0);
    end.receive(at(900), &mut BytesMut::from(&message(0, 1, b"")[..]))
        .unwrap();
    assert_eq!((end.poll_timeout(), end.finished()), (None, 1));
}

#[test]
fn r_mm_v12_the_ack_timer_runs_from_the_first_processed_message_and_stops_with_any_acknowledgement()
{
    let (begin, at) = clock();
    let config = Config {
        ack_policy: AckPolicy::Automatic,
        ack_timer: Some(SECONDS),
        ..Config::default()
    };
    let mut end =
        Connection::established(begin, Role::Client, config, list("batch-ack:max-count=4"))
            .unwrap();
    for number in 1..=4 {
        take(&mut end, &message(0, number, b""));
    }
    assert_eq!(end.poll_timeout(), None, "nothing is processed");
    end.processed(at(1), 1).unwrap();
    end.processed(at(5), 2).unwrap();
    assert_eq!(end.poll_timeout(), Some(at(11)));
    // It is this end's timer: it goes on while nothing is read.
    end.reading(at(5), false);
    assert_eq!(end.poll_timeout(), Some(at(11)));
    end.handle_timeout(at(10)).unwrap();
    assert_eq!(sent(&mut end), b"");
    end.handle_timeout(at(11)).unwrap();
    assert_eq!((sent(&mut end), end.poll_timeout()), (ack(1, 2), None));
    end.processed(at(20), 3).unwrap();
    end.ack(3).unwrap();
    assert_eq!((sent(&mut end), end.poll_timeout()), (ack(1, 3), None));
    // As many as the window are acknowledged at once.
    for number in 5..=7 {
        take(&mut end, &message(0, number, b""));
    }
    end.processed(at(30), 6).unwrap();
    assert_eq!(sent(&mut end), b"");
    end.processed(at(31), 7).unwrap();
    assert_eq!((sent(&mut end), end.poll_timeout()), (ack(1, 7), None));
}

#[test]
fn processed_messages_are_acknowledged_before_an_orderly_end() {
    let config = Config {
        ack_policy: AckPolicy::Automatic,
        ..Config::default()
    };
    let mut end = established_with(config, "batch-ack");
    take(&mut end, &[message(0, 1, b""), message(0, 2, b"")].concat());
    end.processed(Instant::now(), 1).unwrap();
    end.close().unwrap();
    assert_eq!(sent(&mut end), ack(1, 1));
}

#[test]
fn a_peer_is_not_late_while_the_application_decides_on_its_proposal() {
    let config = Config {
        handshake_timeout: Some(Duration::from_secs(10)),
        terms: Terms {
            negotiation: Negotiation::Manual,
            ..Terms::default()
        },
        ..Config::default()
    };
    let start = Instant::now();
    let mut server = Connection::new(start, Role::Server, config);
    server.connect(start).unwrap();
    assert_eq!(server.poll_timeout(), Some(start + Duration::from_secs(10)));
    assert_eq!(take(&mut server, &handshake([1, 0], "", "json")), None);
    assert_eq!(server.poll_timeout(), None);
    let answered = start + Duration::from_secs(60);
    server.handle_timeout(answered).unwrap();
    server.answer(answered, Vec::new(), Vec::new()).unwrap();
    let due = answered + Duration::from_secs(10);
    assert_eq!(server.poll_timeout(), Some(due), "it is the peer's turn");
    let late = server.handle_timeout(due).unwrap_err();
    assert_eq!(late.kind.code(), "micromsg.timeout");
}
