//! The machine of a connection whose messages are landed: the messages of one entity come out as runs, and
//! the messages that are kept are answered for.
//!
//! ```text
//! message ──► run ─► block ─► landed: its credit comes back ─► kept: settled
//! close   ──► held ────────── all runs of the entity settled ─► acknowledged
//! request ──► run ─► block ─► landed: its credit comes back ─► kept: answered with nothing
//! ```
//!
//! It decides which messages make a run, and when a close is acknowledged, a request answered and credit
//! given back. This end has nothing to say: every half that it could write is closed at once.

mod run;
mod sources;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ackline_core::{
    Connection, ErrorKind, Landable, Lifecycle, LimitHit, Need, Payload, ProtocolError, Quota,
    Runs, SendQueue, StallTimeouts,
};
use bytes::{Bytes, BytesMut};

pub use run::{From, Note, Run};
pub use sources::Source;
use sources::{Mailbox, Open};

use crate::connection::count as wide;
use crate::session::Memory;
use crate::{self as machine, EntityKind, Event, Kind, ReceiveOptions, Target};

/// Reasons of a receiver to end a connection because of its input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntakeKind {
    /// The peer broke the protocol, a limit or a deadline.
    #[error(transparent)]
    Protocol(#[from] Kind),
    /// A close with a count of messages that differs from the number received.
    #[error("{stream:?} was closed with the count {announced}, and {received} messages came on it")]
    CountDiffers {
        /// The closed entity.
        stream: Arc<str>,
        /// The count of the close, as it was sent; only the beginning of a long one.
        announced: Arc<str>,
        /// The number of messages received on it.
        received: u64,
    },
}

impl ErrorKind for IntakeKind {
    fn code(&self) -> &'static str {
        match self {
            Self::Protocol(kind) => kind.code(),
            Self::CountDiffers { .. } => "bpmux.count_differs",
        }
    }

    fn limit(&self) -> Option<LimitHit> {
        match self {
            Self::Protocol(kind) => kind.limit(),
            Self::CountDiffers { .. } => None,
        }
    }

    fn option(&self) -> Option<&'static str> {
        match self {
            Self::Protocol(kind) => kind.option(),
            Self::CountDiffers { .. } => None,
        }
    }
}

/// A run that was handed out and is not settled.
#[derive(Debug)]
struct Waiting {
    from: From,
    /// Payload bytes that are held and whose credit was not given back.
    bytes: usize,
    requests: Vec<(u32, u64)>,
}

/// The configuration of an intake.
#[derive(Debug, Clone)]
pub struct IntakeConfig {
    machine: machine::Config,
    max_opening_bytes: usize,
    /// Bytes of incomplete input that may be held.
    most_incomplete: usize,
    /// The quota that open entities are charged to.
    quota: Arc<Quota>,
    /// The payload that a stream is opened with, at once.
    stream: Option<Bytes>,
}

impl IntakeConfig {
    /// The configuration of a connection of a receiver with this memory, which opens a stream at once if it has a payload
    /// for that.
    pub fn new(options: &ReceiveOptions, memory: Memory, stream: Option<Bytes>) -> Self {
        Self {
            machine: machine::Config {
                // A consumer's commit may be long in coming: memory and the limit of entities bound them.
                most_held_closes: u32::MAX,
                parts: false,
                ..options.link.machine(memory.limit)
            },
            max_opening_bytes: options.max_opening_bytes,
            most_incomplete: memory.most_incomplete(),
            quota: memory.quota,
            stream,
        }
    }
}

/// A connection's machine whose messages are landed.
#[derive(Debug)]
pub struct Intake {
    machine: machine::Connection,
    max_opening_bytes: usize,
    most_incomplete: usize,
    open: Open,
    requests: Mailbox,
    /// Requests that can be answered, by their id: the number of each.
    asking: HashMap<u32, u64>,
    /// Runs that are not settled.
    runs: Runs<Run, Waiting>,
    /// Payload bytes of runs that have not landed.
    landing: usize,
    /// Messages that have come whole.
    finished: u64,
    offset: u64,
    fault: Option<ProtocolError<IntakeKind>>,
    is_stopping: bool,
}

