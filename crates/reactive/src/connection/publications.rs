//! The subscriptions of the peer to publishers of this end, and the elements that wait for the transport.
//!
//! Verbs are checked in the order id, accepted, size, demand (R-RS-V8). Demand without bound does not decrease (R-RS-18,
//! R-RS-V4). Elements of a fixed size are packed, larger ones go in parts (R-RS-V2, R-RS-V9).
//!
//! Streams with waiting elements have their turns one after the other: a turn is one message, of at most
//! `split_threshold` bytes of elements. The connection keeps their order.

use std::collections::{BTreeMap, VecDeque};

use ackline_core::{SendQueue, UsageError};
use bytes::{Buf, Bytes};

use crate::message::{put_bytes, put_numbers, types};
use crate::varint::put_varint;
use crate::{UNBOUNDED, refusal};

/// The table of the peer's subscriptions.
#[derive(Debug, Default)]
pub(super) struct Publications {
    all: BTreeMap<u64, Publication>,
    /// Streams that have begun so far.
    begun: u64,
    waiting: usize,
    /// Entries of all queues.
    queued: usize,
    /// The bytes of a message before its element.
    head: Vec<u8>,
    /// Streams that were to be told of, and have nothing more that waits.
    drained: Vec<u64>,
}

/// The turn of a stream: its id, and its number among all that have begun, since ids are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    subscriber: u64,
    number: u64,
}

/// A subscription of the peer that has not ended, or whose end was not sent yet.
#[derive(Debug, Default)]
struct Publication {
    /// The size of the elements, once it was accepted.
    element_size: Option<usize>,
    demand: u64,
    queue: VecDeque<Waiting>,
    /// Bytes in the queue.
    waiting: usize,
    /// The rest of an element of which parts were sent.
    split: Option<(u64, Bytes)>,
    /// The number of the next element that goes in parts.
    next_element: u64,
    /// Whether the application has ended it: no verb knows it any more.
    is_over: bool,
    has_turn: bool,
    /// Whether it is to be told when nothing of it waits any more.
    wants_room: bool,
    /// Its number among all that have begun.
    number: u64,
}

/// Something that waits for its turn.
#[derive(Debug)]
enum Waiting {
    /// An element of any size.
    Element(Bytes),
    /// Elements of the stream's size, one behind the other.
    Fixed(Bytes),
    /// The end of the stream: complete, or the text of an error.
    End(Option<String>),
}

impl Publications {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has(&self, subscriber: u64) -> bool {
        self.all.contains_key(&subscriber)
    }

    /// Subscriptions that the application has not ended, ascending.
    pub(super) fn open(&self) -> Vec<u64> {
        let open = self.all.iter().filter(|(_, one)| !one.is_over);
        open.map(|(id, _)| *id).collect()
    }

    pub(super) fn begin(&mut self, subscriber: u64, demand: u64) {
        self.begun = self.begun.wrapping_add(1);
        let publication = Publication {
            demand,
            number: self.begun,
            ..Publication::default()
        };
        self.all.insert(subscriber, publication);
    }

    fn get(&self, subscriber: u64) -> Result<&Publication, UsageError> {
        let found = self.all.get(&subscriber).filter(|one| !one.is_over);
        found.ok_or(refusal::UNKNOWN_SUBSCRIBER)
    }

    fn get_mut(&mut self, subscriber: u64) -> Result<&mut Publication, UsageError> {
        let found = self.all.get_mut(&subscriber).filter(|one| !one.is_over);
        found.ok_or(refusal::UNKNOWN_SUBSCRIBER)
    }

    pub(super) fn accept(&mut self, subscriber: u64, element_size: u64) -> Result<(), UsageError> {
        let one = self.get_mut(subscriber)?;
        if one.element_size.is_some() {
            return Err(refusal::UNKNOWN_SUBSCRIBER);
        }
        // No element is larger than memory.
        one.element_size = Some(usize::try_from(element_size).unwrap_or(usize::MAX));
        Ok(())
    }

    pub(super) fn reject(&mut self, subscriber: u64) -> Result<(), UsageError> {
        if self.get(subscriber)?.element_size.is_some() {
            return Err(refusal::UNKNOWN_SUBSCRIBER);
        }
        self.remove(subscriber);
        Ok(())
    }

    pub(super) fn demand(&self, subscriber: u64) -> Result<u64, UsageError> {
        self.get(subscriber).map(|one| one.demand)
    }

    pub(super) fn waiting(&self, subscriber: u64) -> Result<usize, UsageError> {
        self.get(subscriber).map(|one| one.waiting)
    }

    /// Elements, and runs of packed ones, that wait.
    pub(super) fn queued(&self, subscriber: u64) -> Result<usize, UsageError> {
        self.get(subscriber).map(|one| one.queue.len())
    }

    /// Asks to be told when nothing of a stream waits any more.
    pub(super) fn want_room(&mut self, subscriber: u64) -> Result<(), UsageError> {
        self.get_mut(subscriber)?.wants_room = true;
        Ok(())
    }

    /// The next stream that was to be told of, and of which nothing waits any more.
    pub(super) fn drained(&mut self) -> Option<u64> {
        self.drained.pop()
    }

