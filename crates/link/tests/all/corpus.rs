//! The seed corpora of the fuzz targets, replayed.

use std::path::Path;

use ackline_link::fuzzing;

/// Runs a target over each of its seeds.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder.join(target)).expect("it has a folder") {
        let seed = entry.expect("the folder can be read").path();
        run(&std::fs::read(seed).expect("a seed is a file"));
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds");
}

#[test]
fn every_seed_of_the_proxy_header_keeps_the_promises() {
    replay("proxy_header", fuzzing::proxy);
}

#[test]
fn every_seed_of_the_ledger_keeps_the_promises() {
    replay("link_ledger", fuzzing::ledger);
}

#[test]
fn every_seed_of_the_slots_keeps_the_promises() {
    replay("link_slots", fuzzing::slots);
}

#[test]
fn every_seed_of_the_answer_budget_keeps_the_promises() {
    replay("link_answers", fuzzing::answers);
}
