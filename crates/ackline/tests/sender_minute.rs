//! One real minute at a receiver on a socket that is up for 2 s and down for 3 s. A binary of its own: it
//! measures the processor time and the memory of its process.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline::lumberjack::{Batch, Sender, SenderError, SenderOptions};
use bytes::Bytes;
use tokio::net::{TcpListener, TcpSocket};

#[path = "common/pipe.rs"]
mod pipe;

use pipe::{Act, Host, ways};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const BUFFER: u64 = 20_000;

fn listen(at: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(at).unwrap();
    socket.listen(64).unwrap()
}

/// Up for 2 s in one way after the other, then down for 3 s; every second time ends with resets.
async fn flap(host: Arc<Host>, at: SocketAddr, first: TcpListener) {
    let mut listener = Some(first);
    for (turn, way) in ways().into_iter().cycle().enumerate() {
        host.set(way);
        let up = listener.take().unwrap_or_else(|| listen(at));
        let until = tokio::time::Instant::now() + SECOND * 2;
        while let Ok(accepted) = tokio::time::timeout_at(until, up.accept()).await {
            let (stream, _) = accepted.unwrap();
            host.kept.lock().unwrap().attempts += 1;
            if turn % 2 == 1 {
                linger_zero(&stream);
            }
            host.attend(stream);
        }
        drop(up);
        host.go_down();
        tokio::time::sleep(SECOND * 3).await;
    }
}

#[allow(deprecated)] // the close must not wait
fn linger_zero(stream: &tokio::net::TcpStream) {
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

/// The processor time of this process, its own and the system's.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, numbers) = stat.rsplit_once(") ").unwrap();
    let ticks = numbers.split(' ').skip(11).take(2);
    let hundredths: u64 = ticks.map(|number| number.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * hundredths)
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_flaps_for_a_minute_loses_nothing() {
    let first = listen("127.0.0.1:0".parse().unwrap());
    let at = first.local_addr().unwrap();
    let host = Host::new([], Act::Ack);
    let flapping = tokio::spawn(flap(Arc::clone(&host), at, first));
    let mut options = SenderOptions {
        buffer_events: Some(BUFFER),
        batch_events: 500,
        ..SenderOptions::default()
    };
    options.writer.compression = None;
    options.writer.read_timeout = Some(SECOND * 2);
    let sender = Sender::open(&[format!("lumberjack://{at}")], options).unwrap();
    let (begin, mut accepted, mut before) = (Instant::now(), 0, 0);
    let idle = cpu();
    while begin.elapsed() < MINUTE {
        let payloads = (1..=100).map(|n| Bytes::from(format!("{:200}", accepted + n)));
        let batch = Batch::json(payloads.collect()).unwrap();
        match sender.send(&batch, Some(SECOND)).await {
            Ok(receipt) => accepted = receipt.last(),
            Err(SenderError::Timeout { .. }) => {}
            Err(other) => unreachable!("{other}"),
        }
        assert!(sender.stats().buffer_events <= BUFFER);
        if begin.elapsed() < MINUTE / 4 {
            before = resident();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    flapping.abort();
    let _ = flapping.await;
    let grown = resident().saturating_sub(before);
    let computed = cpu().saturating_sub(idle);
    host.set(Act::Ack);
    let last = tokio::spawn({
        let host = Arc::clone(&host);
        async move {
            let up = listen(at);
            loop {
                let (stream, _) = up.accept().await.unwrap();
                host.attend(stream);
            }
        }
    });
    sender.flush(Some(MINUTE)).await.unwrap();
    last.abort();
    let stats = sender.stats();
    let kept = host.kept.lock().unwrap();
    let distinct: HashSet<u64> = kept.numbers().into_iter().collect();
    assert_eq!(distinct.len() as u64, accepted, "nothing is lost");
    assert!(accepted > 10_000, "{accepted}");
    assert!(
        kept.events.len() as u64 - accepted <= stats.possible_repeats,
        "{stats:?}"
    );
    assert!(
        (8..200).contains(&stats.attempts),
        "{} attempts",
        stats.attempts
    );
    // Sender, receiver and the tasks that feed them: one that turns without end while it waits
    // takes half of the minute.
    assert!(computed < MINUTE / 6, "{computed:?} of computing");
    // The receiver's memory for the comparison grows, 16 bytes an event; the sender's memory does
    // not.
    let own = kept.events.capacity() as u64 * 16;
    assert!(grown < own + (32 << 20), "{grown} bytes more in memory");
}
