//! The state that all connections of a broker share: who subscribes to which topic, the queues, the memory, and the limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ackline_core::locked;
use ackline_link::{Link, PeerInfo, Refused};
use ackline_micromsg::broker::{FanOut, Held, QueueNames, Refusal, SubscriptionLimits};
use ackline_micromsg::session::Session;
use ackline_micromsg::subscriptions::Subscriptions;
use tokio::sync::Notify;

use super::super::SCHEME;
use super::blocked::Blocked;
use super::durable::Durable;
use super::peer::Peer;
use super::queue_cell::QueueCell;
use super::{BrokerOptions, BrokerStats};
use crate::landing::Report;

/// The shared state of a broker.
pub(super) struct Hub {
    pub(super) limits: Limits,
    pub(super) names: QueueNames,
    pub(super) held: Arc<Held>,
    /// Queues or the memory have room again.
    pub(super) freed: Arc<Notify>,
    routes: RwLock<Routes>,
    /// Empty batches of messages to topics, to be used again.
    fan_outs: Mutex<Vec<FanOut<Peer>>>,
    queues: Queues,
    pub(super) blocked: Blocked,
    pub(super) durable: Option<Durable>,
    pub(super) counts: Counts,
    pub(super) report: Report,
    is_closing: AtomicBool,
}

/// The queues by name.
#[derive(Default)]
struct Queues {
    by_name: Mutex<HashMap<String, Arc<QueueCell>>>,
    count: AtomicU64,
    /// Held by the one that makes a queue.
    making: tokio::sync::Mutex<()>,
}

/// The limits of a broker, as its options say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) subscriptions: SubscriptionLimits,
    pub(super) subscriber_bytes: usize,
    pub(super) queues: usize,
    pub(super) aside: usize,
}

/// The connections, and their subscriptions to topics.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) topics: Subscriptions<Peer>,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
}

/// Totals since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) published: AtomicU64,
    delivered: AtomicU64,
    pub(super) slow: AtomicU64,
    pub(super) ignored: AtomicU64,
    pub(super) subscriptions: AtomicU64,
    pub(super) subscription_bytes: AtomicU64,
}

impl Counts {
    pub(super) fn delivered(&self, messages: usize) {
        self.delivered.fetch_add(messages as u64, Ordering::Relaxed);
    }
}

impl Hub {
    pub(super) fn new(
        options: &BrokerOptions,
        names: QueueNames,
        durable: Option<Durable>,
    ) -> Self {
        let freed = Arc::<Notify>::default();
        Self {
            limits: Limits {
                subscriptions: SubscriptionLimits {
                    count: options.max_subscriptions,
                    bytes: options.max_subscription_bytes,
                    conditions: options.max_filter_conditions,
                },
                subscriber_bytes: options.max_subscriber_bytes,
                queues: options.max_queues,
                aside: options.max_aside,
            },
            names,
            held: Held::new(options.memory, {
                let freed = Arc::clone(&freed);
                move || freed.notify_waiters()
            }),
            freed,
            routes: RwLock::default(),
            fan_outs: Mutex::default(),
            queues: Queues::default(),
            blocked: Blocked::new(options.memory, &options.fairness),
            durable,
            counts: Counts::default(),
            report: Report::default(),
            is_closing: AtomicBool::new(false),
        }
    }

