//! How a receiver's links and its spool agree after a crash: a message is consumed because it is durable, and
//! whether it is durable the spool says.
//!
//! ```text
//! message ─► spool, fsync ─► consumed ─► link's journal, fsync ─► the sender is told
//!                        └── a crash here: the journal is behind, the spool is not
//! ```
//!
//! At a start each link's journal is brought up to what the spool holds of it, so that a message that was
//! kept and not acknowledged is not asked for again. For that the blocks from the last *settled* position on
//! are looked at, which stands in `settled`: everything below it is in the journals. A channel that is closed
//! and used again counts from 0 anew; where its last life ends in the spool stands in the journal.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use ackline_core::Sequence;
use ackline_link::Link;
use ackline_relink::{self as machine, Change, ChannelId, LinkKey};
use ackline_spool::{Spool, Writer};

use super::error::Error;
use super::intake::Intake;
use super::keeper::Carrier as _;
use super::state::Restored;

/// The spool that the messages of a receiver's links are landed in.
pub(crate) struct Landed {
    writer: Writer,
    /// Everything below is in the journals of its links.
    settled: AtomicU64,
    file: PathBuf,
}

impl Landed {
    /// With the settled position that an earlier process left in `dir`.
    pub(super) fn open(dir: &Path, writer: Writer) -> Self {
        let file = dir.join("settled");
        let found = fs::read_to_string(&file).ok();
        // Without it all that is kept is looked at.
        let settled = found.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Self {
            writer,
            settled: AtomicU64::new(settled),
            file,
        }
    }

    /// Every event below is durable.
    pub(super) fn durable(&self) -> u64 {
        self.writer.stats().durable
    }

    /// Everything below is in the journals of the links.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Moves the settled position on as far as is known, once.
    pub(super) async fn settle(self: &Arc<Self>, links: &[Link<Intake>]) {
        let durable = self.durable();
        if durable <= self.settled() {
            return;
        }
        let writer = self.writer.clone();
        let flushed = tokio::task::spawn_blocking(move || writer.flush(PATIENCE)).await;
        if !flushed.unwrap_or(false) {
            return;
        }
        // What was settled by now has been noted for the journal.
        for link in links {
            let written = link.when(0, |intake, _| {
                if intake.machine().is_journaling() {
                    return Poll::Pending;
                }
                Poll::Ready(())
            });
            let written = tokio::time::timeout(PATIENCE, written).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
        let temporary = self.file.with_extension("new");
        let written = fs::write(&temporary, durable.to_string())
            .and_then(|()| fs::rename(&temporary, &self.file));
        match written {
            Ok(()) => self.settled.store(durable, Ordering::Release),
            Err(error) => {
                tracing::debug!(code = "relink.unsettled", %error, "the next start looks at more blocks");
            }
        }
    }
}

/// The name of a link, as blocks have it.
pub(super) fn link_name(endpoint: &str, key: LinkKey) -> String {
    format!("{endpoint}/{}/{}", key.epoch, key.link_id)
}

/// What the spool holds of one channel: where its last block begins, and its last message.
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
            if block.protocol != super::SCHEME {
                continue;
            }
            let channel = block.stream.as_deref().and_then(channel_of);
            let first = u32::try_from(block.first_sequence).ok();
            let (Some(channel), Some(first)) = (channel, first) else {
                continue;
            };
            let last = Sequence(first).plus(block.count.saturating_sub(1));
            let link = found.0.entry(block.link).or_default();
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

/// How long the disk may take before the settled position stays where it is.
const PATIENCE: Duration = Duration::from_secs(2);
