//! The quarantine: a spool of its own in `DIR/quarantine` for windows that cannot be read. It is made when
//! the first one comes, has a budget and an age of its own, and is full rather than larger.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_core::{LimitHit, locked};
use ackline_link::{Link, PeerInfo, Refused};
use ackline_spool::{Block, Promise, Settle, SpoolError, Writer, WriterOptions, now_us, rfc3339};
use serde_json::json;

use super::ReceiverOptions;
use super::report::{Acked, Report};
use crate::ingest::{Aside, Ingest, Landable};

/// Bytes that a block costs on disk beside its body, generously: Arrow's columns and an index entry.
const OVERHEAD: u64 = 8 * 1024;
/// Room for one block of any size above the budget, so that the writer never stalls: this module keeps the
/// budget.
const SLACK: u64 = 64 << 20;
/// Segments of the budget: each goes as a whole when it is too old.
const SEGMENTS: u64 = 8;

/// The quarantine of one receiver.
pub(crate) struct Quarantine {
    dir: PathBuf,
    options: WriterOptions,
    budget: u64,
    writer: tokio::sync::Mutex<Option<Writer>>,
    /// Bytes handed to the writer that are not durable.
    waiting: AtomicU64,
}

impl Quarantine {
    /// The quarantine of the spool in `dir`; opened if it is there, so that segments that are too old go.
    ///
    /// # Errors
    /// It is there and cannot be opened.
    pub(super) fn new(dir: &Path, options: &ReceiverOptions) -> Result<Self, SpoolError> {
        let own = &options.quarantine;
        let segment_age =
            (own.quarantine_age / 8).clamp(Duration::from_secs(1), Duration::from_secs(3_600));
        let writer_options = WriterOptions {
            budget: own.quarantine_budget.saturating_add(SLACK),
            segment_bytes: (own.quarantine_budget / SEGMENTS).max(64 << 10),
            segment_age,
            retain_committed: own.quarantine_age,
            retain_max: Some(own.quarantine_age),
            acks: None,
            // The spool's own serves both.
            reserve: 0,
            ..options.writer.clone()
        };
        let dir = dir.join("quarantine");
        let writer = if dir.exists() {
            Some(Writer::open(&dir, writer_options.clone())?.0)
        } else {
            None
        };
        Ok(Self {
            dir,
            options: writer_options,
            budget: own.quarantine_budget,
            writer: tokio::sync::Mutex::new(writer),
            waiting: AtomicU64::new(0),
        })
    }

