//! The answers to the peer's messages and closes: when a channel owes them, and their emission.
//!
//! Its rules: REQ-RELINK-53, R-REL-21, R-REL-22.

use std::time::Instant;

use ackline_core::SendQueue;

use super::Link;
use super::channels::Key;
use super::incoming::Incoming;
use super::incoming::life::{Input, Life};
use super::incoming::owed::Answers;
use super::journal::{Change, Effect};
use super::transmit::{acknowledgement, say_outcome};
use super::transport::{Answer, Transport};
use crate::Side;
use crate::frame::Acknowledgement;

impl Transport {
    /// Puts a channel into the queue of answers, once.
    fn queue(&mut self, key: Key, channel: &mut Incoming) {
        if channel.owed.queue() {
            self.answers.push_back(Answer::Channel(key));
        }
    }
}

impl Link {
    /// A channel owes the peer an answer, which the next output emits.
    pub(crate) fn owe(&mut self, key: Key) {
        if let (Some(transport), Some(channel)) = (&mut self.transport, self.incoming.get_mut(key))
            && transport.works()
        {
            transport.queue(key, channel);
        }
    }

    /// Owes a `consumed`, at once or after `ack_delay`, if the peer was not told of all consumed messages.
    pub(crate) fn schedule_consumed(&mut self, now: Instant, key: Key) {
        let config = &self.config;
        let (Some(transport), Some(channel)) = (&mut self.transport, self.incoming.get_mut(key))
        else {
            return;
        };
        let untold = channel.progress.untold();
        if !transport.works() || !channel.is_announced() || untold == 0 {
            return;
        }
        if config.ack_delay.is_zero() || untold >= config.ack_window.max(1) {
            if let Some(void) = channel.owed.owe_consumed() {
                transport.due.remove(&(void, key));
            }
            transport.queue(key, channel);
        } else if let Some(due) = now.checked_add(config.ack_delay)
            && channel.owed.owe_consumed_at(due)
        {
            transport.due.insert((due, key));
        }
    }

    /// Owes the delayed `consumed` that are due: the oldest first, and those of one instant by ascending channel
    /// (R-RELINK-V1).
    pub(crate) fn acknowledge_due(&mut self, now: Instant) {
        let Some(transport) = &mut self.transport else {
            return;
        };
        let mut all = Vec::new();
        while let Some(timer) = transport.due.first().filter(|(due, _)| *due <= now) {
            all.push(*timer);
            transport.due.pop_first();
        }
        let incoming = &self.incoming;
        all.sort_by_key(|(due, key)| (*due, incoming.entry(*key).map(|(id, _)| id)));
        for (_, key) in all {
            if let Some(channel) = self.incoming.get_mut(key) {
                channel.owed.owe_consumed();
                transport.queue(key, channel);
            }
        }
    }

    /// Moves an incoming channel to its next state. In the state `Ended` it is not charged any more, and owes `closed`.
    /// Returns the state before.
    pub(crate) fn advance(&mut self, key: Key, input: Input) -> Option<Life> {
        let channel = self.incoming.get_mut(key)?;
        let before = channel.advance(input);
        if channel.life() == Life::Ended {
            if before != Life::Ended {
                self.uncharge_ended();
            }
            self.owe_closed(key);
        }
        Some(before)
    }

    /// Owes `closed`. From then on the id is free for the channel's next life, so that a message in the same read opens
    /// it, as one in the next read does.
    pub(crate) fn owe_closed(&mut self, key: Key) {
        self.owe(key);
        if self.incoming.get(key).is_some_and(Incoming::closes_next) {
            self.incoming.retire(key);
        }
    }

    /// Ends an incoming channel that the peer has closed, once nothing is open on it (R-REL-22).
    pub(crate) fn finish_if_drained(&mut self, now: Instant, key: Key) {
        let Some((id, channel)) = self.incoming.entry_mut(key) else {
            return;
        };
        if channel.life() != Life::Closing || !channel.is_drained() {
            return;
        }
        let channel = id.clone();
        self.advance(key, Input::Drained);
        self.note(|| Change::Closed {
            side: Side::Incoming,
            channel,
        });
        self.publish(now, Effect::Closed(key));
    }

    pub(crate) fn put_answers(&mut self, out: &mut SendQueue) {
        while out.room() > 0 {
            let answer = self
                .transport
                .as_mut()
                .and_then(|transport| transport.answers.pop_front());
            match answer {
                Some(Answer::Channel(key)) => self.put_answer(key, out),
                Some(Answer::Closed(id)) => {
                    acknowledgement(&id, Acknowledgement::Closed, None, out);
                }
                None => return,
            }
        }
    }

    /// Emits all answers that a channel owes, its `closed` last.
    fn put_answer(&mut self, key: Key, out: &mut SendQueue) {
        let (Some(transport), Some((id, channel))) =
            (&mut self.transport, self.incoming.entry_mut(key))
        else {
            return;
        };
        let Some(answers) = channel.take_answers(self.config.resume_from_consumed) else {
            return;
        };
        let Answers {
            received,
            consumed,
            is_closed,
            void_timer,
        } = answers;
        if let Some(void) = void_timer {
            transport.due.remove(&(void, key));
        }
        if received.is_some() {
            acknowledgement(id, Acknowledgement::Received, received, out);
        }
        if consumed.is_some() {
            acknowledgement(id, Acknowledgement::Consumed, consumed, out);
        }
        if let Some(outcomes) = &mut channel.outcomes {
            while let Some(said) = outcomes.emit(self.position) {
                say_outcome(id, said, out);
            }
        }
        if is_closed {
            acknowledgement(id, Acknowledgement::Closed, None, out);
            let runs = channel.outcome_runs();
            self.incoming.remove(key);
            self.count_outcomes(runs, 0);
            self.uncharge_gone();
        }
    }
}
