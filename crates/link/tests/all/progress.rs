//! Links without progress, and slow peers that hold memory for which others wait.

#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;
use std::time::Duration;

use ackline_link::{Budget, End, Fairness, Link};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{sleep, timeout};

use crate::toy::{Toy, frames};

/// 3,000,000 bytes that are shared, and a reserve of 1,000,000.
const MEMORY: u64 = 4_000_000;

fn budget(max_sender_share: f64) -> Budget {
    let fairness = Fairness {
        max_sender_share,
        min_rate: 1_000,
        frame_timeout: Some(Duration::from_secs(60)),
    };
    Budget::fair(MEMORY, fairness)
}

fn opened(budget: &Budget, sender: &str) -> (Link<Toy>, DuplexStream) {
    let toy = Toy {
        echo: false,
        ..Toy::default()
    };
    let (ours, theirs) = duplex(8 * 1024);
    let link = Link::of_sender(toy, budget.clone(), &Arc::from(sender));
    let driven = link.clone();
    tokio::spawn(async move { driven.drive(ours).await });
    (link, theirs)
}

/// Announces a frame of so many bytes, sends the first of them fast and then one every five seconds.
fn trickle(mut peer: DuplexStream, announced: u32, fast: usize) {
    tokio::spawn(async move {
        peer.write_all(&announced.to_be_bytes()).await?;
        peer.write_all(&vec![7; fast]).await?;
        loop {
            peer.write_all(b"7").await?;
            sleep(Duration::from_secs(5)).await;
        }
        #[allow(unreachable_code)] // for its type
        Ok::<(), std::io::Error>(())
    });
}

async fn comes(link: &Link<Toy>, mut peer: DuplexStream, bytes: usize, within: Duration) -> bool {
    tokio::spawn(async move {
        let frame = frames(&[&vec![7; bytes]]);
        peer.write_all(&frame).await.unwrap();
        std::future::pending::<()>().await;
    });
    let whole = link.when(0, Toy::take);
    timeout(within, whole).await.is_ok_and(|it| it.is_ok())
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_is_ended_while_others_wait_and_they_continue() {
    let budget = budget(1.0);
    let holders: Vec<_> = (0..4)
        .map(|_| {
            let (link, peer) = opened(&budget, "slow");
            trickle(peer, 900_000, 1_000);
            link
        })
        .collect();
    sleep(Duration::from_secs(120)).await;
    let ended = holders.iter().filter(|link| link.is_ended()).count();
    assert_eq!((ended, budget.waiting()), (0, 0), "they have room");
    let (link, peer) = opened(&budget, "good");
    let stall_timeouts = Duration::from_secs(8);
    assert!(comes(&link, peer, 600_000, stall_timeouts).await);
    sleep(Duration::from_secs(2)).await;
    let ends: Vec<_> = holders.iter().filter_map(Link::end).collect();
    assert!(!ends.is_empty());
    for end in ends {
        let End::Slow { option, .. } = end else {
            panic!("{end:?}");
        };
        assert_eq!(option, "--frame-timeout");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_is_left_alone_while_no_link_waits() {
    let budget = budget(1.0);
    let (link, peer) = opened(&budget, "slow");
    trickle(peer, 900_000, 1_000);
    let (good, peer) = opened(&budget, "good");
    assert!(comes(&good, peer, 900_000, Duration::from_secs(1)).await);
    sleep(Duration::from_secs(3_600)).await;
    assert!(!link.is_ended());
}

#[tokio::test(start_paused = true)]
async fn a_sender_with_its_share_makes_no_other_wait() {
    let budget = budget(0.5);
    let mut holders = Vec::new();
    for _ in 0..10 {
        let (link, peer) = opened(&budget, "greedy");
        trickle(peer, 900_000, 100_000);
        holders.push(link);
    }
    sleep(Duration::from_secs(1)).await;
    assert!(budget.waiting() > 0);
    let (good, peer) = opened(&budget, "good");
    assert!(comes(&good, peer, 900_000, Duration::from_millis(10)).await);
}

#[tokio::test]
async fn a_driver_that_turns_and_gets_nowhere_is_ended() {
    let toy = Toy {
        spins: true,
        ..Toy::default()
    };
    let (ours, _theirs) = duplex(64);
    let link = Link::new(toy);
    let driven = timeout(Duration::from_secs(30), link.drive(ours)).await;
    let end = driven.unwrap().end;
    assert!(matches!(end, End::Stuck(passed) if passed >= Duration::from_secs(1)));
}
