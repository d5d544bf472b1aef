//! The subscriptions of this end to publishers of the peer, named by ids that this end chooses (REQ-RS-21).
//!
//! An id is used again after the stream has ended by itself, never after a cancel (REQ-RS-24, R-RS-13). Elements count
//! against the demand, one split into parts at its first part; more than were requested are a violation (REQ-RS-20,
//! R-RS-19, R-RS-20). Parts are joined by the publisher's number of their element and may come between other elements
//! (REQ-RS-27 to REQ-RS-29, R-RS-22 to R-RS-24), within the limits and the stream's size (R-RS-21, R-RS-26, R-RS-V13).
//! A stream cannot be complete inside an element (R-RS-25).

use std::collections::{BTreeMap, BTreeSet};

use ackline_core::{PART_BYTES, Payload, UsageError};
use bytes::{Bytes, BytesMut};

use crate::error::Subject;
use crate::{Kind, Limits, UNBOUNDED, refusal};

/// Ids that are kept for use again.
const MOST_FREE: usize = 1_024;

/// The table of this end's subscriptions.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    open: BTreeMap<u64, Subscription>,
    dropped: Dropped,
    /// Ids whose subscriptions have ended by themselves, [`MOST_FREE`] at the most.
    free: BTreeSet<u64>,
    /// No id from here on was used.
    next: u64,
    /// Elements that have come in part.
    unfinished: usize,
    /// Bytes of them.
    held: usize,
}

/// A subscription that has not ended.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// The size of the elements, once it was accepted.
    element_size: Option<u64>,
    demand: u64,
    /// Elements that have come in part, by the numbers that the publisher gave them.
    unfinished: BTreeMap<u64, Unfinished>,
}

#[derive(Debug, Default)]
struct Unfinished {
    pieces: Vec<Bytes>,
    /// The end of the element so far, while its parts are small: they are put together.
    tail: BytesMut,
    length: u64,
}

/// Parts of fewer bytes are put together.
const SMALL_PART: usize = 4 << 10;

impl Unfinished {
    fn held(&self) -> usize {
        let pieces = self.pieces.iter().map(Bytes::len);
        let held = pieces.fold(0, |sum, piece| {
            piece.saturating_add(PART_BYTES).saturating_add(sum)
        });
        held.saturating_add(self.tail.capacity())
    }

    fn push(&mut self, data: Bytes) {
        if data.len() < SMALL_PART {
            self.tail.extend_from_slice(&data);
            return;
        }
        self.end_tail();
        self.pieces.push(data);
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            // A copy holds no more than its bytes.
            self.pieces.push(Bytes::copy_from_slice(&self.tail));
            self.tail = BytesMut::new();
        }
    }
}

impl Subscription {
    pub(super) fn request(&mut self, demand: u64) {
        self.demand = self.demand.saturating_add(demand).min(UNBOUNDED);
    }

    /// Counts elements against the demand.
    fn take(&mut self, subscriber: u64, count: u64) -> Result<(), Kind> {
        let subject = Subject::Own(subscriber);
        let demand = self.demand;
        if demand == UNBOUNDED {
            return Ok(());
        }
        self.demand = demand.checked_sub(count).ok_or(Kind::DemandExceeded {
            subject,
            came: count,
            demand,
        })?;
        Ok(())
    }

    fn held(&self) -> usize {
        let unfinished = self.unfinished.values();
        unfinished.fold(0, |sum, one| one.held().saturating_add(sum))
    }
}

impl Subscriptions {
    pub(super) fn free_id(&self) -> u64 {
        let free = self.free.first().copied();
        free.unwrap_or_else(|| self.next.max(1))
    }

    pub(super) fn check_free(&self, subscriber: u64) -> Result<(), UsageError> {
        if self.open.contains_key(&subscriber) || self.dropped.has(subscriber) {
            return Err(refusal::SUBSCRIBER_IN_USE);
        }
        Ok(())
    }

    /// Begins a subscription whose id is free.
    pub(super) fn open(&mut self, subscriber: u64, demand: u64) {
        self.next = self.next.max(subscriber.saturating_add(1));
        self.free.remove(&subscriber);
        let subscription = Subscription {
            demand,
            ..Subscription::default()
        };
        self.open.insert(subscriber, subscription);
    }

    pub(super) fn get_mut(&mut self, subscriber: u64) -> Result<&mut Subscription, UsageError> {
        let found = self.open.get_mut(&subscriber);
        found.ok_or(refusal::UNKNOWN_SUBSCRIBER)
    }

    pub(super) fn demand(&self, subscriber: u64) -> Result<u64, UsageError> {
        let found = self.open.get(&subscriber);
        found
            .map(|one| one.demand)
            .ok_or(refusal::UNKNOWN_SUBSCRIBER)
    }

