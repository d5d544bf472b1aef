//! Queues in a spool: a message is acknowledged to its publisher once it is durable, and each queue is a consumer whose mark
//! is the first message that its receivers have not acknowledged.
//!
//! A message whose queue has receivers and room goes from memory to them once it is durable. Other messages leave the memory
//! then, and are read from the spool when receivers have room. The spool's positions are the queues' positions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ackline_core::OpenError;
use ackline_micromsg::broker::{self, Cursor, Finished, Kept, Refusal, Routed};
use ackline_spool::{
    Access, Handed, Lease, Promise, Settle, Spool, SpoolError, Writer, WriterOptions,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::blocks::{Source, block};
use super::hub::Hub;
use super::moving::{HalfMoved, SAY_AGAIN};
use super::peer::Peer;
use super::queue_cell::{QueueCell, QueueState};
use super::read_back;

/// The queues of an earlier broker, and the one that it has begun to move.
pub(super) type Queues = (Vec<(String, Stored)>, Option<HalfMoved>);

/// The spool of a broker's queues.
pub(super) struct Durable {
    pub(super) writer: Writer,
    pub(super) spool: Arc<Spool>,
    /// A queue is moved: nothing else is written for queues.
    pub(super) is_moving: AtomicBool,
    pub(super) kept: Kept,
    /// Wakes the task that reads the spool and writes the marks.
    pub(super) wake: Notify,
    has_failed: AtomicBool,
}

/// The spool's part of a queue.
pub(super) struct Stored {
    /// `None` once the broker has ended.
    lease: Option<Arc<Lease>>,
    /// How far it was read.
    pub(super) cursor: Cursor,
    /// Blocks that are not durable, by token.
    pending: BTreeMap<u64, Pending>,
    next_token: u64,
    /// One for all of its blocks: those of a commit are settled together, in their order.
    settle: Option<Arc<dyn Settle>>,
    /// Messages were acknowledged since the mark was written.
    pub(super) is_dirty: bool,
    /// When it was told last that the mark cannot be written.
    failure_told: Option<Instant>,
    /// The mark in its file, and when it was written.
    written: (u64, Instant),
    /// It is moved: nothing is handed out.
    pub(super) is_moving: bool,
    /// It is not moved before the spool ends here.
    pub(super) stays_until: u64,
}

/// A block on its way to the disk.
struct Pending {
    first: u64,
    /// The bytes of the block.
    bytes: u64,
    publisher: Peer,
    /// Its messages, with their positions on the publisher's connection.
    messages: Vec<(Arc<Routed>, u64)>,
}

impl Stored {
    fn new(lease: Lease, mark: u64, durable: u64) -> Self {
        Self {
            lease: Some(Arc::new(lease)),
            cursor: Cursor::new(mark, durable),
            pending: BTreeMap::new(),
            next_token: 0,
            settle: None,
            is_dirty: false,
            failure_told: None,
            written: (mark, Instant::now()),
            is_moving: false,
            stays_until: 0,
        }
    }

    /// The mark in its file.
    pub(super) const fn written_mark(&self) -> u64 {
        self.written.0
    }

    /// Bytes of its blocks that are not durable.
    pub(super) fn pending_bytes(&self) -> usize {
        let bytes = self.pending.values().map(|one| one.bytes).sum::<u64>();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Whether all of its blocks are durable.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Durable {
    /// Opens the spool. Blocks.
    pub(super) fn open(dir: &Path, options: WriterOptions) -> Result<Self, SpoolError> {
        let access = Access {
            group: options.group,
        };
        let kept = Kept::new(options.budget);
        let (writer, _) = Writer::open(dir, options)?;
        let spool = Arc::new(Spool::open_with(dir, access)?);
        Ok(Self {
            writer,
            spool,
            is_moving: AtomicBool::new(false),
            kept,
            wake: Notify::new(),
            has_failed: AtomicBool::new(false),
        })
    }

    /// The queues of an earlier broker, and the one that it has begun to move. Blocks.
    pub(super) fn queues(&self) -> Result<Queues, SpoolError> {
        let consumers = self.spool.consumers()?;
        let named = consumers
            .iter()
            .filter_map(|one| Some((broker::queue(&one.name)?, &*one.name)));
        let taken = named.map(|(queue, name)| Ok((queue, self.take(name, None)?)));
        let mut taken = taken.collect::<Result<Vec<_>, SpoolError>>()?;
        let half_moved = self.find_half_moved(&mut taken)?;
        Ok((taken, half_moved))
    }

    /// Finds the queue that an earlier broker has begun to move. Nothing is written for queues, or handed out of this one,
    /// until [`keep`](Self::keep) has moved it whole.
    fn find_half_moved(
        &self,
        queues: &mut [(String, Stored)],
    ) -> Result<Option<HalfMoved>, SpoolError> {
        let Some((name, progress)) = read_back::last_move(&self.spool)? else {
            return Ok(None);
        };
        let mut queues = queues.iter_mut();
        let found =
            queues.find(|(queue, stored)| *queue == name && stored.written_mark() == progress.mark);
        let Some((_, stored)) = found else {
            return Ok(None);
        };
        stored.is_moving = true;
        self.is_moving.store(true, Ordering::SeqCst);
        Ok(Some((name, progress)))
    }

    fn take(&self, name: &str, create_at: Option<u64>) -> Result<Stored, SpoolError> {
        let lease = self.spool.lease(name, HOLDER, LEASE_WAIT, create_at)?;
        let durable = self.spool.durable()?;
        let first = self.spool.first_kept()?;
        let mark = lease.committed()?.or(create_at).unwrap_or(durable);
        if mark < first {
            tracing::error!(
                code = "micromsg.queue_lost",
                consumer = name,
                from = mark,
                to = first,
                "messages of a queue were removed before they were acknowledged"
            );
        }
        Ok(Stored::new(lease, mark.max(first), durable))
    }

    /// The consumer of a new queue: everything that comes from now on is kept for it.
    pub(super) async fn consumer(&self, queue: &str) -> Result<Stored, Refusal> {
        let Some(name) = broker::consumer(queue) else {
            let text = format!(
                "the name of the queue {queue:?} is too long for its consumer in the spool"
            );
            return Err(Refusal::new("micromsg.queue_name", text));
        };
        let (spool, writer) = (Arc::clone(&self.spool), self.writer.clone());
        let made = tokio::task::spawn_blocking(move || {
            let durable = spool.durable()?;
            let lease = spool.lease(&name, HOLDER, LEASE_WAIT, Some(durable))?;
            let mark = lease.committed()?.unwrap_or(durable);
            drop(writer);
            Ok(Stored::new(lease, mark, durable))
        });
        match made.await {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(error)) => Err(failure(&error)),
            Err(panic) => Err(Refusal::new("micromsg.spool_failed", panic.to_string())),
        }
    }

    /// Writes messages of one publisher. They are handed on and acknowledged once they are durable. Returns whether that was
    /// possible now: not while a queue is moved.
    pub(super) fn append(
        &self,
        hub: &Arc<Hub>,
        queue: &Arc<QueueCell>,
        publisher: &Peer,
        messages: &[(Arc<Routed>, u64)],
    ) -> Result<bool, Refusal> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Refusal::new(
                "micromsg.spool_failed",
                "the spool of the queues has failed",
            ));
        }
        let mut blocks = Vec::new();
        let mut state = queue.lock();
        let Some(stored) = &mut state.stored else {
            return Ok(true);
        };
        if self.is_moving.load(Ordering::SeqCst) {
            if hub.is_closing() {
                return Err(Refusal::new("micromsg.closed", CLOSED));
            }
            return Ok(false);
        }
        let settle = Arc::clone(stored.settle.get_or_insert_with(|| {
            Arc::new(QueueSettle {
                hub: Arc::downgrade(hub),
                queue: Arc::downgrade(queue),
            })
        }));
        for messages in
            messages.chunk_by(|(one, _), (next, _)| one.dotnet_type() == next.dotnet_type())
        {
            let token = stored.next_token;
            stored.next_token += 1;
            let block = block(queue, &Source::Publisher(publisher), messages);
            let bytes = block.stored_bytes() as u64;
            self.kept.add(bytes);
            blocks.push(Handed {
                block,
                settle: Arc::clone(&settle),
                token,
                promise: Promise::Durable,
            });
            let pending = Pending {
                first: 0,
                bytes,
                publisher: publisher.clone(),
                messages: messages.to_vec(),
            };
            stored.pending.insert(token, pending);
        }
        // The writer may tell of a failure at once.
        drop(state);
        self.writer.append_all(blocks);
        Ok(true)
    }

    /// Whether blocks of a queue are on their way to the disk.
    pub(super) fn is_busy(hub: &Hub) -> bool {
        let queues = hub.all_queues();
        let mut busy = queues.iter().map(|queue| {
            let state = queue.lock();
            let stored = state.stored.as_ref();
            stored.is_some_and(|stored| stored.is_moving || !stored.is_settled())
        });
        busy.any(|is_busy| is_busy)
    }

    /// Reads messages that receivers have room for, and writes the marks; until the broker is gone.
    pub(super) async fn keep(hub: Weak<Hub>, half_moved: Option<HalfMoved>) {
        let mut marked = Instant::now();
        let mut looked: Option<Instant> = None;
        let mut said = None;
        if let Some(half_moved) = half_moved
            && let Some(hub) = hub.upgrade()
            && let Some(durable) = &hub.durable
        {
            durable.end_half_moved(&hub, half_moved).await;
        }
        loop {
            let Some(strong) = hub.upgrade() else {
                return;
            };
            let Some(durable) = &strong.durable else {
                return;
            };
            if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                durable.make_way(&strong, &mut said).await;
                looked = Some(Instant::now());
            }
            let mut has_more = false;
            for queue in strong.all_queues() {
                has_more |= durable.catch_up(&strong, &queue).await;
            }
            if marked.elapsed() >= MARK_EVERY {
                durable.write_marks(&strong, false).await;
                marked = Instant::now();
            }
            let is_dirty = strong.all_queues().iter().any(|queue| {
                let state = queue.lock();
                state.stored.as_ref().is_some_and(|stored| stored.is_dirty)
            });
            let wait = if has_more {
                Duration::ZERO
            } else if is_dirty || durable.kept.is_waited() {
                MARK_EVERY
            } else {
                IDLE_MARK_EVERY
            };
            let _ = tokio::time::timeout(wait, durable.wake.notified()).await;
        }
    }

    /// Reads the next messages of a queue, if they are wanted. Returns whether there may be more.
    pub(super) async fn catch_up(&self, hub: &Arc<Hub>, queue: &Arc<QueueCell>) -> bool {
        let Some((from, room)) = wanted(hub, queue) else {
            return false;
        };
        let (spool, name) = (Arc::clone(&self.spool), Arc::clone(&queue.name));
        let read = tokio::task::spawn_blocking(move || read_back::read(&spool, &name, from, room));
        match read.await {
            Ok(Ok(read)) => {
                took(hub, queue, from, read);
                true
            }
            Ok(Err(error)) => {
                tracing::error!(code = "micromsg.queue_unread", queue = &*queue.name, from, %error,
                    "messages of a queue cannot be read");
                false
            }
            Err(_) => false,
        }
    }

    /// Writes the marks that have moved. With `at_close` all of them, otherwise those of idle queues now and then.
    pub(super) async fn write_marks(&self, hub: &Arc<Hub>, at_close: bool) {
        // Before the looks: a queue without pending blocks has everything below it.
        let Ok(durable) = self.spool.durable() else {
            return;
        };
        for queue in hub.all_queues() {
            let Some((lease, mark)) = moved(&queue, durable, at_close) else {
                continue;
            };
            let written = tokio::task::spawn_blocking(move || lease.commit(mark));
            let written = written.await;
            let mut state = queue.lock();
            let Some(stored) = &mut state.stored else {
                continue;
            };
            stored.written.1 = Instant::now();
            match written {
                Ok(Ok(())) => {
                    stored.written.0 = mark;
                    stored.failure_told = None;
                }
                Ok(Err(error)) => {
                    stored.is_dirty = true;
                    if stored
                        .failure_told
                        .is_some_and(|at| at.elapsed() < SAY_AGAIN)
                    {
                        continue;
                    }
                    stored.failure_told = Some(Instant::now());
                    drop(state);
                    tracing::error!(code = "micromsg.mark_failed", queue = &*queue.name, mark, %error,
                        "the mark of a queue was not written: messages may be handed out again");
                }
                Err(_) => {}
            }
        }
    }

    /// Makes everything durable, writes the marks, and releases the spool.
    pub(super) async fn close(&self, hub: &Arc<Hub>, timeout: Duration) {
        let writer = self.writer.clone();
        let _ = tokio::task::spawn_blocking(move || writer.flush(timeout)).await;
        self.write_marks(hub, true).await;
        for queue in hub.all_queues() {
            if let Some(stored) = &mut queue.lock().stored {
                stored.lease = None;
            }
        }
        let writer = self.writer.clone();
        let _ = tokio::task::spawn_blocking(move || writer.close(timeout)).await;
    }

    /// Ends the spool at once: blocks that are not durable fail.
    pub(super) fn stop(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

/// The position from which on a queue is to be read, and the bytes that there is room for.
fn wanted(hub: &Hub, queue: &QueueCell) -> Option<(u64, usize)> {
    let state = queue.lock();
    let stored = state.stored.as_ref()?;
    let most = hub.limits.subscriber_bytes;
    let is_wanted = stored.cursor.is_behind()
        && !stored.is_moving
        && state.queue.receivers().len() > 0
        && !hub.is_closing();
    let room = most.saturating_sub(state.queue.waiting_bytes());
    let has_room = room > most / 2 && hub.has_memory_for(state.queue.bytes());
    (is_wanted && has_room).then_some((stored.cursor.read_to(), room))
}

/// Takes messages that were read from the spool.
fn took(hub: &Hub, queue: &Arc<QueueCell>, from: u64, read: read_back::Read) {
    let mut state = queue.lock();
    let QueueState {
        queue: waiting,
        stored,
        ..
    } = &mut *state;
    let Some(stored) = stored
        .as_mut()
        .filter(|stored| stored.cursor.read_to() == from)
    else {
        return;
    };
    for (position, message) in read.messages {
        waiting.push(position, hub.held.read_back(message), None);
    }
    stored.cursor.took(read.to, read.is_all);
    waiting.advance(read.to);
    queue.hand_out(hub, &mut state);
}

/// The mark of a queue, if it is to be written.
fn moved(queue: &QueueCell, durable: u64, at_close: bool) -> Option<(Arc<Lease>, u64)> {
    let mut state = queue.lock();
    let QueueState { queue, stored, .. } = &mut *state;
    let stored = stored.as_mut()?;
    let is_due = stored.is_dirty || at_close || stored.written.1.elapsed() >= IDLE_MARK_EVERY;
    if !is_due {
        return None;
    }
    if stored.pending.is_empty() && stored.cursor.advance(durable) {
        queue.advance(durable);
    }
    stored.is_dirty = false;
    let mark = queue.mark();
    let lease = stored.lease.clone()?;
    (mark != stored.written.0).then_some((lease, mark))
}

/// The settling of a queue's blocks: one call for each commit, so its messages keep their order.
struct QueueSettle {
    hub: Weak<Hub>,
    queue: Weak<QueueCell>,
}

impl Settle for QueueSettle {
    fn placed(&self, token: u64, first: u64) {
        if let Some(queue) = self.queue.upgrade()
            && let Some(stored) = &mut queue.lock().stored
            && let Some(pending) = stored.pending.get_mut(&token)
        {
            pending.first = first;
        }
    }

    fn settle(&self, tokens: &[u64]) {
        let (Some(hub), Some(queue)) = (self.hub.upgrade(), self.queue.upgrade()) else {
            return;
        };
        let mut finished = Finished::default();
        let mut state = queue.lock();
        let QueueState {
            queue: waiting,
            stored,
            ..
        } = &mut *state;
        let Some(stored) = stored else {
            return;
        };
        let mut settled: Vec<_> = tokens
            .iter()
            .filter_map(|token| stored.pending.remove(token))
            .collect();
        settled.sort_by_key(|pending| pending.first);
        if let Some(durable) = &hub.durable {
            durable
                .kept
                .settled(settled.iter().map(|one| one.bytes).sum());
        }
        for Pending {
            first,
            bytes: _,
            publisher,
            messages,
        } in settled
        {
            let end = first + messages.len() as u64;
            finished.add(publisher, messages.iter().map(|(_, position)| *position));
            let is_wanted = waiting.receivers().len() > 0
                && waiting.waiting_bytes() <= hub.limits.subscriber_bytes
                && hub.has_memory_for(waiting.bytes());
            if !stored.cursor.settled((first, end), is_wanted) {
                continue;
            }
            for (position, (message, _)) in (first..).zip(messages) {
                waiting.push(position, message, None);
            }
        }
        let is_behind = stored.cursor.is_behind();
        queue.hand_out(&hub, &mut state);
        drop(state);
        finished.tell(|publisher, positions| publisher.finish(positions));
        if is_behind {
            hub.wake_keeper();
        }
        if hub.is_closing() {
            hub.freed.notify_waiters();
        }
    }

    fn failed(&self, error: &SpoolError) {
        let (Some(hub), Some(queue)) = (self.hub.upgrade(), self.queue.upgrade()) else {
            return;
        };
        let mut state = queue.lock();
        let left = state
            .stored
            .as_mut()
            .map(|stored| std::mem::take(&mut stored.pending));
        drop(state);
        let is_closed = matches!(error, SpoolError::Closed);
        if let Some(durable) = &hub.durable
            && !durable.has_failed.swap(true, Ordering::Relaxed)
            && !is_closed
        {
            tracing::error!(code = "micromsg.spool_failed", %error,
                "nothing more is acknowledged to publishers of queues; topics go on");
        }
        let refusal = if is_closed {
            Refusal::new("micromsg.closed", CLOSED)
        } else {
            failure(error)
        };
        for pending in left.into_iter().flat_map(BTreeMap::into_values) {
            hub.refuse(&pending.publisher, &refusal);
        }
    }
}

fn failure(error: &SpoolError) -> Refusal {
    Refusal::new(
        "micromsg.spool_failed",
        format!("the spool of the queues has failed: {error}"),
    )
}

/// An error of the spool as one of opening.
pub(super) fn unopened(dir: &Path, error: &SpoolError) -> OpenError {
    OpenError::listen(format!("{}: {error}", dir.display()))
}

/// Told to publishers whose messages are not durable when the broker ends.
const CLOSED: &str = "the broker has ended before all messages were durable";
/// The name of this reader in its leases.
const HOLDER: &str = "a broker of MicroMsg2";
/// Time for an earlier reader to leave.
const LEASE_WAIT: Duration = Duration::from_secs(2);
/// Time between two marks of a queue whose messages are acknowledged.
const MARK_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks at what queues keep of the spool.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time between two marks of an idle queue: they free the segments of others.
const IDLE_MARK_EVERY: Duration = Duration::from_secs(10);
