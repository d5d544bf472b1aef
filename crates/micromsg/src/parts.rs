//! Destination, properties and payload of a message in one piece, as they stand in a frame: what came so goes on so.

use ackline_core::{Payload, Shared};
use bytes::Bytes;

/// The texts and the payload of a message.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// A frame from its destination on: the destination, the properties behind their length, and the payload behind its
    /// length, unless that is apart.
    frame: Bytes,
    /// Bytes of the destination.
    destination: u8,
    /// Bytes of the properties.
    properties: u16,
    /// The payload where it is not in the frame.
    apart: Option<Box<Payload>>,
    /// The memory that the frame shares with others, where all of these are small frames.
    shared: Option<Shared>,
}

/// Bytes of the length of the properties, between these and the destination.
const BETWEEN: usize = 2;

impl Parts {
    /// Parts that a frame has whole. Its payload must stand behind the shortest length.
    pub(crate) fn whole(
        (frame, shared): (Bytes, Option<Shared>),
        destination: u8,
        properties: u16,
    ) -> Self {
        Self {
            frame,
            destination,
            properties,
            apart: None,
            shared,
        }
    }

    /// Parts of which a frame has the texts, with a payload of its own.
    pub(crate) fn apart(head: Bytes, destination: u8, payload: Payload) -> Self {
        let before = usize::from(destination).saturating_add(BETWEEN);
        Self {
            properties: u16::try_from(head.len().saturating_sub(before)).unwrap_or(u16::MAX),
            frame: head,
            destination,
            apart: Some(Box::new(payload)),
            shared: None,
        }
    }

    pub(crate) fn destination(&self) -> &str {
        text(self.frame.get(..usize::from(self.destination)))
    }

    pub(crate) fn properties(&self) -> &str {
        text(
            self.frame
                .get(self.begin_of_properties()..self.end_of_texts()),
        )
    }

    /// The properties, sharing their bytes.
    pub(crate) fn raw_properties(&self) -> Bytes {
        self.frame
            .slice(self.begin_of_properties()..self.end_of_texts())
    }

    pub(crate) const fn destination_bytes(&self) -> u8 {
        self.destination
    }

    pub(crate) fn text_bytes(&self) -> usize {
        usize::from(self.destination).saturating_add(usize::from(self.properties))
    }

    fn begin_of_properties(&self) -> usize {
        usize::from(self.destination).saturating_add(BETWEEN)
    }

    fn end_of_texts(&self) -> usize {
        self.begin_of_properties()
            .saturating_add(usize::from(self.properties))
    }

    /// Begin of a payload in the frame.
    fn begin_of_payload(&self) -> usize {
        let end = self.end_of_texts();
        let behind = self.frame.len().saturating_sub(end);
        end.saturating_add(if behind > SHORT { 4 } else { 1 })
    }

    /// The payload, sharing its bytes.
    pub(crate) fn payload(&self) -> Payload {
        match &self.apart {
            Some(payload) => Payload::clone(payload),
            None => self.frame.slice(self.begin_of_payload()..).into(),
        }
    }

    /// The payload, where it is in the frame.
    pub(crate) fn payload_in_one(&self) -> Option<&[u8]> {
        let payload = self.frame.get(self.begin_of_payload()..);
        payload.filter(|_| self.apart.is_none())
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        match &self.apart {
            Some(payload) => payload.bytes(),
            None => self.frame.len().saturating_sub(self.begin_of_payload()),
        }
    }

    /// The frame from its destination on, where it has the payload.
    pub(crate) fn frame(&self) -> Option<&[u8]> {
        self.apart.is_none().then_some(&*self.frame)
    }

    /// The same with a payload in one piece, in memory that holds nothing else but what [`shared`](Self::shared) says.
    pub(crate) fn alone(mut self) -> Self {
        if let Some(payload) = &mut self.apart {
            self.frame = alone(self.frame);
            let has_one = payload.len() == 1;
            let joined = payload.to_bytes();
            **payload = if has_one { alone(joined) } else { joined }.into();
        } else if self.shared.is_none() && self.frame.len() > SMALL_BYTES {
            self.frame = alone(self.frame);
        }
        self
    }

