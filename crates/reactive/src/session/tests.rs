#![allow(clippy::arithmetic_side_effects)] // of small numbers

mod outcomes;

use std::collections::VecDeque;
use std::time::Duration;

use ackline_core::{Connection as _, Handles as _};
use bytes::{Buf as _, BufMut as _, Bytes};

use super::*;
use crate::UNBOUNDED;

/// Two ends, and the bytes between them.
struct Pair {
    now: Instant,
    client: Session,
    server: Session,
}

fn session(role: Role, change: impl FnOnce(&mut Config)) -> Session {
    let mut config = Config::default();
    change(&mut config);
    Session::new(Instant::now(), role, config, 1_000)
}

impl Pair {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self {
            now: Instant::now(),
            client: session(Role::Client, change),
            server: session(Role::Server, |_| ()),
        }
    }

    /// Moves everything that waits, until nothing moves.
    fn exchange(&mut self) {
        for _ in 0..100 {
            let sent = carry(self.now, &mut self.client, &mut self.server)
                + carry(self.now, &mut self.server, &mut self.client);
            if sent == 0 {
                return;
            }
        }
        panic!("there is no end");
    }

    /// A stream from the server to the client, accepted with this size.
    fn stream(&mut self, demand: Demand, size: u64) -> (Serial, Serial) {
        let own = self.client.subscribe("ticks", demand).unwrap();
        self.exchange();
        let theirs = self.server.accept().unwrap().unwrap();
        assert_eq!(&*theirs.publisher, "ticks");
        self.server.admit(theirs.serial, size).unwrap();
        self.exchange();
        assert_eq!(self.client.accepted(own).unwrap(), size);
        (own, theirs.serial)
    }

    fn publish(&mut self, serial: Serial, elements: &[&'static str]) -> usize {
        let mut elements: VecDeque<Bytes> = elements
            .iter()
            .map(|it| Bytes::from_static(it.as_bytes()))
            .collect();
        let before = elements.len();
        while !elements.is_empty() && self.server.publish(serial, &mut elements).is_ok() {
            self.exchange();
        }
        before - elements.len()
    }
}

fn carry(now: Instant, from: &mut Session, to: &mut Session) -> usize {
    let mut out = SendQueue::new();
    from.poll_transmit(now, &mut out);
    let mut input = BytesMut::new();
    while out.has_remaining() {
        input.extend_from_slice(out.chunk());
        out.advance(out.chunk().len());
    }
    let sent = input.len();
    while to.receive(now, &mut input).unwrap() == Need::Again {}
    assert!(input.is_empty(), "nothing was full");
    sent
}

fn texts(session: &mut Session, serial: Serial) -> Vec<Vec<u8>> {
    let taken = session.take_elements(serial, 1_000).unwrap_or_default();
    taken.iter().map(|it| it.to_bytes().to_vec()).collect()
}

#[test]
fn demand_is_replenished_at_the_low_water_mark_and_never_above_the_most() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::with_low_water(10, 4), 0);
    assert_eq!(pair.publish(theirs, &["x"; 20]), 10);
    assert!(matches!(pair.server.room(theirs), Err(Error::Blocked)));
    for left in [9_u64, 8, 7, 6, 5] {
        assert!(pair.client.take_element(own).unwrap().is_some());
        assert_eq!(pair.client.requested(own).unwrap(), 0, "{left} wait");
    }
    assert!(pair.client.take_element(own).unwrap().is_some());
    assert_eq!(pair.client.requested(own).unwrap(), 6, "four wait");
    pair.exchange();
    assert_eq!(pair.server.room(theirs).unwrap(), 6);
    assert_eq!(texts(&mut pair.client, own).len(), 4);
    assert_eq!(
        pair.client.requested(own).unwrap(),
        6,
        "six are on their way"
    );
}

#[test]
fn demand_by_hand_is_asked_for_by_nobody_else() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::by_hand(0), 0);
    assert!(matches!(pair.server.room(theirs), Err(Error::Blocked)));
    pair.client.request(own, 2).unwrap();
    pair.exchange();
    assert_eq!(pair.publish(theirs, &["a", "b", "c"]), 2);
    assert_eq!(texts(&mut pair.client, own), [b"a", b"b"]);
    assert_eq!(pair.client.requested(own).unwrap(), 0);
    let unbounded = pair.client.subscribe("ticks", Demand::unbounded()).unwrap();
    assert_eq!(pair.client.requested(unbounded).unwrap(), UNBOUNDED);
}

