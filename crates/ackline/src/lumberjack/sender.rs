//! The writer for applications: takes events, keeps them until they are acknowledged, and sends
//! them to any of its hosts that takes them, over as many connections as that needs.
//!
//! It decides when a connection is made again. The protocol's crate decides which events go to which host
//! ([`Pool`]), the bytes on the wire, and the events that an acknowledgement covers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_core::{UsageError, locked};
use ackline_link::{Address, Endpoint, Stream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::endpoint;

mod error;
mod host;
mod options;
mod shared;

use ackline_lumberjack::pool::{Accepted, Batch, Phase, Pool, SenderStats, Unacked, WindowReceipt};
pub use error::SenderError;
pub use host::Dial;
pub use options::SenderOptions;
use shared::Shared;

/// Time for the receiver's end of a connection on which everything is acknowledged.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Sends events to one or several receivers. Clones are the same sender; when the last one is dropped, its
/// connections end at once. [`Sender::close`] waits for unacknowledged events. Events that either leaves
/// without an acknowledgement are a warning, `sender.unacknowledged`.
///
/// Events are numbered from 1 in the order of acceptance. Each is in flight at one host at a time, those
/// of one connection in ascending order unless they come from another host that was lost.
#[derive(Clone)]
pub struct Sender {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// One for each host, aborted when they are dropped.
    tasks: Mutex<JoinSet<()>>,
}

impl Inner {
    fn tell_rest(&self, events: u64) {
        if events == 0 {
            return;
        }
        let pool = self.shared.pool();
        let (hosts, reason) = (pool.names(), pool.last_error());
        drop(pool);
        tracing::warn!(
            code = "sender.unacknowledged",
            hosts,
            events,
            reason = reason.as_deref(),
            "the sender ended, and these events are not acknowledged"
        );
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (was_over, rest) = {
            let pool = self.shared.pool();
            (pool.phase() == Phase::Closed, pool.unacknowledged())
        };
        if !was_over {
            self.tell_rest(rest);
        }
        self.shared.enter(Phase::Closed);
    }
}

impl Sender {
    /// A sender to the hosts of these URLs: `lumberjack://host:port[,host:port…]`, also with `+tls` and
    /// `+unix`; several may stand in one text with commas ([`Endpoint::split`]). It begins to connect;
    /// [`Sender::connected`] says when that is decided. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// A URL, an option or a file of TLS is wrong, or there is no runtime.
    pub fn open<U: AsRef<str>>(urls: &[U], options: SenderOptions) -> Result<Self, SenderError> {
        let hosts = hosts(urls, &options)?;
        let names: Vec<Arc<str>> = hosts.iter().map(|host| host.to_string().into()).collect();
        let net = Net {
            hosts,
            timeout: options.connect_timeout,
        };
        Self::over(net, &names, options)
    }

    /// Refuses the URLs and options that [`Sender::open`] would refuse; connects to nobody and needs no runtime.
    ///
    /// # Errors
    /// As [`Sender::open`].
    pub fn check<U: AsRef<str>>(urls: &[U], options: SenderOptions) -> Result<(), SenderError> {
        hosts(urls, &options)?;
        options.checked()?;
        Ok(())
    }

    /// A sender over transports that `dial` makes; `names` are the hosts' in errors, logs and numbers.
    ///
    /// # Errors
    /// As [`Sender::open`].
    pub fn over<D: Dial>(
        dial: D,
        names: &[Arc<str>],
        options: SenderOptions,
    ) -> Result<Self, SenderError> {
        let options = options.checked()?;
        if names.is_empty() {
            return Err(UsageError::new("no_host", "a sender needs at least one URL").into());
        }
        let runtime = Handle::try_current()
            .map_err(|_| UsageError::new("no_runtime", "open it inside a tokio runtime"))?;
        let shared = Shared::new(Pool::new(options.bounds(names.len()), names), names.len());
        let dial = Arc::new(dial);
        let mut tasks = JoinSet::new();
        for (at, name) in names.iter().enumerate() {
            let (name, dial, shared) = (Arc::clone(name), Arc::clone(&dial), Arc::clone(&shared));
            let host = host::Host::new(at, name, dial, shared, &options);
            tasks.spawn_on(host.run(), &runtime);
        }
        let tasks = Mutex::new(tasks);
        Ok(Self {
            inner: Arc::new(Inner { shared, tasks }),
        })
    }

    /// Waits until a host is reached.
    ///
    /// # Errors
    /// [`SenderError::Connect`] when the first attempt at each of them failed. The sender goes on trying.
    pub async fn connected(&self) -> Result<(), SenderError> {
        let shared = &self.inner.shared;
        if shared.until(|pool| pool.was_reached()).await {
            return Ok(());
        }
        let reason = shared.pool().last_error();
        Err(SenderError::Connect(
            reason.unwrap_or_else(|| "the sender was closed".into()),
        ))
    }

    /// Accepts a batch now or not at all.
    ///
    /// # Errors
    /// [`SenderError::Blocked`] while the buffer is full; [`SenderError::Usage`] for a batch that it can
    /// never hold and after [`Sender::close`].
    pub fn try_send(&self, batch: &Batch) -> Result<Receipt, SenderError> {
        let now = tokio::time::Instant::now().into_std();
        let shared = &self.inner.shared;
        let accepted = shared.pool().accept(now, batch)?;
        let accepted = accepted.ok_or(SenderError::Blocked)?;
        shared.woken();
        Ok(Receipt {
            shared: Arc::clone(shared),
            accepted,
        })
    }

    /// Accepts a batch as soon as the buffer has room for it; `timeout` of `None` waits for ever. Giving up
    /// (by dropping the future) accepts nothing.
    ///
    /// # Errors
    /// [`SenderError::Timeout`], or [`SenderError::Usage`] as [`Sender::try_send`].
    pub async fn send(
        &self,
        batch: &Batch,
        timeout: Option<Duration>,
    ) -> Result<Receipt, SenderError> {
        let sending = async {
            loop {
                match self.try_send(batch) {
                    Err(SenderError::Blocked) => self.room().await,
                    other => return other,
                }
            }
        };
        within(timeout, sending)
            .await
            .unwrap_or_else(|| Err(self.inner.shared.late()))
    }

    /// Waits until a batch that was refused as [`SenderError::Blocked`] may find room.
    pub async fn room(&self) {
        self.inner.shared.until(|pool| pool.may_accept()).await;
    }

    /// Waits until everything that was accepted before is acknowledged.
    ///
    /// # Errors
    /// [`SenderError::Timeout`]; [`SenderError::Closed`] when it was closed first.
    pub async fn flush(&self, timeout: Option<Duration>) -> Result<(), SenderError> {
        let last = self.last_batch();
        self.flushed(last, timeout).await
    }

    /// The id of the batch that was accepted last; 0 before the first one.
    pub fn last_batch(&self) -> u64 {
        self.inner.shared.pool().last_batch()
    }

    /// Whether every batch up to the one with this id is acknowledged.
    pub fn is_flushed(&self, batch: u64) -> bool {
        self.inner.shared.pool().is_flushed(batch)
    }

    /// Waits until every batch up to the one with this id is acknowledged.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub async fn flushed(&self, batch: u64, timeout: Option<Duration>) -> Result<(), SenderError> {
        let shared = &self.inner.shared;
        shared.settled(timeout, |pool| pool.is_flushed(batch)).await
    }

    /// Waits until the batch with this id is acknowledged.
    ///
    /// # Errors
    /// As [`Sender::flush`]; [`SenderError::Usage`] with `unknown_batch` for an id that was never given out.
    pub async fn acknowledged(
        &self,
        batch: u64,
        timeout: Option<Duration>,
    ) -> Result<(), SenderError> {
        if !(1..=self.last_batch()).contains(&batch) {
            let text = "no batch that was accepted has this id";
            return Err(UsageError::new("unknown_batch", text).into());
        }
        let is_acknowledged = |pool: &Pool| pool.is_acknowledged(batch);
        self.inner.shared.settled(timeout, is_acknowledged).await
    }

    /// Whether every event of the batch with this id is acknowledged; never for an id that was not given out.
    pub fn is_acknowledged(&self, batch: u64) -> bool {
        self.inner.shared.pool().is_acknowledged(batch)
    }

    /// The receipts of windows since the last call, oldest first; see
    /// [`receipts`](SenderOptions::receipts).
    pub fn receipts(&self) -> Vec<WindowReceipt> {
        self.inner.shared.pool().take_receipts()
    }

    /// Events accepted and not acknowledged; a receiver may acknowledge a part of a window.
    pub fn unacknowledged(&self) -> u64 {
        self.inner.shared.pool().unacknowledged()
    }

    /// The sender's numbers.
    pub fn stats(&self) -> SenderStats {
        let now = tokio::time::Instant::now().into_std();
        self.inner.shared.pool().stats(now)
    }

    /// Accepts no more, waits `timeout` at the most until everything is acknowledged, and ends every
    /// connection. Returns exactly the events that are not acknowledged; a second call returns no more.
    pub async fn close(&self, timeout: Duration) -> Unacked {
        let shared = &self.inner.shared;
        shared.enter(Phase::Closing);
        let done = shared.until(|pool| pool.is_over().then_some(()));
        let is_done = within(Some(timeout), done).await.is_some();
        let mut ending = Ending {
            tasks: std::mem::take(&mut *locked(&self.inner.tasks)),
            shared: Arc::clone(shared),
        };
        if is_done {
            let ended = async { while ending.tasks.join_next().await.is_some() {} };
            let _ = within(Some(timeout.min(LAST_BYTES)), ended).await;
        }
        shared.enter(Phase::Ending);
        ending.tasks.shutdown().await;
        shared.enter(Phase::Closed);
        let rest = shared.pool().take_unacknowledged();
        self.inner.tell_rest(rest.events());
        rest
    }

    /// Ends every connection now. [`Sender::close`] returns the events that are not acknowledged.
    pub fn abort(&self) {
        self.inner.shared.enter(Phase::Closed);
        locked(&self.inner.tasks).abort_all();
    }
}

