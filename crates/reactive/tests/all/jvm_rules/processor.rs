//! An end that subscribes and publishes at once.

use ackline_reactive::session::Demand;

use super::Talk;
use super::wire::{cancel, complete, next, request, subscribe, subscribed};

/// JVM 4.1
#[test]
fn a_processor_is_a_subscriber_and_a_publisher_over_one_connection() {
    let mut talk = Talk::server();
    let below = talk.publication(1, 2, 0);
    let demand = Demand::by_hand(talk.session.room(below).unwrap());
    let above = talk.session.subscribe("source", demand).unwrap();
    assert_eq!(talk.says(), subscribe("source", 1, 2));
    talk.hears(&[&subscribed(1, 0), &next(1, "a"), &request(1, 1)]);
    assert_eq!(talk.takes(above).0, ["a"]);
    assert_eq!(talk.publish(below, &["A"]), Ok(1));
    talk.session.request(above, 1).unwrap();
    assert_eq!(talk.says(), [next(1, "A"), request(1, 1)].concat());
    talk.hears(&[&next(1, "b"), &next(1, "c"), &complete(1)]);
    assert_eq!(
        talk.takes(above),
        (vec!["b".into(), "c".into()], "complete")
    );
    assert_eq!(talk.publish(below, &["B", "C", "D"]), Ok(2));
    talk.session.complete(below).unwrap();
    let expected = [next(1, "B"), next(1, "C"), complete(1)];
    assert_eq!(talk.says(), expected.concat());
}

/// JVM 4.1
#[test]
fn the_end_of_one_role_leaves_the_other() {
    let mut talk = Talk::server();
    let below = talk.publication(1, 2, 0);
    let above = talk.subscription(1, Demand::by_hand(2), 0);
    talk.session.cancel(above).unwrap();
    assert_eq!(talk.says(), cancel(1));
    assert_eq!(talk.publish(below, &["a"]), Ok(1));
    assert_eq!(talk.says(), next(1, "a"));
    let above = talk.subscription(2, Demand::by_hand(2), 0);
    talk.hears(&[&cancel(1), &next(2, "b")]);
    assert_eq!(talk.takes(above).0, ["b"]);
}
