//! The handshake of one transport, either side.
//!
//! ```text
//! connector                              listener
//!   version        ------------------->
//!                  <-------------------  version
//!   endpoint block ------------------->          Requested, accept or refuse
//!                  <-------------------  ident
//!   Established, packets               <->       packets
//! ```
//!
//! It decides on the order of the blocks, on the version, and on the values of an ident. It does not decide which
//! link a connector gets: [`Binder`](crate::Binder) does. The packets that follow stay in the input for the
//! [`Link`](crate::Link).
//!
//! Its rules: REQ-RELINK-5, REQ-RELINK-10, REQ-RELINK-11.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue, UsageError};
use bytes::{Buf, BytesMut};

use crate::binder::LINK_ID_END;
use crate::error::silent;
use crate::frame::{EndpointBlock, Ident, Version};
use crate::{ConnectorConfig, Kind, LinkKey, ListenerConfig};

/// An event that a [`Handshake`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandshakeEvent {
    /// A connector asks for an endpoint; answer with [`Handshake::accept`] or [`Handshake::refuse`].
    Requested(EndpointBlock),
    /// The handshake is done, and the transport belongs to this link.
    Established {
        /// The link.
        key: LinkKey,
        /// Whether it is the old link. If not, it is a new one, and the state of the old one is void.
        resumed: bool,
    },
    /// The listener does not know the link that is required (REQ-RELINK-21).
    LinkLost,
}

/// One side's handshake on one transport.
#[derive(Debug)]
pub struct Handshake {
    side: Side,
    state: State,
    due: Option<Instant>,
    /// The timeout from which `due` was computed.
    timeout: Option<Duration>,
    /// The instant at which the driver stopped reading.
    paused: Option<Instant>,
    offset: u64,
    out: Vec<u8>,
    events: VecDeque<HandshakeEvent>,
}

#[derive(Debug)]
enum Side {
    Connector {
        config: ConnectorConfig,
        old: Option<LinkKey>,
    },
    Listener,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Version,
    /// The connector waits for the ident, the listener for the endpoint block.
    Second,
    /// The listener's application decides.
    Deciding {
        asked: LinkKey,
    },
    Done,
    /// The listener has answered that there is no such link.
    Refused,
    Closed,
    Failed(ProtocolError<Kind>),
}

impl Handshake {
    /// The connector's handshake, with the link that it wants to resume.
    pub fn connector(now: Instant, config: ConnectorConfig, old: Option<LinkKey>) -> Self {
        let timeout = config.handshake_timeout;
        let mut handshake = Self::new(now, Side::Connector { config, old }, timeout);
        Version::CURRENT.encode(&mut handshake.out);
        handshake
    }

    /// The listener's handshake.
    pub fn listener(now: Instant, config: ListenerConfig) -> Self {
        Self::new(now, Side::Listener, config.handshake_timeout)
    }

    fn new(now: Instant, side: Side, timeout: Option<Duration>) -> Self {
        Self {
            side,
            state: State::Version,
            due: timeout.and_then(|timeout| now.checked_add(timeout)),
            timeout,
            paused: None,
            offset: 0,
            out: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Answers a [`HandshakeEvent::Requested`]. Link id 0 means that the required link is not known.
    ///
    /// # Errors
    /// `not_requested`: there is no request, or it was answered.
    pub fn accept(&mut self, _now: Instant, ident: Ident) -> Result<(), UsageError> {
        let State::Deciding { asked } = self.state else {
            return Err(NOT_REQUESTED);
        };
        ident.encode(&mut self.out);
        self.due = None;
        if ident.link_id == 0 {
            self.state = State::Refused;
            return Ok(());
        }
        let key = LinkKey {
            epoch: ident.epoch,
            link_id: ident.link_id,
        };
        self.establish(key, key == asked);
        Ok(())
    }

    /// Refuses a [`HandshakeEvent::Requested`] and ends the transport: the next call of `receive` returns this error.
    ///
    /// # Errors
    /// `not_requested`: there is no request, or it was answered.
    pub fn refuse(&mut self, _now: Instant, kind: Kind) -> Result<(), UsageError> {
        if !matches!(self.state, State::Deciding { .. }) {
            return Err(NOT_REQUESTED);
        }
        self.fail(kind);
        Ok(())
    }

    /// Bytes of the blocks that were taken. The bytes of the link begin after them.
    pub const fn taken(&self) -> u64 {
        self.offset
    }

    fn establish(&mut self, key: LinkKey, resumed: bool) {
        self.state = State::Done;
        self.due = None;
        self.events
            .push_back(HandshakeEvent::Established { key, resumed });
    }

    fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.offset,
        };
        self.due = None;
        self.state = State::Failed(error.clone());
        error
    }

