//! Applies sound envelopes: at once where one window takes all of it, else frame by frame, so that each
//! window gets its share of the envelope's bytes.

use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};

use super::{Budget, Reader, Turn};
use crate::envelope::{Checked, Envelope};
use crate::partial::KEEP_ABOVE;
use crate::walker::Head;
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
        let inflate = self.inflate.take().unwrap_or_default();
        self.suspect(version, &bytes);
        self.envelope = Some(Box::new(Envelope::new(version, bytes, inflate)));
    }

    /// One step of work on an envelope; puts it back unless it is done.
    pub(super) fn work(
        &mut self,
        now: Instant,
        mut envelope: Box<Envelope>,
        budget: &mut Budget,
    ) -> Result<(), Kind> {
        if envelope.in_second_pass() {
            return self.apply_in_turns(now, envelope, budget);
        }
        let limits = &self.config.limits;
        let at_once = if envelope.is_fresh() {
            envelope.check_at_once(&mut self.tries, limits)
        } else {
            None
        };
        let checked = match at_once {
            Some(checked) => checked,
            None => envelope.check(limits)?,
        };
        match checked {
            Checked::More(made) => {
                budget.spend(made);
                self.envelope = Some(envelope);
            }
            Checked::Sound(made) => {
                budget.spend(made.max(ENVELOPE_COST));
                self.apply(now, envelope)?;
            }
        }
        Ok(())
    }

    /// An envelope is sound: it takes effect at once, or frame by frame in a second pass.
    fn apply(&mut self, now: Instant, mut envelope: Box<Envelope>) -> Result<(), Kind> {
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
            if self.windows_in(&envelope) > MOST_SHARES {
                envelope.plain = Some(BytesMut::new());
            }
            envelope.rewind();
            self.envelope = Some(envelope);
            return Ok(());
        }
        if !empty {
            self.has_room(summary.inflated)?;
            self.partial.count_all(&summary);
            self.share(&mut envelope, summary.records, summary.inflated);
            if let Turn::Open { size, .. } = self.turn
                && self.partial.records >= size
            {
                self.complete(now);
            }
        }
        self.finish_envelope(*envelope);
        Ok(())
    }

    /// How many windows an envelope may fill or begin.
    fn windows_in(&self, envelope: &Envelope) -> u32 {
        let summary = envelope.summary;
        let by_size = match self.turn {
            Turn::Unannounced => summary.records,
            Turn::Open {
                version: Version::V1,
                size,
                ..
            } => summary.records.checked_div(size).unwrap_or_default(),
            Turn::Open { .. } | Turn::Shut => 0,
        };
        // A v1 window in the envelope re-arms with a size that is not known here.
        if envelope.version == Version::V1 && summary.windows > 0 {
            return summary.records;
        }
        by_size.saturating_add(summary.windows)
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
                self.envelope = Some(envelope);
                return Ok(());
            }
            let complete = self.admit(walked)?;
            envelope.applied = envelope.applied.saturating_add(1);
            envelope.share_bytes = envelope.share_bytes.saturating_add(walked.len);
            if complete {
                self.share_applied(&mut envelope);
                self.complete(now);
                self.envelope = Some(envelope);
                return Ok(());
            }
        }
        let made = envelope.refill(&self.config.limits)?;
        budget.spend(made.max(ENVELOPE_COST));
        if made > 0 {
            self.envelope = Some(envelope);
            return Ok(());
        }
        self.share_applied(&mut envelope);
        self.finish_envelope(*envelope);
        Ok(())
    }

    /// Gives the window being filled the events that were applied since the last share.
    fn share_applied(&mut self, envelope: &mut Envelope) {
        let records = envelope.applied.saturating_sub(envelope.share_from);
        if records == 0 {
            return;
        }
        let inflated = std::mem::take(&mut envelope.share_bytes);
        if let Some(plain) = &mut envelope.plain {
            self.partial.enveloped = true;
            self.partial.add_run(plain.split(), records);
            envelope.share_from = envelope.applied;
            return;
        }
        self.share(envelope, records, inflated);
    }

    /// The bytes of an envelope are charged once: to the last window that holds a share of it.
    fn share(&mut self, envelope: &mut Envelope, records: u32, inflated: usize) {
        let len = envelope.bytes.len();
        if let Some(window) = envelope.charged_to {
            self.pending.uncharge(window, len);
        }
        envelope.charged_to = Some(self.stats.windows.saturating_add(1));
        self.partial.charge = self.partial.charge.saturating_add(len);
        self.partial.add_envelope(envelope, records, inflated);
        envelope.share_from = envelope.share_from.saturating_add(records);
    }

    fn finish_envelope(&mut self, envelope: Envelope) {
        self.aside.forget();
        self.pass(envelope.bytes.len());
        self.inflate = Some(envelope.into_inflate());
    }
}

/// What an envelope costs beside its bytes, so that many tiny ones are not free.
const ENVELOPE_COST: usize = 4 * 1024;

/// Windows that may share one envelope. Each consumer of a share inflates the envelope up to its end, so
/// an envelope of more windows is handed on as plain frames.
const MOST_SHARES: u32 = 64;
