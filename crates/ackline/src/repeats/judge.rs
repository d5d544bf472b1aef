//! The comparison of one connection's events with what its sender may not know to have landed.

use ackline_spool::Digester;
use tokio::sync::OwnedMutexGuard;

use super::sender::Base;

/// Compares the events of whole windows, while no other connection of their sender does.
#[derive(Debug)]
pub struct Judge {
    base: OwnedMutexGuard<Base>,
    digester: Digester,
    /// Whole windows in a row that matched nothing, and how many of them end it.
    quiet: u32,
    enough: u32,
    /// In the window under way.
    matched: bool,
    compared: u64,
    repeats: u64,
}

impl Judge {
    pub(super) fn new(
        base: OwnedMutexGuard<Base>,
        digester: Digester,
        (quiet, enough): (u32, u32),
    ) -> Self {
        Self {
            base,
            digester,
            quiet,
            enough,
            matched: false,
            compared: 0,
            repeats: 0,
        }
    }

    /// Whether nothing more is compared.
    pub fn is_done(&self) -> bool {
        self.quiet >= self.enough
    }

    /// Whether an event of one payload was sent before. Each one known answers once.
    pub fn payload(&mut self, payload: &[u8]) -> bool {
        self.judge(|digester| digester.payload(payload))
    }

    /// The same for an event of several parts.
    pub fn parts<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        self.judge(|digester| digester.parts(parts))
    }

    /// The events of a window were all asked about.
    pub fn end_window(&mut self) {
        self.quiet = if std::mem::take(&mut self.matched) {
            0
        } else {
            self.quiet + 1
        };
    }

    fn judge(&mut self, digest: impl FnOnce(&Digester) -> u128) -> bool {
        if self.is_done() || self.base.digests.len() == 0 {
            return false;
        }
        self.compared += 1;
        let is_repeat = self.base.digests.take(digest(&self.digester));
        self.repeats += u64::from(is_repeat);
        self.matched |= is_repeat;
        is_repeat
    }

    /// Events digested, and those of them that were sent before.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.compared, self.repeats)
    }

    pub(super) fn base(&mut self) -> &mut Base {
        &mut self.base
    }

    pub(super) fn quiet(&self) -> u32 {
        self.quiet
    }
}
