//! One connection of a receiver: its events into blocks, its end into one line.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use ackline_core::Connection;
use ackline_link::{Admitted, End, Link, PeerInfo, random_fraction};
use ackline_spool::{Promise, Settle};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::Shared;
use super::quarantine::AsideSettle;
use super::report::Acked;
use super::settle::LinkSettle;
use crate::ingest::{Aside, Batch, Ingest};
use crate::repeats::Judge;

type Event<I> = <<I as Ingest>::Machine as Connection>::Event;

/// Events taken at once: a block run may span what arrived together.
const TAKE: usize = 64;
/// How often is looked whether an earlier connection of the same host has landed its last windows.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a stopping receiver, its acknowledgements sent, waits for a peer's end: closing earlier could
/// reset the connection and destroy them on their way.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// How long a sender may take to complete the window that it has begun when its connection's time is over.
const RETIRE_PATIENCE: Duration = Duration::from_secs(30);

/// A connection, whatever its protocol.
trait Served: Send + Sync {
    fn unsettled(&self) -> usize;
    fn uncommitted(&self) -> (u64, u64);
    fn abort(&self);
}

/// A link of the protocol that `I` lands.
struct LinkOf<I: Ingest> {
    link: Link<I::Machine>,
    settle: Arc<LinkSettle<I>>,
}

impl<I: Ingest> Served for LinkOf<I> {
    fn unsettled(&self) -> usize {
        self.link.call(|machine, _| I::unsettled(machine))
    }

    fn uncommitted(&self) -> (u64, u64) {
        self.settle.uncommitted()
    }

    fn abort(&self) {
        self.link.abort();
    }
}

/// The connections of a receiver that are open now.
#[derive(Default)]
pub(super) struct Open {
    links: Mutex<HashMap<u64, Arc<dyn Served>>>,
    next: AtomicU64,
    changed: Notify,
    aborting: watch::Sender<bool>,
}

