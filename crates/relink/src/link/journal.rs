//! The journal, from which a restart makes the link again: every change of a link in order.
//!
//! The peer is not told of a change until the journal holds it, so that a crash cannot break a promise. The journal does
//! not hold the state that the peer repeats at every resume: its unanswered decisions, its close, its shutdown.

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::{Sequence, UsageError};

use super::Link;
use super::channels::Key;
use super::incoming::Incoming;
use super::incoming::life::Input;
use super::outgoing::Outgoing;
use super::outgoing::close::{Close, Input as CloseInput};
use super::transactions::{Answered, Decisions};
use super::transport::{Step, Transport};
use crate::frame::Operation;
use crate::{ChannelId, LinkConfig, LinkKey, Payload, Side};

/// A change of a link's state that has to outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The link began.
    Established(LinkKey),
    /// A message was sent on an own channel.
    Sent {
        /// The own channel.
        channel: ChannelId,
        /// Its number.
        sequence: Sequence,
        /// The message.
        payload: Payload,
    },
    /// The peer has own messages, and their payloads stay with the process that sent them. It takes the place of `Sent`
    /// in the state of a link that is [handed over](Link::hand_over).
    HandedOver {
        /// The own channel.
        channel: ChannelId,
        /// The last of them.
        through: Sequence,
    },
    /// The peer has consumed own messages: they need not be kept.
    Acknowledged {
        /// The own channel.
        channel: ChannelId,
        /// The last of them.
        through: Sequence,
    },
    /// Own messages were committed or rolled back.
    Decided {
        /// The own channel.
        channel: ChannelId,
        /// Commit or rollback.
        operation: Operation,
        /// The last of them.
        through: Sequence,
    },
    /// The peer has answered own commits.
    Outcome {
        /// The own channel.
        channel: ChannelId,
        /// The last of the messages.
        through: Sequence,
    },
    /// An own channel was closed by the application.
    Closing {
        /// The own channel.
        channel: ChannelId,
    },
    /// The peer is told that an own channel is closed: it may know from here on.
    CloseLeaves {
        /// The own channel.
        channel: ChannelId,
    },
    /// Messages of the peer were consumed.
    Consumed {
        /// The peer's channel.
        channel: ChannelId,
        /// The last of them.
        through: Sequence,
    },
    /// Commits of the peer were answered. After a restart the messages up to there count as consumed too.
    Answered {
        /// The peer's channel.
        channel: ChannelId,
        /// Success or failure.
        committed: bool,
        /// The last of the messages.
        through: Sequence,
    },
    /// A channel has ended.
    Closed {
        /// The side that sent its messages.
        side: Side,
        /// The channel.
        channel: ChannelId,
    },
    /// The application opens no more channels.
    Shutdown,
}

/// A change that the peer may be told of once the journal keeps it.
#[derive(Debug)]
pub(crate) enum Effect {
    Sent(Box<[Key]>),
    Close(Key),
    CloseLeaves(Key),
    Decided {
        key: Key,
        through: Sequence,
    },
    Consumed {
        key: Key,
        through: Sequence,
    },
    Answered {
        key: Key,
        answered: Answered,
    },
    Closed(Key),
    Shutdown,
    /// So many pongs. A pong says that everything before it is kept.
    Pongs(u64),
}

/// Changes on their way to the journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    changes: VecDeque<Change>,
    /// Changes noted since the start.
    noted: u64,
    /// Changes taken since the start.
    taken: u64,
    /// Changes kept since the start.
    kept: u64,
    held: VecDeque<Held>,
}

/// An effect that waits for the journal.
#[derive(Debug)]
struct Held {
    /// The number of changes that must be kept first.
    needed: u64,
    effect: Effect,
}

impl Journal {
    pub(super) const fn noted(&self) -> u64 {
        self.noted
    }

    pub(super) const fn kept(&self) -> u64 {
        self.kept
    }

    /// Takes the next effect whose changes are all kept.
    fn release(&mut self) -> Option<Effect> {
        if self.held.front()?.needed > self.kept {
            return None;
        }
        self.held.pop_front().map(|held| held.effect)
    }
}

