//! The receiver: listens on URLs, lands what arrives in a spool, acknowledges what is durable.
//!
//! It decides when a block goes to the spool, when its link may acknowledge it, and what an operator is
//! told. It does not know any protocol (that is [`Ingest`](crate::Ingest)) nor how a spool keeps its bytes.

mod connection;
mod options;
mod report;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use ackline_link::{Address, Budget, Link, Listener};
use ackline_spool::{Recovered, Spool, Writer, now_us, rfc3339};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ingest::Ingest;
use crate::protocol::Protocol;
use crate::repeats::Repeats;
use connection::{Open, serve};
pub use options::ReceiverOptions;
pub use report::ReceiverStats;
use report::{Report, watch_stats};

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
    telling: JoinHandle<()>,
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
        let places = places(&options.urls)?;
        let kept = open_spool(&options)?;
        let recovered = kept.as_ref().and_then(Kept::line);
        let (writer, repeats) = kept.map(|kept| (kept.writer, kept.repeats)).unzip();
        let (stop, stopping) = watch::channel(false);
        let (mut listeners, mut urls) = (Vec::new(), Vec::new());
        for (url, (protocol, address)) in options.urls.iter().zip(&places) {
            let failed = |source| ReceiverError::Bind {
                url: url.clone(),
                source,
            };
            let listener = Listener::bind(address).await.map_err(failed)?;
            urls.push(listener.local().map_err(failed)?.url(protocol.scheme));
            listeners.push((protocol, listener));
        }
        let shared = Arc::new(Shared {
            budget: Budget::new(options.memory),
            writer,
            repeats,
            report: Arc::default(),
            open: Open::default(),
            stopping,
        });
        shared
            .report
            .event(&json!({ "event": "listening", "urls": urls }));
        // A reader of these lines waits for the URLs: they come first.
        if let Some(line) = recovered {
            shared.report.event(&line);
        }
        let accepting = listeners
            .into_iter()
            .map(|(protocol, listener)| {
                tokio::spawn((protocol.accept)(listener, Arc::clone(&shared), &options))
            })
            .collect();
        let telling = tokio::spawn(watch_stats(Arc::clone(&shared)));
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
        let unacked = self.shared.open.unsettled();
        self.end();
        if let Some(writer) = self.shared.writer.clone() {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let _ = tokio::task::spawn_blocking(move || {
                writer.close(left.max(Duration::from_millis(500)));
            })
            .await;
        }
        self.shared.report.stopped(unacked);
        unacked
    }

    /// Ends every connection now; what is not durable is not acknowledged. Answers how many windows were
    /// left unacknowledged.
    pub fn abort(&self) -> u64 {
        let unacked = self.shared.open.unsettled();
        self.end();
        self.shared.report.stopped(unacked);
        unacked
    }

    fn end(&self) {
        for task in &self.accepting {
            task.abort();
        }
        self.telling.abort();
        self.shared.open.abort_all();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}

fn places(urls: &[String]) -> Result<Vec<(&'static Protocol, Address)>, ReceiverError> {
    if urls.is_empty() {
        return Err(ReceiverError::Usage(
            "no URL to listen on; give one such as lumberjack://127.0.0.1:5044".to_owned(),
        ));
    }
    urls.iter()
        .map(|url| crate::protocol::of(url).map_err(ReceiverError::Usage))
        .collect()
}

fn open_spool(options: &ReceiverOptions) -> Result<Option<Kept>, ReceiverError> {
    let Some(dir) = &options.spool else {
        return Ok(None);
    };
    let (writer, recovered) = Writer::open(dir, options.writer.clone())?;
    if recovered.created {
        tracing::warn!(code = "spool.created", dir = %dir.display(), "a new spool was created");
    }
    let repeats = Repeats::new(Spool::open(dir)?);
    Ok(Some(Kept {
        writer,
        repeats,
        recovered,
    }))
}

/// An open spool.
struct Kept {
    writer: Writer,
    repeats: Repeats,
    recovered: Recovered,
}

impl Kept {
    /// What a start on a spool that was there before tells.
    fn line(&self) -> Option<serde_json::Value> {
        let (cut_bytes, position) = (self.recovered.cut_bytes, self.recovered.position);
        let lost = self.recovered.lost;
        let line = json!({
            "event": "recovered",
            "time": rfc3339(now_us()),
            "cut_bytes": cut_bytes,
            "position": position,
            "lost": lost.map(|lost| json!({ "from": lost.from, "to": lost.to })),
        });
        (!self.recovered.created).then_some(line)
    }
}

/// Accepts connections and lands what they send by `ingest`, until the listener is broken.
pub(crate) async fn accept<I: Ingest + Clone>(
    listener: Listener,
    shared: Arc<Shared>,
    make: impl FnOnce(&Budget) -> I,
) {
    let ingest = make(&shared.budget);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let link = Link::with_budget(ingest.machine(), shared.budget.clone());
                let id = shared.open.add::<I>(link.clone());
                let (shared, ingest) = (Arc::clone(&shared), ingest.clone());
                tokio::spawn(serve(shared, ingest, id, link, stream, peer.to_string()));
            }
            Err(error) => {
                tracing::error!(code = "receiver.accept", %error, "accepting ended");
                return;
            }
        }
    }
}
