//! Peers that end their direction and still read.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::time::Duration;

use ackline::micromsg::{self, AckPolicy};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::micromsg::{LONG, listener_with, soon, text, with};
use crate::micromsg_receiver::ByHand;

async fn listener_and_peer_by_hand(policy: AckPolicy) -> (micromsg::Listener, ByHand) {
    let (listener, address) = listener_with(with(policy, None, 10)).await;
    let peer = soon(ByHand::at(&address)).await;
    (listener, peer)
}

#[tokio::test]
async fn messages_before_a_peers_end_are_acknowledged_by_hand_and_by_themselves() {
    for policy in [AckPolicy::Manual, AckPolicy::Automatic] {
        let (listener, mut peer) = listener_and_peer_by_hand(policy).await;
        for text in ["a", "b", "c"] {
            soon(peer.send("t", text)).await;
        }
        peer.stream.shutdown().await.unwrap();
        let right = soon(listener.accept()).await.unwrap();
        for expected in ["a", "b", "c"] {
            assert_eq!(text(&right).await, expected);
        }
        assert_eq!(soon(right.receive()).await.unwrap(), None);
        // The application thinks about it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        if policy == AckPolicy::Manual {
            right.ack(3).unwrap();
        }
        while soon(peer.read()).await {}
        assert_eq!(peer.machine.pending(), 0, "{policy:?}");
    }
}

#[tokio::test]
async fn an_end_that_closes_without_acknowledging_does_not_wait_for_it() {
    let (listener, mut peer) = listener_and_peer_by_hand(AckPolicy::Manual).await;
    soon(peer.send("t", "a")).await;
    peer.stream.shutdown().await.unwrap();
    let right = soon(listener.accept()).await.unwrap();
    assert_eq!(text(&right).await, "a");
    assert_eq!(soon(right.receive()).await.unwrap(), None);
    let begun = Instant::now();
    // It is over already.
    let _ = soon(right.close(Some(LONG))).await;
    while soon(peer.read()).await {}
    assert_eq!(peer.machine.pending(), 1);
    assert!(begun.elapsed() < Duration::from_secs(2));
}
