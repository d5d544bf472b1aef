//! How many connections there are, in all and of each address. A slot is held from the moment a connection
//! is accepted to its end, also while its PROXY header or TLS handshake is awaited.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline_core::LimitHit;

/// The slots of a front.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    limit_per_address: Option<usize>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

impl Slots {
    pub(super) fn new(limit: usize, limit_per_address: Option<usize>) -> Self {
        Self {
            limit,
            limit_per_address,
            taken: Mutex::default(),
        }
    }

    /// A slot; of an address only once it is [claimed](Slot::claim).
    pub(super) fn take(self: &Arc<Self>) -> Result<Slot, LimitHit> {
        let mut taken = self.lock();
        if taken.all >= self.limit {
            return Err(hit(taken.all, self.limit, MAX_CONNECTIONS));
        }
        taken.all += 1;
        drop(taken);
        Ok(Slot {
            slots: Arc::clone(self),
            place: None,
        })
    }

    pub(super) fn taken(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to one connection; dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    place: Option<IpAddr>,
}

impl Slot {
    /// Counts the connection for its client's [place](place), if there is a limit for it.
    pub(super) fn claim(&mut self, address: IpAddr) -> Result<(), LimitHit> {
        let Some(limit) = self.slots.limit_per_address else {
            return Ok(());
        };
        let place = place(address);
        let mut taken = self.slots.lock();
        let count = taken.of.entry(place).or_insert(0);
        if *count >= limit {
            return Err(hit(*count, limit, MAX_PER_ADDRESS));
        }
        *count += 1;
        self.place = Some(place);
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.all -= 1;
        if let Some(place) = self.place
            && let Some(count) = taken.of.get_mut(&place)
        {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&place);
            }
        }
    }
}

/// Where an address counts: one of IPv6 with its /64, which a single host owns whole.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn hit(taken: usize, limit: usize, option: &'static str) -> LimitHit {
    let to_u64 = crate::budget::to_u64;
    LimitHit {
        value: to_u64(taken.saturating_add(1)),
        limit: to_u64(limit),
        option,
    }
}

const MAX_CONNECTIONS: &str = "--max-connections";
const MAX_PER_ADDRESS: &str = "--max-connections-per-address";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_with_their_connections() {
        let slots = Arc::new(Slots::new(2, Some(1)));
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let mut first = slots.take().unwrap();
        let mut second = slots.take().unwrap();
        let full = slots.take().unwrap_err();
        assert_eq!(
            (full.value, full.limit, full.option),
            (3, 2, MAX_CONNECTIONS)
        );
        first.claim(address).unwrap();
        let full = second.claim(address).unwrap_err();
        assert_eq!(
            (full.value, full.limit, full.option),
            (2, 1, MAX_PER_ADDRESS)
        );
        second.claim("10.0.0.2".parse().unwrap()).unwrap();
        drop(first);
        drop(second);
        assert_eq!(slots.taken(), 0);
        assert!(slots.lock().of.is_empty());
    }

    #[test]
    fn an_address_of_ipv6_counts_with_its_64() {
        let slots = Arc::new(Slots::new(100, Some(1)));
        let claim = |address: &str| {
            let mut slot = slots.take().unwrap();
            slot.claim(address.parse().unwrap()).map(|()| slot)
        };
        let _held = [
            "2001:db8:0:1::1",
            "2001:db8:0:2::1",
            "::ffff:10.0.0.1",
            "::ffff:10.0.0.2",
        ]
        .map(|address| claim(address).unwrap());
        for same in [
            "2001:db8:0:1::1",
            "2001:db8:0:1::2",
            "2001:db8:0:1:ffff:ffff:ffff:ffff",
            "2001:db8:0:2:8000::",
            "10.0.0.1",
        ] {
            assert!(claim(same).is_err(), "{same}");
        }
        for other in ["2001:db8:0:0:ffff::", "2001:db8:0:3::", "10.0.0.3"] {
            drop(claim(other).unwrap());
        }
    }
}
