//! The receiver's way with Relink: links that are kept by their registry, each landed as long as it lives.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ackline_link::{BoundListener, Link};
use ackline_relink::EndpointConfig;
use ackline_spool::{Access, Spool, Writer};

use super::ingest::MessageIngest;
use super::intake::Intake;
use super::kept::{SETTLE_EVERY, caught_up, listener_dir, state_error};
use super::landed::{Landed, link_name};
use super::layout::MessageLayout;
use super::options::{LinkOptions, PARAMETERS, endpoint_name};
use super::registry::{LinkRegistry, LinkRegistryOptions, Made, Told};
use super::state::{ListenerState, Restored};
use super::subscribe::subscribe;
use super::url::{Target, url_of};
use crate::landing::{Shared, admit, land};
use crate::protocol::{Accepting, Protocol, Site};
use crate::{ReceiverError, ReceiverOptions};

/// Relink in a receiver.
#[derive(Debug, Clone)]
pub struct RelinkOptions {
    /// Windows, limits and timers of each link. What is kept is acknowledged at once (`ack_delay`): it comes
    /// in groups already. The window is 1,048,576 messages, since memory is what bounds a transaction.
    pub link: LinkOptions,
    /// Whether links are kept in the spool's directory, so that they survive the process: yes. Without a
    /// spool they are not.
    pub durable_links: bool,
    /// How long a link without a connection is kept: 5 min. Then it is lost.
    pub orphan_after: Duration,
    /// Links at once, with and without a connection: 10,000.
    pub max_links: usize,
    /// Whether a link that was made over a proven identity of TLS belongs to it: yes.
    pub bind_identity: bool,
    /// Where the receiver connects: time for one attempt, 10 s.
    pub connect_timeout: Duration,
    /// Where the receiver connects: the longest wait between two attempts, 60 s.
    pub reconnect_max: Duration,
    /// Where the receiver connects: how long a link may be without a connection before it is given up, off.
    pub lost_after: Option<Duration>,
}

impl Default for RelinkOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions {
                ack_delay: Duration::ZERO,
                receive_window: 1 << 20,
                ..LinkOptions::default()
            },
            durable_links: true,
            orphan_after: Duration::from_secs(5 * 60),
            max_links: 10_000,
            bind_identity: true,
            connect_timeout: Duration::from_secs(10),
            reconnect_max: Duration::from_secs(60),
            lost_after: None,
        }
    }
}

impl RelinkOptions {
    /// Sets a number of 1 or more by its name; answers whether there is one of that name.
    pub(crate) fn set_size(&mut self, name: &str, number: u64) -> Result<bool, String> {
        let too_large = || format!("{name} is {number}; at most {} fits", u32::MAX);
        let count = || u32::try_from(number).map_err(|_| too_large());
        let limits = &mut self.link.limits;
        match name {
            "receive_window" => self.link.receive_window = count()?,
            "max_channels" => self.link.max_channels = count()? as usize,
            "max_links" => self.max_links = count()? as usize,
            "max_channel_ids" => limits.channel_id_count = count()?,
            "max_message_parts" => limits.message_length = count()?,
            "max_part_bytes" => limits.payload_size = number,
            "max_message_bytes" => limits.message_size = number,
            "max_multicast_bytes" => limits.multicast_size = number,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets a time by its name (`None` is off); answers whether there is one of that name.
    pub(crate) fn set_time(&mut self, name: &str, time: Option<Duration>) -> Result<bool, String> {
        let required = || time.ok_or_else(|| format!("{name} must be above 0"));
        match name {
            // Without an end the memory of orphans would be kept for ever.
            "orphan_after_ms" => self.orphan_after = required()?,
            "connect_timeout_ms" => self.connect_timeout = required()?,
            "reconnect_max_ms" => self.reconnect_max = required()?,
            "lost_after_ms" => self.lost_after = time,
            "ping_after_ms" => self.link.ping_after = time,
            "pong_timeout_ms" => self.link.pong_timeout = time,
            "packet_receive_timeout_ms" => self.link.packet_receive_timeout = time,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    scheme: super::SCHEME,
    description: &ackline_relink::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    endpoint: |url| Target::parse(url).map(|target| target.endpoint),
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
            orphan_after: own.orphan_after,
            max_links: own.max_links,
            bind_identity: own.bind_identity,
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
        // Without a socket no link comes back: what is received is still settled by each link.
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

/// What becomes of links and connections.
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
            shared.connection_refused(super::SCHEME, refusal.of(&peer));
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

/// The links that an earlier process left in the spool's directory, brought up to what the spool holds.
fn kept(
    (spool, writer): (&Path, &Writer),
    urls: &[String],
    endpoints: &[EndpointConfig],
    options: &ReceiverOptions,
) -> Result<(Arc<Landed>, ListenerState, Vec<Restored>), ReceiverError> {
    let dir = listener_dir(spool, urls, options)?;
    let opened = ListenerState::open(&dir, endpoints, &options.relink.link);
    let (state, links) = opened.map_err(state_error)?;
    let landed = Arc::new(Landed::open(&dir, writer.clone()));
    let access = Access {
        group: options.writer.group,
    };
    let links = caught_up(links, &landed, &Spool::open_with(spool, access)?)?;
    Ok((Arc::clone(&landed), state.landing(landed), links))
}
