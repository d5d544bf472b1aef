//! How far the own messages are, for who was not there when they were sent.

use ackline_core::Sequence;

use super::Link;
use super::outgoing::{Outgoing, before};
use super::transactions::Decisions;
use crate::ChannelId;
use crate::frame::Operation;

/// How far the messages of an own channel that is open are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The own channel.
    pub channel: &'a ChannelId,
    /// The last message before the first that is not over: not consumed, or in a transactional direction
    /// without its outcome. `None` where the first of the channel's life is that.
    pub over: Option<Sequence>,
    /// The number before the first message that is not over, whether or not there is such a message.
    pub before: Sequence,
    /// The last message that is consumed.
    pub consumed: Sequence,
    /// The last message that is consumed, or whose payload stayed with another process: those behind it are
    /// [unacknowledged](Link::unacknowledged).
    pub absent: Sequence,
    /// Decisions on messages behind `over`: whether it is a commit, and the last message.
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
        self.journal.as_ref().map_or(0, |journal| journal.noted)
    }

    /// How many of them are [in the journal](Self::journaled).
    pub fn changes_kept(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.kept)
    }
}

fn standing<'a>(channel: &'a ChannelId, own: &Outgoing) -> Standing<'a> {
    let consumed = own.consumed();
    let answered = own.decisions.as_ref().map(|own| own.runs().base());
    let least = match answered {
        Some(answered) if consumed.is_after(answered) => answered,
        _ => consumed,
    };
    // At the start of a life the number before the first message is no message's.
    let is_message = least != before(Sequence(0)) || (least == consumed && own.is_acknowledged);
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
