//! The digest that identifies an event when it comes again: 128 bits of BLAKE3 with a key.
//!
//! It is a strong hash even if the key is known, so one function serves both uses: keyed by a spool
//! it recognises duplicates, and nobody can prepare events that collide; keyed by a sender's name
//! it is the same in every spool. 2^64 events are needed before two digests collide by chance.

/// The attribute of a block that names its sender, if its peer's address does not.
pub const SENDER: &str = "sender";

/// Makes digests of events.
#[derive(Debug, Clone)]
pub struct Digester {
    payload: [u8; 32],
    /// Another key, so that no payload has the digest of parts.
    parts: [u8; 32],
}

impl Digester {
    /// A digester with this key.
    pub fn keyed(key: [u8; 32]) -> Self {
        Self {
            payload: key,
            parts: blake3::derive_key("ackline 1 digest of an event's parts", &key),
        }
    }

    /// The same for the events of one sender everywhere.
    pub fn of_sender(sender: &str) -> Self {
        let context = "ackline 1 digest of a sender's event";
        Self::keyed(blake3::derive_key(context, sender.as_bytes()))
    }

    /// The digest of an event of one payload.
    pub fn payload(&self, payload: &[u8]) -> u128 {
        half(&blake3::keyed_hash(&self.payload, payload))
    }

    /// The digest of an event of several parts.
    pub fn parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> u128 {
        let mut hasher = blake3::Hasher::new_keyed(&self.parts);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        half(&hasher.finalize())
    }
}

/// Returns the sender of a block: the attribute [`SENDER`], else the host of its peer's address.
pub fn sender_of<'a>(
    peer: &'a str,
    mut attributes: impl Iterator<Item = (&'a str, &'a str)>,
) -> &'a str {
    let named = attributes.find(|(name, _)| *name == SENDER);
    named.map_or_else(|| host_of(peer), |(_, sender)| sender)
}

/// `10.0.0.7` of `10.0.0.7:50312`, `2001:db8::1` of `[2001:db8::1]:9`, else all of it.
fn host_of(peer: &str) -> &str {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn half(hash: &blake3::Hash) -> u128 {
    let (half, _) = hash
        .as_bytes()
        .split_first_chunk::<16>()
        .expect("a hash has 32 bytes");
    u128::from_le_bytes(*half)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(digester: &Digester, parts: &[&[u8]]) -> u128 {
        digester.parts(parts.iter().copied())
    }

    #[test]
    fn an_event_has_a_digest_of_its_own() {
        let digester = Digester::keyed([7; 32]);
        let all = [
            digester.payload(b""),
            digester.payload(b"ab"),
            parts(&digester, &[]),
            parts(&digester, &[b"ab"]),
            parts(&digester, &[b"a", b"b"]),
            parts(&digester, &[b"", b"ab"]),
            Digester::keyed([8; 32]).payload(b"ab"),
            Digester::of_sender("a").payload(b"ab"),
            Digester::of_sender("b").payload(b"ab"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }

    #[test]
    fn a_digest_is_the_same_in_every_release() {
        let digest = Digester::of_sender("10.0.0.7").payload(b"{}");
        assert_eq!(format!("{digest:032x}"), "2a3b04224f27e4e3593b5a1104fda913");
    }

    #[test]
    fn a_sender_is_the_host_of_its_address_unless_it_has_a_name() {
        let of = |peer, attributes: &[(&'static str, &'static str)]| {
            sender_of(peer, attributes.iter().copied()).to_owned()
        };
        assert_eq!(of("10.0.0.7:50312", &[("proxy", "x")]), "10.0.0.7");
        assert_eq!(of("[2001:db8::1]:9", &[]), "2001:db8::1");
        assert_eq!(of("unix", &[]), "unix");
        assert_eq!(of("10.0.0.7:1", &[("sender", "tls:CN=a")]), "tls:CN=a");
    }
}
