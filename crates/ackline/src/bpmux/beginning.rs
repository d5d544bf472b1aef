//! Waiting for one's turn to request or open something.

use ackline_bpmux::Error;
use ackline_bpmux::session::{Serial, Ticket};

use super::Session;
use super::watch::Watch;
use crate::watch::unless_blocked;

/// A caller that begins something, in its turn. Dropping it gives the turn to the next.
pub(super) struct Beginner<'a> {
    top: &'a Watch,
    ticket: Option<Ticket>,
}

impl<'a> Beginner<'a> {
    pub(super) const fn new(top: &'a Watch) -> Self {
        Self { top, ticket: None }
    }

    /// Begins once it is this one's turn and there is room. Any change may make room: each
    /// is looked at.
    pub(super) async fn begin(
        mut self,
        mut begin: impl FnMut(&mut Session) -> Result<Serial, Error>,
    ) -> Result<Watch, Error> {
        let top = self.top;
        if let Some(end) = top.link().end() {
            return Err(Error::Ended(end));
        }
        let begun = top.link().when(0, |session, _| {
            unless_blocked::<Session, _>(session.in_turn(&mut self.ticket, &mut begin))
        });
        Ok(top.at(begun.await??))
    }
}

impl Drop for Beginner<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.top
                .call(|session, _| session.leave_queue(&mut self.ticket));
        }
    }
}
