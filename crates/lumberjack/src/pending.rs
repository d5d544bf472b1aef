//! Complete windows that are not acknowledged on the wire, in order.

use std::collections::VecDeque;

use ackline_core::ProtocolError;

use crate::{Kind, Version};

/// A window that waits for its acknowledgement.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// `None` for an empty window, which only keeps its place.
    pub(crate) id: Option<u64>,
    pub(crate) version: Version,
    pub(crate) sequence: u32,
    pub(crate) records: u32,
    /// Bytes it is charged for.
    pub(crate) charge: usize,
    pub(crate) acknowledged: bool,
    /// The reason it cannot be read, if it was set aside.
    pub(crate) fault: Option<Box<ProtocolError<Kind>>>,
}

/// The queue of waiting windows.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    queue: VecDeque<Waiting>,
    charge: usize,
    v2: usize,
    open: usize,
    /// The first refused window: it and all later ones are never acknowledged.
    refused: Option<u64>,
    /// Some waited when the peer's end came.
    waited_at_end: bool,
}

impl Pending {
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.charge = self.charge.saturating_add(waiting.charge);
        self.v2 = self.v2.saturating_add(usize::from(waiting.keeps_alive()));
        self.open = self.open.saturating_add(usize::from(!waiting.acknowledged));
        self.queue.push_back(waiting);
    }

    /// Marks window `id` as acknowledged. Returns whether it was waiting for that.
    pub(crate) fn acknowledge(&mut self, id: u64) -> bool {
        let Some(waiting) = self.waiting(id) else {
            return false;
        };
        waiting.acknowledged = true;
        self.open = self.open.saturating_sub(1);
        true
    }

    /// Takes all of window `id` off the charge. Returns whether it was waiting.
    pub(crate) fn landed(&mut self, id: u64) -> bool {
        let Some(waiting) = self.waiting(id) else {
            return false;
        };
        let charge = std::mem::take(&mut waiting.charge);
        self.charge = self.charge.saturating_sub(charge);
        true
    }

    /// The fault of window `id`, if it was set aside and waits.
    pub(crate) fn fault(&mut self, id: u64) -> Option<ProtocolError<Kind>> {
        self.waiting(id)?.fault.as_deref().cloned()
    }

    /// Window `id` will not be acknowledged, nor any after it.
    pub(crate) fn refuse(&mut self, id: u64) {
        self.refused = Some(self.refused.map_or(id, |refused| refused.min(id)));
    }

    /// The newest window that waits will not be acknowledged.
    pub(crate) fn refuse_last(&mut self) {
        if let Some(id) = self.queue.back().and_then(|waiting| waiting.id) {
            self.refuse(id);
        }
    }

    /// Whether a window waits that may still be acknowledged.
    pub(crate) fn is_owed(&self) -> bool {
        let first = self.queue.front();
        first.is_some_and(|waiting| waiting.id.is_none_or(|id| !self.is_refused(id)))
    }

    /// The peer's end has come.
    pub(crate) fn meet_end(&mut self) {
        self.waited_at_end = !self.queue.is_empty();
    }

    /// Whether windows waited when the peer's end came.
    pub(crate) fn was_owed_at_end(&self) -> bool {
        self.waited_at_end
    }

    fn is_refused(&self, id: u64) -> bool {
        self.refused.is_some_and(|refused| id >= refused)
    }

    fn waiting(&mut self, id: u64) -> Option<&mut Waiting> {
        if self.is_refused(id) {
            return None;
        }
        self.queue
            .iter_mut()
            .find(|waiting| waiting.id == Some(id) && !waiting.acknowledged)
    }

    /// The oldest window, if it has been acknowledged.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        if !self.queue.front()?.acknowledged {
            return None;
        }
        let waiting = self.queue.pop_front()?;
        self.charge = self.charge.saturating_sub(waiting.charge);
        self.v2 = self.v2.saturating_sub(usize::from(waiting.keeps_alive()));
        Some(waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a v2 peer waits for an acknowledgement.
    pub(crate) const fn has_v2(&self) -> bool {
        self.v2 > 0
    }

    /// Windows that the application has not acknowledged.
    pub(crate) const fn unacknowledged(&self) -> usize {
        self.open
    }

    pub(crate) const fn charge(&self) -> usize {
        self.charge
    }
}

impl Waiting {
    fn keeps_alive(&self) -> bool {
        self.id.is_some() && self.version == Version::V2
    }
}
