//! Removal of segments, and the log lines about the consumers that hold the space: on a separate
//! thread, so that no commit waits for it unless it needs the space.
//!
//! ```text
//! oldest segment   below all marks ── older than retain_committed ─► retention.retired
//!                  │                └─ the budget needs its space ──► retention.early
//!                  └ not below them ── older than retain_max ───────► retention.max: events are lost
//! ```
//!
//! Segments are removed oldest first. Without a consumer only `retain_max` removes any. Marks are
//! read and the new start of the spool is written under the lock that every backward move of a mark
//! takes; only then are files removed, in any order: everything below the start counts as gone.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    ConsumerState, Spool, SpoolError, WriterOptions,
    catalog::{Catalog, Kept, Last, Task},
    clock::now_us,
    commit::Settings,
    consumers::{self, Mark},
    folder::{Folder, RETIRED},
    format::Identity,
    index::{Index, index_name, segment_name},
    lock::Lock,
    losses, mark,
    said::SaidOfRetention,
    start::Start,
    watch::{self, Watch},
};

/// The reason a segment is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// All consumers have finished with it, for long enough.
    Age,
    /// All consumers have finished with it, and its space is needed.
    Early,
    /// It is older than the limit, even if a consumer still wants it.
    Max,
}

/// Whether the oldest segment is removed. `lowest` is the lowest mark of all consumers, `age` that
/// of its last event.
pub(crate) fn verdict(
    end: u64,
    lowest: Option<u64>,
    is_needed: bool,
    age: Duration,
    options: &WriterOptions,
) -> Option<Why> {
    let is_done = lowest.is_some_and(|lowest| end <= lowest);
    if is_done && age >= options.retain_committed {
        return Some(Why::Age);
    }
    if is_done && is_needed {
        return Some(Why::Early);
    }
    let is_too_old = options.retain_max.is_some_and(|most| age >= most);
    is_too_old.then_some(if is_done { Why::Age } else { Why::Max })
}

/// The thread that removes segments.
pub(crate) struct Retention {
    pub(crate) folder: Folder,
    pub(crate) identity: Identity,
    pub(crate) settings: Settings,
    pub(crate) watch: Watch,
    pub(crate) epoch: u64,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) said: SaidOfRetention,
    pub(crate) fsyncs: u64,
    /// The position that was last written to `start`.
    pub(crate) noted: u64,
}