#[test]
fn wrong_demands_are_refused_and_nothing_is_subscribed() {
    let mut pair = Pair::new();
    for (demand, code) in [
        (Demand::by_hand(UNBOUNDED + 1), "invalid_demand"),
        (Demand::with_low_water(5, 5), "invalid_low_water"),
        (Demand::automatic(0), "invalid_low_water"),
    ] {
        let refused = pair.client.subscribe("ticks", demand).unwrap_err();
        assert_eq!(refused.code(), code);
    }
    pair.exchange();
    assert!(matches!(pair.server.accept(), Err(Error::Blocked)));
}

#[test]
fn packed_elements_are_handed_out_as_one_buffer_or_one_by_one() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::automatic(8), 2);
    let mut all = Bytes::from_static(b"aabbccddeeffgghhii");
    pair.server.publish_packed(theirs, &mut all).unwrap();
    assert_eq!(&all[..], b"ii", "the demand was eight");
    pair.exchange();
    assert_eq!(
        &pair.client.take_packed(own, 5).unwrap().unwrap()[..],
        b"aabb"
    );
    assert_eq!(
        &pair.client.take_packed(own, 1).unwrap().unwrap()[..],
        b"cc"
    );
    let one = pair.client.take_element(own).unwrap().unwrap();
    assert_eq!(&one.to_bytes()[..], b"dd");
    assert_eq!(
        pair.client.requested(own).unwrap(),
        4,
        "half of them are left"
    );
    assert_eq!(
        &pair.client.take_packed(own, 100).unwrap().unwrap()[..],
        b"eeffgghh"
    );
    assert!(matches!(
        pair.client.take_packed(own, 100),
        Err(Error::Blocked)
    ));
    pair.server.complete(theirs).unwrap();
    pair.exchange();
    assert!(pair.client.take_packed(own, 100).unwrap().is_none());
    assert_eq!(pair.client.held_bytes(), 0, "nothing stays charged");
}

#[test]
fn elements_without_a_fixed_size_are_no_buffer() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::automatic(8), 0);
    pair.publish(theirs, &["one"]);
    let refused = pair.client.take_packed(own, 100).unwrap_err();
    assert_eq!(refused.code(), "not_fixed_size");
    assert_eq!(texts(&mut pair.client, own), [b"one"]);
}

#[test]
fn parts_are_one_element_of_the_demand() {
    let mut pair = Pair::with(|config| config.parts = true);
    pair.server = session(Role::Server, |config| config.split_threshold = 2);
    let (own, theirs) = pair.stream(Demand::with_low_water(2, 0), 0);
    pair.publish(theirs, &["abcde", "f"]);
    let refused = pair.client.take_element(own).unwrap_err();
    assert_eq!(refused.code(), "in_parts");
    let mut parts = Vec::new();
    while let Ok(Some(part)) = pair.client.take_part(own) {
        let requested = pair.client.requested(own).unwrap();
        parts.push((part.data.to_bytes().to_vec(), part.is_last, requested));
    }
    let expected: [(&[u8], bool, u64); 4] = [
        (b"ab", false, 0),
        (b"cd", false, 0),
        (b"e", true, 0),
        (b"f", true, 2),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|it| (it.0.to_vec(), it.1, it.2))
        .collect();
    assert_eq!(
        parts, expected,
        "requested once both were taken to their ends"
    );
}

#[test]
fn an_element_that_has_come_in_part_is_outstanding() {
    let mut pair = Pair::new();
    pair.server = session(Role::Server, |config| config.split_threshold = 2);
    let (own, theirs) = pair.stream(Demand::with_low_water(2, 1), 0);
    let mut elements = VecDeque::from([Bytes::from("x"), Bytes::from("abcd")]);
    pair.server.publish(theirs, &mut elements).unwrap();
    let mut out = SendQueue::new();
    pair.server.poll_transmit(pair.now, &mut out);
    let mut input = BytesMut::from(&out.copy_to_bytes(out.remaining())[..]);
    let last = input.split_off(input.len() - 1);
    pair.client.receive(pair.now, &mut input).unwrap();
    assert_eq!(texts(&mut pair.client, own), [b"x"]);
    assert_eq!(
        pair.client.requested(own).unwrap(),
        1,
        "two with the one that is coming"
    );
    input.unsplit(last);
    pair.client.receive(pair.now, &mut input).unwrap();
    assert_eq!(texts(&mut pair.client, own), [b"abcd"]);
}

