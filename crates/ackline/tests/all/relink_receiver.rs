//! The receiver of Relink: the rows that land, their form, and the answers that a sender gets.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod limits_and_restarts;

use ackline::relink::ReconnectOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{at_socket, batches, line, receiving, until, within};
use ackline::relink::{ChannelId, ConnectOptions, Link, Outcome, Payload, Receipt, connect};
use ackline::spool::Spool;
use ackline::{Receiver, ReceiverOptions};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A receiver at these URLs.
async fn start(urls: &[&str], dir: &Path, options: &Value) -> Arc<Receiver> {
    let mut all = ReceiverOptions {
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    all.set_all(options.as_object().unwrap()).unwrap();
    Arc::new(Receiver::start(all).await.unwrap())
}

async fn linked(url: &str) -> Link {
    let options = ConnectOptions {
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(50),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    };
    connect(url, options).await.unwrap()
}

/// A receiver at a socket, and a link to it.
struct Served {
    dir: TempDir,
    spool: PathBuf,
    url: String,
    receiver: Arc<Receiver>,
    link: Link,
}

/// A receiver of the endpoint `n` with these options, whose URL has `more` in its query.
async fn served(more: &str, options: &Value) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let url = at_socket(dir.path()) + more;
    let receiver = start(&[&url], &spool, options).await;
    let link = linked(&url).await;
    Served {
        dir,
        spool,
        url,
        receiver,
        link,
    }
}

/// A row: link, stream, sequence, payload or parts.
type Row = (String, String, i64, Vec<String>);

/// The rows of a spool; a single payload has one text.
fn rows(dir: &Path) -> Vec<Row> {
    batches(dir).iter().flat_map(rows_of).collect()
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let text = |name: &str, at| {
        let column = batch.column_by_name(name).unwrap();
        column.as_string::<i32>().value(at).to_owned()
    };
    let sequences = batch.column_by_name("sequence").unwrap();
    let sequences = sequences.as_primitive::<Int64Type>();
    let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
    let parts = batch.column_by_name("parts").unwrap().as_list::<i32>();
    let repeats = batch.column_by_name("repeat").unwrap().as_boolean();
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let row = |at| {
        assert!(repeats.is_valid(at) && !repeats.value(at));
        let contents = if payloads.is_valid(at) {
            assert!(parts.is_null(at));
            vec![shown(payloads.value(at))]
        } else {
            let parts = parts.value(at);
            let parts = parts.as_binary::<i32>().iter();
            parts.flatten().map(shown).collect()
        };
        (
            text("link", at),
            text("stream", at),
            sequences.value(at),
            contents,
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

fn payloads(dir: &Path) -> Vec<String> {
    let texts = rows(dir).into_iter().flat_map(|row| row.3);
    texts.collect()
}

const A: u32 = 0x0a0b_0c0d;

#[tokio::test]
async fn a_message_is_a_row_of_its_channel_and_consumed_when_it_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let receiver = start(&["relink://127.0.0.1:0/orders"], &spool, &json!({})).await;
    let [url] = receiver.urls() else { panic!() };
    assert!(url.ends_with("/orders") && !url.contains(":0/"), "{url}");
    let link = linked(url).await;
    let (a, b) = (ChannelId::from(A), ChannelId::from(7_u32));
    let parts = Payload::from_parts(vec![
        Bytes::from("x"),
        Bytes::new(),
        Bytes::from(vec![b'y'; 2_000]),
    ]);
    link.send(&a, b"one".as_slice(), None).await.unwrap();
    link.send(&b, parts, None).await.unwrap();
    link.send(&a, Payload::default(), None).await.unwrap();
    let last = link.send(&a, vec![b'z'; 5_000], None).await.unwrap();
    within(last.consumed()).await.unwrap();
    let stats = until(&receiver, "all acknowledged", |stats| {
        stats.acked.acked_events == 4
    })
    .await;
    assert_eq!(
        (
            stats.acked.landed,
            stats.received.events,
            stats.received.unacked
        ),
        (4, 4, 0)
    );
    assert_eq!(stats.spool.durable, 4);

    let mut found = rows(&spool);
    found.sort();
    let key = link.key();
    let name = format!("orders/{}/{}", key.epoch, key.link_id);
    let row = |stream: &str, sequence, contents: &[&str]| {
        let contents = contents.iter().map(|text| (*text).to_owned()).collect();
        (name.clone(), stream.to_owned(), sequence, contents)
    };
    let (y, z) = ("y".repeat(2_000), "z".repeat(5_000));
    assert_eq!(
        found,
        [
            row("07000000", 0, &["x", "", &y]),
            row("0d0c0b0a", 0, &["one"]),
            row("0d0c0b0a", 1, &[]),
            row("0d0c0b0a", 2, &[&z]),
        ]
    );
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test]
async fn several_names_stand_at_one_address() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let at = |name: &str| format!("relink+unix://{}?endpoint={name}", socket.display());
    let urls = [
        at("a%2Fb"),
        format!("{}&connector_channel_id_size=0", at("c")),
    ];
    let given = [urls[0].as_str(), urls[1].as_str()];
    let receiver = start(&given, &dir.path().join("spool"), &json!({})).await;
    assert_eq!(receiver.urls(), [at("a%2Fb"), at("c")]);
    for (url, channel) in [
        (&urls[0], ChannelId::from(A)),
        (&urls[1], ChannelId::IMPLICIT),
    ] {
        let link = linked(url).await;
        let receipt = link.send(&channel, url.clone().into_bytes(), None).await;
        within(receipt.unwrap().consumed()).await.unwrap();
    }
    let found = rows(&dir.path().join("spool"));
    let streams: Vec<_> = found
        .iter()
        .map(|row| (&*row.1, row.0.split('/').count()))
        .collect();
    assert_eq!(streams, [("0d0c0b0a", 4), ("", 3)]);
    receiver.stop(None).await;

    let twice = ReceiverOptions {
        urls: vec![at("a"), at("a")],
        spool: Some(dir.path().join("other")),
        ..ReceiverOptions::default()
    };
    let error = Receiver::start(twice).await.unwrap_err().to_string();
    assert!(error.contains("given twice"), "{error}");
}

#[tokio::test]
async fn who_asks_for_what_there_is_not_is_refused_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(&["relink://127.0.0.1:0/orders"], dir.path(), &json!({})).await;
    let url = receiver.urls()[0].replace("orders", "odres");
    connect(&url, ConnectOptions::default())
        .await
        .err()
        .unwrap();
    let refused = line(&receiver, "refused").await;
    assert_eq!(refused["code"], "relink.unknown_endpoint");
    assert_eq!(refused["protocol"], "relink");
    let transactions = format!("{}?connector_transactions=true", receiver.urls()[0]);
    connect(&transactions, ConnectOptions::default())
        .await
        .err()
        .unwrap();
    assert_eq!(
        line(&receiver, "refused").await["code"],
        "relink.parameters_disagree"
    );
    assert_eq!(receiver.stats().refusals.refused, 2);
    receiver.stop(None).await;
}

