//! A connection for applications: the entities and requests of this end, and those of its peer.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_bpmux::session::{Arrival, Memory, TOP, Wait};
use ackline_bpmux::{EntityKind, Error, Kind, LinkOptions, Stats};
use ackline_core::Payload;
use ackline_link::{Admitted, Budget, End, Link, LinkStats, PeerInfo};
use bytes::Bytes;
use tokio::time::Instant;

use super::Session;
use super::beginning::Beginner;
use super::halves::{Sink, Stream};
use super::held::HeldClose;
use super::options::ConnectOptions;
use super::requests::{Request, Response};
use super::watch::{Watch, within};
use crate::dialing;

/// One end of a connection. Clones are the same one. It is ended at once when the last clone, and everything
/// that came of it, is dropped.
#[derive(Clone)]
pub struct Connection {
    top: Watch,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.stats();
        f.debug_struct("Connection")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

/// An entity or a request that the peer begins, with its first payload.
#[derive(Debug)]
#[non_exhaustive]
pub enum Incoming {
    /// A request, to be answered.
    Request(Request),
    /// A sink of the peer's: here it is read.
    Sink(Stream, Payload),
    /// A stream of the peer's: here it is written.
    Stream(Sink, Payload),
    /// A duplex of the peer's: both.
    Duplex(Sink, Stream, Payload),
}

impl Connection {
    pub(super) async fn connect(url: &str, mut options: ConnectOptions) -> Result<Self, Error> {
        let endpoint = options.endpoint(url)?;
        let made = || link(&options.link, Budget::new(options.memory), &Arc::from(""));
        let link = dialing::dial(&endpoint, options.connect_timeout, made).await?;
        Ok(Self::of(link, None))
    }

