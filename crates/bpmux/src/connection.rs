//! One end of a connection: checks which payloads each end may send, and joins the parts that own
//! the state.
//!
//! * [`Tables`](tables::Tables) hold the entities with their halves, the requests and the payloads in parts, by id.
//! * [`Intake`](intake::Intake) is the place in the input, [`EventQueue`](events::EventQueue) the events to be taken.
//! * [`Budget`](budget::Budget) grants automatic credit, for windows (`window.rs`) that tune themselves (`autotune.rs`).
//! * [`ControlQueue`](control::ControlQueue) holds the chunks that go first, [`Jobs`](jobs::Jobs) the payloads that wait
//!   for top-level credit; writers and jobs send in turns (`turns.rs`).

mod assembly;
mod autotune;
mod budget;
mod calls;
mod complete;
mod control;
mod counts;
mod credit;
mod entities;
mod entity;
mod event;
mod events;
mod ids;
mod intake;
mod jobs;
mod judge;
mod outgoing;
mod receive;
mod requests;
mod send;
mod tables;
mod timers;
mod turns;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ackline_core::{
    Connection as Contract, Lifecycle, Need, ProtocolError, Quota, SendQueue, StallTimeouts,
};
use bytes::{Bytes, BytesMut};

use crate::chunk::{Head, PayloadRole};
use crate::{Config, Kind, Subject, Target};
use budget::Budget;
use control::ControlQueue;
pub use counts::Counts;
pub use event::{Event, Stats};
use events::EventQueue;
use intake::Intake;
use jobs::Jobs;
pub use outgoing::Waiting;
use tables::Tables;
pub use tables::{ENTITY_BYTES, FREE_BYTES, REQUEST_BYTES};
use timers::Silence;
use turns::Turn;

/// One end of a connection. Both ends are equal.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    phase: Phase,
    tables: Tables,
    intake: Intake,
    events: EventQueue,
    budget: Budget,
    control: ControlQueue,
    jobs: Jobs,
    /// Senders that can go on, in the order of their turns; some may be gone.
    ready: VecDeque<Turn>,
    /// Bytes that chunks caused to be sent before the next chunk was looked at (R-BPMUX-V14).
    staged: SendQueue,
    silence: Silence,
    stats: Stats,
}

/// The phases of a connection.
///
/// ```text
///   Open ──────► Finished ──────► PeerEnded      Open can become PeerEnded too,
///     │             │                 │
///     └─────────────┴─────────────────┴────► Failed, which stays.
/// ```
#[derive(Debug)]
enum Phase {
    Open,
    /// Both directions of the top-level have ended in order (R-BPMUX-V17).
    Finished,
    /// The end of the peer's bytes came: nothing more is sent.
    PeerEnded,
    Failed(ProtocolError<Kind>),
}

impl Phase {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    const fn fault(&self) -> Option<&ProtocolError<Kind>> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), ProtocolError<Kind>> {
        self.fault().cloned().map_or(Ok(()), Err)
    }
}

impl Connection {
    /// Begins a connection.
    pub fn new(now: Instant, mut config: Config) -> Self {
        config.chunk_size = config.chunk_size.max(1);
        let mut connection = Self {
            phase: Phase::Open,
            tables: Tables::default(),
            intake: Intake::default(),
            events: EventQueue::default(),
            budget: Budget::new(&config),
            control: ControlQueue::default(),
            jobs: Jobs::default(),
            ready: VecDeque::new(),
            staged: SendQueue::new(),
            silence: Silence::new(now),
            stats: Stats::default(),
            config,
        };
        connection.open_window(Target::Top);
        connection
    }

    /// Returns the settings of this end.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the figures of the connection.
    pub fn stats(&self) -> Stats {
        let (entities, requests) = (&self.tables.entities, &self.tables.requests);
        Stats {
            bytes_received: self.intake.payload_bytes(),
            own_entities: entities.own.len(),
            peer_entities: entities.peer.len(),
            own_requests: requests.own.len(),
            peer_requests: requests.peer.len(),
            top_level_credit: entities.top_writer.credit.unused(),
            window_bytes: self.budget.used(),
            ..self.stats
        }
    }

    /// Returns the fault of the peer, once it has broken a rule or a limit.
    pub const fn fault(&self) -> Option<&ProtocolError<Kind>> {
        self.phase.fault()
    }

    /// Whether it is not over: its id is not free. The top-level always exists.
    pub fn exists(&self, subject: Subject) -> bool {
        self.tables.exists(subject)
    }

    /// Charges the peer's open entities and requests to the memory that all connections may keep: above [`FREE_BYTES`],
    /// with [`ENTITY_BYTES`] and [`REQUEST_BYTES`]. One more without room is `limit_exceeded`.
    pub fn share(&mut self, quota: Arc<Quota>) {
        self.tables.share(quota);
    }