    pub(super) fn routes(&self) -> RwLockReadGuard<'_, Routes> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn routes_mut(&self) -> RwLockWriteGuard<'_, Routes> {
        self.routes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the messages of a batch. A subscriber for which too much waits then is ended.
    pub(super) fn deliver(&self, mut batch: FanOut<Peer>) {
        let delivered = batch.take(&self.held, |subscriber, messages| {
            let waiting = subscriber.deliver(messages);
            if waiting > self.limits.subscriber_bytes {
                self.end_slow(&subscriber, waiting);
            }
        });
        locked(&self.fan_outs).push(batch);
        if delivered > 0 {
            self.counts.delivered(delivered);
            self.make_room();
        }
    }

    /// Memory for a batch of messages to topics. There are as many as there are batches at once.
    pub(super) fn fan_out(&self) -> FanOut<Peer> {
        locked(&self.fan_outs).pop().unwrap_or_default()
    }

    /// Adds a connection.
    pub(super) fn join(&self, link: Link<Session>, info: PeerInfo) -> Peer {
        let mut routes = self.routes_mut();
        let slot = routes.free.pop().unwrap_or(routes.peers.len());
        let peer = Peer::new(link, info, slot);
        match routes.peers.get_mut(slot) {
            Some(place) => *place = Some(peer.clone()),
            None => routes.peers.push(Some(peer.clone())),
        }
        peer
    }

    /// Removes a connection without subscriptions.
    pub(super) fn leave(&self, peer: &Peer) {
        let mut routes = self.routes_mut();
        if let Some(place) = routes.peers.get_mut(peer.slot) {
            *place = None;
            routes.free.push(peer.slot);
        }
        drop(routes);
        if self.is_closing() {
            self.freed.notify_waiters();
        }
    }

    /// The connections now.
    pub(super) fn peers(&self) -> Vec<Peer> {
        self.routes().peers.iter().flatten().cloned().collect()
    }

    /// The queue of this name, if there is one.
    fn known_queue(&self, name: &str) -> Option<Arc<QueueCell>> {
        locked(&self.queues.by_name).get(name).cloned()
    }

    /// The queues now.
    pub(super) fn all_queues(&self) -> Vec<Arc<QueueCell>> {
        locked(&self.queues.by_name).values().cloned().collect()
    }

    /// The queue of this name, which is made if need be.
    pub(super) async fn queue(&self, name: &str) -> Result<Arc<QueueCell>, Refusal> {
        if let Some(cell) = self.known_queue(name) {
            return Ok(cell);
        }
        let _making = self.queues.making.lock().await;
        if let Some(cell) = self.known_queue(name) {
            return Ok(cell);
        }
        let (limit, count) = (self.limits.queues, locked(&self.queues.by_name).len());
        if count >= limit {
            let text = format!("there are {count} queues, as many as there may be (max_queues)");
            return Err(Refusal::new("micromsg.too_many_queues", text));
        }
        let stored = match &self.durable {
            Some(durable) => Some(durable.consumer(name).await?),
            None => None,
        };
        let cell = QueueCell::new(name, self.limits.aside, stored);
        self.add_queue(&cell);
        Ok(cell)
    }

    pub(super) fn add_queue(&self, cell: &Arc<QueueCell>) {
        let mut queues = locked(&self.queues.by_name);
        queues.insert(cell.name.to_string(), Arc::clone(cell));
        self.queues
            .count
            .store(queues.len() as u64, Ordering::Relaxed);
    }

    /// Removes a queue in memory that nobody uses.
    pub(super) fn forget_queue(&self, cell: &QueueCell) {
        let mut queues = locked(&self.queues.by_name);
        if cell.remove_if_idle() {
            queues.remove(&*cell.name);
            self.queues
                .count
                .store(queues.len() as u64, Ordering::Relaxed);
        }
    }

    /// Ends a connection with an error, and says so.
    pub(super) fn refuse(&self, peer: &Peer, refusal: &Refusal) {
        if peer.refuse(&refusal.text) {
            let refused = Refused::new(&peer.info, refusal.code, refusal.text.clone());
            self.report.refused(SCHEME, &refused);
        }
    }

    /// Ends a subscriber for which too much waits.
    pub(super) fn end_slow(&self, peer: &Peer, waiting: usize) {
        let limit = self.limits.subscriber_bytes;
        let text = format!(
            "this subscriber is too slow: {waiting} bytes wait for it, and there may be {limit} (max_subscriber_bytes)"
        );
        self.slow(peer, text);
    }

    fn slow(&self, peer: &Peer, text: String) {
        if !peer.is_refused() {
            self.counts.slow.fetch_add(1, Ordering::Relaxed);
        }
        self.refuse(peer, &Refusal::new("micromsg.slow_subscriber", text));
    }

    /// Ends the slowest subscribers until the messages that wait fit into the memory.
    pub(super) fn make_room(&self) {
        while self.held.is_over() {
            let peers = self.peers();
            let behind = peers
                .iter()
                .filter(|peer| peer.waiting_noted() > 0 && !peer.is_refused());
            let slowest = behind
                .map(|peer| (peer.waiting_now(), peer))
                .max_by_key(|(waiting, _)| *waiting);
            let Some((waiting, slowest)) = slowest.filter(|(waiting, _)| *waiting > 0) else {
                return;
            };
            let (bytes, limit) = (self.held.bytes(), self.held.limit());
            let text = format!(
                "this subscriber is the slowest one: {waiting} bytes wait for it, {bytes} bytes of messages for all of \
                 them, and there may be {limit} (memory)"
            );
            self.slow(slowest, text);
        }
    }

    /// Whether publishers to a queue may go on.
    pub(super) fn has_room(&self, queue: &QueueCell) -> bool {
        let durable = self.durable.as_ref();
        let is_tight = durable.is_some_and(|durable| durable.kept.is_tight());
        !is_tight && queue.has_room(self)
    }

    /// Whether there is memory for messages of a queue that has so many bytes of it. While queues have half of the memory,
    /// each has a share of a further eighth, so that the others cannot stop it.
    pub(super) fn has_memory_for(&self, queue_bytes: usize) -> bool {
        self.held.has_room_for_queues() || queue_bytes <= self.share()
    }

    /// Bytes that each queue may have in any case.
    pub(super) fn share(&self) -> usize {
        let count = self.queues.count.load(Ordering::Relaxed).max(1);
        let share = self.held.limit() / 8 / count;
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    /// Wakes the task that reads the spool and writes the marks.
    pub(super) fn wake_keeper(&self) {
        if let Some(durable) = &self.durable {
            durable.wake.notify_one();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Nothing more is handed out of queues.
    pub(super) fn begin_close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    pub(super) fn stats(&self) -> BrokerStats {
        let total = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        let (mut waiting, mut out) = (0, 0);
        let queues = self.all_queues();
        for cell in &queues {
            let state = cell.lock();
            waiting += state.queue.waiting() as u64;
            out += state.queue.out() as u64;
        }
        BrokerStats {
            connections: self.routes().peers.iter().flatten().count() as u64,
            subscriptions: total(&counts.subscriptions),
            published: total(&counts.published),
            delivered: total(&counts.delivered),
            slow_subscribers: total(&counts.slow),
            refused: self.report.refusals(),
            ignored: total(&counts.ignored),
            queues: queues.len() as u64,
            waiting,
            unacknowledged: out,
            held_bytes: self.held.bytes(),
        }
    }
}
