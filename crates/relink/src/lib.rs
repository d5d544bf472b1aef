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
mod book;
mod call_error;
mod config;
mod describe;
mod error;
mod failures;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod id;
mod limits;
mod link;
mod orphans;
pub mod payload;
pub mod record;
mod sent_life;
mod told;

pub use ackline_core::Payload;
pub use binder::{Binder, Decision, EndpointConfig};
pub use book::{Book, Held, Identity, Refusal, Taken};
pub use call_error::{Error, LinkLost, Unacknowledged};
pub use config::{
    ConnectorConfig, KeepOptions, LinkConfig, LinkKey, LinkOptions, ListenerConfig, ReceiveOptions,
    ReconnectOptions, Side, StartChannel,
};
pub use describe::Description;
pub use error::Kind;
pub use failures::Failures;
pub use handshake::{Handshake, HandshakeEvent};
pub use id::ChannelId;
pub use limits::{Limits, TARGET_BYTES};
pub use link::{
    Attach, CHANNEL_BYTES, Change, Event, FREE_CHANNELS, FREE_OUTCOMES, Link, LinkState, LinkStats,
    OUTCOME_BYTES, Standing,
};
pub use payload::COPIED_BYTES;
pub use sent_life::{Outcome, SentLife, SentMessage, Stage};
pub use told::{Reason, Told};
