//! Relink, version 0, without I/O: links between a connector and a listener that survive their
//! connections.
//!
//! This crate decides which handshakes and packets are sound, which messages have arrived and which go out again. It
//! does not open a socket, read a clock or look into payloads. The rules are those of the Relink specification. Where
//! a rule is ambiguous, the comment names the number of our reading.
//!
//! Its rules: REQ-RELINK-1.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]

mod binder;
mod config;
mod describe;
mod error;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod id;
mod limits;
mod link;
pub mod payload;

pub use ackline_core::Payload;
pub use binder::{Binder, Decision, EndpointConfig};
pub use config::{
    ConnectorConfig, KeepOptions, LinkConfig, LinkKey, LinkOptions, ListenerConfig, ReceiveOptions,
    ReconnectOptions, Side, StartChannel,
};
pub use describe::Description;
pub use error::Kind;
pub use handshake::{Handshake, HandshakeEvent};
pub use id::ChannelId;
pub use limits::{Limits, TARGET_BYTES};
pub use link::{
    Attach, CHANNEL_BYTES, Change, Event, FREE_CHANNELS, FREE_OUTCOMES, Link, LinkState, LinkStats,
    OUTCOME_BYTES, Standing,
};
pub use payload::COPIED_BYTES;
