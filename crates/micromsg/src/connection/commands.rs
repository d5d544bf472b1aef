//! Commands, subscriptions and frames of extensions of this end.

use ackline_core::UsageError;

use super::Connection;
use crate::frame::{self, flags};
use crate::text::write_command;
use crate::{Filter, refusal};

impl Connection {
    /// Sends bytes of an extension.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`, `extension_not_negotiated`; `out_of_range`: 2^32 bytes.
    pub fn send_extension(&mut self, name: &str, payload: &[u8]) -> Result<(), UsageError> {
        self.check()?;
        let id = self
            .agreed
            .id(name)
            .ok_or(refusal::EXTENSION_NOT_NEGOTIATED)?;
        if u32::try_from(payload.len()).is_err() {
            return Err(refusal::PAYLOAD_TOO_LONG);
        }
        self.put_extension(id, payload);
        Ok(())
    }

    /// Sends a command.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`, `invalid_name`.
    pub fn command(
        &mut self,
        name: &str,
        properties: &[(String, String)],
    ) -> Result<(), UsageError> {
        self.check()?;
        let command = write_command(name, properties)?;
        self.outgoing.put(|out| {
            frame::put_head(out, flags::COMMAND, command.len());
            out.extend_from_slice(command.as_bytes());
        });
        Ok(())
    }

    /// Subscribes to a topic or a queue (R-MM-27). A second subscription to it replaces the first.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`, `extension_not_negotiated`, `invalid_filter`.
    pub fn subscribe(&mut self, topic: &str, filter: Option<&str>) -> Result<(), UsageError> {
        self.check_pub_sub()?;
        let mut properties = vec![("topic".to_owned(), topic.to_owned())];
        if let Some(filter) = filter {
            Filter::read(filter.as_bytes()).map_err(|_| refusal::INVALID_FILTER)?;
            properties.push(("filter".to_owned(), filter.to_owned()));
        }
        self.command("subscribe", &properties)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`, `extension_not_negotiated`.
    pub fn unsubscribe(&mut self, topic: &str) -> Result<(), UsageError> {
        self.check_pub_sub()?;
        self.command("unsubscribe", &[("topic".to_owned(), topic.to_owned())])
    }

    fn check_pub_sub(&self) -> Result<(), UsageError> {
        self.check()?;
        if self.has_extension("pub-sub") {
            return Ok(());
        }
        Err(refusal::EXTENSION_NOT_NEGOTIATED)
    }
}
