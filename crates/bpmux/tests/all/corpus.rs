//! The seed corpora of the fuzz targets, replayed.

use std::time::Instant;

use ackline_bpmux::fuzzing;
use ackline_testkit::seeds;

#[test]
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn every_seed_keeps_the_promises() {
    let start = Instant::now();
    let targets: [seeds::Target<'_>; 3] = [
        ("bpmux_ops", &|seed| fuzzing::ops(start, seed)),
        ("bpmux_receive", &|seed| fuzzing::receive(start, seed)),
        ("bpmux_roundtrip", &fuzzing::roundtrip),
    ];
    seeds::replay("bpmux", &targets);
}
