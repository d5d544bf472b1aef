//! The memory of connections that do nothing. A binary of its own: it measures the memory of its process.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use common::{Sender, start, until, window};
use serde_json::json;

/// Both ends are descriptors of this process, of which 20,000 are allowed where this is built.
const IDLE: u64 = 4_000;
const HALF_OPEN: u64 = 400;
const MAX_BYTES_EACH: u64 = 16 * 1024;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_and_half_open_connections_take_little() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let options = json!({"accept_rate": 0, "memory": 1 << 20, "first_byte_timeout_ms": 0});
    let receiver = start(&dir, &options).await;
    let one = window(b'2', &["{\"n\":1}"]);
    let mut senders = Vec::with_capacity(5_000);
    let mut first = Sender::new(&receiver).await;
    first.send(&one).await;
    assert_eq!(first.ack_of_window().await, Some((b'2', 1)));
    let before = resident();
    for batch in 0..IDLE / 100 {
        let from = senders.len();
        for _ in 0..100 {
            let mut sender = Sender::new(&receiver).await;
            sender.send(&one).await;
            senders.push(sender);
        }
        for sender in &mut senders[from..] {
            assert_eq!(sender.ack_of_window().await, Some((b'2', 1)), "{batch}");
        }
    }
    for _ in 0..HALF_OPEN {
        senders.push(Sender::new(&receiver).await);
    }
    let all = IDLE + HALF_OPEN + 1;
    let stats = until(&receiver, "all are in", |stats| stats.connections == all).await;
    let each = (resident() - before) / (IDLE + HALF_OPEN);
    assert!(each <= MAX_BYTES_EACH, "{each} bytes each");
    assert_eq!(stats.memory_bytes, 0, "idle connections charge nothing");
    // One more connection still gets its memory.
    let long = "x".repeat(200_000);
    let mut late = Sender::new(&receiver).await;
    late.send(&window(b'2', &[&long])).await;
    assert_eq!(late.ack_of_window().await, Some((b'2', 1)));
    receiver.abort();
}
