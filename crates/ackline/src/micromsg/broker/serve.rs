//! The task of one connection of a broker: it takes everything that the peer sends, and its acknowledgements.

use std::collections::HashMap;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use ackline_core::Connection as _;
use ackline_micromsg::Error;
use ackline_micromsg::broker::{self, Finished, Refusal, Routed};
use ackline_micromsg::session::{Arrival, Received, Session, Wait};
use ackline_micromsg::{Filter, Subscribe};
use tokio::sync::futures::Notified;
use tokio::time::Sleep;

use super::blocked::TooMany;
use super::hub::Hub;
use super::peer::Peer;
use super::queue_cell::QueueCell;

/// One connection.
pub(super) struct Serving {
    hub: Arc<Hub>,
    peer: Peer,
    /// Its subscriptions, and the bytes that each takes.
    subscriptions: HashMap<String, Subscribed>,
    subscription_bytes: usize,
    /// Its acknowledgements that were seen.
    acknowledged: u64,
    /// No further commands come.
    has_all_commands: bool,
    /// Its messages wait for room in this queue.
    waits_for: Option<Arc<QueueCell>>,
    /// The bytes of those that wait behind them, while they do.
    blocked: Option<u64>,
}

struct Subscribed {
    bytes: usize,
    /// `None`: a topic.
    queue: Option<Arc<QueueCell>>,
}

/// Messages in a row to one queue, with their positions on the connection.
type ToQueue = (String, Vec<(Arc<Routed>, u64)>);

/// Something to do.
enum Step {
    Command(Arrival),
    Ignored,
    Messages(Vec<Received>),
    Acknowledged(u64),
    /// There may be room in queues.
    Freed,
    Over,
}

impl Serving {
    pub(super) fn new(hub: Arc<Hub>, peer: Peer) -> Self {
        Self {
            hub,
            peer,
            subscriptions: HashMap::new(),
            subscription_bytes: 0,
            acknowledged: 0,
            has_all_commands: false,
            waits_for: None,
            blocked: None,
        }
    }

    /// Serves the connection to its end.
    pub(super) async fn run(mut self) {
        loop {
            let hub = Arc::clone(&self.hub);
            let mut freed = pin!(hub.freed.notified());
            freed.as_mut().enable();
            // After this look, a change is not missed.
            self.waits_for.take_if(|queue| hub.has_room(queue));
            self.note_blocked();
            let mut again = pin!(tokio::time::sleep(LOOK_AGAIN));
            match poll_fn(|context| self.poll_step(context, freed.as_mut(), again.as_mut())).await {
                Step::Command(Arrival::Subscribe(wanted)) => self.subscribe(wanted).await,
                Step::Command(Arrival::Unsubscribe(topic)) => self.unsubscribe(&topic),
                Step::Command(Arrival::Command(_)) | Step::Ignored => {
                    hub.counts.ignored.fetch_add(1, Ordering::Relaxed);
                }
                Step::Messages(messages) => self.publish(messages).await,
                Step::Acknowledged(through) => {
                    self.acknowledged = through;
                    self.take_acknowledged();
                }
                Step::Freed => {}
                Step::Over => break,
            }
        }
    }

    /// Notes whether its messages wait for a queue, and how many bytes wait with them. Publishers that wait may have a part of
    /// the memory for what comes in: the others need it.
    fn note_blocked(&mut self) {
        let held = || {
            self.peer
                .link
                .call(|session, _| session.held_bytes() as u64)
        };
        let now = self.waits_for.as_ref().map(|_| held());
        if now.is_none() && self.blocked.is_none() {
            return;
        }
        let before = std::mem::replace(&mut self.blocked, now);
        let changed = self.hub.blocked.change(&self.peer.info.sender, before, now);
        let Err(TooMany { bytes, most, of }) = changed else {
            return;
        };
        let queue = self.waits_for.as_ref().map_or("", |queue| &*queue.name);
        let text = format!(
            "the queue {queue:?} is full, and {bytes} bytes of messages wait for queues at {of}, where there may be {most} \
             (memory): its receivers must acknowledge, or take more"
        );
        self.hub
            .refuse(&self.peer, &Refusal::new("micromsg.queue_full", text));
    }