#[tokio::test]
async fn what_is_rolled_back_is_never_seen_and_what_is_committed_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let url = "relink://127.0.0.1:0/t?connector_transactions=true";
    let receiver = start(&[url], dir.path(), &json!({})).await;
    let link = linked(&format!(
        "{}?connector_transactions=true",
        receiver.urls()[0]
    ))
    .await;
    let a = ChannelId::from(A);
    let send = async |text: &str| {
        link.send(&a, text.to_owned().into_bytes(), None)
            .await
            .unwrap()
    };
    let (one, two) = (send("one").await, send("two").await);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!one.is_consumed() && payloads(dir.path()).is_empty());
    link.commit(&a, None).unwrap();
    link.rollback(&a, None).unwrap();
    assert_eq!(within(one.committed()).await.unwrap(), Outcome::Committed);
    within(two.consumed()).await.unwrap();
    let three = send("three").await;
    link.commit(&a, None).unwrap();
    assert_eq!(within(three.committed()).await.unwrap(), Outcome::Committed);
    assert_eq!(payloads(dir.path()), ["one", "three"]);
    let sequences: Vec<_> = rows(dir.path()).iter().map(|row| row.2).collect();
    assert_eq!(sequences, [0, 2]);
    receiver.stop(None).await;
}

#[tokio::test]
async fn with_committed_acks_a_message_is_consumed_when_the_consumer_has_committed_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({"ack": "committed=lake"});
    let urls = [
        "relink://127.0.0.1:0/plain",
        "relink://127.0.0.1:0/t?connector_transactions=true",
    ];
    let receiver = start(&urls, dir.path(), &options).await;
    let plain = linked(&receiver.urls()[0]).await;
    let decided = linked(&format!(
        "{}?connector_transactions=true",
        receiver.urls()[1]
    ))
    .await;
    let a = ChannelId::from(A);
    let one = plain.send(&a, vec![b'1'; 400_000], None).await.unwrap();
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    let two = decided.send(&a, vec![b'2'; 400_000], None).await.unwrap();
    decided.commit(&a, None).unwrap();
    // Its window moves; its outcome waits.
    within(two.consumed()).await.unwrap();
    assert!(!one.is_consumed() && two.outcome().unwrap().is_none());
    until(&receiver, "let go", |stats| {
        stats.spool.uncommitted == 2 && stats.memory_bytes == 0
    })
    .await;
    commit(dir.path(), 2);
    within(one.consumed()).await.unwrap();
    assert_eq!(within(two.committed()).await.unwrap(), Outcome::Committed);
    receiver.stop(None).await;
}

