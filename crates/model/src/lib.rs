//! Relink's resume and transactions, specified small enough to be explored exhaustively.
//!
//! The model follows the specification and our readings of it, not the machines. It counts the messages of each
//! channel that were sent, received, consumed, decided and answered ([`outgoing`], [`incoming`]). A link announces
//! these counts after a reconnection ([`endpoint`]). Around the two ends are two pipes that a cut empties, and a
//! listener that may start again ([`world`]). The events of the applications are checked separately ([`witness`]).
//! Handshake bytes, pings, timers and sequence numbers that wrap are not in the model.
//!
//! The recovery of the spool has its own model ([`spool`]).

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
