//! `make model`: every state of the largest plans of Relink and of the spool, with progress and figures; then
//! Relink's machines on every step of the small plans and on many walks of the large ones.

#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::hash::Hash;
use std::io::{Stdout, Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use ackline_model::{Plan, plans, replay, spool};
use stateright::report::WriteReporter;
use stateright::{Checker, HasDiscoveries, Model};

fn main() -> ExitCode {
    let mut out = stdout();
    let mut right = true;
    for (name, plan) in spool::plans::large() {
        right &= explore(&format!("the spool's \"{name}\""), plan, &mut out);
    }
    for (name, plan) in plans::large() {
        let limits = format!(
            "\"{name}\", {} cuts, {} restart, window {}",
            plan.cuts, plan.restarts, plan.rules.window
        );
        right &= explore(&limits, plan, &mut out);
    }
    for (name, plan) in plans::small() {
        let plan = Plan {
            cuts: 1,
            restarts: 1,
            ..plan
        };
        let begun = Instant::now();
        let replayed = replay::every_step(&plan)
            .map(|(states, steps)| format!("{states} states, {steps} steps"));
        right &= tell(
            &format!("every step of \"{name}\", 1 cut, 1 restart"),
            replayed,
            begun,
            &mut out,
        );
    }
    for (name, plan) in plans::large() {
        let begun = Instant::now();
        let walked: Result<Vec<_>, _> = (0..WALKS).map(|seed| replay::walk(&plan, seed)).collect();
        let walked = walked.map(|walked| format!("{} steps", walked.iter().sum::<usize>()));
        right &= tell(
            &format!("walks of \"{name}\", seeds 0..{WALKS}"),
            walked,
            begun,
            &mut out,
        );
    }
    if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn explore<M>(what: &str, plan: M, out: &mut Stdout) -> bool
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let begun = Instant::now();
    let checker = plan
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join_and_report(&mut WriteReporter::new(out));
    let discoveries = checker.discoveries();
    let expected = checker.model().properties();
    let holds = expected.iter().all(|property| {
        discoveries.contains_key(property.name) != property.expectation.discovery_is_failure()
    });
    let figures = format!(
        "{} states, {} steps",
        checker.unique_state_count(),
        checker.state_count()
    );
    let explored = if holds {
        Ok(figures)
    } else {
        Err(format!("a property fails; {figures}"))
    };
    tell(&format!("every state of {what}"), explored, begun, out)
}

fn tell(what: &str, result: Result<String, String>, begun: Instant, out: &mut Stdout) -> bool {
    let right = result.is_ok();
    let (Ok(text) | Err(text)) = result;
    let word = if right { "ok" } else { "WRONG" };
    let _ = writeln!(
        out,
        "{word}: {what}: {text}, {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    right
}

/// Walks for each large plan.
const WALKS: u64 = 20_000;
