//! Every vector of tests/vectors, and of `ACKLINE_VECTORS`, at every split point.
#![allow(clippy::disallowed_methods)] // a test needs some instant

use std::path::Path;
use std::time::Instant;

use ackline_core::Connection as _;
use ackline_lumberjack::{Description, Event, Expander, Reader, ReaderConfig, Record, Window};
use ackline_testkit::vectors;
use bytes::BytesMut;

#[test]
fn every_vector_passes_at_every_split_point() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    vectors::assert_all(&own, &Description);
}

#[test]
fn the_facts_of_a_window_are_those_of_its_bytes() {
    let path = "../../tests/vectors/lumberjack/conversations.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).unwrap();
    let mut windows = 0;
    for step in text.split("\"recv\":").skip(1) {
        let hex = step.trim_start().trim_start_matches('"');
        let hex = hex.split('"').next().unwrap();
        let pairs = (0..hex.len()).step_by(2);
        let pairs = pairs.map_while(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
        let mut input: BytesMut = pairs.collect();
        let mut reader = Reader::new(ReaderConfig::bare());
        // A rule that they break ends the reader, after the windows before it.
        let _ = reader.receive(Instant::now(), &mut input);
        while let Some(Event::Window(window)) = reader.poll_event() {
            check_facts(&window);
            windows += 1;
        }
    }
    assert!(windows > 20, "{windows}");
}

fn check_facts(window: &Window) {
    let mut sequences = Vec::new();
    let walked = window.for_each_record(&mut Expander::new(), |record| {
        sequences.push(match record {
            Record::Json { sequence, .. } | Record::Data { sequence, .. } => sequence,
        });
    });
    assert!(walked.is_ok());
    assert_eq!(u32::try_from(sequences.len()), Ok(window.records));
    assert_eq!(sequences.first(), Some(&window.first_sequence));
    assert_eq!(sequences.last(), Some(&window.last_sequence));
}
