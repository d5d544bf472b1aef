//! The reader as its driver sees it: bytes in, acknowledgements out, timers, and its end.

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue};
use bytes::BytesMut;

use super::{Event, Reader, State, Turn};
use crate::partial::Partial;
use crate::timing::Situation;
use crate::walker::wide;
use crate::wire::ACK;
use crate::{Kind, Version};

impl Connection for Reader {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.timing.touch(now);
        self.meet_doom()?;
        match &self.state {
            State::Open => {}
            State::Failed(error) => return Err(error.clone()),
            State::Stopping | State::Settling | State::Draining | State::Closed => {
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
        }
        let fresh = input.len().saturating_sub(self.input.left);
        self.stats.bytes = self.stats.bytes.saturating_add(wide(fresh));
        if fresh > 0 || self.input.held_up {
            self.timing.byte(now);
        }
        let need = self.take(now, input).map_err(|kind| self.fail(kind))?;
        self.partial.settle();
        self.envelopes.inflate = None;
        self.input.left = input.len();
        self.input.held_up = !matches!(need, Need::Input { .. });
        Ok(need)
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.meet_doom()?;
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        // This writer never sends the part again.
        if self.state == State::Open && self.config.tail_idle.is_some() && self.has_tail() {
            self.complete_tail(now);
        }
        self.drop_unfinished();
        self.pending.meet_end();
        self.state = if self.owes_answers() {
            State::Settling
        } else {
            State::Closed
        };
        Ok(())
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            // An idle connection holds no queue.
            self.events = VecDeque::new();
        }
        event
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.timing.touch(now);
        if self.state == State::Closed {
            return;
        }
        let before = out.len();
        while out.room() > 0 {
            let Some(waiting) = self.pending.pop() else {
                break;
            };
            put_ack(out, waiting.version, waiting.sequence);
            if waiting.id.is_some() {
                self.stats.acked_windows = self.stats.acked_windows.saturating_add(1);
                self.stats.acked_events = self
                    .stats
                    .acked_events
                    .saturating_add(waiting.records.into());
            }
            if self.pending.is_empty() {
                self.timing.settled(now);
            }
        }
        let keepalive = std::mem::take(&mut self.requests.keepalive);
        let is_alive = matches!(self.state, State::Open | State::Stopping);
        if keepalive && out.len() == before && is_alive {
            put_ack(out, Version::V2, 0);
            self.stats.keepalives = self.stats.keepalives.saturating_add(1);
        }
        if out.len() > before {
            self.timing.sent(now);
        }
        self.drain_if_settled();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !matches!(self.state, State::Open | State::Stopping) {
            return None;
        }
        if let Some((since, _)) = self.aside.doomed() {
            return Some(*since);
        }
        self.timing.due(&self.config, self.situation()).first()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.timing.touch(now);
        self.meet_doom()?;
        match &self.state {
            State::Open | State::Stopping => {}
            State::Failed(error) => return Err(error.clone()),
            State::Settling | State::Draining | State::Closed => return Ok(()),
        }
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let mut due = self.timing.due(&self.config, self.situation());
        if is_due(due.keepalive) {
            self.requests.keepalive = true;
            self.timing.sent(now);
        }
        if is_due(due.tail) {
            self.complete_tail(now);
            // A window that is empty again has no stall.
            due = self.timing.due(&self.config, self.situation());
        }
        if is_due(due.first_byte) {
            return Err(self.fail(Kind::Timeout("--first-byte-timeout")));
        }
        if is_due(due.stall) {
            return Err(self.fail(Kind::Timeout("--stall-timeout")));
        }
        if is_due(due.idle) {
            self.state = State::Draining;
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.timing.touch(now);
        self.timing.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.state {
            State::Open | State::Stopping => Lifecycle::Open,
            State::Draining => Lifecycle::Draining,
            State::Settling | State::Closed | State::Failed(_) => Lifecycle::Closed,
        }
    }

