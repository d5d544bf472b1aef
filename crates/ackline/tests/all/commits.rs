//! Acknowledgements that wait for a consumer's commit, and a spool that can be written no more.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::time::Duration;

use crate::common::{Sender, line, repeats, start, until, window};
use ackline::spool::Spool;
use ackline::{Receiver, ReceiverOptions};
use serde_json::{Value, json};

fn committed() -> Value {
    json!({"ack": "committed=lake", "keepalive_ms": 50})
}

/// Moves the mark of `lake`, as its query would.
fn commit(dir: &Path, position: u64) {
    Spool::open(dir)
        .unwrap()
        .commit_mark("lake", position)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_is_acknowledged_by_the_commit_and_kept_alive_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &committed()).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a", "b"])).await;
    sender.send(&window(b'2', &["c"])).await;
    let stats = until(&receiver, "durable", |stats| {
        stats.spool.uncommitted_windows == 2
    })
    .await;
    assert_eq!(
        (
            stats.spool.durable,
            stats.spool.uncommitted,
            stats.received.unacked
        ),
        (3, 3, 3)
    );
    assert_eq!((stats.acked.landed, stats.acked.acked_events), (0, 0));
    for _ in 0..3 {
        assert_eq!(sender.ack().await, Some((b'2', 0)), "a keepalive");
    }
    commit(&dir, 2);
    assert_eq!(sender.ack_of_window().await, Some((b'2', 2)));
    let stats = until(&receiver, "told", |stats| stats.acked.acked_events == 2).await;
    assert_eq!(
        (stats.spool.uncommitted_windows, stats.received.unacked),
        (1, 1)
    );
    assert_eq!(
        sender.ack().await,
        Some((b'2', 0)),
        "the second window waits on"
    );
    commit(&dir, 3);
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_commit_does_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let mut options = committed();
    options["memory"] = json!(1 << 20);
    let receiver = start(&dir, &options).await;
    let mut sender = Sender::new(&receiver).await;
    let event = "x".repeat(100_000);
    // Five times the budget, none of it acknowledged.
    for _ in 0..50 {
        sender.send(&window(b'2', &[&event])).await;
    }
    // Let go a moment after each has landed.
    let is_durable = |stats: &ackline::ReceiverStats| {
        stats.spool.uncommitted_windows == 50 && stats.memory_bytes < 512 << 10
    };
    until(&receiver, "durable and let go", is_durable).await;
    commit(&dir, 50);
    for _ in 0..50 {
        assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    }
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_1_is_refused_by_its_option_unless_it_is_told_early() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(&dir.path().join("one"), &committed()).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'1', &["a"])).await;
    assert_eq!(sender.ack().await, None);
    let refused = line(&receiver, "refused").await;
    assert_eq!(refused["code"], "lumberjack.v1_needs_durable_ack");
    assert_eq!(refused["option"], "--v1-ack");
    receiver.stop(None).await;
    let mut options = committed();
    options["v1_ack"] = json!("durable");
    let dir = dir.path().join("two");
    let receiver = start(&dir, &options).await;
    let mut second = Sender::new(&receiver).await;
    second.send(&window(b'2', &["waits"])).await;
    until(&receiver, "durable", |stats| stats.spool.durable == 1).await;
    let mut first = Sender::new(&receiver).await;
    first.send(&window(b'1', &["a"])).await;
    assert_eq!(first.ack_of_window().await, Some((b'1', 1)));
    assert_eq!(receiver.stats().spool.uncommitted_windows, 1);
    commit(&dir, 1);
    assert_eq!(second.ack_of_window().await, Some((b'2', 1)));
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_the_commit_that_comes_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &committed()).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a"])).await;
    until(&receiver, "durable", |stats| {
        stats.spool.uncommitted_windows == 1
    })
    .await;
    let stopping = tokio::spawn({
        let receiver = receiver.clone();
        async move { receiver.stop(None).await }
    });
    until(&receiver, "draining", |stats| stats.state == "draining").await;
    commit(&dir, 1);
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_durable_and_not_committed_is_counted_and_comes_again_as_a_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &committed()).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["committed"])).await;
    sender.send(&window(b'2', &["b", "c"])).await;
    until(&receiver, "durable", |stats| {
        stats.spool.uncommitted_windows == 2
    })
    .await;
    commit(&dir, 1);
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    let drain = Some(Duration::from_millis(100));
    assert_eq!(receiver.stop(drain).await, 1);
    let stopped = line(&receiver, "stopped").await;
    assert_eq!(stopped["unacked_windows"], 1);
    assert_eq!(stopped["uncommitted_windows"], 1);
    assert!(!dir.join("status.json").exists());
    drop((receiver, sender));
    let receiver = start(&dir, &committed()).await;
    let mut sender = Sender::new(&receiver).await;
    sender
        .send(&window(b'2', &["committed", "b", "c", "d"]))
        .await;
    until(&receiver, "durable", |stats| stats.spool.durable == 7).await;
    // Acknowledged or not: that an acknowledgement arrived is never known.
    assert_eq!(repeats(&dir), ["committed", "b", "c"]);
    receiver.stop(drain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_sees_is_in_the_stats_and_in_the_status_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &committed()).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a", "b"])).await;
    let has_lag = |stats: &ackline::ReceiverStats| {
        stats
            .spool
            .consumers
            .first()
            .is_some_and(|one| one.lag_events == 2)
    };
    let stats = until(&receiver, "the lag is seen", has_lag).await;
    let one = &stats.spool.consumers[0];
    assert_eq!((&*one.name, one.committed, one.state), ("lake", 0, "idle"));
    assert!(one.lag_bytes > 0);
    assert_eq!(stats.spool.oldest_uncommitted_age_s, Some(one.lag_s));
    assert_eq!(
        (stats.state, stats.spool.accepted, stats.spool.first_kept),
        ("ok", 2, 0)
    );
    assert_eq!(stats.spool.uuid, Spool::open(&dir).unwrap().uuid());
    let path = dir.join("status.json");
    let status = loop {
        // It is first written when the receiver comes to it.
        if let Ok(written) = std::fs::read(&path) {
            let status: Value = serde_json::from_slice(&written).unwrap();
            if status["consumers"][0]["lag_events"] == 2 {
                break status;
            }
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(status["spool"], stats.spool.uuid);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    receiver.stop(Some(Duration::ZERO)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_ends_every_connection_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    // The idle connection has no timer that could end it.
    let receiver = start(&dir, &json!({"first_byte_timeout_ms": 0})).await;
    let mut idle = Sender::new(&receiver).await;
    assert_eq!(receiver.failure(), None);
    // No segment can be made any more.
    std::fs::rename(dir.join("segments"), dir.join("gone")).unwrap();
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a"])).await;
    assert_eq!(sender.ack().await, None);
    let failed = line(&receiver, "failed").await;
    assert_eq!(failed["code"], "spool.failed");
    assert_eq!(
        Some(failed["message"].as_str().unwrap().to_owned()),
        receiver.failure().map(|failure| failure.message)
    );
    assert_eq!(idle.ack().await, None);
    let stats = until(&receiver, "all are gone", |stats| stats.connections == 0).await;
    assert_eq!(
        (
            stats.state,
            stats.acked.acked_events,
            stats.received.unacked
        ),
        ("failed", 0, 0)
    );
    receiver.abort();
}

#[tokio::test]
async fn what_does_not_go_together_is_named() {
    let url = || vec!["lumberjack://127.0.0.1:0".to_owned()];
    for (options, part) in [
        (json!({"ack": "committed=lake"}), "ack committed"),
        (json!({"on_invalid": "quarantine"}), "on_invalid quarantine"),
    ] {
        let mut all = ReceiverOptions {
            urls: url(),
            ..ReceiverOptions::default()
        };
        all.set_all(options.as_object().unwrap()).unwrap();
        let error = Receiver::start(all).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let all = ReceiverOptions {
        urls: vec!["lumberjack://me:secret@127.0.0.1:0".to_owned()],
        ..ReceiverOptions::default()
    };
    let error = Receiver::start(all).await.unwrap_err().to_string();
    assert!(
        error.contains("password") && !error.contains("secret"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_above_the_mark_is_known_when_its_sender_is_back() {
    let events: Vec<_> = (0..100).map(|at| at.to_string()).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    for is_started_anew in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("spool");
        let options = json!({"ack": "committed=lake", "max_unacked_windows": 200});
        let mut receiver = start(&dir, &options).await;
        let mut sender = Sender::new(&receiver).await;
        for event in &events {
            sender.send(&window(b'2', &[event])).await;
        }
        until(&receiver, "durable", |stats| {
            stats.spool.uncommitted_windows == 100
        })
        .await;
        sender.reset();
        until(&receiver, "closed", |stats| stats.connections == 0).await;
        if is_started_anew {
            receiver.stop(Some(Duration::from_millis(100))).await;
            drop(receiver);
            receiver = start(&dir, &options).await;
        }
        let mut sender = Sender::new(&receiver).await;
        sender.send(&window(b'2', &events)).await;
        until(&receiver, "durable", |stats| stats.spool.durable == 200).await;
        assert_eq!(repeats(&dir), events);
        receiver.stop(Some(Duration::from_millis(100))).await;
    }
}
