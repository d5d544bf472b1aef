//! Tests that explore every state of the small plans, and check that the properties notice when a rule is dropped.

#![allow(
    missing_docs,
    clippy::print_stdout,
    reason = "a test; its figures are read with --nocapture"
)]

use std::collections::BTreeSet;
use std::time::Instant;

use ackline_model::properties::{
    ANSWERED_ONCE, DECIDED_ONCE, NO_DEADLOCK, NO_PROTOCOL_ERROR, NO_ROLLBACK_ANSWERED,
    NOT_SENT_AGAIN, ONCE_IN_ORDER, UNACKNOWLEDGED, WINDOWS,
};
use ackline_model::{Plan, Rule, Rules, plans};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

#[test]
fn every_property_holds_in_every_state_of_the_small_plans() {
    for (name, plan) in plans::small() {
        let begun = Instant::now();
        let checker = plan
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_dfs()
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
fn a_dropped_rule_is_noticed() {
    for (rule, name, property) in NOTICED {
        let plan = dropped(rule, name);
        let wanted = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let checker = plan.checker().finish_when(wanted).spawn_dfs().join();
        let found = checker
            .discovery(property)
            .map(stateright::Path::into_actions);
        let Some(path) = found else {
            panic!("{rule:?} dropped in {name:?}: {property:?} still holds")
        };
        println!(
            "{rule:?} dropped in {name:?}: {property:?} fails after {} steps",
            path.len()
        );
    }
}

/// Every property that can fail has a rule whose absence makes it fail.
#[test]
fn every_property_is_seen_to_fail() {
    let seen: BTreeSet<_> = NOTICED.iter().map(|(_, _, property)| *property).collect();
    let plan = plans::small().swap_remove(0).1;
    let always = plan
        .properties()
        .into_iter()
        .filter(|property| property.expectation == Expectation::Always);
    assert_eq!(seen, always.map(|property| property.name).collect());
}

/// Rules that matter only for peers with another reading of the specification, or that save a round trip. Between two
/// ends like ours nothing depends on them.
#[test]
fn two_rules_can_be_dropped() {
    for rule in [Rule::NewChannelsAtOnce, Rule::NumberAfterReconnect] {
        for name in [
            "two channels",
            "transactions, reopened",
            "resume from consumed, transactions",
        ] {
            let checker = dropped(rule, name)
                .checker()
                .finish_when(HasDiscoveries::AnyFailures)
                .spawn_dfs()
                .join();
            checker.assert_properties();
        }
    }
}

fn dropped(rule: Rule, name: &str) -> Plan {
    let (_, plan) = plans::small()
        .into_iter()
        .find(|(it, _)| *it == name)
        .expect("a plan of that name");
    Plan {
        rules: Rules {
            dropped: Some(rule),
            ..plan.rules
        },
        ..plan
    }
}

/// A rule, a plan in which it matters, and the property that notices.
const NOTICED: [(Rule, &str, &str); 22] = [
    (Rule::ResendAfterReceived, "two channels", ONCE_IN_ORDER),
    (Rule::WaitForAnnouncement, "both directions", ONCE_IN_ORDER),
    (Rule::WaitForAnnouncement, "both directions", NO_DEADLOCK),
    (Rule::Announce, "both directions", NO_PROTOCOL_ERROR),
    (Rule::Announce, "transactions, reopened", DECIDED_ONCE),
    (Rule::RepeatClose, "close when consumed", NO_DEADLOCK),
    (
        Rule::UnannouncedIsClosed,
        "closed and reopened",
        ONCE_IN_ORDER,
    ),
    (
        Rule::ClosedAnswersClose,
        "closed and reopened",
        UNACKNOWLEDGED,
    ),
    (Rule::ClosedWaits, "closed and reopened", UNACKNOWLEDGED),
    (Rule::RepeatDecisions, "transactions, reopened", NO_DEADLOCK),
    (
        Rule::IgnoreOldDecisions,
        "transactions, reopened",
        DECIDED_ONCE,
    ),
    (Rule::ReplayOutcomes, "transactions, reopened", NO_DEADLOCK),
    (
        Rule::IgnoreOldOutcomes,
        "transactions, reopened",
        ANSWERED_ONCE,
    ),
    (
        Rule::SkipRolledBack,
        "transactions, reopened",
        NO_ROLLBACK_ANSWERED,
    ),
    (Rule::ShutdownWaits, "shutdown", NO_PROTOCOL_ERROR),
    (Rule::RepeatShutdown, "shutdown", NO_DEADLOCK),
    (Rule::StopAtWindow, "transactions, closed", WINDOWS),
    (Rule::DiscardOldLink, "two channels", NOT_SENT_AGAIN),
    (Rule::DiscardOldLink, "both directions", ONCE_IN_ORDER),
    (Rule::ForgetClosed, "closed and reopened", WINDOWS),
    (Rule::ForgetClosed, "closed and reopened", NO_PROTOCOL_ERROR),
    (Rule::AcknowledgeConsumed, "two channels", NO_DEADLOCK),
];
