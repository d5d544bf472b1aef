//! Closes of the peer's that are acknowledged when the application says so: when a sink's handler has returned,
//! not when the last message has arrived.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::connection::{Connection, Incoming};
use super::error::Error;
use super::session::{Serial, Wait};
use super::shared::Inner;

/// The hold on a close of the peer's: while it lives, the close of the entity that was accepted with it is
/// not acknowledged, and the half can still be cancelled. Then the cancel goes first. Dropped, it lets the
/// acknowledgement go, now or when the close comes.
pub struct HeldClose {
    inner: Arc<Inner>,
    serial: Serial,
}

impl HeldClose {
    /// Cancels the half, whether its [`Stream`](super::Stream) is still there or not, with a payload that says why.
    /// Nothing happens if it was cancelled before or the connection is over.
    pub fn refuse(self, payload: impl Into<Bytes>) {
        let (serial, payload) = (self.serial, payload.into());
        self.inner.link.call(|session, _| {
            // Dropped then, the hold lets the acknowledgement go behind the cancel.
            let _ = session.with_target(serial, |it, target| it.cancel(target, payload));
        });
    }
}

impl Drop for HeldClose {
    fn drop(&mut self) {
        let serial = self.serial;
        self.inner
            .link
            .call(|session, _| session.release_close(serial));
    }
}

impl std::fmt::Debug for HeldClose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldClose").finish_non_exhaustive()
    }
}

impl Connection {
    /// As [`accept`](Self::accept), with the hold on the peer's close if this end reads the entity.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_held(&self) -> Result<Option<(Incoming, Option<HeldClose>)>, Error> {
        let arrival = self
            .when(Wait::Accept, |session| match session.held_arrival() {
                Some(arrival) => Poll::Ready(Ok(Some(arrival))),
                None if session.is_last() => Poll::Ready(Ok(None)),
                None => Poll::Pending,
            })
            .await?;
        Ok(arrival.map(|arrival| {
            let (inner, serial) = (Arc::clone(&self.inner), arrival.serial);
            let incoming = self.incoming(arrival);
            let is_read = matches!(incoming, Incoming::Sink(..) | Incoming::Duplex(..));
            (incoming, is_read.then_some(HeldClose { inner, serial }))
        }))
    }
}
