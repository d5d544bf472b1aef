//! Messages that were taken from a connection ahead of Python, so that each call for one does not lock the connection.
//!
//! Only messages that Python has asked for count as processed: those that wait here are withheld.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline::micromsg::{Connection, Error, Received};

/// Messages that are taken at once, at most.
const MOST: usize = 256;
/// Bytes of payloads of messages that are taken at once, about.
const BYTES: usize = 1 << 20;
/// Time between two reports of processed messages, while others wait here.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// Messages that Python has still to ask for.
#[derive(Default)]
pub(super) struct Ahead {
    messages: VecDeque<Received>,
    /// The time of the last report.
    reported: Option<Instant>,
}

impl Ahead {
    /// The next message, if it is there and the connection need not hear of it.
    pub(super) fn at_hand(&mut self) -> Option<Received> {
        if self.messages.len() <= 1 || self.is_due(Instant::now()) {
            return None;
        }
        self.messages.pop_front()
    }

    fn is_due(&self, now: Instant) -> bool {
        let since = self.reported.map(|last| now.duration_since(last));
        since.is_none_or(|since| since >= REPORT_EVERY)
    }

    /// The next message; `None` once the peer has ended the connection in order.
    pub(super) fn next(&mut self, connection: &Connection) -> Result<Option<Received>, Error> {
        let now = Instant::now();
        if self.messages.is_empty() {
            self.reported = Some(now);
            self.messages = connection.try_verb(|session| {
                session.withhold(0);
                let taken = session.receive_some(MOST, BYTES)?;
                session.withhold(taken.len());
                Ok(taken.into())
            })?;
        } else if self.messages.len() == 1 || self.is_due(now) {
            self.reported = Some(now);
            self.report(connection);
        }
        Ok(self.messages.pop_front())
    }

    /// Messages that are there, up to `most`; none once the peer has ended the connection in order.
    pub(super) fn some(
        &mut self,
        connection: &Connection,
        most: usize,
    ) -> Result<Vec<Received>, Error> {
        if self.messages.is_empty() {
            return connection.try_verb(|session| {
                session.withhold(0);
                session.receive_some(most, BYTES)
            });
        }
        self.report(connection);
        let most = most.clamp(1, self.messages.len());
        Ok(self.messages.drain(..most).collect())
    }

    /// Reports all messages but those that wait here as processed.
    pub(super) fn report(&self, connection: &Connection) {
        // Nothing is sent after the end.
        let _ = connection.try_verb(|session| {
            session.withhold(self.messages.len());
            Ok(())
        });
    }
}
