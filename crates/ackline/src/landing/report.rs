//! The reports for an operator: counters, gauges and the lines of the JSON contract.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ackline_core::{ErrorKind, locked};
use ackline_link::{End, PeerInfo, Refused, TurnedAway};
use ackline_spool::{SpoolError, WriterState, WriterStats, now_us, rfc3339};
use serde_json::{Value, json};

use super::Shared;
use super::operator::Operator;
use super::stats::{AckedStats, ReceivedStats, ReceiverStats, RefusalStats, SpoolStats};

/// Lines that wait for a slow reader; above this the oldest is dropped and counted.
const MAX_LINES: usize = 10_000;
/// How often the reasons to pause are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(100);
const STATS_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Report {
    received: Received,
    acked: AckedEvents,
    /// Windows that nobody waits for any more: acknowledged, or their connection is gone.
    done: Counted,
    refused: AtomicU64,
    has_stopped: AtomicBool,
    /// No socket listens any more.
    is_deaf: AtomicBool,
    /// Why the receiver gives up, and whether the line `failed` was told.
    failure: Mutex<(Option<Failure>, bool)>,
    lines: Mutex<Lines>,
    arrived: Condvar,
}

/// Windows and the events in them.
#[derive(Default)]
struct Counted {
    windows: AtomicU64,
    events: AtomicU64,
}

impl Counted {
    fn add(&self, windows: u64, events: u64) {
        self.windows.fetch_add(windows, Ordering::Relaxed);
        self.events.fetch_add(events, Ordering::Relaxed);
    }

    fn load(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.windows), load(&self.events))
    }
}

/// The counters of [`ReceivedStats`].
#[derive(Default)]
struct Received {
    sums: Counted,
    bytes: AtomicU64,
    compared: AtomicU64,
    repeats: AtomicU64,
}

/// The counters of [`AckedStats`].
#[derive(Default)]
struct AckedEvents {
    landed: AtomicU64,
    quarantined: AtomicU64,
    discarded: AtomicU64,
    landed_unacked: AtomicU64,
    quarantined_unacked: AtomicU64,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<String>,
    missed: u64,
}

impl Report {
    pub(super) fn window(&self, events: u64, bytes: u64) {
        self.received.sums.add(1, events);
        self.received.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The acknowledgements of so many windows were handed to their link.
    pub(super) fn acked(&self, what: Acked, windows: usize, events: u64) {
        let counter = match what {
            Acked::Landed => &self.acked.landed,
            Acked::Quarantined => &self.acked.quarantined,
            Acked::Discarded => &self.acked.discarded,
        };
        counter.fetch_add(events, Ordering::Relaxed);
        self.abandoned(windows, events);
    }

    /// Windows are durable in the spool and their connection is gone.
    pub(super) fn landed_unacked(&self, windows: usize, events: u64) {
        let counter = &self.acked.landed_unacked;
        counter.fetch_add(events, Ordering::Relaxed);
        self.abandoned(windows, events);
    }

    /// Events were compared with the events that their sender had landed before; so many of them are repeats.
    pub(super) fn compared(&self, (compared, repeats): (u64, u64)) {
        let received = &self.received;
        received.compared.fetch_add(compared, Ordering::Relaxed);
        received.repeats.fetch_add(repeats, Ordering::Relaxed);
    }

    /// A window is durable in the quarantine and its connection is gone.
    pub(super) fn quarantined_unacked(&self, events: u64) {
        let counter = &self.acked.quarantined_unacked;
        counter.fetch_add(events, Ordering::Relaxed);
        self.abandoned(1, events);
    }

    /// Windows that nobody waits for any more: their connection is gone.
    pub(super) fn abandoned(&self, windows: usize, events: u64) {
        self.done.add(windows as u64, events);
    }

    /// The spool will not keep the blocks that it was given. A close is no failure.
    pub(super) fn spool_failed(&self, error: &SpoolError) {
        if !matches!(error, SpoolError::Closed) {
            self.give_up(code_of(error), error.to_string());
        }
    }

    /// The first reason counts; the line is for callers of [`failed`](Self::failed).
    fn give_up(&self, code: &'static str, message: String) {
        locked(&self.failure)
            .0
            .get_or_insert(Failure { code, message });
    }

    /// Why the receiver gave up, once that was told.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let failure = locked(&self.failure);
        failure.0.clone().filter(|_| failure.1)
    }

    /// The line `failed`, once. A caller that sees [`failure`](Self::failure) finds the line queued.
    fn failed(&self) {
        let mut failure = locked(&self.failure);
        if failure.1 {
            return;
        }
        let Failure { code, message } = failure.0.get_or_insert_with(|| Failure {
            code: "spool.failed",
            message: "the spool's disk failed three times in a row".to_owned(),
        });
        tracing::error!(
            code = "receiver.failed",
            cause = *code,
            why = *message,
            "the receiver gives up"
        );
        self.event(&json!({
            "event": "failed",
            "time": rfc3339(now_us()),
            "code": code,
            "message": message,
        }));
        failure.1 = true;
    }

