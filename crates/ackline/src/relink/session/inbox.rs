//! The messages, decisions and events that a link has received and the application has not taken.

use std::collections::VecDeque;

use ackline_core::Sequence;
use ackline_relink::{ChannelId, LinkKey, Payload};

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The peer's channel.
    pub channel: ChannelId,
    /// Its number there.
    pub sequence: Sequence,
    /// Its parts.
    pub payload: Payload,
    /// The number of messages that had come over the link before it, on all channels.
    pub(in crate::relink) place: u64,
}

/// A decision of the peer's on messages that it sent in a transactional direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The peer's channel.
    pub channel: ChannelId,
    /// Whether they are to be processed; else they are rolled back.
    pub is_commit: bool,
    /// The last of the messages; the first follows those decided before.
    pub through: Sequence,
}

/// An event of a link, other than a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A transport carries the link.
    Connected {
        /// Not for the first time.
        resumed: bool,
    },
    /// The transport is gone; the link goes on without it.
    Disconnected,
    /// The peer has told all that it had got before the cut.
    Resumed,
    /// The peer closes its channel.
    Closing {
        /// The peer's channel.
        channel: ChannelId,
    },
    /// An own channel is closed.
    Closed {
        /// The own channel.
        channel: ChannelId,
        /// Its messages that were never acknowledged as consumed.
        unacknowledged: u32,
    },
    /// The peer opens no more channels.
    PeerShutdown,
}

/// Messages, decisions and events that wait to be taken.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) messages: VecDeque<Message>,
    /// Messages that have come, taken or not.
    came: u64,
    pub(super) decisions: VecDeque<Decided>,
    /// Whether it was logged that nothing is read because of decisions that wait.
    is_stalled: bool,
    pub(super) events: VecDeque<Event>,
    /// Events that nobody took in time.
    pub(super) missed: u64,
}

impl Inbox {
    /// An empty one, after so many messages.
    pub(super) fn new(came: u64) -> Self {
        Self {
            messages: VecDeque::new(),
            came,
            decisions: VecDeque::new(),
            is_stalled: false,
            events: VecDeque::new(),
            missed: 0,
        }
    }

    pub(super) fn message(&mut self, channel: ChannelId, sequence: Sequence, payload: Payload) {
        let place = self.came;
        self.came += 1;
        self.messages.push_back(Message {
            channel,
            sequence,
            payload,
            place,
        });
    }

    /// An event; of more than [`MAX_EVENTS`] the oldest goes.
    pub(super) fn event(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
            self.missed += 1;
        }
        self.events.push_back(event);
    }

    pub(super) fn take_decision(&mut self) -> Option<Decided> {
        let decided = self.decisions.pop_front();
        self.is_stalled &= !self.decisions.is_empty();
        decided
    }

    /// Whether nothing more may be read until decisions are taken. Logged once.
    pub(super) fn is_full(&mut self, key: LinkKey) -> bool {
        if self.decisions.len() < MAX_DECISIONS {
            return false;
        }
        if !std::mem::replace(&mut self.is_stalled, true) {
            let LinkKey { epoch, link_id } = key;
            tracing::warn!(
                code = "relink.decisions_wait",
                epoch,
                link_id,
                decisions = MAX_DECISIONS,
                "the link reads nothing more until the application takes decisions"
            );
        }
        true
    }

    /// Bytes of the messages beside their payloads: a message without a byte takes room too.
    pub(super) fn held_bytes(&self) -> usize {
        self.messages.len().saturating_mul(size_of::<Message>())
    }
}

/// Events that wait to be taken; above it the oldest goes.
const MAX_EVENTS: usize = 1_024;
/// Decisions that wait to be taken; at so many nothing more is read.
const MAX_DECISIONS: usize = 65_536;
