//! The receiver: listens on URLs, lands what arrives in a spool, acknowledges what is durable.
//!
//! It decides when a block goes to the spool, when its link may acknowledge it, and what an operator is
//! told. It does not know any protocol (that is [`Ingest`](crate::Ingest)) nor how a spool keeps its bytes.

mod connection;
mod operator;
mod options;
mod quarantine;
mod report;
mod settle;
mod store;

use std::sync::Arc;
use std::time::Duration;

use ackline_link::tls::{self, TlsError};
use ackline_link::{Budget, Endpoint, Link, Listener, PeerInfo, Stream};
use ackline_spool::Writer;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ingest::Ingest;
use crate::protocol::{Place, Protocol};
use crate::repeats::Repeats;
use connection::{Open, serve};
pub use operator::ConsumerLag;
use operator::{Operator, look_around};
pub use options::{Ack, QuarantineOptions, ReceiverOptions, V1Ack};
use quarantine::Quarantine;
pub use report::ReceiverStats;
use report::{Report, watch_stats};
use store::Store;

/// Why a receiver did not start.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// An option or URL is wrong: the text names it.
    #[error("{0}")]
    Usage(String),
    /// A URL could not be bound.
    #[error("cannot listen on {url}: {source}")]
    Bind {
        /// The URL as given.
        url: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The spool could not be opened.
    #[error(transparent)]
    Spool(#[from] ackline_spool::SpoolError),
}

/// What all connections of one receiver share.
pub(crate) struct Shared {
    budget: Budget,
    writer: Option<Writer>,
    repeats: Option<Repeats>,
    quarantine: Option<Arc<Quarantine>>,
    /// Whether acknowledgements wait for a consumer's commits, where their senders can be told to.
    waits_for_commit: bool,
    operator: Option<Operator>,
    report: Arc<Report>,
    open: Open,
    stopping: watch::Receiver<bool>,
}

/// A running receiver. Dropping it aborts its connections; what is durable stays durable.
pub struct Receiver {
    shared: Arc<Shared>,
    urls: Vec<String>,
    stop: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
    telling: [JoinHandle<()>; 2],
    drain: Duration,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

impl Receiver {
    /// Opens the spool, binds every URL and accepts connections. Must run inside a tokio runtime.
    ///
    /// # Errors
    /// A wrong option or URL, an address in use, or a spool that cannot be opened.
    pub async fn start(options: ReceiverOptions) -> Result<Self, ReceiverError> {
        let places = places(&options)?;
        options.check().map_err(ReceiverError::Usage)?;
        let mut store = Store::open(&options)?;
        let (stop, stopping) = watch::channel(false);
        let (mut listeners, mut urls) = (Vec::new(), Vec::new());
        for (protocol, endpoint, tls) in places {
            let failed = |source| ReceiverError::Bind {
                url: endpoint.to_string(),
                source,
            };
            let address = endpoint
                .address()
                .map_err(|error| ReceiverError::Usage(error.to_string()))?;
            let listener = Listener::bind(address).await.map_err(failed)?;
            let local = listener.local().map_err(failed)?;
            urls.push(local.url(&endpoint.scheme()));
            listeners.push((protocol, Place { listener, tls }));
        }
        let shared = Arc::new(Shared {
            budget: Budget::new(options.memory),
            writer: store.writer,
            repeats: store.repeats,
            quarantine: store.quarantine.map(Arc::new),
            waits_for_commit: options.ack != Ack::Durable,
            operator: store.operator,
            report: Arc::default(),
            open: Open::default(),
            stopping,
        });
        shared
            .report
            .event(&json!({ "event": "listening", "urls": urls }));
        // A reader of these lines waits for the URLs: they come first.
        if let Some(line) = store.recovered.take() {
            shared.report.event(&line);
        }
        let accepting = listeners
            .into_iter()
            .map(|(protocol, place)| {
                tokio::spawn((protocol.accept)(place, Arc::clone(&shared), &options))
            })
            .collect();
        let telling = [
            tokio::spawn(watch_stats(Arc::clone(&shared))),
            tokio::spawn(look_around(Arc::clone(&shared))),
        ];
        Ok(Self {
            shared,
            urls,
            stop,
            accepting,
            telling,
            drain: options.drain,
        })
    }

    /// The URLs listened on, with the ports that were chosen.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Totals since the start and gauges of now.
    pub fn stats(&self) -> ReceiverStats {
        self.shared.stats()
    }

    /// The next line of the JSON contract (`listening`, `stats`, `refused`, …), waiting up to `timeout`.
    /// Blocks the calling thread. At most 10,000 lines wait; a reader that falls behind is told in the
    /// next `stats` line how many it missed.
    pub fn next_event(&self, timeout: Duration) -> Option<String> {
        self.shared.report.next(timeout)
    }

    /// Stops accepting, makes durable and acknowledges what was completely received, ends every
    /// connection. Answers how many windows were left unacknowledged after `drain` (the option's value
    /// if `None`).
    pub async fn stop(&self, drain: Option<Duration>) -> u64 {
        for task in &self.accepting {
            task.abort();
        }
        self.stop.send_replace(true);
        let deadline = tokio::time::Instant::now() + drain.unwrap_or(self.drain);
        // A socket is closed when its task is gone: its port is free when this returns.
        while self.accepting.iter().any(|task| !task.is_finished()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while self.shared.open.len() > 0 && tokio::time::Instant::now() < deadline {
            let _ = tokio::time::timeout_at(deadline, self.shared.open.changed()).await;
        }
        let (unacked, uncommitted) = self.left();
        // For whom a connection has ended no commit is worth waiting for.
        let nobody_waits = self.shared.open.len() == 0;
        self.end();
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let left = left.max(LAST_WRITES);
        if let Some(writer) = self.shared.writer.clone() {
            let _ = tokio::task::spawn_blocking(move || {
                writer.flush(left);
                writer.close(if nobody_waits { LAST_WRITES } else { left });
            })
            .await;
        }
        if let Some(quarantine) = &self.shared.quarantine {
            quarantine.close(left).await;
        }
        self.shared.report.stopped(unacked, uncommitted);
        unacked
    }

    /// Windows received and not acknowledged, and those of them that are durable.
    fn left(&self) -> (u64, u64) {
        let open = &self.shared.open;
        (open.unsettled(), open.uncommitted().0)
    }

    /// Why the receiver gave up, once its spool cannot be written any more: after the line `failed`.
    pub fn failure(&self) -> Option<String> {
        self.shared.report.failure()
    }

    /// Ends every connection now; what is not durable is not acknowledged. Answers how many windows were
    /// left unacknowledged.
    pub fn abort(&self) -> u64 {
        let (unacked, uncommitted) = self.left();
        self.end();
        self.shared.report.stopped(unacked, uncommitted);
        unacked
    }

    fn end(&self) {
        for task in &self.accepting {
            task.abort();
        }
        for task in &self.telling {
            task.abort();
        }
        if let Some(operator) = &self.shared.operator {
            operator.forget();
        }
        self.shared.open.abort_all();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}

type Served = (&'static Protocol, Endpoint, Option<Arc<tls::Server>>);

fn places(options: &ReceiverOptions) -> Result<Vec<Served>, ReceiverError> {
    if options.urls.is_empty() {
        return Err(ReceiverError::Usage(
            "no URL to listen on; give one such as lumberjack://127.0.0.1:5044".to_owned(),
        ));
    }
    let place = |url: &String| {
        let (protocol, endpoint) = crate::protocol::of(url)?;
        let endpoint = endpoint.filled(&options.tls);
        let tls = endpoint.tls.as_ref().map(tls::Server::new).transpose();
        let tls = tls.map_err(|error| error.to_string())?.map(Arc::new);
        Ok((protocol, endpoint, tls))
    };
    let places: Result<Vec<Served>, String> = options.urls.iter().map(place).collect();
    let places = places.map_err(ReceiverError::Usage)?;
    match options.tls.first_set() {
        Some(option) if places.iter().all(|place| place.2.is_none()) => Err(ReceiverError::Usage(
            format!("{option} is an option of TLS, and no URL is +tls"),
        )),
        _ => Ok(places),
    }
}

/// What a stop that found nothing to wait for leaves the spool to write its last bytes.
const LAST_WRITES: Duration = Duration::from_millis(500);

/// Accepts connections and lands what they send by `ingest`, until the listener is broken.
pub(crate) async fn accept<I: Ingest + Clone>(
    place: Place,
    shared: Arc<Shared>,
    make: impl FnOnce(&Budget) -> I,
) {
    let ingest = make(&shared.budget);
    loop {
        match place.listener.accept().await {
            Ok((stream, peer)) => {
                let peer = peer.info();
                let (shared, ingest) = (Arc::clone(&shared), ingest.clone());
                let tls = place.tls.clone();
                tokio::spawn(async move {
                    match secured(tls.as_deref(), stream, peer).await {
                        Ok((stream, peer)) => {
                            let budget = shared.budget.clone();
                            let link = Link::with_budget(ingest.machine(), budget);
                            serve(shared, ingest, link, stream, peer).await;
                        }
                        Err((peer, error)) => {
                            let (code, why) = (error.code(), error.to_string());
                            shared
                                .report
                                .turned_away((I::SCHEME, &peer.name), code, why);
                        }
                    }
                });
            }
            Err(error) => {
                tracing::error!(code = "receiver.accept", %error, "accepting ended");
                return;
            }
        }
    }
}

/// The stream after its handshake, if there is to be one, and what is known of the peer by it.
pub(crate) async fn secured(
    tls: Option<&tls::Server>,
    stream: Stream,
    peer: PeerInfo,
) -> Result<(Stream, PeerInfo), (PeerInfo, TlsError)> {
    let Some(tls) = tls else {
        return Ok((stream, peer));
    };
    match tls.accept(stream).await {
        Ok((stream, session)) => Ok((stream, peer.with_session(&session))),
        Err(error) => Err((peer, error)),
    }
}
