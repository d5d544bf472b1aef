//! A client and a server of TLS that meet over TCP.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)] // each test file uses its part; a test may panic

use std::time::Duration;

use ackline_link::tls::{Client, Server, Session, TlsError};
use ackline_link::{Address, Endpoint, Listener, Stream, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Both ends of one handshake.
pub(crate) struct Pair {
    pub(crate) server: Result<(Stream, Session), TlsError>,
    pub(crate) client: Result<(Stream, Session), TlsError>,
}

pub(crate) async fn listener() -> Listener {
    let any = Address::Tcp("127.0.0.1".to_owned(), 0);
    Listener::bind(&any).await.unwrap()
}

pub(crate) fn plain(at: Address) -> Endpoint {
    Endpoint::new("toy", vec![at], None)
}

pub(crate) async fn meet(server: &Server, client: &Client, host: &str) -> Pair {
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

/// The server's result for a client that `speak` makes of a raw socket.
pub(crate) async fn accept_raw<F>(
    server: &Server,
    speak: impl FnOnce(TcpStream) -> F,
) -> Result<(Stream, Session), TlsError>
where
    F: Future<Output = ()>,
{
    let listener = listener().await;
    let Address::Tcp(host, port) = listener.local().unwrap() else {
        panic!("not TCP")
    };
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.accept(stream).await
    };
    let dial = async {
        let socket = TcpStream::connect((host.as_str(), port)).await.unwrap();
        speak(socket).await;
    };
    let both = async { tokio::join!(accept, dial) };
    tokio::time::timeout(DEADLINE, both).await.unwrap().0
}

/// The client's result for a server that `answer` makes of a raw socket.
pub(crate) async fn connect_raw<F>(
    endpoint: impl FnOnce(Address) -> Endpoint,
    timeout: Duration,
    answer: impl FnOnce(TcpStream) -> F,
) -> std::io::Result<Stream>
where
    F: Future<Output = ()>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = endpoint(Address::Tcp("127.0.0.1".to_owned(), port));
    let accept = async {
        let (socket, _) = listener.accept().await.unwrap();
        answer(socket).await;
    };
    let both = async { tokio::join!(accept, connect(&endpoint, timeout)) };
    tokio::time::timeout(DEADLINE, both).await.unwrap().1
}

/// Reads until the end. Returns the bytes.
pub(crate) async fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = socket.read_to_end(&mut all).await;
    all
}

/// Sends `word` from one to the other and checks that it arrives.
pub(crate) async fn tell(from: &mut Stream, to: &mut Stream, word: &[u8]) {
    from.write_all(word).await.unwrap();
    from.flush().await.unwrap();
    let mut heard = vec![0; word.len()];
    to.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, word);
}
