//! The records of a link's journal as bytes, and back: the link's origin, its changes, and two notes of the process that
//! keeps it. Numbers are little-endian; no memory is sized by a number that was not checked against the bytes that are
//! there.
//!
//! ```text
//! journal = origin (change | ended | carried)*        each begins with its kind, one byte
//! ```

use std::sync::Arc;

use ackline_core::Sequence;
use bytes::Bytes;

use crate::frame::{EndpointName, Operation, Parameters};
use crate::{Change, ChannelId, LinkKey, Payload, Side};

/// The origin of a link: the first record of its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The endpoint that the link is to.
    pub endpoint_name: EndpointName,
    /// Channel id sizes and transaction flags of the link.
    pub parameters: Parameters,
    /// The identity that the link belongs to.
    pub owner: Option<Arc<str>>,
}

/// The peer of a link's last transport, in the words of the process that keeps the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPeer {
    /// The name of the peer.
    pub name: Arc<str>,
    /// The sender that its limits go by.
    pub sender: Arc<str>,
    /// Further facts by name.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

/// A record behind the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A change of the link.
    Change(Change),
    /// The end of a life of a peer's channel: its messages stand below this position of a spool.
    Ended(ChannelId, u64),
    /// The peer that carried the link last.
    Carried(KeptPeer),
}

impl Origin {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let parameters = &self.parameters;
        out.extend_from_slice(&[
            ORIGIN,
            parameters.connector_channel_id_size,
            parameters.listener_channel_id_size,
            u8::from(parameters.connector_transactions),
            u8::from(parameters.listener_transactions),
            u8::from(self.owner.is_some()),
        ]);
        put_bytes(self.endpoint_name.as_str().as_bytes(), out);
        put_bytes(self.owner.as_deref().unwrap_or_default().as_bytes(), out);
    }

    /// Takes the record at the front of `input`.
    pub fn decode(input: &mut &[u8]) -> Option<Self> {
        let [ORIGIN, connector, listener, own, peers, is_owned] = *take(input)? else {
            return None;
        };
        let name = str::from_utf8(take_bytes(input)?).ok()?;
        let owner = text(input)?;
        Some(Self {
            endpoint_name: EndpointName::try_from(name).ok()?,
            parameters: Parameters {
                connector_channel_id_size: connector,
                listener_channel_id_size: listener,
                connector_transactions: own != 0,
                listener_transactions: peers != 0,
            },
            owner: (is_owned != 0).then_some(owner),
        })
    }
}

impl KeptPeer {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(CARRIED_BY);
        put_bytes(self.name.as_bytes(), out);
        put_bytes(self.sender.as_bytes(), out);
        out.extend_from_slice(&to_u32(self.attributes.len()).to_le_bytes());
        for (name, value) in &self.attributes {
            put_bytes(name.as_bytes(), out);
            put_bytes(value.as_bytes(), out);
        }
    }

    fn decode(input: &mut &[u8]) -> Option<Self> {
        let (name, sender) = (text(input)?, text(input)?);
        let count = u32::from_le_bytes(*take(input)?);
        let attributes = (0..count).map(|_| Some((text(input)?, text(input)?)));
        Some(Self {
            name,
            sender,
            attributes: attributes.collect::<Option<_>>()?,
        })
    }
}

