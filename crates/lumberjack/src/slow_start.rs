//! The number of events of a window while a peer's capacity is not known: libbeat's rule
//! (`window.go`): from 10 up by half after each full window that was acknowledged, halved by a
//! failure.

/// The size of the next window. Keeps nothing of a connection: carry it over to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlowStart {
    size: u32,
    most: u32,
}

impl SlowStart {
    /// Between 1 and `most`.
    pub(crate) fn new(size: u32, most: u32) -> Self {
        let most = most.max(1);
        Self {
            size: size.clamp(1, most),
            most,
        }
    }

    pub(crate) const fn size(self) -> u32 {
        self.size
    }

    /// A window of `events`, which might have held `allowed`, was acknowledged: a smaller one
    /// proves nothing.
    pub(crate) fn acknowledged(&mut self, events: u32, allowed: u32) {
        if events >= allowed {
            let grown = self.size.saturating_add(self.size.div_ceil(2));
            self.size = grown.min(self.most);
        }
    }

    /// The connection ended with events in flight.
    pub(crate) fn failed(&mut self) {
        self.size = (self.size / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_half_after_full_windows_up_to_the_most() {
        let mut size = SlowStart::new(10, 100);
        let mut seen = Vec::new();
        for _ in 0..8 {
            size.acknowledged(size.size(), size.size());
            seen.push(size.size());
        }
        assert_eq!(seen, [15, 23, 35, 53, 80, 100, 100, 100]);
        let mut one = SlowStart::new(1, 100);
        one.acknowledged(1, 1);
        assert_eq!(one.size(), 2);
    }

    #[test]
    fn a_window_that_is_not_full_does_not_grow_it() {
        let mut size = SlowStart::new(10, 100);
        size.acknowledged(9, 10);
        assert_eq!(size.size(), 10);
    }

    #[test]
    fn each_of_several_full_windows_in_flight_grows_it() {
        let mut size = SlowStart::new(10, 100);
        for _ in 0..3 {
            size.acknowledged(10, 10);
        }
        assert_eq!(size.size(), 35);
    }

    #[test]
    fn a_failure_halves_it_down_to_one() {
        let mut size = SlowStart::new(10, 100);
        let seen: Vec<u32> = std::iter::repeat_with(|| {
            size.failed();
            size.size()
        })
        .take(5)
        .collect();
        assert_eq!(seen, [5, 2, 1, 1, 1]);
    }
}
