//! One end of a connection: who may send what, and what follows from what came.
//!
//! Entities by id stand in two tables, by who opened them; an entity has the halves that this end writes and
//! reads (`entity.rs`), and the top-level is one that is always there. What costs top-level credit and cannot
//! go at once waits as a job (`jobs.rs`); what comes in parts is put together in `assembly.rs`.

mod assembly;
mod books;
mod calls;
mod climb;
mod complete;
mod entity;
mod event;
mod ids;
mod jobs;
mod outbox;
mod outgoing;
mod receive;
mod share;
mod timers;
mod window;

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::{
    Block, Connection as Contract, Lifecycle, Need, ProtocolError, SendQueue, Share, StallTimeouts,
    Table, Timing,
};
use bytes::{Bytes, BytesMut};

use crate::chunk::Carrier;
use crate::{Config, Kind, Subject, Target};
use assembly::Assembly;
pub use books::Books;
use entity::{Asked, Asking, Entity, Reader, Standing, Writer};
pub use event::{Event, Stats};
use ids::Ids;
use jobs::Jobs;
use outbox::{Queued, Turn};
pub use outgoing::Waiting;
use receive::Incoming;
pub use share::{ENTITY_BYTES, FREE_BYTES, REQUEST_BYTES};
use timers::Pinging;
use window::Budget;

/// One end of a connection. Both ends are equal.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    top_writer: Writer,
    top_reader: Reader,
    /// Opened by this end.
    own: Table<u32, Entity>,
    /// Opened by the peer.
    peer: Table<u32, Entity>,
    /// Requests of this end.
    asked: Table<u32, Asked>,
    /// Those of them whose response has crossed their cancel.
    answered: usize,
    /// Requests of the peer's.
    asking: Table<u32, Asking>,
    ids: OwnIds,
    /// What comes in parts, but for messages.
    partials: Table<Carrier, Assembly>,
    /// The total that the next chunk's payload belongs to.
    activation: Option<u64>,
    incoming: Option<Incoming>,
    /// Where small payloads that come together stand.
    block: Block,
    /// What waits for top-level credit, but for messages.
    jobs: Jobs,
    /// Bytes of all responses, and closes of responses, that were called to be sent.
    answers_given: u64,
    /// Jobs that open something or request something, or end a request that is half sent.
    openings: usize,
    /// What goes before all payloads that wait.
    lane: VecDeque<Queued>,
    /// Bytes of the payloads there.
    lane_bytes: usize,
    /// What of the lane the peer has caused.
    owed: usize,
    /// Answers that this call of `receive` may still queue.
    answers_left: usize,
    /// Closes of the peer's whose acknowledgements wait for a call.
    held_closes: u32,
    /// Readers with credit to announce; some may be gone.
    granted: VecDeque<Target>,
    /// Who can go on; some may be gone.
    ready: VecDeque<Turn>,
    /// What chunks caused to be sent before the next one was looked at (R-BPMUX-V14).
    staged: SendQueue,
    events: VecDeque<Event>,
    /// What they count against the events of a call.
    weight: usize,
    held: usize,
    budget: Budget,
    share: Share,
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

/// Free ids of this end's.
#[derive(Debug, Default)]
struct OwnIds {
    entities: Ids,
    requests: Ids,
}

