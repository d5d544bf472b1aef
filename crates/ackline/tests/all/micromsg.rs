//! Plain connections through the Rust API, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test

use std::time::Duration;

use ackline::micromsg::{
    self, AckPolicy, Arrival, Config, ConnectOptions, Connection, Error, Filter, ListenOptions,
    Message, Number, Offer, Property, PropertyRef,
};
use ackline_link::End;
use ackline_link::tls::TlsOptions;
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Time in which something that must not happen would have happened.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it happens in time")
}

pub(crate) fn with(policy: AckPolicy, optional: Option<&str>, window: u64) -> (Offer, Config) {
    let offer = Offer {
        optional_extensions: optional.map(str::to_owned),
        window,
        ..Offer::default()
    };
    let config = Config {
        ack_policy: policy,
        ..Config::with_timers()
    };
    (offer, config)
}

/// A listener with this offer and configuration, and its address.
pub(crate) async fn listener_with((offer, link): (Offer, Config)) -> (micromsg::Listener, String) {
    let listening = ListenOptions {
        offer,
        link,
        ..ListenOptions::default()
    };
    let listener = soon(micromsg::listen("micromsg://127.0.0.1:0", listening))
        .await
        .unwrap();
    let address = listener.url().trim_start_matches("micromsg://").to_owned();
    (listener, address)
}

/// A connector and the connection that its listener accepted, both with this offer and configuration.
pub(crate) async fn pair_with((offer, link): (Offer, Config)) -> (Connection, Connection) {
    let (listener, _) = listener_with((offer.clone(), link.clone())).await;
    let connecting = ConnectOptions {
        offer,
        link,
        ..ConnectOptions::default()
    };
    let left = soon(micromsg::connect(listener.url(), connecting))
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    soon(right.connected()).await.unwrap();
    (left, right)
}

async fn manual() -> (Connection, Connection) {
    pair_with(with(AckPolicy::Manual, None, 10)).await
}

async fn automatic() -> (Connection, Connection) {
    pair_with(with(AckPolicy::Automatic, None, 10)).await
}

