//! A connection for applications: the subscriptions of this end, and those of its peer.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_link::{Admitted, Budget, End, Link, LinkStats, PeerInfo};
use ackline_reactive::message::Field;
use ackline_reactive::session::{Demand, TOP, Wait};
use ackline_reactive::{Config, Error, Extensions, Kind, Role, refusal};
use tokio::time::Instant;

use super::options::ConnectOptions;
use super::publication::SubscribeRequest;
use super::subscription::Subscription;
use super::{Session, Watch};
use crate::dialing;
use crate::watch::within;

/// One end of a connection. Clones are the same one. It is ended at once when the last clone, and everything
/// that came of it, is dropped.
#[derive(Clone)]
pub struct Connection {
    top: Watch,
}

/// The current state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Open subscriptions of this end.
    pub subscriptions: usize,
    /// Open subscriptions of the peer.
    pub publications: usize,
    /// Bytes of elements that were published and are not sent.
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
        let made = Made {
            config: options.link,
            send_bytes: options.send_bytes,
            budget: Budget::new(options.memory),
        };
        let link = || made.link(Role::Client, &Arc::from(""));
        let link = dialing::dial(&endpoint, options.connect_timeout, link).await?;
        Ok(Self::of(link, None))
    }

    pub(super) fn admitted(admitted: Admitted, made: &Made) -> Self {
        let link = made.link(Role::Server, &admitted.peer.sender);
        let peer = Some(admitted.peer.clone());
        dialing::drive(admitted, &link, |session: &mut Session, _| {
            // It may have said goodbye by itself.
            let _ = session.goodbye(TOO_OLD);
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

    /// For [`Interest::Arrival`](super::Interest::Arrival), [`Interest::Connected`](super::Interest::Connected) and
    /// [`Interest::End`](super::Interest::End).
    pub fn watch(&self) -> Watch {
        self.top.clone()
    }

    /// The connection's current state.
    pub fn stats(&self) -> Stats {
        let (subscriptions, publications, waiting_bytes) = self.top.call(|it, _| it.open());
        Stats {
            subscriptions,
            publications,
            waiting_bytes,
        }
    }

    /// Counters of the traffic through the transport.
    pub fn link_stats(&self) -> LinkStats {
        self.link().stats()
    }

    /// Subscribes to a publisher of the peer, at once: [`Subscription::accepted`] waits for its answer. At the end that
    /// listens it waits for the peer's hello first. Cancel-safe.
    ///
    /// # Errors
    /// `invalid_demand`, `invalid_low_water`, `closing`; [`Error::Failed`]: the peer has said goodbye, with its reason;
    /// [`Error::Ended`].
    pub async fn subscribe(&self, publisher: &str, demand: Demand) -> Result<Subscription, Error> {
        if self.peer().is_some() {
            let connected = self.connected().await;
            connected.map_err(|error| self.with_goodbye(error))?;
        }
        self.try_subscribe(publisher, demand)
    }

    /// As [`subscribe`](Self::subscribe), now or not at all: at the end that listens `not_connected` before the peer's
    /// hello.
    ///
    /// # Errors
    /// As said.
    pub fn try_subscribe(&self, publisher: &str, demand: Demand) -> Result<Subscription, Error> {
        let subscribed = self
            .top
            .call_alive(|session, _| session.subscribe(publisher, demand));
        let serial = subscribed.map_err(|error| self.with_goodbye(error))?;
        Ok(Subscription::new(self.top.at(serial)))
    }

    fn with_goodbye(&self, error: Error) -> Error {
        self.top.call(|session, _| session.with_goodbye(error))
    }

    /// Waits for the peer's hello: the extensions that both ends support. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`]: the connection is over, also where the peer has another version.
    pub async fn connected(&self) -> Result<Vec<u64>, Error> {
        let connected = |session: &mut Session, _| session.connected();
        self.top.when(|_| Wait::Connected, connected).await
    }

    /// As [`connected`](Self::connected), or [`Error::Blocked`] before the hello.
    ///
    /// # Errors
    /// As said.
    pub fn try_connected(&self) -> Result<Vec<u64>, Error> {
        self.top.call_now(|session, _| session.connected())
    }

    /// The next subscription of the peer; `None` once the peer has said goodbye. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`], once all that came before were handed out.
    pub async fn accept(&self) -> Result<Option<SubscribeRequest>, Error> {
        let accepted = self.top.when(|_| Wait::Accept, |it, _| it.accept()).await?;
        Ok(accepted.map(|arrival| SubscribeRequest::new(self.top.at(arrival.serial), arrival)))
    }

    /// The next subscription of the peer, if one is there now; an error as of [`accept`](Self::accept), or
    /// [`Error::Blocked`].
    ///
    /// # Errors
    /// As said.
    pub fn try_accept(&self) -> Result<Option<SubscribeRequest>, Error> {
        let accepted = self.top.call_now(|session, _| session.accept())?;
        Ok(accepted.map(|arrival| SubscribeRequest::new(self.top.at(arrival.serial), arrival)))
    }

    /// Sends a message of an active extension, which stands for a value.
    ///
    /// # Errors
    /// `extension_not_active`: the peer does not support it, or no message stands for the value; `closing`;
    /// [`Error::Ended`].
    pub fn send<M>(&self, extensions: &Extensions<M>, value: &M) -> Result<(), Error> {
        let message = extensions.encode(value);
        let (message_type, fields) = message.ok_or(refusal::EXTENSION_NOT_ACTIVE)?;
        self.send_extension(message_type, fields)
    }

    /// Sends a message of an active extension: its type and its fields.
    ///
    /// # Errors
    /// `extension_not_active`, `closing`; [`Error::Ended`].
    pub fn send_extension(&self, message_type: u64, fields: Vec<Field>) -> Result<(), Error> {
        let send = |session: &mut Session, _| session.send_extension(message_type, fields);
        self.top.call_alive(send)
    }

    /// The next message of an extension: its type and its fields; `None` once the peer has said goodbye. Where an
    /// application supports extensions with messages, it takes them: those that wait are charged to its memory. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Ended`], once all that came before were handed out.
    pub async fn receive_extension(&self) -> Result<Option<(u64, Vec<Field>)>, Error> {
        let take = |session: &mut Session, _| session.take_extension();
        self.top.when(|_| Wait::Extension, take).await
    }

    /// As [`receive_extension`](Self::receive_extension), or [`Error::Blocked`] where none is there yet.
    ///
    /// # Errors
    /// As said.
    pub fn try_receive_extension(&self) -> Result<Option<(u64, Vec<Field>)>, Error> {
        self.top.call_now(|session, _| session.take_extension())
    }

    /// Calls `handle` with the value of each message of an extension, or with the sentence that says why it has none, until
    /// the peer says goodbye.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn handle<M>(
        &self,
        extensions: &Extensions<M>,
        mut handle: impl FnMut(Result<M, String>),
    ) -> Result<(), Error> {
        while let Some((message_type, fields)) = self.receive_extension().await? {
            handle(extensions.decode(message_type, &fields));
        }
        Ok(())
    }

    /// Ends the connection in good order: elements that were published go out, then a goodbye with a reason, which the peer
    /// answers. All streams end now. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Timeout`]: not everything was sent; [`Error::Ended`]: it ended in another way.
    pub async fn shutdown(&self, reason: &str, timeout: Option<Duration>) -> Result<(), Error> {
        // The peer may have said goodbye before.
        let _ = self.top.call(|session, _| session.goodbye(reason));
        // Both have said everything then.
        self.link().close_within(LAST_BYTES);
        let ended = async {
            match self.ended().await {
                End::Closed | End::CloseDeadline | End::Eof => Ok(()),
                end => Err(Error::Ended(end)),
            }
        };
        match within(timeout, Error::Timeout, ended).await {
            Err(Error::Timeout) if self.link().is_shut() => Ok(()),
            ended => ended,
        }
    }

    /// The reason of the peer's goodbye, once it has come.
    pub fn goodbye_reason(&self) -> Option<Arc<str>> {
        self.top.call(|session, _| session.goodbye_reason())
    }

    /// Waits for the connection's end: [`End::Closed`] if both sides said goodbye.
    pub async fn ended(&self) -> End<Kind> {
        let forever = |_: &mut Session, _| Poll::<Infallible>::Pending;
        match self.link().when(u64::MAX, forever).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }
}

/// Time for the peer's end of the transport behind both goodbyes.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// The goodbye of a connection whose time is over.
const TOO_OLD: &str = "the connection is as old as this end allows: connect again";
