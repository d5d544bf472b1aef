//! The driver: one loop, one `select!`.
//!
//! ```text
//!          bytes, timers, calls          Draining, an error          both ends
//! Running ─────────────────────► Running ────────────────► Draining ──────────► end
//!    ├── an error or the peer's end, answers owed ──► Owing ── all answered ──► Draining
//!    └───── Closed, Handover ─────► Flushing ── all written ───────────────────► end
//! ```
//!
//! Each turn runs the connection under the lock (`turn`), then waits for whatever the turn asked for.
//! The driver decides when to read and how much; what the bytes mean is the connection's.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_core::{Connection, ErrorKind as _, Lifecycle, Need};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;

use crate::acceptor::Unheard;
use crate::budget::{FREE_BYTES, to_u64};
use crate::inline_write::IdleDriver;
use crate::input::{Input, PROBE_BYTES};
use crate::link::{State, now, wake_all};
use crate::pace::Pace;
use crate::progress::{Coming, Holds, Turns};
use crate::shift::Shift;
use crate::socket::Writer;
use crate::spare::READ_BYTES;
use crate::stall::StallTimer;
use crate::transport::{Io, Transport};
use crate::{End, Link, LinkStats, Stream};

/// Time from our end of a link to the peer's before the transport is dropped.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Time for the goodbye after an error. Answers that are still owed then
/// ([`Connection::owes_answers`]) are waited for before it, no longer than [`CLOSE_DEADLINE`].
pub const ERROR_FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// What is left of a transport after its drive.
#[derive(Debug)]
pub struct Driven<IO, K: ackline_core::ErrorKind> {
    /// The transport, for who goes on with it.
    pub io: IO,
    /// Bytes read and not taken by the connection.
    pub leftover: BytesMut,
    /// Why the drive has ended.
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

    /// [`Link::drive`] on a socket. While the driver has nothing to do, what calls cause to be sent is written by
    /// the calling thread, at once and only as far as the system takes it.
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

    /// [`Link::drive_from`], with `begin` told first that there is a new transport. All of it happens at
    /// this call, not at the first poll: a running drive ends, what it had still to write is dropped, its
    /// connection is told so ([`Connection::detached`]), then `begin` is called. So whoever calls last wins.
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
        driver.before = (stats.bytes_in, to_u64(leftover.len()));
        let input = Input::new(leftover, self.shared.account.spare());
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
            if driver.shift.is_over(transport.moved()) {
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
    // A timer that moved later is left alone: it fires early once, which costs less than moving it at
    // each turn.
    if sleep.is_elapsed() || until < sleep.deadline() {
        sleep.as_mut().reset(until);
    }
}

struct Driver<'a, C: Connection> {
    link: &'a Link<C>,
    generation: u64,
    phase: Phase<C::Kind>,
    need: Need,
    /// Bytes of input that the connection has already seen.
    seen: usize,
    eof_told: bool,
    reading: bool,
    /// What has come waits for memory.
    is_held_back: bool,
    /// When the pace lets reading go on.
    paced_until: Option<Instant>,
    shift: Shift,
    /// Bytes that the link had read over transports before this one, and those read from this one already.
    before: (u64, u64),
    /// Its first bytes were not looked at.
    unheard: Option<Unheard>,
    stall_timer: StallTimer,
    coming: Coming,
    turns: Turns,
}