impl Link {
    /// The next change to be kept, in order; with `journal` on.
    pub fn poll_journal(&mut self) -> Option<Change> {
        let journal = self.journal.as_mut()?;
        let change = journal.changes.pop_front()?;
        journal.taken = journal.taken.saturating_add(1);
        Some(change)
    }

    /// Every change taken so far is kept: output that depends on it may leave.
    pub fn journaled(&mut self, now: Instant) {
        if let Some(journal) = &mut self.journal {
            journal.kept = journal.taken;
        }
        while let Some(effect) = self.journal.as_mut().and_then(Journal::release) {
            self.apply(now, effect);
        }
    }

    /// Whether a change waits to be taken, or output waits until a change is kept.
    pub fn is_journaling(&self) -> bool {
        let waits = |journal: &Journal| !journal.changes.is_empty() || !journal.held.is_empty();
        self.journal.as_ref().is_some_and(waits)
    }

    /// The fewest changes that make this link's state, for a compacted journal. All noted changes are in it: take those
    /// that [wait](Self::poll_journal) first, and do not append them.
    pub fn snapshot(&self) -> Vec<Change> {
        let mut changes = vec![Change::Established(self.key)];
        for (channel, state) in self.outgoing.iter() {
            snapshot_outgoing(channel, state, &mut changes);
        }
        for (channel, state) in self
            .incoming
            .iter()
            .filter(|(_, state)| !state.life().is_decided())
        {
            snapshot_incoming(channel, state, &mut changes);
        }
        if self.end.is_called() {
            changes.push(Change::Shutdown);
        }
        changes
    }

    /// The link that these changes made, without a transport; [`attach`](Self::attach) it as resumed.
    ///
    /// # Errors
    /// `journal_inconsistent`: the changes are not those of one link in their order.
    pub fn restore(
        config: LinkConfig,
        changes: impl IntoIterator<Item = Change>,
    ) -> Result<Self, UsageError> {
        let mut link = Self::new(
            config,
            LinkKey {
                epoch: 0,
                link_id: 0,
            },
        );
        for change in changes {
            link.redo(change)?;
        }
        if link.key.link_id == 0 {
            return Err(INCONSISTENT);
        }
        for key in link.outgoing.keys() {
            if let Some(channel) = link.outgoing.get_mut(key) {
                channel.restored();
            }
        }
        Ok(link)
    }

    fn redo(&mut self, change: Change) -> Result<(), UsageError> {
        match change {
            Change::Established(key) => self.key = key,
            Change::Sent {
                channel,
                sequence,
                payload,
            } => {
                let own = self.own_or_new(&channel);
                if own.push(payload) != sequence {
                    return Err(INCONSISTENT);
                }
            }
            Change::HandedOver { channel, through } => {
                let most = self.config.send_window;
                if !self.own_or_new(&channel).restore_handed(through, most) {
                    return Err(INCONSISTENT);
                }
            }
            Change::Acknowledged { channel, through } => {
                self.own_or_new(&channel).restore_consumed(through);
            }
            Change::Decided {
                channel,
                operation,
                through,
            } => self.own_decisions(&channel)?.restore(operation, through),
            Change::Outcome { channel, through } => {
                self.own_decisions(&channel)?.restore_outcome(through);
            }
            Change::Closing { channel } => self.own(&channel)?.restore_close(),
            Change::CloseLeaves { channel } => self.own(&channel)?.restore_emitted_close(),
            Change::Consumed { channel, through } => {
                self.peers_or_new(&channel).restore_consumed(through);
            }
            Change::Answered {
                channel,
                committed,
                through,
            } => {
                let peers = self.peers_or_new(&channel);
                peers.restore_consumed(through);
                let outcomes = peers.outcomes.as_mut().ok_or(INCONSISTENT)?;
                outcomes.restore(committed, through);
            }
            Change::Closed { side, channel } => self.forget(side, &channel),
            Change::Shutdown => self.end.publish(),
        }
        Ok(())
    }

    fn own_or_new(&mut self, channel: &ChannelId) -> &mut Outgoing {
        let transactions = self.own_transactions();
        let key = self.outgoing.find(channel.as_bytes()).unwrap_or_else(|| {
            let own = Outgoing::new(Sequence(0), transactions);
            self.outgoing.insert(channel.clone(), own)
        });
        self.outgoing.get_mut(key).expect("found or just inserted")
    }

