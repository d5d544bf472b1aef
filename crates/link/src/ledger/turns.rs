//! The order of waiting senders: start-time fair queueing by the memory that they hold, in bytes times time.
//!
//! Only the time in which links wait counts. The present virtual time advances with it. The virtual
//! time of a sender advances with the bytes that it holds: as fast as the present one if it holds a
//! 64th of its share, 64 times as fast if it holds its whole share. It is never before the present
//! one, so a new sender, or one that has held little lately, begins at the present one.
//!
//! The turn of a request is the virtual time of its sender, and the bytes that the sender then
//! holds, as if it held them for [`HOLDS`]. So a request goes before those of senders that have
//! held more or want to hold more. A turn is at most [`LATEST`] after the present time, and stays
//! the same while the request is the first of its sender. So a request that begins to wait later
//! than that, by whatever sender, does not overtake it. An earlier link of the same sender may
//! become the first again and go on; then the turn is computed anew, once for each such link, and
//! no sender waits for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A virtual time, in bytes times nanoseconds.
pub(super) type Virtual = u128;

/// The present virtual time, and the senders without links that are remembered.
pub(super) struct Turns {
    /// Bytes that a sender may hold for ever without being late.
    pace: u64,
    /// The last time that was set.
    clock: Duration,
    /// Nanoseconds in which links have waited.
    waited: u64,
    /// Senders without links whose virtual time is still to come, the earliest first.
    gone: BTreeSet<(Virtual, Arc<str>)>,
}

/// The virtual time of a sender when its charge changed last.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    at: Virtual,
    /// Nanoseconds in which links had waited by then.
    waited: u64,
}

impl Turns {
    pub(super) fn new(share: u64) -> Self {
        Self {
            pace: (share / PARTS).max(1),
            clock: Duration::ZERO,
            waited: 0,
            gone: BTreeSet::new(),
        }
    }

    /// Sets the time since the ledger was made. `waits`: links have waited since the last call.
    pub(super) fn set(&mut self, now: Duration, waits: bool) {
        let passed = now.saturating_sub(self.clock);
        self.clock = self.clock.max(now);
        if waits {
            let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            self.waited = self.waited.saturating_add(passed);
        }
    }

    /// The virtual time of a sender that has held `charge` bytes since its charge changed.
    pub(super) fn mark(&self, last: Mark, charge: u64) -> Mark {
        let passed = self.waited.saturating_sub(last.waited);
        if passed == 0 {
            return last;
        }
        let begun = last.at.max(product(last.waited, self.pace));
        let at = begun.saturating_add(product(passed, charge));
        Mark {
            at: at.clamp(self.present(), self.latest()),
            waited: self.waited,
        }
    }

    /// The turn of a request after which its sender holds `charge` bytes.
    pub(super) fn turn(&self, sender: Mark, charge: u64) -> Virtual {
        let at = sender.at.saturating_add(product(HOLDS, charge));
        at.min(self.latest())
    }

    /// Remembers a sender whose last link is closed, if its virtual time is still to come. Returns
    /// whether it is remembered.
    pub(super) fn leave(&mut self, name: &Arc<str>, sender: Mark) -> bool {
        sender.at > self.present() && self.gone.insert((sender.at, Arc::clone(name)))
    }

    /// A sender has a link again.
    pub(super) fn come_back(&mut self, name: &Arc<str>, sender: Mark) {
        self.gone.remove(&(sender.at, Arc::clone(name)));
    }

    /// The next sender to be forgotten: its virtual time is past, or too many are remembered.
    pub(super) fn forgotten(&mut self) -> Option<Arc<str>> {
        let (at, _) = self.gone.first()?;
        if *at > self.present() && self.gone.len() <= MOST_GONE {
            return None;
        }
        self.gone.pop_first().map(|(_, name)| name)
    }

    fn present(&self) -> Virtual {
        product(self.waited, self.pace)
    }

    fn latest(&self) -> Virtual {
        product(self.waited.saturating_add(LATEST), self.pace)
    }
}

fn product(nanoseconds: u64, bytes: u64) -> Virtual {
    // Two numbers of 64 bits have a product of 128.
    Virtual::from(nanoseconds).wrapping_mul(Virtual::from(bytes))
}

/// Divisor of a sender's share: that part it may hold for ever without being late. In the ledger's test of
/// sixteen hostile addresses a good sender waits for three sets with 32, for one with 64.
pub(super) const PARTS: u64 = 64;

const SECOND: u64 = 1_000_000_000;

/// The time for which a request is expected to hold its bytes, in nanoseconds: a slow sender is
/// ended after 5 to 8 s.
pub(super) const HOLDS: u64 = 8 * SECOND;

/// The most time by which a request stands behind a new sender's, in nanoseconds: twice the time
/// that a frame may take by default, so that a sender that held its share stays behind those that
/// wait at the same time.
pub(super) const LATEST: u64 = 120 * SECOND;

/// The senders without links that are remembered: about 50 KiB with their names. The least late are
/// forgotten first.
pub(super) const MOST_GONE: usize = 256;
