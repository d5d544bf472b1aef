//! Random packets and random bytes: decoding gives the packet that was encoded.
#![allow(clippy::unwrap_used, clippy::panic)] // tests may panic

use ackline_core::{SendQueue, Sequence};
use ackline_relink::frame::{
    self, Acknowledgement, Body, Context, Decoded, EndpointBlock, EndpointName, Ident, Operation,
    Packet, Parameters, Role, Targets, Version,
};
use ackline_relink::{ChannelId, Limits, Payload, fuzzing};
use bytes::{Buf, Bytes};
use proptest::prelude::*;

/// The owned content of a packet about channels.
#[derive(Debug, Clone)]
enum Says {
    Operation(Operation),
    Acknowledgement(Acknowledgement),
    SequenceOperation(Operation, u32),
    SequenceAcknowledgement(Acknowledgement, u32),
    Message(Vec<Bytes>),
}

impl Says {
    /// Whether the ids belong to the receiver.
    fn acknowledges(&self) -> bool {
        matches!(
            self,
            Self::Acknowledgement(_) | Self::SequenceAcknowledgement(..)
        )
    }
}

fn says() -> impl Strategy<Value = Says> {
    use Acknowledgement::{Closed, Committed, Consumed, Received, Uncommitted};
    use Operation::{Close, Commit, Rollback};
    let operation = prop_oneof![Just(Commit), Just(Rollback)];
    let outcome = prop_oneof![
        Just(Received),
        Just(Consumed),
        Just(Committed),
        Just(Uncommitted)
    ];
    let size = prop_oneof![8 => 0_usize..40, 1 => Just(65_535_usize), 1 => Just(65_536)];
    let part = (any::<u8>(), size).prop_map(|(byte, size)| Bytes::from(vec![byte; size]));
    let lengths = prop_oneof![6 => 0_usize..5, 1 => Just(255_usize), 1 => Just(256)];
    let parts = lengths.prop_flat_map(move |len| {
        // If there are many parts, they are small.
        let part = if len > 5 {
            Just(Bytes::from_static(b"x")).boxed()
        } else {
            part.clone().boxed()
        };
        proptest::collection::vec(part, len)
    });
    prop_oneof![
        1 => prop_oneof![operation.clone(), Just(Close)].prop_map(Says::Operation),
        1 => prop_oneof![outcome.clone(), Just(Closed)].prop_map(Says::Acknowledgement),
        1 => (operation, any::<u32>()).prop_map(|(what, number)| Says::SequenceOperation(what, number)),
        1 => (outcome, any::<u32>())
            .prop_map(|(what, number)| Says::SequenceAcknowledgement(what, number)),
        4 => parts.prop_map(Says::Message),
    ]
}

fn id_size() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0_u8..12, 1 => any::<u8>()]
}

fn context() -> impl Strategy<Value = Context> {
    let role = prop_oneof![Just(Role::Connector), Just(Role::Listener)];
    (role, id_size(), id_size()).prop_map(|(from, connector, listener)| Context {
        from,
        connector_channel_id_size: connector,
        listener_channel_id_size: listener,
    })
}

fn ids(context: Context, says: &Says, count: usize, seed: u8) -> Vec<ChannelId> {
    let side = if says.acknowledges() {
        context.from.peer()
    } else {
        context.from
    };
    let size = usize::from(context.channel_id_size(side));
    let id = |at: usize| {
        let id: Vec<u8> = (0..size)
            .map(|byte| u8::try_from((byte + at + usize::from(seed)) % 256).unwrap())
            .collect();
        ChannelId::from(id.as_slice())
    };
    (0..count).map(id).collect()
}

/// Encodes a message from its owned form, and any other packet from a view.
fn encode(ids: &[ChannelId], says: &Says) -> Vec<u8> {
    let mut out = Vec::new();
    let body = match says {
        Says::Operation(what) => Body::Operation(*what),
        Says::Acknowledgement(what) => Body::Acknowledgement(*what),
        Says::SequenceOperation(what, number) => Body::SequenceOperation(*what, Sequence(*number)),
        Says::SequenceAcknowledgement(what, number) => {
            Body::SequenceAcknowledgement(*what, Sequence(*number))
        }
        Says::Message(parts) => {
            frame::encode_message(ids, &Payload::from_parts(parts.clone()), &mut out);
            return out;
        }
    };
    let all: Vec<u8> = ids.iter().flat_map(ChannelId::as_bytes).copied().collect();
    let size = u8::try_from(ids[0].len()).unwrap();
    let targets = Targets::multicast(&all, size, u32::try_from(ids.len()).unwrap());
    frame::encode(&Packet::Channel { targets, body }, &mut out);
    out
}

