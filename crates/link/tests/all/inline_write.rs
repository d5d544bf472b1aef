//! Calls that write to the socket themselves, while the driver is idle.

#![allow(clippy::unwrap_used)] // a test may panic

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::task::Poll;
use std::time::Duration;

use crate::toy::Toy;
use ackline_core::Lifecycle;
use ackline_link::{Budget, Endpoint, Link, connect};

const DEADLINE: Duration = Duration::from_secs(20);

/// A link over TCP whose driver is idle, and its peer. All tasks run on this thread alone: the
/// driver did not write the bytes that the peer has before the next `await`.
async fn at_rest(toy: Toy, budget: u64) -> (Link<Toy>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let address = format!("toy://{place}").parse().unwrap();
    let endpoint = Endpoint::new("toy", vec![address], None);
    let stream = connect(&endpoint, DEADLINE).await.unwrap();
    let (peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(DEADLINE)).unwrap();
    let link = Link::with_budget(toy, Budget::new(budget));
    tokio::spawn({
        let link = link.clone();
        async move { link.drive_socket(stream).await.end }
    });
    rest().await;
    (link, peer)
}

/// Waits until the driver is idle, and the last message is long ago.
async fn rest() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], payload].concat()
}

/// The peer has exactly these bytes.
fn came(peer: &mut TcpStream, payload: &[u8]) {
    let expected = framed(payload);
    let mut bytes = vec![0; expected.len()];
    peer.read_exact(&mut bytes).unwrap();
    assert!(bytes == expected, "{} bytes differ", bytes.len());
}

/// The peer has nothing, as only the driver may have written.
fn nothing(peer: &mut TcpStream) {
    peer.set_nonblocking(true).unwrap();
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    peer.set_nonblocking(false).unwrap();
}

/// The peer has these bytes once the driver has run.
async fn comes(peer: &mut TcpStream, payload: &[u8]) {
    let mut peer = peer.try_clone().unwrap();
    let payload = payload.to_vec();
    tokio::task::spawn_blocking(move || came(&mut peer, &payload))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_call_writes_by_itself_while_the_driver_is_at_rest() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    for payload in ["one", "two"] {
        link.call(|toy, _| toy.send(payload));
        came(&mut peer, payload.as_bytes());
        assert_eq!(
            link.stats().bytes_out,
            7 * if payload == "one" { 1 } else { 2 }
        );
        rest().await;
    }
    // The driver has counted it too.
    link.abort();
    rest().await;
    assert_eq!(link.stats().bytes_out, 14);
}

#[tokio::test(start_paused = true)]
async fn messages_in_a_row_are_left_to_the_driver() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    link.call(|toy, _| toy.send("first"));
    link.call(|toy, _| toy.send("second"));
    came(&mut peer, b"first");
    nothing(&mut peer);
    comes(&mut peer, b"second").await;
}

#[tokio::test]
async fn large_output_is_left_to_the_driver_and_stays_in_order() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    let large = vec![7; 3_000_000];
    link.call(|toy, _| toy.send(large.clone()));
    link.call(|toy, _| toy.send("after"));
    nothing(&mut peer);
    comes(&mut peer, &large).await;
    comes(&mut peer, b"after").await;
}

#[tokio::test]
async fn output_that_the_system_does_not_take_is_left_to_the_driver() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    let piece = vec![7; 10_000];
    let mut sent = 0;
    // Until both sockets are full: then a call leaves output for the driver.
    while link.stats().bytes_out == sent * 10_004 {
        link.call(|toy, _| toy.send(piece.clone()));
        sent += 1;
        rest().await;
    }
    for _ in 0..sent {
        comes(&mut peer, &piece).await;
    }
    rest().await;
    assert_eq!(link.stats().bytes_out, sent * 10_004);
}

