//! The window that is being filled.

use bytes::{Bytes, BytesMut};

use crate::envelope::{Envelope, Summary, is_gap};
use crate::window::Piece;

/// Events of a window that is not complete yet, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    pub(crate) records: u32,
    pub(crate) first_sequence: u32,
    pub(crate) last_sequence: u32,
    pub(crate) gaps: u64,
    /// Bytes of the events, inflated.
    pub(crate) inflated: usize,
    /// Whether any event came in an envelope.
    pub(crate) enveloped: bool,
    /// Bytes that this window holds.
    pub(crate) charge: usize,
    pieces: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    /// Frames still in the buffer they were read into.
    Run { bytes: BytesMut, records: u32 },
    /// Short runs copied together, so that they do not pin a read buffer each.
    Copied { bytes: BytesMut, records: u32 },
    /// An envelope.
    Whole(Piece),
}

impl Partial {
    /// Counts one event of `len` bytes.
    pub(crate) fn count(&mut self, sequence: u32, len: usize) {
        if self.records == 0 {
            self.first_sequence = sequence;
        } else if is_gap(self.last_sequence, sequence) {
            self.gaps = self.gaps.saturating_add(1);
        }
        self.last_sequence = sequence;
        self.records = self.records.saturating_add(1);
        self.inflated = self.inflated.saturating_add(len);
    }

    /// Counts all events of an envelope at once.
    pub(crate) fn count_all(&mut self, summary: &Summary) {
        if self.records == 0 {
            self.first_sequence = summary.first_sequence;
        } else if is_gap(self.last_sequence, summary.first_sequence) {
            self.gaps = self.gaps.saturating_add(1);
        }
        self.gaps = self.gaps.saturating_add(summary.gaps);
        self.last_sequence = summary.last_sequence;
        self.records = self.records.saturating_add(summary.records);
        self.inflated = self.inflated.saturating_add(summary.inflated);
    }

    /// Takes the bytes of counted frames that directly follow each other.
    pub(crate) fn add_run(&mut self, run: BytesMut, more: u32) {
        self.charge = self.charge.saturating_add(run.len());
        if let Some(Part::Run { bytes, records }) = self.pieces.last_mut()
            && bytes.as_ptr().wrapping_add(bytes.len()) == run.as_ptr()
        {
            bytes.unsplit(run);
            *records = records.saturating_add(more);
            return;
        }
        self.settle();
        self.pieces.push(Part::Run {
            bytes: run,
            records: more,
        });
    }

    /// Takes an envelope whose events were counted last.
    pub(crate) fn add_envelope(&mut self, envelope: &Envelope) {
        self.enveloped = true;
        self.charge = self.charge.saturating_add(envelope.bytes.len());
        self.settle();
        self.pieces.push(Part::Whole(Piece::Envelope {
            bytes: envelope.bytes.clone(),
            records: envelope.summary.records,
            inflated_bytes: crate::walker::wide(envelope.summary.inflated),
        }));
    }

    /// Copies the last run if it is short: bytes that stay for long must not pin a buffer of many
    /// times their size.
    pub(crate) fn settle(&mut self) {
        match self.pieces.last() {
            Some(Part::Run { bytes, .. }) if bytes.len() < KEEP_ABOVE => {}
            _ => return,
        }
        let Some(Part::Run {
            bytes: short,
            records: more,
        }) = self.pieces.pop()
        else {
            return;
        };
        if let Some(Part::Copied { bytes, records }) = self.pieces.last_mut() {
            bytes.extend_from_slice(&short);
            *records = records.saturating_add(more);
            return;
        }
        self.pieces.push(Part::Copied {
            bytes: BytesMut::from(short.as_ref()),
            records: more,
        });
    }

    /// The pieces of the complete window; small windows get allocations of exactly their size.
    pub(crate) fn into_pieces(self) -> Vec<Piece> {
        let small = self.charge < KEEP_ABOVE;
        let piece = |part| match part {
            Part::Whole(piece) => piece,
            Part::Run { bytes, records } | Part::Copied { bytes, records } => Piece::Frames {
                bytes: if small {
                    Bytes::copy_from_slice(&bytes)
                } else {
                    bytes.freeze()
                },
                records,
            },
        };
        self.pieces.into_iter().map(piece).collect()
    }
}

/// The size from which on a run or an envelope stays in the buffer it was read into: below, a copy
/// is cheaper than the pinned memory.
pub(crate) const KEEP_ABOVE: usize = 16 * 1024;
