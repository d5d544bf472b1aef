//! An event to be sent, and its check.

use ackline_core::UsageError;
use bytes::Bytes;

use crate::Limits;

/// One event to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutRecord {
    /// JSON text, sent as it is in a `J` frame.
    Json(Bytes),
    /// Keys and values, sent in a `D` frame.
    Data(Vec<(Bytes, Bytes)>),
}

impl OutRecord {
    /// Bytes of its frame with the header, not compressed.
    pub fn wire_len(&self) -> usize {
        match self {
            Self::Json(payload) => Self::json_wire_len(payload.len()),
            Self::Data(pairs) => pairs.iter().fold(FRAME, |sum, (key, value)| {
                sum.saturating_add(8)
                    .saturating_add(key.len())
                    .saturating_add(value.len())
            }),
        }
    }

    /// The same of a JSON event of `len` bytes.
    pub const fn json_wire_len(len: usize) -> usize {
        len.saturating_add(FRAME)
    }

    /// Checks that receivers with these limits accept it.
    ///
    /// # Errors
    /// `empty_json`, `frame_too_large`.
    pub fn check(&self, limits: &Limits) -> Result<(), UsageError> {
        let fits = match self {
            Self::Json(payload) if payload.is_empty() => {
                return Err(UsageError::new("empty_json", "a JSON payload is not empty"));
            }
            Self::Json(payload) => payload.len() <= limits.max_json_bytes,
            Self::Data(pairs) => {
                let most = usize::try_from(limits.max_pairs).unwrap_or(usize::MAX);
                let fits = |(key, value): &(Bytes, Bytes)| {
                    key.len() <= limits.max_field_bytes && value.len() <= limits.max_field_bytes
                };
                pairs.len() <= most
                    && self.wire_len() <= limits.max_data_bytes
                    && pairs.iter().all(fits)
            }
        };
        let too_large =
            UsageError::new("frame_too_large", "an event is larger than a frame may be");
        fits.then_some(()).ok_or(too_large)
    }
}

/// Version, type, sequence number and length, or number of pairs.
const FRAME: usize = 10;
