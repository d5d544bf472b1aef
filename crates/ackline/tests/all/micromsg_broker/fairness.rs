//! Peers that hold the memory for what comes in with messages that they never complete.

use std::net::SocketAddr;

use ackline::link::Fairness;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::*;

/// Three quarters are shared, and one quarter is the reserve.
const MEMORY: u64 = 4 << 20;
/// Bytes of payload of a fragment.
const FRAGMENT: u16 = 60_000;
/// Those that an address sends at once: one connection may hold so many, and those of eight addresses are more than the memory.
const FRAGMENTS: usize = 14;
/// A handshake without extensions.
const HELLO: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

fn small() -> BrokerOptions {
    BrokerOptions {
        memory: MEMORY,
        fairness: Fairness {
            frame_timeout: Some(Duration::from_secs(1)),
            ..Fairness::default()
        },
        ..BrokerOptions::default()
    }
}

/// A fragment of a message that goes on.
fn fragment() -> Vec<u8> {
    let (message, continued) = (8, 16);
    let mut bytes = vec![message | continued, 0, 1, 1, b'd', 0, 0, 0, 0];
    bytes.extend(FRAGMENT.to_be_bytes());
    bytes.resize(bytes.len() + usize::from(FRAGMENT), b'x');
    bytes
}

/// Sends fragments from this address, then bytes of a further one, until the broker ends the connection.
async fn hold(to: SocketAddr, from: [u8; 4], fragments: usize) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut peer = socket.connect(to).await?;
    peer.write_all(&[HELLO, HELLO].concat()).await?;
    let fragment = fragment();
    for _ in 0..fragments {
        peer.write_all(&fragment).await?;
    }
    for byte in fragment.chunks(1) {
        peer.write_all(byte).await?;
        tokio::time::sleep(MOMENT / 2).await;
    }
    Ok(())
}

/// Eight addresses that hold memory with fragments, and come back whenever the broker ends a connection.
fn holders(broker: &Broker, fragments: usize) -> JoinSet<()> {
    let address = broker.url().trim_start_matches("micromsg://");
    let to: SocketAddr = address.parse().unwrap();
    let mut holders = JoinSet::new();
    for host in 2..10 {
        holders.spawn(async move {
            loop {
                // The end of the connection is an error.
                let _ = hold(to, [127, 0, 0, host], fragments).await;
                tokio::time::sleep(MOMENT).await;
            }
        });
    }
    holders
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_drip_fragments_while_others_wait_for_memory_are_ended() {
    let broker = broker(small()).await;
    let subscriber = subscriber(&broker, "prices", None).await;
    let publisher = client(&broker, 10).await;
    let holders = holders(&broker, FRAGMENTS);
    tokio::time::sleep(5 * MOMENT).await;
    for number in 0..5 {
        let message = large("prices", number, 200_000);
        soon(publisher.send(&message)).await.unwrap();
        assert_eq!(next(&subscriber).await, number);
    }
    drop(holders);
    let ended: Vec<_> = std::iter::from_fn(|| broker.next_refusal()).collect();
    assert!(!ended.is_empty());
    for line in ended {
        for part in [
            r#""event":"refused""#,
            r#""code":"link.slow""#,
            r#""protocol":"micromsg""#,
            "while others wait for memory (--frame-timeout)",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_in_fragments_that_the_memory_cannot_hold_are_refused() {
    let broker = broker(small()).await;
    let subscriber = subscriber(&broker, "prices", None).await;
    let publisher = client(&broker, 10).await;
    let holders = holders(&broker, 2 * FRAGMENTS);
    for number in 0..5 {
        let message = large("prices", number, 200_000);
        soon(publisher.send(&message)).await.unwrap();
        assert_eq!(next(&subscriber).await, number);
    }
    let mut ended = Vec::new();
    until("one is refused for its size", || {
        ended.extend(broker.next_refusal());
        ended
            .iter()
            .any(|line| line.contains("micromsg.limit_exceeded"))
    })
    .await;
    drop(holders);
    let of_size = ended.iter().find(|line| line.contains("limit_exceeded"));
    let line = of_size.unwrap();
    assert!(line.contains("(--memory)"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_that_wait_for_a_queue_leave_memory_to_others_of_their_address() {
    let broker = broker(BrokerOptions {
        max_subscriber_bytes: 256 << 10,
        ..small()
    })
    .await;
    let subscriber = subscriber(&broker, "prices", None).await;
    let publisher = client(&broker, 10).await;
    let mut waiting = Vec::new();
    for number in 0..16 {
        let one = client_with(&broker, "pub-sub", 1).await;
        let message = large("queue/full", number, 30_000);
        // It may be ended for it.
        while let Ok(Ok(_)) = timeout(MOMENT, one.send(&message)).await {}
        waiting.push(one);
        let message = large("prices", number, 200_000);
        soon(publisher.send(&message)).await.unwrap();
        assert_eq!(next(&subscriber).await, number);
    }
    let line = broker.next_refusal().unwrap();
    for part in [
        r#""code":"micromsg.queue_full""#,
        "wait for queues at the connections of its sender, where there may be 1048576 (memory)",
    ] {
        assert!(line.contains(part), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_waits_for_a_queue_is_not_slow() {
    let broker = broker(BrokerOptions {
        max_subscriber_bytes: 64 << 10,
        ..small()
    })
    .await;
    let publisher = client(&broker, 10).await;
    let publishing = tokio::spawn(async move {
        for number in 0..8 {
            let message = large("queue/jobs", number, 150_000);
            soon(publisher.send(&message)).await.unwrap();
        }
        soon(publisher.acknowledged(8)).await.unwrap();
    });
    until("the queue is full", || broker.stats().held_bytes > 64 << 10).await;
    let holders = holders(&broker, FRAGMENTS);
    let mut ended = Vec::new();
    until("others are ended", || {
        ended.extend(broker.next_refusal());
        ended.len() > 8
    })
    .await;
    assert!(!publishing.is_finished());
    let worker = worker(&broker, "queue/jobs", 10).await;
    for number in 0..8 {
        assert_eq!(work(&worker).await, number);
    }
    soon(publishing).await.unwrap();
    drop(holders);
    for line in ended {
        assert!(!line.contains(r#""peer":"127.0.0.1:"#), "{line}");
    }
}
