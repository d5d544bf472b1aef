//! One channel at its sender.

use crate::decisions::Decisions;
use crate::packet::{Count, Event, Fault, Message, Operation, Outcome, Output, Packet};
use crate::rules::{Rule, Rules};

/// How far the closing of a channel is (R-RELINK-V16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Closing {
    /// The application has not closed the channel.
    #[default]
    No,
    /// The application has closed it, and nothing was written.
    Called,
    /// The close was written, and may be lost with its transport.
    Written,
}

/// One life of an outgoing channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The life's first message; the others follow.
    pub first: Message,
    /// Whether the messages have to be decided and answered too.
    pub transactional: bool,
    /// Messages that the application has sent.
    pub sent: Count,
    /// Messages written on any transport.
    pub written: Count,
    /// Messages acknowledged as received.
    pub received: Count,
    /// Messages acknowledged as consumed.
    pub consumed: Count,
    /// Own decisions and the peer's outcomes.
    pub decisions: Decisions,
    /// How far its closing is.
    pub closing: Closing,
    /// Whether it existed at the last cut and has not been resumed since (R-REL-19).
    pub gated: bool,
    /// Whether a decision may go in channel form: there was no cut since the last one in sequence form (R-RELINK-V4).
    pub bare: bool,
    /// With `decide_between`: the messages that this transport has carried.
    pub carried: Carried,
}

/// The messages of a life that a transport has carried, and their decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Carried {
    /// The last messages of decisions, one bit each.
    pub ends: u8,
    /// Messages written on this transport, or known to be received.
    pub count: Count,
    /// Carried messages whose decision was told.
    pub told: Count,
}

impl Carried {
    /// Whether a decision ends with the message that `count` includes.
    pub fn is_end(self, count: Count) -> bool {
        self.ends >> (count - 1) & 1 == 1
    }
}

impl Outgoing {
    /// A new life.
    pub fn new(first: Message, transactional: bool) -> Self {
        Self {
            first,
            transactional,
            bare: true,
            ..Self::default()
        }
    }

    /// Writes the messages that are not written yet, then the close if the application has called it.
    pub fn write(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        self.write_from(self.written, channel, out);
        self.write_close(channel, rules, out);
    }

    fn write_from(&mut self, from: Count, channel: usize, out: &mut Output) {
        let messages = (from..self.sent).map(|index| Packet::Message {
            channel,
            message: self.first + index,
        });
        out.packets.extend(messages);
        self.written = self.sent;
    }

    fn write_close(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        let may = !rules.close_when_consumed || self.is_settled();
        if self.closing == Closing::Called && may {
            out.packets.push(Packet::Close(channel));
            self.closing = Closing::Written;
        }
    }

    /// The transport is gone.
    pub fn cut(&mut self, rules: Rules) {
        self.gated = rules.keep(Rule::WaitForAnnouncement);
        self.bare = !rules.keep(Rule::NumberAfterReconnect);
    }

    /// Resumes the channel, because of an acknowledgement or the peer's resume: every message after `received` goes
    /// out again (R-REL-19).
    pub fn resume(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        self.gated = false;
        let from = if rules.keep(Rule::ResendAfterReceived) {
            self.received
        } else {
            self.consumed
        };
        self.write_from(from, channel, out);
        if self.closing == Closing::Written && rules.keep(Rule::RepeatClose) {
            self.closing = Closing::Called;
        }
        self.write_close(channel, rules, out);
    }

    /// A `received` or `consumed` arrives (R-REL-12, R-RELINK-V12).
    ///
    /// # Errors
    /// It names a message that is not written.
    pub fn acknowledged(
        &mut self,
        channel: usize,
        packet: Packet,
        rules: Rules,
        out: &mut Output,
    ) -> Result<(), Fault> {
        let (consumed, through) = match packet {
            Packet::Consumed(_, through) => (true, through),
            Packet::Received(_, through) => (false, through),
            _ => return Ok(()),
        };
        let least = if consumed {
            self.consumed
        } else {
            self.received
        };
        if through < least || through > self.written {
            return Err(Fault::OutOfRange);
        }
        self.received = self.received.max(through);
        if consumed {
            self.consumed = through;
        }
        if through > least {
            let event = if consumed {
                Event::Consumed
            } else {
                Event::Received
            };
            out.events.push(event(channel, through));
        }
        if self.gated {
            self.resume(channel, rules, out);
        }
        Ok(())
    }

    /// The application decides; `now`: the decision may go out at once (R-RELINK-V4).
    pub fn decide(
        &mut self,
        channel: usize,
        operation: Operation,
        through: Count,
        now: bool,
        rules: Rules,
        out: &mut Output,
    ) {
        if rules.decide_between {
            self.carried.ends |= 1 << (through - 1);
        }
        let last = self.decisions.last_operation();
        let next = through == self.decisions.decided + 1;
        let bare = self.bare && next && last.is_none_or(|last| last == operation);
        self.decisions.decide(operation, through);
        if now {
            let number = (!bare).then_some(through);
            self.bare = true;
            out.packets
                .push(Packet::Decision(channel, operation, number));
        }
    }

    /// The peer's resume has arrived: decisions without a known outcome go out again (R-REL-16).
    pub fn repeat_decisions(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        if !rules.keep(Rule::RepeatDecisions) {
            return;
        }
        for (operation, through) in self.decisions.unanswered_runs() {
            self.bare = true;
            out.packets
                .push(Packet::Decision(channel, operation, Some(through)));
        }
    }

    /// The peer's outcome arrives (R-REL-14, R-RELINK-V13).
    ///
    /// # Errors
    /// It names a message that was not committed.
    pub fn answered(
        &mut self,
        channel: usize,
        outcome: Outcome,
        through: Option<Count>,
        rules: Rules,
        out: &mut Output,
    ) -> Result<(), Fault> {
        let next = if rules.keep(Rule::SkipRolledBack) {
            self.decisions.next_commit()
        } else {
            Some(self.decisions.answered + 1)
        };
        let through = through.or(next).ok_or(Fault::OutOfRange)?;
        if through > self.decisions.decided {
            return Err(Fault::OutOfRange);
        }
        if through <= self.decisions.answered && rules.keep(Rule::IgnoreOldOutcomes) {
            return Ok(());
        }
        self.decisions
            .answer(outcome, through.max(self.decisions.answered));
        out.events.push(Event::Answered(channel, outcome, through));
        Ok(())
    }

    /// Returns how many messages were never acknowledged as consumed (R-RELINK-V23).
    pub fn unacknowledged(&self) -> Count {
        self.sent - self.consumed
    }

    /// Whether no answer of the peer is awaited.
    pub fn is_settled(&self) -> bool {
        self.consumed == self.sent
            && (!self.transactional
                || self.decisions.decided == self.sent && self.decisions.next_commit().is_none())
    }
}
