//! Runs of messages, as they are handed out to be landed.

use std::sync::Arc;

use ackline_core::{OneRun, Payload};
use bytes::Bytes;

use crate::Message;

/// The origin of a run's messages, as their rows name it.
#[derive(Debug)]
pub struct Source {
    /// The destination; none if it is empty.
    pub destination: Option<Arc<str>>,
    /// The attributes of the rows.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl Source {
    /// Messages of this .NET type to this destination, from a peer that gives itself this name.
    pub(super) fn new(
        destination: &Arc<str>,
        dotnet_type: Option<&Arc<str>>,
        identity: &Arc<str>,
    ) -> Arc<Self> {
        let identity = Some(identity).filter(|identity| !identity.is_empty());
        let named = [(DOTNET_TYPE, dotnet_type), (IDENTITY, identity)];
        let attributes = named
            .into_iter()
            .filter_map(|(name, value)| Some((Arc::from(name), Arc::clone(value?))));
        Arc::new(Self {
            destination: Some(Arc::clone(destination)).filter(|text| !text.is_empty()),
            attributes: attributes.collect(),
        })
    }

    /// Bytes of its attributes: a peer chooses them.
    fn held_bytes(&self) -> usize {
        let values = self.attributes.iter().map(|(_, value)| value.len());
        values.fold(0, usize::saturating_add)
    }
}

/// Messages to one destination with consecutive numbers, or a note.
#[derive(Debug)]
pub struct Run {
    /// The token that settles it.
    pub token: u64,
    /// The origin of its messages.
    pub source: Arc<Source>,
    /// The number of its first message, from 0, among those that came on the connection for the destination.
    pub first: u64,
    /// Its messages. A run with a note has none.
    pub messages: Vec<Kept>,
    /// Bytes of their payloads.
    pub bytes: usize,
    /// Whether its messages are acknowledged once they are safe.
    pub is_acknowledged: bool,
    /// Something for an operator.
    pub note: Option<Note>,
    /// Bytes of memory that its messages and attributes are charged, besides a price for each message.
    pub(super) held: usize,
    pub(super) from: From,
    /// The number of the run, in the order in which runs began.
    pub(super) number: u64,
    /// Stretches of messages without others between them.
    pub(super) stretches: usize,
}

impl Run {
    /// A run without messages yet; the first one will have this number.
    pub(super) fn begin(from: From, source: Arc<Source>, first: u64) -> Self {
        Self {
            token: 0,
            held: source.held_bytes(),
            source,
            first,
            messages: Vec::new(),
            bytes: 0,
            is_acknowledged: false,
            note: None,
            from,
            number: 0,
            stretches: 0,
        }
    }

    /// Takes a message, with which a stretch may begin. Returns the memory that it is charged.
    pub(super) fn push(&mut self, message: Kept, begins_stretch: bool) -> usize {
        let held = message.held_bytes();
        self.bytes = self.bytes.saturating_add(message.payload.bytes());
        self.held = self.held.saturating_add(held);
        self.stretches = self.stretches.saturating_add(begins_stretch.into());
        self.messages.push(message);
        held
    }
}

/// A message of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its properties, as they came.
    pub properties: Bytes,
    /// Its payload.
    pub payload: Payload,
}

impl Kept {
    /// The parts of a message that are kept.
    pub(super) fn of(message: &Message) -> Self {
        Self {
            properties: message.parts.raw_properties(),
            payload: message.payload(),
        }
    }

    /// Bytes of memory that it is charged.
    pub(super) fn held_bytes(&self) -> usize {
        let beside = size_of::<Bytes>().saturating_add(self.properties.len());
        self.payload.held_bytes().saturating_add(beside)
    }
}

/// An occurrence for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The handshake agreed on no acknowledgements.
    NoAcks,
    /// A command or a frame of an extension came, which means nothing to a receiver; told once for each connection.
    Ignored {
        /// The name of the command or extension, as it was sent; only the beginning of a long one.
        name: Arc<str>,
    },
    /// The peer has ended the connection with an ERROR frame.
    Failed {
        /// Its reason; only the beginning of a long one.
        error: Arc<str>,
    },
}

/// The kind of a run: only runs of messages grow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum From {
    /// Messages to this destination.
    Destination(Arc<str>),
    /// A note.
    Note,
}

impl OneRun for Run {
    type Key = From;

    fn key(&self) -> From {
        self.from.clone()
    }

    fn size(&self) -> (usize, usize) {
        (self.messages.len(), self.held)
    }
}

/// The attribute that names the .NET type of messages.
const DOTNET_TYPE: &str = "micromsg.dotnet_type";
/// The attribute with the name that the peer gives itself.
const IDENTITY: &str = "micromsg.identity";
