//! New transports: the announcements of this end, the output that waits for the peer's announcements, and the effects of
//! the peer's resume (R-REL-16 to R-REL-19, R-RELINK-V2, V3, V11, V16).
//!
//! Its rules: REQ-RELINK-23, REQ-RELINK-60, R-REL-20, R-REL-33, R-RELINK-V1, R-RELINK-V3, R-RELINK-V5,
//! R-RELINK-V16.

use std::time::Instant;

use ackline_core::SendQueue;

use super::channels::Key;
use super::end::Over;
use super::incoming::life::Life;
use super::incoming::progress::Announcement;
use super::outgoing::close::{Close, Input};
use super::transmit::{acknowledgement, say_outcome};
use super::transport::{NextOutcome, Step, Transport};
use super::{Attach, Change, Event, Link};
use crate::frame::{Acknowledgement, Hint, Packet, encode};
use crate::{Kind, Side};

impl Link {
    /// Attaches a new transport after its handshake, in place of one that is still there. Does nothing on a link that is
    /// over.
    pub fn attach(&mut self, now: Instant, attach: Attach) {
        if self.end.is_over() {
            return;
        }
        let resumes = attach == Attach::Resumed;
        if let Attach::New(key) = attach {
            self.key = key;
            self.note(|| Change::Established(key));
        }
        self.drop_pongs();
        let mut transport = Transport::new(now, resumes);
        if resumes && self.end.is_emitted() {
            transport.opening.repeat_shutdown();
        }
        self.transport = Some(transport);
        self.totals.attached();
        // The peer repeats its closes, so the answers owed for them are void.
        self.incoming.reinstate();
        for key in self.incoming.keys() {
            if let Some(channel) = self.incoming.get_mut(key) {
                channel.attached(resumes);
            }
        }
        self.charge_again();
        for key in self.outgoing.keys() {
            self.attach_outgoing(key, resumes);
        }
    }

    /// Enables hints on this transport, because its connector has asked for them: these limits go out first, then the
    /// hints that [`hint`](Self::hint) adds.
    pub fn tell_hints(&mut self, limits: &[Hint]) {
        if let Some(transport) = &mut self.transport {
            transport.opening.tell_hints(limits);
        }
    }

    /// Returns the limits of every link as hints, for a peer whose packets may have so many bytes at the most.
    pub fn limits(&self, most_packet: u64) -> Vec<Hint> {
        let limits = &self.config.limits;
        let most = limits.max_message_bytes.min(limits.max_part_bytes);
        let by_memory = most_packet.saturating_sub(HEAD_BYTES);
        vec![
            Hint::ReceiveWindow(self.config.receive_window.into()),
            Hint::MessageBytes(most.min(by_memory)),
        ]
    }

    /// Tells the listener's hints as events from now on: the connector has asked for them.
    pub const fn hear_hints(&mut self) {
        self.reader.hear_hints();
    }

    /// Sends a hint before all other packets, if the peer has asked for hints on this transport.
    pub fn hint(&mut self, hint: Hint) {
        if let Some(transport) = &mut self.transport {
            transport.opening.hint(hint);
        }
    }

    /// Removes the transport. Packets that were emitted may be lost; the next resume tells.
    pub fn detach(&mut self, _now: Instant) {
        self.transport = None;
        self.drop_pongs();
    }

    fn attach_outgoing(&mut self, key: Key, resumes: bool) {
        let (Some(transport), Some(channel)) = (&mut self.transport, self.outgoing.get_mut(key))
        else {
            return;
        };
        channel.attached(resumes);
        if channel.is_gated() {
            return;
        }
        transport.plan_messages(key, channel.waiting());
        if !resumes && channel.decisions.is_some() {
            transport.plan_decisions(key);
        }
        self.plan_close(key);
    }

    /// Plans the close of a channel, if it may be emitted and is not planned.
    pub(crate) fn plan_close(&mut self, key: Key) {
        let waits = self.config.close_when_consumed;
        let (Some(transport), Some((id, channel))) =
            (&mut self.transport, self.outgoing.entry_mut(key))
        else {
            return;
        };
        if channel.is_gated() || !transport.works() {
            return;
        }
        match channel.close() {
            Close::Ready if !waits || channel.is_drained() => {
                channel.advance(Input::Leave);
                let channel = id.clone();
                self.note(|| Change::CloseLeaves { channel });
                self.publish_close(key);
            }
            Close::Kept | Close::EmittedBefore => {
                channel.advance(Input::Plan);
                transport.plan.push_back(Step::Close(key));
            }
            _ => {}
        }
    }

