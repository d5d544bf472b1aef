//! The events that are accepted and not acknowledged, and the host of each: no I/O, no clock, no waiting.
//!
//! ```text
//! accept ──► queue ──take──► in flight at a host ──acknowledged──► gone
//!              ▲                    │ lost: the rest, marked as possible repeats
//!              └── release ── own ◄─┘
//! ```
//!
//! Hosts take windows when they may send one, so events that are not sent belong to no host, and a slow host
//! holds back only the events that it took. Of several hosts that may take one, the host with the fewest
//! events outstanding goes first. Lost events stay with their host for one attempt to connect if that host
//! had acknowledged anything: a receiver can recognise only events that come back to it.

mod batch;
mod room;
mod stats;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use ackline_core::{Connection as _, UsageError};

use crate::walker::wide;
use crate::{Allowance, Writer, WriterEvent};
pub use batch::Batch;
use batch::Chunk;
pub use room::WindowRoom;
pub use stats::{HostState, HostStats, SenderState, SenderStats, Unacked, WindowReceipt};

/// The place of an accepted batch among all events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The batch's id, counted from 1.
    pub batch: u64,
    /// The number of its first event, counted from 1 in the order of acceptance.
    pub first: u64,
    /// The number of its last event.
    pub last: u64,
}

/// The phases of a sender's life, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Batches are accepted.
    Open,
    /// Nothing more is accepted.
    Closing,
    /// Nothing more is sent: the connections are being ended.
    Ending,
    /// Every connection has ended.
    Closed,
}

/// The limits of a [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Events in a window.
    pub batch_events: u64,
    /// Bytes in a window; a larger event goes alone.
    pub batch_bytes: u64,
    /// Events accepted and not acknowledged.
    pub buffer_events: u64,
    /// Their bytes.
    pub buffer_bytes: u64,
    /// Bytes of an event.
    pub max_event: u64,
    /// Receipts that are kept.
    pub receipts: usize,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    chunks: Vec<Chunk>,
    events: u64,
    repeats: bool,
}

#[derive(Debug)]
struct Host {
    flights: VecDeque<Flight>,
    /// Events that it may have had already and takes first.
    own: VecDeque<Chunk>,
    /// Events in its flights.
    outstanding: u64,
    /// Of these, acknowledged already.
    partial: u64,
    /// It may take a window now.
    has_room: bool,
    /// An attempt to connect has come to an end.
    tried: bool,
    /// Its last connection acknowledged an event.
    has_acked: bool,
    stats: HostStats,
}

#[derive(Debug)]
struct Open {
    left: u64,
    events: u64,
    bytes: u64,
    since: Instant,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: u64,
    acked: u64,
    possible_repeats: u64,
    windows: u64,
    last_batch: u64,
    receipts_dropped: u64,
}

/// The books of a sender. Hosts are named by their place in the list.
#[derive(Debug)]
pub struct Pool {
    phase: Phase,
    bounds: Bounds,
    queue: VecDeque<Chunk>,
    hosts: Vec<Host>,
    batches: BTreeMap<u64, Open>,
    held_events: u64,
    held_bytes: u64,
    blocked: bool,
    counts: Counts,
    receipts: VecDeque<WindowReceipt>,
}

impl Pool {
    /// A pool of hosts with these URLs.
    pub fn new(bounds: Bounds, hosts: &[Arc<str>]) -> Self {
        let host = |name: &Arc<str>| Host {
            flights: VecDeque::new(),
            own: VecDeque::new(),
            outstanding: 0,
            partial: 0,
            has_room: false,
            tried: false,
            has_acked: false,
            stats: HostStats::new(Arc::clone(name)),
        };
        Self {
            phase: Phase::Open,
            bounds,
            queue: VecDeque::new(),
            hosts: hosts.iter().map(host).collect(),
            batches: BTreeMap::new(),
            held_events: 0,
            held_bytes: 0,
            blocked: false,
            counts: Counts::default(),
            receipts: VecDeque::new(),
        }
    }

