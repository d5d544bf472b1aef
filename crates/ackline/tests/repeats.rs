//! What is marked as sent before: the right host's, the right link's, once.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use std::time::Instant;

use common::{DEADLINE, Sender, landed, repeats, start, until, window};
use serde_json::json;

/// Sends one window of these events and waits for its acknowledgement.
async fn deliver(sender: &mut Sender, events: &[&str]) {
    sender.send(&window(b'2', events)).await;
    assert!(sender.ack_of_window().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_only_the_host_that_sent_it_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let first = start(&dir, &json!({})).await;
    deliver(&mut Sender::from(&first, "127.0.0.1").await, &["a", "b"]).await;
    first.stop(None).await;
    drop(first);
    let second = start(&dir, &json!({})).await;
    deliver(&mut Sender::from(&second, "127.0.0.2").await, &["a", "b"]).await;
    assert_eq!(repeats(&dir), Vec::<String>::new());
    deliver(&mut Sender::from(&second, "127.0.0.1").await, &["b"]).await;
    assert_eq!(repeats(&dir), ["b"]);
    second.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_once_answers_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let first = start(&dir, &json!({})).await;
    deliver(&mut Sender::new(&first).await, &["twice", "once", "twice"]).await;
    first.stop(None).await;
    drop(first);
    let second = start(&dir, &json!({})).await;
    let mut sender = Sender::new(&second).await;
    for _ in 0..2 {
        deliver(&mut sender, &["twice", "twice", "once", "once"]).await;
    }
    deliver(&mut Sender::new(&second).await, &["once", "twice"]).await;
    let marks: Vec<_> = landed(&dir).into_iter().skip(3).map(|one| one.1).collect();
    let mut expected = [false; 10];
    expected[..3].fill(true);
    assert_eq!(marks, expected);
    second.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_link_of_the_host_sent_meanwhile_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    let mut broken = Sender::new(&receiver).await;
    deliver(&mut broken, &["broken"]).await;
    let mut other = Sender::new(&receiver).await;
    deliver(&mut other, &["other"]).await;
    broken.reset();
    until(&receiver, "one link is left", |stats| {
        stats.connections == 1
    })
    .await;
    // The suspicion is there a moment after the connection's end.
    let begin = Instant::now();
    while repeats(&dir).is_empty() {
        assert!(begin.elapsed() < DEADLINE, "nothing is judged a repeat");
        let mut again = Sender::new(&receiver).await;
        deliver(&mut again, &["other", "broken"]).await;
    }
    assert_eq!(repeats(&dir), ["broken"]);
    receiver.stop(None).await;
}