    pub(super) fn admitted(admitted: Admitted, options: &LinkOptions, budget: Budget) -> Self {
        let link = link(options, budget, &admitted.peer.sender);
        let peer = Some(admitted.peer.clone());
        dialing::drive(admitted, &link, |session: &mut Session, _| {
            session.end_top();
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

    /// For [`Interest::Arrival`](super::Interest::Arrival), [`Interest::Request`](super::Interest::Request) and
    /// [`Interest::End`](super::Interest::End).
    pub fn watch(&self) -> Watch {
        self.top.clone()
    }

    /// The connection's counters and its current state.
    pub fn stats(&self) -> Stats {
        self.link().call(|session, _| session.stats())
    }

    /// Counters of the traffic through the transport.
    pub fn link_stats(&self) -> LinkStats {
        self.link().stats()
    }

    /// The top-level's sink: messages to the peer that belong to nothing else.
    pub fn sink(&self) -> Sink {
        Sink::new(self.watch())
    }

    /// The top-level's stream: messages of the peer that belong to nothing else.
    pub fn stream(&self) -> Stream {
        Stream(self.watch())
    }

    /// Sends a request; its response is to be waited for. Waits while there is no room to send. Cancel-safe:
    /// a request that was not sent has not happened.
    ///
    /// # Errors
    /// `top_level_closed`; [`Error::Ended`].
    pub async fn request(&self, payload: impl Into<Bytes>) -> Result<Response, Error> {
        let payload = payload.into();
        let begin = |session: &mut Session| session.request(payload.clone());
        Beginner::new(&self.top).begin(begin).await.map(Response)
    }

    /// As [`request`](Self::request), now or not at all.
    ///
    /// # Errors
    /// [`Error::Blocked`]; as [`request`](Self::request).
    pub fn try_request(&self, payload: impl Into<Bytes>) -> Result<Response, Error> {
        let payload = payload.into();
        let asked = self
            .top
            .call_alive(|session, _| session.try_request(payload));
        Ok(Response(self.top.at(asked?)))
    }

    /// A request and its response, which must come within `timeout`; the request is cancelled otherwise.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Closed`]: the peer will not answer; `top_level_closed`;
    /// [`Error::Ended`].
    pub async fn call(
        &self,
        payload: impl Into<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<Payload, Error> {
        let called = async { self.request(payload).await?.response().await };
        within(timeout, called).await
    }

    /// Opens a sink: the peer reads it. Returns once its opening is sent, which its payload may have to wait
    /// for.
    ///
    /// # Errors
    /// `top_level_closed`; [`Error::Cancelled`]: the peer cancelled the top-level meanwhile;
    /// [`Error::Ended`].
    pub async fn open_sink(&self, payload: impl Into<Bytes>) -> Result<Sink, Error> {
        let sink = Sink::new(self.open(EntityKind::Sink, payload.into()).await?);
        sink.watch().when(Wait::Write, Session::opened).await?;
        Ok(sink)
    }

    /// Opens a stream: the peer writes it. As [`open_sink`](Self::open_sink).
    ///
    /// # Errors
    /// As [`open_sink`](Self::open_sink).
    pub async fn open_stream(&self, payload: impl Into<Bytes>) -> Result<Stream, Error> {
        let stream = Stream(self.open(EntityKind::Stream, payload.into()).await?);
        stream.watch().when(Wait::Write, Session::opened).await?;
        Ok(stream)
    }

    /// Opens a duplex: both ends write and read it, and its halves end by themselves. As
    /// [`open_sink`](Self::open_sink).
    ///
    /// # Errors
    /// As [`open_sink`](Self::open_sink).
    pub async fn open_duplex(&self, payload: impl Into<Bytes>) -> Result<(Sink, Stream), Error> {
        let place = self.open(EntityKind::Duplex, payload.into()).await?;
        let (sink, stream) = (Sink::new(place.clone()), Stream(place));
        stream.watch().when(Wait::Write, Session::opened).await?;
        Ok((sink, stream))
    }

    async fn open(&self, kind: EntityKind, payload: Bytes) -> Result<Watch, Error> {
        let begin = |session: &mut Session| session.open(kind, payload.clone());
        Beginner::new(&self.top).begin(begin).await
    }

    /// Returns the next entity or request that the peer begins, or `None` once the peer has closed the
    /// top-level: nothing more comes then. Cancel-safe. The close of a sink or duplex of the peer's is not
    /// acknowledged before it is accepted.
    ///
    /// # Errors
    /// [`Error::Ended`], once everything that came before was handed out.
    pub async fn accept(&self) -> Result<Option<Incoming>, Error> {
        let accepted = self.top.when(|_| Wait::Accept, |it, _| it.accept()).await?;
        Ok(accepted.map(|arrival| self.incoming(arrival)))
    }

    /// As [`accept`](Self::accept), with the hold on the peer's close if this end reads the entity.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_held(&self) -> Result<Option<(Incoming, Option<HeldClose>)>, Error> {
        let accepted = self
            .top
            .when(|_| Wait::Accept, |it, _| it.accept_held())
            .await?;
        Ok(accepted.map(|arrival| {
            let is_read = arrival.kind.is_some_and(|kind| kind.is_read(false));
            let close = is_read.then(|| HeldClose(self.top.at(arrival.serial)));
            (self.incoming(arrival), close)
        }))
    }

    /// Returns an entity or a request that the peer began, if there is one now.
    pub fn try_accept(&self) -> Option<Incoming> {
        let accepted = self.top.call(|session, _| session.accept());
        Some(self.incoming(accepted.ok()??))
    }

    fn incoming(&self, arrival: Arrival) -> Incoming {
        let (place, payload) = (self.top.at(arrival.serial), arrival.payload);
        match arrival.kind {
            None => Incoming::Request(Request::new(place, payload)),
            Some(EntityKind::Sink) => Incoming::Sink(Stream(place), payload),
            Some(EntityKind::Stream) => Incoming::Stream(Sink::new(place), payload),
            Some(EntityKind::Duplex) => {
                Incoming::Duplex(Sink::new(place.clone()), Stream(place), payload)
            }
        }
    }

    /// How long the peer takes to answer a ping.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        self.top.ping(timeout).await
    }

    /// Closes the top-level: no messages, requests or openings of this end's any more. Everything open goes on.
    ///
    /// # Errors
    /// `already_ended`; [`Error::Ended`].
    pub fn close(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.top.call_alive(|session, _| session.close_top(payload))
    }

    /// Cancels the top-level: no messages, requests or openings of the peer's any more; those on their way
    /// are refused.
    ///
    /// # Errors
    /// `already_ended`; [`Error::Ended`].
    pub fn cancel(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.top
            .call_alive(|session, top| session.cancel(top, payload))
    }

    /// Ends the connection in good order: nothing new is begun from either side, everything open comes to its
    /// end, then the transport is closed. The peer's end of it is waited for too, up to
    /// [`CLOSE_DEADLINE`](ackline_link::CLOSE_DEADLINE) after ours and no longer than `timeout`: one that does
    /// not come is no error.
    ///
    /// # Errors
    /// [`Error::Timeout`]: something is still open or not sent, and the connection goes on until it is not or
    /// everything is dropped; [`Error::Ended`]: it ended in another way.
    pub async fn shutdown(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.top.call(|session, _| {
            session.end_top();
            session.refuse_arrivals();
        });
        let ended = async {
            match self.ended().await {
                End::Closed | End::CloseDeadline => Ok(()),
                // The peer was done too, or gave up everything open.
                End::Eof if !self.stats().has_open() => Ok(()),
                end => Err(Error::Ended(end)),
            }
        };
        match within(timeout, ended).await {
            Err(Error::Timeout) if self.is_done() => Ok(()),
            ended => ended,
        }
    }

    /// Whether both sides are done and everything was sent: the peer's end of the transport alone may be
    /// outstanding.
    fn is_done(&self) -> bool {
        let over = self.link().call(|session, _| session.over());
        matches!(over, Some(End::Closed)) && self.link().is_shut()
    }

    /// Waits for the connection's end: [`End::Closed`] if both sides were done.
    pub async fn ended(&self) -> End<Kind> {
        let forever = |_: &mut Session, _| Poll::<Infallible>::Pending;
        match self.link().when(u64::MAX, forever).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }
}

fn link(options: &LinkOptions, budget: Budget, sender: &Arc<str>) -> Link<Session> {
    let (now, room) = (Instant::now().into_std(), budget.answers().share());
    let session = Session::new(now, options, memory(&budget), room);
    let link = Link::with_budget(session, budget);
    let driver = link.driver();
    link.call(|session, _| session.answer_room().attach(sender, driver));
    link
}

/// The memory of one connection.
pub(super) fn memory(budget: &Budget) -> Memory {
    Memory {
        limit: budget.limit(),
        largest: budget.largest(),
        quota: budget.quota(),
    }
}
