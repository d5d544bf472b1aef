//! Links that go on in another process: decisions there, and the errors when a link cannot go on.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::relink::LinkConfig;
use ackline::relink::ReconnectOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::batches;
use crate::cutter::{self, Cutter, DEADLINE, soon};
use ackline::core::Sequence;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Error, Link, LinkOptions, ListenOptions, Listener, Outcome,
    Payload,
};
use ackline::{Receiver, ReceiverOptions};
use arrow_array::cast::AsArray;
use bytes::Bytes;

const TRANSACTIONS: &str = "?connector_transactions=true";

fn channel(number: u32) -> ChannelId {
    ChannelId::from(number)
}

async fn send(link: &Link, channel: &ChannelId, texts: std::ops::Range<u32>) {
    for text in texts {
        let text = Bytes::from(text.to_string());
        soon(link.send(channel, text, None)).await.unwrap();
    }
}

async fn handed(url: &str, count: u32) -> Vec<u8> {
    let link = relink::connect(url, quick()).await.unwrap();
    send(&link, &channel(1), 0..count).await;
    soon(link.hand_over(Some(DEADLINE))).await.unwrap()
}

fn quick() -> ConnectOptions {
    ConnectOptions {
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(50),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    }
}

async fn adopted(url: &str, state: &[u8]) -> Result<Link, Error> {
    soon(Box::pin(relink::adopt(url, quick(), state))).await
}

async fn listening(query: &str) -> (Listener, String) {
    let any = format!("relink://127.0.0.1:0/orders{query}");
    let listener = relink::listen(&any, ListenOptions::default()).await;
    let listener = listener.unwrap();
    let url = format!("{}{query}", listener.url());
    (listener, url)
}

/// A receiver at one place, also after it was started anew.
async fn receiver(dir: &Path) -> (Arc<Receiver>, String) {
    let socket = dir.join("x.sock");
    let url = format!(
        "relink+unix://{}?endpoint=t&connector_transactions=true",
        socket.display()
    );
    let options = ReceiverOptions {
        urls: vec![url.clone()],
        spool: Some(dir.join("spool")),
        ..ReceiverOptions::default()
    };
    (Arc::new(Receiver::start(options).await.unwrap()), url)
}

fn landed(dir: &Path) -> Vec<String> {
    let text = |payload: Option<&[u8]>| String::from_utf8(payload.unwrap().to_vec()).unwrap();
    let columns = batches(&dir.join("spool"));
    let columns = columns.iter().map(|batch| batch.column_by_name("payload"));
    columns
        .flat_map(|column| {
            let column = column.unwrap().as_binary::<i32>();
            column.iter().map(text).collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test]
async fn another_end_decides_on_what_was_sent_and_the_peer_sees_one_link() {
    let (listener, url) = listening(TRANSACTIONS).await;
    let link = relink::connect(&url, quick()).await.unwrap();
    let (a, b) = (channel(1), channel(2));
    send(&link, &a, 0..3).await;
    send(&link, &b, 0..2).await;
    let there = soon(listener.accept()).await.unwrap();
    let state = soon(link.hand_over(Some(DEADLINE))).await.unwrap();
    assert!(state.len() < 150, "{}", state.len());
    assert!(matches!(
        link.try_send(&a, &b"x"[..]),
        Err(Error::HandedOver)
    ));
    assert_eq!(relink::state_key(&state).unwrap(), there.key());
    // The old end has left.
    cutter::until(|| {
        !there
            .driven()
            .call(|session, _| session.machine().is_attached())
    })
    .await;

    let link = adopted(&url, &state).await.unwrap();
    assert_eq!(link.key(), there.key());
    let refused = link.try_send(&a, &b"x"[..]).unwrap_err();
    assert_eq!(refused.code(), "handed_over");
    link.commit(&a, Some(Sequence(1))).unwrap();
    link.rollback(&a, None).unwrap();
    link.commit(&b, Some(Sequence(1))).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let message = soon(there.receive()).await.unwrap().unwrap();
        seen.push((message.channel.to_u64().unwrap(), message.sequence.0));
        there.consume(&message.channel, message.sequence).unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)], "each once");
    for _ in 0..3 {
        let decided = soon(there.decided()).await.unwrap();
        if decided.is_commit && decided.channel == a {
            there.committed(&a, Some(decided.through)).unwrap();
        } else if decided.is_commit {
            there.uncommitted(&b, Some(decided.through)).unwrap();
        }
    }
    let (one, two) = (
        link.last_receipt(&a).unwrap(),
        link.last_receipt(&b).unwrap(),
    );
    assert_eq!(one.sequence(), Sequence(2));
    assert_eq!(soon(one.committed()).await.unwrap(), Outcome::RolledBack);
    assert_eq!(soon(two.committed()).await.unwrap(), Outcome::Uncommitted);
    soon(one.consumed()).await.unwrap();
    soon(two.consumed()).await.unwrap();
    // Consumed: now it is a link as any other.
    send(&link, &a, 3..4).await;
    let message = soon(there.receive()).await.unwrap().unwrap();
    assert_eq!(message.sequence, Sequence(3));
    assert_eq!(message.payload, Payload::from(&b"3"[..]));
}

