//! Requests and cancels as they reach the publisher, and the demand that they add up to.

use ackline_core::Connection as _;
use ackline_reactive::session::Demand;
use ackline_reactive::{Role, UNBOUNDED};

use super::wire::{
    GOODBYE, cancel, complete, error, last_part, next, next_fixed, packed, part, request,
    subscribe, subscribed,
};
use super::{Talk, code};

/// The text of the error with which a request of 0 ends a stream.
const ZERO: &str = "a request of 0 elements";

/// JVM 3.1
#[test]
fn requests_and_cancels_are_about_the_subscriptions_of_their_sender() {
    let mut talk = Talk::server();
    // Both ends have a subscription 1.
    let theirs = talk.publication(1, 0, 0);
    let own = talk.subscription(1, Demand::by_hand(1), 0);
    talk.hears(&[&request(1, 2)]);
    assert_eq!(talk.session.room(theirs).unwrap(), 2);
    assert_eq!(talk.session.requested(own).unwrap(), 1);
    talk.session.request(own, 3).unwrap();
    assert_eq!(talk.says(), request(1, 3));
    assert_eq!(talk.session.room(theirs).unwrap(), 2);
    talk.hears(&[&cancel(1)]);
    assert_eq!(code(talk.session.room(theirs)), Some("reactive.cancelled"));
    talk.hears(&[&next(1, "a")]);
    assert_eq!(talk.takes(own).0, ["a"]);
    // The peer has no subscription 7.
    talk.hears(&[&request(7, 1), &request(7, 0), &cancel(7)]);
    assert_eq!(talk.says(), b"");
}

/// JVM 3.2
#[test]
fn a_request_counts_at_any_time_from_the_subscription_on() {
    let mut talk = Talk::with(Role::Server, |config| config.split_threshold = 2);
    let serial = talk.arrival(1, 0);
    talk.hears(&[&request(1, 1)]);
    talk.session.admit(serial, 0).unwrap();
    assert_eq!(talk.publish(serial, &["abcd", "e"]), Ok(1));
    talk.hears(&[&request(1, 2)]);
    assert_eq!(talk.publish(serial, &["e", "f", "g"]), Ok(2));
    let element = [part(1, 0, "ab"), last_part(1, 0, "cd")].concat();
    let expected = [subscribed(1, 0), element, next(1, "e"), next(1, "f")];
    assert_eq!(talk.says(), expected.concat());

    // The same as a subscriber: before the acceptance, and between two parts.
    let mut talk = Talk::client();
    let serial = talk.session.subscribe("p", Demand::by_hand(0)).unwrap();
    talk.session.request(serial, 1).unwrap();
    assert_eq!(talk.says(), [subscribe("p", 1, 0), request(1, 1)].concat());
    talk.hears(&[&subscribed(1, 0), &part(1, 0, "ab")]);
    talk.session.request(serial, 1).unwrap();
    assert_eq!(talk.says(), request(1, 1));
    talk.hears(&[&next(1, "e"), &last_part(1, 0, "cd")]);
    assert_eq!(talk.takes(serial).0, ["e", "abcd"]);
}

/// JVM 3.5, 3.7
#[test]
fn a_second_cancel_does_nothing() {
    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::by_hand(1), 0);
    talk.session.cancel(serial).unwrap();
    let again = talk.session.cancel(serial);
    assert_eq!(code(again), Some("already_ended"));
    talk.session.drop_subscription(serial);
    assert_eq!(talk.says(), cancel(1));

    let mut talk = Talk::server();
    let (serial, other) = (talk.publication(1, 1, 0), talk.publication(2, 1, 0));
    talk.hears(&[&cancel(1), &cancel(1)]);
    assert_eq!(code(talk.session.room(serial)), Some("reactive.cancelled"));
    assert_eq!(talk.says(), b"");
    assert_eq!(talk.publish(other, &["a"]), Ok(1));
    assert_eq!(talk.says(), next(2, "a"));
}

/// JVM 3.6
#[test]
fn a_request_behind_a_cancel_does_nothing() {
    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::automatic(2), 0);
    talk.hears(&[&next(1, "a"), &next(1, "b")]);
    talk.session.cancel(serial).unwrap();
    let late = talk.session.request(serial, 1);
    assert_eq!(code(late), Some("already_ended"));
    assert_eq!(talk.takes(serial), (vec![], "reactive.cancelled"));
    assert_eq!(talk.says(), cancel(1), "and nothing is requested by itself");

    let mut talk = Talk::server();
    let serial = talk.publication(1, 1, 0);
    // Also a request of 0, which is an error while the subscription is there.
    talk.hears(&[&cancel(1), &request(1, 5), &request(1, 0)]);
    assert_eq!(talk.publish(serial, &["a"]), Err("reactive.cancelled"));
    assert_eq!((talk.says(), talk.open()), (vec![], (0, 0)));
}