#[test]
fn a_rejection_is_told_with_its_reason() {
    let mut pair = Pair::new();
    let own = pair
        .client
        .subscribe("nothing", Demand::automatic(2))
        .unwrap();
    assert!(matches!(pair.client.accepted(own), Err(Error::Blocked)));
    pair.exchange();
    let theirs = pair.server.accept().unwrap().unwrap();
    pair.server
        .reject(theirs.serial, "no such publisher")
        .unwrap();
    pair.exchange();
    let refused = pair.client.accepted(own).unwrap_err();
    assert!(matches!(&refused, Error::Failed(why) if &**why == "no such publisher"));
    let refused = pair.client.take_element(own).unwrap_err();
    assert!(matches!(refused, Error::Failed(_)));
}

#[test]
fn an_end_comes_behind_the_elements_and_ids_are_used_again() {
    let mut pair = Pair::new();
    for round in 0..3 {
        let (own, theirs) = pair.stream(Demand::automatic(10), 0);
        pair.publish(theirs, &["a", "b"]);
        if round == 1 {
            pair.server.fail(theirs, "the sensor is gone").unwrap();
        } else {
            pair.server.complete(theirs).unwrap();
        }
        pair.exchange();
        assert_eq!(texts(&mut pair.client, own), [b"a", b"b"]);
        match pair.client.take_element(own) {
            Ok(None) => assert_ne!(round, 1),
            Err(Error::Failed(why)) => assert_eq!((round, &*why), (1, "the sensor is gone")),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            pair.client.request(own, 1).unwrap_err().code(),
            "already_ended"
        );
        pair.client.drop_subscription(own);
        pair.server.drop_publication(theirs);
        assert_eq!(pair.client.inboxes.len() + pair.server.outlets.len(), 0);
    }
}

#[test]
fn a_dropped_handle_ends_its_stream_alone() {
    let mut pair = Pair::new();
    let (first, theirs) = pair.stream(Demand::automatic(10), 0);
    let (second, others) = pair.stream(Demand::automatic(10), 0);
    pair.publish(theirs, &["a"]);
    pair.client.drop_subscription(first);
    assert_eq!(pair.client.held_bytes(), 0);
    pair.exchange();
    assert!(matches!(pair.server.room(theirs), Err(Error::Cancelled)));
    pair.publish(others, &["b"]);
    pair.server.drop_publication(others);
    pair.exchange();
    assert_eq!(texts(&mut pair.client, second), [b"b"]);
    let ended = pair.client.take_element(second).unwrap_err();
    assert!(matches!(ended, Error::Failed(why) if why.contains("dropped")));
}

#[test]
fn a_cancel_drops_what_was_not_taken() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::automatic(10), 0);
    pair.publish(theirs, &["a", "b"]);
    assert!(pair.client.held_bytes() > 0);
    pair.client.cancel(own).unwrap();
    assert_eq!(pair.client.held_bytes(), 0);
    assert!(matches!(
        pair.client.take_element(own),
        Err(Error::Cancelled)
    ));
    assert_eq!(pair.client.cancel(own).unwrap_err().code(), "already_ended");
}

#[test]
fn subscriptions_that_are_cancelled_before_anybody_looks_leave_nothing() {
    let mut pair = Pair::new();
    for _ in 0..1_000 {
        let own = pair
            .client
            .subscribe("a name", Demand::automatic(2))
            .unwrap();
        pair.client.drop_subscription(own);
        pair.exchange();
    }
    let server = &pair.server;
    assert_eq!(
        (server.outlets.len(), server.arrivals.len(), server.names),
        (0, 0, 0)
    );
    assert!(matches!(pair.server.accept(), Err(Error::Blocked)));
}

#[test]
fn the_names_of_subscriptions_that_nobody_has_looked_at_are_charged() {
    let mut pair = Pair::new();
    let name = "n".repeat(1_000);
    pair.client.subscribe(&name, Demand::automatic(2)).unwrap();
    pair.exchange();
    let held = pair.server.held_bytes();
    assert!(held >= 1_000, "{held}");
    pair.server.accept().unwrap().unwrap();
    assert_eq!(pair.server.held_bytes(), held - 1_000);
}

