//! A listener for Rust applications: connections that hand out windows and acknowledge them.

use std::io;
use std::task::Poll;
use std::time::Duration;

use ackline_core::options::bytes;
use ackline_core::{Connection as _, UsageError};
use ackline_link::tls::TlsOptions;
use ackline_link::{
    Acceptor, AcceptorOptions, AcceptorStats, Admitted, Budget, End, Endpoint, Link, ListenSpec,
    PeerInfo, Refused,
};
use tokio::task::JoinHandle;

use crate::listening::{Listening, Refusals};
use crate::query;

use super::{Event, Kind, Reader, ReaderConfig, Window, endpoint, within};

/// Listens on a URL such as `lumberjack://127.0.0.1:5044` (port 0: any free one), with the default limits on
/// the peers that may connect.
///
/// # Errors
/// A URL that is not one of ours, or an address that cannot be bound.
pub async fn listen(url: &str, config: ReaderConfig, budget: Budget) -> io::Result<Listener> {
    let options = ListenerOptions {
        reader: config,
        ..ListenerOptions::default()
    };
    listen_within(url, options, budget).await
}

ackline_core::options! {
    /// How a [`Listener`] reads, whom it admits, and its TLS.
    #[derive(Debug, Clone)]
    pub struct ListenerOptions {
        options {
            /// Bytes of unacknowledged input over all connections that may be held in memory; above it reading waits.
            memory: u64 = 256 << 20, bytes(1..=u64::MAX), LISTEN;
        }
        groups {
            /// Limits and timers of each connection.
            reader: ReaderConfig = ReaderConfig::default();
            /// Limits on connections: allowed networks, number and rate. Its `first_byte_timeout`
            /// is the reader's.
            acceptor: AcceptorOptions = AcceptorOptions::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
        }
    }
}

impl ListenerOptions {
    /// Sets the options of the protocol in the query of `url`; answers the URL without them.
    ///
    /// # Errors
    /// One does not fit.
    pub fn with_url(&mut self, url: &str) -> Result<String, ackline_core::options::OptionError> {
        query::take(url, &mut [&mut self.reader]).map(|plain| plain.url)
    }
}

/// As [`listen`], with all options.
///
/// # Errors
/// As [`listen`]; also options of TLS that do not fit, or for a URL without `+tls`.
pub async fn listen_with(url: &str, options: ListenerOptions) -> io::Result<Listener> {
    let budget = Budget::new(options.memory);
    listen_within(url, options, budget).await
}

async fn listen_within(
    url: &str,
    mut options: ListenerOptions,
    budget: Budget,
) -> io::Result<Listener> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let url = options.with_url(url);
    let url = url.map_err(|error| wrong(error.to_string()))?;
    let timeout = options.acceptor.handshake_timeout;
    let spec = spec(&url, &options.tls, timeout).map_err(wrong)?;
    let reader = within(options.reader, &budget);
    listen_at(&spec, reader, options.acceptor, budget).await
}

/// As [`listen_with`] at an address that was read before, with the reader's limits as they are: for a window that is
/// larger than `budget` can always admit, a connection may wait as long as others hold memory.
///
/// # Errors
/// An address that cannot be bound.
pub async fn listen_at(
    spec: &ListenSpec,
    reader: ReaderConfig,
    acceptor: AcceptorOptions,
    budget: Budget,
) -> io::Result<Listener> {
    let listener = spec.bind().await?;
    let acceptor = Acceptor::new(AcceptorOptions {
        first_byte_timeout: reader.first_byte_timeout,
        ..acceptor
    });
    let listening = Listening::start(listener, acceptor, "receiver.accept", |made, refusals| {
        let refusals = refusals.clone();
        move |admitted| {
            let link = Link::with_budget(Reader::new(reader.clone()), budget.clone());
            made.put(Connection::new(link, admitted, refusals.clone()));
        }
    });
    Ok(Listener { listening })
}

fn spec(url: &str, tls: &TlsOptions, handshake_timeout: Duration) -> Result<ListenSpec, String> {
    let mut endpoint = endpoint(url)?;
    Endpoint::fill(std::slice::from_mut(&mut endpoint), tls).map_err(|error| error.to_string())?;
    ListenSpec::new(endpoint, handshake_timeout).map_err(|error| error.to_string())
}

/// Accepts senders. All connections share one memory budget.
pub struct Listener {
    listening: Listening<Connection>,
}

impl Listener {
    /// The URL listened on, with the port that was chosen.
    pub fn url(&self) -> &str {
        self.listening.url()
    }

    /// Counters of connections that were turned away, and of health checks.
    pub fn stats(&self) -> AcceptorStats {
        self.listening.stats()
    }

    /// The next sender that was admitted. Passing errors (out of descriptors, an aborted handshake) are
    /// logged and survived. Cancel-safe.
    ///
    /// # Errors
    /// The listening socket itself is broken.
    pub async fn accept(&self) -> io::Result<Connection> {
        let next = self.listening.next().await;
        next.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the listener is broken"))
    }

    /// Its waits that take nothing, its end, and the connections that it refused.
    pub fn listening(&self) -> &Listening<Connection> {
        &self.listening
    }
}

/// One sender's connection. Dropping it ends it; the sender sends unacknowledged windows again.
pub struct Connection {
    link: Link<Reader>,
    peer: PeerInfo,
    driver: JoinHandle<()>,
}

impl Connection {
    fn new(link: Link<Reader>, admitted: Admitted, refusals: Refusals) -> Self {
        let peer = admitted.peer.clone();
        let driver = tokio::spawn({
            let (link, peer) = (link.clone(), peer.clone());
            async move {
                let (driven, slot, _) = admitted.drive(&link, Reader::retire).await;
                drop(slot);
                let refused = Refused::of_end(&peer, &driven.end);
                let is_slow = matches!(driven.end, End::Slow { .. });
                if let Some(refused) = refused.filter(|_| !is_slow) {
                    refusals.remember(refused);
                }
            }
        });
        Self { link, peer, driver }
    }

    /// The sender's address.
    pub fn peer(&self) -> &str {
        &self.peer.name
    }

    /// All that is known of the sender.
    pub fn info(&self) -> &PeerInfo {
        &self.peer
    }

    /// The link itself, for waits and verbs of one's own.
    pub fn link(&self) -> &Link<Reader> {
        &self.link
    }

    /// The next complete window. Cancel-safe: a window is handed out once or stays.
    ///
    /// # Errors
    /// The connection has ended and every window was handed out.
    pub async fn window(&self) -> Result<Window, End<Kind>> {
        self.link
            .when(0, |reader, now| match reader.poll_event() {
                Some(Event::Window(window)) => Poll::Ready(window),
                Some(Event::Invalid(invalid)) => {
                    // There is no place here to keep it in.
                    let _ = reader.refuse(now, invalid.id);
                    Poll::Pending
                }
                None => Poll::Pending,
            })
            .await
    }

    /// Waits until the connection has ended and its slot is free.
    pub async fn ended(&mut self) {
        if !self.driver.is_finished() {
            let _ = (&mut self.driver).await;
        }
    }

    /// Acknowledges a window by its `id`. Acknowledgements leave in the order of the windows.
    ///
    /// # Errors
    /// `unknown_window`: it was acknowledged already or never handed out; `closed`: too late.
    pub fn ack(&self, window: u64) -> Result<(), UsageError> {
        self.link.call(|reader, now| reader.ack(now, window))
    }

    /// Reads no more; windows that were handed out can still be acknowledged, then the connection ends.
    pub fn stop(&self) {
        self.link.call(Reader::stop);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.abort();
        self.driver.abort();
    }
}
