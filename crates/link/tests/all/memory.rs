//! The memory budget as many links see it, under tokio's paused clock.

#![allow(clippy::unwrap_used)] // a test may panic

use std::time::Duration;

use ackline_link::{Budget, End, Link};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;

use crate::toy::{Toy, frames};

const FRAME: usize = 16 * 1024;
const FRAMES: usize = 16;

fn window_link(budget: &Budget) -> (Link<Toy>, DuplexStream) {
    let toy = Toy {
        echo: false,
        window: FRAMES,
        ..Toy::default()
    };
    let (ours, theirs) = duplex(8 * 1024);
    let link = Link::with_budget(toy, budget.clone());
    let driven = link.clone();
    tokio::spawn(async move { driven.drive(ours).await });
    (link, theirs)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_half_read_windows_complete_within_the_budget() {
    let budget = Budget::new(4 << 20);
    let mut waits = budget.watch();
    let mut peers = JoinSet::new();
    let mut consumers = JoinSet::new();
    for _ in 0..1_000 {
        let (link, mut peer) = window_link(&budget);
        peers.spawn(async move {
            let frame = frames(&[&[7; FRAME]]);
            for _ in 0..FRAMES {
                peer.write_all(&frame).await.unwrap();
            }
            peer
        });
        let budget = budget.clone();
        consumers.spawn(async move {
            let bytes = link.when(0, Toy::take_window).await.unwrap();
            assert!(budget.used() <= budget.limit());
            bytes
        });
    }
    assert!(*waits.wait_for(|waiting| *waiting > 900).await.unwrap() > 900);
    // The clock runs only when nothing else can: a deadlock ends here.
    let hour = Duration::from_secs(3_600);
    let sizes = tokio::time::timeout(hour, consumers.join_all())
        .await
        .unwrap();
    assert_eq!(sizes, vec![FRAME * FRAMES; 1_000]);
    waits.wait_for(|waiting| *waiting == 0).await.unwrap();
    drop(peers);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((budget.used(), budget.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn links_that_are_never_idle_take_turns() {
    // Room for about four windows of 256 KiB; ten senders never stop, and each settling takes a while.
    let budget = Budget::new(1 << 20);
    let mut peers = JoinSet::new();
    let mut consumers = JoinSet::new();
    let turns = std::sync::Arc::new(std::sync::Mutex::new([0_u32; 10]));
    for number in 0..10 {
        let (link, mut peer) = window_link(&budget);
        peers.spawn(async move {
            let frame = frames(&[&[7; FRAME]]);
            while peer.write_all(&frame).await.is_ok() {}
        });
        let turns = std::sync::Arc::clone(&turns);
        consumers.spawn(async move {
            loop {
                let whole = |toy: &mut Toy, _| match toy.events.len() {
                    FRAMES.. => std::task::Poll::Ready(()),
                    _ => std::task::Poll::Pending,
                };
                link.when(0, whole).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
                link.when(0, Toy::take_window).await.unwrap();
                turns.lock().unwrap()[number] += 1;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let turns = *turns.lock().unwrap();
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(*least > 100 && *most <= 2 * least, "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn unsettled_bytes_stop_reading_and_close_nothing() {
    let budget = Budget::new(1 << 20);
    let mut kept = Vec::new();
    let mut writers = JoinSet::new();
    for _ in 0..4 {
        let (link, mut peer) = window_link(&budget);
        kept.push(link);
        writers.spawn(async move {
            for _ in 0..10 * FRAMES {
                peer.write_all(&frames(&[&[7; FRAME]])).await.unwrap();
            }
            peer
        });
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(budget.waiting(), 4);
    assert!(budget.used() <= budget.limit());
    for link in &kept {
        assert!(link.stats().paused && !link.is_ended());
        assert_eq!(link.call(|toy, _| toy.reading.last().copied()), Some(false));
    }
    let mut consumers = JoinSet::new();
    for link in kept {
        consumers.spawn(async move {
            for _ in 0..10 {
                link.when(0, Toy::take_window).await.unwrap();
            }
        });
    }
    consumers.join_all().await;
    assert_eq!(writers.join_all().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_announcement_above_the_budget_ends_the_link_naming_the_option() {
    let budget = Budget::new(1 << 20);
    let (ours, mut peer) = duplex(1024);
    let link = Link::with_budget(Toy::default(), budget.clone());
    let drive = tokio::spawn(async move { link.drive(ours).await });
    peer.write_all(&frames(&[b"one", b"two"])).await.unwrap();
    peer.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
    peer.shutdown().await.unwrap();
    let End::Memory {
        value,
        limit,
        needed,
        option,
        offset,
    } = drive.await.unwrap().end
    else {
        panic!("not a memory limit");
    };
    assert_eq!(value, 4 + u64::from(u32::MAX));
    assert_eq!((limit, option), (budget.largest(), "--memory"));
    assert_eq!(needed, Budget::needed(value));
    assert_eq!(offset, 2 * (4 + 3), "what came before it");
}

#[tokio::test(start_paused = true)]
async fn bytes_of_an_ended_link_stay_charged_until_settled() {
    let budget = Budget::new(1 << 20);
    let (link, mut peer) = window_link(&budget);
    for _ in 0..FRAMES {
        peer.write_all(&frames(&[&[7; FRAME]])).await.unwrap();
    }
    drop(peer);
    while !link.is_ended() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(budget.used(), 4 * 64 * 1024, "nothing of it is free");
    link.when(0, Toy::take_window).await.unwrap();
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn idle_links_are_charged_nothing() {
    let budget = Budget::new(1 << 20);
    let (link, mut peer) = window_link(&budget);
    for _ in 0..FRAMES {
        peer.write_all(&frames(&[&[7; FRAME]])).await.unwrap();
    }
    link.when(0, Toy::take_window).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((budget.used(), link.stats().charged), (0, 0));
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_were_granted_and_did_not_come_are_returned() {
    // Each read fills its space to the last byte, so that more is asked for, and then nothing comes.
    for frames_each in 2..=FRAMES {
        let budget = Budget::new(4 << 20);
        let toy = Toy {
            echo: false,
            ..Toy::default()
        };
        let (ours, mut peer) = duplex(1 << 20);
        let link = Link::with_budget(toy, budget.clone());
        let driven = link.clone();
        tokio::spawn(async move { driven.drive(ours).await });
        let frame = frames(&[&[7; FRAME - 4]]);
        peer.write_all(&frame.repeat(frames_each)).await.unwrap();
        for _ in 0..frames_each {
            link.when(0, Toy::take_window).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert_eq!(budget.used(), 0, "after {frames_each} frames");
        peer.write_all(&frame).await.unwrap();
        link.when(0, Toy::take_window).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_for_a_missing_frame_is_returned_at_the_links_end() {
    let budget = Budget::new(4 << 20);
    let (link, mut peer) = window_link(&budget);
    peer.write_all(&(512_u32 << 10).to_be_bytes())
        .await
        .unwrap();
    peer.write_all(&vec![7; 200 << 10]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(budget.used() >= 400 << 10, "{}", budget.used());
    drop(peer);
    while !link.is_ended() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_link_returns_its_unsettled_bytes() {
    let budget = Budget::new(1 << 20);
    let (link, mut peer) = window_link(&budget);
    for _ in 0..FRAMES {
        peer.write_all(&frames(&[&[7; FRAME]])).await.unwrap();
    }
    drop(peer);
    while !link.is_ended() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(budget.used() > 0);
    // The driver's task has its own clone until it has returned.
    drop(link);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_count_more_than_once_are_taken_as_memory_allows() {
    const COPY: usize = 100_000;
    let budget = Budget::new(400_000);
    let copying = || {
        let toy = Toy {
            copies: (50, COPY),
            ..Toy::default()
        };
        let (ours, mut theirs) = duplex(8 * 1024);
        let link = Link::with_budget(toy, budget.clone());
        let driven = link.clone();
        tokio::spawn(async move { driven.drive(ours).await });
        tokio::spawn(async move {
            theirs.write_all(&frames(&[b"x"])).await.unwrap();
            std::future::pending::<()>().await;
            drop(theirs);
        });
        link
    };
    let links = [copying(), copying()];
    let mut most = 0;
    // One copy after the other is settled, of any link that has some: all of them come.
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(budget.used() <= budget.limit());
        most = most.max(budget.used());
        let is_held = |link: &&Link<Toy>| link.call(|toy, _| toy.held) >= COPY;
        let link = links.iter().find(is_held).unwrap();
        assert!(link.stats().paused || link.call(|toy, _| toy.copies.0) == 0);
        link.call(|toy, _| toy.held -= COPY);
    }
    assert!(most > 100_000, "there was room for more than one");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let over = links
        .each_ref()
        .map(|link| link.call(|toy, _| (toy.held, toy.copies.0, toy.events.len())));
    assert_eq!(over, [(0, 0, 1); 2]);
    assert_eq!((budget.used(), budget.waiting()), (0, 0));
}
