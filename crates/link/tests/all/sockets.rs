//! The same links over real TCP and Unix sockets.

#![allow(clippy::unwrap_used)] // a test may panic

use std::time::Duration;

use crate::toy::Toy;
use ackline_link::{Address, End, Endpoint, Link, Listener, Peer, connect};

const DEADLINE: Duration = Duration::from_secs(20);

/// A plain endpoint at `address`.
fn plain(address: &Address) -> Endpoint {
    Endpoint::new("toy", vec![address.clone()], None)
}

async fn echo_through(address: &Address) -> Peer {
    let listener = Listener::bind(address).await.unwrap();
    let local = listener.local().unwrap();
    let server = tokio::spawn(async move {
        let (stream, peer) = listener.accept().await.unwrap();
        let driven = Link::new(Toy::default()).drive(stream).await;
        assert!(matches!(driven.end, End::Eof), "{}", driven.end);
        peer
    });
    let stream = connect(&plain(&local), DEADLINE).await.unwrap();
    if let Some(stream) = stream.tcp() {
        assert!(stream.nodelay().unwrap());
    }
    let link = Link::new(Toy {
        echo: false,
        ..Toy::default()
    });
    let drive = tokio::spawn({
        let link = link.clone();
        async move { link.drive(stream).await.end }
    });
    let payload = vec![7; 3_000_000];
    link.call(|toy, _| toy.send(payload.clone()));
    let echo = tokio::time::timeout(DEADLINE, link.when(0, Toy::take));
    assert_eq!(echo.await.unwrap().unwrap(), payload);
    link.call(|toy, _| toy.lifecycle = ackline_core::Lifecycle::Draining);
    let end = tokio::time::timeout(DEADLINE, drive)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(end, End::Closed), "{end}");
    tokio::time::timeout(DEADLINE, server)
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn tcp_with_a_port_of_the_systems_choice() {
    let peer = echo_through(&"toy://127.0.0.1:0".parse().unwrap()).await;
    assert!(matches!(peer, Peer::Tcp(address) if address.ip().is_loopback()));
}

#[tokio::test]
async fn a_unix_socket_is_removed_with_its_listener() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toy.sock");
    let peer = echo_through(&Address::Unix(path.clone())).await;
    assert!(matches!(peer, Peer::Unix(Some(_))), "{peer:?}");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_left_by_a_killed_process_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("toy.sock"));
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("toy.sock")).unwrap());
    let _live = Listener::bind(&address).await.unwrap();
    let error = Listener::bind(&address).await.unwrap_err();
    assert!(
        error.to_string().contains("another process listens there"),
        "{error}"
    );
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let first = Listener::bind(&"toy://127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let local = first.local().unwrap();
    let error = Listener::bind(&local).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&local.to_string()), "{error}");
}

#[tokio::test]
async fn an_address_without_a_listener_is_an_error() {
    let listener = Listener::bind(&"toy://127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let local = listener.local().unwrap();
    drop(listener);
    let error = connect(&plain(&local), DEADLINE).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}
