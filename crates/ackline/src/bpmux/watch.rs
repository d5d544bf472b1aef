//! Pings, which a handle waits for.

use std::time::Duration;

use ackline_bpmux::Error;
use ackline_bpmux::session::Wait;
use tokio::time::Instant;

use super::Session;
use crate::watch;

/// Waits on the subject of a handle. A watch does not keep the subject open, but keeps the connection.
pub type Watch = watch::Watch<Session>;

impl Watch {
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

/// Awaits `what`, for `timeout` if there is one.
pub(super) async fn within<R>(
    timeout: Option<Duration>,
    what: impl Future<Output = Result<R, Error>>,
) -> Result<R, Error> {
    watch::within(timeout, Error::Timeout, what).await
}
