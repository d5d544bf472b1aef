//! The receiver's way with Relink: links that are kept by their registry, each landed as long as it lives.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ackline_link::{BoundListener, Link};
use ackline_relink::EndpointConfig;
use ackline_spool::Writer;

use super::ingest::MessageIngest;
use super::intake::Intake;
use super::kept::{SETTLE_EVERY, caught_up, listener_dir, state_error};
use super::landed::{Landed, link_name};
use super::layout::MessageLayout;
use super::options::{PARAMETERS, endpoint_name};
use super::registry::{LinkRegistry, LinkRegistryOptions, Made, Told, refused};
use super::state::{ListenerState, Restored};
use super::subscribe::subscribe;
use super::url::{Target, url_of};
use crate::landing::{Shared, admit, land};
use crate::protocol::{Accepting, Protocol, Site};
use crate::{ReceiverError, ReceiverOptions};

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    title: "Relink",
    description: &ackline_relink::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    options: |options| &mut options.relink,
    connect: || Box::new(super::ConnectOptions::default()),
    listen: || Box::new(super::ListenOptions::default()),
    endpoint: |url, _| Target::parse(url).map(|target| target.endpoint),
    waits: false,
    has_names: true,
    bound,
    accept,
    subscribe: Some(subscribe),
};

/// A URL as given, with the port that was chosen, without options of TLS.
fn bound(url: &str, listener: &BoundListener) -> String {
    let name = Target::parse(url).map(|target| target.name);
    url_of(listener.url(), &name.unwrap_or_default())
}

fn accept(
    site: Site,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let endpoints = endpoints(&site.urls).map_err(ReceiverError::Usage)?;
    let own = &options.relink;
    let state = match (&options.spool, shared.writer()) {
        (Some(dir), Some(writer)) if own.durable_links => {
            Some(kept((dir, writer), &site.urls, &endpoints, options)?)
        }
        _ => None,
    };
    let (landed, state) = state.map_or((None, None), |(landed, state, links)| {
        (Some(landed), Some((state, links)))
    });
    let budget = shared.budget().clone();
    let registry = LinkRegistry::new(
        LinkRegistryOptions {
            endpoints,
            link: own.link.clone(),
            handshake_timeout: options.acceptor.handshake_timeout,
            keep: own.keep.clone(),
            budget: shared.budget().clone(),
        },
        state,
        move |machine| Intake::new(machine, &budget),
    );
    let links = Links::default();
    let told = tell(Arc::clone(shared), links.clone());
    // At once: a receiver that ends before it has served anybody ends them too.
    registry.restored(&told);
    let accepting = admit(
        site.listener,
        Arc::clone(shared),
        super::SCHEME,
        move |admitted| {
            let (registry, told) = (registry.clone(), told.clone());
            tokio::spawn(async move { registry.serve(admitted, &told).await });
        },
    );
    Ok(Box::pin(async move {
        // Without a socket no link comes back: each link still settles the messages that it received.
        tokio::join!(accepting, settling(landed, links));
    }))
}

/// Moves the settled position on, for ever.
async fn settling(landed: Option<Arc<Landed>>, links: Links) {
    let Some(landed) = landed else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(SETTLE_EVERY).await;
        landed.settle(&links.alive()).await;
    }
}

/// Lands a link that was made, and reports connections that ended or were refused.
fn tell(shared: Arc<Shared>, links: Links) -> impl Fn(Told<Intake>) + Clone + Send + Sync {
    move |told| match told {
        Told::Made(made) => {
            let Made {
                link,
                key,
                endpoint_name,
                peer,
            } = made;
            links.add(link.clone());
            let name = Arc::from(link_name(endpoint_name.as_str(), key));
            tokio::spawn(land(Arc::clone(&shared), MessageIngest, link, (peer, name)));
        }
        Told::Ended(peer, end) => shared.connection_ended(super::SCHEME, &peer, &end),
        Told::Refused(peer, refusal) => {
            shared.connection_refused(super::SCHEME, refused(&refusal, &peer));
        }
    }
}

/// The links of one listener that are landed.
#[derive(Clone, Default)]
struct Links(Arc<Mutex<Vec<Link<Intake>>>>);

impl Links {
    fn add(&self, link: Link<Intake>) {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| !link.is_ended());
        links.push(link);
    }

    fn alive(&self) -> Vec<Link<Intake>> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| !link.is_ended());
        links.clone()
    }
}

/// The services that the URLs of one address name.
fn endpoints(urls: &[String]) -> Result<Vec<EndpointConfig>, String> {
    let mut names = HashSet::new();
    let mut endpoints = Vec::new();
    for url in urls {
        let target = Target::parse(url)?;
        if !names.insert(target.name.clone()) {
            return Err(format!("{} is given twice", target.shown()));
        }
        endpoints.push(EndpointConfig {
            endpoint_name: endpoint_name(&target.name)?,
            parameters: target.wanted.over(PARAMETERS),
        });
    }
    Ok(endpoints)
}

/// The links that an earlier process left in the spool's directory, brought up to the messages that the spool
/// holds.
fn kept(
    (spool, writer): (&Path, &Writer),
    urls: &[String],
    endpoints: &[EndpointConfig],
    options: &ReceiverOptions,
) -> Result<(Arc<Landed>, ListenerState, Vec<Restored>), ReceiverError> {
    let dir = listener_dir(spool, urls, options)?;
    let opened = ListenerState::open(&dir, endpoints, &options.relink.link);
    let (state, links) = opened.map_err(state_error)?;
    let (landed, links) = caught_up((spool, writer), &dir, links, options)?;
    Ok((Arc::clone(&landed), state.landing(landed), links))
}
