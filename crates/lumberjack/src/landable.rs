//! A reader whose windows are landed by a receiver.

use std::time::Instant;

use ackline_core::Landable;

use crate::Reader;

impl Landable for Reader {
    fn settle(&mut self, now: Instant, token: u64) -> bool {
        self.ack(now, token).is_ok()
    }

    fn landed(&mut self, now: Instant, token: u64) {
        // A connection that is over holds nothing.
        let _ = Self::landed(self, now, token);
    }

    fn refuse(&mut self, now: Instant, token: u64) {
        // A connection that is over needs no second end.
        let _ = Self::refuse(self, now, token);
    }

    fn stop(&mut self, now: Instant) {
        Self::stop(self, now);
    }

    fn unsettled(&self) -> usize {
        self.unacknowledged()
    }

    fn owed_at_end(&self) -> bool {
        Self::owed_at_end(self)
    }
}
