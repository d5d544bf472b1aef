//! The receiver of bpmux: the rows that land, their form, and the answers that a sender gets.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Sender, batches, line, until, within};
use ackline::bpmux::{ConnectOptions, Connection, Error, connect};
use ackline::spool::Spool;
use ackline::{Receiver, ReceiverOptions};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A receiver at these URLs.
async fn start_at(urls: &[&str], dir: &Path, options: &Value) -> Arc<Receiver> {
    let mut all = ReceiverOptions {
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    all.set_all(options.as_object().unwrap()).unwrap();
    Arc::new(Receiver::start(all).await.unwrap())
}

async fn start(dir: &Path, options: &Value) -> Arc<Receiver> {
    start_at(&["bpmux://127.0.0.1:0"], dir, options).await
}

async fn linked(receiver: &Receiver) -> Connection {
    let options = ConnectOptions::default();
    connect(&receiver.urls()[0], options).await.unwrap()
}

/// A row: stream, kind, opening, sequence, payload.
type Row = (Option<String>, String, Option<String>, i64, String);

fn row(stream: Option<&str>, kind: &str, opening: Option<&str>, at: i64, payload: &str) -> Row {
    let text = |it: &str| it.to_owned();
    (
        stream.map(text),
        text(kind),
        opening.map(text),
        at,
        text(payload),
    )
}

/// The rows of a spool, in order of these.
fn rows(dir: &Path) -> Vec<Row> {
    let mut rows: Vec<Row> = batches(dir).iter().flat_map(rows_of).collect();
    rows.sort();
    rows
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let text = |name: &str, at| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.is_valid(at).then(|| column.value(at).to_owned())
    };
    let sequences = batch.column_by_name("sequence").unwrap();
    let sequences = sequences.as_primitive::<Int64Type>();
    let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
    let repeats = batch.column_by_name("repeat").unwrap().as_boolean();
    let attributes = batch.column_by_name("attributes").unwrap().as_map();
    let attribute = |at, name: &str| {
        let entries = attributes.value(at);
        let names = entries.column(0).as_string::<i32>().clone();
        let values = entries.column(1).as_string::<i32>().clone();
        let found = (0..names.len()).find(|one| names.value(*one) == name);
        found.map(|one| values.value(one).to_owned())
    };
    let row = |at| {
        assert!(repeats.is_valid(at) && !repeats.value(at));
        assert!(batch.column_by_name("parts").unwrap().is_null(at));
        assert_eq!(text("protocol", at).unwrap(), "bpmux");
        assert_eq!(text("link", at).unwrap().len(), 36, "a UUID");
        (
            text("stream", at),
            attribute(at, "bpmux.kind").unwrap(),
            attribute(at, "bpmux.opening")
                .or_else(|| attribute(at, "bpmux.opening_hex").map(|hex| format!("hex {hex}"))),
            sequences.value(at),
            String::from_utf8_lossy(payloads.value(at)).into_owned(),
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

/// The consumer commits everything below a position.
fn commit(dir: &Path, position: u64) {
    let spool = Spool::open(dir).unwrap();
    spool.commit_mark("lake", position).unwrap();
}

#[tokio::test]
async fn everything_that_is_sent_lands_once_as_a_row_of_what_it_came_on() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let receiver = start(&spool, &json!({})).await;
    let link = linked(&receiver).await;
    let sink = link.open_sink("orders").await.unwrap();
    let (duplex, answers) = link.open_duplex(vec![0xff, 0]).await.unwrap();
    let large = "x".repeat(300_000);
    for text in ["one", "", &large] {
        sink.send(text.to_owned()).await.unwrap();
    }
    duplex.send("both").await.unwrap();
    link.sink().send("top").await.unwrap();
    for text in ["asked", "again"] {
        let answer = within(link.call(text, None)).await.unwrap();
        assert!(answer.to_bytes().is_empty());
    }
    within(sink.close("3")).await.unwrap();
    within(duplex.close("")).await.unwrap();
    assert_eq!(within(answers.receive()).await.unwrap(), None);
    assert_eq!(answers.closed().unwrap(), "this receiver only receives");
    let stats = until(&receiver, "all kept", |stats| stats.acked.acked_events == 7).await;
    let came = &stats.received;
    assert_eq!((stats.acked.landed, came.events, came.unacked), (7, 7, 0));
    assert_eq!(
        rows(&spool),
        [
            row(None, "request", None, 0, "asked"),
            row(None, "request", None, 1, "again"),
            row(None, "top", None, 0, "top"),
            row(Some("0"), "sink", Some("orders"), 0, "one"),
            row(Some("0"), "sink", Some("orders"), 1, ""),
            row(Some("0"), "sink", Some("orders"), 2, &large),
            row(Some("1"), "duplex", Some("hex ff00"), 0, "both"),
        ]
    );
    let links = batches(&spool);
    let links = links.iter().flat_map(|batch| {
        let links = batch.column_by_name("link").unwrap().as_string::<i32>();
        links
            .iter()
            .flatten()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let links: std::collections::BTreeSet<_> = links.collect();
    assert_eq!(links.len(), 1, "one connection");
    within(link.shutdown(None)).await.unwrap();
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test]
async fn an_id_that_is_used_again_is_another_stream() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let link = linked(&receiver).await;
    for text in ["a", "b", "c"] {
        let sink = link.open_sink("").await.unwrap();
        sink.send(text).await.unwrap();
        within(sink.close("1")).await.unwrap();
    }
    let found = rows(dir.path());
    let wanted = [("0", "a"), ("0.2", "b"), ("0.3", "c")];
    let wanted = wanted.map(|(stream, text)| row(Some(stream), "sink", None, 0, text));
    assert_eq!(found, wanted);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_close_is_acknowledged_and_a_request_answered_when_the_consumer_has_committed() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let link = linked(&receiver).await;
    let sink = link.open_sink("").await.unwrap();
    // Larger than every window of credit: that comes back when bytes are durable.
    for _ in 0..40 {
        sink.send(vec![b'x'; 200_000]).await.unwrap();
    }
    let closing = tokio::spawn(sink.close("40"));
    until(&receiver, "durable", |stats| stats.spool.durable == 40).await;
    let asked = tokio::spawn({
        let link = link.clone();
        async move { link.call("asked", None).await }
    });
    let stats = until(&receiver, "let go", |stats| {
        stats.spool.uncommitted == 41 && stats.memory_bytes == 0
    })
    .await;
    assert_eq!((stats.acked.landed, stats.acked.acked_events), (0, 0));
    // The peer answers meanwhile, and neither is acknowledged.
    within(link.ping(common::DEADLINE)).await.unwrap();
    assert!(!closing.is_finished() && !asked.is_finished());
    commit(dir.path(), 39);
    until(&receiver, "some", |stats| stats.acked.acked_events > 0).await;
    within(link.ping(common::DEADLINE)).await.unwrap();
    assert!(!closing.is_finished() && !asked.is_finished());
    commit(dir.path(), 40);
    within(closing).await.unwrap().unwrap();
    within(link.ping(common::DEADLINE)).await.unwrap();
    assert!(!asked.is_finished());
    commit(dir.path(), 41);
    within(asked).await.unwrap().unwrap();
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_request_that_is_given_up_lands_and_another_under_its_id_waits_for_its_own_turn() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let link = linked(&receiver).await;
    let first = link.request("first").await.unwrap();
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    first.cancel("").unwrap();
    // Behind its acknowledgement: the id is free.
    within(link.ping(common::DEADLINE)).await.unwrap();
    let second = link.request("second").await.unwrap();
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 2).await;
    let answer = tokio::spawn(async move { second.response().await });
    commit(dir.path(), 1);
    until(&receiver, "the first", |stats| {
        stats.acked.acked_events == 1
    })
    .await;
    within(link.ping(common::DEADLINE)).await.unwrap();
    assert!(!answer.is_finished(), "the second is not committed");
    commit(dir.path(), 2);
    within(answer).await.unwrap().unwrap();
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_disk_that_fails_acknowledges_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    let link = linked(&receiver).await;
    let sink = link.open_sink("").await.unwrap();
    // No segment can be made any more.
    std::fs::rename(dir.join("segments"), dir.join("gone")).unwrap();
    sink.send("a").await.unwrap();
    let closed = within(sink.close("1")).await;
    assert!(matches!(closed, Err(Error::Ended(_))), "{closed:?}");
    assert_eq!(line(&receiver, "failed").await["code"], "spool.failed");
    let stats = until(&receiver, "all are gone", |stats| stats.connections == 0).await;
    assert_eq!((stats.state, stats.acked.acked_events), ("failed", 0));
    receiver.abort();
}

#[tokio::test]
async fn a_count_that_differs_refuses_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    for count in ["3", "1", "99999999999999999999999"] {
        let link = linked(&receiver).await;
        let sink = link.open_sink("").await.unwrap();
        for _ in 0..2 {
            sink.send("a").await.unwrap();
        }
        let closed = within(sink.close(count)).await;
        assert!(matches!(closed, Err(Error::Ended(_))), "{closed:?}");
        let refused = line(&receiver, "refused").await;
        assert_eq!(refused["code"], "bpmux.count_differs");
        assert_eq!(refused["protocol"], "bpmux");
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("the count {count},")) && message.contains("2 messages"),
            "{message}"
        );
    }
    let stats = until(&receiver, "landed", |stats| stats.spool.durable == 6).await;
    assert_eq!(stats.refusals.refused, 3);
    receiver.stop(None).await;
}

