//! Acknowledgements of received messages, and the messages of this end that wait for theirs.

use std::time::Instant;

use ackline_core::UsageError;

use super::Connection;
use crate::{AckPolicy, refusal};

impl Connection {
    /// Whether the peer has ended its direction alone: it may still read acknowledgements.
    pub(crate) const fn is_half_open(&self) -> bool {
        self.state.is_half_open
    }

    /// Acknowledges all received messages up to this one.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`; `extension_not_negotiated`: there are no acknowledgements; `out_of_range`: no message
    /// with this number was delivered and not acknowledged.
    pub fn ack(&mut self, through: u16) -> Result<(), UsageError> {
        self.check()?;
        self.acknowledge(through)
    }

    /// [`ack`](Self::ack), also after the peer's end of its direction: it may still read.
    ///
    /// # Errors
    /// As there.
    pub fn ack_late(&mut self, through: u16) -> Result<(), UsageError> {
        if !self.state.is_half_open {
            self.check()?;
        }
        self.acknowledge(through)
    }

    fn acknowledge(&mut self, through: u16) -> Result<(), UsageError> {
        let (id, _) = self.agreed.ack().ok_or(refusal::EXTENSION_NOT_NEGOTIATED)?;
        self.receiving.ack(through)?;
        self.outgoing.ack(id, through);
        Ok(())
    }

    /// The application has processed all received messages up to this one: they are acknowledged together with others
    /// (R-MM-24).
    ///
    /// # Errors
    /// As [`ack`](Self::ack); `out_of_range` also if the policy is manual.
    pub fn processed(&mut self, now: Instant, through: u16) -> Result<(), UsageError> {
        self.check()?;
        let (_, window) = self.agreed.ack().ok_or(refusal::EXTENSION_NOT_NEGOTIATED)?;
        if self.config.ack_policy == AckPolicy::Manual {
            return Err(refusal::MANUAL);
        }
        if self.receiving.process(now, through, window)? {
            self.acknowledge_processed();
        }
        Ok(())
    }

    pub(super) fn acknowledge_processed(&mut self) {
        if let Some(through) = self.receiving.last_processed() {
            // It was delivered and is not acknowledged.
            let _ = self.acknowledge(through);
        }
    }

    /// Messages of this end that wait for their acknowledgement, also after the end.
    pub const fn pending(&self) -> u16 {
        self.sending.pending()
    }

    /// Messages that may wait for their acknowledgement in each direction; 0 without acknowledgements.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`.
    pub fn window(&self) -> Result<u16, UsageError> {
        self.check()?;
        Ok(self.windowed().unwrap_or(0))
    }

    /// Received messages that were not acknowledged.
    pub const fn unacknowledged(&self) -> u16 {
        self.receiving.pending()
    }
}