    /// Elements, and runs of packed ones, of all streams that wait.
    pub(super) const fn queued_entries(&self) -> usize {
        self.queued
    }

    pub(super) const fn waiting_bytes(&self) -> usize {
        self.waiting
    }

    /// The peer requests more. Returns whether there is such a subscription (R-RS-15).
    pub(super) fn request(&mut self, subscriber: u64, demand: u64) -> bool {
        let Ok(one) = self.get_mut(subscriber) else {
            return false;
        };
        one.demand = one.demand.saturating_add(demand).min(UNBOUNDED);
        true
    }

    /// The peer cancels. Returns whether the application had not ended the stream.
    pub(super) fn cancel(&mut self, subscriber: u64) -> bool {
        let is_open = self.get(subscriber).is_ok();
        self.remove(subscriber);
        is_open
    }

    /// Ends a subscription that the application had not ended, for a request of 0. Returns whether it was accepted.
    pub(super) fn refuse(&mut self, subscriber: u64) -> Option<bool> {
        let is_accepted = self.get(subscriber).ok()?.element_size.is_some();
        self.remove(subscriber);
        Some(is_accepted)
    }

    fn remove(&mut self, subscriber: u64) {
        if let Some(one) = self.all.remove(&subscriber) {
            self.waiting = self.waiting.saturating_sub(one.waiting);
            self.queued = self.queued.saturating_sub(one.queue.len());
        }
    }

    /// Publishes elements, all or none.
    pub(super) fn next(
        &mut self,
        subscriber: u64,
        elements: Vec<Bytes>,
    ) -> Result<Option<Turn>, UsageError> {
        let one = self.get_mut(subscriber)?;
        let size = one.element_size.ok_or(refusal::NOT_ACCEPTED)?;
        if size > 0 && elements.iter().any(|element| element.len() != size) {
            return Err(refusal::WRONG_ELEMENT_SIZE);
        }
        one.take(elements.len())?;
        let (mut bytes, count): (usize, usize) = (0, elements.len());
        for element in elements {
            bytes = bytes.saturating_add(element.len());
            one.queue.push_back(match size {
                0 => Waiting::Element(element),
                _ => Waiting::Fixed(element),
            });
        }
        Ok(self.waits(subscriber, bytes, count))
    }

    /// Publishes elements of the stream's size that stand one behind the other.
    pub(super) fn next_packed(
        &mut self,
        subscriber: u64,
        elements: Bytes,
    ) -> Result<Option<Turn>, UsageError> {
        let one = self.get_mut(subscriber)?;
        let size = one.element_size.ok_or(refusal::NOT_ACCEPTED)?;
        if size == 0 || !elements.len().is_multiple_of(size) {
            return Err(refusal::WRONG_ELEMENT_SIZE);
        }
        one.take(elements.len().checked_div(size).unwrap_or(0))?;
        let bytes = elements.len();
        if bytes > 0 {
            one.queue.push_back(Waiting::Fixed(elements));
        }
        Ok(self.waits(subscriber, bytes, usize::from(bytes > 0)))
    }

    /// Ends a stream behind its elements.
    pub(super) fn end(
        &mut self,
        subscriber: u64,
        error: Option<String>,
    ) -> Result<Option<Turn>, UsageError> {
        let one = self.get_mut(subscriber)?;
        one.element_size.ok_or(refusal::NOT_ACCEPTED)?;
        one.is_over = true;
        one.queue.push_back(Waiting::End(error));
        Ok(self.waits(subscriber, 0, 1))
    }

    /// Ends all streams behind their elements, without a message: a goodbye follows.
    pub(super) fn finish(&mut self) {
        self.all.retain(|_, one| {
            one.is_over = true;
            one.split.is_some() || !one.queue.is_empty()
        });
    }

    /// Something of a stream waits now. Returns its turn, if it has none yet.
    fn waits(&mut self, subscriber: u64, bytes: usize, entries: usize) -> Option<Turn> {
        self.waiting = self.waiting.saturating_add(bytes);
        self.queued = self.queued.saturating_add(entries);
        let one = self.all.get_mut(&subscriber)?;
        one.waiting = one.waiting.saturating_add(bytes);
        if one.has_turn || one.queue.is_empty() {
            return None;
        }
        one.has_turn = true;
        let number = one.number;
        Some(Turn { subscriber, number })
    }

    /// Sends the message whose turn it is. Returns the stream's next turn, if it has more to send.
    pub(super) fn transmit(
        &mut self,
        turn: Turn,
        out: &mut SendQueue,
        threshold: usize,
    ) -> Option<Turn> {
        let subscriber = turn.subscriber;
        let one = self.all.get_mut(&subscriber);
        let one = one.filter(|one| one.number == turn.number)?;
        let mut sending = Sending {
            subscriber,
            threshold,
            head: &mut self.head,
            out,
        };
        let (before, entries) = (one.waiting, one.queue.len());
        let is_ended = sending.turn(one);
        let sent = before.saturating_sub(one.waiting);
        self.waiting = self.waiting.saturating_sub(sent);
        // An element that goes on in parts has left the queue.
        let left = entries.saturating_sub(one.queue.len());
        self.queued = self.queued.saturating_sub(left);
        if !is_ended && (one.split.is_some() || !one.queue.is_empty()) {
            return Some(turn);
        }
        one.has_turn = false;
        if std::mem::take(&mut one.wants_room) {
            self.drained.push(subscriber);
        }
        // A goodbye ends a stream without a message.
        if is_ended || one.is_over {
            self.remove(subscriber);
        }
        None
    }
}

