//! The receiver of MicroMsg2: the rows that land, the acknowledgements that a sender gets, and subscriptions to a broker.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ackline::core::{Connection as _, SendQueue};
use ackline::link::{Endpoint, Link};
use ackline::spool::{ReadOptions, Spool};
use ackline::{Receiver, ReceiverOptions, ReceiverStats};
use ackline_micromsg::text::Extension;
use ackline_micromsg::{Config, Connection, Event, Outbound, Role, Terms};
use ackline_testkit::lines::{keep, lines};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{DEADLINE, batches, line, receiving, until, within};

mod ends_and_limits;
mod subscriptions;

/// A receiver that listens on the first URLs and connects to the others, when its spool is free.
async fn start_at(urls: &[&str], connect: &[&str], dir: &Path, options: &Value) -> Arc<Receiver> {
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

async fn start(dir: &Path, options: &Value) -> Arc<Receiver> {
    start_at(&["micromsg://127.0.0.1:0"], &[], dir, options).await
}

fn address(receiver: &Receiver) -> SocketAddr {
    let url = receiver.urls()[0].clone();
    url.trim_start_matches("micromsg://").parse().unwrap()
}

/// An end with these extensions, suggested and supported.
fn with(extensions: &[&str]) -> Config {
    let extension = |name: &&str| Extension {
        name: (*name).to_owned(),
        properties: Vec::new(),
    };
    Config {
        terms: Terms {
            optional: extensions.iter().map(extension).collect(),
            ..Terms::default()
        },
        ..Config::default()
    }
}

/// The sending end of a connection.
struct Publisher {
    link: Link<Connection>,
    place: String,
}

impl Publisher {
    fn on<IO>(role: Role, config: Config, io: IO) -> Self
    where
        IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let mut machine = Connection::new(Instant::now(), role, config);
        machine.connect(Instant::now()).unwrap();
        let link = Link::new(machine);
        let driven = link.clone();
        tokio::spawn(async move { driven.drive(io).await.end });
        Self {
            link,
            place: String::new(),
        }
    }

    /// Connected to a receiver, with the handshake behind it.
    async fn with(receiver: &Receiver, config: Config) -> Self {
        let stream = TcpStream::connect(address(receiver)).await.unwrap();
        let place = stream.local_addr().unwrap().to_string();
        let mut publisher = Self::on(Role::Client, config, stream);
        publisher.place = place;
        publisher.connected().await;
        publisher
    }

    async fn new(receiver: &Receiver) -> Self {
        Self::with(receiver, with(&["batch-ack", "dotnet"])).await
    }

    async fn connected(&self) {
        while !matches!(self.event().await, Event::Connected(_)) {}
    }

    async fn event(&self) -> Event {
        let next = |machine: &mut Connection, _| match machine.poll_event() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        };
        within(self.link.when(0, next)).await.unwrap()
    }

    fn call<R>(&self, f: impl FnOnce(&mut Connection) -> R) -> R {
        self.link.call(|machine, _| f(machine))
    }

    /// Sends a message as soon as the window has room; `false` if the connection ends before.
    async fn try_put(&self, message: Outbound<'_>, payload: Bytes) -> bool {
        let when_room = |machine: &mut Connection, _| {
            while machine.poll_event().is_some() {}
            match machine.send(message, &payload) {
                Err(error) if error.code == "window_full" => Poll::Pending,
                sent => Poll::Ready(sent.is_ok()),
            }
        };
        matches!(within(self.link.when(0, when_room)).await, Ok(true))
    }

    async fn put(&self, message: Outbound<'_>, payload: impl Into<Bytes>) {
        assert!(self.try_put(message, payload.into()).await);
    }

    async fn send(&self, destination: &str, payload: impl Into<Bytes>) {
        let message = Outbound {
            destination,
            ..Outbound::default()
        };
        self.put(message, payload).await;
    }

    fn pending(&self) -> u16 {
        self.call(|machine| machine.pending())
    }

    /// Waits until so many messages wait for their acknowledgement.
    async fn until_pending(&self, count: u16) {
        let is = |machine: &mut Connection, _| {
            while machine.poll_event().is_some() {}
            if machine.pending() == count {
                return Poll::Ready(());
            }
            Poll::Pending
        };
        within(self.link.when(0, is)).await.unwrap();
    }
}

/// A client that writes and reads by hand, so that it can end its direction.
pub(crate) struct ByHand {
    pub(crate) stream: TcpStream,
    pub(crate) machine: Connection,
}

impl ByHand {
    async fn new(receiver: &Receiver) -> Self {
        Self::at(address(receiver)).await
    }

