//! Relink, version 0, without I/O: links between a connector and a listener that survive their
//! connections.
//!
//! This crate decides what is a sound handshake and a sound packet, which messages have arrived and
//! which are to be sent again. It does not open a socket, read a clock or look into payloads. The rules
//! are those of the Relink specification; where a rule is ambiguous the reading's number stands beside it.
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
pub use config::{ConnectorConfig, LinkConfig, LinkKey, ListenerConfig, Side, StartChannel};
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
