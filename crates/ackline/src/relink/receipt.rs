//! How far a sent message has come: kept per channel and life, shared by the link and its receipts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use ackline_core::{Sequence, UsageError};
use ackline_link::WeakLink;
use ackline_relink::{Error, Outcome, SentLife, SentMessage};

use super::interest::Wait;
use super::session::Session;

/// The peer's answers to a message, past and future. Clones are the same message's.
#[derive(Debug, Clone)]
pub struct Receipt {
    progress: Arc<Progress>,
    message: SentMessage,
}

/// The receipts of messages that were sent one after the other on one channel.
#[derive(Debug, Clone, Default)]
pub struct Receipts {
    last: Option<Receipt>,
    count: usize,
}

impl Receipt {
    /// The message's number on its channel.
    pub const fn sequence(&self) -> Sequence {
        self.message.sequence
    }

    /// Whether it is on the disk of this end: a restart sends it again until it is consumed. Never in a link
    /// without a state directory.
    pub fn is_kept(&self) -> bool {
        let kept = &self.progress.kept;
        kept.is_on && kept.has(self.message.change)
    }

    /// Whether the link has a state directory at all.
    ///
    /// # Errors
    /// [`Error::Usage`]: `not_kept`.
    pub fn check_durable(&self) -> Result<(), Error> {
        if self.progress.kept.is_on {
            return Ok(());
        }
        Err(NOT_KEPT.into())
    }

    /// Whether the peer has it.
    pub fn is_received(&self) -> bool {
        self.progress.lock().is_received(self.message.number)
    }

    /// Whether the peer has consumed it.
    pub fn is_consumed(&self) -> bool {
        self.progress.lock().is_consumed(self.message.number)
    }

