//! The demand of one subscription whose elements are landed: how many elements are requested, and when more are.
//!
//! Demand counts elements, and a spool has room for bytes. So this learns the size of the stream's elements, and requests
//! no more of them than the spool has room for and the connection's memory holds:
//!
//! ```text
//! outstanding · (size + SPOOL_OVERHEAD) ≤ what the stream is promised of the spool's room
//! outstanding · size                    ≤ its share of the memory
//! outstanding                           ≤ most, and ≤ 2 · elements seen, once one was seen
//! ```
//!
//! The size is the one that the publisher has announced; or the largest of the last elements; or, before the first element,
//! the largest that is allowed. One element may be outstanding even if it is larger than all of that, as long as the spool
//! has some room: an empty spool takes it.

use ackline_core::{Promised, Room};

/// The demand of one subscription.
#[derive(Debug)]
pub(super) struct Demand {
    bounds: Bounds,
    sizes: Sizes,
    /// Elements that are requested and have not come.
    coming: u64,
    /// Elements that have come and are not durable.
    landing: u64,
    promised: Promised,
}

/// The limits that do not change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most elements that are outstanding.
    pub(super) most: u64,
    /// Bytes of memory for them.
    pub(super) memory: u64,
    /// Bytes of the largest element that is allowed.
    pub(super) largest: u64,
}

impl Demand {
    pub(super) fn new(bounds: Bounds, room: &Room) -> Self {
        Self {
            bounds,
            sizes: Sizes::default(),
            coming: 0,
            landing: 0,
            promised: room.join(),
        }
    }

    /// The publisher has announced the size of every element; 0 is any size.
    pub(super) const fn announced(&mut self, size: u64) {
        self.sizes.announced = size;
    }

    /// So many elements have come, of so many bytes each.
    pub(super) fn came(&mut self, count: u64, bytes: u64) {
        self.sizes.see(count, bytes);
        self.coming = self.coming.saturating_sub(count);
        self.landing = self.landing.saturating_add(count);
    }

    /// So many elements are durable.
    pub(super) fn landed(&mut self, count: u64) {
        self.landing = self.landing.saturating_sub(count);
        self.promise();
    }

    /// No more elements come.
    pub(super) fn ended(&mut self) {
        self.coming = 0;
        self.promised.wait(false);
        self.promise();
    }

    /// The number of elements to request now, which counts as requested. They are gathered: fewer than half of those that
    /// may be outstanding are not requested.
    pub(super) fn take(&mut self) -> u64 {
        self.promise();
        let without_spool = self.without_spool();
        // Whatever room the spool has.
        if self.missing(without_spool) == 0 {
            self.promised.wait(false);
            return 0;
        }
        let allowed = self.in_spool().min(without_spool);
        let missing = self.missing(allowed);
        // With elements under way, the next one that lands leads here again.
        self.promised.wait(missing == 0 && self.outstanding() == 0);
        self.coming = self.coming.saturating_add(missing);
        self.promise();
        missing
    }

    /// Whether no element is outstanding, for lack of room in the spool.
    pub(super) const fn is_waiting(&self) -> bool {
        self.promised.is_waiting()
    }

    fn outstanding(&self) -> u64 {
        self.coming.saturating_add(self.landing)
    }

    /// The elements that lack to `allowed`; none if they are few.
    fn missing(&self, allowed: u64) -> u64 {
        let missing = allowed.saturating_sub(self.outstanding());
        if missing >= allowed.div_ceil(2) {
            missing
        } else {
            0
        }
    }

    /// The elements that may be outstanding if the spool had room for all of them.
    fn without_spool(&self) -> u64 {
        let by_memory = self.bounds.memory.checked_div(self.size());
        let by_memory = by_memory.map_or(u64::MAX, |elements| elements.max(1));
        self.bounds.most.min(by_memory).min(self.sizes.trusted())
    }

    /// The elements that may be outstanding by the spool's room. Half of the room that is left goes to this stream, so that
    /// another one gets some, too.
    fn in_spool(&self) -> u64 {
        let (left, cost) = (self.promised.left(), self.cost());
        let bytes = self.promised.bytes().saturating_add(left / 2);
        let elements = bytes.checked_div(cost).unwrap_or(u64::MAX);
        // A part of the spool is enough to ask for one element, whose size is unknown or above that part.
        let part = if self.sizes.are_known() { 2 } else { 8 };
        let capacity = self.promised.room().capacity();
        let is_alone = self.outstanding() == 0 && left > 0;
        let fits = left >= cost.min(capacity.checked_div(part).unwrap_or(0));
        elements.max(u64::from(is_alone && fits))
    }

    fn promise(&mut self) {
        let bytes = self.outstanding().saturating_mul(self.cost());
        self.promised.set(bytes);
    }

    fn size(&self) -> u64 {
        self.sizes.size().unwrap_or(self.bounds.largest)
    }

    /// Bytes of the spool that an element may take.
    fn cost(&self) -> u64 {
        self.size().saturating_add(SPOOL_OVERHEAD)
    }
}

/// The sizes of a stream's elements.
#[derive(Debug, Default)]
struct Sizes {
    /// The size of every element, or 0.
    announced: u64,
    /// Elements that have come.
    seen: u64,
    /// The largest one since the last turn, and the number of those seen.
    recent: (u64, u64),
    /// The largest one of the turn before.
    before: u64,
}

impl Sizes {
    fn see(&mut self, count: u64, bytes: u64) {
        self.seen = self.seen.saturating_add(count);
        let (largest, seen) = self.recent;
        self.recent = (largest.max(bytes), seen.saturating_add(count));
        if self.recent.1 >= TURN {
            self.before = self.recent.0;
            self.recent = (0, 0);
        }
    }

    /// Bytes of an element; `None` before the first one.
    fn size(&self) -> Option<u64> {
        if self.announced > 0 {
            return Some(self.announced);
        }
        self.are_known().then(|| self.recent.0.max(self.before))
    }

    const fn are_known(&self) -> bool {
        self.announced > 0 || self.seen > 0
    }

    /// Elements that may be outstanding because so many were seen: a few small ones say little about the next ones.
    const fn trusted(&self) -> u64 {
        if self.announced > 0 || self.seen == 0 {
            return u64::MAX;
        }
        self.seen.saturating_mul(2)
    }
}

/// Elements after which earlier ones are forgotten, once as many more have come.
const TURN: u64 = 1_024;

/// Bytes that a group with one element takes in the spool beside the element, with the columns of its row. A slow stream
/// has a group for each element.
const SPOOL_OVERHEAD: u64 = 4_096;

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)] // a test may fail
mod tests;
