//! Moving a queue that nobody works on to the end of the spool: where its messages are, everything behind them is kept too,
//! and publishers to all queues would wait at the budget for a worker that may never come.
//!
//! The copies are durable before the queue's mark passes the originals. Meanwhile nothing else is written for queues, so that
//! the copies stay in order and find room, and so that they stand at the end of the spool if the broker is killed between
//! the two: the next one finds them there, and ends the move before it hands anything out.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ackline_micromsg::broker::{Kept, Routed, Unfinished};
use ackline_spool::{Block, Handed, Promise, Settle, SpoolError, WriterState, WriterStats};
use tokio::time::Instant;

use super::blocks::{Progress, Source, block};
use super::durable::{Durable, Stored};
use super::hub::Hub;
use super::queue_cell::{QueueCell, QueueState};
use super::read_back;

/// A queue that is moved.
struct Plan {
    queue: Arc<QueueCell>,
    left: Unfinished,
    /// The queue's mark in its file.
    mark: u64,
}

impl Plan {
    /// The copies of messages of its queue.
    fn blocks(&self, read: read_back::Read) -> Vec<Block> {
        let own = read.messages.into_iter();
        let own = own.filter(|(at, _)| self.left.has(*at));
        let own: Vec<_> = own.map(|(at, one)| (Arc::new(one), at)).collect();
        let alike = own.chunk_by(|(one, _), (next, _)| one.dotnet_type() == next.dotnet_type());
        let block = |messages: &[(Arc<Routed>, u64)]| {
            let copied_to = messages.last().map_or(self.left.from, |(_, at)| at + 1);
            let progress = Progress {
                copied_to,
                copies_from: self.left.to,
                mark: self.mark,
            };
            block(&self.queue, &Source::Copy(progress), messages)
        };
        alike.map(block).collect()
    }

    /// Whether the queue's mark in its file is behind the originals.
    fn has_mark(&self) -> bool {
        let state = self.queue.lock();
        let stored = state.stored.as_ref();
        stored.is_none_or(|stored| stored.written_mark() >= self.left.to)
    }
}

/// The queue with the lowest mark.
struct Lowest {
    queue: Arc<QueueCell>,
    mark: u64,
    /// Bytes of the spool from its mark on.
    bytes: u64,
}

/// The queue that an earlier broker has begun to move, and how far that has come.
pub(super) type HalfMoved = (String, Progress);

/// The settling of copies.
struct MoveSettle {
    first: AtomicU64,
    has_failed: AtomicBool,
}

impl Settle for MoveSettle {
    fn placed(&self, _token: u64, first: u64) {
        self.first.fetch_min(first, Ordering::Relaxed);
    }

    fn settle(&self, _tokens: &[u64]) {}

