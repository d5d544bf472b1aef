//! Plans of the exploration: small ones as an ordinary test, larger ones by `make model`.

use super::{Break, Budget, Plan};

/// A plan and its name.
pub type Named = (&'static str, Plan);

/// The small plans: seconds each.
pub fn small() -> Vec<Named> {
    named(budgets(1))
}

/// The larger plans: minutes each.
pub fn large() -> Vec<Named> {
    named(budgets(2))
}

/// Returns the small plan of this name, with a deliberate error.
pub fn broken(name: &str, broken: Break) -> Option<Plan> {
    let found = small().into_iter().find(|(it, _)| *it == name);
    found.map(|(_, plan)| Plan {
        broken: Some(broken),
        ..plan
    })
}

fn named(budgets: Vec<(&'static str, Budget)>) -> Vec<Named> {
    let plan = |(name, budget)| {
        (
            name,
            Plan {
                budget,
                broken: None,
            },
        )
    };
    budgets.into_iter().map(plan).collect()
}

/// The budgets of the plans. Each plan has one kind of fault; crashes are in all of them.
fn budgets(more: u8) -> Vec<(&'static str, Budget)> {
    let base = Budget {
        groups: 2 + more,
        opens: 2 + more,
        kills: more,
        ..Budget::default()
    };
    vec![
        (
            CRASHES,
            Budget {
                cuts: more,
                failures: 2,
                ..base
            },
        ),
        (
            TWO_WRITERS,
            Budget {
                opens: 1 + more,
                intruders: 1,
                failures: 1,
                ..base
            },
        ),
        (
            RETENTION,
            Budget {
                groups: 1 + more,
                opens: 2,
                intruders: 1,
                cuts: 1,
                kills: more - 1,
                sweeps: more,
                seeks: 1,
                ..base
            },
        ),
        (
            DAMAGE,
            Budget {
                kills: 1 + more,
                failures: 1 + more,
                damages: 1,
                ..base
            },
        ),
        (
            RESTORED,
            Budget {
                opens: 4,
                kills: 1 + more,
                restores: 1,
                ..base
            },
        ),
    ]
}

/// Process death, power cuts and failing syncs.
pub const CRASHES: &str = "crashes and failing syncs";
/// A second writer opens the spool.
pub const TWO_WRITERS: &str = "two writers";
/// Retention, commits and seeks.
pub const RETENTION: &str = "retention and seeks";
/// Damage while nobody runs.
pub const DAMAGE: &str = "damage";
/// A backup is put back.
pub const RESTORED: &str = "restored copy";
