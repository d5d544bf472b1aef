//! The registry of a listener: its endpoints, its epoch and its links.
//!
//! It decides which link a connector gets that asks for an endpoint and an old link (REQ-RELINK-13
//! to 21). It does not hold the links themselves, nor decide which peers may use them.
//!
//! Its rules: REQ-RELINK-12, REQ-RELINK-14 to REQ-RELINK-17, REQ-RELINK-19, REQ-RELINK-20, R-REL-29,
//! R-REL-31, R-REL-32.

use std::collections::BTreeMap;

use crate::frame::{EndpointBlock, EndpointName, Ident, Parameters};
use crate::{Kind, LinkKey};

/// One service of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The name that connectors ask for.
    pub endpoint_name: EndpointName,
    /// Channel id sizes and transaction flags. A connector must ask for the same.
    pub parameters: Parameters,
}

/// The answer to a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// A new link.
    New(LinkKey),
    /// The link that it asked for.
    Old(LinkKey),
    /// No link, because the one that it requires is not known (REQ-RELINK-21).
    Lost,
}

/// The listener's registry of links.
#[derive(Debug, Clone)]
pub struct Binder {
    epoch: u64,
    next_link_id: u64,
    endpoints: Vec<EndpointConfig>,
    /// The endpoint of each live link.
    links: BTreeMap<u64, EndpointName>,
}

impl Binder {
    /// A registry without links. `epoch`: microseconds since 1970. Two instances at one address must have different
    /// epochs, unless the second [restores](Self::restore) the links of the first. `next_link_id`: 1 for a new epoch.
    pub fn new(epoch: u64, next_link_id: u64, endpoints: Vec<EndpointConfig>) -> Self {
        Self {
            epoch,
            next_link_id: next_link_id.max(1),
            endpoints,
            links: BTreeMap::new(),
        }
    }

    /// The listener instance.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The id of the next new link, unless a live link has it.
    pub const fn next_link_id(&self) -> u64 {
        self.next_link_id
    }

    /// Sets the id of the next new link, from 1 to 2^63-1; with any other id no new link is made. If a live link has
    /// this id, the new link gets the next free one above it. A listener may draw each id at random (REQ-RELINK-18),
    /// so that a stranger cannot guess the id of another connector's link.
    pub fn set_next_link_id(&mut self, link_id: u64) {
        self.next_link_id = link_id.max(1);
    }

    /// Returns the endpoint with that name.
    pub fn endpoint(&self, name: &EndpointName) -> Option<&EndpointConfig> {
        self.endpoints
            .iter()
            .find(|endpoint| endpoint.endpoint_name == *name)
    }

    /// Decides which link a connector gets, and registers a new one. The checks come in the order name, parameters,
    /// epoch, link id (R-RELINK-V19).
    ///
    /// # Errors
    /// [`Kind::UnknownEndpoint`], [`Kind::ParametersDisagree`], [`Kind::InvalidEpoch`] for a link id
    /// with epoch 0 (R-REL-30), [`Kind::InvalidLinkId`] for one from 2^63 on.
    pub fn decide(&mut self, asked: &EndpointBlock) -> Result<Decision, Kind> {
        let endpoint = self
            .endpoint(&asked.endpoint_name)
            .ok_or_else(|| self.unknown(asked))?;
        if endpoint.parameters != asked.parameters {
            return Err(Kind::ParametersDisagree {
                ours: endpoint.parameters,
                theirs: asked.parameters,
            });
        }
        if asked.old_link_id != 0 && asked.old_epoch == 0 {
            return Err(Kind::InvalidEpoch { epoch: 0 });
        }
        if asked.old_link_id >= LINK_ID_END {
            return Err(Kind::InvalidLinkId {
                link_id: asked.old_link_id,
            });
        }
        let is_known = asked.old_epoch == self.epoch
            && self.links.get(&asked.old_link_id) == Some(&asked.endpoint_name);
        let key = |link_id| LinkKey {
            epoch: self.epoch,
            link_id,
        };
        if is_known {
            return Ok(Decision::Old(key(asked.old_link_id)));
        }
        while self.links.contains_key(&self.next_link_id) {
            self.next_link_id = self.next_link_id.saturating_add(1);
        }
        if asked.require_old_link_id || self.next_link_id >= LINK_ID_END {
            return Ok(Decision::Lost);
        }
        let new = key(self.next_link_id);
        self.next_link_id = self.next_link_id.saturating_add(1);
        self.links.insert(new.link_id, asked.endpoint_name.clone());
        Ok(Decision::New(new))
    }

    fn unknown(&self, asked: &EndpointBlock) -> Kind {
        let names = self.endpoints.iter().map(|one| one.endpoint_name.clone());
        Kind::UnknownEndpoint {
            asked: asked.endpoint_name.clone(),
            served: names.collect(),
        }
    }

