//! A client: sends windows and says which are acknowledged.

use std::task::Poll;
use std::time::Duration;

use ackline_core::{Connection as _, UsageError};
use ackline_link::{End, Link};
use tokio::task::JoinHandle;

use super::{Kind, OutRecord, Writer, WriterConfig, endpoint};

/// Why something was not sent or not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be made.
    #[error("cannot connect to {url}: {source}")]
    Connect {
        /// The URL as given.
        url: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The window cannot be sent as it is.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The connection has ended; `unacknowledged` events may have to be sent again.
    #[error("{end}; {unacknowledged} events are not acknowledged")]
    Ended {
        /// Why.
        end: End<Kind>,
        /// Events sent whose acknowledgement never came.
        unacknowledged: u64,
    },
}

/// Connects to a receiver.
///
/// # Errors
/// A URL that is not one of ours, or a connection refused or not made within `timeout`.
pub async fn connect(
    url: &str,
    config: WriterConfig,
    timeout: Duration,
) -> Result<Client, ClientError> {
    let failed = |source| ClientError::Connect {
        url: url.to_owned(),
        source,
    };
    let target = endpoint(url)
        .map_err(|text| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, text)))?;
    let stream = ackline_link::connect(&target, timeout)
        .await
        .map_err(failed)?;
    let link = Link::new(Writer::new(config));
    let driver = tokio::spawn({
        let link = link.clone();
        async move { drop(link.drive(stream).await) }
    });
    Ok(Client { link, driver })
}

/// One connection to a receiver. Dropping it ends it at once; [`Client::close`] waits for what is out.
pub struct Client {
    link: Link<Writer>,
    driver: JoinHandle<()>,
}

impl Client {
    /// The link itself, for waits and verbs of one's own.
    pub fn link(&self) -> &Link<Writer> {
        &self.link
    }

    /// Sends one window, waiting while too many are out; answers its number, counted from 1.
    ///
    /// # Errors
    /// A window that is empty or too large, or a connection that has ended.
    pub async fn send(&self, records: &[OutRecord]) -> Result<u64, ClientError> {
        let sent = self
            .link
            .when(0, |writer, now| {
                if writer.room() == 0 {
                    return Poll::Pending;
                }
                Poll::Ready(writer.send_window(now, records))
            })
            .await;
        Ok(sent.map_err(|end| self.ended(end))??)
    }

    /// Waits until at most `events` events are unacknowledged: 0 waits for everything.
    ///
    /// # Errors
    /// The connection ended first.
    pub async fn acknowledged_to(&self, events: u64) -> Result<(), ClientError> {
        let acked = self
            .link
            .when(0, |writer, _| {
                while writer.poll_event().is_some() {}
                if writer.unacknowledged() <= events {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        acked.map_err(|end| self.ended(end))
    }

    /// Events sent and not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.link.call(|writer, _| writer.unacknowledged())
    }

    /// Waits for the acknowledgement of everything, at most `timeout`, and ends the connection. Answers
    /// how many events are not acknowledged.
    pub async fn close(self, timeout: Duration) -> u64 {
        self.link.call(Writer::finish);
        let _ = tokio::time::timeout(timeout, self.acknowledged_to(0)).await;
        self.unacknowledged()
    }

    fn ended(&self, end: End<Kind>) -> ClientError {
        ClientError::Ended {
            end,
            unacknowledged: self.unacknowledged(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.link.abort();
        self.driver.abort();
    }
}
