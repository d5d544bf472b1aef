//! Publishers and subscribers through the Rust API, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

mod ends;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ackline::reactive::{
    self, Config, ConnectOptions, Connection, Demand, Error, ExtensionMessage, Extensions, Field,
    FieldKind, ListenOptions, Publication, Published, Publishers, Subscription,
};
use ackline_core::OpenError;
use ackline_link::End;
use bytes::Bytes;
use futures_core::Stream as _;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

/// A connector and the connection that its listener accepted.
async fn pair() -> (Connection, Connection) {
    pair_with(Config::with_timers()).await
}

async fn pair_with(link: Config) -> (Connection, Connection) {
    let options = ListenOptions::default();
    let listener = soon(reactive::listen("reactive://127.0.0.1:0", options));
    let listener = listener.await.unwrap();
    let options = ConnectOptions {
        link,
        ..ConnectOptions::default()
    };
    let left = soon(reactive::connect(listener.url(), options))
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    (left, right)
}

/// A stream that `right` publishes to `left`.
async fn stream(
    (left, right): (&Connection, &Connection),
    demand: Demand,
    size: u64,
) -> (Subscription, Publication) {
    let subscription = soon(left.subscribe("ticks", demand)).await.unwrap();
    let request = soon(right.accept()).await.unwrap().unwrap();
    assert_eq!(request.publisher(), "ticks");
    let publication = request.accept(size).unwrap();
    assert_eq!(soon(subscription.accepted()).await.unwrap(), size);
    (subscription, publication)
}

async fn all(subscription: &Subscription) -> Result<Vec<Bytes>, Error> {
    let mut all = Vec::new();
    while let Some(element) = soon(subscription.receive()).await? {
        all.push(element.to_bytes());
    }
    Ok(all)
}

fn numbers(count: u64) -> Vec<Bytes> {
    (0..count).map(|number| number.to_string().into()).collect()
}