    /// Keeps a block, or says why not. `settle` is told `token` once it is durable.
    pub(super) async fn keep(
        self: &Arc<Self>,
        peer: &PeerInfo,
        block: Block,
        (settle, token): (Arc<dyn Settle>, u64),
    ) -> Result<(), Refused> {
        let mut opened = self.writer.lock().await;
        if opened.is_none() {
            let (dir, options) = (self.dir.clone(), self.options.clone());
            let made = tokio::task::spawn_blocking(move || Writer::open(&dir, options)).await;
            let made = made.unwrap_or(Err(SpoolError::Closed));
            *opened = Some(made.map_err(|error| self.unusable(peer, &error))?.0);
        }
        let Some(writer) = opened.as_ref() else {
            return Err(self.unusable(peer, &SpoolError::Closed));
        };
        let bytes = cost(&block);
        let used = writer.stats().bytes + self.waiting.load(Ordering::Relaxed);
        if used.saturating_add(bytes) > self.budget {
            return Err(self.full(peer, used.saturating_add(bytes)));
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        writer.append(block, settle, token, Promise::Durable);
        Ok(())
    }

    fn full(&self, peer: &PeerInfo, value: u64) -> Refused {
        let (dir, limit, option) = (self.dir.display(), self.budget, "--quarantine-budget");
        let message = format!(
            "the quarantine {dir} is full: {value} bytes would be above {limit} ({option})"
        );
        let mut refused = Refused::new(peer, "quarantine.full", message);
        refused.option = Some(option);
        refused.hit = Some(LimitHit {
            value,
            limit,
            option,
        });
        refused
    }

    fn unusable(&self, peer: &PeerInfo, error: &SpoolError) -> Refused {
        tracing::error!(code = "quarantine.unusable", dir = %self.dir.display(), %error,
            "windows that cannot be read are refused");
        let message = format!("the quarantine cannot be opened: {error}");
        Refused::new(peer, "quarantine.unusable", message)
    }

    /// Makes the blocks durable that were handed over, and lets go of them.
    pub(crate) async fn close(&self, timeout: Duration) {
        if let Some(writer) = self.writer.lock().await.take() {
            let _ = tokio::task::spawn_blocking(move || writer.close(timeout)).await;
        }
    }
}

fn cost(block: &Block) -> u64 {
    (block.body_bytes() as u64).saturating_add(OVERHEAD)
}

/// The windows of one link that are on their way into the quarantine.
pub(super) struct AsideSettle<I: Ingest> {
    link: Link<I::Machine>,
    peer: PeerInfo,
    quarantine: Arc<Quarantine>,
    report: Arc<Report>,
    pending: Mutex<HashMap<u64, Waiting>>,
    /// Why a window was refused all the same: the reason that is told at the end of the connection.
    refused: Mutex<Option<Refused>>,
}

struct Waiting {
    events: u64,
    bytes: u64,
    code: &'static str,
    message: String,
    offset: u64,
}

impl<I: Ingest> AsideSettle<I> {
    pub(super) fn new(
        link: Link<I::Machine>,
        peer: PeerInfo,
        quarantine: Arc<Quarantine>,
        report: Arc<Report>,
    ) -> Self {
        Self {
            link,
            peer,
            quarantine,
            report,
            pending: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Keeps a window that cannot be read; one for which there is no room ends its connection.
    pub(super) async fn keep(self: &Arc<Self>, aside: Aside) {
        let token = aside.token;
        let waiting = Waiting {
            events: aside.events,
            bytes: cost(&aside.block),
            code: aside.code,
            message: aside.message,
            offset: aside.offset,
        };
        locked(&self.pending).insert(token, waiting);
        let settle = (Arc::clone(self) as Arc<dyn Settle>, token);
        let kept = self.quarantine.keep(&self.peer, aside.block, settle);
        let Err(mut refusal) = kept.await else {
            return;
        };
        if let Some(waiting) = locked(&self.pending).remove(&token) {
            refusal.message = format!("{}; {}", refusal.message, waiting.message);
            self.report.abandoned(1, waiting.events);
        }
        *locked(&self.refused) = Some(refusal);
        self.link.call(|machine, now| machine.refuse(now, token));
    }

    /// Why a window of this link was refused, if the quarantine was the reason.
    pub(super) fn refusal(&self) -> Option<Refused> {
        let mut refused = locked(&self.refused);
        refused.take()
    }

    fn tell(&self, one: &Waiting) {
        tracing::warn!(peer = %self.peer.name, code = one.code,
            offset = one.offset, events = one.events, why = one.message, "a window was set aside");
        self.report.event(&json!({
            "event": "quarantined",
            "time": rfc3339(now_us()),
            "peer": &*self.peer.name,
            "protocol": I::SCHEME,
            "code": one.code,
            "offset": one.offset,
            "events": one.events,
            "message": one.message,
        }));
    }
}

impl<I: Ingest> Settle for AsideSettle<I> {
    fn settle(&self, tokens: &[u64]) {
        for token in tokens {
            let Some(one) = locked(&self.pending).remove(token) else {
                continue;
            };
            self.quarantine
                .waiting
                .fetch_sub(one.bytes, Ordering::Relaxed);
            self.tell(&one);
            let is_told = !self.link.is_ended()
                && self.link.call(|machine, now| {
                    let is_told = machine.settle(now, *token);
                    if is_told {
                        self.report.acked(Acked::Quarantined, 1, one.events);
                    }
                    is_told
                });
            if !is_told {
                self.report.quarantined_unacked(one.events);
            }
        }
    }

    fn failed(&self, error: &SpoolError) {
        let left = std::mem::take(&mut *locked(&self.pending));
        for one in left.values() {
            self.quarantine
                .waiting
                .fetch_sub(one.bytes, Ordering::Relaxed);
            self.report.abandoned(1, one.events);
        }
        tracing::error!(code = "quarantine.failed", %error, "connection ended without an ack");
        self.link.abort();
    }
}
