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

mod store;

use std::{
    any::Any,
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use ackline_core::locked;

use crate::{
    SpoolError,
    active::Active,
    backlog::Waiting,
    catalog::Catalog,
    folder::{Folder, MARK},
    format::Identity,
    lock::Lock,
    mark::Mark,
    options::WriterOptions,
    place::Place,
    promise::{Held, Token, by_link},
    queue::{Shared, WriterState},
    recovery::State,
    reserve::Reserve,
    retention::Retention,
    said::{Said, SaidOfRetention},
    watch::Watch,
};

/// The state of the writer's thread.
pub(crate) struct Committer {
    pub(crate) files: Files,
    pub(crate) settings: Settings,
    mark: PublishedMark,
    watch: Watch,
    pub(crate) position: u64,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) active: Option<Active>,
    promises: Promises,
    tended: Instant,
    pub(crate) said: Said,
    counts: Counts,
    shared: Arc<Shared>,
}

/// The folder of a spool and its files that stay in place.
pub(crate) struct Files {
    pub(crate) folder: Folder,
    places: Vec<Place>,
    identity: Identity,
    pub(crate) reserve: Reserve,
    /// Whether files of a failed segment were removed since the directory was last synced.
    left_behind: bool,
}

/// The durable mark as this writer publishes it.
struct PublishedMark {
    file: File,
    /// The contents that were written last.
    last: Mark,
    /// Time since which the file is behind the position.
    behind_since: Option<Instant>,
}

/// The links that wait for their promises.
struct Promises {
    held: Held,
    /// The logged error of the consumer's mark.
    unread: Option<String>,
    /// Links and tokens of the group that is being landed; they are told of a panic.
    landing: Vec<Token>,
}

#[derive(Default)]
struct Counts {
    groups: u64,
    fsyncs: u64,
}

