//! Links over sockets: messages, receipts, cuts, and the reports of lost links.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod room;

use ackline::relink::KeepOptions;
use ackline::relink::LinkConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::cutter::{Cutter, DEADLINE, soon, until};
use ackline::core::Sequence;
use ackline::relink::{
    self, ChannelId, ConnectOptions, EndpointConfig, EndpointName, Error, Event, Interest, Link,
    LinkOptions, ListenOptions, Listener, Outcome, Parameters, Payload,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ANY: &str = "relink://127.0.0.1:0/orders";

fn channel(number: u32) -> ChannelId {
    ChannelId::from(number)
}

fn transactional() -> Parameters {
    Parameters {
        connector_transactions: true,
        ..relink::PARAMETERS
    }
}

fn options(link: LinkOptions) -> (ConnectOptions, ListenOptions) {
    let connect = ConnectOptions {
        link: link.clone(),
        ..ConnectOptions::default()
    };
    let listen = ListenOptions {
        link,
        ..ListenOptions::default()
    };
    (connect, listen)
}

/// Both ends of a link.
async fn pair((connect, listen): (ConnectOptions, ListenOptions)) -> (Link, Link, Listener) {
    let listener = relink::listen(ANY, listen).await.unwrap();
    let connector = relink::connect(listener.url(), connect).await.unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    (connector, accepted, listener)
}

/// Both ends of a link through a proxy.
async fn cuttable(
    (connect, listen): (ConnectOptions, ListenOptions),
) -> (Link, Link, Listener, Cutter) {
    let listener = relink::listen(ANY, listen).await.unwrap();
    let cutter = Cutter::new(listener.url()).await;
    let connector = relink::connect(&cutter.url(listener.url()), connect).await;
    let accepted = soon(listener.accept()).await.unwrap();
    (connector.unwrap(), accepted, listener, cutter)
}

/// The next messages, as text, consumed.
async fn take(link: &Link, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        let message = soon(link.receive()).await.unwrap().expect("one more");
        link.consume(&message.channel, message.sequence).unwrap();
        let parts = message.payload.parts().map(|part| part.to_vec());
        texts.push(String::from_utf8(parts.collect::<Vec<_>>().join(&b'|')).unwrap());
    }
    texts
}

