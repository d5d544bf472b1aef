//! The machine of a connection whose messages are landed: messages come out as runs, and a message is acknowledged when its
//! run, and those of all messages before it, are safe.
//!
//! ```text
//! message ──► run ─► block ─► landed: its memory is let go ─► kept: settled
//! settled, as are all messages before it ──► acknowledged, as soon as the peer takes bytes
//! the peer's end of its direction ──► the last acknowledgement ──► our end
//! ```
//!
//! It decides which messages make a run, which messages are acknowledged, and when the connection ends in order. As a server
//! it takes messages to any destination; as a client it subscribes to a topic when the handshake has ended. It sends no
//! messages.

mod destinations;
mod run;
mod unacknowledged;

use std::mem::take;
use std::sync::Arc;
use std::time::Instant;

use ackline_core::{
    Connection as _, Landable, Lifecycle, LimitHit, Need, ProtocolError, Quota, Runs, SendQueue,
    StallTimeouts,
};
use bytes::BytesMut;

use destinations::Destinations;
pub use run::{From, Kept, Note, Run, Source};
use unacknowledged::Unacknowledged;

use crate::text::Extension;
use crate::{AckPolicy, Config, Connection, Event, Kind, Message, ReceiveOptions, Role, Terms};

/// The memory that a connection may take.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Bytes that one connection can always get.
    pub largest: u64,
    /// The quota that the names of destinations are charged to.
    pub quota: Arc<Quota>,
}

/// A topic of the peer that is subscribed to.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The filter, as text that can be read.
    pub filter: Option<String>,
}

/// The configuration of an intake.
#[derive(Debug, Clone)]
pub struct IntakeConfig {
    machine: Config,
    /// The subscription of a client; a server has none.
    subscription: Option<Subscription>,
    max_type_bytes: usize,
    quota: Arc<Quota>,
}

impl IntakeConfig {
    /// Connections that a receiver accepts: the peers send messages.
    pub fn server(options: &ReceiveOptions, memory: Memory) -> Self {
        Self::new(options, memory, None)
    }

    /// Connections that a receiver makes, each with this subscription.
    pub fn client(options: &ReceiveOptions, memory: Memory, subscription: Subscription) -> Self {
        Self::new(options, memory, Some(subscription))
    }

    fn new(options: &ReceiveOptions, memory: Memory, subscription: Option<Subscription>) -> Self {
        let batch_ack = Extension {
            name: "batch-ack".to_owned(),
            properties: vec![("max-count".to_owned(), options.window.to_string())],
        };
        let pub_sub = Extension {
            name: "pub-sub".to_owned(),
            properties: Vec::new(),
        };
        let mut machine = Config {
            ack_policy: AckPolicy::Manual,
            ack_timer: None,
            terms: Terms {
                required: subscription.iter().map(|_| pub_sub.clone()).collect(),
                optional: vec![batch_ack],
                supported: SUPPORTED.map(str::to_owned).to_vec(),
                ..Terms::default()
            },
            ..options.link.clone()
        };
        machine.limit_incomplete(memory.largest);
        Self {
            machine,
            subscription,
            max_type_bytes: options.max_type_bytes,
            quota: memory.quota,
        }
    }

    const fn role(&self) -> Role {
        match self.subscription {
            Some(_) => Role::Client,
            None => Role::Server,
        }
    }
}

/// A run that was handed out and is not settled.
#[derive(Debug)]
struct Waiting {
    number: u64,
    stretches: usize,
    /// Bytes that are held for its messages, until it has landed.
    held: usize,
}

/// A connection's machine whose messages are landed.
#[derive(Debug)]
pub struct Intake {
    machine: Connection,
    config: IntakeConfig,
    peer: Peer,
    destinations: Destinations,
    /// Runs that are not settled.
    runs: Runs<Run, Waiting>,
    /// Runs so far: the number of the next one.
    begun: u64,
    unacknowledged: Unacknowledged,
    /// The message up to which all are settled and the peer is still to be told. It is told when it takes bytes: until then
    /// these messages stay in the window.
    settled: Option<u16>,
    /// Bytes of runs that have not landed.
    landing: usize,
    offset: u64,
    fault: Option<ProtocolError<Kind>>,
    ending: Ending,
}

