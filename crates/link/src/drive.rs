//! The driver: one loop, one `select!`.
//!
//! ```text
//!          bytes, timers, calls          Draining, an error          both ends
//! Running ─────────────────────► Running ────────────────► Draining ──────────► end
//!    ├── an error or the peer's end, answers owed ──► Owing ── all answered ──► Draining
//!    └───── Closed, Handover ─────► Flushing ── all written ───────────────────► end
//! ```
//!
//! Each turn runs the connection under the lock (`turn`), then waits for the events that the turn
//! asked for. The driver decides when to read and how much; the connection interprets the bytes.

mod ending;
mod reading;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use ackline_core::{Connection, Need};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;

use crate::acceptor::PostponedCheck;
use crate::inline_write::IdleDriver;
use crate::input::{Input, PROBE_BYTES};
use crate::link::{State, wake_all};
use crate::progress::{IncomingFrame, StuckDetector};
use crate::stall::StallTimer;
use crate::time_slice::TimeSlice;
use crate::transport::{Io, Transport};
use crate::units::now;
use crate::units::to_u64;
use crate::{End, Link, LinkStats, Stream};
use ending::Phase;
use reading::Reading;

/// Time from our end of a link to the peer's before the transport is dropped.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Time for the goodbye after an error. Answers that are still owed then
/// ([`Connection::owes_answers`]) are waited for before it, for at most [`CLOSE_DEADLINE`].
pub const ERROR_FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// The state of a transport after its drive.
#[derive(Debug)]
pub struct Driven<IO, K: ackline_core::ErrorKind> {
    /// The transport, for further use.
    pub io: IO,
    /// Bytes read and not taken by the connection.
    pub leftover: BytesMut,
    /// The reason the drive ended.
    pub end: End<K>,
}

impl<C: Connection> Link<C> {
    /// Moves bytes between the connection and `io` until the link ends. A second call takes the link
    /// over: the first one ends with [`End::Replaced`].
    pub async fn drive<IO>(&self, io: IO) -> Driven<IO, C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.drive_from(io, BytesMut::new()).await
    }

    /// [`Link::drive`] on a socket. While the driver is idle, the calling thread writes the output
    /// of its call itself, at once and only as far as the system takes it.
    pub fn drive_socket(
        &self,
        stream: Stream,
    ) -> impl Future<Output = Driven<Stream, C::Kind>> + use<'_, C> {
        let (writer, socket) = (stream.writer(), stream.socket());
        let (driver, transport) = self.begin(stream, BytesMut::new(), |state, _| {
            state.inline.writer = writer;
            state.inline.socket = Some(socket);
        });
        self.run(driver, transport)
    }

    /// [`Link::drive_socket`], with `retire` called once when the link is as old as `age`.
    pub(crate) async fn drive_for(
        &self,
        stream: Stream,
        age: Option<Duration>,
        retire: impl FnOnce(&mut C, Instant),
    ) -> Driven<Stream, C::Kind> {
        let mut driven = pin!(self.drive_socket(stream));
        if let Some(age) = age {
            if let Ok(driven) = tokio::time::timeout(age, &mut driven).await {
                return driven;
            }
            self.call(retire);
        }
        driven.await
    }

    /// [`Link::drive`] on a transport from which `leftover` has already been read.
    pub async fn drive_from<IO>(&self, io: IO, leftover: BytesMut) -> Driven<IO, C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.attach(io, leftover, |_, _| ()).await
    }

    /// [`Link::drive_from`], with `begin` called first on the connection, which has a new transport
    /// then. All of it happens at this call, not at the first poll: a running drive ends, its
    /// unwritten output is dropped, its connection is notified ([`Connection::detached`]), then
    /// `begin` is called. So the last caller wins.
    pub fn attach<IO, F>(
        &self,
        io: IO,
        leftover: BytesMut,
        begin: F,
    ) -> impl Future<Output = Driven<IO, C::Kind>> + use<'_, C, IO, F>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
        F: FnOnce(&mut C, Instant),
    {
        let begin = |state: &mut State<C>, now| begin(&mut state.connection, now);
        let (driver, transport) = self.begin(io, leftover, begin);
        self.run(driver, transport)
    }

    fn begin<IO>(
        &self,
        io: IO,
        leftover: BytesMut,
        begin: impl FnOnce(&mut State<C>, Instant),
    ) -> (Driver<'_, C>, Transport<IO>) {
        let (mut driver, stats) = Driver::begin(self, begin);
        driver.reading.earlier = stats.bytes_in;
        driver.reading.leftover = to_u64(leftover.len());
        let input = Input::new(leftover, self.shared.account.pool());
        let mut transport = Transport::new(io, input);
        // A link counts over all its transports.
        (transport.bytes_in, transport.bytes_out) = (stats.bytes_in, stats.bytes_out);
        (driver, transport)
    }

    async fn run<IO>(
        &self,
        mut driver: Driver<'_, C>,
        mut transport: Transport<IO>,
    ) -> Driven<IO, C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut sleep = Box::pin(tokio::time::sleep_until(tokio::time::Instant::now()));
        let end = loop {
            let wait = match driver.counted_turn(&mut transport) {
                Turn::Wait(wait) => wait,
                Turn::End(end) => break end,
            };
            if driver.slice.is_over(transport.moved()) {
                tokio::task::yield_now().await;
            }
            arm(&mut sleep, wait.until);
            tokio::select! {
                () = self.shared.wake_driver.notified() => {}
                () = sleep.as_mut(), if wait.until.is_some() => {}
                () = tokio::task::yield_now(), if wait.again => {}
                moved = poll_fn(|context| transport.poll(context, wait.io)) => {
                    if let Err(error) = moved {
                        break driver.io_error(error);
                    }
                }
            }
        };
        driver.finish(end.clone());
        Driven {
            io: transport.io,
            leftover: transport.input.bytes,
            end,
        }
    }
}