#[test]
fn elements_that_wait_to_be_sent_are_bounded_and_room_is_told() {
    let mut pair = Pair::new();
    let (_, theirs) = pair.stream(Demand::unbounded(), 0);
    let mut elements: VecDeque<Bytes> = vec![Bytes::from(vec![0; 300]); 10].into();
    pair.server.publish(theirs, &mut elements).unwrap();
    assert_eq!(elements.len(), 8, "each takes 64 bytes more than its own");
    pair.server.publish(theirs, &mut elements).unwrap();
    assert_eq!(elements.len(), 7, "one may exceed it");
    assert!(matches!(pair.server.room(theirs), Err(Error::Blocked)));
    while pair.server.poll_wake().is_some() {}
    let mut out = SendQueue::new();
    pair.server.poll_transmit(pair.now, &mut out);
    assert_eq!(pair.server.poll_wake(), Some(Wait::Write(theirs).key()));
    assert!(pair.server.room(theirs).is_ok());
    let mut elements: VecDeque<Bytes> = vec![Bytes::from(vec![0; 436]); 2].into();
    pair.server.publish(theirs, &mut elements).unwrap();
    assert!(elements.is_empty(), "they fill the room");
    assert!(matches!(pair.server.room(theirs), Err(Error::Blocked)));
    let mut out = SendQueue::new();
    pair.server.poll_transmit(pair.now, &mut out);
    let mut elements: VecDeque<Bytes> = vec![Bytes::new(); 100_000].into();
    pair.server.publish(theirs, &mut elements).unwrap();
    assert_eq!(elements.len(), 100_000 - 15, "empty ones are bounded too");
    pair.server.publish(theirs, &mut elements).unwrap();
    assert!(matches!(pair.server.room(theirs), Err(Error::Blocked)));
}

#[test]
fn elements_of_many_streams_that_wait_to_be_sent_are_bounded_together() {
    let mut pair = Pair::new();
    let streams: Vec<_> = (0..100)
        .map(|_| pair.stream(Demand::unbounded(), 0))
        .collect();
    let publish = |server: &mut Session, serial| {
        let mut elements = VecDeque::from([Bytes::from(vec![0; 400])]);
        server.publish(serial, &mut elements).is_ok()
    };
    let mut took = 0;
    for (_, theirs) in &streams {
        took += usize::from(publish(&mut pair.server, *theirs));
    }
    // Of 16 times 1,000 bytes each takes 464.
    assert_eq!((took, pair.server.open().2), (35, 14_000));
    while pair.server.poll_wake().is_some() {}
    let mut out = SendQueue::new();
    pair.server.poll_transmit(pair.now, &mut out);
    let woken: Vec<u64> = std::iter::from_fn(|| pair.server.poll_wake()).collect();
    assert_eq!(woken.len(), 65, "everybody that waited");
    for (_, theirs) in streams.iter().skip(40) {
        publish(&mut pair.server, *theirs);
    }
    assert_eq!(pair.server.open().2, 14_000);
    // A peer that cancels what waits leaves room, without a byte that is sent.
    for (own, _) in streams.iter().skip(40).take(40) {
        pair.client.drop_subscription(*own);
    }
    carry(pair.now, &mut pair.client, &mut pair.server);
    let left = &streams[80..];
    let woken: Vec<u64> = std::iter::from_fn(|| pair.server.poll_wake()).collect();
    for (_, theirs) in left {
        assert!(woken.contains(&Wait::Write(*theirs).key()));
        assert!(publish(&mut pair.server, *theirs));
    }
}

#[test]
fn what_the_peer_would_refuse_by_default_is_not_sent() {
    let mut pair = Pair::with(|config| config.limits.max_string_bytes = 10);
    let refused = pair
        .client
        .subscribe("eleven char", Demand::automatic(2))
        .unwrap_err();
    assert_eq!(refused.code(), "name_too_long");
    pair.client
        .subscribe("ten charac", Demand::automatic(2))
        .unwrap();
    let mut pair = Pair::new();
    pair.server = session(Role::Server, |config| config.limits.max_element_bytes = 5);
    pair.client
        .subscribe("ticks", Demand::automatic(10))
        .unwrap();
    pair.exchange();
    let fixed = pair.server.accept().unwrap().unwrap().serial;
    let refused = pair.server.admit(fixed, 6).unwrap_err();
    assert_eq!(refused.code(), "element_too_large");
    let (own, theirs) = pair.stream(Demand::automatic(10), 0);
    let mut elements = VecDeque::from([Bytes::from("12345"), Bytes::from("123456")]);
    let refused = pair.server.publish(theirs, &mut elements).unwrap_err();
    assert_eq!((refused.code(), elements.len()), ("element_too_large", 2));
    elements.pop_back();
    pair.server.publish(theirs, &mut elements).unwrap();
    let long = "ä".repeat(5_000);
    pair.server.fail(theirs, &long).unwrap();
    pair.exchange();
    assert_eq!(texts(&mut pair.client, own), [b"12345"]);
    let ended = pair.client.take_element(own).unwrap_err();
    assert!(matches!(ended, Error::Failed(why) if *why == long[..2 * 4_096]));
}

