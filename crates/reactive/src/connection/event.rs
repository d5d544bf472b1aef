//! The events that an application is told.

use std::collections::VecDeque;
use std::sync::Arc;

use ackline_core::{EVENTS_PER_CALL, Payload};
use bytes::Bytes;

use crate::message::Field;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer's hello came: these extensions are supported by both ends.
    Connected {
        /// Their ids, ascending.
        extensions: Vec<u64>,
    },
    /// The peer subscribes to a publisher of this end, which accepts or rejects it. Take the events that wait behind it
    /// first: the subscription may have ended since, and another one may have its id.
    Subscribe {
        /// The publisher's name.
        publisher: String,
        /// The id.
        subscriber: u64,
        /// The elements that it takes at first.
        initial_demand: u64,
    },
    /// A subscription of the peer takes more elements.
    Request {
        /// The subscription.
        subscriber: u64,
        /// The further elements.
        demand: u64,
    },
    /// A subscription of the peer has ended: by the peer, or with the connection.
    Cancel {
        /// The subscription.
        subscriber: u64,
    },
    /// The peer has accepted a subscription of this end.
    Subscribed {
        /// The subscription.
        subscriber: u64,
        /// The size of every element, or 0.
        element_size: u64,
    },
    /// An element of a subscription of this end.
    Next {
        /// The subscription.
        subscriber: u64,
        /// The element, in the pieces in which it came.
        element: Payload,
    },
    /// Elements of a fixed size, one behind the other.
    Packed {
        /// The subscription.
        subscriber: u64,
        /// The size of each.
        element_size: usize,
        /// All of them.
        elements: Bytes,
    },
    /// A part of an element, where elements in parts are handed out so.
    Part {
        /// The subscription.
        subscriber: u64,
        /// The number that the publisher gave the element.
        element: u64,
        /// The part.
        data: Bytes,
        /// Whether it is the last one.
        is_last: bool,
    },
    /// A subscription of this end is complete.
    Complete {
        /// The subscription.
        subscriber: u64,
    },
    /// A subscription of this end has ended with an error, or with the connection.
    Error {
        /// The subscription.
        subscriber: u64,
        /// The error's text.
        error: Arc<str>,
    },
    /// The peer has said goodbye, or has answered ours.
    Goodbye {
        /// Its reason.
        reason: String,
    },
    /// A message of an active extension.
    Extension {
        /// Its type.
        message_type: u64,
        /// Its fields.
        fields: Vec<Field>,
    },
}

/// Bytes of events that wait, from which on nothing more is received: demand counts elements, of any size.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of memory that an event is charged besides its text or elements.
const EVENT_BYTES: usize = size_of::<Event>();

impl Event {
    /// The bytes that it holds.
    fn bytes(&self) -> usize {
        let own = match self {
            Self::Subscribe { publisher, .. } => publisher.len(),
            Self::Next { element, .. } => element.held_bytes(),
            Self::Packed { elements, .. } => elements.len(),
            Self::Part { data, .. } => data.len(),
            Self::Error { error, .. } => error.len(),
            Self::Goodbye { reason } => reason.len(),
            Self::Extension { fields, .. } => fields.iter().map(field_bytes).sum(),
            _ => 0,
        };
        own.saturating_add(EVENT_BYTES)
    }
}

fn field_bytes(field: &Field) -> usize {
    let own = match field {
        Field::Varint(_) => 0,
        Field::String(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
    };
    own.saturating_add(size_of::<Field>())
}

/// Events that wait to be taken, each with the bytes that it is charged.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    events: VecDeque<(Event, usize)>,
    bytes: usize,
}

impl EventQueue {
    pub(super) fn push(&mut self, event: Event) {
        let bytes = event.bytes();
        self.push_charged(event, bytes);
    }

    /// Adds an event whose text many events share.
    pub(super) fn push_shared(&mut self, event: Event) {
        self.push_charged(event, EVENT_BYTES);
    }

    fn push_charged(&mut self, event: Event, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.events.push_back((event, bytes));
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let (event, bytes) = self.events.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(event)
    }

    /// Whether events must be taken before more is received.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= EVENTS_PER_CALL || self.bytes >= MOST_BYTES
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
