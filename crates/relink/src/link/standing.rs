//! How far the own messages are, for an application that has restarted since it sent them.

use ackline_core::Sequence;

use super::Link;
use super::journal::Journal;
use super::outgoing::{Outgoing, before};
use super::transactions::Decisions;
use crate::ChannelId;
use crate::frame::Operation;

/// How far the messages of an open own channel are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The own channel.
    pub channel: &'a ChannelId,
    /// The last message before the first one that is not over. A message is over once it is consumed and, in a
    /// transactional direction, has its outcome. `None`: no message of the channel's life is over.
    pub over: Option<Sequence>,
    /// The number before the first message that is not over, whether or not there is such a message.
    pub before: Sequence,
    /// The last message that is consumed.
    pub consumed: Sequence,
    /// The last message without a payload here, because it is consumed or its payload stayed with another process. The
    /// messages after it are [unacknowledged](Link::unacknowledged).
    pub absent: Sequence,
    /// The decisions on messages after `over`: whether each is a commit, and its last message.
    pub decided: Vec<(bool, Sequence)>,
}

impl Link {
    /// The own channels that are open, by ascending id.
    pub fn standings(&self) -> impl Iterator<Item = Standing<'_>> {
        let own = self.outgoing.iter();
        own.map(|(channel, own)| standing(channel, own))
    }

    /// Changes that were noted for the journal since this end was made; 0 without a journal.
    pub fn changes_noted(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::noted)
    }

    /// How many of them are [in the journal](Self::journaled).
    pub fn changes_kept(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::kept)
    }
}

fn standing<'a>(channel: &'a ChannelId, own: &Outgoing) -> Standing<'a> {
    let consumed = own.consumed();
    let answered = own.decisions.as_ref().map(|own| own.runs().base());
    let least = match answered {
        Some(answered) if consumed.is_after(answered) => answered,
        _ => consumed,
    };
    // At the start of a life no message has the number before the first one.
    let is_message = least != before(Sequence(0)) || (least == consumed && own.is_acknowledged());
    let decided = own.decisions.iter().flat_map(Decisions::taken);
    let decided = decided.map(|run| (run.operation == Operation::Commit, run.through));
    Standing {
        channel,
        over: is_message.then_some(least),
        before: least,
        consumed,
        absent: own.handed().unwrap_or(consumed),
        decided: decided.collect(),
    }
}
