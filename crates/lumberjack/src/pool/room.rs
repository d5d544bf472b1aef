//! How many events make a window: the one place that knows.

/// The room left in a window: events, and bytes of plain frames. An event of more bytes goes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowRoom {
    events: u64,
    bytes: u64,
    /// Bytes of an event that goes alone, at the most.
    alone: u64,
    is_empty: bool,
}

impl WindowRoom {
    /// The room of a window of `events` and `bytes` at the most.
    pub const fn new(events: u64, bytes: u64) -> Self {
        Self {
            events,
            bytes,
            alone: u64::MAX,
            is_empty: true,
        }
    }

    /// The same, with a limit for an event that goes alone.
    pub(super) const fn alone_within(mut self, bytes: u64) -> Self {
        self.alone = bytes;
        self
    }

    /// Takes an event of `len` bytes as a plain frame ([`OutRecord::wire_len`](crate::OutRecord::wire_len));
    /// whether it fits.
    pub fn takes(&mut self, len: u64) -> bool {
        let fits = len <= self.bytes || (self.is_empty && len <= self.alone);
        let Some(events) = self.events.checked_sub(1).filter(|_| fits) else {
            return false;
        };
        self.events = events;
        self.bytes = self.bytes.saturating_sub(len);
        self.is_empty = false;
        true
    }

    /// Whether it takes no more events, however small.
    pub const fn is_full(&self) -> bool {
        self.events == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_what_fits_and_one_event_of_any_size() {
        let mut room = WindowRoom::new(3, 100);
        assert!(room.takes(60) && !room.takes(41) && room.takes(40));
        assert!(!room.takes(1) && !room.is_full());
        let mut room = WindowRoom::new(2, 100);
        assert!(room.takes(1) && room.takes(1) && room.is_full());
        assert!(!room.takes(0));
        let mut room = WindowRoom::new(2, 100);
        assert!(room.takes(101) && !room.takes(1));
        let mut room = WindowRoom::new(2, 100).alone_within(101);
        assert!(!room.takes(102) && room.takes(101) && !room.takes(1));
        assert!(!WindowRoom::new(0, 100).takes(1));
    }
}
