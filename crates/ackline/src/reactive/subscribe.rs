//! A receiver that connects out and subscribes to a publisher: one connection at a time, until its stream is complete.
//!
//! A stream that failed, or whose connection is lost, is subscribed to again. Where it then begins is its publisher's
//! decision. A stream that is complete is not: all of its elements would land twice.

use std::sync::Arc;
use std::time::Duration;

use ackline_link::tls::TlsOptions;
use ackline_link::{Backoff, Endpoint, Jitter, PeerInfo, Stream};
use ackline_reactive::Role;

use super::address::Address;
use super::ingest::ElementIngest;
use crate::landing::{Shared, carry};
use crate::protocol::Accepting;
use crate::{ReceiverError, ReceiverOptions};

/// One publisher that the receiver connects to.
struct Subscription {
    endpoint: Endpoint,
    ingest: ElementIngest,
    shared: Arc<Shared>,
    connect_timeout: Duration,
    reconnect_max: Duration,
    /// The URL without its query.
    shown: String,
}

/// Connects to a URL until the stream of its publisher is complete.
pub(super) fn subscribe(
    url: &str,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let usage = |error: &dyn std::fmt::Display| ReceiverError::Usage(error.to_string());
    let address = Address::parse(url).map_err(ReceiverError::Usage)?;
    let shown = address.shown();
    let Address {
        mut endpoint,
        publisher,
    } = address;
    // Where there are URLs to listen on, the options of TLS may be for those alone.
    let tls = if endpoint.tls.is_some() || options.urls.is_empty() {
        options.tls.clone()
    } else {
        TlsOptions::default()
    };
    Endpoint::fill(std::slice::from_mut(&mut endpoint), &tls).map_err(|error| usage(&error))?;
    endpoint.client().map_err(|error| usage(&error))?;
    let own = &options.reactive;
    let subscription = Subscription {
        endpoint,
        ingest: ElementIngest::new(Role::Client, own, &[publisher], shared.budget()),
        shared: Arc::clone(shared),
        connect_timeout: own.connect_timeout,
        reconnect_max: own.reconnect_max,
        shown,
    };
    Ok(Box::pin(subscription.run()))
}

impl Subscription {
    async fn run(self) {
        let mut backoff = Backoff::new(FIRST_WAIT, self.reconnect_max, Jitter::new(None));
        let mut was_told = false;
        loop {
            let begin = tokio::time::Instant::now();
            match ackline_link::connect(&self.endpoint, self.connect_timeout).await {
                Ok(stream) => {
                    was_told = false;
                    // Not ended with this task: received elements become durable first.
                    let _ = tokio::spawn(self.carry(stream)).await;
                    if self.ingest.completion().is_complete() {
                        return;
                    }
                    if begin.elapsed() > WORKED {
                        backoff.reset();
                    }
                }
                Err(error) if !std::mem::replace(&mut was_told, true) => {
                    let (url, why) = (&self.shown, error.to_string());
                    tracing::warn!(code = "receiver.not_connected", url, why, "trying for ever");
                }
                Err(_) => {}
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    fn carry(&self, stream: Stream) -> impl Future<Output = ()> + Send + use<> {
        let mut peer = PeerInfo::unix(None);
        let address = self.endpoint.addresses.first().map(ToString::to_string);
        peer.name = address.unwrap_or_default().into();
        peer.sender = Arc::clone(&peer.name);
        let shared = Arc::clone(&self.shared);
        carry(shared, self.ingest.clone(), (stream, peer))
    }
}

/// The ceiling of the first wait between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The time after which a connection counts as working: after its end the first wait is a short one again.
const WORKED: Duration = Duration::from_secs(1);
