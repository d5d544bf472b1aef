//! The four blocks of the handshake, in their order: version, version, endpoint, ident (REQ-RELINK-5).

use ackline_core::options::{Options as _, count, flag};
use std::fmt;

use ackline_core::UsageError;

use super::{ALIGNMENT, Out, Role};
use crate::Kind;

/// Handshake flags (REQ-RELINK-9); the other bits are ignored (R-REL-32), so that one of them can ask for hints.
const CONNECTOR_TRANSACTIONS: u8 = 0x01;
const LISTENER_TRANSACTIONS: u8 = 0x02;
const REQUIRE_OLD_LINK_ID: u8 = 0x04;
const WANTS_HINTS: u8 = 0x08;
/// Bytes of the endpoint block besides its name and padding: name length, both sizes, flags.
const ENDPOINT_FIXED: usize = 4;
/// Bytes of the epoch and the link id.
const NUMBERS: usize = 16;

/// The version block of either side (REQ-RELINK-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u8);

impl Version {
    /// The only version there is.
    pub const CURRENT: Self = Self(0);
    /// Bytes of the block.
    pub const LEN: usize = ALIGNMENT;

    /// Returns the block at the front of `input`, or `None` where bytes are missing. It does not check whether the
    /// version is supported.
    pub fn decode(input: &[u8]) -> Option<Self> {
        let block = input.first_chunk::<{ Self::LEN }>()?;
        let [version, ..] = *block;
        Some(Self(version))
    }