    /// Connected to this address, with acknowledgements.
    pub(crate) async fn at(address: impl tokio::net::ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut machine = Connection::new(Instant::now(), Role::Client, with(&["batch-ack"]));
        machine.connect(Instant::now()).unwrap();
        let mut made = Self { stream, machine };
        made.flush().await;
        while !made.machine.is_running() {
            assert!(made.read().await);
        }
        made.flush().await;
        made
    }

    pub(crate) async fn flush(&mut self) {
        let mut out = SendQueue::new();
        self.machine.poll_transmit(Instant::now(), &mut out);
        let mut bytes = BytesMut::new();
        bytes.put(out);
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn send(&mut self, destination: &str, payload: &'static str) {
        let message = Outbound {
            destination,
            ..Outbound::default()
        };
        self.machine
            .send(message, &Bytes::copy_from_slice(payload.as_bytes()))
            .unwrap();
        self.flush().await;
    }

    /// Takes bytes of the receiver; `false` at its end.
    pub(crate) async fn read(&mut self) -> bool {
        let mut input = BytesMut::new();
        let read = within(self.stream.read_buf(&mut input)).await;
        if read.unwrap() == 0 {
            return false;
        }
        while !input.is_empty() {
            self.machine.receive(Instant::now(), &mut input).unwrap();
            while self.machine.poll_event().is_some() {}
        }
        true
    }
}

/// A row: stream, sequence, payload.
type Row = (Option<String>, i64, Bytes);

fn rows(dir: &Path) -> Vec<Row> {
    batches(dir).iter().flat_map(rows_of).collect()
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let text = |name: &str, at| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.is_valid(at).then(|| column.value(at).to_owned())
    };
    let sequences = batch.column_by_name("sequence").unwrap();
    let sequences = sequences.as_primitive::<Int64Type>();
    let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
    let row = |at| {
        assert_eq!(text("protocol", at).unwrap(), "micromsg");
        assert_eq!(text("link", at).unwrap().len(), 36, "a UUID");
        let payload = Bytes::copy_from_slice(payloads.value(at));
        (text("stream", at), sequences.value(at), payload)
    };
    (0..batch.num_rows()).map(row).collect()
}

/// The attributes of each row, beside the URL of the receiver.
fn attributes(dir: &Path) -> Vec<BTreeMap<String, String>> {
    let of_row = |batch: &RecordBatch, at| {
        let entries = batch["attributes"].as_map().value(at);
        let names = entries.column(0).as_string::<i32>().iter();
        let values = entries.column(1).as_string::<i32>().iter();
        let pairs = names.zip(values);
        let pairs =
            pairs.map(|(name, value)| (name.unwrap().to_owned(), value.unwrap().to_owned()));
        let mut pairs = pairs.collect::<BTreeMap<_, _>>();
        let listener = pairs.remove("receiver.url").unwrap();
        assert!(listener.starts_with("micromsg://127.0.0.1:"), "{listener}");
        pairs
    };
    let all = batches(dir);
    let all = all.iter();
    all.flat_map(|batch| {
        (0..batch.num_rows())
            .map(|at| of_row(batch, at))
            .collect::<Vec<_>>()
    })
    .collect()
}

async fn durable(receiver: &Receiver, messages: u64) -> ReceiverStats {
    until(receiver, "durable", |stats| stats.spool.durable == messages).await
}

/// The consumer commits everything below a position.
fn commit(dir: &Path, position: u64) {
    let spool = Spool::open(dir).unwrap();
    spool.commit_mark("lake", position).unwrap();
}

/// So many bytes that do not compress.
fn noise(seed: usize, bytes: usize) -> Bytes {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test]
async fn messages_of_any_size_land_as_rows_of_their_destination() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"window": 7})).await;
    let config = Config {
        fragment_size: 100_000,
        ..with(&["batch-ack"])
    };
    let publisher = Publisher::with(&receiver, config).await;
    assert_eq!(publisher.call(|machine| machine.window()), Ok(7));
    let sizes = [0, 1, 255, 256, 20_000, 100_000, 100_001, 1_234_567];
    let mut wanted = Vec::new();
    for (at, size) in sizes.iter().cycle().take(40).enumerate() {
        let destination = ["orders/a", "", "b"][at % 3];
        let payload = noise(at, *size);
        publisher.send(destination, payload.clone()).await;
        let stream = Some(destination.to_owned()).filter(|text| !text.is_empty());
        wanted.push((stream, i64::try_from(at / 3).unwrap(), payload));
    }
    publisher.until_pending(0).await;
    let stats = receiver.stats();
    assert_eq!((stats.spool.durable, stats.acked.acked_events), (40, 40));
    let bytes: usize = wanted.iter().map(|row| row.2.len()).sum();
    assert_eq!(stats.received.bytes, bytes as u64);
    let mut found = rows(dir.path());
    found.sort();
    wanted.sort();
    assert!(found == wanted);
    assert_eq!(receiver.stop(None).await, 0);
}