#[tokio::test]
async fn a_receiver_lands_what_another_process_commits_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let (receiver, url) = receiver(dir.path()).await;
    let (kept, dropped) = (handed(&url, 300).await, handed(&url, 5).await);
    assert_eq!(landed(dir.path()), Vec::<String>::new());
    let link = adopted(&url, &kept).await.unwrap();
    link.commit(&channel(1), Some(Sequence(299))).unwrap();
    let receipt = link.last_receipt(&channel(1)).unwrap();
    assert_eq!(soon(receipt.committed()).await.unwrap(), Outcome::Committed);
    let all: Vec<_> = (0..300).map(|text| text.to_string()).collect();
    assert_eq!(landed(dir.path()), all);
    soon(link.shutdown(None)).await.unwrap();
    let gone = adopted(&url, &kept).await.unwrap_err();
    assert!(matches!(gone, Error::Lost(_)), "{gone}");

    let link = adopted(&url, &dropped).await.unwrap();
    link.rollback(&channel(1), Some(Sequence(4))).unwrap();
    soon(link.shutdown(None)).await.unwrap();
    assert_eq!(landed(dir.path()), all);
    assert_eq!(receiver.stats().memory_bytes, 0);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_receiver_that_has_lost_the_messages_is_found_out_before_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (first, url) = receiver(dir.path()).await;
    let state = handed(&url, 5).await;
    first.stop(None).await;
    drop(first);
    let (second, url) = receiver(dir.path()).await;
    let lost = adopted(&url, &state).await.unwrap_err();
    assert!(matches!(lost, Error::Lost(_)), "{lost}");
    second.stop(None).await;
    assert_eq!(landed(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn cuts_before_and_after_the_hand_over_lose_and_double_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(ReceiverOptions {
        urls: vec![format!("relink://127.0.0.1:0/t{TRANSACTIONS}")],
        spool: Some(dir.path().join("spool")),
        ..ReceiverOptions::default()
    });
    let receiver = Arc::new(receiver.await.unwrap());
    let cutter = Cutter::new(&receiver.urls()[0]).await;
    let url = format!("{}{TRANSACTIONS}", cutter.url(&receiver.urls()[0]));
    let link = relink::connect(&url, quick()).await.unwrap();
    cutter.cut_after(7, 200..2_000);
    cutter.cut();
    send(&link, &channel(1), 0..400).await;
    let handing = link.hand_over(Some(DEADLINE));
    let (state, ()) = tokio::join!(handing, async {
        cutter::until(|| cutter.cuts() >= 3).await;
        cutter.cut_no_more();
    });
    let link = adopted(&url, &state.unwrap()).await.unwrap();
    link.commit(&channel(1), Some(Sequence(399))).unwrap();
    cutter.cut();
    let receipt = link.last_receipt(&channel(1)).unwrap();
    assert_eq!(soon(receipt.committed()).await.unwrap(), Outcome::Committed);
    cutter.cut();
    soon(link.shutdown(None)).await.unwrap();
    let all: Vec<_> = (0..400).map(|text| text.to_string()).collect();
    assert_eq!(landed(dir.path()), all);
    receiver.stop(None).await;
}

#[tokio::test]
async fn a_cut_at_any_byte_before_the_hand_over_only_delays_it() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(ReceiverOptions {
        urls: vec![format!("relink://127.0.0.1:0/t{TRANSACTIONS}")],
        spool: Some(dir.path().join("spool")),
        ..ReceiverOptions::default()
    });
    let receiver = Arc::new(receiver.await.unwrap());
    let cutter = Cutter::new(&receiver.urls()[0]).await;
    let url = format!("{}{TRANSACTIONS}", cutter.url(&receiver.urls()[0]));
    let mut options = quick();
    // The pong of another ping is not that of a hand over.
    options.link.machine.ping_after = None;
    // The handshake, three messages, a ping and its pong; the last cut is behind all of them.
    let cuts: Vec<_> = (56..56 + 3 * 16 + 2 * 8 + 16).step_by(4).collect();
    for bytes in &cuts {
        let before = cutter.cuts();
        cutter.cut_after(1, *bytes..bytes + 1);
        let link = relink::connect(&url, options.clone()).await.unwrap();
        send(&link, &channel(1), 0..3).await;
        // At the latest the link's end ends its connection.
        let (state, ()) = tokio::join!(link.hand_over(Some(DEADLINE)), async {
            cutter::until(|| cutter.cuts() > before).await;
            cutter.cut_no_more();
        });
        let state = state.unwrap_or_else(|error| panic!("{bytes}: {error}"));
        let link = adopted(&url, &state).await.unwrap();
        link.commit(&channel(1), Some(Sequence(2))).unwrap();
        let receipt = link.last_receipt(&channel(1)).unwrap();
        let outcome = soon(receipt.committed()).await.unwrap();
        assert_eq!(outcome, Outcome::Committed, "{bytes}");
        soon(link.shutdown(None)).await.unwrap();
    }
    assert_eq!(landed(dir.path()), ["0", "1", "2"].repeat(cuts.len()));
    receiver.stop(None).await;
}

