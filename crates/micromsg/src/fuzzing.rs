//! The code that the fuzz targets, the replay of their corpora and the tests run: each entry takes any bytes and fails
//! an assertion if a promise of the crate does not hold for them.

pub(crate) mod filters;
mod model;
mod naive;
mod ops;
mod receive;
mod relay;
mod roundtrip;

use std::time::Instant;

/// Any bytes, in any split, give the events and the violation that a second decoder finds by the rules, for an end in many
/// states, and pass a proxy unchanged. No more is held than is charged.
pub fn receive(start: Instant, data: &[u8]) {
    receive::receive(start, data);
    relay::relay(start, data);
}

/// Any order of calls and deliveries at both ends: neither finds fault with the other, no window is exceeded, every
/// message arrives once, in order and whole, and exactly the published messages go out that a subscription matches.
pub fn ops(start: Instant, data: &[u8]) {
    ops::ops(start, data);
}

/// Everything that can be read is written in one form, which reads as the same and is written in the same form again.
pub fn roundtrip(data: &[u8]) {
    roundtrip::roundtrip(data);
}