    /// The same in memory that is shared with nothing.
    pub(crate) fn unshared(mut self) -> Self {
        if self.shared.take().is_some() {
            self.frame = alone(self.frame);
        }
        self
    }

    /// The memory that a small frame shares with others.
    pub(crate) const fn shared(&self) -> Option<Shared> {
        self.shared
    }

    /// The same with other memory for the payload, with the same bytes.
    pub(crate) fn moved(mut self, memory: impl FnOnce(Bytes) -> Bytes) -> Self {
        match &mut self.apart {
            Some(payload) => **payload = memory(payload.to_bytes()).into(),
            None => self.frame = memory(self.frame),
        }
        self
    }

    /// Bytes that they hold.
    pub(crate) fn held_bytes(&self) -> usize {
        let apart = self
            .apart
            .as_ref()
            .map_or(0, |payload| payload.held_bytes());
        self.frame.len().saturating_add(apart)
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.destination() == other.destination()
            && self.properties() == other.properties()
            && self.payload() == other.payload()
    }
}

impl Eq for Parts {}

/// Most bytes of a payload behind a length of one byte, with that.
const SHORT: usize = 256;

/// Bytes that keep no others in memory. Those of a large frame are in a buffer of that frame.
fn alone(bytes: Bytes) -> Bytes {
    if bytes.len() > BUFFER_BYTES {
        return bytes;
    }
    Bytes::copy_from_slice(&bytes)
}

/// Frames up to this many bytes are copied when they come: a larger one keeps the buffer in which it came.
pub(crate) const SMALL_BYTES: usize = 16 << 10;
/// Bytes of the largest buffer that frames share.
const BUFFER_BYTES: usize = 256 << 10;

/// Text that was found to be ASCII before.
fn text(bytes: Option<&[u8]>) -> &str {
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Head;

    fn parts(destination: &str, properties: &str, payload: &[u8]) -> Parts {
        let head = Head {
            sequence_number: 7,
            destination,
            properties,
        };
        head.parts(Bytes::copy_from_slice(payload))
    }

    #[test]
    fn all_parts_are_found_whatever_their_lengths() {
        let long = "p:N1;".repeat(9_000);
        for destination in ["", "d", &"d".repeat(255)] {
            for properties in ["", "a:N1;", &long] {
                for len in [0, 1, 254, 255, 256, 257, 2_048, 2_049, 70_000] {
                    let payload: Vec<u8> =
                        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
                    let found = parts(destination, properties, &payload);
                    assert_eq!(found.destination(), destination);
                    assert_eq!(found.properties(), properties);
                    assert_eq!(found.raw_properties(), properties);
                    assert_eq!(found.payload().to_bytes(), payload);
                    assert_eq!(found.payload_bytes(), len);
                    assert_eq!(found.text_bytes(), destination.len() + properties.len());
                    if let Some(one) = found.payload_in_one() {
                        assert_eq!(one, payload);
                    }
                    assert_eq!(found.clone().alone(), found);
                    assert_eq!(found.clone().moved(|memory| memory.to_vec().into()), found);
                    assert!(found.held_bytes() >= found.text_bytes() + len);
                }
            }
        }
    }

    #[test]
    fn parts_are_equal_wherever_the_payload_stands() {
        let one = parts("d", "a:N1;", b"payload");
        let head = Bytes::from_static(b"d\0\x05a:N1;");
        let pieces = [Bytes::from_static(b"pay"), Bytes::from_static(b"load")];
        let apart = Parts::apart(head, 1, pieces.into_iter().collect());
        assert_eq!(apart.payload_in_one(), None);
        assert_eq!(apart.frame(), None);
        assert_eq!(apart.alone(), one);
        assert_ne!(parts("d", "a:N1;", b"payloa"), one);
        assert_ne!(parts("e", "a:N1;", b"payload"), one);
        assert_ne!(parts("d", "a:N2;", b"payload"), one);
    }
}
