//! Two sessions over a pipe.

use std::time::Duration;

use ackline_core::Handles as _;
use bytes::{Buf as _, Bytes};

use super::*;
use crate::broker::{Held, Routed};
use crate::text::Command;
use crate::{AckPolicy, Negotiation, Offer, Outbound};

/// Bytes on their way from one session to another.
fn carry(from: &mut Session, to: &mut Session, now: Instant) -> bool {
    let mut out = SendQueue::new();
    from.poll_transmit(now, &mut out);
    let mut input = BytesMut::new();
    while out.has_remaining() {
        let chunk = out.chunk().to_vec();
        input.extend_from_slice(&chunk);
        out.advance(chunk.len());
    }
    let moved = !input.is_empty();
    while let Ok(Need::Again) = ackline_core::Connection::receive(to, now, &mut input) {}
    moved
}

struct Pair {
    client: Session,
    server: Session,
    now: Instant,
}

fn config(change: impl FnOnce(&mut Offer, &mut Config)) -> Config {
    let (mut offer, mut config) = (Offer::default(), Config::with_timers());
    change(&mut offer, &mut config);
    offer.apply(&mut config).unwrap();
    config
}

impl Pair {
    fn new(client: Config, server: Config) -> Self {
        let now = Instant::now();
        let mut pair = Self {
            client: Session::new(now, Role::Client, client, 1 << 20),
            server: Session::new(now, Role::Server, server, 1 << 20),
            now,
        };
        pair.settle();
        pair
    }

    fn defaults() -> Self {
        Self::new(config(|_, _| {}), config(|_, _| {}))
    }

    /// Everything that can move has moved.
    fn settle(&mut self) {
        loop {
            let there = carry(&mut self.client, &mut self.server, self.now);
            let back = carry(&mut self.server, &mut self.client, self.now);
            if !there && !back {
                return;
            }
        }
    }

    fn send(&mut self, payload: &'static [u8]) -> Result<u64, Error> {
        let message = Outbound {
            destination: "q",
            ..Outbound::default()
        };
        self.client.send(message, &Bytes::from_static(payload))
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.client.handle_timeout(self.now).unwrap();
        self.server.handle_timeout(self.now).unwrap();
        self.settle();
    }
}

fn payload(session: &mut Session) -> Bytes {
    session
        .receive()
        .unwrap()
        .unwrap()
        .message
        .payload()
        .to_bytes()
}

fn code(result: Result<impl std::fmt::Debug, Error>) -> &'static str {
    result.unwrap_err().code()
}

#[test]
fn defaults_of_both_ends_agree_on_acknowledgements_and_subscriptions() {
    let pair = Pair::defaults();
    let connected = pair.client.connected().unwrap();
    assert_eq!(connected.extensions, ["batch-ack", "pub-sub"]);
    assert_eq!(
        pair.server.connected().unwrap().extensions,
        connected.extensions
    );
    assert_eq!(pair.client.window_room(), Some(1_000));
}

#[test]
fn a_message_is_processed_when_the_next_one_is_asked_for() {
    let mut pair = Pair::defaults();
    assert_eq!(pair.send(b"one").unwrap(), 1);
    assert_eq!(pair.send(b"two").unwrap(), 2);
    pair.settle();
    assert_eq!(payload(&mut pair.server), "one");
    pair.pass(Duration::from_secs(1));
    assert_eq!(code(pair.client.acknowledged(1)), "micromsg.blocked");
    assert_eq!(payload(&mut pair.server), "two");
    pair.pass(Duration::from_millis(499));
    assert_eq!(code(pair.client.acknowledged(1)), "micromsg.blocked");
    pair.pass(Duration::from_millis(1));
    pair.client.acknowledged(1).unwrap();
    assert_eq!(code(pair.client.acknowledged(2)), "micromsg.blocked");
    assert_eq!(code(pair.server.receive()), "micromsg.blocked");
    pair.pass(Duration::from_millis(500));
    pair.client.acknowledged(2).unwrap();
    assert_eq!(pair.client.acknowledged_count(), 2);
    assert_eq!(code(pair.client.acknowledged(3)), "out_of_range");
}