    fn poll_step(
        &mut self,
        context: &mut Context<'_>,
        freed: Pin<&mut Notified<'_>>,
        again: Pin<&mut Sleep>,
    ) -> Poll<Step> {
        if !self.has_all_commands {
            // A command takes effect in its place among the messages.
            let next = |session: &mut Session| match session.messages_before_arrival() {
                Some(1..) => Err(Error::Blocked),
                _ => session.take_arrival(),
            };
            match self.poll_session(Wait::Arrival, context, next) {
                Poll::Ready(Some(command)) => return Poll::Ready(Step::Command(command)),
                Poll::Ready(None) => self.has_all_commands = true,
                Poll::Pending => {}
            }
        }
        let seen = self.acknowledged;
        let acknowledged = self.poll_session(Wait::Acknowledged, context, |session| match session
            .acknowledged_count()
        {
            count if count > seen => Ok(Some(count)),
            _ => Err(Error::Blocked),
        });
        if let Poll::Ready(Some(through)) = acknowledged {
            return Poll::Ready(Step::Acknowledged(through));
        }
        if let Poll::Ready(Some(_)) =
            self.poll_session(Wait::Extension, context, Session::take_extension)
        {
            return Poll::Ready(Step::Ignored);
        }
        if self.waits_for.is_some() {
            if freed.poll(context).is_ready() || again.poll(context).is_ready() {
                return Poll::Ready(Step::Freed);
            }
            // Its end alone is waited for: messages that were not read are not acknowledged.
            let end = self
                .peer
                .link
                .poll_when(u64::MAX, context, |_, _| Poll::<()>::Pending);
            return end.map(|_| Step::Over);
        }
        let messages = self.poll_session(Wait::Message, context, |session| {
            let most = match session.messages_before_arrival() {
                // It has come since.
                Some(0) => return Ok(Some(Vec::new())),
                Some(before) => before.min(MOST_MESSAGES),
                None => MOST_MESSAGES,
            };
            let some = session.receive_some(most, MOST_BYTES)?;
            Ok((!some.is_empty()).then_some(some))
        });
        messages.map(|messages| messages.map_or(Step::Over, Step::Messages))
    }

    /// Takes something from the session; `None` if nothing more comes.
    fn poll_session<T>(
        &self,
        wait: Wait,
        context: &Context<'_>,
        mut take: impl FnMut(&mut Session) -> Result<Option<T>, Error>,
    ) -> Poll<Option<T>> {
        let polled =
            self.peer
                .link
                .poll_when(wait.key(), context, |session, _| match take(session) {
                    Err(Error::Blocked) => Poll::Pending,
                    taken => Poll::Ready(taken.unwrap_or(None)),
                });
        polled.map(|taken| taken.unwrap_or(None))
    }

    /// Hands messages on: those to topics at once, those to queues as these allow.
    async fn publish(&mut self, messages: Vec<Received>) {
        for (name, messages) in self.publish_to_topics(&messages) {
            if let Err(refusal) = self.enqueue(&name, messages).await {
                self.hub.refuse(&self.peer, &refusal);
                return;
            }
        }
    }

    /// Hands messages to topics on; returns those to queues.
    fn publish_to_topics(&self, messages: &[Received]) -> Vec<ToQueue> {
        let hub = &self.hub;
        hub.counts
            .published
            .fetch_add(messages.len() as u64, Ordering::Relaxed);
        let mut queued: Vec<ToQueue> = Vec::new();
        let mut finished = Vec::with_capacity(messages.len());
        let mut fan_out = hub.fan_out();
        let routes = hub.routes();
        for Received { position, message } in messages {
            let name = message.destination();
            let is_queue = hub.names.has(name);
            finished.push(!is_queue);
            if !is_queue {
                fan_out.add(&routes.topics, &hub.held, message, |peer| peer.slot);
                continue;
            }
            let routed = (hub.held.queued(message), *position);
            match queued.last_mut() {
                Some((last, all)) if last == name => all.push(routed),
                _ => queued.push((name.to_owned(), vec![routed])),
            }
        }
        drop(routes);
        hub.deliver(fan_out);
        // Before they are with their queues: they may be finished at once.
        self.peer.publish(finished);
        queued
    }

    async fn enqueue(
        &mut self,
        name: &str,
        messages: Vec<(Arc<Routed>, u64)>,
    ) -> Result<(), Refusal> {
        loop {
            let queue = self.hub.queue(name).await?;
            if let Some(durable) = &self.hub.durable {
                let mut freed = pin!(self.hub.freed.notified());
                // Before the look: a change after it is not missed.
                freed.as_mut().enable();
                if !durable.append(&self.hub, &queue, &self.peer, &messages)? {
                    freed.await;
                    continue;
                }
            } else if !queue.publish(&self.hub, &self.peer, &messages) {
                // It was removed meanwhile.
                continue;
            }
            self.hub.make_room();
            if !self.hub.has_room(&queue) {
                self.waits_for = Some(queue);
                self.hub.wake_keeper();
            }
            return Ok(());
        }
    }

