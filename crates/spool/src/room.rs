//! Space for the next group: in the budget, which retention frees, and on the file system, which is
//! waited for.

use std::time::Duration;

use crate::{
    SpoolError, active::Active, commit::Committer, queue::WriterState, reserve, segment::Placed,
};

impl Committer {
    /// Has segments removed, if `bytes` more do not fit otherwise. Returns whether they fit then.
    pub(crate) fn make_room(&mut self, bytes: u64) -> bool {
        loop {
            if !self.is_over(bytes) {
                return true;
            }
            let over = self.used().saturating_add(bytes);
            let wanted = over.saturating_sub(self.settings.options.budget);
            if !self.ask_for_room(wanted) {
                return !self.is_over(bytes);
            }
        }
    }

    /// Asks retention for so many bytes. Returns whether asking again may help: if the written
    /// segment is the only one left and no consumer needs it, it is given up.
    fn ask_for_room(&mut self, wanted: u64) -> bool {
        let answer = self
            .catalog
            .ask(wanted, self.settings.pace.recheck.max(ROOM_WAIT));
        let all_done = answer.lowest.is_some_and(|mark| mark >= self.position);
        if !answer.is_empty || !all_done {
            return false;
        }
        // It will be removed at once: a footer is useless.
        let Some(active) = self.active.take() else {
            return false;
        };
        self.catalog.push(active.kept(self.position));
        true
    }

    /// Whether `bytes` more exceed the budget. An empty spool takes any block.
    fn is_over(&self, bytes: u64) -> bool {
        let used = self.used();
        used > 0 && used.saturating_add(bytes) > self.settings.options.budget
    }

    pub(crate) fn used(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, Active::bytes);
        self.catalog.bytes().saturating_add(active)
    }

    /// Waits until the file system has space for the next block, and for the reserve if there was
    /// one. Returns how many blocks fit then. If the free space is unknown (a quota), it tries
    /// `most` after a while.
    pub(crate) fn wait_for_disk(
        &mut self,
        rest: &[Placed],
        most: usize,
        error: &SpoolError,
    ) -> usize {
        // For logs and marks of others; they take the rest piece by piece.
        reserve::give_piece(&self.files.folder);
        let next = stored_bytes(rest.get(..1).unwrap_or_default());
        let wanted = next.saturating_add(self.aside());
        loop {
            self.say_full(error, wanted);
            self.stall(WriterState::StalledDisk);
            let fitting = self.fitting(rest);
            if fitting > 0 || self.is_late() || self.check().is_err() {
                return fitting.clamp(1, most);
            }
            // Segments that all consumers have finished with can be removed too: one at a time.
            while self.ask_for_room(1) {}
        }
    }

    /// Bytes to be free before the writer continues after a full file system: the missing part of
    /// the reserve, and a little for marks.
    fn aside(&self) -> u64 {
        if self.files.reserve.is_whole() {
            return MARKS_ROOM;
        }
        self.files.reserve.room().max(MARKS_ROOM)
    }

    /// How many of these blocks fit on the file system, beside the reserve; all if its free space
    /// is unknown.
    pub(crate) fn fitting(&self, rest: &[Placed]) -> usize {
        let Some(free) = self
            .files
            .folder
            .disk()
            .free_bytes(self.files.folder.root())
        else {
            return rest.len();
        };
        let free = free.saturating_sub(self.aside());
        let mut bytes = GROUP_OVERHEAD as u64;
        let fits = |placed: &&Placed| {
            bytes += placed.block.stored_bytes() as u64;
            bytes <= free
        };
        rest.iter().take_while(fits).count()
    }
}

/// The most bytes that a group takes on the disk.
pub(crate) fn stored_bytes(placed: &[Placed]) -> u64 {
    let blocks: usize = placed
        .iter()
        .map(|placed| placed.block.stored_bytes())
        .sum();
    (blocks + GROUP_OVERHEAD) as u64
}

/// Space for the marks of a few consumers, each of which takes a page while it is replaced.
const MARKS_ROOM: u64 = 32 << 10;

/// Bytes that Arrow, whole sectors and a new segment's headers add to a group, generously.
pub(crate) const GROUP_OVERHEAD: usize = 12_288;

/// How long a commit waits for the removal of segments before it logs that it waits.
const ROOM_WAIT: Duration = Duration::from_secs(5);
