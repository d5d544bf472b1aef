//! The receiver of Reactive Streams: the rows that land, the demand that a publisher gets, and the ends of streams.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ackline::core::Connection as _;
use ackline::link::{Endpoint, Link};
use ackline::spool::{ReadOptions, Spool};
use ackline::{Receiver, ReceiverOptions, ReceiverStats};
use ackline_reactive::{Config, Connection, Event, Role};
use ackline_testkit::lines::{keep, lines};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::common::{DEADLINE, batches, receiving, until, within};

/// A receiver that listens on the first URLs and connects to the others, when its spool is free.
async fn start(urls: &[&str], connect: &[&str], dir: &Path, options: &Value) -> Arc<Receiver> {
    let owned = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect();
    let mut all = ReceiverOptions {
        urls: owned(urls),
        connect: owned(connect),
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    all.set_all(json!({"reconnect_max_ms": 50}).as_object().unwrap())
        .unwrap();
    all.set_all(options.as_object().unwrap()).unwrap();
    receiving(&all).await
}

/// The publishing end of a connection.
struct Publisher {
    link: Link<Connection>,
    /// Elements that were published, changed under the link's lock.
    published: AtomicU64,
}

impl Publisher {
    fn on<IO>(role: Role, split_threshold: u64, io: IO) -> Self
    where
        IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let config = Config {
            split_threshold,
            ..Config::default()
        };
        let mut machine = Connection::new(Instant::now(), role, config);
        machine.connect(Instant::now()).unwrap();
        let link = Link::new(machine);
        let driven = link.clone();
        tokio::spawn(async move { driven.drive(io).await.end });
        Self {
            link,
            published: AtomicU64::new(0),
        }
    }

    /// The next connection of a receiver that connects.
    async fn accepted(listener: &TcpListener) -> Self {
        let (stream, _) = within(listener.accept()).await.unwrap();
        Self::on(Role::Server, 64 << 10, stream)
    }

    async fn event(&self) -> Event {
        let next = |machine: &mut Connection, _| match machine.poll_event() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        };
        within(self.link.when(0, next)).await.unwrap()
    }

    /// The next subscription: the publisher's name, the id and the demand.
    async fn subscribed(&self) -> (String, u64, u64) {
        loop {
            if let Event::Subscribe {
                publisher,
                subscriber,
                initial_demand,
            } = self.event().await
            {
                return (publisher, subscriber, initial_demand);
            }
        }
    }

    /// Accepts a subscription with elements of this size.
    async fn accepts(&self, element_size: u64) -> (String, u64, u64) {
        let asked = self.subscribed().await;
        self.call(|machine| machine.accept(asked.1, element_size).unwrap());
        asked
    }

    fn call<R>(&self, f: impl FnOnce(&mut Connection) -> R) -> R {
        self.link.call(|machine, _| f(machine))
    }

    /// Publishes elements of the first subscription as they are requested.
    async fn publish(&self, elements: impl IntoIterator<Item = Bytes>) {
        for element in elements {
            let when_requested = |machine: &mut Connection, _| {
                // Events of requests are not needed.
                while machine.poll_event().is_some() {}
                if machine.demand(1).unwrap() == 0 {
                    return Poll::Pending;
                }
                self.published.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(machine.next(1, vec![element.clone()]))
            };
            let published = within(self.link.when(0, when_requested)).await;
            published.unwrap().unwrap();
        }
    }

    /// All elements that were requested so far, published or not.
    fn requested(&self) -> u64 {
        self.call(|machine| self.published.load(Ordering::Relaxed) + machine.demand(1).unwrap())
    }

    /// The reason of the peer's goodbye.
    async fn goodbye(&self) -> String {
        loop {
            if let Event::Goodbye { reason } = self.event().await {
                return reason;
            }
        }
    }
}

/// A listener, and the URL of a publisher there.
async fn listening(publisher: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, format!("reactive://{address}/{publisher}"))
}

