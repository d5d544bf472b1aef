//! The positions of the last windows that one connection landed: all that is remembered while links are
//! healthy.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ackline_core::locked;
use ackline_link::Taking;
use tokio::sync::Notify;

/// A block in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The position of its first event.
    pub(crate) first: u64,
    pub(crate) events: u32,
    pub(crate) windows: u32,
}

/// The standing of a connection: the consequence of its end for the events that it landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is open, and its peer takes the bytes that are sent to it.
    Open,
    /// It may have been cut off, and with it acknowledgements: any of its last events may come again.
    Cut,
    /// It ended after its peer had taken all acknowledgements: a peer that sends again has lost its state,
    /// and sends a whole stretch.
    InOrder,
}

/// The windows that one connection landed last.
pub(crate) struct Trail {
    /// Connections that were accepted later have a higher one.
    pub(super) id: u64,
    /// Windows remembered.
    most: u32,
    landed: Mutex<Landed>,
    standing: Mutex<Standing>,
    /// How far its peer is; until it ends.
    peer: Mutex<Option<Peer>>,
    /// Its peer has left acknowledgements untaken.
    is_stalled: AtomicBool,
    /// The blocks that it hands over next are not compared.
    is_handing: AtomicBool,
    is_finished: AtomicBool,
    /// Told when something of it is durable, was handed over, or ends.
    changed: Notify,
}

type Peer = Box<dyn Fn() -> Taking + Send + Sync>;

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trail")
            .field("id", &self.id)
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

/// A block of a connection, counted from its first one, as it can be compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) events: Events,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Events {
    /// It is durable: its digests are to be read.
    Stored(Span),
    /// It was handed over: these are its digests.
    Known(Arc<[u128]>),
}

#[derive(Debug, Default)]
struct Landed {
    /// With their numbers.
    spans: VecDeque<(u64, Span)>,
    /// Digests of blocks that were handed over and are not durable, one after the other, with their numbers.
    known: VecDeque<(u64, Arc<[u128]>)>,
    windows: u32,
    /// Events of the blocks.
    events: u64,
    /// Blocks handed to the spool, and those of them that are durable.
    appended: u64,
    placed: u64,
    /// Where its blocks and events are counted with others', once it has ended.
    counted: Option<Arc<Sizes>>,
}

/// Blocks and events of several connections.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    spans: AtomicU64,
    events: AtomicU64,
}

impl Sizes {
    pub(super) fn get(&self) -> (u64, u64) {
        let spans = self.spans.load(Ordering::Relaxed);
        (spans, self.events.load(Ordering::Relaxed))
    }

    fn add(&self, (spans, events): (u64, u64)) {
        self.spans.fetch_add(spans, Ordering::Relaxed);
        self.events.fetch_add(events, Ordering::Relaxed);
    }

    fn subtract(&self, (spans, events): (u64, u64)) {
        self.spans.fetch_sub(spans, Ordering::Relaxed);
        self.events.fetch_sub(events, Ordering::Relaxed);
    }
}

impl Landed {
    fn size(&self) -> (u64, u64) {
        (self.spans.len() as u64, self.events)
    }
}

