//! Writing beside the driver. To wake its thread for a message costs more than the message: while the driver is at
//! rest, whoever calls into the connection writes what comes of it to the socket itself. Only what comes alone: of
//! messages in a row the driver makes larger writes.

use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, SendQueue};

use crate::budget::to_u64;
use crate::socket::Writer;

/// What comes sooner after other output is written with more of it by the driver. A turn of the driver and its
/// wake-up take about as long.
const ROW: Duration = Duration::from_micros(50);

/// More is not written under the lock.
const MOST_BYTES: usize = 16 * 1024;

/// What a caller needs to write beside the driver of this transport.
#[derive(Default)]
pub(crate) struct Beside {
    pub(crate) writer: Option<Writer>,
    /// Beneath the transport, whatever is written to it.
    pub(crate) socket: Option<Writer>,
    /// The driver has nothing to do before input comes, or its time.
    pub(crate) rest: Option<Rest>,
    /// Encoded, and left for the driver to write.
    pub(crate) left: SendQueue,
    /// Written since the driver's last turn.
    pub(crate) written: u64,
    /// When something was last encoded.
    pub(crate) last: Option<Instant>,
}

/// A driver at rest.
pub(crate) struct Rest {
    /// When it wakes by itself.
    pub(crate) until: Option<Instant>,
}

impl Beside {
    /// After a call: whether all that comes of it is done, so that a driver at rest need not know. What is not
    /// done is the driver's, which is not at rest any more.
    pub(crate) fn is_done<C: Connection>(&mut self, connection: &mut C, now: Instant) -> bool {
        let (Some(writer), Some(rest)) = (self.writer.clone(), self.rest.take()) else {
            return false;
        };
        let since = |last: Instant| now.saturating_duration_since(last);
        if self.last.is_some_and(|last| since(last) < ROW) {
            return false;
        }
        connection.poll_transmit(now, &mut self.left);
        if !self.left.is_empty() {
            self.last = Some(now);
            self.write(&writer);
        }
        let is_early = |due: Instant| rest.until.is_none_or(|until| due < until);
        let is_done = self.left.is_empty()
            && connection.lifecycle() == Lifecycle::Open
            && !connection.poll_timeout().is_some_and(is_early);
        if is_done {
            self.rest = Some(rest);
        }
        is_done
    }

    fn write(&mut self, writer: &Writer) {
        let before = self.left.len();
        if before <= MOST_BYTES {
            writer.write_now(&mut self.left);
        }
        let written = before.saturating_sub(self.left.len());
        self.written = self.written.saturating_add(to_u64(written));
    }
}