    /// The peer has acknowledged messages: its queues may have more for it.
    fn take_acknowledged(&mut self) {
        let mut acked = self.peer.take_acknowledged();
        let mut finished = Finished::default();
        for queue in self
            .subscriptions
            .values()
            .filter_map(|one| one.queue.as_ref())
        {
            let at = acked.iter().position(|(one, _)| one == queue);
            let positions = at.map_or_else(Vec::new, |at| acked.swap_remove(at).1);
            queue.acked(&self.hub, &self.peer, &positions, &mut finished);
        }
        // Of queues that it gets nothing more of.
        for (queue, positions) in acked {
            queue.acked(&self.hub, &self.peer, &positions, &mut finished);
            self.hub.forget_queue(&queue);
        }
        finished.tell(|publisher, positions| publisher.finish(positions));
        if self.hub.is_closing() {
            self.hub.freed.notify_waiters();
        }
    }

    async fn subscribe(&mut self, wanted: Subscribe) {
        if let Err(refusal) = self.try_subscribe(wanted).await {
            self.hub.refuse(&self.peer, &refusal);
        }
    }

    async fn try_subscribe(&mut self, wanted: Subscribe) -> Result<(), Refusal> {
        let hub = Arc::clone(&self.hub);
        let bytes = self.check(&wanted)?;
        let Subscribe { topic, filter, .. } = wanted;
        let queue = if hub.names.has(&topic) {
            Some(self.subscribe_to_queue(&topic, filter).await?)
        } else {
            hub.routes_mut()
                .topics
                .set(&topic, self.peer.clone(), filter);
            None
        };
        let before = self
            .subscriptions
            .insert(topic, Subscribed { bytes, queue });
        if before.is_none() {
            hub.counts.subscriptions.fetch_add(1, Ordering::Relaxed);
        }
        self.count_bytes(bytes, before.map_or(0, |before| before.bytes));
        Ok(())
    }

    /// Judges a subscription by the limits; returns the bytes that it takes.
    fn check(&self, wanted: &Subscribe) -> Result<usize, Refusal> {
        let hub = &self.hub;
        let now = broker::Subscribed {
            count: self.subscriptions.len(),
            bytes: self.subscription_bytes,
            replaced: self.subscriptions.get(&wanted.topic).map(|one| one.bytes),
            all: (
                hub.counts.subscription_bytes.load(Ordering::Relaxed),
                hub.held.limit() / 4,
            ),
        };
        hub.limits.subscriptions.check(wanted, now)
    }

    async fn subscribe_to_queue(
        &self,
        name: &str,
        filter: Option<Arc<Filter>>,
    ) -> Result<Arc<QueueCell>, Refusal> {
        let has_acks = self
            .peer
            .link
            .call(|session, _| session.window_room().is_some());
        if !has_acks {
            let text = "a queue needs acknowledgements: offer batch-ack or ack";
            return Err(Refusal::new("micromsg.queue_without_acks", text));
        }
        // Its room is known from now on.
        self.peer.waiting_now();
        loop {
            let queue = self.hub.queue(name).await?;
            if queue.subscribe(&self.hub, &self.peer, filter.clone()) {
                return Ok(queue);
            }
        }
    }

    fn unsubscribe(&mut self, topic: &str) {
        if let Some(one) = self.subscriptions.remove(topic) {
            self.end_subscription(topic, one);
        }
    }

    /// Ends a subscription. Messages of a queue that the peer has stay its own.
    fn end_subscription(&mut self, topic: &str, one: Subscribed) {
        match one.queue {
            Some(queue) => {
                queue.unsubscribe(&self.hub, &self.peer);
                self.hub.forget_queue(&queue);
            }
            None => drop(self.hub.routes_mut().topics.remove(topic, &self.peer)),
        }
        self.hub
            .counts
            .subscriptions
            .fetch_sub(1, Ordering::Relaxed);
        self.count_bytes(0, one.bytes);
    }

    fn count_bytes(&mut self, more: usize, less: usize) {
        self.subscription_bytes = self.subscription_bytes + more - less;
        let total = &self.hub.counts.subscription_bytes;
        total.fetch_add(more as u64, Ordering::Relaxed);
        total.fetch_sub(less as u64, Ordering::Relaxed);
    }
}

impl Drop for Serving {
    /// The connection is over: its last acknowledgements count, and others get its messages.
    fn drop(&mut self) {
        self.take_acknowledged();
        for (topic, one) in std::mem::take(&mut self.subscriptions) {
            self.end_subscription(&topic, one);
        }
        for (queue, _) in self.peer.take_handed(u64::MAX) {
            queue.leave(&self.hub, &self.peer);
            self.hub.forget_queue(&queue);
        }
        self.waits_for = None;
        self.note_blocked();
        // Queues know it as the publisher of messages: what it has left behind is not kept as long as these.
        self.peer.link.call(|session, _| session.drop_arrived());
        self.hub.leave(&self.peer);
    }
}

/// Messages that are taken at once.
const MOST_MESSAGES: usize = 1_000;
/// Their bytes, about.
const MOST_BYTES: usize = 256 << 10;
/// Time between two looks at a publisher that waits.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
