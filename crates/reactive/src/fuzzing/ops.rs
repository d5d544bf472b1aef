//! Two ends, and a model of what each stream has published and requested.

use std::collections::BTreeMap;
use std::time::Instant;

use ackline_core::{Connection as _, Lifecycle, Need, SendQueue};
use bytes::{Buf as _, Bytes, BytesMut};

use crate::{Config, Connection, Event, Role, UNBOUNDED};

pub(super) fn ops(now: Instant, data: &[u8]) {
    let mut world = World::new(now);
    let mut script = data.iter().copied();
    while let Some(byte) = script.next() {
        world.step(byte, &mut script);
    }
    world.settle();
    world.check();
}

/// A stream: its subscriber's end, its id, and how many streams had this id before.
type Key = (usize, u64, u32);

/// A stream, as both ends know it.
#[derive(Debug, Default)]
struct Stream {
    /// Elements that the publisher was granted.
    granted: u64,
    /// Elements that the subscriber has requested.
    requested: u64,
    published: Vec<Bytes>,
    received: Vec<Bytes>,
    /// The end that the publisher has given it: whether it is complete.
    ended: Option<bool>,
    /// The end that the subscriber was told.
    told: Option<bool>,
    is_cancelled: bool,
    /// The size of its elements, once it was accepted.
    size: usize,
}

struct World {
    now: Instant,
    ends: [Connection; 2],
    /// Bytes on their way to each end.
    wires: [BytesMut; 2],
    streams: BTreeMap<Key, Stream>,
    /// Streams that had an id so far, at the subscriber and at the publisher.
    begun: [BTreeMap<(usize, u64), u32>; 2],
    /// Subscriptions that wait for an answer: the publisher's end and the id.
    asked: Vec<(usize, u64)>,
    has_goodbye: bool,
    number: u8,
}

impl World {
    fn new(now: Instant) -> Self {
        let config = || Config {
            split_threshold: 8,
            ..Config::default()
        };
        let mut ends = [
            Connection::new(now, Role::Client, config()),
            Connection::new(now, Role::Server, config()),
        ];
        for end in &mut ends {
            end.connect(now).expect("it was not connected");
        }
        Self {
            now,
            ends,
            wires: Default::default(),
            streams: BTreeMap::new(),
            begun: Default::default(),
            asked: Vec::new(),
            has_goodbye: false,
            number: 0,
        }
    }

    fn step(&mut self, byte: u8, script: &mut impl Iterator<Item = u8>) {
        let mut next = || script.next().unwrap_or(0);
        let at = usize::from(byte & 1);
        let id = u64::from(byte >> 1 & 3).saturating_add(1);
        match byte >> 3 & 15 {
            0 | 1 => self.subscribe(at, id, u64::from(next() % 6)),
            2 => self.request(at, id, next()),
            3 => self.cancel(at, id),
            4 | 5 => self.answer(next()),
            6..=8 => self.publish(at, id, next()),
            9 => self.end(at, id, next()),
            10..=13 => {
                self.deliver(at, usize::from(next()));
            }
            14 => self.transmit(at),
            _ => {
                if next() > 250 {
                    self.has_goodbye |= self.end_of(at).goodbye("bye").is_ok();
                }
            }
        }
    }

    fn end_of(&mut self, at: usize) -> &mut Connection {
        self.ends.get_mut(at).expect("there are two ends")
    }

    fn wire_to(&mut self, at: usize) -> &mut BytesMut {
        self.wires.get_mut(at).expect("there are two ends")
    }

    /// The newest stream of an id, as its subscriber (0) or its publisher (1) knows it.
    fn key(&self, side: usize, subscriber: usize, id: u64) -> Key {
        let begun = self.begun.get(side).expect("there are two sides");
        (
            subscriber,
            id,
            begun.get(&(subscriber, id)).copied().unwrap_or(0),
        )
    }