/// A batch that was accepted.
#[derive(Clone)]
pub struct Receipt {
    shared: Arc<Shared>,
    accepted: Accepted,
}

impl Receipt {
    /// The batch's id, counted from 1.
    pub const fn batch(&self) -> u64 {
        self.accepted.batch
    }

    /// The number of its first event, counted from 1 in the order of acceptance.
    pub const fn first(&self) -> u64 {
        self.accepted.first
    }

    /// The number of its last event.
    pub const fn last(&self) -> u64 {
        self.accepted.last
    }

    /// Whether every event of it is acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        self.shared.pool().is_acknowledged(self.accepted.batch)
    }

    /// Waits until every event of it is acknowledged; `timeout` of `None` waits for ever.
    ///
    /// # Errors
    /// [`SenderError::Timeout`]; [`SenderError::Closed`] when the sender was closed first.
    pub async fn acknowledged(&self, timeout: Option<Duration>) -> Result<(), SenderError> {
        let batch = self.accepted.batch;
        let is_acknowledged = |pool: &Pool| pool.is_acknowledged(batch);
        self.shared.settled(timeout, is_acknowledged).await
    }
}

/// `None` when the time was up first.
async fn within<T>(timeout: Option<Duration>, wait: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, wait).await.ok(),
        None => Some(wait.await),
    }
}

