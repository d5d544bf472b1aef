//! Events that are handed to a sender together, checked once.

use std::sync::Arc;

use ackline_core::UsageError;
use bytes::Bytes;

use super::room::WindowRoom;
use crate::walker::wide;
use crate::{Limits, OutRecord};

/// Events to be sent, in order. Clones share them; handing one to a sender copies nothing.
#[derive(Debug, Clone)]
pub struct Batch {
    records: Arc<Vec<OutRecord>>,
    bytes: u64,
    largest: u64,
    is_window: bool,
}

impl Batch {
    /// A batch of these events.
    ///
    /// # Errors
    /// `empty_window` without any event, `empty_json`, `frame_too_large` above the limits that receivers
    /// have by default.
    pub fn new(records: Vec<OutRecord>) -> Result<Self, UsageError> {
        if records.is_empty() {
            return Err(UsageError::new(
                "empty_window",
                "a batch holds at least one event",
            ));
        }
        let limits = Limits::default();
        let (mut bytes, mut largest) = (0_u64, 0_u64);
        for record in &records {
            record.check(&limits)?;
            let len = wide(record.wire_len());
            bytes = bytes.saturating_add(len);
            largest = largest.max(len);
        }
        Ok(Self {
            records: Arc::new(records),
            bytes,
            largest,
            is_window: false,
        })
    }

    /// A batch of JSON texts, which may be slices of one buffer.
    ///
    /// # Errors
    /// As [`Batch::new`].
    pub fn json(payloads: Vec<Bytes>) -> Result<Self, UsageError> {
        Self::new(payloads.into_iter().map(OutRecord::Json).collect())
    }

    /// The same events, sent in windows of their own: neighbours are not put beside them.
    #[must_use]
    pub const fn as_window(mut self) -> Self {
        self.is_window = true;
        self
    }

    /// The events.
    pub fn records(&self) -> &[OutRecord] {
        &self.records
    }

    /// Events in it, at least 1.
    #[allow(clippy::len_without_is_empty)] // it is never empty
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes of its plain frames with their headers, as the buffer's limit counts them.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of its largest event as a plain frame.
    pub(super) const fn largest(&self) -> u64 {
        self.largest
    }
}

/// Events of one batch that lie behind each other.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    /// The batch's id.
    pub(super) batch: u64,
    /// The number of its first event, counted from 1 over all events of the sender.
    pub(super) first: u64,
    /// It may have arrived before.
    pub(super) repeats: bool,
    is_window: bool,
    records: Arc<Vec<OutRecord>>,
    from: usize,
    to: usize,
}

impl Chunk {
    pub(super) fn whole(batch: &Batch, id: u64, first: u64) -> Self {
        Self {
            batch: id,
            first,
            repeats: false,
            is_window: batch.is_window,
            records: Arc::clone(&batch.records),
            from: 0,
            to: batch.records.len(),
        }
    }

    pub(super) fn records(&self) -> &[OutRecord] {
        self.records.get(self.from..self.to).unwrap_or_default()
    }

    pub(super) fn len(&self) -> u64 {
        wide(self.to.saturating_sub(self.from))
    }

    /// The number of its last event.
    pub(super) fn last(&self) -> u64 {
        self.first.saturating_add(self.len()).saturating_sub(1)
    }

    /// Whether `next` may stand behind it in one window, whose events then follow each other.
    pub(super) fn joins(&self, next: &Self) -> bool {
        let is_loose = self.batch == next.batch || !(self.is_window || next.is_window);
        let follows = self.last().saturating_add(1) == next.first;
        is_loose && follows && self.repeats == next.repeats
    }

    /// Takes `count` events off its front.
    pub(super) fn split_front(&mut self, count: u64) -> Self {
        let count = count.min(self.len());
        let at = self
            .from
            .saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        let front = Self {
            to: at,
            ..self.clone()
        };
        self.from = at;
        self.first = self.first.saturating_add(count);
        front
    }

    /// How many of its first events fit: they take their room.
    pub(super) fn fitting(&self, room: &mut WindowRoom) -> u64 {
        let records = self.records().iter();
        let fitting = records.take_while(|record| room.takes(wide(record.wire_len())));
        wide(fitting.count())
    }
}
