//! Waiting for one's turn to request or open something.

use std::sync::Arc;
use std::task::Poll;

use super::beginners::Ticket;
use super::error::Error;
use super::session::{Serial, Session};
use super::shared::Inner;

/// A caller that begins something, in its turn. Dropping it gives the turn to the next.
pub(super) struct Beginner<'a> {
    inner: &'a Arc<Inner>,
    ticket: Option<Ticket>,
}

impl<'a> Beginner<'a> {
    pub(super) const fn new(inner: &'a Arc<Inner>) -> Self {
        Self {
            inner,
            ticket: None,
        }
    }

    /// Begins, if it is this one's turn and there is room.
    fn poll(
        &mut self,
        session: &mut Session,
        begin: &mut impl FnMut(&mut Session) -> Result<Serial, Error>,
    ) -> Poll<Result<Serial, Error>> {
        let begun = if session.beginners().may_begin(self.ticket) {
            begin(session)
        } else {
            Err(Error::Blocked)
        };
        let beginners = session.beginners();
        if matches!(begun, Err(Error::Blocked)) {
            self.ticket.get_or_insert_with(|| beginners.join());
            return Poll::Pending;
        }
        if let Some(ticket) = self.ticket.take() {
            beginners.leave(ticket);
        }
        Poll::Ready(begun)
    }

    /// Begins once it is this one's turn and there is room. Any change may make room: each
    /// is looked at.
    pub(super) async fn begin(
        mut self,
        mut begin: impl FnMut(&mut Session) -> Result<Serial, Error>,
    ) -> Result<Serial, Error> {
        let link = self.inner.link.clone();
        if let Some(end) = link.end() {
            return Err(Error::Ended(end));
        }
        let begun = link.when(0, |session, _| self.poll(session, &mut begin));
        begun.await.map_err(Error::Ended)?
    }
}

impl Drop for Beginner<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let leave = |session: &mut Session, _| session.beginners().leave(ticket);
            self.inner.link.call(leave);
        }
    }
}
