//! The writer's thread: groups waiting blocks, makes them durable, publishes the mark, and settles
//! or holds their promises.
//!
//! ```text
//! take a group ─► room in the budget? ─► encode ─► write + sync segment ─► write + sync index
//!                  │ no: retire, or stall              │ failed: never touch that segment again,
//!                  └─ every 200 ms                     │ a new one, at most three times in a row
//!                                                      ▼
//!                                        publish the durable mark ─► settle, once for each link
//! ```

use std::{
    any::Any,
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    Promise, SpoolError,
    active::Active,
    backlog::Waiting,
    catalog::Catalog,
    folder::{Folder, MARK},
    format::Identity,
    index::IndexHeader,
    lock::Lock,
    mark::Mark,
    options::WriterOptions,
    place::Place,
    promise::{Held, Landed, Token, by_link},
    queue::{Shared, WriterState},
    recovery::State,
    reserve::Reserve,
    retention::Retention,
    room::stored_bytes,
    said::Said,
    segment::Placed,
    watch::Watch,
};

/// The state of the writer's thread.
pub(crate) struct Committer {
    pub(crate) folder: Folder,
    /// The files that stay in place.
    places: Vec<Place>,
    identity: Identity,
    pub(crate) options: WriterOptions,
    pub(crate) pace: Pace,
    mark: File,
    /// The durable mark that this writer wrote last.
    published: Mark,
    watch: Watch,
    pub(crate) position: u64,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) active: Option<Active>,
    held: Held,
    unread: Option<String>,
    /// Since when the mark in the file is behind the position.
    unpublished: Option<Instant>,
    tended: Instant,
    pub(crate) said: Said,
    pub(crate) reserve: Reserve,
    /// Whether files of a failed segment were removed since the directory was last synced.
    left_behind: bool,
    groups: u64,
    fsyncs: u64,
    /// Links and tokens of the group that is being landed; they are told of a panic.
    landing: Vec<Token>,
    shared: Arc<Shared>,
}

/// The intervals of the thread's checks and log lines. Tests have shorter ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Between two sweeps of retention.
    pub(crate) sweep: Duration,
    /// Between two checks of marks and disk while the writer stalls.
    pub(crate) recheck: Duration,
    /// A commit that takes longer than this is logged.
    pub(crate) slow_commit: Duration,
    /// Between two log lines about the same condition.
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

/// The next step of the thread.
enum Work {
    Group(Vec<Waiting>),
    Nothing,
    End,
}

impl Committer {
    pub(crate) fn new(
        (folder, places): (Folder, Vec<Place>),
        (mut options, pace): (WriterOptions, Pace),
        state: State,
        shared: Arc<Shared>,
    ) -> Self {
        // Small budgets need small steps.
        let step = (options.budget / 8).max(4_096);
        options.segment_bytes = options.segment_bytes.min(step);
        options.group_bytes = options
            .group_bytes
            .min(usize::try_from(step).unwrap_or(usize::MAX));
        let reserve = Reserve::new(&folder, options.reserve.min(options.budget / 16));
        let held = Held::new(options.acks.clone());
        let committer = Self {
            folder,
            places,
            identity: state.identity,
            options,
            pace,
            mark: state.mark,
            published: state.published,
            watch: state.watch,
            position: state.position,
            catalog: Arc::new(Catalog::new(state.kept, state.position)),
            active: None,
            held,
            unread: None,
            unpublished: None,
            tended: Instant::now(),
            said: Said::default(),
            reserve,
            left_behind: false,
            groups: 0,
            fsyncs: 0,
            landing: Vec::new(),
            shared,
        };
        committer.report(WriterState::Ok);
        committer
    }

    /// Returns the retention of this spool, for a thread of its own.
    pub(crate) fn retention(&self) -> Retention {
        Retention::new(
            (self.folder.clone(), self.identity.clone()),
            (self.options.clone(), self.pace),
            (self.watch.clone(), self.published.epoch),
            self.catalog.clone(),
        )
    }

