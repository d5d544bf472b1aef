//! The number of elements, the subscriptions, and their ends as a publisher sees them.

use std::time::Instant;

use ackline_core::Connection as _;
use ackline_reactive::session::Demand;
use ackline_reactive::{Config, Connection, Role, refusal};
use bytes::{Bytes, BytesMut};

use super::wire::{
    GOODBYE, cancel, complete, error, last_part, next, next_fixed, packed, part, request,
    subscribe, subscribed,
};
use super::{Talk, code};

/// JVM 1.1
#[test]
fn a_publisher_sends_no_more_elements_than_were_requested() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 2, 0);
    assert_eq!(talk.publish(serial, &["a", "b", "c"]), Ok(2));
    assert_eq!(talk.says(), [next(1, "a"), next(1, "b")].concat());
    assert_eq!(talk.publish(serial, &["c"]), Err("reactive.blocked"));
    talk.hears(&[&request(1, 1)]);
    assert_eq!(talk.publish(serial, &["c", "d"]), Ok(1));
    assert_eq!(talk.says(), next(1, "c"));
    assert_eq!(talk.publish(serial, &["d"]), Err("reactive.blocked"));
    assert_eq!(talk.says(), b"");
}

/// JVM 1.1
#[test]
fn elements_that_were_not_requested_are_refused_all_together() {
    // The machine below the session, to which no session counts out the elements.
    let now = Instant::now();
    let mut machine = Connection::established(now, Role::Server, Config::default());
    let mut input = BytesMut::new();
    for (id, size) in [(1, 0), (2, 1)] {
        input.extend_from_slice(&subscribe("p", id, 2));
        machine.receive(now, &mut input).unwrap();
        machine.accept(id, size).unwrap();
    }
    let elements = |count| vec![Bytes::from_static(b"x"); count];
    let none = Err(refusal::NO_DEMAND);
    for id in [1, 2] {
        assert_eq!(machine.next(id, elements(3)), none);
    }
    let packed = Bytes::from_static(b"xxx");
    assert_eq!(machine.next_packed(2, packed.clone()), none);
    assert_eq!(machine.waiting_bytes(), 0);
    machine.next(1, elements(2)).unwrap();
    machine.next_packed(2, packed.slice(..2)).unwrap();
    assert_eq!(machine.next(1, elements(1)), none);
    assert_eq!(machine.next_packed(2, packed.slice(..1)), none);
    assert_eq!(machine.waiting_bytes(), 4);
}

/// JVM 1.1
#[test]
fn each_packed_element_counts_against_the_demand() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 3, 2);
    let mut elements = Bytes::from_static(b"aabbccddee");
    talk.session.publish_packed(serial, &mut elements).unwrap();
    assert_eq!(&elements[..], b"ddee");
    assert_eq!(talk.says(), packed(1, 3, "aabbcc"));
    let refused = talk.session.publish_packed(serial, &mut elements);
    assert_eq!(code(refused), Some("reactive.blocked"));
    talk.hears(&[&request(1, 1)]);
    talk.session.publish_packed(serial, &mut elements).unwrap();
    assert_eq!(talk.says(), next_fixed(1, "dd"));
    assert_eq!(&elements[..], b"ee");
}

/// JVM 1.1
#[test]
fn an_element_in_parts_counts_once() {
    let mut talk = Talk::with(Role::Server, |config| config.split_threshold = 4);
    let serial = talk.publication(1, 2, 0);
    assert_eq!(talk.publish(serial, &["0123456789", "abcde", "f"]), Ok(2));
    let first = [
        part(1, 0, "0123"),
        part(1, 0, "4567"),
        last_part(1, 0, "89"),
    ];
    let second = [part(1, 1, "abcd"), last_part(1, 1, "e")];
    assert_eq!(talk.says(), [first.concat(), second.concat()].concat());
    assert_eq!(talk.publish(serial, &["f"]), Err("reactive.blocked"));
}

/// JVM 1.1
#[test]
fn a_peer_that_sends_more_than_was_requested_ends_the_connection() {
    for (size, allowed, extra) in [
        (0, next(1, "a"), next(1, "b")),
        (0, part(1, 7, "a"), part(1, 8, "b")),
        (0, part(1, 7, "a"), last_part(1, 8, "b")),
        (1, next_fixed(1, "a"), next_fixed(1, "b")),
        (1, packed(1, 1, "a"), packed(1, 1, "b")),
        (1, packed(1, 0, ""), packed(1, 2, "ab")),
    ] {
        let mut talk = Talk::client();
        talk.subscription(1, Demand::by_hand(1), size);
        talk.hears(&[&allowed]);
        assert_eq!(talk.judges(&[&extra]), Some("reactive.demand_exceeded"));
        assert_eq!(talk.says().first(), Some(&GOODBYE));
    }
}

