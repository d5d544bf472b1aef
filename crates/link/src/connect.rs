//! Opening a transport to an endpoint, with a deadline.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::tls::{Client, TlsError};
use crate::{Address, Endpoint, Stream};

/// The time that an address has before the next one is tried in parallel (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to `endpoint`, with TLS if it says so, for `timeout` in all. Host names are resolved
/// anew, and every address of every host is tried, in the system's order: the next one 250 ms after
/// the one before it, or at once when that one has failed. The first address that answers is taken;
/// if its TLS handshake fails, the others are still tried. While others are left, one address has
/// half of the remaining time.
///
/// # Errors
/// No address can be resolved or reached, TLS failed ([`TlsError::of`] says how), or the time is up
/// (`TimedOut`). The error is that of the last address.
pub async fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Stream> {
    let client = endpoint.client().map_err(TlsError::into_io)?;
    let until = Instant::now() + timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{endpoint} names no host"));
    for (number, address) in endpoint.addresses.iter().enumerate() {
        let others = endpoint.addresses.len() - number - 1;
        let own = Instant::now() + share(until, others);
        let connecting = connect_one(address, client.as_deref(), own);
        let late = |_| {
            let message = format!("{address} did not answer within {timeout:?}");
            io::Error::new(io::ErrorKind::TimedOut, message)
        };
        match tokio::time::timeout_at(own, connecting).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(elapsed) => last = late(elapsed),
        }
    }
    Err(last)
}

async fn connect_one(
    address: &Address,
    client: Option<&Client>,
    until: Instant,
) -> io::Result<Stream> {
    let (host, port) = match address {
        Address::Tcp(host, port) => (host.as_str(), *port),
        Address::Unix(path) => return Ok(Stream::from_unix(UnixStream::connect(path).await?)),
    };
    let places = tokio::net::lookup_host((host, port)).await?.collect();
    connect_first(places, host, client, until).await
}

/// A stream to the first of `places` that succeeds. A TLS failure is reported before a failure to
/// connect: that server exists.
async fn connect_first(
    mut places: VecDeque<SocketAddr>,
    host: &str,
    client: Option<&Client>,
    until: Instant,
) -> io::Result<Stream> {
    let mut refused = None;
    loop {
        let (stream, place) = match race(&mut places).await {
            Ok(won) => won,
            Err(error) => return Err(refused.unwrap_or(error)),
        };
        let stream = Stream::from_tcp(stream)?;
        let Some(client) = client else {
            return Ok(stream.expecting_plain());
        };
        match secure(client, stream, host, share(until, places.len())).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let (code, peer) = (error.code(), place.to_string());
                tracing::warn!(code, peer, host, why = %error, "no TLS with a server");
                refused = Some(error.into_io());
            }
        }
    }
}

/// The handshake, within `limit`.
async fn secure(
    client: &Client,
    stream: Stream,
    host: &str,
    limit: Duration,
) -> Result<Stream, TlsError> {
    match tokio::time::timeout(limit, client.connect(stream, host)).await {
        Ok(done) => done.map(|(stream, _)| stream),
        Err(_) => Err(TlsError::Timeout {
            limit,
            so_far: "the server did not end it",
        }),
    }
}

fn share(until: Instant, others: usize) -> Duration {
    let left = until.saturating_duration_since(Instant::now());
    if others == 0 { left } else { left / 2 }
}

/// The first of `places` that answers. Removes it, and those that failed before it, from the list.
async fn race(places: &mut VecDeque<SocketAddr>) -> io::Result<(TcpStream, SocketAddr)> {
    let mut running = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    loop {
        if let Some(place) = places.pop_front() {
            running.spawn(async move { (TcpStream::connect(place).await, place) });
        }
        let joined = if places.is_empty() {
            running.join_next().await
        } else {
            match tokio::time::timeout(HEAD_START, running.join_next()).await {
                Ok(joined) => joined,
                Err(_) => continue,
            }
        };
        match joined {
            Some(Ok((Ok(stream), place))) => return Ok((stream, place)),
            Some(Ok((Err(error), place))) => {
                last = io::Error::new(error.kind(), format!("{place}: {error}"));
            }
            Some(Err(_)) => {}
            None => return Err(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    async fn bound() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// An address without a listener.
    async fn closed() -> SocketAddr {
        bound().await.1
    }

    /// A listener that no longer answers, and the streams that fill it.
    async fn full() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        for _ in 0..16 {
            let connecting = TcpStream::connect(address);
            match tokio::time::timeout(Duration::from_millis(100), connecting).await {
                Ok(stream) => held.push(stream.unwrap()),
                Err(_) => break,
            }
        }
        (listener, held, address)
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_no_time() {
        let (_listener, good) = bound().await;
        let mut places = VecDeque::new();
        for _ in 0..40 {
            places.push_back(closed().await);
        }
        places.push_back(good);
        let begin = std::time::Instant::now();
        assert_eq!(race(&mut places).await.unwrap().1, good);
        assert!(begin.elapsed() < 20 * HEAD_START);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_has_a_head_start_and_no_more() {
        let (_full, _held, mute) = full().await;
        let ((_listener, good), refusing) = (bound().await, closed().await);
        let mut places = VecDeque::from([mute, refusing, good]);
        let begin = std::time::Instant::now();
        let (_, place) = race(&mut places).await.unwrap();
        assert_eq!(place, good);
        assert!(begin.elapsed() >= HEAD_START);
    }

    #[tokio::test]
    async fn the_last_refusal_is_reported_with_its_address() {
        let refusing = closed().await;
        let mut places = VecDeque::from([closed().await, refusing]);
        let error = race(&mut places).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("127.0.0.1:"), "{error}");
    }

    #[cfg(feature = "tls")]
    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn after_an_address_without_tls_the_others_are_tried() {
        use tokio::io::AsyncWriteExt as _;

        use crate::tls::TlsOptions;

        let client = Client::new(&TlsOptions::default()).unwrap();
        let ((one, first), (two, second)) = (bound().await, bound().await);
        let refuse = async |listener: TcpListener| {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"no TLS here").await.unwrap();
        };
        let until = Instant::now() + Duration::from_secs(10);
        let places = VecDeque::from([first, second, closed().await]);
        let connecting = connect_first(places, "localhost", Some(&client), until);
        let (connected, (), ()) = tokio::join!(connecting, refuse(one), refuse(two));
        let error = connected.map(|_| ()).unwrap_err();
        assert_eq!(TlsError::of(&error).unwrap().code(), "tls.unexpected");
    }

    #[tokio::test]
    async fn the_deadline_covers_every_address_of_every_host() {
        let (_full, _held, mute) = full().await;
        let mute = Address::Tcp(mute.ip().to_string(), mute.port());
        let endpoint = Endpoint::new("toy", vec![mute.clone(), mute], None);
        let begin = std::time::Instant::now();
        let limit = Duration::from_millis(200);
        let error = connect(&endpoint, limit).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(4 * begin.elapsed() >= 3 * limit && begin.elapsed() < 50 * limit);
    }
}
