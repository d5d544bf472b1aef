//! The verbs: the calls of the application. A verb changes the state at once. The peer may hear of it at once too, or
//! when the journal holds it.
//!
//! Its rules: R-REL-21, R-REL-25, R-RELINK-V18.

use std::time::Instant;

use ackline_core::{Sequence, UsageError};

use super::channels::Key;
use super::end::Over;
use super::incoming::Incoming;
use super::journal::{Change, Effect};
use super::outgoing::Outgoing;
use super::outgoing::close::{Close, Input};
use super::{Event, Link};
use crate::frame::Operation;
use crate::{ChannelId, Payload};

impl Link {
    /// Sends a message on each of these channels, one number for each; several channels share one multicast packet. A
    /// channel that is not open is opened. Works without a transport too.
    ///
    /// # Errors
    /// `not_connected` (the link is over), `shutting_down`, `invalid_channel_id`, `channel_closing`,
    /// `handed_over`, `window_full` on any of the channels; nothing was sent.
    pub fn send(
        &mut self,
        now: Instant,
        channels: &[ChannelId],
        payload: Payload,
    ) -> Result<Vec<Sequence>, UsageError> {
        if let [channel] = channels {
            return Ok(vec![self.send_to(now, channel, payload)?]);
        }
        let mut sent = Vec::with_capacity(channels.len());
        for channel in channels {
            match self.push(channel, payload.clone()) {
                Ok(pushed) => sent.push(pushed),
                Err(refused) => {
                    self.take_back(&sent);
                    return Err(refused);
                }
            }
        }
        for (channel, pushed) in channels.iter().zip(&sent) {
            self.note_sent(channel, pushed.sequence, &payload);
        }
        let keys = sent.iter().map(|pushed| pushed.key).collect();
        self.publish(now, Effect::Sent(keys));
        Ok(sent.iter().map(|pushed| pushed.sequence).collect())
    }

