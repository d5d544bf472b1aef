//! The comparison of one connection's events with landed events that its sender may not know to have landed.

use ackline_spool::Digester;
use tokio::sync::OwnedMutexGuard;

use super::base::Base;
use super::multiset::Multiset;
use super::order::Following;

/// How far a connection's comparison is.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Whole windows in a row that matched nothing, and how many of them end it.
    pub(super) quiet: u32,
    pub(super) enough: u32,
    /// Events in a row that matched nothing.
    pub(super) unmatched: u64,
    pub(super) following: Following,
}

/// Digests of the events that are handed to the spool.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The number of the first block.
    pub(super) from: u64,
    /// Those of whole blocks.
    pub(super) blocks: Vec<Vec<u128>>,
    block: Vec<u128>,
}

/// Compares the events of whole windows, while no other connection of their sender does.
#[derive(Debug)]
pub struct Judge {
    base: OwnedMutexGuard<Base>,
    /// Digests of events that may have been sent again already.
    later: Multiset,
    digester: Digester,
    course: Course,
    /// Events of the block under way, and a bit for each that was sent before.
    row: usize,
    marks: Vec<u8>,
    /// The digests, where they are kept.
    kept: Option<Kept>,
    /// In the window under way.
    matched: bool,
    compared: u64,
    repeats: u64,
}

impl Judge {
    /// Compares with the events that had landed before, and with those that have landed since; from where the
    /// course was.
    pub(super) fn new(
        (base, later): (OwnedMutexGuard<Base>, Multiset),
        digester: Digester,
        course: Course,
    ) -> Self {
        Self {
            base,
            later,
            digester,
            course,
            row: 0,
            marks: Vec::new(),
            kept: None,
            matched: false,
            compared: 0,
            repeats: 0,
        }
    }

    /// The same, which keeps the digests of the blocks, of which the first one has this number.
    pub(super) fn keeping(self, from: u64) -> Self {
        let kept = Some(Kept {
            from,
            ..Kept::default()
        });
        Self { kept, ..self }
    }

    /// The digests, if they were kept.
    pub(super) const fn take_kept(&mut self) -> Option<Kept> {
        self.kept.take()
    }

    /// Whether no event need be asked about any more.
    pub fn needs_nothing(&self) -> bool {
        self.is_done() && self.kept.is_none()
    }

    /// Whether nothing more is compared.
    pub fn is_done(&self) -> bool {
        let is_short = !self.base.ordered.is_empty() && self.course.unmatched < UNMATCHED;
        self.course.quiet >= self.course.enough && !is_short
    }

    /// The next event of the block, of one payload.
    pub fn payload(&mut self, payload: &[u8]) {
        self.judge(|digester| digester.payload(payload));
    }

    /// The same for an event of several parts.
    pub fn parts<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        self.judge(|digester| digester.parts(parts));
    }

    /// The events of a window were all asked about.
    pub fn end_window(&mut self) {
        let course = &mut self.course;
        if std::mem::take(&mut self.matched) || course.following.is_hopeful() {
            course.quiet = 0;
        } else {
            course.quiet = course.quiet.saturating_add(1);
        }
    }

    /// The events of a block were all asked about: the bits of those that were sent before, the least
    /// significant one first; nothing where there is none.
    pub fn end_block(&mut self) -> Vec<u8> {
        if let Some(kept) = &mut self.kept {
            kept.blocks.push(std::mem::take(&mut kept.block));
        }
        self.row = 0;
        self.course.following.end_rows();
        std::mem::take(&mut self.marks)
    }

    fn judge(&mut self, digest: impl FnOnce(&Digester) -> u128) {
        let row = self.row;
        self.row += 1;
        let is_alone = self.base.is_empty() && self.later.len() == 0;
        let compares = !self.is_done() && !is_alone;
        if !compares && self.kept.is_none() {
            return;
        }
        let digest = digest(&self.digester);
        if let Some(kept) = &mut self.kept {
            kept.block.push(digest);
        }
        if !compares {
            return;
        }
        self.compared += 1;
        let (before, base) = (self.repeats, &mut *self.base);
        let (marks, repeats) = (&mut self.marks, &mut self.repeats);
        if base.digests.take(digest) || self.later.take(digest) {
            mark(marks, repeats, row);
        }
        if !base.ordered.is_empty() {
            let event = (digest, row);
            let mark = |row| mark(marks, repeats, row);
            self.course.following.next(&mut base.ordered, event, mark);
        }
        if self.repeats == before {
            self.course.unmatched += 1;
        } else {
            self.matched = true;
            self.course.unmatched = 0;
        }
    }

    /// Events digested, and those of them that were sent before.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.compared, self.repeats)
    }

    pub(super) fn base(&mut self) -> &mut Base {
        &mut self.base
    }

    /// How far it is, for the next one.
    pub(super) fn take_course(&mut self) -> Course {
        std::mem::take(&mut self.course)
    }
}

/// Each row counts once, also where it answers to two copies.
fn mark(marks: &mut Vec<u8>, repeats: &mut u64, row: usize) {
    if marks.len() <= row / 8 {
        marks.resize(row / 8 + 1, 0);
    }
    let (bit, byte) = (1 << (row % 8), marks.get_mut(row / 8));
    if let Some(byte) = byte.filter(|byte| **byte & bit == 0) {
        *byte |= bit;
        *repeats += 1;
    }
}

/// Events in a row that match nothing, after which no stretch is expected any more, however small windows are.
const UNMATCHED: u64 = 64;