proptest! {
    #[test]
    fn an_encoded_packet_is_decoded_again(
        context in context(),
        says in says(),
        count in 1_usize..5,
        seed in any::<u8>(),
        behind in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let ids = ids(context, &says, count, seed);
        let mut wire = encode(&ids, &says);
        let len = wire.len();
        wire.extend_from_slice(&behind);
        let decoded = frame::decode(&context, &Limits::default(), &wire);
        let Ok(Decoded::Whole { packet: Packet::Channel { targets, body }, len: taken }) = decoded else {
            panic!("{decoded:?}");
        };
        prop_assert_eq!(taken, len, "the bytes after a packet are not touched");
        prop_assert_eq!(targets.is_multicast(), count > 1);
        prop_assert!(targets.iter().eq(ids.iter().map(ChannelId::as_bytes)));
        match (&says, body) {
            (Says::Operation(what), Body::Operation(came)) => prop_assert_eq!(*what, came),
            (Says::Acknowledgement(what), Body::Acknowledgement(came)) => prop_assert_eq!(*what, came),
            (Says::SequenceOperation(what, number), Body::SequenceOperation(came, at)) => {
                prop_assert_eq!((*what, *number), (came, at.0));
            }
            (Says::SequenceAcknowledgement(what, number), Body::SequenceAcknowledgement(came, at)) => {
                prop_assert_eq!((*what, *number), (came, at.0));
            }
            (Says::Message(parts), Body::Message(came)) => {
                prop_assert_eq!(parts.len(), came.len());
                prop_assert!(came.iter().eq(parts.iter()));
                prop_assert_eq!(came.bytes(), parts.iter().map(Bytes::len).sum::<usize>());
                prop_assert_eq!(came.largest(), parts.iter().map(Bytes::len).max().unwrap_or(0));
            }
            (says, body) => prop_assert!(false, "{:?} came as {:?}", says, body),
        }
    }

    #[test]
    fn a_message_leaves_in_the_same_bytes_chained_or_copied(
        context in context(),
        says in says(),
        count in 1_usize..4,
    ) {
        let ids = ids(context, &says, count, 0);
        if let Says::Message(parts) = &says {
            let mut queue = SendQueue::new();
            frame::encode_message(&ids, &Payload::from_parts(parts.clone()), &mut queue);
            prop_assert_eq!(queue.len() % frame::ALIGNMENT, 0);
            prop_assert_eq!(encode(&ids, &says), queue.copy_to_bytes(queue.len()).to_vec());
        }
    }

    #[test]
    fn the_canonical_form_is_smallest_and_any_beginning_of_it_waits(
        context in context(),
        says in says(),
        count in 1_usize..5,
        behind in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let from = u8::from(context.from == Role::Listener);
        let mut data = vec![from, context.connector_channel_id_size, context.listener_channel_id_size];
        data.extend_from_slice(&encode(&ids(context, &says, count, 1), &says));
        data.extend_from_slice(&behind);
        fuzzing::roundtrip(&data);
    }

    #[test]
    fn any_bytes_are_refused_or_say_the_same_in_the_canonical_form(
        mut data in proptest::collection::vec(any::<u8>(), 4..200),
        sizes in 0_u8..6,
        first in any::<u8>(),
    ) {
        // The ids are small, and the header is often a sound one.
        (data[1], data[2], data[3]) = (sizes, sizes / 2, first);
        fuzzing::roundtrip(&data);
    }

    #[test]
    fn handshake_blocks_are_decoded_again(
        name in "\\PC{0,60}",
        sizes in any::<(u8, u8)>(),
        flags in any::<(bool, bool, bool, bool)>(),
        numbers in any::<(u64, u64, u8)>(),
    ) {
        let block = EndpointBlock {
            endpoint_name: EndpointName::try_from(name.as_str()).unwrap(),
            parameters: Parameters {
                connector_channel_id_size: sizes.0,
                listener_channel_id_size: sizes.1,
                connector_transactions: flags.0,
                listener_transactions: flags.1,
            },
            require_old_link_id: flags.2,
            wants_hints: flags.3,
            old_epoch: numbers.0,
            old_link_id: numbers.1,
        };
        let mut out = Vec::new();
        block.encode(&mut out);
        prop_assert_eq!(out.len() % frame::ALIGNMENT, 0);
        prop_assert_eq!(EndpointBlock::needed(&out), out.len());
        for cut in 0..out.len() {
            prop_assert_eq!(EndpointBlock::decode(&out[..cut]), Ok(None));
            prop_assert!(EndpointBlock::needed(&out[..cut]) > cut);
        }
        prop_assert_eq!(EndpointBlock::decode(&out), Ok(Some(block)));

        let ident = Ident { epoch: numbers.0, link_id: numbers.1 };
        out.clear();
        ident.encode(&mut out);
        prop_assert_eq!((Ident::decode(&out), out.len()), (Some(ident), Ident::LEN));
        prop_assert_eq!(Ident::decode(&out[..15]), None);

        out.clear();
        Version(numbers.2).encode(&mut out);
        prop_assert_eq!((Version::decode(&out), out.len()), (Some(Version(numbers.2)), Version::LEN));
        prop_assert_eq!(Version::decode(&out[..7]), None);
    }
}

#[test]
fn an_endpoint_name_has_at_most_255_bytes() {
    assert!(EndpointName::try_from("n".repeat(255).as_str()).is_ok());
    let refused = EndpointName::try_from("n".repeat(256).as_str()).unwrap_err();
    assert_eq!(refused.code, "invalid_endpoint_name");
}

#[test]
fn a_packet_for_no_channel_keeps_the_form_for_several() {
    let targets = Targets::multicast(&[], 2, 0);
    let body = Body::Operation(Operation::Close);
    let mut out = Vec::new();
    frame::encode(&Packet::Channel { targets, body }, &mut out);
    assert_eq!(out, [0x43, 0, 0, 0, 0, 0, 0, 0]);
}
