//! Rules that the vectors leave out: the order of what is sent, calls in every state, and ids that are used again.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_reactive::message::{ExtensionMessage, FieldKind};
use ackline_reactive::{Config, Connection, Event, Role, UNBOUNDED};
use bytes::{Buf as _, Bytes, BytesMut};

fn established(role: Role) -> Connection {
    Connection::established(Instant::now(), role, Config::default())
}

fn connecting(role: Role, config: Config) -> Connection {
    let mut end = Connection::new(Instant::now(), role, config);
    end.connect(Instant::now()).unwrap();
    end
}

/// Delivers bytes; the code of the error, if they are refused.
fn take(end: &mut Connection, bytes: &[u8]) -> Option<&'static str> {
    let mut input = BytesMut::from(bytes);
    let taken = end.receive(Instant::now(), &mut input);
    taken.err().map(|error| error.kind.code())
}

fn sent(end: &mut Connection) -> Vec<u8> {
    let mut out = SendQueue::new();
    end.poll_transmit(Instant::now(), &mut out);
    out.copy_to_bytes(out.remaining()).to_vec()
}

fn events(end: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| end.poll_event()).collect()
}

/// An established end that has accepted the peer's subscription 1 without bound.
fn publisher(element_size: u64) -> Connection {
    let mut end = established(Role::Server);
    let subscribe = [&[3, 1, b'p', 1][..], &[0xff; 8], &[0x7f]].concat();
    assert_eq!(take(&mut end, &subscribe), None);
    events(&mut end);
    end.accept(1, element_size).unwrap();
    sent(&mut end);
    end
}

#[test]
fn answers_that_were_caused_go_out_before_a_goodbye_however_the_bytes_come() {
    let hello = [1, 0, 0];
    for (first, last, before) in [
        (&hello[..], &[14][..], &[2, 0, 0][..]),
        (&hello, &[13, 0], &[2, 0, 0]),
        (
            &[1, 0, 0, 3, 1, b's', 1, 1, 4, 1, 0],
            &[14],
            &[2, 0, 0, 6, 1, 0, 9, 1],
        ),
    ] {
        let mut outputs = Vec::new();
        for at_once in [true, false] {
            let mut end = connecting(Role::Server, Config::default());
            let mut output = Vec::new();
            if at_once {
                take(&mut end, &[first, last].concat());
            } else {
                assert_eq!(take(&mut end, first), None);
                output.extend(sent(&mut end));
                take(&mut end, last);
            }
            output.extend(sent(&mut end));
            assert_eq!(&output[..before.len()], before);
            outputs.push(output);
        }
        assert_eq!(outputs[0], outputs[1]);
    }
}

#[test]
fn every_verb_is_refused_before_the_beginning_and_after_the_end() {
    let mut end = Connection::new(Instant::now(), Role::Server, Config::default());
    for has_begun in [false, true] {
        if has_begun {
            end.connect(Instant::now()).unwrap();
        }
        let codes = [
            end.demand(1).unwrap_err().code,
            end.requested(1).unwrap_err().code,
            end.waiting(1).unwrap_err().code,
            end.extensions().unwrap_err().code,
            end.goodbye("").unwrap_err().code,
        ];
        assert_eq!(codes, ["not_connected"; 5]);
    }
    assert_eq!(
        end.connect(Instant::now()).unwrap_err().code,
        "not_connected"
    );
    take(&mut end, &[1, 0, 0, 13, 0]);
    assert_eq!(end.extensions().unwrap_err().code, "not_connected");
    assert_eq!(end.lifecycle(), Lifecycle::Draining);
}

#[test]
fn bytes_before_the_beginning_wait_for_it() {
    let now = Instant::now();
    let mut end = Connection::new(now, Role::Server, Config::default());
    let mut input = BytesMut::from(&[1, 0, 0][..]);
    assert_eq!(end.receive(now, &mut input), Ok(Need::Room));
    end.connect(now).unwrap();
    end.receive(now, &mut input).unwrap();
    assert_eq!(sent(&mut end), [2, 0, 0]);
}

#[test]
fn an_id_in_use_is_named_before_a_wrong_demand() {
    let mut end = established(Role::Client);
    end.subscribe("p", 1, 0).unwrap();
    let code = |error: ackline_core::UsageError| error.code;
    assert_eq!(
        end.subscribe("p", 1, u64::MAX).map_err(code),
        Err("subscriber_in_use")
    );
    assert_eq!(
        end.subscribe("p", 2, u64::MAX).map_err(code),
        Err("invalid_demand")
    );
}

