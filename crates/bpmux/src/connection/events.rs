//! The events that wait for the application.

use std::collections::VecDeque;

use ackline_core::EVENTS_PER_CALL;

use super::Event;

/// Events, and how much of the peer's payloads they hold.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    /// The sum of their weights, which counts against the events of a call.
    weight: usize,
    /// Bytes of their payloads.
    bytes: usize,
}

impl EventQueue {
    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        self.bytes = self.bytes.saturating_add(event.payload_bytes());
        self.weight = self.weight.saturating_add(event.weight());
        self.events.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes = self.bytes.saturating_sub(event.payload_bytes());
        self.weight = self.weight.saturating_sub(event.weight());
        Some(event)
    }

    /// Whether the application must take events before more is received.
    pub(super) const fn is_full(&self) -> bool {
        self.weight >= EVENTS_PER_CALL
    }

    /// Bytes of the payloads.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
