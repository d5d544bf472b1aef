//! Two ends against a model of their calls, on a network that cuts and delays: for any calls in any
//! order, neither end finds fault with the other, every payload comes whole and in order, and
//! everything ends at both ends and leaves nothing behind.
//!
//! `ACKLINE_SEED=7 cargo test -p ackline-bpmux --test all model` runs one seed, `ACKLINE_SEEDS=100000` so many of
//! each kind.
#![allow(clippy::disallowed_methods)] // a test needs some instant

use std::time::{Duration, Instant};

use ackline_bpmux::fuzzing::{self, Model, Script};
use ackline_bpmux::{Config, Connection, CreditPolicy, Limits};
use ackline_core::{Connection as _, Lifecycle};
use ackline_testkit::netem::{Conditions, XorShift};
use ackline_testkit::pair::Pair;

/// Rounds after which nothing may move any more.
const ROUNDS: usize = 5_000;

fn automatic(floor: u64, ceiling: u64, budget: u64) -> CreditPolicy {
    CreditPolicy::Automatic {
        floor,
        ceiling,
        budget,
    }
}

fn end(random: &mut XorShift, credit: CreditPolicy, chunk_size: u32) -> Connection {
    let limits = Limits {
        max_payload_bytes: 600 + random.next() % 2_000,
        ..Limits::default()
    };
    let config = Config {
        chunk_size,
        credit,
        holds_close_acks: random.below(3) == 0,
        limits,
        ..Config::default()
    };
    Connection::new(Instant::now(), config)
}

fn network(random: &mut XorShift) -> Conditions {
    Conditions {
        seed: random.next(),
        max_chunk: [None, Some(1), Some(7), Some(300)][random.below(4)],
        latency: Duration::from_millis([0, 1, 20][random.below(3)]),
        jitter: Duration::from_millis([0, 5][random.below(2)]),
        ..Conditions::default()
    }
}

fn data(random: &mut XorShift, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next().to_be_bytes()[3]).collect()
}

fn run(seed: u64, credit: CreditPolicy, chunk_size: u32) {
    let mut random = XorShift::new(seed);
    let left = end(&mut random, credit, chunk_size);
    let right = end(&mut random, credit, chunk_size);
    let networks = (network(&mut random), network(&mut random));
    let mut pair = Pair::on(left, right, networks.0, networks.1);
    let mut model = Model::default();
    model.cancels_top = seed.is_multiple_of(4);
    model.takes_late = seed.is_multiple_of(3);
    let len = random.below(900);
    let data = data(&mut random, len);
    let mut script = Script::new(&data);
    while !script.is_over() {
        let step = script.byte();
        match step % 8 {
            0..=3 => model.act(0, &mut pair.left.connection, &mut script),
            4..=6 => model.act(1, &mut pair.right.connection, &mut script),
            _ => pair.advance(Duration::from_millis(u64::from(step >> 4))),
        }
        if step > 200 {
            model.take(0, &mut pair.left.connection, usize::from(step & 15));
            model.take(1, &mut pair.right.connection, usize::from(step & 15));
        }
    }
    for _ in 0..ROUNDS {
        for _ in 0..2 {
            model.take(0, &mut pair.left.connection, usize::MAX);
            model.take(1, &mut pair.right.connection, usize::MAX);
        }
        model.wind_down(0, &mut pair.left.connection);
        model.wind_down(1, &mut pair.right.connection);
        pair.advance(Duration::from_millis(30));
        let errors = (pair.left.error(), pair.right.error());
        assert_eq!(errors, (None, None), "neither finds fault with the other");
        let ends = [&pair.left.connection, &pair.right.connection];
        let is_over = ends.iter().all(|end| end.lifecycle() != Lifecycle::Open);
        if is_over && pair.next_due().is_none() {
            break;
        }
    }
    model.take(0, &mut pair.left.connection, usize::MAX);
    model.take(1, &mut pair.right.connection, usize::MAX);
    model.check([&pair.left.connection, &pair.right.connection]);
}

fn range(count: u64) -> std::ops::RangeInclusive<u64> {
    let number = |name| std::env::var(name).ok().and_then(|it| it.parse().ok());
    let count = number("ACKLINE_SEEDS").unwrap_or(count);
    number("ACKLINE_SEED").map_or(1..=count, |seed| seed..=seed)
}

/// Runs seeds, and names the one that failed.
fn seeds(count: u64, credit: CreditPolicy, chunk_size: u32) {
    for seed in range(count) {
        let ran = std::panic::catch_unwind(|| run(seed, credit, chunk_size));
        if let Err(panic) = ran {
            eprintln!("seed {seed}, {credit:?}, chunks of {chunk_size}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn credit_by_hand() {
    seeds(600, CreditPolicy::Manual, 16_384);
    seeds(300, CreditPolicy::Manual, 32);
}

#[test]
fn chunks_of_one_byte() {
    seeds(200, CreditPolicy::Manual, 1);
    seeds(100, automatic(64, 1_000, 2_000), 1);
}

#[test]
fn automatic_credit() {
    seeds(300, CreditPolicy::AUTOMATIC, 16_384);
    seeds(300, automatic(10, 100, 150), 64);
}

#[test]
fn automatic_credit_of_one_byte_makes_progress() {
    seeds(200, automatic(1, 1, 0), 16_384);
    seeds(100, automatic(1, 1, 0), 3);
    seeds(100, automatic(0, 0, 0), 50);
}

#[test]
fn random_scripts_of_the_fuzzer() {
    for seed in range(600) {
        let mut random = XorShift::new(seed);
        let len = random.below(600);
        let data = data(&mut random, len);
        let ran = std::panic::catch_unwind(|| fuzzing::ops(Instant::now(), &data));
        if let Err(panic) = ran {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn random_bytes_and_random_chunks_of_the_fuzzer() {
    for seed in range(3_000) {
        let mut random = XorShift::new(seed);
        let len = random.below(80);
        let mut bytes = data(&mut random, len);
        if seed.is_multiple_of(2) {
            // Ids and lengths are small, so that most chunks are sound.
            for byte in bytes.iter_mut().skip(3) {
                *byte = if random.below(3) == 0 {
                    *byte & 0xf0
                } else {
                    *byte & 3
                };
            }
        }
        let ran = std::panic::catch_unwind(|| {
            fuzzing::receive(Instant::now(), &bytes);
            fuzzing::roundtrip(&bytes);
        });
        if let Err(panic) = ran {
            eprintln!("seed {seed}: {bytes:02x?}");
            std::panic::resume_unwind(panic);
        }
    }
}