    /// Reports a connection that ended because of its input; a given `refusal` replaces the violation.
    pub(crate) fn ended<K: ErrorKind>(
        &self,
        (protocol, peer): (&str, &PeerInfo),
        end: &End<K>,
        refusal: Option<Refused>,
    ) {
        let Some(mut refused) = Refused::of_end(peer, end) else {
            let peer = &*peer.name;
            tracing::debug!(code = "receiver.ended", peer, %end, "connection ended");
            return;
        };
        if let (Some(mut refusal), End::Protocol(_)) = (refusal, end) {
            refusal.offset = refused.offset;
            refused = refusal;
        }
        self.refused(protocol, &refused);
    }

    /// Reports and counts one refusal: once it is counted, its line is there.
    pub(crate) fn refused(&self, protocol: &str, refused: &Refused) {
        self.tell(protocol, refused);
        self.refused.fetch_add(1, Ordering::Release);
    }

    /// The refusals so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    /// A connection that was turned away before it was of any use to its protocol. In a storm few have a line.
    pub(crate) fn turned_away(&self, protocol: &str, turned: TurnedAway) {
        let refused = match turned {
            TurnedAway::Refused(refused) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                refused
            }
            TurnedAway::Unreported(refused) => refused,
            _ => {
                tracing::debug!(
                    code = "receiver.health_check",
                    protocol,
                    "closed before a byte"
                );
                return;
            }
        };
        if refused.times.is_some() {
            self.tell(protocol, &refused);
        }
    }

    /// The line of a refusal, or of so many like it.
    fn tell(&self, protocol: &str, refused: &Refused) {
        let Refused {
            what,
            code,
            message,
            hit,
            option,
            offset,
            ..
        } = refused;
        let (peer, times) = (&*refused.peer, refused.times.filter(|times| *times > 1));
        tracing::warn!(peer, code, offset, times, why = message, "{what} refused");
        let mut line = json!({
            "event": "refused",
            "time": rfc3339(now_us()),
            "peer": peer,
            "protocol": protocol,
            "code": code,
            "offset": offset,
            "value": hit.map(|hit| hit.value),
            "limit": hit.map(|hit| hit.limit),
            "option": option,
            "message": message,
        });
        if let (Some(times), Some(members)) = (times, line.as_object_mut()) {
            members.insert("times".to_owned(), times.into());
        }
        self.event(&line);
    }

    /// The last line, once.
    pub(crate) fn stopped(&self, unacked_windows: u64, uncommitted_windows: u64) {
        if !self.has_stopped.swap(true, Ordering::Relaxed) {
            self.event(&json!({
                "event": "stopped",
                "time": rfc3339(now_us()),
                "unacked_windows": unacked_windows,
                "uncommitted_windows": uncommitted_windows,
            }));
        }
    }

    /// The counters so far; the gauges are 0. The counters of done windows and events are read before those of
    /// received ones: they are never higher.
    pub(super) fn counters(&self) -> ReceiverStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (done_windows, done_events) = self.done.load();
        let of = &self.acked;
        let (landed, quarantined) = (load(&of.landed), load(&of.quarantined));
        let acked = AckedStats {
            // The sum of its parts at any moment.
            acked_events: landed + quarantined + load(&of.discarded),
            landed,
            quarantined,
            landed_unacked: load(&of.landed_unacked),
            quarantined_unacked: load(&of.quarantined_unacked),
        };
        let (windows, events) = self.received.sums.load();
        ReceiverStats {
            received: ReceivedStats {
                windows,
                events,
                bytes: load(&self.received.bytes),
                unacked_windows: windows.saturating_sub(done_windows),
                unacked: events.saturating_sub(done_events),
                compared: load(&self.received.compared),
                repeats: load(&self.received.repeats),
            },
            acked,
            refusals: RefusalStats {
                refused: self.refusals(),
                ..RefusalStats::default()
            },
            ..ReceiverStats::default()
        }
    }

    /// Queues one line. Never waits.
    pub(crate) fn event(&self, line: &Value) {
        let mut lines = locked(&self.lines);
        if lines.waiting.len() == MAX_LINES {
            lines.waiting.pop_front();
            lines.missed += 1;
        }
        lines.waiting.push_back(line.to_string());
        drop(lines);
        self.arrived.notify_one();
    }

    pub(crate) fn next(&self, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        let mut lines = locked(&self.lines);
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
        std::mem::take(&mut locked(&self.lines).missed)
    }
}

/// The code of a receiver that gives up for this reason.
fn code_of(error: &SpoolError) -> &'static str {
    match error {
        SpoolError::Fenced { .. } | SpoolError::Changed { .. } | SpoolError::Panicked { .. } => {
            error.code()
        }
        _ => "spool.failed",
    }
}

