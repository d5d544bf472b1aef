//! Requests of both ends that are not over.

use ackline_core::{Table, UsageError};

use super::entity::{OwnEnd, PeerEnd, Status};
use super::ids::Ids;
use crate::error::Subject;
use crate::{Kind, refusal};

/// A request of this end.
#[derive(Debug, Default)]
pub(super) struct OwnRequest {
    /// Whether it was sent whole.
    pub(super) sent: bool,
    /// The state of its cancel.
    pub(super) own_end: OwnEnd,
    /// The state of its close by the peer.
    pub(super) peer_end: PeerEnd,
    /// Whether a response came that is dropped, as it crossed the cancel.
    pub(super) crossed: bool,
}

/// A request of the peer.
#[derive(Debug, Default)]
pub(super) struct PeerRequest {
    pub(super) status: Status,
    /// Whether the application has responded.
    pub(super) responded: bool,
    /// The state of the close of the response.
    pub(super) own_end: OwnEnd,
    /// Whether the peer has cancelled it.
    pub(super) cancelled: bool,
}

impl PeerRequest {
    /// Whether it has come whole.
    pub(super) fn is_complete(&self) -> bool {
        self.status != Status::Incomplete
    }
}

/// The requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) own: Table<u32, OwnRequest>,
    pub(super) peer: Table<u32, PeerRequest>,
    free_ids: Ids,
    /// The number of own requests whose response has crossed their cancel.
    crossed: usize,
    /// The number of the peer's requests that have come whole.
    peer_complete: usize,
}

impl Requests {
    /// Returns an id that no own request has.
    pub(super) fn free_id(&mut self) -> Result<u32, UsageError> {
        let own = &self.own;
        self.free_ids.free_one(|id| own.contains_key(&id))
    }

    /// Begins an own request.
    pub(super) fn insert_own(&mut self, id: u32) -> Result<(), UsageError> {
        if self.own.contains_key(&id) {
            return Err(refusal::ID_IN_USE);
        }
        self.own.insert(id, OwnRequest::default());
        Ok(())
    }

    /// Returns an own request that was sent whole, for a chunk of the peer.
    pub(super) fn sent(&self, id: u32) -> Result<&OwnRequest, Kind> {
        let sent = self.own.get(&id).filter(|request| request.sent);
        sent.ok_or(Kind::UnknownId {
            what: Subject::OwnRequest(id),
        })
    }

    /// A response has crossed the cancel of an own request.
    pub(super) fn response_crossed(&mut self, id: u32) {
        if let Some(request) = self.own.get_mut(&id) {
            let was_counted = std::mem::replace(&mut request.crossed, true);
            let more = usize::from(!was_counted);
            self.crossed = self.crossed.saturating_add(more);
        }
    }

    /// The peer's request has come whole.
    pub(super) fn complete(&mut self, id: u32, is_refused: bool) {
        if let Some(request) = self.peer.get_mut(&id) {
            request.status = Status::complete(is_refused);
            if is_refused {
                request.own_end = OwnEnd::Sent;
            }
            self.peer_complete = self.peer_complete.saturating_add(1);
        }
    }

    /// Returns a request of the peer that can still be responded to.
    pub(super) fn unanswered(&mut self, id: u32) -> Result<&mut PeerRequest, UsageError> {
        let request = self.peer.get_mut(&id);
        let open = request.filter(|request| request.status == Status::Open);
        let open = open.ok_or(refusal::UNKNOWN_ID)?;
        if open.responded || open.own_end.is_called() || open.cancelled {
            return Err(refusal::ALREADY_ENDED);
        }
        Ok(open)
    }

    /// An own request is over, and its id free.
    pub(super) fn forget_own(&mut self, id: u32) {
        if let Some(request) = self.own.remove(&id) {
            self.free_ids.free(id);
            let less = usize::from(request.crossed);
            self.crossed = self.crossed.saturating_sub(less);
        }
    }

    /// A request of the peer is over.
    pub(super) fn forget_peer(&mut self, id: u32) {
        let gone = self.peer.remove(&id);
        let less = usize::from(gone.is_some_and(|request| request.is_complete()));
        self.peer_complete = self.peer_complete.saturating_sub(less);
    }

    /// Whether a request keeps the connection open. The peer may be gone before the cancel arrives that a response has
    /// crossed, so such a request does not.
    pub(super) fn keep_open(&self) -> bool {
        self.own.len() > self.crossed || self.peer_complete > 0
    }

    /// The number of the peer's requests that have come whole.
    pub(super) const fn peer_complete(&self) -> usize {
        self.peer_complete
    }

    /// The number of own requests whose response has crossed their cancel.
    pub(super) const fn crossed(&self) -> usize {
        self.crossed
    }

    /// The number of free ids that are kept.
    pub(super) fn free_ids_kept(&self) -> usize {
        self.free_ids.kept()
    }

    /// Returns the ids of all own requests, the lowest first.
    pub(super) fn own_ids(&self) -> Vec<u32> {
        let mut ids: Vec<_> = self.own.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}