    fn begin(&mut self, side: usize, subscriber: usize, id: u64) -> Key {
        let begun = self.begun.get_mut(side).expect("there are two sides");
        let count = begun.entry((subscriber, id)).or_default();
        *count = count.saturating_add(1);
        self.key(side, subscriber, id)
    }

    fn stream(&mut self, key: Key) -> &mut Stream {
        self.streams.entry(key).or_default()
    }

    fn subscribe(&mut self, at: usize, id: u64, demand: u64) {
        if self.end_of(at).subscribe("p", id, demand).is_ok() {
            let key = self.begin(0, at, id);
            self.stream(key).requested = demand;
        }
    }

    fn request(&mut self, at: usize, id: u64, amount: u8) {
        let demand = match amount {
            255 => UNBOUNDED,
            amount => u64::from(amount % 9).saturating_add(1),
        };
        if self.end_of(at).request(id, demand).is_ok() {
            let key = self.key(0, at, id);
            let stream = self.stream(key);
            stream.requested = stream.requested.saturating_add(demand).min(UNBOUNDED);
        }
    }

    fn cancel(&mut self, at: usize, id: u64) {
        if self.end_of(at).cancel(id).is_ok() {
            let key = self.key(0, at, id);
            self.stream(key).is_cancelled = true;
        }
    }

    fn answer(&mut self, choice: u8) {
        let Some((at, id)) = self.asked.pop() else {
            return;
        };
        let key = self.key(1, 1_usize.saturating_sub(at), id);
        if choice.is_multiple_of(8) {
            if self.end_of(at).reject(id, "no").is_ok() {
                self.stream(key).ended = Some(false);
            }
            return;
        }
        let size = [0_u8, 0, 1, 4, 20]
            .get(usize::from(choice) % 5)
            .copied()
            .unwrap_or(0);
        if self.end_of(at).accept(id, size.into()).is_ok() {
            self.stream(key).size = size.into();
        }
    }

    fn publish(&mut self, at: usize, id: u64, choice: u8) {
        let key = self.key(1, 1_usize.saturating_sub(at), id);
        let mut made = Vec::new();
        for _ in 0..(choice % 5) {
            self.number = self.number.wrapping_add(1);
            let size = usize::from(choice >> 3);
            made.push(Bytes::from(vec![self.number; size]));
        }
        let count = u64::try_from(made.len()).unwrap_or(u64::MAX);
        let before = self.end_of(at).demand(id);
        let result = self.end_of(at).next(id, made.clone());
        if result.is_err_and(|error| error.code == "wrong_element_size") {
            return self.publish_packed((at, id), key, made.concat());
        }
        let granted = self.stream(key).granted;
        match (before, result) {
            (Ok(demand), Ok(())) => {
                assert!(count <= demand, "more than was requested");
                let stream = self.stream(key);
                stream.published.extend(made);
                assert!(
                    u64::try_from(stream.published.len()).is_ok_and(|count| count <= granted),
                    "more than was granted"
                );
            }
            (Ok(demand), Err(error)) if error.code == "no_demand" => assert!(count > demand),
            _ => {}
        }
    }

    /// The same bytes in elements of the stream's size.
    fn publish_packed(&mut self, (at, id): (usize, u64), key: Key, all: Vec<u8>) {
        let (size, all) = (self.stream(key).size, Bytes::from(all));
        let count = all.len().checked_div(size).unwrap_or(0);
        let demand = self.end_of(at).demand(id).unwrap_or(0);
        let result = self.end_of(at).next_packed(id, all.clone());
        let is_whole = size > 0 && all.len().is_multiple_of(size);
        let has_demand = u64::try_from(count).is_ok_and(|count| count <= demand);
        assert_eq!(result.is_ok(), is_whole && has_demand, "{result:?}");
        if result.is_ok() {
            let elements = crate::message::apart(&all, size).collect::<Vec<_>>();
            self.stream(key).published.extend(elements);
        }
    }

