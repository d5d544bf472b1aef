//! Every carrier of a link has the link's machine in it: one carrier lands messages, another keeps them for
//! an application. Code that connects, keeps and journals links needs no more than the machine.

use std::task::Poll;
use std::time::Instant;

use ackline_core::{Connection, ProtocolError};
use ackline_link::End;
use ackline_relink::frame::Hint;
use ackline_relink::{self as machine, Attach, Kind};

use super::error::Error;

/// A connection for a driver that has a link's machine in it.
pub(crate) trait LinkHost: Connection<Kind = Kind, Event: Send> + Send + 'static {
    /// The machine.
    fn machine(&self) -> &machine::Link;

    /// The machine, to be changed.
    fn machine_mut(&mut self) -> &mut machine::Link;

    /// There is a new transport.
    fn attach(&mut self, now: Instant, how: Attach) {
        self.machine_mut().attach(now, how);
    }

    /// The limits that a connector is told if it asks; a packet may have so many bytes.
    fn limits(&self, most_packet: u64) -> Vec<Hint> {
        limits_of(self.machine(), most_packet)
    }

    /// This side gives the link up.
    fn lose(&mut self, now: Instant, reason: &str) {
        let _ = reason;
        self.machine_mut().lose(now);
    }

    /// The changes that were taken are in the journal.
    fn journaled(&mut self, now: Instant) {
        self.machine_mut().journaled(now);
    }

    /// The link cannot be kept any more; it is ended for this process.
    fn fail(&mut self, error: Error) {
        let _ = error;
    }
}

impl LinkHost for machine::Link {
    fn machine(&self) -> &machine::Link {
        self
    }

    fn machine_mut(&mut self) -> &mut machine::Link {
        self
    }
}

/// The limits of every link, whatever becomes of its messages.
pub(super) fn limits_of(machine: &machine::Link, most_packet: u64) -> Vec<Hint> {
    let config = machine.config();
    let limits = &config.limits;
    let most = limits.max_message_bytes.min(limits.max_part_bytes);
    let by_memory = most_packet.saturating_sub(HEAD_BYTES);
    vec![
        Hint::ReceiveWindow(config.receive_window.into()),
        Hint::MessageBytes(most.min(by_memory)),
    ]
}

/// A packet's head, ids and padding, at the most, for a message of one part on one channel.
const HEAD_BYTES: u64 = 512;

/// Ready once it is so.
pub(super) fn ready(is_so: bool) -> Poll<()> {
    if is_so {
        Poll::Ready(())
    } else {
        Poll::Pending
    }
}

/// The end of a link's transport, with offsets that count from the transport's first byte: the handshake took
/// so many before.
pub(super) fn counted_from(handshake: u64, mut end: End<Kind>) -> End<Kind> {
    if let End::Protocol(ProtocolError { offset, .. })
    | End::Memory { offset, .. }
    | End::Slow { offset, .. } = &mut end
    {
        *offset = offset.saturating_add(handshake);
    }
    end
}
