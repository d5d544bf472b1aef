//! How far a sent message has come: kept per channel and life, shared by the link and its receipts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use ackline_core::{Sequence, UsageError};
use ackline_link::WeakLink;
use ackline_relink::Standing;

use super::error::Error;
use super::interest::Wait;
use super::session::Session;

/// The peer's answers to a message, past and future. Clones are the same message's.
#[derive(Debug, Clone)]
pub struct Receipt {
    progress: Arc<Progress>,
    /// Counts the messages of one life of the channel from 1.
    number: u64,
    sequence: Sequence,
    /// How many changes of the link are kept when it is.
    change: u64,
}

/// The receipts of messages that were sent one after the other on one channel.
#[derive(Debug, Clone, Default)]
pub struct Receipts {
    last: Option<Receipt>,
    count: usize,
}

/// The outcome of a message in a transactional direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was committed, and the receiver has processed it.
    Committed,
    /// It was committed, and the receiver has not processed it.
    Uncommitted,
    /// It was rolled back by this side.
    RolledBack,
}

impl Receipt {
    /// The message's number on its channel.
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Whether it is on the disk of this end: a restart sends it again until it is consumed. Never in a link
    /// without a state directory.
    pub fn is_kept(&self) -> bool {
        let kept = &self.progress.kept;
        kept.is_on && kept.has(self.change)
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
        self.progress.lock().received >= self.number
    }

    /// Whether the peer has consumed it.
    pub fn is_consumed(&self) -> bool {
        self.progress.lock().consumed >= self.number
    }

