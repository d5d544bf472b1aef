//! The messages that wait for the transport.

use std::collections::VecDeque;

use super::publications::Turn;
use crate::message::{Message, put};

/// Messages that wait to be sent, in the order of their calls. A stream has one turn for each time that it stands here,
/// and stands here again while it has more: an element of many parts holds nobody up.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) waiting: VecDeque<Waiting>,
    /// Bytes of messages that the peer has caused.
    pub(super) owed: usize,
    /// The goodbye, which goes behind everything else (R-RS-29).
    pub(super) goodbye: Option<String>,
}

/// Something that waits for the transport.
#[derive(Debug)]
pub(super) enum Waiting {
    /// Messages, and how many bytes of them the peer has caused.
    Messages(Vec<u8>, usize),
    /// The turn of a stream.
    Turn(Turn),
}

impl Outgoing {
    pub(super) fn put(&mut self, message: &Message) -> usize {
        if !matches!(self.waiting.back(), Some(Waiting::Messages(..))) {
            self.waiting.push_back(Waiting::Messages(Vec::new(), 0));
        }
        let Some(Waiting::Messages(bytes, _)) = self.waiting.back_mut() else {
            return 0;
        };
        let before = bytes.len();
        put(bytes, message);
        bytes.len().saturating_sub(before)
    }

    /// Puts a message that the peer has caused.
    pub(super) fn answer(&mut self, message: &Message) {
        let bytes = self.put(message);
        self.owed = self.owed.saturating_add(bytes);
        if let Some(Waiting::Messages(_, owed)) = self.waiting.back_mut() {
            *owed = owed.saturating_add(bytes);
        }
    }

    pub(super) fn turn(&mut self, turn: Option<Turn>) {
        self.waiting.extend(turn.map(Waiting::Turn));
    }

    /// Drops the turns of streams, whose elements nobody takes any more.
    pub(super) fn drop_turns(&mut self) {
        self.waiting
            .retain(|one| matches!(one, Waiting::Messages(..)));
    }
}
