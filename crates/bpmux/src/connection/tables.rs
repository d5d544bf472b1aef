//! The tables by id: entities, requests and payloads that have come in part. Those of the peer are counted against the
//! limits, and against the memory that all connections may keep.

use std::sync::Arc;

use ackline_core::{LimitHit, Quota, Share, Table};

use super::assembly::Assembly;
use super::entities::Entities;
use super::entity::{Entity, OwnEnd, PeerEnd};
use super::requests::{PeerRequest, Requests};
use super::window::{Window, payer};
use crate::chunk::PayloadRole;
use crate::error::Subject;
use crate::{Kind, Limits, Target};

/// Bytes of open entities and requests that every connection has free of charge.
pub const FREE_BYTES: u64 = 64 << 10;

/// Bytes that a sink, stream or duplex of the peer takes, about: its halves, its places in the tables here and in the
/// driver, which may be half empty, and the credit that is announced for it.
pub const ENTITY_BYTES: u64 = 1_024;

/// Bytes that a request of the peer takes, about.
pub const REQUEST_BYTES: u64 = 512;

/// The tables of a connection.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) entities: Entities,
    pub(super) requests: Requests,
    /// Payloads that have come in part, but for messages, which their halves keep.
    partials: Table<PayloadRole, Assembly>,
    share: Share,
}

/// A payload that has come in part, and the window that it counts against.
#[derive(Debug)]
pub(super) struct Partial<'a> {
    pub(super) assembly: &'a mut Assembly,
    pub(super) window: &'a mut Window,
}

/// Entities and requests of the peer that are about to begin.
#[derive(Debug, Clone, Copy, Default)]
struct Beginning {
    entities: u64,
    requests: u64,
}

impl Tables {
    /// Whether it is not over.
    pub(super) fn exists(&self, subject: Subject) -> bool {
        match subject {
            Subject::Entity(Target::Top) => true,
            Subject::Entity(target) => self.entities.get(target).is_some(),
            Subject::OwnRequest(id) => self.requests.own.contains_key(&id),
            Subject::PeerRequest(id) => self.requests.peer.contains_key(&id),
        }
    }

    /// Whether an entity or a request keeps the connection open.
    pub(super) fn keep_open(&self) -> bool {
        self.requests.keep_open() || self.entities.keep_open()
    }

    /// Charges the peer's entities and requests to `quota`.
    pub(super) fn share(&mut self, quota: Arc<Quota>) {
        self.share = Share::of(quota, self.cost(Beginning::default()));
    }

    /// Charges the quota less, after something of the peer's is over.
    pub(super) fn keep_less(&mut self) {
        let kept = self.cost(Beginning::default());
        self.share.set(kept);
    }

    fn keep_more(&mut self, beginning: Beginning) -> Result<(), Kind> {
        let wanted = self.cost(beginning);
        self.share.change(wanted).map_err(|hit| Kind::Memory {
            what: "sinks, streams, duplexes and requests that are open",
            part: "half of the part that other connections leave of a quarter",
            hit,
        })
    }

    fn cost(&self, beginning: Beginning) -> u64 {
        let cost = |open: usize, more: u64, each: u64| {
            let open = u64::try_from(open).unwrap_or(u64::MAX);
            open.saturating_add(more).saturating_mul(each)
        };
        // A cancel that has begun of a request that is not there keeps as much as a request.
        let requests = self.requests.peer.len().saturating_add(self.late_cancels());
        let entities = self.entities.peer.len();
        cost(entities, beginning.entities, ENTITY_BYTES)
            .saturating_add(cost(requests, beginning.requests, REQUEST_BYTES))
            .saturating_sub(FREE_BYTES)
    }

    /// The least number of unfinished cancels of requests that are not there: all other payloads in parts belong to
    /// something in a table.
    fn late_cancels(&self) -> usize {
        if self.partials.is_empty() {
            return 0;
        }
        let (entities, requests) = (&self.entities, &self.requests);
        let tables = [entities.own.len(), entities.peer.len()];
        let tables = tables
            .into_iter()
            .chain([requests.own.len(), requests.peer.len()]);
        let others = tables.fold(1, usize::saturating_add).saturating_mul(2);
        self.partials.len().saturating_sub(others)
    }

