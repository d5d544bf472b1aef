//! What the tests of every protocol share: a [`Pair`](pair::Pair) of endpoints on a virtual clock, a faulty
//! network ([`netem`]) and the runner of the conformance vectors ([`vectors`]).

#![forbid(unsafe_code)]

pub mod netem;
pub mod pair;
pub mod vectors;