pub(crate) async fn text(connection: &Connection) -> String {
    let received = soon(connection.receive()).await.unwrap().unwrap();
    String::from_utf8(received.message.payload().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn messages_are_acknowledged_while_their_receiver_waits_for_the_next_one() {
    let (left, right) = automatic().await;
    let receiving = tokio::spawn(async move { while right.receive().await.unwrap().is_some() {} });
    // By half a window, and fewer by the timer.
    for count in [5, 2] {
        let mut last = 0;
        for _ in 0..count {
            last = soon(left.send(&Message::new("q", "x"))).await.unwrap();
        }
        soon(left.acknowledged(last)).await.unwrap();
    }
    drop(left);
    let _ = receiving.await;
}

#[tokio::test]
async fn defaults_of_both_ends_go_together() {
    let listener = soon(micromsg::listen(
        "micromsg://127.0.0.1:0",
        ListenOptions::default(),
    ))
    .await
    .unwrap();
    let left = soon(micromsg::connect(listener.url(), ConnectOptions::default()))
        .await
        .unwrap();
    let right = soon(listener.accept()).await.unwrap();
    let (near, far) = (
        left.try_connected().unwrap(),
        soon(right.connected()).await.unwrap(),
    );
    for connected in [&near, &far] {
        assert_eq!(connected.extensions, ["batch-ack", "pub-sub"]);
        assert_eq!((connected.version.major, connected.version.minor), (1, 0));
    }
    let message = Message::new("greetings", "hello")
        .with("age", Property::Number(Number::Whole(18)))
        .with("city", Property::Text("Fålun".to_owned()));
    assert_eq!(soon(left.send(&message)).await.unwrap(), 1);
    let received = soon(right.receive()).await.unwrap().unwrap();
    assert_eq!(received.position, 1);
    let came = received.message;
    assert_eq!(
        (came.destination(), came.raw_properties()),
        ("greetings", "age:N18;city:TF%C3%A5lun;")
    );
    assert_eq!(
        came.properties().get("age"),
        Some(PropertyRef::Number(Number::Whole(18)))
    );
    assert_eq!(came.payload().to_bytes(), "hello");
    // With the next call it counts as processed, and the timer acknowledges it.
    assert!(matches!(right.try_receive(), Err(Error::Blocked)));
    soon(left.acknowledged(1)).await.unwrap();
    let (closed, ended) = tokio::join!(left.close(Some(LONG)), right.receive());
    closed.unwrap();
    assert_eq!(ended.unwrap(), None);
}

#[tokio::test]
async fn messages_go_both_ways_over_tcp_tls_and_unix() {
    let (files, authority) = (crate::pki::Pki::new(), crate::pki::Authority::new("site"));
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("micromsg+unix://{}", dir.path().join("m.sock").display());
    for url in [
        "micromsg://127.0.0.1:0",
        "micromsg+tls://127.0.0.1:0",
        &*socket,
    ] {
        let is_tls = url.contains("+tls");
        let listening = ListenOptions {
            tls: if is_tls {
                files.server(&authority, &["127.0.0.1"], None)
            } else {
                TlsOptions::default()
            },
            ..ListenOptions::default()
        };
        let listener = soon(micromsg::listen(url, listening)).await.unwrap();
        let ca = is_tls.then(|| files.write("ca.pem", &authority.pem));
        let connecting = ConnectOptions {
            tls: TlsOptions {
                ca,
                ..TlsOptions::default()
            },
            ..ConnectOptions::default()
        };
        let left = soon(micromsg::connect(listener.url(), connecting))
            .await
            .unwrap();
        let right = soon(listener.accept()).await.unwrap();
        soon(left.send(&Message::new("there", "1"))).await.unwrap();
        assert_eq!(text(&right).await, "1");
        soon(right.send(&Message::new("back", "2"))).await.unwrap();
        assert_eq!(text(&left).await, "2");
        let (left, right) = tokio::join!(left.close(Some(LONG)), right.close(Some(LONG)));
        left.unwrap();
        right.unwrap();
    }
}

#[tokio::test]
async fn a_window_of_unacknowledged_messages_holds_the_sender_back() {
    let (left, right) = manual().await;
    for (from, to) in [(&left, &right), (&right, &left)] {
        for number in 1..=10 {
            assert_eq!(from.try_send(&Message::new("t", "x")).unwrap(), number);
        }
        let eleventh = Message::new("t", "11");
        assert!(matches!(from.try_send(&eleventh), Err(Error::Blocked)));
        assert!(
            timeout(MOMENT, from.send(&eleventh)).await.is_err(),
            "it waits"
        );
        assert_eq!(from.stats().pending, 10);
        for position in 1..=4 {
            assert_eq!(
                soon(to.receive()).await.unwrap().unwrap().position,
                position
            );
        }
        assert_eq!(
            to.ack(5).unwrap_err().code(),
            "out_of_range",
            "it was not taken"
        );
        to.ack(4).unwrap();
        assert_eq!(
            to.ack(4).unwrap_err().code(),
            "out_of_range",
            "a second time"
        );
        soon(from.acknowledged(4)).await.unwrap();
        assert_eq!(soon(from.send(&eleventh)).await.unwrap(), 11);
        let stats = from.stats();
        assert_eq!((stats.sent, stats.acknowledged, stats.pending), (11, 4, 7));
        assert_eq!(
            from.try_acknowledged(12).unwrap_err().code(),
            "out_of_range"
        );
    }
}

#[tokio::test]
async fn automatic_acknowledgements_follow_the_application() {
    let (left, right) = automatic().await;
    let sending = tokio::spawn(async move {
        for number in 0..200 {
            soon(left.send(&Message::new("t", number.to_string())))
                .await
                .unwrap();
        }
        soon(left.close(Some(LONG))).await.unwrap();
    });
    let mut next = 0;
    loop {
        let some = soon(right.receive_some(7, 1_000)).await.unwrap();
        if some.is_empty() {
            break;
        }
        assert!(some.len() <= 7);
        for received in some {
            assert_eq!(received.message.payload().to_bytes(), next.to_string());
            next += 1;
        }
    }
    assert_eq!(next, 200);
    soon(sending).await.unwrap();
    assert!(matches!(
        right.ack(200),
        Err(Error::Usage(_) | Error::Ended(_))
    ));
}

#[tokio::test]
async fn closing_waits_for_acknowledgements_and_fails_loudly_where_they_do_not_come() {
    let (left, right) = manual().await;
    soon(left.send(&Message::new("t", "x"))).await.unwrap();
    let closed = soon(left.close(Some(MOMENT))).await;
    assert!(matches!(closed, Err(Error::Timeout)), "{closed:?}");
    assert_eq!(soon(right.receive()).await.unwrap().unwrap().position, 1);
    right.ack(1).unwrap();
    let (closed, _) = tokio::join!(left.close(Some(LONG)), right.receive());
    closed.unwrap();

    let (left, right) = manual().await;
    soon(left.send(&Message::new("t", "x"))).await.unwrap();
    assert_eq!(soon(right.receive()).await.unwrap().unwrap().position, 1);
    drop(right);
    let closed = soon(left.close(Some(LONG))).await.unwrap_err();
    let is_loud = matches!(closed, Error::Unacknowledged(1) | Error::Ended(End::Io(_)));
    assert!(is_loud, "{closed:?}");
}

#[tokio::test]
async fn an_end_that_fails_tells_its_reason() {
    let (left, right) = manual().await;
    soon(left.send(&Message::new("t", "first"))).await.unwrap();
    left.fail("enough of this").unwrap();
    assert_eq!(text(&right).await, "first", "what came before is there");
    let failed = soon(right.receive()).await.unwrap_err();
    assert!(
        matches!(&failed, Error::Failed(reason) if &**reason == "enough of this"),
        "{failed}"
    );
    assert_eq!(failed.code(), "micromsg.failed");
    let refused = right.try_send(&Message::new("t", "")).unwrap_err();
    assert!(matches!(refused, Error::Failed(_)), "{refused}");
}

#[tokio::test]
async fn commands_subscriptions_and_frames_of_extensions_arrive_apart() {
    let (left, right) =
        pair_with(with(AckPolicy::Manual, Some("pub-sub;x-trace:level=2"), 10)).await;
    let pairs = [("key".to_owned(), "a value;=".to_owned())];
    soon(left.command("hello", &pairs)).await.unwrap();
    let filter = Filter::read(b"age>=N18").unwrap();
    soon(left.subscribe("people", Some(&filter))).await.unwrap();
    soon(left.unsubscribe("people")).await.unwrap();
    soon(left.send_extension("x-trace", b"\0\xff"))
        .await
        .unwrap();
    let Some(Arrival::Command(command)) = soon(right.receive_command()).await.unwrap() else {
        panic!("a command");
    };
    assert_eq!(
        (command.name.as_str(), &command.properties[..]),
        ("hello", &pairs[..])
    );
    let Some(Arrival::Subscribe(wanted)) = soon(right.receive_command()).await.unwrap() else {
        panic!("a subscription");
    };
    assert_eq!(
        (wanted.topic.as_str(), wanted.filter.as_deref()),
        ("people", Some(&filter))
    );
    let unsubscribed = soon(right.receive_command()).await.unwrap();
    assert_eq!(
        unsubscribed,
        Some(Arrival::Unsubscribe("people".to_owned()))
    );
    let (name, payload) = soon(right.receive_extension()).await.unwrap().unwrap();
    assert_eq!(
        (&*name, payload),
        ("x-trace", Bytes::from_static(b"\0\xff"))
    );
    let error = left.send_extension("x-other", b"").await.unwrap_err();
    assert_eq!(error.code(), "extension_not_negotiated");
    let error = left.acknowledged(0).await;
    assert!(error.is_ok(), "none was sent");
}

#[tokio::test]
async fn without_acknowledgements_nothing_waits_for_them() {
    let (left, right) = pair_with(with(AckPolicy::Automatic, Some("pub-sub"), 10)).await;
    for number in 0..100 {
        soon(left.send(&Message::new("t", number.to_string())))
            .await
            .unwrap();
    }
    assert_eq!(
        left.acknowledged(100).await.unwrap_err().code(),
        "extension_not_negotiated"
    );
    let closing = tokio::spawn(async move { left.close(Some(LONG)).await });
    for number in 0..100 {
        assert_eq!(text(&right).await, number.to_string());
    }
    assert_eq!(soon(right.receive()).await.unwrap(), None);
    soon(closing).await.unwrap().unwrap();
}

#[tokio::test]
async fn types_are_known_where_both_ends_have_them() {
    let (left, right) = pair_with(with(AckPolicy::Manual, Some("batch-ack;dotnet"), 10)).await;
    for name in [Some("A, A"), None, Some("B, B"), Some("B, B")] {
        let message = Message {
            dotnet_type: name.map(str::to_owned),
            ..Message::new("t", "x")
        };
        soon(left.send(&message)).await.unwrap();
    }
    let mut names = Vec::new();
    for _ in 0..4 {
        let received = soon(right.receive()).await.unwrap().unwrap();
        names.push(received.message.dotnet_type.unwrap().to_string());
    }
    assert_eq!(
        names,
        ["A, A", "A, A", "B, B", "B, B"],
        "the last one is reused"
    );
    let (plain, _right) = manual().await;
    let typed = Message {
        dotnet_type: Some("A".to_owned()),
        ..Message::new("t", "x")
    };
    assert_eq!(
        plain.send(&typed).await.unwrap_err().code(),
        "extension_not_negotiated"
    );
}

#[tokio::test]
async fn a_large_message_goes_in_fragments_and_a_larger_one_is_refused() {
    let (left, right) = manual().await;
    let payload: Vec<u8> = (0..16 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    let message =
        Message::new("large", payload.clone()).with("a", Property::Number(Number::Whole(1)));
    soon(left.send(&message)).await.unwrap();
    soon(left.send(&Message::new("small", "x"))).await.unwrap();
    let received = soon(right.receive()).await.unwrap().unwrap().message;
    assert_eq!(
        (received.destination(), received.raw_properties()),
        ("large", "a:N1;")
    );
    assert!(received.payload().to_bytes() == payload);
    assert_eq!(text(&right).await, "x");
    right.ack(2).unwrap();
    soon(left.acknowledged(2)).await.unwrap();
    let larger = Message::new("large", vec![0; (16 << 20) + 1]);
    assert_eq!(
        left.send(&larger).await.unwrap_err().code(),
        "message_too_large"
    );
}

#[tokio::test]
async fn wrong_messages_are_refused_before_they_are_sent() {
    let (left, _right) = manual().await;
    let number = || Property::Number(Number::Whole(1));
    for (message, code) in [
        (Message::new("ä", ""), "not_ascii"),
        (Message::new("x".repeat(256), ""), "out_of_range"),
        (Message::new("t", "").with("a b", number()), "invalid_name"),
        (
            Message::new("t", "").with("a", Property::Date(f64::NAN)),
            "not_finite",
        ),
    ] {
        assert_eq!(left.send(&message).await.unwrap_err().code(), code);
    }
    assert_eq!(left.stats().sent, 0);
}

#[tokio::test]
async fn the_required_extension_that_the_peer_lacks_ends_the_handshake() {
    let listener = soon(micromsg::listen(
        "micromsg://127.0.0.1:0",
        ListenOptions::default(),
    ))
    .await
    .unwrap();
    let options = ConnectOptions {
        offer: Offer {
            required_extensions: Some("x-special".to_owned()),
            ..Offer::default()
        },
        ..ConnectOptions::default()
    };
    let refused = soon(micromsg::connect(listener.url(), options))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Failed(_)), "{refused}");
    assert!(refused.to_string().contains("x-special"), "{refused}");
}

/// Frames of a client without extensions, as bytes: its handshake, the final one, and a message.
const HANDSHAKE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

#[tokio::test]
async fn a_peer_that_ends_its_direction_is_still_heard_and_answered() {
    let (listener, address) = listener_with(with(AckPolicy::Manual, Some("json"), 10)).await;
    let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
    peer.write_all(&HANDSHAKE).await.unwrap();
    let mut reply = [0; 12];
    peer.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, *b"\x01\0\0\0\0\0\0\x04json");
    peer.write_all(&HANDSHAKE).await.unwrap();
    peer.write_all(b"\0\0\x01\x01t\0\0\x02hi").await.unwrap();
    peer.shutdown().await.unwrap();
    let right = soon(listener.accept()).await.unwrap();
    assert_eq!(text(&right).await, "hi");
    assert_eq!(soon(right.receive()).await.unwrap(), None);
    let mut rest = Vec::new();
    soon(peer.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_version_that_cannot_be_spoken_is_answered_with_an_error() {
    let listener = soon(micromsg::listen(
        "micromsg://127.0.0.1:0",
        ListenOptions::default(),
    ))
    .await
    .unwrap();
    let address = listener.url().trim_start_matches("micromsg://").to_owned();
    let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
    peer.write_all(&[0; 8]).await.unwrap();
    let mut answer = Vec::new();
    soon(peer.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer.first(), Some(&4), "an ERROR frame: {answer:?}");
}

#[test]
fn urls_and_options_that_cannot_be_used_are_told_without_connecting() {
    let default = ConnectOptions::default;
    for (url, options, says) in [
        ("micromsg://h", default(), "port"),
        ("bpmux://h:1", default(), "is of bpmux, not of micromsg"),
        ("micromsg://h:1?max_names=0", default(), "max_names is 0"),
        ("micromsg://h:0", default(), "port 0"),
    ] {
        let error = micromsg::check(url, &options).unwrap_err();
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
    let long = ConnectOptions {
        offer: Offer {
            name: Some("ü".to_owned()),
            ..Offer::default()
        },
        ..default()
    };
    assert!(
        micromsg::check("micromsg://h:1", &long)
            .unwrap_err()
            .to_string()
            .contains("name")
    );
    micromsg::check("micromsg://h:1", &default()).unwrap();
}
