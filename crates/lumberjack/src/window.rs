//! A complete window as it is handed on: its bytes as received, and its counts.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::record::{Expander, Record};
use crate::{Kind, Version};

/// A window whose events have all arrived, to be acknowledged once by its `id`.
#[derive(Debug, Clone)]
pub struct Window {
    /// The window's number on this connection, from 1.
    pub id: u64,
    /// The version byte of its frames and of its acknowledgement.
    pub version: Version,
    /// The announced number of events; for a part of a v1 window, the number it holds.
    pub window_size: u32,
    /// Events in it, at least 1.
    pub records: u32,
    /// Sequence number of its first event.
    pub first_sequence: u32,
    /// Sequence number of its last event, which is acknowledged.
    pub last_sequence: u32,
    /// Its bytes, in order.
    pub pieces: Vec<Piece>,
}

/// A window whose one envelope cannot be read, to be stored unread and acknowledged by its `id`, or
/// refused.
#[derive(Debug, Clone)]
pub struct Invalid {
    /// The window's number on this connection, counted with the sound ones.
    pub id: u64,
    /// The version byte of its frames and of its acknowledgement.
    pub version: Version,
    /// The announced number of events, which is acknowledged.
    pub window_size: u32,
    /// The whole compressed frame with its 6-byte header.
    pub bytes: Bytes,
    /// Its fault.
    pub kind: Kind,
    /// Bytes received on this connection before it.
    pub offset: u64,
}

/// Whole wire frames as received. Window frames are left out.
#[derive(Debug, Clone)]
pub enum Piece {
    /// JSON and data frames, one directly after the other.
    Frames {
        /// The frames with their headers.
        bytes: Bytes,
        /// The number of frames.
        records: u32,
    },
    /// A compressed frame, all of whose events belong to this window.
    Envelope {
        /// The whole frame with its 6-byte header.
        bytes: Bytes,
        /// Events in it.
        records: u32,
        /// Inflated bytes of its events, with their headers.
        inflated_bytes: u64,
    },
}

impl Piece {
    /// The frames' bytes on the wire.
    pub const fn bytes(&self) -> &Bytes {
        match self {
            Self::Frames { bytes, .. } | Self::Envelope { bytes, .. } => bytes,
        }
    }
}

impl Window {
    /// Bytes of all pieces: as received, except that frames of a shared envelope are inflated.
    pub fn wire_bytes(&self) -> usize {
        self.pieces
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.bytes().len()))
    }

    /// Bytes of this window's events with their headers, inflated.
    pub fn inflated_bytes(&self) -> u64 {
        self.pieces.iter().fold(0, |sum: u64, piece| {
            sum.saturating_add(match piece {
                Piece::Frames { bytes, .. } => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                Piece::Envelope { inflated_bytes, .. } => *inflated_bytes,
            })
        })
    }

    /// Calls `f` for each event of this window, in order.
    ///
    /// # Errors
    /// The bytes are not the sound frames that the reader handed on.
    pub fn for_each_record(
        &self,
        scratch: &mut Expander,
        mut f: impl FnMut(Record<'_>),
    ) -> Result<(), Kind> {
        for piece in &self.pieces {
            scratch.expand(piece.bytes(), &mut |record| {
                f(record);
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}