impl Connection {
    /// An end at the start of a connection.
    pub fn new(now: Instant, mut config: Config) -> Self {
        config.chunk_size = config.chunk_size.max(1);
        let mut connection = Self {
            top_writer: Writer::default(),
            top_reader: Reader::default(),
            own: Table::default(),
            peer: Table::default(),
            asked: Table::default(),
            answered: 0,
            asking: Table::default(),
            ids: OwnIds::default(),
            partials: Table::default(),
            activation: None,
            incoming: None,
            block: Block::default(),
            jobs: Jobs::default(),
            answers_given: 0,
            openings: 0,
            lane: VecDeque::new(),
            lane_bytes: 0,
            owed: 0,
            answers_left: 0,
            held_closes: 0,
            granted: VecDeque::new(),
            ready: VecDeque::new(),
            staged: SendQueue::new(),
            events: VecDeque::new(),
            weight: 0,
            held: 0,
            budget: Budget::default(),
            share: Share::default(),
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

    /// What the peer did, once it has broken a rule or a limit.
    pub const fn fault(&self) -> Option<&ProtocolError<Kind>> {
        self.fault.as_ref()
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
                self.ids.entities.free(id);
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
        self.keep_less();
        if let Some(reader) = entity.reader {
            self.drop_assembly(target, reader.message);
        }
        self.void(Carrier::Cancel(target));
        self.void(Carrier::Close(target));
    }

    /// A payload of the peer's that is half received will not come to its end (R-BPM-18, R-BPMUX-V7).
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
        self.weight = self.weight.saturating_add(event.weight());
        self.events.push_back(event);
    }

    /// The connection has done its part when both directions of the top-level are over and nothing is open
    /// (R-BPM-28, R-BPMUX-V10).
    fn finish(&mut self) {
        let is_over = self.top_writer.has_ended() && self.top_reader.has_ended();
        // A request whose response has crossed its cancel is over for the peer, which may be gone when the
        // cancel arrives.
        let has_requests = self.asked.len() > self.answered || self.peer_open > 0;
        if self.finished || !is_over || has_requests || !self.own.is_empty() {
            return;
        }
        self.finished = true;
        let mut late: Vec<_> = self.asked.keys().copied().collect();
        late.sort_unstable();
        for id in late {
            self.drop_job(Carrier::CancelRequest(id));
            self.forget_asked(id);
            self.tell(Event::RequestCancelAcknowledged { id });
        }
        // The peer's close came inside of it; no more credit for it comes.
        self.drop_job(Carrier::Cancel(Target::Top));
        self.drop_partials();
    }

    /// Nothing more is received.
    fn drop_partials(&mut self) {
        self.incoming = None;
        self.partials = Table::default();
        self.budget = Budget::default();
        let entities = self.own.values_mut().chain(self.peer.values_mut());
        let readers = entities.filter_map(|entity| entity.reader.as_mut());
        for reader in readers.chain([&mut self.top_reader]) {
            reader.message = None;
        }
        let payloads = self.events.iter().map(Event::payload_bytes);
        self.held = payloads.fold(0, usize::saturating_add);
    }

    /// Nothing more is sent, but for what is staged.
    fn drop_waiting(&mut self) {
        self.lane = VecDeque::new();
        (self.lane_bytes, self.owed) = (0, 0);
        self.granted = VecDeque::new();
        self.ready = VecDeque::new();
        self.jobs = Jobs::default();
        let entities = self.own.values_mut().chain(self.peer.values_mut());
        let writers = entities.filter_map(|entity| entity.writer.as_mut());
        for writer in writers.chain([&mut self.top_writer]) {
            writer.drop_waiting();
        }
        self.stats.waiting_bytes = 0;
    }

    /// The peer is told nothing: nothing is closed or cancelled (REQ-BPMUX-6).
    fn fail(&mut self, kind: Kind, offset: u64) -> ProtocolError<Kind> {
        // What earlier chunks caused to be sent still goes (R-BPMUX-V14), nothing else.
        let mut staged = std::mem::take(&mut self.staged);
        self.encode(&mut staged);
        self.staged = staged;
        self.drop_waiting();
        self.drop_partials();
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
        self.drop_waiting();
        self.drop_partials();
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.held = self.held.saturating_sub(event.payload_bytes());
        self.weight = self.weight.saturating_sub(event.weight());
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
            // Both directions are ended in order (R-BPMUX-V17).
            Lifecycle::Draining
        } else {
            Lifecycle::Open
        }
    }

    fn held_bytes(&self) -> usize {
        self.held
    }

    fn step_bytes(&self) -> usize {
        self.answers_step()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts::of_pings(self.config.ping_after, self.config.pong_timeout)
    }
}

/// The bytes of a payload, to be sent.
fn wide(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