/// The options of a writer and the intervals of its threads.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) options: WriterOptions,
    pub(crate) pace: Pace,
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
        folder: Folder,
        places: Vec<Place>,
        mut settings: Settings,
        state: State,
        shared: Arc<Shared>,
    ) -> Self {
        // Small budgets need small steps.
        let options = &mut settings.options;
        let step = (options.budget / 8).max(4_096);
        options.segment_bytes = options.segment_bytes.min(step);
        options.group_bytes = options
            .group_bytes
            .min(usize::try_from(step).unwrap_or(usize::MAX));
        let reserve = Reserve::new(&folder, options.reserve.min(options.budget / 16));
        let held = Held::new(options.acks.clone());
        let committer = Self {
            files: Files {
                folder,
                places,
                identity: state.identity,
                reserve,
                left_behind: false,
            },
            settings,
            mark: PublishedMark {
                file: state.mark,
                last: state.published,
                behind_since: None,
            },
            watch: state.watch,
            position: state.recovered.position,
            catalog: Arc::new(Catalog::new(state.kept, state.recovered.position)),
            active: None,
            promises: Promises {
                held,
                unread: None,
                landing: Vec::new(),
            },
            tended: Instant::now(),
            said: Said::default(),
            counts: Counts::default(),
            shared,
        };
        committer.report(WriterState::Ok);
        committer
    }

    /// Returns the retention of this spool, for a thread of its own.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            noted: self.catalog.durable(),
            folder: self.files.folder.clone(),
            identity: self.files.identity.clone(),
            settings: self.settings.clone(),
            watch: self.watch.clone(),
            epoch: self.mark.last.epoch,
            catalog: self.catalog.clone(),
            said: SaidOfRetention::default(),
            fsyncs: 0,
        }
    }

    /// Runs until the writer is closed. A panic is a defect; it fails everything that waits.
    pub(crate) fn run(mut self, lock: Lock) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            // The outcome of the group is unknown.
            self.active = None;
            let error = SpoolError::Panicked {
                dir: self.files.folder.dir().to_owned(),
                text: text_of(&*panic),
            };
            let landing = std::mem::take(&mut self.promises.landing);
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
        let found = Mark::read(&self.mark.file, &self.files.folder.root().join(MARK))?;
        if found.epoch != self.mark.last.epoch {
            return Err(SpoolError::Fenced {
                dir: self.files.folder.dir().to_owned(),
                ours: self.mark.last.epoch,
                newer: found.epoch,
            });
        }
        if let Some(active) = &self.active {
            active.segment.check()?;
            active.index.check()?;
        }
        self.files.places.iter().try_for_each(Place::check)
    }

    /// Fails the held blocks when the spool is no longer in its place: their commit will never
    /// come.
    fn look_around(&mut self) {
        if !self.promises.held.is_empty()
            && let Err(error) = self.check()
        {
            self.fail(&error, Vec::new());
        }
    }

    /// Waits for blocks, but not beyond the time at which other work is due.
    fn next_work(&mut self) -> Work {
        let due = self.due();
        let mut queue = locked(&self.shared.queue);
        while queue.waiting.is_empty() {
            let now = Instant::now();
            let is_over = |deadline| self.promises.held.is_empty() || now >= deadline;
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
        Work::Group(queue.waiting.take(self.settings.options.group_bytes))
    }

    /// Time at which work other than writing blocks is due.
    fn due(&self) -> Option<Instant> {
        let active = self.active.as_ref();
        let aged = active.map(|active| active.opened + self.settings.options.segment_age);
        let unpublished = self
            .mark
            .behind_since
            .map(|at| at + self.settings.pace.recheck);
        let tend = Some(self.tended + self.settings.pace.sweep);
        let dues = [self.promises.held.next_look(), aged, unpublished, tend];
        dues.into_iter().flatten().min()
    }

    /// Does the work that is due, other than writing blocks.
    fn tend(&mut self) {
        let now = Instant::now();
        if self.promises.held.next_look().is_some_and(|at| now >= at) {
            self.look();
        }
        if self
            .mark
            .behind_since
            .is_some_and(|at| now >= at + self.settings.pace.recheck)
            && self.check().is_ok()
        {
            self.publish();
        }
        let age = self.settings.options.segment_age;
        if let Some(active) = self.active.take_if(|active| now >= active.opened + age) {
            self.end_active(active);
        }
        if now >= self.tended + self.settings.pace.sweep {
            self.tended = now;
            if self.state() == WriterState::Failed {
                return;
            }
            match self.check() {
                Ok(()) => {}
                Err(error @ SpoolError::Fenced { .. }) => return self.fail(&error, Vec::new()),
                // The files here are not this writer's: it leaves them, and the next group fails.
                Err(_) => return,
            }
            // The watched time advances without events.
            if self.mark.behind_since.is_none() {
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
        if self.files.reserve.is_whole() {
            return;
        }
        let taken = self.files.reserve.take();
        let dir = self.files.folder.dir().display();
        match taken {
            Err(error) if !self.said.no_reserve => {
                self.said.no_reserve = true;
                tracing::warn!(code = "spool.no_reserve", %dir, %error, bytes = self.files.reserve.bytes(),
                    "nothing is set aside for marks and logs on a full disk");
            }
            Err(_) => {}
            Ok(()) => self.said.no_reserve = false,
        }
    }

    fn end_active(&mut self, active: Active) {
        if let Err(error) = self.end(active) {
            tracing::warn!(code = "spool.no_footer", dir = %self.files.folder.dir().display(), %error,
                "a segment has no footer: it counts up to its last durable group");
        }
    }

    /// Settles the blocks that the consumer has committed.
    fn look(&mut self) {
        match self
            .promises
            .held
            .look(&self.files.folder, &self.files.identity)
        {
            Ok(passed) if passed.is_empty() => self.promises.unread = None,
            Ok(passed) => {
                self.promises.unread = None;
                self.report_held();
                by_link(passed, |link, tokens| link.settle(tokens));
            }
            Err(error) => self.say_unread(&error),
        }
        if let Some(slow) = self
            .promises
            .held
            .slow(self.settings.pace.slow_commit, self.settings.pace.say_again)
        {
            let (consumer, waited_s) = (slow.consumer, slow.waited.as_secs());
            tracing::warn!(code = "ack.commits_slow", dir = %self.files.folder.dir().display(), consumer, waited_s,
                mark = slow.mark, wanted = slow.wanted,
                "senders wait for a commit: their windows move once for each micro-batch");
        }
    }

    /// Logs, once for each change, that the consumer's mark cannot be read: nothing is acknowledged
    /// then.
    fn say_unread(&mut self, error: &SpoolError) {
        let text = error.to_string();
        if self.promises.unread.as_ref() == Some(&text) {
            return;
        }
        tracing::error!(code = "ack.mark_unread", dir = %self.files.folder.dir().display(), %error, consumer = self.promises.held.consumer(),
            cure = self.promises.held.cure(&self.files.folder, error),
            "nothing is acknowledged until the mark of the consumer that acknowledges can be read");
        self.promises.unread = Some(text);
    }

    /// Publishes the durable mark. The position is durable already: a failure only delays readers
    /// until the next try.
    fn publish(&mut self) {
        let published = self.publish_mark();
        let was_unpublished = self.mark.behind_since.is_some();
        self.mark.behind_since = published.is_err().then(Instant::now);
        if let Err(error) = published
            && !was_unpublished
        {
            self.say_unpublished(&error);
        }
        self.catalog.publish(self.position);
    }

    fn publish_mark(&mut self) -> Result<(), SpoolError> {
        self.mark.last = Mark {
            position: self.position,
            epoch: self.mark.last.epoch,
            generation: self.mark.last.generation + 1,
            watched_us: self.watch.watched_us(),
        };
        let (slot, at) = self.mark.last.encode();
        let path = self.files.folder.root().join(MARK);
        self.files
            .folder
            .disk()
            .publish(&self.mark.file, &path, &slot, at)
    }

    /// Syncs the durable mark, when nothing more is written.
    fn note_position(&mut self) -> Result<(), SpoolError> {
        self.check()?;
        self.publish_mark()?;
        let path = self.files.folder.root().join(MARK);
        self.files.folder.disk().sync(&self.mark.file, &path)
    }

    fn say_unpublished(&self, error: &SpoolError) {
        tracing::error!(code = "spool.mark_unpublished", dir = %self.files.folder.dir().display(), %error,
            "readers do not see the newest durable events until the mark can be written");
    }

    fn state(&self) -> WriterState {
        locked(&self.shared.queue).stats.state
    }

    fn report(&self, state: WriterState) {
        let first_kept = self.catalog.first();
        let first_kept = first_kept.or(self.active.as_ref().map(|active| active.first));
        self.catalog
            .note_active(self.active.as_ref().map_or(0, Active::bytes));
        let mut queue = locked(&self.shared.queue);
        let state = match state {
            WriterState::Ok if queue.closing.is_some() => WriterState::Draining,
            state => state,
        };
        let stats = &mut queue.stats;
        if stats.uuid.is_empty() {
            stats.uuid.clone_from(&self.files.identity.uuid);
        }
        stats.durable = self.position;
        stats.first_kept = first_kept.unwrap_or(self.position);
        stats.bytes = self.used();
        stats.budget = self.settings.options.budget;
        stats.commits.groups = self.counts.groups;
        stats.commits.fsyncs = self.counts.fsyncs + self.catalog.fsyncs();
        if stats.state != state {
            let (from, to) = (stats.state.as_str(), state.as_str());
            tracing::info!(code = "spool.state", dir = %self.files.folder.dir().display(), from, to, "the spool's writer");
        }
        stats.state = state;
    }

    fn report_held(&self) {
        let stats = &mut locked(&self.shared.queue).stats;
        (stats.uncommitted_blocks, stats.uncommitted_events) = self.promises.held.sizes();
    }

    fn measure(&self, commit: Duration) {
        let mut queue = locked(&self.shared.queue);
        if queue.commit_ms.len() == KEPT_TIMES {
            queue.commit_ms.pop_front();
        }
        queue.commit_ms.push_back(commit.as_secs_f64() * 1_000.0);
    }

    fn finish(&self, blocks: usize) {
        locked(&self.shared.queue).finished += blocks as u64;
        self.shared.done.notify_all();
    }

    /// Gives up: all waiting and all later blocks fail.
    fn fail(&mut self, error: &SpoolError, mut tokens: Vec<Token>) {
        let blocks = tokens.len();
        self.promises.landing.clear();
        if !matches!(error, SpoolError::Closed) {
            self.report(WriterState::Failed);
            // The index may have a group that does not count: recovery judges that.
            self.active = None;
            let why = match error {
                SpoolError::Moved { .. } => "a written file is not in its place",
                SpoolError::Changed { .. } => "a written file was changed",
                SpoolError::Fenced { .. } => "another writer has taken over",
                SpoolError::Panicked { .. } => "the writer's thread ended by a defect",
                SpoolError::Io { .. } => "the disk refuses to work",
                _ => "a file that it needs is damaged",
            };
            tracing::error!(code = "spool.failed", dir = %self.files.folder.dir().display(), %error,
                "{why}: nothing is accepted any more");
            // It is no longer known whether the commit that they wait for will ever come.
            tokens.extend(self.promises.held.take());
            self.report_held();
        }
        let mut queue = locked(&self.shared.queue);
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

/// Commits whose times are kept.
const KEPT_TIMES: usize = 1_024;