    /// The message's outcome in a transactional direction, once it is known.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    pub fn outcome(&self) -> Result<Option<Outcome>, Error> {
        let state = self.progress.lock();
        match (state.outcome(self.message.number), state.ended()) {
            (Some(outcome), _) => outcome.map(Some),
            (None, Some(end)) => Err(end.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Why nothing more is heard of it, if that is so.
    pub fn end(&self) -> Option<Error> {
        self.progress.lock().ended().cloned()
    }

    /// Waits until it is on the disk of this end: from then on it is sent until it is consumed,
    /// even if this process ends. It does not leave before that. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Usage`]: `not_kept`, the link has no state directory, and nothing of it outlives the process.
    /// [`Error::Unkept`]: it could not be written. As [`received`](Self::received).
    pub async fn kept(&self) -> Result<(), Error> {
        self.check_durable()?;
        let kept = Arc::clone(&self.progress.kept);
        let change = self.message.change;
        let is_there = move |_: &SentLife| kept.has(change).then_some(Ok(()));
        self.progress.until(Wait::Kept, is_there).await
    }

    /// Waits until the peer has it. Peers say so of their own accord only when a link is resumed: without a
    /// cut this comes with [`consumed`](Self::consumed).
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Closed`] or [`Error::ChannelClosed`] came first.
    pub async fn received(&self) -> Result<(), Error> {
        self.reached(|life, number| life.is_received(number).then_some(Ok(())))
            .await
    }

    /// Waits until the peer has consumed it.
    ///
    /// # Errors
    /// As [`received`](Self::received).
    pub async fn consumed(&self) -> Result<(), Error> {
        self.reached(|life, number| life.is_consumed(number).then_some(Ok(())))
            .await
    }

    /// Waits until its transaction is over.
    ///
    /// # Errors
    /// As [`received`](Self::received); [`Error::Forgotten`] long afterwards.
    pub async fn committed(&self) -> Result<Outcome, Error> {
        self.reached(SentLife::outcome).await
    }

    async fn reached<R>(
        &self,
        is_there: impl Fn(&SentLife, u64) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let is_there = |life: &SentLife| is_there(life, self.message.number);
        self.progress.until(self.progress.wait(), is_there).await
    }
}

impl Receipts {
    /// The receipts of `count` messages; `last` is the last one's.
    pub(super) const fn new(last: Option<Receipt>, count: usize) -> Self {
        Self { last, count }
    }

    /// Number of messages.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether no message was sent.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The last message's, which stands for all: they all have reached each stage that it has reached.
    pub const fn last(&self) -> Option<&Receipt> {
        self.last.as_ref()
    }

    /// Each message's, in order.
    pub fn iter(&self) -> impl Iterator<Item = Receipt> + '_ {
        let each = |last: &Receipt, before| Receipt {
            progress: Arc::clone(&last.progress),
            message: last.message.earlier(before),
        };
        let before = (0..self.count).rev();
        before.filter_map(move |before| self.last.as_ref().map(|last| each(last, before)))
    }
}

/// One life of an outgoing channel, from its first message to its closing.
#[derive(Debug)]
pub(super) struct Progress {
    /// The number of the life on its link.
    number: u64,
    state: Mutex<SentLife>,
    kept: Arc<Kept>,
}

/// A link's journal and the link itself, as all of its receipts see them.
#[derive(Debug)]
pub(super) struct Kept {
    /// Whether there is a journal.
    is_on: bool,
    /// Changes in it.
    count: AtomicU64,
    /// The link that receipts wait on. It is not kept by them.
    link: OnceLock<WeakLink<Session>>,
}

impl Kept {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            count: AtomicU64::new(0),
            link: OnceLock::new(),
        }
    }

    /// So many changes are in the journal.
    pub(super) fn reach(&self, count: u64) {
        self.count.store(count, Ordering::Release);
    }

    /// The link that receipts wait on.
    pub(super) fn linked(&self, link: WeakLink<Session>) {
        // There is one link for a session.
        let _ = self.link.set(link);
    }

    fn has(&self, change: u64) -> bool {
        self.count.load(Ordering::Acquire) >= change
    }
}

impl Progress {
    /// A life of this number on its link.
    pub(super) fn new(number: u64, life: SentLife, kept: Arc<Kept>) -> Self {
        Self {
            number,
            state: Mutex::new(life),
            kept,
        }
    }

    /// The receipt of the last of the messages that were sent just now, one after the other.
    pub(super) fn sent(
        self: &Arc<Self>,
        last: Sequence,
        sizes: impl ExactSizeIterator<Item = usize>,
        change: u64,
    ) -> Receipt {
        let message = self.lock().sent(last, sizes, change);
        self.receipt(message)
    }

    /// The receipt of the last message sent in this life.
    pub(super) fn last_receipt(self: &Arc<Self>) -> Option<Receipt> {
        let last = self.lock().last();
        last.map(|message| self.receipt(message))
    }

    fn receipt(self: &Arc<Self>, message: SentMessage) -> Receipt {
        Receipt {
            progress: Arc::clone(self),
            message,
        }
    }

    /// The number of the life on its link.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    const fn wait(&self) -> Wait {
        Wait::Life(self.number)
    }

    /// Waits on the link until `ready` answers, or nothing more is heard of the messages.
    async fn until<R>(
        &self,
        wait: Wait,
        ready: impl Fn(&SentLife) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let look = || {
            let state = self.lock();
            ready(&state).or_else(|| state.ended().cloned().map(Err))
        };
        let link = self.kept.link.get().and_then(WeakLink::upgrade);
        let waited = match link {
            Some(link) => {
                let waited = link.until(wait.key(), |_| look().map_or(Poll::Pending, Poll::Ready));
                waited.await.ok()
            }
            None => look(),
        };
        // The link ended without an end of its own: it was let go here.
        waited.unwrap_or(Err(Error::Closed))
    }

    /// The state of its messages.
    pub(super) fn lock(&self) -> MutexGuard<'_, SentLife> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) const NOT_KEPT: UsageError = UsageError::new(
    "not_kept",
    "the link is not kept on disk: give it a directory (state)",
);
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ackline_link::Link;
    use ackline_relink::frame::Role;
    use ackline_relink::{self as machine, ChannelId, LinkKey, Stage};

    use super::*;
    use crate::relink::{LinkOptions, PARAMETERS};

    fn sent(count: u32, first: u32) -> (Arc<Progress>, Vec<Receipt>) {
        let kept = Arc::new(Kept::new(false));
        let life = SentLife::new(Sequence(first));
        let progress = Arc::new(Progress::new(0, life, kept));
        let one = |at| progress.sent(Sequence(first).plus(at), std::iter::once(10), 0);
        let receipts = (0..count).map(one);
        let receipts = receipts.collect();
        (progress, receipts)
    }

    /// A link without a transport.
    fn link() -> Link<Session> {
        let config = LinkOptions::default().machine(Role::Connector, PARAMETERS, false);
        let key = LinkKey {
            epoch: 1,
            link_id: 1,
        };
        Link::new(Session::new(machine::Link::new(config, key), usize::MAX))
    }

    #[tokio::test]
    async fn stages_are_reached_in_order_and_across_the_wrap() {
        let (progress, receipts) = sent(4, u32::MAX - 1);
        progress.lock().reach(Stage::Received, Sequence(u32::MAX));
        receipts[1].received().await.unwrap();
        assert!(!receipts[2].is_received() && !receipts[0].is_consumed());
        assert_eq!(progress.lock().reach(Stage::Consumed, Sequence(0)), 30);
        receipts[2].consumed().await.unwrap();
        receipts[2].received().await.unwrap();
        assert!(!receipts[3].is_received());
        assert_eq!(receipts[3].sequence(), Sequence(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_stage_or_with_the_channel() {
        let (progress, receipts) = sent(2, 0);
        let link = link();
        progress.kept.linked(link.downgrade());
        let wake = || link.wake(progress.wait().key());
        let waits: Vec<_> = receipts
            .iter()
            .cloned()
            .map(|receipt| tokio::spawn(async move { receipt.consumed().await }))
            .collect();
        tokio::task::yield_now().await;
        progress.lock().reach(Stage::Consumed, Sequence(0));
        wake();
        progress.lock().end(Error::ChannelClosed);
        wake();
        progress.lock().end(Error::Closed);
        let mut ends = Vec::new();
        for wait in waits {
            ends.push(wait.await.unwrap());
        }
        assert!(ends[0].is_ok());
        assert!(matches!(ends[1], Err(Error::ChannelClosed)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_over_ends_its_waits_before_its_transport_has_ended() {
        let link = link();
        link.call(|session, _| session.linked(&link));
        let one = [ChannelId::from(1_u32)];
        let payload = b"1".as_slice().into();
        let sent = link.call(|session, now| session.send(now, &one, &payload));
        let receipt = sent.unwrap().pop().unwrap();
        let is_over = |session: &Session| match session.over() {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        };
        let consumed = tokio::spawn(async move { receipt.consumed().await });
        let end = tokio::spawn({
            let link = link.clone();
            async move { link.until(Wait::End.key(), is_over).await.is_ok() }
        });
        // Both begin to wait.
        tokio::task::yield_now().await;
        link.call(Session::let_go);
        let soon = Duration::from_secs(60);
        let consumed = tokio::time::timeout(soon, consumed).await.unwrap().unwrap();
        let end = tokio::time::timeout(soon, end).await.unwrap().unwrap();
        assert!(matches!(consumed, Err(Error::Lost(_))), "{consumed:?}");
        assert!(end && !link.is_ended());
    }
}
