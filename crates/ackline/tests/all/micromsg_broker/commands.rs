//! Commands in their place among the messages, the end of a subscription to a queue, and the end of a publisher's direction.

use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::micromsg_receiver::ByHand;

#[tokio::test]
async fn a_worker_that_unsubscribes_keeps_the_messages_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = durable::durable(dir.path());
    for options in [BrokerOptions::default(), on_disk] {
        let broker = broker(options).await;
        let one = worker(&broker, "queue/jobs", 4).await;
        let publisher = client(&broker, 100).await;
        publish(&publisher, "queue/jobs", 0..6).await;
        assert_eq!(work(&one).await, 0);
        for number in 1..4 {
            assert_eq!(next(&one).await, number);
        }
        // Message 4 is on its way to it.
        until("it has four", || broker.stats().delivered == 5).await;
        one.unsubscribe("queue/jobs").await.unwrap();
        settle(&one).await;
        let two = worker(&broker, "queue/jobs", 10).await;
        assert_eq!(work(&two).await, 5);
        nothing_comes(&two).await;
        one.ack(4).unwrap();
        until("three are acknowledged", || {
            broker.stats().unacknowledged == 1
        })
        .await;
        nothing_comes(&two).await;
        // It leaves with the last one.
        drop(one);
        assert_eq!(work(&two).await, 4);
        soon(publisher.acknowledged(6)).await.unwrap();
        until("all are done", || broker.stats().unacknowledged == 0).await;
        nothing_comes(&two).await;
    }
}

#[tokio::test]
async fn a_queue_in_memory_is_forgotten_when_a_worker_that_unsubscribed_has_done_its_work() {
    let broker = broker(BrokerOptions::default()).await;
    let one = worker(&broker, "queue/jobs", 4).await;
    let publisher = client(&broker, 100).await;
    publish(&publisher, "queue/jobs", 0..1).await;
    assert_eq!(next(&one).await, 0);
    one.unsubscribe("queue/jobs").await.unwrap();
    settle(&one).await;
    assert_eq!(broker.stats().queues, 1);
    one.ack(1).unwrap();
    until("it is forgotten", || broker.stats().queues == 0).await;
}

#[tokio::test]
async fn a_command_takes_effect_in_its_place_among_the_messages() {
    let broker = broker(BrokerOptions::default()).await;
    let one = client(&broker, 60_000).await;
    let say = async |numbers: std::ops::Range<u64>| {
        for number in numbers {
            soon(one.send(&numbered("t", number))).await.unwrap();
        }
    };
    say(0..5_000).await;
    one.subscribe("t", None).await.unwrap();
    say(5_000..5_003).await;
    let filter = Filter::read(b"number<N5004").unwrap();
    one.subscribe("t", Some(&filter)).await.unwrap();
    say(5_003..5_006).await;
    one.unsubscribe("t").await.unwrap();
    say(5_006..6_000).await;
    one.subscribe("t", None).await.unwrap();
    say(6_000..6_001).await;
    for number in [5_000, 5_001, 5_002, 5_003, 6_000] {
        assert_eq!(next(&one).await, number);
    }
    nothing_comes(&one).await;
}

#[tokio::test]
async fn a_publisher_that_ends_its_direction_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(durable::durable(dir.path())).await;
    let address = broker.url().trim_start_matches("micromsg://").to_owned();
    for destination in ["queue/jobs", "topic"] {
        let mut publisher = soon(ByHand::at(&address)).await;
        for _ in 0..3 {
            soon(publisher.send(destination, "work")).await;
        }
        publisher.stream.shutdown().await.unwrap();
        while soon(publisher.read()).await {}
        assert_eq!(publisher.machine.pending(), 0, "{destination}");
    }
    let one = worker(&broker, "queue/jobs", 10).await;
    for _ in 0..3 {
        let received = soon(one.receive()).await.unwrap().unwrap();
        assert_eq!(received.message.payload().to_bytes(), "work");
        one.ack(received.position).unwrap();
    }
}
