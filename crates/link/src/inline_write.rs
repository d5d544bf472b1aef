//! Writing in the calling thread instead of the driver's. Waking the driver's thread for one
//! message costs more than the message: while the driver is idle, a call into the connection writes
//! its own output to the socket. This holds for single messages only; the driver joins several in a
//! row into larger writes.

use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, SendQueue};

use crate::socket::Writer;
use crate::units::to_u64;

/// Output that follows other output within this time is left to the driver, which writes more of it
/// at once. A turn of the driver with its wake-up takes about as long.
const ROW: Duration = Duration::from_micros(50);

/// The most bytes written under the lock.
const MOST_BYTES: usize = 16 * 1024;

/// The state with which a caller writes to this transport itself.
#[derive(Default)]
pub(crate) struct InlineWrite {
    pub(crate) writer: Option<Writer>,
    /// The socket beneath the transport, also where TLS encrypts the output.
    pub(crate) socket: Option<Writer>,
    /// The idle driver: it has nothing to do before input or its next timeout.
    pub(crate) idle: Option<IdleDriver>,
    /// Encoded bytes that are left for the driver to write.
    pub(crate) left: SendQueue,
    /// Bytes written since the driver's last turn.
    pub(crate) written: u64,
    /// The time of the last encoded output.
    pub(crate) last: Option<Instant>,
}

/// A driver that waits for input or its next timeout.
pub(crate) struct IdleDriver {
    /// Its next timeout.
    pub(crate) until: Option<Instant>,
}

impl InlineWrite {
    /// Called after a call into the connection. Returns whether all of its output is written, so
    /// that the idle driver need not wake; if not, the driver writes the rest and is no longer
    /// idle.
    pub(crate) fn is_done<C: Connection>(&mut self, connection: &mut C, now: Instant) -> bool {
        let (Some(writer), Some(idle)) = (self.writer.clone(), self.idle.take()) else {
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
        let is_early = |due: Instant| idle.until.is_none_or(|until| due < until);
        let is_done = self.left.is_empty()
            && connection.lifecycle() == Lifecycle::Open
            && !connection.poll_timeout().is_some_and(is_early);
        if is_done {
            self.idle = Some(idle);
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
