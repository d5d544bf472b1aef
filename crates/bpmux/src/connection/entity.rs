//! What is open: halves, entities, requests, and how far their ends have come.
//!
//! ```text
//!            call          first byte        last byte        acknowledgement
//!  Ours  No ──────► Waiting ─────────► Begun ──────────► Sent ────────────────► Acknowledged
//!         ▲            │                 │                      (over)
//!         └────────────┴─────────────────┘  void: the peer's end of the same half is acknowledged first
//! ```

use std::collections::VecDeque;

use super::assembly::Assembly;
use super::jobs::MessageInParts;
use super::outgoing::{Outgoing, Waiting};
use super::wide;
use super::window::Window;
use crate::EntityKind;

/// How far this end's close, cancel or closing of a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Ours {
    #[default]
    No,
    /// Called, nothing was sent.
    Waiting,
    /// Sent in part.
    Begun,
    /// Sent, not acknowledged.
    Sent,
    Acknowledged,
}

impl Ours {
    /// Whether later calls come too late.
    pub(super) fn is_called(self) -> bool {
        self != Self::No
    }
}

/// How far the peer's has come; what is complete is acknowledged at once (R-BPM-14), unless that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Theirs {
    #[default]
    No,
    Begun,
    /// It has come; its acknowledgement waits for the application.
    Held,
    /// It has come; its acknowledgement goes behind this end's cancel.
    Released,
    Done,
}

impl Theirs {
    /// Whether it has come whole.
    pub(super) fn has_come(self) -> bool {
        matches!(self, Self::Held | Self::Released | Self::Done)
    }
}

/// Whether an entity or a request can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Standing {
    /// What opens it has not come, or was not sent, whole.
    #[default]
    Coming,
    Open,
    /// It came after the top-level was cancelled: it is ended without a word to the application.
    Refused,
}

/// The half that this end writes.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Bytes that may be sent.
    pub(super) credit: u64,
    pub(super) messages: VecDeque<Outgoing>,
    /// Bytes of the messages.
    pub(super) waiting: usize,
    /// Goes once the messages have gone.
    pub(super) close: Option<bytes::Bytes>,
    pub(super) ours: Ours,
    /// The peer has cancelled it.
    pub(super) cancelled: bool,
    /// It has a place among those that can go on.
    pub(super) queued: bool,
    /// Bytes of its turn that are left, or that it took too many.
    pub(super) deficit: i64,
    /// Somebody waits until no more than this waits.
    pub(super) wants_room: Option<Waiting>,
    /// Somebody waits for credit that nothing waits for.
    pub(super) wants_credit: bool,
}

impl Writer {
    /// Nothing more may be called to be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.ours.is_called() || self.cancelled
    }

    pub(super) fn backlog(&self) -> Waiting {
        Waiting {
            bytes: self.waiting,
            payloads: self.messages.len(),
        }
    }

    /// The message that has gone in part.
    pub(super) fn in_parts(&self) -> Option<MessageInParts> {
        let next = self.messages.front()?;
        let (bytes, left) = (next.begun?, wide(&next.rest));
        Some(MessageInParts { bytes, left })
    }

    /// Nothing that waits will be sent.
    pub(super) fn drop_waiting(&mut self) {
        self.messages = VecDeque::new();
        self.waiting = 0;
        self.close = None;
    }

    /// Whether the half is over on both sides.
    fn is_over(&self) -> bool {
        self.ours == Ours::Acknowledged || (self.cancelled && self.ours != Ours::Sent)
    }

    /// For the top-level, whose ends are not acknowledged.
    pub(super) fn has_ended(&self) -> bool {
        self.ours == Ours::Sent || self.cancelled
    }

    /// Whether the next message can go on.
    pub(super) fn can_go_on(&self) -> bool {
        let next = self.messages.front();
        next.is_some_and(|next| self.credit > 0 || next.rest.is_empty())
    }

    /// Whether somebody who waits need wait no longer; they are told once.
    pub(super) fn gives_room(&mut self) -> bool {
        let is_wanted = self.wants_credit || self.wants_room.is_some();
        let is_there = self.is_closed()
            || self
                .wants_room
                .is_some_and(|most| self.backlog().is_within(most))
            || (self.wants_credit && self.messages.is_empty() && self.credit > 0);
        if !is_wanted || !is_there {
            return false;
        }
        (self.wants_credit, self.wants_room) = (false, None);
        true
    }
}

