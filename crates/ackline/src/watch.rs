//! The place of a handle on its connection, and its waits that take nothing, for callers that take by calls that never
//! wait, such as another language.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ackline_core::{Handles, Serial};
use ackline_link::{Link, PeerInfo};
use tokio::time::Instant;

/// Waits on the subject of a handle. A watch does not keep the subject open, but keeps the connection.
pub struct Watch<S: Handles> {
    inner: Arc<Inner<S>>,
    pub(crate) serial: Serial,
}

/// The state that the handles of one connection share.
struct Inner<S: Handles> {
    link: Link<S>,
    peer: Option<PeerInfo>,
}

impl<S: Handles> Drop for Inner<S> {
    fn drop(&mut self) {
        self.link.abort();
    }
}

impl<S: Handles> Clone for Watch<S> {
    fn clone(&self) -> Self {
        self.at(self.serial)
    }
}

impl<S: Handles> Watch<S> {
    pub(crate) fn new(link: Link<S>, peer: Option<PeerInfo>, serial: Serial) -> Self {
        let inner = Arc::new(Inner { link, peer });
        Self { inner, serial }
    }

    /// Another place on the same connection.
    pub(crate) fn at(&self, serial: Serial) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner, serial }
    }

    pub(crate) fn link(&self) -> &Link<S> {
        &self.inner.link
    }

    pub(crate) fn peer(&self) -> Option<&PeerInfo> {
        self.inner.peer.as_ref()
    }

    /// Calls a verb, also after the connection's end.
    pub(crate) fn call<R>(&self, verb: impl FnOnce(&mut S, Serial) -> R) -> R {
        self.link().call(|session, _| verb(session, self.serial))
    }

    /// Calls a verb, unless the connection has ended.
    #[cfg_attr(not(any(feature = "bpmux", feature = "reactive")), allow(dead_code))]
    pub(crate) fn call_alive<R>(
        &self,
        verb: impl FnOnce(&mut S, Serial) -> Result<R, S::Error>,
    ) -> Result<R, S::Error> {
        self.link()
            .call_alive(|session, _| verb(session, self.serial))?
    }

    /// Calls a verb; one that would have to wait fails with the connection's end, if the connection has ended.
    pub(crate) fn call_now<R>(
        &self,
        verb: impl FnOnce(&mut S, Serial) -> Result<R, S::Error>,
    ) -> Result<R, S::Error> {
        // Before the look: a change that comes between the two is taken the next time.
        let end = self.link().end();
        match (self.call(verb), end) {
            (Err(error), Some(end)) if S::is_blocked(&error) => Err(end.into()),
            (done, _) => done,
        }
    }

    /// Calls a verb until it is not blocked.
    pub(crate) async fn when<R>(
        &self,
        wait: fn(Serial) -> S::Wait,
        mut verb: impl FnMut(&mut S, Serial) -> Result<R, S::Error>,
    ) -> Result<R, S::Error> {
        let key = S::wait_key(wait(self.serial));
        let done = self.link().when(key, |session, _| {
            unless_blocked::<S, R>(verb(session, self.serial))
        });
        done.await?
    }

    /// As [`when`](Self::when), for callers that poll.
    #[cfg_attr(not(any(feature = "bpmux", feature = "reactive")), allow(dead_code))]
    pub(crate) fn poll<R>(
        &self,
        wait: fn(Serial) -> S::Wait,
        context: &Context<'_>,
        mut verb: impl FnMut(&mut S, Serial) -> Result<R, S::Error>,
    ) -> Poll<Result<R, S::Error>> {
        let key = S::wait_key(wait(self.serial));
        let polled = self.link().poll_when(key, context, |session, _| {
            unless_blocked::<S, R>(verb(session, self.serial))
        });
        Poll::Ready(ready!(polled)?)
    }

    /// Waits until it is there or the connection has ended; takes nothing. Cancel-safe.
    pub async fn ready(&self, interest: S::Interest) {
        let key = S::interest_key(interest, self.serial);
        let waited = self.link().when(key, |session, _| {
            if session.is_there(self.serial, interest) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let _ = waited.await;
    }
}

impl<S: Handles> std::fmt::Debug for Watch<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

pub(crate) fn unless_blocked<S: Handles, R>(
    done: Result<R, S::Error>,
) -> Poll<Result<R, S::Error>> {
    match done {
        Err(error) if S::is_blocked(&error) => Poll::Pending,
        done => Poll::Ready(done),
    }
}

/// Awaits `what`, for `timeout` if there is one; `late` is the error of one that was too long.
pub(crate) async fn within<R, E>(
    timeout: Option<Duration>,
    late: E,
    what: impl Future<Output = Result<R, E>>,
) -> Result<R, E> {
    match timeout.and_then(|timeout| Instant::now().checked_add(timeout)) {
        None => what.await,
        Some(until) => tokio::time::timeout_at(until, what)
            .await
            .unwrap_or(Err(late)),
    }
}
