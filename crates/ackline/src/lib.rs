//! Ackline for Rust users: typed asynchronous links, and the receiver that acknowledges what it keeps.
//!
//! One file per protocol ([`lumberjack`]) holds its typed client and server, how its events become
//! blocks of a spool ([`Ingest`]) and how a block becomes event rows again ([`Layout`](ackline_spool::Layout)).
//! [`protocols`] lists them by URL scheme: the receiver, the command line, Python and Spark look there.

#![forbid(unsafe_code)]

pub mod bpmux;
mod ingest;
mod landing;
mod listening;
pub mod lumberjack;
mod pieces;
mod protocol;
mod protocols;
mod receiver;
pub mod relink;
mod repeats;
mod runs;

pub use ackline_core as core;
pub use ackline_link as link;
pub use ackline_spool as spool;

pub use ingest::{Aside, Batch, Ingest, PerConnection, Ready};
pub use landing::{
    Ack, ConsumerLag, Failure, QuarantineOptions, ReceiverError, ReceiverOptions, ReceiverStats,
    V1Ack,
};
pub use receiver::Receiver;

use protocols::PROTOCOLS;

/// The URL schemes that are built.
pub fn protocols() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|one| one.scheme).collect()
}

/// The descriptions of the protocols that are built: their machines, verbs, events and frames by name.
pub fn described() -> Vec<&'static dyn ackline_core::described::Described> {
    PROTOCOLS.iter().map(|one| one.description).collect()
}

/// Every layout a spool of ours may hold.
pub fn layouts() -> ackline_spool::Layouts {
    ackline_spool::Layouts::new(PROTOCOLS.iter().flat_map(|one| (one.layouts)()).collect())
}
