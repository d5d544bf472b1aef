//! A receiver that connects out and lands the messages of its listeners.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{DEADLINE, at_socket, landed, receiving, until, within};
use ackline::relink::{ChannelId, Link, ListenOptions, Listener, listen};
use ackline::{Receiver, ReceiverError, ReceiverOptions};
use ackline_relink::frame::{Ident, Packet, Version, encode};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

fn options(url: &str, dir: &Path) -> ReceiverOptions {
    ReceiverOptions {
        connect: vec![url.to_owned()],
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    }
}

async fn start(url: &str, dir: &Path) -> Result<Receiver, ReceiverError> {
    Receiver::start(options(url, dir)).await
}

/// A receiver when its spool is free.
async fn started(url: &str, dir: &Path) -> Arc<Receiver> {
    receiving(&options(url, dir)).await
}

async fn accepted(listener: &Listener) -> Link {
    within(listener.accept()).await.unwrap()
}

/// A listener when the socket is free.
async fn again(url: &str) -> Listener {
    let begin = std::time::Instant::now();
    loop {
        match listen(url, ListenOptions::default()).await {
            Ok(listener) => return listener,
            Err(error) => assert!(begin.elapsed() < DEADLINE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn texts(dir: &Path) -> Vec<String> {
    let rows = landed(dir).into_iter();
    rows.map(|(payload, _)| payload).collect()
}

const A: u32 = 7;

#[tokio::test]
async fn what_a_listener_sends_lands_and_is_consumed() {
    let dir = tempfile::tempdir().unwrap();
    let at = at_socket(dir.path());
    // Nobody listens yet: it is tried for ever.
    let spool = dir.path().join("spool");
    let receiver = started(&at, &spool).await;
    assert!(receiver.urls().is_empty());
    let listener = listen(&at, ListenOptions::default()).await.unwrap();
    let link = accepted(&listener).await;
    let sent = link
        .send(&ChannelId::from(A), b"one".as_slice(), None)
        .await;
    within(sent.unwrap().consumed()).await.unwrap();
    until(&receiver, "landed", |stats| stats.acked.landed == 1).await;
    assert_eq!(texts(&spool), ["one"]);
    assert_eq!(receiver.stop(None).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_out_outlives_its_receiver_and_nothing_lands_twice() {
    let dir = tempfile::tempdir().unwrap();
    let at = at_socket(dir.path());
    let spool = dir.path().join("spool");
    let listener = listen(&at, ListenOptions::default()).await.unwrap();
    let mut receiver = started(&at, &spool).await;
    let link = accepted(&listener).await;
    let mut last = None;
    for number in 0..900 {
        let text = number.to_string().into_bytes();
        last = Some(link.send(&ChannelId::from(A), text, None).await.unwrap());
        if number % 300 == 150 {
            until(&receiver, "something came", |stats| {
                stats.received.events > 0
            })
            .await;
            receiver.abort();
            drop(receiver);
            receiver = started(&at, &spool).await;
        }
    }
    within(last.unwrap().consumed()).await.unwrap();
    let wanted: Vec<_> = (0..900).map(|number: u32| number.to_string()).collect();
    assert_eq!(texts(&spool), wanted);
    assert_eq!(listener.links(), 1);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_link_that_its_listener_does_not_know_any_more_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let at = at_socket(dir.path());
    let spool = dir.path().join("spool");
    let listener = listen(&at, ListenOptions::default()).await.unwrap();
    let receiver = started(&at, &spool).await;
    let link = accepted(&listener).await;
    let sent = link
        .send(&ChannelId::from(A), b"one".as_slice(), None)
        .await;
    within(sent.unwrap().consumed()).await.unwrap();
    drop((link, listener));
    let listener = again(&at).await;
    let link = accepted(&listener).await;
    let sent = link
        .send(&ChannelId::from(A), b"two".as_slice(), None)
        .await;
    within(sent.unwrap().consumed()).await.unwrap();
    assert_eq!(texts(&spool), ["one", "two"]);
    receiver.stop(None).await;
}

#[tokio::test]
async fn who_only_listens_cannot_be_told_to_connect() {
    let dir = tempfile::tempdir().unwrap();
    for (url, says) in [
        (
            "lumberjack://127.0.0.1:1",
            "a receiver of lumberjack only listens",
        ),
        ("relink://127.0.0.1:0/n", "port 0"),
        ("relink://127.0.0.1", "host and a port"),
    ] {
        let error = start(url, dir.path()).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A listener's answer to a new link, and its shutdown.
fn link_and_shutdown(link_id: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Version::CURRENT.encode(&mut bytes);
    Ident { epoch: 1, link_id }.encode(&mut bytes);
    encode(&Packet::Shutdown, &mut bytes);
    bytes
}

// The clock is the test's: it stands still while anything moves.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_hang_up_is_waited_for_no_longer_than_an_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let url = at_socket(dir.path());
    let socket = tokio::net::UnixListener::bind(dir.path().join("x.sock")).unwrap();
    let mut options = ReceiverOptions {
        connect: vec![url],
        spool: None,
        ..ReceiverOptions::default()
    };
    let times = json!({"reconnect_max_ms": 300});
    options.set_all(times.as_object().unwrap()).unwrap();
    let receiver = Receiver::start(options).await.unwrap();
    let mut open = Vec::new();
    let mut before = None;
    for link_id in 1..4 {
        let (mut connection, _) = socket.accept().await.unwrap();
        let now = tokio::time::Instant::now();
        if let Some(before) = before.replace(now) {
            let waited = now.duration_since(before);
            assert!(waited >= Duration::from_millis(300), "{waited:?}");
            assert!(waited < Duration::from_millis(400), "{waited:?}");
        }
        connection
            .write_all(&link_and_shutdown(link_id))
            .await
            .unwrap();
        open.push(connection);
    }
    receiver.stop(None).await;
}
