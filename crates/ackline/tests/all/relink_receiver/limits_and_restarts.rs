//! A receiver of Relink at its limits, and over restarts.

use super::*;

/// `--memory` of 1 MiB leaves 147,456 bytes for undecided messages.
#[tokio::test]
async fn a_transaction_that_finds_no_room_is_uncommitted_and_its_link_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let url = "relink://127.0.0.1:0/t?connector_transactions=true";
    let receiver = start(&[url], dir.path(), &json!({"memory": 1 << 20})).await;
    let link = linked(&format!(
        "{}?connector_transactions=true",
        receiver.urls()[0]
    ))
    .await;
    let (a, b) = (ChannelId::from(A), ChannelId::from(A + 1));
    let first = link.send(&a, b"first".as_slice(), None).await.unwrap();
    link.commit(&a, None).unwrap();
    within(first.committed()).await.unwrap();
    let beside = link.send(&b, b"beside".as_slice(), None).await.unwrap();
    let mut last = None;
    for _ in 0..19 {
        last = Some(link.send(&a, vec![7; 10_000], None).await.unwrap());
    }
    link.commit(&a, last.as_ref().map(Receipt::sequence))
        .unwrap();
    link.commit(&b, None).unwrap();
    let last = last.unwrap();
    assert_eq!(
        within(last.committed()).await.unwrap(),
        Outcome::Uncommitted
    );
    within(last.consumed()).await.unwrap();
    assert_eq!(
        within(beside.committed()).await.unwrap(),
        Outcome::Committed
    );
    let small = link.send(&a, vec![8; 10_000], None).await.unwrap();
    link.commit(&a, None).unwrap();
    assert_eq!(within(small.committed()).await.unwrap(), Outcome::Committed);
    let refused = line(&receiver, "refused").await;
    assert_eq!(
        [
            &refused["code"],
            &refused["option"],
            &refused["value"],
            &refused["limit"]
        ],
        [
            &json!("relink.transaction_refused"),
            &json!("--memory"),
            &json!(19 * 10_064),
            &json!(147_456)
        ]
    );
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("channel {a}: a transaction of 19 messages")),
        "{message}"
    );
    let sequences: Vec<_> = rows(dir.path()).iter().map(|row| row.2).collect();
    // One commit before it, one of another channel, one behind it.
    let mut sorted = sequences.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 0, 20]);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_receiver_that_discards_counts_and_acknowledges() {
    let all = ReceiverOptions {
        urls: vec!["relink://127.0.0.1:0/n".to_owned()],
        ..ReceiverOptions::default()
    };
    let receiver = Arc::new(Receiver::start(all).await.unwrap());
    let link = linked(&receiver.urls()[0]).await;
    let sent = link
        .send(&ChannelId::from(A), b"one".as_slice(), None)
        .await
        .unwrap();
    within(sent.consumed()).await.unwrap();
    until(&receiver, "counted", |stats| stats.acked.acked_events == 1).await;
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test]
async fn a_journal_that_is_behind_the_spool_is_brought_up_to_it() {
    let Served {
        dir,
        spool,
        url,
        receiver,
        link,
    } = served("", &json!({})).await;
    let (kept, behind) = (spool.join("relink"), dir.path().join("behind"));
    let (a, b) = (ChannelId::from(A), ChannelId::from(7_u32));
    let send = async |channel: &ChannelId, text: &str| {
        let sent = link.send(channel, text.to_owned().into_bytes(), None).await;
        within(sent.unwrap().consumed()).await.unwrap();
    };
    send(&a, "one").await;
    receiver.stop(None).await;
    drop(receiver);
    copy(&kept, &behind);
    let receiver = again(&url, &spool).await;
    send(&a, "two").await;
    send(&b, "three").await;
    receiver.stop(None).await;
    drop(receiver);
    // As after a crash between the spool's fsync and the journal's.
    std::fs::remove_dir_all(&kept).unwrap();
    copy(&behind, &kept);
    let receiver = again(&url, &spool).await;
    send(&a, "four").await;
    send(&b, "five").await;
    assert_eq!(payloads(&spool), ["one", "two", "three", "four", "five"]);
    assert_eq!(receiver.stats().refusals.refused, 0);
    receiver.stop(None).await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn one_packet_for_many_channels_lands_within_the_memory_and_beside_other_links() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let url = "relink://127.0.0.1:0/n";
    let receiver = start(&[url], &spool, &json!({"memory": 1 << 20})).await;
    let [many, other] = [
        linked(&receiver.urls()[0]).await,
        linked(&receiver.urls()[0]).await,
    ];
    let channels: Vec<ChannelId> = (0..300_u32).map(ChannelId::from).collect();
    let payload = Payload::from(Bytes::from(vec![7; 50_000]));
    let sent = many.send_to(&channels, payload, None).await.unwrap();
    let beside = other
        .send(&channels[0], vec![1; 2_000], None)
        .await
        .unwrap();
    within(beside.consumed()).await.unwrap();
    let most = AtomicU64::new(0);
    until(&receiver, "all of them land", |stats| {
        most.fetch_max(stats.memory_bytes, Ordering::Relaxed);
        stats.acked.landed == 301
    })
    .await;
    for receipt in &sent {
        within(receipt.consumed()).await.unwrap();
    }
    let most = most.into_inner();
    assert!(most <= 1 << 20, "{most} bytes of 1 MiB");
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test]
async fn the_limits_of_links_are_options_of_the_receiver() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("max_message_bytes", 100, "--max-message-bytes"),
        ("max_part_bytes", 100, "--max-part-bytes"),
        ("max_message_parts", 1, "--max-message-parts"),
        ("max_channels", 1, "--max-channels"),
        ("max_multicast_bytes", 399, "--max-multicast-bytes"),
    ];
    for (name, value, option) in cases {
        let url = "relink://127.0.0.1:0/n";
        let receiver = start(&[url], &dir.path().join(name), &json!({name: value})).await;
        let link = linked(&receiver.urls()[0]).await;
        let two = Payload::from_parts(vec![Bytes::from(vec![1; 99]), Bytes::from(vec![2; 101])]);
        let channels = [1_u32, 2].map(ChannelId::from);
        link.send_to(&channels, two.clone(), None).await.unwrap();
        let refused = line(&receiver, "refused").await;
        assert_eq!(refused["code"], "relink.limit_exceeded", "{name}");
        assert_eq!(refused["option"], option);
        receiver.abort();
    }
    let mut options = ReceiverOptions::default();
    let all = json!({"max_links": 1, "receive_window": 2, "max_channel_ids": 3, "orphan_after_ms": 4,
                     "durable_links": false});
    options.set_all(all.as_object().unwrap()).unwrap();
    let relink = &options.relink;
    assert_eq!(
        (relink.keep.max_links, relink.link.machine.receive_window),
        (1, 2)
    );
    assert_eq!(relink.link.machine.limits.max_channel_ids, 3);
    assert_eq!(relink.keep.orphan_after, Duration::from_millis(4));
    assert!(!relink.durable_links);
    for (name, value) in [
        ("orphan_after_ms", json!(0)),
        ("max_links", json!(0)),
        ("receive_window", json!(1_u64 << 32)),
        ("durable_links", json!("yes")),
    ] {
        let error = options.set_all(json!({name: value}).as_object().unwrap());
        assert!(error.unwrap_err().to_string().starts_with(name));
    }
}