    /// Takes one block. Returns `None` if it was whole, otherwise the number of bytes that it needs.
    fn step(&mut self, input: &mut BytesMut) -> Result<Option<usize>, Kind> {
        let (taken, needed) = match (&self.state, &self.side) {
            (State::Version, _) => (self.version(input)?, Version::LEN),
            (_, Side::Connector { .. }) => (self.ident(input)?, Ident::LEN),
            (_, Side::Listener) => (self.asked(input)?, EndpointBlock::needed(input)),
        };
        if !taken {
            return Ok(Some(needed));
        }
        input.advance(needed);
        self.offset = self
            .offset
            .saturating_add(u64::try_from(needed).unwrap_or(0));
        Ok(None)
    }

    fn version(&mut self, input: &[u8]) -> Result<bool, Kind> {
        let Some(version) = Version::decode(input) else {
            return Ok(false);
        };
        match &self.side {
            // The listener replies with its own version or a lower one (R-REL-28).
            Side::Listener => version.min(Version::CURRENT).encode(&mut self.out),
            Side::Connector { .. } if version > Version::CURRENT => {
                return Err(Kind::UnsupportedVersion { version: version.0 });
            }
            Side::Connector { config, old } => EndpointBlock {
                endpoint_name: config.endpoint_name.clone(),
                parameters: config.parameters,
                require_old_link_id: config.require_old_link_id && old.is_some(),
                wants_hints: config.wants_hints,
                old_epoch: old.map_or(0, |old| old.epoch),
                old_link_id: old.map_or(0, |old| old.link_id),
            }
            .encode(&mut self.out),
        }
        self.state = State::Second;
        Ok(true)
    }

    fn asked(&mut self, input: &[u8]) -> Result<bool, Kind> {
        let Some(block) = EndpointBlock::decode(input)? else {
            return Ok(false);
        };
        self.state = State::Deciding {
            asked: LinkKey {
                epoch: block.old_epoch,
                link_id: block.old_link_id,
            },
        };
        self.events.push_back(HandshakeEvent::Requested(block));
        Ok(true)
    }

    fn ident(&mut self, input: &[u8]) -> Result<bool, Kind> {
        let Some(Ident { epoch, link_id }) = Ident::decode(input) else {
            return Ok(false);
        };
        let Side::Connector { config, old } = &self.side else {
            return Ok(false);
        };
        if epoch == 0 || epoch >= EPOCH_END {
            return Err(Kind::InvalidEpoch { epoch });
        }
        let is_refusal = link_id == 0 && config.require_old_link_id && old.is_some();
        if is_refusal {
            self.state = State::Refused;
            self.due = None;
            self.events.push_back(HandshakeEvent::LinkLost);
            return Ok(true);
        }
        if link_id == 0 || link_id >= LINK_ID_END {
            return Err(Kind::InvalidLinkId { link_id });
        }
        let key = LinkKey { epoch, link_id };
        let resumed = *old == Some(key);
        self.establish(key, resumed);
        Ok(true)
    }
}

impl Connection for Handshake {
    type Event = HandshakeEvent;
    type Kind = Kind;

    fn receive(
        &mut self,
        _now: Instant,
        input: &mut BytesMut,
    ) -> Result<Need, ProtocolError<Kind>> {
        loop {
            match &self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Version | State::Second => {}
                State::Deciding { .. } => return Ok(Need::Room),
                // The bytes that follow belong to the link, or are dropped.
                State::Done | State::Refused | State::Closed => {
                    return Ok(Need::Input { at_least: 1 });
                }
            }
            match self.step(input) {
                Ok(None) => {}
                Ok(Some(at_least)) => return Ok(Need::Input { at_least }),
                Err(kind) => return Err(self.fail(kind)),
            }
        }
    }

    fn receive_eof(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        self.state = State::Closed;
        self.due = None;
        Ok(())
    }

    fn poll_event(&mut self) -> Option<HandshakeEvent> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut SendQueue) {
        out.put_slice(&std::mem::take(&mut self.out));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.filter(|_| self.paused.is_none())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        let due = self.poll_timeout();
        if let Some(late) = due.and_then(|due| now.checked_duration_since(due)) {
            let allowed = self.timeout;
            return Err(self.fail(silent("--handshake-timeout", allowed, late)));
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, on: bool) {
        if !on {
            self.paused.get_or_insert(now);
            return;
        }
        let Some(paused) = self.paused.take() else {
            return;
        };
        let pause = now.saturating_duration_since(paused);
        self.due = self.due.and_then(|due| due.checked_add(pause));
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.state {
            State::Version | State::Second | State::Deciding { .. } => Lifecycle::Open,
            State::Done => Lifecycle::Handover,
            State::Refused => Lifecycle::Draining,
            State::Closed | State::Failed(_) => Lifecycle::Closed,
        }
    }
}

/// Epochs are microseconds in 63 bits (R-REL-29).
const EPOCH_END: u64 = 1 << 63;

const NOT_REQUESTED: UsageError = UsageError::new(
    "not_requested",
    "no connector asks for an endpoint here, or it was answered",
);