    fn held_bytes(&self) -> usize {
        let envelope = self
            .envelopes
            .current
            .as_ref()
            .map_or(0, |envelope| envelope.held_bytes());
        self.pending
            .charge()
            .saturating_add(self.partial.charge)
            .saturating_add(envelope)
    }

    fn complete_bytes(&self) -> usize {
        self.pending.charge()
    }

    fn coming_bytes(&self) -> usize {
        self.held_bytes().saturating_sub(self.pending.charge())
    }

    fn finished(&self) -> u64 {
        self.stats.windows
    }

    fn step_bytes(&self) -> usize {
        let envelope = self.envelopes.current.as_ref();
        envelope.map_or(0, |envelope| envelope.step_bytes())
    }

    fn owes_answers(&self) -> bool {
        self.config.settle_after_error && !self.requests.hung_up && self.pending.is_owed()
    }

    fn hang_up(&mut self) {
        self.requests.hung_up = true;
    }
}

impl Reader {
    pub(super) fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.input.offset,
        };
        self.drop_unfinished();
        if error.kind == Kind::Overrun && matches!(self.turn, Turn::Shut) {
            // The window that it overran was complete by its count, and the count was wrong.
            self.pending.refuse_last();
        }
        self.state = State::Failed(error.clone());
        error
    }

    pub(super) fn drop_unfinished(&mut self) {
        self.partial = Partial::default();
        self.envelopes.current = None;
        self.aside.forget();
        self.envelopes.inflate = None;
    }

    pub(super) fn drain_if_settled(&mut self) {
        if self.state == State::Stopping && self.pending.is_empty() {
            self.state = State::Draining;
        }
    }

    fn has_tail(&self) -> bool {
        let v1 = matches!(
            self.turn,
            Turn::Open {
                version: Version::V1,
                ..
            }
        );
        v1 && self.partial.records > 0 && !self.partial.enveloped
    }

    /// Hands on the part of a v1 window.
    fn complete_tail(&mut self, now: Instant) {
        // A part is never of another version than its window.
        self.input.peer = Some(Version::V1);
        self.complete(now);
    }

    /// Whether a window has begun: an announced v2 window, or a v1 window with events.
    pub(super) fn is_inside_window(&self) -> bool {
        match self.turn {
            Turn::Open {
                version: Version::V2,
                ..
            } => true,
            _ => self.partial.records > 0,
        }
    }

    fn situation(&self) -> Situation {
        Situation {
            listening: self.state == State::Open && !self.input.held_up,
            v2_pending: self.pending.has_v2(),
            v2_peer: self.state == State::Open && self.input.peer == Some(Version::V2),
            pending: !self.pending.is_empty(),
            unfinished: self.is_inside_window() || self.input.left > 0,
            tail: self.has_tail(),
        }
    }
}

fn put_ack(out: &mut SendQueue, version: Version, sequence: u32) {
    let [a, b, c, d] = sequence.to_be_bytes();
    out.put_slice(&[version.byte(), ACK, a, b, c, d]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReaderConfig;
    use crate::frame::{self, Frame};

    #[test]
    #[allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test needs some instant, and may panic
    fn an_idle_reader_holds_no_scratch_and_no_queue() {
        let version = Version::V2;
        let json = Frame::Json {
            version,
            sequence_number: 1,
            payload: b"{}"[..].into(),
        };
        let frames = vec![json];
        let mut wire = b"2W\0\0\0\x01".to_vec();
        frame::encode(&Frame::Compressed { version, frames }, 3, &mut wire);
        let mut reader = Reader::new(ReaderConfig::bare());
        let mut input = BytesMut::from(wire.as_slice());
        reader.receive(Instant::now(), &mut input).unwrap();
        assert!(reader.poll_event().is_some());
        assert!(reader.poll_event().is_none());
        assert!(reader.envelopes.inflate.is_none());
        assert_eq!(reader.events.capacity(), 0);
    }
}
