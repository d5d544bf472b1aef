//! The limits on messages and on what a peer may have open.

use ackline_core::LimitHit;
use ackline_core::options::{bytes, count};

use crate::Kind;

ackline_core::options! {
    /// The limits of a connection, judged as soon as the number in question has arrived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        options {
            /// Bytes of an element, whole or put together from parts, and of all elements of a packed message.
            max_element_bytes: u64 = 16 << 20, bytes(0..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a text: the name of a publisher, an error or a reason.
            max_string_bytes: u64 = 64 << 10, bytes(0..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Extensions in a hello.
            max_extensions: u64 = 1_024, count(0..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Subscriptions of the peer at once.
            max_subscriptions: usize = 65_536, count(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Elements of a connection that have come in part.
            max_unfinished_elements: usize = 1_024, count(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Bytes of these elements, each part of 4 KiB or more counted with 32 bytes more; a single element may always have max_element_bytes.
            max_unfinished_bytes: u64 = 64 << 20, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
        }
    }
}

impl Limits {
    /// A length within a limit.
    pub(crate) fn length(value: u64, limit: u64, option: &'static str) -> Result<usize, Kind> {
        let hit = LimitHit {
            value,
            limit,
            option,
        };
        if value > limit {
            return Err(Kind::Limit(hit));
        }
        usize::try_from(value).map_err(|_| Kind::Limit(hit))
    }

    /// The length of a text.
    pub(crate) fn string(&self, length: u64) -> Result<usize, Kind> {
        Self::length(length, self.max_string_bytes, "--max-string-bytes")
    }

    /// Bytes of elements that have come in part.
    pub(crate) fn unfinished(&self, bytes: usize) -> Result<usize, Kind> {
        // Small parts cost more than their bytes.
        let single = self.max_element_bytes.saturating_mul(2);
        let most = self.max_unfinished_bytes.max(single);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Self::length(bytes, most, "--max-unfinished-bytes")
    }

    /// The length of an element, or of several.
    pub(crate) fn element(&self, length: u64) -> Result<usize, Kind> {
        Self::length(length, self.max_element_bytes, "--max-element-bytes")
    }
}