#[tokio::test]
async fn any_other_payload_of_a_close_is_no_count() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let link = linked(&receiver).await;
    for reason in ["", "gave up", "1x", "-1", "\u{661}"] {
        let sink = link.open_sink("").await.unwrap();
        sink.send("a").await.unwrap();
        within(sink.close(reason)).await.unwrap();
    }
    assert_eq!(receiver.stats().refusals.refused, 0);
    assert_eq!(rows(dir.path()).len(), 5);
    receiver.stop(None).await;
}

#[tokio::test]
async fn an_opening_that_is_too_large_cancels_that_sink_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"max_opening_bytes": 8})).await;
    let link = linked(&receiver).await;
    let fits = link.open_sink("12345678").await.unwrap();
    let sink = link.open_sink("123456789").await.unwrap();
    let why = within(sink.cancelled()).await.unwrap();
    let why = String::from_utf8(why.to_vec()).unwrap();
    assert!(
        why.contains("--max-opening-bytes") && why.contains("9 bytes"),
        "{why}"
    );
    let (duplex, _) = link.open_duplex("123456789").await.unwrap();
    within(duplex.cancelled()).await.unwrap();
    let refused = line(&receiver, "refused").await;
    assert_eq!(refused["code"], "bpmux.opening_too_large");
    assert_eq!(refused["option"], "--max-opening-bytes");
    assert_eq!(
        (&refused["value"], &refused["limit"]),
        (&json!(9), &json!(8))
    );
    fits.send("a").await.unwrap();
    within(fits.close("1")).await.unwrap();
    let found = rows(dir.path());
    assert_eq!(found, [row(Some("0"), "sink", Some("12345678"), 0, "a")]);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_close_that_crosses_the_refusal_of_its_sink_is_never_taken_for_kept() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"max_opening_bytes": 8})).await;
    let link = linked(&receiver).await;
    for _ in 0..20 {
        let sink = link.open_sink("123456789").await.unwrap();
        let sending = async {
            sink.send("").await?;
            sink.close("1").await
        };
        let refused = within(sending).await.unwrap_err();
        assert!(matches!(refused, Error::Cancelled(_)), "{refused}");
        let mut write = link.open_sink("123456789").await.unwrap().into_write();
        let refused = within(write.shutdown()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe, "{refused}");
    }
    within(link.shutdown(None)).await.unwrap();
    assert!(rows(dir.path()).is_empty());
    receiver.stop(None).await;
}