impl Open {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<dyn Served>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the link of a connection just accepted from here on.
    pub(super) fn add<I: Ingest>(
        &self,
        link: &Link<I::Machine>,
        settle: &Arc<LinkSettle<I>>,
    ) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (link, settle) = (link.clone(), Arc::clone(settle));
        self.lock()
            .insert(id, Arc::new(LinkOf::<I> { link, settle }));
        id
    }

    fn remove(&self, id: u64) {
        self.lock().remove(&id);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Windows handed out or landed whose acknowledgement is not on its way.
    pub(super) fn unsettled(&self) -> u64 {
        let links: Vec<_> = self.lock().values().cloned().collect();
        links.iter().map(|link| link.unsettled() as u64).sum()
    }

    /// Those of them that are durable and wait for a commit, and the events in them.
    pub(super) fn uncommitted(&self) -> (u64, u64) {
        let links: Vec<_> = self.lock().values().cloned().collect();
        let all = links.iter().map(|link| link.uncommitted());
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Until [`abort_all`](Self::abort_all).
    pub(super) async fn aborted(&self) {
        // The sender is ours: it is there.
        let _ = self.aborting.subscribe().wait_for(|is| *is).await;
    }

    /// Ends all connections, also those that are still to be admitted, now and from now on.
    pub(super) fn abort_all(&self) {
        self.aborting.send_replace(true);
        let links: Vec<_> = self.lock().values().cloned().collect();
        for link in links {
            link.abort();
        }
    }
}

/// Serves one admitted connection to its end.
pub(super) async fn serve<I: Ingest>(shared: Arc<Shared>, mut ingest: I, admitted: Admitted) {
    let Admitted {
        stream,
        peer,
        slot,
        pace,
        age,
        ..
    } = admitted;
    let link = Link::with_budget(ingest.machine(), shared.budget.clone());
    if let Some(pace) = pace {
        link.pace(pace);
    }
    let settle = Arc::new(LinkSettle::new(link.clone(), Arc::clone(&shared.report)));
    let id = shared.open.add::<I>(&link, &settle);
    let name: Arc<str> = Arc::from(link_name());
    let aside = shared.quarantine.clone().map(|quarantine| {
        let (peer, report) = (Arc::clone(&peer.name), Arc::clone(&shared.report));
        Arc::new(AsideSettle::new(link.clone(), peer, quarantine, report))
    });
    let landing = Landing::<I> {
        settle: Arc::clone(&settle),
        aside: aside.clone(),
        judge: None,
        shared: Arc::clone(&shared),
        peer: peer.clone(),
        name: Arc::clone(&name),
        link: link.clone(),
        id,
    };
    // An operator is told of a fault at once; its connection may take a moment to end. Who comes back at
    // once is judged by it.
    let telling = async {
        let end = link.fault().await;
        if !is_in_order(&end) {
            settle.set_idle(false);
            suspect(&shared, &settle, &peer.sender, (id, &name));
            // The landing looks again whether there is more.
            link.call(|_, _| ());
        }
        let refusal = aside.and_then(|aside| aside.refusal());
        shared.report.ended((I::SCHEME, &peer.name), &end, refusal);
    };
    let (driven, landing, ()) =
        tokio::join!(link.drive(stream), landing.run(&mut ingest, age), telling);
    shared.open.remove(id);
    drop(slot);
    settle.set_idle(true);
    settle.gone();
    let in_order = is_in_order(&driven.end);
    if in_order && settle.is_owing() {
        suspect(&shared, &settle, &peer.sender, (id, &name));
    }
    if !in_order || settle.is_owing() {
        landing.bound_suspicion().await;
    }
}

fn is_in_order<K: ackline_core::ErrorKind>(end: &End<K>) -> bool {
    matches!(end, End::Closed | End::Eof)
}

/// The sender may not know of what this link landed and will land.
fn suspect<I: Ingest>(
    shared: &Shared,
    settle: &Arc<LinkSettle<I>>,
    sender: &str,
    (id, name): (u64, &Arc<str>),
) {
    if let (Some(writer), Some(repeats)) = (&shared.writer, &shared.repeats) {
        let from = settle.trail().unwrap_or_else(|| writer.stats().durable);
        let landing: Weak<LinkSettle<I>> = Arc::downgrade(settle);
        repeats.suspect(sender, (id, Arc::clone(name)), from, landing);
    }
}

/// What turns the events of one link into blocks.
struct Landing<I: Ingest> {
    shared: Arc<Shared>,
    link: Link<I::Machine>,
    settle: Arc<LinkSettle<I>>,
    /// `None` without a quarantine: then nothing is set aside.
    aside: Option<Arc<AsideSettle<I>>>,
    judge: Option<Arc<Judge>>,
    peer: PeerInfo,
    name: Arc<str>,
    /// Its number among all connections, in the order they were accepted.
    id: u64,
}

impl<I: Ingest> Landing<I> {
    async fn run(mut self, ingest: &mut I, age: Option<Duration>) -> Self {
        let stopping = self.end_in_order(age);
        let mut is_first = true;
        while let Ok(events) = self
            .link
            .when(0, |machine, _| take::<I>(&self.settle, machine))
            .await
        {
            if std::mem::take(&mut is_first) {
                self.judge = self.find_judge().await;
            }
            let batch = match self.blocks(ingest, events) {
                Ok(batch) => batch,
                Err(reason) => {
                    tracing::error!(code = "receiver.unreadable", peer = %self.peer.name, reason, "ended");
                    self.link.abort();
                    break;
                }
            };
            let aside = self.append(batch);
            for one in aside {
                if let Some(keeping) = &self.aside {
                    keeping.keep(one).await;
                }
            }
        }
        stopping.abort();
        self
    }

    /// A stop of the receiver, or the connection's age, reaches the machine while it waits for anything.
    fn end_in_order(&self, age: Option<Duration>) -> JoinHandle<()> {
        let mut stopping = self.shared.stopping.clone();
        let link = self.link.clone();
        tokio::spawn(async move {
            if let Some(age) = age
                && tokio::time::timeout(age, stopping.wait_for(Option::is_some))
                    .await
                    .is_err()
            {
                link.call(I::retire);
                let stop = stopping.wait_for(Option::is_some);
                let _ = tokio::time::timeout(RETIRE_PATIENCE, stop).await;
                link.call(I::stop);
                return;
            }
            let spread = match stopping.wait_for(Option::is_some).await {
                Ok(spread) => spread.unwrap_or_default(),
                Err(_) => return,
            };
            tokio::time::sleep(spread.mul_f64(random_fraction())).await;
            link.close_within(STOP_PATIENCE);
            link.call(I::stop);
        })
    }

    async fn find_judge(&self) -> Option<Arc<Judge>> {
        let repeats = self.shared.repeats.as_ref()?;
        // What an earlier connection landed, or will, is to be known; only earlier ones are waited for, so
        // that no two wait for each other. The spool keeps the order, so nothing is late for it.
        for landing in repeats.behind(&self.peer.sender, self.id) {
            while landing.is_behind() && !matches!(self.link.end(), Some(End::Aborted)) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        let id = self.id;
        let (shared, sender) = (Arc::clone(&self.shared), Arc::clone(&self.peer.sender));
        let judged = tokio::task::spawn_blocking(move || {
            shared
                .repeats
                .as_ref()
                .and_then(|repeats| repeats.judge(&sender, id))
        });
        judged.await.ok().flatten()
    }

    fn blocks(&mut self, ingest: &mut I, events: Vec<Event<I>>) -> Result<Batch, String> {
        for event in &events {
            let (count, bytes, _) = I::count(event);
            self.shared.report.window(count, bytes);
        }
        if self.shared.writer.is_none() {
            self.discard(&events);
            return Ok(Batch::default());
        }
        if self.judge.as_ref().is_some_and(|judge| judge.is_spent()) {
            self.judge = None;
        }
        ingest.blocks(events, &self.peer, &self.name, self.judge.as_deref())
    }

    /// Hands blocks to the spool; answers what goes elsewhere.
    fn append(&mut self, batch: Batch) -> Vec<Aside> {
        let Some(writer) = &self.shared.writer else {
            return Vec::new();
        };
        for ready in batch.blocks {
            let events = u64::from(ready.block.count);
            let token = self
                .settle
                .expect(events, ready.tokens, writer.stats().durable);
            let settle: Arc<dyn Settle> = Arc::clone(&self.settle) as _;
            let promise = if self.shared.waits_for_commit && ready.can_wait {
                Promise::Committed
            } else {
                Promise::Durable
            };
            writer.append(ready.block, settle, token, promise);
        }
        batch.aside
    }

    fn discard(&self, events: &[Event<I>]) {
        let counted: Vec<_> = events.iter().map(I::count).collect();
        let told: Vec<u64> = self.link.call(|machine, now| {
            let acked = counted
                .iter()
                .filter(|(_, _, token)| I::settle(machine, now, *token));
            acked.map(|(count, _, _)| *count).collect()
        });
        let (events, acked): (u64, u64) =
            (counted.iter().map(|one| one.0).sum(), told.iter().sum());
        self.shared
            .report
            .acked(Acked::Discarded, told.len(), acked);
        let abandoned = counted.len() - told.len();
        self.shared.report.abandoned(abandoned, events - acked);
    }

    /// Says where in the spool what is suspected of this link ends.
    async fn bound_suspicion(self) {
        let _ = tokio::task::spawn_blocking(move || {
            if let (Some(writer), Some(repeats)) = (&self.shared.writer, &self.shared.repeats) {
                writer.flush(Duration::from_secs(2));
                repeats.bound(&self.peer.sender, self.id);
            }
        })
        .await;
    }
}

fn take<I: Ingest>(settle: &LinkSettle<I>, machine: &mut I::Machine) -> Poll<Vec<Event<I>>> {
    let events: Vec<_> = std::iter::from_fn(|| machine.poll_event())
        .take(TAKE)
        .collect();
    settle.set_idle(events.is_empty());
    if events.is_empty() {
        return Poll::Pending;
    }
    Poll::Ready(events)
}

/// A random name for a connection, in the form of a UUID (version 4).
fn link_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::hash::RandomState::new().build_hasher().finish();
    let (high, low) = (random(), random());
    let bits = (u128::from(high) << 64 | u128::from(low)) & !(0xf << 76) & !(0x3 << 62)
        | (0x4 << 76)
        | (0x2 << 62);
    let mut name = String::with_capacity(36);
    for (start, len) in [(0_u32, 8_u32), (8, 4), (12, 4), (16, 4), (20, 12)] {
        if !name.is_empty() {
            name.push('-');
        }
        for digit in start..start + len {
            let _ = write!(name, "{:x}", bits >> (124 - digit * 4) & 0xf);
        }
    }
    name
}
