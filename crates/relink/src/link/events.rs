//! Events that wait for the application.

use std::collections::VecDeque;

use super::Event;
use crate::LinkConfig;

/// Events in their order.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Waiting>,
    /// Payload bytes of all of them.
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    event: Event,
    /// Its payload bytes.
    bytes: usize,
}

impl Events {
    pub(super) fn push(&mut self, event: Event, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.queue.push_back(Waiting { event, bytes });
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let Waiting { event, bytes } = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(event)
    }

    /// Whether events must be taken before more input is looked at.
    pub(super) fn is_full(&self, config: &LinkConfig) -> bool {
        self.queue.len() >= config.max_events.max(1) || self.bytes >= config.max_event_bytes.max(1)
    }
}