#[tokio::test]
async fn publishers_are_found_by_name_and_each_subscription_has_a_stream_of_its_own() {
    let (left, right) = pair().await;
    let mut publishers = Publishers::new();
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let ticks = move |_: &str| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Published::iterator(numbers(5)))
    };
    publishers.add("ticks", ticks).unwrap();
    let sensor = |name: &str| match name {
        "sensors/broken" => Err("it is broken".to_owned()),
        name => Ok(Published::iterator([name.to_owned()])),
    };
    publishers.add("sensors/*", sensor).unwrap();
    let again = publishers.add("ticks", |_| Err(String::new()));
    assert_eq!(again.unwrap_err().code, "publisher_exists");
    let serving = tokio::spawn(async move { publishers.serve(&right).await });
    for _ in 0..2 {
        let ticks = left.subscribe("ticks", Demand::automatic(2)).await.unwrap();
        assert_eq!(all(&ticks).await.unwrap(), numbers(5));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let demand = Demand::automatic(2);
    let one = left.subscribe("sensors/one", demand).await.unwrap();
    assert_eq!(all(&one).await.unwrap(), ["sensors/one"]);
    for (name, why) in [
        ("sensors/broken", "it is broken"),
        ("other", "there is no publisher \"other\""),
    ] {
        let refused = left.subscribe(name, demand).await.unwrap();
        let error = soon(refused.accepted()).await.unwrap_err();
        assert!(
            matches!(&error, Error::Failed(text) if &**text == why),
            "{error}"
        );
    }
    soon(left.shutdown("done", Some(LONG))).await.unwrap();
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn sources_are_arrays_channels_and_files() {
    let (left, right) = pair().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events");
    let content: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    std::fs::write(&path, &content).unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let receiver = std::sync::Mutex::new(Some(receiver));
    let array: Bytes = (0..10_000_u64)
        .flat_map(u64::to_le_bytes)
        .collect::<Vec<_>>()
        .into();
    let mut publishers = Publishers::new();
    let numbers = array.clone();
    let packed = move |_: &str| Published::packed(8, numbers.clone()).map_err(|it| it.to_string());
    publishers.add("array", packed).unwrap();
    let channel = move |_: &str| {
        let receiver = receiver.lock().unwrap().take();
        receiver
            .map(Published::channel)
            .ok_or_else(|| "taken".to_owned())
    };
    publishers.add("channel", channel).unwrap();
    let there = path.clone();
    let file = move |_: &str| Ok(Published::file(there.clone()));
    publishers.add("file", file).unwrap();
    let gone = directory.path().join("gone");
    publishers
        .add("gone", move |_| Ok(Published::file(gone.clone())))
        .unwrap();
    tokio::spawn(async move { publishers.serve(&right).await });
    let demand = Demand::automatic(1_000);

    let subscription = left.subscribe("array", demand).await.unwrap();
    let mut came = Vec::new();
    while let Some(some) = soon(subscription.receive_packed(1 << 20)).await.unwrap() {
        assert_eq!(some.len() % 8, 0);
        assert!(some.len() <= 8_000, "never more than were requested");
        came.extend_from_slice(&some);
    }
    assert_eq!(came, array);

    let subscription = left.subscribe("channel", demand).await.unwrap();
    for text in ["one", "two"] {
        sender.send(Bytes::from(text)).await.unwrap();
        let element = soon(subscription.receive()).await.unwrap().unwrap();
        assert_eq!(&element.to_bytes()[..], text.as_bytes());
    }
    drop(sender);
    assert!(all(&subscription).await.unwrap().is_empty());

    let subscription = left.subscribe("file", demand).await.unwrap();
    assert_eq!(all(&subscription).await.unwrap().concat(), content);
    let subscription = left.subscribe("gone", demand).await.unwrap();
    let error = all(&subscription).await.unwrap_err();
    assert!(
        matches!(&error, Error::Failed(why) if why.contains("gone")),
        "{error}"
    );
}

#[tokio::test]
async fn a_slow_subscriber_holds_no_other_up() {
    let (left, right) = pair().await;
    let mut publishers = Publishers::new();
    let endless = |_: &str| {
        Ok(Published::iterator(
            (0_u64..).map(|it| it.to_le_bytes().to_vec()),
        ))
    };
    publishers.add("ticks", endless).unwrap();
    tokio::spawn(async move { publishers.serve(&right).await });
    let slow = left
        .subscribe("ticks", Demand::automatic(10))
        .await
        .unwrap();
    let fast = left
        .subscribe("ticks", Demand::automatic(1_000))
        .await
        .unwrap();
    for number in 0..100_000_u64 {
        let element = soon(fast.receive()).await.unwrap().unwrap();
        assert_eq!(&element.to_bytes()[..], number.to_le_bytes());
    }
    // Nobody took anything of it: ten came and no more.
    let waiting = soon(slow.receive_many(1_000)).await.unwrap();
    assert_eq!(waiting.len(), 10);
    let element = soon(slow.receive()).await.unwrap().unwrap();
    assert_eq!(&element.to_bytes()[..], 10_u64.to_le_bytes());
}

#[tokio::test]
async fn both_ends_publish_and_subscribe_over_one_connection() {
    let (left, right) = pair().await;
    let (to_left, from_right) = stream((&left, &right), Demand::automatic(4), 0).await;
    let (to_right, from_left) = stream((&right, &left), Demand::automatic(4), 0).await;
    let publish = |publication: Publication, text: &'static str| async move {
        let mut elements: VecDeque<Bytes> = vec![Bytes::from(text); 100].into();
        publication.publish_all(&mut elements).await.unwrap();
        publication.complete().unwrap();
    };
    let publishing = [
        tokio::spawn(publish(from_right, "right")),
        tokio::spawn(publish(from_left, "left")),
    ];
    assert_eq!(all(&to_left).await.unwrap(), vec!["right"; 100]);
    assert_eq!(all(&to_right).await.unwrap(), vec!["left"; 100]);
    for one in publishing {
        soon(one).await.unwrap();
    }
    assert_eq!(left.stats().subscriptions + left.stats().publications, 0);
}

