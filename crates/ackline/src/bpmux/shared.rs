//! The state that the handles of one connection share.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use ackline_link::{Link, PeerInfo};
use tokio::time::Instant;

use super::error::Error;
use super::session::{Session, Wait};

/// The shared state of the handles.
pub(super) struct Inner {
    pub(super) link: Link<Session>,
    pub(super) peer: Option<PeerInfo>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.link.abort();
    }
}

impl Inner {
    /// Waits on the session.
    pub(super) async fn when<R>(
        &self,
        wait: Wait,
        mut f: impl FnMut(&mut Session) -> Poll<Result<R, Error>>,
    ) -> Result<R, Error> {
        self.link
            .when(wait.key(), |session, _| f(session))
            .await
            .map_err(Error::Ended)?
    }
}

/// Awaits `what`, until the deadline if there is one.
pub(super) async fn within<R>(
    until: Option<Instant>,
    what: impl Future<Output = Result<R, Error>>,
) -> Result<R, Error> {
    match until {
        None => what.await,
        Some(until) => tokio::time::timeout_at(until, what)
            .await
            .unwrap_or(Err(Error::Timeout)),
    }
}

pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}
