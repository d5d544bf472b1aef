#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| ackline_micromsg::fuzzing::ops(Instant::now(), data));
