//! The model of one direction of a connection: messages, their numbers and acknowledgements, counted one by one, and the
//! subscriptions that its sender knows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::filters::{self, Condition};
use crate::Event;
use crate::text::Property;

/// The time after which processed messages are acknowledged.
pub(super) const ACK_TIMER: Duration = Duration::from_millis(500);

/// A message as its sender gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) number: u16,
    pub(super) destination: &'static str,
    pub(super) properties: String,
    pub(super) payload: Bytes,
    pub(super) dotnet_type: Option<&'static str>,
}

/// A thing that the receiver of a direction must be told.
#[derive(Debug)]
pub(super) enum Coming {
    Message(Sent),
    Command(&'static str, Vec<(String, String)>),
    Extension(Bytes),
    Subscribe(Subscription),
    Unsubscribe(&'static str),
    Error(&'static str),
}

impl Coming {
    /// Checks the event that the receiver is told.
    fn check(&self, event: &Event) {
        match (self, event) {
            (Self::Message(sent), Event::Message(came)) => {
                assert_eq!(sent.number, came.sequence_number);
                assert_eq!(sent.destination, came.destination());
                assert_eq!(sent.properties, came.raw_properties());
                assert_eq!(sent.payload, came.payload().to_bytes(), "it comes whole");
                assert_eq!(sent.dotnet_type, came.dotnet_type.as_deref());
            }
            (Self::Command(name, properties), Event::Command(came)) => {
                assert_eq!((*name, properties), (came.name.as_str(), &came.properties));
            }
            (Self::Extension(bytes), Event::Extension { name, payload }) => {
                assert_eq!((&**name, payload), ("x-note", bytes));
            }
            (Self::Subscribe(sent), Event::Subscribe(came)) => {
                assert_eq!(sent.topic, came.topic);
                assert_eq!(sent.filter, came.filter_text);
                assert_eq!(sent.filter.is_some(), came.filter.is_some());
            }
            (Self::Unsubscribe(wanted), Event::Unsubscribe { topic }) => assert_eq!(wanted, topic),
            (Self::Error(reason), Event::Error { message }) => assert_eq!(reason, message),
            (wanted, event) => unreachable!("{event:?} comes in place of {wanted:?}"),
        }
    }
}

/// A subscription as its receiver gave it.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) topic: &'static str,
    /// The filter as it is written.
    pub(super) filter: Option<String>,
    /// The conditions of the filter; none without one.
    pub(super) conditions: Vec<Condition>,
}

/// The subscriptions of one receiver, in a list.
#[derive(Debug, Default)]
pub(super) struct Topics(Vec<Subscription>);

impl Topics {
    /// Takes a subscription in place of the one to the same topic. Returns whether there was none.
    pub(super) fn set(&mut self, one: Subscription) -> bool {
        let is_new = !self.remove(one.topic);
        self.0.push(one);
        is_new
    }

    /// Removes a subscription. Returns whether there was one.
    pub(super) fn remove(&mut self, topic: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|one| one.topic != topic);
        self.0.len() < before
    }

    /// The number of subscriptions that a message matches.
    pub(super) fn matching(&self, topic: &str, properties: &[(String, Property)]) -> usize {
        let of_topic = self.0.iter().filter(|one| one.topic == topic);
        let matching = of_topic.filter(|one| filters::matches(&one.conditions, properties));
        matching.count()
    }
}

/// A direction: from the end that sends messages to the end that acknowledges them.
#[derive(Debug)]
pub(super) struct Direction {
    pub(super) window: Option<usize>,
    first: u16,
    /// Frames on their way, but acknowledgements.
    on_way: VecDeque<Coming>,
    /// All messages.
    sent: Vec<Sent>,
    /// How many of them have come, are processed, are acknowledged, and are known to be acknowledged.
    came: usize,
    processed: usize,
    acked: usize,
    known: usize,
    /// The time since which a processed message waits.
    since: Option<Instant>,
    /// The numbers of acknowledgements on their way, and the messages that are acknowledged then.
    acks: VecDeque<(u16, usize)>,
    pub(super) dotnet_type: Option<&'static str>,
}

impl Direction {
    pub(super) fn new(window: Option<usize>, first: u16) -> Self {
        Self {
            window,
            first,
            on_way: VecDeque::new(),
            sent: Vec::new(),
            came: 0,
            processed: 0,
            acked: 0,
            known: 0,
            since: None,
            acks: VecDeque::new(),
            dotnet_type: None,
        }
    }

