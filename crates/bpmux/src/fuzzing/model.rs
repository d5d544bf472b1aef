//! Calls on two ends, and what their events have to say about them. The model knows nothing of chunks.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::expect_used
)] // a panic is a finding

use std::collections::{BTreeMap, VecDeque};

use ackline_core::{Connection as _, Lifecycle, UsageError};
use bytes::Bytes;

use super::books::{Asked, Half, Once, Thing};
use crate::{Connection, CreditPolicy, EntityKind, Event, Target, Waiting};

/// Choices, one byte each.
#[derive(Debug)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// These choices.
    pub const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether none is left.
    pub const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next choice.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// One of so many.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }
}

/// By who opened it, and its id.
type Key = (usize, u32);

/// Both ends' books.
#[derive(Debug, Default)]
pub struct Model {
    things: Vec<Thing>,
    asked: Vec<Asked>,
    /// What each end knows: its own from the call on, the peer's from the event on.
    known: [BTreeMap<Key, usize>; 2],
    requests: [BTreeMap<u32, usize>; 2],
    responses: [BTreeMap<u32, usize>; 2],
    /// Called to be opened, or requested, by this end, and not told to the other.
    opening: BTreeMap<Key, VecDeque<usize>>,
    requesting: BTreeMap<Key, VecDeque<usize>>,
    /// Written by each end.
    top: [Half; 2],
    /// Payloads to be taken, if they are not at once.
    taken: [VecDeque<(Target, u64)>; 2],
    pings: [usize; 2],
    /// Closes that each end was told of and has still to acknowledge.
    held: [Vec<Target>; 2],
    holds: [bool; 2],
    /// Waits for room.
    rooms: BTreeMap<(usize, Target), (usize, bool)>,
    number: u8,
    /// The top-level may be cancelled: then what is on its way may be lost.
    pub cancels_top: bool,
    /// Payloads are taken late.
    pub takes_late: bool,
}

/// Bytes of payloads.
const LENGTHS: [usize; 8] = [0, 1, 2, 5, 17, 40, 120, 600];

impl Model {
    fn payload(&mut self, script: &mut Script<'_>) -> Bytes {
        let len = LENGTHS[script.below(LENGTHS.len())];
        self.number = self.number.wrapping_add(1);
        vec![self.number; len].into()
    }

    /// A call on the end `at`, by the script. Who calls has taken all events: an id may have begun a new life.
    pub fn act(&mut self, at: usize, end: &mut Connection, script: &mut Script<'_>) {
        self.take(at, end, usize::MAX);
        if !self.held[at].is_empty() {
            let which = usize::from(script.byte());
            if which.is_multiple_of(2) {
                self.acknowledge(at, end, which);
            }
        }
        let verb = script.byte() % 20;
        let target = self.target(at, script);
        let payload = self.payload(script);
        let refused = match verb {
            0..=2 => {
                let kinds = [EntityKind::Sink, EntityKind::Stream, EntityKind::Duplex];
                let id = Self::any_id(script, || end.free_id());
                id.and_then(|id| self.open(at, end, (kinds[usize::from(verb)], id), payload))
            }
            3..=6 => self.send(at, end, target, payload),
            7 | 8 if target == Target::Top && !self.things.len().is_multiple_of(5) => Ok(()),
            7 | 8 => self.close(at, end, target, payload),
            9 if target == Target::Top && !self.cancels_top => Ok(()),
            9 => self.cancel(at, end, target, payload),
            10 | 11 => {
                let id = Self::any_id(script, || end.free_request_id());
                id.and_then(|id| self.request(at, end, id, payload))
            }
            12..=15 => self.answer(at, end, verb, payload, script),
            16 | 17 => {
                let amount = u64::from(script.byte() % 64);
                self.grant(at, end, target, amount)
            }
            18 => {
                let pinged = end.ping(target);
                self.pings[at] += usize::from(pinged.is_ok());
                pinged
            }
            _ => {
                let wanted = if payload.len() > 2 {
                    end.want_credit(target)
                } else {
                    let most = Waiting {
                        bytes: payload.len(),
                        payloads: 1,
                    };
                    end.want_room(target, most)
                };
                if wanted.is_ok() {
                    let (wants, told) = self.rooms.entry((at, target)).or_default();
                    (*wants, *told) = (*wants + 1, false);
                }
                wanted
            }
        };
        if let Err(error) = refused {
            let is_over = end.lifecycle() != Lifecycle::Open;
            assert_eq!(
                error.code == "closed",
                is_over,
                "only what is over is closed"
            );
        }
    }

    fn target(&self, at: usize, script: &mut Script<'_>) -> Target {
        let known = &self.known[at];
        let chosen = script.below(known.len() + 2);
        known
            .keys()
            .nth(chosen)
            .map_or(Target::Top, |(opener, id)| {
                if *opener == at {
                    Target::Own(*id)
                } else {
                    Target::Peer(*id)
                }
            })
    }

