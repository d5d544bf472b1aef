//! A connection's machine with the input that its application has still to take: the one thing that a driver
//! drives.
//!
//! It takes the machine's events as they come and sorts them by their readers, so that a slow reader holds
//! back no other; the waiting input is bounded by credit, and where no credit is needed by number. A verb that returns
//! [`Error::Blocked`] has changed nothing and is tried again when its [`Wait`] is woken.

mod answers;
mod arrivals;
mod beginners;
mod events;
mod given_up;
mod handles;
mod inbox;
mod mailbox;
mod room;
mod waits;

use std::sync::Arc;
use std::time::Instant;

pub use ackline_core::Serial;
use ackline_core::{
    AnswerRoom, Connection as _, End, Lifecycle, Need, ProtocolError, Quota, SendQueue,
    StallTimeouts, Table, UsageError, Wakes,
};
use bytes::BytesMut;

use self::answers::Answers;
pub use self::arrivals::Arrival;
use self::arrivals::Arrivals;
use self::beginners::Beginners;
pub use self::beginners::Ticket;
pub use self::inbox::MOST_AT_ONCE;
use self::mailbox::Mailbox;
pub use self::mailbox::Part;
pub use self::waits::{Interest, Wait};
use crate::connection::count as wide;
use crate::{self as machine, Error, Kind, LinkOptions, Stats, Subject, Target, refusal};

/// A connection's machine with the input that waits for its application.
#[derive(Debug)]
pub struct Session<A> {
    machine: machine::Connection,
    places: Table<Serial, Mailbox>,
    live: Table<Subject, Serial>,
    next: Serial,
    arrivals: Arrivals,
    answers: Answers<A>,
    /// The time of the last input or output.
    now: Instant,
    beginners: Beginners,
    wakes: Wakes,
    /// The subjects of events, until all events are taken.
    touched: Vec<Subject>,
    untaken: Untaken,
    limits: Limits,
}

/// Messages, responses and arrivals that wait to be taken.
#[derive(Debug, Default)]
struct Untaken {
    count: usize,
    /// Their payload bytes.
    bytes: usize,
}

impl Untaken {
    #[inline]
    fn add(&mut self, bytes: usize) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    #[inline]
    fn remove(&mut self, bytes: usize) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Limits of a session beside those of its machine.
#[derive(Debug)]
struct Limits {
    /// Bytes that may wait to be sent on each half.
    send_bytes: usize,
    /// Bytes of messages that have begun and are not whole.
    incomplete: usize,
    /// Bytes of a message that is handed out whole.
    payload: u64,
}

/// The memory that a connection and others share.
#[derive(Debug, Clone)]
pub struct Memory {
    /// All bytes of it.
    pub limit: u64,
    /// Bytes that one connection can always get.
    pub largest: u64,
    /// The quota that open entities and requests are charged to.
    pub quota: Arc<Quota>,
}

impl Memory {
    /// Bytes of begun and unfinished payloads that a connection may hold: seven eighths of the bytes that it can always
    /// get.
    pub(crate) fn most_incomplete(&self) -> usize {
        usize::try_from((self.largest / 8).saturating_mul(7)).unwrap_or(usize::MAX)
    }
}

/// The top-level's place.
pub const TOP: Serial = 1;

/// Messages and arrivals that may wait to be taken; they may be empty, and cost no credit then. Above it
/// nothing more is read.
const MOST_WAITING: usize = 65_536;

/// Bytes that one of them takes beside its payload, about; a message that waits to be sent takes the same.
const WAITING_BYTES: usize = 64;

impl<A: AnswerRoom> Session<A> {
    /// Begins a connection with these options, this memory and this room for its responses.
    pub fn new(now: Instant, options: &LinkOptions, memory: Memory, room: A) -> Self {
        let top = Subject::Entity(Target::Top);
        let incomplete = memory.most_incomplete();
        let mut machine = machine::Connection::new(now, options.machine(memory.limit));
        machine.share(memory.quota);
        Self {
            machine,
            places: [(TOP, Mailbox::new(top, 1))].into_iter().collect(),
            live: [(top, TOP)].into_iter().collect(),
            next: TOP.wrapping_add(1),
            arrivals: Arrivals::default(),
            answers: Answers::new(room),
            now,
            beginners: Beginners::default(),
            wakes: Wakes::default(),
            touched: Vec::new(),
            untaken: Untaken::default(),
            limits: Limits {
                send_bytes: options.send_bytes,
                incomplete,
                payload: options.machine.limits.max_payload_bytes,
            },
        }
    }