#[tokio::test]
async fn ten_thousand_subscriptions_share_a_connection() {
    let (left, right) = pair().await;
    let mut publishers = Publishers::new();
    let echo = |name: &str| Ok(Published::iterator([name.to_owned(), name.to_owned()]));
    publishers.add("*", echo).unwrap();
    tokio::spawn(async move { publishers.serve(&right).await });
    let mut all_of_them = Vec::new();
    for number in 0..10_000 {
        // One element at a time: every stream has its turns.
        let demand = Demand::automatic(1);
        let one = left.subscribe(&number.to_string(), demand).await.unwrap();
        all_of_them.push(one);
    }
    for (number, one) in all_of_them.iter().enumerate() {
        assert_eq!(all(one).await.unwrap(), vec![number.to_string(); 2]);
    }
    assert_eq!(left.stats().subscriptions, 0);
}

#[tokio::test]
async fn a_subscription_is_a_stream_of_futures() {
    let (left, right) = pair().await;
    let (mut subscription, publication) = stream((&left, &right), Demand::automatic(2), 0).await;
    publication.publish("one").await.unwrap();
    publication.fail("no more").unwrap();
    let mut next = async || {
        let next = std::future::poll_fn(|it| Pin::new(&mut subscription).poll_next(it));
        soon(next).await
    };
    let element = next().await.unwrap().unwrap();
    assert_eq!(&element.to_bytes()[..], b"one");
    let error = next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Failed(why) if &*why == "no more"));
}

#[tokio::test]
async fn parts_are_handed_out_as_they_come() {
    let link = Config {
        parts: true,
        ..Config::with_timers()
    };
    let (left, right) = pair_with(link).await;
    let (subscription, publication) = stream((&left, &right), Demand::automatic(2), 0).await;
    let large = Bytes::from(vec![7; 150_000]);
    publication.publish(large.clone()).await.unwrap();
    publication.complete().unwrap();
    let (mut came, mut parts) = (Vec::new(), 0);
    while let Some(part) = soon(subscription.receive_part()).await.unwrap() {
        came.extend_from_slice(&part.data.to_bytes());
        parts += 1;
        assert_eq!(part.is_last, came.len() == large.len());
    }
    assert_eq!((came.len(), parts), (large.len(), 3));
}

#[tokio::test]
async fn a_dropped_subscription_is_cancelled_and_a_waiting_publisher_is_told() {
    let (left, right) = pair().await;
    let (subscription, publication) = stream((&left, &right), Demand::by_hand(1), 0).await;
    publication.publish("one").await.unwrap();
    let waiting = tokio::spawn(async move { publication.publish("two").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "nothing more was requested");
    drop(subscription);
    let refused = soon(waiting).await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Cancelled), "{refused}");
    assert_eq!(refused.code(), "reactive.cancelled");
}

#[tokio::test]
async fn a_source_that_waits_is_dropped_when_its_subscriber_leaves() {
    /// Counts its drop.
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Release);
        }
    }
    let (left, right) = pair().await;
    let dropped = Arc::new(AtomicU64::new(0));
    let (count, mut publishers) = (Arc::clone(&dropped), Publishers::new());
    let (never, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let receiver = std::sync::Mutex::new(Some(receiver));
    let waits = move |_: &str| {
        let mut receiver = receiver.lock().unwrap().take().ok_or("taken")?;
        let guard = Dropped(Arc::clone(&count));
        let next = move |context: &mut std::task::Context<'_>| {
            let _ = &guard;
            let came = receiver.poll_recv(context);
            came.map(|one| one.map(|one| Ok(reactive::Elements::Each(vec![one]))))
        };
        Ok(Published::stream(0, Polled(next)))
    };
    publishers.add("waits", waits).unwrap();
    tokio::spawn(async move { publishers.serve(&right).await });
    let subscription = left.subscribe("waits", Demand::automatic(5)).await.unwrap();
    soon(subscription.accepted()).await.unwrap();
    drop(subscription);
    let gone = async {
        while dropped.load(Ordering::Acquire) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(gone).await;
    drop(never);
}

