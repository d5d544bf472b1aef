//! The frames of a capture, and the texts inside frames, as tools show them.
#![allow(clippy::unwrap_used)] // tests may panic

use ackline_core::{ErrorKind as _, Inspect as _, Value};
use ackline_micromsg::Limits;
use ackline_micromsg::frame::{Inspector, Unit};
use bytes::BytesMut;

/// The frames in `bytes`: each one's name, and the labels and lengths of its spans.
fn shown(bytes: &[u8], unit: Unit) -> Vec<(&'static str, Vec<(String, usize)>)> {
    let mut inspector = Inspector::new(Limits::default(), unit);
    let mut input = BytesMut::from(bytes);
    let mut all = Vec::new();
    while let Some(one) = inspector.inspect(&mut input).unwrap() {
        let labelled = one.spans.iter().map(|span| span.len).sum::<usize>();
        assert_eq!(labelled, one.bytes.len());
        let spans = one.spans.into_iter().map(|span| (span.label, span.len));
        all.push((one.name, spans.collect()));
        if inspector.is_whole() {
            break;
        }
    }
    assert!(input.is_empty());
    all
}

const HANDSHAKE: &[u8] = b"\x01\x00\x00\x01c\x00\x04json\x00\x00";
const MESSAGE: &[u8] = b"\x10\x00\x07\x01q\x00\x05n:N1;\x02hi";

#[test]
fn a_client_sends_two_handshakes_and_then_frames_whose_bytes_have_a_purpose() {
    let bytes = [
        HANDSHAKE,
        HANDSHAKE,
        MESSAGE,
        b"\x02\x01\x02\x00\x05",
        b"\x01\x02go",
        b"\x04\x02no",
    ];
    let found = shown(&bytes.concat(), Unit::Connection { handshakes: 2 });
    let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "handshake",
            "handshake",
            "message",
            "extension",
            "command",
            "error"
        ]
    );
    let row = |label: &str, len| (label.to_owned(), len);
    let handshake =
        "handshake, major_version 1, minor_version 0, identity \"c\", required_extensions \"json\"";
    assert_eq!(found[0].1, [row(handshake, 13)]);
    let message = "message, sequence_number 7, destination \"q\", properties \"n:N1;\", continued";
    assert_eq!(found[2].1, [row(message, 13), row("payload", 2)]);
    assert_eq!(found[3].1, [row("extension, id 1", 3), row("payload", 2)]);
    assert_eq!(found[4].1, [row("command, payload \"go\"", 4)]);
    assert_eq!(found[5].1, [row("error, message \"no\"", 4)]);
}

#[test]
fn a_server_sends_one_handshake_or_an_error_in_its_place() {
    let unit = Unit::Connection { handshakes: 1 };
    let found = shown(&[HANDSHAKE, MESSAGE].concat(), unit.clone());
    assert_eq!((found[0].0, found[1].0), ("handshake", "message"));
    for error in [&b"\x04\x02no"[..], b"\x0c\x00\x00\x00\x02no"] {
        assert_eq!(shown(error, unit.clone())[0].0, "error");
        assert_eq!(shown(error, Unit::Handshake)[0].0, "error");
    }
}

#[test]
fn a_frame_that_is_not_whole_stays_and_one_that_is_wrong_is_named() {
    for (bytes, unit) in [(MESSAGE, Unit::Frame), (HANDSHAKE, Unit::Handshake)] {
        for cut in 0..bytes.len() {
            let mut input = BytesMut::from(&bytes[..cut]);
            let found = Inspector::new(Limits::default(), unit.clone()).inspect(&mut input);
            assert_eq!(found.map(|one| one.is_none()), Ok(true), "{cut}");
            assert_eq!(input.len(), cut);
        }
    }
    let mut input = BytesMut::from(&[3][..]);
    let error = Inspector::new(Limits::default(), Unit::Frame)
        .inspect(&mut input)
        .unwrap_err();
    assert_eq!(error.code(), "micromsg.conflicting_frame_types");
}

#[test]
fn long_texts_are_members_but_no_labels() {
    let destination = "d".repeat(200);
    let bytes = [&[0, 0, 1, 200][..], destination.as_bytes(), &[0, 0, 0]].concat();
    let mut input = BytesMut::from(&bytes[..]);
    let found = Inspector::new(Limits::default(), Unit::Frame)
        .inspect(&mut input)
        .unwrap()
        .unwrap();
    assert_eq!(found.spans[0].label, "message, sequence_number 1");
    assert_eq!(found.members[1], ("destination", Value::Text(destination)));
}

#[test]
fn texts_are_read_as_a_whole_each_by_its_unit() {
    for (text, unit, name) in [
        (
            "json;batch-ack:count=3",
            Unit::ExtensionList,
            "extension_list",
        ),
        ("a:N1;b:Tx;", Unit::PropertyList, "property_list"),
        ("go;a=b", Unit::CommandLine, "command_line"),
        ("a>N1", Unit::Filter(None), "filter"),
        ("a>N1", Unit::Filter(Some("a:N2;".to_owned())), "filter"),
    ] {
        let found = shown(text.as_bytes(), unit);
        assert_eq!(found, [(name, vec![(name.to_owned(), text.len())])]);
    }
    let mut input = BytesMut::from(&b"a>N1"[..]);
    let unit = Unit::Filter(Some("a:N1;".to_owned()));
    let found = Inspector::new(Limits::default(), unit)
        .inspect(&mut input)
        .unwrap()
        .unwrap();
    assert_eq!(found.members[1], ("matches", Value::Flag(false)));
}
