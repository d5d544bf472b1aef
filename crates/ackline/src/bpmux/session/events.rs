//! The events of a session's machine, sorted by the handles that they are for.

use ackline_bpmux::{EntityKind, Event, Subject, Target};
use ackline_core::Payload;
use bytes::Bytes;

use super::{Arrival, Session, Wait, wide};
use crate::bpmux::mailbox::{Mailbox, Part};

impl Session {
    pub(super) fn take_one(&mut self, event: Event) {
        match event {
            Event::Opened { kind, id, payload } => {
                let handles = if kind == EntityKind::Duplex { 2 } else { 1 };
                self.arrived(
                    Subject::Entity(Target::Peer(id)),
                    handles,
                    Some(kind),
                    payload,
                );
            }
            Event::Request { id, payload } => {
                self.arrived(Subject::PeerRequest(id), 1, None, payload);
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

    /// An event of something that ends, or of an answer that was waited for.
    fn take_end(&mut self, event: Event) {
        match event {
            Event::Closed { target, payload } => {
                let bytes = self.ended(&payload);
                self.note(Subject::Entity(target), true, |it| it.closed = Some(bytes));
                if target == Target::Top {
                    self.wake(Wait::Accept);
                }
            }
            Event::Cancelled { target, payload } => {
                let bytes = self.ended(&payload);
                let cancelled = |it: &mut Mailbox| it.cancelled = Some(bytes);
                self.note(Subject::Entity(target), false, cancelled);
                if target == Target::Top {
                    self.settle_all();
                }
            }
            Event::ResponseSent { id } => self.touched.push(Subject::PeerRequest(id)),
            Event::Response { id, payload } => {
                // The response was asked for: an application that waits for another one first must not keep
                // its credit.
                self.machine.consumed(Target::Top, wide(payload.bytes()));
                self.untaken.add(payload.bytes());
                let response = |it: &mut Mailbox| it.response = Some(payload);
                self.note(Subject::OwnRequest(id), true, response);
            }
            Event::ResponseClosed { id, payload } => {
                let bytes = self.ended(&payload);
                self.note(Subject::OwnRequest(id), true, |it| it.closed = Some(bytes));
            }
            Event::RequestCancelled { id, payload } => {
                let bytes = self.ended(&payload);
                let cancelled = |it: &mut Mailbox| it.cancelled = Some(bytes);
                self.note(Subject::PeerRequest(id), false, cancelled);
            }
            Event::CloseAcknowledged { target } => {
                let told = |it: &mut Mailbox| it.acknowledged.close = true;
                self.note(Subject::Entity(target), false, told);
            }
            Event::CancelAcknowledged { target } => {
                let told = |it: &mut Mailbox| it.acknowledged.cancel = true;
                self.note(Subject::Entity(target), true, told);
            }
            Event::RequestCancelAcknowledged { id } => {
                let told = |it: &mut Mailbox| it.acknowledged.cancel = true;
                self.note(Subject::OwnRequest(id), true, told);
            }
            Event::ResponseCloseAcknowledged { id } => {
                let told = |it: &mut Mailbox| it.acknowledged.close = true;
                self.note(Subject::PeerRequest(id), false, told);
            }
            Event::Pong { target } => self.ponged(Subject::Entity(target)),
            Event::RequestPong { id } => self.ponged(Subject::OwnRequest(id)),
            Event::Room { target } => self.note(Subject::Entity(target), false, |_| ()),
            Event::Open { id } => {
                let target = Target::Own(id);
                self.release_own(id);
                self.note(Subject::Entity(target), false, |_| ());
                self.end_given_up(target);
            }
            _ => {}
        }
    }

    fn arrived(
        &mut self,
        subject: Subject,
        handles: u8,
        kind: Option<EntityKind>,
        payload: Payload,
    ) {
        let serial = self.begin(subject, handles);
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

    /// The payload of an end: kept as long as its handle, counted as taken.
    fn ended(&mut self, payload: &Payload) -> Bytes {
        let bytes = payload.to_bytes();
        self.machine.consumed(Target::Top, wide(bytes.len()));
        bytes
    }

    /// Notes a change of a mailbox, and wakes the waits for its input or for its output.
    fn note(&mut self, subject: Subject, is_read: bool, change: impl FnOnce(&mut Mailbox)) {
        let Some(serial) = self.live.get(&subject).copied() else {
            return;
        };
        if let Some(place) = self.places.get_mut(&serial) {
            change(place);
        }
        let wait = if is_read {
            Wait::Read(serial)
        } else {
            Wait::Write(serial)
        };
        self.wake(wait);
        self.touched.push(subject);
    }

    fn ponged(&mut self, subject: Subject) {
        let Some(serial) = self.live.get(&subject).copied() else {
            return;
        };
        if let Some(place) = self.places.get_mut(&serial) {
            place.pongs = place.pongs.wrapping_add(1);
        }
        self.wake(Wait::Pong(serial));
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
