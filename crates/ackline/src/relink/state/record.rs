//! Changes of a link as bytes, and back. Numbers are little-endian; nothing is sized by a number that was
//! not checked against the bytes that are there.

use std::sync::Arc;

use ackline_core::Sequence;
use ackline_link::PeerInfo;
use ackline_relink::frame::{EndpointName, Operation, Parameters};
use ackline_relink::{Change, ChannelId, LinkKey, Payload, Side};
use bytes::Bytes;

/// Where a link comes from: the first record of its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) endpoint_name: EndpointName,
    pub(crate) parameters: Parameters,
    /// The identity of TLS that the link belongs to.
    pub(crate) owner: Option<Arc<str>>,
}

impl Origin {
    /// Appends the record.
    pub(in crate::relink) fn encode(&self, out: &mut Vec<u8>) {
        let parameters = &self.parameters;
        out.push(ORIGIN);
        out.extend_from_slice(&[
            parameters.connector_channel_id_size,
            parameters.listener_channel_id_size,
            u8::from(parameters.connector_transactions),
            u8::from(parameters.listener_transactions),
            u8::from(self.owner.is_some()),
        ]);
        put_bytes(self.endpoint_name.as_str().as_bytes(), out);
        put_bytes(self.owner.as_deref().unwrap_or_default().as_bytes(), out);
    }

    /// The record at the front of `input`.
    pub(in crate::relink) fn decode(input: &mut &[u8]) -> Option<Self> {
        let [ORIGIN, connector, listener, own, peers, is_owned] = *take(input)? else {
            return None;
        };
        let name = str::from_utf8(take_bytes(input)?).ok()?;
        let owner = str::from_utf8(take_bytes(input)?).ok()?;
        Some(Self {
            endpoint_name: EndpointName::try_from(name).ok()?,
            parameters: Parameters {
                connector_channel_id_size: connector,
                listener_channel_id_size: listener,
                connector_transactions: own != 0,
                listener_transactions: peers != 0,
            },
            owner: (is_owned != 0).then(|| owner.into()),
        })
    }
}

/// Appends the record of a change.
pub(in crate::relink) fn encode(change: &Change, out: &mut Vec<u8>) {
    let mut put = |kind: u8, channel: &ChannelId, through: Sequence| {
        out.push(kind);
        put_channel(channel, out);
        out.extend_from_slice(&through.0.to_le_bytes());
    };
    match change {
        Change::Established(key) => {
            out.push(ESTABLISHED);
            out.extend_from_slice(&key.epoch.to_le_bytes());
            out.extend_from_slice(&key.link_id.to_le_bytes());
        }
        Change::Sent {
            channel,
            sequence,
            payload,
        } => {
            put(SENT, channel, *sequence);
            out.extend_from_slice(&to_u32(payload.len()).to_le_bytes());
            payload.parts().for_each(|part| put_bytes(&part, out));
        }
        Change::HandedOver { channel, through } => put(HANDED_OVER, channel, *through),
        Change::Acknowledged { channel, through } => put(ACKNOWLEDGED, channel, *through),
        Change::Decided {
            channel,
            operation,
            through,
        } => {
            let is_commit = *operation == Operation::Commit;
            let kind = if is_commit { COMMITTED } else { ROLLED_BACK };
            put(kind, channel, *through);
        }
        Change::Outcome { channel, through } => put(OUTCOME, channel, *through),
        Change::Consumed { channel, through } => put(CONSUMED, channel, *through),
        Change::Answered {
            channel,
            committed,
            through,
        } => {
            let kind = if *committed { SUCCEEDED } else { FAILED };
            put(kind, channel, *through);
        }
        Change::Closing { channel } => {
            out.push(CLOSING);
            put_channel(channel, out);
        }
        Change::CloseLeaves { channel } => {
            out.push(CLOSE_LEAVES);
            put_channel(channel, out);
        }
        Change::Closed { side, channel } => {
            out.push(match side {
                Side::Outgoing => OWN_CLOSED,
                Side::Incoming => PEERS_CLOSED,
            });
            put_channel(channel, out);
        }
        Change::Shutdown => out.push(SHUTDOWN),
    }
}

/// Appends where a channel of the peer's has ended in the spool that its messages are landed in.
pub(super) fn encode_end(channel: &ChannelId, position: u64, out: &mut Vec<u8>) {
    out.push(ENDED_AT);
    put_channel(channel, out);
    out.extend_from_slice(&position.to_le_bytes());
}