    /// The peer has said how far it is on a channel: the messages after that go out again.
    pub(crate) fn resume_channel(&mut self, key: Key) {
        let (Some(transport), Some(channel)) = (&mut self.transport, self.outgoing.get_mut(key))
        else {
            return;
        };
        if channel.is_gated() {
            channel.resume();
            transport.plan_messages(key, channel.waiting());
        }
        self.plan_close(key);
    }

    /// The peer has announced everything (R-RELINK-V11).
    pub(crate) fn peer_resumed(&mut self) -> Result<(), Kind> {
        let transport = self.transport.as_mut();
        if !transport.is_some_and(|transport| transport.resuming.peer_resumes()) {
            return Ok(());
        }
        let keys = self.outgoing.keys();
        self.close_unannounced(&keys)?;
        self.totals.resumed();
        self.event(Event::Resumed);
        for key in &keys {
            self.resume_channel(*key);
        }
        let Some(transport) = &mut self.transport else {
            return Ok(());
        };
        for key in keys {
            let channel = self.outgoing.get_mut(key);
            if let Some(decisions) = channel.and_then(|channel| channel.decisions.as_mut())
                && decisions.repeat()
            {
                transport.plan_decisions(key);
            }
        }
        Ok(())
    }

    /// Handles the channels that the peer has not announced, because it does not know them: its answer to a close was
    /// lost, or no message of the channel has arrived (R-REL-18).
    fn close_unannounced(&mut self, keys: &[Key]) -> Result<(), Kind> {
        let mut closed = Vec::new();
        for key in keys {
            match self.outgoing.get(*key) {
                Some(channel) if !channel.is_gated() => {}
                Some(channel) if channel.close().was_emitted() => closed.push(*key),
                Some(channel) if channel.is_acknowledged() => {
                    self.end.finish(Over::Lost);
                    self.event(Event::LinkLost);
                    return Err(Kind::ResumeInconsistent);
                }
                _ => {}
            }
        }
        for key in closed {
            self.end_channel(key);
        }
        Ok(())
    }

    /// Ends an own channel.
    pub(crate) fn end_channel(&mut self, key: Key) {
        let Some((channel, state)) = self.outgoing.remove(key) else {
            return;
        };
        if let (Some(transport), Some(decisions)) = (&mut self.transport, &state.decisions) {
            transport.untold.forget(key, decisions.untold());
        }
        self.note(|| Change::Closed {
            side: Side::Outgoing,
            channel: channel.clone(),
        });
        self.event(Event::Closed {
            channel,
            unacknowledged: state.outstanding(),
        });
    }

    /// Announces the received, consumed and answered messages of every channel, then the resume. Returns whether all of it
    /// is emitted.
    pub(crate) fn announce(&mut self, out: &mut SendQueue) -> bool {
        while let Some(transport) = &mut self.transport
            && let Some(announcing) = transport.resuming.announcing()
        {
            if out.room() == 0 {
                return false;
            }
            if let Some(next) = announcing.outcomes.take() {
                self.announce_outcome(next, out);
            } else if let Some(key) = self.incoming.after(announcing.after.as_ref()) {
                self.announce_channel(key, out);
            } else {
                transport.resuming.announced();
                encode(&Packet::Resume, out);
            }
        }
        true
    }

    fn announce_channel(&mut self, key: Key, out: &mut SendQueue) {
        let from_consumed = self.config.resume_from_consumed;
        let (Some(transport), Some((id, channel))) =
            (&mut self.transport, self.incoming.entry_mut(key))
        else {
            return;
        };
        let Some(announcing) = transport.resuming.announcing() else {
            return;
        };
        announcing.after = Some(id.clone());
        let Some(Announcement { received, consumed }) = channel.announce(from_consumed) else {
            return;
        };
        acknowledgement(id, Acknowledgement::Received, Some(received), out);
        acknowledgement(id, Acknowledgement::Consumed, Some(consumed), out);
        announcing.outcomes = Some(NextOutcome { key, run: 0 });
        // The peer's close may have come before the announcement.
        if channel.life() == Life::Ended {
            self.owe_closed(key);
        }
    }

    fn announce_outcome(&mut self, next: NextOutcome, out: &mut SendQueue) {
        let NextOutcome { key, run } = next;
        let position = self.position;
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return;
        };
        let said = channel
            .outcomes
            .as_mut()
            .and_then(|outcomes| outcomes.replay(run, position));
        let Some(said) = said else {
            return;
        };
        say_outcome(id, said, out);
        if let Some(transport) = &mut self.transport
            && let Some(announcing) = transport.resuming.announcing()
        {
            let run = run.saturating_add(1);
            announcing.outcomes = Some(NextOutcome { key, run });
        }
    }
}

/// A packet's head, ids and padding, at the most, for a message of one part on one channel.
const HEAD_BYTES: u64 = 512;
