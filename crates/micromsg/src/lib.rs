//! MicroMsg2 without I/O: messages with properties, acknowledgements and extensions that two ends agree on.
//!
//! This crate decides which frames are sound, which extensions a connection has, how many messages may wait for their
//! acknowledgement, and which subscriptions a message matches. Client and server differ in the handshake alone
//! (REQ-MM-1). It does not open a socket, read a clock or look into payloads. The rules are those of the gist by
//! jgauffin; where a rule is ambiguous, the number of our reading stands beside it.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]

pub mod broker;
mod call_error;
mod codec;
mod config;
mod connection;
mod describe;
mod error;
pub mod filter;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod intake;
mod limits;
mod negotiation;
mod offer;
mod parts;
pub mod queue;
pub mod relay;
pub mod session;
pub mod stored;
pub mod subscriptions;
pub mod text;

pub use call_error::Error;
pub use codec::{Codec, Codecs};
pub use config::{AckPolicy, Config, DotnetFrames, Negotiation, ReceiveOptions, Role, Terms};
pub use connection::{
    Connected, Connection, Event, Message, Outbound, Proposal, Subscribe, VERSION,
};
pub use describe::Description;
pub use error::{Kind, refusal};
pub use filter::Filter;
pub use limits::Limits;
pub use offer::{BUILT_IN, Offer};
