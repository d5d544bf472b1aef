//! Recognises events that were sent before, because their acknowledgement was cut off.
//!
//! A protocol without resume cannot say that it sends again. While links are healthy only positions are
//! kept: of the last windows that each connection landed ([`trail`]). When a connection has ended, or after
//! a start, and its sender is back, those blocks are read, their events digested, and the events of its new
//! windows compared with them ([`judge`]), until a few whole windows match nothing. It does not know any
//! protocol, and it never decides the fate of a repeat: that is the reader's choice.

mod base;
mod before;
mod judge;
mod member;
mod multiset;
mod order;
mod sender;
mod trail;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_core::locked;
use ackline_spool::{Digester, Ends, Spool, SpoolError};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use base::{Base, Wanted};
use before::Before;
pub(crate) use judge::Judge;
pub(crate) use member::Member;
use multiset::Multiset;
use sender::Sender;
pub(crate) use trail::{Span, Trail};

/// The state that is remembered of all senders of one spool. Shared by all its connections.
pub(crate) struct Repeats {
    spool: Spool,
    digester: Digester,
    before: Before,
    /// Connections that ended in order, for the next start.
    ends: Ends,
    /// Held while the blocks that a sender landed before this start are handed to it: a connection that comes
    /// at the same time is to find them there.
    handing: tokio::sync::Mutex<()>,
    senders: Mutex<Senders>,
    /// Connections that have ended, and digests in memory, of all senders.
    departed: Arc<AtomicUsize>,
    held: AtomicUsize,
    reading: Semaphore,
    has_said_full: AtomicBool,
}

#[derive(Default)]
struct Senders {
    known: HashMap<Arc<str>, Arc<Sender>>,
    /// Senders at which those that nothing is known of are let go.
    sweep_at: usize,
}

impl Repeats {
    /// Of a spool that was just opened; where acknowledgements wait for commits, with the consumer's mark.
    pub(crate) fn new(spool: Spool, mark: Option<u64>) -> Result<Self, SpoolError> {
        let (ends, in_order) = spool.ends()?;
        Ok(Self {
            digester: spool.digester()?,
            before: Before::new(spool.durable()?, mark, in_order),
            ends,
            spool,
            handing: tokio::sync::Mutex::default(),
            senders: Mutex::default(),
            departed: Arc::default(),
            held: AtomicUsize::new(0),
            reading: Semaphore::new(READERS),
            has_said_full: AtomicBool::new(false),
        })
    }

    /// The sender of this name, as one of whose connections `trail` counts from here on, and whether there is
    /// anything to compare it with. `None` where too many are known already.
    async fn join(
        self: &Arc<Self>,
        name: &Arc<str>,
        trail: &Arc<Trail>,
    ) -> Option<(Arc<Sender>, bool)> {
        if self.before.is_over() {
            return self.enter(name, trail, Vec::new());
        }
        let _handing = self.handing.lock().await;
        let before = self.of_before(name).await;
        let entered = self.enter(name, trail, before);
        self.before.end_if_empty();
        entered
    }

    fn enter(
        &self,
        name: &Arc<str>,
        trail: &Arc<Trail>,
        before: Vec<Arc<Trail>>,
    ) -> Option<(Arc<Sender>, bool)> {
        let mut senders = locked(&self.senders);
        if !senders.known.contains_key(name) && senders.known.len() >= senders.sweep_at {
            senders.known.retain(|_, sender| {
                let is_kept = !sender.is_forgotten();
                if !is_kept {
                    self.drop_digests(sender);
                }
                is_kept
            });
            senders.sweep_at = (senders.known.len() * 2).clamp(1_024, MOST_SENDERS);
            let is_full = senders.known.len() >= MOST_SENDERS;
            if is_full && !self.make_room(&mut senders) {
                return None;
            }
        }
        let sender = senders.known.entry(Arc::clone(name));
        let sender = Arc::clone(sender.or_insert_with(|| Arc::new(Sender::new(&self.departed))));
        // While the table is locked: it does not let go of the sender in between.
        let compares = sender.join(trail, before, self.before.since());
        drop(senders);
        Some((sender, compares))
    }