/// The facts about the peer.
#[derive(Debug, Default)]
struct Peer {
    /// The name that it gives itself.
    identity: Arc<str>,
    /// A frame of it that means nothing to a receiver was told of.
    has_ignored: bool,
}

/// The way to the end of a connection.
#[derive(Debug, Default)]
struct Ending {
    /// The whole frames that had come when the connection was retired: one more may come.
    retired_at: Option<u64>,
    /// Bytes of input that were not taken.
    left: usize,
    /// No input is taken any more.
    is_stopping: bool,
    /// The peer has ended its direction, and may still read.
    is_half_open: bool,
    /// Acknowledgements are too late.
    has_hung_up: bool,
}

impl Intake {
    /// Begins a connection. A client sends its handshake at once.
    pub fn new(now: Instant, config: IntakeConfig) -> Self {
        let mut machine = Connection::new(now, config.role(), config.machine.clone());
        // It was made just now, and its lists are short.
        let _ = machine.connect(now);
        Self {
            machine,
            destinations: Destinations::new(Arc::clone(&config.quota)),
            config,
            peer: Peer::default(),
            runs: Runs::default(),
            begun: 0,
            unacknowledged: Unacknowledged::default(),
            settled: None,
            landing: 0,
            offset: 0,
            fault: None,
            ending: Ending::default(),
        }
    }

    /// Ends the connection as [`Landable::stop`] does, once a message that has begun to come is complete.
    pub fn retire(&mut self) {
        self.ending.retired_at = Some(self.machine.finished());
        self.stop_between_messages();
    }

    /// After it is retired: takes no more input if no message is incomplete, or one was completed since.
    fn stop_between_messages(&mut self) {
        let Some(finished) = self.ending.retired_at else {
            return;
        };
        let is_between = self.machine.coming_bytes() == 0;
        if is_between && (self.ending.left == 0 || self.machine.finished() > finished) {
            self.take_no_more();
        }
    }

    fn take_no_more(&mut self) {
        self.ending.is_stopping = true;
        self.close_if_settled();
    }

    fn close_if_settled(&mut self) {
        if self.ending.is_stopping && self.runs.unsettled() == 0 {
            self.send_acknowledgement();
            // It may have ended before.
            let _ = self.machine.close();
        }
    }

