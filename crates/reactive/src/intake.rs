//! The machine of a connection whose elements are landed: the elements of each subscription come out as runs, and new
//! elements are requested in place of those that have landed.
//!
//! ```text
//! element   ──► run ─► block ─► landed: one more may be requested ─► kept: settled
//! complete  ──► a run with a note ──► settled
//! the last of all runs settled, and no subscription open ──► goodbye
//! ```
//!
//! It decides which elements make a run, how many elements are requested and when, and when the connection ends in order.
//! Of each publisher at most `demand` elements are outstanding: requested, or arrived and not durable yet; and only as many
//! as the spool has room for (`demand.rs`). This end publishes nothing.

mod config;
mod demand;
mod run;

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_core::{
    Connection as _, Landable, Lifecycle, LimitHit, Need, Payload, ProtocolError, Runs, SendQueue,
    StallTimeouts,
};
use bytes::{Bytes, BytesMut};

pub use config::{Completion, IntakeConfig};
use demand::Demand;
pub use run::{Elements, From, Note, Run, Source};

use crate::{Connection, Event, Kind, Role};

/// A subscription to a publisher of the peer.
#[derive(Debug)]
struct Subscription {
    source: Arc<Source>,
    /// The size of its elements, or 0.
    element_size: u64,
    /// Elements so far: the number of the next one.
    elements: u64,
    demand: Demand,
    is_over: bool,
}

impl Subscription {
    /// No more elements come.
    fn end(&mut self) {
        self.is_over = true;
        self.demand.ended();
    }
}

/// A run that was handed out and is not settled.
#[derive(Debug)]
struct Waiting {
    from: From,
    /// Its elements, until it has landed.
    elements: u64,
    /// Bytes that are held for them, until it has landed.
    held: usize,
}

/// A connection's machine whose elements are landed.
#[derive(Debug)]
pub struct Intake {
    machine: Connection,
    config: IntakeConfig,
    /// Subscriptions by their ids.
    subscriptions: BTreeMap<u64, Subscription>,
    /// Runs that are not settled.
    runs: Runs<Run, Waiting>,
    /// Bytes of runs that have not landed.
    landing: usize,
    /// Streams that were completed and handed out.
    completed: usize,
    /// Elements that have come whole.
    finished: u64,
    offset: u64,
    fault: Option<ProtocolError<Kind>>,
    /// When to look for room in the spool again.
    looks_at: Option<Instant>,
    ending: Ending,
}

/// The way to the end of a connection in good order.
#[derive(Debug, Default)]
struct Ending {
    /// The reason to end it, once every run is settled.
    reason: Option<&'static str>,
    /// No input is taken any more.
    is_stopping: bool,
    /// Every run was settled, and the goodbye is on its way.
    has_left: bool,
}

impl Intake {
    /// Begins a connection. A client subscribes at once, a server when the client's hello has come.
    pub fn new(now: Instant, config: IntakeConfig) -> Self {
        let mut machine = Connection::new(now, config.role, config.machine.clone());
        // It was made just now.
        let _ = machine.connect(now);
        let mut intake = Self {
            machine,
            config,
            subscriptions: BTreeMap::new(),
            runs: Runs::default(),
            landing: 0,
            completed: 0,
            finished: 0,
            offset: 0,
            fault: None,
            looks_at: None,
            ending: Ending::default(),
        };
        if intake.config.role == Role::Client {
            intake.subscribe();
            intake.look_again_if_waiting(now);
        }
        intake
    }

    fn subscribe(&mut self) {
        for publisher in &self.config.publishers {
            let id = self.machine.free_id();
            let mut demand = Demand::new(self.config.bounds, &self.config.room);
            // Checked before: the id is free, the demand is in its range and the connection is open.
            if self.machine.subscribe(publisher, id, demand.take()).is_ok() {
                let subscription = Subscription {
                    source: Source::new(publisher, 0),
                    element_size: 0,
                    elements: 0,
                    demand,
                    is_over: false,
                };
                self.subscriptions.insert(id, subscription);
            }
        }
    }

