//! The tests of this crate in one binary.

#[path = "../../../relink/tests/common/counting.rs"]
mod counting;

mod automatic;
mod corpus;
mod crossings;
mod held;
mod hostile;
mod inspector;
mod memory;
mod model;
mod neighbours;
mod parts;
mod rules;
mod states;
mod vectors;
mod window;
