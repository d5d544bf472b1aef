//! The frames that wait for the transport.

use std::collections::VecDeque;

use ackline_core::SendQueue;
use bytes::{Buf as _, Bytes};

use super::OWED_BYTES;
use crate::frame::{self, COPIED_BYTES, Head, put_parts};
use crate::parts::Parts;

/// Bytes of frames that are gathered in one buffer, about.
const GATHERED_BYTES: usize = 16 << 10;

/// Frames that wait to be sent, in the order of their calls. Acknowledgements go before them: the peer may wait for these
/// before it reads anything else.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Handshakes, which go before everything else.
    handshakes: Vec<u8>,
    acks: Vec<u8>,
    /// Bytes of acknowledgements that the peer has caused by repeats.
    owed: usize,
    waiting: VecDeque<Waiting>,
    /// Bytes in it, without those of heads.
    bytes: usize,
    /// The ERROR frame that ends the connection, behind everything else.
    error: Option<String>,
}

/// Something that waits for the transport.
#[derive(Debug)]
enum Waiting {
    /// Whole frames.
    Frames(Vec<u8>),
    /// A message of more than a few bytes: what is left of its payload goes out in fragments.
    Message(Head<Box<str>>, Bytes),
}

impl Outgoing {
    /// The buffer for a further frame.
    fn buffer(&mut self) -> &mut Vec<u8> {
        let has_room = matches!(self.waiting.back(), Some(Waiting::Frames(frames)) if frames.len() < GATHERED_BYTES);
        if !has_room {
            self.waiting.push_back(Waiting::Frames(Vec::new()));
        }
        let Some(Waiting::Frames(frames)) = self.waiting.back_mut() else {
            unreachable!("it was pushed above");
        };
        frames
    }

    /// Puts a frame that `write` appends.
    pub(super) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let frames = self.buffer();
        let before = frames.len();
        write(frames);
        let bytes = frames.len().saturating_sub(before);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Puts a handshake: the peer reads no acknowledgement before it.
    pub(super) fn put_handshake(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.handshakes.len();
        write(&mut self.handshakes);
        let bytes = self.handshakes.len().saturating_sub(before);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Puts a message that has come in a frame, or was written so.
    pub(super) fn parts(&mut self, sequence_number: u16, parts: &Parts, fragment: usize) {
        let most = COPIED_BYTES.min(fragment);
        if let Some(frame) = parts.frame().filter(|_| parts.payload_bytes() <= most) {
            self.put(|frames| put_parts(frames, sequence_number, parts, frame));
            return;
        }
        let head = Head {
            sequence_number,
            destination: parts.destination(),
            properties: parts.properties(),
        };
        self.message(&head, &parts.payload().to_bytes(), fragment);
    }

    pub(super) fn message(&mut self, head: &Head<&str>, payload: &Bytes, fragment: usize) {
        if payload.len() <= COPIED_BYTES.min(fragment) {
            self.put(|frames| head.put_frame(frames, payload, false));
            return;
        }
        let payload = if payload.len() <= COPIED_BYTES {
            // Nobody counts a small one that is shared.
            Bytes::copy_from_slice(payload)
        } else {
            payload.clone()
        };
        self.bytes = self.bytes.saturating_add(payload.len());
        self.waiting
            .push_back(Waiting::Message(head.to_owned(), payload));
    }

    /// Acknowledges all messages up to this one.
    pub(super) fn ack(&mut self, id: u8, number: u16) {
        if self.acks.len() >= OWED_BYTES {
            // The peer does not read. This one covers those before it.
            self.acks.clear();
            self.owed = 0;
        }
        self.put_ack(id, number);
    }

    fn put_ack(&mut self, id: u8, number: u16) {
        frame::put_extension(&mut self.acks, id, 2);
        self.acks.extend_from_slice(&number.to_be_bytes());
    }

    /// Repeats an acknowledgement, which the peer has caused.
    pub(super) fn ack_again(&mut self, id: u8, number: u16) {
        let before = self.acks.len();
        self.put_ack(id, number);
        let bytes = self.acks.len().saturating_sub(before);
        self.owed = self.owed.saturating_add(bytes);
    }

    pub(super) fn fail(&mut self, message: String) {
        self.error = Some(message);
    }

    /// Drops messages that wait: nobody takes them any more.
    pub(super) fn drop_messages(&mut self) {
        self.waiting.retain(|one| match one {
            Waiting::Frames(_) => true,
            Waiting::Message(_, payload) => {
                self.bytes = self.bytes.saturating_sub(payload.len());
                false
            }
        });
    }

    /// Bytes that wait, and bytes that the peer has caused.
    pub(super) const fn bytes(&self) -> (usize, usize) {
        (self.bytes, self.owed)
    }

    pub(super) fn transmit(&mut self, out: &mut SendQueue, fragment: usize) {
        while out.room() > 0 {
            if !self.handshakes.is_empty() {
                self.bytes = self.bytes.saturating_sub(self.handshakes.len());
                out.put(std::mem::take(&mut self.handshakes).into());
                continue;
            }
            if !self.acks.is_empty() {
                out.put(std::mem::take(&mut self.acks).into());
                self.owed = 0;
                continue;
            }
            match self.waiting.pop_front() {
                Some(Waiting::Frames(frames)) => {
                    self.bytes = self.bytes.saturating_sub(frames.len());
                    out.put(frames.into());
                }
                Some(Waiting::Message(head, mut payload)) => {
                    let len = payload.len().min(fragment);
                    self.bytes = self.bytes.saturating_sub(len);
                    let part = payload.split_to(len);
                    head.put(out, len, payload.has_remaining());
                    out.put(part);
                    if payload.has_remaining() {
                        self.waiting.push_front(Waiting::Message(head, payload));
                    }
                }
                None => {
                    if let Some(message) = self.error.take() {
                        out.put(frame::error(&message));
                    }
                    return;
                }
            }
        }
    }
}
