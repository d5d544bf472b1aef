//! What an operator is told: counters, gauges and the lines of the JSON contract.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ackline_core::{ErrorKind, LimitHit, ProtocolError};
use ackline_link::End;
use ackline_spool::{WriterState, now_us, rfc3339};
use serde_json::{Value, json};

use super::Shared;

/// Lines that wait for a slow reader; above this the oldest is dropped and counted.
const MAX_LINES: usize = 10_000;
/// How often the reasons to pause are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(100);
const STATS_EVERY: Duration = Duration::from_secs(1);

/// Counters since the start and gauges of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Connections open now.
    pub connections: u64,
    /// Complete windows received.
    pub windows: u64,
    /// Events in them.
    pub events: u64,
    /// Bytes of them on the wire.
    pub bytes: u64,
    /// Events whose acknowledgement was handed to their connection.
    pub acked_events: u64,
    /// Windows received that wait for the spool.
    pub unacked_windows: u64,
    /// Positions below this are durable (0 without a spool).
    pub durable: u64,
    /// Bytes of the spool on disk.
    pub spool_bytes: u64,
    /// Bytes charged to the memory budget.
    pub memory_bytes: u64,
    /// Connections ended for their input.
    pub refused: u64,
    /// Why reading stands still now: `memory`, `budget` or `disk_full`.
    pub paused: Option<&'static str>,
}

impl ReceiverStats {
    /// The members of the `stats` line.
    pub fn to_json(&self) -> Value {
        json!({
            "event": "stats",
            "time": rfc3339(now_us()),
            "connections": self.connections,
            "windows": self.windows,
            "events": self.events,
            "bytes": self.bytes,
            "acked_events": self.acked_events,
            "unacked_windows": self.unacked_windows,
            "durable": self.durable,
            "spool_bytes": self.spool_bytes,
            "memory_bytes": self.memory_bytes,
            "refused": self.refused,
            "paused": self.paused,
        })
    }
}

#[derive(Default)]
pub(super) struct Report {
    connections: AtomicU64,
    windows: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
    acked_windows: AtomicU64,
    acked_events: AtomicU64,
    refused: AtomicU64,
    has_stopped: AtomicBool,
    lines: Mutex<Lines>,
    arrived: Condvar,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<String>,
    missed: u64,
}

impl Report {
    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn window(&self, events: u64, bytes: u64) {
        self.windows.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(events, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn acked(&self, windows: usize, events: u64) {
        self.acked_windows
            .fetch_add(windows as u64, Ordering::Relaxed);
        self.acked_events.fetch_add(events, Ordering::Relaxed);
    }

    /// Windows that nobody waits for any more: their connection is gone.
    pub(super) fn abandoned(&self, windows: usize) {
        self.acked_windows
            .fetch_add(windows as u64, Ordering::Relaxed);
    }

    /// A connection ended: a line if its input was the reason.
    pub(super) fn ended<K: ErrorKind>(&self, protocol: &str, peer: &str, end: &End<K>) {
        let from = (protocol, peer);
        match end {
            End::Protocol(error) => self.refused_for(from, error),
            End::Memory {
                value,
                limit,
                option,
            } => {
                let hit = LimitHit {
                    value: *value,
                    limit: *limit,
                    option,
                };
                self.refuse(from, "link.memory", None, Some(hit), &end.to_string());
            }
            other => tracing::debug!(peer, end = %other, "connection ended"),
        }
    }

    fn refused_for<K: ErrorKind>(&self, from: (&str, &str), error: &ProtocolError<K>) {
        let hit = error.kind.limit();
        let message = error.kind.to_string();
        self.refuse(from, error.kind.code(), Some(error.offset), hit, &message);
    }

    fn refuse(
        &self,
        (protocol, peer): (&str, &str),
        code: &str,
        offset: Option<u64>,
        hit: Option<LimitHit>,
        message: &str,
    ) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(peer, code, offset, why = message, "connection refused");
        self.event(&json!({
            "event": "refused",
            "time": rfc3339(now_us()),
            "peer": peer,
            "protocol": protocol,
            "code": code,
            "offset": offset,
            "value": hit.map(|hit| hit.value),
            "limit": hit.map(|hit| hit.limit),
            "option": hit.map(|hit| hit.option),
            "message": message,
        }));
    }

    /// The last line, once.
    pub(super) fn stopped(&self, unacked_windows: u64) {
        if !self.has_stopped.swap(true, Ordering::Relaxed) {
            self.event(&json!({
                "event": "stopped",
                "time": rfc3339(now_us()),
                "unacked_windows": unacked_windows,
            }));
        }
    }

    /// Queues one line. Never waits.
    pub(super) fn event(&self, line: &Value) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.waiting.len() == MAX_LINES {
            lines.waiting.pop_front();
            lines.missed += 1;
        }
        lines.waiting.push_back(line.to_string());
        drop(lines);
        self.arrived.notify_one();
    }

    pub(super) fn next(&self, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(line) = lines.waiting.pop_front() {
                return Some(line);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            lines = self
                .arrived
                .wait_timeout(lines, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn take_missed(&self) -> u64 {
        std::mem::take(
            &mut self
                .lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .missed,
        )
    }
}

impl Shared {
    pub(super) fn stats(&self) -> ReceiverStats {
        let report = &self.report;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let acked = load(&report.acked_windows);
        let spool = self.writer.as_ref().map(ackline_spool::Writer::stats);
        ReceiverStats {
            connections: load(&report.connections),
            windows: load(&report.windows),
            events: load(&report.events),
            bytes: load(&report.bytes),
            acked_events: load(&report.acked_events),
            unacked_windows: load(&report.windows).saturating_sub(acked),
            durable: spool.as_ref().map_or(0, |spool| spool.durable),
            spool_bytes: spool.as_ref().map_or(0, |spool| spool.bytes),
            memory_bytes: self.budget.used(),
            refused: load(&report.refused),
            paused: match spool.map(|spool| spool.state) {
                Some(WriterState::StalledBudget) => Some("budget"),
                Some(WriterState::StalledDisk) => Some("disk_full"),
                _ if self.budget.waiting() > 0 => Some("memory"),
                _ => None,
            },
        }
    }
}

/// One `stats` line a second, and `paused` / `resumed` when they happen.
pub(super) async fn watch_stats(shared: Arc<Shared>) {
    let mut paused: Option<&'static str> = None;
    let mut told = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let stats = shared.stats();
        if stats.paused != paused {
            for (event, reason) in [("resumed", paused), ("paused", stats.paused)] {
                if let Some(reason) = reason {
                    tracing::warn!(code = "receiver.paused", event, reason, "reading");
                    shared.report.event(&json!({
                        "event": event, "time": rfc3339(now_us()), "reason": reason,
                    }));
                }
            }
            paused = stats.paused;
        }
        if told.elapsed() >= STATS_EVERY {
            told += STATS_EVERY;
            let mut line = stats.to_json();
            let missed = shared.report.take_missed();
            if let (1.., Some(members)) = (missed, line.as_object_mut()) {
                members.insert("missed_lines".to_owned(), missed.into());
            }
            shared.report.event(&line);
        }
    }
}
