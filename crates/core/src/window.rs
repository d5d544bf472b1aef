//! A count of what is out and not settled, with a limit.

/// How many items may be unsettled at once. Never negative, never above its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    used: u32,
    limit: u32,
}

impl Window {
    /// An empty window for `limit` items.
    pub const fn new(limit: u32) -> Self {
        Self { used: 0, limit }
    }

    /// Items that may still go out.
    pub const fn room(self) -> u32 {
        self.limit.saturating_sub(self.used)
    }

    /// Items that are out.
    pub const fn used(self) -> u32 {
        self.used
    }

    /// Takes `count` places, all or none; says whether it did.
    #[must_use]
    pub fn take(&mut self, count: u32) -> bool {
        if count > self.room() {
            return false;
        }
        self.used = self.used.saturating_add(count);
        true
    }

    /// Gives `count` places back, all or none; says whether that many were out.
    #[must_use]
    pub fn give_back(&mut self, count: u32) -> bool {
        let Some(used) = self.used.checked_sub(count) else {
            return false;
        };
        self.used = used;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_never_overdrawn() {
        let mut window = Window::new(3);
        assert!(window.take(2));
        assert!(!window.take(2));
        assert_eq!((window.used(), window.room()), (2, 1));
        assert!(window.give_back(2));
        assert!(!window.give_back(1));
        assert!(window.take(3));
        assert!(!window.take(1));
    }
}
