//! Checks of events, and of the end of a run, against the model.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::expect_used
)] // a panic is a finding

use std::collections::BTreeMap;

use ackline_core::{Connection as _, Lifecycle};

use super::model::Model;
use crate::{Connection, Event, Target};

impl Model {
    /// Checks an event. Returns the half whose credit its payload has cost.
    pub(super) fn told(&mut self, at: usize, event: &Event) -> Option<Target> {
        let refusing = self.top[at].cancel.called.is_some();
        match event {
            Event::Opened { kind, id, payload } => {
                let key = (1 - at, *id);
                let thing = self.opening.entry(key).or_default().pop_front();
                let thing = thing.expect("it was opened");
                let record = &self.things[thing];
                assert_eq!((record.kind, &record.opening), (*kind, &payload.to_bytes()));
                self.sides[at].things.insert(key, thing);
                return Some(Target::Top);
            }
            Event::Message { target, payload } => {
                self.half(at, *target, 1 - at).got(&payload.to_bytes());
                return Some(*target);
            }
            Event::Closed { target, payload } => {
                let half = self.half(at, *target, 1 - at);
                half.closed(&payload.to_bytes(), refusing);
                if *target != Target::Top && self.sides[at].holds {
                    self.sides[at].held.push(*target);
                }
                return Some(Target::Top);
            }
            Event::Cancelled { target, payload } => {
                let half = self.half(at, *target, at);
                half.cancel.see(&payload.to_bytes(), refusing);
                return Some(Target::Top);
            }
            Event::CloseAcknowledged { target } => {
                let holds = self.sides[1 - at].holds;
                let half = self.half(at, *target, at);
                // The reader is not told of a half that was refused.
                let may = !holds || half.released || !half.close.seen;
                assert!(may, "it is held");
                half.close.acknowledge();
            }
            Event::CancelAcknowledged { target } => {
                self.half(at, *target, 1 - at).cancel.acknowledge();
            }
            Event::Pong { .. } => {
                self.sides[at].pings = self.sides[at].pings.checked_sub(1).expect("it was pinged");
            }
            Event::Room { target } => {
                let rooms = self.rooms.entry((at, *target)).or_default();
                rooms.wanted = rooms.wanted.checked_sub(1).expect("it was wanted");
                rooms.told = true;
            }
            Event::Open { id } => assert!(self.sides[at].things.contains_key(&(at, *id))),
            _ => return self.told_of_request(at, event, refusing),
        }
        None
    }

    fn told_of_request(&mut self, at: usize, event: &Event, refusing: bool) -> Option<Target> {
        match event {
            Event::Request { id, payload } => {
                let waiting = self.requesting.entry((1 - at, *id)).or_default();
                loop {
                    let next = waiting.pop_front().expect("it was requested");
                    let record = &mut self.asked[next];
                    if record.request == payload.to_bytes() {
                        record.seen = true;
                        self.sides[at].responses.insert(*id, next);
                        break;
                    }
                    assert!(
                        record.cancel.called.is_some(),
                        "only cancelled requests are lost"
                    );
                }
            }
            Event::Response { id, payload } => {
                let record = &mut self.asked[known(&self.sides[at].requests, *id)];
                assert!(!record.has_ended(), "a request ends once");
                record.response.see(&payload.to_bytes(), false);
            }
            Event::ResponseClosed { id, payload } => {
                let record = &mut self.asked[known(&self.sides[at].requests, *id)];
                assert!(!record.has_ended(), "a request ends once");
                record.close.see(&payload.to_bytes(), refusing);
            }
            Event::RequestCancelled { id, payload } => {
                let record = &mut self.asked[known(&self.sides[at].responses, *id)];
                record.cancel.see(&payload.to_bytes(), false);
            }
            Event::RequestCancelAcknowledged { id } => {
                let record = &mut self.asked[known(&self.sides[at].requests, *id)];
                record.cancel.acknowledge();
                return None;
            }
            Event::ResponseSent { id } => {
                let record = &self.asked[known(&self.sides[at].responses, *id)];
                assert!(
                    record.response.called.is_some(),
                    "a response is sent only after a call"
                );
                return None;
            }
            Event::ResponseCloseAcknowledged { id } => {
                self.asked[known(&self.sides[at].responses, *id)]
                    .close
                    .acknowledge();
                return None;
            }
            _ => return None,
        }
        Some(Target::Top)
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
        let told = self.rooms.values().all(|rooms| rooms.told);
        assert!(told, "every wait for room ends: {:?}", self.rooms);
    }
}

/// Returns the number of a request.
fn known(requests: &BTreeMap<u32, usize>, id: u32) -> usize {
    *requests.get(&id).expect("the request is known")
}
