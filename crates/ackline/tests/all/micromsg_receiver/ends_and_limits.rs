//! Receivers that end, that fail, and that have too little room.

use super::*;

#[tokio::test]
async fn a_limit_refuses_a_connection_and_everything_before_it_lands() {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({
        "max_payload_bytes": 1_000, "max_message_bytes": 2_000, "max_type_bytes": 10, "window": 2,
    });
    let receiver = start(dir.path(), &options).await;
    let small = Config {
        fragment_size: 900,
        ..with(&["batch-ack", "dotnet"])
    };
    let whole = Config {
        fragment_size: 1 << 20,
        ..small.clone()
    };
    for (config, size, dotnet_type, option, value, limit) in [
        (&whole, 1_001, None, "--max-payload-bytes", 1_001, 1_000),
        (&small, 2_700, None, "--max-message-bytes", 2_700, 2_000),
        (&small, 1, Some("App.Order12"), "--max-type-bytes", 11, 10),
    ] {
        let publisher = Publisher::with(&receiver, config.clone()).await;
        publisher.send("a", "x").await;
        publisher.until_pending(0).await;
        let message = Outbound {
            destination: "a",
            properties: "",
            dotnet_type,
        };
        publisher.put(message, vec![7; size]).await;
        let refused = line(&receiver, "refused").await;
        assert_eq!(refused["code"], "micromsg.limit_exceeded", "{refused}");
        assert_eq!(refused["option"], option);
        assert_eq!(
            (&refused["value"], &refused["limit"]),
            (&json!(value), &json!(limit))
        );
        let Event::Error { message } = publisher.event().await else {
            panic!("an ERROR frame says why");
        };
        assert!(message.contains(option), "{message}");
    }
    let stats = until(&receiver, "counted", |stats| stats.connections == 0).await;
    assert_eq!((stats.refusals.refused, stats.acked.acked_events), (3, 3));
    receiver.stop(None).await;
}