#[tokio::test]
async fn what_the_peer_would_read_is_closed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let link = linked(&receiver).await;
    let stream = link.open_stream("give me").await.unwrap();
    assert_eq!(within(stream.receive()).await.unwrap(), None);
    assert_eq!(stream.closed().unwrap(), "this receiver only receives");
    within(link.shutdown(None)).await.unwrap();
    assert_eq!(receiver.stats().received.events, 0);
    receiver.stop(None).await;
}

/// The peer ends the top-level while its messages wait: the connection goes on until they are kept.
#[tokio::test]
async fn the_end_of_a_connection_waits_for_what_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let link = linked(&receiver).await;
    let sink = link.open_sink("").await.unwrap();
    sink.send("a").await.unwrap();
    let closing = tokio::spawn(sink.close("1"));
    let ending = tokio::spawn({
        let link = link.clone();
        async move { link.shutdown(None).await }
    });
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    assert!(!closing.is_finished() && !ending.is_finished());
    commit(dir.path(), 1);
    within(closing).await.unwrap().unwrap();
    within(ending).await.unwrap().unwrap();
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_stop_acknowledges_what_came() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let link = linked(&receiver).await;
    let sink = link.open_sink("").await.unwrap();
    sink.send("a").await.unwrap();
    let closing = tokio::spawn(sink.close("1"));
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    let stopping = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move { receiver.stop(None).await }
    });
    until(&receiver, "draining", |stats| stats.state == "draining").await;
    commit(dir.path(), 1);
    within(closing).await.unwrap().unwrap();
    assert_eq!(within(stopping).await.unwrap(), 0);
}

