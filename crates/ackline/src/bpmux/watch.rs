//! The place of a handle on its connection, and its waits that take nothing, for callers that take by calls that never
//! wait, such as another language.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ackline_bpmux::Error;
use ackline_bpmux::session::{Interest, Serial, Wait};
use ackline_link::{Link, PeerInfo};
use tokio::time::Instant;

use super::Session;

/// Waits on the subject of a handle. A watch does not keep the subject open, but keeps the connection.
#[derive(Clone)]
pub struct Watch {
    inner: Arc<Inner>,
    pub(super) serial: Serial,
}

/// The state that the handles of one connection share.
struct Inner {
    link: Link<Session>,
    peer: Option<PeerInfo>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.link.abort();
    }
}

impl Watch {
    pub(super) fn new(link: Link<Session>, peer: Option<PeerInfo>, serial: Serial) -> Self {
        let inner = Arc::new(Inner { link, peer });
        Self { inner, serial }
    }

    /// Another place on the same connection.
    pub(super) fn at(&self, serial: Serial) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner, serial }
    }

    pub(super) fn link(&self) -> &Link<Session> {
        &self.inner.link
    }

    pub(super) fn peer(&self) -> Option<&PeerInfo> {
        self.inner.peer.as_ref()
    }

    /// Calls a verb, also after the connection's end.
    pub(super) fn call<R>(&self, verb: impl FnOnce(&mut Session, Serial) -> R) -> R {
        self.link().call(|session, _| verb(session, self.serial))
    }

    /// Calls a verb, unless the connection has ended.
    pub(super) fn call_alive<R>(
        &self,
        verb: impl FnOnce(&mut Session, Serial) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.link()
            .call_alive(|session, _| verb(session, self.serial))?
    }

    /// Calls a verb; one that would have to wait fails with the connection's end, if the connection has ended.
    pub(super) fn call_now<R>(
        &self,
        verb: impl FnOnce(&mut Session, Serial) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // Before the look: a change that comes between the two is taken the next time.
        let end = self.link().end();
        match (self.call(verb), end) {
            (Err(Error::Blocked), Some(end)) => Err(Error::Ended(end)),
            (done, _) => done,
        }
    }

    /// Calls a verb until it is not blocked.
    pub(super) async fn when<R>(
        &self,
        wait: fn(Serial) -> Wait,
        mut verb: impl FnMut(&mut Session, Serial) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let key = wait(self.serial).key();
        let done = self
            .link()
            .when(key, |session, _| unless_blocked(verb(session, self.serial)));
        done.await?
    }

    /// As [`when`](Self::when), for callers that poll.
    pub(super) fn poll<R>(
        &self,
        wait: fn(Serial) -> Wait,
        context: &Context<'_>,
        mut verb: impl FnMut(&mut Session, Serial) -> Result<R, Error>,
    ) -> Poll<Result<R, Error>> {
        let key = wait(self.serial).key();
        let polled = self.link().poll_when(key, context, |session, _| {
            unless_blocked(verb(session, self.serial))
        });
        Poll::Ready(ready!(polled)?)
    }

    /// Waits until it is there or the connection has ended; takes nothing. Cancel-safe.
    pub async fn ready(&self, interest: Interest) {
        let waited = self.link().when(interest.key(self.serial), |session, _| {
            if session.is_there(self.serial, interest) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let _ = waited.await;
    }

    /// How long the peer takes to answer a ping of it; not of a [`Request`](super::Request).
    ///
    /// # Errors
    /// [`Error::Timeout`]; `already_ended`, also where it ends before the pong comes; `unknown_id`;
    /// [`Error::Ended`].
    pub async fn ping(&self, timeout: Duration) -> Result<Duration, Error> {
        let start = Instant::now();
        let before = self.call_alive(Session::ping)?;
        let answered = self.when(Wait::Pong, |session, serial| session.ponged(serial, before));
        within(Some(timeout), answered).await?;
        Ok(start.elapsed())
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

pub(super) fn unless_blocked<R>(done: Result<R, Error>) -> Poll<Result<R, Error>> {
    match done {
        Err(Error::Blocked) => Poll::Pending,
        done => Poll::Ready(done),
    }
}

/// Awaits `what`, for `timeout` if there is one.
pub(super) async fn within<R>(
    timeout: Option<Duration>,
    what: impl Future<Output = Result<R, Error>>,
) -> Result<R, Error> {
    match timeout.and_then(|timeout| Instant::now().checked_add(timeout)) {
        None => what.await,
        Some(until) => tokio::time::timeout_at(until, what)
            .await
            .unwrap_or(Err(Error::Timeout)),
    }
}