/// A function as a stream.
struct Polled<F>(F);

impl<T, F> futures_core::Stream for Polled<F>
where
    F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin,
{
    type Item = T;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        (self.0)(context)
    }
}

#[tokio::test]
async fn a_shutdown_sends_what_was_published_and_gives_its_reason() {
    let (left, right) = pair().await;
    let (subscription, publication) = stream((&left, &right), Demand::automatic(100), 0).await;
    for one in numbers(50) {
        publication.publish(one).await.unwrap();
    }
    soon(right.shutdown("back at noon", Some(LONG)))
        .await
        .unwrap();
    let mut came = Vec::new();
    let error = loop {
        match soon(subscription.receive()).await {
            Ok(Some(element)) => came.push(element.to_bytes()),
            Ok(None) => panic!("it was not completed"),
            Err(error) => break error,
        }
    };
    assert_eq!(came, numbers(50));
    assert!(
        matches!(&error, Error::Failed(why) if &**why == "back at noon"),
        "{error}"
    );
    assert_eq!(left.goodbye_reason().as_deref(), Some("back at noon"));
    assert!(soon(left.accept()).await.unwrap().is_none());
    assert!(matches!(
        publication.publish("late").await,
        Err(Error::Ended(_) | Error::Cancelled)
    ));
}

#[tokio::test]
async fn a_lost_connection_ends_waits_with_its_reason_and_not_with_the_publishers() {
    let (left, right) = pair().await;
    let (subscription, publication) = stream((&left, &right), Demand::automatic(4), 0).await;
    publication.publish("one").await.unwrap();
    assert!(soon(subscription.receive()).await.unwrap().is_some());
    right.link().abort();
    let error = soon(subscription.receive()).await.unwrap_err();
    assert!(matches!(error, Error::Ended(_)), "{error}");
    let error = soon(left.accept()).await.unwrap_err();
    assert!(matches!(error, Error::Ended(_)), "{error}");
    let refused = publication.publish("late").await;
    assert!(matches!(refused, Err(Error::Ended(_))), "{refused:?}");
    let error = left
        .subscribe("more", Demand::automatic(4))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Ended(_)), "{error}");
}

