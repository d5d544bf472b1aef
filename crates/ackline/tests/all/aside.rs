//! Windows that cannot be read: kept in the quarantine and acknowledged, or refused.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use crate::common::{Sender, batches, broken, landed, line, start, until, window};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_cannot_be_read_is_kept_and_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({"on_invalid": "quarantine"})).await;
    assert!(!dir.join("quarantine").exists());
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a", "b"])).await;
    sender.send(&broken(7)).await;
    sender.send(&window(b'2', &["c"])).await;
    for number in [2, 7, 1] {
        assert_eq!(sender.ack_of_window().await, Some((b'2', number)));
    }
    let told = line(&receiver, "quarantined").await;
    assert_eq!(
        (&told["code"], &told["events"], &told["offset"]),
        (&json!("lumberjack.zlib"), &json!(7), &json!(34))
    );
    let stats = until(&receiver, "all is told", |stats| {
        stats.received.unacked == 0
    })
    .await;
    assert_eq!((stats.acked.landed, stats.acked.quarantined), (3, 7));
    assert_eq!(
        stats.acked.acked_events,
        stats.acked.landed + stats.acked.quarantined
    );
    assert_eq!(
        (
            stats.received.unacked,
            stats.refusals.refused,
            stats.received.events
        ),
        (0, 0, 10)
    );
    assert_eq!(landed(&dir).len(), 3);
    // The row holds the frame and its error.
    let rows = batches(&dir.join("quarantine"));
    let row = rows.first().unwrap();
    assert_eq!((rows.len(), row.num_rows()), (1, 1));
    let payload = row.column_by_name("payload").unwrap().as_binary::<i32>();
    assert_eq!(payload.value(0), b"2C\0\0\0\x05noise");
    let attributes = row.column_by_name("attributes").unwrap().as_map().value(0);
    let text = |column: usize| {
        let values = attributes.column(column).as_string::<i32>().clone();
        (0..values.len())
            .map(move |at| values.value(at).to_owned())
            .collect::<Vec<_>>()
    };
    let found: Vec<_> = text(0).into_iter().zip(text(1)).collect();
    for (name, value) in [
        ("code", "lumberjack.zlib"),
        ("message", "the zlib stream of an envelope is damaged"),
        ("lumberjack.events", "7"),
        ("lumberjack.version", "2"),
        ("lumberjack.window", "2"),
    ] {
        assert!(
            found.contains(&(name.to_owned(), value.to_owned())),
            "{name}: {found:?}"
        );
    }
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_other_connections_of_the_host_showed_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(
        &dir.path().join("spool"),
        &json!({"on_invalid": "quarantine"}),
    )
    .await;
    let mut from_one = Sender::new(&receiver).await;
    from_one.send(&window(b'2', &["a"])).await;
    assert_eq!(from_one.ack_of_window().await, Some((b'2', 1)));
    // Another sender behind the same address: nobody knows how it numbers.
    let mut stranger = Sender::new(&receiver).await;
    stranger.send(&broken(3)).await;
    assert_eq!(stranger.ack_of_window().await, None);
    // One that counts on does not speak for the others.
    let mut counting = Sender::new(&receiver).await;
    counting.send(b"2W\0\0\0\x012J\0\0\0\x09\0\0\0\x02{}").await;
    assert_eq!(counting.ack_of_window().await, Some((b'2', 9)));
    counting.send(&broken(3)).await;
    assert_eq!(counting.ack_of_window().await, None);
    from_one.send(&broken(3)).await;
    assert_eq!(from_one.ack_of_window().await, Some((b'2', 3)));
    let stats = until(&receiver, "all is told", |stats| {
        stats.received.unacked == 0
    })
    .await;
    assert_eq!((stats.refusals.refused, stats.acked.quarantined), (2, 3));
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a"])).await;
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    sender.send(&broken(7)).await;
    assert_eq!(sender.ack_of_window().await, None);
    assert_eq!(line(&receiver, "refused").await["code"], "lumberjack.zlib");
    assert!(!dir.join("quarantine").exists());
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_quarantine_refuses_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let options = json!({"on_invalid": "quarantine", "quarantine_budget": 20_000});
    let receiver = start(&dir, &options).await;
    let mut kept = 0;
    let refused = loop {
        let mut sender = Sender::new(&receiver).await;
        sender.send(&window(b'2', &["a"])).await;
        assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
        sender.send(&broken(3)).await;
        match sender.ack_of_window().await {
            Some(ack) => assert_eq!(ack, (b'2', 3)),
            None => break line(&receiver, "refused").await,
        }
        kept += 1;
        assert!(kept < 100, "it is never full");
    };
    assert!(kept > 0);
    assert_eq!(refused["code"], "quarantine.full");
    assert_eq!(refused["option"], "--quarantine-budget");
    assert_eq!(refused["limit"], 20_000);
    assert!(refused["value"].as_u64().unwrap() > 20_000);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("zlib"), "{message}");
    let stats = until(&receiver, "counted", |stats| stats.received.unacked == 0).await;
    assert_eq!(stats.acked.quarantined, 3 * kept);
    assert_eq!(
        stats.acked.acked_events,
        stats.acked.landed + stats.acked.quarantined
    );
    receiver.stop(None).await;
    // It is as full after a start.
    let receiver = start(&dir, &options).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a"])).await;
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    sender.send(&broken(3)).await;
    assert_eq!(sender.ack_of_window().await, None);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_that_cannot_be_opened_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({"on_invalid": "quarantine"})).await;
    std::fs::write(dir.join("quarantine"), "in the way").unwrap();
    let mut sender = Sender::new(&receiver).await;
    sender.send(&window(b'2', &["a"])).await;
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    sender.send(&broken(3)).await;
    assert_eq!(sender.ack_of_window().await, None);
    assert_eq!(
        line(&receiver, "refused").await["code"],
        "quarantine.unusable"
    );
    receiver.stop(None).await;
}
