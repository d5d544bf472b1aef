//! The spool's record of the links of an earlier process: see [`landed`](super::landed).

use std::collections::HashMap;

use ackline_core::Sequence;
use ackline_relink::{self as machine, Change, ChannelId, Error};
use ackline_spool::Spool;

use super::landed::link_name;
use super::state::Restored;

/// The position of the first message of a channel's last block in the spool, and the channel's last message
/// there.
type Last = (u64, Sequence);

/// The last messages of the channels of links, by the link's name.
#[derive(Debug, Default)]
pub(super) struct Found(HashMap<String, HashMap<ChannelId, Last>>);

impl Found {
    /// Looks at the spool's blocks from `settled` on.
    pub(super) fn look(spool: &Spool, settled: u64) -> Result<Self, Error> {
        let begin = spool.first_kept().map_err(Error::state)?.max(settled);
        let end = spool.durable().map_err(Error::state)?;
        let mut found = Self::default();
        if begin >= end {
            return Ok(found);
        }
        for block in spool.blocks(begin..end).map_err(Error::state)? {
            let block = block.map_err(Error::state)?;
            if block.origin.protocol != super::SCHEME {
                continue;
            }
            let channel = block.origin.stream.as_deref().and_then(channel_of);
            let first = u32::try_from(block.first_sequence).ok();
            let (Some(channel), Some(first)) = (channel, first) else {
                continue;
            };
            let last = Sequence(first).plus(block.count.saturating_sub(1));
            let link = found.0.entry(block.origin.link).or_default();
            link.insert(channel, (block.first_position, last));
        }
        Ok(found)
    }

    /// The link with everything consumed that the spool holds of it.
    pub(super) fn caught_up(&self, mut restored: Restored) -> Result<Restored, Error> {
        let machine = &restored.machine;
        let name = link_name(
            restored.journal.origin().endpoint_name.as_str(),
            machine.key(),
        );
        let Some(channels) = self.0.get(&name) else {
            return Ok(restored);
        };
        let mut changes = machine.snapshot();
        let consumed: HashMap<_, _> = changes.iter().filter_map(consumed_of).collect();
        let missed: Vec<_> = channels
            .iter()
            .filter(|(channel, (position, last))| {
                let known = consumed.get(channel.as_bytes());
                !restored.journal.has_ended(channel, *position)
                    && known.is_none_or(|known| last.is_after(*known))
            })
            .map(|(channel, (_, last))| Change::Consumed {
                channel: channel.clone(),
                through: *last,
            })
            .collect();
        changes.extend(missed);
        let config = machine.config().clone();
        restored.machine = machine::Link::restore(config, changes).map_err(Error::state)?;
        Ok(restored)
    }
}

/// The last message that a snapshot's change says to be consumed.
fn consumed_of(change: &Change) -> Option<(ChannelId, Sequence)> {
    match change {
        Change::Consumed { channel, through } => Some((channel.clone(), *through)),
        _ => None,
    }
}

/// The channel of a block's stream.
fn channel_of(hex: &str) -> Option<ChannelId> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let id: Option<Vec<u8>> = digits.map(byte).collect();
    id.map(|id| ChannelId::from(id.as_slice()))
}
