//! One channel as its receiver knows it.

use crate::decisions::Decisions;
use crate::packet::{Count, Event, Fault, Message, Operation, Outcome, Output, Packet};
use crate::rules::{Rule, Rules};

/// One life of an incoming channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incoming {
    /// Messages delivered to the application.
    pub received: Count,
    /// Consumed by it.
    pub consumed: Count,
    /// Of the delivered ones, those that come again (`resume_from_consumed`).
    pub again: Count,
    /// Told to the peer as consumed: never more than it has sent on this transport.
    pub told: Count,
    /// The peer's decisions and the own outcomes.
    pub decisions: Decisions,
    /// The peer closes the channel.
    pub closing: bool,
    /// Its close came on this transport: only then it is answered (R-RELINK-V7).
    pub close_here: bool,
    /// An outcome may go in channel form (R-RELINK-V4).
    pub bare: bool,
}

impl Incoming {
    /// A new life: its first message is there.
    pub fn new() -> Self {
        Self {
            bare: true,
            ..Self::default()
        }
    }

    /// A message (REQ-RELINK-52).
    ///
    /// # Errors
    /// The channel is closing or the receive window is full.
    pub fn message(
        &mut self,
        channel: usize,
        message: Message,
        rules: Rules,
        out: &mut Output,
    ) -> Result<(), Fault> {
        if self.again > 0 {
            self.again -= 1;
            self.tell_consumed(channel, out);
            return Ok(());
        }
        if self.closing {
            return Err(Fault::ChannelClosing);
        }
        self.received += 1;
        if self.received - self.consumed > rules.window {
            return Err(Fault::WindowExceeded);
        }
        out.events
            .push(Event::Message(channel, self.received, message));
        Ok(())
    }

    /// The application has consumed through `through`; `now` says whether a transport is there.
    pub fn consume(&mut self, channel: usize, through: Count, now: bool, out: &mut Output) {
        self.consumed = through;
        if now {
            self.tell_consumed(channel, out);
        } else {
            self.told = through;
        }
    }

    fn tell_consumed(&mut self, channel: usize, out: &mut Output) {
        let most = self.consumed.min(self.received - self.again);
        if most > self.told {
            self.told = most;
            out.packets.push(Packet::Consumed(channel, most));
        }
    }

    /// The peer's decision (R-REL-13, R-RELINK-V13).
    ///
    /// # Errors
    /// It names a message that was not received.
    pub fn decided(
        &mut self,
        channel: usize,
        operation: Operation,
        through: Option<Count>,
        rules: Rules,
        out: &mut Output,
    ) -> Result<(), Fault> {
        let through = through.unwrap_or(self.decisions.decided + 1);
        if through > self.received {
            return Err(Fault::OutOfRange);
        }
        if through <= self.decisions.decided && rules.keep(Rule::IgnoreOldDecisions) {
            return Ok(());
        }
        self.decisions
            .decide(operation, through.max(self.decisions.decided));
        out.events.push(Event::Decided(channel, operation, through));
        Ok(())
    }

    /// The application answers commits; what the peer is to be told, if a transport is there. Without one a
    /// resume will say it.
    pub fn answer(
        &mut self,
        channel: usize,
        outcome: Outcome,
        through: Count,
        rules: Rules,
    ) -> Packet {
        let alone = self.decisions.commits_through(through) == 1;
        let adjacent = through == self.decisions.answered + 1 || !rules.keep(Rule::SkipRolledBack);
        let same = self
            .decisions
            .last_outcome()
            .is_none_or(|last| last == outcome);
        let bare = self.bare && alone && adjacent && same;
        self.decisions.answer(outcome, through);
        self.bare = true;
        Packet::Outcome(channel, outcome, (!bare).then_some(through))
    }

    /// The transport is gone.
    pub fn cut(&mut self, rules: Rules) {
        self.close_here = !rules.keep(Rule::ClosedAnswersClose) && self.closing;
        self.bare = !rules.keep(Rule::NumberAfterReconnect);
    }

    /// The outcomes that the peer must know before the channel goes on (R-RELINK-V2).
    pub fn announce(&mut self, channel: usize, rules: Rules, out: &mut Output) {
        if !rules.keep(Rule::Announce) {
            return;
        }
        let received = if rules.resume_from_consumed {
            self.consumed
        } else {
            self.received
        };
        self.again = self.received - received;
        self.told = self.consumed;
        out.packets.push(Packet::Received(channel, received));
        out.packets.push(Packet::Consumed(channel, self.consumed));
        if !rules.keep(Rule::ReplayOutcomes) {
            return;
        }
        for (outcome, through) in self.decisions.outcome_runs() {
            self.bare = true;
            out.packets
                .push(Packet::Outcome(channel, outcome, Some(through)));
        }
    }

    /// Whether every message is consumed, decided and answered.
    pub fn is_drained(&self, transactional: bool) -> bool {
        self.consumed == self.received
            && (!transactional
                || self.decisions.decided == self.received
                    && self.decisions.next_commit().is_none())
    }

    /// Whether `closed` may go out (R-REL-22, R-RELINK-V6).
    pub fn is_done(&self, transactional: bool, rules: Rules) -> bool {
        let told = self.told == self.received && self.is_drained(transactional);
        self.close_here && (told || !rules.keep(Rule::ClosedWaits))
    }
}
