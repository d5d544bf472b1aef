//! Windows that were complete before a connection's error are kept, acknowledged and counted.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{self, Sender, landed, line, repeats, start, until, window};
use ackline::link::{Budget, CLOSE_DEADLINE};
use ackline::lumberjack::{ReaderConfig, listen};
use ackline::spool::Spool;
use ackline::{Receiver, ReceiverOptions, ReceiverStats};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A window of these events and, in the same piece, bytes that break the protocol.
fn and_bad(events: &[&str]) -> Vec<u8> {
    [&window(b'2', events)[..], b"XX"].concat()
}

fn is_balanced(stats: &ReceiverStats) -> bool {
    stats.acked.acked_events == stats.acked.landed + stats.acked.quarantined
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_one_burst_the_good_window_is_acknowledged_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    for _ in 0..20 {
        let mut sender = Sender::new(&receiver).await;
        let good = window(b'2', &["a", "b", "c"]);
        sender.send(&[good, and_bad(&["d"])].concat()).await;
        assert_eq!(sender.ack_of_window().await, Some((b'2', 3)));
        assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
        assert_eq!(sender.ack_of_window().await, None);
    }
    let stats = until(&receiver, "all are gone", |stats| stats.connections == 0).await;
    assert_eq!(
        (
            stats.acked.landed,
            stats.acked.landed_unacked,
            stats.received.unacked
        ),
        (80, 0, 0)
    );
    assert_eq!((stats.acked.acked_events, stats.refusals.refused), (80, 20));
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_only_counted_is_acknowledged_too() {
    let options = ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        ..ReceiverOptions::default()
    };
    let receiver = Receiver::start(options).await.unwrap();
    for _ in 0..20 {
        let mut sender = Sender::new(&receiver).await;
        sender.send(&and_bad(&["a", "b"])).await;
        assert_eq!(sender.ack_of_window().await, Some((b'2', 2)));
        assert_eq!(sender.ack_of_window().await, None);
    }
    let stats = until(&receiver, "all are gone", |stats| stats.connections == 0).await;
    assert_eq!((stats.acked.acked_events, stats.received.unacked), (40, 0));
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_acknowledges_after_the_error() {
    let url = "lumberjack://127.0.0.1:0";
    let budget = Budget::new(64 << 20);
    let listener = listen(url, ReaderConfig::default(), budget).await.unwrap();
    let to = listener.url().to_owned();
    let mut socket = TcpStream::connect(to.trim_start_matches("lumberjack://"))
        .await
        .unwrap();
    socket.write_all(&and_bad(&["a", "b"])).await.unwrap();
    let connection = listener.accept().await.unwrap();
    let window = connection.window().await.unwrap();
    connection.link().fault().await;
    connection.ack(window.id).unwrap();
    let mut sent = Vec::new();
    socket.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent, b"2A\0\0\0\x02");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_soon_after_the_error_is_told_and_the_refusal_is_told_before() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({"ack": "committed=lake"})).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&and_bad(&["a", "b"])).await;
    assert_eq!(
        line(&receiver, "refused").await["code"],
        "lumberjack.unknown_version"
    );
    let is_waiting = |stats: &ReceiverStats| stats.spool.uncommitted == 2;
    let stats = until(&receiver, "durable", is_waiting).await;
    assert_eq!(
        (
            stats.connections,
            stats.acked.landed,
            stats.received.unacked
        ),
        (1, 0, 2)
    );
    Spool::open(&dir).unwrap().commit_mark("lake", 2).unwrap();
    assert_eq!(sender.ack_of_window().await, Some((b'2', 2)));
    assert_eq!(sender.ack_of_window().await, None);
    let stats = until(&receiver, "it is gone", |stats| stats.connections == 0).await;
    assert_eq!(
        (
            stats.acked.landed,
            stats.acked.landed_unacked,
            stats.spool.uncommitted
        ),
        (2, 0, 0)
    );
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_landed_and_nobody_can_be_told_of_is_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let options = json!({"ack": "committed=lake", "on_invalid": "quarantine"});
    let receiver = start(&dir, &options).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a", "b", "c"])).await;
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 3).await;
    sender.reset();
    let is_missed = |stats: &ReceiverStats| {
        (
            stats.acked.landed_unacked,
            stats.received.unacked,
            stats.spool.uncommitted,
        ) == (3, 0, 0)
    };
    let stats = until(&receiver, "nobody is left to be told", is_missed).await;
    assert_eq!(stats.acked.landed, 0);
    let mut again = Sender::new(&receiver).await;
    again.send(&window(b'2', &["a", "b", "c"])).await;
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 3).await;
    Spool::open(&dir).unwrap().commit_mark("lake", 6).unwrap();
    assert_eq!(again.ack_of_window().await, Some((b'2', 3)));
    let stats = receiver.stats();
    assert_eq!(
        (stats.acked.landed, stats.acked.landed_unacked),
        (3, 3),
        "each once"
    );
    assert_eq!(
        stats.spool.durable,
        stats.acked.landed + stats.acked.landed_unacked
    );
    assert_eq!(repeats(&dir), ["a", "b", "c"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_at_once_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    let names: Vec<_> = (0..100).map(|number| format!("event {number}")).collect();
    let events: Vec<_> = names.iter().map(String::as_str).collect();
    // No acknowledgement is waited for: as one that reads the end alone.
    for _ in 0..15 {
        let mut sender = Sender::new(&receiver).await;
        sender.send(&and_bad(&events)).await;
        while sender.ack_of_window().await.is_some() {}
    }
    let rows = landed(&dir);
    assert_eq!(rows.len(), 1_500);
    assert_eq!(repeats(&dir).len(), 1_400);
    assert!(rows.iter().take(100).all(|(_, is_repeat)| !is_repeat));
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_come_before_the_first_has_landed_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    for _ in 0..10 {
        // Both in full before anybody has been answered.
        let mut first = Sender::new(&receiver).await;
        first.send(&and_bad(&["a", "b"])).await;
        line(&receiver, "refused").await;
        let mut second = Sender::new(&receiver).await;
        second.send(&window(b'2', &["a", "b"])).await;
        assert_eq!(second.ack_of_window().await, Some((b'2', 2)));
        assert_eq!(first.ack_of_window().await, Some((b'2', 2)));
    }
    let marks: Vec<_> = landed(&dir).into_iter().map(|one| one.1).collect();
    let late = marks
        .chunks(4)
        .skip(1)
        .filter(|marks| marks[2..] != [true; 2]);
    assert_eq!((marks.len(), late.count()), (40, 0), "{marks:?}");
    assert_eq!(marks[..4], [false, false, true, true]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_durable_after_the_end_is_suspected_too() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let options = json!({"budget": 256 << 10, "segment_bytes": 64 << 10});
    let receiver = start(&dir, &options).await;
    let spool = Spool::open(&dir).unwrap();
    spool.add_consumer("lake", 0).unwrap();
    let mut filling = Sender::from(&receiver, "127.0.0.2").await;
    // A task of its own: it stands still when the receiver no longer reads.
    let filler = tokio::spawn(async move {
        let large = "x".repeat(30_000);
        // More than the budget, but by less than the space that is free once this is committed.
        for _ in 0..12 {
            filling.send(&window(b'2', &[&large])).await;
        }
        filling
    });
    assert_eq!(line(&receiver, "paused").await["reason"], "budget");
    let mut sender = Sender::new(&receiver).await;
    let begin = Instant::now();
    sender.send(&and_bad(&["a", "b"])).await;
    line(&receiver, "refused").await;
    assert!(begin.elapsed() < CLOSE_DEADLINE, "it is told at once");
    assert_eq!(
        sender.ack_of_window().await,
        None,
        "there is no room for it"
    );
    assert!(begin.elapsed() >= CLOSE_DEADLINE);
    let mut again = Sender::new(&receiver).await;
    again.send(&window(b'2', &["a", "b"])).await;
    let acked = tokio::spawn(async move { again.ack_of_window().await });
    until(&receiver, "there is room for all", |stats| {
        spool.commit_mark("lake", stats.spool.durable).unwrap();
        acked.is_finished()
    })
    .await;
    assert_eq!(acked.await.unwrap(), Some((b'2', 2)));
    assert_eq!(receiver.stats().acked.landed_unacked, 2);
    assert_eq!(repeats(&dir), ["a", "b"]);
    filler.abort();
    receiver.stop(Some(Duration::ZERO)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_agree_at_every_moment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({"on_invalid": "quarantine"})).await;
    let sending = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move {
            for _ in 0..50 {
                let mut sender = Sender::new(&receiver).await;
                sender.send(&window(b'2', &["a", "b"])).await;
                sender.send(&common::broken(3)).await;
                sender.send(&and_bad(&["c"])).await;
                for number in [2, 3, 1] {
                    assert_eq!(sender.ack_of_window().await, Some((b'2', number)));
                }
            }
        }
    });
    while !sending.is_finished() {
        let stats = receiver.stats();
        assert!(is_balanced(&stats), "{stats:?}");
        tokio::task::yield_now().await;
    }
    sending.await.unwrap();
    let stats = until(&receiver, "all are gone", |stats| stats.connections == 0).await;
    assert_eq!(
        (
            stats.acked.landed,
            stats.acked.quarantined,
            stats.acked.acked_events
        ),
        (150, 150, 300)
    );
    receiver.stop(None).await;
}
