//! The seed corpora of the fuzz targets, replayed, and random scripts.

use std::time::Instant;

use ackline_reactive::fuzzing;
use ackline_testkit::seeds;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    #[allow(clippy::disallowed_methods)] // a test needs some instant
    fn any_script_and_any_bytes_keep_the_promises(
        data in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let start = Instant::now();
        fuzzing::ops(start, &data);
        fuzzing::receive(start, &data);
        fuzzing::roundtrip(&data);
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn every_seed_keeps_the_promises() {
    let start = Instant::now();
    let targets: [seeds::Target<'_>; 3] = [
        ("reactive_ops", &|seed| fuzzing::ops(start, seed)),
        ("reactive_receive", &|seed| fuzzing::receive(start, seed)),
        ("reactive_roundtrip", &fuzzing::roundtrip),
    ];
    seeds::replay("reactive", &targets);
}
