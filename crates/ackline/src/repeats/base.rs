//! The digests that a sender's events are compared with.

use std::collections::HashMap;
use std::sync::Arc;

use ackline_spool::Digests;

use super::multiset::Multiset;
use super::order::Ordered;
use super::trail::{Block, Events, Standing, Trail};

/// The digests that one sender's events are compared with.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// Of connections that may have been cut off: each event by itself.
    pub(super) digests: Multiset,
    /// Of connections that ended in order.
    pub(super) ordered: Ordered,
    /// Something was asked for: it holds everything that is not counted as unread.
    pub(super) is_begun: bool,
    /// By connection.
    read: HashMap<u64, Read>,
    /// Events of these, and of such as are forgotten since.
    events: u64,
    gone: u64,
    /// Those that were open when they were read.
    open: Vec<u64>,
}

/// The part that is held of one connection.
#[derive(Debug)]
struct Read {
    trail: Arc<Trail>,
    /// The standing that it was read with.
    standing: Standing,
    /// Up to which of its blocks, and how many events.
    to: u64,
    events: u64,
    /// Earlier blocks were left out.
    is_cut: bool,
}

/// A block that is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The position of its first event.
    pub(super) first: u64,
    trail: u64,
    in_order: bool,
}

impl Base {
    /// Digests that are held.
    pub(super) fn len(&self) -> usize {
        self.digests.len() + self.ordered.len()
    }

    /// Whether there is nothing to compare with.
    pub(super) fn is_empty(&self) -> bool {
        self.digests.len() == 0 && self.ordered.is_empty()
    }

    /// Holds the last blocks of these connections, `most` events of all at the most: the blocks to read for that, in
    /// order, which are counted as read.
    pub(super) fn wanted(&mut self, others: &[Arc<Trail>], most: u64) -> Vec<Wanted> {
        let mut blocks: Vec<(Block, &Arc<Trail>, Standing)> = Vec::new();
        for trail in others {
            let standing = trail.standing();
            if standing == Standing::Open {
                continue;
            }
            let from = self.read.get(&trail.id).map_or(0, |read| read.to);
            let new = trail.blocks_from(from).into_iter();
            blocks.extend(new.map(|block| (block, trail, standing)));
        }
        // Those that are not durable yet are the last ones.
        blocks.sort_by_key(|(block, _, _)| match &block.events {
            Events::Stored(span) => span.first,
            Events::Known(_) => u64::MAX,
        });
        let mut left = most.saturating_sub(self.events);
        let (mut wanted, mut known) = (Vec::new(), Vec::new());
        for (block, trail, standing) in blocks.into_iter().rev() {
            let events = match &block.events {
                Events::Stored(span) => span.events.into(),
                Events::Known(digests) => digests.len() as u64,
            };
            let open = &mut self.open;
            let read = self.read.entry(trail.id).or_insert_with(|| {
                if !trail.is_ended() {
                    open.push(trail.id);
                }
                Read {
                    trail: Arc::clone(trail),
                    standing,
                    to: 0,
                    events: 0,
                    is_cut: false,
                }
            });
            read.to = read.to.max(block.number + 1);
            if left < events || read.is_cut {
                // In order there is no hole.
                read.is_cut = standing == Standing::InOrder;
                continue;
            }
            left -= events;
            read.events += events;
            self.events += events;
            match block.events {
                Events::Stored(span) => wanted.push(Wanted {
                    first: span.first,
                    trail: trail.id,
                    in_order: standing == Standing::InOrder,
                }),
                Events::Known(digests) => known.extend_from_slice(&digests),
            }
        }
        self.digests.add(known);
        wanted.reverse();
        wanted
    }

    /// Adds the events that were read.
    pub(super) fn add(&mut self, wanted: &[Wanted], digests: Digests) {
        let mut found = digests.found.into_iter();
        let (mut cut, mut ordered) = (Vec::new(), HashMap::<u64, Vec<u128>>::new());
        for (block, events) in wanted.iter().zip(digests.events) {
            let Some(events) = events else {
                // Its neighbours are not in a row.
                ordered.remove(&block.trail);
                continue;
            };
            let digests = found.by_ref().take(events);
            if block.in_order {
                ordered.entry(block.trail).or_default().extend(digests);
            } else {
                cut.extend(digests);
            }
        }
        self.digests.add(cut);
        self.ordered.add(ordered);
    }

    /// Forgets these connections, and the events of a connection that were read under a standing that it does
    /// not have any more. Single digests cannot be told from others': then all of them go, to be read again
    /// on need; for forgotten events once half of the digests are such.
    pub(super) fn forget(&mut self, forgotten: &[u64]) {
        let read = &self.read;
        let mut is_changed = false;
        self.open.retain(|id| {
            let read = read.get(id);
            is_changed |= read.is_some_and(|read| read.trail.standing() != read.standing);
            read.is_some_and(|read| !read.trail.is_ended())
        });
        for id in forgotten {
            self.gone += self.read.remove(id).map_or(0, |read| read.events);
        }
        if is_changed || (self.gone > 0 && self.gone * 2 >= self.events) {
            *self = Self::default();
        }
    }
}
