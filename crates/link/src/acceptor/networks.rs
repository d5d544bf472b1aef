//! Lists of networks, as operators write them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Networks such as `10.0.0.0/8,2001:db8::/32,127.0.0.1`; an address alone is a network of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a network of the list contains `address`. An IPv4 address that came over an IPv6
    /// socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&shown.join(","))
    }
}

impl FromStr for Networks {
    type Err = String;

    /// Parses a list. An empty text is an error: an option that is set must mean something.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',')
            .map(|one| network(one.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address.to_canonical()));
    }
    let network: IpNet = text
        .parse()
        .map_err(|_| format!("{text:?} is not a network such as 10.0.0.0/8 or 2001:db8::/32"))?;
    if network.trunc() == network {
        return Ok(as_ipv4(network));
    }
    // 10.0.0.7/8 may mean 10.0.0.7 or 10.0.0.0/8: the user must decide.
    Err(format!(
        "{text:?} has bits after its prefix: write {} or the address alone",
        network.trunc()
    ))
}

/// `::ffff:10.0.0.0/104` as `10.0.0.0/8`: a client from there counts as IPv4. Wider IPv6 networks
/// contain no IPv4 address.
fn as_ipv4(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let parts = (
        mapped.addr().to_ipv4_mapped(),
        mapped.prefix_len().checked_sub(MAPPED_BITS),
    );
    let (Some(address), Some(bits)) = parts else {
        return network;
    };
    Ipv4Net::new(address, bits).map_or(network, IpNet::V4)
}

/// Bits before the IPv4 address in an IPv6 address that stands for one (RFC 4291, 2.5.5.2).
const MAPPED_BITS: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_hold_their_addresses() {
        let networks: Networks = "10.0.0.0/8, 2001:db8::/32,127.0.0.1".parse().unwrap();
        for inside in ["10.255.0.1", "2001:db8::7", "127.0.0.1", "::ffff:10.1.1.1"] {
            assert!(networks.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["11.0.0.1", "2001:db9::7", "127.0.0.2", "::1"] {
            assert!(!networks.contains(outside.parse().unwrap()), "{outside}");
        }
        assert!(!Networks::default().contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn networks_of_mapped_addresses_are_those_of_ipv4() {
        for (text, inside, outside) in [
            ("::ffff:127.0.0.0/104", "127.1.2.3", "128.0.0.1"),
            ("::ffff:10.0.0.0/127", "10.0.0.1", "10.0.0.2"),
            ("::ffff:0.0.0.0/96", "192.0.2.7", "::1"),
            ("::ffff:192.0.2.7/128", "::ffff:192.0.2.7", "192.0.2.8"),
        ] {
            let networks: Networks = text.parse().unwrap();
            assert!(networks.contains(inside.parse().unwrap()), "{text}");
            assert!(!networks.contains(outside.parse().unwrap()), "{text}");
        }
        let six: Networks = "2001:db8::/104".parse().unwrap();
        assert!(six.contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn a_wrong_network_is_named() {
        for text in [
            "",
            "10.0.0.0/8,",
            "10.0.0.7/8",
            "10.0.0.0/33",
            "localhost",
            "::/129",
        ] {
            let error = text.parse::<Networks>().unwrap_err();
            let named = text.rsplit(',').next().unwrap();
            assert!(error.contains(named), "{error}");
        }
    }
}
