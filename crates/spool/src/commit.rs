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
    collections::VecDeque,
    fs::File,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    Promise, SpoolError,
    active::Active,
    disk::Disk,
    filesystem,
    format::{
        DurableMark, Entry, HEADER_BYTES, Identity, IndexHeader, Kind, Layout, index_of, now_us,
    },
    lock::Lock,
    options::WriterOptions,
    place::Place,
    promise::{Held, Landed, Token, by_link},
    queue::{Shared, Waiting, WriterState},
    recovery::{Kept, State, bytes_of, remove_pair, write_footer},
    reserve::Reserve,
    rights,
    said::Said,
    segment::{END_OF_STREAM, Encoder, Placed},
};

/// The state of the writer's thread.
pub(crate) struct Committer {
    pub(crate) layout: Layout,
    /// The files that stay.
    places: Vec<Place>,
    pub(crate) identity: Identity,
    pub(crate) options: WriterOptions,
    pub(crate) pace: Pace,
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) mark: File,
    turn: u64,
    pub(crate) position: u64,
    pub(crate) kept: VecDeque<Kept>,
    pub(crate) active: Option<Active>,
    held: Held,
    unread: Option<String>,
    /// Since when the mark in the file is not the position.
    unpublished: Option<Instant>,
    pub(crate) swept: Instant,
    pub(crate) said: Said,
    reserve: Reserve,
    /// Whether the files of a segment that failed were removed since the directory was synced.
    left_behind: bool,
    groups: u64,
    pub(crate) fsyncs: u64,
    shared: Arc<Shared>,
}

/// How often the thread looks after things, and says them. Tests have less time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Between two sweeps of retention.
    pub(crate) sweep: Duration,
    /// Between two looks at marks and disk while the writer stalls.
    pub(crate) recheck: Duration,
    /// A commit that takes longer than this is said.
    pub(crate) slow_commit: Duration,
    /// Between two lines about what goes on.
    pub(crate) say_again: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            sweep: Duration::from_secs(10),
            recheck: Duration::from_millis(200),
            slow_commit: Duration::from_secs(30),
            say_again: Duration::from_secs(60),
        }
    }
}

/// What the thread does next.
enum Work {
    Group(Vec<Waiting>),
    Nothing,
    End,
}

impl Committer {
    pub(crate) fn new(
        (layout, places): (Layout, Vec<Place>),
        (mut options, pace): (WriterOptions, Pace),
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
        let reserve = Reserve::new(&layout, options.reserve.min(options.budget / 16));
        let held = Held::new(options.acks.clone());
        let committer = Self {
            layout,
            places,
            identity: state.identity,
            options,
            pace,
            disk,
            mark: state.mark,
            turn: 0,
            position: state.position,
            kept: state.kept,
            active: None,
            held,
            unread: None,
            unpublished: None,
            swept: Instant::now(),
            said: Said::default(),
            reserve,
            left_behind: false,
            groups: 0,
            fsyncs: 0,
            shared,
        };
        committer.report(WriterState::Ok);
        committer
    }

    /// Runs until the writer is closed.
    pub(crate) fn run(mut self, lock: Lock) {
        self.sweep(0);
        self.say_stale();
        self.take_reserve();
        self.report(WriterState::Ok);
        loop {
            match self.next_work() {
                Work::Group(group) => self.land(group),
                Work::Nothing => self.watch(),
                Work::End => break,
            }
            self.tend();
        }
        if let Some(active) = self.active.take() {
            self.end_active(&active);
        }
        drop(lock);
    }

    /// Whether what is written is still where readers look.
    fn in_place(&self) -> Result<(), SpoolError> {
        let active = self.active.iter().flat_map(|active| &active.places);
        active.chain(&self.places).try_for_each(Place::check)
    }

    /// Gives up what is held when it is not in its place any more: its commit will never come.
    fn watch(&mut self) {
        if !self.held.is_empty()
            && let Err(error) = self.in_place()
        {
            self.fail(&error, Vec::new());
        }
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
        let active = self.active.as_ref();
        let aged = active.map(|active| active.opened + self.options.segment_age);
        let unpublished = self.unpublished.map(|at| at + self.pace.recheck);
        let sweep = Some(self.swept + self.pace.sweep);
        let dues = [self.held.next_look(), aged, unpublished, sweep];
        dues.into_iter().flatten().min()
    }