/// JVM 1.2
#[test]
fn a_stream_may_end_with_elements_still_requested() {
    for fails in [false, true] {
        let mut talk = Talk::server();
        let serial = talk.publication(1, 10, 0);
        assert_eq!(talk.publish(serial, &["a"]), Ok(1));
        let end = if fails {
            talk.session.fail(serial, "no more").unwrap();
            error(1, "no more")
        } else {
            talk.session.complete(serial).unwrap();
            complete(1)
        };
        assert_eq!(talk.says(), [next(1, "a"), end].concat());
    }
}

/// JVM 1.4
#[test]
fn a_publisher_that_fails_or_is_dropped_sends_an_error() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 2, 0);
    assert_eq!(talk.publish(serial, &["a", "b"]), Ok(2));
    talk.session.fail(serial, "the disk").unwrap();
    let all = [next(1, "a"), next(1, "b"), error(1, "the disk")];
    assert_eq!(talk.says(), all.concat());

    let dropped = talk.publication(2, 0, 0);
    talk.session.drop_publication(dropped);
    let text = "the publisher has dropped the subscription";
    assert_eq!(talk.says(), error(2, text));

    let unanswered = talk.arrival(3, 0);
    talk.session.drop_publication(unanswered);
    assert_eq!(talk.says(), [subscribed(3, 0), error(3, text)].concat());
}

/// JVM 1.5
#[test]
fn a_stream_of_no_one_or_three_elements_ends_complete() {
    for elements in [&[][..], &["a"], &["a", "b", "c"]] {
        let mut talk = Talk::server();
        // As many as are there: the end takes no demand.
        let demand = u64::try_from(elements.len()).unwrap();
        let serial = talk.publication(1, demand, 0);
        if demand > 0 {
            assert_eq!(talk.publish(serial, elements), Ok(elements.len()));
        }
        talk.session.complete(serial).unwrap();
        let nexts = elements.iter().map(|element| next(1, element));
        let all = nexts.chain([complete(1)]).collect::<Vec<_>>();
        assert_eq!(talk.says(), all.concat());
    }
}

/// JVM 1.6
#[test]
fn an_end_leaves_the_publisher_no_subscription() {
    for fails in [false, true] {
        let mut talk = Talk::server();
        let serial = talk.publication(1, 2, 0);
        if fails {
            talk.session.fail(serial, "x").unwrap();
        } else {
            talk.session.complete(serial).unwrap();
        }
        assert!(!talk.says().is_empty());
        assert_eq!((talk.open(), talk.session.held_bytes()), ((0, 0), 0));
        // A request and a cancel that crossed the end, and one that would be an error.
        talk.hears(&[&request(1, 5), &cancel(1), &request(1, 0)]);
        assert_eq!(talk.says(), b"");
        assert_eq!(code(talk.session.is_wanted(serial)), Some("already_ended"));
        // The id names another subscription now.
        let second = talk.publication(1, 1, 0);
        assert_eq!(code(talk.session.complete(serial)), Some("already_ended"));
        talk.session.drop_publication(serial);
        assert_eq!(talk.publish(second, &["new", "more"]), Ok(1));
        assert_eq!(talk.says(), next(1, "new"));
    }
}

/// JVM 1.8, 3.12
#[test]
fn a_cancel_stops_the_signals_that_wait_to_be_sent() {
    let mut talk = Talk::server();
    let (one, other) = (talk.publication(1, 5, 0), talk.publication(2, 5, 0));
    assert_eq!(talk.publish(one, &["a", "b"]), Ok(2));
    assert_eq!(talk.publish(other, &["x"]), Ok(1));
    talk.hears(&[&cancel(1)]);
    assert_eq!(talk.says(), next(2, "x"));
    assert_eq!(talk.publish(one, &["c"]), Err("reactive.cancelled"));
    assert_eq!(code(talk.session.complete(one)), Some("reactive.cancelled"));
    assert_eq!(talk.says(), b"");

    // Also the end of a stream, which the publisher believes to be over.
    assert_eq!(talk.publish(other, &["y"]), Ok(1));
    talk.session.complete(other).unwrap();
    talk.hears(&[&cancel(2)]);
    assert_eq!(talk.says(), b"");

    // An acceptance is still sent: it has the size of elements that may be on their way.
    let accepted = talk.arrival(3, 5);
    talk.session.admit(accepted, 0).unwrap();
    assert_eq!(talk.publish(accepted, &["z"]), Ok(1));
    talk.hears(&[&cancel(3)]);
    assert_eq!(talk.says(), subscribed(3, 0));
}

/// JVM 1.8, 3.12
#[test]
fn a_cancel_stops_an_element_between_its_parts() {
    let mut talk = Talk::with(Role::Server, |config| config.split_threshold = 1_000);
    let serial = talk.publication(1, 1, 0);
    let large = Bytes::from(vec![b'x'; 4 << 20]);
    let mut elements = [large].into();
    talk.session.publish(serial, &mut elements).unwrap();
    let begun = talk.says_some();
    assert!((1_000..4 << 20).contains(&begun.len()), "{}", begun.len());
    assert!(talk.session.open().2 > 0);
    talk.hears(&[&cancel(1)]);
    assert_eq!(talk.says(), b"");
    assert_eq!(talk.session.open(), (0, 0, 0));
}

