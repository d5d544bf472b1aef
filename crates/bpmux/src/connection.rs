//! One end of a connection: who may send what, and what follows from what came.
//!
//! Entities by id stand in two tables, by who opened them; an entity has the halves that this end writes and
//! reads (`entity.rs`), and the top-level is one that is always there. What costs top-level credit and cannot
//! go at once waits as a job (`outbox.rs`); what comes in parts is put together in `assembly.rs`.

mod assembly;
mod calls;
mod complete;
mod entity;
mod event;
mod outbox;
mod receive;
mod timers;
mod window;

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use ackline_core::{Connection as Contract, Lifecycle, Need, ProtocolError, SendQueue, Timing};
use bytes::{Bytes, BytesMut};

use crate::chunk::Carrier;
use crate::{Config, Kind, Subject, Target};
use assembly::Assembly;
use entity::{Asked, Asking, Entity, Reader, Standing, Writer};
pub use event::{Event, Stats};
use outbox::{Outgoing, Queued};
use receive::Incoming;
use timers::Pinging;
use window::Budget;

/// One end of a connection. Both ends are equal.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    top_writer: Writer,
    top_reader: Reader,
    /// Opened by this end.
    own: HashMap<u32, Entity>,
    /// Opened by the peer.
    peer: HashMap<u32, Entity>,
    /// Requests of this end.
    asked: HashMap<u32, Asked>,
    /// Requests of the peer's.
    asking: HashMap<u32, Asking>,
    ids: Ids,
    /// What comes in parts, but for messages.
    partials: HashMap<Carrier, Assembly>,
    /// The total that the next chunk's payload belongs to.
    activation: Option<u64>,
    incoming: Option<Incoming>,
    /// What waits for top-level credit, but for messages.
    jobs: HashMap<Carrier, Outgoing>,
    /// The jobs in the order of their turns; some may be gone.
    turns: VecDeque<Carrier>,
    /// Jobs that open something or request something.
    openings: usize,
    /// What goes before all payloads that wait.
    lane: VecDeque<Queued>,
    /// Readers with credit to announce; some may be gone.
    granted: VecDeque<Target>,
    /// Writers that can go on; some may be gone.
    ready: VecDeque<Target>,
    jobs_next: bool,
    /// What chunks caused to be sent before the next one was looked at (R-BPMUX-V14).
    staged: SendQueue,
    events: VecDeque<Event>,
    held: usize,
    budget: Budget,
    /// Complete entities and requests of the peer's.
    peer_open: usize,
    timing: Timing,
    pinging: Pinging,
    offset: u64,
    fault: Option<ProtocolError<Kind>>,
    /// The peer's end came.
    ended: bool,
    finished: bool,
    stats: Stats,
}

/// Where the next own ids are looked for.
#[derive(Debug, Default)]
struct Ids {
    entity: u32,
    free_entities: Vec<u32>,
    request: u32,
    free_requests: Vec<u32>,
}

impl Connection {
    /// An end at the start of a connection.
    pub fn new(now: Instant, config: Config) -> Self {
        let mut connection = Self {
            top_writer: Writer::default(),
            top_reader: Reader::default(),
            own: HashMap::new(),
            peer: HashMap::new(),
            asked: HashMap::new(),
            asking: HashMap::new(),
            ids: Ids::default(),
            partials: HashMap::new(),
            activation: None,
            incoming: None,
            jobs: HashMap::new(),
            turns: VecDeque::new(),
            openings: 0,
            lane: VecDeque::new(),
            granted: VecDeque::new(),
            ready: VecDeque::new(),
            jobs_next: false,
            staged: SendQueue::new(),
            events: VecDeque::new(),
            held: 0,
            budget: Budget::default(),
            peer_open: 0,
            timing: Timing::new(now),
            pinging: Pinging::default(),
            offset: 0,
            fault: None,
            ended: false,
            finished: false,
            stats: Stats::default(),
            config,
        };
        connection.open_window(Target::Top);
        connection
    }

