//! Connectors that make links for nothing, or ask for a link that is not theirs, over plain connections.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use crate::cutter::{soon, until};
use ackline::relink::KeepOptions;
use ackline::relink::{self, ConnectOptions, ListenOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ANY: &str = "relink://127.0.0.1:0/orders";

/// The handshake of a connector that asks for this link, or for a new one; answers epoch and link id.
async fn asks(url: &str, epoch: u64, link_id: u64) -> Option<(TcpStream, (u64, u64))> {
    let address = url.split("//").nth(1)?.split('/').next()?;
    let mut stream = TcpStream::connect(address).await.ok()?;
    let require = if link_id == 0 { 0 } else { 4 };
    let mut bytes = vec![0; 8];
    bytes.extend(b"\x06orders\x04\x04");
    bytes.extend([require, 0, 0, 0, 0, 0, 0]);
    bytes.extend(epoch.to_le_bytes());
    bytes.extend(link_id.to_le_bytes());
    stream.write_all(&bytes).await.ok()?;
    let mut answer = [0; 24];
    soon(stream.read_exact(&mut answer)).await.ok()?;
    let number = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().unwrap());
    Some((stream, (number(8), number(16))))
}

#[tokio::test]
async fn the_ids_of_other_links_cannot_be_guessed_from_an_own_one() {
    let listener = relink::listen(ANY, ListenOptions::default()).await.unwrap();
    let victim = relink::connect(listener.url(), ConnectOptions::default())
        .await
        .unwrap();
    let victims = victim.key().link_id;
    let mut own = Vec::new();
    for _ in 0..8 {
        let (_stream, (epoch, link_id)) = asks(listener.url(), 0, 0).await.unwrap();
        assert_eq!(epoch, victim.key().epoch, "the epoch is public");
        own.push(link_id);
    }
    own.push(victims);
    assert!(own.iter().all(|id| (1..1 << 63).contains(id)), "{own:?}");
    // Nine numbers of 63 bits: the nearest two are closer than 2^32 once in about 30 million runs.
    own.sort_unstable();
    let apart = own.windows(2).all(|two| two[1] - two[0] > 1 << 32);
    assert!(apart, "{own:?}");
    for guess in own.iter().flat_map(|id| [id - 1, id + 1]) {
        let (_stream, (_, got)) = asks(listener.url(), victim.key().epoch, guess)
            .await
            .unwrap();
        assert_eq!(got, 0, "there is no link {guess}");
    }
}

#[tokio::test]
async fn links_that_carried_nothing_keep_nobody_out_and_those_that_carried_something_stay() {
    let listen = ListenOptions {
        keep: KeepOptions {
            max_links: 8,
            ..KeepOptions::default()
        },
        ..ListenOptions::default()
    };
    let listener = relink::listen(ANY, listen).await.unwrap();
    let (stream, (epoch, used)) = asks(listener.url(), 0, 0).await.unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    accepted
        .try_send(&relink::ChannelId::from(1_u32), b"kept".as_slice())
        .unwrap();
    drop(stream);
    for _ in 0..40 {
        asks(listener.url(), 0, 0).await.unwrap();
        // Each is left without a connection before the next one comes.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(listener.links() <= 8, "{}", listener.links());
    let good = relink::connect(listener.url(), ConnectOptions::default()).await;
    good.unwrap();
    let (_stream, (_, again)) = asks(listener.url(), epoch, used).await.unwrap();
    assert_eq!(again, used, "a link with a message is nobody's to give up");
}

#[tokio::test]
async fn a_sender_that_leaves_many_used_links_keeps_a_quarter_free_for_others() {
    let listen = ListenOptions {
        keep: KeepOptions {
            max_links: 4,
            ..KeepOptions::default()
        },
        ..ListenOptions::default()
    };
    let listener = relink::listen(ANY, listen).await.unwrap();
    let mut accepted = Vec::new();
    for _ in 0..3 {
        let asked = asks(listener.url(), 0, 0).await.unwrap();
        let link = soon(listener.accept()).await.unwrap();
        link.try_send(&relink::ChannelId::from(1_u32), b"kept".as_slice())
            .unwrap();
        drop(asked);
        until(|| !link.is_connected()).await;
        accepted.push(link);
    }
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(asks(listener.url(), 0, 0).await.is_none(), "three of four");
    assert_eq!(listener.links(), 3);
}
