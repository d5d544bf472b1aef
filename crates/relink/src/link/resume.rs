//! Transports come and go: what is announced, what waits for the peer's announcements, and what its
//! resume settles (R-REL-16 to R-REL-19, R-RELINK-V2, V3, V11, V16).
//!
//! Its rules: REQ-RELINK-23, REQ-RELINK-60, R-REL-20, R-REL-33, R-RELINK-V1, R-RELINK-V3, R-RELINK-V5,
//! R-RELINK-V16.

use std::time::Instant;

use ackline_core::SendQueue;

use super::channels::Key;
use super::outgoing::Close;
use super::transmit::{acknowledgement, say_outcome};
use super::transport::{Announcing, Step, Transport};
use super::{Attach, Change, Event, Link, Over, Shutdown};
use crate::frame::{Acknowledgement, Hint, Packet, encode};
use crate::{Kind, Side};

impl Link {
    /// A new transport, its handshake done; one that is still there is void. Does nothing on a link that
    /// is over.
    pub fn attach(&mut self, now: Instant, attach: Attach) {
        if self.over.is_some() {
            return;
        }
        let resumes = attach == Attach::Resumed;
        if let Attach::New(key) = attach {
            self.key = key;
            self.note(|| Change::Established(key));
        }
        self.drop_pongs();
        let shutdown_again = resumes && self.shutdown == Shutdown::Emitted;
        self.transport = Some(Transport::new(now, resumes, shutdown_again));
        self.stats.transports = self.stats.transports.saturating_add(1);
        // Answers that were owed are void: the peer closes again.
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

    /// The connector of this transport asked for hints: these limits go out first, then what
    /// [`hint`](Self::hint) adds.
    pub fn tell_hints(&mut self, limits: &[Hint]) {
        if let Some(transport) = &mut self.transport {
            transport.hints = Some(limits.to_vec());
        }
    }

    /// Hints of the listener's are told as events from now on: the connector has asked for them.
    pub const fn hear_hints(&mut self) {
        self.hears_hints = true;
    }

    /// Tells the peer this before anything else, if it asked for hints on this transport.
    pub fn hint(&mut self, hint: Hint) {
        if let Some(transport) = &mut self.transport {
            transport.hint(hint);
        }
    }

    /// The transport is gone. What was emitted may be lost; the peer will say.
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
        if channel.gated {
            return;
        }
        transport.plan_messages(key, channel.waiting());
        if !resumes && channel.decisions.is_some() {
            transport.plan_decisions(key);
        }
        self.plan_close(key);
    }

    /// The close of a channel, if it may be emitted and is not planned.
    pub(crate) fn plan_close(&mut self, key: Key) {
        let waits = self.config.close_when_consumed;
        let (Some(transport), Some((id, channel))) =
            (&mut self.transport, self.outgoing.entry_mut(key))
        else {
            return;
        };
        if channel.gated || !transport.works() {
            return;
        }
        match channel.close {
            Close::Ready if !waits || channel.is_drained() => {
                channel.close = Close::Leaving;
                let channel = id.clone();
                self.note(|| Change::CloseLeaves { channel });
                self.publish_close(key);
            }
            Close::Kept | Close::Emitted if !channel.close_planned => {
                channel.close_planned = true;
                transport.plan.push_back(Step::Close(key));
            }
            _ => {}
        }
    }

    /// The peer has said how far it is on a channel: the rest goes out again.
    pub(crate) fn resume_channel(&mut self, key: Key) {
        let (Some(transport), Some(channel)) = (&mut self.transport, self.outgoing.get_mut(key))
        else {
            return;
        };
        if channel.gated {
            channel.resume();
            transport.plan_messages(key, channel.waiting());
        }
        self.plan_close(key);
    }

    /// The peer has announced everything (R-RELINK-V11).
    pub(crate) fn peer_resumed(&mut self) -> Result<(), Kind> {
        let Some(transport) = self.transport.as_mut().filter(|it| it.peer_resuming) else {
            return Ok(());
        };
        transport.peer_resuming = false;
        let keys = self.outgoing.keys();
        self.close_unannounced(&keys)?;
        self.stats.resumes = self.stats.resumes.saturating_add(1);
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

    /// What the peer has not announced it does not know: its answer to a close was lost, or nothing of
    /// the channel has arrived (R-REL-18).
    fn close_unannounced(&mut self, keys: &[Key]) -> Result<(), Kind> {
        let mut closed = Vec::new();
        for key in keys {
            match self.outgoing.get(*key) {
                Some(channel) if !channel.gated => {}
                Some(channel) if channel.close == Close::Emitted => closed.push(*key),
                Some(channel) if channel.is_acknowledged => {
                    self.over = Some(Over::Lost);
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

    /// An own channel is gone.
    pub(crate) fn end_channel(&mut self, key: Key) {
        let Some((channel, state)) = self.outgoing.remove(key) else {
            return;
        };
        if let (Some(transport), Some(decisions)) = (&mut self.transport, &state.decisions) {
            transport.forget_untold(key, decisions.untold());
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

    /// Announces what has arrived, was consumed and answered, then the resume; says whether all is said.
    pub(crate) fn announce(&mut self, out: &mut SendQueue) -> bool {
        while let Some(announcing) = self
            .transport
            .as_mut()
            .and_then(|it| it.announcing.as_mut())
        {
            if out.room() == 0 {
                return false;
            }
            if let Some((key, at)) = announcing.outcomes.take() {
                self.announce_outcome(key, at, out);
                continue;
            }
            let Some(key) = self.incoming.after(announcing.after.as_ref()) else {
                if let Some(transport) = &mut self.transport {
                    transport.announcing = None;
                }
                encode(&Packet::Resume, out);
                return true;
            };
            self.announce_channel(key, out);
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
        let announcing = transport.announcing.get_or_insert_default();
        announcing.after = Some(id.clone());
        if channel.announced {
            return;
        }
        let (received, consumed) = channel.announce(from_consumed);
        acknowledgement(id, Acknowledgement::Received, Some(received), out);
        acknowledgement(id, Acknowledgement::Consumed, Some(consumed), out);
        announcing.outcomes = Some((key, 0));
        // The answer to a close that came before the announcement.
        let owes = channel.close_came && channel.closed_ready;
        if owes {
            self.end_life(key);
        }
    }

    fn announce_outcome(&mut self, key: Key, at: usize, out: &mut SendQueue) {
        let position = self.position;
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return;
        };
        let said = channel
            .outcomes
            .as_mut()
            .and_then(|outcomes| outcomes.replay(at, position));
        let Some(said) = said else {
            return;
        };
        say_outcome(id, said, out);
        if let Some(Announcing { outcomes, .. }) = self
            .transport
            .as_mut()
            .and_then(|it| it.announcing.as_mut())
        {
            *outcomes = Some((key, at.saturating_add(1)));
        }
    }
}
