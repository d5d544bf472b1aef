//! A broker through the Rust API, over real sockets: topics, queues, limits, and queues in a spool.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
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

fn number(received: &Received) -> u64 {
    let payload = received.message.payload.to_bytes();
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
        assert_eq!(came.payload.to_bytes(), message.payload);
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

#[tokio::test]
async fn the_slowest_subscriber_is_ended_when_all_messages_together_are_too_many() {
    let broker = broker(BrokerOptions {
        memory: 16 << 20,
        max_subscriber_bytes: 1 << 30,
        ..BrokerOptions::default()
    })
    .await;
    let slower = soon(micromsg::connect(
        broker.url(),
        options(1, AckPolicy::Manual),
    ))
    .await
    .unwrap();
    let faster = soon(micromsg::connect(
        broker.url(),
        options(1, AckPolicy::Manual),
    ))
    .await
    .unwrap();
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
async fn a_worker_that_unsubscribes_gives_its_messages_back() {
    let broker = broker(BrokerOptions::default()).await;
    let one = worker(&broker, "queue/jobs", 10).await;
    let publisher = client(&broker, 100).await;
    let last = publish(&publisher, "queue/jobs", 0..4).await;
    assert_eq!(work(&one).await, 0);
    assert_eq!(next(&one).await, 1);
    one.unsubscribe("queue/jobs").await.unwrap();
    settle(&one).await;
    let two = worker(&broker, "queue/jobs", 10).await;
    for number in 1..4 {
        assert_eq!(work(&two).await, number);
    }
    soon(publisher.acknowledged(last)).await.unwrap();
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

#[tokio::test]
async fn subscriptions_are_limited_in_number_size_and_conditions() {
    for (topics, filter, code, says) in [
        (
            4,
            "a=N1".to_owned(),
            "too many",
            "more than 3 subscriptions on one connection (max_subscriptions)",
        ),
        (
            1,
            ["a=N1"; 9].join(";"),
            "conditions",
            "a filter has 9 conditions, and there may be 8 (max_filter_conditions)",
        ),
        (
            1,
            format!("a=T{}", "x".repeat(5_000)),
            "bytes",
            "and there may be 4096 (max_subscription_bytes)",
        ),
    ] {
        let broker = broker(BrokerOptions {
            max_subscriptions: 3,
            max_filter_conditions: 8,
            max_subscription_bytes: 4_096,
            ..BrokerOptions::default()
        })
        .await;
        let one = client(&broker, 10).await;
        let filter = Filter::read(filter.as_bytes()).unwrap();
        for topic in 0..topics {
            one.subscribe(&topic.to_string(), Some(&filter))
                .await
                .unwrap();
        }
        let reason = reason(&one).await;
        assert!(reason.ends_with(says), "{code}: {reason}");
        assert_eq!(broker.stats().refused, 1);
    }
}

#[tokio::test]
async fn queues_are_limited_in_number() {
    let broker = broker(BrokerOptions {
        max_queues: 2,
        queues: Some("*".to_owned()),
        ..BrokerOptions::default()
    })
    .await;
    let one = client(&broker, 10).await;
    for name in ["a", "b", "c"] {
        publish(&one, name, 0..1).await;
    }
    assert_eq!(
        reason(&one).await,
        "there are 2 queues, as many as there may be (max_queues)"
    );
}

#[tokio::test]
async fn wrong_options_are_named() {
    for (options, says) in [
        (
            BrokerOptions {
                queues: Some("a*b".to_owned()),
                ..BrokerOptions::default()
            },
            "queues has",
        ),
        (
            BrokerOptions {
                max_queues: 0,
                ..BrokerOptions::default()
            },
            "max_queues is 0",
        ),
        (
            BrokerOptions {
                spool: Some("/dev/null/x".into()),
                ..BrokerOptions::default()
            },
            "/dev/null/x: ",
        ),
    ] {
        let error = micromsg::serve("micromsg://127.0.0.1:0", options)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Open(_)), "{error}");
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

#[tokio::test]
async fn unknown_commands_are_counted_and_change_nothing() {
    let broker = broker(BrokerOptions::default()).await;
    let one = client(&broker, 10).await;
    one.command("hello", &[]).await.unwrap();
    settle(&one).await;
    assert_eq!(broker.stats().ignored, 1);
}

#[tokio::test]
async fn closing_waits_for_the_acknowledgements_of_workers() {
    let broker = broker(BrokerOptions::default()).await;
    let worker = worker(&broker, "queue/jobs", 2).await;
    let publisher = client(&broker, 100).await;
    publish(&publisher, "queue/jobs", 0..5).await;
    assert_eq!(next(&worker).await, 0);
    assert_eq!(next(&worker).await, 1);
    let url = broker.url().to_owned();
    let closing = tokio::spawn(async move { broker.close(Some(LONG)).await });
    until("it accepts nothing more", || {
        std::net::TcpStream::connect(url.trim_start_matches("micromsg://")).is_err()
    })
    .await;
    assert!(!closing.is_finished());
    worker.ack(2).unwrap();
    soon(closing).await.unwrap().unwrap();
    assert!(
        soon(worker.receive()).await.unwrap().is_none(),
        "nothing more is handed out"
    );
    publisher.try_acknowledged(2).unwrap();
    let left = soon(publisher.acknowledged(5)).await.unwrap_err();
    assert!(matches!(left, Error::Unacknowledged(3)), "{left}");
}

#[tokio::test]
async fn closing_ends_with_the_deadline_and_says_so() {
    let broker = broker(BrokerOptions::default()).await;
    let worker = worker(&broker, "queue/jobs", 2).await;
    publish(&worker, "queue/jobs", 0..1).await;
    next(&worker).await;
    let closed = soon(broker.close(Some(MOMENT))).await;
    assert!(matches!(closed, Err(Error::Timeout)), "{closed:?}");
}

fn durable(dir: &Path) -> BrokerOptions {
    BrokerOptions {
        spool: Some(dir.to_owned()),
        ..BrokerOptions::default()
    }
}

/// A broker on a spool that another one may still be leaving.
async fn reopened(options: BrokerOptions) -> Broker {
    let deadline = Instant::now() + LONG;
    loop {
        match micromsg::serve("micromsg://127.0.0.1:0", options.clone()).await {
            Ok(broker) => return broker,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_is_acknowledged_once_its_message_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(durable(dir.path())).await;
    let publisher = client(&broker, 100).await;
    for number in 0..20 {
        let last = publish(&publisher, "queue/jobs", number..number + 1).await;
        soon(publisher.acknowledged(last)).await.unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        assert_eq!(spool.durable().unwrap(), number + 1);
    }
    let stored = Spool::open(dir.path()).unwrap();
    let blocks: Vec<_> = stored.blocks(0..20).unwrap().map(Result::unwrap).collect();
    assert!(blocks.iter().all(|block| block.layout == "micromsg/1"
        && block.origin.stream.as_deref() == Some("queue/jobs")));
    assert_eq!(broker.stats().held_bytes, 0, "they are on the disk alone");
    let worker = worker(&broker, "queue/jobs", 7).await;
    for number in 0..20 {
        assert_eq!(work(&worker).await, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_outlives_its_broker_and_goes_on_behind_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(durable(dir.path())).await;
    let typed = Offer {
        optional_extensions: Some("batch-ack;pub-sub;dotnet".to_owned()),
        ..Offer::default()
    };
    let typed = ConnectOptions {
        offer: typed,
        ..options(100, AckPolicy::Manual)
    };
    let publisher = soon(micromsg::connect(first.url(), typed.clone()))
        .await
        .unwrap();
    for number in 0..50 {
        let mut message = numbered("queue/jobs", number);
        message.dotnet_type = (number % 3 > 0).then(|| format!("Type{}", number % 3));
        soon(publisher.send(&message)).await.unwrap();
    }
    publish(&publisher, "queue/others", 100..120).await;
    soon(publisher.acknowledged(70)).await.unwrap();
    let one = worker(&first, "queue/jobs", 10).await;
    for number in 0..20 {
        assert_eq!(work(&one).await, number);
    }
    // Its acknowledgements go out first.
    soon(one.close(Some(LONG))).await.unwrap();
    drop(publisher);
    until("they leave", || first.stats().connections == 0).await;
    soon(first.close(Some(LONG))).await.unwrap();

    let second = broker(durable(dir.path())).await;
    assert_eq!(second.stats().queues, 2);
    let one = soon(micromsg::connect(second.url(), typed)).await.unwrap();
    one.subscribe("queue/jobs", None).await.unwrap();
    let mut last_type = None;
    for number in 20..50 {
        let received = soon(one.receive()).await.unwrap().unwrap();
        assert_eq!(self::number(&received), number);
        assert_eq!(
            received.message.raw_properties(),
            format!("number:N{number};")
        );
        if number % 3 > 0 {
            last_type = Some(format!("Type{}", number % 3));
        }
        assert_eq!(
            received.message.dotnet_type.as_deref(),
            last_type.as_deref()
        );
        one.ack(received.position).unwrap();
    }
    let two = worker(&second, "queue/others", 10).await;
    for number in 100..120 {
        assert_eq!(work(&two).await, number);
    }
    let publisher = client(&second, 10).await;
    publish(&publisher, "queue/jobs", 50..51).await;
    assert_eq!(work(&one).await, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_loses_no_acknowledged_message_and_repeats_few() {
    const MESSAGES: u64 = 600;
    const WINDOW: u64 = 16;
    let dir = tempfile::tempdir().unwrap();
    let mut random = XorShift::new(5);
    let mut sent = 0;
    let mut done: BTreeMap<u64, u64> = BTreeMap::new();
    let mut rounds = 0;
    while (done.len() as u64) < MESSAGES {
        rounds += 1;
        assert!(rounds < 100, "{} of {MESSAGES} are done", done.len());
        let broker = reopened(durable(dir.path())).await;
        let worker = worker(&broker, "queue/jobs", WINDOW).await;
        let publisher = client(&broker, 50).await;
        let many = (sent + 1 + random.next() % 100).min(MESSAGES);
        // The publisher sends again those that were not acknowledged.
        let last = publish(&publisher, "queue/jobs", sent..many).await;
        let quota = random.next() % 120;
        for _ in 0..quota {
            let came = timeout(MOMENT, worker.receive()).await;
            let Ok(Ok(Some(received))) = came else { break };
            *done.entry(number(&received)).or_default() += 1;
            worker.ack(received.position).unwrap();
        }
        if sent < many {
            soon(publisher.acknowledged(last)).await.unwrap();
        }
        sent = many;
        // A mark is written every 100 ms, so not in every round.
        tokio::time::sleep(Duration::from_millis(random.next() % 200)).await;
        // Without close, as a kill would end it.
        drop(broker);
    }
    assert!(done.keys().copied().eq(0..MESSAGES));
    let repeats: u64 = done.values().map(|times| times - 1).sum();
    // A mark is at most 100 ms old: whatever the worker did since then comes again.
    assert!(repeats <= rounds * 120, "{repeats} in {rounds} rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_is_larger_than_the_memory_is_read_from_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(BrokerOptions {
        memory: 8 << 20,
        max_subscriber_bytes: 64 << 10,
        ..durable(dir.path())
    })
    .await;
    let publisher = client(&broker, 1_000).await;
    let large = |number: u64| {
        let mut message = numbered("queue/jobs", number);
        message.payload = number.to_string().repeat(100).into();
        message
    };
    for number in 0..6_000 {
        soon(publisher.send(&large(number))).await.unwrap();
    }
    soon(publisher.acknowledged(6_000)).await.unwrap();
    assert_eq!(broker.stats().held_bytes, 0);
    let worker = worker(&broker, "queue/jobs", 100).await;
    for number in 0..3_000 {
        let received = soon(worker.receive()).await.unwrap().unwrap();
        assert_eq!(
            received.message.payload.to_bytes(),
            number.to_string().repeat(100)
        );
        worker.ack(received.position).unwrap();
        assert!(broker.stats().held_bytes < 512 << 10);
    }
    // While it is behind, and once it has caught up.
    for number in 6_000..6_100 {
        soon(publisher.send(&large(number))).await.unwrap();
    }
    for number in 3_000..6_100 {
        let received = soon(worker.receive()).await.unwrap().unwrap();
        assert_eq!(
            received.message.payload.to_bytes(),
            number.to_string().repeat(100)
        );
        worker.ack(received.position).unwrap();
    }
    for number in 6_100..6_200 {
        soon(publisher.send(&large(number))).await.unwrap();
        let received = soon(worker.receive()).await.unwrap().unwrap();
        assert_eq!(
            received.message.payload.to_bytes(),
            number.to_string().repeat(100)
        );
        worker.ack(received.position).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_makes_publishers_wait_until_workers_have_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let writer = WriterOptions {
        budget: 256 << 10,
        segment_bytes: 32 << 10,
        retain_committed: Duration::ZERO,
        reserve: 0,
        ..WriterOptions::default()
    };
    let broker = broker(BrokerOptions {
        writer,
        ..durable(dir.path())
    })
    .await;
    let publisher = client(&broker, 4).await;
    let message = |number: u64| {
        let mut message = numbered("queue/jobs", number);
        message.payload = vec![0; 10_000].into();
        message
    };
    let publishing = tokio::spawn(async move {
        for number in 0..100 {
            soon(publisher.send(&message(number))).await.unwrap();
        }
        soon(publisher.acknowledged(100)).await.unwrap();
        publisher
    });
    tokio::time::sleep(MOMENT).await;
    assert!(!publishing.is_finished(), "the spool is full");
    let topic = subscriber(&broker, "t", None).await;
    publish(&topic, "t", 1..2).await;
    assert_eq!(next(&topic).await, 1, "topics go on");
    let worker = worker(&broker, "queue/jobs", 10).await;
    for number in 0..100 {
        let received = soon(worker.receive()).await.unwrap().unwrap();
        let value = received.message.properties().get("number").unwrap();
        assert_eq!(value, micromsg::PropertyRef::Number(Number::Whole(number)));
        worker.ack(received.position).unwrap();
    }
    soon(publishing).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_no_consumer_is_refused_with_a_spool() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(durable(dir.path())).await;
    let one = client(&broker, 10).await;
    publish(&one, &format!("queue/{}", "x".repeat(60)), 0..1).await;
    let reason = reason(&one).await;
    assert!(
        reason.ends_with("is too long for its consumer in the spool"),
        "{reason}"
    );
}

/// The directory of the spool of a broker in a process of its own.
const CHILD: &str = "ACKLINE_TEST_BROKER";

/// No test: the process that the next test kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_in_a_process_of_its_own() {
    let Some(dir) = std::env::var_os(CHILD) else {
        return;
    };
    // It does not outlive the test.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let broker = reopened(durable(Path::new(&dir))).await;
    writeln!(std::io::stderr(), "\nURL {}", broker.url()).unwrap();
    std::future::pending::<()>().await;
}

fn broker_process(dir: &Path) -> (Child, String) {
    let name = std::thread::current().name().unwrap().to_owned();
    let module = name.rsplit_once("::").map_or("", |(module, _)| module);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("{module}::broker_in_a_process_of_its_own"),
            "--nocapture",
        ])
        .env(CHILD, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut urls = lines
        .map_while(Result::ok)
        .filter_map(|line| Some(line.strip_prefix("URL ")?.to_owned()));
    let url = urls.next().expect("it listens");
    // Nothing more is read of it: it says nothing more.
    (child, url)
}

#[tokio::test]
async fn a_broker_and_workers_that_are_killed_lose_no_acknowledged_message() {
    const MESSAGES: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let mut random = XorShift::new(9);
    let mut acknowledged = 0;
    let mut done = BTreeSet::new();
    for round in 0.. {
        assert!(round < 60, "{} of {MESSAGES} are done", done.len());
        let (mut child, url) = broker_process(dir.path());
        let connect = |window| micromsg::connect(&url, options(window, AckPolicy::Manual));
        let publisher = soon(connect(30)).await.unwrap();
        let worker = soon(connect(8)).await.unwrap();
        worker.subscribe("queue/jobs", None).await.unwrap();
        let many = (acknowledged + 60).min(MESSAGES);
        let publishing = async {
            // Those that were not acknowledged are sent again.
            let last = publish(&publisher, "queue/jobs", acknowledged..many).await;
            if last > 0 {
                soon(publisher.acknowledged(last)).await.unwrap();
            }
        };
        let working = async {
            let until = Instant::now() + Duration::from_millis(150 + random.next() % 200);
            while let Ok(Ok(Some(received))) =
                tokio::time::timeout_at(until, worker.receive()).await
            {
                done.insert(number(&received));
                worker.ack(received.position).unwrap();
            }
        };
        tokio::join!(publishing, working);
        acknowledged = many;
        child.kill().unwrap();
        child.wait().unwrap();
        if acknowledged == MESSAGES && done.len() as u64 == MESSAGES {
            break;
        }
    }
    assert!(done.into_iter().eq(0..MESSAGES));
}
