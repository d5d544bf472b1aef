//! Requests and openings take turns, a ping of a half that ends is no timeout, and owed answers are charged.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use ackline::bpmux::Config;
use std::time::Duration;

use ackline::bpmux::{
    self, ConnectOptions, Connection, CreditPolicy, Error, Incoming, LinkOptions, ListenOptions,
};
use ackline_bpmux as machine;
use ackline_core::{Connection as _, SendQueue};
use ackline_link::FREE_BYTES;
use bytes::Buf as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;
use tokio::task::yield_now;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

/// A connector of which little may wait, and a listener that gives credit when it is told to.
async fn pair() -> (Connection, Connection) {
    let options = ListenOptions {
        link: LinkOptions {
            credit: CreditPolicy::Manual.into(),
            ..LinkOptions::default()
        },
        ..ListenOptions::default()
    };
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let options = ConnectOptions {
        link: LinkOptions {
            send_bytes: 1_000,
            ..LinkOptions::default()
        },
        ..ConnectOptions::default()
    };
    let left = bpmux::connect(listener.url(), options).await.unwrap();
    let right = soon(listener.accept()).await.unwrap();
    (left, right)
}

#[tokio::test]
async fn nobody_who_comes_later_begins_before_who_waits() {
    let (left, right) = pair().await;
    let first = soon(left.request(vec![0; 1_000])).await.unwrap();
    // No more may wait: one request does, and then openings and requests.
    let mut waiting = Vec::new();
    for number in 0..20_u8 {
        let left = left.clone();
        waiting.push(tokio::spawn(async move {
            // A dropped call is given up.
            Ok::<_, Error>(if number % 3 == 0 {
                (Some(left.request(vec![number; 1_000]).await?), None)
            } else {
                (None, Some(left.open_sink(vec![number; 1_000]).await?))
            })
        }));
        yield_now().await;
    }
    for number in 0..=20_u8 {
        right.stream().grant_credit(1_000).unwrap();
        let begun = loop {
            if let Ok(begun) = timeout(Duration::from_millis(1), right.accept()).await {
                break begun.unwrap().unwrap();
            }
            // Room comes and goes: a call that tries now has not waited.
            let tried = left.try_request("late");
            let is_last = number >= 19;
            assert!(is_last || matches!(tried, Err(Error::Blocked)), "{tried:?}");
        };
        let payload = match &begun {
            Incoming::Request(request) => request.payload().to_bytes(),
            Incoming::Sink(_, payload) => payload.to_bytes(),
            other => panic!("{other:?}"),
        };
        let expected = number.saturating_sub(1);
        assert_eq!((payload[0], payload.len()), (expected, 1_000));
    }
    for one in waiting {
        let begun = soon(one).await.unwrap().unwrap();
        drop(begun);
    }
    drop(first);
}

#[tokio::test]
async fn who_gives_its_turn_up_holds_nobody_up() {
    let (left, right) = pair().await;
    let _first = soon(left.request(vec![0; 1_000])).await.unwrap();
    let begin = |number: u8| {
        let left = left.clone();
        tokio::spawn(async move { left.request(vec![number; 1_000]).await })
    };
    let (given_up, next) = (begin(1), begin(2));
    yield_now().await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    right.stream().grant_credit(2_000).unwrap();
    let next = soon(next).await.unwrap().unwrap();
    for expected in [0, 2] {
        let Some(Incoming::Request(request)) = soon(right.accept()).await.unwrap() else {
            panic!("a request was sent");
        };
        assert_eq!(request.payload().to_bytes()[0], expected);
    }
    drop(next);
}

#[tokio::test]
async fn a_ping_of_what_ends_meanwhile_is_neither_answered_nor_late() {
    let (left, right) = pair().await;
    right.stream().grant_credit(10).unwrap();
    let stream = left.open_stream("x");
    let (stream, begun) = tokio::join!(soon(stream), soon(right.accept()));
    let (stream, Some(Incoming::Stream(sink, _))) = (stream.unwrap(), begun.unwrap()) else {
        panic!("a stream was opened");
    };
    assert!(soon(stream.ping(LONG)).await.is_ok());
    // The writer's close is on its way when the ping comes: it is not answered.
    let closing = tokio::spawn(async move { sink.close("").await });
    yield_now().await;
    let pinged = soon(stream.ping(LONG)).await;
    assert_eq!(pinged.unwrap_err().code(), "already_ended");
    soon(closing).await.unwrap().unwrap();
}

