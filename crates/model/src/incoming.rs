//! One channel at its receiver.

use crate::decisions::Decisions;
use crate::packet::{Count, Event, Fault, Message, Operation, Outcome, Output, Packet};
use crate::rules::{Rule, Rules};

/// The peer's close of a channel. Only a close on this transport is answered (R-RELINK-V7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerClose {
    /// The channel is open.
    #[default]
    No,
    /// The close came on this transport.
    Here,
    /// The close came on an earlier transport.
    Before,
}

/// One life of an incoming channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incoming {
    /// Messages delivered to the application.
    pub received: Count,
    /// Messages that it has consumed.
    pub consumed: Count,
    /// Delivered messages that will arrive again (`resume_from_consumed`).
    pub again: Count,
    /// Messages that the peer was told are consumed: never more than it has sent on this transport.
    pub told: Count,
    /// The peer's decisions and the own outcomes.
    pub decisions: Decisions,
    /// The peer's close of the channel.
    pub close: PeerClose,
    /// Whether an outcome may go in channel form (R-RELINK-V4).
    pub bare: bool,
}

impl Incoming {
    /// A new life, which begins with its first message.
    pub fn new() -> Self {
        Self {
            bare: true,
            ..Self::default()
        }
    }

    /// A message arrives (REQ-RELINK-52).
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
        if self.close != PeerClose::No {
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

    /// The application has consumed the messages up to `through`; `now`: there is a transport.
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

    /// The peer's decision arrives (R-REL-13, R-RELINK-V13).
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

    /// The application answers commits. Returns the packet for the peer, which goes out if there is a transport.
    /// Without one, a resume repeats the outcome.
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
        if self.close == PeerClose::Here && rules.keep(Rule::ClosedAnswersClose) {
            self.close = PeerClose::Before;
        }
        self.bare = !rules.keep(Rule::NumberAfterReconnect);
    }

    /// Announces the channel on a new transport, with its outcomes (R-RELINK-V2).
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
        self.close == PeerClose::Here && (told || !rules.keep(Rule::ClosedWaits))
    }
}
