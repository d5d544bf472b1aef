//! The parts that the tests of every protocol share: a [`Pair`](pair::Pair) of endpoints on a
//! virtual clock, a faulty network ([`netem`]), the runner of the conformance vectors
//! ([`vectors`]), of the fuzz targets' seeds ([`seeds`]) and a collector of log lines ([`lines`]).

#![forbid(unsafe_code)]

pub mod lines;
pub mod netem;
pub mod pair;
pub mod seeds;
pub mod vectors;