/// JVM 1.9
#[test]
fn nothing_is_sent_for_a_subscription_before_it_is_accepted() {
    let mut talk = Talk::server();
    let serial = talk.arrival(1, 5);
    assert_eq!(talk.publish(serial, &["a"]), Err("not_accepted"));
    assert_eq!(code(talk.session.complete(serial)), Some("not_accepted"));
    assert_eq!(code(talk.session.fail(serial, "x")), Some("not_accepted"));
    assert_eq!(talk.says(), b"");
    talk.session.admit(serial, 0).unwrap();
    assert_eq!(talk.publish(serial, &["a"]), Ok(1));
    talk.session.complete(serial).unwrap();
    let all = [subscribed(1, 0), next(1, "a"), complete(1)];
    assert_eq!(talk.says(), all.concat());
}

/// JVM 1.9
#[test]
fn an_id_that_is_used_again_is_accepted_before_its_elements() {
    let mut talk = Talk::server();
    let cancelled = talk.publication(1, 5, 0);
    assert_eq!(talk.publish(cancelled, &["old"]), Ok(1));
    // The turn of the first subscription still waits when the second one publishes.
    talk.hears(&[&cancel(1)]);
    let second = talk.arrival(1, 5);
    talk.session.admit(second, 0).unwrap();
    assert_eq!(talk.publish(second, &["new"]), Ok(1));
    assert_eq!(talk.says(), [subscribed(1, 0), next(1, "new")].concat());
}

/// JVM 1.9
#[test]
fn a_rejection_is_an_acceptance_with_an_error_behind_it() {
    let mut talk = Talk::with(Role::Server, |config| config.limits.max_subscriptions = 1);
    let serial = talk.arrival(1, 5);
    talk.session.reject(serial, "there is none").unwrap();
    let all = [subscribed(1, 0), error(1, "there is none")];
    assert_eq!(talk.says(), all.concat());

    // A publisher that has no room for another subscriber.
    talk.publication(2, 5, 0);
    talk.hears(&[&subscribe("p", 3, 5)]);
    let said = talk.says();
    assert_eq!(said[..5], [6, 3, 0, 9, 3]);
    assert_eq!(talk.open(), (0, 1));
    assert_eq!(code(talk.session.accept()), Some("reactive.blocked"));
}

/// JVM 1.9
#[test]
fn a_peer_that_signals_before_it_has_accepted_ends_the_connection() {
    for early in [
        next(1, "a"),
        next_fixed(1, ""),
        packed(1, 1, "a"),
        part(1, 0, "a"),
        last_part(1, 0, "a"),
        complete(1),
    ] {
        let mut talk = Talk::client();
        talk.session.subscribe("p", Demand::by_hand(5)).unwrap();
        talk.says();
        assert_eq!(talk.judges(&[&early]), Some("reactive.unknown_subscriber"));
        assert_eq!(talk.says().first(), Some(&GOODBYE));
    }
}

/// JVM 1.10
#[test]
fn a_publisher_is_subscribed_to_again_under_other_ids_only() {
    let mut talk = Talk::server();
    let (first, second) = (talk.publication(1, 1, 0), talk.publication(2, 1, 0));
    assert_eq!(talk.publish(first, &["a"]), Ok(1));
    assert_eq!(talk.publish(second, &["a"]), Ok(1));
    assert_eq!(talk.says(), [next(1, "a"), next(2, "a")].concat());
    let again = subscribe("q", 1, 1);
    assert_eq!(talk.judges(&[&again]), Some("reactive.subscriber_in_use"));
    assert_eq!(talk.says().first(), Some(&GOODBYE));
}

/// JVM 1.11
#[test]
fn each_subscriber_of_a_publisher_has_its_own_demand_and_end() {
    let mut talk = Talk::server();
    let slow = talk.publication(1, 1, 0);
    let quick = talk.publication(2, 3, 0);
    let leaving = talk.publication(3, 3, 0);
    talk.hears(&[&cancel(3)]);
    assert_eq!(talk.publish(slow, &["a", "b", "c"]), Ok(1));
    assert_eq!(talk.publish(quick, &["a", "b", "c"]), Ok(3));
    assert_eq!(talk.publish(leaving, &["a"]), Err("reactive.cancelled"));
    talk.session.complete(quick).unwrap();
    let expected = [
        next(1, "a"),
        next(2, "a"),
        next(2, "b"),
        next(2, "c"),
        complete(2),
    ];
    assert_eq!(talk.says(), expected.concat());
    talk.hears(&[&request(1, 2)]);
    assert_eq!(talk.publish(slow, &["b", "c"]), Ok(2));
    assert_eq!(talk.says(), [next(1, "b"), next(1, "c")].concat());
}