enum Phase<K: ackline_core::ErrorKind> {
    Running,
    /// After an error or the peer's end: what came before it is still answered, nothing is read.
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
        state.generation = state.generation.wrapping_add(1);
        if state.is_driven {
            // Whatever it answers: it has a transport again.
            state.connection.detached(now);
        }
        state.is_driven = true;
        state.end = None;
        state.fault = None;
        state.end_inline();
        state.taken_at_end = None;
        begin(&mut state, now);
        link.shared.account.return_to();
        let (generation, stats, unheard) = (state.generation, state.stats, state.unheard);
        let wakers = state.wakers(true);
        drop(state);
        // A drive that this one replaces must see it.
        link.shared.wake_driver.notify_one();
        wake_all(wakers);
        let driver = Self {
            link,
            generation,
            phase: Phase::Running,
            need: Need::Input { at_least: 1 },
            seen: 0,
            eof_told: false,
            reading: true,
            is_held_back: false,
            paced_until: None,
            shift: Shift::default(),
            before: (0, 0),
            unheard,
            stall_timer: StallTimer::new(now),
            coming: Coming::default(),
            turns: Turns::new(now),
        };
        (driver, stats)
    }

    /// One step, and the work that it was.
    fn counted_turn<IO>(&mut self, transport: &mut Transport<IO>) -> Turn<C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let (begun, came) = (now(), transport.input.bytes.len());
        self.shift.begin(begun);
        let turn = self.turn(transport, begun);
        let taken = came.saturating_sub(transport.input.bytes.len());
        self.shift.end(taken, begun, now());
        turn
    }

    /// One step of everything that needs no waiting.
    fn turn<IO>(&mut self, transport: &mut Transport<IO>, now: Instant) -> Turn<C::Kind>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut guard = self.link.lock();
        let state = &mut *guard;
        if state.generation != self.generation {
            self.link.shared.wake_driver.notify_one();
            return Turn::End(End::Replaced);
        }
        if state.aborted {
            return Turn::End(End::Aborted);
        }
        state.inline.idle = None;
        transport.take_inline(&mut state.inline);
        Self::meet_end(state, transport);
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
        transport.bite = self.shift.bite(self.need, transport.input.bytes.len());
        changed |= self.follow(state, transport.eof, now);
        let came = transport.bytes_in.saturating_sub(state.stats.bytes_in);
        if let Some(pace) = &state.pace {
            transport.bite = PROBE_BYTES;
            self.keep_pace(pace, came, now);
        }
        let mut io = self.plan(state, transport, now);
        if self.is_slow(state, io, transport, now) {
            io = Io::Write;
        }
        changed |= state.fault.is_some() && !had_fault;
        if transport.can_write() {
            let before = transport.out.len();
            state.connection.poll_transmit(now, &mut transport.out);
            if transport.out.len() != before {
                changed = true;
                state.inline.last = Some(now);
            }
            transport.out.rest();
        }
        if let Some(drain) = self.hang_up(&mut state.connection, now) {
            io = drain;
        }
        state.stats.bytes_in = transport.bytes_in;
        state.stats.bytes_out = transport.bytes_out;
        state.is_shut = transport.shut_at.is_some();
        let given_up = self.give_up(state, transport, now);
        let turn = match given_up.or_else(|| self.stuck(state, transport, now)) {
            Some(end) => Turn::End(end),
            None => self.wait(state, transport, now, io),
        };
        state.inline.idle = self.rest(state, transport, &turn);
        let wakers = state.wakers(changed);
        drop(guard);
        wake_all(wakers);
        turn
    }

    /// Whether the peer is too slow with what holds memory that others wait for: then it is told its end.
    fn is_slow<IO>(
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
        self.coming.see(
            now,
            Holds {
                bytes,
                finished: state.connection.finished(),
                came: transport.bytes_in.saturating_add(unread.unwrap_or(0)),
                is_peers_turn: unread.is_some_and(|unread| unread < to_u64(PROBE_BYTES)),
            },
            account.fairness(),
        );
        let slow = self.coming.slow(account.fairness());
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

    /// Bytes that the system has of the peer, of a link whose reading waits for memory: while there are few, others do
    /// not wait for the memory alone but for this peer.
    fn unread(&self, state: &State<C>) -> Option<u64> {
        let is_waiting = state.stats.paused && !self.is_held_back;
        let socket = state.inline.socket.as_ref().filter(|_| is_waiting)?;
        socket.unread()
    }

    /// Bytes of memory, above what is free, that a frame or window holds which has not come whole.
    fn coming_bytes(&self, connection: &C) -> u64 {
        let frame = match self.need {
            Need::Input { at_least } => at_least,
            Need::Again | Need::Room => 0,
        };
        let coming = frame.saturating_add(connection.coming_bytes());
        let charge = self.link.shared.account.charge();
        to_u64(coming.saturating_sub(FREE_BYTES)).min(charge)
    }

    /// The end of a link whose driver turns and gets nowhere.
    fn stuck<IO>(
        &mut self,
        state: &State<C>,
        transport: &Transport<IO>,
        now: Instant,
    ) -> Option<End<C::Kind>> {
        let marks = [
            transport.bytes_in,
            transport.bytes_out,
            state.calls,
            to_u64(transport.input.bytes.len()),
            to_u64(state.connection.held_bytes()),
            state.connection.finished(),
        ];
        let passed = self.turns.turned(now, marks)?;
        tracing::error!(code = "link.stuck", turned = ?passed, "a defect: a link got nowhere and was ended");
        Some(End::Stuck(passed))
    }

    /// When the peer's end has just come: whether it had taken everything by then.
    fn meet_end<IO>(state: &mut State<C>, transport: &mut Transport<IO>) {
        if !transport.eof || std::mem::replace(&mut transport.is_end_met, true) {
            return;
        }
        let socket = state.inline.socket.as_ref();
        let is_taken = transport.is_flushed() && socket.is_some_and(Writer::is_taken);
        state.taken_at_end = is_taken.then_some(transport.bytes_out);
    }

    /// The end of a transport whose peer takes nothing.
    fn give_up<IO>(
        &mut self,
        state: &State<C>,
        transport: &Transport<IO>,
        now: Instant,
    ) -> Option<End<C::Kind>> {
        let moved = (transport.bytes_in, transport.bytes_out);
        let is_flushed = transport.is_flushed();
        self.stall_timer.see(now, is_flushed, moved);
        let due = self.give_up_at(state, transport)?;
        let socket = state.inline.socket.as_ref();
        if due > now || !self.stall_timer.is_stuck(now, socket) {
            return None;
        }
        Some(self.io_error(self.stall_timer.late(now, transport.out.len())))
    }

    /// When the peer is looked at, while something waits for it. What ends has its own deadline.
    fn give_up_at<IO>(&self, state: &State<C>, transport: &Transport<IO>) -> Option<Instant> {
        let is_sending = matches!(self.phase, Phase::Running) && !transport.is_flushed();
        let due = is_sending.then(|| self.stall_timer.due(state.connection.stall_timeouts()));
        due.flatten()
    }

    /// Hands on new bytes, the peer's end and the time.
    fn feed<IO>(
        &mut self,
        connection: &mut C,
        transport: &mut Transport<IO>,
        now: Instant,
    ) -> Result<bool, End<C::Kind>> {
        let mut changed = false;
        let is_first = self.unheard.is_some() && self.taken(transport) == 0;
        let unheard = self.unheard.filter(|_| is_first);
        let input = &mut transport.input;
        let blocked = matches!(self.need, Need::Room | Need::Again);
        self.is_held_back = blocked && !self.may_step(connection, input.allocated());
        if (blocked && !self.is_held_back) || input.bytes.len() != self.seen {
            changed = true;
            // What the protocol refuses may be another one.
            let foreign = unheard.and_then(|it| it.foreign(&input.bytes));
            self.need = connection
                .receive(now, &mut input.bytes)
                .map_err(|error| foreign.unwrap_or(End::Protocol(error)))?;
            input.compact();
            self.seen = input.bytes.len();
        }
        if connection.lifecycle() == Lifecycle::Handover {
            return Ok(changed);
        }
        let waits_for_input = matches!(self.need, Need::Input { .. });
        if transport.eof && waits_for_input && !self.eof_told {
            changed = true;
            self.eof_told = true;
            connection.receive_eof(now).map_err(End::Protocol)?;
        }
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            changed = true;
            connection.handle_timeout(now).map_err(End::Protocol)?;
        }
        Ok(changed)
    }

    /// Whether the budget has what the next call adds to what is held; if not, it wakes the driver when it has.
    fn may_step(&self, connection: &C, allocated: usize) -> bool {
        let step = connection.step_bytes();
        if step == 0 {
            return true;
        }
        let retained = connection.held_bytes().saturating_add(allocated);
        let settling = connection.complete_bytes() > 0;
        let account = &self.link.shared.account;
        account.ask(retained, retained.saturating_add(step), settling)
    }

    /// An error, or the peer's end, ends the link politely: what came before it is answered first. A peer that
    /// gave no sign of life is left at once.
    fn fail(&mut self, state: &mut State<C>, end: End<C::Kind>, now: Instant) {
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

    /// The goodbye after an error or the peer's end, once nothing is owed or it is late: what is queued is
    /// sent and the peer's bytes are dropped until its end, so that a reset does not overtake it.
    fn hang_up(&mut self, connection: &mut C, now: Instant) -> Option<Io> {
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

    /// Follows the connection out of `Open`; whether anything changed.
    fn follow(&mut self, state: &mut State<C>, eof: bool, now: Instant) -> bool {
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

    /// What the transport may do now. Charges the budget and tells the connection when reading stops
    /// or resumes.
    fn plan<IO>(&mut self, state: &mut State<C>, transport: &Transport<IO>, now: Instant) -> Io {
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
        let at_least = match self.need {
            Need::Input { at_least } if !transport.eof => at_least,
            _ if self.is_held_back => {
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
                option,
                offset: self.taken(transport),
            };
            self.fail(state, end, now);
            return Io::Write;
        }
        if self.paced_until.is_some() {
            account.settle(retained);
            self.set_reading(&mut state.connection, now, false);
            return Io::Write;
        }
        let settling = state.connection.complete_bytes() > 0;
        let capacity = self.admitted((held, settling), at_least, transport);
        state.stats.paused = capacity.is_none();
        self.set_reading(&mut state.connection, now, capacity.is_some());
        capacity.map_or(Io::Write, Io::Read)
    }

    /// Bytes of this transport that the connection has taken.
    fn taken<IO>(&self, transport: &Transport<IO>) -> u64 {
        let (earlier, leftover) = self.before;
        let came = transport.bytes_in.saturating_sub(earlier);
        let left = to_u64(transport.input.bytes.len());
        came.saturating_add(leftover).saturating_sub(left)
    }

    /// Bytes of input that the budget lets this connection hold; `None` while it must wait.
    fn admitted<IO>(
        &self,
        (held, settling): (usize, bool),
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
        account.ask(retained, planned, settling).then_some(capacity)
    }

    /// Pays for the bytes that came and looks whether more may come now.
    fn keep_pace(&mut self, pace: &Pace, came: u64, now: Instant) {
        if came > 0 {
            pace.take(now, came);
        }
        self.paced_until = pace.due(now);
    }

    fn set_reading(&mut self, connection: &mut C, now: Instant, on: bool) {
        if self.reading != on {
            self.reading = on;
            connection.reading(now, on);
        }
    }

    /// Whether nothing is to be done before input comes, or the time that is waited for.
    fn rest<IO>(
        &self,
        state: &State<C>,
        transport: &Transport<IO>,
        turn: &Turn<C::Kind>,
    ) -> Option<IdleDriver> {
        let Turn::Wait(Wait { until, io, .. }) = turn else {
            return None;
        };
        let is_at_rest = matches!(self.phase, Phase::Running)
            && matches!(io, Io::Read(_))
            && transport.is_flushed()
            // What is charged is to be given back when it is taken.
            && self.link.shared.account.charge() == 0;
        (is_at_rest && state.inline.writer.is_some()).then_some(IdleDriver { until: *until })
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
                        self.paced_until,
                        self.give_up_at(state, transport),
                        self.coming.due(self.link.shared.account.fairness()),
                    ]
                    .into_iter()
                    .flatten()
                    .min(),
                    again: self.need == Need::Again && !self.is_held_back,
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
        let shut = transport.shut_at.map(|shut| shut + state.stall_timeouts);
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

    /// The first error wins: a transport that breaks during a goodbye does not hide the reason.
    fn io_error(&self, error: std::io::Error) -> End<C::Kind> {
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

    fn finish(&self, end: End<C::Kind>) {
        self.link.undriven(self.generation, end);
    }
}

impl<C: Connection> Drop for Driver<'_, C> {
    fn drop(&mut self) {
        self.finish(End::Dropped);
    }
}
