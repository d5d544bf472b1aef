//! Tests that explore every state of the spool's small plans, and check that the properties notice each deliberate
//! error.

#![allow(
    missing_docs,
    clippy::print_stdout,
    reason = "a test; its figures are read with --nocapture"
)]

use std::{collections::BTreeSet, time::Instant};

use ackline_model::spool::{
    Break, Plan,
    plans::{self, CRASHES, DAMAGE, RESTORED as COPY, RETENTION, TWO_WRITERS},
    properties::{
        FENCED, FORWARD, KEPT, NAMED, NEEDED, NOTHING_ELSE_NAMED, ONCE, RESTORED, SYNCED, all,
    },
};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

#[test]
fn every_property_holds_in_every_state_of_the_spools_small_plans() {
    for (name, plan) in plans::small() {
        let begun = Instant::now();
        let checker = plan
            .checker()
            .threads(THREADS)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let (states, steps) = (checker.unique_state_count(), checker.state_count());
        println!(
            "{name}: {states} states, {steps} steps, {:.1?}",
            begun.elapsed()
        );
        checker.assert_properties();
    }
}

#[test]
fn a_deliberate_error_is_noticed() {
    for (error, name, property) in NOTICED {
        let wanted = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let checker = broken(name, error)
            .checker()
            .threads(THREADS)
            .finish_when(wanted)
            .spawn_bfs()
            .join();
        let steps = checker
            .discovery(property)
            .map(|path| path.into_actions().len());
        println!("{error:?} in {name:?}: {property:?} fails after {steps:?} steps");
        assert!(
            steps.is_some(),
            "{error:?} in {name:?}: {property:?} still holds"
        );
    }
}

/// Every property that can fail has a deliberate error that makes it fail.
#[test]
fn every_property_of_the_spool_is_seen_to_fail() {
    let seen: BTreeSet<_> = NOTICED.iter().map(|(.., property)| *property).collect();
    let always = all()
        .into_iter()
        .filter(|one| one.expectation == Expectation::Always);
    assert_eq!(seen, always.map(|property| property.name).collect());
}

/// The positions of a later segment are noted as lost, and no reader takes a group from them. Recovery passes the
/// group over so that `verify` is content.
#[test]
fn one_error_is_harmless() {
    let plan = broken(DAMAGE, Break::IgnoreBelow);
    let checker = plan.checker().threads(THREADS).spawn_bfs().join();
    checker.assert_properties();
}

fn broken(name: &str, error: Break) -> Plan {
    plans::broken(name, error).expect("a plan of that name")
}

/// An error, a plan in which it matters, and the property that notices.
const NOTICED: [(Break, &str, &str); 23] = [
    (Break::SkipCheck, TWO_WRITERS, FENCED),
    (Break::SkipCheck, TWO_WRITERS, ONCE),
    (Break::CheckBefore, TWO_WRITERS, FENCED),
    (Break::CheckBefore, TWO_WRITERS, ONCE),
    (Break::ScanBeforeRaise, TWO_WRITERS, FORWARD),
    (Break::SkipReadBack, TWO_WRITERS, KEPT),
    (Break::RemoveForeign, TWO_WRITERS, KEPT),
    (Break::MarkAlone, TWO_WRITERS, FORWARD),
    (Break::SkipRewrite, CRASHES, SYNCED),
    (Break::IndexFirst, CRASHES, NOTHING_ELSE_NAMED),
    (Break::PublishBeforeSync, CRASHES, SYNCED),
    (Break::RetrySync, CRASHES, SYNCED),
    (Break::CutBodyFirst, CRASHES, NOTHING_ELSE_NAMED),
    (Break::SkipCut, CRASHES, KEPT),
    (Break::NoSeals, CRASHES, NOTHING_ELSE_NAMED),
    (Break::StartWithoutPosition, RETENTION, RESTORED),
    (Break::StartAfterRemoval, RETENTION, KEPT),
    (Break::MarksUnlocked, RETENTION, NEEDED),
    (Break::StartFromMemory, RETENTION, KEPT),
    (Break::AsideFirst, DAMAGE, NAMED),
    (Break::NoteLast, DAMAGE, NAMED),
    (Break::SkipMarks, COPY, RESTORED),
    (Break::RestoredByMark, COPY, RESTORED),
];

/// The checks run on two cores.
const THREADS: usize = 2;