    /// Sends a message on one channel and returns its number.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        payload: Payload,
    ) -> Result<Sequence, UsageError> {
        let noted = self.journal.is_some().then(|| payload.clone());
        let Pushed { key, sequence, .. } = self.push(channel, payload)?;
        if let Some(payload) = noted {
            self.note_sent(channel, sequence, &payload);
            self.publish(now, Effect::Sent(Box::new([key])));
        } else {
            self.apply_sent(&[key]);
        }
        Ok(sequence)
    }

    /// The application is done with the messages of the peer's channel up to `through`: they leave the receive
    /// window, and the peer is told at once or after `ack_delay`.
    ///
    /// # Errors
    /// `not_connected` (the link is over), `unknown_channel`, `out_of_range` for a number that was not
    /// delivered or is below the last one consumed.
    pub fn consume(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        through: Sequence,
    ) -> Result<(), UsageError> {
        let key = self.incoming_key(channel)?;
        let Some(state) = self.incoming.get_mut(key) else {
            return Err(UNKNOWN_CHANNEL);
        };
        if state.progress.consumed() == through {
            return Ok(());
        }
        let bytes = state.consume(through).ok_or(OUT_OF_RANGE)?;
        self.totals.consumed(bytes);
        self.note(|| Change::Consumed {
            channel: channel.clone(),
            through,
        });
        self.publish(now, Effect::Consumed { key, through });
        self.finish_if_drained(now, key);
        Ok(())
    }

    /// Tells the peer now how many messages have arrived on its channel (R-REL-20).
    ///
    /// # Errors
    /// `not_connected`, `unknown_channel`.
    pub fn notify_received(
        &mut self,
        _now: Instant,
        channel: &ChannelId,
    ) -> Result<(), UsageError> {
        let key = self.incoming_key(channel)?;
        if !self.is_attached() {
            return Err(NOT_CONNECTED);
        }
        let Some(state) = self.incoming.get_mut(key) else {
            return Err(UNKNOWN_CHANNEL);
        };
        // The announcement of a resume says it anyway.
        if state.is_announced() {
            state.owed.owe_received();
            self.owe(key);
        }
        Ok(())
    }

    /// Asks the peer to process the own messages up to `through`, or the next undecided one. Returns the last of
    /// them.
    ///
    /// # Errors
    /// `not_connected` (the link is over), `transactions_disabled`, `unknown_channel`, `out_of_range`
    /// for a number that was decided or not sent.
    pub fn commit(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, UsageError> {
        self.decide(now, channel, Operation::Commit, through)
    }

    /// Asks the peer to ignore the own messages up to `through`, or the next undecided one. Returns the last of them.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn rollback(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, UsageError> {
        self.decide(now, channel, Operation::Rollback, through)
    }

    /// Tells the peer that the commit of its messages up to `through`, or of the next one unanswered, succeeded;
    /// rolled-back messages are skipped. Returns the last of them.
    ///
    /// # Errors
    /// `not_connected` (the link is over), `transactions_disabled`, `unknown_channel`, `out_of_range`
    /// for a message that is not committed by the peer, or answered; `outcomes_full` for a channel with
    /// `max_outcome_runs` changes from success to failure that the peer has not been seen to know.
    pub fn committed(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, UsageError> {
        self.answer(now, channel, true, through)
    }

    /// Tells the peer that the commit of its messages up to `through`, or of the next one unanswered, failed;
    /// rolled-back messages are skipped. Returns the last of them.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    pub fn uncommitted(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        through: Option<Sequence>,
    ) -> Result<Sequence, UsageError> {
        self.answer(now, channel, false, through)
    }

    /// Ends an own channel. With `close_when_consumed` the peer is told when all its messages are consumed. Without
    /// it the peer is told at once, and a cut may leave their fate unknown (see [`Event::Closed`]).
    ///
    /// # Errors
    /// `not_connected` (the link is over), `implicit_channel`, `unknown_channel`, `channel_closing`.
    pub fn close_channel(&mut self, now: Instant, channel: &ChannelId) -> Result<(), UsageError> {
        if !self.end.is_over() && self.config.own_channel_id_size() == 0 {
            return Err(UsageError::new(
                "implicit_channel",
                "the one channel of a direction without ids is never closed",
            ));
        }
        let key = self.outgoing_key(channel)?;
        let Some(state) = self.outgoing.get_mut(key) else {
            return Err(UNKNOWN_CHANNEL);
        };
        if state.close() != Close::Open {
            return Err(CHANNEL_CLOSING);
        }
        state.advance(Input::Call);
        self.note(|| Change::Closing {
            channel: channel.clone(),
        });
        self.publish(now, Effect::Close(key));
        Ok(())
    }

    /// Sends a ping; [`Event::Pong`] tells the time until its pong.
    ///
    /// # Errors
    /// `not_connected`; `window_full` while 1,024 pings are unanswered.
    pub fn ping(&mut self, _now: Instant) -> Result<(), UsageError> {
        const MOST: u64 = 1_024;
        if !self.is_attached() {
            return Err(NOT_CONNECTED);
        }
        let Some(transport) = &mut self.transport else {
            return Err(NOT_CONNECTED);
        };
        if transport.pings.unanswered() >= MOST {
            return Err(UsageError::new(
                "window_full",
                "too many pings wait for their pongs",
            ));
        }
        transport.pings.want();
        Ok(())
    }

    /// Shuts this end down: it opens no more channels, and the peer is told once all own channels are closed. A
    /// second call does nothing.
    ///
    /// # Errors
    /// `not_connected` (the link is over).
    pub fn shutdown(&mut self, now: Instant) -> Result<(), UsageError> {
        if self.end.is_over() {
            return Err(NOT_CONNECTED);
        }
        if self.end.call() {
            self.note(|| Change::Shutdown);
            self.publish(now, Effect::Shutdown);
        }
        Ok(())
    }

    /// Gives the link up, because the peer does not know it any more or does not connect again. [`Event::LinkLost`]
    /// follows. If this end has shut down and nothing is left on either side, only the peer's last packet was lost,
    /// and [`Event::LinkClosed`] follows.
    pub fn lose(&mut self, _now: Instant) {
        if self.end.is_over() {
            return;
        }
        let is_done = self.end.is_emitted()
            && self.outgoing.iter().all(|(_, own)| own.is_drained())
            && self.incoming.iter().all(|(_, peers)| peers.is_drained());
        let (over, event) = if is_done {
            (Over::Closed, Event::LinkClosed)
        } else {
            (Over::Lost, Event::LinkLost)
        };
        self.end.finish(over);
        self.event(event);
    }

    fn decide(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        operation: Operation,
        through: Option<Sequence>,
    ) -> Result<Sequence, UsageError> {
        if !self.end.is_over() && !self.own_transactions() {
            return Err(TRANSACTIONS_DISABLED);
        }
        let key = self.outgoing_key(channel)?;
        let state = self.outgoing.get_mut(key).ok_or(UNKNOWN_CHANNEL)?;
        let last = state.last();
        let decisions = state.decisions.as_mut().ok_or(TRANSACTIONS_DISABLED)?;
        let through = decisions
            .decide(operation, through, last)
            .ok_or(OUT_OF_RANGE)?;
        self.note(|| Change::Decided {
            channel: channel.clone(),
            operation,
            through,
        });
        self.publish(now, Effect::Decided { key, through });
        Ok(through)
    }

    fn answer(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        committed: bool,
        through: Option<Sequence>,
    ) -> Result<Sequence, UsageError> {
        if !self.end.is_over() && !self.peer_transactions() {
            return Err(TRANSACTIONS_DISABLED);
        }
        let key = self.incoming_key(channel)?;
        self.make_room_for_outcomes(key)?;
        let state = self.incoming.get_mut(key).ok_or(UNKNOWN_CHANNEL)?;
        let outcomes = state.outcomes.as_mut().ok_or(TRANSACTIONS_DISABLED)?;
        let answered = outcomes.answer(committed, through).ok_or(OUT_OF_RANGE)?;
        let through = answered.through;
        self.note(|| Change::Answered {
            channel: channel.clone(),
            committed,
            through,
        });
        self.publish(now, Effect::Answered { key, answered });
        self.finish_if_drained(now, key);
        Ok(through)
    }

    /// Checks that a channel may keep one more run of outcomes. Above half of `max_outcome_runs` a ping finds out which
    /// ones the peer knows.
    fn make_room_for_outcomes(&mut self, key: Key) -> Result<(), UsageError> {
        let most = self.config.max_outcome_runs.max(2);
        let channel = self.incoming.get(key);
        let runs = channel.map_or(0, Incoming::outcome_runs);
        if runs > most.div_euclid(2) {
            self.ping_for_outcomes();
        }
        if runs >= most {
            return Err(UsageError::new(
                "outcomes_full",
                "the peer has not been seen to know the outcomes before this one",
            ));
        }
        Ok(())
    }

    /// Wants a ping unless there is one: its pong says that the peer knows every outcome before it.
    pub(crate) fn ping_for_outcomes(&mut self) {
        if let Some(transport) = &mut self.transport
            && transport.pings.is_idle()
        {
            transport.pings.want();
        }
    }

    fn incoming_key(&mut self, channel: &ChannelId) -> Result<Key, UsageError> {
        if self.end.is_over() {
            return Err(NOT_CONNECTED);
        }
        self.incoming
            .find(channel.as_bytes())
            .ok_or(UNKNOWN_CHANNEL)
    }

    fn outgoing_key(&mut self, channel: &ChannelId) -> Result<Key, UsageError> {
        if self.end.is_over() {
            return Err(NOT_CONNECTED);
        }
        self.outgoing
            .find(channel.as_bytes())
            .ok_or(UNKNOWN_CHANNEL)
    }

    /// Adds a message to a channel, which is opened if need be.
    fn push(&mut self, channel: &ChannelId, payload: Payload) -> Result<Pushed, UsageError> {
        if self.end.is_over() {
            return Err(NOT_CONNECTED);
        }
        if self.end.is_emitted() {
            return Err(SHUTTING_DOWN);
        }
        let window = self.send_window();
        let bytes = u64::try_from(payload.bytes()).unwrap_or(0);
        let found = self.outgoing.find(channel.as_bytes());
        let (key, opened) = match found {
            Some(key) => (key, false),
            None => (self.open(channel)?, true),
        };
        let pushed = match self.outgoing.get_mut(key) {
            Some(state) if state.close() != Close::Open => Err(CHANNEL_CLOSING),
            Some(state) if state.handed().is_some() => Err(HANDED_OVER),
            Some(state) if state.outstanding() < window => Ok(state.push(payload)),
            _ => Err(WINDOW_FULL),
        };
        match pushed {
            Ok(sequence) => {
                self.totals.sent(bytes);
                Ok(Pushed {
                    key,
                    sequence,
                    opened,
                    bytes,
                })
            }
            Err(refused) => {
                if opened {
                    self.outgoing.remove(key);
                }
                Err(refused)
            }
        }
    }

    fn open(&mut self, channel: &ChannelId) -> Result<Key, UsageError> {
        let size = self.config.own_channel_id_size();
        if channel.len() != usize::from(size) {
            return Err(UsageError::new(
                "invalid_channel_id",
                "the handshake agreed on another channel id size",
            ));
        }
        // The implicit channel is always open.
        if self.end.is_called() && size > 0 {
            return Err(SHUTTING_DOWN);
        }
        let transactions = self.own_transactions();
        let state = if self.is_attached() {
            Outgoing::new(Sequence(0), transactions)
        } else {
            Outgoing::fresh(transactions)
        };
        Ok(self.outgoing.insert(channel.clone(), state))
    }

    /// Undoes [`push`](Self::push), last first.
    fn take_back(&mut self, sent: &[Pushed]) {
        for pushed in sent.iter().rev() {
            self.totals.unsent(pushed.bytes);
            if pushed.opened {
                self.outgoing.remove(pushed.key);
            } else if let Some(state) = self.outgoing.get_mut(pushed.key) {
                state.unpush();
            }
        }
    }

    fn note_sent(&mut self, channel: &ChannelId, sequence: Sequence, payload: &Payload) {
        self.note(|| Change::Sent {
            channel: channel.clone(),
            sequence,
            payload: payload.clone(),
        });
    }
}

/// A message that has joined its channel.
struct Pushed {
    key: Key,
    sequence: Sequence,
    opened: bool,
    bytes: u64,
}

const NOT_CONNECTED: UsageError = UsageError::new(
    "not_connected",
    "there is no transport, or the link is over",
);
const SHUTTING_DOWN: UsageError =
    UsageError::new("shutting_down", "shutdown was called: no more channels");
const UNKNOWN_CHANNEL: UsageError = UsageError::new("unknown_channel", "no such channel is open");
const CHANNEL_CLOSING: UsageError =
    UsageError::new("channel_closing", "the channel is being closed");
const WINDOW_FULL: UsageError = UsageError::new(
    "window_full",
    "send_window messages of the channel wait to be consumed",
);
const HANDED_OVER: UsageError = UsageError::new(
    "handed_over",
    "the channel's messages came from another process: decide on them, and wait until they are consumed",
);
const OUT_OF_RANGE: UsageError =
    UsageError::new("out_of_range", "no such message can be named now");
const TRANSACTIONS_DISABLED: UsageError = UsageError::new(
    "transactions_disabled",
    "the handshake agreed on no transactions in this direction",
);
