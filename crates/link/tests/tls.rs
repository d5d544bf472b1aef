//! TLS over real sockets: handshakes, who is trusted, and what is said when it fails.

#![allow(clippy::unwrap_used)] // a test may panic

mod pki;

use std::time::Duration;

use ackline_link::tls::{Client, Server, Session, TlsError};
use ackline_link::{Address, Endpoint, Listener, Stream, connect};
use pki::{Authority, Pki};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DEADLINE: Duration = Duration::from_secs(20);

/// Both ends of one handshake.
struct Pair {
    server: Result<(Stream, Session), TlsError>,
    client: Result<(Stream, Session), TlsError>,
}

async fn listener() -> Listener {
    let any = Address::Tcp("127.0.0.1".to_owned(), 0);
    Listener::bind(&any).await.unwrap()
}

fn plain(at: Address) -> Endpoint {
    Endpoint::new("toy", vec![at], None)
}

async fn meet(server: &Server, client: &Client, host: &str) -> Pair {
    let listener = listener().await;
    let at = listener.local().unwrap();
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.accept(stream).await
    };
    let dial = async {
        let stream = connect(&plain(at), DEADLINE).await.unwrap();
        client.connect(stream, host).await
    };
    let both = async { tokio::join!(accept, dial) };
    let (server, client) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    Pair { server, client }
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_end_knows_the_other() {
    let pki = Pki::new();
    let ca = Authority::new("ca");
    let server = Server::new(&pki.server(&ca, &["localhost"], Some("required"))).unwrap();
    let client = Client::new(&pki.client(&ca, Some("web-1"))).unwrap();
    let pair = meet(&server, &client, "localhost").await;
    let ((mut there, seen), (mut here, met)) = (pair.server.unwrap(), pair.client.unwrap());
    assert_eq!(seen.subject.as_deref(), Some("CN=web-1"));
    assert_eq!(seen.sans, ["DNS:web-1"]);
    assert_eq!(seen.fingerprint.as_ref().map(String::len), Some(64));
    assert_eq!(met.sans, ["DNS:localhost"]);
    assert_eq!((&*met.version, &met.cipher), ("TLSv1_3", &seen.cipher));

    here.write_all(b"ping").await.unwrap();
    here.flush().await.unwrap();
    let mut four = [0; 4];
    there.read_exact(&mut four).await.unwrap();
    there.write_all(&four).await.unwrap();
    there.shutdown().await.unwrap();
    let mut back = Vec::new();
    here.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"ping");
}