#[tokio::test]
async fn a_receiver_that_discards_counts_and_acknowledges() {
    let options = ReceiverOptions {
        urls: vec!["bpmux://127.0.0.1:0".to_owned()],
        ..ReceiverOptions::default()
    };
    let receiver = Arc::new(Receiver::start(options).await.unwrap());
    let link = linked(&receiver).await;
    let sink = link.open_sink("").await.unwrap();
    for _ in 0..5 {
        sink.send("abc").await.unwrap();
    }
    within(sink.close("5")).await.unwrap();
    within(link.call("asked", None)).await.unwrap();
    let _refused = link.open_sink(vec![b'x'; 2_000]).await.unwrap();
    let refused = line(&receiver, "refused").await;
    assert_eq!(refused["code"], "bpmux.opening_too_large");
    let stats = until(&receiver, "all", |stats| {
        stats.received.unacked_windows == 0
    })
    .await;
    assert_eq!(
        (
            stats.received.events,
            stats.acked.acked_events,
            stats.received.bytes
        ),
        (6, 6, 20)
    );
    receiver.stop(None).await;
}

/// One acceptor serves all protocols: the URL decides which bytes a peer must send first.
#[tokio::test]
async fn a_peer_may_wait_for_credit_where_others_must_speak_first() {
    let dir = tempfile::tempdir().unwrap();
    let urls = ["lumberjack://127.0.0.1:0", "bpmux://127.0.0.1:0"];
    let receiver = start_at(&urls, dir.path(), &json!({"first_byte_timeout_ms": 100})).await;
    let [_, url] = receiver.urls() else { panic!() };
    let place = url.trim_start_matches("bpmux://");
    let mut waiting = TcpStream::connect(place).await.unwrap();
    // The credit of the top-level: the receiver speaks first.
    let mut credit = [0; 3];
    within(waiting.read_exact(&mut credit)).await.unwrap();
    let mut silent = Sender::new(&receiver).await;
    assert_eq!(silent.ack().await, None, "Lumberjack's has spoken too late");
    let refused = line(&receiver, "refused").await;
    assert_eq!(
        (&refused["code"], &refused["protocol"]),
        (&json!("link.timeout"), &json!("lumberjack"))
    );
    // A message of the top-level, of one byte.
    waiting.write_all(&[0x6c, 1, b'x']).await.unwrap();
    until(&receiver, "landed", |stats| stats.acked.landed == 1).await;
    receiver.stop(None).await;
}

/// The beginning of a hello of TLS.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hello";

