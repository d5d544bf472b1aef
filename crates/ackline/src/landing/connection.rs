//! One link of a receiver: its events into blocks, its end into one line. It is a connection, or a link that
//! outlives its connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ackline_core::{Connection, locked};
use ackline_link::{Admitted, End, Jitter, Link, PeerInfo, Stream};
use ackline_spool::{Block, Handed, Promise, SENDER, sender_of, uuid_v4};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::quarantine::AsideSettle;
use super::report::Acked;
use super::settle::LinkSettle;
use super::shares::Turn;
use crate::ingest::{Aside, Batch, Ingest, Landable, PerConnection, Ready};
use crate::repeats::{Judge, Member, Trail};

type Event<I> = <<I as Ingest>::Machine as Connection>::Event;

/// Events taken at once: a block run may span events that arrived together.
const TAKE: usize = 64;
/// How often a link that waits for its sender's share of the spool looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a stopping receiver, its acknowledgements sent, waits for a peer's end: closing earlier could
/// reset the connection and destroy them on their way.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// How long a sender may take to complete the window that it has begun when its connection's time is over.
const RETIRE_PATIENCE: Duration = Duration::from_secs(30);

/// A connection of any protocol.
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
        self.link.call(|machine, _| machine.unsettled())
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
pub(crate) struct Open {
    links: Mutex<HashMap<u64, Arc<dyn Served>>>,
    next: AtomicU64,
    changed: Notify,
    aborting: CancellationToken,
}

impl Open {
    /// The number of a connection just accepted.
    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts its link from here on.
    fn add<I: Ingest>(&self, id: u64, link: &Link<I::Machine>, settle: &Arc<LinkSettle<I>>) {
        let (link, settle) = (link.clone(), Arc::clone(settle));
        locked(&self.links).insert(id, Arc::new(LinkOf::<I> { link, settle }));
    }

    fn remove(&self, id: u64) {
        locked(&self.links).remove(&id);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.links).len()
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Windows handed out or landed whose acknowledgement is not on its way.
    pub(crate) fn unsettled(&self) -> u64 {
        let links: Vec<_> = locked(&self.links).values().cloned().collect();
        links.iter().map(|link| link.unsettled() as u64).sum()
    }

    /// Those of them that are durable and wait for a commit, and the events in them.
    pub(crate) fn uncommitted(&self) -> (u64, u64) {
        let links: Vec<_> = locked(&self.links).values().cloned().collect();
        let all = links.iter().map(|link| link.uncommitted());
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Cancelled by [`abort_all`](Self::abort_all).
    pub(super) const fn aborted(&self) -> &CancellationToken {
        &self.aborting
    }

    /// Ends all connections, also those that are still to be admitted, now and from now on.
    pub(crate) fn abort_all(&self) {
        self.aborting.cancel();
        let links: Vec<_> = locked(&self.links).values().cloned().collect();
        for link in links {
            link.abort();
        }
    }
}

/// Serves one admitted connection to its end.
pub(super) async fn serve<I: PerConnection>(
    shared: Arc<Shared>,
    mut ingest: I,
    admitted: Admitted,
) {
    let (peer, age) = (admitted.peer.clone(), admitted.age);
    let landing = Landing::<I>::of_connection(shared, &ingest, peer);
    let driving = admitted.drive(&landing.link, I::retire);
    let (driven, (), ()) = tokio::join!(driving, landing.run(&mut ingest, age), landing.tell());
    let (driven, slot, turned) = driven;
    if let Some(turned) = turned {
        landing.shared.report.turned_away(I::SCHEME, turned);
    }
    landing.leave();
    drop((driven, slot));
    landing.settle.gone();
}

/// Lands the input of a connection that this end has made, to its end.
pub(crate) async fn carry<I: PerConnection>(
    shared: Arc<Shared>,
    mut ingest: I,
    (stream, peer): (Stream, PeerInfo),
) {
    let landing = Landing::<I>::of_connection(shared, &ingest, peer);
    landing.abort_if_late();
    let driving = landing.link.drive(stream);
    let (driven, (), ()) = tokio::join!(driving, landing.run(&mut ingest, None), landing.tell());
    landing.leave();
    drop(driven);
    landing.settle.gone();
}

/// Lands the input of a link that outlives its connections, as long as it lives here.
pub(crate) async fn land<I: Ingest>(
    shared: Arc<Shared>,
    mut ingest: I,
    link: Link<I::Machine>,
    (peer, name): (PeerInfo, Arc<str>),
) {
    let landing = Landing::<I>::begin(shared, link, peer, name);
    landing.abort_if_late();
    landing.run(&mut ingest, None).await;
    landing.leave();
    landing.settle.gone();
}

/// A connection that counts as finished however its task ends: others wait for it.
struct Finishing(Option<Arc<Member>>);

impl Drop for Finishing {
    fn drop(&mut self) {
        if let Some(member) = &self.0 {
            member.finish();
        }
    }
}

/// The landing of one link: turns its events into blocks.
struct Landing<I: Ingest> {
    shared: Arc<Shared>,
    /// Its number among the links that are open.
    id: u64,
    link: Link<I::Machine>,
    settle: Arc<LinkSettle<I>>,
    /// `None` without a quarantine: then nothing is set aside.
    aside: Option<Arc<AsideSettle<I>>>,
    /// `None` where nothing is kept or compared.
    member: Finishing,
    peer: PeerInfo,
    name: Arc<str>,
}

impl<I: Ingest> Landing<I> {
    /// Counts the link as open from here on.
    fn begin(shared: Arc<Shared>, link: Link<I::Machine>, peer: PeerInfo, name: Arc<str>) -> Self {
        let id = shared.open.next();
        let watched = link.clone();
        let trail = Trail::new(id, shared.unacked_windows);
        let trail = Arc::new(trail.watching(move || watched.taking()));
        let report = Arc::clone(&shared.report);
        let share = shared.shares.as_ref().map(|shares| {
            let first_kept = || shared.first_kept();
            shares.join(&peer.sender, first_kept)
        });
        let settle = LinkSettle::new(link.clone(), Arc::clone(&trail), report, share);
        let settle = Arc::new(settle);
        shared.open.add::<I>(id, &link, &settle);
        let aside = shared.quarantine.clone().map(|quarantine| {
            let (peer, report) = (peer.clone(), Arc::clone(&shared.report));
            Arc::new(AsideSettle::new(link.clone(), peer, quarantine, report))
        });
        let repeats = shared.repeats.as_ref().filter(|_| I::COMPARES);
        let names = (&peer.sender, &name);
        let member = repeats.map(|repeats| Arc::new(Member::new(repeats, names, &trail)));
        let member = Finishing(member);
        Self {
            shared,
            id,
            link,
            settle,
            aside,
            member,
            peer,
            name,
        }
    }

