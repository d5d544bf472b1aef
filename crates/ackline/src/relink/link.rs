//! A link for applications: its verbs, and waits with a deadline.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_core::Sequence;
use ackline_link::{Link as Driven, PeerInfo};
use ackline_relink::{ChannelId, Error, LinkKey, Payload, Told};
use tokio::task::JoinHandle;

use super::connector::{Connected, connect as dial};
use super::interest::{Interest, Wait};
use super::link_host::{LinkHost as _, ready};
use super::options::ConnectOptions;
use super::receipt::{NOT_KEPT, Receipt, Receipts};
use super::registry::{LinkRegistry, Made};
use super::session::{Decided, Event, Message, Session, Stats};
use super::state::{ConnectorState, Origin};

/// A link that survives its connections. Clones are the same link; when the last one is dropped, the link
/// ends in this process: its peer is not told, and its state on disk stays.
#[derive(Clone)]
pub struct Link {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    link: Driven<Session>,
    pub(super) end: Side,
}

/// The end of the link that this is, and the state that belongs to it.
pub(super) enum Side {
    Connector {
        running: JoinHandle<()>,
        state: Option<Arc<ConnectorState>>,
        origin: Origin,
    },
    Listener {
        registry: LinkRegistry<Session>,
        key: LinkKey,
        endpoint_name: Arc<str>,
        peer: PeerInfo,
    },
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

impl Link {
    pub(super) async fn connect(url: &str, options: ConnectOptions) -> Result<Self, Error> {
        let budget = ackline_link::Budget::new(options.memory);
        let connected = dial(url, options, budget).await?;
        let is_new = connected.first.is_some();
        let link = Self::connected(connected);
        if is_new {
            // Messages sent before it has begun are sent as after a cut: channel by channel. Every call
            // tells the link's end.
            let has_begun = |session: &Session| session.stats().link.transports > 0;
            let key = Wait::Connected.key();
            let begun = link
                .driven()
                .until(key, |session| ready(has_begun(session)));
            let _ = begun.await;
        }
        // After this no note from the begin waits to be written.
        link.until_kept().await?;
        Ok(link)
    }

    /// The connector's end, which keeps itself connected.
    pub(super) fn connected(connected: Connected) -> Self {
        let Connected {
            link,
            state,
            connector,
            first,
        } = connected;
        let origin = connector.origin();
        let running = tokio::spawn(connector.run(link.clone(), first, |_| ()));
        let end = Side::Connector {
            running,
            state,
            origin,
        };
        Self::new(link, end)
    }

    pub(super) fn made(made: Made<Session>, registry: LinkRegistry<Session>) -> Self {
        let end = Side::Listener {
            registry,
            key: made.key,
            endpoint_name: made.endpoint_name.as_str().into(),
            peer: made.peer,
        };
        Self::new(made.link, end)
    }

    fn new(link: Driven<Session>, end: Side) -> Self {
        link.call(|session, _| session.linked(&link));
        Self {
            inner: Arc::new(Inner { link, end }),
        }
    }

    /// The key of this link.
    pub fn key(&self) -> LinkKey {
        self.call(|session, _| session.machine().key())
    }

    /// The peer that made it, or, for a link from an earlier process, the peer that carried it last; `None`
    /// at the connector's end.
    pub fn peer(&self) -> Option<&PeerInfo> {
        match &self.inner.end {
            Side::Connector { .. } => None,
            Side::Listener { peer, .. } => Some(peer),
        }
    }

    /// The endpoint that was asked for; `None` at the connector's end.
    pub fn endpoint_name(&self) -> Option<&str> {
        match &self.inner.end {
            Side::Connector { .. } => None,
            Side::Listener { endpoint_name, .. } => Some(endpoint_name),
        }
    }

    /// Calls the session under the link's lock.
    pub(super) fn call<R>(&self, f: impl FnOnce(&mut Session, std::time::Instant) -> R) -> R {
        self.driven().call(f)
    }

    /// The link itself, for waits of one's own.
    pub fn driven(&self) -> &Driven<Session> {
        &self.inner.link
    }

    /// Whether a transport carries the link now.
    pub fn is_connected(&self) -> bool {
        self.call(|session, _| session.machine().is_attached())
    }