    /// The number of a message, counted from 0.
    fn number(&self, at: usize) -> u16 {
        let before = usize::from(self.first).saturating_sub(1);
        let number = before.saturating_add(at) % 65_535;
        u16::try_from(number.saturating_add(1)).expect("it is at most 65,535")
    }

    pub(super) fn next_number(&self) -> u16 {
        self.number(self.sent.len())
    }

    pub(super) fn has_room(&self) -> bool {
        let waiting = self.sent.len().saturating_sub(self.known);
        self.window.is_none_or(|window| waiting < window)
    }

    /// Messages that the sender has not seen acknowledged.
    pub(super) fn pending(&self) -> usize {
        let waiting = self.sent.len().saturating_sub(self.known);
        self.window.map_or(0, |_| waiting)
    }

    /// Messages that have come and are not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        let waiting = self.came.saturating_sub(self.acked);
        self.window.map_or(0, |_| waiting)
    }

    pub(super) fn send(&mut self, message: Sent) {
        self.sent.push(message.clone());
        self.put(Coming::Message(message));
    }

    pub(super) fn put(&mut self, coming: Coming) {
        self.on_way.push_back(coming);
    }

    /// One of the last messages that may come again, counted from the last.
    pub(super) fn repeated(&self, back: usize) -> Option<&Sent> {
        let most = self.window?.min(self.sent.len());
        let back = back.checked_rem(most)?;
        self.sent.iter().rev().nth(back)
    }

    /// The receiver is told something: the thing that was sent.
    pub(super) fn told(&mut self, event: &Event) -> Coming {
        let next = self.on_way.pop_front();
        let next = next.expect("something was sent");
        next.check(event);
        if matches!(event, Event::Message(_)) {
            self.came = self.came.saturating_add(1);
            let open = self.came.saturating_sub(self.acked);
            assert!(
                self.window.is_none_or(|window| open <= window),
                "a window is exceeded"
            );
        }
        next
    }

    /// The messages that this number acknowledges together with all before it.
    fn through(&self, number: u16) -> Option<usize> {
        let mut open = self.acked..self.came;
        let at = open.find(|at| self.number(*at) == number)?;
        Some(at.saturating_add(1))
    }

    /// The number of one of the last messages, or of one that will come.
    pub(super) fn some_number(&self, choice: u8) -> u16 {
        let ahead = self.acked.saturating_add(usize::from(choice % 8));
        self.number(ahead.saturating_sub(usize::from(choice >> 7)))
    }

    /// The receiver acknowledges. Returns whether the number is one of a message that waits.
    pub(super) fn ack(&mut self, number: u16) -> bool {
        let Some(through) = self.through(number) else {
            return false;
        };
        self.acked = through;
        self.processed = self.processed.max(through);
        self.since = None;
        self.acks.push_back((number, through));
        true
    }

    /// The receiver has processed messages. Returns whether the number is one of a message that waits.
    pub(super) fn process(&mut self, now: Instant, number: u16) -> bool {
        let Some(through) = self.through(number) else {
            return false;
        };
        self.processed = self.processed.max(through);
        self.since.get_or_insert(now);
        let waiting = self.processed.saturating_sub(self.acked);
        if self.window.is_some_and(|window| waiting >= window) {
            self.ack_processed();
        }
        true
    }

    /// Processed messages are acknowledged.
    pub(super) fn ack_processed(&mut self) {
        if self.processed > self.acked {
            let number = self.number(self.processed.saturating_sub(1));
            assert!(self.ack(number));
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.and_then(|since| since.checked_add(ACK_TIMER))
    }

    /// The sender learns of an acknowledgement.
    pub(super) fn acknowledged(&mut self, through: u16) {
        let (number, count) = self.acks.pop_front().expect("it was sent");
        assert_eq!(number, through, "acknowledgements come in order");
        assert!(count > self.known, "each acknowledges something");
        self.known = count;
    }

    /// Everything has come, once and whole, and every acknowledgement.
    pub(super) fn check_rest(&self) {
        assert!(self.on_way.is_empty() && self.acks.is_empty(), "{self:?}");
        assert_eq!((self.came, self.known), (self.sent.len(), self.acked));
    }
}