    /// Does what is due beside writing blocks.
    fn tend(&mut self) {
        let now = Instant::now();
        if self.held.next_look().is_some_and(|at| now >= at) {
            self.look();
        }
        if self
            .unpublished
            .is_some_and(|at| now >= at + self.pace.recheck)
        {
            self.publish();
        }
        let age = self.options.segment_age;
        if let Some(active) = self.active.take_if(|active| now >= active.opened + age) {
            self.end_active(&active);
        }
        if now >= self.swept + self.pace.sweep {
            self.swept = now;
            if self.in_place().is_err() {
                // Whatever stands there is not this writer's to remove.
                return;
            }
            self.sweep(0);
            self.say_stale();
            if self.state() != WriterState::StalledDisk {
                self.take_reserve();
            }
            self.report(self.state());
        }
    }

    /// Retires what may go; whether `bytes` fit then.
    fn sweep(&mut self, bytes: u64) -> bool {
        self.make_room(bytes).unwrap_or_else(|error| {
            self.say_unretired(&error);
            false
        })
    }

    /// Sets the reserve aside again, as soon as that is possible.
    fn take_reserve(&mut self) {
        if self.reserve.is_whole() {
            return;
        }
        let taken = self.reserve.take(&self.layout);
        let dir = self.layout.dir.display();
        match taken {
            Err(error) if !self.said.no_reserve => {
                self.said.no_reserve = true;
                tracing::warn!(code = "spool.no_reserve", %dir, %error, bytes = self.reserve.bytes(),
                    "nothing is set aside for marks and logs on a full disk");
            }
            Err(_) => {}
            Ok(()) => self.said.no_reserve = false,
        }
    }

