//! The code of the fuzz targets, which the replay of their corpora runs too. Each function takes any bytes and fails
//! an assertion if a promise of the crate does not hold for them.

mod flow;
mod pair;
mod receive;

use std::time::Instant;

use bytes::Bytes;

use crate::frame::{
    self, Body, Context, Decoded, EndpointBlock, Ident, Packet, Parts, Role, Targets, Version,
};
use crate::{ChannelId, Limits, payload};

/// Checks that any split of any bytes gives the same result, for either end, in many states, with or without the
/// handshake.
pub fn receive(now: Instant, data: &[u8]) {
    receive::receive(now, data);
}

/// Checks that no order of calls, deliveries, cuts and time on both ends of a link loses, doubles or reorders a
/// message.
pub fn ops(start: Instant, data: &[u8]) {
    pair::ops(start, data);
}

/// Checks that every decoded packet is encoded in the smallest form, which means the same and does not change again,
/// and that the beginning of a sound packet is never refused. The first byte selects the sender, and the next two are
/// the id sizes.
pub fn roundtrip(data: &[u8]) {
    let Some(([from, connector, listener], bytes)) = data.split_first_chunk() else {
        return;
    };
    let context = Context {
        from: if from & 1 == 0 {
            Role::Connector
        } else {
            Role::Listener
        },
        connector_channel_id_size: *connector,
        listener_channel_id_size: *listener,
    };
    blocks(bytes);
    let limits = Limits {
        // Each id is looked at.
        max_channel_ids: 1 << 12,
        ..Limits::default()
    };
    let mut rest = bytes;
    loop {
        match frame::decode(&context, &limits, rest) {
            Ok(Decoded::Whole { packet, len }) => {
                assert!(len > 0 && len.is_multiple_of(frame::ALIGNMENT));
                let (front, behind) = rest.split_at_checked(len).expect("a packet is there");
                again(context, &limits, &packet, front);
                rest = behind;
            }
            Ok(Decoded::Partial { at_least }) => {
                assert!(at_least > rest.len(), "bytes are asked for that are there");
                return;
            }
            Err(_) => return,
        }
    }
}

/// Checks that a decoded block means the same when it is encoded.
fn blocks(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Some(version) = Version::decode(bytes) {
        version.encode(&mut out);
        assert_eq!(Version::decode(&out), Some(version));
    }
    out.clear();
    if let Some(ident) = Ident::decode(bytes) {
        ident.encode(&mut out);
        assert_eq!(bytes.get(..Ident::LEN), Some(out.as_slice()));
    }
    out.clear();
    let needed = EndpointBlock::needed(bytes);
    match EndpointBlock::decode(bytes) {
        Ok(Some(block)) => {
            assert!(needed <= bytes.len(), "the bytes read are there");
            block.encode(&mut out);
            assert_eq!(out.len(), needed, "a block has one length");
            assert_eq!(EndpointBlock::decode(&out), Ok(Some(block)));
        }
        Ok(None) => assert!(needed > bytes.len(), "bytes are asked for that are there"),
        Err(_) => {}
    }
}

/// Checks the canonical form of the packet in `front`.
fn again(context: Context, limits: &Limits, packet: &Packet<'_>, front: &[u8]) {
    let mut canonical = Vec::new();
    frame::encode(packet, &mut canonical);
    assert!(canonical.len() <= front.len(), "the smallest form");
    let decoded = frame::decode(&context, limits, &canonical);
    let Ok(Decoded::Whole { packet: same, len }) = decoded else {
        unreachable!("the canonical form is not sound: {decoded:?}");
    };
    assert_eq!(len, canonical.len());
    agree(packet, &same);
    let mut once_more = Vec::new();
    frame::encode(&same, &mut once_more);
    assert_eq!(canonical, once_more, "the canonical form stays as it is");
    for cut in cuts(canonical.len()) {
        let beginning = canonical.get(..cut).unwrap_or_default();
        match frame::decode(&context, limits, beginning) {
            Ok(Decoded::Partial { at_least }) => {
                assert!(cut < at_least && at_least <= canonical.len());
            }
            other => unreachable!("a beginning is no packet: {other:?}"),
        }
    }
    if let Packet::Channel {
        targets,
        body: Body::Message(parts),
    } = packet
    {
        owned(targets, parts, front, &canonical);
    }
}

fn agree(one: &Packet<'_>, other: &Packet<'_>) {
    match (one, other) {
        (
            Packet::Channel { targets, body },
            Packet::Channel {
                targets: same_targets,
                body: same_body,
            },
        ) => {
            assert!(targets.iter().eq(same_targets.iter()), "the same channels");
            assert_eq!(targets.count(), same_targets.count());
            assert_eq!(body, same_body);
        }
        _ => assert_eq!(one, other),
    }
}

/// Checks that an owned message means the same, copied or sliced, and is sent in the same bytes.
fn owned(targets: &Targets<'_>, parts: &Parts<'_>, front: &[u8], canonical: &[u8]) {
    let payload = payload::copied(parts);
    assert_eq!(
        (payload.len(), payload.bytes()),
        (parts.len(), parts.bytes())
    );
    assert!(payload.parts().eq(parts.iter()), "a copy holds the parts");
    let sliced = payload::sliced(parts, &Bytes::copy_from_slice(front));
    assert_eq!(payload, sliced, "slices hold the parts");
    let ids: Vec<ChannelId> = targets.iter().map(ChannelId::from).collect();
    let mut sent = Vec::new();
    frame::encode_message(&ids, &payload, &mut sent);
    assert_eq!(
        sent, canonical,
        "a kept message is sent in the smallest form"
    );
}

/// Returns all cuts of a short packet, and some of a long one.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    let step = len.div_ceil(200).max(1);
    (0..len).step_by(step).chain(len.checked_sub(1))
}
