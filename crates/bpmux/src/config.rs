//! The options of a connection.

use std::time::Duration;

use ackline_core::option_words;
use ackline_core::options::{OptionError, bytes, flag, time, word};

use crate::Limits;

/// The way in which the peer gets credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditPolicy {
    /// Nobody but [`Connection::grant_credit`](crate::Connection::grant_credit).
    Manual,
    /// The connection itself, as [`Connection::consumed`](crate::Connection::consumed) says that bytes were
    /// taken. Each half's window doubles while its reader waits for its peer, above 512 KiB only while that
    /// brings more bytes in the same time, up to `ceiling` and as long as all windows and payloads in parts
    /// together stay within `budget`; it halves while the reader is behind, down to `floor`, which
    /// every half has beside the budget.
    Automatic {
        /// Bytes of credit that every half has, at least 1 (`--credit-floor`).
        floor: u64,
        /// Bytes of credit for one half at the most (`--credit-ceiling`).
        ceiling: u64,
        /// Bytes for the windows of all halves above their floors (`--credit-budget`).
        budget: u64,
    },
}

impl CreditPolicy {
    /// Automatic, with a floor of 4 KiB, a ceiling of 4 MiB and a budget of 32 MiB.
    pub const AUTOMATIC: Self = Self::Automatic {
        floor: 4 << 10,
        ceiling: 4 << 20,
        budget: 32 << 20,
    };
}

ackline_core::options! {
    /// The settings of one end. Both ends are equal: there is no client and no server. Credit is manual and no timer
    /// is on unless told.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Config {
        options {
            /// Payload bytes of a chunk that is sent: longer payloads go in several, between which others have their turn.
            chunk_size: u32 = 16_384, bytes(1..=0xffff_ffff), CONNECT | LISTEN | MACHINE;
            /// Whether a message of a sink, stream or duplex that comes in several chunks is handed
            /// out part by part, at any length (R-BPM-31). If not, it is handed out whole, and one
            /// longer than max_payload_bytes ends the connection.
            parts: bool = false, flag(), CONNECT | LISTEN;
            /// Silence after which a ping goes out.
            ping_after: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// How long a ping waits for its pong before the connection ends.
            pong_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Silence inside a chunk after which the connection ends.
            chunk_receive_timeout: Option<Duration> = None, time(), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
        }
        groups {
            /// Limits on the peer's chunks.
            limits: Limits = Limits::default();
        }
        fields {
            /// The policy by which the peer gets credit.
            credit: CreditPolicy = CreditPolicy::Manual;
            /// Whether the acknowledgement of a close of the peer's waits for
            /// [`Connection::acknowledge_close`](crate::Connection::acknowledge_close); until then its half is not
            /// over, and can be cancelled. [`Connection::release_close`](crate::Connection::release_close) ends this for one
            /// half. No: it goes at once. When to acknowledge is left open (R-BPM-14), and the peer sees no other
            /// difference.
            holds_close_acks: bool = false;
            /// Closes that may wait so before nothing more is received.
            most_held_closes: u32 = u32::MAX;
            /// Bytes of memory of all connections (`--memory`), if the driver has a budget: a
            /// payload of more than an eighth of them is refused, even below its own limit.
            memory: Option<u64> = None;
        }
    }
}

/// Whether a connection gives its peer credit by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crediting {
    /// By itself, as received bytes are taken.
    Automatic,
    /// Only as the application says.
    Manual,
}

option_words!(Crediting { Automatic = "automatic", Manual = "manual" });

ackline_core::options! {
    /// Credit for the peer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Credit {
        options {
            /// Credit for the peer: automatic as received bytes are taken, or manual by the application.
            credit: Crediting = Crediting::Automatic, word::<Crediting>(), CONNECT | LISTEN;
            /// Credit that each sink has at least.
            credit_floor: u64 = 4 << 10, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL;
            /// Credit for one sink at the most.
            credit_ceiling: u64 = 4 << 20, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL;
            /// Credit of a connection above the floors.
            credit_budget: u64 = 32 << 20, bytes(0..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL;
        }
    }
}

impl From<CreditPolicy> for Credit {
    fn from(policy: CreditPolicy) -> Self {
        match policy {
            CreditPolicy::Manual => Self {
                credit: Crediting::Manual,
                ..Self::default()
            },
            CreditPolicy::Automatic {
                floor,
                ceiling,
                budget,
            } => Self {
                credit: Crediting::Automatic,
                credit_floor: floor,
                credit_ceiling: ceiling,
                credit_budget: budget,
            },
        }
    }
}

