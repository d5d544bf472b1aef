//! A receiver that connects out: one connection at a time, landed as those are that come in.

use std::sync::Arc;
use std::time::Duration;

use ackline_link::tls::TlsOptions;
use ackline_link::{Backoff, Endpoint, Jitter, PeerInfo, Stream};
use ackline_spool::RECEIVER_URL;

use crate::ingest::PerConnection;
use crate::landing::{Shared, carry};
use crate::{ReceiverError, ReceiverOptions};

/// One place that the receiver connects to, and how its input is landed.
pub(crate) struct Outgoing<I> {
    pub(crate) endpoint: Endpoint,
    pub(crate) ingest: I,
    pub(crate) shared: Arc<Shared>,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect_max: Duration,
    /// The URL without its query.
    pub(crate) shown: String,
}

/// The endpoint with the options of TLS where its URL leaves them open.
pub(crate) fn filled(
    mut endpoint: Endpoint,
    options: &ReceiverOptions,
) -> Result<Endpoint, ReceiverError> {
    let usage = |error: &dyn std::fmt::Display| ReceiverError::Usage(error.to_string());
    // Where there are URLs to listen on, the options of TLS may be for those alone.
    let tls = if endpoint.tls.is_some() || options.urls.is_empty() {
        options.tls.clone()
    } else {
        TlsOptions::default()
    };
    Endpoint::fill(std::slice::from_mut(&mut endpoint), &tls).map_err(|error| usage(&error))?;
    endpoint.client().map_err(|error| usage(&error))?;
    Ok(endpoint)
}

impl<I: PerConnection> Outgoing<I> {
    /// Connects, and again when a connection has ended, until `is_done` says after one that nothing more is to come.
    pub(crate) async fn run(self, is_done: impl Fn(&I) -> bool) {
        let mut backoff = Backoff::new(FIRST_WAIT, self.reconnect_max, Jitter::new(None));
        let mut was_told = false;
        loop {
            let begin = tokio::time::Instant::now();
            match ackline_link::connect(&self.endpoint, self.connect_timeout).await {
                Ok(stream) => {
                    was_told = false;
                    // Not ended with this task: received messages are acknowledged first.
                    let _ = tokio::spawn(self.carry(stream)).await;
                    if is_done(&self.ingest) {
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

    fn carry(&self, stream: Stream) -> impl Future<Output = ()> + Send + use<I> {
        let mut peer = PeerInfo::unix(None);
        let address = self.endpoint.addresses.first().map(ToString::to_string);
        peer.name = address.unwrap_or_default().into();
        peer.sender = Arc::clone(&peer.name);
        let peer = peer.with(RECEIVER_URL, &self.shown);
        let shared = Arc::clone(&self.shared);
        carry(shared, self.ingest.clone(), (stream, peer))
    }
}

/// The ceiling of the first wait between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The time after which a connection counts as working: after its end the first wait is a short one again.
const WORKED: Duration = Duration::from_secs(1);
