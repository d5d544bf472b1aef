//! The messages of a capture as tools show them.
#![allow(clippy::unwrap_used)] // tests may panic

use ackline_core::{ErrorKind as _, Inspect as _, Value};
use ackline_reactive::Limits;
use ackline_reactive::message::Inspector;
use bytes::BytesMut;

/// The messages in `bytes`: each one's name, and the labels and lengths of its spans.
fn shown(bytes: &[u8]) -> Vec<(&'static str, Vec<(String, usize)>)> {
    let mut inspector = Inspector::new(Limits::default(), Vec::new());
    let mut input = BytesMut::from(bytes);
    let mut all = Vec::new();
    while let Some(one) = inspector.inspect(&mut input).unwrap() {
        assert_eq!(
            one.spans.iter().map(|span| span.len).sum::<usize>(),
            one.bytes.len()
        );
        let spans = one.spans.into_iter().map(|span| (span.label, span.len));
        all.push((one.name, spans.collect()));
    }
    assert!(input.is_empty());
    all
}

#[test]
fn sizes_of_elements_are_learnt_and_every_byte_has_a_purpose() {
    let bytes = [
        &[1, 0, 1, 7][..],
        &[3, 1, b'p', 5, 9],
        &[6, 5, 2],
        &[7, 5, 1, 2],
        &[10, 5, 2, 1, 2, 3, 4],
        &[11, 5, 0, 1, 7],
        &[12, 5, 0, 1, 8],
        &[8, 5],
    ];
    let found = shown(&bytes.concat());
    let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "client_hello",
            "subscribe",
            "subscribed",
            "on_next",
            "on_next_packed",
            "on_next_part",
            "on_next_last_part",
            "on_complete",
        ]
    );
    let spans = |at: usize| found[at].1.clone();
    let row = |label: &str, len| (label.to_owned(), len);
    assert_eq!(
        spans(1),
        [row("subscribe, subscriber 5, initial_demand 9", 5)]
    );
    assert_eq!(
        spans(3),
        [row("on_next, subscriber 5", 2), row("element", 2)]
    );
    assert_eq!(
        spans(5),
        [
            row("on_next_part, subscriber 5, element 0", 4),
            row("element", 1)
        ]
    );
}

#[test]
fn an_element_of_an_unknown_stream_is_refused_and_its_size_can_be_told() {
    let bytes = [7, 5, 1, 2];
    let inspect = |mut inspector: Inspector| inspector.inspect(&mut BytesMut::from(&bytes[..]));
    let plain = Inspector::new(Limits::default(), Vec::new());
    let error = inspect(plain.clone()).unwrap_err();
    assert_eq!(error.code(), "reactive.unknown_subscriber");
    assert!(
        error
            .to_string()
            .starts_with("our subscription 5: there is no such")
    );
    let message = inspect(plain.with_element_size(5, 2)).unwrap().unwrap();
    assert_eq!(
        message.members[1],
        ("element", Value::Bytes(bytes[2..].to_vec().into()))
    );
}