/// A row: stream, size of the elements, sequence, payload.
type Row = (String, Option<String>, i64, Bytes);

fn rows(dir: &Path) -> Vec<Row> {
    batches(dir).iter().flat_map(rows_of).collect()
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let text = |name: &str, at| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.value(at).to_owned()
    };
    let sequences = batch.column_by_name("sequence").unwrap();
    let sequences = sequences.as_primitive::<Int64Type>();
    let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
    let attributes = batch.column_by_name("attributes").unwrap().as_map();
    let attribute = |at, name: &str| {
        let entries = attributes.value(at);
        let names = entries.column(0).as_string::<i32>().clone();
        let values = entries.column(1).as_string::<i32>().clone();
        let found = (0..names.len()).find(|one| names.value(*one) == name);
        found.map(|one| values.value(one).to_owned())
    };
    let row = |at| {
        let stream = text("stream", at);
        assert_eq!(text("protocol", at), "reactive");
        assert_eq!(attribute(at, "reactive.publisher").as_ref(), Some(&stream));
        (
            stream,
            attribute(at, "reactive.element_size"),
            sequences.value(at),
            Bytes::copy_from_slice(payloads.value(at)),
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

fn links(dir: &Path) -> BTreeSet<String> {
    let texts = |batch: &RecordBatch| {
        let links = batch.column_by_name("link").unwrap().as_string::<i32>();
        let links = links.iter().flatten().map(str::to_owned);
        links.collect::<Vec<_>>()
    };
    batches(dir).iter().flat_map(texts).collect()
}

async fn durable(receiver: &Receiver, elements: u64) -> ReceiverStats {
    until(receiver, "durable", |stats| stats.spool.durable == elements).await
}

/// `count` elements of these lengths, each different.
fn elements(count: usize, length: impl Fn(usize) -> usize) -> Vec<Bytes> {
    let element = |at: usize| {
        let bytes = (0..length(at)).map(|place| (at.wrapping_mul(7) ^ place).to_le_bytes()[0]);
        bytes.collect()
    };
    (0..count).map(element).collect()
}

#[tokio::test]
async fn elements_of_any_size_fixed_ones_and_split_ones_land_in_order() {
    let any = |at: usize| [0, 1, 300, 70_000][at % 4];
    for (size, sent) in [
        (0, elements(41, any)),
        (8, elements(10_001, |_| 8)),
        (200_000, elements(5, |_| 200_000)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (listener, url) = listening("a/b%20c").await;
        let receiver = start(&[], &[&url], dir.path(), &json!({"demand": 1_000})).await;
        let publisher = Publisher::accepted(&listener).await;
        let asked = publisher.accepts(size).await;
        // As many as the memory holds if each has the largest size.
        assert_eq!(asked, ("a/b c".to_owned(), 1, 4));
        publisher.publish(sent.iter().cloned()).await;
        durable(&receiver, sent.len() as u64).await;
        let shown = (size > 0).then(|| size.to_string());
        let wanted: Vec<Row> = (0..)
            .zip(&sent)
            .map(|(at, one)| ("a/b c".to_owned(), shown.clone(), at, one.clone()))
            .collect();
        assert!(rows(dir.path()) == wanted, "elements of {size} bytes");
        let stats = receiver.stats();
        let bytes: usize = sent.iter().map(Bytes::len).sum();
        assert_eq!(stats.received.bytes, bytes as u64);
        assert_eq!(receiver.stop(None).await, 0);
        assert_eq!(publisher.goodbye().await, "the receiver stops");
    }
}

#[tokio::test]
async fn packed_elements_land_without_a_price_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("ticks").await;
    let options = json!({"demand": 5_000_000, "max_element_bytes": "16MiB"});
    let receiver = start(&[], &[&url], dir.path(), &options).await;
    let publisher = Publisher::accepted(&listener).await;
    publisher.accepts(1).await;
    let all: Bytes = (0..=u8::MAX).cycle().take(3_000_000).collect();
    let mut left = all.clone();
    let packed = async {
        while !left.is_empty() {
            publisher.call(|machine| {
                let most = usize::try_from(machine.demand(1).unwrap()).unwrap();
                let some = left.split_to(most.min(left.len()));
                machine.next_packed(1, some).unwrap();
            });
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(packed).await;
    durable(&receiver, 3_000_000).await;
    let spool = Spool::open(dir.path()).unwrap();
    assert_eq!(spool.durable().unwrap(), 3_000_000);
    // A few from the middle of a block.
    let read = spool.read(
        &ackline::layouts(),
        1_000_003..1_000_006,
        &ReadOptions::default(),
    );
    let some: Vec<_> = read.unwrap().map(Result::unwrap).collect();
    let some: Vec<_> = some.iter().flat_map(rows_of).collect();
    let row = |at: usize| {
        let (stream, size) = ("ticks".to_owned(), Some("1".to_owned()));
        (stream, size, i64::try_from(at).unwrap(), all.slice(at..=at))
    };
    assert_eq!(some, [row(1_000_003), row(1_000_004), row(1_000_005)]);
    let landed: Vec<u8> = batches(dir.path())
        .iter()
        .flat_map(|batch| {
            let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
            payloads
                .iter()
                .flatten()
                .flatten()
                .copied()
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(landed == all, "{} bytes", landed.len());
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_full_spool_stops_its_publisher_and_nothing_waits_for_room() {
    const BUDGET: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("slow").await;
    let options = json!({
        "budget": BUDGET, "segment_bytes": 128 << 10, "retain_committed_ms": 0,
    });
    let receiver = start(&[], &[&url], dir.path(), &options).await;
    commit(dir.path(), 0);
    let publisher = Arc::new(Publisher::accepted(&listener).await);
    publisher.accepts(0).await;
    let publishing = tokio::spawn({
        let publisher = Arc::clone(&publisher);
        async move {
            for number in 0..400 {
                publisher.publish([noise(number)]).await;
            }
        }
    });
    let is_full = async {
        loop {
            // Requested first: elements that become durable meanwhile are no fewer.
            let requested = publisher.requested();
            let stats = receiver.stats();
            let durable = stats.spool.durable;
            let outstanding = requested.saturating_sub(durable);
            assert!(outstanding * 10_000 <= BUDGET, "{requested} and {stats:?}");
            assert_eq!(stats.state, "ok", "no element waits for room");
            if stats.paused == Some("budget") {
                let durable = receiver.stats().spool.durable;
                assert_eq!(publisher.requested(), durable, "nothing is requested");
                return durable;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let first = within(is_full).await;
    assert!(
        !publishing.is_finished() && (50..105).contains(&first),
        "{first}"
    );
    let going_on = async {
        while !publishing.is_finished() {
            commit(dir.path(), receiver.stats().spool.durable);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(going_on).await;
    publishing.await.unwrap();
    durable(&receiver, 400).await;
    assert_eq!(receiver.stop(None).await, 0);
}

/// The consumer commits everything below a position.
fn commit(dir: &Path, position: u64) {
    let spool = Spool::open(dir).unwrap();
    spool.commit_mark("lake", position).unwrap();
}

/// 10,000 bytes that do not compress.
fn noise(seed: u32) -> Bytes {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(10_000).collect()
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_again_and_everything_before_has_landed() {
    keep();
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("lost").await;
    let receiver = start(&[], &[&url], dir.path(), &json!({})).await;
    for round in 1..=3 {
        let publisher = Publisher::accepted(&listener).await;
        publisher.accepts(0).await;
        publisher.publish(elements(10, |_| 3)).await;
        durable(&receiver, round * 10).await;
        // The next element is lost on its way.
        let large = Bytes::from(vec![7; 8 << 20]);
        publisher.call(|machine| machine.next(1, vec![large]).unwrap());
        publisher.link.abort();
    }
    let publisher = Publisher::accepted(&listener).await;
    publisher.accepts(0).await;
    let sequences: Vec<_> = rows(dir.path()).iter().map(|row| row.2).collect();
    let each: Vec<_> = (0..3).flat_map(|_| 0..10).collect();
    assert_eq!(sequences, each);
    assert_eq!(links(dir.path()).len(), 3);
    let failed = lines("reactive.subscription_failed", "publisher=\"lost\" ");
    assert_eq!(failed.len(), 3, "{failed:?}");
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_stream_that_is_complete_lands_once() {
    keep();
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("finite").await;
    let receiver = start(&[], &[&url], dir.path(), &json!({})).await;
    let publisher = Publisher::accepted(&listener).await;
    publisher.accepts(3).await;
    publisher.publish(elements(1_000, |_| 3)).await;
    publisher.call(|machine| machine.complete(1).unwrap());
    assert_eq!(publisher.goodbye().await, "all streams have ended");
    assert_eq!(receiver.stats().spool.durable, 1_000, "all was kept before");
    let again = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(again.is_err(), "it does not connect again");
    let told = lines("reactive.completed", "publisher=\"finite\" ");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("elements=1000 "), "{told:?}");
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test]
async fn the_end_of_a_stream_waits_for_the_commit_of_its_elements_alone() {
    let options = json!({"ack": "committed=lake"});
    for count in [0, 3] {
        let dir = tempfile::tempdir().unwrap();
        let (listener, url) = listening("short").await;
        let receiver = start(&[], &[&url], dir.path(), &options).await;
        let publisher = Publisher::accepted(&listener).await;
        publisher.accepts(0).await;
        publisher.publish(elements(count, |_| 3)).await;
        publisher.call(|machine| machine.complete(1).unwrap());
        if count > 0 {
            until(&receiver, "durable", |stats| stats.spool.uncommitted == 3).await;
            commit(dir.path(), 3);
        }
        assert_eq!(publisher.goodbye().await, "all streams have ended");
        assert_eq!(receiver.stop(None).await, 0);
    }
}

#[tokio::test]
async fn an_error_of_the_publisher_is_told_and_the_receiver_connects_again() {
    keep();
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("broken").await;
    let receiver = start(&[], &[&url], dir.path(), &json!({})).await;
    let publisher = Publisher::accepted(&listener).await;
    let (_, id, _) = publisher.subscribed().await;
    publisher.call(|machine| machine.reject(id, "no such\npublisher").unwrap());
    assert_eq!(publisher.goodbye().await, "all streams have ended");
    let publisher = Publisher::accepted(&listener).await;
    publisher.accepts(0).await;
    publisher.publish(elements(1, |_| 3)).await;
    publisher.call(|machine| machine.error(1, "gone").unwrap());
    let _next = Publisher::accepted(&listener).await;
    durable(&receiver, 1).await;
    let failed = lines("reactive.subscription_failed", "publisher=\"broken\" ");
    assert!(
        failed[0].contains("no such") && !failed[0].contains('\n'),
        "{failed:?}"
    );
    assert!(failed[1].contains("why=\"gone\""), "{failed:?}");
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_client_that_connects_is_subscribed_to() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let options = json!({"demand": 7});
    let receiver = start(&["reactive://127.0.0.1:0/a%2Fb"], &[], &spool, &options).await;
    let url = receiver.urls()[0].clone();
    let (address, publisher) = url
        .trim_start_matches("reactive://")
        .split_once('/')
        .unwrap();
    assert_eq!(publisher, "a/b");
    for round in 1..=2 {
        let stream = TcpStream::connect(address).await.unwrap();
        let publisher = Publisher::on(Role::Client, 64 << 10, stream);
        let asked = publisher.accepts(0).await;
        assert_eq!(asked, ("a/b".to_owned(), 1, 4));
        publisher.publish(elements(100, |_| 3)).await;
        publisher.call(|machine| machine.complete(1).unwrap());
        assert_eq!(publisher.goodbye().await, "all streams have ended");
        durable(&receiver, round * 100).await;
    }
    assert_eq!(links(&spool).len(), 2);
    assert_eq!(receiver.stats().refusals.refused, 0);
    receiver.stop(None).await;
}

#[tokio::test]
async fn urls_of_one_address_subscribe_to_each_publisher() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let place = format!("reactive+unix://{}", socket.display());
    let urls = ["a", "b"].map(|name| format!("{place}?publisher={name}"));
    let urls = [&*urls[0], &*urls[1]];
    let receiver = start(&urls, &[], &dir.path().join("spool"), &json!({})).await;
    assert_eq!(receiver.urls(), urls);
    let endpoint = Endpoint::parse(&place).unwrap();
    let stream = ackline::link::connect(&endpoint, DEADLINE).await.unwrap();
    let publisher = Publisher::on(Role::Client, 64 << 10, stream);
    for wanted in ["a", "b"] {
        let (name, id, _) = publisher.accepts(0).await;
        assert_eq!(name, wanted);
        let element = Bytes::from(name);
        publisher.call(|machine| machine.next(id, vec![element]).unwrap());
    }
    durable(&receiver, 2).await;
    let landed = rows(&dir.path().join("spool"));
    let landed: BTreeSet<_> = landed.into_iter().map(|row| (row.0, row.3)).collect();
    let wanted = ["a", "b"].map(|name| (name.to_owned(), Bytes::from(name)));
    assert_eq!(landed, BTreeSet::from(wanted));
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_stop_cancels_and_waits_until_everything_that_came_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("stopped").await;
    let options = json!({"ack": "committed=lake"});
    let receiver = start(&[], &[&url], dir.path(), &options).await;
    let publisher = Publisher::accepted(&listener).await;
    publisher.accepts(0).await;
    publisher.publish(elements(3, |_| 3)).await;
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 3).await;
    let stopping = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move { receiver.stop(None).await }
    });
    while publisher.event().await != (Event::Cancel { subscriber: 1 }) {}
    assert!(!stopping.is_finished());
    commit(dir.path(), 3);
    assert_eq!(publisher.goodbye().await, "the receiver stops");
    assert_eq!(within(stopping).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_peer_that_never_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, url) = listening("silent").await;
    let receiver = start(&[], &[&url], dir.path(), &json!({})).await;
    let (mut silent, _) = within(listener.accept()).await.unwrap();
    assert_eq!(within(silent.read_u8()).await.unwrap(), 1, "a hello");
    let begin = Instant::now();
    assert_eq!(within(receiver.stop(None)).await, 0);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_wrong_url_is_told_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let tls = if cfg!(feature = "tls") {
        "/nowhere"
    } else {
        "build ackline with its feature \"tls\""
    };
    let socket = format!(
        "reactive+unix://{}?publisher=n",
        dir.path().join("x").display()
    );
    for (urls, connect, part) in [
        (vec!["reactive://127.0.0.1:0"], vec![], "name is missing"),
        (vec![], vec!["reactive://h:1/"], "name is missing"),
        (vec![], vec!["reactive://h:1/%f"], "percent-encoded"),
        (vec![], vec!["reactive://h:1/n?ca=x"], "option of TLS"),
        (vec![], vec!["reactive+tls://h:1/n?ca=/nowhere"], tls),
        (vec![], vec!["reactive://h:1/n?demands=x"], "demands"),
        (vec![], vec!["reactive://h:1/n?demand=0"], "demand is 0"),
        (vec![], vec!["reactive://h/n"], "host and a port"),
        (
            vec!["reactive://h:1/n", "reactive://h:1/m?demand=1"],
            vec![],
            "different options",
        ),
        (vec![&*socket, &*socket], vec![], "given twice"),
    ] {
        let options = ReceiverOptions {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            connect: connect.iter().map(|url| (*url).to_owned()).collect(),
            spool: Some(spool.clone()),
            ..ReceiverOptions::default()
        };
        let error = Receiver::start(options).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
