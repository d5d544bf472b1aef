//! What the verbs on a link may name now, for who has named something else.

use ackline_core::Sequence;

use super::Link;
use crate::ChannelId;

impl Link {
    /// The peer's messages on a channel that were delivered and not consumed; `None`: there is none.
    pub fn unconsumed(&self, channel: &ChannelId) -> Option<(Sequence, Sequence)> {
        let key = self.incoming.look(channel.as_bytes())?;
        let channel = self.incoming.get(key)?;
        let between = (channel.consumed().next(), channel.received());
        (channel.unconsumed() > 0).then_some(between)
    }

    /// The own messages on a channel that may be decided; `None`: there is none.
    pub fn undecided(&self, channel: &ChannelId) -> Option<(Sequence, Sequence)> {
        let key = self.outgoing.look(channel.as_bytes())?;
        let channel = self.outgoing.get(key)?;
        let decided = channel.decisions.as_ref()?.runs().through();
        let last = channel.last();
        last.is_after(decided).then(|| (decided.next(), last))
    }

    /// From the first to the last of the messages on a channel that the peer has committed and that are not
    /// answered; `None`: there is none.
    pub fn unanswered(&self, channel: &ChannelId) -> Option<(Sequence, Sequence)> {
        let key = self.incoming.look(channel.as_bytes())?;
        let channel = self.incoming.get(key)?;
        channel.outcomes.as_ref()?.unanswered()
    }

    /// How many messages the link had delivered before the first one of the channel that is open under this id
    /// now: older ones on it are of a channel that was closed. `None`: there is none.
    pub fn opened_at(&self, channel: &ChannelId) -> Option<u64> {
        let key = self.incoming.look(channel.as_bytes())?;
        self.incoming.get(key).map(|channel| channel.opened_at)
    }
}
