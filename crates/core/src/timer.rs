//! A fixed table of timers: the next timeout is the minimum.

use std::time::Instant;

/// `N` timers, each unset or due at an instant. Protocols name the slots with an enum of their own.
#[derive(Debug, Clone)]
pub struct Timers<const N: usize> {
    due: [Option<Instant>; N],
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Self { due: [None; N] }
    }
}

impl<const N: usize> Timers<N> {
    /// Sets or clears timer `slot`. A slot outside the table changes nothing.
    pub fn set(&mut self, slot: usize, due: Option<Instant>) {
        if let Some(timer) = self.due.get_mut(slot) {
            *timer = due;
        }
    }

    /// When timer `slot` is due.
    pub fn get(&self, slot: usize) -> Option<Instant> {
        self.due.get(slot).copied().flatten()
    }

    /// When the first timer is due.
    pub fn next(&self) -> Option<Instant> {
        self.due.iter().flatten().min().copied()
    }

    /// Whether timer `slot` is due at `now`.
    pub fn is_due(&self, slot: usize, now: Instant) -> bool {
        self.get(slot).is_some_and(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    #[allow(clippy::disallowed_methods, clippy::arithmetic_side_effects)] // a test needs some instant
    fn the_next_timeout_is_the_minimum() {
        let start = Instant::now();
        let mut timers = Timers::<3>::default();
        assert_eq!(timers.next(), None);
        timers.set(1, Some(start + Duration::from_secs(2)));
        timers.set(2, Some(start + Duration::from_secs(1)));
        assert_eq!(timers.next(), Some(start + Duration::from_secs(1)));
        assert!(timers.is_due(2, start + Duration::from_secs(1)));
        assert!(!timers.is_due(1, start + Duration::from_secs(1)));
        timers.set(2, None);
        assert_eq!(timers.next(), Some(start + Duration::from_secs(2)));
    }
}
