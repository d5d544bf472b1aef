//! The seed corpora of the fuzz targets, replayed.

use std::time::Instant;

use ackline_lumberjack::fuzzing;
use ackline_testkit::seeds;

#[test]
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn every_seed_keeps_the_promises() {
    let start = Instant::now();
    let targets: [seeds::Target<'_>; 4] = [
        ("lumberjack_receive", &|seed| fuzzing::receive(start, seed)),
        ("lumberjack_ops", &|seed| fuzzing::ops(start, seed)),
        ("lumberjack_writer", &|seed| fuzzing::writer(start, seed)),
        ("lumberjack_roundtrip", &fuzzing::roundtrip),
    ];
    seeds::replay("lumberjack", &targets);
}
