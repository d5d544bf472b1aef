//! The model's traces, replayed by the real machines.

#![allow(
    missing_docs,
    clippy::print_stdout,
    reason = "a test; its figures are read with --nocapture"
)]

use ackline_model::packet::{Event, Operation, Outcome};
use ackline_model::replay::Replay;
use ackline_model::{Action, Plan, Rules, Traffic, plans, replay};

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

/// The peer forgets a channel with its `closed`. If that is lost together with the outcome before it, the outcome
/// cannot be repeated. A sender that has to know it uses `close_when_consumed`.
#[test]
fn a_close_before_the_outcome_can_leave_it_unknown() {
    let told = replay_closing(false).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(
        told,
        [Event::Consumed(0, 1), Event::Closed(0, 0), Event::Resumed]
    );
}

#[test]
fn a_close_that_waits_leaves_no_outcome_unknown() {
    let told = replay_closing(true).unwrap_or_else(|wrong| panic!("{wrong}"));
    let answered = Event::Answered(0, Outcome::Committed, 1);
    assert_eq!(told, [Event::Consumed(0, 1), answered, Event::Resumed]);
}

/// Sends, commits and closes, and cuts the transport when all but the outcome has come back. Returns the sender's
/// events.
fn replay_closing(close_when_consumed: bool) -> Result<Vec<Event>, String> {
    let rules = Rules {
        transactional: [true; 2],
        close_when_consumed,
        ..Rules::plain()
    };
    let traffic = vec![Traffic {
        closed_after: 1,
        ..Traffic::new(0, 0, 1)
    }];
    let plan = Plan {
        rules,
        traffic,
        cuts: 1,
        restarts: 0,
        ranges: false,
        multicast: false,
        shutdown: false,
    };
    let mut replay = Replay::new(&plan);
    let mut told = Vec::new();
    for action in [
        Action::Send(0, 0),
        Action::Decide(0, 0, Operation::Commit, 1),
        Action::Close(0, 0),
    ] {
        replay.step(action)?;
    }
    while !replay.state().pipes[0].is_empty() {
        replay.step(Action::Deliver(1))?;
    }
    replay.step(Action::Consume(1, 0, 1))?;
    told.extend(replay.step(Action::Deliver(0))?[0].events.clone());
    for action in [
        Action::Answer(1, 0, Outcome::Committed, 1),
        Action::Cut,
        Action::AttachListener,
        Action::AttachConnector,
    ] {
        replay.step(action)?;
    }
    while !replay.state().pipes[1].is_empty() {
        told.extend(replay.step(Action::Deliver(0))?[0].events.clone());
    }
    Ok(told)
}

/// The other plans are for `make model`.
const SMALLEST: [&str; 6] = [
    "shutdown",
    "two channels",
    "both directions",
    "transactions, reopened",
    "resume from consumed, transactions",
    "decisions between, reopened",
];