impl Retention {
    /// Runs until the writer is closed.
    pub(crate) fn run(mut self) {
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            tracing::error!(code = "retention.ended", dir = %self.folder.dir().display(),
                "retention ended by a defect of Ackline: nothing is removed until the next start");
        }
        self.catalog.close();
    }

    fn work(&mut self) {
        let mut next = Instant::now();
        loop {
            let Task::Sweep { wanted, ticket } = self.catalog.next(next) else {
                self.note_position();
                return;
            };
            if self.is_ours() {
                self.say_step();
                if let Err(error) = self.sweep(wanted) {
                    self.say_unretired(&error);
                }
                self.say_stale();
                self.note_position();
            }
            let fsyncs = std::mem::take(&mut self.fsyncs);
            self.catalog.answer(ticket, fsyncs);
            next = Instant::now() + self.settings.pace.sweep;
        }
    }

    /// Whether the folder is still in its place and its writer still the newest: otherwise this
    /// thread must remove nothing.
    fn is_ours(&self) -> bool {
        let is_newest = mark::Mark::of(&self.folder).is_ok_and(|found| found.epoch == self.epoch);
        is_newest && self.folder.is_in_place().unwrap_or(false)
    }

    /// Writes the durable position to a file that outlives the durable mark, if it has moved since.
    fn note_position(&mut self) {
        let position = self.catalog.durable();
        if position == self.noted {
            return;
        }
        let noted = Lock::marks(&self.folder).and_then(|_lock| {
            let known = Start::read(&self.folder)?;
            let Some(known) = known.filter(|_| self.is_ours()) else {
                return Ok(());
            };
            let start = Start {
                position: known.position.max(position),
                epoch: self.epoch,
                watched_us: self.watch.watched_us(),
                ..known
            };
            start.write(&self.folder)
        });
        match noted {
            Ok(()) => {
                self.noted = position;
                self.fsyncs += 2;
            }
            Err(error) => self.say_unretired(&error),
        }
    }

    fn say_step(&mut self) {
        let Some(step_us) = self.watch.step(self.folder.disk().now_us()) else {
            return;
        };
        let half_us = 500_000 * step_us.signum();
        let step_s = step_us.saturating_add(half_us) / 1_000_000;
        tracing::warn!(code = "retention.clock_step", dir = %self.folder.dir().display(), step_s,
            "the machine's clock was set by {step_s} seconds: events are removed for their age only as time \
             passes while the receiver runs");
    }

    /// Removes segments that may go, and more while `wanted` bytes are not free.
    fn sweep(&mut self, wanted: u64) -> Result<(), SpoolError> {
        let mut freed = 0;
        loop {
            let going = self.decide(wanted.saturating_sub(freed))?;
            if going.is_empty() {
                return Ok(());
            }
            freed += going.iter().map(|(kept, _)| kept.bytes).sum::<u64>();
            self.remove(&going, wanted > 0)?;
        }
    }

    /// Decides which segments to remove now, and moves the start of the spool after them. Marks
    /// cannot go back meanwhile.
    fn decide(&mut self, wanted: u64) -> Result<Vec<(Kept, Why)>, SpoolError> {
        let oldest = self.catalog.oldest(MOST_AT_ONCE);
        let _lock = Lock::marks(&self.folder)?;
        if !self.is_ours() {
            return Ok(Vec::new());
        }
        let marks = self.marks();
        let lowest = marks.iter().map(|mark| mark.committed).min();
        self.catalog.look(lowest);
        let (mut going, mut freed) = (Vec::new(), 0);
        for kept in oldest {
            let age = if lowest.is_some_and(|lowest| kept.end <= lowest)
                || self.settings.options.retain_max.is_some()
            {
                self.age(&kept)
            } else {
                Duration::ZERO
            };
            let is_needed = freed < wanted;
            let Some(why) = verdict(kept.end, lowest, is_needed, age, &self.settings.options)
            else {
                break;
            };
            freed += kept.bytes;
            going.push((kept, why));
        }
        let Some((last, _)) = going.last() else {
            return Ok(going);
        };
        let lost = going.iter().rfind(|(_, why)| *why == Why::Max);
        if let Some((kept, _)) = lost {
            // Before the start moves: without this note a missing range is reported as a problem.
            self.note_retired(kept.end)?;
        }
        // A mark is visible before its rename is durable: it must not go back below removed
        // positions.
        self.folder.disk().sync_dir(self.folder.consumers()?)?;
        let start = Start {
            uuid: self.identity.uuid.clone(),
            first: last.end,
            position: self.catalog.durable().max(last.end),
            epoch: self.epoch,
            watched_us: self.watch.watched_us(),
        };
        start.write(&self.folder)?;
        self.fsyncs += 3;
        for (kept, why) in &going {
            self.say(kept, *why, &marks);
        }
        Ok(going)
    }

    /// Removes files below the start.
    fn remove(&mut self, going: &[(Kept, Why)], is_urgent: bool) -> Result<(), SpoolError> {
        let (dir, disk) = (self.folder.segments()?, self.folder.disk());
        for (kept, _) in going {
            if !is_urgent {
                // Pauses, because commits share the disk.
                std::thread::sleep(REMOVE_EVERY);
            }
            disk.remove(dir, &segment_name(kept.first))?;
            disk.remove(dir, &index_name(kept.first))?;
            self.catalog.pop();
            if self.catalog.is_over() {
                // The next start removes the rest.
                break;
            }
        }
        disk.sync_dir(dir)?;
        self.fsyncs += 1;
        let start = going.last().map_or(0, |(kept, _)| kept.end);
        losses::forget_below(&self.folder, &self.identity.uuid, start)
    }

    /// The age of a segment's last event.
    fn age(&self, kept: &Kept) -> Duration {
        let last = kept.last.or_else(|| last_of(&self.folder, kept.first));
        // Its time is unknown: as old as the watched time, by that clock alone.
        let last = last.unwrap_or(Last {
            wall_us: 0,
            watched_us: 0,
        });
        let now_us = self.folder.disk().now_us();
        watch::age(
            now_us,
            last.wall_us,
            self.watch.watched_us(),
            last.watched_us,
        )
    }

    /// The marks of all consumers; none if one of them cannot be read: it may be the lowest.
    fn marks(&mut self) -> Vec<Mark> {
        let read = consumers::list(&self.folder).and_then(|marks| {
            let checked = |mark: Mark| mark.check(&self.folder, &self.identity);
            marks.into_iter().map(checked).collect()
        });
        match read {
            Ok(marks) => {
                self.said.unread = None;
                marks
            }
            Err(error) => {
                let text = error.to_string();
                if self.said.unread.as_ref() != Some(&text) {
                    tracing::error!(code = "retention.marks_unread", dir = %self.folder.dir().display(), %error,
                        "nothing is retired until every consumer's mark can be read");
                    self.said.unread = Some(text);
                }
                Vec::new()
            }
        }
    }

    fn say(&self, kept: &Kept, why: Why, marks: &[Mark]) {
        let (from, to, bytes) = (kept.first, kept.end, kept.bytes);
        let dir = self.folder.dir().display();
        match why {
            Why::Age => {
                tracing::info!(code = "retention.retired", %dir, from, to, bytes, "a segment was retired");
            }
            Why::Early => tracing::info!(code = "retention.early", %dir, from, to, bytes,
                "a committed segment was retired before its time: the budget needs its space"),
            Why::Max => {
                let behind = marks.iter().filter(|mark| mark.committed < to);
                let consumers: Vec<_> = behind.map(|mark| mark.name.as_str()).collect();
                let consumers = consumers.join(", ");
                tracing::warn!(code = "retention.max", %dir, from, to, bytes, consumers,
                    "a segment reached the greatest age (retain_max) and was removed: it is lost for these consumers");
            }
        }
    }

    /// Notes that missing events below `to` were removed on purpose, for verification.
    fn note_retired(&self, to: u64) -> Result<(), SpoolError> {
        let text = format!("{to}\n");
        self.folder
            .replace(self.folder.root(), RETIRED, text.as_bytes())
    }

    /// Logs why nothing could be retired, once for each reason.
    fn say_unretired(&mut self, error: &SpoolError) {
        let text = error.to_string();
        if self.said.failed.as_ref() != Some(&text) {
            tracing::error!(code = "retention.failed", dir = %self.folder.dir().display(), %error,
                "a segment could not be retired");
            self.said.failed = Some(text);
        }
    }

    /// Logs which consumers have had no reader for an hour, once for each change.
    fn say_stale(&mut self) {
        let listed = Spool::open_in(self.folder.clone()).and_then(|spool| spool.consumers());
        // Retention logs marks that cannot be read.
        let Ok(listed) = listed else {
            return;
        };
        let dir = self.folder.dir().display();
        let mut stale = BTreeSet::new();
        for consumer in listed {
            let was_stale = self.said.stale.contains(&consumer.name);
            let is_stale = consumer.state() == ConsumerState::Stale;
            let (name, mark) = (consumer.name, consumer.committed);
            if is_stale && !was_stale {
                let lag_events = self.catalog.durable().saturating_sub(mark);
                let idle_s = now_us().saturating_sub(consumer.seen_us) / 1_000_000;
                tracing::warn!(code = "consumer.stale", %dir, consumer = name, mark, lag_events, idle_s,
                    cure = format!("ackline spool consumers rm {dir} {name}"),
                    "a consumer has had no reader for an hour; it still holds its events");
            } else if was_stale && !is_stale {
                tracing::info!(code = "consumer.awake", %dir, consumer = name, mark,
                    "a stale consumer has a reader again");
            }
            if is_stale {
                stale.insert(name);
            }
        }
        self.said.stale = stale;
    }
}

/// When the last event of a segment came, by its index; `None` if that cannot be read.
pub(crate) fn last_of(folder: &Folder, first: u64) -> Option<Last> {
    let index = Index::open(folder.segments().ok()?, first).ok()?;
    let last = index.entry(index.len().checked_sub(1)?).ok()??;
    Some(Last {
        wall_us: last.time_us,
        watched_us: last.watched_us,
    })
}

/// Segments that are checked in one go, under the lock.
const MOST_AT_ONCE: usize = 1_024;

/// The pause between two removed segments while no commit waits for their space.
const REMOVE_EVERY: Duration = Duration::from_millis(2);
