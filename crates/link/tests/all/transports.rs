//! A connection that outlives its transports, and one that hands its transport on, under tokio's
//! paused clock.

#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ackline_core::Lifecycle;
use ackline_link::{Budget, Driven, End, FREE_BYTES, Link};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

use crate::toy::{Bad, Toy, frames};

type Drive = JoinHandle<Driven<DuplexStream, Bad>>;

fn survivor() -> Link<Toy> {
    Link::new(Toy {
        survives: true,
        ..Toy::default()
    })
}

/// Gives the link a transport with so much space. Returns the peer's end of it.
fn carry(link: &Link<Toy>, pipe: usize) -> (DuplexStream, Drive) {
    let (ours, theirs) = duplex(pipe);
    let link = link.clone();
    let drive = tokio::spawn(async move { link.drive(ours).await });
    (theirs, drive)
}

async fn read_frame(io: &mut DuplexStream) -> Vec<u8> {
    let len = io.read_u32().await.unwrap();
    let mut payload = vec![0; usize::try_from(len).unwrap()];
    io.read_exact(&mut payload).await.unwrap();
    payload
}

fn detached(link: &Link<Toy>) -> usize {
    link.call(|toy, _| toy.detached)
}

#[tokio::test(start_paused = true)]
async fn waits_survive_a_cut_and_go_on_with_the_next_transport() {
    let link = survivor();
    let (peer, drive) = carry(&link, 1024);
    let waiting = tokio::spawn({
        let link = link.clone();
        async move { link.when(0, Toy::take).await }
    });
    drop(peer);
    assert!(matches!(drive.await.unwrap().end, End::Eof));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!waiting.is_finished() && !link.is_ended() && !link.is_driven());
    assert_eq!((detached(&link), link.end().is_none()), (1, true));

    let (mut peer, _drive) = carry(&link, 1024);
    peer.write_all(&frames(&[b"late"])).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "late");
    assert!(link.is_driven());
}

#[tokio::test(start_paused = true)]
async fn calls_and_waits_work_without_a_transport_and_leave_with_the_next() {
    let link = survivor();
    let (peer, drive) = carry(&link, 1024);
    drop(peer);
    drive.await.unwrap();
    link.call(|toy, _| toy.send("kept"));
    let waited = link.when(0, |toy, _| match toy.out.len() {
        0 => Poll::Pending,
        count => Poll::Ready(count),
    });
    assert_eq!(waited.await.unwrap(), 1);
    let (mut peer, _drive) = carry(&link, 1024);
    assert_eq!(read_frame(&mut peer).await, b"kept");
}

