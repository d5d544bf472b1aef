//! The tests of this crate in one binary.

#[path = "../support/mod.rs"]
mod support;

mod encode;
mod hostile;
mod members;
mod properties;
mod round_trip;
mod values;
mod variants;