    /// Takes the machine's events; returns whether there were any.
    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            match event {
                Event::Connected(connected) => self.connected(&connected.identity),
                Event::Message(message) => self.message(&message),
                Event::Command(command) => self.ignored(&command.name),
                Event::Extension { name, .. } => self.ignored(&name),
                Event::Subscribe(_) => self.ignored("subscribe"),
                Event::Unsubscribe { .. } => self.ignored("unsubscribe"),
                Event::Error { message } => {
                    let error = beginning_of(&message);
                    self.note(Note::Failed { error });
                }
                // The intake answers by itself.
                Event::Acknowledged { .. } | Event::Proposed(_) => {}
            }
        }
        any
    }

    fn connected(&mut self, identity: &str) {
        self.peer.identity = Arc::from(identity);
        if !self.has_acks() {
            self.note(Note::NoAcks);
        }
        if let Some(Subscription { topic, filter }) = &self.config.subscription {
            // The extension is required, and the filter was read before.
            let _ = self.machine.subscribe(topic, filter.as_deref());
        }
    }

    fn has_acks(&self) -> bool {
        ["ack", "batch-ack"]
            .iter()
            .any(|name| self.machine.has_extension(name))
    }

    fn ignored(&mut self, name: &str) {
        if !std::mem::replace(&mut self.peer.has_ignored, true) {
            let name = beginning_of(name);
            self.note(Note::Ignored { name });
        }
    }

    fn note(&mut self, note: Note) {
        let source = Source::new(&Arc::from(""), None, &self.peer.identity);
        self.begin_run(Run {
            note: Some(note),
            is_acknowledged: false,
            ..Run::begin(From::Note, source, 0)
        });
    }

    fn begin_run(&mut self, run: Run) {
        let (number, held) = (self.begun, run.held);
        self.begun = number.saturating_add(1);
        self.runs.push(Run { number, ..run });
        self.runs.charge(0, held);
        self.landing = self.landing.saturating_add(held);
    }

    /// A message becomes part of the last run of its destination, or begins one.
    fn message(&mut self, message: &Message) {
        let entered = self.destinations.enter(message, &self.peer.identity);
        let (from, source, first) = match entered {
            Ok(entered) => entered,
            Err(hit) => return self.fail(Kind::Limit(hit)),
        };
        let is_same = |run: &mut Run| Arc::ptr_eq(&run.source, &source);
        if !self.runs.last(&from).is_some_and(is_same) {
            let is_acknowledged = self.has_acks();
            self.begin_run(Run {
                is_acknowledged,
                ..Run::begin(from.clone(), source, first)
            });
        }
        let Some(run) = self.runs.last(&from) else {
            return;
        };
        let begins = run.is_acknowledged
            && self
                .unacknowledged
                .push(run.number, message.sequence_number);
        let held = run.push(Kept::of(message), begins);
        self.runs.charge(1, held);
        self.landing = self.landing.saturating_add(held);
    }

    fn fail(&mut self, kind: Kind) {
        if self.fault.is_none() {
            self.send_acknowledgement();
            let _ = self.machine.fail(&kind.to_string());
            let offset = self.offset;
            self.fault = Some(ProtocolError { kind, offset });
        }
    }
}

impl Intake {
    /// Bytes of messages are held no longer.
    fn let_go(&mut self, held: usize) {
        self.landing = self.landing.saturating_sub(held);
    }

    /// A run is settled: everything that is settled now, with nothing unsettled before it, is to be acknowledged. Returns
    /// whether the peer can be told.
    fn acknowledge(&mut self, run: u64, stretches: usize) -> bool {
        let through = self.unacknowledged.settle(run, stretches);
        let is_over = self.fault.is_some() || self.ending.has_hung_up;
        if is_over || !(self.machine.is_running() || self.ending.is_half_open) {
            return false;
        }
        self.settled = through.or(self.settled);
        true
    }

    fn send_acknowledgement(&mut self) {
        if let Some(through) = self.settled.take() {
            // It was delivered and is not acknowledged, but the connection may have ended.
            let _ = self.machine.ack_late(through);
        }
    }

    /// Ends a connection whose .NET type is longer than it may be.
    fn check(&mut self) -> Result<(), ProtocolError<Kind>> {
        let named = self.machine.peer_type().map_or(0, str::len);
        let most = self.config.max_type_bytes;
        if named > most {
            self.fail(Kind::Limit(LimitHit {
                value: wide(named),
                limit: wide(most),
                option: "--max-type-bytes",
            }));
        }
        self.fault.clone().map_or(Ok(()), Err)
    }
}

impl Landable for Intake {
    fn settle(&mut self, _: Instant, token: u64) -> bool {
        let Some(run) = self.runs.settle(token) else {
            return false;
        };
        self.let_go(run.held);
        let is_told = self.acknowledge(run.number, run.stretches);
        self.close_if_settled();
        is_told
    }

    fn landed(&mut self, _: Instant, token: u64) {
        if let Some(run) = self.runs.landed(token) {
            let held = take(&mut run.held);
            self.let_go(held);
        }
    }

    fn stop(&mut self, _: Instant) {
        self.take_no_more();
    }

    fn unsettled(&self) -> usize {
        self.runs.unsettled()
    }
}

