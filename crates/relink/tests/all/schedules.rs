//! Seeded random schedules of calls, deliveries and cuts. `make sim` runs a million of them.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)] // tests may panic, and need an instant

use crate::schedule;

#[test]
fn whatever_is_called_and_cut_every_message_arrives_exactly_once() {
    for seed in 0..3_000 {
        let result = std::panic::catch_unwind(|| schedule::run(seed));
        assert!(
            result.is_ok(),
            "seed {seed}: cargo run -p ackline-relink --example sim -- --seed {seed}"
        );
    }
}
