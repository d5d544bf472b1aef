//! Calls on two ends, and a model of them, which their events are checked against (`told.rs`). The model knows nothing
//! of chunks.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::expect_used
)] // a panic is a finding

use std::collections::{BTreeMap, VecDeque};

use ackline_core::{Connection as _, Lifecycle, UsageError};
use bytes::Bytes;

use super::records::{Asked, Half, Once, Thing};
use super::script::Script;
use crate::{Connection, CreditPolicy, EntityKind, Target, Waiting};

/// The end that opened it, and its id.
pub(super) type Key = (usize, u32);

/// An entity that is to be opened.
#[derive(Debug)]
pub struct Opening {
    /// Its kind.
    pub kind: EntityKind,
    /// Its id.
    pub id: u32,
    /// The payload of its opening.
    pub payload: Bytes,
}

/// The knowledge of one end: of its own calls at once, of the peer's with their events.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Numbers of entities.
    pub(super) things: BTreeMap<Key, usize>,
    /// Numbers of own requests.
    pub(super) requests: BTreeMap<u32, usize>,
    /// Numbers of the peer's requests.
    pub(super) responses: BTreeMap<u32, usize>,
    /// Payloads that are still to be consumed.
    pub(super) taken: VecDeque<Taken>,
    /// Pings without a pong.
    pub(super) pings: usize,
    /// Closes that the end was told of and has still to acknowledge.
    pub(super) held: Vec<Target>,
    /// Whether the end holds the acknowledgements of closes.
    pub(super) holds: bool,
}

/// A payload that the application has taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) target: Target,
    pub(super) bytes: u64,
}

/// Waits for room on one half.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// The number of calls without an event.
    pub(super) wanted: usize,
    /// Whether an event came after the last call.
    pub(super) told: bool,
}

/// Everything that was called and told at both ends.
#[derive(Debug, Default)]
pub struct Model {
    pub(super) things: Vec<Thing>,
    pub(super) asked: Vec<Asked>,
    pub(super) sides: [Side; 2],
    /// Entities that one end was called to open, and the other end was not told of.
    pub(super) opening: BTreeMap<Key, VecDeque<usize>>,
    /// Requests that one end was called to send, and the other end was not told of.
    pub(super) requesting: BTreeMap<Key, VecDeque<usize>>,
    /// The halves of the top-level, by the end that writes them.
    pub(super) top: [Half; 2],
    pub(super) rooms: BTreeMap<(usize, Target), Rooms>,
    /// The byte that the next payload consists of.
    number: u8,
    /// Whether the top-level may be cancelled: then payloads that are on their way may be lost.
    pub cancels_top: bool,
    /// Whether payloads are consumed late.
    pub takes_late: bool,
}

/// The lengths of payloads, in bytes.
const LENGTHS: [usize; 8] = [0, 1, 2, 5, 17, 40, 120, 600];

impl Model {
    fn payload(&mut self, script: &mut Script<'_>) -> Bytes {
        let len = LENGTHS[script.below(LENGTHS.len())];
        self.number = self.number.wrapping_add(1);
        vec![self.number; len].into()
    }

