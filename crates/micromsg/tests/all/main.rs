//! The tests of this crate in one binary.

#[path = "../../../relink/tests/common/counting.rs"]
mod counting;

mod corpus;
mod hostile;
mod inspector;
mod relay;
mod rules;
mod vectors;