impl Intake {
    /// Begins a connection.
    pub fn new(now: Instant, config: IntakeConfig) -> Self {
        let top = Source::new("top", None, &Payload::default());
        let asked = Source::new("request", None, &Payload::default());
        let mut intake = Self {
            machine: machine::Connection::new(now, config.machine),
            max_opening_bytes: config.max_opening_bytes,
            most_incomplete: config.most_incomplete,
            open: Open::new(top),
            requests: Mailbox::new(asked),
            asking: HashMap::new(),
            runs: Runs::default(),
            landing: 0,
            finished: 0,
            offset: 0,
            fault: None,
            is_stopping: false,
        };
        intake.machine.share(config.quota);
        if let Some(payload) = config.stream {
            intake.open(payload);
        }
        intake
    }

    /// Opens a stream: the peer writes it.
    fn open(&mut self, payload: Bytes) {
        let opening = Payload::from(payload.clone());
        // Nothing was opened before.
        if self.machine.open(EntityKind::Stream, 0, payload).is_ok() {
            let source = Source::new("stream", Some(Arc::from(OWN_STREAM)), &opening);
            self.open.enter(Target::Own(0), source);
        }
    }

    /// Bytes of this source are held no longer: the peer gets credit for as many.
    fn let_go(&mut self, from: From, bytes: usize) {
        self.landing = self.landing.saturating_sub(bytes);
        let target = match from {
            From::Entity(target) => target,
            From::Requests | From::Nothing => Target::Top,
        };
        self.machine.consumed(target, wide(bytes));
    }

    fn acknowledge_if_kept(&mut self, target: Target) {
        if self.open.leave_if_kept(target) {
            // It was closed, and is acknowledged once.
            let _ = self.machine.acknowledge_close(target);
        }
    }

    /// Nothing new is begun; everything open comes to its end.
    pub fn retire(&mut self) {
        // Both may have been ended before.
        let _ = self.machine.close(Target::Top, Bytes::new());
        let _ = self.machine.cancel(Target::Top, Bytes::new());
    }

