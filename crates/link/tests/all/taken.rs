//! Whether the peer had taken everything when it ended, over real sockets.

#![allow(clippy::unwrap_used)] // a test may panic

use std::time::Duration;

use ackline_link::{Address, End, Link, Listener, Taking};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::toy::{Bad, Toy};

const DEADLINE: Duration = Duration::from_secs(20);

/// A link that echoes, and its drive.
type Echo = (Link<Toy>, JoinHandle<End<Bad>>);

async fn listen(url: &str) -> (Listener, String) {
    let listener = Listener::bind(&url.parse::<Address>().unwrap()).await;
    let listener = listener.unwrap();
    let local = match listener.local().unwrap() {
        Address::Unix(path) => path.to_str().unwrap().to_owned(),
        local @ Address::Tcp(..) => local.to_string(),
    };
    (listener, local)
}

async fn serve(listener: &Listener) -> Echo {
    let (stream, _) = listener.accept().await.unwrap();
    let link = Link::new(Toy::default());
    let drive = tokio::spawn({
        let link = link.clone();
        async move { link.drive_socket(stream).await.end }
    });
    (link, drive)
}

async fn connected() -> (TcpStream, Echo) {
    let (listener, local) = listen("toy://127.0.0.1:0").await;
    let port = local.rsplit_once(':').unwrap().1.to_owned();
    let peer = TcpStream::connect(format!("127.0.0.1:{port}")).await;
    (peer.unwrap(), serve(&listener).await)
}

fn frame(len: u32) -> Vec<u8> {
    let mut frame = len.to_be_bytes().to_vec();
    frame.resize(4 + len as usize, 7);
    frame
}

async fn end_of(drive: JoinHandle<End<Bad>>) -> End<Bad> {
    let end = tokio::time::timeout(DEADLINE, drive).await;
    end.unwrap().unwrap()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_peer_that_has_read_all_ends_in_order() {
    let (mut peer, (link, drive)) = connected().await;
    for _ in 0..3 {
        peer.write_all(&frame(100)).await.unwrap();
        peer.read_exact(&mut [0; 104]).await.unwrap();
    }
    until("all is taken", || link.taking() == Taking::All).await;
    assert!(!link.is_ended_in_order());
    drop(peer);
    assert!(matches!(end_of(drive).await, End::Eof));
    assert!(link.is_ended_in_order());
    assert_eq!(link.taking(), Taking::Unknown, "the socket is gone");
}

#[tokio::test]
async fn a_peer_that_has_read_all_ends_in_order_on_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("toy+unix://{}", dir.path().join("s").display());
    let (listener, path) = listen(&url).await;
    let mut peer = UnixStream::connect(&path).await.unwrap();
    let (link, drive) = serve(&listener).await;
    peer.write_all(&frame(100)).await.unwrap();
    until("it answers", || link.stats().bytes_out == 104).await;
    assert!(matches!(link.taking(), Taking::Waits(_)), "nobody has read");
    peer.read_exact(&mut [0; 104]).await.unwrap();
    until("all is taken", || link.taking() == Taking::All).await;
    drop(peer);
    assert!(matches!(end_of(drive).await, End::Eof));
    assert!(link.is_ended_in_order());
}

#[tokio::test]
async fn an_answer_that_the_peer_has_not_read_is_cut_off() {
    let (mut peer, (link, drive)) = connected().await;
    peer.write_all(&frame(100)).await.unwrap();
    // In the peer's system: it answers the end of the process with a reset.
    peer.readable().await.unwrap();
    drop(peer);
    let end = end_of(drive).await;
    assert!(matches!(end, End::Io(_)), "{end}");
    assert!(!link.is_ended_in_order());
}

#[tokio::test]
async fn a_peer_that_has_gone_before_the_answer_has_not_ended_in_order() {
    // The answer meets the end anywhere between its write and the next check.
    for _ in 0..200 {
        let (mut peer, (link, drive)) = connected().await;
        peer.write_all(&frame(100)).await.unwrap();
        drop(peer);
        end_of(drive).await;
        assert!(!link.is_ended_in_order());
    }
}

#[tokio::test]
async fn an_end_with_answers_on_their_way_is_not_in_order() {
    let (mut peer, (link, drive)) = connected().await;
    SockRef::from(&peer).set_recv_buffer_size(262_144).unwrap();
    peer.write_all(&frame(8_000_000)).await.unwrap();
    until(
        "it waits",
        || matches!(link.taking(), Taking::Waits(left) if left > 0),
    )
    .await;
    peer.shutdown().await.unwrap();
    until("the end has come", || link.taking() == Taking::Ended).await;
    let mut answers = Vec::new();
    peer.read_to_end(&mut answers).await.unwrap();
    end_of(drive).await;
    assert!(!link.is_ended_in_order());
}