fn arm(sleep: &mut Pin<Box<Sleep>>, until: Option<Instant>) {
    let Some(until) = until.map(tokio::time::Instant::from_std) else {
        return;
    };
    // A timer that moved later stays: it fires early once, which costs less than resetting it at
    // each turn.
    if sleep.is_elapsed() || until < sleep.deadline() {
        sleep.as_mut().reset(until);
    }
}

struct Driver<'a, C: Connection> {
    link: &'a Link<C>,
    generation: u64,
    phase: Phase<C::Kind>,
    reading: Reading,
    slice: TimeSlice,
    /// The postponed check of its first bytes.
    postponed_check: Option<PostponedCheck>,
    stall_timer: StallTimer,
    incoming: IncomingFrame,
    stuck_detector: StuckDetector,
}

enum Turn<K: ackline_core::ErrorKind> {
    Wait(Wait),
    End(End<K>),
}

#[derive(Clone, Copy)]
struct Wait {
    until: Option<Instant>,
    again: bool,
    io: Io,
}

impl<'a, C: Connection> Driver<'a, C> {
    fn begin(link: &'a Link<C>, begin: impl FnOnce(&mut State<C>, Instant)) -> (Self, LinkStats) {
        let mut state = link.lock();
        let now = now();
        state.drive.generation = state.drive.generation.wrapping_add(1);
        if state.drive.is_running {
            // The result is ignored: the link has a transport again.
            state.connection.detached(now);
        }
        state.drive.is_running = true;
        state.end = None;
        state.fault = None;
        state.end_inline();
        state.drive.taken_at_end = None;
        begin(&mut state, now);
        link.shared.account.return_to();
        let (generation, stats, postponed_check) =
            (state.drive.generation, state.stats, state.postponed_check);
        let wakers = state.wakers(true);
        drop(state);
        // The drive that this one replaces must see it.
        link.shared.wake_driver.notify_one();
        wake_all(wakers);
        let driver = Self {
            link,
            generation,
            phase: Phase::Running,
            reading: Reading::default(),
            slice: TimeSlice::default(),
            postponed_check,
            stall_timer: StallTimer::new(now),
            incoming: IncomingFrame::default(),
            stuck_detector: StuckDetector::new(now),
        };
        (driver, stats)
    }

