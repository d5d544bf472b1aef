//! Calls that a link refuses: the text names the wrong value and the allowed ones.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::time::Duration;

use crate::cutter::soon;
use ackline::core::Sequence;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Error, Event, Link, LinkOptions, ListenOptions, Listener,
    Marks, Message, Payload,
};
use bytes::Bytes;

fn channel(number: u32) -> ChannelId {
    ChannelId::from(number)
}

fn options(link: LinkOptions) -> (ConnectOptions, ListenOptions) {
    let (mut connect, mut listen) = (ConnectOptions::default(), ListenOptions::default());
    (connect.link, listen.link) = (link.clone(), link);
    (connect, listen)
}

async fn pair((connect, listen): (ConnectOptions, ListenOptions)) -> (Link, Link, Listener) {
    let listener = relink::listen("relink://127.0.0.1:0/orders", listen)
        .await
        .unwrap();
    let connector = relink::connect(listener.url(), connect).await.unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    (connector, accepted, listener)
}

#[tokio::test]
async fn what_is_above_a_limit_is_named_with_the_limit() {
    let mut link = LinkOptions::default();
    link.machine.limits.max_message_parts = 3;
    link.machine.limits.max_part_bytes = 10;
    link.machine.limits.max_message_bytes = 25;
    let (one, _other, _listener) = pair(options(link)).await;
    for (parts, said) in [
        (
            vec![0; 4],
            "the message has 4 parts; max_message_parts is 3",
        ),
        (
            vec![1, 11],
            "a part of the message has 11 bytes; max_part_bytes is 10",
        ),
        (
            vec![10, 10, 6],
            "the message has 26 bytes; max_message_bytes is 25",
        ),
    ] {
        let parts = parts.into_iter().map(|size| Bytes::from(vec![0; size]));
        let refused = one
            .try_send(&channel(1), Payload::from_parts(parts.collect()))
            .unwrap_err();
        assert_eq!(refused.to_string(), said);
        assert!(refused.is_usage());
    }
}

#[tokio::test]
async fn who_names_what_cannot_be_named_is_told_what_can() {
    let (mut connect, mut listen) = options(LinkOptions::default());
    connect.parameters.connector_transactions = true;
    listen.parameters = connect.parameters;
    let (one, other, _listener) = pair((connect, listen)).await;
    let said = |result: Result<(), Error>, code: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.is_usage());
        error.to_string()
    };
    let (mine, none) = (channel(7), channel(99));
    for _ in 0..4 {
        one.try_send(&mine, b"x".as_slice()).unwrap();
        soon(other.receive()).await.unwrap();
    }
    let number = |number| Some(Sequence(number));
    other.consume(&mine, Sequence(1)).unwrap();
    assert_eq!(
        said(other.consume(&mine, Sequence(1_000_000)), "out_of_range"),
        "message 1000000 of channel 07000000 cannot be named now: 2 to 3 can"
    );
    other.consume(&mine, Sequence(3)).unwrap();
    assert_eq!(
        said(other.consume(&mine, Sequence(4)), "out_of_range"),
        "message 4 of channel 07000000 cannot be named now: none of it can"
    );
    assert_eq!(
        said(other.consume(&none, Sequence(0)), "unknown_channel"),
        "no channel 63000000 of the peer's is open"
    );
    assert_eq!(
        said(other.notify_received(&none), "unknown_channel"),
        "no channel 63000000 of the peer's is open"
    );
    assert_eq!(
        said(one.close_channel(&none), "unknown_channel"),
        "no channel 63000000 of this end's is open"
    );
    one.rollback(&mine, number(0)).unwrap();
    one.commit(&mine, number(2)).unwrap();
    assert_eq!(
        said(one.commit(&mine, number(2)).map(drop), "out_of_range"),
        "message 2 of channel 07000000 cannot be named now: 3 alone can"
    );
    soon(other.decided()).await.unwrap();
    soon(other.decided()).await.unwrap();
    assert_eq!(
        said(other.committed(&mine, number(3)).map(drop), "out_of_range"),
        "message 3 of channel 07000000 cannot be named now: 1 to 2 can"
    );
    other.uncommitted(&mine, number(2)).unwrap();
    assert_eq!(
        said(other.committed(&mine, None).map(drop), "out_of_range"),
        "a next message of channel 07000000 cannot be named now: none of it can"
    );
}

#[tokio::test]
async fn a_message_of_an_earlier_channel_cannot_be_consumed_again() {
    let (one, other, _listener) = pair(options(LinkOptions::default())).await;
    let consume = |messages: &[&Message]| {
        let mut marks = Marks::default();
        for message in messages {
            marks.add(message.channel.clone(), message.mark(), message.mark());
        }
        let driven = other.driven();
        driven.call(|session, now| session.consume_all(now, &marks))
    };
    one.try_send(&channel(1), b"a".as_slice()).unwrap();
    let first = soon(other.receive()).await.unwrap().unwrap();
    one.close_channel(&channel(1)).unwrap();
    consume(&[&first]).unwrap();
    while !matches!(
        soon(one.event()).await.unwrap(),
        Event::Closed {
            unacknowledged: 0,
            ..
        }
    ) {}
    let again = one.try_send(&channel(1), b"b".as_slice()).unwrap();
    let beside = one.try_send(&channel(2), b"c".as_slice()).unwrap();
    assert_eq!(
        (first.sequence, again.sequence()),
        (Sequence(0), Sequence(0))
    );
    let second = soon(other.receive()).await.unwrap().unwrap();
    let third = soon(other.receive()).await.unwrap().unwrap();
    for messages in [[&first, &third], [&third, &first]] {
        let refused = consume(&messages).unwrap_err();
        assert_eq!(refused.code(), "out_of_range");
        assert_eq!(
            refused.to_string(),
            "message 0 is of an earlier channel 01000000, which was closed"
        );
    }
    one.try_send(&channel(1), b"d".as_slice()).unwrap();
    let fourth = soon(other.receive()).await.unwrap().unwrap();
    assert!(consume(&[&fourth, &first]).is_err());
    // All of them are consumed, in any order of the arguments.
    consume(&[&fourth, &third, &second]).unwrap();
    soon(again.consumed()).await.unwrap();
    soon(beside.consumed()).await.unwrap();
    let said = other.consume(&channel(1), Sequence(2)).unwrap_err();
    assert!(said.to_string().ends_with("none of it can"), "{said}");
}

