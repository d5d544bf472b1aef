//! The tests of this crate in one binary.

mod exhaustive;
mod replay;
mod spool;