    fn own(&mut self, channel: &ChannelId) -> Result<&mut Outgoing, UsageError> {
        let key = self.outgoing.find(channel.as_bytes()).ok_or(INCONSISTENT)?;
        self.outgoing.get_mut(key).ok_or(INCONSISTENT)
    }

    fn own_decisions(&mut self, channel: &ChannelId) -> Result<&mut Decisions, UsageError> {
        self.own(channel)?.decisions.as_mut().ok_or(INCONSISTENT)
    }

    fn peers_or_new(&mut self, channel: &ChannelId) -> &mut Incoming {
        let transactions = self.peer_transactions();
        let key = self.incoming.find(channel.as_bytes()).unwrap_or_else(|| {
            let peers = Incoming::new(Sequence(0), transactions, 0);
            self.incoming.insert(channel.clone(), peers)
        });
        self.incoming.get_mut(key).expect("found or just inserted")
    }

    fn forget(&mut self, side: Side, channel: &ChannelId) {
        match side {
            Side::Outgoing => {
                if let Some(key) = self.outgoing.find(channel.as_bytes()) {
                    self.outgoing.remove(key);
                }
            }
            Side::Incoming => {
                if let Some(key) = self.incoming.find(channel.as_bytes()) {
                    self.incoming.remove(key);
                }
            }
        }
    }

    /// Notes a change for the journal, if there is one.
    pub(crate) fn note(&mut self, change: impl FnOnce() -> Change) {
        if let Some(journal) = &mut self.journal {
            journal.changes.push_back(change());
            journal.noted = journal.noted.saturating_add(1);
        }
    }

    /// Applies an effect, now or when the journal keeps all changes noted so far.
    pub(crate) fn publish(&mut self, now: Instant, effect: Effect) {
        if let Some(effect) = self.hold(effect) {
            self.apply(now, effect);
        }
    }

    /// Holds an effect back. Returns it if nothing has to be kept first.
    fn hold(&mut self, effect: Effect) -> Option<Effect> {
        let journal = match &mut self.journal {
            Some(journal) if journal.kept < journal.noted => journal,
            _ => return Some(effect),
        };
        let needed = journal.noted;
        // Pongs between two changes are one effect, so that a flood of pings takes no memory.
        if let (Effect::Pongs(more), Some(last)) = (&effect, journal.held.back_mut())
            && let Effect::Pongs(count) = &mut last.effect
            && last.needed == needed
        {
            *count = count.saturating_add(*more);
            return None;
        }
        journal.held.push_back(Held { needed, effect });
        None
    }

    /// A pong is never owed across a cut (REQ-RELINK-59).
    pub(crate) fn drop_pongs(&mut self) {
        if let Some(journal) = &mut self.journal {
            let stays = |held: &Held| !matches!(held.effect, Effect::Pongs(_));
            journal.held.retain(stays);
        }
    }

    fn apply(&mut self, now: Instant, effect: Effect) {
        match effect {
            Effect::Sent(keys) => self.apply_sent(&keys),
            Effect::Close(key) => self.apply_close(key, CloseInput::CallKept),
            Effect::CloseLeaves(key) => self.apply_close(key, CloseInput::LeaveKept),
            Effect::Decided { key, through } => self.apply_decided(key, through),
            Effect::Consumed { key, through } => {
                if let Some(channel) = self.incoming.get_mut(key) {
                    channel.progress.publish(through);
                }
                self.schedule_consumed(now, key);
            }
            Effect::Answered { key, answered } => self.apply_answered(key, answered),
            Effect::Closed(key) => {
                self.advance(key, Input::Kept);
            }
            Effect::Shutdown => self.end.publish(),
            Effect::Pongs(count) => {
                if let Some(transport) = &mut self.transport {
                    transport.pings.owe(count);
                }
            }
        }
    }

