//! The receiver's way with Reactive Streams: each connection is landed as long as it lives, and every client that connects
//! is subscribed to.

use std::collections::HashSet;
use std::sync::Arc;

use ackline_link::{BoundListener, Budget};
use ackline_reactive::Role;

use super::address::{Address, url_of};
use super::ingest::ElementIngest;
use super::layout::ElementLayout;
use super::subscribe::subscribe;
use crate::landing::{Shared, accept};
use crate::protocol::{Accepting, Protocol, Site};
use crate::{ReceiverError, ReceiverOptions};

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    title: "Reactive Streams",
    description: &ackline_reactive::Description,
    layouts: || vec![Arc::new(ElementLayout)],
    options: |options| &mut options.reactive,
    connect: || Box::new(super::ConnectOptions::default()),
    listen: || Box::new(super::ListenOptions::default()),
    endpoint: |url, _| Address::parse(url).map(|address| address.endpoint),
    waits: false,
    has_names: true,
    bound,
    accept: accepting,
    subscribe: Some(subscribe),
};

/// A URL as given, with the port that was chosen, without options of TLS.
fn bound(url: &str, listener: &BoundListener) -> String {
    let publisher = Address::parse(url).map(|address| address.publisher);
    url_of(listener.url(), &publisher.unwrap_or_default())
}

fn accepting(
    site: Site,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    let publishers = publishers(&site.urls).map_err(ReceiverError::Usage)?;
    let own = options.reactive.clone();
    let room = shared.room().clone();
    let make =
        move |budget: &Budget| ElementIngest::new(Role::Server, &own, &publishers, (budget, room));
    Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
}

/// The publishers that the URLs of one address name.
fn publishers(urls: &[String]) -> Result<Vec<String>, String> {
    let mut names = HashSet::new();
    let mut publishers = Vec::new();
    for url in urls {
        let address = Address::parse(url)?;
        if !names.insert(address.publisher.clone()) {
            return Err(format!("{} is given twice", address.shown()));
        }
        publishers.push(address.publisher);
    }
    Ok(publishers)
}