#[tokio::test]
async fn without_transactions_a_link_is_handed_over_when_all_is_consumed() {
    let (listener, url) = listening("").await;
    let link = relink::connect(&url, quick()).await.unwrap();
    send(&link, &channel(1), 0..2).await;
    let there = soon(listener.accept()).await.unwrap();
    let early = link.hand_over(Some(Duration::from_millis(20))).await;
    assert!(matches!(early, Err(Error::Timeout)), "{early:?}");
    there
        .send(&channel(9), &b"for you"[..], None)
        .await
        .unwrap();
    let taken = soon(link.receive()).await.unwrap().unwrap();
    for _ in 0..2 {
        let message = soon(there.receive()).await.unwrap().unwrap();
        there.consume(&message.channel, message.sequence).unwrap();
    }
    let refused = soon(link.hand_over(None)).await.unwrap_err();
    assert_eq!(refused.code(), "unconsumed");
    link.consume(&taken.channel, taken.sequence).unwrap();
    let state = soon(link.hand_over(None)).await.unwrap();
    let link = adopted(&url, &state).await.unwrap();
    send(&link, &channel(1), 2..3).await;
    let message = soon(there.receive()).await.unwrap().unwrap();
    assert_eq!(message.sequence, Sequence(2));
    there.send(&channel(9), &b"more"[..], None).await.unwrap();
    let message = soon(link.receive()).await.unwrap().unwrap();
    assert_eq!(message.sequence, Sequence(1));
}

#[tokio::test]
async fn what_cannot_be_handed_over_or_taken_says_why() {
    let (listener, url) = listening(TRANSACTIONS).await;
    let dir = tempfile::tempdir().unwrap();
    let kept = ConnectOptions {
        state: Some(dir.path().join("state")),
        ..quick()
    };
    let durable = relink::connect(&url, kept.clone()).await.unwrap();
    let there = soon(listener.accept()).await.unwrap();
    for (link, code) in [(&durable, "journaled"), (&there, "not_connector")] {
        let refused = soon(link.hand_over(None)).await.unwrap_err();
        assert_eq!(refused.code(), code);
    }
    let closing = relink::connect(&url, quick()).await.unwrap();
    send(&closing, &channel(1), 0..1).await;
    closing.close_channel(&channel(1)).unwrap();
    let refused = soon(closing.hand_over(None)).await.unwrap_err();
    assert_eq!(refused.code(), "channel_closing");
    closing.begin_shutdown().unwrap();
    let refused = soon(closing.hand_over(None)).await.unwrap_err();
    assert_eq!(refused.code(), "shutting_down");

    let state = handed(&url, 3).await;
    let wrong = adopted(&url, &state[1..]).await.unwrap_err();
    assert_eq!(wrong.code(), "wrong_state");
    let other = url.replace("/orders", "/others");
    assert_eq!(
        adopted(&other, &state).await.unwrap_err().code(),
        "other_endpoint"
    );
    let on_disk = soon(Box::pin(relink::adopt(&url, kept, &state)))
        .await
        .unwrap_err();
    assert_eq!(on_disk.code(), "journaled");
    let small = ConnectOptions {
        link: LinkOptions {
            machine: LinkConfig {
                send_window: 2,
                ..LinkOptions::default().machine
            },
            ..LinkOptions::default()
        },
        ..quick()
    };
    let too_many = soon(Box::pin(relink::adopt(&url, small, &state)))
        .await
        .unwrap_err();
    assert_eq!(too_many.code(), "wrong_state");
    listener.close().await;
    let refused = adopted(&url, &state).await.unwrap_err();
    assert_eq!(refused.code(), "relink.connect");
}
