//! Bytes that connections keep for as long as they live, even if they read nothing: counted for all
//! connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::LimitHit;

/// Bytes that several connections may keep together. Each may have half of the bytes that the others leave, so that one
/// that takes all that it gets leaves room for the next.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    used: AtomicU64,
}

impl Quota {
    /// Begins with so many bytes.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Returns the bytes that are kept now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Changes the bytes of a connection from `own` to `wanted`, which may be fewer.
    ///
    /// # Errors
    /// It wants more than before and than it may have. The error is the number of bytes that it may have; nothing changed.
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

    /// Changes the bytes of a connection from `own` to `kept`, which are there already and cannot be refused.
    pub fn set(&self, own: u64, kept: u64) {
        let changed = |used: u64| Some(used.saturating_sub(own).saturating_add(kept));
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

/// The bytes that one connection keeps of a [`Quota`]; dropping it gives them back. Without a quota everything fits.
#[derive(Debug, Default)]
pub struct Share {
    quota: Option<Arc<Quota>>,
    charged: u64,
}

impl Share {
    /// Begins a share of `quota` with bytes that are kept already, which are not refused.
    pub fn of(quota: Arc<Quota>, charged: u64) -> Self {
        quota.set(0, charged);
        Self {
            quota: Some(quota),
            charged,
        }
    }

    /// Changes the share to `wanted` bytes.
    ///
    /// # Errors
    /// They are more than the connection may have now; nothing changed.
    pub fn change(&mut self, wanted: u64) -> Result<(), LimitHit> {
        let Some(quota) = self.quota.as_ref().filter(|_| wanted != self.charged) else {
            return Ok(());
        };
        quota
            .change(self.charged, wanted)
            .map_err(|limit| LimitHit {
                value: wanted,
                limit,
                option: "--memory",
            })?;
        self.charged = wanted;
        Ok(())
    }

    /// `kept` bytes are kept, and that cannot be refused.
    pub fn set(&mut self, kept: u64) {
        if let Some(quota) = self.quota.as_ref().filter(|_| kept != self.charged) {
            quota.set(self.charged, kept);
            self.charged = kept;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_half_of_the_bytes_that_the_others_leave_and_gives_them_back() {
        let quota = Quota::new(1_000);
        assert_eq!(quota.change(0, 501), Err(500));
        quota.change(0, 500).unwrap();
        assert_eq!(quota.change(500, 501), Err(500));
        assert_eq!(quota.change(0, 251), Err(250));
        quota.change(0, 250).unwrap();
        assert_eq!(quota.used(), 750);
        // A smaller amount is always allowed, also above the own share.
        quota.change(500, 400).unwrap();
        assert_eq!(quota.used(), 650);
        quota.set(250, 2_000);
        assert_eq!(quota.used(), 2_400);
        assert_eq!(quota.change(400, 401), Err(0));
        quota.change(2_000, 0).unwrap();
        quota.change(400, 500).unwrap();
        assert_eq!(quota.used(), 500);
    }

    #[test]
    fn a_share_is_given_back_when_it_is_dropped() {
        let quota = Arc::new(Quota::new(1_000));
        let mut one = Share::of(Arc::clone(&quota), 100);
        one.change(500).unwrap();
        let hit = one.change(501).unwrap_err();
        assert_eq!((hit.value, hit.limit, hit.option), (501, 500, "--memory"));
        assert_eq!(quota.used(), 500);
        one.set(900);
        assert_eq!(quota.used(), 900);
        drop(one);
        assert_eq!(quota.used(), 0);
        let mut free = Share::default();
        free.change(u64::MAX).unwrap();
        free.set(1);
    }
}
