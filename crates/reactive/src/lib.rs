//! The Reactive Streams network protocol without I/O: publishers and subscribers over one connection, each stream held
//! back by demand that is counted in elements.
//!
//! This crate decides which messages are sound, how many elements each publisher may send, when a stream has ended and
//! which message goes next. Both ends may publish and subscribe (REQ-RS-19); client and server differ in the handshake
//! alone. The driver carries the bytes, in order and whole (REQ-RS-1); an incompatible version would have other URLs
//! (REQ-RS-7). The crate does not open a socket, read a clock or look
//! into elements. The rules are those of the draft of reactive-streams-io; where a rule is ambiguous, the number of our
//! reading stands beside it.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]

mod call_error;
mod config;
mod connection;
mod describe;
mod error;
mod extensions;
#[doc(hidden)]
pub mod fuzzing;
pub mod intake;
mod limits;
pub mod message;
mod names;
pub mod session;
pub mod stored;
mod varint;

pub use call_error::Error;
pub use config::{Config, ReceiveOptions, Role};
pub use connection::{Connection, Event, SUBSCRIPTION_BYTES};
pub use describe::Description;
pub use error::{Kind, Subject, refusal};
pub use extensions::Extensions;
pub use limits::Limits;
pub use names::Names;

/// The largest demand (R-RS-3). It stands for demand without bound: it does not decrease (R-RS-18, R-RS-V4).
pub const UNBOUNDED: u64 = (1 << 63) - 1;

/// The version of the protocol (REQ-RS-6).
pub const VERSION: u64 = 0;