/// Properties, a .NET type, and the attributes that a row has for them.
type Case = (
    &'static str,
    Option<&'static str>,
    &'static [(&'static str, &'static str)],
);

const LINK: (&str, &str) = ("micromsg.identity", "worker-7");
const TYPED: (&str, &str) = ("micromsg.dotnet_type", "App.Order, App");

#[tokio::test]
async fn properties_type_and_identity_are_attributes_of_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let mut config = with(&["batch-ack", "dotnet"]);
    config.terms.identity = "worker-7".to_owned();
    let publisher = Publisher::with(&receiver, config).await;
    let cases: [Case; 6] = [
        ("", None, &[LINK]),
        (
            "n:N5;f:N1.5;d:D1413198000.0;t:Ta%20b;u:plain;",
            None,
            &[
                LINK,
                ("n", "5"),
                ("f", "1.5"),
                ("d", "1413198000.0"),
                ("t", "a b"),
                ("u", "plain"),
            ],
        ),
        ("n:N5", Some("App.Order, App"), &[LINK, TYPED, ("n", "5")]),
        (
            "micromsg.identity:Troot;tls.subject:TCN=root;sender:Ttls:CN=root;a:N1;a:N2;",
            Some("App.Order, App"),
            &[
                LINK,
                TYPED,
                ("property.micromsg.identity", "root"),
                ("property.tls.subject", "CN=root"),
                ("property.sender", "tls:CN=root"),
                ("a", "1"),
            ],
        ),
        (
            "a:N1;broken;b:%f;",
            Some("App.Order, App"),
            &[
                LINK,
                TYPED,
                ("a", "1"),
                ("micromsg.properties", "a:N1;broken;b:%f;"),
            ],
        ),
        (
            "a:N2;",
            Some("T"),
            &[LINK, ("micromsg.dotnet_type", "T"), ("a", "2")],
        ),
    ];
    for (properties, dotnet_type, _) in cases {
        let message = Outbound {
            destination: "d",
            properties,
            dotnet_type,
        };
        publisher.put(message, "x").await;
    }
    publisher.until_pending(0).await;
    let text = |pair: &(&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
    let wanted = cases.map(|(_, _, pairs)| pairs.iter().map(text).collect::<BTreeMap<_, _>>());
    assert_eq!(attributes(dir.path()), wanted);
    let sequences: Vec<_> = rows(dir.path()).iter().map(|row| row.1).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4, 5]);
    receiver.stop(None).await;
}

#[tokio::test]
async fn no_property_changes_the_sender_of_an_event() {
    let digests = async |properties: &str| {
        let dir = tempfile::tempdir().unwrap();
        let receiver = start(dir.path(), &json!({})).await;
        let publisher = Publisher::new(&receiver).await;
        let message = Outbound {
            destination: "d",
            properties,
            dotnet_type: None,
        };
        publisher.put(message, "x").await;
        publisher.until_pending(0).await;
        receiver.stop(None).await;
        let spool = Spool::open(dir.path()).unwrap();
        let options = ReadOptions {
            columns: Some(vec!["attributes".to_owned(), "digest".to_owned()]),
            ..ReadOptions::default()
        };
        let read = spool.read(&ackline::layouts(), 0..1, &options).unwrap();
        let batch = read.map(Result::unwrap).next().unwrap();
        batch["digest"].as_binary::<i32>().value(0).to_vec()
    };
    assert_eq!(digests("").await, digests("sender:Ttls:CN=root;").await);
}

