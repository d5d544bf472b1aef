//! The model's traces, taken by the real machines.

#![allow(
    missing_docs,
    clippy::print_stdout,
    reason = "a test; its figures are read with --nocapture"
)]

use ackline_model::{Plan, plans, replay};

#[test]
fn the_machines_take_every_step_of_the_small_plans() {
    for (name, plan) in plans::small()
        .into_iter()
        .filter(|(name, _)| SMALLEST.contains(name))
    {
        let plan = Plan {
            cuts: 1,
            restarts: 1,
            ..plan
        };
        let (states, steps) =
            replay::every_step(&plan).unwrap_or_else(|wrong| panic!("{name}:\n{wrong}"));
        println!("{name}, 1 cut: {states} states, {steps} steps");
    }
}

#[test]
fn the_machines_follow_random_walks_of_the_large_plans() {
    for (name, plan) in plans::large() {
        let seeds = 0..2_000;
        let walked: Result<Vec<_>, _> = seeds
            .clone()
            .map(|seed| replay::walk(&plan, seed))
            .collect();
        let walked = walked.unwrap_or_else(|wrong| panic!("{name}, {wrong}"));
        println!(
            "{name}: seeds {seeds:?}, {} steps",
            walked.iter().sum::<usize>()
        );
    }
}

/// The others are for `make model`.
const SMALLEST: [&str; 5] = [
    "shutdown",
    "two channels",
    "both directions",
    "transactions, reopened",
    "resume from consumed, transactions",
];
