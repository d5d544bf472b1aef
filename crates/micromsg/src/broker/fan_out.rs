//! Messages to topics on their way to subscribers: those of one batch are gathered for each subscriber, so that its lock is
//! taken once.

use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use ackline_core::TOGETHER;

use super::held::{Count, block_bytes};
use super::{Held, Routed};
use crate::Message;
use crate::subscriptions::Subscriptions;

/// The messages of a batch, by subscriber; `P` is one. It is empty between batches.
#[derive(Debug)]
pub struct FanOut<P> {
    /// By the subscribers' places.
    groups: Vec<Group<P>>,
    /// The places that have messages.
    used: Vec<usize>,
    /// Those of its messages that are in a chunk.
    chunks: Vec<Arc<Chunk>>,
    /// The others.
    messages: Vec<Routed>,
    /// Their bytes.
    size: usize,
    /// The bytes that are counted for them together.
    bytes: usize,
    /// The number of the memory that the last of them shares.
    last: Option<u32>,
}

#[derive(Debug)]
struct Group<P> {
    subscriber: Option<P>,
    runs: Vec<(usize, Range<u32>)>,
}

/// A few messages of a batch, which are in memory until the last of them was sent to the last subscriber.
#[derive(Debug)]
struct Chunk {
    messages: Vec<Routed>,
    _counted: Count,
}

/// Messages that follow each other in a batch, shared with other subscribers.
#[derive(Debug, Clone)]
pub struct Run {
    chunk: Arc<Chunk>,
    range: Range<u32>,
}

impl Run {
    /// The messages.
    pub fn messages(&self) -> &[Routed] {
        let [from, to] =
            [self.range.start, self.range.end].map(|at| usize::try_from(at).unwrap_or(0));
        self.chunk.messages.get(from..to).unwrap_or_default()
    }

    /// Passes over the first one.
    pub(crate) const fn advance(&mut self) {
        self.range.start = self.range.start.saturating_add(1);
    }
}

impl<P> Default for FanOut<P> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            used: Vec::new(),
            chunks: Vec::new(),
            messages: Vec::new(),
            size: 0,
            bytes: 0,
            last: None,
        }
    }
}

impl<P: Clone + Eq + Hash> FanOut<P> {
    /// Adds a message for every subscriber whose filter it matches. `place` is a small number that each subscriber has alone.
    pub fn add(
        &mut self,
        topics: &Subscriptions<P>,
        held: &Arc<Held>,
        message: &Message,
        place: impl Fn(&P) -> usize,
    ) {
        let mut properties = message.properties();
        let at = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        let mut is_added = false;
        for subscriber in topics.matching(message.destination(), &mut properties) {
            self.push(subscriber, place(subscriber), at);
            is_added = true;
        }
        if !is_added {
            return;
        }
        let message = Routed::of(message);
        self.size = self.size.saturating_add(message.bytes());
        let message = if message.has_large_payload() {
            // Connections share it, and may have it longer than the chunk is there.
            held.counted(message, false)
        } else {
            self.bytes = self.bytes.saturating_add(self.bytes_of(&message));
            self.last = message.parts().shared().map(|shared| shared.number);
            message
        };
        self.messages.push(message);
        if self.messages.len() >= TOGETHER || self.size >= CHUNK_BYTES {
            self.end_chunk(held);
        }
    }

    fn push(&mut self, subscriber: &P, place: usize, at: u32) {
        if self.groups.len() <= place {
            self.groups.resize_with(place.saturating_add(1), || Group {
                subscriber: None,
                runs: Vec::new(),
            });
        }
        let Some(group) = self.groups.get_mut(place) else {
            return;
        };
        if group.subscriber.is_none() {
            group.subscriber = Some(subscriber.clone());
            self.used.push(place);
        }
        let (chunk, next) = (self.chunks.len(), at.saturating_add(1));
        match group.runs.last_mut() {
            Some((last, range)) if *last == chunk && range.end == at => range.end = next,
            _ => group.runs.push((chunk, at..next)),
        }
    }

    /// Bytes that a chunk counts for a message: memory that it shares with others whole, and once.
    fn bytes_of(&self, message: &Routed) -> usize {
        match message.parts().shared() {
            Some(shared) if self.last == Some(shared.number) => 0,
            Some(shared) => block_bytes(shared),
            None => message.bytes(),
        }
    }

    fn end_chunk(&mut self, held: &Arc<Held>) {
        (self.last, self.size) = (None, 0);
        let bytes = std::mem::take(&mut self.bytes);
        self.chunks.push(Arc::new(Chunk {
            messages: std::mem::take(&mut self.messages),
            _counted: held.count(bytes, false),
        }));
    }