    /// Of a connection that has a machine of its own.
    fn of_connection(shared: Arc<Shared>, ingest: &I, peer: PeerInfo) -> Self
    where
        I: PerConnection,
    {
        let link = Link::of_sender(ingest.machine(), shared.budget.clone(), &peer.sender);
        Self::begin(shared, link, peer, Arc::from(link_name()))
    }

    /// It may have come too late to be among those that were ended.
    fn abort_if_late(&self) {
        if self.shared.open.aborted().is_cancelled() {
            self.link.abort();
        }
    }

    fn leave(&self) {
        self.shared.open.remove(self.id);
    }

    /// Reports the fault before the connection has ended, also to the judge of repeats: the sender may be back at
    /// once.
    async fn tell(&self) {
        let end = self.link.fault().await;
        if let Some(member) = &self.member.0 {
            let is_owed = self.link.call(|machine, _| machine.owed_at_end());
            let in_order = matches!(end, End::Eof) && !is_owed && self.link.is_ended_in_order();
            member.end(in_order);
        }
        let refusal = self.aside.as_ref().and_then(|aside| aside.refusal());
        let from = (I::SCHEME, &self.peer);
        self.shared.report.ended(from, &end, refusal);
    }

    async fn run(&self, ingest: &mut I, age: Option<Duration>) {
        let stopping = self.end_in_order(age);
        while let Ok(events) = self.link.when(0, |machine, _| take::<I>(machine)).await {
            for event in &events {
                let (count, bytes, _) = I::count(event);
                self.shared.report.window(count, bytes);
                if let Some(refused) = I::tell(event, &self.peer, &self.name) {
                    self.shared.connection_refused(I::SCHEME, refused);
                }
            }
            let mut judge = self.judge().await;
            let batch = match self.blocks(ingest, events, judge.as_mut()) {
                Ok(batch) => batch,
                Err(reason) => {
                    tracing::error!(code = "receiver.unreadable", peer = %self.peer.name, reason, "ended");
                    self.link.abort();
                    break;
                }
            };
            let Ok(turn) = self.take_share(&batch).await else {
                let windows = batch.blocks.iter().map(|ready| ready.tokens.len()).sum();
                let events = batch
                    .blocks
                    .iter()
                    .map(|ready| u64::from(ready.block.count));
                self.shared.report.abandoned(windows, events.sum());
                break;
            };
            let aside = self.append(batch, turn.as_ref());
            if let Some(member) = &self.member.0 {
                if let Some(judge) = &judge {
                    self.shared.report.compared(judge.counts());
                }
                member.landed(judge);
            }
            for one in aside {
                if let Some(keeping) = &self.aside {
                    keeping.keep(one).await;
                }
            }
        }
        stopping.abort();
    }

