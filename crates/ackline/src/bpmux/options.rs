//! What can be set on a connection, on who connects and on a listener.

use std::time::Duration;

use ackline_bpmux::{Config, CreditPolicy, Limits};
use ackline_link::tls::TlsOptions;
use ackline_link::{AcceptorOptions, Budget};

use super::error::Error;
use crate::ReceiverOptions;

/// Sinks that the peer has closed and that wait for their handlers, before nothing more is read.
const MOST_HELD_CLOSES: u32 = 8_192;

/// Credit, limits and timers of each connection.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Payload bytes of a chunk that is sent, 16,384: what is longer goes in several, between which others
    /// have their turn.
    pub chunk_size: u32,
    /// Who gives the peer credit: [`CreditPolicy::AUTOMATIC`].
    pub credit: CreditPolicy,
    /// Bytes that may wait on one sink before `send` waits, 256 KiB. A single larger message is taken when
    /// nothing else waits. Of messages as many as 64 go into it, at least 1,024. As much of requests and
    /// openings may wait on the top-level.
    pub send_bytes: usize,
    /// Silence after which the top-level is pinged, 11 s; `None` is never.
    pub ping_after: Option<Duration>,
    /// How long that ping waits for its pong, 7 s; then the connection is given up.
    pub pong_timeout: Option<Duration>,
    /// How long the rest of a chunk may stay away, 30 s.
    pub chunk_receive_timeout: Option<Duration>,
    /// Whether messages of sinks, streams and duplexes may come in parts, of any length: off. Each part is handed
    /// out as it comes ([`Stream::receive_part`](super::Stream::receive_part)), and the peer gets its credit back
    /// when it is taken; [`receive`](super::Stream::receive) puts together what `limits.payload` allows. Otherwise
    /// a longer message ends the connection.
    pub parts: bool,
    /// What the peer may send.
    pub limits: Limits,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            chunk_size: Config::default().chunk_size,
            credit: CreditPolicy::AUTOMATIC,
            send_bytes: 256 << 10,
            ping_after: Some(Duration::from_secs(11)),
            pong_timeout: Some(Duration::from_secs(7)),
            chunk_receive_timeout: Some(Duration::from_secs(30)),
            parts: false,
            limits: Limits::default(),
        }
    }
}

impl LinkOptions {
    /// Refuses what nothing could be sent or received with.
    pub(super) fn check(&self) -> Result<(), Error> {
        let floor = match self.credit {
            CreditPolicy::Automatic { floor, .. } => floor,
            CreditPolicy::Manual => 1,
        };
        let least = [
            ("chunk_size", u64::from(self.chunk_size)),
            ("credit_floor", floor),
            (
                "send_bytes",
                u64::try_from(self.send_bytes).unwrap_or(u64::MAX),
            ),
            ("max_payload_bytes", self.limits.payload),
            ("max_entities", self.limits.entities.into()),
            ("max_requests", self.limits.requests.into()),
        ];
        if let Some((name, _)) = least.iter().find(|(_, value)| *value == 0) {
            return Err(Error::url(format!("{name} must be at least 1")));
        }
        if let CreditPolicy::Automatic { floor, ceiling, .. } = self.credit
            && ceiling < floor
        {
            return Err(Error::url(format!(
                "credit_ceiling is {ceiling}; it is at least credit_floor, which is {floor}"
            )));
        }
        let times = [
            ("ping_after", self.ping_after),
            ("pong_timeout", self.pong_timeout),
            ("chunk_receive_timeout", self.chunk_receive_timeout),
        ];
        match times.iter().find(|(_, time)| *time == Some(Duration::ZERO)) {
            Some((name, _)) => Err(Error::url(format!("{name} must be longer than 0"))),
            None => Ok(()),
        }
    }

    /// What a connection with this memory is told: what its peer may have begun and not ended can always come to
    /// its end, whatever else the memory holds.
    pub(super) fn machine(&self, budget: &Budget) -> Config {
        let most = budget.limit() / CREDIT_PART;
        let credit = match self.credit {
            CreditPolicy::Manual => CreditPolicy::Manual,
            CreditPolicy::Automatic {
                floor,
                ceiling,
                budget,
            } => CreditPolicy::Automatic {
                floor: floor.min(most),
                ceiling: ceiling.min(most),
                budget: budget.min(most),
            },
        };
        Config {
            chunk_size: self.chunk_size,
            credit,
            // A receiver acknowledges what is kept, an application what it has accepted or handled.
            holds_close_acks: true,
            most_held_closes: (self.limits.entities / 2).clamp(1, MOST_HELD_CLOSES),
            parts: self.parts,
            limits: self.limits,
            memory: Some(budget.limit()),
            ping_after: self.ping_after,
            pong_timeout: self.pong_timeout,
            chunk_receive_timeout: self.chunk_receive_timeout,
        }
    }
}

/// Bytes of what has begun and is not whole that a connection with this memory may hold: seven eighths of what
/// one connection can always get.
pub(super) fn most_incomplete(budget: &Budget) -> usize {
    usize::try_from(budget.largest() / 8 * 7).unwrap_or(usize::MAX)
}

/// None of the numbers of automatic credit is above one of so many parts of the memory.
const CREDIT_PART: u64 = 16;

/// How a connection is made.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Credit, limits and timers.
    pub link: LinkOptions,
    /// Time to connect, with the handshake of TLS: 10 s.
    pub connect_timeout: Duration,
    /// Bytes of received payload that may be held in memory, 256 MiB; above it nothing more is read until
    /// some is taken. What the peer has open may take half of a quarter beside it.
    pub memory: u64,
    /// TLS of a `+tls` URL, where it leaves it open.
    pub tls: TlsOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            connect_timeout: Duration::from_secs(10),
            memory: MEMORY,
            tls: TlsOptions::default(),
        }
    }
}

/// How a listener makes connections.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Credit, limits and timers of each connection.
    pub link: LinkOptions,
    /// Who may connect, how many and how fast.
    pub acceptor: AcceptorOptions,
    /// Bytes of received payload of all connections that may be held in memory, 256 MiB. What peers have open may
    /// take a quarter beside it, and one of them half of what the others leave.
    pub memory: u64,
    /// TLS of a `+tls` URL, where it leaves it open.
    pub tls: TlsOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            acceptor: AcceptorOptions::default(),
            memory: MEMORY,
            tls: TlsOptions::default(),
        }
    }
}

impl ConnectOptions {
    /// Refuses what nothing could be connected, sent or received with.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.connect_timeout.is_zero() {
            return Err(Error::url("connect_timeout must be longer than 0"));
        }
        check_memory(self.memory)?;
        self.link.check()
    }
}

/// Refuses a memory that hardly a payload could come into.
pub(super) fn check_memory(memory: u64) -> Result<(), Error> {
    let least = ReceiverOptions::LEAST_MEMORY;
    if memory < least {
        return Err(Error::url(format!(
            "memory is {memory}; it is at least {least} bytes (64KiB)"
        )));
    }
    Ok(())
}

const MEMORY: u64 = 256 << 20;