/// The consumer commits everything below a position.
fn commit(dir: &Path, position: u64) {
    Spool::open(dir)
        .unwrap()
        .commit_mark("lake", position)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_outlives_its_receiver_and_nothing_lands_twice() {
    let Served {
        dir: _dir,
        spool,
        url,
        mut receiver,
        link,
    } = served("", &json!({})).await;
    let a = ChannelId::from(A);
    let mut last = None;
    for round in 0..4 {
        for number in 0..500 {
            let text = format!("{round}-{number}");
            last = Some(link.send(&a, text.into_bytes(), None).await.unwrap());
            if number == 250 && round < 3 {
                // Messages on their way are cut off.
                until(&receiver, "something came", |stats| {
                    stats.received.events > 0
                })
                .await;
                receiver.abort();
                drop(receiver);
                receiver = again(&url, &spool).await;
            }
        }
    }
    within(last.unwrap().consumed()).await.unwrap();
    let wanted: Vec<_> = (0..4)
        .flat_map(|round| (0..500).map(move |number| format!("{round}-{number}")))
        .collect();
    let found = rows(&spool);
    let texts: Vec<_> = found.iter().map(|row| row.3[0].clone()).collect();
    assert_eq!(texts, wanted);
    assert!(found.iter().zip(0..).all(|(row, number)| row.2 == number));
    assert!(found.iter().all(|row| row.0 == found[0].0), "one link");
    receiver.stop(None).await;
}

/// The same receiver once more.
async fn again(url: &str, spool: &Path) -> Arc<Receiver> {
    let options = ReceiverOptions {
        urls: vec![url.to_owned()],
        spool: Some(spool.to_owned()),
        ..ReceiverOptions::default()
    };
    receiving(&options).await
}

#[tokio::test]
async fn without_durable_links_a_sender_is_told_what_is_unacknowledged() {
    let options = json!({"durable_links": false, "ack": "committed=lake"});
    let Served {
        dir: _dir,
        spool,
        url,
        receiver,
        link,
    } = served("", &options).await;
    let a = ChannelId::from(A);
    let kept = link.send(&a, b"one".as_slice(), None).await.unwrap();
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    receiver.stop(Some(Duration::ZERO)).await;
    drop(receiver);
    let receiver = again(&url, &spool).await;
    let lost = within(kept.consumed()).await.unwrap_err();
    let ackline::relink::Error::Lost(lost) = lost else {
        panic!("{lost}");
    };
    assert_eq!(lost.unacknowledged.len(), 1);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_channel_that_is_closed_and_used_again_survives_a_restart() {
    let Served {
        dir: _dir,
        spool,
        url,
        receiver,
        link,
    } = served("", &json!({})).await;
    let a = ChannelId::from(A);
    for text in ["one", "two", "three"] {
        let sent = link.send(&a, text.as_bytes(), None).await.unwrap();
        within(sent.consumed()).await.unwrap();
    }
    link.close_channel(&a).unwrap();
    let closed = async {
        while !matches!(
            link.event().await.unwrap(),
            ackline::relink::Event::Closed { .. }
        ) {}
    };
    within(closed).await;
    receiver.abort();
    drop(receiver);
    // Its messages stand in the spool, and it is no channel of the link any more.
    let receiver = again(&url, &spool).await;
    let again = link.send(&a, b"again".as_slice(), None).await.unwrap();
    within(again.consumed()).await.unwrap();
    let sequences: Vec<_> = rows(&spool).iter().map(|row| row.2).collect();
    assert_eq!(sequences, [0, 1, 2, 0]);
    assert_eq!(receiver.stats().refusals.refused, 0);
    receiver.stop(None).await;
}
