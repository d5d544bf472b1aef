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

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use ackline_core::UsageError;

use super::super::OutRecord;
use super::SenderOptions;
use super::batch::{Batch, Chunk, wide};
use super::report::{HostState, HostStats, SenderState, SenderStats, WindowReceipt};
use super::room::WindowRoom;

/// Why a batch was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAccepted {
    /// There will be room when something is acknowledged.
    Blocked,
    Usage(UsageError),
}

/// A batch that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) batch: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// How far a sender is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// Nothing more is accepted.
    Closing,
    /// Nothing more is sent: the connections are being ended.
    Ending,
    Closed,
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
    stats: HostStats,
}

#[derive(Debug)]
struct Open {
    left: u64,
    events: u64,
    bytes: u64,
    since: Instant,
}

/// The books of a sender.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) phase: Phase,
    batch_events: u64,
    batch_bytes: u64,
    buffer_events: u64,
    buffer_bytes: u64,
    max_event: u64,
    queue: VecDeque<Chunk>,
    hosts: Vec<Host>,
    batches: BTreeMap<u64, Open>,
    held_events: u64,
    held_bytes: u64,
    blocked: bool,
    accepted: u64,
    acked: u64,
    possible_repeats: u64,
    windows: u64,
    last_batch: u64,
    receipts: VecDeque<WindowReceipt>,
    keep_receipts: usize,
    receipts_dropped: u64,
}

impl Pool {
    pub(super) fn new(options: &SenderOptions, hosts: &[Arc<str>]) -> Self {
        let host = |name: &Arc<str>| Host {
            flights: VecDeque::new(),
            own: VecDeque::new(),
            outstanding: 0,
            partial: 0,
            has_room: false,
            tried: false,
            stats: HostStats::new(Arc::clone(name)),
        };
        let (buffer_events, buffer_bytes) = options.buffer_for(hosts.len());
        Self {
            phase: Phase::Open,
            batch_events: options.batch_events.into(),
            batch_bytes: options.batch_bytes,
            buffer_events,
            buffer_bytes,
            max_event: options.writer.max_in_flight_bytes.unwrap_or(u64::MAX),
            queue: VecDeque::new(),
            hosts: hosts.iter().map(host).collect(),
            batches: BTreeMap::new(),
            held_events: 0,
            held_bytes: 0,
            blocked: false,
            accepted: 0,
            acked: 0,
            possible_repeats: 0,
            windows: 0,
            last_batch: 0,
            receipts: VecDeque::new(),
            keep_receipts: options.receipts,
            receipts_dropped: 0,
        }
    }

    /// Takes a batch as a whole, or nothing of it.
    pub(super) fn accept(&mut self, now: Instant, batch: &Batch) -> Result<Accepted, NotAccepted> {
        let events = wide(batch.len());
        self.admit(events, batch)?;
        self.held_events = self.held_events.saturating_add(events);
        self.held_bytes = self.held_bytes.saturating_add(batch.bytes());
        self.last_batch = self.last_batch.saturating_add(1);
        let first = self.accepted.saturating_add(1);
        self.accepted = self.accepted.saturating_add(events);
        self.queue
            .push_back(Chunk::whole(batch, self.last_batch, first));
        let open = Open {
            left: events,
            events,
            bytes: batch.bytes(),
            since: now,
        };
        self.batches.insert(self.last_batch, open);
        Ok(Accepted {
            batch: self.last_batch,
            first,
            last: self.accepted,
        })
    }

    fn admit(&mut self, events: u64, batch: &Batch) -> Result<(), NotAccepted> {
        let refuse = |code, message| Err(NotAccepted::Usage(UsageError::new(code, message)));
        if self.phase != Phase::Open {
            return refuse("closed", "the sender is closed");
        }
        if events > self.buffer_events {
            return refuse("batch_too_large", "more events than buffer_events");
        }
        if batch.bytes() > self.buffer_bytes {
            return refuse("batch_too_large", "more bytes than buffer_bytes");
        }
        if batch.largest() > self.max_event {
            return refuse("frame_too_large", "an event is above max_in_flight_bytes");
        }
        self.blocked = self.held_events.saturating_add(events) > self.buffer_events
            || self.held_bytes.saturating_add(batch.bytes()) > self.buffer_bytes;
        if self.blocked {
            return Err(NotAccepted::Blocked);
        }
        Ok(())
    }

