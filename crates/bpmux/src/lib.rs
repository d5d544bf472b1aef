//! bpmux/rel without I/O: requests, sinks, streams and duplexes over one connection, each held back by
//! credit that is counted in bytes.
//!
//! This crate decides which chunks are sound, how much each end may send, when an entity has ended on both sides
//! and which payload goes next; which handle a payload is for ([`session`]), and when a receiver acknowledges a message
//! ([`intake`]). The driver carries the bytes, in order and whole (REQ-BPMUX-1). The crate does not open a
//! socket, read a clock or look into payloads. The rules are those of the bpmux/rel specification; where a rule is
//! ambiguous the reading's number stands beside it.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]

mod call_error;
pub mod chunk;
mod config;
mod connection;
mod describe;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod intake;
mod limits;
pub mod session;
mod target;

pub use call_error::Error;
pub use config::{Config, Credit, CreditPolicy, Crediting, LinkOptions, ReceiveOptions};
#[doc(hidden)]
pub use connection::Counts;
pub use connection::{Connection, ENTITY_BYTES, Event, FREE_BYTES, REQUEST_BYTES, Stats, Waiting};
pub use describe::Description;
pub use error::{Kind, Subject, refusal};
pub use limits::Limits;
pub use target::{EntityKind, Target};