/// JVM 3.15, 3.16
#[test]
fn requests_and_cancels_that_cross_the_end_of_a_stream_break_no_rule() {
    for late in [request(1, 1), request(1, 0), cancel(1)] {
        let mut talk = Talk::server();
        let rejected = talk.arrival(1, 1);
        talk.session.reject(rejected, "x").unwrap();
        talk.hears(&[&late]);
        assert_eq!(talk.says(), [subscribed(1, 0), error(1, "x")].concat());
        let serial = talk.publication(1, 1, 0);
        talk.session.complete(serial).unwrap();
        assert_eq!(talk.says(), complete(1));
        talk.hears(&[&late, &late]);
        assert_eq!(talk.says(), b"");
        assert!(talk.session.over().is_none());
    }
}

/// JVM 3.8
#[test]
fn requests_add_up() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 2, 0);
    talk.hears(&[&request(1, 3), &request(1, 4)]);
    assert_eq!(talk.session.room(serial).unwrap(), 9);
    assert_eq!(talk.publish(serial, &["x"; 5]), Ok(5));
    talk.hears(&[&request(1, 300)]);
    assert_eq!(talk.session.room(serial).unwrap(), 304);

    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::by_hand(2), 0);
    talk.session.request(serial, 3).unwrap();
    assert_eq!(talk.session.requested(serial).unwrap(), 5);
    assert_eq!(talk.says(), request(1, 3));
    let five = next(1, "x").repeat(5);
    talk.hears(&[&five]);
    assert_eq!(talk.session.requested(serial).unwrap(), 0);
}

/// JVM 3.9
#[test]
fn a_request_of_no_elements_ends_its_stream_with_an_error() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 5, 0);
    let other = talk.publication(2, 5, 0);
    assert_eq!(talk.publish(serial, &["waits"]), Ok(1));
    talk.hears(&[&request(1, 0)]);
    assert_eq!(talk.says(), error(1, ZERO), "as a cancel, but told");
    assert_eq!(talk.publish(serial, &["a"]), Err("reactive.cancelled"));
    assert_eq!(talk.open(), (0, 1));
    assert_eq!(talk.publish(other, &["b"]), Ok(1));
    assert_eq!(talk.says(), next(2, "b"));

    // Before the acceptance, too, which stands before every signal.
    let unanswered = talk.arrival(3, 5);
    talk.hears(&[&request(3, 0)]);
    assert_eq!(talk.says(), [subscribed(3, 0), error(3, ZERO)].concat());
    let admitted = talk.session.admit(unanswered, 0);
    assert_eq!(code(admitted), Some("reactive.cancelled"));
}

/// JVM 3.9
#[test]
fn a_subscriber_never_sends_a_demand_that_is_none() {
    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::by_hand(0), 0);
    for wrong in [0, UNBOUNDED + 1, u64::MAX] {
        let refused = talk.session.request(serial, wrong);
        assert_eq!(code(refused), Some("invalid_demand"));
    }
    assert_eq!(talk.says(), b"");
    assert_eq!(talk.session.requested(serial).unwrap(), 0);
}

/// JVM 3.9
#[test]
fn a_demand_that_would_be_negative_ends_the_connection() {
    for wrong in [request(1, UNBOUNDED + 1), request(1, u64::MAX)] {
        let mut talk = Talk::server();
        let serial = talk.publication(1, 5, 0);
        assert_eq!(talk.judges(&[&wrong]), Some("reactive.long_overflow"));
        assert_eq!(talk.says().first(), Some(&GOODBYE));
        assert_eq!(
            code(talk.session.room(serial)),
            Some("reactive.long_overflow")
        );
    }
}

