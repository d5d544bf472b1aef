//! The events that an application is told.

use std::collections::VecDeque;
use std::sync::Arc;

use ackline_core::{EVENTS_PER_CALL, Payload};
use bytes::Bytes;

use super::Proposal;
use crate::Filter;
use crate::frame::Version;
use crate::parts::Parts;
use crate::text::{Command, Properties};

/// An event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The peer proposes extensions, and the application answers with
    /// [`Connection::answer`](crate::Connection::answer).
    Proposed(Proposal),
    /// The handshake has ended.
    Connected(Connected),
    /// A message.
    Message(Message),
    /// The peer has acknowledged all messages up to this one.
    Acknowledged {
        /// The sequence number.
        through: u16,
    },
    /// A command that is no subscription.
    Command(Command),
    /// Bytes of an extension.
    Extension {
        /// The extension.
        name: Arc<str>,
        /// The bytes.
        payload: Bytes,
    },
    /// The peer subscribes to a topic.
    Subscribe(Subscribe),
    /// The peer ends a subscription.
    Unsubscribe {
        /// The topic.
        topic: String,
    },
    /// The peer ends the connection with an ERROR frame.
    Error {
        /// Its reason.
        message: String,
    },
}

/// The result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// The version that both ends speak.
    pub version: Version,
    /// The name that the peer gives itself.
    pub identity: String,
    /// The extensions, in the order of their numbers.
    pub extensions: Vec<String>,
}

/// A message that has come whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its sequence number.
    pub sequence_number: u16,
    /// Its texts and its payload, as they came.
    pub(crate) parts: Parts,
    /// The .NET type that was in force when it began.
    pub dotnet_type: Option<Arc<str>>,
}

impl Message {
    /// Its destination.
    pub fn destination(&self) -> &str {
        self.parts.destination()
    }

    /// Its properties, as they came.
    pub fn raw_properties(&self) -> &str {
        self.parts.properties()
    }

    /// Its properties.
    pub fn properties(&self) -> Properties<'_> {
        Properties::new(self.raw_properties().as_bytes())
    }

    /// Its payload, in the pieces in which it came, sharing their bytes.
    pub fn payload(&self) -> Payload {
        self.parts.payload()
    }

    /// Its payload, if it came in one piece with its texts.
    pub fn payload_in_one(&self) -> Option<&[u8]> {
        self.parts.payload_in_one()
    }

    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> usize {
        self.parts.payload_bytes()
    }

    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        let named = self.dotnet_type.as_ref().map_or(0, |name| name.len());
        self.parts.held_bytes().saturating_add(named)
    }
}

/// A subscription that the peer asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// The topic.
    pub topic: String,
    /// The filter.
    pub filter: Option<Arc<Filter>>,
    /// The filter as it came.
    pub filter_text: Option<String>,
}

/// Bytes of events that wait, from which on nothing more is received.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of memory that an event is charged besides its text and payload.
const EVENT_BYTES: usize = size_of::<Event>();

impl Event {
    /// The bytes that it holds.
    fn bytes(&self) -> usize {
        let own = match self {
            Self::Message(message) => message.held_bytes(),
            Self::Command(command) => command.held_bytes(),
            Self::Extension { payload, .. } => payload.len(),
            Self::Subscribe(one) => one.held_bytes(),
            Self::Unsubscribe { topic } => topic.len(),
            Self::Error { message } => message.len(),
            Self::Proposed(proposal) => proposal.held_bytes(),
            _ => 0,
        };
        own.saturating_add(EVENT_BYTES)
    }
}

impl Command {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        let properties = self.properties.iter();
        let properties = properties.map(|(name, value)| {
            let own = name.len().saturating_add(value.len());
            own.saturating_add(size_of::<(String, String)>())
        });
        properties.fold(self.name.len(), usize::saturating_add)
    }
}

impl Subscribe {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.held_bytes());
        let text = self.filter_text.as_ref().map_or(0, String::len);
        self.topic.len().saturating_add(filter).saturating_add(text)
    }
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
