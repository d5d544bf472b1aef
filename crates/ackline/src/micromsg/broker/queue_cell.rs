//! One queue of a broker: its messages, handed to receivers as these have room, and its publishers, who are told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ackline_core::locked;
use ackline_micromsg::Filter;
use ackline_micromsg::broker::{Finished, Routed};
use ackline_micromsg::queue::Queue;

use super::durable::Stored;
use super::hub::Hub;
use super::peer::Peer;

/// A queue behind a lock, which is taken before that of a link.
pub(super) struct QueueCell {
    pub(super) name: Arc<str>,
    state: Mutex<QueueState>,
}

pub(super) struct QueueState {
    pub(super) queue: Queue<Peer, Option<Origin>>,
    /// The spool's part; `None` of a queue in memory.
    pub(super) stored: Option<Stored>,
    /// Nobody finds it any more.
    is_removed: bool,
}

/// The publisher of a message that waits for its acknowledgement.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) publisher: Peer,
    /// The message's position on its connection.
    pub(super) position: u64,
}

impl PartialEq for QueueCell {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl std::fmt::Debug for QueueCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("QueueCell").field(&self.name).finish()
    }
}

impl QueueCell {
    pub(super) fn new(name: &str, most_aside: usize, stored: Option<Stored>) -> Arc<Self> {
        let mut queue = Queue::new(most_aside);
        queue.advance(stored.as_ref().map_or(0, |stored| stored.cursor.read_to()));
        Arc::new(Self {
            name: name.into(),
            state: Mutex::new(QueueState {
                queue,
                stored,
                is_removed: false,
            }),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        locked(&self.state)
    }

    /// Adds messages to a queue in memory. Returns whether that was possible: a queue that was removed takes none.
    pub(super) fn publish(
        self: &Arc<Self>,
        hub: &Hub,
        publisher: &Peer,
        messages: &[(Arc<Routed>, u64)],
    ) -> bool {
        let mut state = self.lock();
        if state.is_removed {
            return false;
        }
        for (message, position) in messages {
            let origin = Origin {
                publisher: publisher.clone(),
                position: *position,
            };
            let at = state.queue.next_position();
            state.queue.push(at, Arc::clone(message), Some(origin));
        }
        self.hand_out(hub, &mut state);
        true
    }

    /// Adds a receiver or changes its filter. Returns whether that was possible.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        hub: &Hub,
        receiver: &Peer,
        filter: Option<Arc<Filter>>,
    ) -> bool {
        let mut state = self.lock();
        if state.is_removed {
            return false;
        }
        state.queue.subscribe(receiver.clone(), filter);
        self.hand_out(hub, &mut state);
        drop(state);
        hub.wake_keeper();
        true
    }

    /// Takes acknowledgements of a receiver, and gives it further messages.
    pub(super) fn acked(
        self: &Arc<Self>,
        hub: &Hub,
        receiver: &Peer,
        positions: &[u64],
        finished: &mut Finished<Peer>,
    ) {
        let mut state = self.lock();
        let QueueState { queue, stored, .. } = &mut *state;
        let before = queue.bytes();
        for at in positions {
            if let Some(Some(origin)) = queue.ack(receiver, *at) {
                finished.add(origin.publisher, [origin.position]);
            }
        }
        if let Some(stored) = stored.as_mut().filter(|_| !positions.is_empty()) {
            stored.is_dirty = true;
        }
        let is_freed = [hub.limits.subscriber_bytes, hub.share()]
            .map(|most| before > most && queue.bytes() <= most);
        let is_wanting = stored
            .as_ref()
            .is_some_and(|stored| stored.cursor.is_behind());
        self.hand_out(hub, &mut state);
        drop(state);
        if is_freed.contains(&true) {
            hub.freed.notify_waiters();
        }
        if is_wanting || !positions.is_empty() {
            hub.wake_keeper();
        }
    }

    /// Hands a receiver no further messages.
    pub(super) fn unsubscribe(self: &Arc<Self>, hub: &Hub, receiver: &Peer) {
        self.without(hub, |queue| queue.unsubscribe(receiver));
    }

    /// Removes a receiver, also one that has unsubscribed: its messages go to others.
    pub(super) fn leave(self: &Arc<Self>, hub: &Hub, receiver: &Peer) {
        self.without(hub, |queue| queue.remove(receiver));
    }

    fn without(self: &Arc<Self>, hub: &Hub, remove: impl FnOnce(&mut Queue<Peer, Option<Origin>>)) {
        let mut state = self.lock();
        remove(&mut state.queue);
        let QueueState { queue, stored, .. } = &mut *state;
        if let Some(stored) = stored.as_mut().filter(|_| queue.receivers().len() == 0) {
            // They are on the disk.
            if let Some(first) = queue.drop_fresh() {
                stored.cursor.unread(first);
            }
        }
        self.hand_out(hub, &mut state);
    }

    /// Gives receivers the messages that they have room for.
    pub(super) fn hand_out(self: &Arc<Self>, hub: &Hub, state: &mut QueueState) {
        let is_moving = state.stored.as_ref().is_some_and(|stored| stored.is_moving);
        if hub.is_closing() || is_moving {
            return;
        }
        // The other half is for topics, whose messages do not wait in a queue.
        let most = hub.limits.subscriber_bytes / 2;
        state.queue.set_rooms(|receiver| receiver.room(most));
        let mut batches: BTreeMap<usize, (Peer, Vec<_>)> = BTreeMap::new();
        while let Some(handed) = state.queue.hand() {
            let slot = handed.receiver.slot;
            let batch = batches
                .entry(slot)
                .or_insert_with(|| (handed.receiver, Vec::new()));
            batch.1.push((handed.position, handed.message));
        }
        for (receiver, messages) in batches.into_values() {
            hub.counts.delivered(messages.len());
            receiver.hand(self, messages);
        }
    }

    /// Whether publishers to it may go on. With a spool its further messages are on the disk alone.
    pub(super) fn has_room(&self, hub: &Hub) -> bool {
        let state = self.lock();
        let pending = state.stored.as_ref().map(Stored::pending_bytes);
        let bytes = state.queue.bytes();
        let is_full = pending.is_none() && bytes > hub.limits.subscriber_bytes;
        !is_full && hub.has_memory_for(bytes.saturating_add(pending.unwrap_or(0)))
    }

    /// Marks a queue in memory as removed, if it has no messages and no receivers. Returns whether it is.
    pub(super) fn remove_if_idle(&self) -> bool {
        let mut state = self.lock();
        let queue = &state.queue;
        let is_idle = queue.receivers().len() == 0 && queue.bytes() == 0;
        state.is_removed |= is_idle && state.stored.is_none();
        state.is_removed
    }
}
