//! The chunks of a capture as tools show them: every form of every type, in every width.
#![allow(clippy::unwrap_used)] // tests may panic

use ackline_bpmux::chunk::{Decoded, Head, Inspector, decode, encode};
use ackline_bpmux::{Limits, Target};
use ackline_core::{ErrorKind, Inspect as _, Value};
use bytes::BytesMut;

/// Returns a chunk that begins with this tag: its last number is 2, and its payload has as many bytes.
fn chunk(tag: u8) -> Option<Vec<u8>> {
    let mut bytes = match decode(&[tag]).ok()? {
        Decoded::Whole { .. } => return Some(vec![tag]),
        Decoded::Partial { at_least } => vec![0; at_least],
    };
    bytes[0] = tag;
    *bytes.last_mut()? = 2;
    if let Decoded::Whole { head, .. } = decode(&bytes).ok()?
        && let Head::Payload { length, .. } = head
    {
        bytes.resize(bytes.len() + usize::try_from(length).ok()?, 7);
    }
    Some(bytes)
}

#[test]
fn every_byte_of_every_form_has_a_purpose() {
    let mut names = std::collections::BTreeSet::new();
    let mut forms = 0;
    for tag in 0..=u8::MAX {
        let Some(bytes) = chunk(tag) else {
            assert_eq!(decode(&[tag]).unwrap_err().code(), "bpmux.invalid_chunk");
            continue;
        };
        forms += 1;
        let mut inspector = Inspector::new(Limits::default());
        for cut in 0..bytes.len() {
            let shown = inspector
                .inspect(&mut BytesMut::from(&bytes[..cut]))
                .unwrap();
            assert_eq!(shown, None, "{tag:02x}");
        }
        let mut input = BytesMut::from(&bytes[..]);
        input.extend_from_slice(b"next");
        let shown = inspector.inspect(&mut input).unwrap().unwrap();
        assert_eq!((&input[..], &shown.bytes[..]), (&b"next"[..], &bytes[..]));
        let spanned: usize = shown.spans.iter().map(|span| span.len).sum();
        assert_eq!(spanned, bytes.len(), "{shown:?}");
        assert!(
            shown
                .spans
                .iter()
                .all(|span| span.len > 0 || span.label == "payload" || span.label == "top-level"),
            "{shown:?}"
        );
        assert_eq!(shown.spans.first().map(|span| span.len), Some(1));
        names.insert(shown.name);
    }
    assert_eq!((names.len(), forms), (25, 238), "{names:?}");
}

#[test]
fn the_narrowest_widths_are_sent_and_any_are_read() {
    for (amount, len) in [
        (0, 2),
        (255, 2),
        (256, 3),
        (65_535, 3),
        (65_536, 5),
        (1 << 32, 9),
        (u64::MAX, 9),
    ] {
        let head = Head::Credit {
            target: Target::Top,
            amount,
        };
        assert_eq!(encode(head).as_ref().len(), len, "{amount}");
        for width in [1_u32, 2, 4, 8] {
            let code = u8::try_from(width.ilog2()).unwrap();
            let all = amount.to_be_bytes();
            let (zeros, number) = all.split_at(8 - usize::try_from(width).unwrap());
            if zeros.iter().any(|byte| *byte > 0) {
                continue;
            }
            let bytes = [&[0xec | code], number].concat();
            let whole = Decoded::Whole {
                head,
                len: bytes.len(),
            };
            assert_eq!(decode(&bytes), Ok(whole));
        }
    }
    for (id, len) in [(255, 3), (256, 4), (65_536, 6), (u32::MAX, 6)] {
        let head = Head::Credit {
            target: Target::Own(id),
            amount: 1,
        };
        assert_eq!(encode(head).as_ref().len(), len, "{id}");
    }
}

#[test]
fn a_payload_above_the_limit_is_not_waited_for() {
    let limits = Limits {
        max_payload_bytes: 3,
        ..Limits::default()
    };
    let mut inspector = Inspector::new(limits);
    let shown = inspector.inspect(&mut BytesMut::from(&[0x6c, 3, 1, 2, 3][..]));
    let members = shown.unwrap().unwrap().members;
    assert_eq!(members[0], ("sink", Value::Name("top")));
    let refused = inspector.inspect(&mut BytesMut::from(&[0x6c, 4][..]));
    assert_eq!(refused.unwrap_err().code(), "bpmux.limit_exceeded");
}