    /// Ends the link in order when the receiver stops or the connection is too old, even while the
    /// machine waits for something.
    fn end_in_order(&self, age: Option<Duration>) -> JoinHandle<()> {
        let mut stopping = self.shared.sockets.stopping.clone();
        let link = self.link.clone();
        tokio::spawn(async move {
            let stop = async {
                let spread = stopping.wait_for(Option::is_some).await;
                spread.ok().and_then(|spread| *spread)
            };
            let stop = match age {
                Some(age) => tokio::time::timeout(age.saturating_add(RETIRE_PATIENCE), stop).await,
                None => Ok(stop.await),
            };
            match stop {
                Ok(Some(spread)) => {
                    tokio::time::sleep(Jitter::new(None).up_to(spread)).await;
                    link.close_within(STOP_PATIENCE);
                    link.call(I::Machine::stop);
                    if !link.is_driven() {
                        // Nobody can be told.
                        link.abort();
                    }
                }
                // The receiver is gone.
                Ok(None) => {}
                Err(_) => link.call(I::Machine::stop),
            }
        })
    }

    /// The judge for the next windows, if there is anything to compare them with.
    async fn judge(&self) -> Option<Judge> {
        let is_over = || matches!(self.link.end(), Some(End::Aborted));
        self.member.0.as_ref()?.judge(is_over).await
    }

    fn blocks(
        &self,
        ingest: &mut I,
        events: Vec<Event<I>>,
        judge: Option<&mut Judge>,
    ) -> Result<Batch, String> {
        if self.shared.writer.is_none() {
            self.discard(&events);
            return Ok(Batch::default());
        }
        ingest.blocks(events, &self.peer, &self.name, judge)
    }

    /// Waits until these blocks may go to the writer's queue, and until the spool has room for them within
    /// their sender's share; an error if the link ends before.
    async fn take_share(&self, batch: &Batch) -> Result<Option<Turn>, ()> {
        let bytes = batch.blocks.iter();
        let bytes = bytes.map(|ready| ready.block.stored_bytes() as u64);
        let bytes = bytes.sum::<u64>();
        let Some(share) = self.settle.share().filter(|_| bytes > 0) else {
            return Ok(None);
        };
        let turn = share.turn(bytes).await;
        if share.take(bytes, || self.shared.first_kept()) {
            return Ok(turn);
        }
        let (peer, most) = (&self.peer.name, share.most());
        tracing::warn!(code = "receiver.sender_share", %peer, sender = %self.peer.sender, most,
            "a sender has its share of the spool (--max-sender-share): it waits until consumers are done with some of it");
        let _waits = share.wait();
        loop {
            // Nobody says when consumers are done with something.
            tokio::time::sleep(LOOK_AGAIN).await;
            if share.take(bytes, || self.shared.first_kept()) {
                return Ok(turn);
            }
            if self.link.is_ended() {
                // It sends unacknowledged events again.
                return Err(());
            }
        }
    }

    /// Hands blocks to the spool; returns the blocks that go elsewhere.
    fn append(&self, batch: Batch, turn: Option<&Turn>) -> Vec<Aside> {
        let Some(writer) = &self.shared.writer else {
            return Vec::new();
        };
        let blocks = batch.blocks.into_iter();
        let handed: Vec<_> = blocks.map(|ready| self.handed(ready, turn)).collect();
        if !handed.is_empty() {
            writer.append_all(handed);
        }
        batch.aside
    }

    /// A block with the token that settles its windows.
    fn handed(&self, mut ready: Ready, turn: Option<&Turn>) -> Handed {
        self.name_sender(&mut ready.block);
        let events = u64::from(ready.block.count);
        let promise = if self.shared.waits_for_commit && ready.can_wait {
            Promise::Committed
        } else {
            Promise::Durable
        };
        let bytes = ready.block.stored_bytes() as u64;
        let token = self
            .settle
            .expect((events, bytes), turn.cloned(), ready.tokens);
        Handed {
            block: ready.block,
            token,
            settle: Arc::clone(&self.settle) as _,
            promise,
        }
    }

    fn discard(&self, events: &[Event<I>]) {
        let counted: Vec<_> = events.iter().map(I::count).collect();
        let told: Vec<u64> = self.link.call(|machine, now| {
            let acked = counted
                .iter()
                .filter(|(_, _, token)| machine.settle(now, *token));
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

    /// Adds the sender to the block's attributes, unless the peer already identifies it.
    fn name_sender(&self, block: &mut Block) {
        let pairs = block
            .attributes
            .iter()
            .map(|(name, value)| (&**name, &**value));
        if sender_of(&block.origin.peer, pairs) != &*self.peer.sender {
            let sender = (Arc::from(SENDER), Arc::clone(&self.peer.sender));
            block.attributes.push(sender);
        }
    }
}

fn take<I: Ingest>(machine: &mut I::Machine) -> Poll<Vec<Event<I>>> {
    let events: Vec<_> = std::iter::from_fn(|| machine.poll_event())
        .take(TAKE)
        .collect();
    if events.is_empty() {
        return Poll::Pending;
    }
    Poll::Ready(events)
}

/// A random name for a connection.
fn link_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    let random = || u128::from(RandomState::new().hash_one(0));
    uuid_v4((random() << 64 | random()).to_be_bytes())
}
