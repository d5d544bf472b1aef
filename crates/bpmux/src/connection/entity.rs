//! The halves of a sink, stream or duplex, and the progress of their ends.
//!
//! ```text
//!              call          first byte        last byte        acknowledgement
//!  OwnEnd  No ──────► Waiting ─────────► Begun ──────────► Sent ────────────────► Acknowledged
//!           ▲            │                 │                      (over)
//!           └────────────┴─────────────────┘  void: the peer's end of the same half is acknowledged first
//! ```

use std::collections::VecDeque;

use ackline_core::{Credit, Grant, SendQueue};
use bytes::Bytes;

use super::assembly::Assembly;
use super::jobs::{Jobs, MessageInParts};
use super::outgoing::{Outgoing, Waiting};
use super::turns::{TurnState, quantum};
use super::wide;
use super::window::Window;
use crate::chunk::PayloadRole;
use crate::{EntityKind, Target};

/// The progress of this end's close, cancel or close of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OwnEnd {
    #[default]
    No,
    /// Called, not sent.
    Waiting,
    /// Sent in part.
    Begun,
    /// Sent, not acknowledged.
    Sent,
    Acknowledged,
}

impl OwnEnd {
    /// Whether later calls come too late.
    pub(super) fn is_called(self) -> bool {
        self != Self::No
    }
}

/// The progress of the peer's. A complete one is acknowledged at once (R-BPM-14), unless the acknowledgement is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PeerEnd {
    #[default]
    No,
    Begun,
    /// It has come; its acknowledgement waits for the application.
    Held,
    /// It has come; its acknowledgement goes behind this end's cancel.
    Released,
    Done,
}

impl PeerEnd {
    /// Whether it has come whole.
    pub(super) fn has_come(self) -> bool {
        matches!(self, Self::Held | Self::Released | Self::Done)
    }
}

/// Whether an entity or a request can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Status {
    /// The payload that opens it has not come, or was not sent, whole.
    #[default]
    Incomplete,
    Open,
    /// It came after the top-level was cancelled: it is ended and the application is not told.
    Refused,
}

impl Status {
    /// Returns the status of an entity or a request that has come whole.
    pub(super) const fn complete(is_refused: bool) -> Self {
        if is_refused {
            Self::Refused
        } else {
            Self::Open
        }
    }
}

/// The half that this end writes.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Bytes that may be sent.
    pub(super) credit: Credit,
    pub(super) messages: VecDeque<Outgoing>,
    /// Bytes of the messages.
    pub(super) waiting: usize,
    /// The payload of a close that goes behind the messages.
    pub(super) close: Option<Bytes>,
    pub(super) own_end: OwnEnd,
    /// Whether the peer has cancelled it.
    pub(super) cancelled: bool,
    pub(super) turn: TurnState,
    /// The backlog that somebody waits for.
    pub(super) wants_room: Option<Waiting>,
    /// Whether somebody waits for credit that no message waits for.
    pub(super) wants_credit: bool,
}

/// The result of one turn of a writer.
#[derive(Debug, Default)]
pub(super) struct WriterTurn {
    /// Bytes of payload.
    pub(super) bytes: u64,
    /// Messages that were sent to their ends.
    pub(super) messages: u64,
    /// Whether the writer is on the list again.
    pub(super) goes_on: bool,
}

impl Writer {
    /// Whether no more messages may be called to be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.own_end.is_called() || self.cancelled
    }

    pub(super) fn backlog(&self) -> Waiting {
        Waiting {
            bytes: self.waiting,
            payloads: self.messages.len(),
        }
    }

    /// Queues a message.
    pub(super) fn push(&mut self, payload: Bytes) {
        self.waiting = self.waiting.saturating_add(payload.len());
        self.messages.push_back(Outgoing::new(payload));
    }

    /// Returns the message that has gone in part.
    pub(super) fn in_parts(&self) -> Option<MessageInParts> {
        let next = self.messages.front()?;
        let (bytes, left) = (next.begun?, wide(&next.rest));
        Some(MessageInParts { bytes, left })
    }

    /// Drops all that waits. Returns how many bytes that were.
    pub(super) fn drop_waiting(&mut self) -> usize {
        self.messages = VecDeque::new();
        let close = self.close.take().map_or(0, |close| close.len());
        std::mem::take(&mut self.waiting).saturating_add(close)
    }

    /// The peer has cancelled it. Returns how many bytes are not sent any more.
    pub(super) fn cancel(&mut self) -> usize {
        self.cancelled = true;
        if !self.has_sent_close() {
            self.own_end = OwnEnd::No;
        }
        self.drop_waiting()
    }

    /// Whether the close was sent whole.
    pub(super) fn has_sent_close(&self) -> bool {
        matches!(self.own_end, OwnEnd::Sent | OwnEnd::Acknowledged)
    }

    /// Whether the half is over on both sides.
    fn is_over(&self) -> bool {
        self.own_end == OwnEnd::Acknowledged || (self.cancelled && self.own_end != OwnEnd::Sent)
    }

    /// Whether the half of the top-level is over, whose ends are not acknowledged.
    pub(super) fn has_ended(&self) -> bool {
        self.own_end == OwnEnd::Sent || self.cancelled
    }

    /// Whether the next message can go on.
    fn can_go_on(&self) -> bool {
        let next = self.messages.front();
        next.is_some_and(|next| !self.credit.is_empty() || next.rest.is_empty())
    }

    /// Puts it on the list of those whose turn comes, if it can go on. Returns whether it was not there.
    #[must_use]
    pub(super) fn enqueue(&mut self) -> bool {
        self.can_go_on() && self.turn.enqueue()
    }

    /// Sends messages for one turn, if it is on the list. The top-level's share their credit with the jobs.
    pub(super) fn take_turn(
        &mut self,
        target: Target,
        jobs: Option<&Jobs>,
        chunk_size: u32,
        out: &mut SendQueue,
    ) -> Option<WriterTurn> {
        if !self.turn.begin(quantum(chunk_size)) {
            return None;
        }
        let mut sent = WriterTurn::default();
        let mut is_blocked = false;
        while self.turn.has_bytes() && out.room() > 0 {
            let Some(next) = self.messages.front_mut() else {
                break;
            };
            is_blocked = jobs.is_some_and(|jobs| !jobs.lets_go(next, self.credit, chunk_size));
            if is_blocked {
                // It goes on when a job has ended.
                break;
            }
            let role = PayloadRole::Message(target);
            let Some(chunk) = next.send(role, &mut self.credit, chunk_size, out) else {
                break;
            };
            self.turn.pay(chunk.length);
            sent.bytes = sent.bytes.saturating_add(chunk.length);
            if chunk.is_last {
                self.messages.pop_front();
                sent.messages = sent.messages.saturating_add(1);
            }
        }
        let bytes = usize::try_from(sent.bytes).unwrap_or(usize::MAX);
        self.waiting = self.waiting.saturating_sub(bytes);
        sent.goes_on = !is_blocked && self.enqueue();
        self.turn.end();
        Some(sent)
    }

    /// Whether a wait for room or for credit is over. Answers `true` once for each wait.
    pub(super) fn gives_room(&mut self) -> bool {
        let is_wanted = self.wants_credit || self.wants_room.is_some();
        let is_there = self.is_closed()
            || self
                .wants_room
                .is_some_and(|most| self.backlog().is_within(most))
            || (self.wants_credit && self.messages.is_empty() && !self.credit.is_empty());
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
    /// Bytes that the peer may still send.
    pub(super) grant: Grant,
    /// The message that comes in parts.
    pub(super) message: Option<Assembly>,
    pub(super) own_end: OwnEnd,
    pub(super) peer_end: PeerEnd,
    /// Whether its close is acknowledged at once, although closes of the connection are held.
    pub(super) is_released: bool,
    pub(super) window: Window,
}

