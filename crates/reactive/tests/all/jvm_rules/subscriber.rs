//! Requests and cancels as a subscriber sends them, and the signals that come behind a cancel.

use ackline_reactive::session::Demand;

use super::wire::{
    GOODBYE, cancel, complete, error, last_part, next, next_fixed, packed, part, request,
    subscribe, subscribed,
};
use super::{Talk, code};

/// JVM 2.1
#[test]
fn a_subscriber_requests_the_elements_that_it_takes() {
    let mut talk = Talk::client();
    let by_hand = talk.session.subscribe("p", Demand::by_hand(0)).unwrap();
    assert_eq!(talk.says(), subscribe("p", 1, 0));
    talk.hears(&[&subscribed(1, 0)]);
    assert_eq!(talk.says(), b"", "nobody has asked for elements");
    talk.session.request(by_hand, 2).unwrap();
    assert_eq!(talk.says(), request(1, 2));
    talk.hears(&[&next(1, "a"), &next(1, "b")]);
    assert_eq!(talk.takes(by_hand).0, ["a", "b"]);
    assert_eq!(talk.says(), b"");

    let by_itself = talk.session.subscribe("q", Demand::automatic(4)).unwrap();
    assert_eq!(talk.says(), subscribe("q", 2, 4));
    talk.hears(&[&subscribed(2, 0), &next(2, "c"), &next(2, "d")]);
    assert_eq!(talk.says(), b"", "the elements are not taken yet");
    assert_eq!(talk.takes(by_itself).0, ["c", "d"]);
    assert_eq!(talk.says(), request(2, 2));
}

/// JVM 2.5
#[test]
fn a_second_acceptance_ends_every_subscription() {
    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::by_hand(4), 0);
    let other = talk.subscription(2, Demand::by_hand(4), 0);
    let again = subscribed(1, 0);
    assert_eq!(
        talk.judges(&[&again]),
        Some("reactive.duplicate_subscribed")
    );
    assert_eq!(talk.says().first(), Some(&GOODBYE));
    for ended in [serial, other] {
        assert_eq!(talk.takes(ended), (vec![], "reactive.duplicate_subscribed"));
    }
    assert_eq!(talk.open(), (0, 0));
}

/// JVM 2.6
#[test]
fn a_subscription_that_is_not_needed_any_more_is_cancelled_once() {
    for is_accepted in [false, true] {
        let mut talk = Talk::client();
        let serial = talk.session.subscribe("p", Demand::by_hand(4)).unwrap();
        talk.says();
        if is_accepted {
            talk.hears(&[&subscribed(1, 0), &next(1, "not taken")]);
        }
        // The handle is dropped.
        talk.session.drop_subscription(serial);
        assert_eq!(talk.says(), cancel(1));
        assert_eq!(talk.open(), (0, 0));
        talk.session.drop_subscription(serial);
        assert_eq!(talk.says(), b"");
    }
}

/// JVM 2.7
#[test]
fn requests_and_the_cancel_stand_in_the_order_of_their_calls() {
    let mut talk = Talk::client();
    let serial = talk.session.subscribe("p", Demand::by_hand(0)).unwrap();
    let other = talk.session.subscribe("q", Demand::by_hand(1)).unwrap();
    talk.session.request(serial, 3).unwrap();
    talk.session.request(other, 300).unwrap();
    talk.session.request(serial, 1).unwrap();
    talk.session.cancel(serial).unwrap();
    talk.session.request(other, 2).unwrap();
    let expected = [
        subscribe("p", 1, 0),
        subscribe("q", 2, 1),
        request(1, 3),
        request(2, 300),
        request(1, 1),
        cancel(1),
        request(2, 2),
    ];
    assert_eq!(talk.says(), expected.concat());
}

/// JVM 2.8
#[test]
fn signals_that_come_behind_a_cancel_are_dropped() {
    for (size, late) in [
        (0, vec![next(1, "a"), next(1, "not requested")]),
        (
            0,
            vec![part(1, 0, "a"), part(1, 1, ""), last_part(1, 0, "")],
        ),
        (0, vec![part(1, 0, "a"), complete(1)]),
        (2, vec![next_fixed(1, "aa"), packed(1, 3, "bbccdd")]),
        (2, vec![part(1, 0, "a"), last_part(1, 0, ""), error(1, "x")]),
        (300, vec![next_fixed(1, &"a".repeat(300)), complete(1)]),
    ] {
        for is_accepted in [true, false] {
            let mut talk = Talk::client();
            let serial = talk.session.subscribe("p", Demand::by_hand(1)).unwrap();
            let other = talk.session.subscribe("q", Demand::by_hand(1)).unwrap();
            talk.says();
            let accepted = subscribed(1, size);
            if is_accepted {
                talk.hears(&[&accepted]);
            }
            talk.session.cancel(serial).unwrap();
            assert_eq!(talk.says(), cancel(1));
            if !is_accepted {
                // The size is learnt now: without it the elements have no end.
                talk.hears(&[&accepted]);
            }
            talk.hears(&[&late.concat(), &subscribed(2, 0), &next(2, "x")]);
            assert_eq!(talk.takes(serial), (vec![], "reactive.cancelled"));
            assert_eq!(talk.takes(other).0, ["x"]);
            assert_eq!(talk.says(), b"");
        }
    }
}

/// JVM 2.8
#[test]
fn the_id_of_a_cancelled_subscription_is_not_used_again() {
    let mut talk = Talk::client();
    let serial = talk.subscription(1, Demand::by_hand(1), 0);
    talk.session.cancel(serial).unwrap();
    talk.says();
    talk.hears(&[&complete(1)]);
    // An element of the first one, sent before its end was known, cannot be taken for one of the second.
    let second = talk.subscription(2, Demand::by_hand(1), 0);
    talk.hears(&[&next(1, "old"), &next(2, "new")]);
    assert_eq!(talk.takes(second).0, ["new"]);
}

/// JVM 2.12
#[test]
fn a_subscription_is_accepted_once() {
    let mut talk = Talk::server();
    for _ in 0..2 {
        // Under an id that is used again, too.
        let serial = talk.publication(1, 1, 0);
        let again = talk.session.admit(serial, 0);
        assert_eq!(code(again), Some("unknown_subscriber"));
        let rejected = talk.session.reject(serial, "x");
        assert_eq!(code(rejected), Some("unknown_subscriber"));
        assert_eq!(talk.says(), b"");
        talk.session.complete(serial).unwrap();
        assert_eq!(talk.says(), complete(1));
    }
}

/// JVM 2.13
#[test]
fn a_subscriber_that_fails_has_a_cancel_and_nothing_else() {
    let mut talk = Talk::server();
    let serial = talk.publication(1, 5, 0);
    talk.hears(&[&cancel(1)]);
    assert_eq!(
        code(talk.session.is_wanted(serial)),
        Some("reactive.cancelled")
    );
    assert_eq!(talk.says(), b"");

    // An error goes from a publisher to its subscriber; the other way it names a subscription that does not exist.
    talk.publication(1, 5, 0);
    let wrong = error(1, "the subscriber has failed");
    assert_eq!(talk.judges(&[&wrong]), Some("reactive.unknown_subscriber"));
    assert_eq!(talk.says().first(), Some(&GOODBYE));
}