#[test]
fn several_that_are_taken_at_once_are_processed_together_and_not_before() {
    let mut pair = Pair::defaults();
    for payload in [b"a", b"b", b"c"] {
        pair.send(payload).unwrap();
    }
    pair.settle();
    let taken = pair.server.receive_some(2, usize::MAX).unwrap();
    let positions: Vec<_> = taken.iter().map(|one| one.position).collect();
    assert_eq!(positions, [1, 2]);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.client.acknowledged_count(), 0);
    assert_eq!(payload(&mut pair.server), "c");
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.client.acknowledged_count(), 2);
    pair.server.close().unwrap();
    pair.settle();
    assert_eq!(
        pair.client.acknowledged_count(),
        3,
        "an end in order acknowledges the last one"
    );
}

#[test]
fn a_full_window_of_processed_messages_is_acknowledged_at_once() {
    let server = config(|offer, _| offer.window = 2);
    let mut pair = Pair::new(config(|_, _| {}), server);
    assert_eq!(pair.client.window_room(), Some(2));
    pair.send(b"a").unwrap();
    pair.send(b"b").unwrap();
    assert_eq!(code(pair.send(b"c")), "micromsg.blocked");
    pair.settle();
    let _ = pair.server.receive_some(9, usize::MAX).unwrap();
    assert_eq!(code(pair.server.receive()), "micromsg.blocked");
    pair.settle();
    pair.client.acknowledged(2).unwrap();
    pair.send(b"c").unwrap();
}

#[test]
fn half_a_window_of_processed_messages_is_acknowledged_at_once() {
    let server = config(|offer, _| offer.window = 4);
    let mut pair = Pair::new(config(|_, _| {}), server);
    for payload in [b"a", b"b", b"c"] {
        pair.send(payload).unwrap();
    }
    pair.settle();
    for acknowledged in [0, 0, 2] {
        let _ = pair.server.receive().unwrap();
        pair.settle();
        assert_eq!(pair.client.acknowledged_count(), acknowledged);
    }
}

#[test]
fn messages_of_a_peer_that_has_ended_its_direction_are_acknowledged_when_they_are_processed() {
    let mut pair = Pair::defaults();
    pair.send(b"one").unwrap();
    pair.settle();
    pair.server.receive_eof(pair.now).unwrap();
    assert_eq!(payload(&mut pair.server), "one");
    assert!(matches!(pair.server.receive(), Ok(None)));
    carry(&mut pair.server, &mut pair.client, pair.now);
    pair.client.acknowledged(1).unwrap();
}

#[test]
fn by_hand_a_position_acknowledges_all_before_it() {
    let server = config(|_, config| config.ack_policy = AckPolicy::Manual);
    let mut pair = Pair::new(config(|_, _| {}), server);
    for payload in [b"a", b"b", b"c"] {
        pair.send(payload).unwrap();
    }
    pair.settle();
    assert_eq!(code(pair.server.ack(1)), "out_of_range");
    let _ = pair.server.receive_some(2, usize::MAX).unwrap();
    assert_eq!(code(pair.server.ack(3)), "out_of_range");
    assert_eq!(code(pair.server.ack(0)), "out_of_range");
    pair.server.ack(2).unwrap();
    pair.pass(Duration::from_secs(9));
    assert_eq!(pair.client.acknowledged_count(), 2);
    assert_eq!(code(pair.server.ack(2)), "out_of_range");
    assert_eq!(code(pair.server.ack(1)), "out_of_range");
    let _ = pair.server.receive().unwrap();
    pair.pass(Duration::from_secs(9));
    pair.server.ack(3).unwrap();
    pair.settle();
    pair.client.acknowledged(3).unwrap();
}

#[test]
fn without_acknowledgements_nobody_can_wait_for_one() {
    let nothing = |offer: &mut Offer, _: &mut Config| {
        offer.optional_extensions = Some(String::new());
    };
    let mut pair = Pair::new(config(nothing), config(nothing));
    assert_eq!(pair.client.window_room(), None);
    pair.send(b"one").unwrap();
    pair.settle();
    assert_eq!(payload(&mut pair.server), "one");
    assert_eq!(code(pair.server.ack(1)), "extension_not_negotiated");
    assert_eq!(
        code(pair.client.acknowledged(1)),
        "extension_not_negotiated"
    );
    assert_eq!(
        code(pair.client.subscribe("t", None)),
        "extension_not_negotiated"
    );
}

