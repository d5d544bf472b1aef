//! Applies sound envelopes: unchanged if one window takes all of it, else frame by frame, and each
//! window gets its own frames inflated. So an envelope is not inflated again for each of its
//! windows, and a window holds only its own frames.

use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};

use super::{Budget, Reader, Turn};
use crate::envelope::{Checked, Envelope};
use crate::partial::KEEP_ABOVE;
use crate::walker::{Head, wide};
use crate::{Kind, Version};

impl Reader {
    pub(super) fn begin_envelope(&mut self, version: Version, len: usize, input: &mut BytesMut) {
        let bytes = if len < KEEP_ABOVE {
            let copy = Bytes::copy_from_slice(input.get(..len).unwrap_or_default());
            input.advance(len);
            copy
        } else {
            input.split_to(len).freeze()
        };
        let inflate = self.envelopes.inflate.take().unwrap_or_default();
        self.suspect(version, &bytes);
        self.envelopes.current = Some(Box::new(Envelope::new(version, bytes, inflate)));
    }

    /// Does one step of work on an envelope; puts it back unless it is done.
    pub(super) fn work(
        &mut self,
        now: Instant,
        mut envelope: Box<Envelope>,
        budget: &mut Budget,
    ) -> Result<(), Kind> {
        if envelope.in_second_pass() {
            return self.apply_in_turns(now, envelope, budget);
        }
        let at_once = if envelope.is_fresh() {
            envelope.check_at_once(&mut self.envelopes.tries, &self.config.limits)
        } else {
            None
        };
        let checked = match at_once {
            Some(checked) => checked,
            None if envelope.asks_for_tools() => {
                self.put_back(envelope, budget);
                return Ok(());
            }
            None => envelope.check(&self.config.limits)?,
        };
        match checked {
            Checked::More(made) => {
                budget.spend(made);
                self.envelopes.current = Some(envelope);
            }
            Checked::Sound(made) => {
                budget.spend(made.max(ENVELOPE_COST));
                self.apply(now, envelope, budget)?;
            }
        }
        Ok(())
    }

    /// The next call continues with it, for which
    /// [`Connection::step_bytes`](ackline_core::Connection::step_bytes) is granted.
    fn put_back(&mut self, envelope: Box<Envelope>, budget: &mut Budget) {
        budget.inflated = 0;
        self.envelopes.current = Some(envelope);
    }

    /// An envelope is sound: it takes effect at once, or frame by frame in a second pass.
    fn apply(
        &mut self,
        now: Instant,
        mut envelope: Box<Envelope>,
        budget: &mut Budget,
    ) -> Result<(), Kind> {
        let summary = envelope.summary;
        self.fits_if_suspect(&summary)?;
        let fits = match self.turn {
            Turn::Open { version, size, .. } => {
                version == envelope.version
                    && summary.records <= size.saturating_sub(self.partial.records)
            }
            Turn::Unannounced | Turn::Shut => false,
        };
        let empty = summary.records == 0;
        if summary.in_turns || !(fits || empty) {
            if self.windows_in(&envelope) > 1 {
                self.may_be_shared(&envelope)?;
                envelope.plain = Some(BytesMut::new());
            }
            envelope.rewind();
            self.put_back(envelope, budget);
            return Ok(());
        }
        if !empty {
            self.has_room(summary.inflated)?;
            self.partial.count_all(&summary);
            self.partial.add_envelope(&envelope);
            if let Turn::Open { size, .. } = self.turn
                && self.partial.records >= size
            {
                self.complete(now);
            }
        }
        self.finish_envelope(*envelope);
        Ok(())
    }

    /// The most windows that an envelope may give events to.
    fn windows_in(&self, envelope: &Envelope) -> u32 {
        let summary = envelope.summary;
        if summary.windows == 1
            && let Some(size) = summary.opening
            && summary.records <= size
        {
            return 1;
        }
        let of_open = match self.turn {
            Turn::Unannounced => summary.records,
            Turn::Open {
                version: Version::V1,
                size,
                ..
            } => {
                let records = self.partial.records.saturating_add(summary.records);
                records.div_ceil(size.max(1))
            }
            Turn::Open { size, .. } => {
                // One event too many fills no window, but the events before it do.
                let room = size.saturating_sub(self.partial.records);
                1_u32.saturating_add((summary.records > room).into())
            }
            // If its first window takes all, that was found above.
            Turn::Shut => u32::from(summary.windows > 0),
        };
        // A window of version 1 takes events repeatedly, and its size is not known here.
        if envelope.version == Version::V1 && summary.windows > 0 {
            return summary.records.max(1).saturating_add(1);
        }
        of_open.saturating_add(summary.windows)
    }

    /// Checks that an envelope that windows share, which is kept inflated, does not grow too large.
    fn may_be_shared(&mut self, envelope: &Envelope) -> Result<(), Kind> {
        let inflated = envelope.summary.inflated;
        let most = envelope
            .bytes
            .len()
            .saturating_mul(SHARED_RATIO)
            .saturating_add(SHARED_FREE);
        if inflated <= most {
            return Ok(());
        }
        self.aside.forget();
        Err(Kind::SharedEnvelope {
            bytes: wide(envelope.bytes.len()),
            inflated: wide(inflated),
        })
    }

    /// The second pass: frame by frame, to the next complete window or the end of a piece.
    fn apply_in_turns(
        &mut self,
        now: Instant,
        mut envelope: Box<Envelope>,
        budget: &mut Budget,
    ) -> Result<(), Kind> {
        while let Some(walked) = envelope.next_frame(&self.config.limits)? {
            if walked.version != envelope.version {
                return Err(Kind::VersionMixed);
            }
            if let Head::Window { size } = walked.head {
                self.announce(walked.version, size)?;
                if let Some(plain) = &mut envelope.plain {
                    plain.clear();
                }
                self.envelopes.current = Some(envelope);
                return Ok(());
            }
            let complete = self.admit(walked)?;
            envelope.applied = envelope.applied.saturating_add(1);
            if complete {
                self.give(&mut envelope);
                self.complete(now);
                self.envelopes.current = Some(envelope);
                return Ok(());
            }
        }
        let made = envelope.refill(&self.config.limits)?;
        budget.spend(made.max(ENVELOPE_COST));
        if made == 0 {
            self.give(&mut envelope);
            self.finish_envelope(*envelope);
        } else if envelope.plain.is_some() {
            // The bytes of the next piece must be granted first.
            self.put_back(envelope, budget);
        } else {
            self.envelopes.current = Some(envelope);
        }
        Ok(())
    }

    /// Gives the window being filled the events that were applied since the last call.
    fn give(&mut self, envelope: &mut Envelope) {
        let records = std::mem::take(&mut envelope.applied);
        if records == 0 {
            return;
        }
        match &mut envelope.plain {
            Some(plain) => {
                self.partial.enveloped = true;
                self.partial.add_run(plain.split(), records);
            }
            None => self.partial.add_envelope(envelope),
        }
    }

    fn finish_envelope(&mut self, envelope: Envelope) {
        self.aside.forget();
        self.pass(envelope.bytes.len());
        self.envelopes.inflate = Some(envelope.into_inflate());
    }
}

/// The cost of an envelope in addition to its bytes, so that many tiny ones are not free.
const ENVELOPE_COST: usize = 4 * 1024;

/// The ratio to which a shared envelope may inflate, plus a small allowance.
pub(crate) const SHARED_RATIO: usize = 64;
const SHARED_FREE: usize = 64 * 1024;