    /// What this end was told.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What has passed, and what is there.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.own_entities = self.own.len();
        stats.peer_entities = self.peer.len();
        stats.own_requests = self.asked.len();
        stats.peer_requests = self.asking.len();
        stats.top_level_credit = self.top_writer.credit;
        stats.window_bytes = self.budget.used();
        stats
    }

    /// Whether it is not over: its id is not free. The top-level always is.
    pub fn exists(&self, subject: Subject) -> bool {
        match subject {
            Subject::Entity(Target::Top) => true,
            Subject::Entity(target) => self.entity(target).is_some(),
            Subject::OwnRequest(id) => self.asked.contains_key(&id),
            Subject::PeerRequest(id) => self.asking.contains_key(&id),
        }
    }

    fn entity(&self, target: Target) -> Option<&Entity> {
        match target {
            Target::Top => None,
            Target::Own(id) => self.own.get(&id),
            Target::Peer(id) => self.peer.get(&id),
        }
    }

    fn entity_mut(&mut self, target: Target) -> Option<&mut Entity> {
        match target {
            Target::Top => None,
            Target::Own(id) => self.own.get_mut(&id),
            Target::Peer(id) => self.peer.get_mut(&id),
        }
    }

    /// What this end writes of it.
    fn writer_mut(&mut self, target: Target) -> Option<&mut Writer> {
        match target {
            Target::Top => Some(&mut self.top_writer),
            _ => self.entity_mut(target)?.writer.as_mut(),
        }
    }

    /// What this end reads of it.
    fn reader_mut(&mut self, target: Target) -> Option<&mut Reader> {
        match target {
            Target::Top => Some(&mut self.top_reader),
            _ => self.entity_mut(target)?.reader.as_mut(),
        }
    }

    /// Whether the application never hears of it.
    fn is_refused(&self, target: Target) -> bool {
        self.entity(target)
            .is_some_and(|entity| entity.standing == Standing::Refused)
    }

    /// Forgets an entity whose halves are over: its id is free (R-BPM-13).
    fn forget_if_over(&mut self, target: Target) {
        if self.entity(target).is_some_and(Entity::is_over) {
            self.forget(target);
            self.finish();
        }
    }

    fn forget(&mut self, target: Target) {
        let gone = match target {
            Target::Top => None,
            Target::Own(id) => {
                self.ids.free_entities.push(id);
                self.own.remove(&id)
            }
            Target::Peer(id) => self.peer.remove(&id),
        };
        let Some(entity) = gone else {
            return;
        };
        if matches!(target, Target::Peer(_)) && entity.is_complete() {
            self.peer_open = self.peer_open.saturating_sub(1);
        }
        if let Some(reader) = entity.reader {
            self.close_window(&reader.window);
            self.drop_assembly(target, reader.message);
        }
        self.void(Carrier::Cancel(target));
        self.void(Carrier::Close(target));
    }

    /// A payload of the peer's that is half received will not come to its end (R-BPMUX-V7).
    fn void(&mut self, carrier: Carrier) {
        let partial = self.take_partial(carrier);
        self.drop_assembly(Target::Top, partial);
    }

    /// A payload that came on a half will not come to its end.
    fn drop_assembly(&mut self, target: Target, assembly: Option<Assembly>) {
        if let Some(assembly) = assembly {
            self.held = self.held.saturating_sub(assembly.held());
            self.dropped(target, &assembly);
        }
    }

    /// Tells the application.
    fn tell(&mut self, event: Event) {
        self.held = self.held.saturating_add(event.payload_bytes());
        self.events.push_back(event);
    }

    /// The connection has done its part when both directions of the top-level are over and nothing is open
    /// (R-BPM-28, R-BPMUX-V10).
    fn finish(&mut self) {
        let is_over = self.top_writer.has_ended() && self.top_reader.has_ended();
        if is_over && self.own.is_empty() && self.asked.is_empty() && self.peer_open == 0 {
            self.finished = true;
        }
    }

    fn fail(&mut self, kind: Kind, offset: u64) -> ProtocolError<Kind> {
        // What earlier chunks caused to be sent still goes (R-BPMUX-V14), nothing else.
        let mut staged = std::mem::take(&mut self.staged);
        self.encode(&mut staged);
        self.staged = staged;
        self.lane.clear();
        self.granted.clear();
        self.ready.clear();
        self.turns.clear();
        let error = ProtocolError { kind, offset };
        self.fault = Some(error.clone());
        error
    }

    const fn is_alive(&self) -> bool {
        self.fault.is_none() && !self.ended && !self.finished
    }
}

impl Contract for Connection {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        if let Some(error) = &self.fault {
            return Err(error.clone());
        }
        self.timing.input(now, input.len());
        let need = self.take_input(input);
        self.timing.left = input.len();
        self.timing.partial = self.is_inside_a_chunk(input);
        need
    }

    fn receive_eof(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.ended = true;
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.held = self.held.saturating_sub(event.payload_bytes());
        Some(event)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        out.append(&mut self.staged);
        if self.fault.is_none() {
            self.ping_if_due(now);
            self.encode(out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.timers(now)
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.timing.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        if self.fault.is_some() || self.ended {
            Lifecycle::Closed
        } else if self.finished {
            Lifecycle::Draining
        } else {
            Lifecycle::Open
        }
    }

    fn held_bytes(&self) -> usize {
        self.held
    }
}

/// The bytes of a payload, to be sent.
fn wide(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