    /// The message's outcome in a transactional direction, once it is known.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    pub fn outcome(&self) -> Result<Option<Outcome>, Error> {
        let state = self.progress.lock();
        match (state.outcome(self.number), &state.end) {
            (Some(outcome), _) => outcome.map(Some),
            (None, Some(end)) => Err(end.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Why nothing more is heard of it, if that is so.
    pub fn end(&self) -> Option<Error> {
        self.progress.lock().end.clone()
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
        let change = self.change;
        let is_there = move |_: &State| kept.has(change).then_some(Ok(()));
        self.progress.until(Wait::Kept, is_there).await
    }

    /// Waits until the peer has it. Peers say so of their own accord only when a link is resumed: without a
    /// cut this comes with [`consumed`](Self::consumed).
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Closed`] or [`Error::ChannelClosed`] came first.
    pub async fn received(&self) -> Result<(), Error> {
        let number = self.number;
        let is_there = move |state: &State| (state.received >= number).then_some(Ok(()));
        self.progress.until(self.progress.wait(), is_there).await
    }

    /// Waits until the peer has consumed it.
    ///
    /// # Errors
    /// As [`received`](Self::received).
    pub async fn consumed(&self) -> Result<(), Error> {
        let number = self.number;
        let is_there = move |state: &State| (state.consumed >= number).then_some(Ok(()));
        self.progress.until(self.progress.wait(), is_there).await
    }

    /// Waits until its transaction is over.
    ///
    /// # Errors
    /// As [`received`](Self::received); [`Error::Forgotten`] long afterwards.
    pub async fn committed(&self) -> Result<Outcome, Error> {
        let number = self.number;
        let is_there = move |state: &State| state.outcome(number);
        self.progress.until(self.progress.wait(), is_there).await
    }
}

impl Receipts {
    /// Those of so many messages, of which this is the last one's.
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
        let each = |last: &Receipt, before: usize| {
            let back = u32::try_from(before).unwrap_or_default();
            Receipt {
                progress: Arc::clone(&last.progress),
                number: last.number - u64::from(back),
                sequence: last.sequence.plus(0_u32.wrapping_sub(back)),
                // They were noted together.
                change: last.change,
            }
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
    state: Mutex<State>,
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

#[derive(Debug)]
struct State {
    /// Messages sent in this life, received and consumed by the peer, decided here, answered.
    sent: u64,
    /// Changes of the link that were noted with the last one.
    change: u64,
    received: u64,
    consumed: u64,
    /// The number of message 0 of this life, which does not exist.
    before: Sequence,
    /// Bytes of each message that is not consumed.
    sizes: VecDeque<usize>,
    /// Own decisions, by `true` for a commit.
    decided: Runs,
    /// The peer's answers to commits, by `true` for committed.
    answered: Runs,
    end: Option<Error>,
}

/// The stage that an acknowledgement confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Received,
    Consumed,
    Answered(bool),
    Decided(bool),
}

impl Progress {
    /// A life whose first message has this number.
    pub(super) fn new(number: u64, first: Sequence, kept: Arc<Kept>) -> Self {
        let state = State {
            sent: 0,
            change: 0,
            received: 0,
            consumed: 0,
            before: first.plus(u32::MAX),
            sizes: VecDeque::new(),
            decided: Runs::default(),
            answered: Runs::default(),
            end: None,
        };
        Self {
            number,
            state: Mutex::new(state),
            kept,
        }
    }

    /// A life from an earlier process, up to the last message whose payload is not here. It begins with the
    /// last one that is over, whose outcome is not known any more.
    pub(super) fn adopted(number: u64, standing: &Standing<'_>, kept: Arc<Kept>) -> Self {
        let first = standing.over.unwrap_or_else(|| standing.before.next());
        let progress = Self::new(number, first, kept);
        let over = u64::from(standing.over.is_some());
        let mut state = progress.lock();
        let known = standing.absent.since(standing.before);
        state.sent = over + u64::from(known);
        state.consumed = over + u64::from(standing.consumed.since(standing.before));
        state.received = state.consumed;
        state.decided.forgotten = over;
        state.answered.forgotten = over;
        // Handed over: nothing of them is here.
        let waiting = usize::try_from(state.sent - state.consumed).unwrap_or_default();
        state.sizes = std::iter::repeat_n(0, waiting).collect();
        drop(state);
        progress
    }

    /// The receipt of the message of so many bytes that was sent just now, and is kept when so many changes
    /// of the link are.
    pub(super) fn sent(self: &Arc<Self>, sequence: Sequence, bytes: usize, change: u64) -> Receipt {
        self.sent_run(sequence, std::iter::once(bytes), change)
    }

    /// The same for messages that were sent one after the other, the last with this number; the receipt is
    /// the last one's.
    pub(super) fn sent_run(
        self: &Arc<Self>,
        last: Sequence,
        sizes: impl ExactSizeIterator<Item = usize>,
        change: u64,
    ) -> Receipt {
        let mut state = self.lock();
        state.sent += u64::try_from(sizes.len()).unwrap_or(0);
        state.change = change;
        state.sizes.extend(sizes);
        Receipt {
            progress: Arc::clone(self),
            number: state.sent,
            sequence: last,
            change,
        }
    }

    /// The receipt of the last message sent in this life.
    pub(super) fn last_receipt(self: &Arc<Self>) -> Option<Receipt> {
        let state = self.lock();
        let steps = u32::try_from(state.sent & u64::from(u32::MAX)).unwrap_or_default();
        (state.sent > 0).then(|| Receipt {
            progress: Arc::clone(self),
            number: state.sent,
            sequence: state.before.plus(steps),
            change: state.change,
        })
    }

    /// The stage of every message up to and including this number is reached. Answers the bytes of those
    /// that need not be kept any more.
    pub(super) fn reach(&self, stage: Stage, through: Sequence) -> usize {
        let mut state = self.lock();
        let Some(number) = state.number_of(stage, through) else {
            return 0;
        };
        let mut freed = 0;
        match stage {
            Stage::Received => state.received = number,
            Stage::Consumed => {
                let count = usize::try_from(number - state.consumed).unwrap_or(usize::MAX);
                let count = count.min(state.sizes.len());
                freed = state.sizes.drain(..count).sum();
                state.consumed = number;
                state.received = state.received.max(number);
            }
            Stage::Answered(is_committed) => state.answered.push(number, is_committed),
            Stage::Decided(is_commit) => state.decided.push(number, is_commit),
        }
        freed
    }

    /// No more is heard of its messages. Answers the bytes of those that were not consumed.
    pub(super) fn end(&self, why: Error) -> usize {
        let mut state = self.lock();
        state.end.get_or_insert(why);
        state.sizes.drain(..).sum()
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
        ready: impl Fn(&State) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let look = || {
            let state = self.lock();
            ready(&state).or_else(|| state.end.clone().map(Err))
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The message of this number, if it is of this life and behind the messages that were reached before.
    fn number_of(&self, stage: Stage, through: Sequence) -> Option<u64> {
        let reached = match stage {
            Stage::Received => self.received,
            Stage::Consumed => self.consumed,
            Stage::Answered(_) => self.answered.end(),
            Stage::Decided(_) => self.decided.end(),
        };
        let steps = u32::try_from(reached & u64::from(u32::MAX)).unwrap_or_default();
        let last = self.before.plus(steps);
        let number = reached + u64::from(through.since(last));
        (through.is_after(last) && number <= self.sent).then_some(number)
    }

    fn outcome(&self, number: u64) -> Option<Result<Outcome, Error>> {
        if let Some(Told::Is(false)) = self.decided.of(number) {
            return Some(Ok(Outcome::RolledBack));
        }
        Some(match self.answered.of(number)? {
            Told::Is(true) => Ok(Outcome::Committed),
            Told::Is(false) => Ok(Outcome::Uncommitted),
            Told::Forgotten => Err(Error::Forgotten),
        })
    }
}

/// The outcome of each message, one of two, run by run.
#[derive(Debug, Default)]
struct Runs {
    /// The last number of each run, and its way.
    runs: VecDeque<(u64, bool)>,
    forgotten: u64,
}

enum Told {
    Is(bool),
    Forgotten,
}

impl Runs {
    fn end(&self) -> u64 {
        self.runs.back().map_or(self.forgotten, |run| run.0)
    }

    fn push(&mut self, through: u64, way: bool) {
        match self.runs.back_mut() {
            Some(last) if last.1 == way => last.0 = through,
            _ => self.runs.push_back((through, way)),
        }
        if self.runs.len() > MAX_RUNS
            && let Some((through, _)) = self.runs.pop_front()
        {
            self.forgotten = through;
        }
    }

    fn of(&self, number: u64) -> Option<Told> {
        if number <= self.forgotten {
            return Some(Told::Forgotten);
        }
        let at = self.runs.partition_point(|run| run.0 < number);
        self.runs.get(at).map(|run| Told::Is(run.1))
    }
}

pub(super) const NOT_KEPT: UsageError = UsageError::new(
    "not_kept",
    "the link is not kept on disk: give it a directory (state)",
);
/// Runs of decisions and of outcomes that one channel keeps for receipts that are asked late.
const MAX_RUNS: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ackline_link::Link;
    use ackline_relink::frame::Role;
    use ackline_relink::{self as machine, ChannelId, LinkKey};

    use super::*;
    use crate::relink::{LinkOptions, PARAMETERS};

    fn sent(count: u32, first: u32) -> (Arc<Progress>, Vec<Receipt>) {
        let kept = Arc::new(Kept::new(false));
        let progress = Arc::new(Progress::new(0, Sequence(first), kept));
        let receipts = (0..count).map(|at| progress.sent(Sequence(first).plus(at), 10, 0));
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
        progress.reach(Stage::Received, Sequence(u32::MAX));
        receipts[1].received().await.unwrap();
        assert!(!receipts[2].is_received() && !receipts[0].is_consumed());
        assert_eq!(progress.reach(Stage::Consumed, Sequence(0)), 30);
        receipts[2].consumed().await.unwrap();
        receipts[2].received().await.unwrap();
        assert!(!receipts[3].is_received());
        assert_eq!(receipts[3].sequence(), Sequence(1));
    }

    #[tokio::test]
    async fn numbers_of_another_life_or_of_nothing_sent_change_nothing() {
        let (progress, receipts) = sent(2, 10);
        for through in [9, 12, 3] {
            progress.reach(Stage::Consumed, Sequence(through));
        }
        assert!(!receipts[0].is_consumed());
        progress.reach(Stage::Consumed, Sequence(11));
        progress.reach(Stage::Consumed, Sequence(10));
        assert!(receipts[1].is_consumed());
    }

    #[tokio::test]
    async fn an_outcome_is_the_peers_answer_or_the_own_rollback() {
        let (progress, receipts) = sent(4, 0);
        progress.reach(Stage::Decided(true), Sequence(1));
        progress.reach(Stage::Decided(false), Sequence(2));
        progress.reach(Stage::Decided(true), Sequence(3));
        assert_eq!(receipts[2].committed().await.unwrap(), Outcome::RolledBack);
        progress.reach(Stage::Answered(true), Sequence(0));
        progress.reach(Stage::Answered(false), Sequence(3));
        for (at, outcome) in [
            (0, Outcome::Committed),
            (1, Outcome::Uncommitted),
            (2, Outcome::RolledBack),
            (3, Outcome::Uncommitted),
        ] {
            assert_eq!(receipts[at].committed().await.unwrap(), outcome, "{at}");
        }
    }

    #[tokio::test]
    async fn outcomes_are_kept_for_many_runs_and_no_more() {
        let (progress, receipts) = sent(5_000, 0);
        for at in 0..5_000 {
            progress.reach(Stage::Answered(at % 2 == 0), Sequence(at));
        }
        let outcome = receipts[4_999].committed().await.unwrap();
        assert_eq!(outcome, Outcome::Uncommitted);
        let error = receipts[0].committed().await.unwrap_err();
        assert!(matches!(error, Error::Forgotten), "{error}");
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
        progress.reach(Stage::Consumed, Sequence(0));
        wake();
        progress.end(Error::ChannelClosed);
        wake();
        progress.end(Error::Closed);
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
