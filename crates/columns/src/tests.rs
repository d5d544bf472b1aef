//! Tests of parts that the crate does not offer by themselves.

mod elements;
