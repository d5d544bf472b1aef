//! Ackline for Rust users: typed asynchronous links, and the receiver that acknowledges what it keeps.
//!
//! One file per protocol ([`lumberjack`]) holds its typed client and server, how its events become
//! blocks of a spool ([`Ingest`]) and how a block becomes event rows again ([`Layout`](ackline_spool::Layout)).
//! [`protocols`] lists them by URL scheme: the receiver, the command line, Python and Spark look there.

#![forbid(unsafe_code)]

#[cfg(not(any(feature = "bpmux", feature = "lumberjack", feature = "relink")))]
compile_error!("ackline needs a protocol: enable its feature bpmux, lumberjack or relink");

#[cfg(feature = "bpmux")]
pub mod bpmux;
#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod landing;
mod listening;
#[cfg(feature = "lumberjack")]
pub mod lumberjack;
#[cfg(feature = "spool")]
mod pieces;
#[cfg(feature = "spool")]
mod protocol;
#[cfg(feature = "spool")]
mod protocols;
#[cfg(feature = "spool")]
mod receiver;
#[cfg(feature = "relink")]
pub mod relink;
#[cfg(feature = "spool")]
mod repeats;
#[cfg(feature = "spool")]
mod runs;
mod wakes;

pub use ackline_core as core;
pub use ackline_link as link;
#[cfg(feature = "spool")]
pub use ackline_spool as spool;

#[cfg(feature = "spool")]
pub use ingest::{Aside, Batch, Ingest, PerConnection, Ready};
#[cfg(feature = "spool")]
pub use landing::{
    Ack, ConsumerLag, Failure, QuarantineOptions, ReceiverError, ReceiverOptions, ReceiverStats,
    V1Ack,
};
pub use listening::Listening;
#[cfg(feature = "spool")]
pub use protocols::{layouts, protocols};
#[cfg(feature = "spool")]
pub use receiver::Receiver;