/// The largest value of an option.
fn most(said: &str) -> u64 {
    match said.split(' ').next().unwrap() {
        "send_window" => 0x7fff_ffff,
        "receive_window" | "ack_window" | "max_channels" | "max_channel_ids"
        | "max_message_parts" => u32::MAX.into(),
        _ => u64::MAX,
    }
}

#[tokio::test]
async fn options_that_nothing_works_with_are_refused_by_their_name() {
    type Set = fn(&mut LinkOptions);
    type SetTime = fn(&mut ConnectOptions);
    const SHORT: Option<Duration> = Some(Duration::from_micros(999));
    let cases: [(&str, Set); 13] = [
        ("send_window is 0", |link| link.machine.send_window = 0),
        ("receive_window is 0", |link| {
            link.machine.receive_window = 0;
        }),
        ("ack_window is 0", |link| link.machine.ack_window = 0),
        ("send_bytes is 0", |link| link.send_bytes = 0),
        ("max_channels is 0", |link| link.machine.max_channels = 0),
        ("max_channel_ids is 0", |link| {
            link.machine.limits.max_channel_ids = 0;
        }),
        ("max_message_parts is 0", |link| {
            link.machine.limits.max_message_parts = 0;
        }),
        ("max_part_bytes is 0", |link| {
            link.machine.limits.max_part_bytes = 0;
        }),
        ("max_message_bytes is 0", |link| {
            link.machine.limits.max_message_bytes = 0;
        }),
        ("max_multicast_bytes is 0", |link| {
            link.machine.limits.max_multicast_bytes = 0;
        }),
        ("ping_after is 999µs", |link| {
            link.machine.ping_after = SHORT;
        }),
        ("pong_timeout is 999µs", |link| {
            link.machine.pong_timeout = SHORT;
        }),
        ("packet_receive_timeout is 999µs", |link| {
            link.machine.packet_receive_timeout = SHORT;
        }),
    ];
    let refused_by_both = |(connect, listen): (ConnectOptions, ListenOptions)| async {
        let connected = relink::connect("relink://127.0.0.1:1/x", connect).await;
        let listening = relink::listen("relink://127.0.0.1:0/orders", listen).await;
        let texts = [connected.map(drop), listening.map(drop)];
        texts.map(|error| error.unwrap_err().to_string())
    };
    for (said, set) in cases {
        let mut link = LinkOptions::default();
        set(&mut link);
        for text in refused_by_both(options(link)).await {
            let takes = if text.contains("µs") {
                "a number of seconds, at least 1ms, or off".to_owned()
            } else {
                format!("a whole number from 1 to {}", most(said))
            };
            assert_eq!(text, format!("{said}; it is {takes}"));
        }
    }
    let (mut connect, mut listen) = options(LinkOptions::default());
    connect.handshake_timeout = Duration::ZERO;
    listen.acceptor.handshake_timeout = Duration::ZERO;
    for text in refused_by_both((connect, listen)).await {
        assert_eq!(
            text,
            "handshake_timeout is 0ns; it is a number of seconds, at least 1ms"
        );
    }
    let times: [(&str, SetTime); 2] = [
        ("connect_timeout", |all| {
            all.reconnect.connect_timeout = Duration::ZERO;
        }),
        ("reconnect_max", |all| {
            all.reconnect.reconnect_max = Duration::ZERO;
        }),
    ];
    for (name, set) in times {
        let mut all = ConnectOptions::default();
        set(&mut all);
        let refused = relink::connect("relink://127.0.0.1:1/x", all).await;
        let text = refused.unwrap_err().to_string();
        assert_eq!(
            text,
            format!("{name} is 0ns; it is a number of seconds, at least 1ms")
        );
    }
}

#[tokio::test]
async fn an_option_and_a_url_that_disagree_are_refused() {
    let (mut connect, mut listen) = options(LinkOptions::default());
    connect.parameters.connector_channel_id_size = 5;
    listen.parameters.listener_transactions = true;
    let to = "relink://127.0.0.1:1/x?connector_channel_id_size=4";
    let refused = relink::connect(to, connect.clone()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "connector_channel_id_size is 4 in the URL and 5 among the options"
    );
    let at = "relink://127.0.0.1:0/x?listener_transactions=false&connector_channel_id_size=5";
    let refused = relink::listen(at, listen.clone()).await.map(drop);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "listener_transactions is false in the URL and true among the options"
    );
    // One of them alone, or both alike.
    let at = "relink://127.0.0.1:0/x?connector_channel_id_size=5&listener_transactions=true";
    let listener = relink::listen(at, listen).await.unwrap();
    connect.parameters.listener_transactions = true;
    let link = relink::connect(listener.url(), connect).await.unwrap();
    link.try_send(&ChannelId::from(&[1; 5]), b"x".as_slice())
        .unwrap();
}
