//! Making a group durable: tries, segments, and stalls.

use std::{sync::PoisonError, time::Instant};

use ackline_core::locked;

use super::Committer;
use crate::{
    Promise, SpoolError,
    active::Active,
    backlog::Waiting,
    index::IndexHeader,
    promise::{Landed, by_link},
    queue::WriterState,
    room::stored_bytes,
    segment::Placed,
};

impl Committer {
    /// Makes a group durable and notifies its links.
    pub(super) fn land(&mut self, group: Vec<Waiting>) {
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
        self.promises.landing = told.iter().map(|(token, ..)| token.clone()).collect();
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
                    self.promises.held.push(Landed {
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
        self.promises.landing.clear();
        self.finish(blocks);
    }

    /// Makes a group durable, however long it takes; in parts, if the disk has no space for all of
    /// it.
    pub(super) fn store(&mut self, placed: &[Placed]) -> Result<(), SpoolError> {
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
                Err(error) => self.retry_after(error, &mut failures)?,
            }
        }
    }

    /// Prepares the next try after a failed one.
    ///
    /// # Errors
    /// `error`, if no other try may follow.
    fn retry_after(&mut self, error: SpoolError, failures: &mut u32) -> Result<(), SpoolError> {
        if matches!(
            error,
            SpoolError::Moved { .. } | SpoolError::Changed { .. } | SpoolError::Fenced { .. }
        ) {
            return Err(error);
        }
        if error.is_out_of_descriptors() {
            self.abandon();
            self.wait_for_descriptors(&error);
            return Ok(());
        }
        tracing::error!(code = "spool.write_failed", dir = %self.files.folder.dir().display(), %error,
            "a group could not be made durable; it goes to a new segment");
        self.abandon();
        *failures += 1;
        if *failures == MAX_FAILURES {
            return Err(error);
        }
        Ok(())
    }

    /// Waits a moment if no file can be opened: connections that end return their descriptors.
    pub(super) fn wait_for_descriptors(&mut self, error: &SpoolError) {
        self.say_no_descriptors(error);
        self.stall(WriterState::StalledDescriptors);
    }

    pub(crate) fn is_late(&self) -> bool {
        locked(&self.shared.queue)
            .closing
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits a moment, less if the writer is closed, and does the work that is due meanwhile.
    pub(crate) fn stall(&mut self, state: WriterState) {
        self.report(state);
        let until = Instant::now() + self.settings.pace.recheck;
        loop {
            self.tend();
            let due = self.due().into_iter().chain([until]).min().unwrap_or(until);
            let mut queue = locked(&self.shared.queue);
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
    pub(super) fn attempt(&mut self, placed: &[Placed]) -> Result<(), SpoolError> {
        let full = |active: &Active| {
            active.segment.bytes >= self.settings.options.segment_bytes
                || active.opened.elapsed() >= self.settings.options.segment_age
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
        let written = active.write(&self.files.folder, self.position, placed, watched_us);
        self.active = Some(active);
        self.counts.fsyncs += 2;
        let end = written?;
        self.check()?;
        self.position = end;
        self.counts.groups += 1;
        self.publish();
        Ok(())
    }

    pub(super) fn begin(&mut self, placed: &[Placed]) -> Result<Active, SpoolError> {
        if self.files.left_behind {
            // A failed segment of the same name must not come back next to a file of this one.
            self.files
                .folder
                .disk()
                .sync_dir(self.files.folder.segments()?)?;
            self.counts.fsyncs += 1;
            self.files.left_behind = false;
        }
        let first_time_us = placed.first().map_or_else(
            || self.files.folder.disk().now_us(),
            |one| one.received_at_us,
        );
        let header = IndexHeader::new(
            self.files.identity.uuid.clone(),
            self.position,
            first_time_us,
        );
        self.counts.fsyncs += 3;
        let epoch = self.mark.last.epoch;
        Active::begin(&self.files.folder, &header, epoch, self.watch.watched_us())
            .inspect_err(|_| self.files.left_behind = true)
    }

    /// Ends a segment in good order. It counts as kept even if its footer could not be written.
    pub(super) fn end(&mut self, mut active: Active) -> Result<(), SpoolError> {
        self.counts.fsyncs += 1;
        let ended = active.end(&self.files.folder, self.position);
        if ended.is_err() {
            // Half a footer that is not synced could damage the entries next to it on a loss of
            // power.
            let _ = active.cut_back(&self.files.folder);
        }
        self.catalog.push(active.kept(self.position));
        ended
    }

    /// Leaves a segment that failed: it is cut back to its last durable group and never written again.
    pub(super) fn abandon(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        if let Err(error) = active.cut_back(&self.files.folder) {
            tracing::warn!(code = "spool.not_cut", dir = %self.files.folder.dir().display(), %error,
                "a segment that failed could not be cut back to its durable groups: the next start does that");
        }
        if active.first == self.position {
            self.files.left_behind = true;
            active.remove(&self.files.folder);
        } else {
            self.catalog.push(active.kept(self.position));
        }
    }
}

/// Failures in a row after which the disk is given up.
const MAX_FAILURES: u32 = 3;
