//! Limits, wrong options, and the end of a broker.

use super::*;

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
async fn a_client_that_breaks_the_protocol_is_counted_and_reported() {
    let broker = broker(BrokerOptions::default()).await;
    let address = broker.url().trim_start_matches("micromsg://");
    let mut client = TcpStream::connect(address).unwrap();
    // Both handshakes of a client without extensions, and flags without a meaning.
    client
        .write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x20])
        .unwrap();
    let mut line = None;
    until("it is reported", || {
        line = line.take().or_else(|| broker.next_refusal());
        line.is_some()
    })
    .await;
    let line = line.unwrap();
    for part in [
        r#""event":"refused""#,
        r#""code":"micromsg.reserved_flags""#,
        r#""protocol":"micromsg""#,
        r#""offset":16"#,
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!((broker.stats().refused, broker.next_refusal()), (1, None));
}

/// The names of a default broker's subscriptions: as many as there may be, and each as long as there may be.
fn longest_names() -> impl Iterator<Item = String> {
    let most = BrokerOptions::default().max_subscriptions;
    (0..most).map(|number| format!("{number:x>255}"))
}

#[tokio::test]
async fn a_default_client_has_all_subscriptions_of_a_default_broker() {
    let broker = broker(BrokerOptions::default()).await;
    let one = client_auto(&broker).await;
    for name in longest_names() {
        soon(one.subscribe(&name, None)).await.unwrap();
    }
    settle(&one).await;
    assert_eq!(broker.stats().subscriptions, 1_024);
    soon(one.subscribe("one more", None)).await.unwrap();
    let reason = reason(&one).await;
    assert!(
        reason.ends_with("more than 1024 subscriptions on one connection (max_subscriptions)"),
        "{reason}"
    );
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
async fn a_broker_answers_handshakes_and_acknowledges_whatever_its_options_say() {
    let mut options = BrokerOptions::default();
    options.link.terms.negotiation = micromsg::Negotiation::Manual;
    let broker = broker(options).await;
    settle(&client(&broker, 10).await).await;
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
        TcpStream::connect(url.trim_start_matches("micromsg://")).is_err()
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

/// A client that has no acknowledgements, and so no window.
async fn unacknowledged(broker: &Broker) -> Connection {
    client_with(broker, "pub-sub", 1).await
}

/// Sends messages of 10 kB to a queue until the broker takes no more.
async fn fill(publisher: &Connection, queue: &str) {
    let message = large(queue, 0, 10_000);
    // It may be ended for it.
    while let Ok(Ok(_)) = timeout(MOMENT, publisher.send(&message)).await {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_queues_do_not_stop_others() {
    let broker = broker(BrokerOptions {
        memory: 4 << 20,
        ..BrokerOptions::default()
    })
    .await;
    let mut full = Vec::new();
    for queue in ["queue/one", "queue/two", "queue/three"] {
        let publisher = unacknowledged(&broker).await;
        fill(&publisher, queue).await;
        full.push(publisher);
    }
    let held = broker.stats().held_bytes;
    assert!((2 << 20..3 << 20).contains(&held), "{held}");
    let publisher = client(&broker, 10).await;
    let worker = worker(&broker, "queue/good", 10).await;
    for number in 0..100 {
        let last = publish(&publisher, "queue/good", number..number + 1).await;
        assert_eq!(work(&worker).await, number);
        soon(publisher.acknowledged(last)).await.unwrap();
    }
    // Beyond its share it waits too, and goes on when its worker has acknowledged some.
    let numbers = 100..200;
    let sending = {
        let numbers = numbers.clone();
        async move {
            for number in numbers {
                let message = large("queue/good", number, 10_000);
                soon(publisher.send(&message)).await.unwrap();
            }
            publisher
        }
    };
    let working = async {
        for number in numbers {
            assert_eq!(work(&worker).await, number);
        }
    };
    let _ = tokio::join!(sending, working);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_to_a_full_queue_take_half_of_the_memory_and_those_that_leave_nothing() {
    let broker = broker(BrokerOptions {
        memory: 4 << 20,
        max_subscriber_bytes: 64 << 10,
        ..BrokerOptions::default()
    })
    .await;
    let filler = unacknowledged(&broker).await;
    fill(&filler, "queue/full").await;
    for _ in 0..30 {
        let one = unacknowledged(&broker).await;
        fill(&one, "queue/full").await;
        one.abort();
    }
    let mut line = None;
    until("one of them is ended", || {
        line = broker.next_refusal().or_else(|| line.take());
        line.is_some()
    })
    .await;
    let line = line.unwrap();
    assert!(line.contains(r#""code":"micromsg.queue_full""#), "{line}");
    let subscriber = subscriber(&broker, "prices", None).await;
    let publisher = client(&broker, 10).await;
    for number in 0..20 {
        let message = large("prices", number, 40_000);
        soon(publisher.send(&message)).await.unwrap();
        assert_eq!(next(&subscriber).await, number);
    }
}