/// Such a record at the front of `input`, if it is one.
pub(super) fn decode_end(input: &mut &[u8]) -> Option<(ChannelId, u64)> {
    let mut rest = input.strip_prefix(&[ENDED_AT])?;
    let channel = channel(&mut rest)?;
    let position = u64::from_le_bytes(*take(&mut rest)?);
    *input = rest;
    Some((channel, position))
}

/// Appends the peer that carried the link last.
pub(super) fn encode_peer(peer: &PeerInfo, out: &mut Vec<u8>) {
    out.push(CARRIED_BY);
    put_bytes(peer.name.as_bytes(), out);
    put_bytes(peer.sender.as_bytes(), out);
    out.extend_from_slice(&to_u32(peer.attributes.len()).to_le_bytes());
    for (name, value) in &peer.attributes {
        put_bytes(name.as_bytes(), out);
        put_bytes(value.as_bytes(), out);
    }
}

/// Such a record at the front of `input`, if it is one.
pub(super) fn decode_peer(input: &mut &[u8]) -> Option<PeerInfo> {
    let mut rest = input.strip_prefix(&[CARRIED_BY])?;
    let mut peer = PeerInfo::unix(None);
    peer.name = text(&mut rest)?;
    peer.sender = text(&mut rest)?;
    let count = u32::from_le_bytes(*take(&mut rest)?);
    let attributes = (0..count).map(|_| Some((text(&mut rest)?, text(&mut rest)?)));
    peer.attributes = attributes.collect::<Option<_>>()?;
    *input = rest;
    Some(peer)
}

/// The change at the front of `input`.
pub(in crate::relink) fn decode(input: &mut &[u8]) -> Option<Change> {
    let [kind] = *take(input)?;
    Some(match kind {
        ESTABLISHED => {
            let epoch = u64::from_le_bytes(*take(input)?);
            let link_id = u64::from_le_bytes(*take(input)?);
            Change::Established(LinkKey { epoch, link_id })
        }
        CLOSING => Change::Closing {
            channel: channel(input)?,
        },
        CLOSE_LEAVES => Change::CloseLeaves {
            channel: channel(input)?,
        },
        OWN_CLOSED | PEERS_CLOSED => Change::Closed {
            side: if kind == OWN_CLOSED {
                Side::Outgoing
            } else {
                Side::Incoming
            },
            channel: channel(input)?,
        },
        SHUTDOWN => Change::Shutdown,
        _ => {
            let channel = channel(input)?;
            let through = Sequence(u32::from_le_bytes(*take(input)?));
            with_sequence(kind, channel, through, input)?
        }
    })
}

fn with_sequence(
    kind: u8,
    channel: ChannelId,
    through: Sequence,
    input: &mut &[u8],
) -> Option<Change> {
    Some(match kind {
        SENT => {
            let count = u32::from_le_bytes(*take(input)?);
            let parts = (0..count).map(|_| take_bytes(input).map(Bytes::copy_from_slice));
            Change::Sent {
                channel,
                sequence: through,
                payload: Payload::from_parts(parts.collect::<Option<_>>()?),
            }
        }
        HANDED_OVER => Change::HandedOver { channel, through },
        ACKNOWLEDGED => Change::Acknowledged { channel, through },
        COMMITTED | ROLLED_BACK => Change::Decided {
            channel,
            operation: if kind == COMMITTED {
                Operation::Commit
            } else {
                Operation::Rollback
            },
            through,
        },
        OUTCOME => Change::Outcome { channel, through },
        CONSUMED => Change::Consumed { channel, through },
        SUCCEEDED | FAILED => Change::Answered {
            channel,
            committed: kind == SUCCEEDED,
            through,
        },
        _ => return None,
    })
}

const ORIGIN: u8 = 0;
const ESTABLISHED: u8 = 1;
const SENT: u8 = 2;
const ACKNOWLEDGED: u8 = 3;
const COMMITTED: u8 = 4;
const ROLLED_BACK: u8 = 5;
const OUTCOME: u8 = 6;
const CLOSING: u8 = 7;
const CONSUMED: u8 = 8;
const SUCCEEDED: u8 = 9;
const FAILED: u8 = 10;
const OWN_CLOSED: u8 = 11;
const PEERS_CLOSED: u8 = 12;
const SHUTDOWN: u8 = 13;
const CLOSE_LEAVES: u8 = 14;
const ENDED_AT: u8 = 15;
const CARRIED_BY: u8 = 16;
const HANDED_OVER: u8 = 17;

fn channel(input: &mut &[u8]) -> Option<ChannelId> {
    let [len] = *take(input)?;
    let (id, rest) = input.split_at_checked(usize::from(len))?;
    *input = rest;
    Some(ChannelId::from(id))
}