    /// Sends a message now or not at all. A return promises no more than that the message has a number
    /// and goes out in its turn as long as this process lives: also in a link that is kept on disk it is there
    /// only when [`Receipt::kept`] says so, and a process that is killed before that has not sent it.
    ///
    /// # Errors
    /// [`Error::Blocked`] without room; refusals of the protocol as [`Error::Usage`]; the link is over.
    pub fn try_send(
        &self,
        channel: &ChannelId,
        payload: impl Into<Payload>,
    ) -> Result<Receipt, Error> {
        let payload = payload.into();
        let one = std::slice::from_ref(channel);
        let sent = self.call(|session, now| session.send(now, one, &payload))?;
        Ok(only(sent))
    }

    /// Sends a message as soon as there is room, within `timeout`; `None` waits for ever. Giving up (by
    /// dropping the future) sends nothing. Works without a transport. It promises the same as
    /// [`try_send`](Self::try_send) does.
    ///
    /// # Errors
    /// [`Error::Timeout`], or as [`try_send`](Self::try_send).
    pub async fn send(
        &self,
        channel: &ChannelId,
        payload: impl Into<Payload>,
        timeout: Option<Duration>,
    ) -> Result<Receipt, Error> {
        let one = std::slice::from_ref(channel);
        self.send_to(one, payload, timeout).await.map(only)
    }

    /// Sends a message to several channels in one packet: to all of them, or to none. One receipt for each,
    /// in their order.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_to(
        &self,
        channels: &[ChannelId],
        payload: impl Into<Payload>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Receipt>, Error> {
        let payload = payload.into();
        self.wait(Wait::Room, timeout, |session, now| {
            match session.send(now, channels, &payload) {
                Err(Error::Blocked) => Poll::Pending,
                sent => Poll::Ready(sent),
            }
        })
        .await
    }

    /// Sends as many of the messages, in order, as there is room for now; answers their receipts.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send), if not even the first was sent.
    pub fn try_send_many(
        &self,
        channel: &ChannelId,
        payloads: &[Payload],
    ) -> Result<Receipts, Error> {
        let sent = self.call(|session, now| session.send_run(now, channel, payloads));
        sent.map(|(count, last)| Receipts::new(last, count))
    }

    /// The next message. Cancel-safe. It stays in the receive window until it is [consumed](Self::consume).
    /// `None`: the peer has shut down and closed its channels, so that none can come any more.
    ///
    /// # Errors
    /// The link is over, and every message was taken.
    pub async fn receive(&self) -> Result<Option<Message>, Error> {
        let messages = self.receive_many(1).await?;
        Ok(messages.and_then(|messages| messages.into_iter().next()))
    }

    /// The messages that are there, up to `max`, waiting for the first. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_many(&self, max: usize) -> Result<Option<Vec<Message>>, Error> {
        let max = max.max(1);
        self.wait(Wait::Message, None, |session, _| {
            match session.receive(max) {
                Ok(Some(messages)) if messages.is_empty() => Poll::Pending,
                received => Poll::Ready(received),
            }
        })
        .await
    }