    /// Appends the block.
    pub fn encode(self, out: &mut impl Out) {
        out.put_slice(&[self.0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

/// An endpoint's name: up to 255 bytes of UTF-8 (REQ-RELINK-15).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EndpointName(Box<str>);

impl EndpointName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for EndpointName {
    type Error = UsageError;

    fn try_from(name: &str) -> Result<Self, UsageError> {
        if u8::try_from(name.len()).is_err() {
            return Err(UsageError::new(
                "invalid_endpoint_name",
                "an endpoint name has at most 255 bytes",
            ));
        }
        Ok(Self(name.into()))
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

ackline_core::options! {
    /// The parameters that both sides must agree on (REQ-RELINK-14).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Parameters {
        options {
            /// Bytes of an id of the connector's channels.
            connector_channel_id_size: u8 = 0, count(0..=255), CONNECT | LISTEN | URL | MACHINE;
            /// Bytes of an id of the listener's channels.
            listener_channel_id_size: u8 = 0, count(0..=255), CONNECT | LISTEN | URL | MACHINE;
            /// Whether the connector's messages are committed or rolled back.
            connector_transactions: bool = false, flag(), CONNECT | LISTEN | URL | MACHINE;
            /// Whether the listener's messages are committed or rolled back.
            listener_transactions: bool = false, flag(), CONNECT | LISTEN | URL | MACHINE;
        }
    }
}

impl Parameters {
    /// Each with its name, as options and errors write them.
    pub fn named(&self) -> Vec<(&'static str, String)> {
        let rows = self.rows().into_iter();
        rows.map(|row| (row.spec.name, row.value)).collect()
    }

    /// Bytes of an id of the channels that `side` sends on.
    pub const fn channel_id_size(self, side: Role) -> u8 {
        match side {
            Role::Connector => self.connector_channel_id_size,
            Role::Listener => self.listener_channel_id_size,
        }
    }

    /// Whether the messages that `side` sends are committed or rolled back.
    pub const fn transactions(self, side: Role) -> bool {
        match side {
            Role::Connector => self.connector_transactions,
            Role::Listener => self.listener_transactions,
        }
    }
}

/// The connector's request (REQ-RELINK-7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointBlock {
    /// The name of the listener's endpoint.
    pub endpoint_name: EndpointName,
    /// The parameters that the connector expects of the endpoint.
    pub parameters: Parameters,
    /// Whether the connector refuses a new link in place of the old one.
    pub require_old_link_id: bool,
    /// Whether the connector wants [hints](super::Hint), which are an extension of the specification.
    pub wants_hints: bool,
    /// The epoch of the link to go on with, or 0.
    pub old_epoch: u64,
    /// The link to go on with, or 0.
    pub old_link_id: u64,
}

impl EndpointBlock {
    /// The length of the block at the front of `input`, as far as it is known.
    pub fn needed(input: &[u8]) -> usize {
        let name = input.first().map_or(0, |len| usize::from(*len));
        Self::numbers_at(name).saturating_add(NUMBERS)
    }

    /// The offset of the epoch: the next multiple of 8 (REQ-RELINK-17, R-REL-3).
    const fn numbers_at(name: usize) -> usize {
        ENDPOINT_FIXED
            .saturating_add(name)
            .next_multiple_of(ALIGNMENT)
    }

    /// Returns the block at the front of `input`, which is [`needed`](Self::needed) bytes long, or `None` where bytes
    /// are missing.
    ///
    /// # Errors
    /// [`Kind::InvalidUtf8`], as soon as the name is there.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, Kind> {
        let Some((len, rest)) = input.split_first() else {
            return Ok(None);
        };
        let Some((name, rest)) = rest.split_at_checked(usize::from(*len)) else {
            return Ok(None);
        };
        let name = str::from_utf8(name).map_err(|_| Kind::InvalidUtf8)?;
        let numbers = input.get(Self::numbers_at(name.len())..);
        let (Some([connector, listener, flags]), Some(numbers)) = (rest.first_chunk(), numbers)
        else {
            return Ok(None);
        };
        let Some([old_epoch, old_link_id]) = two_numbers(numbers) else {
            return Ok(None);
        };
        Ok(Some(Self {
            endpoint_name: EndpointName(name.into()),
            parameters: Parameters {
                connector_channel_id_size: *connector,
                listener_channel_id_size: *listener,
                connector_transactions: flags & CONNECTOR_TRANSACTIONS != 0,
                listener_transactions: flags & LISTENER_TRANSACTIONS != 0,
            },
            require_old_link_id: flags & REQUIRE_OLD_LINK_ID != 0,
            wants_hints: flags & WANTS_HINTS != 0,
            old_epoch,
            old_link_id,
        }))
    }

    /// Appends the block.
    pub fn encode(&self, out: &mut impl Out) {
        let name = self.endpoint_name.0.as_bytes();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(
            self.parameters.connector_transactions,
            CONNECTOR_TRANSACTIONS,
        ) | flag(self.parameters.listener_transactions, LISTENER_TRANSACTIONS)
            | flag(self.require_old_link_id, REQUIRE_OLD_LINK_ID)
            | flag(self.wants_hints, WANTS_HINTS);
        // An EndpointName is never longer.
        out.put_slice(&[u8::try_from(name.len()).unwrap_or(u8::MAX)]);
        out.put_slice(name);
        out.put_slice(&[
            self.parameters.connector_channel_id_size,
            self.parameters.listener_channel_id_size,
            flags,
        ]);
        let written = ENDPOINT_FIXED.saturating_add(name.len());
        out.put_padding(written, ALIGNMENT);
        out.put_slice(&self.old_epoch.to_le_bytes());
        out.put_slice(&self.old_link_id.to_le_bytes());
    }
}

/// The listener's answer (REQ-RELINK-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ident {
    /// The start of the listener, in microseconds since 1970.
    pub epoch: u64,
    /// The old or a new link; 0 if the required old one is not known.
    pub link_id: u64,
}

impl Ident {
    /// Bytes of the block.
    pub const LEN: usize = NUMBERS;

    /// Returns the block at the front of `input`, or `None` where bytes are missing. It does not check the numbers.
    pub fn decode(input: &[u8]) -> Option<Self> {
        let [epoch, link_id] = two_numbers(input)?;
        Some(Self { epoch, link_id })
    }

    /// Appends the block.
    pub fn encode(&self, out: &mut impl Out) {
        out.put_slice(&self.epoch.to_le_bytes());
        out.put_slice(&self.link_id.to_le_bytes());
    }
}

fn two_numbers(input: &[u8]) -> Option<[u64; 2]> {
    let (first, rest) = input.split_first_chunk()?;
    let second = rest.first_chunk()?;
    Some([u64::from_le_bytes(*first), u64::from_le_bytes(*second)])
}
