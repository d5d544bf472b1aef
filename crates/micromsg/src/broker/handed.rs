//! The messages of queues that one receiver has and has not acknowledged.

use std::collections::VecDeque;

/// Messages by their positions on the connection, which only rise; those that the connection did not take, because it is over,
/// may share positions.
#[derive(Debug)]
pub struct HandedOut<Q> {
    messages: VecDeque<One<Q>>,
    bytes: usize,
}

#[derive(Debug)]
struct One<Q> {
    position: u64,
    queue: Q,
    at: u64,
    bytes: usize,
}

impl<Q> Default for HandedOut<Q> {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<Q: PartialEq> HandedOut<Q> {
    /// Adds a message of a queue, with its position on the connection and its position in the queue.
    pub fn add(&mut self, position: u64, (queue, at): (Q, u64), bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.messages.push_back(One {
            position,
            queue,
            at,
            bytes,
        });
    }

    /// Bytes of all messages.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the messages up to a position on the connection: for each queue, their positions there.
    pub fn take(&mut self, through: u64) -> Vec<(Q, Vec<u64>)> {
        let count = self.messages.partition_point(|one| one.position <= through);
        let mut by_queue: Vec<(Q, Vec<u64>)> = Vec::new();
        for one in self.messages.drain(..count) {
            self.bytes = self.bytes.saturating_sub(one.bytes);
            let known = by_queue.iter_mut().find(|(queue, _)| *queue == one.queue);
            match known {
                Some((_, all)) => all.push(one.at),
                None => by_queue.push((one.queue, vec![one.at])),
            }
        }
        by_queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_in_order_and_by_queue() {
        let mut handed = HandedOut::default();
        for (position, queue, at) in [(1, 'a', 10), (2, 'b', 5), (4, 'a', 11), (7, 'a', 14)] {
            handed.add(position, (queue, at), 100);
        }
        assert_eq!(handed.bytes(), 400);
        assert_eq!(handed.take(0), []);
        assert_eq!(handed.take(4), [('a', vec![10, 11]), ('b', vec![5])]);
        assert_eq!(handed.bytes(), 100);
        // Two that a connection did not take because it is over.
        handed.add(8, ('b', 6), 50);
        handed.add(8, ('b', 7), 50);
        assert_eq!(handed.take(7), [('a', vec![14])]);
        assert_eq!(handed.take(u64::MAX), [('b', vec![6, 7])]);
        assert_eq!(handed.bytes(), 0);
    }
}