#[test]
fn a_goodbye_ends_every_stream_with_its_reason() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::automatic(10), 0);
    let unanswered = pair.client.subscribe("more", Demand::automatic(1)).unwrap();
    pair.publish(theirs, &["last"]);
    pair.server.goodbye("the server restarts").unwrap();
    assert_eq!(pair.server.goodbye("again").unwrap_err().code(), "closing");
    pair.exchange();
    assert_eq!(texts(&mut pair.client, own), [b"last"]);
    for serial in [own, unanswered] {
        let ended = pair.client.take_element(serial).unwrap_err();
        assert!(matches!(ended, Error::Failed(why) if &*why == "the server restarts"));
    }
    assert!(pair.client.accept().unwrap().is_none());
    assert_eq!(
        pair.client.goodbye_reason().as_deref(),
        Some("the server restarts")
    );
    assert!(matches!(pair.client.over(), Some(End::Closed)));
    let refused = pair.client.subscribe("ticks", Demand::automatic(2));
    assert!(matches!(refused, Err(Error::Ended(End::Closed))));
}

#[test]
fn the_loss_of_the_transport_is_no_error_of_the_publisher() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::automatic(10), 0);
    pair.publish(theirs, &["last"]);
    pair.client.detached(pair.now);
    pair.server.receive_eof(pair.now).unwrap();
    assert_eq!(texts(&mut pair.client, own), [b"last"]);
    assert!(
        matches!(pair.client.take_element(own), Err(Error::Blocked)),
        "the link knows why"
    );
    assert!(
        !pair.client.is_there(own, Interest::Element),
        "and wakes by its end"
    );
    assert!(matches!(pair.server.room(theirs), Err(Error::Blocked)));
    for interest in [Interest::Room, Interest::Cancelled] {
        assert!(!pair.server.is_there(theirs, interest));
    }
    let refused = pair.server.complete(theirs).unwrap_err();
    assert!(matches!(refused, Error::Ended(End::Closed)), "{refused}");
}

#[test]
fn a_violation_ends_every_stream_with_it() {
    let mut pair = Pair::new();
    let (own, _) = pair.stream(Demand::automatic(10), 0);
    let mut wrong = BytesMut::from(&b"\x7f"[..]);
    assert!(pair.client.receive(pair.now, &mut wrong).is_err());
    let ended = pair.client.take_element(own).unwrap_err();
    assert_eq!(ended.code(), "reactive.unknown_message_type");
    assert!(matches!(pair.client.over(), Some(End::Protocol(_))));
}

#[test]
fn a_missing_hello_is_waited_for_and_its_extensions_are_told() {
    let mut pair = Pair::with(|config| {
        config.extensions = vec![7, 3];
        config.hello_timeout = Some(Duration::from_secs(1));
    });
    assert!(matches!(pair.client.connected(), Err(Error::Blocked)));
    pair.exchange();
    assert_eq!(pair.client.connected().unwrap(), [0_u64; 0]);
    let mut silent = Pair::with(|config| config.hello_timeout = Some(Duration::from_secs(1)));
    let late = silent.now + Duration::from_secs(5);
    assert!(silent.client.handle_timeout(late).is_err());
    let ended = silent.client.connected().unwrap_err();
    assert_eq!(ended.code(), "reactive.timeout");
}

#[test]
fn messages_of_extensions_are_charged_until_they_are_taken() {
    let message = crate::message::ExtensionMessage {
        message_type: 64,
        extension: 7,
        fields: vec![crate::message::FieldKind::String],
    };
    let change = |config: &mut Config| {
        config.extensions = vec![7];
        config.extension_messages = vec![message.clone()];
    };
    let mut pair = Pair::with(change);
    pair.server = session(Role::Server, change);
    let text = "x".repeat(500);
    let refused = pair.client.send_extension(65, Vec::new()).unwrap_err();
    assert_eq!(refused.code(), "extension_not_active");
    pair.exchange();
    assert!(matches!(pair.server.take_extension(), Err(Error::Blocked)));
    pair.client
        .send_extension(64, vec![Field::String(text.clone())])
        .unwrap();
    pair.exchange();
    assert!(pair.server.held_bytes() >= 500);
    assert!(pair.server.is_there(TOP, Interest::Extension));
    let taken = pair.server.take_extension().unwrap().unwrap();
    assert_eq!(taken, (64, vec![Field::String(text)]));
    assert_eq!(pair.server.held_bytes(), 0);
    pair.client.goodbye("").unwrap();
    pair.exchange();
    assert!(pair.server.take_extension().unwrap().is_none());
}