impl Publication {
    /// Counts elements against the demand.
    fn take(&mut self, count: usize) -> Result<(), UsageError> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let left = self.demand.checked_sub(count);
        let left = left.ok_or(refusal::NO_DEMAND)?;
        if self.demand != UNBOUNDED {
            self.demand = left;
        }
        Ok(())
    }

    /// The elements in front that one packed message takes: the pieces of at most `most` bytes.
    fn pack(&mut self, first: Bytes, most: usize) -> Vec<Bytes> {
        let (mut pieces, mut left, mut next) = (Vec::new(), most, first);
        loop {
            if next.len() > left {
                let piece = next.split_to(left);
                self.queue.push_front(Waiting::Fixed(next));
                if !piece.is_empty() {
                    pieces.push(piece);
                }
                return pieces;
            }
            left = left.saturating_sub(next.len());
            pieces.push(next);
            match self.queue.pop_front() {
                Some(Waiting::Fixed(more)) => next = more,
                Some(other) => {
                    self.queue.push_front(other);
                    return pieces;
                }
                None => return pieces,
            }
        }
    }
}

/// The writing of one message.
struct Sending<'a> {
    subscriber: u64,
    threshold: usize,
    head: &'a mut Vec<u8>,
    out: &'a mut SendQueue,
}

impl Sending<'_> {
    /// Writes the stream's next message. Returns whether that is its end.
    fn turn(&mut self, one: &mut Publication) -> bool {
        if let Some((element, rest)) = one.split.take() {
            self.part(one, element, rest);
            return false;
        }
        match one.queue.pop_front() {
            Some(Waiting::Element(element)) if element.len() > self.threshold => {
                self.split(one, element);
            }
            Some(Waiting::Element(element)) => self.element(one, element, true),
            Some(Waiting::Fixed(elements)) => self.fixed(one, elements),
            Some(Waiting::End(error)) => {
                self.end(error);
                return true;
            }
            None => {}
        }
        false
    }

    fn write(&mut self, one: &mut Publication, data: Bytes) {
        one.waiting = one.waiting.saturating_sub(data.len());
        self.out.put_slice(self.head);
        self.out.put(data);
        self.head.clear();
    }

    fn element(&mut self, one: &mut Publication, element: Bytes, has_length: bool) {
        put_numbers(self.head, &[types::ON_NEXT, self.subscriber]);
        if has_length {
            put_varint(self.head, length(&element));
        }
        self.write(one, element);
    }

    /// The first part of an element.
    fn split(&mut self, one: &mut Publication, element: Bytes) {
        let number = one.next_element;
        one.next_element = number.wrapping_add(1);
        self.part(one, number, element);
    }

    fn part(&mut self, one: &mut Publication, element: u64, mut rest: Bytes) {
        let is_last = rest.len() <= self.threshold;
        let part = if is_last {
            types::ON_NEXT_LAST_PART
        } else {
            types::ON_NEXT_PART
        };
        let data = rest.split_to(self.threshold.min(rest.len()));
        put_numbers(self.head, &[part, self.subscriber, element, length(&data)]);
        self.write(one, data);
        if !is_last {
            one.split = Some((element, rest));
        }
    }

    /// As many elements of the stream's size as one message takes (R-RS-V9).
    fn fixed(&mut self, one: &mut Publication, mut elements: Bytes) {
        let size = one.element_size.unwrap_or(0).max(1);
        if size > self.threshold {
            let first = elements.split_to(size.min(elements.len()));
            if elements.has_remaining() {
                one.queue.push_front(Waiting::Fixed(elements));
            }
            return self.split(one, first);
        }
        let most = self
            .threshold
            .saturating_sub(self.threshold.checked_rem(size).unwrap_or(0));
        let pieces = one.pack(elements, most);
        let bytes = pieces
            .iter()
            .fold(0_usize, |sum, piece| sum.saturating_add(piece.len()));
        if bytes <= size {
            put_numbers(self.head, &[types::ON_NEXT, self.subscriber]);
        } else {
            let count = bytes.checked_div(size).unwrap_or(0);
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            put_numbers(self.head, &[types::ON_NEXT_PACKED, self.subscriber, count]);
        }
        for piece in pieces {
            self.write(one, piece);
        }
    }

    fn end(&mut self, error: Option<String>) {
        match error {
            None => put_numbers(self.head, &[types::ON_COMPLETE, self.subscriber]),
            Some(error) => {
                put_numbers(self.head, &[types::ON_ERROR, self.subscriber]);
                put_bytes(self.head, error.as_bytes());
            }
        }
        self.out.put_slice(self.head);
        self.head.clear();
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