    /// Forgets the sender that has been away for longest; whether there was one.
    fn make_room(&self, senders: &mut Senders) -> bool {
        if !self.has_said_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                code = "receiver.repeats_senders",
                limit = MOST_SENDERS,
                "more senders than can be remembered: resends of the senders that were away for longest are not marked"
            );
        }
        let away = senders.known.iter();
        let away = away.filter_map(|(name, sender)| Some((sender.left()?, Arc::clone(name))));
        let longest = away.min_by_key(|(left, _)| *left);
        let removed = longest.and_then(|(_, name)| senders.known.remove(&name));
        if let Some(sender) = &removed {
            self.drop_digests(sender);
        }
        removed.is_some()
    }

    /// The blocks that a sender landed before this start; returned once.
    async fn of_before(self: &Arc<Self>, name: &Arc<str>) -> Vec<Arc<Trail>> {
        let (repeats, name) = (Arc::clone(self), Arc::clone(name));
        let taken = tokio::task::spawn_blocking(move || repeats.before.take(&repeats.spool, &name));
        taken.await.unwrap_or_default()
    }

    /// Reads the wanted blocks into a sender's base. Blocks that cannot be read are reported, and not
    /// compared.
    async fn read(
        self: &Arc<Self>,
        mut base: OwnedMutexGuard<Base>,
        wanted: Vec<Wanted>,
        name: &Arc<str>,
    ) -> Option<OwnedMutexGuard<Base>> {
        let _turn = self.reading.acquire().await.ok()?;
        let (repeats, name) = (Arc::clone(self), Arc::clone(name));
        let read = tokio::task::spawn_blocking(move || {
            let blocks: Vec<u64> = wanted.iter().map(|block| block.first).collect();
            repeats.wait_published(blocks.last().copied());
            let layouts = crate::layouts();
            let before = base.len();
            match repeats.spool.digests(&layouts, &blocks, &repeats.digester) {
                Ok(digests) => {
                    let gone = digests.events.iter().filter(|events| events.is_none());
                    tracing::debug!(code = "receiver.repeats_read", sender = %name, blocks = blocks.len(),
                        gone = gone.count(), events = digests.found.len(),
                        "the events that a sender landed last were read back");
                    base.add(&wanted, digests);
                }
                Err(error) => {
                    tracing::warn!(code = "receiver.repeats", sender = %name, %error, "repeats are not judged");
                }
            }
            repeats.count(before, base.len());
            base
        });
        read.await.ok()
    }

    /// The digests of the events that these connections landed last, at most [`MOST_LATER`].
    async fn read_later(self: &Arc<Self>, later: Vec<Arc<Trail>>, name: &Arc<str>) -> Multiset {
        let mut spans: Vec<Span> = later.iter().flat_map(|trail| trail.spans()).collect();
        spans.sort_unstable_by_key(|span| span.first);
        let mut left = MOST_LATER;
        let newest = spans.iter().rev().take_while(|span| {
            let is_one = left > 0;
            left = left.saturating_sub(span.events as usize);
            is_one
        });
        let mut blocks: Vec<u64> = newest.map(|span| span.first).collect();
        blocks.reverse();
        if blocks.is_empty() {
            return Multiset::default();
        }
        let (repeats, name) = (Arc::clone(self), Arc::clone(name));
        let read = tokio::task::spawn_blocking(move || {
            repeats.wait_published(blocks.last().copied());
            let mut found = Multiset::default();
            match repeats
                .spool
                .digests(&crate::layouts(), &blocks, &repeats.digester)
            {
                Ok(digests) => found.add(digests.found),
                Err(error) => {
                    tracing::warn!(code = "receiver.repeats", sender = %name, %error, "repeats are not judged");
                }
            }
            found
        });
        read.await.unwrap_or_default()
    }

    /// A mark that could not be written is tried again: readers do not see the last blocks until then.
    fn wait_published(&self, last: Option<u64>) {
        let begin = std::time::Instant::now();
        let is_seen = |last| self.spool.durable().is_ok_and(|durable| durable > last);
        while last.is_some_and(|last| !is_seen(last)) && begin.elapsed() < PUBLISHED_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Digests in memory were so many and are so many. Above the limit those that nobody compares with now go;
    /// they are read again on need.
    fn count(&self, before: usize, now: usize) {
        self.held.fetch_add(now, Ordering::Relaxed);
        let held = self.held.fetch_sub(before, Ordering::Relaxed) - before;
        if held <= MOST_DIGESTS {
            return;
        }
        let senders: Vec<_> = locked(&self.senders).known.values().cloned().collect();
        for sender in senders {
            self.drop_digests(&sender);
        }
    }

    /// Lets go of a sender's digests unless they are compared with now.
    fn drop_digests(&self, sender: &Sender) {
        if let Ok(mut base) = sender.base.try_lock() {
            self.held.fetch_sub(base.len(), Ordering::Relaxed);
            *base = Base::default();
        }
    }
}

/// Senders remembered.
const MOST_SENDERS: usize = 10_000;
/// Digests in memory over all senders, at 20 bytes each.
const MOST_DIGESTS: usize = 4_000_000;
/// Digests of events that landed since, while one connection that is over is compared.
const MOST_LATER: usize = 100_000;
/// Senders whose blocks are read at the same time: the others wait, and hold no buffers.
const READERS: usize = 2;
/// How often is looked whether earlier windows of a sender have landed.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// For how long is waited for a durable mark that could not be written.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