#[tokio::test(start_paused = true)]
async fn the_newest_transport_wins_and_the_output_of_the_old_one_is_dropped() {
    let link = survivor();
    let (mut old, first) = carry(&link, 16);
    link.call(|toy, _| toy.send(vec![1; 10_000]));
    assert_eq!(old.read_u32().await.unwrap(), 10_000);

    let (ours, mut new) = duplex(1 << 16);
    let seen = Arc::new(Mutex::new(None));
    let drive = tokio::spawn({
        let (link, seen) = (link.clone(), Arc::clone(&seen));
        async move {
            let begin = move |toy: &mut Toy, _| {
                *seen.lock().unwrap() = Some(toy.detached);
                toy.send("anew");
            };
            link.attach(ours, BytesMut::new(), begin).await
        }
    });
    assert!(matches!(first.await.unwrap().end, End::Replaced));
    assert_eq!(read_frame(&mut new).await, b"anew");
    assert_eq!(*seen.lock().unwrap(), Some(1), "told of the old one first");
    let mut rest = Vec::new();
    old.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() < 10_000, "{}", rest.len());
    assert!(!drive.is_finished());
    assert_eq!(detached(&link), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_attach_wins_even_before_its_first_poll() {
    let link = survivor();
    let ((one, _one), (two, mut two_peer)) = (duplex(64), duplex(64));
    let first = link.attach(one, BytesMut::new(), |_, _| ());
    let second = link.attach(two, BytesMut::new(), |toy, _| toy.send("second"));
    let mut second = Box::pin(second);
    tokio::select! {
        biased;
        _ = &mut second => unreachable!("it has a peer"),
        frame = read_frame(&mut two_peer) => assert_eq!(frame, b"second"),
    }
    assert!(matches!(first.await.end, End::Replaced));
    assert_eq!(detached(&link), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_ends_the_transport_and_not_the_link() {
    let link = survivor();
    let (mut peer, drive) = carry(&link, 1024);
    peer.write_all(&frames(&[b"one", b"!"])).await.unwrap();
    assert_eq!(read_frame(&mut peer).await, b"one");
    assert_eq!(read_frame(&mut peer).await, b"bye");
    drop(peer);
    assert!(matches!(drive.await.unwrap().end, End::Protocol(_)));
    assert!(!link.is_ended());
    let faulty = tokio::time::timeout(Duration::from_secs(1), link.fault()).await;
    assert!(faulty.is_err(), "the next transport begins without it");
    assert_eq!(link.when(0, Toy::take).await.unwrap(), "one");

    let (mut peer, _drive) = carry(&link, 1024);
    peer.write_all(&frames(&[b"two"])).await.unwrap();
    assert_eq!(read_frame(&mut peer).await, b"two");
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_is_dropped_leaves_the_link_its_next_one() {
    let link = survivor();
    let (_peer, drive) = carry(&link, 1024);
    tokio::task::yield_now().await;
    drive.abort();
    assert!(drive.await.unwrap_err().is_cancelled());
    assert_eq!((detached(&link), link.is_ended()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_a_link_with_and_without_a_transport() {
    for has_transport in [true, false] {
        let link = survivor();
        let (peer, drive) = carry(&link, 1024);
        tokio::task::yield_now().await;
        if !has_transport {
            drop(peer);
            drive.await.unwrap();
        }
        link.abort();
        assert!(matches!(link.when(0, Toy::take).await, Err(End::Aborted)));
        let (mut peer, drive) = carry(&link, 1024);
        assert!(matches!(drive.await.unwrap().end, End::Aborted));
        assert_eq!(peer.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_survive_ends_with_its_transport() {
    let link = Link::new(Toy::default());
    let (peer, drive) = carry(&link, 1024);
    drop(peer);
    drive.await.unwrap();
    assert!(matches!(link.end(), Some(End::Eof)));
    assert_eq!(detached(&link), 1);
}

#[tokio::test(start_paused = true)]
async fn a_link_counts_over_all_its_transports() {
    let link = survivor();
    for round in 1..=3 {
        let (mut peer, drive) = carry(&link, 1024);
        peer.write_all(&frames(&[b"12345678"])).await.unwrap();
        assert_eq!(read_frame(&mut peer).await, b"12345678");
        drop(peer);
        drive.await.unwrap();
        let stats = link.stats();
        assert_eq!((stats.bytes_in, stats.bytes_out), (12 * round, 12 * round));
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_held_without_a_transport_are_charged_until_released() {
    let toy = Toy {
        survives: true,
        window: 2,
        echo: false,
        ..Toy::default()
    };
    let budget = Budget::new(16 << 20);
    let link = Link::with_budget(toy, budget.clone());
    let (mut peer, drive) = carry(&link, 1 << 20);
    let half = vec![0; FREE_BYTES];
    peer.write_all(&frames(&[&half, &half])).await.unwrap();
    drop(peer);
    drive.await.unwrap();
    assert_eq!(budget.used(), u64::try_from(FREE_BYTES).unwrap());
    link.when(0, Toy::take_window).await.unwrap();
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_hands_over_writes_all_and_leaves_the_rest_unread() {
    // Also when the peer has ended already: the next machine judges that.
    for ends in [false, true] {
        let first = Link::new(Toy::default());
        let (mut peer, drive) = carry(&first, 1024);
        let wire = [frames(&[b"hello", b">"]), frames(&[b"next"])].concat();
        peer.write_all(&wire).await.unwrap();
        if ends {
            peer.shutdown().await.unwrap();
        }
        let driven = drive.await.unwrap();
        assert!(matches!(driven.end, End::Handover), "{}", driven.end);
        assert_eq!(driven.leftover, frames(&[b"next"]));
        assert!(matches!(first.end(), Some(End::Handover)));
        for expected in [&b"hello"[..], b"over"] {
            assert_eq!(read_frame(&mut peer).await, expected);
        }
        let second = Link::new(Toy::default());
        let drive = tokio::spawn({
            let second = second.clone();
            async move { second.drive_from(driven.io, driven.leftover).await.end }
        });
        assert_eq!(read_frame(&mut peer).await, b"next");
        if ends {
            assert!(matches!(drive.await.unwrap(), End::Eof));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handover_waits_until_all_is_written() {
    let first = Link::new(Toy::default());
    let (mut peer, drive) = carry(&first, 16);
    first.call(|toy, _| {
        toy.send(vec![3; 1_000]);
        toy.lifecycle = Lifecycle::Handover;
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!drive.is_finished());
    assert_eq!(read_frame(&mut peer).await, [3; 1_000]);
    assert!(matches!(drive.await.unwrap().end, End::Handover));
}