    /// The room for the responses of this connection.
    pub const fn answer_room(&mut self) -> &mut A {
        self.answers.room()
    }

    /// Looks at the responses that wait.
    fn look_at_answers(&mut self, now: Instant) {
        self.now = now;
        let (waiting, given) = (self.machine.answers_backlog(), self.machine.answers_given());
        if self.answers.look(now, waiting, given) {
            self.wake(Wait::Accept);
        }
    }

    /// The connection's counters and its current state.
    pub fn stats(&self) -> Stats {
        self.machine.stats()
    }

    fn begin(&mut self, subject: Subject, handles: u8) -> Serial {
        // The peer may have ended one and begun another under its id since the last look.
        self.retire(subject);
        let serial = self.next;
        self.next = self.next.wrapping_add(1);
        self.places.insert(serial, Mailbox::new(subject, handles));
        self.live.insert(subject, serial);
        serial
    }

    /// The subject that the number stands for, unless it is over.
    fn subject(&self, serial: Serial) -> Result<Subject, UsageError> {
        let place = self.places.get(&serial).filter(|place| !place.gone);
        place.map(|it| it.subject).ok_or(refusal::ALREADY_ENDED)
    }

    /// The sink, stream or duplex that it stands for, unless it is over.
    fn target(&self, serial: Serial) -> Result<Target, UsageError> {
        match self.subject(serial)? {
            Subject::Entity(target) => Ok(target),
            _ => Err(refusal::UNKNOWN_ID),
        }
    }

    /// Why nothing can be done any more, once both sides are done or the peer has broken a rule: the transport
    /// may still come to its end.
    pub fn over(&self) -> Option<End<Kind>> {
        if let Some(fault) = self.machine.fault() {
            return Some(End::Protocol(fault.clone()));
        }
        match self.machine.lifecycle() {
            Lifecycle::Open => None,
            Lifecycle::Draining => Some(End::Closed),
            Lifecycle::Closed | Lifecycle::Handover => Some(End::Eof),
        }
    }

    /// The error of a refused verb; the end of the connection, if the connection is over.
    fn refused(&self, error: UsageError) -> Error {
        self.over().map_or(Error::Usage(error), Error::Ended)
    }

    fn told<T>(&self, result: Result<T, UsageError>) -> Result<T, Error> {
        result.map_err(|error| self.refused(error))
    }

    /// Wakes those that wait for this, so that they look again.
    fn wake(&mut self, wait: Wait) {
        self.wakes.wake(wait.key());
    }

    /// Takes the machine's events; returns whether there were any.
    fn take(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            self.take_one(event);
        }
        // The machine is ahead of its events: a subject that it has forgotten may have had several left.
        while let Some(subject) = self.touched.pop() {
            self.settle(subject);
        }
        any
    }
}

impl<A: AnswerRoom> ackline_core::Connection for Session<A> {
    // Everything is taken from the machine as it comes.
    type Event = std::convert::Infallible;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        if self.untaken.count >= MOST_WAITING {
            return Ok(Need::Room);
        }
        self.now = now;
        let need = self.machine.receive(now, input);
        let took = self.take();
        // Everything that is whole was taken.
        let incomplete = self.machine.held_bytes();
        if need.is_ok() && incomplete > self.limits.incomplete {
            let kind = Kind::too_much_begun(wide(incomplete), wide(self.limits.incomplete));
            return Err(self.machine.refuse(kind));
        }
        match need {
            Ok(Need::Room) if took => Ok(Need::Again),
            need => need,
        }
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.machine.receive_eof(now)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.machine.poll_transmit(now, out);
        self.take();
        self.look_at_answers(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.machine.poll_timeout(), self.answers.due()];
        timeouts.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.machine.handle_timeout(now)?;
        self.look_at_answers(now);
        let waiting = self.machine.answers_backlog();
        if let Some(kind) = self.answers.fault(now, waiting) {
            self.answers.end();
            return Err(self.machine.refuse(kind));
        }
        Ok(())
    }

    fn detached(&mut self, now: Instant) -> bool {
        self.answers.end();
        self.machine.detached(now)
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        self.machine.lifecycle()
    }

    fn held_bytes(&self) -> usize {
        let beside = self.untaken.count.saturating_mul(WAITING_BYTES);
        let held = self.untaken.bytes.saturating_add(beside);
        held.saturating_add(self.machine.held_bytes())
            .saturating_add(self.machine.owed_bytes())
    }

    fn step_bytes(&self) -> usize {
        self.machine.step_bytes()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.machine.stall_timeouts()
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop()
    }
}
