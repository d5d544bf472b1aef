//! A faulty network for one direction of a byte stream: chunking, latency, a rate, a cut at a byte.
//! Seeded, on the caller's clock, without any I/O. Bytes are never reordered, changed or lost
//! before the cut, as TCP promises.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// The faults of the network in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// The seed of the random choices; the same seed gives the same run.
    pub seed: u64,
    /// The most bytes of a chunk, each length from 1 up being as likely; `None` leaves bytes as
    /// they were sent.
    pub max_chunk: Option<usize>,
    /// Time from sending to arrival.
    pub latency: Duration,
    /// Added to the latency of each chunk: from nothing up to this much.
    pub jitter: Duration,
    /// The rate at which bytes leave, in order. `None` is at once.
    pub bytes_per_second: Option<u64>,
    /// The transport breaks after this many bytes.
    pub cut_after: Option<u64>,
}

impl Default for Conditions {
    /// A perfect network: nothing is split, delayed or lost.
    fn default() -> Self {
        Self {
            seed: 1,
            max_chunk: None,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            bytes_per_second: None,
            cut_after: None,
        }
    }
}

/// A piece that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Bytes, at least one.
    Bytes(Bytes),
    /// The orderly end of the direction.
    End,
    /// The transport broke; nothing follows.
    Cut,
}

/// One direction of a faulty network.
#[derive(Debug, Clone)]
pub struct Netem {
    conditions: Conditions,
    random: XorShift,
    queue: VecDeque<(Instant, Delivery)>,
    /// When all sent bytes will have left.
    busy_until: Option<Instant>,
    sent: u64,
    is_over: bool,
}

impl Netem {
    /// An empty direction under `conditions`.
    pub fn new(conditions: Conditions) -> Self {
        Self {
            random: XorShift::new(conditions.seed),
            conditions,
            queue: VecDeque::new(),
            busy_until: None,
            sent: 0,
            is_over: false,
        }
    }

    /// Changes the latency of bytes sent from now on.
    pub fn set_latency(&mut self, latency: Duration) {
        self.conditions.latency = latency;
    }

    /// Bytes sent so far, without those after a cut.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends bytes. After an end or a cut they vanish.
    pub fn send(&mut self, now: Instant, mut bytes: Bytes) {
        while !bytes.is_empty() && !self.is_over {
            let left = self
                .conditions
                .cut_after
                .map(|cut| cut.saturating_sub(self.sent));
            let left = left.map_or(usize::MAX, |left| {
                usize::try_from(left).unwrap_or(usize::MAX)
            });
            if left == 0 {
                self.finish(now, Delivery::Cut);
                return;
            }
            let chunk = bytes.split_to(self.chunk_len(bytes.len()).min(left));
            self.sent += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.push(now, Delivery::Bytes(chunk));
        }
        if self.conditions.cut_after == Some(self.sent) && !self.is_over {
            self.finish(now, Delivery::Cut);
        }
    }

    /// Ends the direction in good order; a cut that was reached stays one.
    pub fn end(&mut self, now: Instant) {
        if !self.is_over {
            self.finish(now, Delivery::End);
        }
    }

    /// Breaks the direction: bytes in flight are lost.
    pub fn cut(&mut self, now: Instant) {
        self.queue.clear();
        self.is_over = true;
        self.queue.push_back((now, Delivery::Cut));
    }

    /// The next piece that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery> {
        let (due, _) = self.queue.front()?;
        if *due > now {
            return None;
        }
        self.queue.pop_front().map(|(_, delivery)| delivery)
    }

    /// When the next piece arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.queue.front().map(|(due, _)| *due)
    }

    fn finish(&mut self, now: Instant, last: Delivery) {
        self.push(now, last);
        self.is_over = true;
    }

    fn push(&mut self, now: Instant, delivery: Delivery) {
        let jitter = self.random.up_to(self.conditions.jitter);
        let due = self.leaves(now, &delivery) + self.conditions.latency + jitter;
        // Later bytes do not overtake earlier ones.
        let due = self.queue.back().map_or(due, |(last, _)| due.max(*last));
        self.queue.push_back((due, delivery));
    }

    /// When the last byte of it has left.
    fn leaves(&mut self, now: Instant, delivery: &Delivery) -> Instant {
        let Some(rate) = self.conditions.bytes_per_second else {
            return now;
        };
        let len = match delivery {
            Delivery::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Delivery::End | Delivery::Cut => 0,
        };
        let nanos = len.saturating_mul(1_000_000_000) / rate.max(1);
        let left = self.busy_until.unwrap_or(now).max(now) + Duration::from_nanos(nanos);
        self.busy_until = Some(left);
        left
    }

    fn chunk_len(&mut self, len: usize) -> usize {
        let Some(max) = self.conditions.max_chunk else {
            return len;
        };
        let most = max.clamp(1, len);
        1 + self.random.below(most)
    }
}

