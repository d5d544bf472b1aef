//! One connection of a broker, as others see it: a subscriber that messages are delivered to, and a publisher that is
//! acknowledged.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_core::locked;
use ackline_link::{Link, PeerInfo};
use ackline_micromsg::broker::{Acks, HandedOut, Routed, Run};
use ackline_micromsg::queue::Room;
use ackline_micromsg::session::Session;

use super::queue_cell::QueueCell;

/// A connection. It is compared by itself, not by its content.
#[derive(Clone)]
pub(super) struct Peer(Arc<Inner>);

pub(super) struct Inner {
    pub(super) link: Link<Session>,
    pub(super) info: PeerInfo,
    /// Its place in the table of connections.
    pub(super) slot: usize,
    /// Further messages that its window has room for.
    room: AtomicUsize,
    /// Bytes that wait to be sent to it.
    waiting: AtomicUsize,
    /// Messages of queues that it has and has not acknowledged.
    handed: Mutex<HandedOut<Arc<QueueCell>>>,
    /// Their bytes.
    handed_bytes: AtomicUsize,
    /// Messages that it has published.
    published: Mutex<Acks>,
    is_refused: AtomicBool,
}

impl Peer {
    pub(super) fn new(link: Link<Session>, info: PeerInfo, slot: usize) -> Self {
        Self(Arc::new(Inner {
            link,
            info,
            slot,
            room: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            handed: Mutex::default(),
            handed_bytes: AtomicUsize::new(0),
            published: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }))
    }
}

impl Inner {
    /// Delivers messages of topics. Returns the bytes that wait for it then.
    pub(super) fn deliver(&self, messages: impl IntoIterator<Item = Run>) -> usize {
        self.link.call(|session, _| {
            // One that is over gets nothing more, and leaves soon.
            let _ = session.deliver(messages);
            self.note(session)
        })
    }

    /// Delivers messages of a queue, each with its position there.
    pub(super) fn hand(&self, queue: &Arc<QueueCell>, messages: Vec<(u64, Arc<Routed>)>) {
        self.link.call(|session, _| {
            let mut position = session.next_position();
            let mut handed = locked(&self.handed);
            let mut noted = messages.into_iter().map(|(at, message)| {
                handed.add(position, (Arc::clone(queue), at), message.bytes());
                position += 1;
                message
            });
            // The messages of one that is over, which takes none, go back when it leaves.
            let _ = session.deliver(noted.by_ref());
            noted.for_each(drop);
            self.handed_bytes.store(handed.bytes(), Ordering::Relaxed);
            drop(handed);
            self.note(session);
        });
    }

    /// Notes its room; returns the bytes that wait for it.
    fn note(&self, session: &Session) -> usize {
        let waiting = session.waiting_bytes();
        self.room
            .store(session.window_room().unwrap_or(0), Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
        waiting
    }

    /// Its room for messages of queues, where so many bytes may wait for it, and may be unacknowledged.
    pub(super) fn room(&self, most_bytes: usize) -> Room {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let handed = self.handed_bytes.load(Ordering::Relaxed);
        Room {
            messages: self.room.load(Ordering::Relaxed),
            bytes: most_bytes.saturating_sub(waiting.max(handed)),
        }
    }

    /// Takes its acknowledgements: by queue, the positions that it has acknowledged since.
    pub(super) fn take_acknowledged(&self) -> Vec<(Arc<QueueCell>, Vec<u64>)> {
        let through = self.link.call(|session, _| {
            self.note(session);
            session.acknowledged_count()
        });
        self.take_handed(through)
    }

    /// Takes all messages up to this position on the connection; all of them when it has left.
    pub(super) fn take_handed(&self, through: u64) -> Vec<(Arc<QueueCell>, Vec<u64>)> {
        let mut handed = locked(&self.handed);
        let taken = handed.take(through);
        self.handed_bytes.store(handed.bytes(), Ordering::Relaxed);
        taken
    }

    /// Adds messages that it has published, in the order in which they came, and acknowledges those that are finished.
    pub(super) fn publish(&self, finished: impl IntoIterator<Item = bool>) {
        let mut published = locked(&self.published);
        let before = published.through();
        finished.into_iter().for_each(|one| published.add(one));
        let through = published.through();
        drop(published);
        self.acknowledge(before, through);
    }

    /// Messages that it has published are finished.
    pub(super) fn finish(&self, positions: impl IntoIterator<Item = u64>) {
        let mut published = locked(&self.published);
        let before = published.through();
        positions.into_iter().for_each(|one| published.finish(one));
        let through = published.through();
        drop(published);
        self.acknowledge(before, through);
    }

    fn acknowledge(&self, before: u64, through: u64) {
        if before < through {
            // Without acknowledgements it is refused; one that is over hears nothing, and a later one says the same.
            let _ = self.link.call(|session, _| session.ack(through));
        }
    }

    /// Ends its connection with this reason, once. Returns whether this is the first time.
    pub(super) fn refuse(&self, reason: &str) -> bool {
        if self.is_refused.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.link.call(|session, _| {
            let _ = session.cut(reason);
        });
        self.link.close_within(LAST_BYTES);
        true
    }

    /// Bytes that wait to be sent to it now.
    pub(super) fn waiting_now(&self) -> usize {
        self.link.call(|session, _| self.note(session))
    }

    /// Bytes that waited to be sent to it when they were noted last.
    pub(super) fn waiting_noted(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

impl Deref for Peer {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Peer {}

impl Hash for Peer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Peer").field(&self.info.name).finish()
    }
}

/// Time for the peer's end of the transport behind ours.
const LAST_BYTES: Duration = Duration::from_secs(1);
