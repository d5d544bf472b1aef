//! The peer that carried a link last, noted beside the link's changes: a message that is received after a
//! restart, before the link's connector has come back, is still known to be from that peer. The peer is noted
//! with the next change that is written, so that it costs no write of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline_link::PeerInfo;

use ackline_relink::record::KeptPeer;

/// The peer of a link's last transport. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carried(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    peer: Option<PeerInfo>,
    /// It stands in the journal.
    is_written: bool,
}

impl Carried {
    /// The link has a transport of this peer's.
    pub(crate) fn by(&self, peer: &PeerInfo) {
        let mut noted = self.lock();
        if noted.peer.as_ref() != Some(peer) {
            noted.peer = Some(peer.clone());
            noted.is_written = false;
        }
    }

    /// The peer, if it is known.
    pub(crate) fn peer(&self) -> Option<PeerInfo> {
        self.lock().peer.clone()
    }

    /// Takes the peer from a journal.
    pub(super) fn read(&self, kept: KeptPeer) {
        let mut peer = PeerInfo::unix(None);
        peer.name = kept.name;
        peer.sender = kept.sender;
        peer.attributes = kept.attributes;
        *self.lock() = Noted {
            peer: Some(peer),
            is_written: true,
        };
    }

    /// Appends its record, if it does not stand in the journal.
    pub(super) fn write_news(&self, out: &mut Vec<u8>) {
        if !self.lock().is_written {
            self.write(out);
        }
    }

    /// Appends its record.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut noted = self.lock();
        noted.is_written = true;
        if let Some(peer) = noted.peer.clone() {
            let kept = KeptPeer {
                name: peer.name,
                sender: peer.sender,
                attributes: peer.attributes,
            };
            kept.encode(out);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ackline_relink::record::{Record, decode_all};

    use super::*;

    #[test]
    fn a_peer_is_written_once_and_again_when_it_is_another() {
        let read_back = |record: &[u8]| {
            let carried = Carried::default();
            for one in decode_all(record).unwrap() {
                let Record::Carried(kept) = one else {
                    panic!("{one:?}");
                };
                carried.read(kept);
            }
            carried
        };
        let carried = Carried::default();
        let written = |carried: &Carried| {
            let mut out = Vec::new();
            carried.write_news(&mut out);
            out
        };
        assert!(written(&carried).is_empty());
        let first = PeerInfo::tcp("192.0.2.1:1".parse().unwrap());
        carried.by(&first);
        let record = written(&carried);
        assert_eq!(read_back(&record).peer(), Some(first.clone()));
        carried.by(&first);
        assert!(written(&carried).is_empty());
        let other = PeerInfo::tcp("192.0.2.1:2".parse().unwrap());
        carried.by(&other);
        assert!(!written(&carried).is_empty());
        assert_eq!(carried.peer(), Some(other.clone()));

        let mut record = Vec::new();
        carried.write(&mut record);
        let again = read_back(&record);
        again.by(&other);
        assert!(written(&again).is_empty(), "it stands there");
        let mut whole = Vec::new();
        again.write(&mut whole);
        assert_eq!(read_back(&whole).peer(), Some(other));
    }
}
