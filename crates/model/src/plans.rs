//! Plans of the exploration: small ones as ordinary tests, large ones by `make model`.
//!
//! Symmetry is removed by hand: the two channels of one direction carry different traffic, and the receiver always
//! fails the same message, the third one, because the kind of an outcome matters only where it changes.

use crate::rules::Rules;
use crate::world::{Plan, Traffic};

/// A plan and its name.
pub type Named = (&'static str, Plan);

/// Third message.
const THIRD: u8 = 0b100;
/// First message.
const FIRST: u8 = 0b001;

/// The small plans: seconds each, together some hundred thousand states.
pub fn small() -> Vec<Named> {
    let mut plans = small_plain();
    plans.extend(small_transactional());
    plans
}

fn small_plain() -> Vec<Named> {
    let two = vec![Traffic::new(0, 0, 2), Traffic::new(0, 1, 1)];
    let closing = vec![closed(0, 3, 0b101), closed(1, 1, FIRST)];
    let ending = vec![
        closed(0, 1, FIRST),
        Traffic {
            side: 1,
            ..closed(0, 1, FIRST)
        },
    ];
    let both_ways = vec![Traffic::new(0, 0, 2), Traffic::new(1, 0, 1)];
    vec![
        (
            "shutdown",
            shutting_down(plan(Rules::plain(), ending, 2, 1)),
        ),
        ("two channels", plan(Rules::plain(), two, 3, 1)),
        (
            "closed and reopened",
            plan(Rules::plain(), closing.clone(), 2, 1),
        ),
        ("both directions", plan(Rules::plain(), both_ways, 3, 1)),
        (
            "close when consumed",
            plan(careful(Rules::plain()), closing.clone(), 3, 1),
        ),
        (
            "resume from consumed",
            plan(from_consumed(Rules::plain()), closing, 2, 1),
        ),
    ]
}

fn small_transactional() -> Vec<Named> {
    let transactions = vec![Traffic {
        failing: THIRD,
        ..closed(0, 3, THIRD)
    }];
    let reopened = vec![Traffic {
        failing: THIRD,
        ..closed(0, 3, FIRST)
    }];
    let pair = vec![scripted(0, 2, 0b01), scripted(1, 1, 0b1)];
    vec![
        (
            "transactions, closed",
            plan(transactional(), transactions.clone(), 2, 0),
        ),
        (
            "transactions, reopened",
            plan(transactional(), reopened.clone(), 3, 1),
        ),
        (
            "transactions on two channels",
            plan(transactional(), pair.clone(), 1, 0),
        ),
        (
            "close when consumed, transactions",
            plan(careful(transactional()), transactions, 1, 1),
        ),
        (
            "resume from consumed, transactions",
            plan(from_consumed(transactional()), reopened.clone(), 2, 1),
        ),
        (
            "decisions between, reopened",
            plan(between(transactional()), reopened, 2, 1),
        ),
        (
            "decisions between, two channels",
            plan(between(from_consumed(transactional())), pair, 1, 0),
        ),
    ]
}

/// The largest plans: two channels, three messages, three cuts and a restart, with both decisions on every message.
pub fn large() -> Vec<Named> {
    let mut plans = large_plain();
    plans.extend(large_transactional());
    plans
}

fn large_plain() -> Vec<Named> {
    let ending = vec![
        closed(0, 2, 0b10),
        Traffic {
            side: 1,
            ..closed(0, 1, FIRST)
        },
    ];
    let plain = vec![Traffic::new(0, 0, 3), Traffic::new(0, 1, 3)];
    vec![
        (
            "three messages on each of two channels",
            plan(Rules::plain(), plain, 3, 1),
        ),
        (
            "shutdown, both directions",
            shutting_down(plan(Rules::plain(), ending, 3, 1)),
        ),
    ]
}

fn large_transactional() -> Vec<Named> {
    let two = vec![
        Traffic {
            failing: 0b10,
            ..Traffic::new(0, 0, 2)
        },
        Traffic::new(0, 1, 1),
    ];
    let closed_two = vec![closed(0, 2, FIRST), closed(1, 1, FIRST)];
    let both_ways = vec![
        Traffic {
            failing: 0b10,
            ..Traffic::new(0, 0, 2)
        },
        Traffic::new(1, 0, 1),
    ];
    let one = vec![Traffic {
        failing: THIRD,
        ..closed(0, 3, THIRD)
    }];
    vec![
        (
            "transactions, one channel, closed",
            plan(transactional(), one, 3, 1),
        ),
        (
            "transactions, two channels, closed and reopened",
            plan(transactional(), closed_two.clone(), 3, 1),
        ),
        (
            "transactions, two channels",
            plan(transactional(), two, 3, 1),
        ),
        (
            "transactions, both directions",
            plan(transactional(), both_ways, 3, 1),
        ),
        (
            "transactions, close when consumed, resume from consumed",
            plan(
                from_consumed(careful(transactional())),
                closed_two.clone(),
                3,
                1,
            ),
        ),
        (
            "decisions between, two channels, closed and reopened",
            plan(between(transactional()), closed_two, 3, 1),
        ),
    ]
}

fn plan(rules: Rules, traffic: Vec<Traffic>, cuts: u8, restarts: u8) -> Plan {
    let multicast = traffic.len() == 2 && traffic.iter().all(|traffic| traffic.side == 0);
    Plan {
        rules,
        traffic,
        cuts,
        restarts,
        ranges: true,
        multicast,
        shutdown: false,
    }
}

fn shutting_down(plan: Plan) -> Plan {
    Plan {
        shutdown: true,
        ..plan
    }
}

fn transactional() -> Rules {
    Rules {
        transactional: [true; 2],
        ..Rules::plain()
    }
}

fn careful(rules: Rules) -> Rules {
    Rules {
        close_when_consumed: true,
        ..rules
    }
}

fn from_consumed(rules: Rules) -> Rules {
    Rules {
        resume_from_consumed: true,
        ..rules
    }
}

fn between(rules: Rules) -> Rules {
    Rules {
        decide_between: true,
        ..rules
    }
}

fn closed(channel: usize, messages: u8, closed_after: u8) -> Traffic {
    Traffic {
        closed_after,
        ..Traffic::new(0, channel, messages)
    }
}

fn scripted(channel: usize, messages: u8, committed: u8) -> Traffic {
    Traffic {
        committed: Some(committed),
        ..Traffic::new(0, channel, messages)
    }
}