#[tokio::test]
async fn the_end_that_listens_subscribes_once_the_hello_has_come() {
    let (left, right) = pair().await;
    let subscription = soon(right.subscribe("ticks", Demand::automatic(2)))
        .await
        .unwrap();
    let request = soon(left.accept()).await.unwrap().unwrap();
    let publication = request.accept(0).unwrap();
    publication.publish("one").await.unwrap();
    assert!(soon(subscription.receive()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_peer_without_a_hello_is_ended_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("reactive://{}", listener.local_addr().unwrap());
    let mut options = ConnectOptions::default();
    assert_eq!(
        options.link.hello_timeout,
        Some(Duration::from_secs(10)),
        "by default"
    );
    options.link.hello_timeout = Some(Duration::from_millis(50));
    let connection = reactive::connect(&url, options).await.unwrap();
    let _silent = listener.accept().await.unwrap();
    let error = soon(connection.connected()).await.unwrap_err();
    assert_eq!(error.code(), "reactive.timeout");
    assert!(matches!(soon(connection.ended()).await, End::Protocol(_)));
}

#[tokio::test]
async fn links_go_over_unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("reactive+unix://{}", directory.path().join("s").display());
    let listener = reactive::listen(&url, ListenOptions::default())
        .await
        .unwrap();
    let left = reactive::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    let (subscription, publication) = stream((&left, &right), Demand::automatic(4), 0).await;
    publication.publish("one").await.unwrap();
    publication.complete().unwrap();
    assert_eq!(all(&subscription).await.unwrap(), ["one"]);
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn links_go_over_tls() {
    use ackline::link::tls::TlsOptions;
    let (files, authority) = (crate::pki::Pki::new(), crate::pki::Authority::new("site"));
    let options = ListenOptions {
        tls: files.server(&authority, &["127.0.0.1"], None),
        ..ListenOptions::default()
    };
    let listener = reactive::listen("reactive+tls://127.0.0.1:0", options)
        .await
        .unwrap();
    let options = ConnectOptions {
        tls: TlsOptions {
            ca: Some(files.write("ca.pem", &authority.pem)),
            ..TlsOptions::default()
        },
        ..ConnectOptions::default()
    };
    let left = soon(reactive::connect(listener.url(), options))
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    let (subscription, publication) = stream((&left, &right), Demand::automatic(4), 8).await;
    let mut elements = Bytes::from(vec![1; 32]);
    publication.publish_packed(&mut elements).await.unwrap();
    publication.complete().unwrap();
    let came = soon(subscription.receive_packed(100))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(came, [1; 32][..]);
    let distrusting = reactive::connect(listener.url(), ConnectOptions::default());
    let error = soon(distrusting).await.unwrap_err();
    assert!(
        matches!(error, Error::Open(OpenError::Handshake { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn wrong_urls_and_options_are_named() {
    let connect = async |url: &str| {
        let connected = reactive::connect(url, ConnectOptions::default());
        soon(connected).await.unwrap_err()
    };
    for (url, says) in [
        ("bpmux://127.0.0.1:1", "not of reactive"),
        (
            "reactive://127.0.0.1:1?hello_timeout=soon",
            "hello_timeout is soon",
        ),
        (
            "reactive://127.0.0.1:1?max_subscriptions=0",
            "max_subscriptions is 0",
        ),
    ] {
        let error = connect(url).await;
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.code(), "reactive.url");
    }
    assert_eq!(
        connect("reactive://127.0.0.1:1").await.code(),
        "reactive.connect"
    );
}

#[tokio::test]
async fn extensions_are_values_of_the_application_where_both_ends_support_them() {
    let mut extensions = Extensions::<u64>::default();
    let ping = ExtensionMessage {
        message_type: 64,
        extension: 7,
        fields: vec![FieldKind::Varint],
    };
    let decode = |fields: &[Field]| match fields {
        [Field::Varint(number)] if *number < 100 => Ok(*number),
        _ => Err("too large".to_owned()),
    };
    let encode = |number: &u64| Some(vec![Field::Varint(*number)]);
    extensions.message(ping, decode, encode).unwrap();
    let mut link = Config::with_timers();
    extensions.configure(&mut link);
    let mut options = ListenOptions::default();
    options.link.clone_from(&link);
    options.link.extensions.push(9);
    let listener = reactive::listen("reactive://127.0.0.1:0", options)
        .await
        .unwrap();
    let connected = ConnectOptions {
        link,
        ..ConnectOptions::default()
    };
    let left = reactive::connect(listener.url(), connected).await.unwrap();
    let right = soon(listener.accept()).await.unwrap();
    assert_eq!(soon(left.connected()).await.unwrap(), [7]);
    for number in [5, 500] {
        left.send(&extensions, &number).unwrap();
    }
    soon(left.shutdown("done", Some(LONG))).await.unwrap();
    let mut came = Vec::new();
    soon(right.handle(&extensions, |value| came.push(value)))
        .await
        .unwrap();
    assert_eq!(came, [Ok(5), Err("too large".to_owned())]);
    let stranger = reactive::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    assert!(soon(stranger.connected()).await.unwrap().is_empty());
    let refused = stranger.send(&extensions, &5).unwrap_err();
    assert_eq!(refused.code(), "extension_not_active");
}