    /// The next window of a host: its events, which are in flight from now on.
    pub(super) fn take(&mut self, host: usize, events: u32, bytes: u64) -> Option<Vec<Chunk>> {
        if matches!(self.phase, Phase::Ending | Phase::Closed) {
            return None;
        }
        let from_own = !self.hosts.get(host)?.own.is_empty();
        if !from_own && !self.is_turn_of(host) {
            return None;
        }
        let events = u64::from(events).min(self.batch_events);
        let limit = bytes.min(self.batch_bytes);
        let queue = if from_own {
            &mut self.hosts.get_mut(host)?.own
        } else {
            &mut self.queue
        };
        let room = WindowRoom::new(events, limit).alone_within(bytes);
        let chunks = cut_window(queue, room);
        let count = chunks
            .iter()
            .fold(0_u64, |sum, chunk| sum.saturating_add(chunk.len()));
        let repeats = chunks.first()?.repeats;
        if repeats {
            self.possible_repeats = self.possible_repeats.saturating_add(count);
        }
        self.windows = self.windows.saturating_add(1);
        let flight = Flight {
            id: self.windows,
            chunks: chunks.clone(),
            events: count,
            repeats,
        };
        let host = self.hosts.get_mut(host)?;
        host.outstanding = host.outstanding.saturating_add(count);
        host.flights.push_back(flight);
        Some(chunks)
    }

    /// The window taken last was not sent after all.
    pub(super) fn put_back(&mut self, host: usize) {
        let Some(flight) = self
            .hosts
            .get_mut(host)
            .and_then(|one| one.flights.pop_back())
        else {
            return;
        };
        if flight.repeats {
            self.possible_repeats = self.possible_repeats.saturating_sub(flight.events);
        }
        if let Some(host) = self.hosts.get_mut(host) {
            host.outstanding = host.outstanding.saturating_sub(flight.events);
        }
        for chunk in flight.chunks {
            insert(&mut self.queue, chunk);
        }
    }

    /// The oldest window of a host is acknowledged.
    pub(super) fn acknowledged(&mut self, host: usize) {
        let Some(one) = self.hosts.get_mut(host) else {
            return;
        };
        let Some(flight) = one.flights.pop_front() else {
            return;
        };
        one.outstanding = one.outstanding.saturating_sub(flight.events);
        one.partial = one.partial.min(one.outstanding);
        one.stats.acknowledged = one.stats.acknowledged.saturating_add(flight.events);
        self.keep_receipt(host, &flight, flight.events);
        for chunk in &flight.chunks {
            self.settle(chunk);
        }
    }

    /// Events in flight at a host that are not acknowledged, as its connection knows them; answers whether
    /// any has been acknowledged since.
    pub(super) fn progress(&mut self, host: usize, unacknowledged: u64) -> bool {
        let Some(host) = self.hosts.get_mut(host) else {
            return false;
        };
        let before = host.partial;
        host.partial = host.outstanding.saturating_sub(unacknowledged);
        host.partial > before
    }

