//! The bytes of a spool that the queues of a broker keep: the spool is one sequence, so everything behind the first message
//! that is not acknowledged is kept too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Part of the budget that is left for moving queues, and for the part of a segment that is kept before the lowest mark:
/// publishers wait before they fill it.
const SPARE_PART: u64 = 4;
/// Part of the budget that a queue may keep before it is moved.
const FAR_PART: u64 = 2;
/// Part of the budget that is few: it need not be measured.
const FEW_PART: u64 = 8;
/// Part of the budget that the messages of a queue that is moved may take.
const MOVED_PART: u64 = 16;

/// Bytes that are kept, as measured now and then, and whether publishers wait for others.
#[derive(Debug)]
pub struct Kept {
    budget: u64,
    /// Bytes from the lowest mark on, at the last look; those that are durable count as 0 if they are few.
    measured: AtomicU64,
    /// Bytes that were given to the writer since, at least.
    since: AtomicU64,
    /// Bytes that were given to the writer and are not durable.
    unsettled: AtomicU64,
    /// Somebody was told to wait.
    is_waited: AtomicBool,
}

impl Kept {
    /// Nothing is kept of a spool with this budget.
    pub const fn new(budget: u64) -> Self {
        Self {
            budget,
            measured: AtomicU64::new(0),
            since: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            is_waited: AtomicBool::new(false),
        }
    }

    /// So many bytes are given to the writer.
    pub fn add(&self, bytes: u64) {
        self.since.fetch_add(bytes, Ordering::SeqCst);
        self.unsettled.fetch_add(bytes, Ordering::SeqCst);
    }

    /// So many of them are durable.
    pub fn settled(&self, bytes: u64) {
        self.unsettled.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Begins a look, before the durable bytes are measured: what comes meanwhile counts twice. Returns the bytes that are not
    /// durable.
    pub fn begin(&self) -> u64 {
        self.since.store(0, Ordering::SeqCst);
        self.unsettled.load(Ordering::SeqCst)
    }

    /// Ends a look. Returns whether publishers that wait are to look again.
    pub fn measured(&self, bytes: u64) -> bool {
        self.measured.store(bytes, Ordering::SeqCst);
        !self.is_tight() && self.is_waited.swap(false, Ordering::SeqCst)
    }

    /// Whether publishers wait now. One that is told so looks again, behind this call, before it waits.
    pub fn is_tight(&self) -> bool {
        let measured = self.measured.load(Ordering::SeqCst);
        let bytes = measured.saturating_add(self.since.load(Ordering::SeqCst));
        let spare = self.budget.checked_div(SPARE_PART).unwrap_or(0);
        let is_tight = bytes > self.budget.saturating_sub(spare);
        if is_tight {
            self.is_waited.store(true, Ordering::SeqCst);
        }
        is_tight
    }

    /// Whether publishers may wait for the next look.
    pub fn is_waited(&self) -> bool {
        self.is_waited.load(Ordering::SeqCst)
    }

    /// The budget of the spool.
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// The bytes that a mark with so many of all positions behind it keeps of `bytes`, as if all messages were of one size.
    pub fn estimate(bytes: u64, behind: u64, all: u64) -> u64 {
        let share = u128::from(bytes).saturating_mul(u128::from(behind));
        let share = share.checked_div(u128::from(all.max(1))).unwrap_or(0);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Whether so many bytes need not be measured.
    pub fn are_few(&self, bytes: u64) -> bool {
        bytes <= self.budget.checked_div(FEW_PART).unwrap_or(0)
    }

    /// Whether a queue that keeps so many bytes is to be moved.
    pub fn is_far(&self, bytes: u64) -> bool {
        bytes > self.budget.checked_div(FAR_PART).unwrap_or(0)
    }

    /// The most bytes of messages that a queue that is moved may have.
    pub fn most_moved(&self) -> u64 {
        self.budget.checked_div(MOVED_PART).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_wait_above_three_quarters_until_a_look_finds_less() {
        let kept = Kept::new(1_600);
        kept.add(700);
        assert!(!kept.is_tight() && !kept.is_waited());
        assert_eq!(kept.begin(), 700);
        assert!(!kept.measured(700), "nobody waits");
        kept.add(501);
        assert!(kept.is_tight() && kept.is_waited());
        kept.settled(700);
        assert_eq!(kept.begin(), 501);
        assert!(!kept.measured(1_201), "still too much");
        kept.settled(501);
        assert_eq!(kept.begin(), 0);
        assert!(kept.measured(1_200));
        assert!(!kept.measured(0) && !kept.is_waited(), "they were told");
    }

    #[test]
    fn a_queue_is_moved_above_half_of_the_budget_if_its_messages_take_a_sixteenth() {
        let kept = Kept::new(1_600);
        assert!(!kept.is_far(800) && kept.is_far(801));
        assert_eq!((kept.most_moved(), kept.budget()), (100, 1_600));
        assert!(kept.are_few(200) && !kept.are_few(201));
        assert_eq!(Kept::estimate(1_000, 1, 5), 200);
        assert_eq!(
            (Kept::estimate(9, 0, 0), Kept::estimate(2, u64::MAX, 1)),
            (0, u64::MAX)
        );
    }
}