impl ackline_core::Connection for Intake {
    type Event = Run;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        let need = self.take_input(now, input);
        self.ending.left = input.len();
        need
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let was_running = self.machine.is_running();
        let ended = self.machine.receive_eof(now);
        self.take_events();
        self.ending.is_half_open = was_running;
        self.fault.clone().map_or(ended, Err)
    }

    fn poll_event(&mut self) -> Option<Run> {
        let (token, mut run) = self.runs.take(|run| Waiting {
            number: run.number,
            stretches: run.stretches,
            held: run.held,
        })?;
        run.token = token;
        Some(run)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        if out.room() > 0 {
            self.send_acknowledgement();
        }
        self.machine.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A peer that is not listened to is not silent.
        let timeout = self.machine.poll_timeout();
        timeout.filter(|_| !self.ending.is_stopping)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        if self.ending.is_stopping {
            return Ok(());
        }
        let handled = self.machine.handle_timeout(now);
        self.fault.clone().map_or(handled, Err)
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        if self.fault.is_some() || self.owes_answers() {
            return Lifecycle::Closed;
        }
        self.machine.lifecycle()
    }

    fn held_bytes(&self) -> usize {
        let own = self.landing.saturating_add(self.runs.extra());
        let own = own.saturating_add(self.unacknowledged.held_bytes());
        self.machine.held_bytes().saturating_add(own)
    }

    fn complete_bytes(&self) -> usize {
        let own = self.landing.saturating_add(self.runs.extra());
        let own = own.saturating_add(self.unacknowledged.held_bytes());
        self.machine.complete_bytes().saturating_add(own)
    }

    fn coming_bytes(&self) -> usize {
        self.machine.coming_bytes()
    }

    fn finished(&self) -> u64 {
        self.machine.finished()
    }

    fn step_bytes(&self) -> usize {
        self.machine.step_bytes()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.machine.stall_timeouts()
    }

    /// After the peer's end: messages that came before it are not acknowledged yet.
    fn owes_answers(&self) -> bool {
        let is_owed = !self.unacknowledged.is_empty() || self.settled.is_some();
        let is_late = self.ending.has_hung_up || self.fault.is_some();
        self.ending.is_half_open && is_owed && !is_late
    }

    fn hang_up(&mut self) {
        self.ending.has_hung_up = true;
    }

    fn detached(&mut self, now: Instant) -> bool {
        self.ending.is_half_open = false;
        let goes_on = self.machine.detached(now);
        self.take_events();
        goes_on
    }
}

impl Intake {
    fn take_input(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
    ) -> Result<Need, ProtocolError<Kind>> {
        loop {
            if let Some(fault) = &self.fault {
                return Err(fault.clone());
            }
            if self.ending.is_stopping {
                // It was not received, and nobody is told that it was.
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            if self.runs.is_full() {
                return Ok(Need::Room);
            }
            let before = input.len();
            let need = self.machine.receive(now, input);
            let taken = before.saturating_sub(input.len());
            self.offset = self.offset.saturating_add(wide(taken));
            self.ending.left = input.len();
            let took = self.take_events();
            self.check()?;
            self.stop_between_messages();
            match need {
                Ok(Need::Room) if took => {}
                Ok(_) if self.ending.is_stopping => {}
                need => return need,
            }
        }
    }
}

/// The beginning of a text.
fn beginning_of(text: &str) -> Arc<str> {
    if text.len() <= TEXT_BYTES {
        return text.into();
    }
    let mut end = TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let begin = text.get(..end).unwrap_or_default();
    format!("{begin}…").into()
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The extensions that a receiver has beside the one that it suggests. Those but `ack` only say what payloads are.
const SUPPORTED: [&str; 5] = ["ack", "json", "xml", "protobuf", "dotnet"];
/// Bytes of a text of the peer that are told.
const TEXT_BYTES: usize = 1_024;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects)] // a test may fail
#[allow(clippy::disallowed_methods)] // a test needs some instant
mod tests;
