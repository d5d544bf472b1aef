//! The events of a session's machine, sorted by the handles that they are for.

use ackline_core::{AnswerRoom, Payload};
use bytes::Bytes;

use super::handles::handles_of;
use super::mailbox::Mailbox;
use super::{Arrival, Part, Serial, Session, Wait, wide};
use crate::{EntityKind, Event, Subject, Target};

impl<A: AnswerRoom> Session<A> {
    pub(super) fn take_one(&mut self, event: Event) {
        match event {
            Event::Opened { kind, id, payload } => {
                self.arrived(Subject::Entity(Target::Peer(id)), Some(kind), payload);
            }
            Event::Request { id, payload } => {
                self.arrived(Subject::PeerRequest(id), None, payload);
            }
            Event::Message { target, payload } => self.message(target, payload, true),
            Event::Part {
                target,
                payload,
                is_last,
            } => self.message(target, payload, is_last),
            event => self.take_end(event),
        }
    }

    /// An event of something that ends.
    fn take_end(&mut self, event: Event) {
        match event {
            Event::Closed { target, payload } => {
                self.note_closed(Subject::Entity(target), &payload);
                if target == Target::Top {
                    self.wake(Wait::Accept);
                }
            }
            Event::ResponseClosed { id, payload } => {
                self.note_closed(Subject::OwnRequest(id), &payload);
            }
            Event::Cancelled { target, payload } => {
                self.note_cancelled(Subject::Entity(target), &payload);
                if target == Target::Top {
                    self.settle_all();
                }
            }
            Event::RequestCancelled { id, payload } => {
                self.note_cancelled(Subject::PeerRequest(id), &payload);
            }
            Event::ResponseSent { id } => self.touched.push(Subject::PeerRequest(id)),
            Event::Response { id, payload } => {
                // The response was asked for: an application that waits for another one first must not keep
                // its credit.
                self.machine.consumed(Target::Top, wide(payload.bytes()));
                self.untaken.add(payload.bytes());
                let response = |it: &mut Mailbox| it.response = Some(payload);
                self.note(Subject::OwnRequest(id), Wait::Read, response);
            }
            event => self.take_answer(&event),
        }
    }

    /// An event of an answer that was waited for.
    fn take_answer(&mut self, event: &Event) {
        let close = |it: &mut Mailbox| it.acknowledged.close = true;
        let cancel = |it: &mut Mailbox| it.acknowledged.cancel = true;
        match *event {
            Event::CloseAcknowledged { target } => {
                self.note(Subject::Entity(target), Wait::Write, close);
            }
            Event::ResponseCloseAcknowledged { id } => {
                self.note(Subject::PeerRequest(id), Wait::Write, close);
            }
            Event::CancelAcknowledged { target } => {
                self.note(Subject::Entity(target), Wait::Read, cancel);
            }
            Event::RequestCancelAcknowledged { id } => {
                self.note(Subject::OwnRequest(id), Wait::Read, cancel);
            }
            Event::Pong { target } => self.note_pong(Subject::Entity(target)),
            Event::RequestPong { id } => self.note_pong(Subject::OwnRequest(id)),
            Event::Room { target } => self.note(Subject::Entity(target), Wait::Write, |_| ()),
            Event::Open { id } => {
                let target = Target::Own(id);
                self.release_own(id);
                self.note(Subject::Entity(target), Wait::Write, |_| ());
                self.end_given_up(target);
            }
            _ => {}
        }
    }

    fn arrived(&mut self, subject: Subject, kind: Option<EntityKind>, payload: Payload) {
        let serial = self.begin(subject, kind.map_or(1, handles_of));
        self.untaken.add(payload.bytes());
        self.arrivals.push(Arrival {
            kind,
            serial,
            payload,
        });
        self.wake(Wait::Accept);
    }

    fn message(&mut self, target: Target, payload: Payload, is_last: bool) {
        let serial = self.live.get(&Subject::Entity(target)).copied();
        let place = serial.and_then(|serial| self.places.get_mut(&serial));
        let bytes = payload.bytes();
        match (serial, place) {
            (Some(serial), Some(place)) if place.handles > 0 => {
                place.parts.push_back(Part { payload, is_last });
                self.untaken.add(bytes);
                self.wake(Wait::Read(serial));
            }
            _ => {
                // Nobody reads it any more; its cancel is on its way.
                self.machine.consumed(target, wide(bytes));
            }
        }
    }

    fn note_closed(&mut self, subject: Subject, payload: &Payload) {
        let bytes = self.ended(payload);
        self.note(subject, Wait::Read, |it| it.closed = Some(bytes));
    }

    fn note_cancelled(&mut self, subject: Subject, payload: &Payload) {
        let bytes = self.ended(payload);
        self.note(subject, Wait::Write, |it| it.cancelled = Some(bytes));
    }

    /// The payload of an end: kept as long as its handle, counted as taken.
    fn ended(&mut self, payload: &Payload) -> Bytes {
        let bytes = payload.to_bytes();
        self.machine.consumed(Target::Top, wide(bytes.len()));
        bytes
    }

    /// Notes a change of a mailbox, and wakes the waits for its input or for its output.
    fn note(
        &mut self,
        subject: Subject,
        wait: fn(Serial) -> Wait,
        change: impl FnOnce(&mut Mailbox),
    ) {
        let Some((serial, place)) = self.live_place(subject) else {
            return;
        };
        change(place);
        self.wake(wait(serial));
        self.touched.push(subject);
    }

    /// The place that stands for a subject, with its number.
    fn live_place(&mut self, subject: Subject) -> Option<(Serial, &mut Mailbox)> {
        let serial = *self.live.get(&subject)?;
        Some((serial, self.places.get_mut(&serial)?))
    }

    fn note_pong(&mut self, subject: Subject) {
        if let Some((serial, place)) = self.live_place(subject) {
            place.pongs = place.pongs.wrapping_add(1);
            self.wake(Wait::Pong(serial));
        }
    }

    /// Marks every live subject as touched: an opening or a request that waited when the peer cancelled the
    /// top-level will never be sent.
    fn settle_all(&mut self) {
        self.touched.extend(self.live.keys().copied());
    }

    /// Retires a subject that the machine has forgotten: its id may come again.
    pub(super) fn settle(&mut self, subject: Subject) {
        if !self.machine.exists(subject) {
            self.retire(subject);
        }
    }

    /// Ends the place that stood for this subject: it stands for the subject no more.
    pub(super) fn retire(&mut self, subject: Subject) {
        let Some(serial) = self.live.remove(&subject) else {
            return;
        };
        if let Some(place) = self.places.get_mut(&serial) {
            place.gone = true;
        }
        self.wake(Wait::Read(serial));
        self.wake(Wait::Write(serial));
        self.wake(Wait::Pong(serial));
        if self.places.get(&serial).is_some_and(|it| it.handles == 0) {
            self.drop_messages(serial);
        }
        self.drop_if_gone(serial);
    }
}