    /// One more message of each of these channels may be emitted.
    pub(crate) fn apply_sent(&mut self, keys: &[Key]) {
        let Some(transport) = self
            .transport
            .as_mut()
            .filter(|transport| transport.works())
        else {
            for key in keys {
                if let Some(channel) = self.outgoing.get_mut(*key) {
                    channel.publish();
                }
            }
            return;
        };
        let mut ready = Vec::new();
        for key in keys {
            let Some(channel) = self.outgoing.get_mut(*key) else {
                continue;
            };
            channel.publish();
            if channel.is_gated() {
                continue;
            }
            if keys.len() == 1 {
                return transport.plan_messages(*key, 1);
            }
            ready.push(*key);
        }
        match ready.as_slice() {
            [] => {}
            [key] => transport.plan_messages(*key, 1),
            _ => transport.plan.push_back(Step::Multicast(ready.into())),
        }
    }

    /// As [`publish`](Self::publish), of a close.
    pub(crate) fn publish_close(&mut self, key: Key) {
        if self.hold(Effect::CloseLeaves(key)).is_some() {
            self.apply_close(key, CloseInput::LeaveKept);
        }
    }

    fn apply_close(&mut self, key: Key, input: CloseInput) {
        if let Some(channel) = self.outgoing.get_mut(key) {
            channel.advance(input);
        }
        self.plan_close(key);
    }

    fn apply_decided(&mut self, key: Key, through: Sequence) {
        let decisions = self
            .outgoing
            .get_mut(key)
            .and_then(|channel| channel.decisions.as_mut());
        if let Some(decisions) = decisions {
            decisions.publish(through);
        }
        // Decisions wait for the peer's resume (R-RELINK-V4).
        let is_free =
            |transport: &&mut Transport| transport.works() && !transport.resuming.waits_for_peer();
        let transport = self.transport.as_mut().filter(is_free);
        if let Some(transport) = transport {
            transport.plan_decisions(key);
            // The close may have waited for this decision alone.
            self.plan_close(key);
        }
    }

    fn apply_answered(&mut self, key: Key, answered: Answered) {
        let Some(channel) = self.incoming.get_mut(key) else {
            return;
        };
        // If the outcomes of the channel are being announced, this one is announced too.
        let is_free =
            |transport: &Transport| transport.works() && !transport.resuming.is_replaying(key);
        let is_owed = channel.is_announced() && self.transport.as_ref().is_some_and(is_free);
        if let Some(outcomes) = &mut channel.outcomes {
            let before = outcomes.history_len();
            outcomes.publish(answered);
            if is_owed {
                outcomes.owe(answered);
            }
            let after = outcomes.history_len();
            self.count_outcomes(before, after);
        }
        if is_owed {
            self.owe(key);
        }
    }
}

fn snapshot_outgoing(channel: &ChannelId, state: &Outgoing, changes: &mut Vec<Change>) {
    let channel = || channel.clone();
    if state.is_acknowledged() || state.consumed().next() != Sequence(0) {
        changes.push(Change::Acknowledged {
            channel: channel(),
            through: state.consumed(),
        });
    }
    changes.extend(state.handed().map(|through| Change::HandedOver {
        channel: channel(),
        through,
    }));
    changes.extend(state.messages().map(|(sequence, payload)| Change::Sent {
        channel: channel(),
        sequence,
        payload: payload.clone(),
    }));
    if let Some(decisions) = &state.decisions {
        let runs = decisions.runs();
        if runs.base().next() != Sequence(0) {
            changes.push(Change::Outcome {
                channel: channel(),
                through: runs.base(),
            });
        }
        changes.extend(decisions.taken().map(|run| Change::Decided {
            channel: channel(),
            operation: run.operation,
            through: run.through,
        }));
    }
    if state.close() != Close::Open {
        changes.push(Change::Closing { channel: channel() });
    }
    if state.close().leaves() {
        changes.push(Change::CloseLeaves { channel: channel() });
    }
}

fn snapshot_incoming(channel: &ChannelId, state: &Incoming, changes: &mut Vec<Change>) {
    let channel = || channel.clone();
    if state.progress.has_consumed() {
        changes.push(Change::Consumed {
            channel: channel(),
            through: state.progress.consumed(),
        });
    }
    if let Some(outcomes) = &state.outcomes {
        changes.extend(outcomes.history().map(|run| Change::Answered {
            channel: channel(),
            committed: run.committed,
            through: run.through,
        }));
    }
}

const INCONSISTENT: UsageError = UsageError::new(
    "journal_inconsistent",
    "the changes are not those of one link in their order",
);
