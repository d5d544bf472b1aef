//! Those who wait to request or open something take turns: whoever has waited longest goes first, and nobody who
//! comes later overtakes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use super::error::Error;
use super::session::{Serial, Session};
use super::shared::Inner;

/// A place in the queue.
type Ticket = u64;

/// The queue of one connection.
#[derive(Debug, Default)]
pub(super) struct Beginners {
    queue: VecDeque<Ticket>,
    next: Ticket,
}

impl Beginners {
    /// Whether nobody is before this one; `None` for one who has not waited.
    pub(super) fn may_begin(&self, ticket: Option<Ticket>) -> bool {
        let first = self.queue.front();
        first.is_none_or(|first| ticket == Some(*first))
    }

    fn join(&mut self) -> Ticket {
        self.next = self.next.wrapping_add(1);
        self.queue.push_back(self.next);
        self.next
    }

    fn leave(&mut self, ticket: Ticket) {
        self.queue.retain(|other| *other != ticket);
    }
}

/// Somebody who begins something, in its turn. Dropping it gives the turn to the next.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_waited_longest_is_first_and_who_leaves_holds_nobody_up() {
        let mut all = Beginners::default();
        assert!(all.may_begin(None));
        let [one, two, three] = std::array::from_fn(|_| all.join());
        assert!(!all.may_begin(None), "nobody overtakes");
        assert_eq!(
            [one, two, three].map(|ticket| all.may_begin(Some(ticket))),
            [true, false, false]
        );
        all.leave(two);
        all.leave(one);
        assert!(all.may_begin(Some(three)));
        all.leave(three);
        assert!(all.may_begin(None));
    }
}
