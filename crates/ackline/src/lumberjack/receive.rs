//! The receiver's way with Lumberjack: each connection is landed as long as it lives.

use std::sync::Arc;

use ackline_link::{Budget, Endpoint};
use ackline_lumberjack::ReaderConfig;

use super::ingest::WindowIngest;
use super::layout::{EventLayout, InvalidLayout};
use super::within;
use crate::landing::accept;
use crate::protocol::Protocol;

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    title: "Lumberjack",
    description: &ackline_lumberjack::Description,
    layouts: || vec![Arc::new(EventLayout), Arc::new(InvalidLayout)],
    options: |options| &mut options.reader,
    connect: || Box::new(super::SenderOptions::default()),
    listen: || Box::new(super::ListenerOptions::default()),
    endpoint: |url, _| Endpoint::parse(url).map_err(|error| error.to_string()),
    waits: false,
    has_names: false,
    bound: |_, listener| listener.url().to_owned(),
    subscribe: None,
    accept: |site, shared, options| {
        let config = ReaderConfig {
            v1: options.reader.v1 && options.takes_v1(),
            ..options.reader.clone()
        };
        let make = |budget: &Budget| WindowIngest::new(within(config, budget));
        Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
    },
};