#[test]
fn after_its_goodbye_an_end_learns_what_it_needs_and_drops_the_rest() {
    let config = || Config {
        extensions: vec![9],
        extension_messages: vec![ExtensionMessage {
            message_type: 64,
            extension: 9,
            fields: vec![FieldKind::Bytes],
        }],
        ..Config::default()
    };
    let mut end = connecting(Role::Client, config());
    end.goodbye("x").unwrap();
    assert_eq!(sent(&mut end), [1, 0, 1, 9, 13, 1, b'x']);
    // The hello makes the extension active, and its message can be delimited; so can a subscription that is unknown.
    let late = [2, 0, 1, 9, 64, 1, 7, 6, 5, 0, 2, 0, 0, 4, 1, 0, 8, 5];
    let code = take(&mut end, &late[..16]);
    assert_eq!((code, events(&mut end)), (None, vec![]));
    assert_eq!(take(&mut end, &[13, 1, b'y']), None);
    let told = Event::Goodbye { reason: "y".into() };
    assert_eq!(events(&mut end), [told]);
    assert_eq!(sent(&mut end), b"");
}

#[test]
fn a_goodbye_that_was_not_sent_yet_is_the_only_one() {
    for (bytes, code) in [
        (&[14][..], Some("reactive.unknown_message_type")),
        (&[13, 0], None),
    ] {
        let mut end = established(Role::Client);
        end.goodbye("own").unwrap();
        assert_eq!(take(&mut end, bytes), code);
        assert_eq!(sent(&mut end), b"\x0d\x03own");
    }
}

#[test]
fn the_time_for_the_answer_begins_when_the_goodbye_is_sent() {
    let now = Instant::now();
    let wait = Duration::from_secs(5);
    let config = Config {
        goodbye_timeout: Some(wait),
        ..Config::default()
    };
    let mut end = Connection::established(now, Role::Client, config);
    end.goodbye("").unwrap();
    assert_eq!(end.poll_timeout(), None);
    let later = now + wait;
    end.poll_transmit(later, &mut SendQueue::new());
    assert_eq!(end.poll_timeout(), Some(later + wait));
    end.handle_timeout(later + wait).unwrap();
    assert_eq!(end.lifecycle(), Lifecycle::Draining);
}

#[test]
fn messages_go_out_in_the_order_of_their_calls_and_large_elements_in_turns() {
    let mut end = publisher(0);
    end.next(1, vec![Bytes::from_static(b"a")]).unwrap();
    end.subscribe("q", 7, 3).unwrap();
    end.next(1, vec![Bytes::from_static(b"b")]).unwrap();
    let first = [7, 1, 1, b'a', 3, 1, b'q', 7, 3, 7, 1, 1, b'b'];
    assert_eq!(sent(&mut end), first);
    end.next(1, vec![vec![7; 200_000].into()]).unwrap();
    end.request(7, 1).unwrap();
    let out = sent(&mut end);
    let part = 65_536 + 6;
    assert_eq!(
        (&out[..3], &out[part..part + 3]),
        (&[11, 1, 0][..], &[4, 7, 1][..])
    );
}

#[test]
fn accepted_and_rejected_subscriptions_that_nobody_reads_stop_the_peer() {
    for accepts in [true, false] {
        let mut end = established(Role::Server);
        let mut cycles = 0;
        loop {
            let mut input = BytesMut::from(&[3, 1, b'p', 1, 1][..]);
            if end.receive(Instant::now(), &mut input).unwrap() == Need::Room {
                break;
            }
            events(&mut end);
            if accepts {
                end.accept(1, 4).unwrap();
                end.next_packed(1, vec![7; 4].into()).unwrap();
                take(&mut end, &[5, 1]);
                events(&mut end);
            } else {
                end.reject(1, "there is no such publisher").unwrap();
            }
            cycles += 1;
        }
        assert!((1_000..30_000).contains(&cycles), "{cycles}");
        assert!(end.held_bytes() < 100_000);
        sent(&mut end);
        assert!(end.held_bytes() < 1_000, "{}", end.held_bytes());
    }
}

