//! A small broker: topics, which every subscriber gets, and queues, whose messages go to one receiver each.
//!
//! A destination is a topic unless it is named as a queue. **Topics are live only**: a message goes to the subscribers whose
//! filters it matches, now, and is acknowledged once it waits for them; nobody gets it later. A **queue** hands each message
//! to one receiver, in order, and keeps it until that receiver has acknowledged it; a receiver that leaves gives its
//! messages back. Without a spool the publisher is acknowledged then. With a spool it is acknowledged once the message is
//! durable, and the message survives restarts of the broker.
//!
//! A subscriber that does not keep up is ended, and never holds up others. Publishers to a queue that is full wait.

mod blocked;
mod blocks;
mod durable;
mod hub;
mod moving;
mod peer;
mod queue_cell;
mod read_back;
mod serve;

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ackline_core::OpenError;
use ackline_core::options::{OptionError, Options, bytes, count, text};
use ackline_link::tls::TlsOptions;
use ackline_link::{
    Acceptor, AcceptorOptions, AcceptorStats, Admitted, Budget, Endpoint, Fairness, Link,
    ListenSpec,
};
use ackline_micromsg::broker::QueueNames;
use ackline_micromsg::{AckPolicy, Config, Error, Negotiation, Offer, Role};
use ackline_spool::WriterOptions;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ingest::log_error_frame;
use super::url::endpoint;
use super::{SCHEME, Session};
use crate::dialing::filled;
use crate::listening::Listening;
use crate::query;
use durable::Durable;
use hub::Hub;
use queue_cell::QueueCell;
use serve::Serving;

ackline_core::options! {
    /// The options of a broker.
    #[derive(Debug, Clone)]
    pub struct BrokerOptions {
        options {
            /// Destinations that are queues, in place of `queue/*`: names, and beginnings with `*` behind them, with semicolons
            /// between.
            queues: Option<String> = None, text("a list of names such as queue/*;jobs"), LISTEN;
            /// Subscriptions of one connection.
            max_subscriptions: usize = 1_024, count(1..=u64::MAX), LISTEN;
            /// Bytes of the subscriptions of one connection: each takes 256, its topic twice, and its filter. Those of all
            /// connections may take a quarter of `memory`.
            max_subscription_bytes: usize = 1 << 20, bytes(1..=u64::MAX), LISTEN;
            /// Conditions of one filter.
            max_filter_conditions: usize = 64, count(1..=u64::MAX), LISTEN;
            /// Bytes of messages that wait for one subscriber: above it the subscriber is ended. Also bytes of messages in
            /// one queue: above it its publishers wait, or, with a spool, messages stay on disk alone.
            max_subscriber_bytes: usize = 16 << 20, bytes(1..=u64::MAX), LISTEN;
            /// Queues at once.
            max_queues: usize = 1_024, count(1..=u64::MAX), LISTEN;
            /// Messages of one queue that no receiver can take now and that let others pass.
            max_aside: usize = 1_024, count(0..=u64::MAX), LISTEN;
            /// Bytes of received messages of all connections that may be held in memory; and as many again of messages that
            /// wait for subscribers, each counted once. Above it the slowest subscribers are ended; publishers to queues wait
            /// from its half on, but for those to queues that have few. Beside it each connection may have `send_bytes`.
            memory: u64 = 256 << 20, bytes(Budget::LEAST..=u64::MAX), LISTEN;
            /// Bytes of messages that may stand ready for the transport on each connection, beside the message in work.
            send_bytes: usize = 64 << 10, bytes(1..=u64::MAX), LISTEN;
        }
        groups {
            /// The name and the extensions of this end.
            offer: Offer = Offer::default();
            /// Limits and timers of each connection.
            link: Config = Config::with_timers();
            /// Limits on connections: allowed networks, number and rate.
            acceptor: AcceptorOptions = AcceptorOptions::default();
            /// How far senders may hold up each other where memory is short. Bytes of the spool have no shares.
            fairness: Fairness = Fairness::default();
            /// TLS of a `+tls` URL, where it leaves it open.
            tls: TlsOptions = TlsOptions::default();
            /// How the spool is written.
            writer: WriterOptions = WriterOptions::default();
        }
        fields {
            /// The directory of the spool that keeps the messages of queues; `None`: they are in memory alone.
            spool: Option<PathBuf> = None;
        }
    }
}

impl BrokerOptions {
    /// Takes the options in the query of `url`, and refuses values that are outside their ranges; the endpoint of the URL.
    fn endpoint(&mut self, url: &str) -> Result<Endpoint, OpenError> {
        let mut own: [&mut dyn Options; 1] = [&mut self.link];
        let plain = query::take(url, &mut own)?.url;
        self.check_ranges()?;
        self.offer.apply(&mut self.link)?;
        // The broker acknowledges messages once they are handed on.
        self.link.ack_policy = AckPolicy::Manual;
        self.link.terms.negotiation = Negotiation::Automatic;
        filled(endpoint(&plain)?, &self.tls)
    }
}

