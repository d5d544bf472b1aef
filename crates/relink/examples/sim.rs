//! Random schedules of two ends and their transports. Each one comes from a seed.
//!
//! `cargo run --release -p ackline-relink --example sim -- --seeds N [--seed FIRST]` runs N of them from
//! FIRST on (0), prints the seed of the first that fails and ends with 1; `--seed S` alone runs that one.

// The world belongs to the tests.
#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used
)]

#[path = "../tests/common/schedule.rs"]
mod schedule;
#[path = "../tests/common/world.rs"]
#[allow(dead_code)] // other tests need more of it
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seeds, mut first) = (None, None);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--seeds", Some(value)) => seeds = Some(value),
            ("--seed", Some(value)) => first = Some(value),
            _ => {
                eprintln!("sim: --seeds N [--seed FIRST]");
                return ExitCode::from(2);
            }
        }
    }
    let seeds = seeds.unwrap_or(1);
    let first = first.unwrap_or(0);
    for seed in first..first.saturating_add(seeds) {
        if std::panic::catch_unwind(|| schedule::run(seed)).is_err() {
            eprintln!("sim: seed {seed} fails; again: --seed {seed}");
            return ExitCode::FAILURE;
        }
    }
    eprintln!("sim: {seeds} schedules from seed {first}");
    ExitCode::SUCCESS
}
