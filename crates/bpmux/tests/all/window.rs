//! The size of a half's window, on paths of every length and rate, in virtual time.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a failed unwrap is a failed test, which needs some instant

use std::time::{Duration, Instant};

use ackline_bpmux::chunk::{Head, PayloadRole, encode};
use ackline_bpmux::{Config, Connection, CreditPolicy, EntityKind, Event, Target};
use ackline_core::{Connection as _, Need, SendQueue};
use ackline_testkit::netem::{Conditions, XorShift};
use ackline_testkit::pair::Pair;
use bytes::{Bytes, BytesMut};

const OWN: Target = Target::Own(1);
const PEER: Target = Target::Peer(1);
const MESSAGE: usize = 16 << 10;
/// The most bytes that arrive at once.
const PIECE: usize = 32 << 10;
/// Bytes each second of most paths here: a gigabit.
const GIGABIT: u64 = 125_000_000;
const FLOOR: u64 = 4 << 10;
/// Bytes of a window that needs no trial.
const FREE: u64 = 512 << 10;
const CEILING: u64 = 4 << 20;
const BUDGET: u64 = 64 << 20;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn config(ceiling: u64, budget: u64) -> Config {
    let credit = CreditPolicy::Automatic {
        floor: FLOOR,
        ceiling,
        budget,
    };
    Config {
        credit,
        ..Config::default()
    }
}

/// Takes all events. Returns the bytes of their payloads.
fn take(end: &mut Connection) -> u64 {
    let mut taken = 0;
    while let Some(event) = end.poll_event() {
        if let Event::Message { target, payload } = event {
            let bytes = u64::try_from(payload.bytes()).unwrap();
            taken += bytes;
            end.consumed(target, bytes);
        }
    }
    taken
}

fn size(end: &Connection) -> u64 {
    FLOOR + end.counts().credit.windows_above_floor
}

/// The sizes of a window, and the time that it had each.
#[derive(Default)]
struct Sizes(Vec<(u64, Duration)>);

impl Sizes {
    fn note(&mut self, size: u64, time: Duration) {
        self.0.push((size, time));
    }

    fn largest(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).max().unwrap()
    }

    /// Returns the part of the time in which it was no larger than it may be without a trial.
    fn small_percent(&self) -> u128 {
        let time = |most| {
            let sizes = self.0.iter().filter(|(size, _)| *size <= most);
            sizes.map(|(_, time)| time.as_nanos()).sum::<u128>()
        };
        100 * time(FREE) / time(u64::MAX)
    }
}

/// A sink that the left end writes and the right end reads, which takes each message at once.
struct Transfer {
    pair: Pair<Connection, Connection>,
    payload: Bytes,
    received: u64,
    sizes: Sizes,
}

impl Transfer {
    fn new(config: Config, one_way: Duration, bytes_per_second: u64) -> Self {
        let network = |max_chunk, bytes_per_second| Conditions {
            latency: one_way,
            max_chunk,
            bytes_per_second,
            ..Conditions::default()
        };
        let there = network(Some(PIECE), Some(bytes_per_second));
        let back = network(None, None);
        let now = Instant::now();
        let end = || Connection::new(now, config);
        let mut pair = Pair::on(end(), end(), there, back);
        let left = &mut pair.left.connection;
        left.open(EntityKind::Sink, 1, Bytes::new()).unwrap();
        Self {
            pair,
            payload: vec![7; MESSAGE].into(),
            received: 0,
            sizes: Sizes::default(),
        }
    }

    /// Queues bytes until so many wait to be sent.
    fn send(&mut self, bytes: usize) {
        let left = &mut self.pair.left.connection;
        while left.waiting(OWN).unwrap() < bytes {
            left.send(OWN, self.payload.clone()).unwrap();
        }
    }

    /// Runs while the left end always has something to send.
    fn run(&mut self, time: Duration) {
        let until = self.pair.elapsed() + time;
        while self.pair.elapsed() < until {
            self.send(32 << 20);
            self.step(until);
        }
    }