    /// The current phase.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Enters a later phase; an earlier one changes nothing.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = self.phase.max(phase);
    }

    /// Takes a batch as a whole, or nothing of it: `None` while the buffer is full.
    ///
    /// # Errors
    /// `closed`; `batch_too_large` and `frame_too_large` for a batch that it can never hold.
    pub fn accept(&mut self, now: Instant, batch: &Batch) -> Result<Option<Accepted>, UsageError> {
        let events = wide(batch.len());
        if !self.admits(events, batch)? {
            return Ok(None);
        }
        self.held_events = self.held_events.saturating_add(events);
        self.held_bytes = self.held_bytes.saturating_add(batch.bytes());
        let counts = &mut self.counts;
        counts.last_batch = counts.last_batch.saturating_add(1);
        let (id, first) = (counts.last_batch, counts.accepted.saturating_add(1));
        counts.accepted = counts.accepted.saturating_add(events);
        self.queue.push_back(Chunk::whole(batch, id, first));
        let open = Open {
            left: events,
            events,
            bytes: batch.bytes(),
            since: now,
        };
        self.batches.insert(id, open);
        Ok(Some(Accepted {
            batch: id,
            first,
            last: counts.accepted,
        }))
    }

    fn admits(&mut self, events: u64, batch: &Batch) -> Result<bool, UsageError> {
        let refuse = |code, message| Err(UsageError::new(code, message));
        if self.phase != Phase::Open {
            return refuse("closed", "the sender is closed");
        }
        if events > self.bounds.buffer_events {
            return refuse("batch_too_large", "more events than buffer_events");
        }
        if batch.bytes() > self.bounds.buffer_bytes {
            return refuse("batch_too_large", "more bytes than buffer_bytes");
        }
        if batch.largest() > self.bounds.max_event {
            return refuse("frame_too_large", "an event is above max_in_flight_bytes");
        }
        self.blocked = self.held_events.saturating_add(events) > self.bounds.buffer_events
            || self.held_bytes.saturating_add(batch.bytes()) > self.bounds.buffer_bytes;
        Ok(!self.blocked)
    }

    /// A host is connected.
    pub fn connected(&mut self, host: usize) {
        if let Some(one) = self.hosts.get_mut(host) {
            one.tried = true;
            one.has_acked = false;
            one.stats.state = HostState::Connected;
            one.stats.connections = one.stats.connections.saturating_add(1);
        }
    }

    /// A connection to a host has ended, after [`book`](Self::book). If it acknowledged nothing, any host may take
    /// its events.
    pub fn disconnected(&mut self, host: usize) {
        if self.hosts.get(host).is_some_and(|one| !one.has_acked) {
            self.release(host);
        }
        self.set_room(host, None);
    }

    /// A host could not be reached: any host may take the events that stayed with it.
    pub fn failed(&mut self, host: usize, reason: Arc<str>) {
        self.release(host);
        if let Some(one) = self.hosts.get_mut(host) {
            one.tried = true;
            one.stats.last_error = Some(reason);
        }
    }

    /// Books the events of a host's writer. Returns whether anything was acknowledged, and whether there was an
    /// event.
    pub fn book(&mut self, host: usize, writer: &mut Writer) -> (bool, bool) {
        let (mut grown, mut told) = (false, false);
        while let Some(event) = writer.poll_event() {
            told = true;
            match event {
                WriterEvent::Acknowledged { .. } => {
                    grown = true;
                    if let Some(one) = self.hosts.get_mut(host) {
                        one.has_acked = true;
                    }
                    self.end_oldest(host, u32::MAX);
                }
                WriterEvent::Unacknowledged { from, .. } => self.end_oldest(host, from),
            }
        }
        if told {
            // Keeps the count of partly acknowledged events true to the events that are still in flight.
            self.progress(host, writer);
        }
        (grown, told)
    }

    /// Books the acknowledged events of windows that are not complete. Returns whether there are new ones.
    pub fn note(&mut self, host: usize, writer: &Writer) -> bool {
        let grown = self.progress(host, writer);
        if let Some(one) = self.hosts.get_mut(host) {
            one.stats.window_size = writer.window_size();
            one.has_acked |= grown;
        }
        grown
    }

    fn progress(&mut self, host: usize, writer: &Writer) -> bool {
        let Some(host) = self.hosts.get_mut(host) else {
            return false;
        };
        let before = host.partial;
        host.partial = host.outstanding.saturating_sub(writer.unacknowledged());
        host.partial > before
    }

    /// The next window of a host: its events, which are in flight from now on.
    pub fn take(&mut self, host: usize, allowance: Allowance) -> Option<Unacked> {
        if matches!(self.phase, Phase::Ending | Phase::Closed) {
            return None;
        }
        let is_turn = self.is_turn_of(host);
        let one = self.hosts.get_mut(host)?;
        let queue = match one.own.is_empty() {
            false => &mut one.own,
            true if is_turn => &mut self.queue,
            true => return None,
        };
        let events = u64::from(allowance.events).min(self.bounds.batch_events);
        let bytes = allowance.bytes.min(self.bounds.batch_bytes);
        let room = WindowRoom::new(events, bytes).alone_within(allowance.bytes);
        let chunks = cut_window(queue, room);
        let events = chunks.iter().map(Chunk::len).sum();
        let repeats = chunks.first()?.repeats;
        let counts = &mut self.counts;
        if repeats {
            counts.possible_repeats = counts.possible_repeats.saturating_add(events);
        }
        counts.windows = counts.windows.saturating_add(1);
        one.outstanding = one.outstanding.saturating_add(events);
        one.flights.push_back(Flight {
            id: counts.windows,
            chunks: chunks.clone(),
            events,
            repeats,
        });
        Some(Unacked { chunks })
    }

    /// The window taken last was not sent after all.
    pub fn put_back(&mut self, host: usize) {
        let Some(one) = self.hosts.get_mut(host) else {
            return;
        };
        let Some(flight) = one.flights.pop_back() else {
            return;
        };
        one.outstanding = one.outstanding.saturating_sub(flight.events);
        if flight.repeats {
            let repeats = &mut self.counts.possible_repeats;
            *repeats = repeats.saturating_sub(flight.events);
        }
        for chunk in flight.chunks {
            insert(&mut self.queue, chunk);
        }
    }

    /// The oldest window of a host was acknowledged up to event `from` of it, and the rest was lost with its
    /// connection. The rest stays with the host if the connection acknowledged anything, else anyone may send it.
    fn end_oldest(&mut self, host: usize, from: u32) {
        let Some(one) = self.hosts.get_mut(host) else {
            return;
        };
        let Some(flight) = one.flights.pop_front() else {
            return;
        };
        let back = one.has_acked || from > 0;
        one.outstanding = one.outstanding.saturating_sub(flight.events);
        one.partial = one.partial.min(one.outstanding);
        let mut acked = u64::from(from).min(flight.events);
        one.stats.acknowledged = one.stats.acknowledged.saturating_add(acked);
        self.keep_receipt(host, &flight, acked);
        for mut chunk in flight.chunks {
            let done = chunk.split_front(acked);
            acked = acked.saturating_sub(done.len());
            self.settle(&done);
            if chunk.len() == 0 {
                continue;
            }
            chunk.repeats = true;
            match self.hosts.get_mut(host) {
                Some(one) if back => insert(&mut one.own, chunk),
                _ => insert(&mut self.queue, chunk),
            }
        }
    }

    /// Puts the events that stayed with a host back into the queue: any host may take them.
    fn release(&mut self, host: usize) {
        let own = self
            .hosts
            .get_mut(host)
            .map(|one| std::mem::take(&mut one.own));
        for chunk in own.into_iter().flatten() {
            insert(&mut self.queue, chunk);
        }
    }

    fn settle(&mut self, chunk: &Chunk) {
        self.counts.acked = self.counts.acked.saturating_add(chunk.len());
        let Some(open) = self.batches.get_mut(&chunk.batch) else {
            return;
        };
        open.left = open.left.saturating_sub(chunk.len());
        if open.left == 0 {
            self.held_events = self.held_events.saturating_sub(open.events);
            self.held_bytes = self.held_bytes.saturating_sub(open.bytes);
            self.batches.remove(&chunk.batch);
            self.blocked = false;
        }
    }

    fn keep_receipt(&mut self, host: usize, flight: &Flight, acked: u64) {
        if self.bounds.receipts == 0 {
            return;
        }
        if self.receipts.len() >= self.bounds.receipts {
            self.receipts.pop_front();
            self.counts.receipts_dropped = self.counts.receipts_dropped.saturating_add(1);
        }
        let Some(host) = self.hosts.get(host) else {
            return;
        };
        self.receipts.push_back(WindowReceipt {
            id: flight.id,
            host: Arc::clone(&host.stats.url),
            events: flight.events,
            acknowledged: acked,
            first: flight.chunks.first().map_or(0, |chunk| chunk.first),
            last: flight.chunks.last().map_or(0, Chunk::last),
            repeats: flight.repeats,
        });
    }

    /// Takes the receipts that are kept, oldest first.
    pub fn take_receipts(&mut self) -> Vec<WindowReceipt> {
        self.receipts.drain(..).collect()
    }

    /// Whether a host that may take windows has no rival with fewer events outstanding.
    fn is_turn_of(&self, host: usize) -> bool {
        let Some(own) = self.hosts.get(host).map(|one| one.outstanding) else {
            return false;
        };
        let rivals = self.hosts.iter().filter(|one| one.has_room);
        !rivals.into_iter().any(|one| one.outstanding < own)
    }

    /// Notes the window that a host may take now. Returns `true` when it could take one and now cannot, so that it
    /// is another's turn.
    pub fn set_room(&mut self, host: usize, allowance: Option<Allowance>) -> bool {
        let fits = |Allowance { bytes, .. }| {
            let front = self.queue.front();
            front.is_none_or(|chunk| {
                chunk.fitting(&mut WindowRoom::new(1, bytes).alone_within(bytes)) > 0
            })
        };
        let has_room = allowance.is_some_and(fits);
        let Some(host) = self.hosts.get_mut(host) else {
            return false;
        };
        std::mem::replace(&mut host.has_room, has_room) && !has_room
    }

    /// Whether there is something for this host to send.
    pub fn is_wanted(&self, host: usize) -> bool {
        let own = self.hosts.get(host).is_some_and(|one| !one.own.is_empty());
        own || !self.queue.is_empty()
    }

    /// Whether anything waits to be sent.
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether everything that was accepted is acknowledged.
    pub fn is_done(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether nothing will be sent any more.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Closing => self.is_done(),
            Phase::Ending | Phase::Closed => true,
        }
    }

    /// Whether every event of this batch is acknowledged; never for an id that was not given out.
    pub fn is_acknowledged(&self, batch: u64) -> bool {
        (1..=self.counts.last_batch).contains(&batch) && !self.batches.contains_key(&batch)
    }

    /// Whether a batch that found no room may find some; also when none will be accepted any more.
    pub fn may_accept(&self) -> Option<()> {
        (!self.blocked || self.phase != Phase::Open).then_some(())
    }

    /// Whether every batch up to this one is acknowledged.
    pub fn is_flushed(&self, batch: u64) -> bool {
        self.batches
            .keys()
            .next()
            .is_none_or(|oldest| *oldest > batch)
    }

    /// The id of the batch that was accepted last; 0 before the first one.
    pub const fn last_batch(&self) -> u64 {
        self.counts.last_batch
    }

    /// Events accepted and not acknowledged, to the event.
    pub fn unacknowledged(&self) -> u64 {
        let partial = self.hosts.iter().map(|host| host.partial).sum();
        let Counts {
            accepted, acked, ..
        } = self.counts;
        accepted.saturating_sub(acked).saturating_sub(partial)
    }

    /// The numbers of a host.
    pub fn host(&mut self, host: usize) -> Option<&mut HostStats> {
        self.hosts.get_mut(host).map(|one| &mut one.stats)
    }

    /// Everything that is not acknowledged, in order. For a sender whose connections are over.
    pub fn take_unacknowledged(&mut self) -> Unacked {
        for host in 0..self.hosts.len() {
            self.release(host);
        }
        let chunks = std::mem::take(&mut self.queue).into();
        Unacked { chunks }
    }
}

