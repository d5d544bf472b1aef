//! What one end of a connection is told before it begins.

use std::time::Duration;

use crate::Limits;

/// Who gives the peer credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditPolicy {
    /// Nobody but [`Connection::grant_credit`](crate::Connection::grant_credit).
    Manual,
    /// The connection itself, as [`Connection::consumed`](crate::Connection::consumed) says that bytes were
    /// taken. Each half's window doubles while its reader waits for its peer, above 512 KiB only while that
    /// brings more bytes in the same time, up to `ceiling` and as long as all windows and payloads in parts
    /// together stay within `budget`; it halves while the reader is behind, down to `floor`, which every
    /// half has whatever the budget.
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

/// The settings of one end. Both ends are equal: there is no client and no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Payload bytes of a chunk that is sent, 1 at least; longer payloads go in partial mode
    /// (`--chunk-size`), 16,384.
    pub chunk_size: u32,
    /// Who gives credit; manual unless told otherwise.
    pub credit: CreditPolicy,
    /// Whether the acknowledgement of a close of the peer's waits for
    /// [`Connection::acknowledge_close`](crate::Connection::acknowledge_close); until then its half is not
    /// over, and can be cancelled. [`Connection::release_close`](crate::Connection::release_close) ends this for one
    /// half. No: it goes at once. When to acknowledge is left open (R-BPM-14), and the peer sees no other
    /// difference.
    pub holds_close_acks: bool,
    /// Closes that may wait so before nothing more is received, 4,294,967,295.
    pub most_held_closes: u32,
    /// Whether a message of a sink, stream or duplex that comes in several chunks is told chunk by chunk
    /// ([`Event::Part`](crate::Event::Part)), whatever its length (R-BPM-31). No: it is told whole, and has at most
    /// `limits.payload` bytes, as everything else has.
    pub parts: bool,
    /// What the peer may send.
    pub limits: Limits,
    /// Bytes of memory of all connections (`--memory`), if what drives this has a budget: a payload of more than
    /// an eighth of them is refused, whatever its limit is.
    pub memory: Option<u64>,
    /// After this much silence of the peer's the top-level is pinged (`--ping-after`); off unless told.
    pub ping_after: Option<Duration>,
    /// How long the peer may be silent after that ping (`--pong-timeout`); off unless told.
    pub pong_timeout: Option<Duration>,
    /// How long the peer may be silent inside a chunk (`--chunk-receive-timeout`); off unless told.
    pub chunk_receive_timeout: Option<Duration>,
}

impl Config {
    /// Bytes of a payload of the peer's: its limit, or its share of the memory.
    pub(crate) fn most_payload(&self) -> u64 {
        let share = self.memory.map(|memory| memory / PAYLOAD_PART);
        let limit = self.limits.payload;
        share.map_or(limit, |share| share.min(limit))
    }
}

/// A payload is held whole: it may take one of so many parts of the memory.
const PAYLOAD_PART: u64 = 8;

impl Default for Config {
    fn default() -> Self {
        Self {
            chunk_size: 16_384,
            credit: CreditPolicy::Manual,
            holds_close_acks: false,
            most_held_closes: u32::MAX,
            parts: false,
            limits: Limits::default(),
            memory: None,
            ping_after: None,
            pong_timeout: None,
            chunk_receive_timeout: None,
        }
    }
}