    /// Cancels every subscription; once everything that has come is settled, the connection ends in order.
    pub fn retire(&mut self) {
        self.cancel_all("the connection has reached its age");
    }

    fn cancel_all(&mut self, reason: &'static str) {
        for (id, subscription) in &mut self.subscriptions {
            subscription.end();
            // It may have ended.
            let _ = self.machine.cancel(*id);
        }
        self.ending.reason.get_or_insert(reason);
        self.leave_if_settled();
    }

    fn leave_if_settled(&mut self) {
        let is_leaving = self.ending.reason.filter(|_| !self.ending.has_left);
        if let Some(reason) = is_leaving
            && self.runs.unsettled() == 0
        {
            self.ending.has_left = true;
            // Before the client's hello a server ends without one.
            let _ = self.machine.goodbye(reason);
        }
    }

    /// Takes the machine's events; returns whether there were any.
    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            self.told(event);
        }
        any
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::Connected { .. }
                if self.config.role == Role::Server && self.ending.reason.is_none() =>
            {
                self.subscribe();
            }
            Event::Subscribe { subscriber, .. } => {
                // It may have been cancelled since.
                let _ = self.machine.reject(subscriber, ONLY_RECEIVES);
            }
            Event::Subscribed {
                subscriber,
                element_size,
            } => self.subscribed(subscriber, element_size),
            Event::Next {
                subscriber,
                element,
            } => self.element(subscriber, element),
            Event::Packed {
                subscriber,
                elements,
                ..
            } => self.packed(subscriber, elements),
            Event::Complete { subscriber } => {
                let elements = self.elements_of(subscriber);
                self.over(subscriber, Note::Completed { elements });
            }
            Event::Error { subscriber, error } => {
                let error = beginning_of(&error);
                self.over(subscriber, Note::Failed { error });
            }
            _ => {}
        }
    }

    fn subscribed(&mut self, id: u64, element_size: u64) {
        if let Some(one) = self.subscriptions.get_mut(&id) {
            one.element_size = element_size;
            one.demand.announced(element_size);
            one.source = Source::new(&one.source.publisher, element_size);
        }
    }

    fn elements_of(&self, id: u64) -> u64 {
        self.subscriptions.get(&id).map_or(0, |one| one.elements)
    }

    /// A subscription has ended at the peer. When all have, there is nothing to stay for.
    fn over(&mut self, id: u64, note: Note) {
        let Some(one) = self.subscriptions.get_mut(&id) else {
            return;
        };
        one.end();
        self.runs.push(Run {
            token: 0,
            source: Arc::clone(&one.source),
            first: one.elements,
            count: 0,
            elements: Elements::none(0),
            bytes: 0,
            note: Some(note),
            held: 0,
            from: From::Note(id),
        });
        if self.subscriptions.values().all(|one| one.is_over) {
            self.ending.reason.get_or_insert(ALL_ENDED);
        }
    }

    /// An element that came alone.
    fn element(&mut self, id: u64, element: Payload) {
        self.begin_run_if_full(id);
        let Some(run) = self.runs.last(&From::Elements(id)) else {
            return;
        };
        let bytes = element.bytes();
        let (pieces, held) = match &mut run.elements {
            Elements::Any(elements) => {
                let held = element.held_bytes();
                elements.push(element);
                (1, held)
            }
            Elements::Fixed { pieces, .. } => {
                pieces.extend(element.parts());
                (element.len(), bytes)
            }
        };
        run.grow(1, bytes, held);
        self.arrived((id, 1, bytes), pieces, held);
    }

    /// Elements of a fixed size, cut where their run is full.
    fn packed(&mut self, id: u64, mut rest: Bytes) {
        while !rest.is_empty() {
            self.begin_run_if_full(id);
            let Some(run) = self.runs.last(&From::Elements(id)) else {
                return;
            };
            let Elements::Fixed { size, pieces } = &mut run.elements else {
                return;
            };
            let size = usize::try_from(*size).unwrap_or(usize::MAX).max(1);
            let room = RUN_BYTES.saturating_sub(run.bytes);
            // An element that does not fit is the last one of its run.
            let room = room.checked_div(size).unwrap_or(0).max(1);
            let piece = rest.split_to(room.saturating_mul(size).min(rest.len()));
            let bytes = piece.len();
            pieces.push(piece);
            // They fit: a run is cut far below 2^32 bytes, and an element has at least one.
            let count = u32::try_from(bytes.checked_div(size).unwrap_or(0)).unwrap_or(u32::MAX);
            run.grow(count, bytes, bytes);
            self.arrived((id, u64::from(count), size), 1, bytes);
        }
    }

    /// Begins a run of a subscription, unless its last one may grow.
    fn begin_run_if_full(&mut self, id: u64) {
        let Some(one) = self.subscriptions.get(&id) else {
            return;
        };
        let from = From::Elements(id);
        let may_grow = |run: &mut Run| run.bytes < RUN_BYTES;
        if self.runs.last(&from).is_some_and(may_grow) {
            return;
        }
        self.runs.push(Run {
            token: 0,
            source: Arc::clone(&one.source),
            first: one.elements,
            count: 0,
            elements: Elements::none(one.element_size),
            bytes: 0,
            note: None,
            held: 0,
            from,
        });
    }

    /// Counts elements of `size` bytes that a run has taken, in so many pieces.
    fn arrived(&mut self, (id, count, size): (u64, u64, usize), pieces: usize, held: usize) {
        if let Some(one) = self.subscriptions.get_mut(&id) {
            one.demand.came(count, wide(size));
            one.elements = one.elements.saturating_add(count);
        }
        self.runs.charge(pieces, held);
        self.landing = self.landing.saturating_add(held);
        self.finished = self.finished.saturating_add(count);
    }

    /// Elements have landed: more may be requested.
    fn let_go(&mut self, from: From, elements: u64, held: usize) {
        self.landing = self.landing.saturating_sub(held);
        let From::Elements(id) = from else {
            return;
        };
        if let Some(one) = self.subscriptions.get_mut(&id) {
            one.demand.landed(elements);
        }
    }

    /// Requests elements for which there is room. Looks again soon where there is too little of it: nobody says when
    /// consumers are done with something.
    fn request(&mut self, now: Instant) {
        for (id, one) in &mut self.subscriptions {
            if one.is_over {
                continue;
            }
            let count = one.demand.take();
            if count > 0 {
                // Refused where the connection is at its end.
                let _ = self.machine.request(*id, count);
            }
        }
        self.look_again_if_waiting(now);
    }

    fn look_again_if_waiting(&mut self, now: Instant) {
        let is_waiting = self
            .subscriptions
            .values()
            .any(|one| one.demand.is_waiting());
        self.looks_at = if is_waiting {
            now.checked_add(LOOK_AGAIN)
        } else {
            None
        };
    }

    fn fail(&mut self, kind: Kind) {
        if self.fault.is_none() {
            let _ = self.machine.goodbye(&kind.text_for_peer());
            let offset = self.offset;
            self.fault = Some(ProtocolError { kind, offset });
            self.take_events();
        }
    }

    /// If one connection has begun more than the memory can take, that connection could wait for ever.
    fn check(&mut self) -> Result<(), ProtocolError<Kind>> {
        let (value, limit) = (self.machine.coming_bytes(), self.config.most_incomplete);
        if value > limit {
            self.fail(Kind::Limit(LimitHit {
                value: wide(value),
                limit: wide(limit),
                option: "--memory",
            }));
        }
        self.fault.clone().map_or(Ok(()), Err)
    }
}