    /// Takes the machine's events; returns whether there were any.
    fn take(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            self.told(event);
        }
        any
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::Opened { kind, id, payload } => self.opened(kind, id, &payload),
            Event::Message { target, payload } => self.message(target, payload),
            Event::Request { id, payload } => self.requested(id, payload),
            Event::Closed { target, payload } => self.closed(target, &payload),
            Event::Cancelled { payload, .. } | Event::RequestCancelled { payload, .. } => {
                self.passed(&payload);
            }
            _ => {}
        }
    }

    /// Counts a payload that came on the top-level, and is not kept, as consumed.
    fn passed(&mut self, payload: &Payload) {
        self.machine.consumed(Target::Top, wide(payload.bytes()));
    }

    fn opened(&mut self, kind: EntityKind, id: u32, opening: &Payload) {
        self.passed(opening);
        let target = Target::Peer(id);
        if kind.is_written(false) {
            // It was opened just now.
            let _ = self
                .machine
                .close(target, Bytes::from_static(ONLY_RECEIVES));
        }
        let name = self.open.names.next(id);
        if !kind.is_read(false) {
            return;
        }
        let (bytes, limit) = (opening.bytes(), self.max_opening_bytes);
        if bytes <= limit {
            let source = Source::new(kind.name(), Some(name), opening);
            return self.open.enter(target, source);
        }
        let why = format!(
            "an opening of {bytes} bytes is above {limit}, which this receiver takes ({MAX_OPENING})"
        );
        self.refuse(target, why);
        let source = Source::new(kind.name(), Some(name), &Payload::default());
        self.note(source, Note::OpeningTooLarge { bytes, limit });
    }

    /// The peer is told why as long as it gives credit for that; it is told that it is refused in any case.
    fn refuse(&mut self, target: Target, why: String) {
        let credit = self.machine.credit(Target::Top).unwrap_or_default();
        let why = if wide(why.len()) > credit {
            Bytes::new()
        } else {
            Bytes::from(why)
        };
        // It was opened just now; should it be closed already, that is not acknowledged.
        let _ = self.machine.cancel(target, why);
    }

    fn message(&mut self, target: Target, payload: Payload) {
        let Some(place) = self.open.get(target) else {
            // It was refused.
            return self.machine.consumed(target, wide(payload.bytes()));
        };
        let first = place.messages;
        place.messages = place.messages.saturating_add(1);
        let source = Arc::clone(&place.source);
        if self.arrived((From::Entity(target), source), (first, payload), None)
            && let Some(place) = self.open.get(target)
        {
            place.unsettled = place.unsettled.saturating_add(1);
        }
    }

    fn requested(&mut self, id: u32, payload: Payload) {
        let number = self.requests.messages;
        self.requests.messages = number.saturating_add(1);
        self.asking.insert(id, number);
        let source = Arc::clone(&self.requests.source);
        self.arrived((From::Requests, source), (number, payload), Some(id));
    }

    /// A payload becomes part of a run; whether that is a new one.
    fn arrived(
        &mut self,
        (from, source): (From, Arc<Source>),
        (number, payload): (u64, Payload),
        request: Option<u32>,
    ) -> bool {
        let bytes = payload.bytes();
        self.runs.charge(1, bytes);
        self.landing = self.landing.saturating_add(bytes);
        self.finished = self.finished.saturating_add(1);
        let request = request.map(|id| (id, number));
        if let Some(run) = self.runs.last(&from) {
            run.payloads.push(payload);
            run.bytes = run.bytes.saturating_add(bytes);
            run.requests.extend(request);
            return false;
        }
        self.runs.push(Run {
            token: 0,
            source,
            first: number,
            payloads: vec![payload],
            bytes,
            note: None,
            from,
            requests: request.into_iter().collect(),
        });
        true
    }

    fn note(&mut self, source: Arc<Source>, note: Note) {
        self.runs.push(Run {
            token: 0,
            source,
            first: 0,
            payloads: Vec::new(),
            bytes: 0,
            note: Some(note),
            from: From::Nothing,
            requests: Vec::new(),
        });
    }

    fn closed(&mut self, target: Target, payload: &Payload) {
        self.passed(payload);
        if target == Target::Top {
            // This end has nothing more to say either.
            let _ = self.machine.close(Target::Top, Bytes::new());
            return;
        }
        let Some(place) = self.open.get(target) else {
            // It was refused: the peer has the cancel before this.
            let _ = self.machine.acknowledge_close(target);
            return;
        };
        let received = place.messages;
        let reason = payload.to_bytes();
        match count_of(&reason) {
            Some(announced) if announced.parse() != Ok(received) => {
                let stream = place.source.stream.clone().unwrap_or_default();
                return self.fail(IntakeKind::CountDiffers {
                    stream,
                    announced: shown(announced),
                    received,
                });
            }
            None if !reason.is_empty() => {
                let bytes = reason.len();
                let begin = reason.slice(..bytes.min(REASON_BYTES));
                let source = Arc::clone(&place.source);
                self.note(source, Note::ClosedWith { begin, bytes });
            }
            _ => {}
        }
        if let Some(place) = self.open.get(target) {
            place.is_closed = true;
        }
        self.acknowledge_if_kept(target);
    }

    fn fail(&mut self, kind: IntakeKind) {
        let offset = self.offset;
        self.fault.get_or_insert(ProtocolError { kind, offset });
    }

    /// Bytes that only more input, or the peer's ends, will let go.
    fn incomplete(&self) -> usize {
        self.machine.held_bytes().saturating_add(self.open.cost())
    }

    /// If one connection has begun more than the memory can take, that connection could wait for ever.
    fn check(&mut self) -> Result<(), ProtocolError<IntakeKind>> {
        let (value, limit) = (wide(self.incomplete()), wide(self.most_incomplete));
        if value > limit {
            self.fail(Kind::too_much_begun(value, limit).into());
        }
        self.fault.clone().map_or(Ok(()), Err)
    }
}

/// A number of messages: decimal digits and nothing else.
fn count_of(payload: &[u8]) -> Option<&str> {
    let is_count = !payload.is_empty() && payload.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(payload).ok().filter(|_| is_count)
}

/// A count as a line has it.
fn shown(count: &str) -> Arc<str> {
    match count.get(..COUNT_DIGITS) {
        Some(begin) if begin.len() < count.len() => format!("{begin}…").into(),
        _ => count.into(),
    }
}

