//! Which hosts number every window from 1, over their connections: a sender whose window could not be read
//! comes back with that window first.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Hosts remembered; one more is not.
const MAX_HOSTS: usize = 10_000;

/// What was seen of each host. Behind one address there may be several senders: one that numbers
/// otherwise speaks for all of them.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    run_from_one: Mutex<HashMap<String, bool>>,
}

impl Hosts {
    /// Whether every window of the host's connections so far ran from 1, and there was one.
    pub(super) fn runs_from_one(&self, host: &str) -> bool {
        let known = self
            .run_from_one
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.get(host).copied().unwrap_or(false)
    }

    /// A connection of the host showed how it numbers.
    pub(super) fn learn(&self, host: &str, runs: bool) {
        let mut known = self
            .run_from_one
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.get_mut(host) {
            *before &= runs;
        } else if known.len() < MAX_HOSTS {
            known.insert(host.to_owned(), runs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sender_that_numbers_otherwise_speaks_for_its_host() {
        let hosts = Hosts::default();
        assert!(!hosts.runs_from_one("a"));
        hosts.learn("a", true);
        hosts.learn("b", true);
        assert!(hosts.runs_from_one("a"));
        hosts.learn("a", false);
        hosts.learn("a", true);
        assert!(!hosts.runs_from_one("a"));
        assert!(hosts.runs_from_one("b"));
    }

    #[test]
    fn no_more_hosts_are_remembered_than_the_limit() {
        let hosts = Hosts::default();
        for host in 0..=MAX_HOSTS {
            hosts.learn(&host.to_string(), true);
        }
        assert!(hosts.runs_from_one("0"));
        assert!(!hosts.runs_from_one(&MAX_HOSTS.to_string()));
    }
}