    fn end_active(&mut self, active: &Active) {
        if let Err(error) = self.end(active) {
            tracing::warn!(code = "spool.no_footer", dir = %self.layout.dir.display(), %error,
                "a segment has no footer: it counts up to its last durable group");
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
        if let Some(slow) = self.held.slow(self.pace.slow_commit, self.pace.say_again) {
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
        tracing::error!(code = "ack.mark_unread", dir = %self.layout.dir.display(), %error, consumer = self.held.consumer(),
            cure = self.held.cure(&self.layout, error),
            "nothing is acknowledged until the mark of the consumer that acknowledges can be read");
        self.unread = Some(text);
    }

    /// Makes a group durable and tells its links.
    fn land(&mut self, group: Vec<Waiting>) {
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
        let (mut durable, mut landed) = (Vec::new(), Vec::new());
        let (mut end, since) = (first, Instant::now());
        for (token, promise, count) in told {
            let events = u64::from(count);
            token.0.placed(token.1, end);
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

    /// Makes a group durable, whatever it takes; in parts, where the disk has no room for all of it.
    fn store(&mut self, placed: &[Placed]) -> Result<(), SpoolError> {
        let (mut rest, mut most, mut failures) = (placed, placed.len(), 0);
        let mut full = None;
        loop {
            if self.is_late() {
                return Err(SpoolError::Closed);
            }
            self.in_place()?;
            let (part, later) = rest.split_at(most.min(rest.len()));
            let bytes = stored_bytes(part);
            if self.is_over(bytes) && !self.sweep(bytes) {
                self.say_stalled(bytes);
                self.stall(WriterState::StalledBudget);
                continue;
            }
            let begun = Instant::now();
            match self.attempt(part) {
                Ok(()) => {
                    self.measure(begun.elapsed());
                    (rest, failures) = (later, 0);
                    if rest.is_empty() {
                        self.is_not_stalled();
                        self.take_reserve();
                        self.report(WriterState::Ok);
                        return Ok(());
                    }
                    most = match (self.fitting(rest), &full) {
                        (0, Some(error)) => self.wait_for_disk(rest, rest.len(), error),
                        (fitting, _) => fitting.max(1),
                    };
                }
                Err(error) if error.is_full() => {
                    self.leave_full();
                    most = self.wait_for_disk(rest, part.len().div_ceil(2), &error);
                    full = Some(error);
                }
                Err(error @ SpoolError::Moved { .. }) => return Err(error),
                Err(error) => {
                    tracing::error!(code = "spool.write_failed", dir = %self.layout.dir.display(), %error,
                        "a group could not be made durable; it goes to a new segment");
                    self.abandon();
                    failures += 1;
                    if failures == MAX_FAILURES {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Leaves a segment for which there was no room. What was written of the group that failed would
    /// take the room of the next one; nothing in it is durable.
    fn leave_full(&mut self) {
        if let Some(active) = &self.active
            && active.first != self.position
        {
            let _ = self.disk.cut(&active.path, active.segment_bytes);
        }
        self.abandon();
    }

    /// Waits until the file system has room for the next block, and for the reserve if there was one; how
    /// many blocks fit then. It tries `most` after a while where that cannot be told (a quota).
    fn wait_for_disk(&mut self, rest: &[Placed], most: usize, error: &SpoolError) -> usize {
        self.reserve.give_back();
        let next = stored_bytes(rest.get(..1).unwrap_or_default());
        let wanted = next.saturating_add(self.aside());
        loop {
            self.say_full(error, wanted);
            self.stall(WriterState::StalledDisk);
            let fitting = self.fitting(rest);
            if fitting > 0 || self.is_late() || self.in_place().is_err() {
                return fitting.clamp(1, most);
            }
            // What the consumers are done with is room too: one segment at a time.
            let room = self.options.budget.saturating_sub(self.used());
            self.sweep(room.saturating_add(1));
        }
    }

    /// What is left free on the way back from a full file system: without a reserve, a little for marks.
    fn aside(&self) -> u64 {
        self.reserve.room().max(MARKS_ROOM)
    }

    /// How many of these blocks the file system has room for, beside the reserve; all where it does not
    /// say.
    fn fitting(&self, rest: &[Placed]) -> usize {
        let Some(free) = filesystem::free_bytes(&self.layout.dir) else {
            return rest.len();
        };
        let free = free.saturating_sub(self.aside());
        let mut bytes = GROUP_OVERHEAD as u64;
        let fits = |placed: &&Placed| {
            bytes += (placed.block.body_bytes() + BLOCK_OVERHEAD) as u64;
            bytes <= free
        };
        rest.iter().take_while(fits).count()
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
        let until = Instant::now() + self.pace.recheck;
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
        let end = written?;
        self.in_place()?;
        self.position = end;
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
            if self.left_behind {
                // A failed segment of the same name must not come back beside a file of this one.
                self.disk.sync_dir(&self.layout.segments())?;
                self.fsyncs += 1;
                self.left_behind = false;
            }
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
            self.left_behind = true;
            let _ = remove_pair(&mut *self.disk, &path);
        })?;
        Ok(Active {
            first: self.position,
            places: [Place::of(&segment, &path)?, Place::of(&index, &index_path)?],
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
            last_us: active.last_us,
        });
    }

    /// Leaves a segment that failed: it ends at its last durable block and is never written again.
    fn abandon(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        if active.first == self.position {
            self.left_behind = true;
            let _ = remove_pair(&mut *self.disk, &active.path);
        } else {
            self.keep(&active);
        }
    }

    /// Publishes the durable mark. What it names is durable already: a failure delays readers until it
    /// is tried again, and nothing else.
    fn publish(&mut self) {
        let published = self.publish_mark();
        let was_unpublished = self.unpublished.is_some();
        self.unpublished = published.is_err().then(Instant::now);
        if let Err(error) = published
            && !was_unpublished
        {
            tracing::error!(code = "spool.mark_unpublished", dir = %self.layout.dir.display(), %error,
                "readers do not see what is durable until the mark can be written");
        }
    }

    pub(crate) fn publish_mark(&mut self) -> Result<(), SpoolError> {
        let (slot, at) = DurableMark::encode(self.turn, self.position);
        self.turn += 1;
        let path = self.layout.durable();
        self.disk.publish(&self.mark, &path, &slot, at)
    }

    pub(crate) fn used(&self) -> u64 {
        let active = self
            .active
            .as_ref()
            .map_or(0, |a| a.segment_bytes + a.index_bytes);
        self.kept.iter().map(|kept| kept.bytes).sum::<u64>() + active
    }

    fn state(&self) -> WriterState {
        self.shared.lock().stats.state
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
            let (from, to) = (stats.state.as_str(), state.as_str());
            tracing::info!(code = "spool.state", dir = %self.layout.dir.display(), from, to, "the spool's writer");
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
            let why = match error {
                SpoolError::Moved { .. } => {
                    // Its index has a group that counts for nobody: recovery may judge that.
                    self.active = None;
                    "what is written is not in its place"
                }
                _ => "three writes in a row failed",
            };
            tracing::error!(code = "spool.failed", dir = %self.layout.dir.display(), %error,
                "{why}: nothing is accepted any more");
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

/// The bytes that a group takes on the disk, at the most.
fn stored_bytes(placed: &[Placed]) -> u64 {
    let bodies: usize = placed.iter().map(|placed| placed.block.body_bytes()).sum();
    (bodies + GROUP_OVERHEAD + placed.len() * BLOCK_OVERHEAD) as u64
}

/// Room for the marks of a few consumers, each of which takes a page while it is replaced.
const MARKS_ROOM: u64 = 16 << 10;

/// Failures in a row after which the disk is given up.
const MAX_FAILURES: u32 = 3;

/// What Arrow and a new segment's headers add to a group, generously.
const GROUP_OVERHEAD: usize = 8_192;

/// What the columns beside the body add for a block, generously.
const BLOCK_OVERHEAD: usize = 512;

/// Commits whose times are kept.
const KEPT_TIMES: usize = 1_024;
