//! The end of a proxy without a transport: what it holds, its deadlines, and its books on acknowledgements.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, ErrorKind as _, Lifecycle, Need, SendQueue};
use ackline_micromsg::relay::{Books, FRAME, Passed, ROOM, Relay};
use ackline_micromsg::{Config, Error, Role};
use bytes::{Buf as _, Bytes, BytesMut};

fn relay(peer: Role) -> Relay {
    Relay::new(Instant::now(), peer, &Config::with_timers(), 1_000)
}

/// A handshake with these extensions.
fn handshake(list: &str) -> Vec<u8> {
    let len = u16::try_from(list.len()).unwrap().to_be_bytes();
    [&[1, 0, 0, 0][..], &len, list.as_bytes(), &[0, 0]].concat()
}

/// The frames that come of these bytes.
fn frames(relay: &mut Relay, bytes: &[u8]) -> Vec<Passed> {
    let mut input = BytesMut::from(bytes);
    while relay.receive(Instant::now(), &mut input).unwrap() == Need::Again {}
    std::iter::from_fn(|| relay.take().ok().flatten()).collect()
}

fn sent(relay: &mut Relay) -> Vec<u8> {
    let mut out = SendQueue::new();
    relay.poll_transmit(Instant::now(), &mut out);
    out.copy_to_bytes(out.remaining()).to_vec()
}

#[test]
fn the_books_know_which_messages_wait_for_their_acknowledgement() {
    let (mut client, mut server) = (relay(Role::Client), relay(Role::Server));
    let mut books = Books::default();
    let hello = [handshake("json;batch-ack"), handshake("json;batch-ack")].concat();
    for passed in frames(&mut client, &hello) {
        books.note(Role::Client, &passed);
    }
    // A server's reply decides nothing.
    for passed in frames(&mut server, &handshake("batch-ack")) {
        books.note(Role::Server, &passed);
    }
    assert!(!books.waits(Role::Client) && !books.waits(Role::Server));
    let mut note = |of: Role, bytes: &[u8]| {
        let end = match of {
            Role::Client => &mut client,
            Role::Server => &mut server,
        };
        for passed in frames(end, bytes) {
            books.note(of, &passed);
        }
        [books.waits(Role::Client), books.waits(Role::Server)]
    };
    let message = |flags, number| [flags, 0, number, 0, 0, 0, 0];
    // A fragment is no message yet.
    assert_eq!(note(Role::Client, &message(16, 1)), [false, false]);
    assert_eq!(note(Role::Client, &message(0, 1)), [true, false]);
    assert_eq!(note(Role::Client, &message(0, 2)), [true, false]);
    assert_eq!(note(Role::Server, &message(0, 1)), [true, true]);
    // Another extension, and an older message.
    assert_eq!(note(Role::Server, b"\x02\x01\x02\x00\x02"), [true, true]);
    assert_eq!(note(Role::Server, b"\x02\x02\x02\x00\x01"), [true, true]);
    assert_eq!(note(Role::Server, b"\x02\x02\x02\x00\x02"), [false, true]);
    assert_eq!(note(Role::Client, b"\x02\x02\x02\x00\x01"), [false, false]);
}

#[test]
fn without_acknowledgements_nothing_waits() {
    let mut client = relay(Role::Client);
    let mut books = Books::default();
    let hello = [handshake("batch-ack"), handshake("json")].concat();
    for passed in frames(&mut client, &[&hello[..], &[0, 0, 1, 0, 0, 0, 0]].concat()) {
        books.note(Role::Client, &passed);
    }
    assert!(!books.waits(Role::Client));
}

#[test]
fn an_end_holds_no_more_than_its_limits() {
    let mut server = relay(Role::Server);
    let frame = [&b"\x0a\x01\x00\x01\x00\x00"[..], &vec![7; 65_536]].concat();
    let mut input = BytesMut::from(&[handshake("json"), frame.repeat(8)].concat()[..]);
    let mut need = Need::Again;
    while need == Need::Again {
        need = server.receive(Instant::now(), &mut input).unwrap();
    }
    assert_eq!(need, Need::Room);
    assert!((4 * 65_536..6 * 65_536).contains(&server.held_bytes()));
    assert_eq!(input.len(), 4 * frame.len(), "the rest is not taken");
    // One frame of any length goes out, others wait for it.
    let (large, small) = (Bytes::from(vec![7; 5_000]), Bytes::from_static(b"x"));
    server.put(Instant::now(), &large).unwrap();
    assert!(matches!(
        server.put(Instant::now(), &small),
        Err(Error::Blocked)
    ));
    assert_eq!(sent(&mut server), large);
    server.put(Instant::now(), &small).unwrap();
}