fn put_channel(channel: &ChannelId, out: &mut Vec<u8>) {
    // An id has at most 255 bytes.
    out.push(u8::try_from(channel.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(channel.as_bytes());
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&to_u32(bytes.len()).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = u32::from_le_bytes(*take(input)?);
    let (bytes, rest) = input.split_at_checked(usize::try_from(count).ok()?)?;
    *input = rest;
    Some(bytes)
}

fn text(input: &mut &[u8]) -> Option<Arc<str>> {
    str::from_utf8(take_bytes(input)?).ok().map(Into::into)
}

fn take<'a, const N: usize>(input: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (front, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(front)
}

/// A group is refused above 4 GiB, so that no part of one is longer.
fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Change> {
        let channel = || ChannelId::from(&[1, 2, 3]);
        let through = Sequence(u32::MAX);
        let parts = [&b"one"[..], b"", b"three"].map(Bytes::from_static);
        vec![
            Change::Established(LinkKey {
                epoch: u64::MAX / 2,
                link_id: 7,
            }),
            Change::Sent {
                channel: ChannelId::IMPLICIT,
                sequence: Sequence(5),
                payload: Payload::from_parts(parts.to_vec()),
            },
            Change::Sent {
                channel: channel(),
                sequence: through,
                payload: Payload::default(),
            },
            Change::HandedOver {
                channel: channel(),
                through,
            },
            Change::Acknowledged {
                channel: ChannelId::from(&[9; 255]),
                through,
            },
            Change::Decided {
                channel: channel(),
                operation: Operation::Commit,
                through,
            },
            Change::Decided {
                channel: channel(),
                operation: Operation::Rollback,
                through,
            },
            Change::Outcome {
                channel: channel(),
                through,
            },
            Change::Closing { channel: channel() },
            Change::CloseLeaves { channel: channel() },
            Change::Consumed {
                channel: channel(),
                through,
            },
            Change::Answered {
                channel: channel(),
                committed: true,
                through,
            },
            Change::Answered {
                channel: channel(),
                committed: false,
                through,
            },
            Change::Closed {
                side: Side::Outgoing,
                channel: channel(),
            },
            Change::Closed {
                side: Side::Incoming,
                channel: channel(),
            },
            Change::Shutdown,
        ]
    }

    fn decoded(mut bytes: &[u8]) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            changes.push(decode(&mut bytes)?);
        }
        Some(changes)
    }

    #[test]
    fn every_change_comes_back_as_it_was() {
        let mut bytes = Vec::new();
        for change in all() {
            encode(&change, &mut bytes);
        }
        assert_eq!(decoded(&bytes).unwrap(), all());
    }

    #[test]
    fn a_record_that_is_cut_is_none() {
        for change in all() {
            let mut bytes = Vec::new();
            encode(&change, &mut bytes);
            for len in 1..bytes.len() {
                assert_eq!(decoded(&bytes[..len]), None, "{change:?} {len}");
            }
        }
        assert_eq!(decoded(&[200, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_peer_comes_back_as_it_was_and_a_part_of_it_is_none() {
        let tcp = PeerInfo::tcp("[2001:db8::1]:7".parse().unwrap());
        for peer in [
            PeerInfo::unix(None),
            tcp.with("proxy", "192.0.2.1").with("ü", ""),
        ] {
            let mut bytes = Vec::new();
            encode_peer(&peer, &mut bytes);
            let mut input = &bytes[..];
            assert_eq!(decode_peer(&mut input), Some(peer));
            assert!(input.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(decode_peer(&mut &bytes[..len]), None);
            }
        }
    }

    #[test]
    fn a_count_of_parts_makes_no_memory() {
        let mut bytes = vec![SENT, 0];
        bytes.extend_from_slice(&[0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(decoded(&bytes), None);
    }

    #[test]
    fn an_origin_comes_back_as_it_was() {
        for owner in [None, Some(""), Some("tls:CN=ü")] {
            let origin = Origin {
                endpoint_name: EndpointName::try_from("orders").unwrap(),
                parameters: Parameters {
                    connector_channel_id_size: 255,
                    listener_transactions: true,
                    ..Parameters::default()
                },
                owner: owner.map(Into::into),
            };
            let mut bytes = Vec::new();
            origin.encode(&mut bytes);
            let mut input = &bytes[..];
            assert_eq!(Origin::decode(&mut input), Some(origin));
            assert!(input.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(Origin::decode(&mut &bytes[..len]), None);
            }
        }
    }
}