/// JVM 3.13
#[test]
fn a_cancelled_subscription_leaves_the_publisher_nothing() {
    let mut talk = Talk::server();
    for cycle in 0..10_000 {
        let serial = talk.publication(1, 5, 0);
        assert_eq!(talk.publish(serial, &["waits"]), Ok(1));
        if cycle % 2 == 0 {
            talk.session.complete(serial).unwrap();
        }
        talk.hears(&[&cancel(1)]);
        talk.session.drop_publication(serial);
        assert_eq!(talk.session.open(), (0, 0, 0));
        assert_eq!(talk.session.held_bytes(), 0);
        assert_eq!(talk.says(), b"");
    }
    // The handle of one that is cancelled ends none that has its id.
    let cancelled = talk.publication(1, 5, 0);
    assert_eq!(talk.publish(cancelled, &["old"]), Ok(1));
    talk.hears(&[&cancel(1)]);
    let serial = talk.publication(1, 1, 0);
    talk.session.drop_publication(cancelled);
    assert_eq!(talk.publish(serial, &["a"]), Ok(1));
    assert_eq!(talk.says(), next(1, "a"));
}

/// JVM 3.13
#[test]
fn a_cancelled_subscription_leaves_the_subscriber_no_elements() {
    let mut talk = Talk::client();
    for (id, size) in [(1, 0), (2, 3)] {
        let serial = talk.subscription(id, Demand::by_hand(9), size);
        if size == 0 {
            talk.hears(&[&next(id, "abc")]);
        } else {
            talk.hears(&[&next_fixed(id, "abc"), &packed(id, 2, "defghi")]);
        }
        talk.hears(&[&part(id, 0, "a"), &part(id, 1, "b")]);
        assert!(talk.session.coming_bytes() > 0);
        assert!(talk.session.complete_bytes() > 0);
        talk.session.cancel(serial).unwrap();
        talk.hears(&[&part(id, 0, "a"), &part(id, 2, "c")]);
        assert_eq!(talk.session.held_bytes(), 0);
        assert_eq!(talk.says(), cancel(id));
    }
}

/// JVM 3.17
#[test]
fn the_largest_demand_is_without_bound_and_does_not_decrease() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, UNBOUNDED, 1);
    for _ in 0..3 {
        let mut elements = bytes::Bytes::from_static(b"abc");
        talk.session.publish_packed(serial, &mut elements).unwrap();
        assert_eq!(talk.says(), packed(1, 3, "abc"));
        assert_eq!(talk.session.room(serial).unwrap(), UNBOUNDED);
    }

    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::unbounded(), 0);
    for _ in 0..3 {
        talk.hears(&[&next(1, "a"), &part(1, 0, "b"), &last_part(1, 0, "c")]);
        assert_eq!(talk.takes(serial).0, ["a", "bc"]);
        assert_eq!(talk.session.requested(serial).unwrap(), UNBOUNDED);
    }
    assert_eq!(talk.says(), b"", "nothing more is requested");
}

/// JVM 3.17
#[test]
fn demands_whose_sum_is_above_the_largest_are_without_bound() {
    for requests in [
        &[UNBOUNDED - 1, 1][..],
        &[UNBOUNDED - 1, UNBOUNDED - 1, UNBOUNDED],
        &[UNBOUNDED, UNBOUNDED],
    ] {
        let mut talk = Talk::server();
        let serial = talk.publication(1, requests[0], 0);
        assert_eq!(talk.session.room(serial).unwrap(), requests[0]);
        for demand in &requests[1..] {
            talk.hears(&[&request(1, *demand)]);
        }
        assert_eq!(talk.publish(serial, &["a", "b"]), Ok(2));
        assert_eq!(talk.says(), [next(1, "a"), next(1, "b")].concat());
        assert_eq!(talk.session.room(serial).unwrap(), UNBOUNDED);

        let mut talk = Talk::client();
        let serial = talk.subscription(1, Demand::by_hand(requests[0]), 0);
        for demand in &requests[1..] {
            talk.session.request(serial, *demand).unwrap();
            assert_eq!(talk.says(), request(1, *demand));
        }
        assert_eq!(talk.session.requested(serial).unwrap(), UNBOUNDED);
    }
}

/// JVM 3.17
#[test]
fn a_demand_of_one_less_than_the_largest_is_counted() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, UNBOUNDED - 1, 0);
    assert_eq!(talk.publish(serial, &["a", "b"]), Ok(2));
    assert_eq!(talk.session.room(serial).unwrap(), UNBOUNDED - 3);
    talk.hears(&[&request(1, 1)]);
    assert_eq!(talk.session.room(serial).unwrap(), UNBOUNDED - 2);
}

/// JVM 3.17
#[test]
fn requests_may_be_any_number() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 0, 0);
    let one = request(1, 1);
    for _ in 0..100_000 {
        talk.hears(&[&one]);
    }
    assert_eq!(talk.session.room(serial).unwrap(), 100_000);
    assert_eq!(talk.says(), b"");
}
