//! The reports that need a look at the disk: the lag of each consumer, and `DIR/status.json`, by which
//! `ackline spool ls` shows a running receiver. Once a second, off the threads that serve links.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_core::locked;
use ackline_spool::{Access, Loss, Spool, SpoolError, now_us};
use serde::Serialize;
use serde_json::Value;

use super::Shared;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How far a consumer of the spool is behind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsumerLag {
    /// The consumer's name.
    pub name: String,
    /// Its mark: everything below is committed.
    pub committed: u64,
    /// Events above the mark.
    pub lag_events: u64,
    /// Bytes on disk of the group commits they are in.
    pub lag_bytes: u64,
    /// Seconds since the first of them was received; 0 when there is none.
    pub lag_s: f64,
    /// `live`, `idle` or `stale`.
    pub state: &'static str,
    /// Seconds since a reader was last seen.
    pub last_seen_s: f64,
}

/// Looks at one spool.
pub(crate) struct Operator {
    spool: Spool,
    status: PathBuf,
    mode: u32,
    seen: Mutex<Seen>,
    /// Held while the file is written; after the end it is written no more.
    is_over: Mutex<bool>,
}

#[derive(Default)]
struct Seen {
    consumers: Vec<ConsumerLag>,
    oldest_s: Option<f64>,
    /// The losses of the spool, of the first look: a running receiver notes no new ones.
    losses: Option<Vec<Loss>>,
    /// The last failure that was said.
    failure: Option<String>,
}

impl Operator {
    pub(super) fn new(spool: Spool, dir: &Path, access: Access) -> Self {
        Self {
            spool,
            status: dir.join("status.json"),
            mode: if access.group { 0o660 } else { 0o600 },
            seen: Mutex::default(),
            is_over: Mutex::default(),
        }
    }

    /// Whether somebody may read the spool and make room in it; a look at the disk.
    pub(crate) fn has_consumer(&self) -> bool {
        // If the consumers cannot be read, there may be one.
        self.spool.consumers().map_or(true, |all| !all.is_empty())
    }

    /// The consumers at the last look.
    pub(super) fn consumers(&self) -> Vec<ConsumerLag> {
        locked(&self.seen).consumers.clone()
    }

    /// Seconds since the first kept event was received that some consumer has not committed, or, where
    /// there is no consumer, the first one that is kept; 0 when there is none. `None` before the first look.
    pub(super) fn oldest_uncommitted_age_s(&self) -> Option<f64> {
        locked(&self.seen).oldest_s
    }

    /// Kept positions whose events are lost or damaged. `None` before the first look.
    pub(super) fn lost(&self, first_kept: u64) -> Option<u64> {
        let seen = locked(&self.seen);
        let kept = |loss: &Loss| loss.to.saturating_sub(loss.from.max(first_kept));
        Some(seen.losses.as_ref()?.iter().map(kept).sum())
    }

    fn look(&self) {
        let is_first = locked(&self.seen).losses.is_none();
        if is_first {
            match self.spool.losses() {
                Ok(losses) => locked(&self.seen).losses = Some(losses),
                Err(error) => locked(&self.seen).say_failure(&error.to_string()),
            }
        }
        let looked = self
            .lags()
            .and_then(|lags| self.oldest(&lags).map(|oldest| (lags, oldest)));
        let mut seen = locked(&self.seen);
        match looked {
            Ok((consumers, oldest_s)) => {
                seen.failure = None;
                seen.consumers = consumers;
                seen.oldest_s = Some(oldest_s);
            }
            Err(error) => seen.say_failure(&error.to_string()),
        }
    }

    fn oldest(&self, lags: &[ConsumerLag]) -> Result<f64, SpoolError> {
        if let Some(most) = lags.iter().map(|one| one.lag_s).max_by(f64::total_cmp) {
            return Ok(most);
        }
        let all = self.spool.lag(self.spool.first_kept()?)?;
        Ok(all.oldest_us.map_or(0.0, |then| age(now_us(), then)))
    }

    fn lags(&self) -> Result<Vec<ConsumerLag>, SpoolError> {
        let now = now_us();
        let since = |then: i64| age(now, then);
        let mut lags = Vec::new();
        for consumer in self.spool.consumers()? {
            let lag = self.spool.lag(consumer.committed)?;
            lags.push(ConsumerLag {
                lag_events: lag.events,
                lag_bytes: lag.bytes,
                lag_s: lag.oldest_us.map_or(0.0, since),
                state: consumer.state().as_str(),
                last_seen_s: if consumer.live {
                    0.0
                } else {
                    since(consumer.seen_us)
                },
                committed: consumer.committed,
                name: consumer.name,
            });
        }
        Ok(lags)
    }

    /// Replaces the status file. It is no promise: it is not synced.
    fn tell(&self, stats: &Value) {
        let is_over = locked(&self.is_over);
        if *is_over {
            return;
        }
        let written = self.write(stats.to_string().as_bytes());
        drop(is_over);
        if let Err(error) = written {
            locked(&self.seen).say_failure(&error.to_string());
        }
    }

    fn write(&self, text: &[u8]) -> std::io::Result<()> {
        let temporary = self.status.with_extension("json.tmp");
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(self.mode)
            .open(&temporary)?;
        // The mask of the process may have taken the group's bits away.
        file.set_permissions(fs::Permissions::from_mode(self.mode))?;
        file.write_all(text)?;
        fs::rename(&temporary, &self.status)
    }

    /// The receiver has ended.
    pub(crate) fn forget(&self) {
        *locked(&self.is_over) = true;
        let _ = fs::remove_file(&self.status);
    }
}

impl Seen {
    fn say_failure(&mut self, text: &str) {
        if self.failure.as_deref() != Some(text) {
            tracing::warn!(
                code = "receiver.status",
                error = text,
                "the stats lack what is on disk"
            );
            self.failure = Some(text.to_owned());
        }
    }
}

/// Seconds from then to now, to the millisecond.
#[allow(clippy::cast_precision_loss)] // ages are far below 2^52 ms
fn age(now_us: i64, then_us: i64) -> f64 {
    (now_us.saturating_sub(then_us).max(0) / 1_000) as f64 / 1_000.0
}

/// Looks once a second, on a thread where it may wait for the disk.
pub(crate) async fn look_around(shared: Arc<Shared>) {
    if shared.operator.is_none() {
        return;
    }
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let shared = Arc::clone(&shared);
        let looked = tokio::task::spawn_blocking(move || {
            if let Some(operator) = &shared.operator {
                operator.look();
                operator.tell(&shared.stats().to_json());
            }
        });
        let _ = looked.await;
    }
}
