//! A connection for applications: messages in both directions, commands, and frames of extensions.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_link::{Admitted, Budget, End, Link, LinkStats, PeerInfo};
use ackline_micromsg::session::Outgoing as Message;
use ackline_micromsg::session::{Arrival, Received, TOP, Wait};
use ackline_micromsg::text::Extension;
use ackline_micromsg::{
    Config, Connected, Error, Filter, Kind, Negotiation, Proposal, Role, refusal,
};
use bytes::Bytes;
use tokio::time::Instant;

use super::options::ConnectOptions;
use super::{Session, Watch};
use crate::dialing;
use crate::watch::within;

/// One end of a connection. Clones are the same one. It is ended at once when the last clone is dropped: messages that were
/// not acknowledged may be lost then, so [`close`](Self::close) it first.
#[derive(Clone)]
pub struct Connection {
    top: Watch,
}

/// The current state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Messages that this end has sent, and those of them that the peer has acknowledged.
    pub sent: u64,
    /// Messages that the peer has acknowledged.
    pub acknowledged: u64,
    /// Messages that wait for their acknowledgement.
    pub pending: u16,
    /// Bytes of messages and frames of this end that the transport has not taken.
    pub waiting_bytes: usize,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.stats();
        f.debug_struct("Connection")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

/// Settings that a new connection is made with.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) config: Config,
    pub(super) send_bytes: usize,
    pub(super) budget: Budget,
}

impl Made {
    fn link(&self, role: Role, sender: &Arc<str>) -> Link<Session> {
        let now = Instant::now().into_std();
        let session = Session::new(now, role, self.config.clone(), self.send_bytes);
        Link::of_sender(session, self.budget.clone(), sender)
    }
}

impl Connection {
    pub(super) async fn connect(url: &str, mut options: ConnectOptions) -> Result<Self, Error> {
        let endpoint = options.endpoint(url)?;
        let timeout = options.connect_timeout;
        let is_manual = options.link.terms.negotiation == Negotiation::Manual;
        let made = Made {
            config: options.link,
            send_bytes: options.send_bytes,
            budget: Budget::new(options.memory),
        };
        let link = || made.link(Role::Client, &Arc::from(""));
        let link = dialing::dial(&endpoint, timeout, link).await?;
        let connection = Self::of(link, None);
        if is_manual {
            connection.proposal().await?;
        } else {
            connection.connected().await?;
        }
        Ok(connection)
    }

    pub(super) fn admitted(admitted: Admitted, made: &Made) -> Self {
        let link = made.link(Role::Server, &admitted.peer.sender);
        let peer = Some(admitted.peer.clone());
        dialing::drive(admitted, &link, |session: &mut Session, _| {
            // It may have ended by itself.
            let _ = session.fail(TOO_OLD);
        });
        Self::of(link, peer)
    }

    fn of(link: Link<Session>, peer: Option<PeerInfo>) -> Self {
        Self {
            top: Watch::new(link, peer, TOP),
        }
    }

    /// The link itself, for waits of one's own.
    pub fn link(&self) -> &Link<Session> {
        self.top.link()
    }

