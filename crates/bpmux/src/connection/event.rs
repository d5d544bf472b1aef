//! The events that the application is told, and the figures of a connection.

use ackline_core::Payload;

use crate::{EntityKind, Target};

/// Something has happened. Targets are seen from this end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer has opened a sink, stream or duplex. A peer's sink is read here, a peer's stream is written
    /// here.
    Opened {
        /// The kind of it.
        kind: EntityKind,
        /// Its id: [`Target::Peer`] of it is its target.
        id: u32,
        /// The payload of the opening.
        payload: Payload,
    },
    /// A message came.
    Message {
        /// The half that it came on.
        target: Target,
        /// The message.
        payload: Payload,
    },
    /// The next chunk of a message came ([`Config::parts`](crate::Config::parts)); a message of one chunk is an
    /// [`Event::Message`]. Each is consumed by itself.
    Part {
        /// The half that it came on.
        target: Target,
        /// The chunk's bytes.
        payload: Payload,
        /// Whether the message ends with it.
        is_last: bool,
    },
    /// The peer, which writes the half, has closed it. The payload is empty by convention if all is well.
    Closed {
        /// The half.
        target: Target,
        /// The reason.
        payload: Payload,
    },
    /// The peer, which reads the half, has cancelled it. The payload is empty by convention if all is well.
    Cancelled {
        /// The half.
        target: Target,
        /// The reason.
        payload: Payload,
    },
    /// A request came, to be answered or closed.
    Request {
        /// Its id.
        id: u32,
        /// The request.
        payload: Payload,
    },
    /// The response to an own request.
    Response {
        /// The request's id, which is free now.
        id: u32,
        /// The response.
        payload: Payload,
    },
    /// The peer does not want the response to its request any more.
    RequestCancelled {
        /// The request's id.
        id: u32,
        /// The reason.
        payload: Payload,
    },
    /// The peer will not answer an own request.
    ResponseClosed {
        /// The request's id.
        id: u32,
        /// The reason.
        payload: Payload,
    },
    /// The peer has seen the close of a half.
    CloseAcknowledged {
        /// The half.
        target: Target,
    },
    /// The peer has seen the cancel of a half: nothing more comes on it.
    CancelAcknowledged {
        /// The half.
        target: Target,
    },
    /// The peer has seen the cancel of an own request.
    RequestCancelAcknowledged {
        /// The request's id, which is free now.
        id: u32,
    },
    /// The peer has seen the close of the response to its request.
    ResponseCloseAcknowledged {
        /// The request's id.
        id: u32,
    },
    /// A pong for the top-level or a half that is read here; also one without a ping.
    Pong {
        /// The half.
        target: Target,
    },
    /// A pong for an own request; also one without a ping.
    RequestPong {
        /// The request's id.
        id: u32,
    },
    /// There is the room or credit that was asked for with [`want_room`](crate::Connection::want_room) or
    /// [`want_credit`](crate::Connection::want_credit), or the half has ended.
    Room {
        /// The half.
        target: Target,
    },
    /// A response, which had to wait for credit, was sent: the request is over.
    ResponseSent {
        /// The request's id.
        id: u32,
    },
    /// An own opening, which had to wait for credit, was sent: the entity can be used.
    Open {
        /// Its id.
        id: u32,
    },
}

impl Event {
    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Opened { payload, .. }
            | Self::Message { payload, .. }
            | Self::Part { payload, .. }
            | Self::Closed { payload, .. }
            | Self::Cancelled { payload, .. }
            | Self::Request { payload, .. }
            | Self::Response { payload, .. }
            | Self::RequestCancelled { payload, .. }
            | Self::ResponseClosed { payload, .. } => payload.bytes(),
            _ => 0,
        }
    }

    /// Returns how much it counts against the events of a call. An application that gets a request or a response sends
    /// something in return: that is to leave while the rest is looked at, so that both ends work at the same time.
    pub(super) const fn weight(&self) -> usize {
        match self {
            Self::Request { .. } | Self::Response { .. } => 16,
            _ => 1,
        }
    }
}

/// Figures of a connection: totals so far, and the present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Messages, requests, responses and other payloads sent completely.
    pub payloads_sent: u64,
    /// Bytes of payload sent.
    pub bytes_sent: u64,
    /// Messages, requests, responses and other payloads received completely.
    pub payloads_received: u64,
    /// Bytes of payload received.
    pub bytes_received: u64,
    /// Sinks, streams and duplexes of this end that are not over.
    pub own_entities: usize,
    /// Sinks, streams and duplexes of the peer that are not over.
    pub peer_entities: usize,
    /// Requests of this end that are not over.
    pub own_requests: usize,
    /// Requests of the peer that are not over.
    pub peer_requests: usize,
    /// Bytes that may be sent at once on the top-level's credit.
    pub top_level_credit: u64,
    /// Bytes of all windows of automatic credit.
    pub window_bytes: u64,
    /// Bytes called to be sent that wait for credit or their turn.
    pub waiting_bytes: usize,
}

impl Stats {
    /// Whether a sink, stream, duplex or request of either end is not over.
    pub const fn has_open(&self) -> bool {
        self.own_entities > 0
            || self.peer_entities > 0
            || self.own_requests > 0
            || self.peer_requests > 0
    }

    /// So many more bytes wait.
    pub(super) const fn waits_more(&mut self, bytes: usize) {
        self.waiting_bytes = self.waiting_bytes.saturating_add(bytes);
    }

    /// So many bytes wait no longer.
    pub(super) const fn waits_less(&mut self, bytes: usize) {
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
    }

    /// Bytes that have waited were sent, and so many payloads with them whole.
    pub(super) fn sent(&mut self, bytes: u64, payloads: u64) {
        self.waits_less(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.bytes_sent = self.bytes_sent.saturating_add(bytes);
        self.payloads_sent = self.payloads_sent.saturating_add(payloads);
    }

    /// A payload has its credit and goes whole: it waits for the transport alone.
    pub(super) const fn passed(&mut self, bytes: u64) {
        self.bytes_sent = self.bytes_sent.saturating_add(bytes);
        self.payloads_sent = self.payloads_sent.saturating_add(1);
    }
}
