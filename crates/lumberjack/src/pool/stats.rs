//! The reports of a pool: its state and its hosts', receipts of windows, events that are not acknowledged.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Chunk;
use super::{Phase, Pool};
use crate::OutRecord;

/// The outcome of one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowReceipt {
    /// The window's number, counted from 1 over all hosts.
    pub id: u64,
    /// The host it went to, as its URL.
    pub host: Arc<str>,
    /// Events in it.
    pub events: u64,
    /// How many of them, from the first on, are acknowledged; the rest is sent again.
    pub acknowledged: u64,
    /// The number of its first event, counted from 1 in the order of acceptance.
    pub first: u64,
    /// The number of its last event.
    pub last: u64,
    /// It was sent before and may have arrived then.
    pub repeats: bool,
}

/// The current state of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SenderState {
    /// It takes events.
    Open,
    /// Its buffer is full: the last batch was not accepted.
    Blocked,
    /// It takes no more and waits for acknowledgements.
    Closing,
    /// It is over.
    Closed,
}

impl fmt::Display for SenderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Blocked => "blocked",
            Self::Closing => "closing",
            Self::Closed => "closed",
        })
    }
}

/// The current state of the connection to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostState {
    /// Nothing is to be sent, so there is no connection.
    Idle,
    /// A connection is being made.
    Connecting,
    /// It is connected.
    Connected,
    /// Its time to live is over: it waits for the events in flight.
    Draining,
    /// It failed and waits before it is tried again.
    Waiting,
}

impl fmt::Display for HostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Draining => "draining",
            Self::Waiting => "waiting",
        })
    }
}

/// One host of a sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostStats {
    /// Its URL.
    pub url: Arc<str>,
    /// The current state of its connection.
    pub state: HostState,
    /// Windows sent and not wholly acknowledged.
    pub in_flight_windows: usize,
    /// Events sent and not acknowledged.
    pub outstanding: u64,
    /// Events it has acknowledged.
    pub acknowledged: u64,
    /// Attempts to connect.
    pub attempts: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Events that a window may hold now, by slow start.
    pub window_size: u32,
    /// Why it failed last.
    pub last_error: Option<Arc<str>>,
}

impl HostStats {
    pub(super) const fn new(url: Arc<str>) -> Self {
        Self {
            url,
            state: HostState::Idle,
            in_flight_windows: 0,
            outstanding: 0,
            acknowledged: 0,
            attempts: 0,
            connections: 0,
            window_size: 0,
            last_error: None,
        }
    }
}

/// A sender's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderStats {
    /// Its current state.
    pub state: SenderState,
    /// Events accepted.
    pub accepted: u64,
    /// Of these, not acknowledged.
    pub unacknowledged: u64,
    /// Events that were sent again and may have arrived before.
    pub possible_repeats: u64,
    /// Attempts to connect, to all hosts.
    pub attempts: u64,
    /// Connections after the first one of each host.
    pub reconnects: u64,
    /// Events in the buffer: a batch counts until all of it is acknowledged.
    pub buffer_events: u64,
    /// Their bytes.
    pub buffer_bytes: u64,
    /// How long the oldest batch has been waiting for its acknowledgement.
    pub oldest: Option<Duration>,
    /// Receipts that nobody took in time (`receipts`).
    pub receipts_dropped: u64,
    /// Each host, in the order of the URLs.
    pub hosts: Vec<HostStats>,
}

/// Events that a sender accepted and that are not acknowledged: a window's, or the rest of a closed sender.
#[derive(Debug, Clone, Default)]
pub struct Unacked {
    pub(super) chunks: Vec<Chunk>,
}

impl Unacked {
    /// Events.
    pub fn events(&self) -> u64 {
        self.chunks.iter().map(Chunk::len).sum()
    }

    /// Of these, the events that were sent and may have arrived.
    pub fn possibly_arrived(&self) -> u64 {
        let sent = self.chunks.iter().filter(|chunk| chunk.repeats);
        sent.map(Chunk::len).sum()
    }

    /// The first and the last number of each run of such events, counted from 1 in the order of acceptance.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for chunk in &self.chunks {
            match ranges.last_mut() {
                Some((_, last)) if last.saturating_add(1) == chunk.first => *last = chunk.last(),
                _ => ranges.push((chunk.first, chunk.last())),
            }
        }
        ranges
    }

    /// The events themselves, in order.
    pub fn records(&self) -> impl Iterator<Item = &OutRecord> + Clone {
        self.chunks.iter().flat_map(Chunk::records)
    }
}

impl Pool {
    /// The hosts, comma-separated.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.hosts.iter().map(|one| &*one.stats.url).collect();
        names.join(",")
    }

    /// Whether any host was reached; `None` while that is not decided.
    pub fn was_reached(&self) -> Option<bool> {
        if self.hosts.iter().any(|one| one.stats.connections > 0) {
            return Some(true);
        }
        let decided = self.phase != Phase::Open || self.hosts.iter().all(|one| one.tried);
        decided.then_some(false)
    }

    /// Why a host that is not connected failed last.
    pub fn last_error(&self) -> Option<Arc<str>> {
        let away = self.hosts.iter().filter(|one| {
            let state = one.stats.state;
            !matches!(state, HostState::Connected | HostState::Draining)
        });
        away.into_iter()
            .find_map(|one| one.stats.last_error.clone())
    }

    /// The numbers of the sender and of its hosts.
    pub fn stats(&self, now: Instant) -> SenderStats {
        let hosts = self.hosts.iter().map(|one| HostStats {
            in_flight_windows: one.flights.len(),
            outstanding: one.outstanding.saturating_sub(one.partial),
            ..one.stats.clone()
        });
        let hosts: Vec<HostStats> = hosts.collect();
        let reconnects = hosts.iter().map(|one| one.connections.saturating_sub(1));
        SenderStats {
            state: match self.phase {
                Phase::Open if self.blocked => SenderState::Blocked,
                Phase::Open => SenderState::Open,
                Phase::Closing | Phase::Ending => SenderState::Closing,
                Phase::Closed => SenderState::Closed,
            },
            accepted: self.counts.accepted,
            unacknowledged: self.unacknowledged(),
            possible_repeats: self.counts.possible_repeats,
            attempts: hosts.iter().map(|one| one.attempts).sum(),
            reconnects: reconnects.sum(),
            buffer_events: self.held_events,
            buffer_bytes: self.held_bytes,
            oldest: self
                .batches
                .values()
                .next()
                .map(|open| now.saturating_duration_since(open.since)),
            receipts_dropped: self.counts.receipts_dropped,
            hosts,
        }
    }
}