#[test]
fn an_end_before_the_acknowledgement_is_told_with_the_number() {
    let mut pair = Pair::defaults();
    pair.send(b"one").unwrap();
    pair.settle();
    pair.client.receive_eof(pair.now).unwrap();
    assert!(matches!(
        pair.client.acknowledged(1),
        Err(Error::Unacknowledged(1))
    ));
    assert_eq!(code(pair.send(b"two")), "micromsg.ended");
    assert!(
        matches!(pair.client.receive(), Ok(None)),
        "it was an end in order"
    );
}

#[test]
fn a_peer_that_has_ended_its_direction_still_gets_acknowledgements() {
    let server = config(|_, config| config.ack_policy = AckPolicy::Manual);
    let mut pair = Pair::new(config(|_, _| {}), server);
    pair.send(b"one").unwrap();
    pair.settle();
    pair.server.receive_eof(pair.now).unwrap();
    assert_eq!(payload(&mut pair.server), "one");
    pair.server.ack(1).unwrap();
    carry(&mut pair.server, &mut pair.client, pair.now);
    pair.client.acknowledged(1).unwrap();
    assert!(matches!(pair.server.receive(), Ok(None)));
}

#[test]
fn a_reason_of_the_peers_end_is_told_behind_what_came_before() {
    let mut pair = Pair::defaults();
    pair.send(b"one").unwrap();
    pair.client.fail("\"out\" of\norder").unwrap();
    pair.settle();
    assert_eq!(payload(&mut pair.server), "one");
    for code in [
        code(pair.server.receive()),
        code(pair.server.take_arrival()),
        code(pair.server.command("ping", &[])),
    ] {
        assert_eq!(code, "micromsg.failed");
    }
    let told = pair.server.over().unwrap().to_string();
    assert_eq!(
        told,
        "the peer has ended the connection: \"out\" of\\norder"
    );
    assert!(
        matches!(pair.client.receive(), Ok(None)),
        "this end has ended it"
    );
}

#[test]
fn an_end_that_this_end_made_at_once_is_not_the_peers() {
    let mut pair = Pair::defaults();
    pair.client.abandon();
    pair.client.detached(pair.client.now);
    for told in [
        pair.client.receive().unwrap_err(),
        pair.client.command("ping", &[]).unwrap_err(),
    ] {
        assert!(matches!(told, Error::Ended(End::Aborted)), "{told}");
    }
}

#[test]
fn topics_that_no_message_can_have_are_refused() {
    let mut pair = Pair::defaults();
    let longest = "a".repeat(255);
    assert!(pair.client.subscribe(&longest, None).is_ok());
    for (topic, refused) in [
        ("ä", refusal::NOT_ASCII),
        (&*format!("{longest}a"), refusal::DESTINATION_TOO_LONG),
    ] {
        for told in [
            pair.client.subscribe(topic, None),
            pair.client.unsubscribe(topic),
        ] {
            assert!(matches!(told, Err(Error::Usage(error)) if error == refused));
        }
    }
}

#[test]
fn commands_and_frames_of_extensions_wait_apart_from_messages() {
    let with = |offer: &mut Offer, _: &mut Config| {
        offer.optional_extensions = Some("pub-sub;x-trace".to_owned());
    };
    let mut pair = Pair::new(config(with), config(with));
    pair.client.send_extension("x-trace", b"\x01").unwrap();
    assert_eq!(
        code(pair.client.send_extension("ack", b"")),
        "reserved_extension"
    );
    pair.client.subscribe("t", Some("level>=N3")).unwrap();
    pair.client
        .command("ping", &[("a".to_owned(), "b c".to_owned())])
        .unwrap();
    pair.client.unsubscribe("t").unwrap();
    assert_eq!(
        code(pair.client.subscribe("t", Some("level"))),
        "invalid_filter"
    );
    assert_eq!(code(pair.client.command("Ping", &[])), "invalid_name");
    pair.settle();
    assert_eq!(code(pair.server.receive()), "micromsg.blocked");
    let Some(Arrival::Subscribe(subscribe)) = pair.server.take_arrival().unwrap() else {
        panic!("the first command subscribes");
    };
    assert_eq!(
        (subscribe.topic.as_str(), subscribe.filter_text.as_deref()),
        ("t", Some("level>=N3"))
    );
    let ping = Command {
        name: "ping".to_owned(),
        properties: vec![("a".to_owned(), "b c".to_owned())],
    };
    assert_eq!(
        pair.server.take_arrival().unwrap(),
        Some(Arrival::Command(ping))
    );
    assert_eq!(
        pair.server.take_arrival().unwrap(),
        Some(Arrival::Unsubscribe("t".to_owned()))
    );
    assert_eq!(code(pair.server.take_arrival()), "micromsg.blocked");
    let (name, bytes) = pair.server.take_extension().unwrap().unwrap();
    assert_eq!((&*name, &*bytes), ("x-trace", &b"\x01"[..]));
    assert_eq!(pair.server.held_bytes(), 0, "everything was taken");
}