    /// Elements that have come in part.
    pub(super) fn begun(&self, subscriber: u64) -> Result<usize, UsageError> {
        let found = self.open.get(&subscriber);
        let one = found.ok_or(refusal::UNKNOWN_SUBSCRIBER)?;
        Ok(one.unfinished.len())
    }

    /// The size of the elements of a subscription that was accepted, also of a cancelled one.
    pub(super) fn element_size(&self, subscriber: u64) -> Option<u64> {
        match self.open.get(&subscriber) {
            Some(one) => one.element_size,
            None => self.dropped.element_size(subscriber),
        }
    }

    /// Bytes of elements that have come in part.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Ends a subscription whose elements may still come: they are dropped.
    pub(super) fn drop_input(&mut self, subscriber: u64) {
        if let Some(one) = self.remove(subscriber) {
            self.dropped.insert(subscriber, one.element_size);
        }
    }

    /// Ends all of them so; the result is their ids, ascending.
    pub(super) fn drop_all(&mut self) -> Vec<u64> {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        for id in &ids {
            self.drop_input(*id);
        }
        ids
    }

    fn remove(&mut self, subscriber: u64) -> Option<Subscription> {
        let one = self.open.remove(&subscriber)?;
        self.unfinished = self.unfinished.saturating_sub(one.unfinished.len());
        self.held = self.held.saturating_sub(one.held());
        Some(one)
    }

    /// Notes the acceptance of a subscription. Returns whether it was not cancelled; a second acceptance is a
    /// violation (R-RS-V4).
    pub(super) fn subscribed(&mut self, subscriber: u64, element_size: u64) -> Result<bool, Kind> {
        let subject = Subject::Own(subscriber);
        let Some(one) = self.open.get_mut(&subscriber) else {
            let is_known = self.dropped.learn(subscriber, element_size);
            return if is_known {
                Ok(false)
            } else {
                Err(Kind::UnknownSubscriber { subject })
            };
        };
        if one.element_size.is_some() {
            return Err(Kind::DuplicateSubscribed { subject });
        }
        one.element_size = Some(element_size);
        Ok(true)
    }

    /// Counts elements against the demand. Returns whether the subscription was not cancelled.
    pub(super) fn take(&mut self, subscriber: u64, count: u64) -> Result<bool, Kind> {
        let Some(one) = self.open.get_mut(&subscriber) else {
            return Ok(false);
        };
        one.take(subscriber, count)?;
        Ok(true)
    }

    /// Judges a part of an element: `length` bytes. Returns whether the subscription was not cancelled.
    pub(super) fn part(
        &mut self,
        (subscriber, element): (u64, u64),
        length: usize,
        is_last: bool,
        limits: &Limits,
    ) -> Result<bool, Kind> {
        let Some(one) = self.open.get_mut(&subscriber) else {
            return Ok(false);
        };
        let begun = one.unfinished.get(&element).map(|begun| begun.length);
        if begun.is_none() {
            one.take(subscriber, 1)?;
        }
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let length = begun.unwrap_or(0).saturating_add(length);
        let size = one.element_size.unwrap_or(0);
        if size == 0 {
            limits.element(length)?;
        } else if length > size || (is_last && length < size) {
            let subject = Subject::Own(subscriber);
            return Err(Kind::ElementSizeMismatch {
                subject,
                length,
                size,
            });
        }
        if begun.is_none() && !is_last {
            self.unfinished = self.unfinished.saturating_add(1);
            let count = u64::try_from(self.unfinished).unwrap_or(u64::MAX);
            let most = u64::try_from(limits.max_unfinished_elements).unwrap_or(u64::MAX);
            Limits::length(count, most, "--max-unfinished-elements")?;
        }
        if !is_last {
            one.unfinished.entry(element).or_default().length = length;
        }
        Ok(true)
    }

    /// Keeps a part that is not the last one.
    pub(super) fn keep(
        &mut self,
        (subscriber, element): (u64, u64),
        data: Bytes,
        limits: &Limits,
    ) -> Result<(), Kind> {
        let one = self.open.get_mut(&subscriber);
        let Some(unfinished) = one.and_then(|one| one.unfinished.get_mut(&element)) else {
            return Ok(());
        };
        let before = unfinished.held();
        unfinished.push(data);
        // The end of a run of small parts frees what it did not fill.
        let others = self.held.saturating_sub(before);
        self.held = others.saturating_add(unfinished.held());
        limits.unfinished(self.held)?;
        Ok(())
    }

    /// The element that ends with this part.
    pub(super) fn joined(&mut self, subscriber: u64, element: u64, last: Bytes) -> Payload {
        let one = self.open.get_mut(&subscriber);
        let found = one.and_then(|one| one.unfinished.remove(&element));
        let Some(mut found) = found else {
            return Payload::from(last);
        };
        self.unfinished = self.unfinished.saturating_sub(1);
        self.held = self.held.saturating_sub(found.held());
        if !last.is_empty() {
            found.push(last);
        }
        found.end_tail();
        if found.pieces.is_empty() {
            found.pieces.push(Bytes::new());
        }
        Payload::from_parts(found.pieces)
    }

