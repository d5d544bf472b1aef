//! The driver over an in-memory transport, under tokio's paused clock.

#![allow(clippy::unwrap_used)] // a test may panic

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ackline_core::Lifecycle;
use ackline_link::{CLOSE_DEADLINE, Driven, ERROR_FLUSH_DEADLINE, End, Link};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::toy::{Bad, Toy, frames};

type Drive = JoinHandle<Driven<DuplexStream, Bad>>;

/// A driven link and the peer's end of its transport.
fn start(toy: Toy, pipe: usize) -> (Link<Toy>, DuplexStream, Drive) {
    let (ours, theirs) = duplex(pipe);
    let link = Link::new(toy);
    let driven = link.clone();
    let drive = tokio::spawn(async move { driven.drive(ours).await });
    (link, theirs, drive)
}

async fn read_frame(io: &mut DuplexStream) -> Vec<u8> {
    let len = io.read_u32().await.unwrap();
    let mut payload = vec![0; usize::try_from(len).unwrap()];
    io.read_exact(&mut payload).await.unwrap();
    payload
}

#[tokio::test(start_paused = true)]
async fn frames_arrive_and_are_answered_however_they_are_cut() {
    let (link, mut peer, _drive) = start(Toy::default(), 1 << 20);
    let large = vec![7; 300_000];
    let wire = frames(&[b"one", &large, b"three"]);
    for chunk in wire.chunks(70_001) {
        peer.write_all(chunk).await.unwrap();
        tokio::task::yield_now().await;
    }
    for expected in [&b"one"[..], &large, b"three"] {
        assert_eq!(link.when(0, Toy::take).await.unwrap(), expected);
        assert_eq!(read_frame(&mut peer).await, expected);
    }
    let stats = link.stats();
    assert_eq!((stats.bytes_in, stats.bytes_out), (300_020, 300_020));
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_stops_reading_until_events_are_taken() {
    let toy = Toy {
        room: 2,
        echo: false,
        ..Toy::default()
    };
    let (link, mut peer, _drive) = start(toy, 64);
    let writer = tokio::spawn(async move {
        for _ in 0..10_000 {
            peer.write_all(&frames(&[b"0123456789"])).await.unwrap();
        }
        peer
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!writer.is_finished());
    assert_eq!(link.call(|toy, _| toy.reading.clone()), [false]);
    let held = link.stats().bytes_in;
    assert!(held < 65_536 + 64, "read on to {held}");
    for _ in 0..10_000 {
        link.when(0, Toy::take).await.unwrap();
    }
    writer.await.unwrap();
    assert_eq!(link.call(|toy, _| toy.reading.last().copied()), Some(true));
}

#[tokio::test(start_paused = true)]
async fn timers_fire_while_reading_is_off() {
    let toy = Toy {
        room: 0,
        ..Toy::default()
    };
    let (link, mut peer, _drive) = start(toy, 1024);
    peer.write_all(&frames(&[b"stuck"])).await.unwrap();
    link.call(|toy, now| toy.start_keepalive(now, Duration::from_secs(3)));
    let begin = Instant::now();
    for _ in 0..1_200 {
        assert_eq!(read_frame(&mut peer).await, b"alive");
    }
    assert_eq!(begin.elapsed().as_secs(), 3_600);
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_hands_on_its_transport_and_the_unread_bytes() {
    let (link, mut peer, drive) = start(Toy::default(), 1024);
    let wire = [frames(&[b"hello", b"@"]), frames(&[b"next"])].concat();
    peer.write_all(&wire).await.unwrap();
    let driven = drive.await.unwrap();
    assert!(matches!(driven.end, End::Closed));
    assert_eq!(driven.leftover, frames(&[b"next"]));
    assert_eq!(read_frame(&mut peer).await, b"hello");

    let next = Link::new(Toy::default());
    let _drive = tokio::spawn({
        let next = next.clone();
        async move { next.drive_from(driven.io, driven.leftover).await }
    });
    assert_eq!(next.when(0, Toy::take).await.unwrap(), "next");
    assert_eq!(read_frame(&mut peer).await, b"next");
    assert_eq!(link.when(0, Toy::take).await.unwrap(), "hello");
    assert!(matches!(link.when(0, Toy::take).await, Err(End::Closed)));
}

#[tokio::test(start_paused = true)]
async fn after_the_peers_end_it_still_gets_its_answers() {
    let (_link, mut peer, drive) = start(Toy::default(), 1024);
    peer.write_all(&frames(&[b"last"])).await.unwrap();
    peer.shutdown().await.unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, frames(&[b"last"]));
    assert!(matches!(drive.await.unwrap().end, End::Eof));
}

#[tokio::test(start_paused = true)]
async fn an_error_says_goodbye_and_keeps_the_events_before_it() {
    let (link, mut peer, drive) = start(Toy::default(), 1024);
    peer.write_all(&frames(&[b"good", b"!", b"never"]))
        .await
        .unwrap();
    assert_eq!(read_frame(&mut peer).await, b"good");
    assert_eq!(read_frame(&mut peer).await, b"bye");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    drop(peer);
    let End::Protocol(error) = drive.await.unwrap().end else {
        panic!("not a protocol error");
    };
    assert_eq!(error.offset, 8);
    assert_eq!(link.when(0, Toy::take).await.unwrap(), "good");
    assert!(matches!(
        link.when(0, Toy::take).await,
        Err(End::Protocol(_))
    ));
}

/// A toy that owes this many answers when it fails.
fn owing(owed: usize) -> Toy {
    Toy {
        owed,
        ..Toy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_error_our_end_waits_for_the_answers_that_are_owed() {
    let (link, mut peer, drive) = start(owing(1), 1024);
    peer.write_all(&frames(&[b"!", b"never"])).await.unwrap();
    assert!(matches!(link.fault().await, End::Protocol(_)));
    assert_eq!(read_frame(&mut peer).await, b"bye");
    tokio::time::sleep(Duration::from_secs(4)).await;
    peer.write_all(b"nobody reads this").await.unwrap();
    assert!(!link.call(|toy, _| toy.hung_up));
    let begin = Instant::now();
    link.call(|toy, _| {
        toy.send("answer");
        toy.owed = 0;
    });
    assert_eq!(read_frame(&mut peer).await, b"answer");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(begin.elapsed().as_millis(), 0);
    assert!(link.call(|toy, _| toy.hung_up));
    drop(peer);
    assert!(matches!(drive.await.unwrap().end, End::Protocol(_)));
}

#[tokio::test(start_paused = true)]
async fn answers_owed_for_too_long_are_given_up() {
    let (link, mut peer, drive) = start(owing(1), 1024);
    let begin = Instant::now();
    peer.write_all(&frames(&[b"!"])).await.unwrap();
    assert_eq!(read_frame(&mut peer).await, b"bye");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(begin.elapsed().as_millis(), CLOSE_DEADLINE.as_millis());
    assert!(link.call(|toy, _| toy.hung_up));
    assert!(matches!(drive.await.unwrap().end, End::Protocol(_)));
    let longest = CLOSE_DEADLINE + ERROR_FLUSH_DEADLINE;
    assert_eq!(begin.elapsed().as_millis(), longest.as_millis());
}

#[tokio::test(start_paused = true)]
async fn after_the_peers_end_owed_answers_are_sent_before_our_end() {
    let (link, mut peer, drive) = start(owing(1), 1024);
    peer.write_all(&frames(&[b"whole"])).await.unwrap();
    peer.shutdown().await.unwrap();
    assert_eq!(link.when(0, Toy::take).await.unwrap(), "whole");
    assert!(matches!(link.fault().await, End::Eof));
    tokio::time::sleep(Duration::from_millis(4999)).await;
    assert!(!link.is_ended());
    assert_eq!(read_frame(&mut peer).await, b"whole");
    link.call(|toy, _| {
        toy.send("answer");
        toy.owed = 0;
    });
    assert_eq!(read_frame(&mut peer).await, b"answer");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(link.call(|toy, _| toy.hung_up));
    assert!(matches!(drive.await.unwrap().end, End::Eof));
}

#[tokio::test(start_paused = true)]
async fn answers_owed_for_too_long_after_the_peers_end_are_given_up() {
    let (link, mut peer, drive) = start(owing(1), 1024);
    let begin = Instant::now();
    peer.shutdown().await.unwrap();
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(begin.elapsed().as_millis(), CLOSE_DEADLINE.as_millis());
    assert!(link.call(|toy, _| toy.hung_up));
    assert!(matches!(drive.await.unwrap().end, End::Eof));
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_breaks_while_answers_are_owed_does_not_hide_the_error() {
    let (link, mut peer, drive) = start(owing(1), 1024);
    peer.write_all(&frames(&[b"!"])).await.unwrap();
    assert_eq!(read_frame(&mut peer).await, b"bye");
    drop(peer);
    link.call(|toy, _| toy.send("answer"));
    assert!(matches!(drive.await.unwrap().end, End::Protocol(_)));
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_that_the_peer_does_not_read_waits_one_second() {
    let (_link, mut peer, drive) = start(Toy::default(), 6);
    let begin = Instant::now();
    peer.write_all(&frames(&[b"!"])).await.unwrap();
    assert!(matches!(drive.await.unwrap().end, End::Protocol(_)));
    assert_eq!(
        begin.elapsed().as_millis(),
        ERROR_FLUSH_DEADLINE.as_millis()
    );
}

#[tokio::test(start_paused = true)]
async fn draining_sends_everything_then_waits_for_the_peers_end() {
    let (link, mut peer, drive) = start(Toy::default(), 1024);
    link.call(|toy, _| {
        toy.send("payload");
        toy.lifecycle = Lifecycle::Draining;
    });
    assert_eq!(read_frame(&mut peer).await, b"payload");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    peer.write_all(b"dropped").await.unwrap();
    peer.shutdown().await.unwrap();
    assert!(matches!(drive.await.unwrap().end, End::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_close_is_left_after_the_deadline() {
    let (link, peer, drive) = start(Toy::default(), 1024);
    let begin = Instant::now();
    link.call(|toy, _| toy.lifecycle = Lifecycle::Draining);
    assert!(matches!(drive.await.unwrap().end, End::CloseDeadline));
    assert_eq!(begin.elapsed().as_millis(), CLOSE_DEADLINE.as_millis());
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_known_before_its_goodbye_has_ended() {
    let (link, mut peer, drive) = start(Toy::default(), 6);
    let begin = Instant::now();
    peer.write_all(&frames(&[b"!"])).await.unwrap();
    assert!(matches!(link.fault().await, End::Protocol(_)));
    assert!(!link.is_ended());
    assert_eq!(begin.elapsed().as_millis(), 0);
    assert!(matches!(drive.await.unwrap().end, End::Protocol(_)));
}

#[tokio::test(start_paused = true)]
async fn a_link_that_ends_in_order_has_its_end_as_fault() {
    let (link, peer, _drive) = start(Toy::default(), 64);
    drop(peer);
    assert!(matches!(link.fault().await, End::Eof));
}

#[tokio::test(start_paused = true)]
async fn the_close_timeout_counts_from_our_end_and_never_cuts_queued_output() {
    let (link, mut peer, drive) = start(Toy::default(), 6);
    let begin = Instant::now();
    link.close_within(Duration::from_secs(1));
    link.call(|toy, _| {
        toy.send("longer than the pipe");
        toy.lifecycle = Lifecycle::Draining;
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!link.is_ended());
    assert_eq!(read_frame(&mut peer).await, b"longer than the pipe");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(matches!(drive.await.unwrap().end, End::CloseDeadline));
    assert_eq!(begin.elapsed().as_millis(), 4_000);
}

#[tokio::test(start_paused = true)]
async fn waits_end_with_the_link() {
    for how in ["abort", "drop", "replace"] {
        let (link, _peer, drive) = start(Toy::default(), 64);
        let waiting = tokio::spawn({
            let link = link.clone();
            async move { link.when(9, Toy::take).await }
        });
        tokio::task::yield_now().await;
        match how {
            "abort" => link.abort(),
            "drop" => drive.abort(),
            _ => {
                let (ours, _) = duplex(64);
                assert!(matches!(link.drive(ours).await.end, End::Eof));
                assert!(matches!(drive.await.unwrap().end, End::Replaced));
            }
        }
        let error = waiting.await.unwrap().unwrap_err();
        let is_right = match how {
            "abort" => matches!(error, End::Aborted),
            "drop" => matches!(error, End::Dropped),
            _ => matches!(error, End::Eof),
        };
        assert!(is_right, "{how}: {error}");
        assert!(link.is_ended());
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyed_wait_runs_again_for_its_key_only() {
    let link = Link::new(Toy::default());
    let runs = Arc::new(AtomicUsize::new(0));
    let waiting = tokio::spawn({
        let (link, runs) = (link.clone(), Arc::clone(&runs));
        async move {
            let counted = |toy: &mut Toy, now| {
                runs.fetch_add(1, Ordering::Relaxed);
                toy.take(now)
            };
            link.when(7, counted).await
        }
    });
    for _ in 0..100 {
        link.call(|toy, _| toy.send("x"));
        link.wake(8);
        tokio::task::yield_now().await;
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    link.wake(7);
    tokio::task::yield_now().await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    link.call(|toy, _| toy.wakes.extend([6, 8]));
    tokio::task::yield_now().await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    link.call(|toy, _| toy.wakes.extend([6, 7]));
    tokio::task::yield_now().await;
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    waiting.abort();
}

/// Records how many pieces each write had, and takes them all.
struct Recorder {
    writes: Arc<Mutex<Vec<usize>>>,
}

impl AsyncRead for Recorder {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Recorder {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.lock().unwrap().push(1);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes.lock().unwrap().push(bufs.len());
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn large_payloads_leave_in_one_vectored_write() {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let link = Link::new(Toy {
        lifecycle: Lifecycle::Closed,
        ..Toy::default()
    });
    link.call(|toy, _| {
        for _ in 0..3 {
            toy.send(vec![0; 3_000]);
        }
    });
    link.drive(Recorder {
        writes: Arc::clone(&writes),
    })
    .await;
    assert_eq!(*writes.lock().unwrap(), [6]);
}
