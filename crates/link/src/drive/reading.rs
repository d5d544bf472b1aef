//! Reading: when, how much, and the connection's view of it.

use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need};

use super::Driver;
use super::ending::Phase;
use crate::End;
use crate::budget::{Budget, FREE_BYTES};
use crate::buffer_pool::READ_BYTES;
use crate::input::PROBE_BYTES;
use crate::link::State;
use crate::progress::ProgressSample;
use crate::rate::RateLimit;
use crate::transport::{Io, Transport};
use crate::units::to_u64;

/// The input of one drive, as the connection sees it.
pub(super) struct Reading {
    pub(super) need: Need,
    /// Bytes of input that the connection has already seen.
    seen: usize,
    /// The connection knows of the peer's end.
    is_eof_passed: bool,
    is_on: bool,
    /// Bytes that have come wait for memory.
    pub(super) is_held_back: bool,
    /// When the bytes that were granted and have not come are returned.
    pub(super) returns_at: Option<Instant>,
    /// When the rate limit allows the next read.
    pub(super) limited_until: Option<Instant>,
    /// Bytes that the link read over earlier transports.
    pub(super) earlier: u64,
    /// Bytes that were read from this transport before its drive.
    pub(super) leftover: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            need: Need::Input { at_least: 1 },
            seen: 0,
            is_eof_passed: false,
            is_on: true,
            is_held_back: false,
            returns_at: None,
            limited_until: None,
            earlier: 0,
            leftover: 0,
        }
    }
}