    /// Runs until the writer is closed. A panic is a defect; it fails everything that waits.
    pub(crate) fn run(mut self, lock: Lock) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            // The outcome of the group is unknown.
            self.active = None;
            let error = SpoolError::Panicked {
                dir: self.folder.dir().to_owned(),
                text: text_of(&*panic),
            };
            let landing = std::mem::take(&mut self.landing);
            self.fail(&error, landing);
        }
        self.catalog.close();
        drop(lock);
    }

    fn work(&mut self) {
        self.make_room(0);
        self.take_reserve();
        self.report(WriterState::Ok);
        loop {
            match self.next_work() {
                Work::Group(group) => self.land(group),
                Work::Nothing => self.look_around(),
                Work::End => break,
            }
            self.tend();
        }
        if let Some(active) = self.active.take() {
            self.end_active(active);
        }
        // A second copy of the position, when nothing more is written.
        if self.state() != WriterState::Failed
            && let Err(error) = self.note_position()
        {
            self.say_unpublished(&error);
        }
    }

    /// Checks that this writer is still the newest one, and that its files are still in the
    /// readers' place, unchanged.
    pub(crate) fn check(&self) -> Result<(), SpoolError> {
        let found = Mark::read(&self.mark, &self.folder.root().join(MARK))?;
        if found.epoch != self.published.epoch {
            return Err(SpoolError::Fenced {
                dir: self.folder.dir().to_owned(),
                ours: self.published.epoch,
                newer: found.epoch,
            });
        }
        if let Some(active) = &self.active {
            active.segment.check()?;
            active.index.check()?;
        }
        self.places.iter().try_for_each(Place::check)
    }

    /// Fails the held blocks when the spool is no longer in its place: their commit will never
    /// come.
    fn look_around(&mut self) {
        if !self.held.is_empty()
            && let Err(error) = self.check()
        {
            self.fail(&error, Vec::new());
        }
    }

    /// Waits for blocks, but not beyond the time at which other work is due.
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
        Work::Group(queue.waiting.take(self.options.group_bytes))
    }

    /// When work other than writing blocks is due.
    fn due(&self) -> Option<Instant> {
        let active = self.active.as_ref();
        let aged = active.map(|active| active.opened + self.options.segment_age);
        let unpublished = self.unpublished.map(|at| at + self.pace.recheck);
        let tend = Some(self.tended + self.pace.sweep);
        let dues = [self.held.next_look(), aged, unpublished, tend];
        dues.into_iter().flatten().min()
    }

    /// Does the work that is due, other than writing blocks.
    fn tend(&mut self) {
        let now = Instant::now();
        if self.held.next_look().is_some_and(|at| now >= at) {
            self.look();
        }
        if self
            .unpublished
            .is_some_and(|at| now >= at + self.pace.recheck)
            && self.check().is_ok()
        {
            self.publish();
        }
        let age = self.options.segment_age;
        if let Some(active) = self.active.take_if(|active| now >= active.opened + age) {
            self.end_active(active);
        }
        if now >= self.tended + self.pace.sweep {
            self.tended = now;
            if self.state() == WriterState::Failed {
                return;
            }
            match self.check() {
                Ok(()) => {}
                Err(error @ SpoolError::Fenced { .. }) => return self.fail(&error, Vec::new()),
                // The file in this place is not this writer's to change; the next group finds that
                // out.
                Err(_) => return,
            }
            // The watched time advances without events.
            if self.unpublished.is_none() {
                self.publish();
            }
            if self.state() != WriterState::StalledDisk {
                self.take_reserve();
            }
            self.report(self.state());
        }
    }

    /// Allocates the reserve again, as soon as possible.
    fn take_reserve(&mut self) {
        if self.reserve.is_whole() {
            return;
        }
        let taken = self.reserve.take();
        let dir = self.folder.dir().display();
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

    fn end_active(&mut self, active: Active) {
        if let Err(error) = self.end(active) {
            tracing::warn!(code = "spool.no_footer", dir = %self.folder.dir().display(), %error,
                "a segment has no footer: it counts up to its last durable group");
        }
    }

    /// Settles the blocks that the consumer has committed.
    fn look(&mut self) {
        match self.held.look(&self.folder, &self.identity) {
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
            tracing::warn!(code = "ack.commits_slow", dir = %self.folder.dir().display(), consumer, waited_s,
                mark = slow.mark, wanted = slow.wanted,
                "senders wait for a commit: their windows move once for each micro-batch");
        }
    }

    /// Logs, once for each change, that the consumer's mark cannot be read: nothing is acknowledged
    /// then.
    fn say_unread(&mut self, error: &SpoolError) {
        let text = error.to_string();
        if self.unread.as_ref() == Some(&text) {
            return;
        }
        tracing::error!(code = "ack.mark_unread", dir = %self.folder.dir().display(), %error, consumer = self.held.consumer(),
            cure = self.held.cure(&self.folder, error),
            "nothing is acknowledged until the mark of the consumer that acknowledges can be read");
        self.unread = Some(text);
    }

    /// Makes a group durable and notifies its links.
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
        self.landing = told.iter().map(|(token, ..)| token.clone()).collect();
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
        self.landing.clear();
        self.finish(blocks);
    }

    /// Makes a group durable, however long it takes; in parts, if the disk has no space for all of
    /// it.
    fn store(&mut self, placed: &[Placed]) -> Result<(), SpoolError> {
        let (mut rest, mut most, mut failures) = (placed, placed.len(), 0);
        let mut full = None;
        loop {
            if self.is_late() {
                return Err(SpoolError::Closed);
            }
            match self.check() {
                Err(error) if error.is_out_of_descriptors() => {
                    self.wait_for_descriptors(&error);
                    continue;
                }
                checked => checked?,
            }
            let (part, later) = rest.split_at(most.min(rest.len()));
            let bytes = stored_bytes(part);
            if !self.make_room(bytes) {
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
                    self.abandon();
                    most = self.wait_for_disk(rest, part.len().div_ceil(2), &error);
                    full = Some(error);
                }
                Err(error) if error.is_out_of_descriptors() => {
                    self.abandon();
                    self.wait_for_descriptors(&error);
                }
                Err(
                    error @ (SpoolError::Moved { .. }
                    | SpoolError::Changed { .. }
                    | SpoolError::Fenced { .. }),
                ) => return Err(error),
                Err(error) => {
                    tracing::error!(code = "spool.write_failed", dir = %self.folder.dir().display(), %error,
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

    /// Waits a moment if no file can be opened: connections that end return their descriptors.
    fn wait_for_descriptors(&mut self, error: &SpoolError) {
        self.say_no_descriptors(error);
        self.stall(WriterState::StalledDescriptors);
    }

    pub(crate) fn is_late(&self) -> bool {
        self.shared
            .lock()
            .closing
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits a moment, less if the writer is closed, and does the work that is due meanwhile.
    pub(crate) fn stall(&mut self, state: WriterState) {
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
            active.segment.bytes >= self.options.segment_bytes
                || active.opened.elapsed() >= self.options.segment_age
        };
        if self.active.as_ref().is_some_and(full)
            && let Some(active) = self.active.take()
        {
            self.end(active)?;
        }
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.begin(placed)?,
        };
        let watched_us = self.watch.watched_us();
        let written = active.write(&self.folder, self.position, placed, watched_us);
        self.active = Some(active);
        self.fsyncs += 2;
        let end = written?;
        self.check()?;
        self.position = end;
        self.groups += 1;
        self.publish();
        Ok(())
    }

    fn begin(&mut self, placed: &[Placed]) -> Result<Active, SpoolError> {
        if self.left_behind {
            // A failed segment of the same name must not come back next to a file of this one.
            self.folder.disk().sync_dir(self.folder.segments()?)?;
            self.fsyncs += 1;
            self.left_behind = false;
        }
        let first_time_us = placed
            .first()
            .map_or_else(|| self.folder.disk().now_us(), |one| one.received_at_us);
        let header = IndexHeader::new(self.identity.uuid.clone(), self.position, first_time_us);
        self.fsyncs += 3;
        let epoch = self.published.epoch;
        Active::begin(&self.folder, &header, epoch, self.watch.watched_us())
            .inspect_err(|_| self.left_behind = true)
    }

    /// Ends a segment in good order. It counts as kept even if its footer could not be written.
    fn end(&mut self, mut active: Active) -> Result<(), SpoolError> {
        self.fsyncs += 1;
        let ended = active.end(&self.folder, self.position);
        if ended.is_err() {
            // Half a footer that is not synced could damage the entries next to it on a loss of
            // power.
            let _ = active.cut_back(&self.folder);
        }
        self.catalog.push(active.kept(self.position));
        ended
    }

    /// Leaves a segment that failed: it is cut back to its last durable group and never written again.
    fn abandon(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        if let Err(error) = active.cut_back(&self.folder) {
            tracing::warn!(code = "spool.not_cut", dir = %self.folder.dir().display(), %error,
                "a segment that failed could not be cut back to what is durable: the next start does that");
        }
        if active.first == self.position {
            self.left_behind = true;
            active.remove(&self.folder);
        } else {
            self.catalog.push(active.kept(self.position));
        }
    }

    /// Publishes the durable mark. The position is durable already: a failure only delays readers
    /// until the next try.
    fn publish(&mut self) {
        let published = self.publish_mark();
        let was_unpublished = self.unpublished.is_some();
        self.unpublished = published.is_err().then(Instant::now);
        if let Err(error) = published
            && !was_unpublished
        {
            self.say_unpublished(&error);
        }
        self.catalog.publish(self.position);
    }

    fn publish_mark(&mut self) -> Result<(), SpoolError> {
        self.published = Mark {
            position: self.position,
            epoch: self.published.epoch,
            generation: self.published.generation + 1,
            watched_us: self.watch.watched_us(),
        };
        let (slot, at) = self.published.encode();
        let path = self.folder.root().join(MARK);
        self.folder.disk().publish(&self.mark, &path, &slot, at)
    }

    /// Syncs the durable mark, when nothing more is written.
    fn note_position(&mut self) -> Result<(), SpoolError> {
        self.check()?;
        self.publish_mark()?;
        let path = self.folder.root().join(MARK);
        self.folder.disk().sync(&self.mark, &path)
    }

    fn say_unpublished(&self, error: &SpoolError) {
        tracing::error!(code = "spool.mark_unpublished", dir = %self.folder.dir().display(), %error,
            "readers do not see what is durable until the mark can be written");
    }

    fn state(&self) -> WriterState {
        self.shared.lock().stats.state
    }

    fn report(&self, state: WriterState) {
        let first_kept = self.catalog.first();
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
        stats.fsyncs = self.fsyncs + self.catalog.fsyncs();
        if stats.state != state {
            let (from, to) = (stats.state.as_str(), state.as_str());
            tracing::info!(code = "spool.state", dir = %self.folder.dir().display(), from, to, "the spool's writer");
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

    /// Gives up: all waiting and all later blocks fail.
    fn fail(&mut self, error: &SpoolError, mut tokens: Vec<Token>) {
        let blocks = tokens.len();
        self.landing.clear();
        if !matches!(error, SpoolError::Closed) {
            self.report(WriterState::Failed);
            // The index may have a group that does not count: recovery judges that.
            self.active = None;
            let why = match error {
                SpoolError::Moved { .. } => "what is written is not in its place",
                SpoolError::Changed { .. } => "what was written was changed",
                SpoolError::Fenced { .. } => "another writer has taken over",
                SpoolError::Panicked { .. } => "the writer's thread ended by a defect",
                SpoolError::Io { .. } => "the disk refuses to work",
                _ => "a file that it needs is damaged",
            };
            tracing::error!(code = "spool.failed", dir = %self.folder.dir().display(), %error,
                "{why}: nothing is accepted any more");
            // It is no longer known whether the commit that they wait for will ever come.
            tokens.extend(self.held.take());
            self.report_held();
        }
        let mut queue = self.shared.lock();
        if queue.stats.state == WriterState::Failed {
            queue.stats.failure.get_or_insert_with(|| error.clone());
        }
        queue.refused = Some(error.clone());
        let blocks = blocks + queue.waiting.len();
        tokens.extend(
            queue
                .waiting
                .drain()
                .map(|waiting| (waiting.settle, waiting.token)),
        );
        drop(queue);
        by_link(tokens, |link, _| {
            // A defect in one link must not keep the others from being notified.
            let _ = catch_unwind(AssertUnwindSafe(|| link.failed(error)));
        });
        self.finish(blocks);
    }
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no words".to_owned())
}

/// Failures in a row after which the disk is given up.
const MAX_FAILURES: u32 = 3;

/// Commits whose times are kept.
const KEPT_TIMES: usize = 1_024;
