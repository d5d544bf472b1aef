//! Records of all that was called and told about one half or one request: some of it may be told once, some must be
//! told in the end.
#![allow(clippy::expect_used)] // a panic is a finding

use std::collections::VecDeque;

use bytes::Bytes;

use crate::EntityKind;

/// A payload that one end may send once and the other end is told of once.
#[derive(Debug, Default)]
pub(super) struct Once {
    pub(super) called: Option<Bytes>,
    pub(super) seen: bool,
    pub(super) acknowledged: bool,
}

impl Once {
    pub(super) fn call(&mut self, payload: Bytes) {
        assert!(self.called.is_none(), "a second one is refused");
        self.called = Some(payload);
    }

    /// The other end is told. The payload of a refusal was not called, and is empty.
    pub(super) fn see(&mut self, payload: &Bytes, may_be_refused: bool) {
        assert!(!self.seen, "it is told once");
        self.seen = true;
        match &self.called {
            Some(called) if called == payload => {}
            _ => assert!(
                may_be_refused && payload.is_empty(),
                "the payload of the call is told"
            ),
        }
    }

    /// The end that called it is told.
    pub(super) fn acknowledge(&mut self) {
        assert!(
            self.called.is_some() && !self.acknowledged,
            "told once, if called"
        );
        self.acknowledged = true;
    }
}

/// One direction of an entity, or of the top-level.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// Messages that were sent and not told yet.
    pub(super) messages: VecDeque<Bytes>,
    /// The close of the writer.
    pub(super) close: Once,
    /// Whether the reader, after holding the close, has acknowledged it.
    pub(super) released: bool,
    /// The cancel of the reader.
    pub(super) cancel: Once,
    /// Credit that the reader gave.
    pub(super) granted: u64,
    /// Bytes that the reader was told of.
    pub(super) received: u64,
}

impl Half {
    pub(super) fn got(&mut self, payload: &Bytes) {
        assert!(!self.close.seen, "nothing comes after a close");
        assert!(!self.cancel.acknowledged, "nothing comes after a cancel");
        let next = self.messages.pop_front().expect("it was sent");
        assert_eq!(next, payload, "whole and in order");
    }

    /// All messages before a close have come, unless the reader has dropped some.
    pub(super) fn closed(&mut self, payload: &Bytes, may_be_refused: bool) {
        let all = self.messages.is_empty() || self.cancel.called.is_some();
        assert!(all, "a close comes behind the messages");
        self.close.see(payload, may_be_refused);
    }

    /// Whether both ends know of its end.
    pub(super) fn has_ended(&self) -> bool {
        let writer = self.close.acknowledged || self.cancel.seen;
        let reader = self.close.seen || self.cancel.acknowledged;
        writer && reader
    }
}

/// A sink, stream or duplex.
#[derive(Debug)]
pub(super) struct Thing {
    pub(super) kind: EntityKind,
    pub(super) opening: Bytes,
    /// The halves that its opener and the other end write.
    pub(super) written: [Half; 2],
}

/// A request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: Bytes,
    /// Whether its responder was told of it.
    pub(super) seen: bool,
    pub(super) response: Once,
    pub(super) close: Once,
    pub(super) cancel: Once,
}

impl Asked {
    /// Whether its requester knows its end.
    pub(super) fn has_ended(&self) -> bool {
        self.response.seen || self.close.seen || self.cancel.acknowledged
    }

    /// Whether its responder does.
    pub(super) fn is_done(&self) -> bool {
        self.response.called.is_some() || self.close.acknowledged || self.cancel.seen
    }
}