/// The current state of a broker, and totals since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BrokerStats {
    /// Connections now.
    pub connections: u64,
    /// Subscriptions now, to topics and queues.
    pub subscriptions: u64,
    /// Messages that were received.
    pub published: u64,
    /// Messages that were handed to subscribers, each counted for each of them.
    pub delivered: u64,
    /// Subscribers that were ended because they were too slow.
    pub slow_subscribers: u64,
    /// Connections that were ended for their input or for any reason of the broker's, these among them, or turned away.
    pub refused: u64,
    /// Commands and frames of extensions that the broker does not know.
    pub ignored: u64,
    /// Queues now.
    pub queues: u64,
    /// Messages of queues in memory that wait for a receiver.
    pub waiting: u64,
    /// Messages of queues that receivers have and have not acknowledged.
    pub unacknowledged: u64,
    /// Bytes of messages that wait for subscribers or in queues, each counted once.
    pub held_bytes: u64,
}

/// A running broker. Dropping it ends its connections at once.
pub struct Broker {
    hub: Arc<Hub>,
    listening: Listening<Infallible>,
    keeper: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

/// Serves topics and queues on `micromsg://host:port` (port 0: any free one), `micromsg+tls://…` or `micromsg+unix:///path`.
/// Must run inside a tokio runtime.
///
/// # Errors
/// A wrong URL or option, an address in use, a spool that cannot be opened.
pub async fn serve(url: &str, mut options: BrokerOptions) -> Result<Broker, Error> {
    let endpoint = options.endpoint(url)?;
    let names =
        QueueNames::read(options.queues.as_deref().unwrap_or(QUEUES)).map_err(OpenError::Option)?;
    if options.spool.is_some() {
        names.check_consumers().map_err(OpenError::Option)?;
    }
    let spec = ListenSpec::new(endpoint, options.acceptor.handshake_timeout);
    let spec = spec.map_err(OpenError::url)?;
    let broken = |error| OpenError::listen(format!("{spec}: {error}"));
    let listener = spec.bind().await.map_err(broken)?.speaking_first(false);
    // After the address, so that one in use leaves no new spool behind.
    let (durable, (queues, half_moved)) = open_spool(&options).await?;
    check_names(&names, &queues)?;
    let is_durable = durable.is_some();
    let hub = Arc::new(Hub::new(&options, names, durable));
    for (name, stored) in queues {
        hub.add_queue(&QueueCell::new(&name, hub.limits.aside, Some(stored)));
    }
    let keeper = is_durable.then(|| tokio::spawn(Durable::keep(Arc::downgrade(&hub), half_moved)));
    let budget = Budget::fair(options.memory, options.fairness);
    options.link.limit_incomplete(budget.largest());
    let made = Made {
        hub: Arc::clone(&hub),
        budget,
        config: options.link,
        send_bytes: options.send_bytes,
    };
    let acceptor = Acceptor::new(options.acceptor);
    let listening = Listening::start_with(listener, acceptor, "receiver.accept", |_, _| {
        let made = Arc::new(made);
        move |outcome| match outcome {
            Ok(admitted) => made.serve(admitted),
            Err(turned) => made.hub.report.turned_away(SCHEME, turned),
        }
    });
    Ok(Broker {
        hub,
        listening,
        keeper,
    })
}

type Found = (Option<Durable>, durable::Queues);

async fn open_spool(options: &BrokerOptions) -> Result<Found, OpenError> {
    let Some(dir) = options.spool.clone() else {
        return Ok((None, (Vec::new(), None)));
    };
    let writer = options.writer.clone();
    let opened = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || {
            let durable = Durable::open(&dir, writer)?;
            let queues = durable.queues()?;
            Ok((Some(durable), queues))
        }
    });
    match opened.await {
        Ok(opened) => opened.map_err(|error| durable::unopened(&dir, &error)),
        Err(panic) => Err(OpenError::listen(panic.to_string())),
    }
}

/// Refuses to serve a queue of the spool as a topic: its messages would stay, and nobody would get them.
fn check_names(names: &QueueNames, queues: &[(String, durable::Stored)]) -> Result<(), OpenError> {
    let Some((queue, _)) = queues.iter().find(|(queue, _)| !names.has(queue)) else {
        return Ok(());
    };
    // The queue was found by its consumer.
    let consumer = ackline_micromsg::broker::consumer(queue).unwrap_or_default();
    Err(OpenError::Option(OptionError::new(
        "queues",
        format!(
            "does not name {queue:?}, a queue of the spool: name it, or remove its consumer {consumer} from the spool"
        ),
    )))
}

/// Settings that each connection is made with.
struct Made {
    hub: Arc<Hub>,
    config: Config,
    send_bytes: usize,
    budget: Budget,
}

impl Made {
    /// Drives and serves a connection, each in a task of its own.
    fn serve(&self, admitted: Admitted) {
        let now = Instant::now().into_std();
        let mut session = Session::new(now, Role::Server, self.config.clone(), self.send_bytes);
        session.count_places(Arc::clone(&self.hub.held));
        // Many publishers may wait for a queue, and all of their messages with them.
        let part = usize::try_from(self.hub.held.limit() / 16).unwrap_or(MOST_ARRIVED);
        session.limit_inbox(part.min(MOST_ARRIVED));
        let link = Link::of_sender(session, self.budget.clone(), &admitted.peer.sender);
        let peer = self.hub.join(link.clone(), admitted.peer.clone());
        let serving = Serving::new(Arc::clone(&self.hub), peer);
        tokio::spawn(drive(admitted, link, Arc::clone(&self.hub)));
        tokio::spawn(serving.run());
    }
}

