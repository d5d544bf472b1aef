//! The part of a receiver that is the same for every protocol: it decides when a block goes to the spool,
//! when its link may acknowledge it, and which reports an operator gets.
//!
//! It does not know any protocol (that is [`Ingest`](crate::Ingest)) nor how a spool keeps its bytes.

mod accept;
mod connection;
mod operator;
mod options;
mod quarantine;
mod report;
mod settle;
mod shares;
mod stats;
mod store;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ackline_core::options::OptionError;
use ackline_core::{ErrorKind, Room};
use ackline_link::{Acceptor, Budget, End, PeerInfo, Refused};
use ackline_spool::Writer;
use tokio::sync::watch;

use crate::repeats::Repeats;
pub(crate) use accept::{accept, admit};
use connection::Open;
pub(crate) use connection::{carry, land};
pub use operator::ConsumerLag;
pub(crate) use operator::{Operator, look_around};
pub use options::{Ack, QuarantineOptions, ReceiverOptions, V1Ack};
use quarantine::Quarantine;
pub use report::Failure;
pub(crate) use report::Report;
pub(crate) use report::watch_stats;
use shares::Shares;
pub use stats::{AckedStats, ReceivedStats, ReceiverStats, RefusalStats, SpoolStats};
pub(crate) use store::Store;

/// Why a receiver did not start.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// A URL is wrong, or the options do not go together: the text names them.
    #[error("{0}")]
    Usage(String),
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A URL could not be bound.
    #[error("cannot listen on {url}: {source}")]
    Bind {
        /// The URL as given.
        url: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The spool could not be opened.
    #[error(transparent)]
    Spool(#[from] ackline_spool::SpoolError),
    /// The links that are kept beside the spool cannot be used.
    #[error("{0}")]
    Links(String),
}

/// The state that all connections of one receiver share.
pub(crate) struct Shared {
    budget: Budget,
    room: Room,
    pub(crate) writer: Option<Writer>,
    /// `None` where nothing is kept.
    shares: Option<Arc<Shares>>,
    repeats: Option<Arc<Repeats>>,
    /// Windows of one connection that may be unacknowledged.
    unacked_windows: usize,
    pub(crate) quarantine: Option<Arc<Quarantine>>,
    /// Whether acknowledgements wait for a consumer's commits, where their senders can be told to.
    waits_for_commit: bool,
    pub(crate) operator: Option<Operator>,
    pub(crate) report: Arc<Report>,
    pub(crate) open: Open,
    sockets: Sockets,
}

/// The sockets of a receiver.
struct Sockets {
    acceptor: Acceptor,
    /// Sockets that still accept.
    listening: AtomicUsize,
    /// Over how long the connections are to be ended, once the receiver stops.
    stopping: watch::Receiver<Option<Duration>>,
}

impl Shared {
    /// Creates the state from `store` and `options`, for so many sockets that accept.
    pub(crate) fn new(
        store: Store,
        options: &ReceiverOptions,
        (listening, stopping): (usize, watch::Receiver<Option<Duration>>),
    ) -> Self {
        let room = match &store.writer {
            None => Room::unlimited(),
            Some(writer) => {
                let writer = writer.clone();
                Room::new(options.writer.budget, move || writer.room())
            }
        };
        Self {
            room,
            budget: Budget::fair(options.memory, options.fairness),
            shares: store
                .writer
                .as_ref()
                .map(|_| Shares::new(options.fairness.share_of(options.writer.budget))),
            writer: store.writer,
            repeats: store.repeats,
            unacked_windows: options.reader.limits.max_unacked_windows,
            quarantine: store.quarantine.map(Arc::new),
            waits_for_commit: options.ack != Ack::Durable,
            operator: store.operator,
            report: Arc::default(),
            open: Open::default(),
            sockets: Sockets {
                acceptor: Acceptor::new(options.acceptor()),
                listening: AtomicUsize::new(listening),
                stopping,
            },
        }
    }

    /// The first position of the spool that is kept; 0 where nothing is kept.
    fn first_kept(&self) -> u64 {
        let stats = self.writer.as_ref().map(Writer::stats);
        stats.map_or(0, |stats| stats.first_kept)
    }

    /// The memory of all links.
    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The room of the spool for what is asked for; without end where nothing is kept.
    pub(crate) const fn room(&self) -> &Room {
        &self.room
    }

    /// The spool; `None` where nothing is kept.
    pub(crate) const fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    /// A connection ended: a line if its input was the reason.
    pub(crate) fn connection_ended<K: ErrorKind>(
        &self,
        scheme: &str,
        peer: &PeerInfo,
        end: &End<K>,
    ) {
        self.report.ended((scheme, peer), end, None);
    }

    /// A connection was refused before it was of any use: in a storm of them few have a line.
    pub(crate) fn connection_refused(&self, scheme: &str, refused: Refused) {
        let turned = self.sockets.acceptor.refuse(refused);
        self.report.turned_away(scheme, turned);
    }
}
