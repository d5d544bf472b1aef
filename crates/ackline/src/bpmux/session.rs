//! A connection's machine with the input that its application has still to take: the one thing that the
//! driver drives.
//!
//! It takes the machine's events as they come and sorts them by their readers, so that a slow reader holds
//! back no other; the waiting input is bounded by credit, and where no credit is needed by number.

mod answers;
mod arrivals;
mod events;
mod inbox;
mod room;

use std::sync::Arc;
use std::time::Instant;

use ackline_bpmux::{self as machine, EntityKind, Kind, Stats, Subject, Target, refusal};
use ackline_core::{
    Connection as _, Lifecycle, LimitHit, Need, ProtocolError, SendQueue, StallTimeouts, Table,
    UsageError,
};
use ackline_link::{Budget, End};
use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use self::answers::Answers;
pub(super) use self::arrivals::Arrival;
use self::arrivals::Arrivals;
use super::beginners::Beginners;
use super::error::Error;
use super::mailbox::{DROPPED, GivenUp, Mailbox};
use ackline_bpmux::LinkOptions;

use super::options::most_incomplete;
use crate::wakes::Wakes;

/// The number of an entity or a request that is open, or has ended and still has a handle. Unlike an id, a
/// number is never used again.
pub(super) type Serial = u64;

/// A connection's machine with the input that waits for its application.
#[derive(Debug)]
pub struct Session {
    machine: machine::Connection,
    places: Table<Serial, Mailbox>,
    live: Table<Subject, Serial>,
    next: Serial,
    arrivals: Arrivals,
    answers: Answers,
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
    fn add(&mut self, bytes: usize) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

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

/// The error of a peer that has begun more than it may: the connection could wait for memory for ever.
pub(super) const fn too_much_begun(value: u64, limit: u64) -> Kind {
    Kind::Memory {
        what: "open entities and requests",
        part: "seven eighths of a quarter, and of 32 KiB,",
        hit: LimitHit {
            value,
            limit,
            option: "--memory",
        },
    }
}

/// The top-level's place.
pub(super) const TOP: Serial = 1;

/// Messages and arrivals that may wait to be taken; they may be empty, and cost no credit then. Above it
/// nothing more is read.
const MOST_WAITING: usize = 65_536;

/// Bytes that one of them takes beside its payload, about; a message that waits to be sent takes the same.
const WAITING_BYTES: usize = 64;

/// The kinds of waits: each has its own wake key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// An entity or a request that the peer begins.
    Accept,
    /// Input for this place.
    Read(Serial),
    /// Room to send on this place, and the end of the place.
    Write(Serial),
    /// A pong for this.
    Pong(Serial),
}

impl Wait {
    pub(super) const fn key(self) -> u64 {
        match self {
            Self::Accept => 1,
            Self::Read(serial) => serial << 2,
            Self::Write(serial) => (serial << 2) | 1,
            Self::Pong(serial) => (serial << 2) | 2,
        }
    }
}

impl Session {
    /// Creates a session with these options and this memory budget.
    pub(super) fn new(now: Instant, options: &LinkOptions, budget: &Budget) -> Self {
        let top = Subject::Entity(Target::Top);
        let mut machine = machine::Connection::new(now, options.machine(budget.limit()));
        machine.share(budget.quota());
        Self {
            machine,
            places: [(TOP, Mailbox::new(top, 1))].into_iter().collect(),
            live: [(top, TOP)].into_iter().collect(),
            next: TOP + 1,
            arrivals: Arrivals::default(),
            answers: Answers::new(&budget.answers()),
            now,
            beginners: Beginners::default(),
            wakes: Wakes::default(),
            touched: Vec::new(),
            untaken: Untaken::default(),
            limits: Limits {
                send_bytes: options.send_bytes,
                incomplete: most_incomplete(budget),
                payload: options.machine.limits.max_payload_bytes,
            },
        }
    }