#[tokio::test]
async fn another_protocol_is_told_by_its_first_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"handshake_timeout_ms": 200})).await;
    for (bytes, code) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "link.http"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hello",
            "tls.unexpected",
        ),
        (b"\0\x09\0\0", "micromsg.unsupported_version"),
    ] {
        let mut stranger = TcpStream::connect(address(&receiver)).await.unwrap();
        stranger.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let _ = within(stranger.read_to_end(&mut rest)).await;
        let refused = line(&receiver, "refused").await;
        assert_eq!(refused["code"], code, "{refused}");
    }
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_stop_acknowledges_everything_that_came() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path(), &json!({"ack": "committed=lake"})).await;
    let mut publisher = ByHand::new(&receiver).await;
    publisher.send("a", "1").await;
    until(&receiver, "durable", |stats| stats.spool.uncommitted == 1).await;
    let stopping = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move { receiver.stop(None).await }
    });
    until(&receiver, "draining", |stats| stats.state == "draining").await;
    commit(dir.path(), 1);
    while publisher.read().await {}
    assert_eq!(publisher.machine.pending(), 0);
    drop(publisher);
    assert_eq!(within(stopping).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_peer_that_never_answers() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("micromsg://{}/t", listener.local_addr().unwrap());
    let receiver = start_at(&["micromsg://127.0.0.1:0"], &[&url], dir.path(), &json!({})).await;
    let (mut silent, _) = within(listener.accept()).await.unwrap();
    assert_eq!(within(silent.read_u8()).await.unwrap(), 1, "a handshake");
    let mut stream = TcpStream::connect(address(&receiver)).await.unwrap();
    stream.write_all(&[1]).await.unwrap();
    until(&receiver, "accepted", |stats| stats.connections == 1).await;
    let begin = Instant::now();
    assert_eq!(within(receiver.stop(None)).await, 0);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn at_the_spools_budget_the_window_fills_and_after_a_commit_it_goes_on() {
    const WINDOW: u16 = 20;
    let dir = tempfile::tempdir().unwrap();
    let options = json!({
        "window": WINDOW, "budget": 1 << 20, "segment_bytes": 128 << 10, "retain_committed_ms": 0,
    });
    let receiver = start(dir.path(), &options).await;
    commit(dir.path(), 0);
    let publisher = Arc::new(Publisher::new(&receiver).await);
    let sending = tokio::spawn({
        let publisher = Arc::clone(&publisher);
        async move {
            for number in 0..400 {
                publisher.send("a", noise(number, 10_000)).await;
            }
            publisher.until_pending(0).await;
        }
    });
    let is_full = async {
        loop {
            let stats = receiver.stats();
            if stats.state == "stalled_budget" && publisher.pending() == WINDOW {
                return stats.spool.durable;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let first = within(is_full).await;
    assert!(!sending.is_finished() && first < 300, "{first}");
    let going_on = async {
        while !sending.is_finished() {
            commit(dir.path(), receiver.stats().spool.durable);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(going_on).await;
    sending.await.unwrap();
    assert_eq!(receiver.stats().acked.acked_events, 400);
    receiver.abort();
}

/// Many senders with more than the memory begin large messages: each comes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_of_many_senders_come_through_a_small_memory() {
    let dir = tempfile::tempdir().unwrap();
    let options = json!({"memory": 64 << 20});
    let receiver = start(dir.path(), &options).await;
    let senders = (0..12).map(|number| {
        let receiver = Arc::clone(&receiver);
        tokio::spawn(async move {
            let config = Config {
                fragment_size: 1 << 20,
                ..with(&["batch-ack"])
            };
            let publisher = Publisher::with(&receiver, config).await;
            for at in 0..2 {
                publisher.send("a", noise(number * 2 + at, 6 << 20)).await;
            }
            publisher.until_pending(0).await;
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    // Granted bytes that are not needed are returned after a second.
    until(&receiver, "let go", |stats| stats.memory_bytes == 0).await;
    assert_eq!(receiver.stats().spool.durable, 24);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_wrong_url_is_told_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    for (urls, connect, part) in [
        (
            vec!["micromsg://127.0.0.1:0/t"],
            vec![],
            "topic and filter are for a URL that the receiver connects to",
        ),
        (
            vec!["micromsg://127.0.0.1:0?filter=a%3DN1"],
            vec![],
            "topic and filter are for a URL",
        ),
        (
            vec![],
            vec!["micromsg://h:1"],
            "the topic is missing: write micromsg://host:port/TOPIC",
        ),
        (vec![], vec!["micromsg+unix:///x"], "the topic is missing"),
        (vec![], vec!["micromsg://h:1/%f"], "percent-encoded"),
        (
            vec![],
            vec!["micromsg://h:1/t?filter=a"],
            "a condition has no operator",
        ),
        (vec![], vec!["micromsg://h:1/t?windows=x"], "windows"),
        (
            vec![],
            vec!["micromsg://h:1/t?window=65535"],
            "window is 65535",
        ),
        (
            vec!["micromsg://127.0.0.1:0?window=0"],
            vec![],
            "window is 0",
        ),
    ] {
        let options = ReceiverOptions {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            connect: connect.iter().map(|url| (*url).to_owned()).collect(),
            spool: Some(spool.clone()),
            ..ReceiverOptions::default()
        };
        let error = Receiver::start(options).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(!spool.exists(), "{error}");
    }
}

#[tokio::test]
async fn a_disk_that_fails_acknowledges_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    let publisher = Publisher::new(&receiver).await;
    // No segment can be made any more.
    std::fs::rename(dir.join("segments"), dir.join("gone")).unwrap();
    publisher.send("a", "x").await;
    assert_eq!(line(&receiver, "failed").await["code"], "spool.failed");
    let stats = until(&receiver, "all are gone", |stats| stats.connections == 0).await;
    assert_eq!((stats.state, stats.acked.acked_events), ("failed", 0));
    assert_eq!(publisher.pending(), 1);
    receiver.abort();
}

/// Receivers are ended at any time. Every message whose acknowledgement came is in the spool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_message_is_lost_with_its_receiver() {
    let dir = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut sent) = (BTreeSet::new(), 0_u64);
    for round in 0..12_u64 {
        let receiver = start(dir.path(), &json!({"window": 50})).await;
        let publisher = Publisher::new(&receiver).await;
        let mut waiting = Vec::new();
        let ends = async {
            until(&receiver, "some", |stats| {
                stats.acked.acked_events > round * 17
            })
            .await;
            receiver.abort();
        };
        let sending = async {
            loop {
                let payload = Bytes::from(sent.to_string());
                let destination = (sent % 3).to_string();
                let message = Outbound {
                    destination: &destination,
                    ..Outbound::default()
                };
                waiting.push(sent);
                sent += 1;
                if !publisher.try_put(message, payload).await {
                    waiting.pop();
                    break;
                }
            }
        };
        tokio::join!(ends, sending);
        let open = usize::from(publisher.pending());
        waiting.truncate(waiting.len() - open);
        assert!(!waiting.is_empty());
        acknowledged.extend(waiting);
    }
    let receiver = start(dir.path(), &json!({})).await;
    receiver.stop(None).await;
    let landed: BTreeSet<u64> = rows(dir.path())
        .iter()
        .map(|row| std::str::from_utf8(&row.2).unwrap().parse().unwrap())
        .collect();
    let lost: Vec<_> = acknowledged.difference(&landed).collect();
    assert!(lost.is_empty(), "{lost:?} of {}", acknowledged.len());
}