#[tokio::test]
async fn another_protocol_is_told_by_its_first_bytes_once_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let address = receiver.urls()[0].replace("bpmux://", "");
    for (bytes, code, option) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "link.http", Value::Null),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", "link.http", Value::Null),
        (HELLO, "tls.unexpected", Value::Null),
        (
            b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n",
            "proxy.untrusted",
            json!("--proxy-from"),
        ),
        // A close of a sink that is not there, and no word of HTTP.
        (b"\x40\x01\x00GET ", "bpmux.unknown_id", Value::Null),
        // A valid chunk, credit of the top-level, and HTTP behind it.
        (
            b"\x7c\x05GET / HTTP/1.1\r\n\r\n",
            "bpmux.limit_exceeded",
            json!("--max-payload-bytes"),
        ),
    ] {
        let mut stranger = TcpStream::connect(&address).await.unwrap();
        stranger.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let _ = within(stranger.read_to_end(&mut rest)).await;
        let refused = line(&receiver, "refused").await;
        assert_eq!(refused["code"], code, "{refused}");
        assert_eq!(refused["option"], option, "{refused}");
        assert_eq!(refused["protocol"], "bpmux");
    }
    let stats = until(&receiver, "counted", |stats| stats.refusals.refused == 6).await;
    assert_eq!(stats.refusals.turned_away["link.http"], 2);
    assert_eq!(stats.refusals.turned_away["tls.unexpected"], 1);
    assert_eq!(
        stats.refusals.turned_away.len(),
        3,
        "{:?}",
        stats.refusals.turned_away
    );
    receiver.stop(None).await;
}

#[tokio::test]
async fn who_leaves_without_a_byte_is_a_health_check_and_no_other_is() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({})).await;
    let address = receiver.urls()[0].replace("bpmux://", "");
    for _ in 0..5 {
        drop(TcpStream::connect(&address).await.unwrap());
    }
    let mut silent = TcpStream::connect(&address).await.unwrap();
    silent.read_u8().await.unwrap();
    silent.shutdown().await.unwrap();
    until(&receiver, "six", |stats| stats.refusals.health_checks == 6).await;
    // A peer that sends something is no health check, nor is a peer that is ended here.
    let mut speaks = TcpStream::connect(&address).await.unwrap();
    speaks.write_all(b"\x7c\x05").await.unwrap();
    let mut waits = TcpStream::connect(&address).await.unwrap();
    waits.read_u8().await.unwrap();
    drop(speaks);
    until(&receiver, "one", |stats| stats.connections == 1).await;
    receiver.stop(None).await;
    let stats = receiver.stats();
    assert_eq!(
        (stats.refusals.health_checks, stats.refusals.refused),
        (6, 0)
    );
}

#[tokio::test]
async fn at_the_spools_budget_no_credit_is_given_and_after_a_commit_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({
        "budget": 1 << 20, "segment_bytes": 128 << 10, "retain_committed_ms": 0,
        "credit_ceiling": 32 << 10,
    });
    let receiver = start(dir.path(), &options).await;
    commit(dir.path(), 0);
    let link = linked(&receiver).await;
    let sink = Arc::new(link.open_sink("").await.unwrap());
    let sending = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move {
            for number in 0..400_u32 {
                sink.send(noise(number)).await?;
            }
            sink.flush().await
        }
    });
    until(&receiver, "stalled", |stats| {
        stats.state == "stalled_budget"
    })
    .await;
    // The credit that was given may still be used; then nothing moves.
    let is_still = async {
        loop {
            let before = receiver.stats().received.bytes;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let stats = receiver.stats();
            if stats.received.bytes == before && stats.state == "stalled_budget" {
                return before;
            }
        }
    };
    let came = within(is_still).await;
    assert!(came < 2 << 20, "{came} bytes came of 4 MiB");
    assert!(!sending.is_finished());
    assert_eq!(receiver.stats().connections, 1);
    within(link.ping(common::DEADLINE)).await.unwrap();
    let committing = async {
        while !sending.is_finished() {
            commit(dir.path(), receiver.stats().spool.durable);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(committing).await;
    sending.await.unwrap().unwrap();
    let sink = Arc::into_inner(sink).unwrap();
    let keep = async {
        loop {
            commit(dir.path(), receiver.stats().spool.durable);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        closed = within(sink.close("400")) => closed.unwrap(),
        () = keep => {}
    }
    assert_eq!(receiver.stats().acked.landed, 400);
    receiver.stop(None).await;
}

/// 10,000 bytes that do not compress.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(10_000).collect()
}
