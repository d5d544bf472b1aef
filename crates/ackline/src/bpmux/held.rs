//! Closes of the peer's that are acknowledged when the application says so: when a sink's handler has returned,
//! not when the last message has arrived.

use bytes::Bytes;

use super::Session;
use super::watch::Watch;

/// The hold on a close of the peer's: while it lives, the close of the entity that was accepted with it is
/// not acknowledged, and the half can still be cancelled. Then the cancel goes first. Dropped, it lets the
/// acknowledgement go, now or when the close comes.
#[derive(Debug)]
pub struct HeldClose(pub(super) Watch);

impl HeldClose {
    /// Cancels the half, whether its [`Stream`](super::Stream) is still there or not, with a payload that says why.
    /// Nothing happens if it was cancelled before or the connection is over.
    pub fn refuse(self, payload: impl Into<Bytes>) {
        let payload = payload.into();
        // Dropped then, the hold lets the acknowledgement go behind the cancel.
        let _ = self
            .0
            .call(|session, serial| session.cancel(serial, payload));
    }
}

impl Drop for HeldClose {
    fn drop(&mut self) {
        self.0.call(Session::release_close);
    }
}