    /// Calls `deliver` with each subscriber and its messages; returns the number of deliveries.
    pub fn take(
        &mut self,
        held: &Arc<Held>,
        mut deliver: impl FnMut(P, &mut dyn Iterator<Item = Run>),
    ) -> usize {
        if !self.messages.is_empty() {
            self.end_chunk(held);
        }
        let mut delivered = 0_usize;
        for place in self.used.drain(..) {
            let Some(group) = self.groups.get_mut(place) else {
                continue;
            };
            if let Some(subscriber) = group.subscriber.take() {
                let mut runs = group.runs.drain(..).filter_map(|(at, range)| {
                    delivered = delivered.saturating_add(range.len());
                    let chunk = Arc::clone(self.chunks.get(at)?);
                    Some(Run { chunk, range })
                });
                deliver(subscriber, &mut runs);
            }
            if group.runs.capacity() > KEPT_PLACES {
                group.runs = Vec::new();
            }
        }
        self.chunks.clear();
        delivered
    }
}

/// Bytes of a chunk's messages, but for its last one: a slow subscriber of one keeps the others in memory.
const CHUNK_BYTES: usize = 32 << 10;
/// Runs of one subscriber for which memory is kept for the next batch.
const KEPT_PLACES: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::frame::Head;

    fn message(topic: &str, properties: &str, payload: Vec<u8>) -> Message {
        let head = Head {
            sequence_number: 1,
            destination: topic,
            properties,
        };
        Message {
            sequence_number: 1,
            parts: head.parts(payload.into()),
            dotnet_type: None,
        }
    }

    fn payload(number: usize) -> Vec<u8> {
        let bytes = [3, 3_000, 40_000, 0][number % 4];
        [&number.to_be_bytes()[..], &vec![0; bytes]].concat()
    }

    fn number(message: &Routed) -> usize {
        usize::from_be_bytes(message.payload()[..8].try_into().unwrap())
    }

    #[test]
    fn each_subscriber_gets_its_messages_in_order_and_memory_counts_until_all_are_gone() {
        let odd = Arc::new(crate::Filter::read(b"odd=N1").unwrap());
        let mut topics = Subscriptions::default();
        topics.set("a", 5_usize, None);
        topics.set("a", 0, Some(Arc::clone(&odd)));
        topics.set("b", 0, None);
        topics.set("b", 2, Some(odd));
        let held = Held::new(u64::MAX, || ());
        let mut fan_out = FanOut::default();
        for count in [0, 1, 15, 16, 17, 300] {
            let mut expected: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            let mut bytes = 0;
            for number in 0..count {
                let topic = ["a", "b", "none"][number % 3];
                let is_odd = number % 2 == 1;
                let wanted: &[usize] = match (topic, is_odd) {
                    ("a", false) => &[5],
                    ("a", true) => &[5, 0],
                    ("b", false) => &[0],
                    ("b", true) => &[0, 2],
                    _ => &[],
                };
                for subscriber in wanted {
                    expected.entry(*subscriber).or_default().push(number);
                }
                let odd = if is_odd { "odd:N1;" } else { "" };
                let one = message(topic, odd, payload(number));
                if !wanted.is_empty() {
                    bytes += u64::try_from(one.payload_bytes()).unwrap();
                }
                fan_out.add(&topics, &held, &one, |subscriber| *subscriber);
            }
            let mut came = BTreeMap::new();
            let delivered = fan_out.take(&held, |subscriber, runs| {
                came.insert(subscriber, runs.collect::<Vec<_>>());
            });
            let numbers = came.iter().map(|(subscriber, runs)| {
                let messages = runs.iter().flat_map(Run::messages);
                (*subscriber, messages.map(number).collect())
            });
            assert_eq!(numbers.collect::<BTreeMap<_, Vec<_>>>(), expected);
            assert_eq!(delivered, expected.values().map(Vec::len).sum());
            assert!(held.bytes() >= bytes, "{} of {bytes}", held.bytes());
            assert!(held.bytes() <= bytes + 200 * u64::try_from(count).unwrap());
            drop(came);
            assert_eq!(held.bytes(), 0);
        }
    }

    #[test]
    fn a_message_keeps_few_others_in_memory() {
        let mut topics = Subscriptions::default();
        topics.set("a", 0_usize, None);
        let held = Held::new(u64::MAX, || ());
        let mut fan_out = FanOut::default();
        for bytes in [10, 1_900, 100_000] {
            for _ in 0..200 {
                let one = message("a", "", vec![0; bytes]);
                fan_out.add(&topics, &held, &one, |_| 0);
            }
            let mut runs = Vec::new();
            fan_out.take(&held, |_, all| runs.extend(all));
            runs.truncate(1);
            let most = bytes + 2_000 + (32 << 10) + 16 * 200;
            assert!(
                held.bytes() <= u64::try_from(most).unwrap(),
                "{} for {bytes}",
                held.bytes()
            );
            let shared = runs.remove(0);
            let payload = shared.messages()[0].payload();
            drop(shared);
            let left = if bytes > 10_000 { bytes } else { 0 };
            assert!(
                held.bytes() >= u64::try_from(left).unwrap(),
                "a connection has it still"
            );
            drop(payload);
            assert_eq!(held.bytes(), 0);
        }
    }
}