/// Drives a connection to its end, and reports an end for its input.
async fn drive(admitted: Admitted, link: Link<Session>, hub: Arc<Hub>) {
    let peer = admitted.peer.clone();
    let too_old = |session: &mut Session, _| {
        // It may have ended by itself.
        let _ = session.fail(super::connection::TOO_OLD);
    };
    let (driven, slot, turned) = admitted.drive(&link, too_old).await;
    if let Some(turned) = turned {
        hub.report.turned_away(SCHEME, turned);
    }
    hub.report.ended((SCHEME, &peer), &driven.end, None);
    if let Some(Error::Failed(why)) = link.call(|session, _| session.over()) {
        log_error_frame(&peer, None, &why);
    }
    drop((driven, slot));
}

impl Broker {
    /// The URL listened on, with the port that was chosen.
    pub fn url(&self) -> &str {
        self.listening.url()
    }

    /// The current state, and totals since the start.
    pub fn stats(&self) -> BrokerStats {
        self.hub.stats()
    }

    /// The next line about a connection that was ended for its input, or turned away: `refused` of the JSON contract. `None`
    /// without a new one. Of lines that nobody takes, the oldest are dropped.
    pub fn next_refusal(&self) -> Option<String> {
        self.hub.report.next(Duration::ZERO)
    }

    /// Counts of refused connections and of health checks.
    pub fn acceptor_stats(&self) -> AcceptorStats {
        self.listening.stats()
    }

    /// Ends the broker in order: accepts nothing more, hands nothing more out of queues, waits until receivers have
    /// acknowledged the messages that they have, and ends every connection behind everything that waits for it. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Timeout`]: not all of that was done in time; the broker has ended all the same.
    pub async fn close(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.listening.end().await;
        self.hub.begin_close();
        let is_settled = self.until(until, |hub| {
            let is_busy = hub.durable.is_some() && Durable::is_busy(hub);
            !is_busy
                && hub
                    .all_queues()
                    .iter()
                    .all(|queue| queue.lock().queue.out() == 0)
        });
        let is_settled = is_settled.await;
        self.say_dropped();
        for peer in self.hub.peers() {
            // It may be over.
            let _ = peer.link.call(|session, _| session.close());
            peer.link.close_within(LAST_BYTES);
        }
        let is_empty = self.until(until, |hub| hub.peers().is_empty()).await;
        if let Some(durable) = &self.hub.durable {
            let left = until.map_or(LAST_WRITES, |until| {
                until.saturating_duration_since(Instant::now())
            });
            durable.close(&self.hub, left.max(LEAST_WRITES)).await;
        }
        self.stop();
        if is_settled && is_empty {
            return Ok(());
        }
        Err(Error::Timeout)
    }

    /// Logs how many messages of queues end with a broker that has no spool. Their publishers were not told that they are
    /// safe.
    fn say_dropped(&self) {
        if self.hub.durable.is_some() {
            return;
        }
        let stats = self.hub.stats();
        let messages = stats.waiting + stats.unacknowledged;
        if messages > 0 {
            tracing::warn!(
                code = "micromsg.queues_dropped",
                messages,
                option = "--spool",
                "the broker ends with messages in its queues, which only a spool keeps; none of them was acknowledged to its publisher"
            );
        }
    }

    /// Ends the broker at once: messages that wait for subscribers are dropped, and nothing more is acknowledged.
    pub fn stop(&self) {
        self.listening.stop();
        self.hub.begin_close();
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
        if let Some(durable) = &self.hub.durable {
            durable.stop();
        }
        for peer in self.hub.peers() {
            peer.link.abort();
        }
        // Publishers that wait for a move, which does not end any more.
        self.hub.freed.notify_waiters();
    }

    /// Waits until it is so, or until then; returns whether it is.
    async fn until(&self, until: Option<Instant>, is_so: impl Fn(&Hub) -> bool) -> bool {
        loop {
            let mut changed = pin!(self.hub.freed.notified());
            // Before the look: a change after it is not missed.
            changed.as_mut().enable();
            if is_so(&self.hub) {
                return true;
            }
            let is_late = if let Some(until) = until {
                tokio::time::timeout_at(until, changed).await.is_err()
            } else {
                changed.await;
                false
            };
            if is_late {
                return is_so(&self.hub);
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The queues by default.
const QUEUES: &str = "queue/*";
/// Time for a peer's end of the transport behind ours.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// Time for the last writes to the spool, where no other is given.
const LAST_WRITES: Duration = Duration::from_secs(30);
/// The least time for them.
const LEAST_WRITES: Duration = Duration::from_secs(1);
/// Bytes of a connection that wait to be taken, about.
const MOST_ARRIVED: usize = 512 << 10;
