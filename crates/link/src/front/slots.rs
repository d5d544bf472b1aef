//! How many connections there are, in all and of each address. A slot is held from the moment a connection
//! is accepted to its end, also while its PROXY header or TLS handshake is awaited.

use std::collections::HashMap;
use std::net::IpAddr;
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
            address: None,
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
    address: Option<IpAddr>,
}

impl Slot {
    /// Counts the connection for its client's address, if there is a limit for it.
    pub(super) fn claim(&mut self, address: IpAddr) -> Result<(), LimitHit> {
        let Some(limit) = self.slots.limit_per_address else {
            return Ok(());
        };
        let mut taken = self.slots.lock();
        let count = taken.of.entry(address).or_insert(0);
        if *count >= limit {
            return Err(hit(*count, limit, MAX_PER_ADDRESS));
        }
        *count += 1;
        self.address = Some(address);
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.all -= 1;
        if let Some(address) = self.address
            && let Some(count) = taken.of.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&address);
            }
        }
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
}
