//! Windows, unacknowledged bytes and memory: messages that wait, and messages that are refused.

use super::*;

#[tokio::test]
async fn a_full_window_blocks_until_the_peer_has_consumed() {
    let window = LinkOptions {
        machine: LinkConfig {
            send_window: 2,
            ack_delay: Duration::ZERO,
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    };
    let (one, other, _listener) = pair(options(window)).await;
    for text in [&b"1"[..], b"2"] {
        one.try_send(&channel(1), text).unwrap();
    }
    let full = one.try_send(&channel(1), b"3".as_slice()).unwrap_err();
    assert!(matches!(full, Error::Blocked), "{full}");
    let brief = Some(Duration::from_millis(10));
    let late = one.send(&channel(1), b"3".as_slice(), brief).await;
    assert!(matches!(late, Err(Error::Timeout)));
    one.try_send(&channel(2), b"another channel".as_slice())
        .unwrap();
    let waiting = tokio::spawn({
        let one = one.clone();
        async move { one.send(&channel(1), b"3".as_slice(), Some(DEADLINE)).await }
    });
    assert_eq!(take(&other, 4).await, ["1", "2", "another channel", "3"]);
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn unacknowledged_bytes_are_bounded_and_one_large_message_passes() {
    let bounded = LinkOptions {
        send_bytes: 10,
        machine: LinkConfig {
            ack_delay: Duration::ZERO,
            ..LinkOptions::default().machine
        },
    };
    let (one, other, _listener) = pair(options(bounded)).await;
    let large = one.try_send(&channel(1), vec![b'x'; 100]).unwrap();
    let error = one.try_send(&channel(1), b"y".as_slice()).unwrap_err();
    assert!(matches!(error, Error::Blocked), "{error}");
    take(&other, 1).await;
    soon(large.consumed()).await.unwrap();
    one.try_send(&channel(1), b"y".as_slice()).unwrap();
}

#[tokio::test]
async fn a_message_above_the_limits_of_its_link_is_refused_at_once() {
    let (one, other, _listener) = pair(options(LinkOptions::default())).await;
    let parts = |count| Payload::from_parts(vec![Bytes::new(); count]);
    for sent in [
        one.try_send(&channel(1), parts(1_025)).map(drop),
        one.try_send_many(&channel(1), &[parts(1_025)]).map(drop),
    ] {
        assert_eq!(sent.unwrap_err().code(), "message_too_large");
    }
    one.try_send(&channel(1), parts(1_024)).unwrap();
    let message = soon(other.receive()).await.unwrap().unwrap();
    assert_eq!(message.payload.len(), 1_024);
}

#[tokio::test]
async fn a_multicast_waits_in_its_packet_for_the_memory() {
    let (connect, mut listen) = options(LinkOptions::default());
    listen.memory = 1 << 20;
    let (one, other, _listener) = pair((connect, listen)).await;
    let channels: Vec<ChannelId> = (0..200).map(channel).collect();
    let payload = Payload::from(Bytes::from(vec![7; 50_000]));
    let sent = one.send_to(&channels, payload, None).await.unwrap();
    until(|| other.driven().stats().paused).await;
    let waiting = other.stats().waiting;
    // The bytes that each link has free of charge come on top.
    assert!(
        waiting * 50_000 <= (1 << 20) + (64 << 10),
        "{waiting} wait at once"
    );
    for _ in &channels {
        let message = soon(other.receive()).await.unwrap().unwrap();
        other.consume(&message.channel, message.sequence).unwrap();
    }
    for receipt in sent {
        soon(receipt.consumed()).await.unwrap();
    }
}

#[tokio::test]
async fn messages_without_a_byte_are_charged_to_the_memory_too() {
    const MESSAGES: usize = 100_000;
    let (mut connect, mut listen) = options(LinkOptions::default());
    connect.link.machine.send_window = 1_000_000;
    listen.link.machine.receive_window = 1_000_000;
    listen.memory = 1 << 20;
    let (one, other, _listener) = pair((connect, listen)).await;
    let empty = vec![Payload::default(); MESSAGES];
    assert_eq!(
        one.try_send_many(&channel(1), &empty).unwrap().len(),
        MESSAGES
    );
    until(|| other.driven().stats().paused).await;
    let waiting = other.stats().waiting;
    assert!(waiting < MESSAGES / 2, "{waiting}");
    let mut count = 0;
    while count < MESSAGES {
        count += soon(other.receive_many(1_000))
            .await
            .unwrap()
            .unwrap()
            .len();
    }
    assert_eq!(count, MESSAGES);
}

#[tokio::test]
async fn a_run_of_messages_is_sent_while_there_is_room_and_its_last_receipt_stands_for_all() {
    let (mut connect, listen) = options(LinkOptions::default());
    connect.link.machine.send_window = 4;
    let (one, other, _listener) = pair((connect, listen)).await;
    let payloads: Vec<Payload> = (0..6_u8).map(|at| Payload::from(vec![at])).collect();
    let send = |from: usize| {
        let rest = &payloads[from..];
        one.try_send_many(&channel(1), rest)
    };
    let sent = send(0).unwrap();
    let each: Vec<_> = sent.iter().map(|receipt| receipt.sequence().0).collect();
    assert_eq!((sent.len(), each), (4, vec![0, 1, 2, 3]));
    let last = sent.last().unwrap().clone();
    assert!(matches!(send(4), Err(Error::Blocked)));
    assert!(matches!(send(6), Ok(none) if none.is_empty() && none.last().is_none()));
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let messages = soon(other.receive_many(9)).await.unwrap().unwrap();
        seen.extend(messages.iter().map(|one| one.payload.as_slice()[0][0]));
    }
    assert_eq!(seen, [0, 1, 2, 3]);
    other.consume(&channel(1), Sequence(2)).unwrap();
    until(|| {
        one.driven()
            .call(|session, _| session.machine().send_room(&channel(1)))
            == 3
    })
    .await;
    assert!(!last.is_consumed());
    assert_eq!(one.stats().unacknowledged_bytes, 1);
    let consumed: Vec<_> = sent.iter().map(|receipt| receipt.is_consumed()).collect();
    assert_eq!(consumed, [true, true, true, false]);
    let sent = send(4).unwrap();
    assert_eq!((sent.len(), sent.last().unwrap().sequence().0), (2, 5));
}

#[tokio::test]
async fn a_run_of_messages_ends_at_the_bytes_that_may_wait() {
    let (mut connect, listen) = options(LinkOptions::default());
    connect.link.send_bytes = 250;
    let (one, other, _listener) = pair((connect, listen)).await;
    let payloads: Vec<Payload> = (0..4_u8).map(|at| Payload::from(vec![at; 100])).collect();
    assert_eq!(one.try_send_many(&channel(1), &payloads).unwrap().len(), 2);
    let full = one.try_send_many(&channel(1), &payloads[2..]);
    assert!(matches!(full, Err(Error::Blocked)));
    soon(other.receive_many(2)).await.unwrap();
    other.consume(&channel(1), Sequence(0)).unwrap();
    until(|| one.stats().unacknowledged_bytes == 100).await;
    let sent = one.try_send_many(&channel(1), &payloads[2..]).unwrap();
    assert_eq!(sent.len(), 1);
}