#[tokio::test]
async fn messages_go_both_ways_and_are_acknowledged() {
    let (one, other, _listener) = pair(options(LinkOptions::default())).await;
    for (from, to) in [(&one, &other), (&other, &one)] {
        let parts = [&b"a"[..], b"", b"c"].map(Bytes::from_static).to_vec();
        let first = from
            .send(&channel(1), Payload::from_parts(parts), None)
            .await
            .unwrap();
        let second = from.try_send(&channel(2), b"second".as_slice()).unwrap();
        assert_eq!(take(to, 2).await, ["a||c", "second"]);
        soon(first.consumed()).await.unwrap();
        soon(second.consumed()).await.unwrap();
        assert!(second.is_received() && second.sequence() == Sequence(0));
        assert_eq!(from.stats().unacknowledged_bytes, 0);
    }
    assert_eq!(one.key(), other.key());
    assert_eq!(other.endpoint_name(), Some("orders"));
    assert!(other.peer().unwrap().name.starts_with("127.0.0.1:"));
    assert!(soon(one.ping(None)).await.unwrap() < DEADLINE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_was_closed_has_left_its_address() {
    for _ in 0..50 {
        let listener = relink::listen("relink://127.0.0.1:0/orders", ListenOptions::default());
        let listener = listener.await.unwrap();
        let address = listener.url()["relink://".len()..].strip_suffix("/orders");
        soon(listener.close()).await;
        let error = std::net::TcpStream::connect(address.unwrap()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        soon(listener.close()).await; // a second time is none
    }
}

#[tokio::test]
async fn a_multicast_reaches_every_channel_and_each_has_its_receipt() {
    let (one, other, _listener) = pair(options(LinkOptions::default())).await;
    let channels = [channel(3), channel(1), channel(3)];
    let receipts = one
        .send_to(&channels, b"to all".as_slice(), None)
        .await
        .unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let message = soon(other.receive()).await.unwrap().unwrap();
        seen.push((message.channel, message.sequence.0));
    }
    assert_eq!(seen, [(channel(3), 0), (channel(1), 0), (channel(3), 1)]);
    other.consume(&channel(3), Sequence(0)).unwrap();
    soon(receipts[0].consumed()).await.unwrap();
    assert!(!receipts[1].is_consumed() && !receipts[2].is_consumed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_100_000_messages_arrive_once_and_in_order_however_often_they_are_cut() {
    const MESSAGES: u32 = 100_000;
    let (one, other, _listener, cutter) = cuttable(options(LinkOptions::default())).await;
    cutter.cut_after(7, 1_000..200_000);
    cutter.cut();
    let sending = tokio::spawn(async move {
        let mut last = Vec::new();
        for number in 0..MESSAGES {
            let on = channel(number % 3);
            let payload = Bytes::copy_from_slice(&number.to_le_bytes());
            last.push(one.send(&on, payload, None).await.unwrap());
            if last.len() > 3 {
                last.remove(0);
            }
        }
        for receipt in last {
            receipt.consumed().await.unwrap();
        }
        one
    });
    let mut next = [0_u32, 1, 2];
    let mut count = 0;
    while count < MESSAGES {
        let messages = soon(other.receive_many(1_000)).await.unwrap().unwrap();
        for message in messages {
            let on = usize::try_from(message.channel.to_u64().unwrap()).unwrap();
            let payload = message.payload.parts().next().unwrap();
            assert_eq!(payload, next[on].to_le_bytes().as_slice());
            assert_eq!(message.sequence.0, next[on] / 3);
            next[on] += 3;
            count += 1;
            other.consume(&message.channel, message.sequence).unwrap();
        }
    }
    let one = soon(sending).await.unwrap();
    assert!(cutter.cuts() > 10, "{} cuts", cutter.cuts());
    assert_eq!(one.stats().unacknowledged_bytes, 0);
    assert_eq!(other.stats().link.messages_received, u64::from(MESSAGES));
}

#[tokio::test]
async fn a_transaction_ends_as_both_sides_say_also_across_a_cut() {
    let (mut connect, mut listen) = options(LinkOptions::default());
    connect.parameters = transactional();
    listen.parameters = transactional();
    let (one, other, _listener, cutter) = cuttable((connect, listen)).await;
    let mut receipts = Vec::new();
    for number in 0..4_u8 {
        receipts.push(one.try_send(&channel(1), vec![number]).unwrap());
    }
    assert_eq!(
        one.commit(&channel(1), Some(Sequence(1))).unwrap(),
        Sequence(1)
    );
    assert_eq!(one.rollback(&channel(1), None).unwrap(), Sequence(2));
    assert_eq!(one.commit(&channel(1), None).unwrap(), Sequence(3));
    cutter.cut();
    take(&other, 4).await;
    let mut decisions = Vec::new();
    while decisions.last() != Some(&(true, 3)) {
        let decided = soon(other.decided()).await.unwrap();
        decisions.push((decided.is_commit, decided.through.0));
    }
    assert_eq!(decisions, [(true, 1), (false, 2), (true, 3)]);
    other.committed(&channel(1), Some(Sequence(1))).unwrap();
    cutter.cut();
    other.uncommitted(&channel(1), None).unwrap();
    let expected = [
        Outcome::Committed,
        Outcome::Committed,
        Outcome::RolledBack,
        Outcome::Uncommitted,
    ];
    for (receipt, outcome) in receipts.iter().zip(expected) {
        assert_eq!(soon(receipt.committed()).await.unwrap(), outcome);
    }
}

#[tokio::test]
async fn a_channel_is_closed_and_opened_again() {
    let (one, other, _listener) = pair(options(LinkOptions::default())).await;
    for round in 0..2 {
        let receipt = one.try_send(&channel(1), vec![b'0' + round]).unwrap();
        assert_eq!(receipt.sequence(), Sequence(0));
        one.close_channel(&channel(1)).unwrap();
        let refused = one.try_send(&channel(1), b"late".as_slice()).unwrap_err();
        assert_eq!(refused.code(), "channel_closing");
        assert_eq!(
            take(&other, 1).await,
            [(b'0' + round) as char].map(String::from)
        );
        loop {
            match soon(one.event()).await.unwrap() {
                Event::Closed {
                    channel,
                    unacknowledged,
                } => {
                    assert_eq!((channel, unacknowledged), (self::channel(1), 0));
                    break;
                }
                other => assert!(matches!(
                    other,
                    Event::Connected { .. } | Event::PeerShutdown
                )),
            }
        }
        soon(receipt.consumed()).await.unwrap();
    }
}

#[tokio::test]
async fn a_link_is_over_when_both_sides_have_shut_down() {
    let (one, other, listener) = pair(options(LinkOptions::default())).await;
    one.try_send(&channel(1), b"last".as_slice()).unwrap();
    let closing = tokio::spawn({
        let one = one.clone();
        async move { one.shutdown(None).await }
    });
    assert_eq!(take(&other, 1).await, ["last"]);
    assert_eq!(soon(other.receive()).await.unwrap(), None);
    let late = other.shutdown(Some(DEADLINE));
    late.await.unwrap();
    soon(closing).await.unwrap().unwrap();
    let closed = one.try_send(&channel(1), b"late".as_slice()).unwrap_err();
    assert!(matches!(closed, Error::Closed), "{closed}");
    until(|| listener.links() == 0).await;
}

#[tokio::test]
async fn a_lost_link_tells_what_was_not_acknowledged() {
    let link = LinkOptions {
        machine: LinkConfig {
            ack_delay: Duration::ZERO,
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    };
    let (one, other, listener, cutter) = cuttable(options(link)).await;
    let first = one.try_send(&channel(2), b"consumed".as_slice()).unwrap();
    assert_eq!(take(&other, 1).await, ["consumed"]);
    soon(first.consumed()).await.unwrap();
    let pending = one.try_send(&channel(2), b"two".as_slice()).unwrap();
    one.try_send(&channel(1), b"one".as_slice()).unwrap();
    soon(other.receive_many(2)).await.unwrap();
    // Another listener at the same place, which knows nothing of it.
    let second = relink::listen(ANY, ListenOptions::default()).await.unwrap();
    cutter.lead_to(Some(second.url()));
    cutter.cut();
    let error = soon(pending.consumed()).await.unwrap_err();
    let Error::Lost(lost) = &error else {
        unreachable!("{error}");
    };
    let told: Vec<_> = lost
        .unacknowledged
        .iter()
        .map(|one| {
            (
                one.channel.to_u64().unwrap(),
                one.sequence.0,
                one.payload.parts().next().unwrap(),
            )
        })
        .collect();
    let text = Bytes::from_static;
    assert_eq!(told, [(1, 0, text(b"one")), (2, 1, text(b"two"))]);
    assert_eq!(error.code(), "relink.lost");
    for error in [
        one.receive().await.map(|_| ()).unwrap_err(),
        one.try_send(&channel(1), b"late".as_slice())
            .map(|_| ())
            .unwrap_err(),
        one.shutdown(None).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Lost(_)), "{error}");
    }
    assert_eq!(second.links(), 0, "nothing was sent to another link");
    drop((other, listener));
}

#[tokio::test]
async fn an_orphan_is_lost_in_time_and_its_connector_is_told() {
    let (connect, mut listen) = options(LinkOptions::default());
    listen.keep.orphan_after = Duration::from_millis(50);
    let (one, other, listener, cutter) = cuttable((connect, listen)).await;
    other
        .try_send(&channel(9), b"never read".as_slice())
        .unwrap();
    let url = listener.url().to_owned();
    cutter.lead_to(None);
    cutter.cut();
    let error = soon(other.receive()).await.unwrap_err();
    let Error::Lost(lost) = &error else {
        unreachable!("{error}");
    };
    assert_eq!(lost.unacknowledged.len(), 1);
    assert!(lost.reason.contains("did not come back"), "{lost}");
    assert_eq!(listener.links(), 0);
    cutter.lead_to(Some(&url));
    let error = soon(one.receive()).await;
    // Messages that had come before may still be taken.
    let error = match error {
        Ok(_) => soon(one.receive()).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Lost(_)), "{error}");
}

#[tokio::test]
async fn a_connector_gives_up_in_time() {
    let (mut connect, listen) = options(LinkOptions::default());
    connect.reconnect.lost_after = Some(Duration::from_millis(100));
    let (one, _other, _listener, cutter) = cuttable((connect, listen)).await;
    cutter.lead_to(None);
    cutter.cut();
    let error = soon(one.receive()).await.unwrap_err();
    assert!(error.to_string().contains("lost_after"), "{error}");
}

#[tokio::test]
async fn a_connector_gives_up_what_its_listener_refuses_again_and_again() {
    let (mut connect, mut listen) = options(LinkOptions::default());
    connect.stuck_after = Some(4);
    connect.reconnect.reconnect_max = Duration::from_millis(20);
    listen.link.machine.limits.max_message_bytes = 1_000;
    let (one, other, _listener) = pair((connect, listen)).await;
    let on = channel(7);
    let small = one.send(&on, b"small".as_slice(), None).await.unwrap();
    take(&other, 1).await;
    soon(small.consumed()).await.unwrap();
    for size in [1_001, 5_000, 5_000, 900] {
        let message = Bytes::from(vec![b'x'; size]);
        one.send(&on, message, None).await.unwrap();
    }
    let error = soon(one.receive()).await.unwrap_err();
    let Error::Lost(lost) = &error else {
        panic!("{error}");
    };
    assert_eq!(lost.unacknowledged.len(), 4);
    let text = error.to_string();
    for says in [
        "4 connections in a row have ended with nothing done",
        "the largest message that is not acknowledged is number 2 of channel 07000000 with 5000 bytes",
    ] {
        assert!(text.contains(says), "{text}");
    }
}

#[tokio::test]
async fn one_socket_serves_several_endpoints_and_refuses_others() {
    let spare = EndpointConfig {
        endpoint_name: EndpointName::try_from("spare").unwrap(),
        parameters: Parameters::default(),
    };
    let listen = ListenOptions {
        endpoints: vec![spare],
        ..ListenOptions::default()
    };
    let listener = relink::listen(ANY, listen).await.unwrap();
    let base = listener.url().strip_suffix("/orders").unwrap();
    let sizes = "?connector_channel_id_size=0&listener_channel_id_size=0";
    let spare = relink::connect(&format!("{base}/spare{sizes}"), ConnectOptions::default()).await;
    let accepted = soon(listener.accept()).await.unwrap();
    assert_eq!(accepted.endpoint_name(), Some("spare"));
    let spare = spare.unwrap();
    spare
        .try_send(&ChannelId::IMPLICIT, b"implicit".as_slice())
        .unwrap();
    assert_eq!(take(&accepted, 1).await, ["implicit"]);
    for wrong in ["/nowhere", "/spare", "/orders?listener_transactions=true"] {
        let url = format!("{base}{wrong}");
        let refused = relink::connect(&url, ConnectOptions::default()).await;
        let error = refused.unwrap_err();
        assert_eq!(error.code(), "relink.connect");
        assert!(error.to_string().contains("ended the handshake"), "{error}");
    }
    assert_eq!(listener.links(), 1);
}

#[tokio::test]
async fn a_wait_for_readiness_takes_nothing() {
    let window = LinkOptions {
        machine: LinkConfig {
            send_window: 1,
            ack_delay: Duration::ZERO,
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    };
    let (one, other, _listener) = pair(options(window)).await;
    soon(one.ready(Interest::Room(channel(1)))).await;
    let receipt = one.try_send(&channel(1), b"1".as_slice()).unwrap();
    soon(other.ready(Interest::Message)).await;
    soon(other.ready(Interest::Message)).await;
    let room = tokio::spawn({
        let one = one.clone();
        async move { one.ready(Interest::Room(channel(1))).await }
    });
    assert_eq!(receipt.outcome().unwrap(), None);
    assert_eq!(take(&other, 1).await, ["1"]);
    soon(room).await.unwrap();
    assert!(receipt.is_consumed() && receipt.end().is_none());
    soon(one.ready(Interest::Event)).await;
    soon(one.ready(Interest::Connected)).await;
    other.discard().unwrap();
    soon(other.ready(Interest::Decision)).await;
    soon(one.ready(Interest::End)).await;
}

#[tokio::test]
async fn a_link_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relink.sock");
    let url = format!("relink+unix://{}?endpoint=all%20orders", path.display());
    let listener = relink::listen(&url, ListenOptions::default())
        .await
        .unwrap();
    assert_eq!(listener.url(), url);
    let one = relink::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    let other = soon(listener.accept()).await.unwrap();
    one.try_send(&channel(1), b"unix".as_slice()).unwrap();
    assert_eq!(take(&other, 1).await, ["unix"]);
}

#[tokio::test]
async fn what_the_listener_refuses_comes_again_after_longer_and_longer_waits() {
    let (connect, mut listen) = options(LinkOptions::default());
    listen.link.machine.limits.max_message_parts = 1;
    let (one, _other, _listener) = pair((connect, listen)).await;
    let parts = Payload::from_parts(vec![Bytes::new(); 2]);
    one.try_send(&channel(1), parts).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let transports = || one.stats().link.transports;
    soon(async {
        while transports() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(transports() < 20, "{} connections", transports());
}

#[tokio::test]
async fn too_many_links_are_refused() {
    let listen = ListenOptions {
        keep: KeepOptions {
            max_links: 1,
            ..KeepOptions::default()
        },
        ..ListenOptions::default()
    };
    let listener = relink::listen(ANY, listen).await.unwrap();
    let one = relink::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    assert!(
        relink::connect(listener.url(), ConnectOptions::default())
            .await
            .is_err()
    );
    drop((one, accepted));
    until(|| listener.links() == 0).await;
    relink::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
}

/// A listener that agrees to every handshake, always to the same link, then says `after` and waits.
async fn stubborn(after: &'static [u8]) -> (String, Arc<AtomicU32>) {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("relink://{}/n", socket.local_addr().unwrap());
    let resumes = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&resumes);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = socket.accept().await.unwrap();
            let (mut version, mut asked) = ([0; 8], [0; 24]);
            stream.read_exact(&mut version).await.unwrap();
            stream.write_all(&version).await.unwrap();
            stream.read_exact(&mut asked).await.unwrap();
            let ident = [1_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat();
            stream.write_all(&ident).await.unwrap();
            // The first time it is a new link, which is cut.
            if asked[8..] != [0; 16] {
                counted.fetch_add(1, Ordering::Relaxed);
                stream.write_all(after).await.unwrap();
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    });
    (url, resumes)
}

#[tokio::test]
async fn a_link_whose_resume_fails_three_times_in_the_same_way_is_lost() {
    // received 5 on channel 9, on which nothing was ever sent.
    let unknown = b"\x0d\0\x09\0\0\0\0\0\x05\0\0\0\0\0\0\0";
    let (url, resumes) = stubborn(unknown).await;
    let link = relink::connect(&url, ConnectOptions::default())
        .await
        .unwrap();
    let Error::Lost(lost) = soon(link.receive()).await.unwrap_err() else {
        unreachable!("it cannot be resumed");
    };
    assert!(lost.reason.contains("three resumes"), "{lost}");
    assert_eq!(resumes.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn who_waits_for_a_receipt_of_a_link_that_is_let_go_is_told() {
    for is_dropped in [false, true] {
        let (one, other, _listener) = pair(options(LinkOptions::default())).await;
        let receipt = one.try_send(&channel(1), b"kept back".as_slice()).unwrap();
        let waiting = tokio::spawn({
            let receipt = receipt.clone();
            async move { receipt.consumed().await }
        });
        // It came, and is not consumed.
        soon(other.receive()).await.unwrap().unwrap();
        if is_dropped {
            drop(one);
        } else {
            one.let_go();
            assert!(matches!(soon(one.receive()).await, Err(Error::Lost(_))));
        }
        for told in [soon(waiting).await.unwrap(), soon(receipt.consumed()).await] {
            let Err(Error::Lost(lost)) = told else {
                panic!("{told:?}");
            };
            assert_eq!(lost.unacknowledged.len(), 1);
            let payload = lost.unacknowledged[0].payload.parts().next();
            assert_eq!(payload, Some(Bytes::from_static(b"kept back")));
        }
        assert!(matches!(
            soon(receipt.committed()).await,
            Err(Error::Lost(_))
        ));
    }
}
