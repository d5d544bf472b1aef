//! Everything of the peer's that waits for the application.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::{OwnEnd, Session};
use crate::text::Command;
use crate::{AckPolicy, Connection, Error, Message, Subscribe, refusal};

/// A message with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Its number among all messages of the connection, from 1.
    pub position: u64,
    /// The message.
    pub message: Message,
}

/// A command of the peer's.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrival {
    /// It subscribes to a topic or a queue, or changes the filter of a subscription.
    Subscribe(Subscribe),
    /// It ends a subscription.
    Unsubscribe(String),
    /// Another command.
    Command(Command),
}

impl Arrival {
    fn bytes(&self) -> usize {
        let own = match self {
            Self::Subscribe(one) => one.held_bytes(),
            Self::Unsubscribe(topic) => topic.len(),
            Self::Command(command) => command.held_bytes(),
        };
        own.saturating_add(WAITING_BYTES)
    }
}

/// Bytes that something that waits takes beside its own, about.
const WAITING_BYTES: usize = 96;

/// Messages, commands and frames of extensions that were not taken, and the messages that were not acknowledged.
#[derive(Debug)]
pub(super) struct Inbox {
    policy: AckPolicy,
    messages: VecDeque<Message>,
    /// Commands, each with the number of messages that came before it.
    arrivals: VecDeque<(u64, Arrival)>,
    extensions: VecDeque<(Arc<str>, Bytes)>,
    bytes: usize,
    /// With so many bytes nothing more is received.
    most: usize,
    /// Messages that were taken.
    taken: u64,
    /// Sequence numbers of messages that were taken and not acknowledged.
    unacknowledged: VecDeque<u16>,
    /// Messages of these that are processed, where they are acknowledged by themselves.
    processed: usize,
    /// Messages, the last taken ones, that were not handed on.
    withheld: usize,
}

impl Inbox {
    pub(super) const fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            messages: VecDeque::new(),
            arrivals: VecDeque::new(),
            extensions: VecDeque::new(),
            bytes: 0,
            most: usize::MAX,
            taken: 0,
            unacknowledged: VecDeque::new(),
            processed: 0,
            withheld: 0,
        }
    }

    pub(super) fn push_message(&mut self, message: Message) {
        self.add(message.held_bytes().saturating_add(WAITING_BYTES));
        self.messages.push_back(message);
    }

    pub(super) fn push_arrival(&mut self, arrival: Arrival) {
        self.add(arrival.bytes());
        let waiting = u64::try_from(self.messages.len()).unwrap_or(u64::MAX);
        let before = self.taken.saturating_add(waiting);
        self.arrivals.push_back((before, arrival));
    }

    pub(super) fn push_extension(&mut self, name: Arc<str>, payload: Bytes) {
        self.add(payload.len().saturating_add(WAITING_BYTES));
        self.extensions.push_back((name, payload));
    }

    const fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    const fn remove(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Drops everything that was not taken.
    fn clear(&mut self) {
        self.messages = VecDeque::new();
        self.arrivals = VecDeque::new();
        self.extensions = VecDeque::new();
        self.bytes = 0;
    }

    pub(super) fn len(&self) -> usize {
        let messages = self.messages.len().saturating_add(self.arrivals.len());
        messages.saturating_add(self.extensions.len())
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= self.most
    }

    pub(super) fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn has_arrival(&self) -> bool {
        !self.arrivals.is_empty()
    }

    pub(super) fn has_extension(&self) -> bool {
        !self.extensions.is_empty()
    }

    /// Takes the messages in front, as [`Session::receive_some`] says.
    fn take_some(&mut self, max: usize, bytes: usize, has_acks: bool) -> Vec<Received> {
        let most = max.max(1).min(self.messages.len());
        let (mut all, mut held) = (Vec::with_capacity(most), 0_usize);
        while all.len() < most
            && held < bytes.max(1)
            && let Some(message) = self.messages.pop_front()
        {
            held = held.saturating_add(message.held_bytes());
            all.push(self.taken(message, has_acks));
        }
        all
    }

    fn taken(&mut self, message: Message, has_acks: bool) -> Received {
        self.remove(message.held_bytes().saturating_add(WAITING_BYTES));
        self.taken = self.taken.saturating_add(1);
        if has_acks {
            self.unacknowledged.push_back(message.sequence_number);
        }
        Received {
            position: self.taken,
            message,
        }
    }

    /// Everything that was taken and handed on is processed (R-MM-24). Acknowledgements may come early (REQ-MM-27): half a
    /// window of processed messages is acknowledged at once, so that the sender need not stop.
    pub(super) fn processed_all(&mut self, machine: &mut Connection, now: Instant) {
        let handed_on = self.unacknowledged.len().saturating_sub(self.withheld);
        if self.policy == AckPolicy::Manual || self.processed >= handed_on {
            return;
        }
        self.processed = handed_on;
        let last = handed_on.checked_sub(1);
        if let Some(last) = last.and_then(|last| self.unacknowledged.get(last).copied()) {
            let half = usize::from(machine.windowed().unwrap_or(0) / 2).max(1);
            // It was delivered and is not acknowledged. After the connection's end nobody hears it, but for a peer that has
            // ended its own direction alone.
            if handed_on >= half || machine.processed(now, last).is_err() {
                let _ = machine.ack_late(last);
            }
        }
        self.forget(machine);
    }

    /// Drops the numbers of messages that the machine has acknowledged.
    fn forget(&mut self, machine: &Connection) {
        let waiting = usize::from(machine.unacknowledged()).saturating_sub(self.messages.len());
        while self.unacknowledged.len() > waiting {
            self.unacknowledged.pop_front();
            self.processed = self.processed.saturating_sub(1);
        }
    }
}