impl Reader {
    /// Whether a cancel comes too late. One that crosses a close does not, while the peer waits for the
    /// acknowledgement of that close.
    pub(super) fn is_uncancellable(&self) -> bool {
        self.own_end.is_called() || matches!(self.peer_end, PeerEnd::Released | PeerEnd::Done)
    }

    /// Whether no credit can be given and no ping sent.
    pub(super) fn is_closed(&self) -> bool {
        self.own_end.is_called() || self.peer_end.has_come()
    }

    /// Whether payloads that come are of no use. While a cancel waits to be sent they are (R-BPMUX-V6), and they may
    /// have to come to their ends for others to get on.
    pub(super) fn needs_no_credit(&self) -> bool {
        matches!(self.own_end, OwnEnd::Sent | OwnEnd::Acknowledged) || self.peer_end.has_come()
    }

    /// The peer's close has come. Returns whether a cancel of this end that waits is void.
    pub(super) fn close(&mut self, end: PeerEnd, is_top: bool) -> bool {
        self.peer_end = end;
        let is_void = if is_top {
            // A cancel that has begun goes on: nothing tells the peer that it is void.
            self.own_end == OwnEnd::Waiting
        } else {
            // The acknowledgement of a held close goes behind the cancel.
            end != PeerEnd::Held && self.own_end != OwnEnd::Sent
        };
        if is_void {
            self.own_end = OwnEnd::No;
        }
        is_void
    }

    /// A held close is released. Returns whether its acknowledgement goes now, and not behind this end's cancel.
    pub(super) fn release(&mut self) -> bool {
        let waits = matches!(self.own_end, OwnEnd::Waiting | OwnEnd::Begun);
        self.peer_end = if waits {
            PeerEnd::Released
        } else {
            PeerEnd::Done
        };
        !waits
    }

    /// This end's cancel was sent whole. Returns whether the acknowledgement of a released close goes now.
    pub(super) fn cancel_sent(&mut self) -> bool {
        self.own_end = OwnEnd::Sent;
        let was_released = self.peer_end == PeerEnd::Released;
        if was_released {
            self.peer_end = PeerEnd::Done;
        }
        was_released
    }

    fn is_over(&self) -> bool {
        match self.peer_end {
            PeerEnd::Held | PeerEnd::Released => false,
            PeerEnd::Done => self.own_end != OwnEnd::Sent,
            PeerEnd::No | PeerEnd::Begun => self.own_end == OwnEnd::Acknowledged,
        }
    }

    /// Whether the half of the top-level is over, whose ends are not acknowledged.
    pub(super) fn has_ended(&self) -> bool {
        self.own_end == OwnEnd::Sent || self.peer_end == PeerEnd::Done
    }
}

/// A sink, stream or duplex.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) kind: EntityKind,
    pub(super) status: Status,
    pub(super) writer: Option<Writer>,
    pub(super) reader: Option<Reader>,
}

impl Entity {
    pub(super) fn new(kind: EntityKind, own: bool) -> Self {
        Self {
            kind,
            status: Status::Incomplete,
            writer: kind.is_written(own).then(Writer::default),
            reader: kind.is_read(own).then(Reader::default),
        }
    }

    /// Whether its opening has come, or was sent, whole.
    pub(super) fn is_complete(&self) -> bool {
        self.status != Status::Incomplete
    }

    pub(super) fn is_over(&self) -> bool {
        self.writer.as_ref().is_none_or(Writer::is_over)
            && self.reader.as_ref().is_none_or(Reader::is_over)
    }
}