/// Why a receiver gave up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
#[non_exhaustive]
pub struct Failure {
    /// `spool.failed`: the spool cannot be written any more; `spool.fenced`, `spool.changed` and `spool.panic`
    /// say why. `receiver.accept`: no socket listens any more.
    pub code: &'static str,
    /// The system's error message.
    pub message: String,
}

/// The meaning of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Acked {
    /// Its events are in the spool.
    Landed,
    /// They are in the quarantine.
    Quarantined,
    /// They were counted.
    Discarded,
}

impl Shared {
    /// Counts a broken listening socket; without the last one the receiver gives up.
    pub(super) fn listener_failed(&self, error: &std::io::Error) {
        if self.sockets.listening.fetch_sub(1, Ordering::Relaxed) == 1 {
            let message = format!("no socket listens any more: {error}");
            self.report.give_up("receiver.accept", message);
            self.report.is_deaf.store(true, Ordering::Release);
        }
    }

    pub(crate) fn stats(&self) -> ReceiverStats {
        // First: the counts of a connection that is gone are in the sums then.
        let connections = self.sockets.acceptor.connections() as u64;
        let uncommitted = self.open.uncommitted();
        let mut stats = self.report.counters();
        let acceptor = self.sockets.acceptor.stats();
        stats.refusals.turned_away = acceptor.turned_away;
        stats.refusals.health_checks = acceptor.health_checks;
        let writer = self.writer.as_ref().map(ackline_spool::Writer::stats);
        let writing = writer.as_ref().map(|writer| writer.state);
        ReceiverStats {
            connections,
            memory_bytes: self.budget.used(),
            paused: self.paused(writing),
            state: self.state(writing),
            spool: self.spool_stats(writer.unwrap_or_default(), uncommitted),
            ..stats
        }
    }

    fn spool_stats(
        &self,
        writer: WriterStats,
        (uncommitted_windows, uncommitted): (u64, u64),
    ) -> SpoolStats {
        let operator = self.operator.as_ref();
        SpoolStats {
            uuid: writer.uuid,
            accepted: writer.accepted,
            uncommitted_windows,
            uncommitted,
            first_kept: writer.first_kept,
            lost: operator.and_then(|operator| operator.lost(writer.first_kept)),
            durable: writer.durable,
            bytes: writer.bytes,
            budget: writer.budget,
            commits: writer.commits,
            consumers: operator.map_or_else(Vec::new, Operator::consumers),
            oldest_uncommitted_age_s: operator.and_then(Operator::oldest_uncommitted_age_s),
        }
    }

    /// Why reading stands still.
    fn paused(&self, writing: Option<WriterState>) -> Option<&'static str> {
        match writing {
            Some(WriterState::StalledBudget) => Some("budget"),
            Some(WriterState::StalledDisk) => Some("disk_full"),
            Some(WriterState::StalledDescriptors) => Some("descriptors"),
            _ if self.shares.as_ref().is_some_and(|all| all.waiting() > 0) => Some("sender_share"),
            _ if self.room.waiting() > 0 => Some("budget"),
            _ if self.budget.waiting() > 0 => Some("memory"),
            _ => None,
        }
    }

    fn has_lost_its_spool(&self) -> bool {
        let writing = self.writer.as_ref().map(|writer| writer.stats().state);
        writing == Some(WriterState::Failed)
    }

    fn state(&self, writing: Option<WriterState>) -> &'static str {
        let is_stopping = self.sockets.stopping.borrow().is_some();
        if self.report.is_deaf.load(Ordering::Acquire) {
            return WriterState::Failed.as_str();
        }
        match writing {
            Some(WriterState::Ok) | None if is_stopping => WriterState::Draining.as_str(),
            Some(writing) => writing.as_str(),
            None => WriterState::Ok.as_str(),
        }
    }
}

/// One `stats` line a second, and `paused` / `resumed` when they happen.
pub(crate) async fn watch_stats(shared: Arc<Shared>) {
    let mut paused: Option<&'static str> = None;
    let mut told = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let stats = shared.stats();
        if stats.state == WriterState::Failed.as_str() {
            if let Some(error) = shared.writer().and_then(|writer| writer.stats().failure) {
                shared.report.spool_failed(&error);
            }
            shared.report.failed();
        }
        if shared.has_lost_its_spool() {
            // Nothing can be acknowledged any more, also not for connections that come now.
            shared.open.abort_all();
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
mod tests {
    use super::*;

    #[test]
    fn who_sees_the_failure_finds_its_line() {
        for _ in 0..200 {
            let report = Report::default();
            report.give_up("spool.failed", "no space".to_owned());
            assert!(report.failure().is_none());
            std::thread::scope(|scope| {
                scope.spawn(|| report.failed());
                while report.failure().is_none() {
                    std::hint::spin_loop();
                }
                let line = report.next(Duration::ZERO).unwrap();
                assert!(line.contains("\"event\":\"failed\""), "{line}");
            });
        }
    }
}
