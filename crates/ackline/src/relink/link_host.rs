//! Every host of a link has the link's machine in it: one host lands messages, another keeps them for
//! an application. Code that connects, keeps and journals links needs no more than the machine.

use std::task::Poll;
use std::time::Instant;

use ackline_core::{Connection, ProtocolError};
use ackline_link::{End, Link};
use ackline_relink::frame::Hint;
use ackline_relink::{self as machine, Attach, Error, Kind};

/// A connection for a driver that has a link's machine in it.
pub(crate) trait LinkHost: Connection<Kind = Kind, Event: Send> + Send + 'static {
    /// The machine.
    fn machine(&self) -> &machine::Link;

    /// The machine, to be changed.
    fn machine_mut(&mut self) -> &mut machine::Link;

    /// There is a new transport.
    fn attach(&mut self, now: Instant, how: Attach);

    /// The limits that a connector is told if it asks; a packet may have so many bytes.
    fn limits(&self, most_packet: u64) -> Vec<Hint> {
        self.machine().limits(most_packet)
    }

    /// This side gives the link up.
    fn lose(&mut self, now: Instant, reason: &str) {
        let _ = reason;
        self.machine_mut().lose(now);
    }

    /// The changes that were taken are in the journal.
    fn journaled(&mut self, now: Instant);

    /// The link cannot be kept any more; it is ended for this process.
    fn fail(&mut self, error: Error) {
        let _ = error;
    }
}

/// Transports of the link so far on which its peer resumed it.
pub(super) fn resumes(link: &Link<impl LinkHost>) -> u64 {
    link.call(|host, _| host.machine().stats().resumes)
}

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

/// The violation that has ended a transport, if it was one.
pub(super) const fn violation(end: &End<Kind>) -> Option<&Kind> {
    match end {
        End::Protocol(error) => Some(&error.kind),
        _ => None,
    }
}

/// The methods of a [`Connection`] that are those of the machine in it, after which the machine's
/// events are taken.
macro_rules! as_machine {
    (|$it:ident, $now:ident| $take:expr) => {
        fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
            let ended = self.machine_mut().receive_eof(now);
            let ($it, $now) = (&mut *self, now);
            $take;
            ended
        }

        fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
            self.machine_mut().poll_transmit(now, out);
            let ($it, $now) = (&mut *self, now);
            $take;
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.machine().poll_timeout()
        }

        fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
            let handled = self.machine_mut().handle_timeout(now);
            let ($it, $now) = (&mut *self, now);
            $take;
            handled
        }

        fn reading(&mut self, now: Instant, on: bool) {
            self.machine_mut().reading(now, on);
        }

        fn finished(&self) -> u64 {
            self.machine().finished()
        }

        fn step_bytes(&self) -> usize {
            self.machine().step_bytes()
        }

        fn stall_timeouts(&self) -> StallTimeouts {
            self.machine().stall_timeouts()
        }
    };
}
pub(super) use as_machine;