    /// Names the sender of the connection, and the driver that is woken when others have made room for responses.
    pub(super) fn attach(&mut self, sender: &Arc<str>, driver: Arc<Notify>) {
        self.answers.attach(sender, driver);
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
        self.next += 1;
        self.places.insert(serial, Mailbox::new(subject, handles));
        self.live.insert(subject, serial);
        serial
    }

    /// The mailbox of this number.
    pub(super) fn place(&mut self, serial: Serial) -> Option<&mut Mailbox> {
        self.places.get_mut(&serial)
    }

    /// The subject that the number stands for, unless it is over.
    fn subject(&self, serial: Serial) -> Result<Subject, UsageError> {
        let place = self.places.get(&serial).filter(|place| !place.gone);
        place.map(|it| it.subject).ok_or(refusal::ALREADY_ENDED)
    }

    /// Whether it is over.
    pub(super) fn is_over(&self, serial: Serial) -> bool {
        self.subject(serial).is_err()
    }

    /// The sink, stream or duplex that it stands for, unless it is over.
    pub(super) fn target(&self, serial: Serial) -> Result<Target, UsageError> {
        match self.subject(serial)? {
            Subject::Entity(target) => Ok(target),
            _ => Err(refusal::UNKNOWN_ID),
        }
    }

    /// Why nothing can be done any more, once both sides are done or the peer has broken a rule: the transport
    /// may still come to its end.
    pub(super) fn over(&self) -> Option<End<Kind>> {
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
    pub(super) fn refused(&self, error: UsageError) -> Error {
        self.over().map_or(Error::Usage(error), Error::Ended)
    }

    fn told<R>(&self, result: Result<R, UsageError>) -> Result<R, Error> {
        result.map_err(|error| self.refused(error))
    }

    /// Opens something.
    pub(super) fn open(&mut self, kind: EntityKind, payload: Bytes) -> Result<Serial, Error> {
        if !self.has_top_room() {
            return Err(Error::Blocked);
        }
        let id = self.machine.free_id();
        let id = self.told(id)?;
        let opened = self.machine.open(kind, id, payload);
        self.told(opened)?;
        self.release_own(id);
        let handles = if kind == EntityKind::Duplex { 2 } else { 1 };
        Ok(self.begin(Subject::Entity(Target::Own(id)), handles))
    }

    /// Whether its opening has been sent, or it is over.
    pub(super) fn is_open(&self, serial: Serial) -> bool {
        self.target(serial)
            .map_or(true, |target| self.machine.is_open(target))
    }

    /// Sends a request.
    pub(super) fn request(&mut self, payload: Bytes) -> Result<Serial, Error> {
        if !self.has_top_room() {
            return Err(Error::Blocked);
        }
        let id = self.machine.free_request_id();
        let id = self.told(id)?;
        let asked = self.machine.request(id, payload);
        self.told(asked)?;
        Ok(self.begin(Subject::OwnRequest(id), 1))
    }

    /// The callers that wait to request or open something.
    pub(super) fn beginners(&mut self) -> &mut Beginners {
        &mut self.beginners
    }

    /// Whether there is a message of a half, or no more can come.
    pub(super) fn has_message(&self, serial: Serial) -> bool {
        let is_over = |it: &Mailbox| it.closed.is_some() || it.acknowledged.cancel;
        let place = self.places.get(&serial);
        place.is_none_or(|it| !it.parts.is_empty() || is_over(it)) || self.target(serial).is_err()
    }

    pub(super) fn is_not_cancelled(&self, serial: Serial) -> Result<(), Error> {
        let place = self.places.get(&serial);
        match place.and_then(|place| place.cancelled.clone()) {
            Some(payload) => Err(Error::Cancelled(payload)),
            None => Ok(()),
        }
    }

    /// A verb of the machine's on a sink, stream or duplex.
    pub(super) fn with_target<R>(
        &mut self,
        serial: Serial,
        verb: impl FnOnce(&mut machine::Connection, Target) -> Result<R, UsageError>,
    ) -> Result<R, Error> {
        let target = self.told(self.target(serial))?;
        let result = verb(&mut self.machine, target);
        let result = self.told(result);
        self.take();
        self.settle(Subject::Entity(target));
        result
    }

    /// A verb of the machine's on a request.
    pub(super) fn with_request<R>(
        &mut self,
        serial: Serial,
        verb: impl FnOnce(&mut machine::Connection, u32) -> Result<R, UsageError>,
    ) -> Result<R, Error> {
        let subject = self.told(self.subject(serial))?;
        let (Subject::OwnRequest(id) | Subject::PeerRequest(id)) = subject else {
            return Err(refusal::UNKNOWN_ID.into());
        };
        let result = verb(&mut self.machine, id);
        let result = self.told(result);
        self.take();
        self.settle(subject);
        result
    }

    /// Sends a ping of an entity or of an own request.
    pub(super) fn ping(&mut self, serial: Serial) -> Result<(), Error> {
        match self.told(self.subject(serial))? {
            Subject::Entity(_) => self.with_target(serial, machine::Connection::ping),
            _ => self.with_request(serial, machine::Connection::ping_request),
        }
    }

    /// Nobody writes it any more: it is closed, once its opening is sent.
    pub(super) fn close_unwritten(&mut self, serial: Serial) {
        if !self.is_open(serial) {
            if let Some(place) = self.place(serial) {
                place.given_up.sink = true;
            }
            return;
        }
        let payload = Bytes::from_static(DROPPED);
        // It may have ended before.
        let _ = self.with_target(serial, |it, target| it.close(target, payload));
    }

    /// Nobody reads it any more: it is cancelled, once its opening is sent, unless it was read to its end.
    pub(super) fn cancel_unread(&mut self, serial: Serial) {
        let is_read_out =
            |it: &Mailbox| it.closed.is_some() && it.parts.is_empty() && it.begun.is_empty();
        if self.places.get(&serial).is_some_and(is_read_out) {
            return;
        }
        if !self.is_open(serial) {
            if let Some(place) = self.place(serial) {
                place.given_up.stream = true;
            }
            return;
        }
        // It may have ended before.
        let _ = self.with_target(serial, |it, target| it.cancel(target, Bytes::new()));
    }

    /// Ends the halves that were given up while their opening waited.
    fn end_given_up(&mut self, target: Target) {
        let serial = self.live.get(&Subject::Entity(target)).copied();
        let place = serial.and_then(|serial| self.places.get(&serial));
        let given_up = place.map_or(GivenUp::default(), |place| place.given_up);
        if given_up.sink {
            let _ = self.machine.close(target, Bytes::from_static(DROPPED));
        }
        if given_up.stream {
            let _ = self.machine.cancel(target, Bytes::new());
        }
    }

    /// A handle is gone.
    pub(super) fn leave(&mut self, serial: Serial) {
        let Some(place) = self.places.get_mut(&serial) else {
            return;
        };
        place.handles = place.handles.saturating_sub(1);
        if place.handles == 0 {
            if let Some(accepted) = place.accepted.take() {
                let given = self.machine.answers_given();
                self.answers.answered(accepted, given);
                self.look_at_answers(self.now);
            }
            self.drop_messages(serial);
            self.drop_if_gone(serial);
        }
    }

    /// As [`leave`](Self::leave), if it is over; whether it was.
    pub(super) fn leave_if_gone(&mut self, serial: Serial) -> bool {
        let is_gone = self.places.get(&serial).is_none_or(|place| place.gone);
        if is_gone {
            self.leave(serial);
        }
        is_gone
    }

    /// Drops the messages and the response that nobody will take.
    fn drop_messages(&mut self, serial: Serial) {
        while self.next_part(serial).is_some() {}
        let _ = self.response(serial);
    }

    fn drop_if_gone(&mut self, serial: Serial) {
        let place = self.places.get(&serial);
        if place.is_some_and(|place| place.gone && place.handles == 0) {
            self.places.remove(&serial);
        }
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

impl ackline_core::Connection for Session {
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
            let kind = too_much_begun(wide(incomplete), wide(self.limits.incomplete));
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
        self.wakes.next()
    }
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
