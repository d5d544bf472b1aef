//! A broker through the Rust API, over real sockets: topics, queues, limits, and queues in a spool.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ackline::micromsg::{
    self, AckPolicy, Broker, BrokerOptions, Config, ConnectOptions, Connection, Error, Filter,
    Message, Number, Offer, Property, Received,
};
use ackline::spool::{Spool, WriterOptions};
use ackline_testkit::netem::XorShift;
use tokio::time::{Instant, timeout};

mod commands;
mod durable;
mod fairness;
mod limits;
mod moving;

const LONG: Duration = Duration::from_secs(60);
/// Time in which something that must not happen would have happened.
const MOMENT: Duration = Duration::from_millis(200);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn broker(options: BrokerOptions) -> Broker {
    soon(micromsg::serve("micromsg://127.0.0.1:0", options))
        .await
        .unwrap()
}

fn options(window: u64, ack_policy: AckPolicy) -> ConnectOptions {
    ConnectOptions {
        offer: Offer {
            window,
            ..Offer::default()
        },
        link: Config {
            ack_policy,
            ..Config::with_timers()
        },
        ..ConnectOptions::default()
    }
}

/// A client whose application acknowledges.
async fn client(broker: &Broker, window: u64) -> Connection {
    soon(micromsg::connect(
        broker.url(),
        options(window, AckPolicy::Manual),
    ))
    .await
    .unwrap()
}

/// The same with these optional extensions.
async fn client_with(broker: &Broker, extensions: &str, window: u64) -> Connection {
    let mut options = options(window, AckPolicy::Manual);
    options.offer.optional_extensions = Some(extensions.to_owned());
    soon(micromsg::connect(broker.url(), options))
        .await
        .unwrap()
}

async fn client_auto(broker: &Broker) -> Connection {
    soon(micromsg::connect(
        broker.url(),
        options(1_000, AckPolicy::Automatic),
    ))
    .await
    .unwrap()
}

/// Waits until everything that was said on the connection before has taken effect.
async fn settle(connection: &Connection) {
    let position = soon(connection.send(&Message::new("nobody", "")))
        .await
        .unwrap();
    soon(connection.acknowledged(position)).await.unwrap();
}

async fn subscriber(broker: &Broker, topic: &str, filter: Option<&str>) -> Connection {
    let connection = client_auto(broker).await;
    let filter = filter.map(|text| Filter::read(text.as_bytes()).unwrap());
    soon(connection.subscribe(topic, filter.as_ref()))
        .await
        .unwrap();
    settle(&connection).await;
    connection
}

/// A worker of a queue that may have so many messages at once.
async fn worker(broker: &Broker, queue: &str, window: u64) -> Connection {
    let connection = client(broker, window).await;
    soon(connection.subscribe(queue, None)).await.unwrap();
    settle(&connection).await;
    connection
}

fn numbered(destination: &str, number: u64) -> Message {
    let value = Property::Number(Number::Whole(i64::try_from(number).unwrap()));
    Message::new(destination, number.to_string()).with("number", value)
}

/// A message whose payload has so many bytes.
fn large(destination: &str, number: u64, bytes: usize) -> Message {
    let mut message = numbered(destination, number);
    let digits = number.to_string();
    message.payload = ("0".repeat(bytes - digits.len()) + &digits).into();
    message
}

fn number(received: &Received) -> u64 {
    let payload = received.message.payload().to_bytes();
    std::str::from_utf8(&payload).unwrap().parse().unwrap()
}

async fn next(connection: &Connection) -> u64 {
    number(&soon(connection.receive()).await.unwrap().unwrap())
}

/// Takes the next message and acknowledges it.
async fn work(connection: &Connection) -> u64 {
    let received = soon(connection.receive()).await.unwrap().unwrap();
    connection.ack(received.position).unwrap();
    number(&received)
}

async fn nothing_comes(connection: &Connection) {
    let came = timeout(MOMENT, connection.receive()).await;
    assert!(came.is_err(), "{came:?}");
}

async fn publish(connection: &Connection, destination: &str, numbers: std::ops::Range<u64>) -> u64 {
    let mut last = 0;
    for number in numbers {
        last = soon(connection.send(&numbered(destination, number)))
            .await
            .unwrap();
    }
    last
}

