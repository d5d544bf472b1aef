//! The replay of the fuzz targets' seed corpora.

use std::time::Instant;

use ackline_relink::fuzzing;
use ackline_testkit::seeds;

#[test]
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn every_seed_keeps_the_promises() {
    let start = Instant::now();
    let targets: [seeds::Target<'_>; 3] = [
        ("relink_ops", &|seed| fuzzing::ops(start, seed)),
        ("relink_receive", &|seed| fuzzing::receive(start, seed)),
        ("relink_roundtrip", &fuzzing::roundtrip),
    ];
    seeds::replay("relink", &targets);
}