    fn failed(&self, _error: &SpoolError) {
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

impl Durable {
    /// Looks at what the queues keep of the spool: lets publishers wait while it is too much, and moves the queue that keeps
    /// the most, if nobody works on it and it is small.
    pub(super) async fn make_way(&self, hub: &Arc<Hub>, said: &mut Option<Instant>) {
        let stats = self.writer.stats();
        let unsettled = self.kept.begin();
        let lowest = self.lowest(hub, &stats).await;
        let bytes = lowest.as_ref().map_or(0, |lowest| lowest.bytes) + unsettled;
        if self.kept.measured(bytes) {
            hub.freed.notify_waiters();
        }
        let Some(lowest) = lowest else {
            return;
        };
        if self.kept.is_tight() && said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            *said = Some(Instant::now());
            self.say_tight(&lowest);
        }
        let can_move = stats.state == WriterState::Ok && !hub.is_closing();
        if !can_move || !self.kept.is_far(lowest.bytes) {
            return;
        }
        let Some(plan) = self.plan(hub, lowest, stats.durable).await else {
            return;
        };
        let moved = match self.check(&plan).await {
            Ok(()) => self.copy(hub, &plan).await,
            Err(error) => Err(error),
        };
        self.end(hub, &plan, moved).await;
    }

    /// Ends the move of a queue that an earlier broker has begun.
    pub(super) async fn end_half_moved(&self, hub: &Arc<Hub>, (name, progress): HalfMoved) {
        let Progress {
            copied_to,
            copies_from,
            mark,
        } = progress;
        let mut queues = hub.all_queues().into_iter();
        let Some(queue) = queues.find(|queue| *queue.name == name) else {
            return self.release(hub);
        };
        let plan = Plan {
            queue,
            left: Unfinished {
                from: copied_to,
                to: copies_from,
                all_from: copied_to,
                some: HashSet::new(),
            },
            mark,
        };
        let moved = self.copy(hub, &plan).await.map(|_| Some(copies_from));
        self.end(hub, &plan, moved).await;
    }

    fn say_tight(&self, lowest: &Lowest) {
        let (queue, mark, kept) = (&*lowest.queue.name, lowest.mark, lowest.bytes);
        tracing::warn!(
            code = "micromsg.queues_full",
            queue,
            mark,
            kept,
            budget = self.kept.budget(),
            option = "--budget",
            "publishers to all queues wait: this queue keeps the most of the spool; its workers must acknowledge its messages"
        );
    }

    /// The queue with the lowest mark; `None`: its mark is near the end.
    async fn lowest(&self, hub: &Hub, stats: &WriterStats) -> Option<Lowest> {
        let mark = |queue: &Arc<QueueCell>| queue.lock().stored.as_ref().map(Stored::written_mark);
        let marks = hub.all_queues().into_iter();
        let marks = marks.filter_map(|queue| Some((mark(&queue)?, queue)));
        let (mark, queue) = marks.min_by_key(|(mark, _)| *mark)?;
        let behind = stats.durable.saturating_sub(mark);
        let all = stats.durable.saturating_sub(stats.first_kept);
        let about = Kept::estimate(stats.bytes, behind, all);
        if self.kept.are_few(about) {
            return None;
        }
        let spool = Arc::clone(&self.spool);
        let lag = tokio::task::spawn_blocking(move || spool.lag(mark)).await;
        let measured = lag.ok().and_then(Result::ok);
        // Segments may be removed while it is measured.
        let bytes = measured.map_or(about, |lag| lag.bytes);
        Some(Lowest { queue, mark, bytes })
    }

    /// The messages of a queue that keeps much of the spool, if it is to be moved.
    async fn plan(
        &self,
        hub: &Hub,
        Lowest { queue, mark, .. }: Lowest,
        durable: u64,
    ) -> Option<Plan> {
        {
            let mut state = queue.lock();
            let (first, is_idle) = (state.queue.mark(), state.queue.is_idle());
            let stored = state.stored.as_mut()?;
            // The mark in its file may be an old one.
            stored.is_dirty = true;
            if first > mark || stored.stays_until > durable || !is_idle {
                return None;
            }
        }
        self.is_moving.store(true, Ordering::SeqCst);
        // From here on nothing is added to them.
        let until = Instant::now() + PATIENCE;
        while Self::is_busy(hub) && Instant::now() < until {
            tokio::time::sleep(SETTLES_IN).await;
        }
        let plan = if Self::is_busy(hub) {
            None
        } else {
            self.begin(&queue)
        };
        if plan.is_none() {
            self.release(hub);
        }
        plan
    }

    /// Nothing more is written for the queue or handed out of it from here on. `None`: somebody works on it.
    fn begin(&self, queue: &Arc<QueueCell>) -> Option<Plan> {
        let mut state = queue.lock();
        let QueueState {
            queue: waiting,
            stored,
            ..
        } = &mut *state;
        let stored = stored.as_mut()?;
        let is_marked = waiting.mark() <= stored.written_mark();
        if !waiting.is_idle() || !stored.is_settled() || !is_marked {
            return None;
        }
        // All of its blocks are durable. After a failed write of the spool's mark that is known of the writer alone.
        let to = self.spool.durable().ok()?;
        if to != self.writer.stats().durable {
            return None;
        }
        stored.is_moving = true;
        Some(Plan {
            queue: Arc::clone(queue),
            left: Unfinished {
                from: waiting.mark(),
                to,
                all_from: stored.cursor.read_to(),
                some: waiting.waiting_positions().collect(),
            },
            mark: stored.written_mark(),
        })
    }

    /// Whether its messages are few enough, and the spool has room for their copies: these cannot be taken back, and nothing
    /// else is written before they are durable.
    async fn check(&self, plan: &Plan) -> Result<(), String> {
        let most = self.kept.most_moved();
        let (mut from, mut bytes) = (plan.left.from, 0);
        while from < plan.left.to {
            let read = self.read(plan, from).await?;
            from = read.to;
            let blocks = plan.blocks(read);
            bytes += blocks
                .iter()
                .map(|block| block.stored_bytes() as u64)
                .sum::<u64>();
            if bytes > most {
                return Err(format!(
                    "its messages take more than {most} bytes, a sixteenth of the budget"
                ));
            }
        }
        let (used, budget) = (self.writer.stats().bytes, self.kept.budget());
        if used.saturating_add(2 * bytes) > budget {
            return Err(format!(
                "its messages take {bytes} bytes, and the spool has {used} of {budget} (--budget)"
            ));
        }
        Ok(())
    }

    /// Reads messages to be copied.
    async fn read(&self, plan: &Plan, from: u64) -> Result<read_back::Read, String> {
        let (spool, name) = (Arc::clone(&self.spool), Arc::clone(&plan.queue.name));
        let read = move || read_back::read(&spool, &name, from, PIECE_BYTES);
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.map_err(|panic| panic.to_string())?;
        let read = read.map_err(|error| error.to_string())?;
        if read.is_whole {
            return Ok(read);
        }
        // They may be put back.
        Err("some of its messages cannot be read".to_owned())
    }

    /// Writes copies; returns the position of the first one, if there is one, once all are durable.
    async fn copy(&self, hub: &Arc<Hub>, plan: &Plan) -> Result<Option<u64>, String> {
        let settle = Arc::new(MoveSettle {
            first: AtomicU64::new(u64::MAX),
            has_failed: AtomicBool::new(false),
        });
        let mut from = plan.left.from;
        while from < plan.left.to {
            let read = self.read(plan, from).await?;
            from = read.to;
            let handed = plan.blocks(read).into_iter().map(|block| Handed {
                block,
                settle: Arc::clone(&settle) as _,
                token: 0,
                promise: Promise::Durable,
            });
            self.writer.append_all(handed);
            self.flush(hub).await?;
            if settle.has_failed.load(Ordering::Relaxed) {
                return Err("the spool has failed".to_owned());
            }
        }
        let first = settle.first.load(Ordering::Relaxed);
        Ok((first < u64::MAX).then_some(first))
    }

    /// Waits until everything that was written is durable, as long as the spool has not failed: also while the disk stalls,
    /// and while the broker ends.
    async fn flush(&self, hub: &Arc<Hub>) -> Result<(), String> {
        loop {
            let writer = self.writer.clone();
            let flushed = tokio::task::spawn_blocking(move || writer.flush(PATIENCE)).await;
            if flushed.map_err(|panic| panic.to_string())? {
                return Ok(());
            }
            let state = self.writer.stats().state;
            if matches!(state, WriterState::Failed | WriterState::Draining) {
                return Err(format!("the spool is {}", state.as_str()));
            }
            // The copies that wait cannot be taken back. Other queues go on, and their marks may make room.
            for queue in hub.all_queues() {
                self.catch_up(hub, &queue).await;
            }
            self.write_marks(hub, false).await;
        }
    }

    /// The queue goes on: at the copies, if all of them are durable.
    async fn end(&self, hub: &Arc<Hub>, plan: &Plan, moved: Result<Option<u64>, String>) {
        let first = moved.as_ref().ok().copied().flatten();
        self.restart(hub, plan, moved);
        self.write_marks(hub, false).await;
        let mut tries = 1;
        while first.is_some() && !plan.has_mark() && (tries < MARK_TRIES || hub.is_closing()) {
            tokio::time::sleep(PATIENCE).await;
            self.write_marks(hub, false).await;
            tries += 1;
        }
        // Whatever is written now stands behind the copies. If the mark could not be written for so long, messages come twice
        // after a kill, which is better than publishers that wait for ever.
        self.release(hub);
        if let Some(to) = first {
            let (queue, from) = (&*plan.queue.name, plan.left.from);
            tracing::info!(
                code = "micromsg.queue_moved",
                queue,
                from,
                to,
                "a queue that nobody works on was moved to the end of the spool"
            );
        }
    }

    /// Messages are written for queues again.
    fn release(&self, hub: &Hub) {
        self.is_moving.store(false, Ordering::SeqCst);
        hub.freed.notify_waiters();
        self.wake.notify_one();
    }

    fn restart(&self, hub: &Arc<Hub>, plan: &Plan, moved: Result<Option<u64>, String>) {
        let durable = self.spool.durable().unwrap_or(plan.left.to);
        let mut state = plan.queue.lock();
        let QueueState { queue, stored, .. } = &mut *state;
        if let Some(stored) = stored {
            stored.is_moving = false;
            match moved {
                // Nothing was left of it.
                Ok(None) => {
                    stored.cursor.took(plan.left.to, true);
                    queue.advance(plan.left.to);
                    stored.is_dirty = true;
                }
                Ok(Some(first)) => {
                    queue.restart(first);
                    stored.cursor.restart(first, durable);
                    stored.is_dirty = true;
                }
                Err(why) => {
                    // Not again before the spool has changed by as much.
                    stored.stays_until = durable.saturating_add((durable - plan.left.from) / 4);
                    let (queue, from) = (&*plan.queue.name, plan.left.from);
                    tracing::warn!(
                        code = "micromsg.queue_stays",
                        queue,
                        from,
                        why,
                        "a queue that nobody works on keeps much of the spool: start a worker, or publishers to every queue will wait"
                    );
                }
            }
        }
        plan.queue.hand_out(hub, &mut state);
    }
}

/// Bytes of messages that are copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Time between two log lines about the same: publishers that wait, or a mark that cannot be written.
pub(super) const SAY_AGAIN: Duration = Duration::from_secs(60);
/// Time between two looks at blocks that are on their way to the disk.
const SETTLES_IN: Duration = Duration::from_millis(1);
/// Time between two looks at copies that are not durable, and at a mark that is not written; and the time in which blocks
/// become durable before a move begins.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a mark is written before the broker goes on without it.
const MARK_TRIES: u32 = 30;
