//! Entities and requests that the peer has begun and nobody has accepted, in the order in which they came.

use std::collections::VecDeque;

use ackline_core::Payload;

use super::Serial;
use crate::EntityKind;

/// An entity or a request that the peer has begun.
#[derive(Debug)]
pub struct Arrival {
    /// The kind of an entity; none of a request.
    pub kind: Option<EntityKind>,
    /// The number of its place.
    pub serial: Serial,
    /// Its first payload.
    pub payload: Payload,
}

/// All of them. Later ones have larger serials.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    openings: VecDeque<Arrival>,
    requests: VecDeque<Arrival>,
}

impl Arrivals {
    pub(super) fn is_empty(&self) -> bool {
        self.openings.is_empty() && self.requests.is_empty()
    }

    pub(super) fn push(&mut self, arrival: Arrival) {
        match arrival.kind {
            Some(_) => self.openings.push_back(arrival),
            None => self.requests.push_back(arrival),
        }
    }

    /// Whether there is an opening.
    pub(super) fn has_opening(&self) -> bool {
        !self.openings.is_empty()
    }

    /// The first request, if it came before every opening that is here.
    pub(super) fn request_in_turn(&self) -> Option<&Arrival> {
        let request = self.requests.front()?;
        let opening = self.openings.front();
        opening
            .is_none_or(|opening| request.serial < opening.serial)
            .then_some(request)
    }

    pub(super) fn take_request(&mut self) -> Option<Arrival> {
        self.requests.pop_front()
    }

    pub(super) fn take_opening(&mut self) -> Option<Arrival> {
        self.openings.pop_front()
    }

    pub(super) fn serials(&self) -> impl Iterator<Item = Serial> + '_ {
        let all = self.openings.iter().chain(&self.requests);
        all.map(|arrival| arrival.serial)
    }
}