#[tokio::test]
async fn a_message_is_acknowledged_when_it_and_all_before_it_are_committed() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let publisher = ByHand::new(&receiver).await;
    let mut publisher = publisher;
    // In one write, so that they are two runs: a has the first message and the third one.
    for (destination, payload) in [("a", "1"), ("b", "2"), ("a", "3")] {
        let message = Outbound {
            destination,
            ..Outbound::default()
        };
        publisher
            .machine
            .send(message, &Bytes::copy_from_slice(payload.as_bytes()))
            .unwrap();
    }
    publisher.flush().await;
    until(&receiver, "let go", |stats| {
        stats.spool.uncommitted == 3 && stats.memory_bytes == 0
    })
    .await;
    let found = rows(dir.path());
    let found: Vec<_> = found
        .iter()
        .map(|row| (row.0.as_deref().unwrap(), row.1, &*row.2))
        .collect();
    assert_eq!(found, [("a", 0, &b"1"[..]), ("a", 1, b"3"), ("b", 0, b"2")]);
    assert_eq!(publisher.machine.pending(), 3);
    commit(dir.path(), 2);
    assert!(publisher.read().await);
    assert_eq!(
        publisher.machine.pending(),
        2,
        "the third one waits for the second"
    );
    commit(dir.path(), 3);
    while publisher.machine.pending() > 0 {
        assert!(publisher.read().await);
    }
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_sender_that_ends_its_direction_gets_its_acknowledgements_and_then_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let mut publisher = ByHand::new(&receiver).await;
    publisher.send("a", "1").await;
    publisher.send("b", "2").await;
    publisher.stream.shutdown().await.unwrap();
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 2).await;
    commit(dir.path(), 2);
    while publisher.read().await {}
    assert_eq!(publisher.machine.pending(), 0);
    let stats = until(&receiver, "over", |stats| stats.connections == 0).await;
    assert_eq!((stats.acked.acked_events, stats.refusals.refused), (2, 0));
    receiver.stop(None).await;
}

#[tokio::test]
async fn sequence_numbers_go_on_behind_65535() {
    const MESSAGES: u32 = 140_000;
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"window": 65_534})).await;
    let publisher = Publisher::new(&receiver).await;
    for number in 0..MESSAGES {
        publisher.send("a", number.to_be_bytes().to_vec()).await;
    }
    publisher.until_pending(0).await;
    let found = rows(dir.path());
    let wanted = (0..MESSAGES).map(|number| {
        let payload = Bytes::from(number.to_be_bytes().to_vec());
        (Some("a".to_owned()), i64::from(number), payload)
    });
    assert!(found.into_iter().eq(wanted));
    receiver.stop(None).await;
}

#[tokio::test]
async fn messages_of_a_sender_without_acknowledgements_land_and_the_operator_is_told() {
    keep();
    for options in [json!({}), json!({"ack": "committed=lake"})] {
        let dir = tempfile::tempdir().unwrap();
        let receiver = start(dir.path(), &options).await;
        let publisher = Publisher::with(&receiver, with(&["json"])).await;
        for number in 0..3_000_u32 {
            publisher.send("a", number.to_be_bytes().to_vec()).await;
        }
        durable(&receiver, 3_000).await;
        publisher.call(|machine| machine.command("ping", &[]).unwrap());
        publisher.call(|machine| machine.send_extension("json", b"x").unwrap());
        publisher.send("a", "x").await;
        durable(&receiver, 3_001).await;
        let subject = format!("peer={:?} ", publisher.place);
        let told = lines("micromsg.no_acks", &subject);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("landed and not acknowledged"), "{told:?}");
        let told = lines("micromsg.ignored", &subject);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("name=\"ping\""), "{told:?}");
        // It waits for no commit.
        assert_eq!(receiver.stop(None).await, 0);
    }
}

#[tokio::test]
async fn a_listener_of_a_unix_socket_takes_messages() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("micromsg+unix://{}", dir.path().join("x.sock").display());
    let receiver = start_at(&[&url], &[], &dir.path().join("spool"), &json!({})).await;
    assert_eq!(receiver.urls(), std::slice::from_ref(&url));
    let endpoint = Endpoint::parse(&url).unwrap();
    let stream = ackline::link::connect(&endpoint, DEADLINE).await.unwrap();
    let publisher = Publisher::on(Role::Client, with(&["batch-ack"]), stream);
    publisher.connected().await;
    publisher.send("a", "x").await;
    publisher.until_pending(0).await;
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_receiver_that_discards_counts_and_acknowledges() {
    let options = ReceiverOptions {
        urls: vec!["micromsg://127.0.0.1:0".to_owned()],
        ..ReceiverOptions::default()
    };
    let receiver = Arc::new(Receiver::start(options).await.unwrap());
    let publisher = Publisher::new(&receiver).await;
    for _ in 0..5 {
        publisher.send("a", "abc").await;
    }
    publisher.until_pending(0).await;
    let stats = receiver.stats();
    assert_eq!(
        (
            stats.received.events,
            stats.acked.acked_events,
            stats.received.bytes
        ),
        (5, 5, 15)
    );
    receiver.stop(None).await;
}