    /// The first chunk of a payload of the peer's begins.
    pub(super) fn begin(&mut self, role: PayloadRole, limits: Limits) -> Result<(), Kind> {
        match role {
            PayloadRole::Open(kind, id) if !self.entities.peer.contains_key(&id) => {
                let count = self.entities.peer.len();
                one_more(count, limits.max_entities, "--max-entities")?;
                self.keep_more(Beginning {
                    entities: 1,
                    requests: 0,
                })?;
                self.entities.peer.insert(id, Entity::new(kind, false));
            }
            PayloadRole::Request(id) if !self.requests.peer.contains_key(&id) => {
                self.keep_request(self.requests.peer.len(), limits)?;
                self.requests.peer.insert(id, PeerRequest::default());
            }
            // The peer has not seen the answer yet, so the request is not over for it.
            PayloadRole::CancelRequest(id) if !self.requests.peer.contains_key(&id) => {
                self.keep_request(self.late_cancels(), limits)?;
            }
            PayloadRole::Close(target) => {
                if let Some(reader) = self.entities.reader(target) {
                    reader.peer_end = PeerEnd::Begun;
                }
            }
            PayloadRole::CloseResponse(id) => {
                if let Some(request) = self.requests.own.get_mut(&id) {
                    request.peer_end = PeerEnd::Begun;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn keep_request(&mut self, count: usize, limits: Limits) -> Result<(), Kind> {
        one_more(count, limits.max_requests, "--max-requests")?;
        self.keep_more(Beginning {
            entities: 0,
            requests: 1,
        })
    }

    /// Whether a payload that begins now is dropped: the half or the top-level that it comes on was cancelled (R-BPM-15,
    /// R-BPM-27).
    pub(super) fn is_unwanted(&mut self, role: PayloadRole) -> bool {
        match role {
            PayloadRole::Message(target) => self
                .entities
                .reader(target)
                .is_some_and(|reader| reader.own_end == OwnEnd::Sent),
            PayloadRole::Open(..) | PayloadRole::Request(_) => self.entities.refuses_openings(),
            _ => false,
        }
    }

    /// Returns a payload that has come in part.
    pub(super) fn partial(&mut self, role: PayloadRole) -> Option<Partial<'_>> {
        let reader = self.entities.reader(payer(role))?;
        let window = &mut reader.window;
        let assembly = match role {
            PayloadRole::Message(_) => reader.message.as_mut()?,
            _ => self.partials.get_mut(&role)?,
        };
        Some(Partial { assembly, window })
    }

    /// Takes a payload out that has come in part.
    pub(super) fn take_partial(&mut self, role: PayloadRole) -> Option<Assembly> {
        match role {
            PayloadRole::Message(target) => self.entities.reader(target)?.message.take(),
            // Most payloads come in one chunk.
            _ if self.partials.is_empty() => None,
            _ => self.partials.remove(&role),
        }
    }

    /// Keeps a payload that has come in part.
    pub(super) fn put_partial(&mut self, role: PayloadRole, assembly: Assembly) {
        if let PayloadRole::Message(target) = role {
            if let Some(reader) = self.entities.reader(target) {
                reader.message = Some(assembly);
            }
        } else {
            self.partials.insert(role, assembly);
        }
    }

    /// Whether a payload has come in part. Messages are not looked at.
    pub(super) fn is_partial(&self, role: PayloadRole) -> bool {
        !self.partials.is_empty() && self.partials.contains_key(&role)
    }

    /// Returns the payloads that have come in part, but for messages.
    pub(super) fn partials(&self) -> impl ExactSizeIterator<Item = PayloadRole> + '_ {
        self.partials.keys().copied()
    }

    /// Drops all payloads that have come in part.
    pub(super) fn drop_partials(&mut self) {
        self.partials = Table::default();
        self.entities.drop_messages_in_parts();
    }
}

/// Whether one more than `count` is within a limit.
fn one_more(count: usize, limit: u32, option: &'static str) -> Result<(), Kind> {
    let value = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
    let limit = u64::from(limit);
    if value <= limit {
        return Ok(());
    }
    Err(Kind::Limit(LimitHit {
        value,
        limit,
        option,
    }))
}