/// Appends the record of a change.
pub fn encode(change: &Change, out: &mut Vec<u8>) {
    let (kind, channel, through) = match change {
        Change::Established(key) => {
            out.push(ESTABLISHED);
            out.extend_from_slice(&key.epoch.to_le_bytes());
            out.extend_from_slice(&key.link_id.to_le_bytes());
            return;
        }
        Change::Shutdown => return out.push(SHUTDOWN),
        Change::Closing { channel } => (CLOSING, channel, None),
        Change::CloseLeaves { channel } => (CLOSE_LEAVES, channel, None),
        Change::Closed { side, channel } => match side {
            Side::Outgoing => (OWN_CLOSED, channel, None),
            Side::Incoming => (PEERS_CLOSED, channel, None),
        },
        Change::Sent {
            channel, sequence, ..
        } => (SENT, channel, Some(sequence)),
        Change::HandedOver { channel, through } => (HANDED_OVER, channel, Some(through)),
        Change::Acknowledged { channel, through } => (ACKNOWLEDGED, channel, Some(through)),
        Change::Decided {
            channel,
            operation,
            through,
        } => {
            let is_commit = *operation == Operation::Commit;
            let kind = if is_commit { COMMITTED } else { ROLLED_BACK };
            (kind, channel, Some(through))
        }
        Change::Outcome { channel, through } => (OUTCOME, channel, Some(through)),
        Change::Consumed { channel, through } => (CONSUMED, channel, Some(through)),
        Change::Answered {
            channel,
            committed,
            through,
        } => (
            if *committed { SUCCEEDED } else { FAILED },
            channel,
            Some(through),
        ),
    };
    out.push(kind);
    put_channel(channel, out);
    if let Some(through) = through {
        out.extend_from_slice(&through.0.to_le_bytes());
    }
    if let Change::Sent { payload, .. } = change {
        out.extend_from_slice(&to_u32(payload.len()).to_le_bytes());
        payload.parts().for_each(|part| put_bytes(&part, out));
    }
}

/// Appends the record of [`Record::Ended`].
pub fn encode_end(channel: &ChannelId, position: u64, out: &mut Vec<u8>) {
    out.push(ENDED_AT);
    put_channel(channel, out);
    out.extend_from_slice(&position.to_le_bytes());
}

/// Reads records to the end of `input`; `None` if one of them cannot be read.
pub fn decode_all(mut input: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !input.is_empty() {
        records.push(Record::decode(&mut input)?);
    }
    Some(records)
}

impl Record {
    fn decode(input: &mut &[u8]) -> Option<Self> {
        let [kind] = *take(input)?;
        Some(Self::Change(match kind {
            ESTABLISHED => {
                let epoch = u64::from_le_bytes(*take(input)?);
                let link_id = u64::from_le_bytes(*take(input)?);
                Change::Established(LinkKey { epoch, link_id })
            }
            SHUTDOWN => Change::Shutdown,
            CARRIED_BY => return KeptPeer::decode(input).map(Self::Carried),
            _ => {
                let channel = channel(input)?;
                match kind {
                    ENDED_AT => {
                        let position = u64::from_le_bytes(*take(input)?);
                        return Some(Self::Ended(channel, position));
                    }
                    CLOSING => Change::Closing { channel },
                    CLOSE_LEAVES => Change::CloseLeaves { channel },
                    OWN_CLOSED | PEERS_CLOSED => Change::Closed {
                        side: if kind == OWN_CLOSED {
                            Side::Outgoing
                        } else {
                            Side::Incoming
                        },
                        channel,
                    },
                    _ => {
                        let through = Sequence(u32::from_le_bytes(*take(input)?));
                        with_sequence(kind, channel, through, input)?
                    }
                }
            }
        }))
    }
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

    fn decoded(bytes: &[u8]) -> Option<Vec<Change>> {
        let records = decode_all(bytes)?.into_iter();
        let changes = records.map(|record| match record {
            Record::Change(change) => Some(change),
            _ => None,
        });
        changes.collect()
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
    fn a_peer_and_an_end_come_back_as_they_were_and_a_part_of_one_is_none() {
        let peer = |attributes: &[(&str, &str)]| {
            let attributes = attributes.iter();
            Record::Carried(KeptPeer {
                name: "[2001:db8::1]:7".into(),
                sender: "2001:db8::1".into(),
                attributes: attributes
                    .map(|(name, value)| ((*name).into(), (*value).into()))
                    .collect(),
            })
        };
        for record in [
            peer(&[]),
            peer(&[("proxy", "192.0.2.1"), ("ü", "")]),
            Record::Ended(ChannelId::from(&[1, 2]), u64::MAX),
        ] {
            let mut bytes = Vec::new();
            match &record {
                Record::Carried(peer) => peer.encode(&mut bytes),
                Record::Ended(channel, position) => encode_end(channel, *position, &mut bytes),
                Record::Change(_) => unreachable!(),
            }
            for len in 1..bytes.len() {
                assert_eq!(decode_all(&bytes[..len]), None);
            }
            assert_eq!(decode_all(&bytes), Some(vec![record]));
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
