//! The acceptor of a receiver: admission, identities and rates of peers, and the ends of
//! connections.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline_link::PerAddress;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Sender, batches, landed, line, start, until, window};
use ackline::{Receiver, ReceiverOptions};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5044\r\n";

async fn receiver(dir: &tempfile::TempDir, options: &Value) -> Arc<Receiver> {
    start(&dir.path().join("spool"), options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_behind_a_proxy_stands_in_the_columns() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({"proxy_from": "127.0.0.0/8"})).await;
    let mut sender = Sender::new(&receiver).await;
    sender.send(HEADER).await;
    sender.send(&window(b'2', &["{}"])).await;
    assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    receiver.stop(None).await;
    let batches = batches(&dir.path().join("spool"));
    let peers = batches[0].column_by_name("peer").unwrap();
    assert_eq!(peers.as_string::<i32>().value(0), "192.0.2.7:40000");
    let attributes = batches[0].column_by_name("attributes").unwrap();
    let entries = attributes.as_map().value(0);
    let texts = |column: usize| entries.column(column).as_string::<i32>().clone();
    let (names, values) = (texts(0), texts(1));
    let proxy = (0..names.len()).find(|row| names.value(*row) == "proxy");
    assert!(values.value(proxy.unwrap()).starts_with("127.0.0.1:"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_turned_away_has_a_line_with_its_cure_and_a_count() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({"max_connections": 1})).await;
    let mut wrong = Sender::new(&receiver).await;
    wrong.send(HEADER).await;
    assert_eq!(wrong.ack().await, None);
    let told = line(&receiver, "refused").await;
    assert_eq!(
        (&told["code"], &told["option"], &told["protocol"]),
        (
            &json!("proxy.untrusted"),
            &json!("--proxy-from"),
            &json!("lumberjack")
        )
    );
    assert!(told["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    until(&receiver, "its slot is free", |stats| {
        stats.connections == 0
    })
    .await;
    let mut only = Sender::new(&receiver).await;
    only.send(&window(b'2', &["{}"])).await;
    assert_eq!(only.ack_of_window().await, Some((b'2', 1)));
    for _ in 0..200 {
        let mut more = Sender::new(&receiver).await;
        assert_eq!(more.ack().await, None);
    }
    let stats = until(&receiver, "all were told", |stats| {
        stats.refusals.refused == 201
    })
    .await;
    assert_eq!(stats.refusals.turned_away["link.too_many_connections"], 200);
    let mut lines = 0;
    let mut told = 0;
    while let Some(line) = next(&receiver, "refused").await {
        assert_eq!((&line["limit"], &line["value"]), (&json!(1), &json!(2)));
        lines += 1;
        told += line["times"].as_u64().unwrap_or(1);
    }
    assert!(
        (5..100).contains(&lines) && told <= 200,
        "{lines} lines tell of {told}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_of_a_storm_is_in_a_line_a_second_later_or_at_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({"allow": "192.0.2.0/24"})).await;
    for expected in [50, 80] {
        while receiver.stats().refusals.refused < expected {
            assert_eq!(Sender::new(&receiver).await.ack().await, None);
        }
        if expected == 80 {
            receiver.stop(None).await;
        }
        let mut told = 0;
        let mut last_peer = Value::Null;
        while told < if expected == 50 { 50 } else { 30 } {
            let line = line(&receiver, "refused").await;
            told += line["times"].as_u64().unwrap_or(1);
            last_peer = line["peer"].clone();
        }
        assert!(last_peer.as_str().unwrap().starts_with("127.0.0.1:"));
    }
    assert_eq!(
        receiver.stats().refusals.refused,
        80,
        "a line counts nothing twice"
    );
    let last = next(&receiver, "stopped").await.unwrap();
    assert_eq!(last["unacked_windows"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_leaves_no_spool_behind() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let spool = dir.path().join("spool");
    let started = Receiver::start(ReceiverOptions {
        urls: vec![format!("lumberjack://{}", taken.local_addr().unwrap())],
        spool: Some(spool.clone()),
        ..ReceiverOptions::default()
    });
    let error = started.await.unwrap_err();
    assert!(
        matches!(error, ackline::ReceiverError::Bind { .. }),
        "{error}"
    );
    assert!(!spool.exists());
}

#[tokio::test]
async fn what_is_too_small_to_work_with_is_named_as_an_option() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["memory", "budget"] {
        let mut options = ReceiverOptions {
            urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
            spool: Some(dir.path().join("spool")),
            ..ReceiverOptions::default()
        };
        let said = format!("{name} is 65535; it is at least 65536 bytes (64KiB)");
        let error = options.set_all(json!({name: 65_535}).as_object().unwrap());
        assert_eq!(error.unwrap_err().to_string(), said);
        // A program may set the field itself.
        match name {
            "memory" => options.memory = 65_535,
            _ => options.writer.budget = 65_535,
        }
        let error = Receiver::start(options).await.unwrap_err().to_string();
        assert_eq!(error, said);
        assert!(!dir.path().join("spool").exists());
    }
}

/// The next line of this name that is there already.
async fn next(receiver: &Arc<Receiver>, event: &str) -> Option<Value> {
    let (receiver, event) = (Arc::clone(receiver), event.to_owned());
    let found = tokio::task::spawn_blocking(move || {
        std::iter::from_fn(|| receiver.next_event(Duration::ZERO))
            .map(|line| serde_json::from_str::<Value>(&line).unwrap())
            .find(|line| line["event"] == *event)
    });
    found.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_are_no_incident() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({})).await;
    for _ in 0..10 {
        drop(Sender::new(&receiver).await);
        Sender::new(&receiver).await.reset();
    }
    let stats = until(&receiver, "all are gone", |stats| {
        stats.refusals.health_checks == 20
    })
    .await;
    assert_eq!(
        (stats.refusals.refused, stats.refusals.turned_away.len()),
        (0, 0)
    );
    assert_eq!(next(&receiver, "refused").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_loses_its_slot_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({"first_byte_timeout_ms": 100, "handshake_timeout_ms": 150});
    let receiver = receiver(&dir, &options).await;
    let begin = Instant::now();
    let mut silent = Sender::new(&receiver).await;
    assert_eq!(silent.ack().await, None);
    assert!(begin.elapsed() < Duration::from_secs(9), "not the default");
    let told = line(&receiver, "refused").await;
    assert_eq!(
        (&told["code"], &told["option"]),
        (&json!("link.timeout"), &json!("--first-byte-timeout"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_connection_ends_when_its_window_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({"max_connection_age_ms": 300})).await;
    let begin = Instant::now();
    let mut sender = Sender::new(&receiver).await;
    let bytes = window(b'2', &["{\"n\":1}", "{\"n\":2}"]);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    // In one piece: it may be as old as that before this task goes on.
    sender.send(&[&bytes[..], first].concat()).await;
    assert_eq!(sender.ack_of_window().await, Some((b'2', 2)));
    // Older than it may become, in the middle of a window.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(receiver.stats().connections, 1);
    sender.send(second).await;
    assert_eq!(sender.ack_of_window().await, Some((b'2', 2)));
    assert_eq!(sender.ack().await, None);
    assert!(begin.elapsed() >= Duration::from_millis(400));
    until(&receiver, "it is gone", |stats| stats.connections == 0).await;
    assert_eq!(landed(&dir.path().join("spool")).len(), 4);
    assert_eq!(receiver.stats().refusals.refused, 0);
    // Idle ones end too.
    let mut idle = Sender::new(&receiver).await;
    idle.send(&bytes).await;
    assert_eq!(idle.ack_of_window().await, Some((b'2', 2)));
    assert_eq!(idle.ack().await, None);
}

#[tokio::test(start_paused = true)]
async fn who_never_completes_its_window_is_ended_half_a_minute_after_its_age() {
    let mut options = ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        ..ReceiverOptions::default()
    };
    let times =
        json!({"max_connection_age_ms": 1_000, "stall_timeout_ms": 0, "idle_timeout_ms": 0});
    options.set_all(times.as_object().unwrap()).unwrap();
    let receiver = Receiver::start(options).await.unwrap();
    let at = receiver.urls()[0].trim_start_matches("lumberjack://");
    let mut sender = TcpStream::connect(at).await.unwrap();
    let bytes = window(b'2', &["{\"n\":1}", "{\"n\":2}"]);
    sender.write_all(&bytes[..bytes.len() / 2]).await.unwrap();
    let begin = tokio::time::Instant::now();
    let mut answers = Vec::new();
    let reading = sender.read_to_end(&mut answers);
    let an_hour = tokio::time::timeout(Duration::from_secs(3_600), reading);
    an_hour.await.unwrap().unwrap();
    let lived = begin.elapsed();
    assert!((30_800..31_500).contains(&lived.as_millis()), "{lived:?}");
    assert_eq!(receiver.stats().received.windows, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_acknowledges_what_is_whole_and_spreads_the_ends_of_five_hundred_senders() {
    const SENDERS: usize = 500;
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({"accept_rate": 0, "drain_timeout_ms": 4_000})).await;
    let mut senders = Vec::new();
    for _ in 0..SENDERS {
        senders.push(Sender::new(&receiver).await);
    }
    // A whole window and the beginning of the next one, which nobody has read yet.
    let mut bytes = window(b'2', &["{\"n\":1}", "{\"n\":2}"]);
    let whole = bytes.len();
    bytes.extend_from_within(..whole / 2);
    for sender in &mut senders {
        sender.send(&bytes).await;
    }
    until(&receiver, "all are read", |stats| {
        stats.received.windows == SENDERS as u64
    })
    .await;
    let begin = Instant::now();
    let ends: Vec<_> = senders
        .into_iter()
        .map(|mut sender| {
            tokio::spawn(async move {
                let ack = sender.ack_of_window().await;
                assert_eq!(sender.ack_of_window().await, None);
                (ack, begin.elapsed())
            })
        })
        .collect();
    assert_eq!(receiver.stop(None).await, 0);
    let mut times = Vec::new();
    for end in ends {
        let (ack, at) = end.await.unwrap();
        assert_eq!(ack, Some((b'2', 2)));
        times.push(at);
    }
    // Over three quarters of four seconds, about a sixth of them in each half second; a busy machine tells late.
    times.sort_unstable();
    for (at, least) in [(250, 1_000), (350, 1_500), (450, 2_000)] {
        assert!(times[at] >= Duration::from_millis(least), "{:?}", times[at]);
    }
    assert_eq!(landed(&dir.path().join("spool")).len(), 2 * SENDERS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_comes_in_at_the_accept_rate() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(
        &dir,
        &json!({"accept_rate": 1_000, "first_byte_timeout_ms": 0}),
    )
    .await;
    let begin = Instant::now();
    let mut senders = Vec::new();
    for _ in 0..2_000 {
        senders.push(Sender::new(&receiver).await);
    }
    for sender in &mut senders {
        sender.send(&window(b'2', &["{}"])).await;
    }
    for sender in &mut senders {
        assert_eq!(sender.ack_of_window().await, Some((b'2', 1)));
    }
    // Of one address 500 at once, then 1,500 at 500 a second.
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(2_950), "{took:?}");
    assert_eq!(receiver.stats().refusals.refused, 0, "nobody is refused");
    receiver.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_above_its_rate_waits_and_another_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&dir, &json!({"max_bytes_per_second": 100_000})).await;
    let event = "x".repeat(1_000);
    let events = vec![event.as_str(); 50];
    let bytes = window(b'2', &events);
    let mut fast = Sender::from(&receiver, "127.0.0.2").await;
    let begin = Instant::now();
    for _ in 0..6 {
        fast.send(&bytes).await;
    }
    let mut other = Sender::from(&receiver, "127.0.0.3").await;
    other.send(&bytes).await;
    assert_eq!(other.ack_of_window().await, Some((b'2', 50)));
    assert!(
        receiver.stats().received.windows < 7,
        "it waited for the other"
    );
    for _ in 0..6 {
        assert_eq!(fast.ack_of_window().await, Some((b'2', 50)));
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(1_700), "{took:?}");
    assert_eq!(receiver.stats().refusals.refused, 0);
}

#[tokio::test]
async fn wrong_options_are_named_with_their_limit() {
    for (options, part) in [
        (
            json!({"proxy_from": "10.0.0.0/33"}),
            "proxy_from \"10.0.0.0/33\"",
        ),
        (json!({"allow": ""}), "allow \"\" is not"),
        (
            json!({"max_connections": 0}),
            "max_connections is 0; it is a whole number from 1",
        ),
        (
            json!({"handshake_timeout_ms": 0}),
            "handshake_timeout_ms is 0ms; it is a time such as 10s, 500ms, 15m or 7d, at least 1ms",
        ),
        (
            json!({"accept_rate": "x"}),
            "accept_rate is x; it is a whole number from 0",
        ),
    ] {
        let mut all = ReceiverOptions::default();
        let error = all.set_all(options.as_object().unwrap()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let mut all = ReceiverOptions::default();
    let options = json!({
        "max_connections_per_address": 7, "accept_rate": 0, "max_bytes_per_second": 9,
        "max_connection_age_ms": 5_000, "drain_timeout_ms": 3_000,
    });
    all.set_all(options.as_object().unwrap()).unwrap();
    let acceptor = &all.acceptor;
    assert_eq!(acceptor.max_connections_per_address, PerAddress::Limit(7));
    assert_eq!(
        (acceptor.accept_rate, acceptor.max_bytes_per_second),
        (None, Some(9))
    );
    assert_eq!(acceptor.max_connection_age, Some(Duration::from_secs(5)));
    assert_eq!(all.drain_timeout, Duration::from_secs(3));
}

#[tokio::test]
async fn a_senders_share_is_a_part_as_a_number_or_as_a_text() {
    let set = |share: &Value| {
        let mut all = ReceiverOptions::default();
        all.set_all(json!({ "max_sender_share": share }).as_object().unwrap())
            .map(|()| all.fairness.max_sender_share)
    };
    for (share, expected) in [
        (json!(0.0001), 0.0001),
        (json!(1), 1.0),
        (json!("0.0001"), 0.0001),
        (json!("1e-05"), 0.00001),
        (json!("1.0"), 1.0),
    ] {
        assert_eq!(set(&share), Ok(expected), "{share}");
    }
    for share in [
        json!(0),
        json!(1.1),
        json!("0"),
        json!("nan"),
        json!("-1"),
        json!("x"),
    ] {
        let error = set(&share).unwrap_err();
        let says = "; it is a part above 0 and up to 1";
        assert_eq!(
            error.to_string(),
            format!(
                "max_sender_share is {}{says}",
                share.to_string().trim_matches('"')
            )
        );
    }
}