    /// Registers a link of an earlier process of this epoch.
    pub fn restore(&mut self, endpoint_name: EndpointName, link_id: u64) {
        self.links.insert(link_id, endpoint_name);
        self.next_link_id = self.next_link_id.max(link_id.saturating_add(1));
    }

    /// Removes a link that is over: a connector that asks for it again gets a new one, or none.
    pub fn forget(&mut self, link_id: u64) {
        self.links.remove(&link_id);
    }

    /// The live links, ascending.
    pub fn links(&self) -> impl Iterator<Item = u64> + '_ {
        self.links.keys().copied()
    }

    /// Returns the ident block for a decision.
    pub const fn ident(&self, decision: Decision) -> Ident {
        let link_id = match decision {
            Decision::New(key) | Decision::Old(key) => key.link_id,
            Decision::Lost => 0,
        };
        Ident {
            epoch: self.epoch,
            link_id,
        }
    }
}

/// The first number above all link ids (REQ-RELINK-18).
pub(crate) const LINK_ID_END: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EndpointName {
        EndpointName::try_from(text).unwrap()
    }

    fn binder() -> Binder {
        let endpoints = ["a", "b"].map(|text| EndpointConfig {
            endpoint_name: name(text),
            parameters: Parameters::default(),
        });
        Binder::new(9, 1, endpoints.to_vec())
    }

    fn asked(text: &str, old_epoch: u64, old_link_id: u64) -> EndpointBlock {
        EndpointBlock {
            endpoint_name: name(text),
            parameters: Parameters::default(),
            require_old_link_id: false,
            wants_hints: false,
            old_epoch,
            old_link_id,
        }
    }

    fn key(link_id: u64) -> LinkKey {
        LinkKey { epoch: 9, link_id }
    }

    #[test]
    fn a_link_belongs_to_its_endpoint_and_is_forgotten() {
        let mut binder = binder();
        assert_eq!(binder.decide(&asked("a", 0, 0)), Ok(Decision::New(key(1))));
        assert_eq!(binder.decide(&asked("a", 9, 1)), Ok(Decision::Old(key(1))));
        assert_eq!(binder.decide(&asked("b", 9, 1)), Ok(Decision::New(key(2))));
        assert_eq!(binder.decide(&asked("a", 8, 1)), Ok(Decision::New(key(3))));
        binder.forget(1);
        assert_eq!(binder.decide(&asked("a", 9, 1)), Ok(Decision::New(key(4))));
        assert_eq!(binder.links().collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_chosen_id_is_given_out_unless_a_live_link_has_it() {
        let mut binder = binder();
        binder.set_next_link_id(1 << 62);
        let chosen = Ok(Decision::New(key(1 << 62)));
        assert_eq!(binder.decide(&asked("a", 0, 0)), chosen);
        binder.set_next_link_id(1 << 62);
        let above = Ok(Decision::New(key((1 << 62) + 1)));
        assert_eq!(binder.decide(&asked("a", 0, 0)), above);
        binder.set_next_link_id(LINK_ID_END - 1);
        let last = Ok(Decision::New(key(LINK_ID_END - 1)));
        assert_eq!(binder.decide(&asked("a", 0, 0)), last);
        assert_eq!(binder.decide(&asked("a", 0, 0)), Ok(Decision::Lost));
        binder.set_next_link_id(0);
        assert_eq!(binder.decide(&asked("a", 0, 0)), Ok(Decision::New(key(1))));
    }

    #[test]
    fn checks_come_in_the_order_name_parameters_epoch_link_id() {
        let mut binder = binder();
        let mut block = asked("x", 0, u64::MAX);
        block.parameters.listener_transactions = true;
        assert_eq!(
            binder.decide(&block),
            Err(Kind::UnknownEndpoint {
                asked: name("x"),
                served: [name("a"), name("b")].into(),
            })
        );
        block.endpoint_name = name("a");
        assert_eq!(
            binder.decide(&block),
            Err(Kind::ParametersDisagree {
                ours: Parameters::default(),
                theirs: block.parameters,
            })
        );
        block.parameters = Parameters::default();
        assert_eq!(binder.decide(&block), Err(Kind::InvalidEpoch { epoch: 0 }));
        block.old_epoch = 9;
        let link_id = u64::MAX;
        assert_eq!(binder.decide(&block), Err(Kind::InvalidLinkId { link_id }));
    }

    #[test]
    fn a_required_link_that_is_not_known_is_lost() {
        let mut binder = binder();
        let mut block = asked("a", 9, 1);
        block.require_old_link_id = true;
        assert_eq!(binder.decide(&block), Ok(Decision::Lost));
        assert_eq!(binder.ident(Decision::Lost).link_id, 0);
        binder.restore(name("a"), 1);
        assert_eq!(binder.decide(&block), Ok(Decision::Old(key(1))));
        assert_eq!(binder.next_link_id(), 2);
    }
}
