//! The writer's thread: groups what waits, makes it durable, publishes the mark, settles or holds.
//!
//! ```text
//! take a group ─► room in the budget? ─► encode ─► write + sync segment ─► write + sync index
//!                  │ no: retire, or stall              │ failed: never touch that segment again,
//!                  └─ every 200 ms                     │ a new one, at most three times in a row
//!                                                      ▼
//!                                        publish the durable mark ─► settle, once for each link
//! ```

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    Promise, Settle, SpoolError, WriterOptions, WriterState, consumers,
    disk::Disk,
    format::{
        DurableMark, Entry, HEADER_BYTES, Identity, IndexHeader, Kind, Layout, index_of, now_us,
    },
    lock::Lock,
    promise::{Held, Landed, Token},
    recovery::{Kept, State, bytes_of, remove_pair, write_footer},
    rights,
    segment::{END_OF_STREAM, Encoder, Placed},
    writer::{Shared, Waiting},
};

/// The state of the writer's thread.
pub(crate) struct Committer {
    layout: Layout,
    identity: Identity,
    options: WriterOptions,
    disk: Box<dyn Disk>,
    mark: File,
    turn: u64,
    position: u64,
    kept: VecDeque<Kept>,
    active: Option<Active>,
    held: Held,
    unread: Option<String>,
    groups: u64,
    fsyncs: u64,
    shared: Arc<Shared>,
}

/// What the thread does next.
enum Work {
    Group(Vec<Waiting>),
    Nothing,
    End,
}

/// The segment that is written.
struct Active {
    first: u64,
    path: PathBuf,
    segment: File,
    index: File,
    encoder: Encoder,
    /// Bytes of the segment up to its last durable block, and of the index.
    segment_bytes: u64,
    index_bytes: u64,
    opened: Instant,
    blocks: u32,
    inflated: u64,
    last_us: i64,
}

impl Committer {
    pub(crate) fn new(
        layout: Layout,
        mut options: WriterOptions,
        disk: Box<dyn Disk>,
        state: State,
        shared: Arc<Shared>,
    ) -> Self {
        // Small budgets need small steps.
        let step = (options.budget / 8).max(4_096);
        options.segment_bytes = options.segment_bytes.min(step);
        options.group_bytes = options
            .group_bytes
            .min(usize::try_from(step).unwrap_or(usize::MAX));
        let held = Held::new(options.acks.clone());
        let committer = Self {
            layout,
            identity: state.identity,
            options,
            disk,
            mark: state.mark,
            turn: 0,
            position: state.position,
            kept: state.kept,
            active: None,
            held,
            unread: None,
            groups: 0,
            fsyncs: 0,
            shared,
        };
        committer.report(WriterState::Ok);
        committer
    }

    /// Runs until the writer is closed.
    pub(crate) fn run(mut self, lock: Lock) {
        loop {
            match self.next_work() {
                Work::Group(group) => self.land(group),
                Work::Nothing => {}
                Work::End => break,
            }
            self.tend();
        }
        if let Some(active) = self.active.take()
            && let Err(error) = self.end(&active)
        {
            tracing::warn!(%error, "the last segment has no footer");
        }
        drop(lock);
    }

