//! Bytes that connections keep for as long as they live, whatever they read: counted for all of them together.

use std::sync::atomic::{AtomicU64, Ordering};

/// What several connections may keep together. Each may have half of what the others leave, so that one that
/// takes all that it gets leaves room for the next.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    used: AtomicU64,
}

impl Quota {
    /// One of so many bytes.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Bytes that are kept now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A connection that keeps `own` bytes keeps `wanted`, which may be fewer.
    ///
    /// # Errors
    /// It wants more than before and than it may have: that is so many bytes. Nothing changed.
    pub fn change(&self, own: u64, wanted: u64) -> Result<(), u64> {
        let mut allowed = 0;
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let others = used.saturating_sub(own);
                allowed = self.limit.saturating_sub(others) / 2;
                (wanted <= own || wanted <= allowed).then_some(others.saturating_add(wanted))
            });
        taken.map(drop).map_err(|_| allowed)
    }

    /// The same of what is there already and cannot be refused.
    pub fn set(&self, own: u64, kept: u64) {
        let changed = |used: u64| Some(used.saturating_sub(own).saturating_add(kept));
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_half_of_what_the_others_leave_and_gives_it_back() {
        let quota = Quota::new(1_000);
        assert_eq!(quota.change(0, 501), Err(500));
        quota.change(0, 500).unwrap();
        assert_eq!(quota.change(500, 501), Err(500));
        assert_eq!(quota.change(0, 251), Err(250));
        quota.change(0, 250).unwrap();
        assert_eq!(quota.used(), 750);
        // Less is always allowed, also of what is above the own share.
        quota.change(500, 400).unwrap();
        assert_eq!(quota.used(), 650);
        quota.set(250, 2_000);
        assert_eq!(quota.used(), 2_400);
        assert_eq!(quota.change(400, 401), Err(0));
        quota.change(2_000, 0).unwrap();
        quota.change(400, 500).unwrap();
        assert_eq!(quota.used(), 500);
    }
}