/// Takes one window off the front.
fn cut_window(queue: &mut VecDeque<Chunk>, mut room: WindowRoom) -> Vec<Chunk> {
    let mut window: Vec<Chunk> = Vec::new();
    while let Some(front) = queue.front_mut() {
        if window.last().is_some_and(|last| !last.joins(front)) {
            break;
        }
        let count = front.fitting(&mut room);
        if count == 0 {
            break;
        }
        window.push(front.split_front(count));
        if front.len() > 0 {
            break;
        }
        queue.pop_front();
    }
    window
}

/// Puts a chunk where its events belong.
fn insert(queue: &mut VecDeque<Chunk>, chunk: Chunk) {
    let at = queue.partition_point(|one| one.first < chunk.first);
    queue.insert(at, chunk);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)] // a failed unwrap is a failed test; any instant will do
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        batch_events: 2_048,
        batch_bytes: 4 << 20,
        buffer_events: 65_536,
        buffer_bytes: 64 << 20,
        max_event: u64::MAX,
        receipts: 0,
    };
    const ALLOWED: Allowance = Allowance {
        events: 10,
        bytes: 1_000,
    };

    #[test]
    fn events_of_an_ended_host_are_taken_by_nobody() {
        let hosts: [Arc<str>; 2] = ["hung".into(), "well".into()];
        let mut pool = Pool::new(BOUNDS, &hosts);
        let batch = Batch::json(vec!["{}".into(); 10]).unwrap();
        pool.accept(Instant::now(), &batch).unwrap();
        assert_eq!(pool.take(0, ALLOWED).unwrap().events(), 10);
        pool.enter(Phase::Ending);
        pool.end_oldest(0, 0);
        assert!(pool.has_work());
        assert!(pool.take(1, ALLOWED).is_none());
        assert_eq!(pool.take_unacknowledged().events(), 10);
    }
}