#[tokio::test]
async fn a_link_without_its_connector_is_given_up_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let url = "relink://127.0.0.1:0/n";
    let options = json!({"orphan_after_ms": 50, "max_links": 1});
    let receiver = start(&[url], dir.path(), &options).await;
    let first = linked(&receiver.urls()[0]).await;
    let refused = connect(&receiver.urls()[0], ConnectOptions::default()).await;
    assert!(refused.is_err(), "one link is the most");
    assert_eq!(
        line(&receiver, "refused").await["code"],
        "relink.too_many_links"
    );
    drop(first);
    let second = async {
        while connect(&receiver.urls()[0], ConnectOptions::default())
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(second).await;
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_receiver_that_ends_at_once_lets_go_of_the_links_it_found() {
    let Served {
        dir: _dir,
        spool,
        url,
        receiver,
        link,
    } = served("", &json!({})).await;
    let sent = link
        .send(&ChannelId::from(A), b"one".as_slice(), None)
        .await;
    within(sent.unwrap().consumed()).await.unwrap();
    receiver.stop(None).await;
    drop(receiver);
    let receiver = again(&url, &spool).await;
    receiver.abort();
    drop(receiver);
    again(&url, &spool).await.stop(None).await;
}

#[tokio::test]
async fn a_commit_that_was_not_answered_is_answered_after_a_restart() {
    let options = json!({"ack": "committed=lake"});
    let Served {
        dir: _dir,
        spool,
        url,
        receiver,
        link,
    } = served("&connector_transactions=true", &options).await;
    let a = ChannelId::from(A);
    let one = link.send(&a, b"one".as_slice(), None).await.unwrap();
    link.commit(&a, None).unwrap();
    within(one.consumed()).await.unwrap();
    receiver.abort();
    drop(receiver);
    commit(&spool, 1);
    // Durable acknowledgements from here on: the spool holds exactly the committed messages.
    let receiver = again(&url, &spool).await;
    assert_eq!(within(one.committed()).await.unwrap(), Outcome::Committed);
    let two = link.send(&a, b"two".as_slice(), None).await.unwrap();
    link.commit(&a, None).unwrap();
    assert_eq!(within(two.committed()).await.unwrap(), Outcome::Committed);
    assert_eq!(payloads(&spool), ["one", "two"]);
    receiver.stop(None).await;
}