#[tokio::test]
async fn a_call_that_ends_the_link_or_sets_a_timer_wakes_the_driver() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    link.call(|toy, now| toy.start_keepalive(now, Duration::from_millis(1)));
    tokio::time::timeout(DEADLINE, async {
        while link.stats().bytes_out == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    link.call(|toy, _| {
        (toy.keepalive, toy.due) = (None, None);
        toy.lifecycle = Lifecycle::Draining;
    });
    let ended = tokio::task::spawn_blocking(move || peer.read_to_end(&mut Vec::new()));
    tokio::time::timeout(DEADLINE, ended)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn no_caller_writes_while_a_driver_ends_or_has_ended() {
    for waits in [false, true] {
        let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
        link.abort();
        if waits {
            rest().await;
        }
        link.call(|toy, _| toy.send("late"));
        rest().await;
        let mut late = Vec::new();
        peer.read_to_end(&mut late).unwrap();
        assert_eq!(late, b"");
    }
}

#[tokio::test]
async fn a_link_whose_charged_bytes_are_taken_reads_on() {
    use std::io::Write;

    // Reading stops at the memory limit, so taking an event must wake the driver.
    let toy = Toy {
        window: 3,
        echo: false,
        ..Toy::default()
    };
    let (link, mut peer) = at_rest(toy, 300_000).await;
    let piece = vec![7; 40_000];
    let writing = tokio::task::spawn_blocking(move || {
        for _ in 0..300 {
            peer.write_all(&framed(&piece)).unwrap();
        }
        peer
    });
    for _ in 0..100 {
        let taken = tokio::time::timeout(DEADLINE, link.when(0, Toy::take_window));
        assert_eq!(taken.await.unwrap().unwrap(), 120_000);
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn a_call_that_ends_a_link_without_timers_wakes_the_driver() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    link.call(|toy, _| toy.lifecycle = Lifecycle::Draining);
    let ended = tokio::task::spawn_blocking(move || peer.read_to_end(&mut Vec::new()));
    ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn taken_bytes_are_released_although_nothing_else_comes() {
    use std::io::Write;

    let toy = Toy {
        window: 3,
        echo: false,
        ..Toy::default()
    };
    let (link, mut peer) = at_rest(toy, 1 << 20).await;
    for _ in 0..3 {
        peer.write_all(&framed(&vec![7; 40_000])).unwrap();
    }
    let whole = link.when(0, |toy, _| match toy.events.len() {
        3 => Poll::Ready(()),
        _ => Poll::Pending,
    });
    tokio::time::timeout(DEADLINE, whole)
        .await
        .unwrap()
        .unwrap();
    rest().await;
    assert!(link.stats().charged > 0);
    assert_eq!(link.call(Toy::take_window), Poll::Ready(120_000));
    tokio::time::timeout(DEADLINE, async {
        while link.stats().charged > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn output_of_calls_and_of_the_driver_stays_in_order() {
    let (link, mut peer) = at_rest(Toy::default(), u64::MAX).await;
    let sizes: Vec<usize> = (0..2_000).map(|number| (number * 7_919) % 40_000).collect();
    let expected: Vec<u8> = sizes
        .iter()
        .map(|size| size % 251)
        .filter_map(to_byte)
        .collect();
    let reading = tokio::task::spawn_blocking({
        let sizes = sizes.clone();
        move || {
            let mut firsts = Vec::new();
            for size in sizes {
                let mut frame = vec![0; size + 4 + 1];
                peer.read_exact(&mut frame).unwrap();
                assert!(frame[4..].iter().all(|byte| *byte == frame[4]));
                firsts.push(frame[4]);
            }
            firsts
        }
    });
    for (number, size) in sizes.iter().enumerate() {
        let byte = u8::try_from(size % 251).unwrap();
        link.call(|toy, _| toy.send(vec![byte; size + 1]));
        if number % 3 == 0 {
            rest().await;
        }
    }
    let firsts = tokio::time::timeout(DEADLINE, reading).await.unwrap();
    assert_eq!(firsts.unwrap(), expected);
}

fn to_byte(value: usize) -> Option<u8> {
    u8::try_from(value).ok()
}
