//! The contract between a receiver and the machine at its end of a link: events become blocks, and a block that is safe is
//! acknowledged.

use std::time::Instant;

use crate::Connection;

/// A machine whose events are landed.
pub trait Landable: Connection<Event: Send, Kind: Send> + Send + 'static {
    /// The block of this token is safe: the machine may acknowledge it. Answers whether it will: after
    /// the connection's end there is nobody to tell.
    fn settle(&mut self, now: Instant, token: u64) -> bool;

    /// The block of this token is durable, but its acknowledgement must wait: its bytes are held no longer.
    fn landed(&mut self, now: Instant, token: u64);

    /// A window or message that was set aside under this token cannot be kept: the connection ends for it.
    fn refuse(&mut self, now: Instant, token: u64) {
        // Nothing is ever set aside.
        let _ = (now, token);
    }

    /// No more input: complete input is still acknowledged, then the link ends in this process. One
    /// that has no transport then is ended by the receiver.
    fn stop(&mut self, now: Instant);

    /// Windows or messages handed out and not settled.
    fn unsettled(&self) -> usize;

    /// Whether answers were owed to the peer when its end came. Asked where a sender that comes back may send events again.
    fn owed_at_end(&self) -> bool {
        true
    }
}