#[test]
fn a_reason_is_kept_once_for_all_streams_that_it_ends() {
    let mut end = established(Role::Client);
    for id in 0..10_000 {
        end.subscribe("p", id, 0).unwrap();
    }
    let reason = vec![b'x'; 60_000];
    let goodbye = [&[13, 0xe0, 0xd4, 0x03][..], &reason].concat();
    assert_eq!(take(&mut end, &goodbye), None);
    assert!(end.held_bytes() < 2 << 20, "{}", end.held_bytes());
    let told = events(&mut end);
    let is_told =
        |event: &Event| matches!(event, Event::Error { error, .. } if error.len() == 60_000);
    assert_eq!(told.iter().filter(|one| is_told(one)).count(), 10_000);
}

#[test]
fn an_id_is_free_once_the_application_knows_of_its_end() {
    let mut end = established(Role::Client);
    end.subscribe("p", 1, 1).unwrap();
    take(&mut end, &[6, 1, 0, 7, 1, 1, b'x', 8, 1]);
    assert_eq!(end.free_id(), 2, "its events are not taken yet");
    assert_eq!(events(&mut end).len(), 3);
    assert_eq!(end.free_id(), 1);
}

#[test]
fn what_the_peer_cancels_after_a_goodbye_is_not_sent() {
    let mut end = publisher(0);
    end.next(1, vec![Bytes::from_static(b"late")]).unwrap();
    end.goodbye("").unwrap();
    assert_eq!(take(&mut end, &[5, 1]), None);
    assert_eq!(sent(&mut end), [13, 0]);
    assert_eq!(events(&mut end), [Event::Cancel { subscriber: 1 }]);
}

#[test]
fn small_parts_are_put_together_up_to_the_limit_of_an_element() {
    let limit = 100_000;
    let mut config = Config::default();
    config.limits.max_element_bytes = limit;
    config.limits.max_unfinished_bytes = 1;
    let mut end = Connection::established(Instant::now(), Role::Client, config);
    end.subscribe("p", 1, UNBOUNDED).unwrap();
    assert_eq!(take(&mut end, &[6, 1, 0]), None);
    for _ in 0..limit {
        assert_eq!(take(&mut end, &[11, 1, 0, 1, b'x']), None);
    }
    assert_eq!(take(&mut end, &[12, 1, 0, 0]), None);
    let Some(Event::Next { element, .. }) = events(&mut end).pop() else {
        unreachable!()
    };
    assert_eq!((element.bytes(), element.len()), (100_000, 1));
}

#[test]
fn small_and_large_parts_in_turn_leave_nothing_charged() {
    let mut end = established(Role::Client);
    end.subscribe("p", 1, UNBOUNDED).unwrap();
    take(&mut end, &[6, 1, 0]);
    events(&mut end);
    let large = [&[11, 1, 0, 0x80, 0x20][..], &[7; 4_096]].concat();
    for _ in 0..3 {
        let small = [&[11, 1, 0, 100][..], &[7; 100]].concat();
        for _ in 0..330 {
            assert_eq!(take(&mut end, &small), None);
        }
        assert_eq!(take(&mut end, &large), None);
        let held = end.coming_bytes();
        assert!((33_000 + 4_096..40_000).contains(&held), "{held}");
        assert_eq!(take(&mut end, &[12, 1, 0, 0]), None);
        events(&mut end);
        assert_eq!((end.coming_bytes(), end.held_bytes()), (0, 0));
    }
}

#[test]
fn a_peer_is_not_late_with_what_was_not_read() {
    let config = Config {
        hello_timeout: Some(Duration::from_secs(10)),
        goodbye_timeout: Some(Duration::from_secs(10)),
        ..Config::default()
    };
    let begin = Instant::now();
    let after = |seconds| begin + Duration::from_secs(seconds);
    let mut end = Connection::new(begin, Role::Client, config);
    end.connect(begin).unwrap();
    sent(&mut end);
    end.reading(after(5), false);
    assert_eq!(end.poll_timeout(), None);
    end.reading(after(60), true);
    assert_eq!(end.poll_timeout(), Some(after(65)), "five seconds are left");
    take(&mut end, b"\x02\x00\x00");
    end.goodbye("").unwrap();
    let mut out = SendQueue::new();
    end.poll_transmit(after(70), &mut out);
    end.reading(after(72), false);
    end.reading(after(100), true);
    assert_eq!(end.poll_timeout(), Some(after(108)));
}
