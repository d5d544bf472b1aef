//! A message on its way to any number of receivers.

use std::sync::Arc;

use ackline_core::UsageError;
use bytes::Bytes;

use super::held::Count;
use crate::Message;
use crate::frame::COPIED_BYTES;
use crate::frame::Head;
use crate::parts::Parts;
use crate::text::{check_destination, check_texts};

/// A message on its way to any number of receivers. Its texts are sound.
#[derive(Debug)]
pub struct Routed {
    parts: Parts,
    dotnet_type: Option<Arc<str>>,
    /// Its bytes, where receivers copy the payload; else the payload has them.
    counted: Option<Count>,
}

impl Routed {
    /// A message with its properties as they go on the wire.
    ///
    /// # Errors
    /// `not_ascii`; `out_of_range`: a destination above 255 bytes, or properties above 65,535.
    pub fn new(
        destination: &str,
        properties: &str,
        payload: Bytes,
        dotnet_type: Option<Arc<str>>,
    ) -> Result<Self, UsageError> {
        check_destination(destination)?;
        check_texts(properties, dotnet_type.as_deref())?;
        let head = Head {
            sequence_number: 0,
            destination,
            properties,
        };
        Ok(Self {
            parts: head.parts(payload),
            dotnet_type,
            counted: None,
        })
    }

    /// A message that has come.
    pub fn of(message: &Message) -> Self {
        let parts = message.parts.clone().alone();
        let dotnet_type = message.dotnet_type.clone();
        Self {
            // A type counts with its message.
            parts: match dotnet_type {
                Some(_) => parts.unshared(),
                None => parts,
            },
            dotnet_type,
            counted: None,
        }
    }

    /// The same message in memory of its own.
    pub(super) fn unshared(mut self) -> Self {
        self.parts = self.parts.unshared();
        self
    }

    /// The same message, counted until it is dropped, with what connections share of its payload.
    pub(super) fn counted(mut self, counted: Count) -> Self {
        if self.has_large_payload() {
            self.parts = self.parts.moved(|memory| counted.own(memory));
        } else {
            self.counted = Some(counted);
        }
        self
    }

    /// Whether connections share its payload, in place of a copy.
    pub(super) fn has_large_payload(&self) -> bool {
        self.parts.payload_bytes() > COPIED_BYTES
    }

    pub(crate) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Its destination.
    pub fn destination(&self) -> &str {
        self.parts.destination()
    }

    /// Its properties, as they go on the wire.
    pub fn properties(&self) -> &str {
        self.parts.properties()
    }

    /// Its payload, sharing its bytes.
    pub fn payload(&self) -> Bytes {
        self.parts.payload().to_bytes()
    }

    /// Its .NET type.
    pub const fn dotnet_type(&self) -> Option<&Arc<str>> {
        self.dotnet_type.as_ref()
    }

    /// Bytes that it holds, with its type, and with those beside its texts and its payload.
    pub fn bytes(&self) -> usize {
        let named = self.dotnet_type.as_ref().map_or(0, |name| name.len());
        let own = self.parts.text_bytes().saturating_add(ROUTED_BYTES);
        own.saturating_add(self.parts.payload_bytes())
            .saturating_add(named)
    }
}

impl PartialEq for Routed {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts && self.dotnet_type == other.dotnet_type
    }
}

impl Eq for Routed {}

/// Bytes that a message takes beside its own, about: many empty ones have a price too.
pub(super) const ROUTED_BYTES: usize = 128;