    /// The messages that are there now, up to `max`; `None` as [`receive`](Self::receive).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn try_receive_many(&self, max: usize) -> Result<Option<Vec<Message>>, Error> {
        self.call(|session, _| session.receive(max))
    }

    /// This side is done with the peer's messages on a channel up to `through`: they leave the receive window,
    /// and the peer is told in time. On a durable link the peer is told when that is on the disk.
    ///
    /// # Errors
    /// `unknown_channel`, `out_of_range`; the link is over.
    pub fn consume(&self, channel: &ChannelId, through: Sequence) -> Result<(), Error> {
        self.call(|session, now| session.consume(now, channel, through))
    }

    /// The next decision of the peer's in a transactional direction. Cancel-safe. While 65,536 of them wait to be
    /// taken the link reads nothing, messages neither; the log says so (`relink.decisions_wait`).
    ///
    /// # Errors
    /// The link is over, and every decision was taken.
    pub async fn decided(&self) -> Result<Decided, Error> {
        self.wait(Wait::Decision, None, |session, _| match session.decided() {
            Ok(None) => Poll::Pending,
            Ok(Some(decided)) => Poll::Ready(Ok(decided)),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }

    /// Asks the peer to process the own messages up to `through`, or the next undecided one. Answers the
    /// last of them; their [`Receipt::committed`] tells the outcome.
    ///
    /// # Errors
    /// `transactions_disabled`, `unknown_channel`, `out_of_range`; the link is over.
    pub fn commit(
        &self,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, Error> {
        self.call(|session, now| session.decide(now, channel, true, through))
    }

    /// Asks the peer to ignore the own messages up to `through`, or the next undecided one. Answers the last
    /// of them.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn rollback(
        &self,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, Error> {
        self.call(|session, now| session.decide(now, channel, false, through))
    }

    /// Tells the peer that the commit of its messages up to `through`, or of the next one unanswered,
    /// succeeded. Answers the last of them.
    ///
    /// # Errors
    /// `transactions_disabled`, `unknown_channel`, `out_of_range`; the link is over.
    pub fn committed(
        &self,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, Error> {
        self.call(|session, now| session.answer(now, channel, true, through))
    }

    /// Tells the peer that the commit of its messages up to `through`, or of the next one unanswered,
    /// failed. Answers the last of them.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    pub fn uncommitted(
        &self,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, Error> {
        self.call(|session, now| session.answer(now, channel, false, through))
    }

    /// Tells the peer now which messages have arrived on its channel.
    ///
    /// # Errors
    /// `not_connected`, `unknown_channel`; the link is over.
    pub fn notify_received(&self, channel: &ChannelId) -> Result<(), Error> {
        self.call(|session, now| {
            session.on(channel, false, |machine| {
                machine.notify_received(now, channel)
            })
        })
    }

    /// Closes an own channel once all its messages are consumed; [`Event::Closed`] follows, and a later
    /// message opens it again.
    ///
    /// # Errors
    /// `implicit_channel`, `unknown_channel`, `channel_closing`; the link is over.
    pub fn close_channel(&self, channel: &ChannelId) -> Result<(), Error> {
        self.call(|session, now| {
            session.on(channel, true, |machine| machine.close_channel(now, channel))
        })
    }

    /// Asks the peer for a sign of life; answers how long it took.
    ///
    /// # Errors
    /// `not_connected` without a transport, also if it goes meanwhile; [`Error::Timeout`]; the link is over.
    pub async fn ping(&self, timeout: Option<Duration>) -> Result<Duration, Error> {
        let ping = self.call(Session::ping)?;
        self.wait(Wait::Pong, timeout, |session, _| {
            session
                .pong(ping)
                .transpose()
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The listener's limits, if it was asked for them (`wants_hints`) and tells them.
    pub fn told(&self) -> Told {
        self.call(|session, _| session.told())
    }

    /// Opens no more channels, closes those that are open once their messages are consumed, and waits until
    /// the peer has shut down too; then the link is over. `timeout` of `None` waits for ever.
    ///
    /// # Errors
    /// [`Error::Timeout`]: the shutdown goes on; [`Error::Lost`].
    pub async fn shutdown(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.begin_shutdown()?;
        self.wait(Wait::End, timeout, |session, _| match session.over() {
            None => Poll::Pending,
            Some(Error::Closed) => Poll::Ready(Ok(())),
            Some(other) => Poll::Ready(Err(other.clone())),
        })
        .await
    }

    /// Starts [`shutdown`](Self::shutdown), and does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn begin_shutdown(&self) -> Result<(), Error> {
        self.call(|session, now| match session.over() {
            Some(Error::Closed) => Ok(()),
            _ => session.shutdown(now),
        })
    }

    /// The next event of the link, other than a message; the latest 1,024 events wait to be taken.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The link is over, and every event was taken.
    pub async fn event(&self) -> Result<Event, Error> {
        self.wait(Wait::Event, None, |session, _| match session.event() {
            Ok(None) => Poll::Pending,
            Ok(Some(event)) => Poll::Ready(Ok(event)),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }

    /// Waits until everything that was sent, consumed or decided before this call is on the disk of this end:
    /// a restart goes on from there. Calls that were made meanwhile are not waited for. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Usage`]: `not_kept`, a link without a state directory; [`Error::Timeout`];
    /// [`Error::Unkept`]; the link is over.
    pub async fn kept(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.check_durable()?;
        within(timeout, self.until_kept()).await
    }

    /// Whether it is kept in a state directory of this end.
    ///
    /// # Errors
    /// [`Error::Usage`]: `not_kept`.
    pub fn check_durable(&self) -> Result<(), Error> {
        let is_durable = |session: &mut Session| session.machine().config().journal;
        if self.call(|session, _| is_durable(session)) {
            return Ok(());
        }
        Err(NOT_KEPT.into())
    }

    async fn until_kept(&self) -> Result<(), Error> {
        let noted = self.call(|session, _| session.machine().changes_noted());
        self.wait(Wait::Kept, None, |session, _| {
            if session.machine().changes_kept() < noted {
                return Poll::Pending;
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Waits, taking nothing, until there is something of this kind to take, or the link is over.
    pub async fn ready(&self, interest: Interest) {
        let key = interest.wait().key();
        let waited = self
            .driven()
            .until(key, |session| ready(session.has(&interest)));
        // Also the end is something to see.
        let _ = waited.await;
    }

    /// Counters of the link: its traffic, and the messages that it holds.
    pub fn stats(&self) -> Stats {
        self.call(|session, _| session.stats())
    }

    /// Gives the link up, and removes its state on disk: from now on [`Error::Lost`] has the messages that
    /// were not acknowledged. Of a connector's link that is lost, this removes the state that stays on disk
    /// until the application has seen those messages.
    ///
    /// # Errors
    /// [`Error::State`]: it cannot be removed.
    pub fn discard(&self) -> Result<(), Error> {
        let reason = "it was discarded here";
        match &self.inner.end {
            Side::Connector { state, running, .. } => {
                running.abort();
                self.call(|session, now| session.lose(now, reason));
                let discarded = state.as_ref().map_or(Ok(()), |state| state.discard());
                self.driven().abort();
                discarded
            }
            Side::Listener { registry, key, .. } => {
                registry.lose(*key, self.driven(), reason);
                Ok(())
            }
        }
    }

    /// Ends the link in this process, also for callers that wait on it or on a receipt: its peer is not told,
    /// and its state on disk stays. Then every call fails with [`Error::LetGo`] if the link is kept there,
    /// and else with [`Error::Lost`], which has the messages that were not acknowledged. The last clone that
    /// is dropped does the same.
    pub fn let_go(&self) {
        self.inner.let_go();
    }

    pub(super) async fn wait<R>(
        &self,
        wait: Wait,
        timeout: Option<Duration>,
        mut f: impl FnMut(&mut Session, std::time::Instant) -> Poll<Result<R, Error>>,
    ) -> Result<R, Error> {
        let waiting = async {
            let waited = self.driven().when(wait.key(), |session, now| {
                let polled = f(session, now);
                match (&polled, session.over()) {
                    (Poll::Pending, Some(over)) => Poll::Ready(Err(over.clone())),
                    _ => polled,
                }
            });
            // Ended without an end of its own: it was let go here.
            waited.await.unwrap_or(Err(Error::Closed))
        };
        within(timeout, waiting).await
    }
}

impl Inner {
    fn let_go(&self) {
        self.link.call(Session::let_go);
        self.link.abort();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        match &self.end {
            Side::Connector { running, .. } => running.abort(),
            Side::Listener { registry, key, .. } if !registry.is_durable() => registry.forget(*key),
            Side::Listener { .. } => {}
        }
        self.let_go();
    }
}

/// The result of `waiting`, or [`Error::Timeout`] after the time.
pub(super) async fn within<R>(
    timeout: Option<Duration>,
    waiting: impl Future<Output = Result<R, Error>>,
) -> Result<R, Error> {
    match timeout {
        None => waiting.await,
        Some(timeout) => tokio::time::timeout(timeout, waiting)
            .await
            .unwrap_or(Err(Error::Timeout)),
    }
}

fn only(mut receipts: Vec<Receipt>) -> Receipt {
    receipts.pop().expect("one message has one receipt")
}
