//! The messages that the verbs on a link may name now, for the error about one that they may not.

use ackline_core::Sequence;

use super::Link;
use super::incoming::Incoming;
use crate::ChannelId;

impl Link {
    /// The first and the last message of the peer's channel that were delivered and not consumed; `None`: there is none.
    pub fn unconsumed(&self, channel: &ChannelId) -> Option<(Sequence, Sequence)> {
        let key = self.incoming.look(channel.as_bytes())?;
        let channel = self.incoming.get(key)?;
        let progress = &channel.progress;
        let between = (progress.consumed().next(), progress.received());
        (progress.unconsumed() > 0).then_some(between)
    }

    /// The first and the last own message on a channel that may be decided; `None`: there is none.
    pub fn undecided(&self, channel: &ChannelId) -> Option<(Sequence, Sequence)> {
        let key = self.outgoing.look(channel.as_bytes())?;
        let channel = self.outgoing.get(key)?;
        let decided = channel.decisions.as_ref()?.runs().through();
        let last = channel.last();
        last.is_after(decided).then(|| (decided.next(), last))
    }

    /// The first and the last message on a channel that the peer has committed and this end has not answered; `None`:
    /// there is none.
    pub fn unanswered(&self, channel: &ChannelId) -> Option<(Sequence, Sequence)> {
        let key = self.incoming.look(channel.as_bytes())?;
        let channel = self.incoming.get(key)?;
        channel.outcomes.as_ref()?.unanswered()
    }

    /// How many messages the link had delivered before the first one of the channel that is open under this id now: older
    /// messages with this id belong to a closed channel. `None`: no channel is open.
    pub fn opened_at(&self, channel: &ChannelId) -> Option<u64> {
        let key = self.incoming.look(channel.as_bytes())?;
        self.incoming.get(key).map(Incoming::opened_at)
    }
}
