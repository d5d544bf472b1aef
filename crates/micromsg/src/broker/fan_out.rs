//! Messages to topics on their way to subscribers: those of one batch are gathered for each subscriber, so that its lock is
//! taken once.

use std::hash::Hash;
use std::sync::Arc;
use std::vec::Drain;

use super::{Held, LastBlock, Routed};
use crate::Message;
use crate::subscriptions::Subscriptions;

/// The messages of a batch, by subscriber; `P` is one. It is empty between batches.
#[derive(Debug)]
pub struct FanOut<P> {
    /// By the subscribers' places.
    groups: Vec<Group<P>>,
    /// The places that have messages.
    used: Vec<usize>,
    /// The memory of the last message.
    last: LastBlock,
}

#[derive(Debug)]
struct Group<P> {
    subscriber: Option<P>,
    messages: Vec<Arc<Routed>>,
}

impl<P> Default for FanOut<P> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            used: Vec::new(),
            last: LastBlock::default(),
        }
    }
}

impl<P: Clone + Eq + Hash> FanOut<P> {
    /// Adds a message for every subscriber whose filter it matches. `place` is a small number that each subscriber has alone.
    pub fn add(
        &mut self,
        topics: &Subscriptions<P>,
        held: &Arc<Held>,
        message: &Message,
        place: impl Fn(&P) -> usize,
    ) {
        let properties = message.properties();
        let mut routed = None;
        for subscriber in topics.matching(message.destination(), &properties) {
            let routed = routed.get_or_insert_with(|| held.routed(message, &mut self.last));
            let routed = Arc::clone(routed);
            self.push(subscriber, place(subscriber), routed);
        }
    }

    fn push(&mut self, subscriber: &P, place: usize, message: Arc<Routed>) {
        if self.groups.len() <= place {
            self.groups.resize_with(place.saturating_add(1), || Group {
                subscriber: None,
                messages: Vec::new(),
            });
        }
        let Some(group) = self.groups.get_mut(place) else {
            return;
        };
        if group.subscriber.is_none() {
            group.subscriber = Some(subscriber.clone());
            self.used.push(place);
        }
        group.messages.push(message);
    }

    /// Calls `deliver` with each subscriber and its messages; returns the number of deliveries.
    pub fn take(&mut self, mut deliver: impl FnMut(P, Drain<'_, Arc<Routed>>)) -> usize {
        let mut delivered = 0_usize;
        self.last = LastBlock::default();
        for place in self.used.drain(..) {
            let Some(group) = self.groups.get_mut(place) else {
                continue;
            };
            if let Some(subscriber) = group.subscriber.take() {
                delivered = delivered.saturating_add(group.messages.len());
                deliver(subscriber, group.messages.drain(..));
            }
            if group.messages.capacity() > KEPT_PLACES {
                group.messages = Vec::new();
            }
        }
        delivered
    }
}

/// Messages of one subscriber for which memory is kept for the next batch.
const KEPT_PLACES: usize = 64;