impl Landable for Intake {
    fn settle(&mut self, now: Instant, token: u64) -> bool {
        let Some(run) = self.runs.settle(token) else {
            return false;
        };
        self.let_go(run.from, run.elements, run.held);
        self.request(now);
        self.leave_if_settled();
        self.fault.is_none() && self.machine.lifecycle() != Lifecycle::Closed
    }

    fn landed(&mut self, now: Instant, token: u64) {
        if let Some(run) = self.runs.landed(token) {
            let (elements, held) = (take(&mut run.elements), take(&mut run.held));
            let from = run.from;
            self.let_go(from, elements, held);
            self.request(now);
        }
    }

    fn stop(&mut self, _: Instant) {
        self.ending.is_stopping = true;
        self.cancel_all("the receiver stops");
    }

    fn unsettled(&self) -> usize {
        self.runs.unsettled()
    }
}

impl ackline_core::Connection for Intake {
    type Event = Run;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if self.ending.is_stopping {
            // Its elements are not wanted any more, and the peer is told so.
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
            let took = self.take_events();
            if took {
                self.request(now);
            }
            self.check()?;
            match need {
                Ok(Need::Room) if took => {}
                need => return need,
            }
        }
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let ended = self.machine.receive_eof(now);
        self.take_events();
        self.fault.clone().map_or(ended, Err)
    }

    fn poll_event(&mut self) -> Option<Run> {
        let (token, mut run) = self.runs.take(|run| Waiting {
            from: run.from,
            elements: u64::from(run.count),
            held: run.held,
        })?;
        run.token = token;
        if matches!(run.note, Some(Note::Completed { .. })) {
            self.completed = self.completed.saturating_add(1);
            if self.completed == self.config.publishers.len() {
                self.config.completion.set();
            }
        }
        Some(run)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.machine.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A peer that is not listened to is not silent.
        let dues = [self.machine.poll_timeout(), self.looks_at];
        let due = dues.into_iter().flatten().min();
        due.filter(|_| !self.ending.is_stopping)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        if self.ending.is_stopping {
            return Ok(());
        }
        if self.looks_at.is_some_and(|at| at <= now) {
            self.request(now);
        }
        let handled = self.machine.handle_timeout(now);
        self.take_events();
        self.fault.clone().map_or(handled, Err)
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        if self.fault.is_some() {
            return Lifecycle::Closed;
        }
        match self.machine.lifecycle() {
            // The driver waits for the peer's end, no longer than a close may take.
            Lifecycle::Open if self.ending.has_left => Lifecycle::Draining,
            other => other,
        }
    }

    fn held_bytes(&self) -> usize {
        let machine = self.machine.held_bytes();
        let landing = self.landing.saturating_add(self.runs.extra());
        machine.saturating_add(landing)
    }

    fn coming_bytes(&self) -> usize {
        self.machine.coming_bytes()
    }

    fn finished(&self) -> u64 {
        self.finished
    }

    fn complete_bytes(&self) -> usize {
        let landing = self.landing.saturating_add(self.runs.extra());
        self.machine.complete_bytes().saturating_add(landing)
    }

    fn step_bytes(&self) -> usize {
        self.machine.step_bytes()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.machine.stall_timeouts()
    }

    fn detached(&mut self, now: Instant) -> bool {
        let goes_on = self.machine.detached(now);
        self.take_events();
        goes_on
    }
}

/// The beginning of an error's text.
fn beginning_of(error: &Arc<str>) -> Arc<str> {
    if error.len() <= ERROR_BYTES {
        return Arc::clone(error);
    }
    let mut end = ERROR_BYTES;
    while !error.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let begin = error.get(..end).unwrap_or_default();
    format!("{begin}…").into()
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The reason of an intake's goodbye when the streams of all its subscriptions have ended and every element that came is
/// settled. No other reason says that: the publisher of a completed stream takes it as an acknowledgement.
pub const ALL_ENDED: &str = "all streams have ended";
/// The answer to subscriptions of the peer.
const ONLY_RECEIVES: &str = "this receiver only receives";
/// Bytes of elements from which on a run takes no more.
const RUN_BYTES: usize = 4 << 20;
/// Between two looks for room in the spool.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Bytes of an error's text that are told.
const ERROR_BYTES: usize = 1_024;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects)] // a test may fail
#[allow(clippy::disallowed_methods)] // a test needs some instant
mod tests;
