//! The receiver: listens on URLs and connects to URLs of every protocol, lands the events that arrive in a
//! spool, acknowledges the events that are durable.

use std::sync::Arc;
use std::time::Duration;

use ackline_link::{Address, Endpoint, ListenSpec};
use ackline_spool::WriterState;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::landing::{
    Failure, Operator, ReceiverError, ReceiverOptions, ReceiverStats, Shared, Store, look_around,
    watch_stats,
};
use crate::protocol::{Protocol, Site, Subscribe, Way};
use crate::protocols;
use crate::query::{self, Plain};

/// A running receiver. Dropping it aborts its connections; durable events stay durable.
pub struct Receiver {
    shared: Arc<Shared>,
    urls: Vec<String>,
    stop: watch::Sender<Option<Duration>>,
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
    /// Binds every URL, opens the spool and accepts connections. Must run inside a tokio runtime.
    ///
    /// # Errors
    /// A wrong option or URL, an address in use, or a spool that cannot be opened.
    pub async fn start(options: ReceiverOptions) -> Result<Self, ReceiverError> {
        let specs = specs(&options)?;
        let subscribed = subscribed(&options)?;
        options.check()?;
        let (mut listeners, mut urls) = (Vec::new(), Vec::new());
        for (served, spec) in specs {
            let listener = spec.bind().await.map_err(|source| ReceiverError::Bind {
                url: spec.to_string(),
                source,
            })?;
            let listener = listener.speaking_first(served.protocol.waits);
            let bound = |url: &String| (served.protocol.bound)(url, &listener);
            urls.extend(served.urls.iter().map(bound));
            listeners.push((served, listener));
        }
        // After the addresses, so that one in use leaves no new spool behind.
        let mut store = Store::open(&options)?;
        let (stop, stopping) = watch::channel(None);
        let recovered = store.recovered.take();
        let shared = Shared::new(store, &options, (listeners.len(), stopping));
        let shared = Arc::new(shared);
        for socket in ackline_link::unused_sockets() {
            tracing::warn!(
                code = "receiver.socket_unused",
                socket,
                "inherited, but no URL names it"
            );
        }
        let accepting = listeners.into_iter().map(|(served, listener)| {
            let (protocol, options, urls) = (served.protocol, served.options, served.urls);
            (protocol.accept)(Site { listener, urls }, &shared, &options)
        });
        let subscribing = subscribed
            .into_iter()
            .map(|one| (one.subscribe)(&one.url, &shared, &one.options));
        let accepting: Result<Vec<_>, _> = accepting.chain(subscribing).collect();
        let accepting = accepting.inspect_err(|_| shared.open.abort_all())?;
        shared
            .report
            .event(&json!({ "event": "listening", "urls": urls }));
        // A reader of these lines waits for the URLs: they come first.
        if let Some(line) = recovered {
            shared.report.event(&line);
        }
        let accepting = accepting.into_iter().map(tokio::spawn).collect();
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
            drain: options.drain_timeout,
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

    /// Stops accepting, makes durable and acknowledges all completely received input, ends every
    /// connection: one after the other, over up to three quarters of `drain` where there are many, so that
    /// their senders do not all come back at once. Answers how many windows were left unacknowledged after `drain` (the option's value
    /// if `None`).
    pub async fn stop(&self, drain: Option<Duration>) -> u64 {
        for task in &self.accepting {
            task.abort();
        }
        let drain = drain.unwrap_or(self.drain);
        let deadline = Instant::now() + drain;
        let connections = u32::try_from(self.shared.open.len()).unwrap_or(u32::MAX);
        let spread = END_EVERY.saturating_mul(connections).min(drain * 3 / 4);
        self.stop.send_replace(Some(spread));
        // A socket is closed when its task is gone: its port is free when this returns.
        while self.accepting.iter().any(|task| !task.is_finished()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.wait_for_ends(deadline, spread).await;
        let (unacked, uncommitted) = self.left();
        // For whom a connection has ended no commit is worth waiting for.
        let nobody_waits = self.shared.open.len() == 0;
        self.end();
        let left = deadline.saturating_duration_since(Instant::now());
        // Where there is no room for the last bytes, they are not waited for.
        let is_full = self.stalled().is_some();
        let left = if is_full {
            Duration::ZERO
        } else {
            left.max(LAST_WRITES)
        };
        if let Some(writer) = self.shared.writer.clone() {
            let _ = tokio::task::spawn_blocking(move || {
                writer.flush(left);
                writer.close(if nobody_waits {
                    left.min(LAST_WRITES)
                } else {
                    left
                });
            })
            .await;
        }
        if let Some(quarantine) = &self.shared.quarantine {
            quarantine.close(left).await;
        }
        self.shared.report.stopped(unacked, uncommitted);
        unacked
    }

    /// Waits until every connection has ended, for as long as received input can still be kept; tells once
    /// the reason for its wait.
    async fn wait_for_ends(&self, deadline: Instant, spread: Duration) {
        let open = &self.shared.open;
        let begin = Instant::now();
        let mut is_told = false;
        while open.len() > 0 && Instant::now() < deadline {
            let stalled = self.stalled().filter(|_| open.unsettled() > 0);
            let is_hopeless =
                stalled == Some(WriterState::StalledBudget) && !self.has_consumer().await;
            if is_hopeless && Instant::now() >= begin + spread + LAST_WRITES {
                return;
            }
            if !is_told && (stalled.is_some() || begin.elapsed() >= TELL_AFTER) {
                is_told = true;
                let until = if is_hopeless {
                    begin + spread + LAST_WRITES
                } else {
                    deadline
                };
                self.tell_what_is_waited_for(until, is_hopeless);
            }
            let until = deadline.min(Instant::now() + LOOK_EVERY);
            let _ = tokio::time::timeout_at(until, open.changed()).await;
        }
    }

    /// Why the spool keeps nothing more now.
    fn stalled(&self) -> Option<WriterState> {
        let state = self.shared.writer()?.stats().state;
        use WriterState::{StalledBudget, StalledDescriptors, StalledDisk};
        let is_stalled = matches!(state, StalledBudget | StalledDisk | StalledDescriptors);
        is_stalled.then_some(state)
    }

    /// Whether somebody may make room in the spool.
    async fn has_consumer(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        let looked = tokio::task::spawn_blocking(move || {
            shared.operator.as_ref().is_none_or(Operator::has_consumer)
        });
        looked.await.unwrap_or(true)
    }

    fn tell_what_is_waited_for(&self, until: Instant, is_hopeless: bool) {
        let (unacked, uncommitted) = self.left();
        let connections = self.shared.open.len();
        let seconds = until
            .saturating_duration_since(Instant::now())
            .as_secs_f64();
        let state = self
            .shared
            .writer()
            .map_or("ok", |writer| writer.stats().state.as_str());
        let why = if is_hopeless {
            "the spool is at its budget and no consumer exists: events that have no room are not acknowledged"
        } else {
            "the stop waits for windows to be kept and acknowledged, up to --drain-timeout"
        };
        tracing::warn!(
            code = "receiver.stop_waits",
            connections,
            unacked,
            uncommitted,
            state,
            seconds,
            "{why}"
        );
    }

    /// Windows received and not acknowledged, and those of them that are durable.
    fn left(&self) -> (u64, u64) {
        let open = &self.shared.open;
        (open.unsettled(), open.uncommitted().0)
    }

    /// Why the receiver gave up, once its spool cannot be written or no socket of it listens any more: after
    /// the line `failed`.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.report.failure()
    }

    /// Ends every connection now; events that are not durable are not acknowledged. Returns the number of
    /// windows that were left unacknowledged.
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

/// URLs of one address, served with the same options.
struct Served {
    protocol: &'static Protocol,
    /// The URLs without the options of the protocol.
    urls: Vec<String>,
    /// Those options, as written.
    taken: Vec<String>,
    options: ReceiverOptions,
}

/// The options of a URL: the receiver's, with those in the URL's query in their place.
fn own(url: &str, options: &ReceiverOptions) -> Result<(Plain, ReceiverOptions), ReceiverError> {
    let protocol = protocols::named(url).map_err(ReceiverError::Usage)?;
    let mut own = options.clone();
    let plain = query::take(url, &mut [(protocol.options)(&mut own)])?;
    own.check()?;
    Ok((plain, own))
}

fn specs(options: &ReceiverOptions) -> Result<Vec<(Served, ListenSpec)>, ReceiverError> {
    if options.urls.is_empty() && options.connect.is_empty() {
        return Err(ReceiverError::Usage(
            "no URL to listen on or to connect to; give one such as lumberjack://127.0.0.1:5044 or \
             relink://127.0.0.1:5100/NAME".to_owned(),
        ));
    }
    let (mut served, mut endpoints): (Vec<Served>, Vec<Endpoint>) = Default::default();
    for url in &options.urls {
        let (Plain { url, taken }, options) = own(url, options)?;
        let (protocol, endpoint) =
            protocols::of(&url, Way::Listen).map_err(ReceiverError::Usage)?;
        let is_same = |other: &Endpoint| protocol.has_names && *other == endpoint && !is_any(other);
        let Some(at) = endpoints.iter().position(is_same) else {
            let urls = vec![url];
            served.push(Served {
                protocol,
                urls,
                taken,
                options,
            });
            endpoints.push(endpoint);
            continue;
        };
        if served[at].taken != taken {
            return Err(ReceiverError::Usage(format!(
                "{endpoint} is given with different options: URLs of one address have the same"
            )));
        }
        served[at].urls.push(url);
    }
    if !endpoints.is_empty() || options.connect.is_empty() {
        Endpoint::fill(&mut endpoints, &options.tls).map_err(usage)?;
    }
    let timeout = options.acceptor.handshake_timeout;
    let specs = endpoints
        .into_iter()
        .map(|one| ListenSpec::new(one, timeout));
    let specs: Vec<_> = specs.collect::<Result<_, _>>().map_err(usage)?;
    Ok(served.into_iter().zip(specs).collect())
}

/// Whether the system chooses its port: two of them are two specs.
fn is_any(endpoint: &Endpoint) -> bool {
    matches!(endpoint.addresses[..], [Address::Tcp(_, 0)])
}

/// A URL that the receiver connects to.
struct Subscribed {
    subscribe: Subscribe,
    url: String,
    options: ReceiverOptions,
}

fn subscribed(options: &ReceiverOptions) -> Result<Vec<Subscribed>, ReceiverError> {
    let one = |url: &String| {
        let (Plain { url, .. }, options) = own(url, options)?;
        let (protocol, endpoint) =
            protocols::of(&url, Way::Connect).map_err(ReceiverError::Usage)?;
        let subscribe = protocol.subscribe.ok_or_else(|| {
            let scheme = protocol.scheme();
            let text = format!("connect {endpoint}: a receiver of {scheme} only listens");
            ReceiverError::Usage(text)
        })?;
        Ok(Subscribed {
            subscribe,
            url,
            options,
        })
    };
    options.connect.iter().map(one).collect()
}

fn usage(error: impl std::fmt::Display) -> ReceiverError {
    ReceiverError::Usage(error.to_string())
}

/// Time for the spool to write its last bytes, when a stop found nothing to wait for.
const LAST_WRITES: Duration = Duration::from_millis(500);
/// The time after which a stop tells the reason for its wait.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// Between two looks at that.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between the ends of two connections when the receiver stops: 100 senders a second look for another place.
const END_EVERY: Duration = Duration::from_millis(10);