/// The reason with which the broker has ended a connection.
async fn reason(connection: &Connection) -> String {
    let failed = soon(async {
        loop {
            match connection.receive().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended in order"),
                Err(error) => return error,
            }
        }
    });
    match failed.await {
        Error::Failed(reason) => reason.to_string(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_message_to_a_topic_goes_to_every_subscriber_whose_filter_it_matches() {
    let broker = broker(BrokerOptions::default()).await;
    let all = subscriber(&broker, "prices", None).await;
    let large = subscriber(&broker, "prices", Some("number>=N5")).await;
    let other = subscriber(&broker, "news", None).await;
    let publisher = client(&broker, 100).await;
    let last = publish(&publisher, "prices", 0..10).await;
    soon(publisher.acknowledged(last)).await.unwrap();
    for number in 0..10 {
        assert_eq!(next(&all).await, number);
    }
    for number in 5..10 {
        assert_eq!(next(&large).await, number);
    }
    nothing_comes(&other).await;
    let stats = broker.stats();
    assert_eq!((stats.connections, stats.subscriptions), (4, 3));
    assert_eq!((stats.published, stats.delivered), (13, 15));
}

#[tokio::test]
async fn properties_and_payloads_arrive_as_they_were_sent_and_types_where_they_are_known() {
    let broker = broker(BrokerOptions::default()).await;
    let typed = Offer {
        optional_extensions: Some("batch-ack;pub-sub;dotnet".to_owned()),
        ..Offer::default()
    };
    let typed = ConnectOptions {
        offer: typed,
        ..ConnectOptions::default()
    };
    let knows = soon(micromsg::connect(broker.url(), typed.clone()))
        .await
        .unwrap();
    let plain = subscriber(&broker, "t", None).await;
    knows.subscribe("t", None).await.unwrap();
    settle(&knows).await;
    let publisher = soon(micromsg::connect(broker.url(), typed)).await.unwrap();
    let mut message =
        Message::new("t", vec![7; 3 << 20]).with("name", Property::Text("a b;ü".to_owned()));
    message.dotnet_type = Some("My.Type, My".to_owned());
    soon(publisher.send(&message)).await.unwrap();
    for (connection, wanted) in [(&knows, Some("My.Type, My")), (&plain, None)] {
        let came = soon(connection.receive()).await.unwrap().unwrap().message;
        assert_eq!(came.payload().to_bytes(), message.payload);
        assert_eq!(came.raw_properties(), "name:Ta%20b%3B%C3%BC;");
        assert_eq!(came.dotnet_type.as_deref(), wanted);
    }
}

#[tokio::test]
async fn a_second_subscription_replaces_the_filter_and_an_ended_one_gets_nothing() {
    let broker = broker(BrokerOptions::default()).await;
    let one = subscriber(&broker, "t", Some("number<N10")).await;
    let publisher = client(&broker, 100).await;
    publish(&publisher, "t", 9..12).await;
    assert_eq!(next(&one).await, 9);
    let filter = Filter::read(b"number>=N11").unwrap();
    one.subscribe("t", Some(&filter)).await.unwrap();
    settle(&one).await;
    assert_eq!(broker.stats().subscriptions, 1);
    publish(&publisher, "t", 9..12).await;
    assert_eq!(next(&one).await, 11);
    one.unsubscribe("t").await.unwrap();
    settle(&one).await;
    assert_eq!(broker.stats().subscriptions, 0);
    let last = publish(&publisher, "t", 11..14).await;
    soon(publisher.acknowledged(last)).await.unwrap();
    nothing_comes(&one).await;
}

#[tokio::test]
async fn a_connection_gets_its_own_messages_and_leaves_no_subscription_behind() {
    let broker = broker(BrokerOptions::default()).await;
    let one = subscriber(&broker, "t", None).await;
    publish(&one, "t", 3..4).await;
    assert_eq!(next(&one).await, 3);
    drop(one);
    until("it leaves", || broker.stats().connections == 0).await;
    assert_eq!(broker.stats().subscriptions, 0);
}

/// 1,000 subscribers, ten of which read nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_slow_subscribers_of_a_thousand_are_ended_and_hold_nobody_up() {
    const SUBSCRIBERS: usize = 1_000;
    const MESSAGES: u64 = 300;
    const LIMIT: usize = 64 << 10;
    let broker = broker(BrokerOptions {
        max_subscriber_bytes: LIMIT,
        ..BrokerOptions::default()
    })
    .await;
    let mut readers = Vec::new();
    let mut slow = Vec::new();
    for at in 0..SUBSCRIBERS {
        let one = soon(micromsg::connect(
            broker.url(),
            options(50, AckPolicy::Automatic),
        ))
        .await
        .unwrap();
        one.subscribe("ticks", None).await.unwrap();
        if at % 100 == 7 {
            slow.push(one);
        } else {
            readers.push(tokio::spawn(async move {
                for wanted in 0..MESSAGES {
                    let received = soon(one.receive()).await.unwrap().unwrap();
                    assert_eq!(
                        received.message.properties().get("number").unwrap(),
                        micromsg::PropertyRef::Number(Number::Whole(
                            i64::try_from(wanted).unwrap()
                        ))
                    );
                }
                one
            }));
        }
    }
    until("they subscribe", || {
        broker.stats().subscriptions == SUBSCRIBERS as u64
    })
    .await;
    let publisher = client(&broker, 20).await;
    let mut most_held = 0;
    for number in 0..MESSAGES {
        let mut message = numbered("ticks", number);
        message.payload = vec![0; 1_000].into();
        let position = soon(publisher.send(&message)).await.unwrap();
        // Readers are as fast as this publisher, whose process they share.
        soon(publisher.acknowledged(position)).await.unwrap();
        most_held = most_held.max(broker.stats().held_bytes);
    }
    for reader in readers {
        soon(reader).await.unwrap();
    }
    assert_eq!(broker.stats().slow_subscribers, 10);
    // Each message counts once, however many wait for it.
    assert!(most_held <= 2 * LIMIT as u64, "{most_held}");
    for one in &slow {
        let reason = reason(one).await;
        assert!(
            reason.starts_with("this subscriber is too slow: "),
            "{reason}"
        );
        assert!(
            reason.contains("there may be 65536 (max_subscriber_bytes)"),
            "{reason}"
        );
    }
    until("their messages are dropped", || {
        broker.stats().held_bytes == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_subscribers_of_topics_hold_no_queue_up() {
    let broker = broker(BrokerOptions {
        memory: 16 << 20,
        ..BrokerOptions::default()
    })
    .await;
    // Neither reads: more than half of the memory waits for the two.
    let slow = [client(&broker, 1).await, client(&broker, 1).await];
    for (one, topic) in slow.iter().zip(["a", "b"]) {
        one.subscribe(topic, None).await.unwrap();
        settle(one).await;
    }
    let publisher = client(&broker, 100).await;
    for number in 0..14 {
        let topic = if number % 2 == 0 { "a" } else { "b" };
        let message = Message::new(topic, vec![0; 1 << 20]);
        let last = soon(publisher.send(&message)).await.unwrap();
        soon(publisher.acknowledged(last)).await.unwrap();
    }
    let held = broker.stats().held_bytes;
    assert!(held > 9 << 20, "{held}");
    let worker = worker(&broker, "queue/jobs", 4).await;
    for number in 0..100 {
        publish(&publisher, "queue/jobs", number..number + 1).await;
        assert_eq!(work(&worker).await, number);
    }
    assert_eq!(broker.stats().slow_subscribers, 0);
    // Where both together are too much, the slowest subscriber goes, and no message of a queue.
    for number in 100..107 {
        let message = large("queue/jobs", number, 1 << 20);
        soon(publisher.send(&message)).await.unwrap();
    }
    until("one is ended", || broker.stats().slow_subscribers == 1).await;
    for number in 100..107 {
        assert_eq!(work(&worker).await, number);
    }
}

#[tokio::test]
async fn the_slowest_subscriber_is_ended_when_all_messages_together_are_too_many() {
    let broker = broker(BrokerOptions {
        memory: 16 << 20,
        max_subscriber_bytes: 1 << 30,
        ..BrokerOptions::default()
    })
    .await;
    let [slower, faster] = [client(&broker, 1).await, client(&broker, 1).await];
    for (one, topic) in [(&slower, "a"), (&faster, "b")] {
        one.subscribe(topic, None).await.unwrap();
        settle(one).await;
    }
    let publisher = client(&broker, 100).await;
    let message = |topic: &str| Message::new(topic, vec![0; 1 << 20]);
    for at in 0..40 {
        soon(publisher.send(&message("a"))).await.unwrap();
        if at % 4 == 0 {
            soon(publisher.send(&message("b"))).await.unwrap();
        }
        let all = publisher.stats().sent;
        soon(publisher.acknowledged(all)).await.unwrap();
        assert!(broker.stats().held_bytes <= (16 << 20) + (1 << 19));
        if broker.stats().slow_subscribers > 0 {
            break;
        }
    }
    let reason = reason(&slower).await;
    assert!(
        reason.starts_with("this subscriber is the slowest one: "),
        "{reason}"
    );
    assert!(
        reason.ends_with("there may be 16777216 (memory)"),
        "{reason}"
    );
    soon(faster.receive()).await.unwrap().unwrap();
    assert_eq!(broker.stats().slow_subscribers, 1);
}

#[tokio::test]
async fn a_queue_keeps_its_order_and_waits_for_the_acknowledgement_of_its_receiver() {
    let broker = broker(BrokerOptions::default()).await;
    let publisher = client(&broker, 100).await;
    let last = publish(&publisher, "queue/jobs", 0..20).await;
    let acknowledged = timeout(MOMENT, publisher.acknowledged(1)).await;
    assert!(acknowledged.is_err(), "nobody has it");
    let worker = worker(&broker, "queue/jobs", 5).await;
    for number in 0..5 {
        assert_eq!(next(&worker).await, number);
    }
    nothing_comes(&worker).await;
    assert_eq!(broker.stats().unacknowledged, 5);
    worker.ack(3).unwrap();
    soon(publisher.acknowledged(3)).await.unwrap();
    assert!(matches!(publisher.try_acknowledged(4), Err(Error::Blocked)));
    for number in 5..8 {
        assert_eq!(next(&worker).await, number);
    }
    worker.ack(8).unwrap();
    for number in 8..20 {
        assert_eq!(work(&worker).await, number);
    }
    soon(publisher.acknowledged(last)).await.unwrap();
    let stats = broker.stats();
    assert_eq!(
        (stats.waiting, stats.unacknowledged, stats.held_bytes),
        (0, 0, 0)
    );
    drop(worker);
    until("the queue is gone", || broker.stats().queues == 0).await;
}

#[tokio::test]
async fn two_workers_share_a_queue_and_the_messages_of_one_that_vanishes_go_to_the_other() {
    let broker = broker(BrokerOptions::default()).await;
    let one = worker(&broker, "queue/jobs", 10).await;
    let two = worker(&broker, "queue/jobs", 10).await;
    let publisher = client(&broker, 1_000).await;
    let last = publish(&publisher, "queue/jobs", 0..200).await;
    let mut done = BTreeSet::new();
    for _ in 0..30 {
        done.insert(work(&one).await);
    }
    // It has messages that it does not acknowledge.
    next(&two).await;
    drop(two);
    while done.len() < 200 {
        assert!(done.insert(work(&one).await), "no message is done twice");
    }
    soon(publisher.acknowledged(last)).await.unwrap();
    nothing_comes(&one).await;
}

#[tokio::test]
async fn workers_with_filters_get_their_own_messages_and_others_wait_aside() {
    let broker = broker(BrokerOptions::default()).await;
    let small = client(&broker, 2).await;
    let filter = Filter::read(b"number<N3").unwrap();
    small.subscribe("queue/jobs", Some(&filter)).await.unwrap();
    settle(&small).await;
    let publisher = client(&broker, 100).await;
    let numbers = [7, 0, 8, 1, 2];
    for number in numbers {
        publish(&publisher, "queue/jobs", number..number + 1).await;
    }
    for number in 0..3 {
        assert_eq!(work(&small).await, number);
    }
    assert!(
        matches!(publisher.try_acknowledged(1), Err(Error::Blocked)),
        "nobody wants it"
    );
    let large = client(&broker, 10).await;
    large.subscribe("queue/jobs", None).await.unwrap();
    assert_eq!(work(&large).await, 7);
    assert_eq!(work(&large).await, 8);
    soon(publisher.acknowledged(5)).await.unwrap();
}

#[tokio::test]
async fn a_worker_needs_acknowledgements() {
    let broker = broker(BrokerOptions::default()).await;
    let offer = Offer {
        optional_extensions: Some("pub-sub".to_owned()),
        ..Offer::default()
    };
    let options = ConnectOptions {
        offer,
        ..ConnectOptions::default()
    };
    let server = BrokerOptions {
        offer: Offer {
            optional_extensions: Some("pub-sub".to_owned()),
            ..Offer::default()
        },
        ..BrokerOptions::default()
    };
    drop(broker);
    let broker = self::broker(server).await;
    let one = soon(micromsg::connect(broker.url(), options))
        .await
        .unwrap();
    one.subscribe("queue/jobs", None).await.unwrap();
    assert_eq!(
        reason(&one).await,
        "a queue needs acknowledgements: offer batch-ack or ack"
    );
}

#[tokio::test]
async fn publishers_to_a_queue_that_is_full_wait_and_lose_nothing() {
    let broker = broker(BrokerOptions {
        max_subscriber_bytes: 64 << 10,
        memory: 8 << 20,
        ..BrokerOptions::default()
    })
    .await;
    let publisher = client(&broker, 60_000).await;
    let publishing = tokio::spawn(async move {
        let last = publish(&publisher, "queue/jobs", 0..20_000).await;
        soon(publisher.acknowledged(last)).await.unwrap();
    });
    until("the queue is full", || broker.stats().held_bytes > 64 << 10).await;
    tokio::time::sleep(MOMENT).await;
    let held = broker.stats().held_bytes;
    assert!(held < (64 << 10) + (512 << 10), "{held}");
    let worker = worker(&broker, "queue/jobs", 100).await;
    for number in 0..20_000 {
        assert_eq!(work(&worker).await, number);
    }
    soon(publishing).await.unwrap();
}