    fn half(&mut self, at: usize, target: Target, writer: usize) -> &mut Half {
        let (opener, id) = match target {
            Target::Top => return &mut self.top[writer],
            Target::Own(id) => (at, id),
            Target::Peer(id) => (1 - at, id),
        };
        let thing = self.known[at].get(&(opener, id)).expect("it is known");
        let by_other = usize::from(opener != writer);
        let thing = &mut self.things[*thing];
        assert!(thing.kind.is_written(by_other == 0), "the half is there");
        &mut thing.written[by_other]
    }

    /// Opens something.
    ///
    /// # Errors
    /// As the call of the connection; so do all of these.
    pub fn open(
        &mut self,
        at: usize,
        end: &mut Connection,
        thing: (EntityKind, u32),
        opening: Bytes,
    ) -> Result<(), UsageError> {
        let (kind, id) = thing;
        end.open(kind, id, opening.clone())?;
        let written = <[Half; 2]>::default();
        self.things.push(Thing {
            kind,
            opening,
            written,
        });
        let thing = self.things.len() - 1;
        self.known[at].insert((at, id), thing);
        self.opening.entry((at, id)).or_default().push_back(thing);
        Ok(())
    }

    fn any_id(
        script: &mut Script<'_>,
        free: impl FnOnce() -> Result<u32, UsageError>,
    ) -> Result<u32, UsageError> {
        match script.byte() % 8 {
            chosen @ 0..3 => Ok(u32::from(chosen)),
            _ => free(),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// As the connection.
    pub fn send(
        &mut self,
        at: usize,
        end: &mut Connection,
        target: Target,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.send(target, payload.clone())?;
        let half = self.half(at, target, at);
        assert!(
            half.close.called.is_none() && !half.cancel.seen,
            "it is open"
        );
        half.messages.push_back(payload);
        Ok(())
    }

    /// Closes what the end writes.
    ///
    /// # Errors
    /// As the connection.
    pub fn close(
        &mut self,
        at: usize,
        end: &mut Connection,
        target: Target,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.close(target, payload.clone())?;
        self.half(at, target, at).close.call(payload);
        Ok(())
    }

    /// Cancels what the end reads.
    ///
    /// # Errors
    /// As the connection.
    pub fn cancel(
        &mut self,
        at: usize,
        end: &mut Connection,
        target: Target,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.cancel(target, payload.clone())?;
        self.half(at, target, 1 - at).cancel.call(payload);
        Ok(())
    }

    /// Gives credit.
    ///
    /// # Errors
    /// As the connection.
    pub fn grant(
        &mut self,
        at: usize,
        end: &mut Connection,
        target: Target,
        amount: u64,
    ) -> Result<(), UsageError> {
        end.grant_credit(target, amount)?;
        self.half(at, target, 1 - at).granted += amount;
        Ok(())
    }

    /// Requests something.
    ///
    /// # Errors
    /// As the connection.
    pub fn request(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        request: Bytes,
    ) -> Result<(), UsageError> {
        end.request(id, request.clone())?;
        self.asked.push(Asked {
            request,
            seen: false,
            response: Once::default(),
            close: Once::default(),
            cancel: Once::default(),
        });
        let asked = self.asked.len() - 1;
        self.requests[at].insert(id, asked);
        let requesting = self.requesting.entry((at, id)).or_default();
        requesting.push_back(asked);
        Ok(())
    }

    /// Something about a request.
    fn answer(
        &mut self,
        at: usize,
        end: &mut Connection,
        verb: u8,
        payload: Bytes,
        script: &mut Script<'_>,
    ) -> Result<(), UsageError> {
        let book = if verb == 15 {
            &self.requests
        } else {
            &self.responses
        };
        let chosen = script.below(book[at].len());
        let Some(id) = book[at].keys().nth(chosen).copied() else {
            return Ok(());
        };
        match verb {
            12 | 13 => self.respond(at, end, id, payload),
            14 => self.close_response(at, end, id, payload),
            _ if payload.len() == 5 => end.ping_request(id),
            _ => self.cancel_request(at, end, id, payload),
        }
    }

    /// Answers a request that was told.
    ///
    /// # Errors
    /// As the connection.
    pub fn respond(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.respond(id, payload.clone())?;
        let asked = self.responses[at][&id];
        self.asked[asked].response.call(payload);
        Ok(())
    }

    /// Does not answer a request that was told.
    ///
    /// # Errors
    /// As the connection.
    pub fn close_response(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.close_response(id, payload.clone())?;
        let asked = self.responses[at][&id];
        self.asked[asked].close.call(payload);
        Ok(())
    }

    /// Gives a request up.
    ///
    /// # Errors
    /// As the connection.
    pub fn cancel_request(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.cancel_request(id, payload.clone())?;
        let asked = self.requests[at][&id];
        self.asked[asked].cancel.call(payload);
        Ok(())
    }

    /// Acknowledges a close that the end was told of, if it holds these acknowledgements: the first, or any. Nobody
    /// is told of it before.
    pub fn acknowledge(&mut self, at: usize, end: &mut Connection, which: usize) {
        if self.held[at].is_empty() {
            return;
        }
        let target = self.held[at].remove(which % self.held[at].len());
        let is_open = end.lifecycle() == Lifecycle::Open;
        let held = end.counts().tables.held_closes;
        if is_open {
            let half = self.half(at, target, 1 - at);
            assert!(!half.close.acknowledged, "it is held");
            half.released = true;
            end.acknowledge_close(target).expect("it was closed");
            assert_eq!(end.counts().tables.held_closes + 1, held);
            let again = end.acknowledge_close(target);
            assert!(again.is_err(), "it is acknowledged once");
        }
    }

    /// Takes up to `most` events of the end `at`; whether there were any.
    pub fn take(&mut self, at: usize, end: &mut Connection, most: usize) -> bool {
        let mut any = false;
        self.holds[at] = end.config().holds_close_acks;
        for _ in 0..most {
            let Some(event) = end.poll_event() else { break };
            any = true;
            let paid = self.told(at, &event);
            if let Some(target) = paid {
                let bytes = u64::try_from(event.payload_bytes()).unwrap_or(u64::MAX);
                self.half_or_none(at, target, bytes, end);
                self.taken[at].push_back((target, bytes));
            }
        }
        let late = if self.takes_late { 3 } else { 0 };
        while self.taken[at].len() > late {
            if let Some((target, bytes)) = self.taken[at].pop_front() {
                end.consumed(target, bytes);
            }
        }
        any
    }

    /// No end gets more than it gave credit for.
    fn half_or_none(&mut self, at: usize, target: Target, bytes: u64, end: &Connection) {
        let half = self.half(at, target, 1 - at);
        half.received += bytes;
        if end.config().credit == CreditPolicy::Manual {
            assert!(
                half.received <= half.granted,
                "no more than credit was given for"
            );
        }
    }

    /// Checks an event; on what its payload came.
    fn told(&mut self, at: usize, event: &Event) -> Option<Target> {
        let refusing = self.top[at].cancel.called.is_some();
        match event {
            Event::Opened { kind, id, payload } => {
                let key = (1 - at, *id);
                let thing = self.opening.entry(key).or_default().pop_front();
                let thing = thing.expect("it was opened");
                let book = &self.things[thing];
                assert_eq!((book.kind, &book.opening), (*kind, &payload.to_bytes()));
                self.known[at].insert(key, thing);
                return Some(Target::Top);
            }
            Event::Message { target, payload } => {
                self.half(at, *target, 1 - at).got(&payload.to_bytes());
                return Some(*target);
            }
            Event::Closed { target, payload } => {
                let half = self.half(at, *target, 1 - at);
                half.closed(&payload.to_bytes(), refusing);
                if *target != Target::Top && self.holds[at] {
                    self.held[at].push(*target);
                }
                return Some(Target::Top);
            }
            Event::Cancelled { target, payload } => {
                let half = self.half(at, *target, at);
                half.cancel.see(&payload.to_bytes(), refusing);
                return Some(Target::Top);
            }
            Event::CloseAcknowledged { target } => {
                let holds = self.holds[1 - at];
                let half = self.half(at, *target, at);
                // What was refused its reader is not told of.
                let may = !holds || half.released || !half.close.seen;
                assert!(may, "it is held");
                half.close.acknowledge();
            }
            Event::CancelAcknowledged { target } => {
                self.half(at, *target, 1 - at).cancel.acknowledge();
            }
            Event::Pong { .. } => {
                self.pings[at] = self.pings[at].checked_sub(1).expect("it was pinged");
            }
            Event::Room { target } => {
                let (wants, told) = self.rooms.entry((at, *target)).or_default();
                *wants = wants.checked_sub(1).expect("it was wanted");
                *told = true;
            }
            Event::Open { id } => assert!(self.known[at].contains_key(&(at, *id))),
            _ => return self.told_of_request(at, event, refusing),
        }
        None
    }

    fn told_of_request(&mut self, at: usize, event: &Event, refusing: bool) -> Option<Target> {
        let asked = |books: &[BTreeMap<u32, usize>; 2], id: &u32| {
            *books[at].get(id).expect("the request is known")
        };
        match event {
            Event::Request { id, payload } => {
                let waiting = self.requesting.entry((1 - at, *id)).or_default();
                loop {
                    let next = waiting.pop_front().expect("it was requested");
                    let book = &mut self.asked[next];
                    if book.request == payload.to_bytes() {
                        book.seen = true;
                        self.responses[at].insert(*id, next);
                        break;
                    }
                    assert!(
                        book.cancel.called.is_some(),
                        "only what was cancelled is lost"
                    );
                }
            }
            Event::Response { id, payload } => {
                let book = &mut self.asked[asked(&self.requests, id)];
                assert!(!book.has_ended(), "a request ends once");
                book.response.see(&payload.to_bytes(), false);
            }
            Event::ResponseClosed { id, payload } => {
                let book = &mut self.asked[asked(&self.requests, id)];
                assert!(!book.has_ended(), "a request ends once");
                book.close.see(&payload.to_bytes(), refusing);
            }
            Event::RequestCancelled { id, payload } => {
                let book = &mut self.asked[asked(&self.responses, id)];
                book.cancel.see(&payload.to_bytes(), false);
            }
            Event::RequestCancelAcknowledged { id } => {
                let book = &mut self.asked[asked(&self.requests, id)];
                book.cancel.acknowledge();
                return None;
            }
            Event::ResponseSent { id } => {
                let book = &self.asked[asked(&self.responses, id)];
                assert!(
                    book.response.called.is_some(),
                    "only what was called is sent"
                );
                return None;
            }
            Event::ResponseCloseAcknowledged { id } => {
                self.asked[asked(&self.responses, id)].close.acknowledge();
                return None;
            }
            _ => return None,
        }
        Some(Target::Top)
    }

    /// Nothing new any more: what is open is closed, what is asked answered, credit given.
    pub fn wind_down(&mut self, at: usize, end: &mut Connection) {
        self.takes_late = false;
        self.take(at, end, usize::MAX);
        while !self.held[at].is_empty() {
            self.acknowledge(at, end, 0);
        }
        let known: Vec<Key> = self.known[at].keys().copied().collect();
        let own = known.into_iter().map(|(opener, id)| {
            if opener == at {
                Target::Own(id)
            } else {
                Target::Peer(id)
            }
        });
        for target in own.chain([Target::Top]) {
            if end.config().credit == CreditPolicy::Manual {
                let _ = self.grant(at, end, target, 4_000);
            }
            if target != Target::Top && end.close(target, Bytes::new()).is_ok() {
                self.half(at, target, at).close.call(Bytes::new());
            }
        }
        let ids: Vec<u32> = self.responses[at].keys().copied().collect();
        for id in ids {
            if end.respond(id, Bytes::new()).is_ok() {
                let asked = self.responses[at][&id];
                self.asked[asked].response.call(Bytes::new());
            }
        }
        if end.close(Target::Top, Bytes::new()).is_ok() {
            self.top[at].close.call(Bytes::new());
        }
    }

    /// Everything has ended at both ends, and nothing of it is kept.
    pub fn check(&self, ends: [&Connection; 2]) {
        for end in ends {
            assert_ne!(end.lifecycle(), Lifecycle::Open, "both ends finish");
            assert_eq!((end.held_bytes(), end.stats().waiting_bytes), (0, 0));
            let counts = end.counts();
            let kept = [
                counts.tables.partials,
                counts.sending.jobs,
                counts.sending.control,
                counts.sending.owed,
            ];
            assert_eq!(kept, [0; 4], "nothing waits: {counts:?}");
        }
        if self.top.iter().any(|half| half.cancel.called.is_some()) {
            return;
        }
        for (number, thing) in self.things.iter().enumerate() {
            for (half, own) in thing.written.iter().zip([true, false]) {
                let has_ended = !thing.kind.is_written(own) || half.has_ended();
                assert!(has_ended, "entity {number} has not ended: {thing:?}");
            }
        }
        for (number, asked) in self.asked.iter().enumerate() {
            let was_dropped = !asked.seen && asked.cancel.called.is_some();
            let has_ended = (asked.has_ended() && asked.is_done()) || was_dropped;
            assert!(has_ended, "request {number} has not ended: {asked:?}");
        }
        for end in ends {
            let counts = end.counts();
            let tables = [
                counts.tables.own_entities,
                counts.tables.peer_entities,
                counts.tables.own_requests,
                counts.tables.peer_requests,
            ];
            assert_eq!(tables, [0; 4], "all ids are free: {counts:?}");
            assert_eq!(
                (
                    counts.sending.before_close,
                    counts.tables.crossed,
                    counts.tables.peer_complete
                ),
                (0, 0, 0)
            );
        }
        for half in &self.top {
            assert!(half.close.seen && half.messages.is_empty(), "{half:?}");
        }
        let told = self.rooms.values().all(|(_, told)| *told);
        assert!(told, "who waits for room is told: {:?}", self.rooms);
    }
}