#[test]
fn messages_wait_for_room_and_their_sender_is_woken() {
    let nothing = |offer: &mut Offer, _: &mut Config| {
        offer.optional_extensions = Some(String::new());
    };
    let mut pair = Pair::new(config(nothing), config(nothing));
    static LARGE: [u8; 600_000] = [7; 600_000];
    pair.send(&LARGE).unwrap();
    assert_eq!(code(pair.send(&LARGE)), "micromsg.blocked");
    while pair.client.poll_wake().is_some() {}
    pair.settle();
    let woken: Vec<u64> = std::iter::from_fn(|| pair.client.poll_wake()).collect();
    assert!(woken.contains(&Wait::Room.key()));
    pair.send(&LARGE).unwrap();
    pair.settle();
    assert_eq!(payload(&mut pair.server).len(), LARGE.len());
    static LARGER: [u8; (16 << 20) + 1] = [0; (16 << 20) + 1];
    assert_eq!(code(pair.send(&LARGER)), "message_too_large");
}

#[test]
fn delivered_messages_leave_as_the_window_allows() {
    let server = config(|offer, _| offer.window = 2);
    let mut pair = Pair::new(config(|_, _| {}), server);
    let routed = Routed::new("t", "a:N1;", Bytes::from_static(b"x"), None);
    let routed = Arc::new(routed.unwrap());
    let waiting = pair.server.deliver(vec![Arc::clone(&routed); 5]).unwrap();
    assert!(waiting >= 3 * routed.bytes());
    assert_eq!(
        (pair.server.outstanding(), pair.server.window_room()),
        ((3, 2), Some(0))
    );
    for taken in [2, 2, 1, 0] {
        pair.settle();
        let mut count = 0;
        while let Ok(Some(one)) = pair.client.receive() {
            assert_eq!(one.message.raw_properties(), "a:N1;");
            count += 1;
        }
        assert_eq!(count, taken);
        pair.pass(Duration::from_millis(500));
    }
    assert_eq!(pair.server.outstanding(), (0, 0));
    assert_eq!(pair.server.acknowledged_count(), 5);
}

/// A message frame whose payload stands behind a length of four bytes, however short it is.
fn large_frame(number: u16, payload: &[u8], is_continued: bool) -> Vec<u8> {
    let flags = if is_continued { 24 } else { 8 };
    let [high, low] = number.to_be_bytes();
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [flags, high, low, 1, b'q', 0, 5];
    [&head, &b"a:N1;"[..], &len, payload].concat()
}

#[test]
fn a_message_that_came_goes_on_the_same_whatever_its_frames_were() {
    for fragment in [1, 100, 255, 256, 60_000] {
        let server = config(|_, config| config.fragment_size = fragment);
        let mut pair = Pair::new(config(|_, _| {}), server);
        let sizes = [0, 1, 255, 256, 2_047, 2_048, 2_049, 70_000];
        let mut number = 0;
        for size in sizes {
            let sent: Vec<u8> = (0..size)
                .map(|at| u8::try_from(at % 251).unwrap())
                .collect();
            let (first, last) = sent.split_at(size / 2);
            number += 2;
            let frames = [
                large_frame(number - 1, &sent, false),
                large_frame(number, first, true),
                large_frame(number, last, false),
            ];
            let mut input = BytesMut::from(&*frames.concat());
            let now = pair.now;
            while let Ok(Need::Again) =
                ackline_core::Connection::receive(&mut pair.server, now, &mut input)
            {}
            for _ in 0..2 {
                let came = pair.server.receive().unwrap().unwrap().message;
                let routed = Arc::new(Routed::of(&came));
                assert_eq!((&*routed.payload(), routed.bytes()), (&*sent, size + 134));
                let waiting = pair.server.deliver([routed]).unwrap();
                assert!(waiting <= size + 100, "{waiting} for {size} in {fragment}");
                pair.settle();
                let back = pair.client.receive().unwrap().unwrap().message;
                assert_eq!(back.payload().to_bytes(), sent, "{size} in {fragment}");
                let texts = (back.destination(), back.raw_properties());
                assert_eq!(texts, ("q", "a:N1;"));
            }
        }
    }
}

