//! The control queue: chunks that go before all payloads that wait for credit, in the order of their causes. These are
//! acknowledgements, pings, pongs and payloads whose credit is taken, and behind them the announcements of credit.

use std::collections::VecDeque;

use ackline_core::SendQueue;
use bytes::Bytes;

use super::outgoing::{Waiting, put};
use super::wide;
use crate::Target;
use crate::chunk::{Head, PayloadRole};

/// Answers that one call of `receive` queues at the most: each takes many times the byte or two that the peer spends on
/// its cause, and is granted before.
const ANSWERS_PER_CALL: usize = 256;

/// The places of the queue that stay allocated.
const PLACES_KEPT: usize = 256;

/// A chunk that waits for the transport alone.
#[derive(Debug)]
enum Queued {
    /// A chunk without payload.
    Bare(Head),
    /// A chunk without payload that the peer has caused.
    Answer(Head),
    /// A whole payload whose credit is taken.
    Whole(PayloadRole, Bytes),
}

/// The control queue of a connection.
#[derive(Debug, Default)]
pub(super) struct ControlQueue {
    chunks: VecDeque<Queued>,
    /// Bytes of the payloads among them.
    bytes: usize,
    /// The number of answers among them.
    owed: usize,
    /// The number of answers that this call of `receive` may still queue.
    answers_left: usize,
    /// Halves with credit to announce; some of them may be gone.
    announcements: VecDeque<Target>,
}

impl ControlQueue {
    /// A call of `receive` begins: it may queue answers.
    pub(super) const fn begin_call(&mut self) {
        self.answers_left = ANSWERS_PER_CALL;
    }

    /// Whether this call of `receive` may queue no more answers.
    pub(super) const fn is_call_spent(&self) -> bool {
        self.answers_left == 0
    }

    /// Queues a chunk without payload.
    pub(super) fn push(&mut self, head: Head) {
        self.chunks.push_back(Queued::Bare(head));
    }

    /// Queues a chunk without payload that the peer has caused.
    pub(super) fn answer(&mut self, head: Head) {
        self.owed = self.owed.saturating_add(1);
        self.answers_left = self.answers_left.saturating_sub(1);
        self.chunks.push_back(Queued::Answer(head));
    }

    /// Queues a whole payload whose credit is taken, or which costs none.
    pub(super) fn push_payload(&mut self, role: PayloadRole, payload: Bytes) {
        self.bytes = self.bytes.saturating_add(payload.len());
        self.chunks.push_back(Queued::Whole(role, payload));
    }

    /// Queues the announcement of a half's credit.
    pub(super) fn announce(&mut self, target: Target) {
        self.announcements.push_back(target);
    }

    /// Whether nothing waits but announcements.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of answers that the peer has caused and not read.
    pub(super) const fn owed(&self) -> usize {
        self.owed
    }

    /// Bytes that answers take which the peer has not read, and responses that have their credit.
    pub(super) const fn owed_bytes(&self) -> usize {
        let answers = self.owed.saturating_mul(size_of::<Queued>());
        answers.saturating_add(self.bytes)
    }

    /// Bytes that answers of the next call of `receive` may take, while some wait for the transport.
    pub(super) const fn step_bytes(&self) -> usize {
        if self.owed == 0 {
            return 0;
        }
        ANSWERS_PER_CALL.saturating_mul(size_of::<Queued>())
    }

    /// The chunks that wait, without announcements.
    pub(super) fn backlog(&self) -> Waiting {
        Waiting {
            bytes: self.bytes,
            payloads: self.chunks.len(),
        }
    }

    /// Encodes chunks while there is room. Returns the bytes of their payloads.
    pub(super) fn encode(&mut self, out: &mut SendQueue) -> usize {
        let before = self.bytes;
        while out.room() > 0 {
            let Some(queued) = self.chunks.pop_front() else {
                break;
            };
            match queued {
                Queued::Bare(head) => put(out, head),
                Queued::Answer(head) => {
                    self.owed = self.owed.saturating_sub(1);
                    put(out, head);
                }
                Queued::Whole(role, payload) => {
                    let length = wide(&payload);
                    self.bytes = self.bytes.saturating_sub(payload.len());
                    put(out, Head::Payload { role, length });
                    out.put(payload);
                }
            }
        }
        if self.chunks.is_empty() {
            // A peer that did not read may have made the queue large.
            self.chunks.shrink_to(PLACES_KEPT);
        }
        before.saturating_sub(self.bytes)
    }

    /// Returns the next half with credit to announce, once nothing else waits.
    pub(super) fn next_announcement(&mut self) -> Option<Target> {
        if self.chunks.is_empty() {
            return self.announcements.pop_front();
        }
        None
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_leave_in_their_order_and_announcements_behind_them() {
        let mut control = ControlQueue::default();
        control.announce(Target::Top);
        control.push(Head::PingRequest(1));
        control.answer(Head::AckCancelRequest(2));
        control.push_payload(PayloadRole::Response(3), Bytes::from_static(b"four"));
        assert_eq!(control.next_announcement(), None);
        assert_eq!((control.owed(), control.is_empty()), (1, false));
        let waiting = Waiting {
            bytes: 4,
            payloads: 3,
        };
        assert_eq!(control.backlog(), waiting);

        let (mut out, mut expected) = (SendQueue::new(), SendQueue::new());
        assert_eq!(control.encode(&mut out), 4);
        put(&mut expected, Head::PingRequest(1));
        put(&mut expected, Head::AckCancelRequest(2));
        let role = PayloadRole::Response(3);
        put(&mut expected, Head::Payload { role, length: 4 });
        expected.put_slice(b"four");
        assert_eq!(bytes::Buf::chunk(&out), bytes::Buf::chunk(&expected));
        assert_eq!((control.owed(), control.owed_bytes()), (0, 0));
        assert_eq!(control.next_announcement(), Some(Target::Top));
        assert_eq!(control.next_announcement(), None);
    }

    #[test]
    fn a_call_is_spent_after_its_answers() {
        let mut control = ControlQueue::default();
        control.begin_call();
        for id in 0..256 {
            assert!(!control.is_call_spent());
            control.answer(Head::PongRequest(id));
            control.push(Head::PingRequest(id));
        }
        assert!(control.is_call_spent());
        control.begin_call();
        assert!(!control.is_call_spent());
    }
}
