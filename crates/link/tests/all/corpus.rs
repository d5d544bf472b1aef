//! The seed corpus of the fuzz target of the PROXY header, replayed.

use std::path::Path;

#[test]
fn every_seed_keeps_the_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/proxy_header");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        ackline_link::fuzzing::proxy(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds");
}
