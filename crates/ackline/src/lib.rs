//! Ackline for Rust users: typed asynchronous links, and the receiver, which acknowledges the
//! events that it keeps.
//!
//! One file per protocol ([`lumberjack`]) holds its typed client and server, how its events become
//! blocks of a spool ([`Ingest`]) and how a block becomes event rows again ([`Layout`](ackline_spool::Layout)).
//! [`protocols`] lists them by URL scheme: the receiver, the command line, Python and Spark look there.
//!
//! # Features
//!
//! All of them are on by default. With one protocol alone (`default-features = false, features = ["bpmux"]`) fewer crates
//! are built, counted as lines of `cargo tree -e normal,build --prefix none | sort -u`:
//!
//! | feature | gives | crates |
//! |---|---|---|
//! | `bpmux` | [`bpmux`]: requests, sinks, streams and duplexes | 40 |
//! | `lumberjack` | [`lumberjack`]: the listener and the sender | 47 |
//! | `relink` | [`relink`]: links, also those that are kept on disk, whose directory [`spool`] locks | 95 |
//! | `spool` | [`Receiver`]: lands arriving events in a spool; its options name every protocol, so it has all three | 106 |
//! | `tls` | `+tls` URLs, which without it are an error that names the feature | 49 more beside `bpmux`, 39 beside `spool` |
//!
//! `.ci/features` compiles and counts the sets that make sense.

#![forbid(unsafe_code)]

#[cfg(not(any(
    feature = "bpmux",
    feature = "lumberjack",
    feature = "micromsg",
    feature = "reactive",
    feature = "relink"
)))]
compile_error!(
    "ackline needs a protocol: enable its feature bpmux, lumberjack, micromsg, reactive or relink"
);

#[cfg(feature = "bpmux")]
pub mod bpmux;
#[cfg(any(feature = "bpmux", feature = "micromsg", feature = "reactive"))]
mod dialing;
#[cfg(feature = "spool")]
mod ingest;
#[cfg(feature = "spool")]
mod landing;
mod listening;
mod log_lines;
#[cfg(feature = "lumberjack")]
pub mod lumberjack;
#[cfg(feature = "micromsg")]
pub mod micromsg;
#[cfg(any(feature = "micromsg", feature = "reactive", feature = "relink"))]
mod named_url;
#[cfg(feature = "spool")]
mod outgoing;
#[cfg(feature = "spool")]
mod pieces;
#[cfg(feature = "spool")]
mod protocol;
#[cfg(feature = "spool")]
mod protocols;
mod query;
#[cfg(feature = "reactive")]
pub mod reactive;
#[cfg(feature = "spool")]
mod receiver;
#[cfg(feature = "relink")]
pub mod relink;
#[cfg(feature = "spool")]
mod repeats;
#[cfg(any(feature = "bpmux", feature = "micromsg", feature = "reactive"))]
mod watch;

pub use ackline_core as core;
pub use ackline_link as link;
#[cfg(feature = "spool")]
pub use ackline_spool as spool;

#[cfg(feature = "spool")]
pub use ingest::{Aside, Batch, Ingest, Landable, PerConnection, Ready};
#[cfg(feature = "spool")]
pub use landing::{
    Ack, AckedStats, ConsumerLag, Failure, QuarantineOptions, ReceivedStats, ReceiverError,
    ReceiverOptions, ReceiverStats, RefusalStats, SpoolStats, V1Ack,
};
pub use listening::Listening;
pub use log_lines::LogLines;
#[cfg(feature = "spool")]
pub use protocols::{described, layouts, options_of, protocol_titles, protocols, receiver_options};
#[cfg(feature = "spool")]
pub use receiver::Receiver;