#[test]
fn a_small_message_that_came_goes_on_in_the_shortest_frame() {
    let mut pair = Pair::defaults();
    let mut input = BytesMut::from(&*large_frame(1, b"xyz", false));
    ackline_core::Connection::receive(&mut pair.server, pair.now, &mut input).unwrap();
    let came = pair.server.receive().unwrap().unwrap().message;
    pair.server.deliver([Arc::new(Routed::of(&came))]).unwrap();
    let mut out = SendQueue::new();
    pair.server.poll_transmit(pair.now, &mut out);
    let frame = out.chunk().to_vec();
    let expected = b"\0\0\x01\x01q\0\x05a:N1;\x03xyz";
    assert!(frame.ends_with(expected), "{frame:?}");
}

#[test]
fn the_list_of_messages_that_wait_is_counted_until_they_are_sent() {
    let mut pair = Pair::defaults();
    let held = Held::new(u64::MAX, || ());
    pair.server.count_places(Arc::clone(&held));
    let one = Arc::new(Routed::new("q", "", Bytes::new(), None).unwrap());
    pair.server.deliver(vec![Arc::clone(&one); 10_000]).unwrap();
    let (waiting, _) = pair.server.outstanding();
    let counted = held.bytes();
    assert!(waiting >= 8_000 && counted >= 8 * 8_000, "{counted}");
    while pair.server.outstanding() != (0, 0) {
        pair.settle();
        while let Ok(Some(received)) = pair.client.receive() {
            let _ = pair.client.ack(received.position);
        }
    }
    assert_eq!(held.bytes(), 0);
    pair.server.deliver(vec![one; 10_000]).unwrap();
    assert_eq!(held.bytes(), counted);
    drop(pair);
    assert_eq!(held.bytes(), 0);
}

#[test]
fn an_end_is_told_to_every_wait() {
    let mut pair = Pair::defaults();
    while pair.server.poll_wake().is_some() {}
    pair.server.detached(pair.now);
    let woken: std::collections::HashSet<u64> =
        std::iter::from_fn(|| pair.server.poll_wake()).collect();
    assert_eq!(woken.len(), Wait::ALL.len());
}

fn new(role: Role, negotiation: Negotiation, now: Instant) -> Session {
    let config = config(|_, config| config.terms.negotiation = negotiation);
    Session::new(now, role, config, 1 << 20)
}

#[test]
fn a_proposal_is_awaited_and_answered_once() {
    let now = Instant::now();
    let [mut client, mut server] =
        [Role::Client, Role::Server].map(|role| new(role, Negotiation::Manual, now));
    let mut by_itself = new(Role::Server, Negotiation::Automatic, now);
    assert_eq!(code(by_itself.proposal()), "nothing_proposed");
    assert!(
        by_itself.is_there(TOP, Interest::Proposed),
        "none will come"
    );
    assert_eq!(code(server.proposal()), "micromsg.blocked");
    assert!(!server.is_there(TOP, Interest::Proposed));
    while server.poll_wake().is_some() {}
    carry(&mut client, &mut server, now);
    let woken: Vec<u64> = std::iter::from_fn(|| server.poll_wake()).collect();
    assert!(woken.contains(&Session::interest_key(Interest::Proposed, TOP)));
    assert!(server.is_there(TOP, Interest::Proposed));
    let asked = server.proposal().unwrap();
    server.answer(asked.required, asked.optional).unwrap();
    assert_eq!(code(server.proposal()), "micromsg.blocked");
    carry(&mut server, &mut client, now);
    let offered = client.proposal().unwrap();
    client.answer(offered.required, offered.optional).unwrap();
    assert!(client.connected().is_ok(), "at once");
    carry(&mut client, &mut server, now);
    for end in [&mut client, &mut server] {
        assert_eq!(code(end.proposal()), "nothing_proposed");
        assert!(end.is_there(TOP, Interest::Proposed), "none will come");
    }
}
