//! The seed corpora of the fuzz targets, replayed.

use std::path::Path;
use std::time::Instant;

use ackline_bpmux::fuzzing;

type Target<'a> = (&'a str, &'a dyn Fn(&[u8]));

#[test]
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn every_seed_keeps_the_promises() {
    let start = Instant::now();
    let targets: [Target<'_>; 3] = [
        ("bpmux_ops", &|seed| fuzzing::ops(start, seed)),
        ("bpmux_receive", &|seed| fuzzing::receive(start, seed)),
        ("bpmux_roundtrip", &fuzzing::roundtrip),
    ];
    for (target, run) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/seeds")
            .join(target);
        let mut seeds = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            run(&std::fs::read(entry.unwrap().path()).unwrap());
            seeds += 1;
        }
        assert!(seeds > 0, "{target} has no seeds");
    }
}
