//! Relink's resume and transactions, specified small enough to be explored exhaustively.
//!
//! The model is written from the reading of the specification, not from the machines: per channel what was
//! sent, received, consumed, decided and answered ([`outgoing`], [`incoming`]), per link what a reconnection
//! announces ([`endpoint`]), around it two pipes that a cut empties and a listener that may start again
//! ([`world`]). What the applications see is judged apart ([`witness`]). Handshake bytes, pings,
//! timers and sequence numbers that wrap are not in it.
//!
//! Recovery of the spool is a model of its own ([`spool`]).

#![forbid(unsafe_code)]

pub mod between;
pub mod decisions;
pub mod endpoint;
mod exploring;
pub mod incoming;
pub mod machines;
pub mod outgoing;
pub mod packet;
pub mod plans;
pub mod properties;
pub mod replay;
pub mod rules;
pub mod spool;
pub mod witness;
pub mod world;

pub use rules::{Rule, Rules};
pub use world::{Action, Plan, State, Traffic};
