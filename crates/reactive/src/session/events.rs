//! The events of a session's machine, sorted by the subscriptions that they are for.

use std::sync::Arc;

use ackline_core::Connection as _;

use super::inbox::{Ended, Item};
use super::{Event, NO_REASON, Part, Session, Wait};

impl Session {
    /// Takes the machine's events; returns whether there were any.
    pub(super) fn take(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.poll_event() {
            any = true;
            self.take_one(event);
        }
        any
    }

    fn take_one(&mut self, event: Event) {
        match event {
            Event::Next {
                subscriber,
                element,
            } => self.came(subscriber, Item::Element(element)),
            Event::Packed {
                subscriber,
                elements,
                ..
            } => self.came(subscriber, Item::Packed(elements)),
            Event::Part {
                subscriber,
                element,
                data,
                is_last,
            } => {
                let data = data.into();
                let part = Part {
                    element: Some(element),
                    data,
                    is_last,
                };
                self.came(subscriber, Item::Part(part));
            }
            Event::Subscribed {
                subscriber,
                element_size,
            } => self.note(subscriber, |inbox| inbox.element_size = Some(element_size)),
            Event::Complete { subscriber } => self.ended(subscriber, Ended::Complete),
            Event::Error { subscriber, error } => {
                let is_lost = self
                    .machine
                    .lost()
                    .is_some_and(|lost| Arc::ptr_eq(lost, &error));
                let ended = if is_lost {
                    Ended::Lost
                } else {
                    Ended::Failed(error)
                };
                self.ended(subscriber, ended);
            }
            event => self.take_other(event),
        }
    }

    /// An event of the connection, or of a subscription of the peer.
    fn take_other(&mut self, event: Event) {
        match event {
            Event::Connected { extensions } => {
                self.said.extensions = Some(extensions);
                self.wake(Wait::Connected);
            }
            Event::Subscribe {
                publisher,
                subscriber,
                initial_demand,
            } => {
                self.subscribes(publisher, subscriber, initial_demand);
                self.wake(Wait::Accept);
            }
            Event::Request { subscriber, .. } => {
                if let Some(serial) = self.theirs.get(&subscriber).copied() {
                    self.wake(Wait::Write(serial));
                }
            }
            Event::Cancel { subscriber } => self.outlet_cancelled(subscriber),
            Event::Goodbye { reason } => {
                let reason = if reason.is_empty() {
                    NO_REASON.to_owned()
                } else {
                    reason
                };
                self.said.goodbye = Some(reason.into());
                for wait in [Wait::Accept, Wait::Connected, Wait::Extension] {
                    self.wake(wait);
                }
            }
            Event::Extension {
                message_type,
                fields,
            } => {
                self.untaken.add(super::field_bytes(&fields));
                self.said.messages.push_back((message_type, fields));
                self.wake(Wait::Extension);
            }
            _ => {}
        }
    }

    fn came(&mut self, id: u64, item: Item) {
        let Some(serial) = self.own.get(&id).copied() else {
            return;
        };
        if let Some(inbox) = self.inboxes.get_mut(&serial) {
            inbox.push(item, &mut self.untaken);
            self.wake(Wait::Read(serial));
        }
    }

    fn note(&mut self, id: u64, change: impl FnOnce(&mut super::Inbox)) {
        let Some(serial) = self.own.get(&id).copied() else {
            return;
        };
        if let Some(inbox) = self.inboxes.get_mut(&serial) {
            change(inbox);
            self.wake(Wait::Read(serial));
        }
    }

    fn ended(&mut self, id: u64, end: Ended) {
        let end = match (end, &self.said.goodbye) {
            // A goodbye without a reason leaves none for its streams.
            (Ended::Failed(text), Some(goodbye)) if text.is_empty() => {
                Ended::Failed(Arc::clone(goodbye))
            }
            (end, _) => end,
        };
        self.note(id, |inbox| inbox.ended = Some(end));
        self.own.remove(&id);
    }
}
