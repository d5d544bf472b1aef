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
mod query;
mod receiver;
pub mod relink;
mod repeats;
mod runs;
mod wakes;

pub use ackline_core as core;
pub use ackline_link as link;
pub use ackline_spool as spool;

pub use ingest::{Aside, Batch, Ingest, Landable, PerConnection, Ready};
pub use landing::{
    Ack, ConsumerLag, Failure, QuarantineOptions, ReceiverError, ReceiverOptions, ReceiverStats,
    V1Ack,
};
pub use listening::Listening;
pub use receiver::Receiver;

use ackline_core::options::{OptionRow, Options as _, Uses};

use protocols::PROTOCOLS;

/// The least memory of a receiver, connection or listener: below it only the shortest windows could come in.
pub const LEAST_MEMORY: u64 = 64 << 10;

/// The URL schemes that are built.
pub fn protocols() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|one| one.scheme).collect()
}

/// Their names in texts.
pub fn protocol_titles() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|one| one.title).collect()
}

/// The options of a receiver in sections, each with its title; protocols come last, in the order of [`protocols`].
pub fn receiver_options() -> Vec<(&'static str, Vec<OptionRow>)> {
    let mut all = ReceiverOptions::default();
    let shared = [
        ("Spool", all.writer.rows()),
        ("Quarantine", all.quarantine.rows()),
        ("Fairness", all.fairness.rows()),
        ("Connections", all.acceptor.rows()),
        ("TLS", all.tls.rows()),
    ];
    let protocols = PROTOCOLS
        .iter()
        .map(|one| (one.title, (one.options)(&mut all).rows()));
    let mut sections: Vec<_> = shared.into_iter().chain(protocols).collect();
    let is_elsewhere = |row: &OptionRow| {
        let rows = sections.iter().flat_map(|(_, rows)| rows);
        rows.into_iter()
            .any(|other| other.spec.name == row.spec.name)
    };
    let own = ReceiverOptions::default().rows();
    let own = own.into_iter().filter(|row| !is_elsewhere(row)).collect();
    sections.insert(0, ("Receiver", own));
    for (_, rows) in &mut sections {
        rows.retain(|row| row.spec.uses.has(Uses::RECEIVE));
    }
    sections
}

/// Every layout a spool of ours may hold.
pub fn layouts() -> ackline_spool::Layouts {
    ackline_spool::Layouts::new(PROTOCOLS.iter().flat_map(|one| (one.layouts)()).collect())
}