/// The half that this end reads.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Credit that the peer has not used.
    pub(super) granted: u64,
    /// What of it is not sent yet.
    pub(super) due: u64,
    /// A message that comes in parts.
    pub(super) message: Option<Assembly>,
    pub(super) ours: Ours,
    pub(super) theirs: Theirs,
    /// Its close is acknowledged at once, although closes of the connection are held.
    pub(super) is_released: bool,
    pub(super) window: Window,
}

impl Reader {
    /// Whether a cancel comes too late: one that crosses a close does not, while the peer waits for the
    /// acknowledgement of that.
    pub(super) fn is_uncancellable(&self) -> bool {
        self.ours.is_called() || matches!(self.theirs, Theirs::Released | Theirs::Done)
    }

    /// No credit can be given, no ping sent.
    pub(super) fn is_closed(&self) -> bool {
        self.ours.is_called() || self.theirs.has_come()
    }

    /// Nothing that comes is of use. While a cancel waits to be sent, what comes is (R-BPMUX-V6), and it may
    /// have to come to its end for others to get on.
    pub(super) fn needs_no_credit(&self) -> bool {
        matches!(self.ours, Ours::Sent | Ours::Acknowledged) || self.theirs.has_come()
    }

    fn is_over(&self) -> bool {
        match self.theirs {
            Theirs::Held | Theirs::Released => false,
            Theirs::Done => self.ours != Ours::Sent,
            Theirs::No | Theirs::Begun => self.ours == Ours::Acknowledged,
        }
    }

    /// For the top-level, whose ends are not acknowledged.
    pub(super) fn has_ended(&self) -> bool {
        self.ours == Ours::Sent || self.theirs == Theirs::Done
    }

    /// Credit that was not sent is not given.
    pub(super) fn take_back(&mut self) {
        self.granted = self.granted.saturating_sub(self.due);
        self.due = 0;
    }
}

/// A sink, stream or duplex.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) kind: EntityKind,
    pub(super) standing: Standing,
    pub(super) writer: Option<Writer>,
    pub(super) reader: Option<Reader>,
}

impl Entity {
    pub(super) fn new(kind: EntityKind, own: bool) -> Self {
        Self {
            kind,
            standing: Standing::Coming,
            writer: kind.is_written(own).then(Writer::default),
            reader: kind.is_read(own).then(Reader::default),
        }
    }

    /// Whether its opening has come, or was sent, whole.
    pub(super) fn is_complete(&self) -> bool {
        self.standing != Standing::Coming
    }

    pub(super) fn is_over(&self) -> bool {
        self.writer.as_ref().is_none_or(Writer::is_over)
            && self.reader.as_ref().is_none_or(Reader::is_over)
    }
}

/// A request of this end's.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// It was sent whole.
    pub(super) sent: bool,
    /// Its cancel.
    pub(super) ours: Ours,
    /// Its close by the peer.
    pub(super) theirs: Theirs,
    /// A response came that nobody gets, as it crossed the cancel.
    pub(super) answered: bool,
}

/// A request of the peer's.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub(super) standing: Standing,
    /// The response was called.
    pub(super) responded: bool,
    /// The close of the response.
    pub(super) ours: Ours,
    /// The peer has cancelled it.
    pub(super) cancelled: bool,
}

impl Asking {
    /// Whether it has come whole.
    pub(super) fn is_complete(&self) -> bool {
        self.standing != Standing::Coming
    }
}