impl Trail {
    /// Of connection `id`, which may have up to `unacked` windows unacknowledged.
    pub(crate) fn new(id: u64, unacked: usize) -> Self {
        let most = u32::try_from(unacked).unwrap_or(u32::MAX);
        Self {
            id,
            most: most.max(WINDOWS),
            landed: Mutex::default(),
            standing: Mutex::new(Standing::Open),
            peer: Mutex::default(),
            is_stalled: AtomicBool::new(false),
            is_handing: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// The same, with the function that tells how far its peer is.
    pub(crate) fn watching(self, peer: impl Fn() -> Taking + Send + Sync + 'static) -> Self {
        Self {
            peer: Mutex::new(Some(Box::new(peer))),
            ..self
        }
    }

    /// Of a connection before this start, whose blocks stood at these places, in order.
    pub(super) fn of_before(id: u64, spans: VecDeque<Span>, standing: Standing) -> Self {
        let blocks = spans.len() as u64;
        let landed = Landed {
            events: spans.iter().map(|span| u64::from(span.events)).sum(),
            spans: (0..).zip(spans).collect(),
            appended: blocks,
            placed: blocks,
            ..Landed::default()
        };
        Self {
            id,
            most: 0,
            landed: Mutex::new(landed),
            standing: Mutex::new(standing),
            peer: Mutex::default(),
            is_stalled: AtomicBool::new(false),
            is_handing: AtomicBool::new(false),
            is_finished: AtomicBool::new(true),
            changed: Notify::new(),
        }
    }

    /// A block was handed to the spool.
    pub(crate) fn appended(&self) {
        locked(&self.landed).appended += 1;
    }

    /// The next block that was handed over is durable.
    pub(crate) fn placed(&self, span: Span) {
        let mut landed = locked(&self.landed);
        let number = landed.placed;
        landed.placed += 1;
        if landed
            .known
            .front()
            .is_some_and(|(known, _)| *known == number)
        {
            landed.known.pop_front();
        }
        if span.events > 0 {
            self.remember(&mut landed, (number, span));
        }
        drop(landed);
        self.changed.notify_waiters();
    }

    fn remember(&self, landed: &mut Landed, (number, span): (u64, Span)) {
        let before = landed.size();
        landed.windows = landed.windows.saturating_add(span.windows);
        landed.events += u64::from(span.events);
        landed.spans.push_back((number, span));
        // A block is remembered whole: as long as one of its windows is among the last ones.
        while let Some((_, oldest)) = landed.spans.front()
            && landed.windows.saturating_sub(oldest.windows) >= self.most
        {
            landed.windows -= oldest.windows;
            landed.events -= u64::from(oldest.events);
            landed.spans.pop_front();
        }
        if let Some(sizes) = &landed.counted {
            sizes.add(landed.size());
            sizes.subtract(before);
        }
    }

    /// Its blocks and events are a part of these sizes from here on, also those that have still to land.
    pub(super) fn count_in(&self, sizes: &Arc<Sizes>) {
        let mut landed = locked(&self.landed);
        sizes.add(landed.size());
        landed.counted = Some(Arc::clone(sizes));
    }

    pub(super) fn count_out(&self) {
        let mut landed = locked(&self.landed);
        if let Some(sizes) = landed.counted.take() {
            sizes.subtract(landed.size());
        }
    }

    /// No block that was handed over becomes durable any more.
    pub(crate) fn failed(&self) {
        let mut landed = locked(&self.landed);
        landed.placed = landed.appended;
        landed.known.clear();
        drop(landed);
        self.changed.notify_waiters();
    }

    /// The digests of the blocks from this number on, all that were handed over. They are held until their block is
    /// durable, and not at all if they are many.
    pub(super) fn know(&self, from: u64, blocks: Vec<Vec<u128>>) {
        let events: usize = blocks.iter().map(Vec::len).sum();
        let mut landed = locked(&self.landed);
        let placed = landed.placed;
        let is_next = |known: u64| known + 1 == from;
        if events > MOST_KNOWN
            || !landed
                .known
                .back()
                .is_none_or(|(number, _)| is_next(*number))
        {
            landed.known.clear();
            return;
        }
        let blocks = (from..).zip(blocks);
        let blocks = blocks.skip_while(|(number, _)| *number < placed);
        landed
            .known
            .extend(blocks.map(|(number, digests)| (number, digests.into())));
        drop(landed);
        self.changed.notify_waiters();
    }

    /// Its blocks from this number on that can be compared with, in order.
    pub(super) fn blocks_from(&self, number: u64) -> Vec<Block> {
        let is_cut = self.standing() == Standing::Cut;
        let landed = locked(&self.landed);
        let from = landed.spans.partition_point(|(at, _)| *at < number);
        let stored = landed.spans.range(from..);
        let stored = stored.map(|(number, span)| (*number, Events::Stored(*span)));
        // In order its last blocks are compared with in a row.
        let known = landed
            .known
            .iter()
            .filter(|(at, _)| is_cut && *at >= number);
        let known = known.map(|(number, digests)| (*number, Events::Known(Arc::clone(digests))));
        let blocks = stored.chain(known);
        blocks
            .map(|(number, events)| Block { number, events })
            .collect()
    }

    /// The places of its blocks, in order.
    pub(super) fn spans(&self) -> Vec<Span> {
        locked(&self.landed)
            .spans
            .iter()
            .map(|(_, span)| *span)
            .collect()
    }

    /// How many blocks, and the events in them.
    pub(super) fn size(&self) -> (u64, u64) {
        locked(&self.landed).size()
    }

    /// Whether it has ended and nothing of it lands any more.
    pub(super) fn is_settled(&self) -> bool {
        let landed = locked(&self.landed);
        self.is_finished() && landed.placed >= landed.appended
    }

    /// Blocks that were handed over so far.
    pub(super) fn reached(&self) -> u64 {
        locked(&self.landed).appended
    }

    /// Whether the first so many of them are durable, and no others are being handed over.
    pub(super) fn has_placed(&self, reached: u64) -> bool {
        locked(&self.landed).placed >= reached && !self.is_handing.load(Ordering::Acquire)
    }

    /// Whether it has been cut off, and the first so many of them are durable or their digests known: the spool keeps
    /// the order of one sender, so that nothing which is compared with them lands without them.
    pub(super) fn is_comparable(&self, reached: u64) -> bool {
        let is_cut = self.standing() == Standing::Cut;
        let landed = locked(&self.landed);
        let known = landed.known.front().zip(landed.known.back());
        let is_known = |((first, _), (last, _)): (&(u64, _), &(u64, _))| {
            *first <= landed.placed && last + 1 >= reached
        };
        let is_there = landed.placed >= reached || (is_cut && known.is_some_and(is_known));
        is_there && !self.is_handing.load(Ordering::Acquire)
    }

    /// Blocks are about to be handed over that are compared with nothing, or that was done.
    pub(super) fn set_handing(&self, is_handing: bool) {
        self.is_handing.store(is_handing, Ordering::Release);
        if !is_handing {
            self.changed.notify_waiters();
        }
    }

    /// The connection is over, in order or not; blocks that it handed on before may still land. Of several
    /// calls the first one counts; returns whether this is the first one.
    pub(super) fn end(&self, in_order: bool) -> bool {
        {
            let mut standing = locked(&self.standing);
            if *standing != Standing::Open {
                return false;
            }
            *standing = if in_order {
                Standing::InOrder
            } else {
                Standing::Cut
            };
        }
        *locked(&self.peer) = None;
        self.changed.notify_waiters();
        true
    }

    pub(super) fn is_ended(&self) -> bool {
        *locked(&self.standing) != Standing::Open
    }

    /// How it ended; one whose peer has left acknowledgements untaken counts as cut off.
    pub(super) fn standing(&self) -> Standing {
        let standing = *locked(&self.standing);
        match standing {
            Standing::Open if self.is_stalled.load(Ordering::Acquire) => Standing::Cut,
            standing => standing,
        }
    }

    /// How far its peer is.
    pub(super) fn taking(&self) -> Taking {
        let peer = locked(&self.peer);
        peer.as_ref().map_or(Taking::Unknown, |peer| peer())
    }

    /// Whether its end has come, or is behind input that has still to be read.
    pub(super) fn is_over(&self) -> bool {
        self.is_ended() || self.taking() == Taking::Ended
    }

    /// Its peer leaves acknowledgements untaken, or does so no more.
    pub(super) fn set_stalled(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Release);
    }

    /// Everything was handed over that the connection handed on.
    pub(super) fn finish(&self) {
        self.is_finished.store(true, Ordering::Release);
        self.set_handing(false);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// Waits until `is_so`, which depends on this connection and on `other`, or, looked at now and then, `is_over`.
    pub(super) async fn until(
        &self,
        other: &Self,
        is_so: impl Fn() -> bool,
        is_over: impl Fn() -> bool,
    ) {
        loop {
            let (mut this, mut that) = (
                pin!(self.changed.notified()),
                pin!(other.changed.notified()),
            );
            // Notifications from here on are not missed.
            this.as_mut().enable();
            that.as_mut().enable();
            if is_so() || is_over() {
                return;
            }
            let changed = poll_fn(|context| match this.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => that.as_mut().poll(context),
            });
            let _ = tokio::time::timeout(LOOK_AT_END, changed).await;
        }
    }
}

/// How often one that waits for another looks whether anybody still waits for it.
const LOOK_AT_END: Duration = Duration::from_millis(250);
/// Events whose digests are held until they are durable, for each time that a connection hands some over: 4 KiB.
const MOST_KNOWN: usize = 256;
/// Windows remembered of a connection, at the least.
pub(super) const WINDOWS: u32 = 64;
