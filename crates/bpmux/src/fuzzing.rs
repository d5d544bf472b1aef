//! The code that the fuzz targets, the replay of their corpora and the tests run: each entry takes any bytes and fails
//! an assertion if a promise of the crate does not hold for them.

mod model;
mod ops;
mod receive;
mod records;
mod script;
mod told;

use std::time::Instant;

use crate::chunk::{Decoded, Head, decode, encode};

pub use model::{Model, Opening};
pub use script::Script;

/// Any split of any bytes gives the same, for an end in many states.
pub fn receive(now: Instant, data: &[u8]) {
    receive::receive(now, data);
}

/// Any order of calls and deliveries at both ends: neither finds fault with the other, and everything comes to
/// its end, whole and in order.
pub fn ops(start: Instant, data: &[u8]) {
    ops::ops(start, data);
}

/// Every head that can be decoded is encoded in the narrowest form, which decodes to the same head; the
/// beginning of a sound head is never refused.
pub fn roundtrip(data: &[u8]) {
    let mut rest = data;
    loop {
        match decode(rest) {
            Ok(Decoded::Whole { head, len }) => {
                let (front, behind) = rest.split_at_checked(len).expect("a head is there");
                again(head, front);
                let payload = match head {
                    Head::Payload { length, .. } => usize::try_from(length).unwrap_or(usize::MAX),
                    _ => 0,
                };
                rest = behind.get(payload..).unwrap_or_default();
            }
            Ok(Decoded::Partial { at_least }) => {
                assert!(
                    at_least > rest.len(),
                    "more bytes are asked for than there are"
                );
                return;
            }
            Err(_) => return,
        }
    }
}

/// Checks the narrowest form of a head that stands in `front`.
fn again(head: Head, front: &[u8]) {
    let encoded = encode(head);
    let canonical = encoded.as_ref();
    assert!(canonical.len() <= front.len(), "the narrowest form");
    let len = canonical.len();
    assert_eq!(decode(canonical), Ok(Decoded::Whole { head, len }));
    for cut in 0..len {
        let beginning = canonical.get(..cut).unwrap_or_default();
        match decode(beginning) {
            Ok(Decoded::Partial { at_least }) => assert!(cut < at_least && at_least <= len),
            other => unreachable!("a beginning is no head: {other:?}"),
        }
    }
}
