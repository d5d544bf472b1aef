//! Both ends of a connection through the Rust API, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

mod halves;

use ackline::bpmux::Config;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ackline::bpmux::{
    self, ConnectOptions, Connection, CreditPolicy, Error, Incoming, LinkOptions, ListenOptions,
    Sink, Stream,
};
use ackline_core::OpenError;
use ackline_link::End;
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn pair() -> (Connection, Connection) {
    pair_with(LinkOptions::default(), LinkOptions::default()).await
}

/// A connector and the connection that its listener accepted.
async fn pair_with(left: LinkOptions, right: LinkOptions) -> (Connection, Connection) {
    let options = ListenOptions {
        link: right,
        ..ListenOptions::default()
    };
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let options = ConnectOptions {
        link: left,
        ..ConnectOptions::default()
    };
    let left = bpmux::connect(listener.url(), options).await.unwrap();
    let right = timeout(LONG, listener.accept()).await.unwrap().unwrap();
    (left, right)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

async fn next(connection: &Connection) -> Incoming {
    let next = soon(connection.accept()).await.unwrap();
    next.expect("something is begun")
}

async fn drain(stream: &Stream) -> Vec<Bytes> {
    let mut all = Vec::new();
    while let Some(message) = soon(stream.receive()).await.unwrap() {
        all.push(message.to_bytes());
    }
    all
}

/// Answers every request with its payload, until the peer closes the top-level.
fn echo(connection: &Connection) -> tokio::task::JoinHandle<usize> {
    let connection = connection.clone();
    tokio::spawn(async move {
        let mut answered = 0;
        while let Ok(Some(incoming)) = connection.accept().await {
            if let Incoming::Request(request) = incoming {
                let payload = request.payload().to_bytes();
                request.respond(payload).unwrap();
                answered += 1;
            }
        }
        answered
    })
}

#[tokio::test]
async fn a_listener_counts_strangers_and_health_checks() {
    let options = ListenOptions::default();
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let address = listener.url().replace("bpmux://", "");
    for bytes in [&b"POST / HTTP/1.1\r\n\r\n"[..], b""] {
        let mut stranger = TcpStream::connect(&address).await.unwrap();
        let connection = soon(listener.accept()).await.unwrap();
        stranger.write_all(bytes).await.unwrap();
        stranger.shutdown().await.unwrap();
        let ended = soon(connection.accept()).await;
        if !bytes.is_empty() {
            let Err(Error::Ended(End::Foreign { code, .. })) = ended else {
                panic!("it is refused");
            };
            assert_eq!(code, "link.http");
            // A connection that is dropped at once is counted too.
            drop(connection);
        }
        let mut rest = Vec::new();
        let _ = soon(stranger.read_to_end(&mut rest)).await;
    }
    soon(async {
        while listener.stats().health_checks < 1 || listener.stats().turned_away.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let stats = listener.stats();
    assert_eq!(
        (stats.health_checks, stats.turned_away["link.http"]),
        (1, 1)
    );
}

#[tokio::test]
async fn requests_are_answered_in_both_directions() {
    let (left, right) = pair().await;
    let (at_right, at_left) = (echo(&right), echo(&left));
    let big: Bytes = vec![7; 1 << 20].into();
    for (one, payload) in [
        (&left, Bytes::from("ping")),
        (&right, big),
        (&left, Bytes::new()),
    ] {
        let answer = soon(one.call(payload.clone(), None)).await.unwrap();
        assert_eq!(answer.to_bytes(), payload);
    }
    let pending: Vec<_> = (0..500_u32)
        .map(|number| {
            let left = left.clone();
            tokio::spawn(async move { left.call(number.to_be_bytes().to_vec(), None).await })
        })
        .collect();
    for (number, answer) in (0_u32..).zip(pending) {
        let answer = soon(answer).await.unwrap().unwrap();
        assert_eq!(answer.to_bytes(), number.to_be_bytes().to_vec());
    }
    assert_eq!(right.stats().peer_requests, 0);
    left.close("").unwrap();
    right.close("").unwrap();
    assert_eq!(soon(at_right).await.unwrap(), 502);
    assert_eq!(soon(at_left).await.unwrap(), 1);
    soon(left.shutdown(Some(LONG))).await.unwrap();
    soon(right.shutdown(Some(LONG))).await.unwrap();
}

#[tokio::test]
async fn a_request_is_closed_cancelled_or_too_late() {
    let (left, right) = pair().await;
    let response = left.request("a").await.unwrap();
    let Incoming::Request(request) = next(&right).await else {
        panic!("a request came");
    };
    request.close("no").unwrap();
    let refused = soon(response.response()).await;
    assert!(matches!(refused, Err(Error::Closed(why)) if why == "no"));

    let response = left.request("b").await.unwrap();
    let Incoming::Request(request) = next(&right).await else {
        panic!("a request came");
    };
    assert_eq!(request.payload().to_bytes(), "b");
    assert!(soon(response.ping(LONG)).await.is_ok());
    response.cancel("enough").unwrap();
    assert_eq!(soon(request.cancelled()).await.unwrap(), "enough");
    assert!(matches!(request.respond("late"), Err(Error::Cancelled(_))));

    // Dropping a request answers it too.
    let response = left.request("c").await.unwrap();
    drop(next(&right).await);
    let refused = soon(response.response()).await;
    assert!(matches!(refused, Err(Error::Closed(why)) if why == "dropped"));

    // A caller that gives up waiting cancels its request.
    let late = left.call("d", Some(Duration::from_millis(50))).await;
    assert!(matches!(late, Err(Error::Timeout)));
    let Incoming::Request(request) = next(&right).await else {
        panic!("a request came");
    };
    assert_eq!(soon(request.cancelled()).await.unwrap(), "");
}

#[tokio::test]
async fn a_request_that_was_given_up_is_not_answered() {
    let (left, right) = pair().await;
    let response = left.request("question").await.unwrap();
    let _request = next(&right).await;
    response.cancel("enough").unwrap();
    let is_ended = |told: &Error| matches!(told, Error::Usage(why) if why.code == "already_ended");
    assert!(is_ended(&soon(response.response()).await.unwrap_err()));
    assert!(is_ended(&response.cancel("again").unwrap_err()));
}

#[tokio::test]
async fn a_cancel_is_told_also_after_the_end_of_its_connection() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    soon(stream.cancel("enough")).await.unwrap();
    drop((stream, right));
    soon(left.ended()).await;
    for sent in [sink.try_send("x"), sink.send("x").await] {
        assert!(matches!(sent, Err(Error::Cancelled(why)) if why == "enough"));
    }
    assert_eq!(soon(sink.cancelled()).await.unwrap(), "enough");
}

#[tokio::test]
async fn the_top_level_carries_messages_and_closes_in_order() {
    let (left, right) = pair().await;
    left.sink().send("hello").await.unwrap();
    assert_eq!(
        soon(right.stream().receive())
            .await
            .unwrap()
            .unwrap()
            .to_bytes(),
        "hello"
    );
    assert!(soon(left.ping(LONG)).await.unwrap() < LONG);
    let sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    left.close("done").unwrap();
    assert!(soon(right.accept()).await.unwrap().is_none());
    assert_eq!(right.stream().closed().unwrap(), "done");
    let refused = left.request("more").await;
    assert!(matches!(refused, Err(Error::Usage(why)) if why.code == "top_level_closed"));
    // Open entities go on, and the connection waits for them.
    right.close("").unwrap();
    sink.send("still").await.unwrap();
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "still"
    );
    let waits = left.shutdown(Some(Duration::from_millis(50))).await;
    assert!(matches!(waits, Err(Error::Timeout)));
    let (closed, end) = tokio::join!(soon(sink.close("")), soon(stream.receive()));
    closed.unwrap();
    assert!(end.unwrap().is_none());
    soon(left.shutdown(Some(LONG))).await.unwrap();
    soon(right.shutdown(Some(LONG))).await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_connection_is_told_to_everything_on_it() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let stream = left.open_stream("").await.unwrap();
    let response = left.request("?").await.unwrap();
    drop(right);
    assert!(matches!(
        soon(response.response()).await,
        Err(Error::Ended(_))
    ));
    assert!(matches!(soon(stream.receive()).await, Err(Error::Ended(_))));
    assert!(matches!(soon(sink.cancelled()).await, Err(Error::Ended(_))));
    assert!(matches!(sink.try_send("x"), Err(Error::Ended(_))));
    assert!(matches!(sink.send("x").await, Err(Error::Ended(_))));
    assert!(matches!(left.request("x").await, Err(Error::Ended(_))));
    assert!(matches!(soon(left.accept()).await, Err(Error::Ended(_))));
    assert!(matches!(left.open_sink("").await, Err(Error::Ended(_))));
    assert!(matches!(soon(sink.close("")).await, Err(Error::Ended(_))));
}

#[tokio::test]
async fn a_shutdown_that_leaves_something_open_is_none() {
    let (left, right) = pair().await;
    let _sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    let (shut, ()) = tokio::join!(soon(left.shutdown(Some(LONG))), async {
        while right.accept().await.unwrap().is_some() {}
        // At once: the sink is not even cancelled.
        right.link().abort();
        drop((stream, right));
    });
    assert!(matches!(shut, Err(Error::Ended(_))), "{shut:?}");
}

/// The output that a future has at once: nothing else runs meanwhile.
fn at_once<F: Future>(what: F) -> Option<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(what).poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn what_has_no_bytes_waits_for_room_too() {
    let (left, right) = pair().await;
    let most = (256 << 10) / 64;
    let mut sinks = Vec::new();
    while let Some(sink) = at_once(left.open_sink("")) {
        sinks.push(sink.unwrap());
        assert!(sinks.len() <= most + 100, "no more wait than may");
    }
    assert!(sinks.len() >= most);
    assert!(at_once(left.request("")).is_none());
    let mut streams = Vec::new();
    for _ in &sinks {
        let Incoming::Sink(stream, _) = next(&right).await else {
            panic!("sinks were opened");
        };
        streams.push(stream);
    }
    let response = soon(left.request("")).await.unwrap();
    let Incoming::Request(request) = next(&right).await else {
        panic!("it was asked");
    };
    request.respond("").unwrap();
    soon(response.response()).await.unwrap();

    let (mut sent, mut came) = (0, 0);
    while sinks[0].try_send("").is_ok() {
        sent += 1;
        assert!(sent <= most + 100, "no more wait than may");
    }
    assert!(sent >= most);
    assert!(at_once(sinks[0].flush()).is_none(), "they have not gone");
    sinks[1].try_send("").unwrap();
    while came < sent {
        came += soon(streams[0].receive_many(sent)).await.unwrap().len();
    }
    soon(sinks[0].flush()).await.unwrap();
}

#[tokio::test]
async fn what_is_given_up_while_its_opening_waits_is_ended_when_that_is_sent() {
    let by_hand = LinkOptions {
        credit: CreditPolicy::Manual.into(),
        ..LinkOptions::default()
    };
    let (left, right) = pair_with(by_hand.clone(), by_hand).await;
    assert!(at_once(left.open_sink("sink")).is_none());
    assert!(at_once(left.open_stream("stream")).is_none());
    assert!(at_once(left.open_duplex("duplex")).is_none());
    right.stream().grant_credit(100).unwrap();
    let mut kinds = 0;
    for _ in 0..3 {
        let (sink, stream) = match next(&right).await {
            Incoming::Sink(stream, _) => (None, Some(stream)),
            Incoming::Stream(sink, _) => (Some(sink), None),
            Incoming::Duplex(sink, stream, _) => (Some(sink), Some(stream)),
            other => panic!("{other:?}"),
        };
        if let Some(stream) = &stream {
            assert!(soon(stream.receive()).await.unwrap().is_none());
            assert_eq!(stream.closed().unwrap(), "dropped");
            kinds += 1;
        }
        if let Some(sink) = &sink {
            assert_eq!(soon(sink.cancelled()).await.unwrap(), "");
            kinds += 1;
        }
    }
    assert_eq!(kinds, 4);
    soon(async {
        while left.stats().own_entities > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn messages_that_wait_for_their_readers_are_in_no_requests_way() {
    let (left, right) = pair().await;
    tokio::spawn(async move {
        let mut unread = Vec::new();
        while let Ok(Some(incoming)) = right.accept().await {
            match incoming {
                Incoming::Request(request) => request.respond("").unwrap(),
                other => unread.push(other),
            }
        }
    });
    let mut sinks = Vec::new();
    for _ in 0..3 {
        let sink = left.open_sink("").await.unwrap();
        let payload = Bytes::from(vec![7; 60_000]);
        while sink.try_send(payload.clone()).is_ok() {
            tokio::task::yield_now().await;
        }
        sinks.push(sink);
    }
    assert!(left.stats().waiting_bytes > 256 << 10);
    soon(left.call("x", None)).await.unwrap();
    soon(left.open_sink("y")).await.unwrap();
}

#[tokio::test]
async fn credit_can_be_given_by_hand() {
    let by_hand = LinkOptions {
        credit: CreditPolicy::Manual.into(),
        send_bytes: 10,
        ..LinkOptions::default()
    };
    let (left, right) = pair_with(by_hand.clone(), by_hand).await;
    let sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    sink.send("12345").await.unwrap();
    sink.send("67890").await.unwrap();
    assert!(matches!(sink.try_send("x"), Err(Error::Blocked)));
    let flushed = timeout(Duration::from_millis(30), sink.flush()).await;
    assert!(flushed.is_err(), "nothing goes without credit");
    // A byte at a time makes progress too.
    for _ in 0..10 {
        stream.grant_credit(1).unwrap();
    }
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "12345"
    );
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "67890"
    );
    soon(sink.flush()).await.unwrap();
    stream.grant_credit(7).unwrap();
    assert_eq!(soon(sink.capacity()).await.unwrap(), 7);
    sink.try_send("x").unwrap();
}

#[tokio::test]
async fn unix_sockets_carry_it_and_wrong_urls_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("bpmux+unix://{}/s", dir.path().display());
    let listener = bpmux::listen(&url, ListenOptions::default()).await.unwrap();
    let left = bpmux::connect(&url, ConnectOptions::default())
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    let _echo = echo(&right);
    assert_eq!(soon(left.call("x", None)).await.unwrap().to_bytes(), "x");
    listener.close().await;
    let gone = bpmux::connect(&url, ConnectOptions::default()).await;
    assert!(
        matches!(gone, Err(Error::Open(OpenError::Connect(_)))),
        "{gone:?}"
    );
    let wrong = bpmux::connect("lumberjack://127.0.0.1:1", ConnectOptions::default()).await;
    assert!(
        matches!(&wrong, Err(Error::Open(OpenError::Url(why))) if why.contains("bpmux")),
        "{wrong:?}"
    );
    let link = LinkOptions {
        machine: Config {
            chunk_size: 0,
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    };
    let options = ListenOptions {
        link,
        ..ListenOptions::default()
    };
    let wrong = bpmux::listen("bpmux://127.0.0.1:0", options).await;
    assert!(
        matches!(wrong.err(), Some(Error::Open(OpenError::Option(why))) if why.option == "chunk_size")
    );
}

#[tokio::test]
async fn a_peer_that_waits_for_credit_is_given_it_first() {
    let listener = bpmux::listen("bpmux://127.0.0.1:0", ListenOptions::default())
        .await
        .unwrap();
    let address = listener.url().trim_start_matches("bpmux://").to_owned();
    let mut raw = TcpStream::connect(address).await.unwrap();
    let mut first = [0; 3];
    soon(raw.read_exact(&mut first)).await.unwrap();
    assert_eq!(
        first,
        [0xed, 0x10, 0x00],
        "4,096 bytes of credit for the top-level"
    );
    raw.write_all(&[0x8c]).await.unwrap();
    let connection = soon(listener.accept()).await.unwrap();
    let error = soon(connection.accept()).await.unwrap_err();
    assert_eq!(error.code(), "bpmux.invalid_chunk");
}

#[tokio::test]
async fn ten_thousand_streams_stand_beside_each_other() {
    const COUNT: usize = 10_000;
    let (left, right) = pair().await;
    let server = tokio::spawn(async move {
        let mut sinks = Vec::with_capacity(COUNT);
        while sinks.len() < COUNT {
            if let Incoming::Stream(sink, payload) = next(&right).await {
                sink.send(payload.to_bytes()).await.unwrap();
                sinks.push(sink);
            }
        }
        for sink in sinks {
            soon(sink.close("")).await.unwrap();
        }
    });
    let mut streams = Vec::with_capacity(COUNT);
    for number in 0..COUNT {
        let stream = soon(left.open_stream(number.to_string())).await.unwrap();
        streams.push(stream);
    }
    for (number, stream) in streams.iter().enumerate() {
        assert_eq!(drain(stream).await, [number.to_string()]);
    }
    soon(server).await.unwrap();
    assert_eq!(left.stats().own_entities, 0);
}

#[tokio::test]
async fn large_responses_may_be_awaited_in_any_order() {
    let (left, right) = pair().await;
    let _echo = echo(&right);
    let mut pending = Vec::new();
    for number in 0..100_u8 {
        // More than may wait here at once, and more than the peer gives credit for.
        let request = soon(left.request(vec![number; 60_000])).await.unwrap();
        pending.push((number, request));
    }
    for (number, request) in pending.into_iter().rev() {
        let response = soon(request.response()).await.unwrap();
        assert!(response.to_bytes() == vec![number; 60_000]);
    }
}

/// A connection whose peer has closed and cancelled the top-level, and leaves its transport open.
async fn done_with() -> (Connection, TcpStream) {
    let options = ListenOptions::default();
    let listener = bpmux::listen("bpmux://127.0.0.1:0", options).await.unwrap();
    let address = listener.url().strip_prefix("bpmux://").unwrap();
    let mut raw = TcpStream::connect(address).await.unwrap();
    let connection = soon(listener.accept()).await.unwrap();
    raw.write_all(&[0x4C, 0, 0x2C, 0]).await.unwrap();
    assert!(soon(connection.accept()).await.unwrap().is_none());
    soon(async {
        // The close is known before the cancel.
        while !matches!(connection.sink().try_send("late"), Err(Error::Cancelled(_))) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (connection, raw)
}

#[tokio::test]
async fn verbs_say_that_a_connection_is_over_while_its_transport_ends() {
    let (connection, _raw) = done_with().await;
    for ended in [
        connection.open_sink("").await.map(drop),
        connection.open_stream("").await.map(drop),
        connection.open_duplex("").await.map(drop),
        connection.request("").await.map(drop),
        connection.try_request("").map(drop),
        connection.call("", None).await.map(drop),
        connection.ping(LONG).await.map(drop),
        connection.stream().grant_credit(1),
        connection.close(""),
        connection.cancel(""),
    ] {
        assert!(matches!(ended, Err(Error::Ended(_))), "{ended:?}");
    }
}

#[tokio::test]
async fn a_shutdown_does_not_fail_for_a_transport_that_the_peer_leaves_open() {
    let (connection, mut raw) = done_with().await;
    soon(raw.read_to_end(&mut Vec::new())).await.unwrap();
    soon(async {
        while !connection.link().is_shut() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let shut = connection.shutdown(Some(Duration::from_millis(10))).await;
    shut.unwrap();
}