impl Credit {
    /// The policy, where none of its numbers is above `most`.
    fn policy(&self, most: u64) -> CreditPolicy {
        match self.credit {
            Crediting::Manual => CreditPolicy::Manual,
            Crediting::Automatic => CreditPolicy::Automatic {
                floor: self.credit_floor.min(most),
                ceiling: self.credit_ceiling.min(most),
                budget: self.credit_budget.min(most),
            },
        }
    }
}

ackline_core::options! {
    /// Credit, limits and timers of each connection.
    #[derive(Debug, Clone)]
    pub struct LinkOptions {
        options {
            /// Bytes that wait on one sink before `send` waits; a single larger message is taken when nothing else
            /// waits. One message for each 64 of these bytes may wait, at least 1,024. Requests and openings together
            /// have the same limits.
            send_bytes: usize = 256 << 10, bytes(1..=u64::MAX), CONNECT | LISTEN;
        }
        groups {
            /// The options of the protocol's machine. The connection itself sets its credit, its memory and how closes
            /// are held.
            machine: Config = Config {
                ping_after: Some(Duration::from_secs(11)),
                pong_timeout: Some(Duration::from_secs(7)),
                chunk_receive_timeout: Some(Duration::from_secs(30)),
                ..Config::default()
            };
            /// Credit for the peer.
            credit: Credit = Credit::default();
        }
    }
}

impl LinkOptions {
    /// Refuses options that do not go together.
    ///
    /// # Errors
    /// `credit_ceiling` is below `credit_floor`.
    pub fn check(&self) -> Result<(), OptionError> {
        let Credit {
            credit,
            credit_floor,
            credit_ceiling,
            ..
        } = self.credit;
        if credit == Crediting::Automatic && credit_ceiling < credit_floor {
            let text = format!("is {credit_ceiling}; it is at least {credit_floor}, the value of");
            return Err(OptionError::new("credit_ceiling", text).than("credit_floor"));
        }
        Ok(())
    }

    /// The configuration of a machine with so many bytes of memory: everything that its peer has
    /// begun can always come to its end, no matter what the memory holds beside it.
    pub fn machine(&self, memory: u64) -> Config {
        Config {
            credit: self.credit.policy(memory / CREDIT_PART),
            // A receiver acknowledges closes of kept messages, an application closes that it has
            // accepted or handled.
            holds_close_acks: true,
            most_held_closes: (self.machine.limits.max_entities / 2).clamp(1, MOST_HELD_CLOSES),
            memory: Some(memory),
            ..self.machine
        }
    }
}

/// None of the numbers of automatic credit is above one of so many parts of the memory.
const CREDIT_PART: u64 = 16;
/// Sinks that the peer has closed and that wait for their handlers, before nothing more is read.
const MOST_HELD_CLOSES: u32 = 8_192;

ackline_core::options! {
    /// bpmux in a receiver. Credit for kept messages comes back once they are durable, in the way
    /// of automatic credit; there is no other credit here.
    #[derive(Debug, Clone)]
    pub struct ReceiveOptions {
        options {
            /// Bytes that a sink or duplex may be opened with: its rows have a copy.
            max_opening_bytes: usize = 1_024, bytes(1..=65_536), RECEIVE | URL;
            /// Where we connect: time for one attempt, with its handshake of TLS.
            connect_timeout: Duration = Duration::from_secs(10), time(), RECEIVE | URL;
            /// Where we connect: the longest wait between two attempts. The first is made at once; then the waits are
            /// random, below a ceiling that doubles from 100 ms.
            reconnect_max: Duration = Duration::from_secs(60), time(), RECEIVE | URL;
        }
        groups {
            /// Credit, limits and timers of each connection.
            link: LinkOptions = LinkOptions::default();
        }
    }
}

impl Config {
    /// Bytes of a payload of the peer's: its limit, or its share of the memory.
    pub(crate) fn most_payload(&self) -> u64 {
        let share = self.memory.map(|memory| memory / PAYLOAD_PART);
        let limit = self.limits.max_payload_bytes;
        share.map_or(limit, |share| share.min(limit))
    }
}

/// A payload is held whole: it may take one of so many parts of the memory.
const PAYLOAD_PART: u64 = 8;
