//! What is removed, when, and what is said about who holds the space.
//!
//! ```text
//! oldest segment   below all marks ── older than retain_committed ─► retention.retired
//!                  │                └─ the budget needs its space ──► retention.early
//!                  └ not below them ── older than retain_max ───────► retention.max: events are lost
//! ```
//!
//! Always the oldest one first. Without a consumer nothing goes but by `retain_max`.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    ConsumerState, Spool, SpoolError, WriterOptions,
    commit::Committer,
    consumers::{self, Mark},
    filesystem,
    format::{index_of, now_us},
    recovery::{Kept, bytes_of},
};

/// Why a segment goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// All consumers are done with it, for long enough.
    Age,
    /// All consumers are done with it, and its space is needed.
    Early,
    /// It is older than anything may become, whoever still wants it.
    Max,
}

/// Whether the oldest segment goes. `lowest` is the lowest mark of all consumers.
pub(crate) fn verdict(
    oldest: &Kept,
    lowest: Option<u64>,
    is_needed: bool,
    now_us: i64,
    options: &WriterOptions,
) -> Option<Why> {
    // A clock that was set back makes nothing older.
    let age_us = now_us.saturating_sub(oldest.last_us).max(0).unsigned_abs();
    let age = Duration::from_micros(age_us);
    let is_done = lowest.is_some_and(|lowest| oldest.end <= lowest);
    if is_done && age >= options.retain_committed {
        return Some(Why::Age);
    }
    if is_done && is_needed {
        return Some(Why::Early);
    }
    let is_too_old = options.retain_max.is_some_and(|most| age >= most);
    is_too_old.then_some(if is_done { Why::Age } else { Why::Max })
}