    /// The left end has so many bytes to send, then nothing for a while.
    fn burst(&mut self, bytes: usize, time: Duration) {
        let until = self.pair.elapsed() + time;
        self.send(bytes);
        while self.pair.elapsed() < until {
            self.step(until);
        }
    }

    /// Runs until something comes.
    fn step(&mut self, until: Duration) {
        self.pair.settle();
        let (now, elapsed) = (self.pair.now(), self.pair.elapsed());
        let due = self.pair.next_due().map(|due| elapsed + (due - now));
        let next = due.map_or(until, |due| due.min(until));
        let time = next.saturating_sub(elapsed);
        self.sizes.note(size(&self.pair.right.connection), time);
        self.pair.advance(time);
        self.received += take(&mut self.pair.right.connection);
    }

    fn size(&self) -> u64 {
        size(&self.pair.right.connection)
    }

    /// Runs for some time. Returns the bytes that come in each second.
    fn rate(&mut self, time: Duration) -> u64 {
        let before = self.received;
        self.run(time);
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        (self.received - before) * 1_000_000_000 / nanos
    }
}

#[test]
fn a_long_path_is_filled_within_sixty_round_trips() {
    let mut transfer = Transfer::new(config(16 << 20, BUDGET), millis(25), GIGABIT);
    transfer.run(millis(50) * 60);
    let rate = transfer.rate(millis(1_000));
    assert!(rate > GIGABIT / 10 * 9, "{rate}");
}

/// One payload that is larger than its window is on its way at a time.
#[test]
fn a_long_path_is_filled_whatever_the_size_of_its_messages() {
    for message in [300, 64 << 10, 256 << 10, 1 << 20] {
        let mut transfer = Transfer::new(config(CEILING, BUDGET), millis(25), GIGABIT);
        transfer.payload = vec![7; message].into();
        transfer.run(millis(50) * 80);
        assert_eq!(transfer.sizes.largest(), CEILING);
        let rate = transfer.rate(millis(500));
        assert!(rate > CEILING * 20 / 100 * 70, "{message}: {rate}");
    }
}

#[test]
fn a_long_path_stays_filled_though_its_window_is_tried_again_and_again() {
    let ceiling = 1 << 20;
    let mut transfer = Transfer::new(config(ceiling, BUDGET), millis(25), GIGABIT);
    transfer.run(millis(50) * 60);
    let rate = transfer.rate(millis(50) * 300);
    // Credit is given back for a quarter of a window at once.
    let most = ceiling * 20 / 8 * 7;
    assert!(rate > most / 100 * 95, "{rate} of {most}");
}

#[test]
fn a_short_path_is_filled_by_a_small_window() {
    for (one_way, rate) in [(20, 4_000_000_000), (20, GIGABIT), (500, GIGABIT)] {
        let mut transfer = Transfer::new(config(CEILING, BUDGET), micros(one_way), rate);
        let round = Duration::from_nanos(FREE * 1_000_000_000 / rate);
        transfer.run(round * 50);
        let reached = transfer.rate(round * 300);
        // A size that brings less than a quarter more is not kept.
        assert!(reached > rate / 100 * 79, "{reached} of {rate}");
        let (largest, small) = (transfer.sizes.largest(), transfer.sizes.small_percent());
        assert!(largest <= 2 * FREE, "{largest}");
        assert!(small >= 85, "{small} %");
    }
}

#[test]
fn the_window_follows_a_path_that_gets_longer_and_shorter() {
    let ceiling = 1 << 20;
    let mut transfer = Transfer::new(config(ceiling, BUDGET), micros(20), GIGABIT);
    transfer.run(millis(200));
    assert!(transfer.size() <= FREE, "{}", transfer.size());
    transfer.pair.set_latency(millis(25));
    transfer.run(millis(50) * 200);
    assert_eq!(transfer.sizes.largest(), ceiling);
    let rate = transfer.rate(millis(1_000));
    assert!(rate > ceiling * 20 / 100 * 80, "{rate}");
    transfer.pair.set_latency(micros(20));
    // The next trial comes in this time.
    transfer.run(millis(1_500));
    transfer.sizes = Sizes::default();
    transfer.run(millis(1_000));
    let small = transfer.sizes.small_percent();
    assert!(small >= 85, "{small} %");
}

