//! Messages that an application makes, and how they are sent.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Session;
use crate::text::{Property, write_properties};
use crate::{Error, Outbound};

/// A message to send.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outgoing {
    /// Its destination: ASCII, up to 255 bytes.
    pub destination: String,
    /// Its properties, for filters; a name is printable ASCII without spaces and without `: ; , =`.
    pub properties: Vec<(String, Property)>,
    /// Its payload.
    pub payload: Bytes,
    /// Its .NET type, if the extension `dotnet` was agreed on.
    pub dotnet_type: Option<String>,
}

impl Outgoing {
    /// A message without properties.
    pub fn new(destination: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            destination: destination.into(),
            payload: payload.into(),
            ..Self::default()
        }
    }

    /// The same with one more property.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: Property) -> Self {
        self.properties.push((name.into(), value));
        self
    }

    /// Its properties as they go on the wire.
    ///
    /// # Errors
    /// `invalid_name`, `not_finite`.
    pub fn raw_properties(&self) -> Result<String, Error> {
        let properties = self.properties.iter();
        let named = properties.map(|(name, value)| (name.as_str(), value));
        Ok(write_properties(named)?)
    }
}

impl Outgoing {
    /// The message with its properties as they go on the wire, but for its payload.
    pub fn outbound<'a>(&'a self, properties: &'a str) -> Outbound<'a> {
        Outbound {
            destination: &self.destination,
            properties,
            dotnet_type: self.dotnet_type.as_deref(),
        }
    }
}

impl Session {
    /// Sends as many messages from the front of a queue as there is room for, at least one; returns the position of the last
    /// one, or 0 where there was none.
    ///
    /// # Errors
    /// As [`send`](Self::send): of the first message.
    pub fn send_some(&mut self, messages: &mut VecDeque<Outgoing>) -> Result<u64, Error> {
        let mut last = None;
        while let Some(message) = messages.front() {
            let properties = message.raw_properties();
            let sent = properties
                .and_then(|properties| self.send(message.outbound(&properties), &message.payload));
            match (sent, last) {
                (Ok(position), _) => last = Some(position),
                // The next call returns it.
                (Err(_), Some(last)) => return Ok(last),
                (Err(error), None) => return Err(error),
            }
            messages.pop_front();
        }
        Ok(last.unwrap_or(0))
    }
}