impl Session {
    /// Takes the next message; `None` once the peer has ended the connection in order. With the policy `auto` the messages
    /// that were taken before count as processed, and are acknowledged soon, also where the first look finds none.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there. [`Error::Failed`]; [`Error::Ended`].
    pub fn receive(&mut self) -> Result<Option<Received>, Error> {
        self.inbox.processed_all(&mut self.machine, self.now);
        let has_acks = self.machine.windowed().is_some();
        match self.inbox.messages.pop_front() {
            Some(message) => Ok(Some(self.inbox.taken(message, has_acks))),
            None => self.nothing(),
        }
    }

    /// Receives nothing more while so many bytes wait to be taken.
    pub const fn limit_inbox(&mut self, bytes: usize) {
        self.inbox.most = bytes;
    }

    /// Drops what has come and was not taken: nobody takes anything more.
    pub fn drop_arrived(&mut self) {
        self.inbox.clear();
    }

    /// Takes the messages that are there, at least one, up to `max`, and none behind one with which they have `bytes` of texts
    /// and payloads; none
    /// once the peer has ended the connection in order.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_some(&mut self, max: usize, bytes: usize) -> Result<Vec<Received>, Error> {
        self.inbox.processed_all(&mut self.machine, self.now);
        if !self.inbox.has_message() {
            return Ok(self.nothing::<Vec<_>>()?.unwrap_or_default());
        }
        let has_acks = self.machine.windowed().is_some();
        Ok(self.inbox.take_some(max, bytes, has_acks))
    }

    /// For a caller that takes messages ahead of its application: those before the last `count` taken ones are processed, and
    /// these are not, also where the connection is closed.
    pub fn withhold(&mut self, count: usize) {
        self.inbox.withheld = count;
        self.inbox.processed_all(&mut self.machine, self.now);
    }

    fn has_ended_in_order(&self) -> bool {
        let is_closed = self.own_end == Some(OwnEnd::Closed);
        self.failed.is_none() && self.machine.fault().is_none() && (self.has_eof || is_closed)
    }

    /// Acknowledges all taken messages up to a position.
    ///
    /// # Errors
    /// `out_of_range`: no such message was taken, or it was acknowledged; `extension_not_negotiated`: there are no
    /// acknowledgements; the end.
    pub fn ack(&mut self, position: u64) -> Result<(), Error> {
        let Some(back) = self.inbox.taken.checked_sub(position) else {
            return Err(self.over().unwrap_or(Error::Usage(refusal::OUT_OF_RANGE)));
        };
        let waiting = self.inbox.unacknowledged.len();
        let at = usize::try_from(back).ok().and_then(|back| {
            let behind = back.checked_add(1)?;
            waiting.checked_sub(behind)
        });
        let number = at.and_then(|at| self.inbox.unacknowledged.get(at).copied());
        let acked = match number {
            Some(number) => self.machine.ack_late(number),
            None if self.machine.windowed().is_none() => Err(refusal::EXTENSION_NOT_NEGOTIATED),
            None => Err(refusal::OUT_OF_RANGE),
        };
        if let (Ok(()), Some(at)) = (&acked, at) {
            self.inbox.unacknowledged.drain(..=at);
            self.inbox.processed = 0;
        }
        self.told(acked)
    }

    /// All messages that were taken are processed: with the policy `auto` they are acknowledged soon.
    pub fn processed(&mut self) {
        self.inbox.processed_all(&mut self.machine, self.now);
    }

    /// Takes the next command; `None` once the connection has ended in order.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there. [`Error::Failed`]; [`Error::Ended`].
    pub fn take_arrival(&mut self) -> Result<Option<Arrival>, Error> {
        match self.inbox.arrivals.pop_front() {
            Some((_, arrival)) => {
                self.inbox.remove(arrival.bytes());
                Ok(Some(arrival))
            }
            None => self.nothing(),
        }
    }

    /// The messages that came before the next command and were not taken; `None`: no command is there.
    pub fn messages_before_arrival(&self) -> Option<usize> {
        let (before, _) = self.inbox.arrivals.front()?;
        let left = before.saturating_sub(self.inbox.taken);
        Some(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Takes the next frame of an extension: the extension's name, and the bytes; `None` once the connection has ended in
    /// order.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there. [`Error::Failed`]; [`Error::Ended`].
    pub fn take_extension(&mut self) -> Result<Option<(Arc<str>, Bytes)>, Error> {
        match self.inbox.extensions.pop_front() {
            Some((name, payload)) => {
                self.inbox
                    .remove(payload.len().saturating_add(WAITING_BYTES));
                Ok(Some((name, payload)))
            }
            None => self.nothing(),
        }
    }

    /// Why nothing is there; `None` where the connection has ended in order.
    fn nothing<T>(&self) -> Result<Option<T>, Error> {
        match self.over() {
            None => Err(Error::Blocked),
            Some(_) if self.has_ended_in_order() => Ok(None),
            Some(error) => Err(error),
        }
    }
}