impl Landable for Intake {
    fn settle(&mut self, _: Instant, token: u64) -> bool {
        let Some(run) = self.runs.settle(token) else {
            return false;
        };
        self.let_go(run.from, run.bytes);
        if self.fault.is_some() || self.machine.lifecycle() == Lifecycle::Closed {
            return false;
        }
        for (id, number) in run.requests {
            // The peer may have given it up, and used its id again: then it is the number of another.
            if self.asking.get(&id) == Some(&number) {
                self.asking.remove(&id);
                let _ = self.machine.respond(id, Bytes::new());
            }
        }
        if let From::Entity(target) = run.from {
            if let Some(place) = self.open.get(target) {
                place.unsettled = place.unsettled.saturating_sub(1);
            }
            self.acknowledge_if_kept(target);
        }
        true
    }

    fn landed(&mut self, _: Instant, token: u64) {
        if let Some(run) = self.runs.landed(token) {
            let (from, bytes) = (run.from, std::mem::take(&mut run.bytes));
            self.let_go(from, bytes);
        }
    }

    fn stop(&mut self, _: Instant) {
        self.is_stopping = true;
    }

    fn unsettled(&self) -> usize {
        self.runs.unsettled()
    }
}

impl Connection for Intake {
    type Event = Run;
    type Kind = IntakeKind;

    fn receive(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
    ) -> Result<Need, ProtocolError<IntakeKind>> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if self.is_stopping {
            // It was not received, and nobody is told that it was.
            input.clear();
            return Ok(Need::Input { at_least: 1 });
        }
        loop {
            if self.runs.is_full() {
                return Ok(Need::Room);
            }
            let before = input.len();
            let need = self.machine.receive(now, input);
            let taken = before.saturating_sub(input.len());
            self.offset = self.offset.saturating_add(wide(taken));
            let took = self.take();
            self.check()?;
            match need {
                Ok(Need::Room) if took => {}
                need => return need.map_err(in_our_words),
            }
        }
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<IntakeKind>> {
        let ended = self.machine.receive_eof(now);
        self.take();
        ended.map_err(in_our_words)
    }

    fn poll_event(&mut self) -> Option<Run> {
        let (token, mut run) = self.runs.take(|run| Waiting {
            from: run.from,
            bytes: run.bytes,
            requests: std::mem::take(&mut run.requests),
        })?;
        run.token = token;
        Some(run)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.machine.poll_transmit(now, out);
        self.take();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A peer that is not listened to is not silent.
        self.machine.poll_timeout().filter(|_| !self.is_stopping)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<IntakeKind>> {
        if self.is_stopping {
            return Ok(());
        }
        self.machine.handle_timeout(now).map_err(in_our_words)
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        if self.fault.is_some() {
            return Lifecycle::Closed;
        }
        match self.machine.lifecycle() {
            Lifecycle::Open if self.is_stopping && self.unsettled() == 0 => Lifecycle::Draining,
            other => other,
        }
    }

    fn held_bytes(&self) -> usize {
        self.incomplete()
            .saturating_add(self.complete_bytes())
            .saturating_add(self.machine.owed_bytes())
    }

    fn coming_bytes(&self) -> usize {
        self.machine.held_bytes()
    }

    fn finished(&self) -> u64 {
        self.finished
    }

    fn complete_bytes(&self) -> usize {
        self.landing.saturating_add(self.runs.extra())
    }

    fn step_bytes(&self) -> usize {
        self.machine.step_bytes()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.machine.stall_timeouts()
    }
}

fn in_our_words(error: ProtocolError<Kind>) -> ProtocolError<IntakeKind> {
    ProtocolError {
        kind: error.kind.into(),
        offset: error.offset,
    }
}

/// The payload that closes a half that a receiver could write.
const ONLY_RECEIVES: &[u8] = b"this receiver only receives";
/// The name of the stream that a receiver opens itself: ids of its own are not the peer's.
const OWN_STREAM: &str = "own.0";
/// The option that limits the payload of an opening.
pub const MAX_OPENING: &str = "--max-opening-bytes";
/// Bytes of a close's payload that are told.
const REASON_BYTES: usize = 256;
/// Digits of a close's count that are told.
const COUNT_DIGITS: usize = 32;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test needs some instant
mod tests;
