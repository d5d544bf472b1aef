//! Handles that nobody holds any more: their halves end, and their places go when their subjects are over.

use ackline_core::AnswerRoom;
use bytes::Bytes;

use super::mailbox::{DROPPED, GivenUp, Mailbox};
use super::{Serial, Session};
use crate::{Subject, Target};

impl<A: AnswerRoom> Session<A> {
    /// Closes a half whose sink was dropped and did not close it, once its opening is sent.
    pub fn drop_sink(&mut self, serial: Serial) {
        if let Some(given_up) = self.unopened(serial) {
            given_up.sink = true;
        } else {
            // It may have ended before.
            let payload = Bytes::from_static(DROPPED);
            let _ = self.with_target(serial, |it, target| it.close(target, payload));
        }
        self.leave(serial);
    }

    /// Cancels a half whose stream was dropped, once its opening is sent, unless it was read to its end.
    pub fn drop_stream(&mut self, serial: Serial) {
        let place = self.places.get(&serial);
        if place.is_some_and(Mailbox::is_read_out) {
            // Nothing is left of it.
        } else if let Some(given_up) = self.unopened(serial) {
            given_up.stream = true;
        } else {
            // It may have ended before.
            let _ = self.cancel(serial, Bytes::new());
        }
        self.leave(serial);
    }

    /// The halves that were given up of an entity whose opening waits.
    fn unopened(&mut self, serial: Serial) -> Option<&mut GivenUp> {
        if self.is_open(serial) {
            return None;
        }
        Some(&mut self.places.get_mut(&serial)?.given_up)
    }

    /// Ends the halves that were given up while their opening waited.
    pub(super) fn end_given_up(&mut self, target: Target) {
        let serial = self.live.get(&Subject::Entity(target)).copied();
        let place = serial.and_then(|serial| self.places.get(&serial));
        let given_up = place.map_or(GivenUp::default(), |place| place.given_up);
        if given_up.sink {
            let _ = self.machine.close(target, Bytes::from_static(DROPPED));
        }
        if given_up.stream {
            let _ = self.machine.cancel(target, Bytes::new());
        }
    }

    /// A handle is gone.
    pub fn leave(&mut self, serial: Serial) {
        let Some(place) = self.places.get_mut(&serial) else {
            return;
        };
        place.handles = place.handles.saturating_sub(1);
        if place.handles == 0 {
            if let Some(accepted) = place.accepted.take() {
                let given = self.machine.answers_given();
                self.answers.answered(accepted, given);
                self.look_at_answers(self.now);
            }
            self.drop_messages(serial);
            self.drop_if_gone(serial);
        }
    }

    /// Drops the messages and the response that nobody will take.
    pub(super) fn drop_messages(&mut self, serial: Serial) {
        while self.next_part(serial).is_some() {}
        let _ = self.response(serial);
    }

    pub(super) fn drop_if_gone(&mut self, serial: Serial) {
        let place = self.places.get(&serial);
        if place.is_some_and(|place| place.gone && place.handles == 0) {
            self.places.remove(&serial);
        }
    }
}