/// A small random generator whose sequence is the same everywhere.
#[derive(Debug, Clone)]
pub struct XorShift(u64);

impl XorShift {
    /// Starts at `seed`; 0, which would stay 0, becomes another number.
    pub const fn new(seed: u64) -> Self {
        Self(if seed == 0 {
            0x9e37_79b9_7f4a_7c15
        } else {
            seed
        })
    }

    /// The next number (Marsaglia's xorshift64).
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        let micros = usize::try_from(most.as_micros()).unwrap_or(usize::MAX);
        let chosen = self.below(micros.saturating_add(1));
        Duration::from_micros(u64::try_from(chosen).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(netem: &mut Netem, now: Instant) -> (Vec<u8>, Vec<usize>, Option<Delivery>) {
        let (mut bytes, mut sizes) = (Vec::new(), Vec::new());
        loop {
            match netem.poll(now) {
                Some(Delivery::Bytes(chunk)) => {
                    sizes.push(chunk.len());
                    bytes.extend_from_slice(&chunk);
                }
                last => return (bytes, sizes, last),
            }
        }
    }

    #[test]
    fn chunks_are_the_same_bytes_and_the_same_for_the_same_seed() {
        let now = Instant::now();
        let wire: Vec<u8> = (0..=255).cycle().take(5_000).collect();
        let run = |seed| {
            let mut netem = Netem::new(Conditions {
                seed,
                max_chunk: Some(7),
                ..Conditions::default()
            });
            netem.send(now, wire.clone().into());
            netem.end(now);
            let (bytes, sizes, last) = drain(&mut netem, now);
            assert_eq!((bytes, last), (wire.clone(), Some(Delivery::End)));
            sizes
        };
        let sizes = run(3);
        assert_eq!(sizes, run(3));
        assert_ne!(sizes, run(4));
        assert_eq!(sizes.iter().min(), Some(&1));
        assert_eq!(sizes.iter().max(), Some(&7));
    }

    #[test]
    fn bytes_arrive_after_the_latency_and_in_order_despite_jitter() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut netem = Netem::new(Conditions {
            max_chunk: Some(1),
            latency: second,
            jitter: second,
            ..Conditions::default()
        });
        netem.send(now, Bytes::from_static(b"0123456789"));
        assert!(netem.poll_timeout() >= Some(now + second));
        assert_eq!(drain(&mut netem, now).0, b"");
        let (mut last, mut bytes) = (now, Vec::new());
        while let Some(due) = netem.poll_timeout() {
            assert!(due >= last, "a later byte overtakes an earlier one");
            last = due;
            bytes.extend_from_slice(&drain(&mut netem, due).0);
        }
        assert_eq!(bytes, b"0123456789");
        assert!(last > now + second, "jitter delays some of them");
        assert!(last <= now + 2 * second);
    }

    #[test]
    fn bytes_leave_at_their_rate_behind_those_before_them() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut netem = Netem::new(Conditions {
            latency: second,
            bytes_per_second: Some(4),
            ..Conditions::default()
        });
        netem.send(now, Bytes::from_static(b"abcd"));
        netem.send(now, Bytes::from_static(b"ef"));
        assert_eq!(netem.poll_timeout(), Some(now + second * 2));
        assert_eq!(drain(&mut netem, now + second * 2).0, b"abcd");
        assert_eq!(netem.poll_timeout(), Some(now + second * 5 / 2));
        assert_eq!(drain(&mut netem, now + second * 3).0, b"ef");
        netem.send(now + second * 9, Bytes::from_static(b"gh"));
        assert_eq!(netem.poll_timeout(), Some(now + second * 21 / 2));
    }

    #[test]
    fn a_cut_comes_after_its_byte_and_swallows_the_rest() {
        let now = Instant::now();
        for cut in 0..=6 {
            let mut netem = Netem::new(Conditions {
                cut_after: Some(cut),
                ..Conditions::default()
            });
            netem.send(now, Bytes::from_static(b"abc"));
            netem.send(now, Bytes::from_static(b"def"));
            netem.send(now, Bytes::from_static(b"ghi"));
            netem.end(now);
            let (bytes, _, last) = drain(&mut netem, now);
            let len = usize::try_from(cut).unwrap();
            assert_eq!(
                (&bytes[..], last),
                (&b"abcdefghi"[..len], Some(Delivery::Cut))
            );
            assert_eq!(netem.sent(), cut);
        }
    }

    #[test]
    fn a_cut_by_hand_loses_bytes_in_flight() {
        let now = Instant::now();
        let mut netem = Netem::new(Conditions::default());
        netem.send(now, Bytes::from_static(b"abc"));
        netem.cut(now);
        assert_eq!(netem.poll(now), Some(Delivery::Cut));
        assert_eq!(netem.poll(now), None);
    }
}
