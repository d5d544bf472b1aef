//! A receiver tells its limits, and why it refuses a transaction, to the sender that asks.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::relink::ReconnectOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{line, within};
use ackline::relink::{
    ChannelId, ConnectOptions, Fate, Link, Outcome, Reason, Receipt, Told, commit_all, connect,
};
use ackline::{Receiver, ReceiverOptions};
use serde_json::json;

const URL: &str = "relink://127.0.0.1:0/t?connector_transactions=true";

/// Undecided bytes of a link that `--memory` of 1 MiB allows.
const MOST: u64 = (1 << 17) + (16 << 10);

async fn start(dir: &Path) -> Arc<Receiver> {
    let mut all = ReceiverOptions {
        urls: vec![URL.to_owned(), "relink://127.0.0.1:0/plain".to_owned()],
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    let options = json!({"memory": 1 << 20});
    all.set_all(options.as_object().unwrap()).unwrap();
    Arc::new(Receiver::start(all).await.unwrap())
}

fn url_of(receiver: &Receiver) -> String {
    format!("{}?connector_transactions=true", receiver.urls()[0])
}

fn options(wants_hints: bool) -> ConnectOptions {
    ConnectOptions {
        wants_hints,
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(50),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    }
}

async fn filled(link: &Link, channel: &ChannelId, messages: usize) -> Receipt {
    let mut last = None;
    for _ in 0..messages {
        last = Some(link.send(channel, vec![7; 10_000], None).await.unwrap());
    }
    last.unwrap()
}

/// Waits until it is so. A ping alone shows nothing: it may overtake messages that are not on the wire yet.
async fn until(is_so: impl Fn() -> bool) {
    within(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_link_that_asks_is_told_the_limits_before_a_pong_and_another_is_told_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path()).await;
    for wants_hints in [false, true] {
        let link = connect(&url_of(&receiver), options(wants_hints))
            .await
            .unwrap();
        within(link.ping(None)).await.unwrap();
        let told = link.told();
        if wants_hints {
            assert_eq!(told.transaction_bytes, Some(MOST));
            assert_eq!(told.receive_window, Some(1 << 20));
            assert_eq!(told.message_bytes, Some((1 << 18) + (32 << 10) - 512));
        } else {
            assert_eq!(told, Told::default());
        }
        assert_eq!(told.refused, None);
    }
    receiver.stop(None).await;
}

#[tokio::test]
async fn the_reason_of_a_refusal_is_told_when_there_is_no_room_and_again_at_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path()).await;
    let url = url_of(&receiver);
    let channel = ChannelId::from(1_u32);
    let reason = Some(Reason::OverLink(MOST));
    let link = connect(&url, options(true)).await.unwrap();
    filled(&link, &channel, 20).await;
    until(|| link.told().refused.is_some()).await;
    assert_eq!(link.told().refused, reason);
    // The task's process goes, and the driver's hears it again.
    let state = within(link.hand_over(None)).await.unwrap();
    let fates = within(commit_all(
        &url,
        &options(true),
        &[state],
        Duration::from_secs(20),
    ))
    .await;
    assert!(
        matches!(&fates[..], [Fate::Refused(told)] if *told == reason),
        "{fates:?}"
    );
    receiver.stop(None).await;
}

/// Half of the memory is for undecided messages, and each link may have half of the part that the
/// others leave.
#[tokio::test]
async fn undecided_messages_of_other_links_leave_less_and_make_nobody_wait() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = start(dir.path()).await;
    let url = url_of(&receiver);
    let channel = ChannelId::from(1_u32);
    let mut links = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..8 {
        let link = connect(&url, options(true)).await.unwrap();
        let last = filled(&link, &channel, 14).await;
        until(|| link.driven().stats().bytes_out > 14 * 10_000).await;
        within(link.ping(None)).await.unwrap();
        match link.told().refused {
            None => links.push((link, last)),
            Some(reason) => refused.push((link, reason)),
        }
    }
    // 140,896 bytes each: of the fourth there are 101 KiB left, and half of that is its part.
    assert_eq!((links.len(), refused.len()), (2, 6));
    for (_, reason) in &refused {
        assert!(
            matches!(reason, Reason::OverAll(bytes) if *bytes < 140_896),
            "{reason:?}"
        );
    }
    let whole = refused[0].1.to_string();
    assert!(whole.contains("half of the receiver's --memory"), "{whole}");
    // Another link is served meanwhile, far above the bytes that it has free of charge.
    let good = connect(&receiver.urls()[1], options(false)).await.unwrap();
    for _ in 0..10 {
        let last = filled(&good, &channel, 40).await;
        within(last.consumed()).await.unwrap();
    }
    for (link, last) in &links {
        link.commit(&channel, Some(last.sequence())).unwrap();
        assert_eq!(within(last.committed()).await.unwrap(), Outcome::Committed);
    }
    let (link, _) = &refused[0];
    let last = link.last_receipt(&channel).unwrap();
    link.commit(&channel, Some(last.sequence())).unwrap();
    assert_eq!(
        within(last.committed()).await.unwrap(),
        Outcome::Uncommitted
    );
    let told = line(&receiver, "refused").await;
    assert_eq!(told["code"], "relink.transaction_refused");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("half of the part that the others leave"),
        "{message}"
    );
    receiver.stop(None).await;
}