    /// The peer that connected; `None` at the end that connected.
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.top.peer()
    }

    /// For every [`Interest`](super::Interest).
    pub fn watch(&self) -> Watch {
        self.top.clone()
    }

    /// The connection's current state.
    pub fn stats(&self) -> Stats {
        self.top.call(|session, _| Stats {
            sent: session.sent(),
            acknowledged: session.acknowledged_count(),
            pending: session.outstanding().1,
            waiting_bytes: session.waiting_bytes(),
        })
    }

    /// Messages that may wait for their acknowledgement in each direction; `None` without acknowledgements, and before the
    /// end of the handshake.
    pub fn window(&self) -> Option<u16> {
        self.top.call(|session, _| session.window())
    }

    /// Counters of the traffic through the transport.
    pub fn link_stats(&self) -> LinkStats {
        self.link().stats()
    }

    /// Waits for the end of the handshake: the peer's name, the version, and the extensions. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Failed`]: the peer refuses; [`Error::Ended`].
    pub async fn connected(&self) -> Result<Connected, Error> {
        let connected = |session: &mut Session, _| session.connected();
        self.top.when(|_| Wait::Connected, connected).await
    }

    /// As [`connected`](Self::connected), or [`Error::Blocked`] before the end of the handshake.
    ///
    /// # Errors
    /// As said.
    pub fn try_connected(&self) -> Result<Connected, Error> {
        self.top.call_now(|session, _| session.connected())
    }

    /// Waits for the extensions that the peer proposes, where the negotiation is manual. Cancel-safe.
    ///
    /// # Errors
    /// `nothing_proposed`: the handshake has ended, or the negotiation is auto. [`Error::Failed`]; [`Error::Ended`].
    pub async fn proposal(&self) -> Result<Proposal, Error> {
        let proposal = |session: &mut Session, _| session.proposal();
        self.top.when(|_| Wait::Connected, proposal).await
    }

    /// As [`proposal`](Self::proposal), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_proposal(&self) -> Result<Proposal, Error> {
        self.top.call_now(|session, _| session.proposal())
    }

    /// Answers what the peer proposes. A server requires and suggests extensions; a client decides on those that are used, with
    /// the numbers of their order. [`fail`](Self::fail) refuses the peer in place of it.
    ///
    /// # Errors
    /// `nothing_proposed`, `invalid_answer`, `out_of_range`; [`Error::Failed`]; [`Error::Ended`].
    pub fn answer(&self, required: Vec<Extension>, optional: Vec<Extension>) -> Result<(), Error> {
        self.top
            .call(|session, _| session.answer(required, optional))
    }

    /// The extensions of the connection, in the order of their numbers; none before the end of the handshake.
    pub fn extensions(&self) -> Vec<Extension> {
        self.top.call(|session, _| session.extensions().to_vec())
    }

    /// Sends a message, once the window and the transport have room; returns its position among all messages of this end,
    /// from 1. Cancel-safe: a message whose position was not returned was not sent.
    ///
    /// # Errors
    /// `not_ascii`, `out_of_range`, `invalid_name`, `not_finite`, `message_too_large`, `extension_not_negotiated`;
    /// [`Error::Failed`]; [`Error::Ended`].
    pub async fn send(&self, message: &Message) -> Result<u64, Error> {
        let properties = message.raw_properties()?;
        let send = |session: &mut Session, _| {
            session.send(message.outbound(&properties), &message.payload)
        };
        self.top.when(|_| Wait::Room, send).await
    }

    /// As [`send`](Self::send), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_send(&self, message: &Message) -> Result<u64, Error> {
        let properties = message.raw_properties()?;
        let send = |session: &mut Session, _| {
            session.send(message.outbound(&properties), &message.payload)
        };
        self.top.call_now(send)
    }

    /// Sends messages from the front of a queue until it is empty, and takes each from it that is sent; returns the position of
    /// the last one, or 0 where there was none. Cheaper than one by one. Cancel-safe.
    ///
    /// # Errors
    /// As [`send`](Self::send): of the message that is then in front.
    pub async fn send_all(&self, messages: &mut VecDeque<Message>) -> Result<u64, Error> {
        let mut last = 0;
        while !messages.is_empty() {
            let send = |session: &mut Session, _| session.send_some(messages);
            last = self.top.when(|_| Wait::Room, send).await?;
        }
        Ok(last)
    }

    /// As [`send_all`](Self::send_all), as many as there is room for, or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_send_some(&self, messages: &mut VecDeque<Message>) -> Result<u64, Error> {
        self.top.call_now(|session, _| session.send_some(messages))
    }

    /// Waits until all messages up to a position are acknowledged. Cancel-safe.
    ///
    /// # Errors
    /// `extension_not_negotiated`: there are no acknowledgements; `out_of_range`: no such message was sent;
    /// [`Error::Unacknowledged`]; [`Error::Failed`]; [`Error::Ended`].
    pub async fn acknowledged(&self, position: u64) -> Result<(), Error> {
        let acknowledged = |session: &mut Session, _| session.acknowledged(position);
        self.top.when(|_| Wait::Acknowledged, acknowledged).await
    }

    /// As [`acknowledged`](Self::acknowledged), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_acknowledged(&self, position: u64) -> Result<(), Error> {
        let acknowledged = |session: &mut Session, _| session.acknowledged(position);
        self.top.call_now(acknowledged)
    }

    /// The next message; `None` once the peer has ended the connection in order. With the policy `auto` the messages before
    /// it count as processed now. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Failed`]; [`Error::Ended`], once all that came before were handed out.
    pub async fn receive(&self) -> Result<Option<Received>, Error> {
        // The first look has an effect even where no message is there: those before it are processed.
        match self.try_receive() {
            Err(Error::Blocked) => {}
            taken => return taken,
        }
        self.top
            .when(|_| Wait::Message, |session, _| session.receive())
            .await
    }

    /// As [`receive`](Self::receive), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_receive(&self) -> Result<Option<Received>, Error> {
        self.top.call_now(|session, _| session.receive())
    }

    /// The messages that are there now, at least one, up to `max` and about `bytes` of payload; none once the peer has ended
    /// the connection in order. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_some(&self, max: usize, bytes: usize) -> Result<Vec<Received>, Error> {
        match self.try_receive_some(max, bytes) {
            Err(Error::Blocked) => {}
            taken => return taken,
        }
        let take = |session: &mut Session, _| session.receive_some(max, bytes);
        self.top.when(|_| Wait::Message, take).await
    }

    /// As [`receive_some`](Self::receive_some), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_some(&self, max: usize, bytes: usize) -> Result<Vec<Received>, Error> {
        self.top
            .call_now(|session, _| session.receive_some(max, bytes))
    }

    /// Acknowledges all taken messages up to a position.
    ///
    /// # Errors
    /// `out_of_range`: no such message was taken, or it was acknowledged; `extension_not_negotiated`; the end.
    pub fn ack(&self, position: u64) -> Result<(), Error> {
        self.top.call(|session, _| session.ack(position))
    }

    /// The next command of the peer; `None` once it has ended the connection in order. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_command(&self) -> Result<Option<Arrival>, Error> {
        let take = |session: &mut Session, _| session.take_arrival();
        self.top.when(|_| Wait::Arrival, take).await
    }

    /// As [`receive_command`](Self::receive_command), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_command(&self) -> Result<Option<Arrival>, Error> {
        self.top.call_now(|session, _| session.take_arrival())
    }

    /// The next frame of an extension: the extension's name, and the bytes; `None` once the peer has ended the connection in order. Cancel-safe.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_extension(&self) -> Result<Option<(Arc<str>, Bytes)>, Error> {
        let take = |session: &mut Session, _| session.take_extension();
        self.top.when(|_| Wait::Extension, take).await
    }

    /// As [`receive_extension`](Self::receive_extension), or [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_extension(&self) -> Result<Option<(Arc<str>, Bytes)>, Error> {
        self.top.call_now(|session, _| session.take_extension())
    }

    /// Subscribes to a topic or a queue of the peer; a second subscription to it replaces the first. Cancel-safe.
    ///
    /// # Errors
    /// `not_ascii`, `out_of_range`: no message can have this destination; `extension_not_negotiated`: no `pub-sub`;
    /// [`Error::Failed`]; [`Error::Ended`].
    pub async fn subscribe(&self, topic: &str, filter: Option<&Filter>) -> Result<(), Error> {
        let filter = filter.map(Filter::write);
        let subscribe = |session: &mut Session, _| session.subscribe(topic, filter.as_deref());
        self.top.when(|_| Wait::Room, subscribe).await
    }

    /// Ends a subscription. Cancel-safe.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub async fn unsubscribe(&self, topic: &str) -> Result<(), Error> {
        let unsubscribe = |session: &mut Session, _| session.unsubscribe(topic);
        self.top.when(|_| Wait::Room, unsubscribe).await
    }

    /// Sends a command. Cancel-safe.
    ///
    /// # Errors
    /// `invalid_name`; [`Error::Failed`]; [`Error::Ended`].
    pub async fn command(&self, name: &str, properties: &[(String, String)]) -> Result<(), Error> {
        let command = |session: &mut Session, _| session.command(name, properties);
        self.top.when(|_| Wait::Room, command).await
    }

    /// Sends bytes of an extension. Cancel-safe.
    ///
    /// # Errors
    /// `extension_not_negotiated`; [`Error::Failed`]; [`Error::Ended`].
    pub async fn send_extension(&self, name: &str, payload: &[u8]) -> Result<(), Error> {
        let send = |session: &mut Session, _| session.send_extension(name, payload);
        self.top.when(|_| Wait::Room, send).await
    }

    /// Calls a verb that sends a frame, now or not at all: [`Error::Blocked`].
    ///
    /// # Errors
    /// As of the verb.
    pub fn try_verb<R>(
        &self,
        verb: impl FnOnce(&mut Session) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.top.call_now(|session, _| verb(session))
    }

    /// Ends the connection with an ERROR frame, behind everything that waits. Then the peer has 1 s for its own end.
    ///
    /// # Errors
    /// The connection is over.
    pub fn fail(&self, message: &str) -> Result<(), Error> {
        self.top.call(|session, _| session.fail(message))?;
        self.link().close_within(LAST_BYTES);
        Ok(())
    }

    /// Ends the connection at once: messages that are not acknowledged may be lost.
    pub fn abort(&self) {
        self.top.call(|session, _| session.abandon());
        self.link().abort();
    }

    /// Ends the connection in order: waits until every message of this end is acknowledged, if there are acknowledgements,
    /// acknowledges those that were taken, and sends everything that waits. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Timeout`]: not everything was acknowledged or sent, the connection goes on; [`Error::Unacknowledged`],
    /// [`Error::Failed`], [`Error::Ended`]: it ended in another way.
    pub async fn close(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let close = async {
            let sent = self.top.call(|session, _| {
                // The peer may wait for these acknowledgements too.
                session.processed();
                session.sent()
            });
            match self.acknowledged(sent).await {
                Ok(()) => {}
                Err(Error::Usage(error)) if error == refusal::EXTENSION_NOT_NEGOTIATED => {}
                Err(error) => return Err(error),
            }
            // The peer may have ended the connection since.
            let _ = self.top.call(|session, _| session.close());
            self.link().close_within(LAST_BYTES);
            match self.ended().await {
                End::Closed | End::CloseDeadline | End::Eof => Ok(()),
                end => Err(Error::Ended(end)),
            }
        };
        match within(timeout, Error::Timeout, close).await {
            Err(Error::Timeout) if self.link().is_shut() => Ok(()),
            closed => closed,
        }
    }

    /// Waits for the connection's end.
    pub async fn ended(&self) -> End<Kind> {
        let forever = |_: &mut Session, _| Poll::<Infallible>::Pending;
        match self.link().when(u64::MAX, forever).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }
}

/// Time for the peer's end of the transport behind ours.
pub(super) const LAST_BYTES: Duration = Duration::from_secs(1);
/// The reason of the end of a connection whose time is over.
pub(super) const TOO_OLD: &str = "the connection is as old as this end allows: connect again";