/// As many pings of the top-level as there are.
fn pings(count: usize) -> Vec<u8> {
    let config = Config::default();
    let mut end = machine::Connection::new(std::time::Instant::now(), config);
    let mut out = SendQueue::new();
    end.poll_transmit(std::time::Instant::now(), &mut out);
    out.advance(out.remaining());
    end.ping(machine::Target::Top).unwrap();
    end.poll_transmit(std::time::Instant::now(), &mut out);
    out.copy_to_bytes(out.remaining()).repeat(count)
}

#[tokio::test]
async fn pongs_that_a_peer_does_not_read_are_charged_to_the_memory() {
    const MEMORY: usize = 1 << 20;
    const PEERS: usize = 4;
    let options = ListenOptions {
        memory: MEMORY as u64,
        ..ListenOptions::default()
    };
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let address = listener.url().strip_prefix("bpmux://").unwrap().to_owned();
    let (mut peers, mut accepted) = (Vec::new(), Vec::new());
    let one = pings(1).len();
    for _ in 0..PEERS {
        let socket = TcpSocket::new_v4().unwrap();
        // The buffer is so small that owed answers stay at the listener.
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut peer = socket.connect(address.parse().unwrap()).await.unwrap();
        accepted.push(soon(listener.accept()).await.unwrap());
        let flood = pings(100_000);
        for _ in 0..400 {
            let written = timeout(Duration::from_millis(300), peer.write_all(&flood)).await;
            if written.is_err() {
                break;
            }
        }
        peers.push(peer);
    }
    let taken: u64 = accepted.iter().map(|one| one.link_stats().bytes_in).sum();
    let pings = usize::try_from(taken).unwrap() / one;
    // Pongs and input that the transports took are not in the account.
    let transports = accepted
        .iter()
        .map(|one| one.link_stats().bytes_out)
        .sum::<u64>();
    let sent = usize::try_from(transports).unwrap() / one;
    // Pings that were read wait until their pongs have room: they are input still. Pongs that were written into
    // a link's buffer are not at its transport yet.
    let buffers = PEERS * 2 * (256 << 10) / one;
    let most = (MEMORY + PEERS * FREE_BYTES) / 32 + PEERS * FREE_BYTES / one + buffers;
    assert!(pings > sent, "some are owed");
    assert!(pings - sent < most, "{pings} pings, {sent} pongs, {most}");
    // Another peer is served.
    let good = bpmux::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    let at_listener = soon(listener.accept()).await.unwrap();
    assert!(soon(good.ping(LONG)).await.is_ok());
    drop((peers, at_listener));
}

/// One message of 1 GiB through 16 MiB, without another process: the bytes are zeros that take no memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_far_above_the_memory_is_received_part_by_part() {
    const BYTES: usize = 1 << 30;
    let options = ListenOptions {
        link: LinkOptions {
            machine: Config {
                parts: true,
                ..LinkOptions::default().machine
            },
            ..LinkOptions::default()
        },
        memory: 16 << 20,
        ..ListenOptions::default()
    };
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let left = bpmux::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    let sink = soon(left.open_sink("")).await.unwrap();
    sink.send(vec![0; BYTES]).await.unwrap();
    let Some(Incoming::Sink(stream, _)) = soon(right.accept()).await.unwrap() else {
        panic!("a sink was opened");
    };
    // The message cannot be handed out whole; the parts taken for that are not lost.
    let refused = soon(stream.receive()).await.unwrap_err();
    assert_eq!(refused.code(), "bpmux.too_large");
    assert_eq!(
        refused.to_string(),
        "a message has more than 16777216 bytes (max_payload_bytes), and comes in parts: receive its parts"
    );
    let (mut came, mut parts, mut most) = (0, 0, 0);
    while let Some(part) = soon(stream.receive_part()).await.unwrap() {
        came += part.payload.bytes();
        parts += 1;
        most = most.max(right.link().call(|session, _| session.held_bytes()));
        assert_eq!(part.is_last, came == BYTES);
        if part.is_last {
            break;
        }
    }
    assert_eq!(came, BYTES);
    assert!(
        parts > 1_000 && most < 16 << 20,
        "{parts} parts, {most} bytes held"
    );
    // The next ones are whole again.
    sink.send("short").await.unwrap();
    sink.send(vec![7; 100_000]).await.unwrap();
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "short"
    );
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().bytes(),
        100_000
    );
    let closing = tokio::spawn(sink.close(""));
    assert!(soon(stream.receive_part()).await.unwrap().is_none());
    soon(closing).await.unwrap().unwrap();
}