    fn end(&mut self, at: usize, id: u64, choice: u8) {
        let key = self.key(1, 1_usize.saturating_sub(at), id);
        let is_complete = choice.is_multiple_of(2);
        let result = if is_complete {
            self.end_of(at).complete(id)
        } else {
            self.end_of(at).error(id, "failed")
        };
        if result.is_ok() {
            self.stream(key).ended = Some(is_complete);
        }
    }

    fn transmit(&mut self, at: usize) {
        let (now, mut out) = (self.now, SendQueue::new());
        self.end_of(at).poll_transmit(now, &mut out);
        let bytes = out.copy_to_bytes(out.remaining());
        self.wire_to(1_usize.saturating_sub(at))
            .extend_from_slice(&bytes);
    }

    /// Delivers so many bytes to an end, and tells its application everything.
    fn deliver(&mut self, at: usize, most: usize) -> bool {
        let now = self.now;
        let wire = self.wire_to(at);
        let mut input = wire.split_to(most.min(wire.len()));
        let had = input.len();
        loop {
            let need = self.end_of(at).receive(now, &mut input);
            let need = need.expect("neither end finds fault with the other");
            let is_idle = matches!(need, Need::Input { .. });
            while let Some(event) = self.end_of(at).poll_event() {
                self.told(at, event);
            }
            if is_idle {
                break;
            }
            self.transmit(at);
        }
        // A message that is not whole waits for the rest.
        let left = input.len();
        let wire = self.wire_to(at);
        input.unsplit(std::mem::take(wire));
        *wire = input;
        had > left
    }

    fn told(&mut self, at: usize, event: Event) {
        let other = 1_usize.saturating_sub(at);
        match event {
            Event::Subscribe {
                subscriber,
                initial_demand,
                ..
            } => {
                let key = self.begin(1, other, subscriber);
                self.stream(key).granted = initial_demand;
                self.asked.push((at, subscriber));
            }
            Event::Request { subscriber, demand } => {
                let key = self.key(1, other, subscriber);
                let stream = self.stream(key);
                stream.granted = stream.granted.saturating_add(demand).min(UNBOUNDED);
            }
            Event::Next {
                subscriber,
                element,
            } => {
                let key = self.key(0, at, subscriber);
                self.came(key, element.to_bytes());
            }
            Event::Packed {
                subscriber,
                element_size,
                elements,
            } => {
                let key = self.key(0, at, subscriber);
                let apart = crate::message::apart(&elements, element_size).collect::<Vec<_>>();
                for element in apart {
                    self.came(key, element);
                }
            }
            Event::Complete { subscriber } => {
                let key = self.key(0, at, subscriber);
                self.stream(key).told = Some(true);
            }
            Event::Error { subscriber, .. } if !self.has_goodbye => {
                let key = self.key(0, at, subscriber);
                self.stream(key).told = Some(false);
            }
            _ => {}
        }
    }

    fn came(&mut self, key: Key, element: Bytes) {
        let stream = self.stream(key);
        assert!(
            !stream.is_cancelled,
            "an element of a cancelled subscription"
        );
        stream.received.push(element);
        let count = u64::try_from(stream.received.len()).unwrap_or(u64::MAX);
        assert!(count <= stream.requested, "more than was requested");
    }

    /// Lets everything that is on its way arrive.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut moved = false;
            for at in 0..2 {
                self.transmit(at);
                moved |= self.deliver(1_usize.saturating_sub(at), usize::MAX);
            }
            if !moved {
                return;
            }
        }
        unreachable!("the ends never rest");
    }

    fn check(&self) {
        if self.has_goodbye {
            for end in &self.ends {
                assert_ne!(end.lifecycle(), Lifecycle::Open, "a goodbye ends both ends");
            }
        }
        for (key, stream) in &self.streams {
            let is_prefix = stream.published.starts_with(&stream.received);
            assert!(is_prefix, "{key:?}: {stream:?}");
            if !stream.is_cancelled && !self.has_goodbye {
                assert_eq!(stream.received, stream.published, "{key:?}");
                assert_eq!(stream.told, stream.ended, "{key:?}");
            }
        }
    }
}