/// The hosts of the URLs, with their files of TLS read.
fn hosts<U: AsRef<str>>(urls: &[U], options: &SenderOptions) -> Result<Vec<Endpoint>, SenderError> {
    let mut hosts = Vec::new();
    for url in urls.iter().flat_map(|urls| Endpoint::split(urls.as_ref())) {
        hosts.push(endpoint(url).map_err(SenderError::Url)?);
    }
    Endpoint::fill(&mut hosts, &options.tls)
        .map_err(|error| SenderError::Url(error.to_string()))?;
    for host in &hosts {
        host.client().map_err(|error| SenderError::Tls {
            code: error.code(),
            message: error.to_string(),
        })?;
    }
    let hosts: Vec<Endpoint> = hosts.iter().flat_map(Endpoint::each).collect();
    let is_chosen = |address: &Address| !matches!(address, Address::Tcp(_, 0));
    match hosts
        .iter()
        .find(|host| !host.addresses.iter().all(is_chosen))
    {
        None => Ok(hosts),
        Some(host) => Err(SenderError::Url(format!(
            "{host} has port 0, on which nobody listens: give the receiver's port"
        ))),
    }
}

/// The tasks of a sender that is being closed; they end with it. No other task takes the events that an aborted
/// task lets go.
struct Ending {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.enter(Phase::Ending);
    }
}

/// Transports over sockets.
struct Net {
    hosts: Vec<Endpoint>,
    timeout: Duration,
}

impl Dial for Net {
    type Io = Stream;

    async fn dial(&self, host: usize) -> std::io::Result<Stream> {
        let endpoint = self.hosts.get(host);
        let endpoint = endpoint.ok_or(std::io::ErrorKind::InvalidInput)?;
        ackline_link::connect(endpoint, self.timeout).await
    }
}