/// A writer's pauses do not change the window.
#[test]
fn a_writer_that_pauses_gets_no_large_window() {
    let mut transfer = Transfer::new(config(CEILING, BUDGET), micros(20), 4_000_000_000);
    let mut random = XorShift::new(7);
    for _ in 0..300 {
        let bytes = (1 << 20) + MESSAGE * random.below(16);
        transfer.burst(
            bytes,
            millis(4) + micros(100) * u32::try_from(random.below(20)).unwrap(),
        );
    }
    let (largest, small) = (transfer.sizes.largest(), transfer.sizes.small_percent());
    assert!(small >= 75, "{small} %, {largest}");
}

#[test]
fn a_slow_writer_gets_no_large_window() {
    let mut transfer = Transfer::new(config(CEILING, BUDGET), micros(20), GIGABIT);
    for _ in 0..4_000 {
        transfer.burst(MESSAGE, millis(1));
    }
    assert!(
        transfer.sizes.largest() <= FREE / 8,
        "{}",
        transfer.sizes.largest()
    );
}

#[test]
fn a_window_is_not_tried_above_the_budget() {
    let mut transfer = Transfer::new(config(CEILING, 1 << 20), millis(25), GIGABIT);
    transfer.run(millis(50) * 60);
    assert_eq!(transfer.size(), 1 << 20);
    transfer.sizes = Sizes::default();
    transfer.run(millis(50) * 20);
    assert_eq!(transfer.sizes.largest(), 1 << 20);
}

/// Runs a peer that uses all its credit, and the end that reads it, round after round: each takes `delay` and the time
/// of its bytes. Returns the sizes of the window.
fn rounds(count: u32, bytes_per_second: u64, mut delay: impl FnMut() -> Duration) -> Sizes {
    let mut now = Instant::now();
    let mut end = Connection::new(now, config(CEILING, BUDGET));
    let head = |role, length| encode(Head::Payload { role, length });
    let mut input = BytesMut::from(head(PayloadRole::Open(EntityKind::Sink, 1), 0).as_ref());
    end.receive(now, &mut input).unwrap();
    let mut sizes = Sizes::default();
    for _ in 0..count {
        end.poll_transmit(now, &mut SendQueue::new());
        let granted = end.granted(PEER).unwrap();
        let time = delay() + Duration::from_nanos(granted * 1_000_000_000 / bytes_per_second);
        sizes.note(size(&end), time);
        now += time;
        input.extend_from_slice(head(PayloadRole::Message(OWN), granted).as_ref());
        input.resize(input.len() + usize::try_from(granted).unwrap(), 7);
        let need = end.receive(now, &mut input).unwrap();
        assert!(matches!(need, Need::Input { .. }));
        assert_eq!(take(&mut end), granted);
    }
    sizes
}

#[test]
fn a_peer_that_is_always_out_of_credit_gets_no_large_window_where_the_ends_are_the_limit() {
    for rate in [4_000_000_000, GIGABIT, 1_000_000] {
        let sizes = rounds(1_000, rate, || micros(30));
        assert!(sizes.largest() <= 2 * FREE, "{}", sizes.largest());
        let small = sizes.small_percent();
        assert!(small >= 90, "{small} %");
    }
}

/// Other processes use the processors too.
#[test]
fn ends_that_are_held_up_now_and_then_get_no_large_window() {
    let mut random = XorShift::new(5);
    let held_up = || match random.below(16) {
        0 => micros(2_000),
        noise => micros(30) + micros(5) * u32::try_from(noise).unwrap(),
    };
    let sizes = rounds(4_000, 2_000_000_000, held_up);
    let small = sizes.small_percent();
    assert!(small >= 80, "{small} %");
}

#[test]
fn a_peer_that_is_always_out_of_credit_gets_the_ceiling_where_the_path_is_long() {
    let sizes = rounds(35, u64::MAX, || millis(50));
    assert_eq!(sizes.0.last().unwrap().0, CEILING);
}
