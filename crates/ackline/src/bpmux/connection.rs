//! A connection for applications: the entities and requests of this end, and those of its peer.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_bpmux::{EntityKind, Kind, Stats, Target};
use ackline_core::Payload;
use ackline_link::tls::TlsError;
use ackline_link::{Admitted, Budget, End, Endpoint, Link, LinkStats, PeerInfo};
use bytes::Bytes;
use tokio::time::Instant;

use super::beginning::Beginner;
use super::error::Error;
use super::halves::{Sink, Stream};
use ackline_bpmux::LinkOptions;

use super::options::ConnectOptions;
use super::requests::{Request, Response};
use super::session::{Arrival, Serial, Session, TOP, Wait};
use super::shared::{Inner, deadline, within};
use super::url::{endpoint, own_tls};
use crate::listening::log_refusal;

/// One end of a connection. Clones are the same one. It is ended at once when the last clone, and everything
/// that came of it, is dropped.
#[derive(Clone)]
pub struct Connection {
    pub(super) inner: Arc<Inner>,
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
        let url = options.with_url(url)?;
        let mut endpoint = endpoint(&url)?;
        Endpoint::fill(std::slice::from_mut(&mut endpoint), &options.tls).map_err(Error::url)?;
        own_tls(&endpoint)?;
        let stream = ackline_link::connect(&endpoint, options.connect_timeout).await;
        let stream = stream.map_err(|error| match TlsError::of(&error) {
            Some(tls) => Error::Handshake {
                code: tls.code(),
                message: format!("{endpoint}: {error}").into(),
            },
            None => Error::Connect(format!("{endpoint}: {error}").into()),
        })?;
        let link = link(&options.link, Budget::new(options.memory), &Arc::from(""));
        tokio::spawn({
            let link = link.clone();
            async move {
                link.drive_socket(stream).await;
            }
        });
        let peer = None;
        Ok(Self::of(link, peer))
    }

    pub(super) fn admitted(admitted: Admitted, options: &LinkOptions, budget: Budget) -> Self {
        let link = link(options, budget, &admitted.peer.sender);
        let peer = Some(admitted.peer.clone());
        tokio::spawn({
            let link = link.clone();
            async move {
                let retire = |session: &mut Session, _| {
                    // Both may have been ended before.
                    let _ = session.with_target(TOP, |it, top| it.close(top, Bytes::new()));
                    let _ = session.with_target(TOP, |it, top| it.cancel(top, Bytes::new()));
                };
                let (driven, slot, turned) = admitted.drive(&link, retire).await;
                if let Some(turned) = turned {
                    log_refusal(&turned);
                }
                drop((driven, slot));
            }
        });
        Self::of(link, peer)
    }

    fn of(link: Link<Session>, peer: Option<PeerInfo>) -> Self {
        Self {
            inner: Arc::new(Inner { link, peer }),
        }
    }

    /// The link itself, for waits of one's own.
    pub fn link(&self) -> &Link<Session> {
        &self.inner.link
    }

    /// The peer that connected; `None` at the end that connected.
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.inner.peer.as_ref()
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
        Sink::new(Arc::clone(&self.inner), TOP)
    }

    /// The top-level's stream: messages of the peer that belong to nothing else.
    pub fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.inner), TOP)
    }

    /// Sends a request; its response is to be waited for. Waits while there is no room to send. Cancel-safe:
    /// a request that was not sent has not happened.
    ///
    /// # Errors
    /// `top_level_closed`; [`Error::Ended`].
    pub async fn request(&self, payload: impl Into<Bytes>) -> Result<Response, Error> {
        let payload = payload.into();
        let request = self.begun(|session| session.request(payload.clone()));
        let serial = request.await?;
        Ok(Response::new(Arc::clone(&self.inner), serial))
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
        let until = deadline(timeout);
        let called = async { self.request(payload).await?.response().await };
        within(until, called).await
    }

    /// Opens a sink: the peer reads it. Returns once its opening is sent, which its payload may have to wait
    /// for.
    ///
    /// # Errors
    /// `top_level_closed`; [`Error::Cancelled`]: the peer cancelled the top-level meanwhile;
    /// [`Error::Ended`].
    pub async fn open_sink(&self, payload: impl Into<Bytes>) -> Result<Sink, Error> {
        let serial = self.open(EntityKind::Sink, payload.into()).await?;
        let sink = Sink::new(Arc::clone(&self.inner), serial);
        self.opened(serial).await?;
        Ok(sink)
    }

    /// Opens a stream: the peer writes it. As [`open_sink`](Self::open_sink).
    ///
    /// # Errors
    /// As [`open_sink`](Self::open_sink).
    pub async fn open_stream(&self, payload: impl Into<Bytes>) -> Result<Stream, Error> {
        let serial = self.open(EntityKind::Stream, payload.into()).await?;
        let stream = Stream::new(Arc::clone(&self.inner), serial);
        self.opened(serial).await?;
        Ok(stream)
    }

    /// Opens a duplex: both ends write and read it, and its halves end by themselves. As
    /// [`open_sink`](Self::open_sink).
    ///
    /// # Errors
    /// As [`open_sink`](Self::open_sink).
    pub async fn open_duplex(&self, payload: impl Into<Bytes>) -> Result<(Sink, Stream), Error> {
        let serial = self.open(EntityKind::Duplex, payload.into()).await?;
        let sink = Sink::new(Arc::clone(&self.inner), serial);
        let stream = Stream::new(Arc::clone(&self.inner), serial);
        self.opened(serial).await?;
        Ok((sink, stream))
    }

    async fn open(&self, kind: EntityKind, payload: Bytes) -> Result<Serial, Error> {
        self.begun(|session| session.open(kind, payload.clone()))
            .await
    }

    /// Begins something once there is room for it, behind the callers that have waited longer.
    async fn begun(
        &self,
        begin: impl FnMut(&mut Session) -> Result<Serial, Error>,
    ) -> Result<Serial, Error> {
        Beginner::new(&self.inner).begin(begin).await
    }

    async fn opened(&self, serial: Serial) -> Result<(), Error> {
        self.when(Wait::Write(serial), |session| {
            if !session.is_open(serial) {
                return Poll::Pending;
            }
            let cancelled = session.place(TOP).and_then(|top| top.cancelled.clone());
            Poll::Ready(match (session.target(serial), cancelled) {
                (Err(_), Some(payload)) => Err(Error::Cancelled(payload)),
                _ => Ok(()),
            })
        })
        .await
    }

    /// Returns the next entity or request that the peer begins, or `None` once the peer has closed the
    /// top-level: nothing more comes then. Cancel-safe. The close of a sink or duplex of the peer's is not
    /// acknowledged before it is accepted.
    ///
    /// # Errors
    /// [`Error::Ended`], once everything that came before was handed out.
    pub async fn accept(&self) -> Result<Option<Incoming>, Error> {
        let arrival = self
            .when(Wait::Accept, |session| match session.arrival() {
                Some(arrival) => Poll::Ready(Ok(Some(arrival))),
                None if session.is_last() => Poll::Ready(Ok(None)),
                None => Poll::Pending,
            })
            .await?;
        Ok(arrival.map(|arrival| self.incoming(arrival)))
    }

    /// Returns an entity or a request that the peer began, if there is one now.
    pub fn try_accept(&self) -> Option<Incoming> {
        let arrival = self.link().call(|session, _| session.arrival())?;
        Some(self.incoming(arrival))
    }

    pub(super) fn incoming(&self, arrival: Arrival) -> Incoming {
        let Arrival {
            kind,
            serial,
            payload,
        } = arrival;
        let inner = || Arc::clone(&self.inner);
        match kind {
            None => Incoming::Request(Request::new(inner(), serial, payload)),
            Some(EntityKind::Sink) => Incoming::Sink(Stream::new(inner(), serial), payload),
            Some(EntityKind::Stream) => Incoming::Stream(Sink::new(inner(), serial), payload),
            Some(EntityKind::Duplex) => Incoming::Duplex(
                Sink::new(inner(), serial),
                Stream::new(inner(), serial),
                payload,
            ),
        }
    }

    /// How long the peer takes to answer a ping.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        self.stream().ping(timeout).await
    }

    /// Closes the top-level: no messages, requests or openings of this end's any more. Everything open goes on.
    ///
    /// # Errors
    /// `already_ended`; [`Error::Ended`].
    pub fn close(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.with_top(|machine, top| machine.close(top, payload))
    }

    /// Cancels the top-level: no messages, requests or openings of the peer's any more; those on their way
    /// are refused.
    ///
    /// # Errors
    /// `already_ended`; [`Error::Ended`].
    pub fn cancel(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        let payload = payload.into();
        self.with_top(|machine, top| machine.cancel(top, payload))
    }

    fn with_top(
        &self,
        verb: impl FnOnce(
            &mut ackline_bpmux::Connection,
            Target,
        ) -> Result<(), ackline_core::UsageError>,
    ) -> Result<(), Error> {
        if let Some(end) = self.link().end() {
            return Err(Error::Ended(end));
        }
        self.link()
            .call(|session, _| session.with_target(TOP, verb))
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
        // Both may have been ended before.
        let _ = self.close(Bytes::new());
        let _ = self.cancel(Bytes::new());
        self.link().call(|session, _| session.refuse_arrivals());
        let ended = async {
            match self.ended().await {
                End::Closed | End::CloseDeadline => Ok(()),
                // The peer was done too, or gave up everything open.
                End::Eof if !self.has_open() => Ok(()),
                end => Err(Error::Ended(end)),
            }
        };
        match within(deadline(timeout), ended).await {
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

    /// Whether something of either end's has not come to its end.
    fn has_open(&self) -> bool {
        let stats = self.stats();
        let entities = stats.own_entities.saturating_add(stats.peer_entities);
        let requests = stats.own_requests.saturating_add(stats.peer_requests);
        entities > 0 || requests > 0
    }

    /// Waits for the connection's end: [`End::Closed`] if both sides were done.
    pub async fn ended(&self) -> End<Kind> {
        let forever = self
            .link()
            .when(u64::MAX, |_, _| Poll::<std::convert::Infallible>::Pending);
        match forever.await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    pub(super) async fn when<R>(
        &self,
        wait: Wait,
        f: impl FnMut(&mut Session) -> Poll<Result<R, Error>>,
    ) -> Result<R, Error> {
        self.inner.when(wait, f).await
    }
}

fn link(options: &LinkOptions, budget: Budget, sender: &Arc<str>) -> Link<Session> {
    let now = Instant::now().into_std();
    let session = Session::new(now, options, &budget);
    let link = Link::with_budget(session, budget);
    let driver = link.driver();
    link.call(|session, _| session.attach(sender, driver));
    link
}