impl Committer {
    /// Retires what may go, and more if `bytes` need its space; whether they fit.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Result<bool, SpoolError> {
        self.swept = Instant::now();
        let marks = self.marks();
        let lowest = marks.iter().map(|mark| mark.committed).min();
        loop {
            let is_needed = self.is_over(bytes);
            if is_needed && self.kept.is_empty() && lowest.is_some_and(|mark| mark >= self.position)
            {
                self.leave_active();
            }
            let Some(oldest) = self.kept.front().copied() else {
                break;
            };
            match verdict(&oldest, lowest, is_needed, now_us(), &self.options) {
                Some(why) => self.retire(oldest, why, &marks)?,
                None => break,
            }
        }
        Ok(!self.is_over(bytes))
    }

    /// Whether the budget has no room for `bytes` more. An empty spool takes anything.
    pub(crate) fn is_over(&self, bytes: u64) -> bool {
        let used = self.used();
        used > 0 && used.saturating_add(bytes) > self.options.budget
    }

    /// Ends the active segment, which is about to go: its footer would help nobody.
    fn leave_active(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        self.kept.push_back(Kept {
            first: active.first,
            end: self.position,
            bytes: bytes_of(&active.path),
            last_us: active.last_us,
        });
    }

    /// The marks of all consumers; none when one of them cannot be read: it may be the lowest.
    fn marks(&mut self) -> Vec<Mark> {
        let read = consumers::list(&self.layout).and_then(|marks| {
            let checked = |mark: Mark| mark.check(&self.layout, &self.identity);
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
                    tracing::error!(code = "retention.marks_unread", dir = %self.layout.dir.display(), %error,
                        "nothing is retired until every consumer's mark can be read");
                    self.said.unread = Some(text);
                }
                Vec::new()
            }
        }
    }

    fn retire(&mut self, oldest: Kept, why: Why, marks: &[Mark]) -> Result<(), SpoolError> {
        // The mark carries the position once no segment does. It is written again first: after a sync that
        // failed the next one may succeed without the bytes.
        self.publish_mark()?;
        self.disk.sync(&self.mark, &self.layout.durable())?;
        // A mark is seen before its rename is durable: it must not go back below what is removed.
        self.disk.sync_dir(&self.layout.consumers())?;
        let path = self.layout.segment(oldest.first);
        self.disk.remove(&path)?;
        // An index without its segment is a left-over; a segment without its index would be damage, and
        // one that came back before the next one has gone would be a gap.
        self.disk.sync_dir(&self.layout.segments())?;
        self.kept.pop_front();
        self.disk.remove(&index_of(&path))?;
        self.fsyncs += 3;
        let Kept {
            first: from,
            end: to,
            bytes,
            ..
        } = oldest;
        let dir = self.layout.dir.display();
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
                    "a segment reached the greatest age (retain_max) and is gone for these consumers");
                self.note_retired(to);
            }
        }
        Ok(())
    }

    /// Notes that what is missing below `to` was meant to go, for who verifies the spool. Without the note it
    /// is told as a problem.
    fn note_retired(&mut self, to: u64) {
        let path = self.layout.retired();
        let (temporary, text) = (path.with_extension("tmp"), format!("{to}\n"));
        let noted = consumers::replace(
            &mut *self.disk,
            &self.layout,
            &path,
            &temporary,
            text.as_bytes(),
        );
        if let Err(error) = noted {
            self.say_unretired(&error);
        }
    }

    /// Says who holds the space, at once and then every minute.
    pub(crate) fn say_stalled(&mut self, window: u64) {
        let again = self.pace.say_again;
        if self.said.stalled.is_some_and(|at| at.elapsed() < again) {
            return;
        }
        self.said.stalled = Some(Instant::now());
        let marks = self.marks();
        let dir = self.layout.dir.display();
        let (bytes, budget) = (self.used(), self.options.budget);
        if window > budget {
            tracing::warn!(code = "spool.stalled_budget", %dir, bytes, budget, window, option = "--budget",
                "a window of {window} bytes is larger than the whole budget (--budget {budget}): it waits until \
                 nothing else is kept, and senders wait; raise the budget");
            return;
        }
        let Some(slowest) = marks.iter().min_by_key(|mark| mark.committed) else {
            tracing::warn!(code = "spool.stalled_budget", %dir, bytes, budget,
                cure = format!("ackline spool consumers add {dir} NAME"),
                "the budget is used up and no consumer exists, so that nothing is retired: senders wait; \
                 add the consumer that reads this spool, or raise the budget");
            return;
        };
        let (consumer, mark) = (slowest.name.as_str(), slowest.committed);
        let lag = Spool::open_with(&self.layout.dir, self.layout.access)
            .and_then(|spool| spool.lag(mark));
        let all = (self.position.saturating_sub(mark), bytes);
        let (lag_events, lag_bytes) = lag.map_or(all, |lag| (lag.events, lag.bytes));
        tracing::warn!(code = "spool.stalled_budget", %dir, bytes, budget, consumer, mark, lag_events, lag_bytes,
            cure = format!(
                "ackline spool consumers ls {dir}; ackline spool consumers rm {dir} {consumer}; \
                 ackline spool consumers seek {dir} {consumer} --to latest"),
            "the budget is used up by what this consumer has not committed: senders wait; start its reader, \
             remove it or move its mark, or raise the budget");
    }

    /// Says that the disk or the quota is full, at once and then every minute.
    pub(crate) fn say_full(&mut self, error: &SpoolError, wanted: u64) {
        let again = self.pace.say_again;
        if self.said.full.is_some_and(|at| at.elapsed() < again) {
            return;
        }
        self.said.full = Some(Instant::now());
        let free = filesystem::free_bytes(&self.layout.dir);
        tracing::error!(code = "spool.disk_full", dir = %self.layout.dir.display(), %error, free, wanted,
            "the disk or the quota is full: nothing is acknowledged and senders wait until there is room");
    }

    /// Says why nothing could be retired, once for each reason.
    pub(crate) fn say_unretired(&mut self, error: &SpoolError) {
        let text = error.to_string();
        if self.said.failed.as_ref() != Some(&text) {
            tracing::error!(code = "retention.failed", dir = %self.layout.dir.display(), %error,
                "a segment could not be retired");
            self.said.failed = Some(text);
        }
    }

    /// Forgets that there was no room.
    pub(crate) fn is_not_stalled(&mut self) {
        let (stalled, full) = (self.said.stalled.take(), self.said.full.take());
        if stalled.or(full).is_some() {
            tracing::info!(code = "spool.resumed", dir = %self.layout.dir.display(), "there is room again");
        }
    }

    /// Says which consumers have had no reader for an hour, once for each change.
    pub(crate) fn say_stale(&mut self) {
        let listed = Spool::open_with(&self.layout.dir, self.layout.access)
            .and_then(|spool| spool.consumers());
        // Marks that cannot be read are said by retention.
        let Ok(listed) = listed else {
            return;
        };
        let dir = self.layout.dir.display();
        let mut stale = BTreeSet::new();
        for consumer in listed {
            let was_stale = self.said.stale.contains(&consumer.name);
            let is_stale = consumer.state() == ConsumerState::Stale;
            let (name, mark) = (consumer.name, consumer.committed);
            if is_stale && !was_stale {
                let lag_events = self.position.saturating_sub(mark);
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
