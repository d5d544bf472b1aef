//! The receiver's way with bpmux: each connection is landed as long as it lives.

use std::sync::Arc;
use std::time::Duration;

use ackline_bpmux::{Config, CreditPolicy};
use ackline_link::Budget;
use bytes::Bytes;

use super::ingest::MessageIngest;
use super::intake::IntakeConfig;
use super::layout::MessageLayout;
use super::options::{LinkOptions, most_incomplete};
use super::subscribe::subscribe;
use super::url::Address;
use crate::landing::{Shared, accept};
use crate::protocol::{Accepting, Protocol, Site};
use crate::{ReceiverError, ReceiverOptions};

/// bpmux in a receiver.
#[derive(Debug, Clone)]
pub struct BpmuxOptions {
    /// Credit, limits and timers of each connection. Credit for what is kept comes back once it is durable, as
    /// automatic credit gives it; there is no other here.
    pub link: LinkOptions,
    /// Bytes that a sink or duplex may be opened with, 1,024: each of its blocks has a copy. At most 65,536.
    pub max_opening_bytes: usize,
    /// Where the receiver connects: time for one attempt, 10 s.
    pub connect_timeout: Duration,
    /// Where the receiver connects: the longest wait between two attempts, 60 s.
    pub reconnect_max: Duration,
}

impl Default for BpmuxOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            max_opening_bytes: 1_024,
            connect_timeout: Duration::from_secs(10),
            reconnect_max: Duration::from_secs(60),
        }
    }
}

impl BpmuxOptions {
    /// The most that [`max_opening_bytes`](Self::max_opening_bytes) may be.
    pub const MOST_OPENING_BYTES: usize = 65_536;

    /// Sets a number of 1 or more by its name; answers whether there is one of that name.
    pub(crate) fn set_size(&mut self, name: &str, number: u64) -> Result<bool, String> {
        let too_large = |most: u64| format!("{name} is {number}; at most {most} fits");
        let count = || u32::try_from(number).map_err(|_| too_large(u32::MAX.into()));
        let limits = &mut self.link.limits;
        match name {
            "max_payload_bytes" => limits.payload = number,
            "max_entities" => limits.entities = count()?,
            "max_requests" => limits.requests = count()?,
            "max_opening_bytes" => {
                let most = Self::MOST_OPENING_BYTES;
                let bytes = usize::try_from(number).ok().filter(|bytes| *bytes <= most);
                self.max_opening_bytes = bytes.ok_or_else(|| too_large(most as u64))?;
            }
            _ => return Ok(self.set_credit(name, number)),
        }
        Ok(true)
    }

    fn set_credit(&mut self, name: &str, number: u64) -> bool {
        if self.link.credit == CreditPolicy::Manual {
            self.link.credit = CreditPolicy::AUTOMATIC;
        }
        let CreditPolicy::Automatic {
            floor,
            ceiling,
            budget,
        } = &mut self.link.credit
        else {
            return false;
        };
        match name {
            "credit_floor" => *floor = number,
            "credit_ceiling" => *ceiling = number,
            "credit_budget" => *budget = number,
            _ => return false,
        }
        true
    }

    /// Sets a time by its name (`None` is off); answers whether there is one of that name.
    pub(crate) fn set_time(&mut self, name: &str, time: Option<Duration>) -> Result<bool, String> {
        let required = || time.ok_or_else(|| format!("{name} must be above 0"));
        match name {
            "connect_timeout_ms" => self.connect_timeout = required()?,
            "reconnect_max_ms" => self.reconnect_max = required()?,
            "ping_after_ms" => self.link.ping_after = time,
            "pong_timeout_ms" => self.link.pong_timeout = time,
            "chunk_receive_timeout_ms" => self.link.chunk_receive_timeout = time,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses what nothing could be received with.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.link.credit == CreditPolicy::Manual {
            return Err("credit of a receiver is automatic".to_owned());
        }
        let (bytes, most) = (self.max_opening_bytes, Self::MOST_OPENING_BYTES);
        if bytes > most {
            return Err(format!("max_opening_bytes is {bytes}; at most {most} fits"));
        }
        self.link.check().map_err(|error| error.to_string())
    }

    /// What a connection of a receiver with this memory is told.
    pub(super) fn intake(&self, budget: &Budget, stream: Option<Bytes>) -> IntakeConfig {
        IntakeConfig {
            machine: Config {
                // A consumer's commit may be long in coming: memory and the limit of entities bound them.
                most_held_closes: u32::MAX,
                parts: false,
                ..self.link.machine(budget)
            },
            max_opening_bytes: self.max_opening_bytes,
            most_incomplete: most_incomplete(budget),
            quota: budget.quota(),
            stream,
        }
    }
}

/// The entry of this protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    scheme: super::SCHEME,
    description: &ackline_bpmux::Description,
    layouts: || vec![Arc::new(MessageLayout)],
    endpoint: |url| Address::parse(url).map(|address| address.endpoint),
    waits: true,
    has_names: false,
    bound: |_, listener| listener.url().to_owned(),
    accept: accepting,
    subscribe: Some(subscribe),
};

fn accepting(
    site: Site,
    shared: &Arc<Shared>,
    options: &ReceiverOptions,
) -> Result<Accepting, ReceiverError> {
    for url in &site.urls {
        let address = Address::parse(url).map_err(ReceiverError::Usage)?;
        if address.stream.is_some() {
            let endpoint = address.endpoint;
            return Err(ReceiverError::Usage(format!(
                "{endpoint}: stream is for a URL that the receiver connects to"
            )));
        }
    }
    let own = options.bpmux.clone();
    let make = move |budget: &Budget| MessageIngest::new(own.intake(budget, None));
    Ok(Box::pin(accept(site.listener, Arc::clone(shared), make)))
}
