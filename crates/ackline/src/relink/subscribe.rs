//! A receiver that connects out: one link to a listener at a time, for ever, landed as those are that come in.
//!
//! A link that is lost is replaced by a new one; its listener may send messages again there whose
//! acknowledgement it has not seen. Messages that are on their way to the spool when the receiver stops are
//! still acknowledged.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ackline_link::tls::TlsOptions;
use ackline_link::{Backoff, CLOSE_DEADLINE, End, Jitter, Link, PeerInfo};
use ackline_relink::{self as machine, Error, Kind, LinkKey};
use ackline_spool::RECEIVER_URL;
use ackline_spool::Writer;
use tokio::task::JoinHandle;

use super::connector::{Connector, Dialled};
use super::ingest::MessageIngest;
use super::intake::Intake;
use super::kept::{SETTLE_EVERY, caught_up, connector_dir, state_error};
use super::landed::{Landed, link_name};
use super::link_host::LinkHost as _;
use super::options::ConnectOptions;
use super::state::{ConnectorState, Journal, Restored};
use super::url::Target;
use crate::landing::{Shared, land};
use crate::protocol::Accepting;
use crate::{ReceiverError, ReceiverOptions};

/// One listener that the receiver connects to.
struct Subscription {
    connector: Connector,
    shared: Arc<Shared>,
    kept: Option<Kept>,
    reconnect_max: Duration,
    /// The URL without its query.
    shown: String,
}

/// Where its link is kept.
struct Kept {
    state: ConnectorState,
    landed: Arc<Landed>,
}

/// A link that is to be landed, and its first transport; a link of an earlier process has none.
struct Begun {
    link: Link<Intake>,
    journal: Option<Journal>,
    first: Option<Dialled>,
}

/// Connects to a URL, for ever.
pub(super) fn subscribe(
    url: &str,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let usage = |error: Error| ReceiverError::Usage(error.to_string());
    let connector = Connector::new(url, connect_options(url, options)).map_err(usage)?;
    let target = Target::parse(url).map_err(ReceiverError::Usage)?;
    let (mut kept, mut restored) = (None, None);
    if let (Some(dir), Some(writer)) = (&options.spool, shared.writer())
        && options.relink.durable_links
    {
        let opened = open((dir, writer), url, &connector, options)?;
        (kept, restored) = (Some(opened.0), opened.1);
    }
    let subscription = Subscription {
        connector,
        shared: Arc::clone(shared),
        kept,
        reconnect_max: options.relink.reconnect.reconnect_max,
        shown: target.shown(),
    };
    let restored = restored.map(|one| subscription.restored(one));
    Ok(Box::pin(subscription.run(restored)))
}

fn connect_options(url: &str, options: &ReceiverOptions) -> ConnectOptions {
    let has_tls = url.contains("+tls://") || options.urls.is_empty();
    ConnectOptions {
        link: options.relink.link.clone(),
        handshake_timeout: options.acceptor.handshake_timeout,
        reconnect: options.relink.reconnect.clone(),
        tls: if has_tls {
            options.tls.clone()
        } else {
            TlsOptions::default()
        },
        ..ConnectOptions::default()
    }
}

/// The link that an earlier process left in the spool's directory, brought up to the messages that the spool
/// holds.
fn open(
    (spool, writer): (&Path, &Writer),
    url: &str,
    connector: &Connector,
    options: &ReceiverOptions,
) -> Result<(Kept, Option<Restored>), ReceiverError> {
    let dir = connector_dir(spool, url, options)?;
    let opened = ConnectorState::open(&dir, &connector.origin(), &options.relink.link);
    let (state, restored) = opened.map_err(state_error)?;
    let links = restored.into_iter().collect();
    let (landed, mut links) = caught_up((spool, writer), &dir, links, options)?;
    Ok((Kept { state, landed }, links.pop()))
}

impl Subscription {
    /// The link of an earlier process.
    fn restored(&self, restored: Restored) -> Begun {
        Begun {
            link: self.link(restored.machine),
            journal: Some(restored.journal.forgetting_lost()),
            first: None,
        }
    }

    fn link(&self, mut machine: machine::Link) -> Link<Intake> {
        let budget = self.shared.budget().clone();
        machine.share(budget.quota());
        let link = Link::with_budget(Intake::new(machine, &budget), budget);
        // The next link waits for the end of this one's transport: no longer than for another attempt.
        link.close_within(self.reconnect_max.min(CLOSE_DEADLINE));
        link
    }

    async fn run(self, mut restored: Option<Begun>) {
        loop {
            let begun = match restored.take() {
                Some(begun) => begun,
                None => self.begin().await,
            };
            let Begun {
                link,
                journal,
                first,
            } = begun;
            let keeping = journal.map(|journal| journal.keep(link.clone()));
            let name = Arc::from(self.name(link.call(|intake, _| intake.machine().key())));
            let peer = self.peer();
            let landing = land(
                Arc::clone(&self.shared),
                MessageIngest,
                link.clone(),
                (peer.clone(), name),
            );
            tokio::spawn(landing);
            let told = self.told(peer);
            let running = self.connector.clone().run(link.clone(), first, told);
            // Not ended with this task: received messages are acknowledged first.
            self.watch(&link, tokio::spawn(running)).await;
            if let Some(keeping) = keeping {
                // The next link's journal has the same file.
                let _ = keeping.await;
            }
        }
    }

    /// Waits for the link's end, and notes meanwhile how much of it is in its journal.
    async fn watch(&self, link: &Link<Intake>, mut running: JoinHandle<()>) {
        while tokio::time::timeout(SETTLE_EVERY, &mut running)
            .await
            .is_err()
        {
            if let Some(kept) = &self.kept {
                kept.landed.settle(std::slice::from_ref(link)).await;
            }
        }
    }

    /// A new link, as soon as there is a listener that makes one.
    async fn begin(&self) -> Begun {
        let longest = self.reconnect_max;
        let mut backoff = Backoff::new(FIRST_WAIT, longest, Jitter::new(None));
        let mut was_told = false;
        loop {
            let why = match self.connector.dial(None).await {
                Ok(dialled) => return self.begun(dialled),
                Err(failed) => Error::from(failed).to_string(),
            };
            if !std::mem::replace(&mut was_told, true) {
                let url = &self.shown;
                tracing::warn!(code = "receiver.not_connected", url, why, "trying for ever");
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    fn begun(&self, dialled: Dialled) -> Begun {
        let machine = self.connector.machine(&dialled, self.kept.is_some());
        let journal = self.kept.as_ref().map(|kept| {
            let journal = kept.state.journal(machine.key(), self.connector.origin());
            let journal = journal.landing(Arc::clone(&kept.landed));
            journal.forgetting_lost()
        });
        Begun {
            link: self.link(machine),
            journal,
            first: Some(dialled),
        }
    }

    fn name(&self, key: LinkKey) -> String {
        link_name(self.connector.origin().endpoint_name.as_str(), key)
    }

    /// The listener, by its address, the first if it has several.
    fn peer(&self) -> PeerInfo {
        let first = self.connector.endpoint.addresses.first();
        let address = first.map_or_else(String::new, ToString::to_string);
        let mut peer = PeerInfo::unix(None);
        peer.sender = address.as_str().into();
        peer.name = address.into();
        peer.with(RECEIVER_URL, &self.connector.endpoint.to_string())
    }

    fn told(&self, peer: PeerInfo) -> impl Fn(&End<Kind>) + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move |end| shared.connection_ended(super::SCHEME, &peer, end)
    }
}

/// The ceiling of the first wait between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(100);
