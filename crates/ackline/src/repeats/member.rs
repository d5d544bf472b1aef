//! One connection's part: what it lands is remembered, what it sends is compared.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::judge::Judge;
use super::sender::{Base, Sender};
use super::trail::Trail;
use super::{LOOK_EVERY, Repeats};

/// A connection of a sender.
pub(crate) struct Member {
    repeats: Arc<Repeats>,
    name: Arc<str>,
    trail: Arc<Trail>,
    /// Known from its first window on; `None` if it is not followed.
    sender: OnceLock<Option<Arc<Sender>>>,
    progress: Mutex<Progress>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    is_comparing: bool,
    /// The sender's epoch when it was looked at.
    seen: u64,
    quiet: u32,
    enough: u32,
}

impl Member {
    /// Of the sender of this name.
    pub(crate) fn new(repeats: &Arc<Repeats>, name: &Arc<str>, trail: &Arc<Trail>) -> Self {
        Self {
            repeats: Arc::clone(repeats),
            name: Arc::clone(name),
            trail: Arc::clone(trail),
            sender: OnceLock::new(),
            progress: Mutex::default(),
        }
    }

    /// What the windows that are to be landed now are compared with; `None`, without looking at anything,
    /// when there is nothing. Until [`landed`](Self::landed) no other connection of the sender compares.
    /// `is_over` says that nobody waits any more.
    pub(crate) async fn judge(&self, is_over: impl Fn() -> bool) -> Option<Judge> {
        let sender = self.sender(&is_over).await?;
        let (quiet, enough) = self.is_comparing(sender)?;
        let others = sender.others(&self.trail);
        if !sender.is_few() {
            if others.is_empty() && self.goes_on() {
                return None;
            }
            sender.is_comparing(&self.trail);
        }
        self.wait_finished(&others, &is_over).await;
        wait_placed(&others, &is_over).await;
        let mut base = Arc::clone(&sender.base).lock_owned().await;
        let others = sender.others(&self.trail);
        if sender.is_few() {
            // What others compared meanwhile is on its way.
            wait_placed(&others, &is_over).await;
        }
        if others.is_empty() {
            self.stop_comparing(sender, &mut base);
            return None;
        }
        let before = base.digests.len();
        let wanted = sender.wanted(&mut base, &others);
        self.repeats.count(before, base.digests.len());
        if !wanted.is_empty() {
            base = self.repeats.read(base, wanted, &self.name).await?;
        }
        let digester = self.repeats.digester.clone();
        Some(Judge::new(base, digester, (quiet, enough)))
    }

    /// What was compared was handed to the spool.
    pub(crate) fn landed(&self, mut judge: Judge) {
        let Some(Some(sender)) = self.sender.get() else {
            return;
        };
        let (_, repeats) = judge.counts();
        self.progress().quiet = judge.quiet();
        if judge.is_done() {
            self.stop_comparing(sender, judge.base());
        } else if repeats > 0 {
            // Where one repeat came, the next one may come by another of its connections.
            self.progress().seen = sender.found();
        }
    }

    /// The connection is over.
    pub(crate) fn end(&self) {
        self.trail.end();
        if let Some(Some(sender)) = self.sender.get() {
            sender.leave(&self.trail);
        }
    }

    /// Everything it handed on was handed to the spool.
    pub(crate) fn finish(&self) {
        self.end();
        self.trail.finish();
    }

    async fn sender(&self, is_over: impl Fn() -> bool) -> Option<&Arc<Sender>> {
        if let Some(known) = self.sender.get() {
            return known.as_ref();
        }
        let joined = self.repeats.join(&self.name, &self.trail).await;
        if let Some((sender, is_comparing)) = &joined {
            *self.progress() = Progress {
                is_comparing: *is_comparing,
                seen: sender.epoch(),
                quiet: 0,
                enough: ENOUGH,
            };
        }
        let sender = joined.map(|(sender, _)| sender);
        let sender = self.sender.get_or_init(|| sender).as_ref();
        if self.trail.is_ended() {
            // It ended before it was known here.
            self.end();
        }
        if let Some(sender) = sender
            && !sender.is_few()
        {
            wait_seen(is_over).await;
        }
        sender
    }

    /// Whether, with nothing to compare with now, the end of another connection may still be seen: one
    /// that is compared with those that have ended goes on for as many windows as the others.
    fn goes_on(&self) -> bool {
        let mut progress = self.progress();
        progress.quiet += 1;
        progress.quiet < progress.enough
    }

    /// How many windows matched nothing, of how many that end it; `None` when it has ended.
    fn is_comparing(&self, sender: &Sender) -> Option<(u32, u32)> {
        let mut progress = self.progress();
        let epoch = sender.epoch();
        if epoch != progress.seen && sender.is_few() {
            let enough = if progress.is_comparing {
                progress.enough
            } else {
                ENOUGH_OPEN
            };
            *progress = Progress {
                is_comparing: true,
                seen: epoch,
                quiet: 0,
                enough,
            };
            sender.is_comparing(&self.trail);
        }
        let Progress {
            is_comparing,
            quiet,
            enough,
            ..
        } = *progress;
        is_comparing.then_some((quiet, enough))
    }

    fn stop_comparing(&self, sender: &Sender, base: &mut Base) {
        self.progress().is_comparing = false;
        let before = base.digests.len();
        sender.is_quiet(&self.trail, base);
        self.repeats.count(before, base.digests.len());
    }

    /// What connections that are over handed on is to land first. Of two such the later one waits, so that no
    /// two wait for each other.
    async fn wait_finished(&self, others: &[Arc<Trail>], is_over: impl Fn() -> bool) {
        let is_before = |other: &&Arc<Trail>| {
            let is_earlier = other.id < self.trail.id || !self.trail.is_ended();
            is_earlier && other.is_ended() && !other.is_finished()
        };
        while others.iter().any(|other| is_before(&other)) && !is_over() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until what these connections have handed to the spool is durable. The spool keeps the order: what
/// waits here would not be durable earlier.
async fn wait_placed(others: &[Arc<Trail>], is_over: impl Fn() -> bool) {
    let reached: Vec<_> = others
        .iter()
        .map(|other| (other, other.reached()))
        .collect();
    let is_behind = || {
        reached
            .iter()
            .any(|(other, reached)| !other.has_placed(*reached))
    };
    while is_behind() && !is_over() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lets the ends be seen that came before this connection and still wait in their sockets. In several turns:
/// each of them lets the runtime look at all of its sockets, however busy it is.
async fn wait_seen(is_over: impl Fn() -> bool) {
    for _ in 0..SEEN_TURNS {
        if is_over() {
            return;
        }
        tokio::time::sleep(SEEN_TURN).await;
    }
}

/// 50 ms, once for each new connection of a sender with many.
const SEEN_TURNS: u32 = 5;
const SEEN_TURN: Duration = Duration::from_millis(10);
/// Whole windows in a row that match nothing after which a new connection is taken to send new events.
const ENOUGH: u32 = 3;
/// The same for one that was open when another one began or ended: what it had in flight comes first.
const ENOUGH_OPEN: u32 = 16;
