//! The memory of an idle session. A binary of its own: it measures the memory of its process.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic; the figure is its result

mod pki;

use std::time::Duration;

use ackline_link::Stream;
use ackline_link::tls::{Client, Server};
use pki::meeting::meet;
use pki::{Authority, Pki};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

/// The memory of both ends of an idle session, each polled for bytes.
#[tokio::test]
async fn an_idle_session_is_small() {
    const SESSIONS: usize = 200;
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], Some("required"))).unwrap();
    let client = Client::new(&pki.client(&ca, Some("web-1"))).unwrap();
    let mut held = Vec::new();
    let mut before = 0;
    for number in 0..=SESSIONS {
        let pair = meet(&server, &client, "localhost").await;
        let (mut there, mut here) = (pair.server.unwrap().0, pair.client.unwrap().0);
        // Much data has passed, and nothing more is there: both ends wait for bytes.
        let word = vec![7; 100_000];
        let both = async { tokio::join!(here.write_all(&word), read(&mut there, 100_000)) };
        both.await.0.unwrap();
        for stream in [&mut there, &mut here] {
            let wait = tokio::time::timeout(Duration::ZERO, stream.read_u8()).await;
            assert!(wait.is_err(), "{wait:?}");
        }
        held.push((there, here));
        if number == 0 {
            before = resident_bytes();
        }
    }
    let each = resident_bytes().saturating_sub(before) / SESSIONS / 2;
    println!("one end of an idle session: {each} bytes");
    assert!(each < 20_000, "{each} bytes");
}

async fn read(stream: &mut Stream, count: usize) {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
}
