//! The end of a drive: errors, the goodbye, and peers that read nothing.

use std::sync::Arc;
use std::time::Instant;

use ackline_core::{Connection, ErrorKind as _, Lifecycle};

use super::{CLOSE_DEADLINE, Driver, ERROR_FLUSH_DEADLINE};
use crate::End;
use crate::link::State;
use crate::socket::Writer;
use crate::transport::{Io, Transport};
use crate::units::to_u64;

/// The progress of a drive towards its end.
pub(super) enum Phase<K: ackline_core::ErrorKind> {
    Running,
    /// After an error or the peer's end: input received before it is still answered, nothing is
    /// read.
    Owing {
        deadline: Instant,
        end: End<K>,
    },
    Ending {
        io: Io,
        deadline: Instant,
        end: End<K>,
        late: End<K>,
    },
}

impl<C: Connection> Driver<'_, C> {
    /// The end of a link whose driver turns without progress.
    pub(super) fn stuck<IO>(
        &mut self,
        state: &State<C>,
        transport: &Transport<IO>,
        now: Instant,
    ) -> Option<End<C::Kind>> {
        let marks = [
            transport.bytes_in,
            transport.bytes_out,
            state.drive.calls,
            to_u64(transport.input.bytes.len()),
            to_u64(state.connection.held_bytes()),
            state.connection.finished(),
        ];
        let passed = self.stuck_detector.count(now, marks)?;
        tracing::error!(code = "link.stuck", turned = ?passed, "a defect: a link made no progress and was ended");
        Some(End::Stuck(passed))
    }

    /// When the peer's end has just come: records whether the peer had taken everything by then.
    pub(super) fn observe_peer_end<IO>(state: &mut State<C>, transport: &mut Transport<IO>) {
        if !transport.eof || std::mem::replace(&mut transport.is_end_observed, true) {
            return;
        }
        let socket = state.inline.socket.as_ref();
        let is_taken = transport.is_flushed() && socket.is_some_and(Writer::is_taken);
        state.drive.taken_at_end = is_taken.then_some(transport.bytes_out);
    }

    /// The end of a transport whose peer reads nothing.
    pub(super) fn give_up<IO>(
        &mut self,
        state: &State<C>,
        transport: &Transport<IO>,
        now: Instant,
    ) -> Option<End<C::Kind>> {
        let is_flushed = transport.is_flushed();
        self.stall_timer
            .observe(now, is_flushed, transport.bytes_in, transport.bytes_out);
        let due = self.give_up_at(state, transport)?;
        let socket = state.inline.socket.as_ref();
        if due > now || !self.stall_timer.is_stuck(now, socket) {
            return None;
        }
        Some(self.io_error(self.stall_timer.late(now, transport.out.len())))
    }

    /// When the peer is checked next, while output waits for it. A link that is ending has its own
    /// deadline.
    pub(super) fn give_up_at<IO>(
        &self,
        state: &State<C>,
        transport: &Transport<IO>,
    ) -> Option<Instant> {
        let is_sending = matches!(self.phase, Phase::Running) && !transport.is_flushed();
        let due = is_sending.then(|| self.stall_timer.due(state.connection.stall_timeouts()));
        due.flatten()
    }

    /// An error, or the peer's end, ends the link politely: input before it is answered first. A
    /// peer that stopped answering pings is dropped at once.
    pub(super) fn fail(&mut self, state: &mut State<C>, end: End<C::Kind>, now: Instant) {
        state.fault = Some(end.clone());
        if matches!(&end, End::Protocol(error) if error.kind.is_silence()) {
            self.phase = Phase::Ending {
                io: Io::Write,
                deadline: now,
                late: end.clone(),
                end,
            };
            return;
        }
        self.phase = Phase::Owing {
            deadline: now + CLOSE_DEADLINE,
            end,
        };
    }

    /// The goodbye after an error or the peer's end, once nothing is owed or the deadline is over:
    /// queued output is sent and the peer's bytes are dropped until its end, so that a reset does
    /// not overtake the output.
    pub(super) fn hang_up(&mut self, connection: &mut C, now: Instant) -> Option<Io> {
        let Phase::Owing { deadline, end } = &self.phase else {
            return None;
        };
        if connection.owes_answers() && now < *deadline {
            return None;
        }
        connection.hang_up();
        self.phase = Phase::Ending {
            io: Io::Drain,
            deadline: now + ERROR_FLUSH_DEADLINE,
            late: end.clone(),
            end: end.clone(),
        };
        Some(Io::Drain)
    }

    /// Follows the connection out of `Open`. Returns whether anything changed.
    pub(super) fn follow(&mut self, state: &mut State<C>, eof: bool, now: Instant) -> bool {
        if !matches!(self.phase, Phase::Running) {
            return false;
        }
        let deadline = now + CLOSE_DEADLINE;
        let over = if eof { End::Eof } else { End::Closed };
        let (io, end) = match state.connection.lifecycle() {
            Lifecycle::Open => return false,
            Lifecycle::Handover => (Io::Write, End::Handover),
            Lifecycle::Draining => (Io::Drain, over),
            Lifecycle::Closed if state.connection.owes_answers() => {
                self.fail(state, over, now);
                return true;
            }
            Lifecycle::Closed => (Io::Write, over),
        };
        self.phase = Phase::Ending {
            io,
            deadline,
            end,
            late: End::CloseDeadline,
        };
        true
    }

    /// The first error wins: a transport that breaks during a goodbye does not hide the reason.
    pub(super) fn io_error(&self, error: std::io::Error) -> End<C::Kind> {
        match &self.phase {
            Phase::Owing { end, .. }
            | Phase::Ending {
                end:
                    end @ (End::Protocol(_)
                    | End::Memory { .. }
                    | End::Slow { .. }
                    | End::Foreign { .. }),
                ..
            } => end.clone(),
            _ => End::Io(Arc::new(error)),
        }
    }

    pub(super) fn finish(&self, end: End<C::Kind>) {
        self.link.undriven(self.generation, end);
    }
}