    /// Whether a subscription that was not cancelled is complete now.
    pub(super) fn complete(&mut self, subscriber: u64) -> Result<bool, Kind> {
        let subject = Subject::Own(subscriber);
        match self.open.get(&subscriber) {
            None => return self.late(subscriber),
            // R-RS-V14.
            Some(one) if one.element_size.is_none() => {
                return Err(Kind::UnknownSubscriber { subject });
            }
            Some(one) if !one.unfinished.is_empty() => {
                let unfinished = one.unfinished.len();
                return Err(Kind::IncompleteElement {
                    subject,
                    unfinished,
                });
            }
            Some(_) => {}
        }
        self.remove(subscriber);
        Ok(true)
    }

    /// Whether a subscription that was not cancelled has ended with an error now; it need not be accepted (R-RS-17).
    pub(super) fn error(&mut self, subscriber: u64) -> Result<bool, Kind> {
        if !self.open.contains_key(&subscriber) {
            return self.late(subscriber);
        }
        self.remove(subscriber);
        Ok(true)
    }

    /// The end of a subscription that is not open: the id stays in use if it was cancelled (R-RS-V10).
    fn late(&self, subscriber: u64) -> Result<bool, Kind> {
        if self.dropped.has(subscriber) {
            return Ok(false);
        }
        let subject = Subject::Own(subscriber);
        Err(Kind::UnknownSubscriber { subject })
    }

    /// The application knows that a stream has ended: its id may be used again.
    pub(super) fn release(&mut self, subscriber: u64) {
        if self.free.len() < MOST_FREE && self.check_free(subscriber).is_ok() {
            self.free.insert(subscriber);
        }
    }
}

/// The ids of cancelled subscriptions: what still comes for them is delimited by the sizes of their elements, to the end
/// of the connection (R-RS-13). Ids in a row whose elements have one size take the memory of one.
#[derive(Debug, Default)]
struct Dropped {
    /// Runs of ids by the first one: the last one, and the size.
    runs: BTreeMap<u64, (u64, u64)>,
    /// Ids whose sizes did not come yet.
    unknown: BTreeSet<u64>,
}

impl Dropped {
    fn has(&self, id: u64) -> bool {
        self.unknown.contains(&id) || self.element_size(id).is_some()
    }

    fn element_size(&self, id: u64) -> Option<u64> {
        let (_, (last, size)) = self.runs.range(..=id).next_back()?;
        (id <= *last).then_some(*size)
    }

    fn insert(&mut self, id: u64, size: Option<u64>) {
        let Some(size) = size else {
            self.unknown.insert(id);
            return;
        };
        let before = self.runs.range(..id).next_back();
        let before = before.map(|(first, (last, size))| (*first, *last, *size));
        let joins = |last: u64, own: u64| last.checked_add(1) == Some(id) && own == size;
        let first = match before {
            Some((first, last, own)) if joins(last, own) => first,
            _ => id,
        };
        let next = id.checked_add(1);
        let behind = next.and_then(|next| self.runs.get(&next).copied().map(|run| (next, run)));
        let last = match behind {
            Some((next, (last, own))) if own == size => {
                self.runs.remove(&next);
                last
            }
            _ => id,
        };
        self.runs.insert(first, (last, size));
    }

    /// Notes the size of a cancelled subscription. Returns whether there is one of this id.
    fn learn(&mut self, id: u64, size: u64) -> bool {
        if self.unknown.remove(&id) {
            self.insert(id, Some(size));
            return true;
        }
        self.element_size(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::Dropped;

    proptest! {
        #[test]
        fn cancelled_ids_in_any_order_keep_their_sizes(
            ids in proptest::collection::vec((0_u64..40, proptest::option::of(0_u64..3), 0_u64..3), 0..60),
        ) {
            let mut dropped = Dropped::default();
            let mut model = BTreeMap::<u64, Option<u64>>::new();
            for (id, size, later) in ids {
                if dropped.has(id) {
                    prop_assert!(dropped.learn(id, later));
                    let known = model.entry(id).or_default();
                    *known = known.or(Some(later));
                } else {
                    dropped.insert(id, size);
                    model.insert(id, size);
                }
                for id in 0..41 {
                    prop_assert_eq!(dropped.element_size(id), model.get(&id).copied().flatten());
                    prop_assert_eq!(dropped.has(id), model.contains_key(&id));
                }
            }
        }
    }

    #[test]
    fn a_million_cancelled_ids_in_a_row_take_one_entry() {
        let mut dropped = Dropped::default();
        for id in 1..1_000_000 {
            dropped.insert(id, None);
            assert!(dropped.learn(id, 8));
        }
        assert_eq!((dropped.runs.len(), dropped.unknown.len()), (1, 0));
        assert!(!dropped.learn(1_000_000, 8));
    }
}
