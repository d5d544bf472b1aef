//! Receivers that connect to a broker.

use ackline_micromsg::subscriptions::Subscriptions;
use ackline_micromsg::text::Properties;

use super::*;

/// A broker for one connection at a time.
struct Broker {
    publisher: Publisher,
    subscriptions: Subscriptions<u8>,
}

impl Broker {
    async fn accepted(listener: &TcpListener) -> Self {
        let (stream, _) = within(listener.accept()).await.unwrap();
        let mut broker = Self {
            publisher: Publisher::on(Role::Server, with(&["pub-sub", "batch-ack"]), stream),
            subscriptions: Subscriptions::default(),
        };
        loop {
            if let Event::Subscribe(one) = broker.publisher.event().await {
                broker.subscriptions.set(&one.topic, 0, one.filter);
                return broker;
            }
        }
    }

    /// Publishes a message; whether it goes to the receiver.
    async fn publish(&self, topic: &str, properties: &str, payload: &'static str) -> bool {
        let mut read = Properties::new(properties.as_bytes());
        if self
            .subscriptions
            .matching(topic, &mut read)
            .next()
            .is_none()
        {
            return false;
        }
        let message = Outbound {
            destination: topic,
            properties,
            dotnet_type: None,
        };
        self.publisher.put(message, payload).await;
        true
    }
}

#[tokio::test]
async fn a_receiver_that_connects_subscribes_with_its_filter_and_again_after_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let url = format!("micromsg://{place}/orders/a%20b?filter=age%3E%3DN18%3Bcity%3CTfal");
    let receiver = start_at(&[], &[&url], dir.path(), &json!({"window": 3})).await;
    for round in 1..=3_u64 {
        let broker = Broker::accepted(&listener).await;
        assert_eq!(broker.publisher.call(|machine| machine.window()), Ok(3));
        for (topic, properties, goes) in [
            ("orders/a b", "age:N18;city:Tfalun;", true),
            ("orders/a b", "age:N17;city:Tfalun;", false),
            ("orders/a", "age:N18;city:Tfalun;", false),
            ("orders/a b", "age:N20;city:Tfal;", true),
            ("orders/a b", "city:Tfalun;", false),
        ] {
            assert_eq!(
                broker.publish(topic, properties, "x").await,
                goes,
                "{topic} {properties}"
            );
        }
        broker.publisher.until_pending(0).await;
        assert_eq!(receiver.stats().spool.durable, round * 2);
        broker.publisher.link.abort();
    }
    let found = rows(dir.path());
    let found: Vec<_> = found.iter().map(|row| (row.0.as_deref(), row.1)).collect();
    let each = [(Some("orders/a b"), 0), (Some("orders/a b"), 1)];
    assert_eq!(found, [each, each, each].concat());
    let cities: Vec<_> = attributes(dir.path())
        .iter()
        .map(|one| one["city"].clone())
        .collect();
    assert_eq!(cities[..2], ["falun", "fal"]);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_receiver_subscribes_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let url = format!("micromsg+unix://{}?topic=a%2Fb", path.display());
    let receiver = start_at(&[], &[&url], &dir.path().join("spool"), &json!({})).await;
    let (stream, _) = within(listener.accept()).await.unwrap();
    let publisher = Publisher::on(Role::Server, with(&["pub-sub", "batch-ack"]), stream);
    loop {
        if let Event::Subscribe(one) = publisher.event().await {
            assert_eq!((one.topic.as_str(), one.filter), ("a/b", None));
            break;
        }
    }
    publisher.send("a/b", "x").await;
    publisher.until_pending(0).await;
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_peer_that_is_no_broker_is_told_and_connected_to_again() {
    keep();
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("micromsg://{}/t", listener.local_addr().unwrap());
    let receiver = start_at(&[], &[&url], dir.path(), &json!({})).await;
    for _ in 0..2 {
        let (stream, _) = within(listener.accept()).await.unwrap();
        let _ = Publisher::on(Role::Server, with(&["batch-ack"]), stream);
    }
    let subject = format!("peer=\"{}\" ", listener.local_addr().unwrap());
    let begin = Instant::now();
    while lines("micromsg.error_received", &subject).is_empty() {
        assert!(begin.elapsed() < DEADLINE);
        tokio::task::yield_now().await;
    }
    let told = lines("micromsg.error_received", &subject);
    assert!(told[0].contains("pub-sub"), "{told:?}");
    receiver.stop(None).await;
}