    /// Waits for blocks, but not beyond the time at which something else is due.
    fn next_work(&mut self) -> Work {
        let due = self.due();
        let mut queue = self.shared.lock();
        while queue.waiting.is_empty() {
            let now = Instant::now();
            let is_over = |deadline| self.held.is_empty() || now >= deadline;
            if queue.closing.is_some_and(is_over) {
                return Work::End;
            }
            let Some(until) = due.into_iter().chain(queue.closing).min() else {
                let waited = self.shared.work.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if now >= until {
                return Work::Nothing;
            }
            let waited = self.shared.work.wait_timeout(queue, until - now);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut group = Vec::new();
        let mut bytes = 0_usize;
        while let Some(next) = queue.waiting.front() {
            bytes = bytes.saturating_add(next.bytes);
            if !group.is_empty() && bytes > self.options.group_bytes {
                break;
            }
            group.extend(queue.waiting.pop_front());
        }
        Work::Group(group)
    }

    /// When there is something to do beside writing blocks.
    fn due(&self) -> Option<Instant> {
        self.held.next_look()
    }

    /// Does what is due beside writing blocks.
    fn tend(&mut self) {
        let now = Instant::now();
        if self.held.next_look().is_some_and(|at| now >= at) {
            self.look();
        }
    }

    /// Settles what the consumer has committed.
    fn look(&mut self) {
        match self.held.look(&self.layout, &self.identity) {
            Ok(passed) if passed.is_empty() => self.unread = None,
            Ok(passed) => {
                self.unread = None;
                self.report_held();
                by_link(passed, |link, tokens| link.settle(tokens));
            }
            Err(error) => self.say_unread(&error),
        }
        if let Some(slow) = self.held.slow(SLOW_COMMIT, SAY_AGAIN) {
            let (consumer, waited_s) = (slow.consumer, slow.waited.as_secs());
            tracing::warn!(code = "ack.commits_slow", dir = %self.layout.dir.display(), consumer, waited_s,
                mark = slow.mark, wanted = slow.wanted,
                "senders wait for a commit: their windows move once for each micro-batch");
        }
    }

    /// Says once for each change that the consumer's mark cannot be read: nothing is acknowledged then.
    fn say_unread(&mut self, error: &SpoolError) {
        let text = error.to_string();
        if self.unread.as_ref() == Some(&text) {
            return;
        }
        tracing::error!(code = "ack.mark_unread", dir = %self.layout.dir.display(), %error,
            "nothing is acknowledged until the mark can be read");
        self.unread = Some(text);
    }

    /// Makes a group durable and tells its links.
    fn land(&mut self, group: Vec<Waiting>) {
        let begun = Instant::now();
        let (mut placed, mut told) = (Vec::new(), Vec::new());
        for waiting in group {
            told.push((
                (waiting.settle, waiting.token),
                waiting.promise,
                waiting.placed.block.count,
            ));
            placed.push(waiting.placed);
        }
        placed.retain(|placed| placed.block.count > 0);
        let first = self.position;
        let stored = if placed.is_empty() {
            Ok(())
        } else {
            self.store(&placed)
        };
        drop(placed);
        let blocks = told.len();
        if let Err(error) = stored {
            return self.fail(&error, told.into_iter().map(|(token, ..)| token).collect());
        }
        self.measure(begun.elapsed());
        let (mut durable, mut landed) = (Vec::new(), Vec::new());
        let (mut end, since) = (first, Instant::now());
        for (token, promise, count) in told {
            let events = u64::from(count);
            end += events;
            match promise {
                Promise::Durable => durable.push(token),
                Promise::Committed => {
                    landed.push(token.clone());
                    self.held.push(Landed {
                        end,
                        events,
                        token,
                        since,
                    });
                }
            }
        }
        self.report_held();
        by_link(durable, |link, tokens| link.settle(tokens));
        by_link(landed, |link, tokens| link.landed(tokens));
        self.finish(blocks);
    }

    /// Makes a group durable, whatever it takes.
    fn store(&mut self, placed: &[Placed]) -> Result<(), SpoolError> {
        let bodies: usize = placed.iter().map(|placed| placed.block.body_bytes()).sum();
        let bytes = bodies + GROUP_OVERHEAD + placed.len() * BLOCK_OVERHEAD;
        let mut failures = 0;
        loop {
            if self.is_late() {
                return Err(SpoolError::Closed);
            }
            match self.make_room(bytes as u64) {
                Ok(true) => {}
                Ok(false) => {
                    self.stall(WriterState::StalledBudget);
                    continue;
                }
                Err(error) => tracing::warn!(%error, "the marks could not be read"),
            }
            match self.attempt(placed) {
                Ok(()) => {
                    self.report(WriterState::Ok);
                    return Ok(());
                }
                Err(error) => {
                    tracing::error!(%error, "a group could not be made durable");
                    self.abandon();
                    if error.is_full() {
                        self.stall(WriterState::StalledDisk);
                        continue;
                    }
                    failures += 1;
                    if failures == MAX_FAILURES {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn is_late(&self) -> bool {
        self.shared
            .lock()
            .closing
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits a moment, less if the writer is closed, and does what is due meanwhile.
    fn stall(&mut self, state: WriterState) {
        self.report(state);
        let until = Instant::now() + RECHECK;
        loop {
            self.tend();
            let due = self.due().into_iter().chain([until]).min().unwrap_or(until);
            let mut queue = self.shared.lock();
            loop {
                let now = Instant::now();
                let late = queue.closing.is_some_and(|deadline| now >= deadline);
                if now >= until || late {
                    return;
                }
                if now >= due {
                    break;
                }
                let end = queue.closing.map_or(due, |deadline| deadline.min(due));
                let waited = self.shared.work.wait_timeout(queue, end - now);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Retires what all consumers are done with until `bytes` fit; whether they do.
    fn make_room(&mut self, bytes: u64) -> Result<bool, SpoolError> {
        let over = |this: &Self| {
            let used = this.used();
            used > 0 && used.saturating_add(bytes) > this.options.budget
        };
        if !over(self) {
            return Ok(true);
        }
        let marks = consumers::list(&self.layout)?;
        let Some(done) = marks.iter().map(|mark| mark.committed).min() else {
            return Ok(false);
        };
        while over(self) {
            if self.kept.is_empty() && done >= self.position {
                let Some(active) = self.active.take() else {
                    break;
                };
                let (first, end) = (active.first, self.position);
                let path = active.path.clone();
                // It is about to go: its footer would help nobody.
                drop(active);
                self.kept.push_back(Kept {
                    first,
                    end,
                    bytes: bytes_of(&path),
                });
            }
            match self.kept.front().copied() {
                Some(oldest) if oldest.end <= done => self.retire(oldest)?,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn retire(&mut self, oldest: Kept) -> Result<(), SpoolError> {
        // The mark carries the position once no segment does.
        let mark_path = self.layout.durable();
        self.disk.sync(&self.mark, &mark_path)?;
        self.fsyncs += 2;
        let path = self.layout.segment(oldest.first);
        remove_pair(&mut *self.disk, &path)?;
        self.kept.pop_front();
        self.disk.sync_dir(&self.layout.segments())?;
        tracing::info!(
            from = oldest.first,
            to = oldest.end,
            "a segment was retired"
        );
        Ok(())
    }

    /// One try to make a group durable.
    fn attempt(&mut self, placed: &[Placed]) -> Result<(), SpoolError> {
        let full = |active: &Active| {
            active.segment_bytes >= self.options.segment_bytes
                || active.opened.elapsed() >= self.options.segment_age
        };
        if self.active.as_ref().is_some_and(full)
            && let Some(active) = self.active.take()
        {
            self.end(&active)?;
        }
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.begin(placed)?,
        };
        let written = active.write(&mut *self.disk, self.position, placed);
        self.active = Some(active);
        self.fsyncs += 2;
        self.position = written?;
        self.groups += 1;
        self.publish();
        Ok(())
    }

    fn begin(&mut self, placed: &[Placed]) -> Result<Active, SpoolError> {
        let first_time_us = placed
            .first()
            .map_or_else(now_us, |placed| placed.received_at_us);
        let header = IndexHeader {
            uuid: self.identity.uuid.clone(),
            first: self.position,
            first_time_us,
        };
        let path = self.layout.segment(self.position);
        let index_path = index_of(&path);
        let (encoder, begin) =
            Encoder::new(&header).map_err(|error| SpoolError::corrupt(&path, error.to_string()))?;
        // The index first: a segment that is listed has one.
        let made = (|| {
            let index = self.disk.create(&index_path)?;
            rights::settle(&index, &index_path, &self.layout)?;
            self.disk.write(&index, &index_path, &[&header.encode()])?;
            self.disk.sync(&index, &index_path)?;
            let segment = self.disk.create(&path)?;
            rights::settle(&segment, &path, &self.layout)?;
            self.disk.write(&segment, &path, &[&begin])?;
            self.disk.sync(&segment, &path)?;
            self.disk.sync_dir(&self.layout.segments())?;
            Ok((segment, index))
        })();
        self.fsyncs += 3;
        let (segment, index) = made.inspect_err(|_| {
            let _ = remove_pair(&mut *self.disk, &path);
        })?;
        Ok(Active {
            first: self.position,
            path,
            segment,
            index,
            encoder,
            segment_bytes: begin.len() as u64,
            index_bytes: HEADER_BYTES as u64,
            opened: Instant::now(),
            blocks: 0,
            inflated: 0,
            last_us: first_time_us,
        })
    }

    /// Ends a segment in good order. It counts as kept even if its footer could not be written.
    fn end(&mut self, active: &Active) -> Result<(), SpoolError> {
        let footer = Entry {
            kind: Kind::Footer,
            blocks: active.blocks,
            offset: active.segment_bytes,
            length: 8,
            crc: crc32c::crc32c(&END_OF_STREAM),
            first: active.first,
            count: self.position - active.first,
            time_us: active.last_us,
            inflated: active.inflated,
        };
        let files = (&active.segment, &active.index);
        self.fsyncs += 2;
        let ended = write_footer(&mut *self.disk, &active.path, files, &footer);
        self.keep(active);
        ended
    }

    fn keep(&mut self, active: &Active) {
        let bytes = bytes_of(&active.path);
        self.kept.push_back(Kept {
            first: active.first,
            end: self.position,
            bytes,
        });
    }

    /// Leaves a segment that failed: it ends at its last durable block and is never written again.
    fn abandon(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        if active.first == self.position {
            let _ = remove_pair(&mut *self.disk, &active.path);
        } else {
            self.keep(&active);
        }
    }

    /// Publishes the durable mark. What it names is durable already, so that a failure delays
    /// readers until the next commit and nothing else.
    fn publish(&mut self) {
        let (slot, at) = DurableMark::encode(self.turn, self.position);
        self.turn += 1;
        if let Err(error) = self
            .disk
            .publish(&self.mark, &self.layout.durable(), &slot, at)
        {
            tracing::error!(%error, "the durable mark could not be published");
        }
    }

    fn used(&self) -> u64 {
        let active = self
            .active
            .as_ref()
            .map_or(0, |a| a.segment_bytes + a.index_bytes);
        self.kept.iter().map(|kept| kept.bytes).sum::<u64>() + active
    }

    fn report(&self, state: WriterState) {
        let first_kept = self.kept.front().map(|kept| kept.first);
        let first_kept = first_kept.or(self.active.as_ref().map(|active| active.first));
        let mut queue = self.shared.lock();
        let state = match state {
            WriterState::Ok if queue.closing.is_some() => WriterState::Draining,
            state => state,
        };
        let stats = &mut queue.stats;
        if stats.uuid.is_empty() {
            stats.uuid.clone_from(&self.identity.uuid);
        }
        stats.durable = self.position;
        stats.first_kept = first_kept.unwrap_or(self.position);
        stats.bytes = self.used();
        stats.budget = self.options.budget;
        stats.groups = self.groups;
        stats.fsyncs = self.fsyncs;
        if stats.state != state {
            tracing::info!(from = ?stats.state, to = ?state, "the spool's writer");
        }
        stats.state = state;
    }

    fn report_held(&self) {
        let stats = &mut self.shared.lock().stats;
        (stats.uncommitted_blocks, stats.uncommitted_events) = self.held.sizes();
    }

    fn measure(&self, commit: Duration) {
        let mut queue = self.shared.lock();
        if queue.commit_ms.len() == KEPT_TIMES {
            queue.commit_ms.pop_front();
        }
        queue.commit_ms.push_back(commit.as_secs_f64() * 1_000.0);
    }

    fn finish(&self, blocks: usize) {
        self.shared.lock().finished += blocks as u64;
        self.shared.done.notify_all();
    }

    /// Gives up: everything that waits fails, and everything that comes.
    fn fail(&mut self, error: &SpoolError, mut tokens: Vec<Token>) {
        let blocks = tokens.len();
        if !matches!(error, SpoolError::Closed) {
            self.report(WriterState::Failed);
            // Nobody can tell any more whether the commit they wait for will ever come.
            tokens.extend(self.held.take());
            self.report_held();
        }
        let mut queue = self.shared.lock();
        queue.refused = Some(error.clone());
        let blocks = blocks + queue.waiting.len();
        tokens.extend(
            queue
                .waiting
                .drain(..)
                .map(|waiting| (waiting.settle, waiting.token)),
        );
        drop(queue);
        by_link(tokens, |link, _| link.failed(error));
        self.finish(blocks);
    }
}

impl Active {
    /// Writes and syncs a group and its entry; the position after it.
    fn write(
        &mut self,
        disk: &mut dyn Disk,
        first: u64,
        placed: &[Placed],
    ) -> Result<u64, SpoolError> {
        let buffers = self
            .encoder
            .group(first, placed)
            .map_err(|error| SpoolError::corrupt(&self.path, error.to_string()))?;
        let pieces: Vec<&[u8]> = buffers.iter().map(arrow_buffer::Buffer::as_slice).collect();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let entry = Entry {
            kind: Kind::Group,
            blocks: u32::try_from(placed.len()).unwrap_or(u32::MAX),
            offset: self.segment_bytes,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            crc: pieces
                .iter()
                .fold(0, |crc, piece| crc32c::crc32c_append(crc, piece)),
            first,
            count: placed
                .iter()
                .map(|placed| u64::from(placed.block.count))
                .sum(),
            time_us: now_us(),
            inflated: placed
                .iter()
                .map(|placed| placed.block.inflated_bytes)
                .sum(),
        };
        disk.write(&self.segment, &self.path, &pieces)?;
        disk.sync(&self.segment, &self.path)?;
        let index_path = index_of(&self.path);
        let bytes = entry.encode();
        disk.write(&self.index, &index_path, &[&bytes])?;
        disk.sync(&self.index, &index_path)?;
        self.segment_bytes = entry.byte_end();
        self.index_bytes += bytes.len() as u64;
        self.blocks = self.blocks.saturating_add(entry.blocks);
        self.inflated = self.inflated.saturating_add(entry.inflated);
        self.last_us = placed
            .last()
            .map_or(self.last_us, |placed| placed.received_at_us);
        Ok(entry.end())
    }
}

/// Calls each link once, in the order of its first token.
fn by_link(tokens: Vec<Token>, mut call: impl FnMut(&dyn Settle, &[u64])) {
    let mut links: Vec<(Arc<dyn Settle>, Vec<u64>)> = Vec::new();
    let mut places: HashMap<*const (), usize> = HashMap::new();
    for (link, token) in tokens {
        let place = *places
            .entry(Arc::as_ptr(&link).cast::<()>())
            .or_insert(links.len());
        match links.get_mut(place) {
            Some((_, tokens)) => tokens.push(token),
            None => links.push((link, vec![token])),
        }
    }
    for (link, tokens) in &links {
        call(&**link, tokens);
    }
}

/// How often the marks and the disk are looked at again while the writer stalls.
const RECHECK: Duration = Duration::from_millis(200);

/// A commit that takes longer than this is said.
const SLOW_COMMIT: Duration = Duration::from_secs(30);

/// How often what goes on is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Failures in a row after which the disk is given up.
const MAX_FAILURES: u32 = 3;

/// What Arrow and a new segment's headers add to a group, generously.
const GROUP_OVERHEAD: usize = 8_192;

/// What the columns beside the body add for a block, generously.
const BLOCK_OVERHEAD: usize = 512;

/// Commits whose times are kept.
const KEPT_TIMES: usize = 1_024;