#[test]
fn a_peer_has_a_time_for_its_handshake_and_inside_a_frame_and_none_between_frames() {
    let start = Instant::now();
    let seconds = |count| start + Duration::from_secs(count);
    let mut client = Relay::new(start, Role::Client, &Config::with_timers(), 1_000);
    assert_eq!(client.poll_timeout(), Some(seconds(10)));
    let take = |relay: &mut Relay, bytes: &[u8]| {
        let mut input = BytesMut::from(bytes);
        relay.receive(start, &mut input).unwrap();
    };
    take(&mut client, &handshake("json"));
    assert_eq!(client.poll_timeout(), None, "it is the server's turn");
    let reply = Bytes::from(handshake("json"));
    client.put(seconds(60), &reply).unwrap();
    assert_eq!(sent(&mut client), reply);
    assert_eq!(client.poll_timeout(), Some(seconds(70)), "its second one");
    take(&mut client, &handshake("json"));
    let mut server = Relay::new(start, Role::Server, &Config::with_timers(), 1_000);
    assert_eq!(server.poll_timeout(), None, "nobody has asked it");
    server.put(seconds(5), &reply).unwrap();
    assert_eq!(server.poll_timeout(), Some(seconds(15)));
    take(&mut server, &handshake("json"));
    server.put(seconds(6), &reply).unwrap();
    assert_eq!(server.poll_timeout(), None);
    assert_eq!(client.poll_timeout(), None);
    take(&mut client, b"\x02\x01");
    assert_eq!(client.poll_timeout(), Some(seconds(30)));
    client.handle_timeout(seconds(29)).unwrap();
    let late = client.handle_timeout(seconds(30)).unwrap_err();
    assert_eq!(late.kind.code(), "micromsg.timeout");
    assert_eq!(
        (client.lifecycle(), client.poll_timeout()),
        (Lifecycle::Closed, None)
    );
    assert!(sent(&mut client).starts_with(b"\x04"));
}

#[test]
fn the_time_in_which_a_peer_is_not_read_is_not_its_own() {
    let start = Instant::now();
    let seconds = |count| start + Duration::from_secs(count);
    let mut client = Relay::new(start, Role::Client, &Config::with_timers(), 1_000);
    client.reading(seconds(2), false);
    assert_eq!(client.poll_timeout(), None);
    client.reading(seconds(9), true);
    assert_eq!(client.poll_timeout(), Some(seconds(17)));
}

#[test]
fn an_error_may_come_in_place_of_a_handshake_and_small_frames_keep_no_buffer() {
    let mut server = relay(Role::Server);
    let mut input = BytesMut::from(&b"\x04\x02no\x04"[..]);
    server.receive(Instant::now(), &mut input).unwrap();
    let passed = server.take().unwrap().unwrap();
    assert_eq!(&passed.bytes[..], b"\x04\x02no");
    assert!(passed.bytes.is_unique());
}

#[test]
fn waits_are_woken_by_frames_by_room_and_by_the_end() {
    let woken = |relay: &mut Relay| std::iter::from_fn(|| relay.poll_wake()).collect::<Vec<_>>();
    let mut server = relay(Role::Server);
    server
        .receive(Instant::now(), &mut BytesMut::from(&handshake("")[..]))
        .unwrap();
    assert_eq!(woken(&mut server), [FRAME]);
    server
        .put(Instant::now(), &Bytes::from_static(b"x"))
        .unwrap();
    assert!(woken(&mut server).is_empty());
    sent(&mut server);
    assert_eq!(woken(&mut server), [ROOM]);
    server.receive_eof(Instant::now()).unwrap();
    assert_eq!(woken(&mut server), [FRAME, ROOM]);
    server.close(None);
    assert_eq!(woken(&mut server), [FRAME, ROOM]);
}

#[test]
fn after_the_peers_end_answers_still_go_out_until_this_end_closes() {
    let mut client = relay(Role::Client);
    client.receive_eof(Instant::now()).unwrap();
    assert!(client.take().unwrap().is_none());
    assert!(client.owes_answers());
    client
        .put(Instant::now(), &Bytes::from_static(b"ack"))
        .unwrap();
    assert_eq!(sent(&mut client), b"ack");
    client.close(Some("over"));
    assert!(!client.owes_answers());
    assert_eq!(client.lifecycle(), Lifecycle::Draining);
    assert_eq!(sent(&mut client), b"\x04\x04over");
    let refused = client
        .put(Instant::now(), &Bytes::from_static(b"x"))
        .unwrap_err();
    assert_eq!(refused.code(), "closed");
}

#[test]
fn a_version_that_no_end_has_is_refused() {
    let mut client = relay(Role::Client);
    let mut input = BytesMut::from(&b"\x00\x09"[..]);
    let wrong = client.receive(Instant::now(), &mut input).unwrap_err();
    assert_eq!(wrong.kind.code(), "micromsg.unsupported_version");
    assert!(matches!(client.take(), Err(Error::Ended(_))));
}