impl<C: Connection> Driver<'_, C> {
    /// Whether the peer is too slow with a frame that holds memory for which others wait; if so,
    /// the link is ended.
    pub(super) fn is_slow<IO>(
        &mut self,
        state: &mut State<C>,
        io: Io,
        transport: &Transport<IO>,
        now: Instant,
    ) -> bool {
        if !matches!(self.phase, Phase::Running) {
            return false;
        }
        let account = &self.link.shared.account;
        let bytes = self.coming_bytes(&state.connection);
        let is_reading = matches!(io, Io::Read(_));
        let unread = if bytes == 0 || is_reading {
            Some(0)
        } else {
            self.unread(state)
        };
        self.incoming.observe(
            now,
            ProgressSample {
                bytes,
                finished: state.connection.finished(),
                came: transport.bytes_in.saturating_add(unread.unwrap_or(0)),
                is_peers_turn: unread.is_some_and(|unread| unread < to_u64(PROBE_BYTES)),
            },
            account.fairness(),
        );
        let slow = self.incoming.slow(account.fairness());
        let Some(slow) = slow.filter(|_| account.is_short()) else {
            return false;
        };
        let end = End::Slow {
            came: slow.came,
            seconds: slow.seconds,
            holds: slow.holds,
            option: slow.option,
            offset: self.taken(transport),
        };
        self.fail(state, end, now);
        true
    }

    /// Unread bytes of the peer in the system's buffer, for a link whose reading waits for memory:
    /// while they are few, others wait for this peer and not for the memory alone.
    pub(super) fn unread(&self, state: &State<C>) -> Option<u64> {
        let is_waiting = state.stats.paused && !self.reading.is_held_back;
        let socket = state.inline.socket.as_ref().filter(|_| is_waiting)?;
        socket.unread()
    }

    /// Bytes of memory, above the free part, held by a frame or window that is not yet complete.
    pub(super) fn coming_bytes(&self, connection: &C) -> u64 {
        let frame = match self.reading.need {
            Need::Input { at_least } => at_least,
            Need::Again | Need::Room => 0,
        };
        let coming = frame.saturating_add(connection.coming_bytes());
        let charge = self.link.shared.account.charge();
        to_u64(coming.saturating_sub(FREE_BYTES)).min(charge)
    }

    /// Passes new bytes, the peer's end and the time to the connection.
    pub(super) fn feed<IO>(
        &mut self,
        connection: &mut C,
        transport: &mut Transport<IO>,
        now: Instant,
    ) -> Result<bool, End<C::Kind>> {
        let mut changed = false;
        let is_first = self.postponed_check.is_some() && self.taken(transport) == 0;
        let postponed_check = self.postponed_check.filter(|_| is_first);
        let input = &mut transport.input;
        let blocked = matches!(self.reading.need, Need::Room | Need::Again);
        self.reading.is_held_back = blocked && !self.may_step(connection, input.allocated());
        if (blocked && !self.reading.is_held_back) || input.bytes.len() != self.reading.seen {
            changed = true;
            // Bytes that the protocol refuses may belong to another protocol.
            let foreign = postponed_check.and_then(|it| it.foreign(&input.bytes));
            self.reading.need = connection
                .receive(now, &mut input.bytes)
                .map_err(|error| foreign.unwrap_or(End::Protocol(error)))?;
            input.compact();
            self.reading.seen = input.bytes.len();
        }
        if connection.lifecycle() == Lifecycle::Handover {
            return Ok(changed);
        }
        let waits_for_input = matches!(self.reading.need, Need::Input { .. });
        if transport.eof && waits_for_input && !self.reading.is_eof_passed {
            changed = true;
            self.reading.is_eof_passed = true;
            connection.receive_eof(now).map_err(End::Protocol)?;
        }
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            changed = true;
            connection.handle_timeout(now).map_err(End::Protocol)?;
        }
        Ok(changed)
    }

    /// Whether the budget covers the bytes that the next call may add; if not, the budget wakes the
    /// driver when it does.
    pub(super) fn may_step(&self, connection: &C, allocated: usize) -> bool {
        let step = connection.step_bytes();
        if step == 0 {
            return true;
        }
        let retained = connection.held_bytes().saturating_add(allocated);
        let settling = connection.complete_bytes() > 0;
        let account = &self.link.shared.account;
        account.ask(retained, retained.saturating_add(step), settling)
    }

    /// Decides the transport's next operation. Charges the budget and tells the connection when
    /// reading stops or resumes.
    pub(super) fn plan<IO>(
        &mut self,
        state: &mut State<C>,
        transport: &mut Transport<IO>,
        now: Instant,
    ) -> Io {
        state.stats.paused = false;
        let account = &self.link.shared.account;
        let held = state.connection.held_bytes();
        let retained = held.saturating_add(transport.input.allocated());
        if !matches!(self.phase, Phase::Running) {
            account.settle(retained);
            let Phase::Ending { io, .. } = &self.phase else {
                return Io::Write;
            };
            return *io;
        }
        let returns_at = self.reading.returns_at.take();
        transport.flowing &= !self.return_unused(&state.connection, retained, (returns_at, now));
        let at_least = match self.reading.need {
            Need::Input { at_least } if !transport.eof => at_least,
            _ if self.reading.is_held_back => {
                state.stats.paused = true;
                self.set_reading(&mut state.connection, now, false);
                return Io::Write;
            }
            need => {
                account.settle(retained);
                self.set_reading(&mut state.connection, now, need != Need::Room);
                return Io::Write;
            }
        };
        let limit = account.largest();
        if to_u64(at_least) > limit {
            account.settle(retained);
            let value = to_u64(at_least);
            let option = "--memory";
            let end = End::Memory {
                value,
                limit,
                needed: Budget::needed(value),
                option,
                offset: self.taken(transport),
            };
            self.fail(state, end, now);
            return Io::Write;
        }
        if self.reading.limited_until.is_some() {
            account.settle(retained);
            self.set_reading(&mut state.connection, now, false);
            return Io::Write;
        }
        let capacity = self.admitted(&state.connection, held, at_least, transport);
        self.reading.returns_at = self.return_at(&state.connection, retained, (returns_at, now));
        state.stats.paused = capacity.is_none();
        self.set_reading(&mut state.connection, now, capacity.is_some());
        capacity.map_or(Io::Write, Io::Read)
    }

    /// Returns granted bytes that nothing has needed until now; whether it did.
    fn return_unused(
        &self,
        connection: &C,
        retained: usize,
        (returns_at, now): (Option<Instant>, Instant),
    ) -> bool {
        let is_due = returns_at.is_some_and(|due| due <= now);
        let returns = is_due && self.is_unused(connection, retained);
        if returns {
            self.link.shared.account.settle(retained);
        }
        returns
    }

    /// When granted bytes are returned that nothing needs; `returns_at`: the time that held so far.
    fn return_at(
        &self,
        connection: &C,
        retained: usize,
        (returns_at, now): (Option<Instant>, Instant),
    ) -> Option<Instant> {
        let due = returns_at.filter(|due| *due > now);
        let is_unused = self.is_unused(connection, retained);
        is_unused.then(|| due.unwrap_or(now + UNUSED_AFTER))
    }

    /// Whether bytes were granted that nothing needs now: the peer may be done.
    fn is_unused(&self, connection: &C, retained: usize) -> bool {
        let is_charged = self.link.shared.account.charge() > 0;
        is_charged && retained <= FREE_BYTES && self.coming_bytes(connection) == 0
    }

    /// Bytes of this transport that the connection has taken.
    pub(super) fn taken<IO>(&self, transport: &Transport<IO>) -> u64 {
        let came = transport.bytes_in.saturating_sub(self.reading.earlier);
        let left = to_u64(transport.input.bytes.len());
        came.saturating_add(self.reading.leftover)
            .saturating_sub(left)
    }

    /// Bytes of input that the budget lets this connection hold; `None` while it must wait.
    pub(super) fn admitted<IO>(
        &self,
        connection: &C,
        held: usize,
        at_least: usize,
        transport: &Transport<IO>,
    ) -> Option<usize> {
        let account = &self.link.shared.account;
        let allocated = transport.input.allocated();
        let len = transport.input.bytes.len();
        let retained = held.saturating_add(allocated);
        // Frame by frame would be slow where frames are small.
        let floor = at_least.max(len.saturating_add(PROBE_BYTES));
        let is_free = held.saturating_add(floor) <= FREE_BYTES;
        if transport.flowing || !is_free {
            let chunk = floor.max(len.saturating_add(READ_BYTES));
            if account.try_ask(retained, held.saturating_add(chunk.max(allocated))) {
                return Some(chunk);
            }
        }
        let capacity = if is_free { FREE_BYTES - held } else { floor };
        let planned = held.saturating_add(capacity.max(allocated));
        let settling = connection.complete_bytes() > 0;
        account.ask(retained, planned, settling).then_some(capacity)
    }

    /// Charges the received bytes to the rate limit and checks whether more may come now.
    pub(super) fn apply_rate(&mut self, rate: &RateLimit, came: u64, now: Instant) {
        if came > 0 {
            rate.take(now, came);
        }
        self.reading.limited_until = rate.due(now);
    }

    pub(super) fn set_reading(&mut self, connection: &mut C, now: Instant, on: bool) {
        if self.reading.is_on != on {
            self.reading.is_on = on;
            connection.reading(now, on);
        }
    }
}

/// The time for which granted bytes are kept for a peer that sends none.
const UNUSED_AFTER: Duration = Duration::from_secs(1);
