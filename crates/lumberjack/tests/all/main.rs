//! The tests of this crate in one binary.

#[path = "../common/wire.rs"]
mod wire;

mod corpus;
mod envelopes_out;
mod hostile;
mod inspector;
mod limits;
mod properties;
mod reader_aside;
mod reader_ends;
mod reader_rules;
mod reader_timers;
mod vectors;
mod writer_rules;