    /// Makes a call on the end `at`, as the script says. All events are taken before: an id may be another entity's now.
    pub fn act(&mut self, at: usize, end: &mut Connection, script: &mut Script<'_>) {
        self.take(at, end, usize::MAX);
        if !self.sides[at].held.is_empty() {
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
                let kind = kinds[usize::from(verb)];
                id.and_then(|id| self.open(at, end, Opening { kind, id, payload }))
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
                self.sides[at].pings += usize::from(pinged.is_ok());
                pinged
            }
            _ => self.want(at, end, target, payload.len()),
        };
        if let Err(error) = refused {
            let is_over = end.lifecycle() != Lifecycle::Open;
            assert_eq!(
                error.code == "closed",
                is_over,
                "calls are refused as closed after the end alone"
            );
        }
    }

    /// Waits for credit or for room.
    fn want(
        &mut self,
        at: usize,
        end: &mut Connection,
        target: Target,
        bytes: usize,
    ) -> Result<(), UsageError> {
        if bytes > 2 {
            end.want_credit(target)?;
        } else {
            end.want_room(target, Waiting { bytes, payloads: 1 })?;
        }
        let rooms = self.rooms.entry((at, target)).or_default();
        rooms.wanted += 1;
        rooms.told = false;
        Ok(())
    }

    fn target(&self, at: usize, script: &mut Script<'_>) -> Target {
        let known = &self.sides[at].things;
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

    pub(super) fn half(&mut self, at: usize, target: Target, writer: usize) -> &mut Half {
        let (opener, id) = match target {
            Target::Top => return &mut self.top[writer],
            Target::Own(id) => (at, id),
            Target::Peer(id) => (1 - at, id),
        };
        let thing = self.sides[at]
            .things
            .get(&(opener, id))
            .expect("it is known");
        let by_other = usize::from(opener != writer);
        let thing = &mut self.things[*thing];
        assert!(thing.kind.is_written(by_other == 0), "the half is there");
        &mut thing.written[by_other]
    }

    /// Opens an entity.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn open(
        &mut self,
        at: usize,
        end: &mut Connection,
        opening: Opening,
    ) -> Result<(), UsageError> {
        let Opening { kind, id, payload } = opening;
        end.open(kind, id, payload.clone())?;
        self.things.push(Thing {
            kind,
            opening: payload,
            written: <[Half; 2]>::default(),
        });
        let thing = self.things.len() - 1;
        self.sides[at].things.insert((at, id), thing);
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
    /// Those of the connection.
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

    /// Closes a half that the end writes.
    ///
    /// # Errors
    /// Those of the connection.
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

    /// Cancels a half that the end reads.
    ///
    /// # Errors
    /// Those of the connection.
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
    /// Those of the connection.
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

    /// Sends a request.
    ///
    /// # Errors
    /// Those of the connection.
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
        self.sides[at].requests.insert(id, asked);
        let requesting = self.requesting.entry((at, id)).or_default();
        requesting.push_back(asked);
        Ok(())
    }

    /// Responds to a request, or ends it.
    fn answer(
        &mut self,
        at: usize,
        end: &mut Connection,
        verb: u8,
        payload: Bytes,
        script: &mut Script<'_>,
    ) -> Result<(), UsageError> {
        let side = &self.sides[at];
        let requests = if verb == 15 {
            &side.requests
        } else {
            &side.responses
        };
        let chosen = script.below(requests.len());
        let Some(id) = requests.keys().nth(chosen).copied() else {
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
    /// Those of the connection.
    pub fn respond(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.respond(id, payload.clone())?;
        let asked = self.sides[at].responses[&id];
        self.asked[asked].response.call(payload);
        Ok(())
    }

    /// Ends a request that was told without a response.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn close_response(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.close_response(id, payload.clone())?;
        let asked = self.sides[at].responses[&id];
        self.asked[asked].close.call(payload);
        Ok(())
    }

    /// Cancels a request.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn cancel_request(
        &mut self,
        at: usize,
        end: &mut Connection,
        id: u32,
        payload: Bytes,
    ) -> Result<(), UsageError> {
        end.cancel_request(id, payload.clone())?;
        let asked = self.sides[at].requests[&id];
        self.asked[asked].cancel.call(payload);
        Ok(())
    }

    /// Acknowledges the close number `which` of those that the end was told of, if it holds these acknowledgements. The
    /// other end is not told of the acknowledgement before.
    pub fn acknowledge(&mut self, at: usize, end: &mut Connection, which: usize) {
        if self.sides[at].held.is_empty() {
            return;
        }
        let target = self.sides[at]
            .held
            .remove(which % self.sides[at].held.len());
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

    /// Takes up to `most` events of the end `at`. Returns whether there were any.
    pub fn take(&mut self, at: usize, end: &mut Connection, most: usize) -> bool {
        let mut any = false;
        self.sides[at].holds = end.config().holds_close_acks;
        for _ in 0..most {
            let Some(event) = end.poll_event() else { break };
            any = true;
            let paid = self.told(at, &event);
            if let Some(target) = paid {
                let bytes = u64::try_from(event.payload_bytes()).unwrap_or(u64::MAX);
                self.half_or_none(at, target, bytes, end);
                self.sides[at].taken.push_back(Taken { target, bytes });
            }
        }
        let late = if self.takes_late { 3 } else { 0 };
        while self.sides[at].taken.len() > late {
            if let Some(Taken { target, bytes }) = self.sides[at].taken.pop_front() {
                end.consumed(target, bytes);
            }
        }
        any
    }

    /// A payload came: no end gets more than it gave credit for.
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

    /// Ends the run: closes entities, answers requests, gives credit, and begins nothing new.
    pub fn wind_down(&mut self, at: usize, end: &mut Connection) {
        self.takes_late = false;
        self.take(at, end, usize::MAX);
        while !self.sides[at].held.is_empty() {
            self.acknowledge(at, end, 0);
        }
        let known: Vec<Key> = self.sides[at].things.keys().copied().collect();
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
        let ids: Vec<u32> = self.sides[at].responses.keys().copied().collect();
        for id in ids {
            if end.respond(id, Bytes::new()).is_ok() {
                let asked = self.sides[at].responses[&id];
                self.asked[asked].response.call(Bytes::new());
            }
        }
        if end.close(Target::Top, Bytes::new()).is_ok() {
            self.top[at].close.call(Bytes::new());
        }
    }
}
