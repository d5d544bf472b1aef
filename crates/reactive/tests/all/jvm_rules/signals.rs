//! The order of a stream's signals, and the silence behind its end.

use ackline_reactive::Role;
use ackline_reactive::session::Demand;

use super::wire::{
    GOODBYE, complete, error, last_part, next, next_fixed, packed, part, subscribed,
};
use super::{Talk, code};

/// JVM 1.3
#[test]
fn signals_of_a_stream_are_sent_in_the_order_of_their_calls() {
    let mut talk = Talk::with(Role::Server, |config| config.split_threshold = 4);
    let (one, other) = (talk.publication(1, 9, 0), talk.publication(2, 9, 0));
    assert_eq!(talk.publish(one, &["a", "0123456789", "b"]), Ok(3));
    talk.session.complete(one).unwrap();
    assert_eq!(talk.publish(other, &["x", "y"]), Ok(2));
    // Messages of the other stream stand between those of this one, never inside one.
    let expected = [
        next(1, "a"),
        next(2, "x"),
        part(1, 0, "0123"),
        next(2, "y"),
        part(1, 0, "4567"),
        last_part(1, 0, "89"),
        next(1, "b"),
        complete(1),
    ];
    assert_eq!(talk.says(), expected.concat());
}

/// JVM 1.3
#[test]
fn signals_of_a_stream_are_handed_out_in_the_order_in_which_they_came() {
    let mut talk = Talk::client();
    let one = talk.subscription(1, Demand::by_hand(9), 0);
    let other = talk.subscription(2, Demand::by_hand(9), 0);
    talk.hears(&[
        &next(1, "a"),
        &part(1, 0, "lar"),
        &next(2, "x"),
        &last_part(1, 0, "ge"),
        &next(1, "b"),
        &complete(1),
        &error(2, "no more"),
    ]);
    let all = ["a", "large", "b"].map(str::to_owned);
    assert_eq!(talk.takes(one), (all.to_vec(), "complete"));
    assert_eq!(talk.takes(other), (vec!["x".into()], "reactive.failed"));
}

/// JVM 1.7
#[test]
fn a_publisher_sends_nothing_behind_the_end_of_a_stream() {
    for fails in [false, true] {
        let mut talk = Talk::server();
        let serial = talk.publication(1, 5, 0);
        let end = if fails {
            talk.session.fail(serial, "x").unwrap();
            error(1, "x")
        } else {
            talk.session.complete(serial).unwrap();
            complete(1)
        };
        for is_sent in [false, true] {
            assert_eq!(talk.publish(serial, &["late"]), Err("already_ended"));
            assert_eq!(code(talk.session.complete(serial)), Some("already_ended"));
            let failed = talk.session.fail(serial, "again");
            assert_eq!(code(failed), Some("already_ended"));
            assert_eq!(code(talk.session.admit(serial, 0)), Some("already_ended"));
            let expected = if is_sent { vec![] } else { end.clone() };
            assert_eq!(talk.says(), expected);
        }
        talk.session.drop_publication(serial);
        assert_eq!(talk.says(), b"");
    }
}

/// JVM 1.7
#[test]
fn a_peer_that_signals_behind_the_end_of_a_stream_ends_the_connection() {
    let ends = [complete(1), error(1, "x")];
    let late = [
        subscribed(1, 0),
        next(1, "late"),
        next_fixed(1, "late"),
        packed(1, 1, "late"),
        part(1, 0, "late"),
        last_part(1, 0, "late"),
        complete(1),
        error(1, "late"),
    ];
    for end in &ends {
        for late in &late {
            let mut talk = Talk::client();
            let serial = talk.subscription(1, Demand::by_hand(5), 0);
            talk.hears(&[end]);
            assert_eq!(talk.judges(&[late]), Some("reactive.unknown_subscriber"));
            assert_eq!(talk.says().first(), Some(&GOODBYE));
            assert_eq!(talk.takes(serial).0, [""; 0], "the stream ended before");
        }
    }
}

/// JVM 2.3
#[test]
fn the_end_of_a_stream_is_answered_by_nothing() {
    for end in [complete(1), error(1, "x")] {
        let mut talk = Talk::client();
        let serial = talk.subscription(1, Demand::automatic(4), 0);
        let elements = [next(1, "a"), next(1, "b"), next(1, "c")].concat();
        talk.hears(&[&elements, &end]);
        assert_eq!(talk.says(), b"");
        // Elements are taken, and no more are requested.
        assert_eq!(talk.takes(serial).0.len(), 3);
        assert_eq!(talk.says(), b"");
        talk.session.drop_subscription(serial);
        assert_eq!(talk.says(), b"", "a dropped handle cancels nothing");
    }
}

/// JVM 2.3, 2.4
#[test]
fn an_ended_subscription_says_nothing_about_the_next_one_with_its_id() {
    let mut talk = Talk::client();
    let ended = talk.subscription(1, Demand::automatic(4), 0);
    talk.hears(&[&next(1, "a"), &next(1, "b"), &complete(1)]);
    let second = talk.subscription(1, Demand::by_hand(0), 0);
    assert_eq!(talk.takes(ended).0, ["a", "b"]);
    assert_eq!(code(talk.session.request(ended, 1)), Some("already_ended"));
    talk.session.drop_subscription(ended);
    assert_eq!(talk.says(), b"");
    talk.session.request(second, 1).unwrap();
    assert_eq!(talk.says(), [4, 1, 1]);
    talk.hears(&[&next(1, "new")]);
    assert_eq!(talk.takes(second).0, ["new"]);
}

/// JVM 2.4
#[test]
fn a_subscription_that_has_ended_sends_no_more_requests_or_cancels() {
    for end in [complete(1), error(1, "x")] {
        let mut talk = Talk::client();
        let serial = talk.subscription(1, Demand::by_hand(4), 0);
        talk.hears(&[&end]);
        let ended = Some("already_ended");
        assert_eq!(code(talk.session.request(serial, 1)), ended);
        assert_eq!(code(talk.session.requested(serial)), ended);
        assert_eq!(code(talk.session.cancel(serial)), ended);
        assert_eq!(talk.says(), b"");
        assert_eq!(talk.open(), (0, 0));
    }
}

/// JVM 2.9
#[test]
fn a_stream_completes_with_and_without_a_request() {
    for (demand, requests) in [(0, false), (0, true), (3, false)] {
        let mut talk = Talk::client();
        let serial = talk.subscription(1, Demand::by_hand(demand), 0);
        if requests {
            talk.session.request(serial, 1).unwrap();
            assert_eq!(talk.says(), [4, 1, 1]);
        }
        talk.hears(&[&complete(1)]);
        assert_eq!(talk.takes(serial), (vec![], "complete"));
    }
}

/// JVM 2.10
#[test]
fn a_stream_fails_with_and_without_a_request_or_an_acceptance() {
    for (demand, is_accepted) in [(0, false), (0, true), (3, false), (3, true)] {
        let mut talk = Talk::client();
        let serial = talk
            .session
            .subscribe("p", Demand::by_hand(demand))
            .unwrap();
        talk.says();
        if is_accepted {
            talk.hears(&[&subscribed(1, 0)]);
        }
        talk.hears(&[&error(1, "the disk")]);
        assert_eq!(talk.takes(serial), (vec![], "reactive.failed"));
        assert_eq!(code(talk.session.accepted(serial)), Some("reactive.failed"));
        assert_eq!(talk.says(), b"");
    }
}