    /// The oldest window of a host was lost with its connection, acknowledged up to event `from` of it.
    /// The rest stays with the host if it is to get it `back`, else anyone may send it.
    pub(super) fn lost(&mut self, host: usize, from: u32, back: bool) {
        let Some(one) = self.hosts.get_mut(host) else {
            return;
        };
        let Some(flight) = one.flights.pop_front() else {
            return;
        };
        one.outstanding = one.outstanding.saturating_sub(flight.events);
        one.partial = 0;
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
    pub(super) fn release(&mut self, host: usize) {
        let own = self
            .hosts
            .get_mut(host)
            .map(|one| std::mem::take(&mut one.own));
        for chunk in own.into_iter().flatten() {
            insert(&mut self.queue, chunk);
        }
    }

    fn settle(&mut self, chunk: &Chunk) {
        self.acked = self.acked.saturating_add(chunk.len());
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
        if self.keep_receipts == 0 {
            return;
        }
        if self.receipts.len() >= self.keep_receipts {
            self.receipts.pop_front();
            self.receipts_dropped = self.receipts_dropped.saturating_add(1);
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

    pub(super) fn take_receipts(&mut self) -> Vec<WindowReceipt> {
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

    /// Notes whether a host may take a window, of `bytes` at the most; `true` when it could and now cannot,
    /// so that it is another's turn.
    pub(super) fn set_room(&mut self, host: usize, bytes: Option<u64>) -> bool {
        let fits = |bytes| {
            let front = self.queue.front();
            front.is_none_or(|chunk| {
                chunk.fitting(&mut WindowRoom::new(1, bytes).alone_within(bytes)) > 0
            })
        };
        let has_room = bytes.is_some_and(fits);
        let Some(host) = self.hosts.get_mut(host) else {
            return false;
        };
        std::mem::replace(&mut host.has_room, has_room) && !has_room
    }

    /// Whether there is something for this host to send.
    pub(super) fn is_wanted(&self, host: usize) -> bool {
        let own = self.hosts.get(host).is_some_and(|one| !one.own.is_empty());
        own || !self.queue.is_empty()
    }

    /// Whether anything waits to be sent.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether everything that was accepted is acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether nothing will be sent any more.
    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Closing => self.is_done(),
            Phase::Ending | Phase::Closed => true,
        }
    }

    pub(super) fn is_acknowledged(&self, batch: u64) -> bool {
        (1..=self.last_batch).contains(&batch) && !self.batches.contains_key(&batch)
    }

    /// Whether a batch that found no room may find some; also when none will be accepted any more.
    pub(super) fn may_accept(&self) -> Option<()> {
        (!self.blocked || self.phase != Phase::Open).then_some(())
    }

    /// Whether every batch up to this one is acknowledged.
    pub(super) fn is_flushed(&self, batch: u64) -> bool {
        self.batches
            .keys()
            .next()
            .is_none_or(|oldest| *oldest > batch)
    }

    pub(super) const fn last_batch(&self) -> u64 {
        self.last_batch
    }

    /// Events accepted and not acknowledged, to the event.
    pub(super) fn unacknowledged(&self) -> u64 {
        let partial = self
            .hosts
            .iter()
            .fold(0_u64, |sum, host| sum.saturating_add(host.partial));
        self.accepted
            .saturating_sub(self.acked)
            .saturating_sub(partial)
    }

    /// The hosts, comma-separated.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.hosts.iter().map(|one| &*one.stats.url).collect();
        names.join(",")
    }

    pub(super) fn host(&mut self, host: usize) -> Option<&mut HostStats> {
        self.hosts.get_mut(host).map(|one| &mut one.stats)
    }

    /// An attempt to connect to this host has come to an end.
    pub(super) fn tried(&mut self, host: usize) {
        if let Some(one) = self.hosts.get_mut(host) {
            one.tried = true;
        }
    }

    /// Whether any host was reached; `None` while that is not decided.
    pub(super) fn was_reached(&self) -> Option<bool> {
        if self.hosts.iter().any(|one| one.stats.connections > 0) {
            return Some(true);
        }
        let decided = self.phase != Phase::Open || self.hosts.iter().all(|one| one.tried);
        decided.then_some(false)
    }

    /// Why a host that is not connected failed last.
    pub(super) fn last_error(&self) -> Option<Arc<str>> {
        let away = self.hosts.iter().filter(|one| {
            let state = one.stats.state;
            !matches!(state, HostState::Connected | HostState::Draining)
        });
        away.into_iter()
            .find_map(|one| one.stats.last_error.clone())
    }

    /// Everything that is not acknowledged, in order. For a sender whose connections are over.
    pub(super) fn take_unacknowledged(&mut self) -> Vec<Chunk> {
        for host in 0..self.hosts.len() {
            self.release(host);
        }
        std::mem::take(&mut self.queue).into()
    }

    pub(super) fn stats(&self, now: Instant) -> SenderStats {
        let hosts = self.hosts.iter().map(|one| HostStats {
            in_flight_windows: one.flights.len(),
            outstanding: one.outstanding.saturating_sub(one.partial),
            ..one.stats.clone()
        });
        let hosts: Vec<HostStats> = hosts.collect();
        let sum = |of: fn(&HostStats) -> u64| {
            hosts
                .iter()
                .fold(0_u64, |sum, one| sum.saturating_add(of(one)))
        };
        SenderStats {
            state: match self.phase {
                Phase::Open if self.blocked => SenderState::Blocked,
                Phase::Open => SenderState::Open,
                Phase::Closing | Phase::Ending => SenderState::Closing,
                Phase::Closed => SenderState::Closed,
            },
            accepted: self.accepted,
            unacknowledged: self.unacknowledged(),
            possible_repeats: self.possible_repeats,
            attempts: sum(|one| one.attempts),
            reconnects: sum(|one| one.connections.saturating_sub(1)),
            buffer_events: self.held_events,
            buffer_bytes: self.held_bytes,
            oldest: self
                .batches
                .values()
                .next()
                .map(|open| now.saturating_duration_since(open.since)),
            receipts_dropped: self.receipts_dropped,
            hosts,
        }
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

/// The events of a window, in order.
pub(super) fn records(chunks: &[Chunk]) -> impl Iterator<Item = &OutRecord> + Clone {
    chunks.iter().flat_map(Chunk::records)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
mod tests {
    use super::*;

    #[test]
    fn what_an_ended_host_lets_go_of_is_taken_by_nobody() {
        let hosts: [Arc<str>; 2] = ["hung".into(), "well".into()];
        let mut pool = Pool::new(&SenderOptions::default(), &hosts);
        let batch = Batch::json(vec!["{}".into(); 10]).unwrap();
        pool.accept(Instant::now(), &batch).unwrap();
        assert_eq!(pool.take(0, 10, 1000).unwrap().len(), 1);
        pool.phase = Phase::Ending;
        pool.lost(0, 0, false);
        assert!(pool.has_work());
        assert!(pool.take(1, 10, 1000).is_none());
        let left = pool.take_unacknowledged();
        assert_eq!(left.iter().map(Chunk::len).sum::<u64>(), 10);
    }
}