    /// Ends the connection: the driver has no room for more entities or requests of the peer.
    pub fn refuse(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let offset = self.intake.offset();
        self.fail(kind, offset)
    }

    /// Forgets an entity whose halves are over: its id is free (R-BPM-13).
    fn forget_if_over(&mut self, target: Target) {
        if self.tables.entities.is_over(target) {
            self.forget(target);
            self.finish();
        }
    }

    fn forget(&mut self, target: Target) {
        let Some(entity) = self.tables.entities.remove(target) else {
            return;
        };
        self.tables.keep_less();
        if let Some(message) = entity.reader.and_then(|reader| reader.message) {
            self.drop_assembly(target, &message);
        }
        self.void(PayloadRole::Cancel(target));
        self.void(PayloadRole::Close(target));
    }

    /// An own request is over, and its id free.
    fn forget_own_request(&mut self, id: u32) {
        self.tables.requests.forget_own(id);
        self.void(PayloadRole::Response(id));
        self.void(PayloadRole::CloseResponse(id));
    }

    /// A request of the peer is over.
    fn forget_peer_request(&mut self, id: u32) {
        self.tables.requests.forget_peer(id);
        self.tables.keep_less();
        self.void(PayloadRole::Request(id));
    }

    /// Finishes the connection if both directions of the top-level are over and nothing is open (R-BPM-28,
    /// R-BPMUX-V10).
    fn finish(&mut self) {
        let is_over = self.tables.entities.top_has_ended() && !self.tables.keep_open();
        if !self.phase.is_open() || !is_over {
            return;
        }
        self.phase = Phase::Finished;
        for id in self.tables.requests.own_ids() {
            self.drop_job(PayloadRole::CancelRequest(id));
            self.forget_own_request(id);
            self.events.push(Event::RequestCancelAcknowledged { id });
        }
        // The peer's close came inside of it; no more credit for it comes.
        self.drop_job(PayloadRole::Cancel(Target::Top));
        self.drop_partials();
    }

    /// Drops all that has come in part: nothing more is received.
    fn drop_partials(&mut self) {
        self.intake.clear();
        self.tables.drop_partials();
        self.budget.clear();
    }

    /// Drops all that waits to be sent, but for the staged bytes.
    fn drop_waiting(&mut self) {
        self.control.clear();
        self.ready = VecDeque::new();
        self.jobs.clear();
        self.tables.entities.drop_waiting();
        self.stats.waiting_bytes = 0;
    }

    /// Ends the connection without a word to the peer: nothing is closed or cancelled (REQ-BPMUX-6).
    fn fail(&mut self, kind: Kind, offset: u64) -> ProtocolError<Kind> {
        // Chunks that earlier chunks have caused still go (R-BPMUX-V14), nothing else.
        let mut staged = std::mem::take(&mut self.staged);
        self.encode(&mut staged);
        self.staged = staged;
        self.drop_waiting();
        self.drop_partials();
        let error = ProtocolError { kind, offset };
        self.phase = Phase::Failed(error.clone());
        error
    }
}

impl Contract for Connection {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.phase.check()?;
        self.silence.input(now, input.len());
        let need = self.take_input(input);
        let is_inside_a_chunk = self.intake.is_inside_a_chunk(input);
        self.silence.taken(input.len(), is_inside_a_chunk);
        need
    }

    fn receive_eof(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.drop_waiting();
        self.drop_partials();
        self.phase.check()?;
        self.phase = Phase::PeerEnded;
        Ok(())
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        out.append(&mut self.staged);
        if self.phase.fault().is_none() {
            if self.silence.take_ping(now) {
                let (pong, target) = (false, Target::Top);
                self.control.push(Head::Heartbeat { pong, target });
            }
            self.encode(out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.phase.is_open() {
            return self.silence.next(&self.config);
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.phase.check()?;
        if !self.phase.is_open() {
            return Ok(());
        }
        let fired = self.silence.fire(now, &self.config);
        fired.map_err(|option| self.refuse(Kind::Timeout { option }))
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.silence.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.phase {
            Phase::Open => Lifecycle::Open,
            Phase::Finished => Lifecycle::Draining,
            Phase::PeerEnded | Phase::Failed(_) => Lifecycle::Closed,
        }
    }

    fn held_bytes(&self) -> usize {
        self.intake.held().saturating_add(self.events.bytes())
    }

    fn step_bytes(&self) -> usize {
        self.control.step_bytes()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts::of_pings(self.config.ping_after, self.config.pong_timeout)
    }
}

/// Returns the number of bytes of a payload that is to be sent.
fn wide(bytes: &Bytes) -> u64 {
    count(bytes.len())
}

pub(crate) fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
