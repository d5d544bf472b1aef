//! Unreadable envelopes that are set aside instead of ending the connection.
//!
//! A window is acknowledged by the sequence number of its last event, which an unreadable envelope
//! does not show. It is known to be `n` if `W n` directly precedes the envelope and this writer has
//! numbered every window of this connection from 1, at least one of them. Nothing of the envelope
//! may have been handed on by then.

use std::time::Instant;

use ackline_core::{ProtocolError, UsageError};
use bytes::Bytes;

use super::{Event, Reader, State, Turn, UNKNOWN_WINDOW};
use crate::envelope::Summary;
use crate::partial::Partial;
use crate::pending::Waiting;
use crate::{Invalid, Kind, OnInvalid, Version};

/// The state that decides whether an envelope may be set aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Whether every window of this connection ran from 1 to its announced size; `None` before the first.
    runs: Option<bool>,
    /// Bytes received before the frame after the last window frame.
    behind_window: Option<u64>,
    suspect: Option<Suspect>,
    /// A window that was refused: the next call fails with it.
    doomed: Option<(Instant, ProtocolError<Kind>)>,
}

/// An envelope in progress that may be set aside.
#[derive(Debug)]
struct Suspect {
    version: Version,
    size: u32,
    bytes: Bytes,
}

impl Aside {
    /// A window frame on the wire ended at `offset`.
    pub(super) fn announced(&mut self, offset: u64) {
        self.behind_window = Some(offset);
    }

    /// The envelope in progress can no longer be set aside.
    pub(super) fn forget(&mut self) {
        self.suspect = None;
    }

    /// A complete window is handed on.
    pub(super) fn handed_on(&mut self, turn: Turn, window: &Partial) {
        self.suspect = None;
        let is_announced = matches!(turn, Turn::Open { size, .. } if size == window.records);
        let ran = is_announced
            && window.gaps == 0
            && window.first_sequence == 1
            && window.last_sequence == window.records;
        self.runs = Some(ran && self.runs != Some(false));
    }

    /// The error of the next call, and since when it is known.
    pub(super) const fn doomed(&self) -> Option<&(Instant, ProtocolError<Kind>)> {
        self.doomed.as_ref()
    }
}

impl Reader {
    /// The window cannot be stored: the connection ends, at the next call, with the window's fault.
    ///
    /// # Errors
    /// `unknown_window` for a window that was not handed on as [`Event::Invalid`] or was acknowledged;
    /// `closed` after the end of the connection.
    pub fn refuse(&mut self, now: Instant, window: u64) -> Result<(), UsageError> {
        self.timing.touch(now);
        self.is_taking()?;
        let fault = self.pending.fault(window).ok_or(UNKNOWN_WINDOW)?;
        self.pending.refuse(window);
        if !matches!(self.state, State::Failed(_)) {
            self.aside.doomed.get_or_insert((now, fault));
        }
        Ok(())
    }

    /// An envelope begins.
    pub(super) fn suspect(&mut self, version: Version, bytes: &Bytes) {
        let is_direct = self.aside.behind_window.take() == Some(self.input.offset);
        self.aside.suspect = match self.turn {
            Turn::Open {
                version: open,
                size,
                rearmed: false,
            } if open == version
                && is_direct
                && self.aside.runs == Some(true)
                && self.config.on_invalid == OnInvalid::Quarantine =>
            {
                let bytes = bytes.clone();
                Some(Suspect {
                    version,
                    size,
                    bytes,
                })
            }
            _ => None,
        };
    }

    /// Finds more events than announced before the first of them is handed on, if the envelope may
    /// be set aside as a whole.
    pub(super) fn fits_if_suspect(&self, summary: &Summary) -> Result<(), Kind> {
        match &self.aside.suspect {
            Some(Suspect {
                version: Version::V2,
                size,
                ..
            }) if summary.windows == 0 && summary.records > *size => Err(Kind::Overrun),
            _ => Ok(()),
        }
    }

    /// The envelope in progress cannot be read: it is handed on unread, or the connection ends.
    pub(super) fn set_aside(&mut self, now: Instant, kind: Kind) -> Result<(), Kind> {
        let Some(suspect) = self.aside.suspect.take() else {
            return Err(kind);
        };
        self.partial = Partial::default();
        let offset = self.input.offset;
        let fault = ProtocolError {
            kind: kind.clone(),
            offset,
        };
        let id = self.next_window(
            now,
            Waiting {
                id: None,
                version: suspect.version,
                sequence: suspect.size,
                records: suspect.size,
                charge: suspect.bytes.len(),
                acknowledged: false,
                fault: Some(Box::new(fault)),
            },
        );
        self.pass(suspect.bytes.len());
        self.events.push_back(Event::Invalid(Invalid {
            id,
            version: suspect.version,
            window_size: suspect.size,
            bytes: suspect.bytes,
            kind,
            offset,
        }));
        Ok(())
    }

    /// Fails with the fault of the refused window.
    pub(super) fn meet_doom(&mut self) -> Result<(), ProtocolError<Kind>> {
        let Some((_, error)) = self.aside.doomed.take() else {
            return Ok(());
        };
        self.drop_unfinished();
        self.state = State::Failed(error.clone());
        Err(error)
    }
}
