//! A peer that reads nothing is given up; a slow one is not.

#![allow(clippy::unwrap_used)] // a test may panic

use std::time::Duration;

use ackline_core::{SEND_TIMEOUT, StallTimeouts};
use ackline_link::{Address, Driven, End, Link, Listener};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::toy::{Bad, Toy, frames};

fn stall_timeouts(send: Option<u64>, silence: Option<u64>) -> StallTimeouts {
    StallTimeouts {
        send: send.map(Duration::from_secs),
        silence: silence.map(Duration::from_secs),
    }
}

/// A link with more to send than its transport takes.
fn blocked(stall_timeouts: StallTimeouts) -> (DuplexStream, JoinHandle<Driven<DuplexStream, Bad>>) {
    let (ours, theirs) = duplex(1_024);
    let toy = Toy {
        echo: false,
        stall_timeouts,
        ..Toy::default()
    };
    let link = Link::new(toy);
    link.call(|toy, _| toy.send(vec![7; 100_000]));
    (theirs, tokio::spawn(async move { link.drive(ours).await }))
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_given_up_after_the_send_timeout() {
    let begun = Instant::now();
    let (mut peer, drive) = blocked(StallTimeouts::of_pings(None, None));
    // It continues to send.
    tokio::spawn(async move {
        while peer.write_all(&frames(&[b"x"])).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let end = drive.await.unwrap().end;
    assert_eq!(begun.elapsed().as_secs(), SEND_TIMEOUT.as_secs());
    let text = end.to_string();
    assert!(
        text.contains("the peer has taken nothing for 30 s while"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_silent_as_well_is_given_up_as_by_a_ping() {
    let begun = Instant::now();
    let both = |seconds| Some(Duration::from_secs(seconds));
    let (_peer, drive) = blocked(StallTimeouts::of_pings(both(11), both(7)));
    assert!(matches!(drive.await.unwrap().end, End::Io(_)));
    assert_eq!(begun.elapsed().as_secs(), 18);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_gave_no_sign_of_life_is_left_at_once() {
    let (ours, _peer) = duplex(1_024);
    let link = Link::new(Toy {
        signs: Some(0),
        ..Toy::default()
    });
    link.call(|toy, now| toy.start_keepalive(now, Duration::from_secs(3)));
    // Also with a goodbye that the peer does not read.
    link.call(|toy, _| toy.send(vec![7; 100_000]));
    let begun = Instant::now();
    let end = link.drive(ours).await.end;
    assert!(
        matches!(&end, End::Protocol(error) if error.kind.is_silence),
        "{end}"
    );
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_a_little_at_a_time_is_waited_for() {
    let (mut peer, drive) = blocked(stall_timeouts(Some(30), Some(18)));
    let mut all: Vec<u8> = Vec::new();
    while all.len() < 100_004 {
        tokio::time::sleep(Duration::from_secs(17)).await;
        let mut some = [0; 1_024];
        let count = peer.read(&mut some).await.unwrap();
        all.extend(&some[..count]);
    }
    peer.shutdown().await.unwrap();
    drop(peer);
    assert!(matches!(drive.await.unwrap().end, End::Eof | End::Io(_)));
    assert_eq!(all.len(), 100_004);
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_or_waiting_output_no_peer_is_given_up() {
    let (_peer, drive) = blocked(stall_timeouts(None, None));
    let (ours, _theirs) = duplex(1_024);
    let idle = Link::new(Toy {
        stall_timeouts: stall_timeouts(Some(1), Some(1)),
        ..Toy::default()
    });
    let idle = tokio::spawn(async move { idle.drive(ours).await });
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!drive.is_finished() && !idle.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_time_begins_when_something_waits() {
    let (ours, mut peer) = duplex(1_024);
    let link = Link::new(Toy {
        echo: false,
        stall_timeouts: stall_timeouts(Some(30), Some(18)),
        ..Toy::default()
    });
    let driven = link.clone();
    let drive = tokio::spawn(async move { driven.drive(ours).await });
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    link.call(|toy, _| toy.send(vec![7; 2_000]));
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert!(!drive.is_finished());
    peer.read_exact(&mut [0; 2_004]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!drive.is_finished());
}

#[tokio::test]
async fn bytes_taken_by_the_peers_system_alone_count_too() {
    let address: Address = "toy://127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&address).await.unwrap();
    let local = listener.local().unwrap().to_string();
    let port = local.rsplit_once(':').unwrap().1.to_owned();
    let mut peer = TcpStream::connect(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    SockRef::from(&peer).set_recv_buffer_size(16_384).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    // This end's system holds so many bytes that nothing more can be written for a while.
    SockRef::from(stream.tcp().unwrap())
        .set_send_buffer_size(4 << 20)
        .unwrap();
    let link = Link::new(Toy {
        echo: false,
        stall_timeouts: stall_timeouts(Some(2), None),
        ..Toy::default()
    });
    link.call(|toy, _| toy.send(vec![7; 30_000_000]));
    let driven = link.clone();
    let drive = tokio::spawn(async move { driven.drive_socket(stream).await.end });
    let begun = Instant::now();
    let mut some = vec![0; 30_000];
    while begun.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        peer.read_exact(&mut some).await.unwrap();
        assert!(!drive.is_finished());
    }
    let stopped = Instant::now();
    let end = tokio::time::timeout(Duration::from_secs(20), drive)
        .await
        .unwrap();
    assert!(matches!(end.unwrap(), End::Io(_)));
    assert!(stopped.elapsed() >= Duration::from_secs(1));
}