    /// One step, counted as work.
    fn counted_turn<IO>(&mut self, transport: &mut Transport<IO>) -> Turn<C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let (begun, came) = (now(), transport.input.bytes.len());
        self.slice.begin(begun);
        let turn = self.turn(transport, begun);
        let taken = came.saturating_sub(transport.input.bytes.len());
        self.slice.end(taken, begun, now());
        turn
    }

    /// One step: everything that needs no waiting.
    fn turn<IO>(&mut self, transport: &mut Transport<IO>, now: Instant) -> Turn<C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut guard = self.link.lock();
        let state = &mut *guard;
        if state.drive.generation != self.generation {
            self.link.shared.wake_driver.notify_one();
            return Turn::End(End::Replaced);
        }
        if state.aborted {
            return Turn::End(End::Aborted);
        }
        state.inline.idle = None;
        transport.take_inline(&mut state.inline);
        Self::observe_peer_end(state, transport);
        let mut changed = false;
        let had_fault = state.fault.is_some();
        if matches!(self.phase, Phase::Running) {
            match self.feed(&mut state.connection, transport, now) {
                Ok(fed) => changed = fed,
                Err(end) => {
                    changed = true;
                    self.fail(state, end, now);
                }
            }
        }
        transport.bite = self
            .slice
            .bite(self.reading.need, transport.input.bytes.len());
        changed |= self.follow(state, transport.eof, now);
        let came = transport.bytes_in.saturating_sub(state.stats.bytes_in);
        if let Some(rate) = &state.rate {
            transport.bite = PROBE_BYTES;
            self.apply_rate(rate, came, now);
        }
        let mut io = self.plan(state, transport, now);
        if self.is_slow(state, io, transport, now) {
            io = Io::Write;
        }
        changed |= state.fault.is_some() && !had_fault;
        changed |= transport.can_write() && Self::transmit(state, transport, now);
        if let Some(drain) = self.hang_up(&mut state.connection, now) {
            io = drain;
        }
        state.stats.bytes_in = transport.bytes_in;
        state.stats.bytes_out = transport.bytes_out;
        state.drive.is_shut = transport.shut_at.is_some();
        let given_up = self.give_up(state, transport, now);
        let turn = match given_up.or_else(|| self.stuck(state, transport, now)) {
            Some(end) => Turn::End(end),
            None => self.wait(state, transport, now, io),
        };
        state.inline.idle = self.idle(state, transport, &turn);
        let wakers = state.wakers(changed);
        drop(guard);
        wake_all(wakers);
        turn
    }

    /// Queues the connection's output. Returns whether there was any.
    fn transmit<IO>(state: &mut State<C>, transport: &mut Transport<IO>, now: Instant) -> bool {
        let before = transport.out.len();
        state.connection.poll_transmit(now, &mut transport.out);
        let has_output = transport.out.len() != before;
        if has_output {
            state.inline.last = Some(now);
        }
        transport.out.rest();
        has_output
    }

    /// Whether there is nothing to do before input comes or the next timeout is due.
    fn idle<IO>(
        &self,
        state: &State<C>,
        transport: &Transport<IO>,
        turn: &Turn<C::Kind>,
    ) -> Option<IdleDriver> {
        let Turn::Wait(Wait { until, io, .. }) = turn else {
            return None;
        };
        let is_idle = matches!(self.phase, Phase::Running)
            && matches!(io, Io::Read(_))
            && transport.is_flushed()
            // Charged memory must be returned when the application takes it.
            && self.link.shared.account.charge() == 0;
        (is_idle && state.inline.writer.is_some()).then_some(IdleDriver { until: *until })
    }

    fn wait<IO>(
        &self,
        state: &State<C>,
        transport: &Transport<IO>,
        now: Instant,
        io: Io,
    ) -> Turn<C::Kind> {
        let (deadline, end, late) = match &self.phase {
            Phase::Running => {
                let timeout = state.connection.poll_timeout();
                return Turn::Wait(Wait {
                    until: [
                        timeout,
                        self.reading.limited_until,
                        self.reading.returns_at,
                        self.give_up_at(state, transport),
                        self.incoming.due(self.link.shared.account.fairness()),
                    ]
                    .into_iter()
                    .flatten()
                    .min(),
                    again: self.reading.need == Need::Again && !self.reading.is_held_back,
                    io,
                });
            }
            Phase::Owing { deadline, .. } => {
                return Turn::Wait(Wait {
                    until: Some(*deadline),
                    again: false,
                    io,
                });
            }
            Phase::Ending {
                deadline,
                end,
                late,
                ..
            } => (deadline, end, late),
        };
        if transport.has_ended(io) {
            return Turn::End(end.clone());
        }
        let shut = transport.shut_at.map(|shut| shut + state.close_timeout);
        let deadline = shut.map_or(*deadline, |shut| shut.min(*deadline));
        if deadline <= now {
            return Turn::End(late.clone());
        }
        Turn::Wait(Wait {
            until: Some(deadline),
            again: false,
            io,
        })
    }
}

impl<C: Connection> Drop for Driver<'_, C> {
    fn drop(&mut self) {
        self.finish(End::Dropped);
    }
}
